//! What all parts of a running node share: where things are, and what runs in which container.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cgroup::Cgroups;
use crate::config::Config;
use crate::isolate::orders::Walls;
use crate::logs::Log;
use crate::machine::Machine;
use crate::notices::Notices;

pub(crate) struct Shared {
    pub(crate) client: kube::Client,
    pub(crate) config: Config,
    pub(crate) machine: Machine,
    pub(crate) walls: Walls,
    pub(crate) cgroups: Cgroups,
    pub(crate) notices: Notices,
    /// The node's `nsswitch.conf` for containers, where the machine's would not do.
    pub(crate) name_service_switch: Option<PathBuf>,
    /// Volumes in memory are made here.
    pub(crate) memory_dir: PathBuf,
    containers: Mutex<BTreeMap<(String, String), Running>>,
}

/// A container that has been started in this node's life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    /// Of the present run and of the one before.
    pub(crate) log: Option<Arc<Log>>,
    pub(crate) previous_log: Option<Arc<Log>>,
    /// While it runs: how to get in.
    pub(crate) door: Option<Arc<Door>>,
}

/// What a command needs that is run inside a container.
#[derive(Debug)]
pub(crate) struct Door {
    /// PID 1 of the container; none without namespaces.
    pub(crate) init: Option<i32>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) directory: PathBuf,
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "each is a part of the node, made once")]
    pub(crate) fn new(
        client: kube::Client,
        config: Config,
        machine: Machine,
        walls: Walls,
        cgroups: Cgroups,
        notices: Notices,
        name_service_switch: Option<PathBuf>,
        memory_dir: PathBuf,
    ) -> Self {
        Self {
            client,
            config,
            machine,
            walls,
            cgroups,
            notices,
            name_service_switch,
            memory_dir,
            containers: Mutex::default(),
        }
    }

    /// The directory of a pod: volumes and logs.
    pub(crate) fn pod_dir(&self, uid: &str) -> PathBuf {
        self.config.state_dir.join("pods").join(uid)
    }

    pub(crate) fn log_path(&self, uid: &str, container: &str, run: i32) -> PathBuf {
        self.pod_dir(uid).join("logs").join(container).join(format!("{run}.log"))
    }

    /// What a container leaves as its termination message.
    pub(crate) fn last_words_path(&self, uid: &str, container: &str, run: i32) -> PathBuf {
        self.pod_dir(uid).join("last-words").join(format!("{container}-{run}"))
    }

    /// The last run of a container that left a log.
    pub(crate) fn newest_run(&self, uid: &str, container: &str) -> Option<i32> {
        let mut newest = None;
        while self.log_path(uid, container, newest.map_or(0, |run| run + 1)).exists() {
            newest = Some(newest.map_or(0, |run| run + 1));
        }
        newest
    }

    /// The hosts file of the pods of a namespace.
    pub(crate) fn hosts_path(&self, namespace: &str) -> PathBuf {
        self.config.state_dir.join("names").join(namespace).join("hosts")
    }

    pub(crate) fn container(&self, uid: &str, container: &str) -> Option<Running> {
        self.containers().get(&(uid.to_owned(), container.to_owned())).cloned()
    }

    pub(crate) fn with_container(&self, uid: &str, container: &str, change: impl FnOnce(&mut Running)) {
        change(self.containers().entry((uid.to_owned(), container.to_owned())).or_default());
    }

    /// Forgets the containers of a pod, and removes what it had on this machine.
    pub(crate) fn remove_pod(&self, uid: &str) {
        self.containers().retain(|(owner, _), _| owner != uid);
        self.notices.forget(uid);
        let _ = std::fs::remove_dir_all(self.pod_dir(uid));
        let _ = std::fs::remove_dir_all(self.memory_dir.join(uid));
    }

    fn containers(&self) -> MutexGuard<'_, BTreeMap<(String, String), Running>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
