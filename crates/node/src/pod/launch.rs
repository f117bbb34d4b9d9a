//! Starting one container of a pod: what it is told, where it runs, who watches it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Container};
use tokio::time::Instant;

use super::{Farewell, Happened, RETRY, Run, Task};
use crate::cgroup::Limits;
use crate::env::{self, Surroundings};
use crate::isolate::orders::{Orders, Walls};
use crate::isolate::root::{Mount, Root, Source};
use crate::leftovers;
use crate::logs::Log;
use crate::machine::HOST_ADDRESS;
use crate::notices::Voice;
use crate::probes;
use crate::process::{self, StartError};
use crate::quantity;
use crate::rewrite::Rewrites;
use crate::shared::Door;
use crate::status::{End, Now};
use crate::volumes::{self, Rooms};
use crate::{names, sources};

/// What the kernel calls these files, everywhere.
const HOSTS: &str = "/etc/hosts";
const HOSTNAME: &str = "/etc/hostname";
const NAME_SERVICE_SWITCH: &str = "/etc/nsswitch.conf";
/// What a kubelet keeps of the end of a log as the message of a failure.
const LAST_WORDS_LINES: u64 = 80;
const LAST_WORDS_BYTES: usize = 2048;
/// Where a container leaves its last words, if it does not say, and how much of them is kept.
const TERMINATION_LOG: &str = "/dev/termination-log";
const MESSAGE_BYTES: u64 = 4096;

impl Task {
    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            sources: &self.sources,
            pod_ip: &self.assignment.address,
            host_ip: HOST_ADDRESS,
            node: &self.shared.config.name,
            allocatable: &self.shared.machine.allocatable,
        }
    }

    fn can_mount(&self) -> bool {
        self.shared.walls != Walls::None
    }

    /// Makes the pod's volumes, once. False if that has to be tried again.
    pub(super) async fn make_volumes(&mut self) -> bool {
        if self.volumes.is_some() {
            return true;
        }
        match sources::fetch(&self.shared.client, &self.pod).await {
            Ok(sources) => self.sources = sources,
            Err(error) => {
                tracing::warn!(
                    pod = self.pod.metadata.name,
                    "config maps and secrets were not read: {error}"
                );
                self.again = Some(Instant::now() + RETRY);
                return false;
            }
        }
        let pod_dir = self.shared.pod_dir(&self.uid);
        let memory = self.shared.memory_dir.join(&self.uid);
        let rooms = Rooms {
            pod: &pod_dir,
            memory: &memory,
            claims: &self.assignment.claims,
            can_mount: self.can_mount(),
        };
        match volumes::prepare(&self.pod, &rooms, self.surroundings()) {
            Ok(places) => {
                self.volumes = Some(places);
                self.explain(None);
                true
            }
            Err(why) => {
                self.explain(Some(&why));
                if self.shared.notices.first_time(format!("{} {why}", self.uid)) {
                    self.shared.notices.warning(&self.pod, Voice::Kubelet, "FailedMount", why);
                }
                self.again = Some(Instant::now() + RETRY);
                false
            }
        }
    }

    /// Says why containers that have never been started are not. A kubelet says that in an event alone, where nobody looks who
    /// waits for a job.
    fn explain(&mut self, why: Option<&str>) {
        for story in &mut self.stories {
            if let Now::Waiting { reason: "ContainerCreating" | "PodInitializing", message } = &mut story.now
            {
                *message = why.map(str::to_owned);
            }
        }
    }

    /// Writes the files anew that are made of a config map. Variables stay as they were, as everywhere.
    pub(super) fn config_map_changed(&mut self, map: &ConfigMap) {
        if self.volumes.is_none() {
            // They are read when they are made, which may have waited for this one.
            self.again = None;
            return;
        }
        let name = map.metadata.name.clone().unwrap_or_default();
        self.sources.config_maps.insert(name.clone(), map.clone());
        let directory = self.shared.pod_dir(&self.uid);
        if let Err(why) = volumes::refresh(&self.pod, &name, &directory, self.surroundings()) {
            tracing::warn!(
                pod = self.pod.metadata.name,
                "files of config map {name} stay as they are: {why}"
            );
        }
    }

    /// Starts a container, or puts into its story why it was not.
    pub(super) async fn start(&mut self, index: usize) {
        let Some(container) = self.spec(index) else { return };
        if matches!(self.stories[index].now, Now::Ended(_)) || self.stories[index].last.is_some() {
            self.stories[index].restarts += 1;
            if let Now::Ended(end) = &self.stories[index].now {
                self.stories[index].last = Some(end.clone());
            }
            // Whoever is started again gets what config maps and secrets say now, as everywhere.
            match sources::fetch(&self.shared.client, &self.pod).await {
                Ok(sources) => self.sources = sources,
                Err(error) => tracing::warn!(
                    pod = self.pod.metadata.name,
                    "config maps and secrets are as before: {error}"
                ),
            }
        }
        let (orders, rewritten) = match self.orders(index, &container) {
            Ok(orders) => orders,
            Err((reason, message)) => return self.not_now(index, reason, message),
        };
        if orders.command.is_empty() {
            let message =
                "this pod names no command, and images are not pulled on this machine: give spec.command";
            if self.shared.notices.first_time(format!("{} {message}", self.uid)) {
                self.shared.notices.warning(&self.pod, Voice::Kubelet, "Failed", message);
            }
            self.stories[index].now =
                Now::Waiting { reason: "ErrImagePull", message: Some(message.to_owned()) };
            // Nothing will change that: the command of a pod cannot be changed.
            self.restarts[index] = super::restart::Backoff::never();
            return;
        }
        self.say_once(&container, &rewritten);
        self.launch(index, &container, orders, rewritten).await;
    }

    async fn launch(&mut self, index: usize, container: &Container, mut orders: Orders, rewritten: Rewrites) {
        let run = self.stories[index].restarts;
        let group = match self
            .shared
            .cgroups
            .group(&format!("{}-{}-{run}", self.uid, container.name), limits(container))
        {
            Ok(group) => group,
            Err(error) => {
                return self.not_now(
                    index,
                    "CreateContainerError",
                    format!("making a control group: {error}"),
                );
            }
        };
        orders.cgroups = group.as_ref().map(crate::cgroup::Group::entrances).unwrap_or_default();
        let log =
            Log::new(self.shared.log_path(&self.uid, &container.name, run), self.shared.config.log_limits);
        self.shared.with_container(&self.uid, &container.name, |running| {
            running.previous_log = running.log.replace(log.clone());
        });
        let started = process::start(&self.shared.config.shim, self.shared.walls, &orders, log).await;
        let process = match started {
            Ok(process) => process,
            Err(StartError::Program(why)) => return self.not_started(index, &why),
            // Not the program's doing: too many files or processes, a binary that was replaced.
            Err(error) => return self.not_now(index, "RunContainerError", error.to_string()),
        };
        let (control, end) = process.split();
        let id = format!(
            "process://{}",
            control.init.map_or_else(|| format!("{}-{run}", self.uid), |pid| pid.to_string())
        );
        let door = Arc::new(Door { init: control.init, env: orders.env, directory: orders.directory });
        self.shared.with_container(&self.uid, &container.name, |running| running.door = Some(door.clone()));
        let happened = self.happened.0.clone();
        tokio::spawn(async move {
            let exit = end.await;
            // The task may have ended before its containers only if the node is gone.
            let _ = happened.send(Happened::Ended { index, run, exit });
        });
        let place = probes::Place {
            address: self.assignment.address.clone(),
            rewrites: rewritten,
            shim: self.shared.config.shim.clone(),
            door: door.clone(),
        };
        let happened = self.happened.0.clone();
        let tell = move |result| happened.send(Happened::Probed { index, run, result }).is_ok();
        let probes = probes::start(container, &place, tell);
        let story = &mut self.stories[index];
        story.started = container.startup_probe.is_none();
        story.ready = story.started && container.readiness_probe.is_none();
        story.now = Now::Running { since: Timestamp::now(), id };
        let noted = control.program.and_then(|pid| leftovers::note(&self.shared.config.state_dir, pid));
        self.runs[index] =
            Some(Run { control, group, farewell: Farewell::None, door, probes, _noted: noted });
        self.greet(index);
        let message = format!("Started container {}", container.name);
        self.shared.notices.normal(&self.pod, Voice::Kubelet, "Started", message);
    }

    /// It may work later: a config map may come, the disk may get space.
    fn not_now(&mut self, index: usize, reason: &'static str, message: String) {
        if self.shared.notices.first_time(format!("{} {message}", self.uid)) {
            self.shared.notices.warning(&self.pod, Voice::Kubelet, "Failed", format!("Error: {message}"));
        }
        self.stories[index].now = Now::Waiting { reason, message: Some(message) };
        self.again = Some(Instant::now() + RETRY);
        // Config maps are read again.
        self.volumes = None;
    }

    /// The program could not be started: that is an end, as for a container runtime.
    fn not_started(&mut self, index: usize, why: &str) {
        let message = format!("failed to start the container's process: {why}");
        self.shared.notices.warning(&self.pod, Voice::Kubelet, "Failed", format!("Error: {message}"));
        let now = Timestamp::now();
        let end = End {
            code: 128,
            reason: "StartError",
            message: Some(message),
            // It has not, but whoever shows this would make the year 1 of nothing.
            started: Some(now),
            finished: now,
            id: String::new(),
        };
        self.restarts[index].ended(Instant::now(), None, now);
        self.conclude(index, end);
    }

    /// What to tell the shim, and what had to be changed in what the pod says.
    fn orders(
        &self,
        index: usize,
        container: &Container,
    ) -> Result<(Orders, Rewrites), (&'static str, String)> {
        let config_error = |why: String| ("CreateContainerConfigError", why);
        let create_error = |why: String| ("CreateContainerError", why);
        let shared = &self.shared;
        let config = &shared.config;
        let own = env::variables(&self.pod, container, self.surroundings()).map_err(config_error)?;
        let command = env::command(container, &own);
        let by_name: BTreeMap<String, String> = own.iter().cloned().collect();
        let none = BTreeMap::new();
        let places = self.volumes.as_ref().unwrap_or(&none);
        let mut mounts = volumes::mounts(container, places, &by_name).map_err(create_error)?;
        let mut rewrites = self.assignment.rewrites.clone();
        let hostname = names::hostname(&self.pod);
        let directory = container.working_dir.as_ref().filter(|directory| !directory.is_empty());
        let mut directory = directory.map_or_else(|| config.working_dir.clone(), PathBuf::from);
        // As container runtimes do; elsewhere it would be made on the machine itself.
        let make_directory = mounts.iter().any(|mount| directory.starts_with(&mount.target));
        mounts.extend(self.last_words_file(index, container, &command, &own).map_err(create_error)?);
        let root = if self.can_mount() {
            rewrites.addresses.clear();
            mounts.extend(self.own_files(index, &hostname).map_err(create_error)?);
            volumes::make_mount_points(&mounts, &own_directories(config.working_dir.as_path()));
            let scratch = shared.config.state_dir.join("root");
            Some(Root { scratch, mounts })
        } else {
            rewrites.paths = real_paths(&mounts);
            let real = |(path, real): &(String, String)| {
                Some(Path::new(real).join(directory.strip_prefix(path).ok()?))
            };
            directory = rewrites.paths.iter().find_map(real).unwrap_or(directory);
            None
        };
        let mut env: BTreeMap<String, String> = config.environment.iter().cloned().collect();
        env.insert("HOSTNAME".to_owned(), hostname.clone());
        env.extend(self.gpu_variables());
        env.extend(own.into_iter().map(|(name, value)| {
            let value = rewrites.variable(&name, &value);
            (name, value)
        }));
        let orders = Orders {
            command: rewrites.words(&command),
            env: env.into_iter().collect(),
            directory,
            make_directory,
            hostname,
            cgroups: Vec::new(),
            root,
        };
        Ok((orders, rewrites))
    }

    /// The file that a container leaves its last words in. Without mounts, it has one if it names the path in what is rewritten.
    fn last_words_file(
        &self,
        index: usize,
        container: &Container,
        command: &[String],
        variables: &[(String, String)],
    ) -> Result<Option<Mount>, String> {
        let target = container.termination_message_path.as_deref().filter(|path| !path.is_empty());
        let target = target.unwrap_or(TERMINATION_LOG);
        let mut values = command.iter().chain(variables.iter().map(|(_, value)| value));
        // A file that /dev does not have comes into a copy of it, and what drivers of GPUs make there later would not.
        let late_devices = self.shared.machine.real_gpus && target.starts_with("/dev/");
        let possible = match self.shared.walls {
            Walls::Privileged => {
                if late_devices && !Path::new(target).exists() {
                    // An empty mount point, so that /dev itself can be shown.
                    let _ = fs::write(target, "");
                }
                true
            }
            Walls::User => !late_devices,
            Walls::None => values.any(|value| value.contains(target)),
        };
        if !possible {
            return Ok(None);
        }
        let source = self.shared.last_words_path(&self.uid, &container.name, self.stories[index].restarts);
        make_writable(&source).map_err(|error| format!("{}: {error}", source.display()))?;
        Ok(Some(Mount { target: PathBuf::from(target), source: Source::Bind(source), read_only: false }))
    }

    /// Files that every container has of its own.
    fn own_files(&self, index: usize, hostname: &str) -> Result<Vec<Mount>, String> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let file = |target: &str, source: PathBuf| Mount {
            target: PathBuf::from(target),
            source: Source::Bind(source),
            read_only: true,
        };
        let directory = self.shared.pod_dir(&self.uid);
        let own = directory.join("hostname");
        if index == 0 || !own.exists() {
            fs::create_dir_all(&directory)
                .and_then(|()| fs::write(&own, format!("{hostname}\n")))
                .map_err(|error| format!("{}: {error}", own.display()))?;
        }
        let mut files = vec![file(HOSTS, self.shared.hosts_path(namespace)), file(HOSTNAME, own)];
        files.extend(self.shared.name_service_switch.clone().map(|path| file(NAME_SERVICE_SWITCH, path)));
        Ok(files)
    }

    /// The GPUs that this pod has, as CUDA and the container toolkit are told.
    fn gpu_variables(&self) -> Vec<(String, String)> {
        if !self.shared.machine.real_gpus {
            return Vec::new();
        }
        let numbers: Vec<String> = self.assignment.gpus.iter().map(u32::to_string).collect();
        let devices = numbers.join(",");
        let visible = if devices.is_empty() { "void".to_owned() } else { devices.clone() };
        vec![("CUDA_VISIBLE_DEVICES".to_owned(), devices), ("NVIDIA_VISIBLE_DEVICES".to_owned(), visible)]
    }

    /// What differs from a cluster is said once, not for every pod.
    fn say_once(&self, container: &Container, rewrites: &Rewrites) {
        let notices = &self.shared.notices;
        let image = container.image.as_deref().unwrap_or_default();
        if !image.is_empty() && notices.first_time(format!("image {image}")) {
            let message = format!("Image {image:?} is not pulled: the command runs on this machine");
            tracing::info!("{message}");
            notices.normal(&self.pod, Voice::Kubelet, "ImageNotPulled", message);
        }
        for (from, to) in &rewrites.ports {
            if notices.first_time(format!("port {} {from}", self.uid)) {
                let message = format!("Port {from} is taken on this machine: this job uses {to} instead");
                notices.normal(&self.pod, Voice::Kubelet, "PortReplaced", message);
                // Once for all pods of a job.
                let job = match crate::fit::gang(&self.pod) {
                    Some((namespace, job, attempt)) => format!("{namespace}/{job}/{attempt}"),
                    None => self.uid.clone(),
                };
                if notices.first_time(format!("port of {job} {from}")) {
                    let name = crate::fit::gang(&self.pod).map(|(_, job, _)| job);
                    let name = name.or_else(|| self.pod.metadata.name.clone()).unwrap_or_default();
                    notices.remark(format!(
                        "{name}: port {from} is taken on this machine: {to} is used instead"
                    ));
                }
            }
        }
        if !rewrites.paths.is_empty() && notices.first_time(format!("paths {}", self.uid)) {
            let all: Vec<String> =
                rewrites.paths.iter().map(|(path, real)| format!("{path} is {real}")).collect();
            let message = format!(
                "This machine allows no private mounts: paths and names in environment and arguments are rewritten ({})",
                all.join(", ")
            );
            notices.warning(&self.pod, Voice::Kubelet, "PathsRewritten", message);
        }
    }

    /// What a container wrote to its termination message file; or what it said last, if it failed and its pod asks for that.
    pub(super) fn last_words(&self, index: usize, code: i32) -> Option<String> {
        let container = self.spec(index)?;
        let run = self.stories[index].restarts;
        let file = self.shared.last_words_path(&self.uid, &container.name, run);
        let written = read_end(&file, MESSAGE_BYTES).filter(|message| !message.is_empty());
        let _ = fs::remove_file(&file);
        let falls_back = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if written.is_some() || code == 0 || !falls_back {
            return written;
        }
        let log = self.shared.container(&self.uid, &container.name)?.log?;
        crate::logs::last_lines(&log, LAST_WORDS_LINES, LAST_WORDS_BYTES)
    }

    /// Says that the output of a container that has ended is not in its log, if it is not; in a few words.
    pub(super) fn say_what_is_not_logged(&self, index: usize) -> Option<String> {
        let name = &self.stories[index].name;
        let unsaved = self.shared.container(&self.uid, name)?.log?.unsaved()?;
        let message = format!(
            "{} bytes of output of container {name} are not in its log: {}: {}",
            unsaved.bytes,
            self.shared.config.state_dir.display(),
            unsaved.why
        );
        let notices = &self.shared.notices;
        notices.warning(&self.pod, Voice::Kubelet, "LogNotWritten", message.clone());
        notices.remark(format!("{}: {message}", self.pod.metadata.name.as_deref().unwrap_or_default()));
        Some(message)
    }
}

/// The end of a file.
fn read_end(path: &Path, bytes: u64) -> Option<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = fs::File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(bytes))).ok()?;
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Makes an empty file that everybody may write to who finds it in a container.
fn make_writable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, "")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
}

/// Where the user works: mount points may be made here for real.
fn own_directories(working_dir: &Path) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let all = std::iter::once(working_dir.to_owned()).chain(home);
    all.filter(|path| path.is_absolute() && path.parent().is_some()).collect()
}

/// Without mounts: where each mount path really is. What exists under its own name (`/dev/shm`) stays.
fn real_paths(mounts: &[Mount]) -> Vec<(String, String)> {
    let real = |mount: &Mount| match &mount.source {
        Source::Bind(path) if mount.target != Path::new("/dev/shm") => {
            Some((mount.target.to_string_lossy().into_owned(), path.to_string_lossy().into_owned()))
        }
        Source::Bind(_) | Source::Memory { .. } => None,
    };
    let mut paths: Vec<(String, String)> = mounts.iter().filter_map(real).collect();
    // The longest first: /data/train before /data.
    paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    paths
}

fn limits(container: &Container) -> Limits {
    let Some(resources) = &container.resources else { return Limits::default() };
    let limit = |name: &str| resources.limits.as_ref().and_then(|limits| limits.get(name));
    let request = |name: &str| resources.requests.as_ref().and_then(|requests| requests.get(name));
    Limits {
        memory_bytes: limit("memory").and_then(quantity::units),
        cpu_limit: limit("cpu").and_then(quantity::millis),
        cpu_request: request("cpu").or_else(|| limit("cpu")).and_then(quantity::millis),
    }
}
