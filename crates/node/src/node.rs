//! The node: starts everything, stops everything, and answers what a kubelet is asked.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use trainyard_apiserver::{ExecOptions, ExecSession, Kubelet, KubeletError, LogOptions, LogStream, PodId};

use crate::cgroup::Cgroups;
use crate::config::{Config, Isolation};
use crate::desk::{Desk, Message};
use crate::isolate::orders::Walls;
use crate::isolate::probe;
use crate::logs::{self, Log};
use crate::machine::Machine;
use crate::notices::Notices;
use crate::shared::Shared;
use crate::{exec, leftovers, names, watch};

/// What is waited for beyond the grace period when the node stops: killing, and the last reports.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// Why a node did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The state directory cannot be used.
    #[error("the state directory {path}: {source}")]
    State {
        /// Which directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Two nodes would end each other's pods.
    #[error(
        "the state directory {path} is in use by another trainyard: stop that one, or give another directory"
    )]
    InUse {
        /// Which directory.
        path: PathBuf,
    },
    /// The API server does not take the Node object.
    #[error("registering the node {name}: {source}")]
    Register {
        /// Name of the node.
        name: String,
        /// What the API server says.
        source: Box<kube::Error>,
    },
}

/// A node that runs.
pub struct Node {
    shared: Arc<Shared>,
    desk: mpsc::UnboundedSender<Message>,
    tasks: Vec<JoinHandle<()>>,
    isolation: Option<String>,
    /// Held for as long as the node lives.
    lock: File,
}

impl Node {
    /// Registers this machine with the API server and begins to run its pods.
    pub async fn start(client: kube::Client, mut config: Config) -> Result<Self, StartError> {
        let lock = lock(&config.state_dir)?;
        // Paths are used by processes that may stand somewhere else.
        config.state_dir = std::path::absolute(&config.state_dir).unwrap_or(config.state_dir);
        config.working_dir = std::path::absolute(&config.working_dir).unwrap_or(config.working_dir);
        allow_many_files();
        let state = |source| StartError::State { path: config.state_dir.clone(), source };
        let scratch = config.state_dir.join("root");
        fs::create_dir_all(&scratch).map_err(state)?;
        let memory_dir = memory_dir(&config.state_dir);
        let _ = fs::remove_dir_all(&memory_dir);
        if fs::create_dir(&memory_dir).is_ok() {
            let _ = fs::set_permissions(&memory_dir, fs::Permissions::from_mode(0o700));
        }
        let ended = leftovers::end_all(&config.state_dir);
        if ended > 0 {
            tracing::warn!("ended {ended} programs that a trainyard before this one had left running");
        }
        let machine = Machine::look(&config);
        let object = machine.node(&config.name, Timestamp::now());
        let (found, registered) =
            tokio::join!(find_walls(&config, scratch.clone()), register(&client, &object, &config.name));
        registered
            .map_err(|source| StartError::Register { name: config.name.clone(), source: Box::new(source) })?;
        let (walls, why) = found;
        if let Some(why) = &why {
            tracing::warn!(
                "no namespaces on this machine ({why}): paths and names in environment and arguments are rewritten"
            );
        }
        let cgroups = Cgroups::find();
        cgroups.remove_leftovers();
        if let Cgroups::None { why } = &cgroups {
            tracing::info!("limits on memory and CPU are not enforced: {why}");
        }
        let switch = own_name_service_switch(&config.state_dir).map_err(state)?;
        let notices = Notices::start(client.clone(), config.name.clone());
        let shared = Arc::new(Shared::new(
            client.clone(),
            config,
            machine,
            walls,
            cgroups,
            notices,
            switch,
            memory_dir,
        ));
        let (desk, inbox) = mpsc::unbounded_channel();
        let mut tasks = watch::start(&client, &desk);
        tasks.push(tokio::spawn(Desk::new(shared.clone(), desk.clone()).work(inbox)));
        Ok(Self { shared, desk, tasks, isolation: why, lock })
    }

    /// Ends all pods: SIGTERM, then SIGKILL after `grace` (or after the pod's own, if that is shorter). May be called
    /// again with less grace while an earlier call waits. Returns when nothing runs any more.
    pub async fn stop(&self, grace: Duration) {
        let (done, all_done) = oneshot::channel();
        if self.desk.send(Message::Stop { grace, done }).is_ok() {
            let _ = tokio::time::timeout(grace + LAST_REPORTS, all_done).await;
        }
        self.shared.cgroups.remove();
        let _ = fs::remove_dir_all(&self.shared.memory_dir);
    }

    /// What people who watch should know, from now on: a port that was replaced, a log that cannot be written.
    pub fn remarks(&self) -> tokio::sync::broadcast::Receiver<String> {
        self.shared.notices.remarks()
    }

    /// Why containers have no namespaces of their own, if they have not.
    pub fn without_namespaces(&self) -> Option<&str> {
        self.isolation.as_deref()
    }
}

impl Node {
    /// Why limits on memory and CPU are not enforced, if they are not.
    pub fn without_limits(&self) -> Option<&str> {
        match &self.shared.cgroups {
            Cgroups::None { why } => Some(why),
            Cgroups::Separate { memory: None, .. } => {
                Some("no control group for memory can be made by this user")
            }
            Cgroups::Unified(_) | Cgroups::Separate { .. } => None,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Shims end with the sockets to them, which belong to tasks of pods, which end when the desk is gone.
        for task in &self.tasks {
            task.abort();
        }
        self.shared.cgroups.remove();
        let _ = fs::remove_dir_all(&self.shared.memory_dir);
        // Closing the file is not enough: a process that is just being started still has it, too.
        let _ = self.lock.unlock();
    }
}

/// A container takes half a dozen files; the usual soft limit is meant for programs that use `select`.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(u64::MAX).min(65_536);
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

fn lock(directory: &Path) -> Result<File, StartError> {
    let state = |source| StartError::State { path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(state)?;
    // Secrets, logs and checkpoints are in it. One that belongs to somebody else stays as that person wants it.
    let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    let file = File::options().create(true).truncate(false).write(true).open(directory.join("node.lock"));
    let file = file.map_err(state)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(StartError::InUse { path: directory.to_owned() }),
        Err(fs::TryLockError::Error(source)) => Err(state(source)),
    }
}

/// Memory volumes that outlive a run of a container; named after the state directory, so that the next start finds leftovers.
fn memory_dir(state_dir: &Path) -> PathBuf {
    let real = state_dir.canonicalize().unwrap_or_else(|_| state_dir.to_owned());
    let hash = trainyard_api::hash::of_parts(&[&real.to_string_lossy()]);
    PathBuf::from(format!("/dev/shm/trainyard-{hash:x}"))
}

async fn find_walls(config: &Config, scratch: PathBuf) -> (Walls, Option<String>) {
    match config.isolation {
        Isolation::Off => (Walls::None, Some("switched off".to_owned())),
        Isolation::WherePossible => probe::walls(&config.shim, scratch).await,
    }
}

fn own_name_service_switch(state_dir: &Path) -> io::Result<Option<PathBuf>> {
    let machine = fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
    let Some(text) = names::name_service_switch(&machine) else { return Ok(None) };
    let path = state_dir.join("nsswitch.conf");
    fs::write(&path, text)?;
    Ok(Some(path))
}

/// Creates the Node object, or brings an old one up to date.
async fn register(client: &kube::Client, node: &NodeObject, name: &str) -> kube::Result<()> {
    let api: Api<NodeObject> = Api::all(client.clone());
    match api.create(&PostParams::default(), node).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let patch = json!({"metadata": {"labels": node.metadata.labels}});
            api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Err(error) => return Err(error),
    }
    // Some servers drop the status of an object that is created.
    let patch = json!({"status": node.status});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

impl Kubelet for Node {
    fn logs(
        &self,
        pod: &PodId,
        container: &str,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<LogStream, KubeletError>> {
        let found = self.log(pod, container, options.previous);
        async move { Ok(logs::read(found?, options, Timestamp::now())) }.boxed()
    }

    fn exec(
        &self,
        pod: &PodId,
        container: &str,
        options: ExecOptions,
    ) -> BoxFuture<'static, Result<ExecSession, KubeletError>> {
        let shared = self.shared.clone();
        let door = shared.container(&pod.uid, container).and_then(|container| container.door);
        let missing = format!("container {container:?} of pod {:?} is not running", pod.name);
        async move {
            let door = door.ok_or(KubeletError::BadRequest(missing))?;
            exec::session(&shared.config.shim, &door, &options).await
        }
        .boxed()
    }
}

impl Node {
    fn log(&self, pod: &PodId, container: &str, previous: bool) -> Result<Arc<Log>, KubeletError> {
        let known = self.shared.container(&pod.uid, container);
        let no_previous = || {
            KubeletError::BadRequest(format!(
                "previous terminated container {container:?} in pod {:?} not found",
                pod.name
            ))
        };
        if let Some(known) = known {
            let log = if previous {
                known.previous_log.ok_or_else(no_previous)?
            } else {
                known.log.ok_or_else(no_previous)?
            };
            return Ok(log);
        }
        // Of a pod that ended before this node was started.
        let newest = self.shared.newest_run(&pod.uid, container);
        let run = match (newest, previous) {
            (Some(newest), false) => newest,
            (Some(newest), true) if newest > 0 => newest - 1,
            (_, true) => return Err(no_previous()),
            (None, false) => {
                let why = format!(
                    "container {container:?} in pod {:?} is waiting to start: ContainerCreating",
                    pod.name
                );
                return Err(KubeletError::BadRequest(why));
            }
        };
        Ok(Log::ended(self.shared.log_path(&pod.uid, container, run)))
    }
}
