//! Nodes that run nothing: pods bound to them walk through their phases as a test says.
//!
//! This file has what tests call. `node` keeps the nodes ready, `pod` walks one pod, `status`
//! writes what a kubelet would write.

mod node;
mod pod;
mod status;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Config, ResourceExt as _};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::Error;
use pod::{End, Walker};

/// How many requests are under way at once, as a kubelet's limits would have it.
const PARALLEL_REQUESTS: usize = 16;
/// The pause before a failed request is tried again, doubling up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What happens to a pod, from the moment it is bound to a hollow node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// How long its containers take to start.
    pub start_after: Duration,
    pub then: Then,
    /// How long it takes to end once it is deleted, whatever its grace period says.
    pub stop_after: Duration,
    /// The exit code when it ends because it was deleted.
    pub stop_code: i32,
}

/// What a pod does once its containers could start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    RunForever,
    /// All containers end; then the pod does, or they start again, by its restart policy.
    Exit {
        after: Duration,
        code: i32,
        /// Default: `Completed` or `Error`.
        reason: Option<String>,
        message: Option<String>,
    },
    /// Its containers wait for something that never happens, such as `ImagePullBackOff`.
    NeverStart {
        reason: String,
        message: Option<String>,
    },
}

impl Script {
    pub fn run_forever() -> Self {
        Self {
            start_after: Duration::ZERO,
            then: Then::RunForever,
            stop_after: Duration::ZERO,
            stop_code: 143,
        }
    }

    pub fn exit(after: Duration, code: i32) -> Self {
        Self { then: Then::Exit { after, code, reason: None, message: None }, ..Self::run_forever() }
    }

    pub fn never_start(reason: impl Into<String>, message: impl Into<String>) -> Self {
        let then = Then::NeverStart { reason: reason.into(), message: Some(message.into()) };
        Self { then, ..Self::run_forever() }
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::run_forever()
    }
}

type Decide = Arc<dyn Fn(&Pod) -> Script + Send + Sync>;

/// A set of hollow nodes. Dropping it is like cutting their power; [`HollowNodes::stop`] also
/// removes them from the cluster.
pub struct HollowNodes {
    yard: Arc<Yard>,
    tasks: Vec<AbortHandle>,
    /// Ends the thread of [`HollowNodes::start_on_thread`] when dropped.
    thread: Option<oneshot::Sender<()>>,
}

impl HollowNodes {
    /// Registers `nodes` nodes named `hollow-0`, … (names that are taken are passed over) and runs
    /// them on the current runtime. `capacity` adds to, or replaces parts of, 64 CPUs, 256 GiB of
    /// memory, 1 TiB of disk and 1000 pods each.
    pub async fn start(
        client: Client,
        nodes: usize,
        capacity: &[(&str, &str)],
        script: impl Fn(&Pod) -> Script + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let names = node::register(&client, nodes, capacity).await?;
        let yard = Arc::new(Yard {
            client,
            nodes: names.into_iter().collect(),
            script: RwLock::new(Arc::new(script)),
            pods: Mutex::default(),
            requests: Semaphore::new(PARALLEL_REQUESTS),
            addresses: AtomicU32::new(1),
            silent: watch::Sender::default(),
        });
        let tasks = vec![
            tokio::spawn(Arc::clone(&yard).watch_pods()).abort_handle(),
            tokio::spawn(node::keep_ready(Arc::clone(&yard))).abort_handle(),
        ];
        Ok(Self { yard, tasks, thread: None })
    }

    /// Like [`HollowNodes::start`], on a thread and a runtime of their own.
    pub async fn start_on_thread(
        config: Config,
        nodes: usize,
        capacity: &[(&str, &str)],
        script: impl Fn(&Pod) -> Script + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let capacity: Vec<(String, String)> =
            capacity.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect();
        let (started, result) = oneshot::channel();
        let (keep, ended) = oneshot::channel();
        let run = async move {
            let capacity: Vec<(&str, &str)> =
                capacity.iter().map(|(name, amount)| (&**name, &**amount)).collect();
            let start = async { Self::start(Client::try_from(config)?, nodes, &capacity, script).await };
            // Nobody listening means that the caller gave up.
            if started.send(start.await).is_ok() {
                let _ = ended.await;
            }
        };
        std::thread::Builder::new()
            .name("hollow-nodes".into())
            .spawn(move || {
                // Without a runtime the sender is dropped, and the caller sees that.
                if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                    runtime.block_on(run);
                }
            })
            .map_err(Error::io("start a thread for", "hollow nodes"))?;
        let mut nodes = result.await.map_err(|_| Error::HollowStopped)??;
        nodes.thread = Some(keep);
        Ok(nodes)
    }

    /// The names of the nodes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.yard.nodes.iter().map(String::as_str)
    }

    /// Decides by another script from now on, for pods that no script has decided about yet.
    pub fn set_script(&self, script: impl Fn(&Pod) -> Script + Send + Sync + 'static) {
        *self.yard.script.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(script);
    }

    /// Makes all containers of a pod end now, also of one that is being deleted. Returns when its
    /// status says so.
    pub async fn end_pod(
        &self,
        namespace: &str,
        name: &str,
        exit_code: i32,
        reason: Option<&str>,
    ) -> Result<(), Error> {
        let missing = || Error::NoSuchPod { namespace: namespace.into(), name: name.into() };
        let (done, seen) = oneshot::channel();
        let end = End { code: exit_code, reason: reason.map(str::to_owned), message: None, done: Some(done) };
        {
            let pods = self.yard.pods();
            let mut handles = pods.values();
            let handle =
                handles.find(|pod| pod.namespace == namespace && pod.name == name).ok_or_else(missing)?;
            handle.ends.send(end).map_err(|_| missing())?;
        }
        // The answer is dropped when the pod has ended before.
        seen.await.map_err(|_| missing())
    }

    /// Cuts a node off: it neither reports that it lives nor changes its pods, which go on as if
    /// nothing was amiss as far as they can tell.
    pub fn silence(&self, node: &str) {
        self.yard.silent.send_modify(|silent| {
            silent.insert(node.to_owned());
        });
    }

    /// Brings a node that was cut off back.
    pub async fn revive(&self, node: &str) -> Result<(), Error> {
        self.yard.silent.send_modify(|silent| {
            silent.remove(node);
        });
        node::report_ready(&self.yard, node).await?;
        Ok(())
    }

    /// Ends the nodes and removes them from the cluster; their pods are the cluster's problem then.
    pub async fn stop(self) -> Result<(), Error> {
        for task in &self.tasks {
            task.abort();
        }
        node::remove(&self.yard).await
    }
}

impl Drop for HollowNodes {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        drop(self.thread.take());
    }
}

impl fmt::Debug for HollowNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HollowNodes").field("nodes", &self.yard.nodes).finish_non_exhaustive()
    }
}

/// What all nodes of a set share.
struct Yard {
    client: Client,
    nodes: BTreeSet<String>,
    script: RwLock<Decide>,
    /// By uid: a pod that was deleted and made again under its name is another pod.
    pods: Mutex<HashMap<String, Handle>>,
    requests: Semaphore,
    addresses: AtomicU32,
    silent: watch::Sender<BTreeSet<String>>,
}

/// The way to a pod's walker.
struct Handle {
    namespace: String,
    name: String,
    latest: watch::Sender<Pod>,
    ends: mpsc::UnboundedSender<End>,
    walker: AbortHandle,
}

impl Yard {
    fn pods(&self) -> MutexGuard<'_, HashMap<String, Handle>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, pod: &Pod) -> Script {
        let script = Arc::clone(&self.script.read().unwrap_or_else(PoisonError::into_inner));
        script(pod)
    }

    /// An address out of the range that providers use between themselves; nothing listens there.
    fn next_address(&self) -> Ipv4Addr {
        let number = self.addresses.fetch_add(1, Ordering::Relaxed) % (1 << 22);
        Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + number)
    }

    async fn watch_pods(self: Arc<Self>) {
        // One watch for all nodes: the API server pays for each.
        let pods: Api<Pod> = Api::all(self.client.clone());
        let mut events = watcher(pods, watcher::Config::default().fields("spec.nodeName!=")).boxed();
        let mut walkers = JoinSet::new();
        let mut listed = BTreeSet::new();
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                Some(_) = walkers.join_next() => continue,
            };
            match event {
                Some(Ok(Event::Apply(pod))) => self.apply(pod, &mut walkers),
                Some(Ok(Event::Delete(pod))) => self.forget(|uid, _| pod.metadata.uid.as_ref() == Some(uid)),
                Some(Ok(Event::Init)) => listed.clear(),
                Some(Ok(Event::InitApply(pod))) => {
                    listed.insert(pod.uid().unwrap_or_default());
                    self.apply(pod, &mut walkers);
                }
                // What went while the API server was away is in no event.
                Some(Ok(Event::InitDone)) => self.forget(|uid, _| !listed.contains(uid)),
                // The watcher starts over by itself, but without a pause it would spin.
                Some(Err(error)) => {
                    tracing::debug!(%error, "the watch on pods was interrupted");
                    tokio::time::sleep(RETRY.0).await;
                }
                None => return,
            }
        }
    }

    fn apply(self: &Arc<Self>, pod: Pod, walkers: &mut JoinSet<()>) {
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
        let (true, Some(uid)) = (self.nodes.contains(&node), pod.uid()) else { return };
        let mut pods = self.pods();
        if let Some(handle) = pods.get(&uid) {
            handle.latest.send_replace(pod);
            return;
        }
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let (latest, changes) = watch::channel(pod);
        let (ends, orders) = mpsc::unbounded_channel();
        let walker = Walker::new(Arc::clone(self), node, changes, orders);
        let walker = walkers.spawn(walker.walk());
        pods.insert(uid, Handle { namespace, name, latest, ends, walker });
    }

    fn forget(&self, gone: impl Fn(&String, &Handle) -> bool) {
        for (_, handle) in self.pods().extract_if(|uid, handle| gone(uid, handle)) {
            handle.walker.abort();
        }
    }

    /// Sends a request until it is answered. `None` when its object is no longer there.
    async fn request<T, F>(&self, node: &str, request: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let mut pause = RETRY.0;
        loop {
            let mut silent = self.silent.subscribe();
            // The sender lives in `self`.
            let _ = silent.wait_for(|silent| !silent.contains(node)).await;
            let result = {
                let _permit = self.requests.acquire().await;
                request().await
            };
            match result {
                Ok(value) => return Some(value),
                Err(kube::Error::Api(status)) if status.is_not_found() => return None,
                // Anything else passes: no connection, too many requests, or the refusals of an
                // API server that has not read its roles yet.
                Err(error) => tracing::debug!(%error, node, "a hollow node's request failed; trying again"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }
}
