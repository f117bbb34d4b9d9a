//! The container's own view of the file system: the machine's, with the pod's mount paths as they are written.
//!
//! A tmpfs becomes the root; the top-level entries of the real root are bound into it. A directory that must get a
//! new child (`/etc` for `/etc/trainingjob`) becomes an overlay: its own entries, and on top of them the mount points.
//! Where the kernel refuses overlays, it is opened: a directory of the tmpfs into which its entries are bound, one by one.
//! All of this is read-only, so a program that writes where nothing would be kept gets an error instead of losing what
//! it wrote.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};
use serde::{Deserialize, Serialize};

/// What the root is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Root {
    /// A directory that the new root can be built on; nothing is written to it.
    pub(crate) scratch: PathBuf,
    pub(crate) mounts: Vec<Mount>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) target: PathBuf,
    pub(crate) source: Source,
    pub(crate) read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    /// A directory or file of this machine.
    Bind(PathBuf),
    /// Memory, at most this many bytes.
    Memory { bytes: Option<u64> },
}

/// Where the mount points of overlays are made; gone when the root is complete.
const SKELETONS: &str = ".skeletons";

/// The root while it is being built.
struct Builder<'a> {
    scratch: &'a Path,
    skeletons: PathBuf,
    count: usize,
    /// What was mounted on this machine before.
    mounted: Vec<PathBuf>,
}

/// The mount paths as a tree.
#[derive(Debug, Default)]
struct Tree<'a> {
    mount: Option<&'a Mount>,
    children: BTreeMap<OsString, Tree<'a>>,
}

/// Builds the root and enters it. The process must have a mount namespace (and, for /proc, a PID namespace) of its own.
pub(super) fn enter(root: &Root) -> Result<(), String> {
    let mounted = mount_points(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
    // Nothing that is mounted from here on reaches the machine.
    change(Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    let top = &root.scratch;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), top, Some("tmpfs"), flags, Some("mode=0755,size=16m"))
        .map_err(|error| format!("a new root on {}: {}", top.display(), error.desc()))?;
    let mut tree = Tree::default();
    for mount in &root.mounts {
        tree.add(&resolved(&mount.target), mount);
    }
    let mut builder = Builder { scratch: top, skeletons: top.join(SKELETONS), count: 0, mounted };
    builder.fill(Some(Path::new("/")), top, &tree)?;
    builder.finish();
    remount_read_only(top)?;
    std::env::set_current_dir(top).map_err(|error| format!("entering the new root: {error}"))?;
    nix::unistd::pivot_root(".", ".").map_err(|error| format!("pivot_root: {}", error.desc()))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(|error| format!("leaving the old root: {}", error.desc()))?;
    std::env::set_current_dir("/").map_err(|error| format!("entering the new root: {error}"))
}

impl<'a> Tree<'a> {
    fn add(&mut self, target: &Path, mount: &'a Mount) {
        let mut tree = self;
        for part in target.components() {
            if let Component::Normal(name) = part {
                tree = tree.children.entry(name.to_owned()).or_default();
            }
        }
        tree.mount = Some(mount);
    }

    /// Whether something is missing on the machine below this directory, so that binding it would not do.
    fn must_open(&self, host: &Path) -> bool {
        self.children.iter().any(|(name, child)| {
            let host = host.join(name);
            match child.mount {
                Some(mount) => !fits(mount, &host),
                None => !host.is_dir() || child.must_open(&host),
            }
        })
    }
}

/// Whether this can be mounted on what is there: a directory on a directory, a file on a file.
fn fits(mount: &Mount, host: &Path) -> bool {
    match &mount.source {
        Source::Bind(source) if !source.is_dir() => host.is_file(),
        Source::Bind(_) | Source::Memory { .. } => host.is_dir(),
    }
}

/// Symbolic links in the part of the path that exists (`/var/run` is `/run`) are followed.
fn resolved(target: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut existing = target;
    loop {
        if let Ok(real) = existing.canonicalize() {
            return missing.iter().rev().fold(real, |path, name| path.join(name));
        }
        let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else {
            return target.to_owned();
        };
        missing.push(name.to_owned());
        existing = parent;
    }
}

/// The places of all mounts, from the fifth column; spaces and the like are written in octal there.
fn mount_points(mountinfo: &str) -> Vec<PathBuf> {
    let places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    places.filter(|place| !place.contains('\\')).map(PathBuf::from).collect()
}

impl Builder<'_> {
    /// Fills a directory of the new root with what the machine's directory has and what the mounts add.
    fn fill(&mut self, host: Option<&Path>, new: &Path, tree: &Tree<'_>) -> Result<(), String> {
        if let Some(host) = host {
            let entries =
                fs::read_dir(host).map_err(|error| format!("opening {}: {error}", host.display()))?;
            for entry in entries.flatten() {
                if tree.children.contains_key(&entry.file_name()) {
                    continue;
                }
                let (from, to) = (entry.path(), new.join(entry.file_name()));
                if from == Path::new("/proc") {
                    processes(&to)?;
                } else {
                    reproduce(&from, &to, self.scratch)?;
                }
            }
        }
        for (name, child) in &tree.children {
            let to = new.join(name);
            let from = host.map(|host| host.join(name)).filter(|from| from.is_dir());
            if let Some(mount) = child.mount {
                make_place(mount, &to)?;
                put(mount, &to)?;
                on_top(&to, child)?;
                continue;
            }
            match from {
                Some(from) if from != Path::new("/proc") && !child.must_open(&from) => {
                    reproduce(&from, &to, self.scratch)?;
                    on_top(&to, child)?;
                }
                from => {
                    make_directory(&to)?;
                    let covered = from.as_ref().is_some_and(|from| self.overlay(from, &to, child).is_ok());
                    if covered {
                        on_top(&to, child)?;
                    } else {
                        self.fill(from.as_deref(), &to, child)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Shows a directory with mount points in it that it does not have.
    fn overlay(&mut self, from: &Path, to: &Path, tree: &Tree<'_>) -> Result<(), String> {
        let (Some(text), false) = (from.to_str(), from == Path::new("/proc")) else {
            return Err("not for an overlay".to_owned());
        };
        // Where the user is not root, devices cannot be opened through an overlay.
        let devices = from == Path::new("/dev") && !nix::unistd::geteuid().is_root();
        if devices || text.contains([':', ',', '\\']) || self.scratch.starts_with(from) {
            return Err("not for an overlay".to_owned());
        }
        if self.count == 0 {
            make_directory(&self.skeletons)?;
            mount(Some("tmpfs"), &self.skeletons, Some("tmpfs"), MsFlags::empty(), Some("mode=0755,size=1m"))
                .map_err(|error| error.desc().to_owned())?;
        }
        let skeleton = self.skeletons.join(self.count.to_string());
        self.count += 1;
        make_directory(&skeleton)?;
        sketch(&skeleton, tree)?;
        let options = format!("lowerdir={}:{text}", skeleton.display());
        mount(Some("overlay"), to, Some("overlay"), MsFlags::MS_RDONLY, Some(options.as_str()))
            .map_err(|error| error.desc().to_owned())?;
        // An overlay does not show what is mounted below.
        for place in self.mounted.iter().filter(|place| place.starts_with(from) && *place != from) {
            if let Ok(inner) = place.strip_prefix(from) {
                let _ = bind(place, &to.join(inner));
            }
        }
        Ok(())
    }

    /// Overlays keep what they are made of; nobody needs to see it.
    fn finish(&self) {
        if self.count > 0 {
            let _ = umount2(&self.skeletons, MntFlags::MNT_DETACH);
            let _ = fs::remove_dir(&self.skeletons);
        }
    }
}

/// Makes the mount points of a tree.
fn sketch(place: &Path, tree: &Tree<'_>) -> Result<(), String> {
    for (name, child) in &tree.children {
        let to = place.join(name);
        if let Some(mount) = child.mount {
            // What is below is made in what is mounted.
            make_place(mount, &to)?;
        } else {
            make_directory(&to)?;
            sketch(&to, child)?;
        }
    }
    Ok(())
}

fn make_directory(path: &Path) -> Result<(), String> {
    fs::create_dir(path).map_err(|error| format!("making {}: {error}", path.display()))
}

/// Mounts below something that is mounted already. Missing mount points are made in it, as container runtimes do.
fn on_top(place: &Path, tree: &Tree<'_>) -> Result<(), String> {
    for (name, child) in &tree.children {
        let to = place.join(name);
        match child.mount {
            Some(mount) => {
                if !fits(mount, &to) {
                    make_place(mount, &to)?;
                }
                put(mount, &to)?;
            }
            None if !to.is_dir() => make_directory(&to)?,
            None => {}
        }
        on_top(&to, child)?;
    }
    Ok(())
}

fn make_place(mount: &Mount, to: &Path) -> Result<(), String> {
    let made = match &mount.source {
        Source::Bind(source) if !source.is_dir() => fs::write(to, ""),
        Source::Bind(_) | Source::Memory { .. } => fs::create_dir(to),
    };
    made.map_err(|error| format!("making the mount point {}: {error}", mount.target.display()))
}

fn put(wanted: &Mount, to: &Path) -> Result<(), String> {
    let failed = |error: nix::Error| format!("mounting {}: {}", wanted.target.display(), error.desc());
    match &wanted.source {
        Source::Bind(source) => bind(source, to)
            .map_err(failed)
            .map_err(|why| format!("{why} (it is {} on this machine)", source.display()))?,
        Source::Memory { bytes } => {
            let size = bytes.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
            let options = format!("mode=1777{size}");
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            mount(Some("tmpfs"), to, Some("tmpfs"), flags, Some(options.as_str())).map_err(failed)?;
        }
    }
    if wanted.read_only { remount_read_only(to) } else { Ok(()) }
}

/// The entry as it is on the machine.
fn reproduce(from: &Path, to: &Path, scratch: &Path) -> Result<(), String> {
    let Ok(kind) = from.symlink_metadata().map(|metadata| metadata.file_type()) else { return Ok(()) };
    let failed = |error: String| format!("showing {}: {error}", from.display());
    if kind.is_symlink() {
        let link = fs::read_link(from).and_then(|target| symlink(target, to));
        return link.map_err(|error| failed(error.to_string()));
    }
    let place = if kind.is_dir() { fs::create_dir(to) } else { fs::write(to, "") };
    place.map_err(|error| failed(error.to_string()))?;
    // An entry that may not be shown (it is gone, or forbidden) stays an empty place.
    if bind(from, to).is_ok()
        && let Ok(inner) = scratch.strip_prefix(from)
    {
        // The copy contains the root that is being built: without this it would keep itself alive.
        let _ = umount2(&to.join(inner), MntFlags::MNT_DETACH);
    }
    Ok(())
}

/// /proc of the container's processes; the machine's where the kernel refuses (some parts of it are hidden there).
fn processes(to: &Path) -> Result<(), String> {
    fs::create_dir(to).map_err(|error| format!("making /proc: {error}"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), to, Some("proc"), flags, None::<&str>)
        .or_else(|_| bind(Path::new("/proc"), to))
        .map_err(|error| format!("mounting /proc: {}", error.desc()))
}

fn bind(from: &Path, to: &Path) -> nix::Result<()> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
}

fn change(path: &Path, flags: MsFlags) -> Result<(), String> {
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
        .map_err(|error| format!("mount propagation: {}", error.desc()))
}

/// In a user namespace, flags that the mount has may not be taken away, so they are given again.
fn remount_read_only(path: &Path) -> Result<(), String> {
    let failed = |error: nix::Error| format!("making {} read-only: {}", path.display(), error.desc());
    let now = statvfs(path).map_err(failed)?.flags();
    let kept = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    let kept = kept.into_iter().filter(|(has, _)| now.contains(*has)).map(|(_, flag)| flag);
    let flags =
        kept.fold(MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY, |all, flag| all | flag);
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>).map_err(failed)
}
