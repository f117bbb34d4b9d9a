//! Limits on memory and CPU, by control groups: version 2 where the machine has it, version 1 where that is what there is.
//!
//! Where none can be had (no rights, not delegated), containers run without limits, and one line says so.

use std::fs;
use std::path::{Path, PathBuf};

/// Where this node may make groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cgroups {
    /// One tree for all.
    Unified(PathBuf),
    /// A tree for each controller; those that can be used.
    Separate {
        memory: Option<PathBuf>,
        cpu: Option<PathBuf>,
    },
    None {
        why: String,
    },
}

/// The groups of one container; they are removed with it.
#[derive(Debug, Default)]
pub(crate) struct Group {
    directories: Vec<PathBuf>,
    /// Where the number of kills for want of memory stands.
    kills: Option<PathBuf>,
}

/// What a container may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: Option<i64>,
    /// Thousandths of a CPU.
    pub(crate) cpu_limit: Option<i64>,
    pub(crate) cpu_request: Option<i64>,
}

impl Cgroups {
    /// Finds a place for groups of ours, named after the node's process.
    pub(crate) fn find() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let name = format!("trainyard-{}", std::process::id());
        let unified = mount_point(&mounts, |kind, _| kind == "cgroup2");
        if let Some(top) = unified
            && fs::read_to_string(top.join("cgroup.controllers")).is_ok_and(|all| all.contains("memory"))
        {
            let inside = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
            return match unified_place(&top, inside, &name) {
                Ok(place) => Self::Unified(place),
                Err(why) => Self::None { why },
            };
        }
        let separate = |controller: &str| -> Option<PathBuf> {
            let has = |list: &str| list.split(',').any(|option| option == controller);
            let top = mount_point(&mounts, |kind, options| kind == "cgroup" && has(options))?;
            let inside = own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                parts.next().filter(|controllers| has(controllers)).and(parts.next())
            });
            let place = top.join(inside.unwrap_or("/").trim_start_matches('/')).join(&name);
            fs::create_dir(&place).ok().map(|()| place)
        };
        match (separate("memory"), separate("cpu")) {
            (None, None) => Self::None { why: "no control group can be made by this user".to_owned() },
            (memory, cpu) => {
                if let Some(memory) = &memory {
                    // Groups below count for the one above them, too.
                    let _ = fs::write(memory.join("memory.use_hierarchy"), "1");
                }
                Self::Separate { memory, cpu }
            }
        }
    }

    /// A group for a container that has limits; none for one that has not.
    pub(crate) fn group(&self, name: &str, limits: Limits) -> std::io::Result<Option<Group>> {
        if limits == Limits::default() {
            return Ok(None);
        }
        let mut group = Group::default();
        match self {
            Self::None { .. } => return Ok(None),
            Self::Unified(place) => {
                let directory = place.join(name);
                make(&directory)?;
                group.directories.push(directory.clone());
                if let Some(bytes) = limits.memory_bytes {
                    fs::write(directory.join("memory.max"), bytes.to_string())?;
                    // The limit is the limit: a container that swaps is slower than one that fails is annoying.
                    let _ = fs::write(directory.join("memory.swap.max"), "0");
                    let _ = fs::write(directory.join("memory.oom.group"), "1");
                    group.kills = Some(directory.join("memory.events"));
                }
                if let Some(millis) = limits.cpu_limit {
                    let _ = fs::write(directory.join("cpu.max"), format!("{} 100000", quota(millis)));
                }
                if let Some(millis) = limits.cpu_request {
                    let _ = fs::write(directory.join("cpu.weight"), weight(millis).to_string());
                }
            }
            Self::Separate { memory, cpu } => {
                if let (Some(place), Some(bytes)) = (memory, limits.memory_bytes) {
                    let directory = place.join(name);
                    make(&directory)?;
                    group.directories.push(directory.clone());
                    fs::write(directory.join("memory.limit_in_bytes"), bytes.to_string())?;
                    let _ = fs::write(directory.join("memory.memsw.limit_in_bytes"), bytes.to_string());
                    group.kills = Some(directory.join("memory.oom_control"));
                }
                if let (Some(place), true) = (cpu, limits.cpu_limit.is_some() || limits.cpu_request.is_some())
                {
                    let directory = place.join(name);
                    make(&directory)?;
                    group.directories.push(directory.clone());
                    if let Some(millis) = limits.cpu_limit {
                        let _ = fs::write(directory.join("cpu.cfs_quota_us"), quota(millis).to_string());
                    }
                    if let Some(millis) = limits.cpu_request {
                        let _ = fs::write(directory.join("cpu.shares"), shares(millis).to_string());
                    }
                }
            }
        }
        Ok(Some(group))
    }

    /// Removes what is left when the node ends.
    pub(crate) fn remove(&self) {
        let places = match self {
            Self::Unified(place) => vec![place],
            Self::Separate { memory, cpu } => memory.iter().chain(cpu).collect(),
            Self::None { .. } => Vec::new(),
        };
        for place in places {
            sweep(place);
        }
    }

    /// Removes the groups of nodes that are not alive any more.
    pub(crate) fn remove_leftovers(&self) {
        let places = match self {
            Self::Unified(place) => vec![place],
            Self::Separate { memory, cpu } => memory.iter().chain(cpu).collect(),
            Self::None { .. } => Vec::new(),
        };
        for parent in places.into_iter().filter_map(|place| place.parent()) {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let pid = name.to_str().and_then(|name| name.strip_prefix("trainyard-")?.parse::<u32>().ok());
                if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                    sweep(&entry.path());
                }
            }
        }
    }
}

impl Group {
    /// The files through which a process enters.
    pub(crate) fn entrances(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|directory| directory.join("cgroup.procs")).collect()
    }

    /// Whether the kernel killed something in it for want of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let text = self.kills.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
        kills.is_some_and(|kills| kills > 0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in &self.directories {
            // Not empty for a moment after the last process: the next start removes what is left.
            let _ = fs::remove_dir(directory);
        }
    }
}

fn make(directory: &Path) -> std::io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let _ = fs::remove_dir(entry.path());
    }
    let _ = fs::remove_dir(place);
}

fn mount_point(mounts: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind, options) = (words.next()?, words.next()?, words.next()?);
        wanted(kind, options).then(|| PathBuf::from(place))
    })
}

/// The nearest group above this process that hands out memory and that we may write to. (A group with processes
/// of its own cannot hand out anything, so it is not this process's own.)
fn unified_place(top: &Path, inside: &str, name: &str) -> Result<PathBuf, String> {
    let own = top.join(inside.trim_start_matches('/'));
    for parent in own.ancestors().take_while(|path| path.starts_with(top)) {
        let handed_out = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
        if !handed_out.split_whitespace().any(|controller| controller == "memory") {
            continue;
        }
        let place = parent.join(name);
        if fs::create_dir(&place).is_err() {
            continue;
        }
        if fs::write(place.join("cgroup.subtree_control"), "+memory").is_ok() {
            let _ = fs::write(place.join("cgroup.subtree_control"), "+cpu");
            return Ok(place);
        }
        let _ = fs::remove_dir(&place);
    }
    Err("no control group with memory limits is delegated to this user".to_owned())
}

/// Microseconds in every tenth of a second.
fn quota(millis: i64) -> i64 {
    (millis * 100).max(1000)
}

fn shares(millis: i64) -> i64 {
    (millis * 1024 / 1000).clamp(2, 262_144)
}

fn weight(millis: i64) -> i64 {
    (1 + ((shares(millis) - 2) * 9999) / 262_142).clamp(1, 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_kind_and_controller() {
        let mounts = "proc /proc proc rw 0 0\ncgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let v1 = mount_point(mounts, |kind, options| {
            kind == "cgroup" && options.split(',').any(|o| o == "cpuacct")
        });
        assert_eq!(v1, Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(
            mount_point(mounts, |kind, _| kind == "cgroup2"),
            Some(PathBuf::from("/sys/fs/cgroup/unified"))
        );
        assert_eq!(mount_point(mounts, |kind, _| kind == "nfs"), None);
    }

    #[test]
    fn cpu_amounts() {
        assert_eq!(quota(500), 50_000);
        assert_eq!(shares(1000), 1024);
        assert_eq!(weight(1000), 39);
    }
}
