//! The page that reads as the list of steps: for each job whose turn it is, snapshot → plan → execute.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore};
use trainyard_api::{State, TrainingJobStatus, condition, names};
use trainyard_plan::{
    Importance, Notice, Obstacle, ObstacleKind, Plan, Snapshot, TargetKind, UNREADABLE, Vanished, plan,
};

use crate::cache::{Cache, Job, JobKey};
use crate::config::Config;
use crate::execute::{Outcome, execute, record, relabel};
use crate::guard::Unreadable;
use crate::memory::{Echo, LostPod, Memory};
use crate::metrics::Metrics;
use crate::port::{JobRef, KubePort, Port, Refusal};
use crate::progress::{Follower, LAST_WORDS};
use crate::queue::{Queue, Turn};
use crate::views::controller;
use crate::{events, http, watch};

/// How long work that is under way may take to end after the operator was told to stop.
const LAST_WORK: Duration = Duration::from_secs(4);

/// How long an event waits, so that it is not in the way of the work it tells of.
const EVENT_DELAY: Duration = Duration::from_millis(100);

/// A watch that has been down for so long makes the operator not ready.
const BLIND: Duration = Duration::from_secs(30);

/// How often the role may not allow something before the job's owner hears of it.
const FORBIDDEN_TRIES: u32 = 5;

/// Why the operator did not start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("cannot serve metrics and probes on {address}: {error} (choose another with --metrics-address)")]
    Address { address: SocketAddr, error: std::io::Error },
}

/// The running operator.
pub struct Operator {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    client: kube::Client,
}

/// What all tasks of the operator share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) queue: Queue,
    pub(crate) metrics: Metrics,
    cache: Mutex<Cache>,
    memory: Mutex<HashMap<JobKey, Memory>>,
    /// Jobs that a quota holds back.
    cramped: Mutex<HashSet<JobKey>>,
    watches: [Watch; watch::KINDS.len()],
    ready: Semaphore,
    /// Held for reading while events are being recorded.
    recording: Arc<RwLock<()>>,
    port: KubePort,
    pub(crate) follower: Follower,
}

/// What is known of one watch.
#[derive(Default)]
struct Watch {
    /// It has been listed in full once.
    listed: AtomicBool,
    broken_since: Mutex<Option<Instant>>,
}

impl Operator {
    /// Binds the ports, so that a port in use is told at once.
    pub async fn bind(client: kube::Client, config: Config) -> Result<Self, StartError> {
        let mut listeners = Vec::new();
        for address in &config.http {
            let listener = TcpListener::bind(address).await;
            listeners.push(listener.map_err(|error| StartError::Address { address: *address, error })?);
        }
        let own_namespace = config.own_namespace.as_deref().unwrap_or(client.default_namespace());
        let metrics = Metrics::new(own_namespace);
        let shared = Arc::new(Shared {
            port: KubePort::new(client.clone(), config.max_in_flight, &config.instance, &metrics),
            follower: Follower::new(client.clone()),
            queue: Queue::default(),
            cache: Mutex::default(),
            memory: Mutex::default(),
            cramped: Mutex::default(),
            watches: Default::default(),
            ready: Semaphore::new(0),
            recording: Arc::default(),
            metrics,
            config,
        });
        shared.metrics.observe(&shared);
        Ok(Self { shared, listeners, client })
    }

    /// Addresses on which metrics and probes are served.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Runs until `stop` is done; then finishes what is under way and nothing else.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { shared, listeners, client } = self;
        let mut tasks: Vec<_> = listeners
            .into_iter()
            .map(|listener| {
                let router = http::router(shared.clone());
                tokio::spawn(async move {
                    if let Err(error) = axum::serve(listener, router).await {
                        tracing::error!("metrics and probes are not served any more: {error}");
                    }
                })
            })
            .collect();
        tasks.extend(watch::start(&shared, &client));
        let slots = Arc::new(Semaphore::new(shared.config.workers.max(1)));
        tokio::select! {
            () = stop => tracing::info!("stopping: finishing what is under way"),
            () = serve(&shared, &slots) => {}
        }
        shared.queue.close();
        let all = u32::try_from(shared.config.workers.max(1)).unwrap_or(u32::MAX);
        let finished = async { (slots.acquire_many(all).await, shared.recording.write().await).0.is_ok() };
        if tokio::time::timeout(LAST_WORK, finished).await.is_err() {
            tracing::warn!("some work was still under way; the next start goes on from there");
        }
        for task in tasks {
            task.abort();
        }
    }
}

async fn serve(shared: &Arc<Shared>, slots: &Arc<Semaphore>) {
    // Plans are made from a full cache only.
    let _full = shared.ready.acquire_many(u32::try_from(watch::KINDS.len()).unwrap_or(0)).await;
    tracing::info!(controller = "trainingjob", "worker count" = shared.config.workers, "Starting workers");
    while let Ok(slot) = slots.clone().acquire_owned().await {
        let Some((key, turn)) = shared.queue.next().await else { return };
        let shared = shared.clone();
        tokio::spawn(async move {
            let busy = Busy { shared, key, _slot: slot };
            let started = Instant::now();
            if busy.shared.look_at(&busy.key, turn).await {
                busy.shared.metrics.reconciled(&busy.key, started.elapsed().as_secs_f64());
            }
        });
    }
}

/// A job that is being worked on. However that ends, the job may be looked at again.
struct Busy {
    shared: Arc<Shared>,
    key: JobKey,
    _slot: OwnedSemaphorePermit,
}

impl Drop for Busy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(job = %self.key, "looking at it panicked; trying again in a minute");
            self.shared.metrics.error(&self.key, "panic");
            self.shared.queue.add_at(self.key.clone(), Instant::now() + Duration::from_mins(1));
        }
        self.shared.queue.done(&self.key);
    }
}

/// What there is to do about a job.
enum Sight {
    Gone,
    /// The cache has not seen our own last writes yet, or the last words of a pod are still being read.
    Behind(Duration),
    Unreadable(JobRef, Arc<Unreadable>),
    /// An unreadable job that is being deleted: its finalizers without ours.
    Leaving(JobRef, Vec<String>),
    Nothing,
    Clear(Box<Snapshot>),
}

impl Shared {
    /// One look at a job. Says whether there was anything to do.
    async fn look_at(self: &Arc<Self>, key: &JobKey, turn: Turn) -> bool {
        self.settle_doubts(key).await;
        match self.sight(key) {
            Sight::Gone => {
                self.forget(key);
                false
            }
            Sight::Behind(patience) => {
                // The echo that is awaited brings the job back; this is for the case that it never comes.
                self.queue.add_at(key.clone(), Instant::now() + patience);
                false
            }
            Sight::Unreadable(reference, job) => {
                self.report_unreadable(key, &reference, &job).await;
                true
            }
            Sight::Leaving(reference, finalizers) => {
                // What it made goes through owner references; nothing else can be known about it.
                let patch = json!({"metadata": {"finalizers": finalizers}});
                if let Err(refusal) = self.port.patch_job(&reference, &patch).await {
                    tracing::warn!(namespace = %key.namespace, trainingjob = %key.name, "its finalizer stays: {refusal}");
                    self.queue.add_at(key.clone(), Instant::now() + Duration::from_secs(5));
                }
                true
            }
            Sight::Nothing => false,
            Sight::Clear(snapshot) => self.advance(key, turn, &snapshot).await,
        }
    }

    /// snapshot → plan → execute → what comes of it.
    async fn advance(self: &Arc<Self>, key: &JobKey, turn: Turn, snapshot: &Snapshot) -> bool {
        if self.follow_leader(key, snapshot) {
            // Whoever reads the log brings the job back; this is for the case that it takes too long.
            self.queue.add_at(key.clone(), Instant::now() + LAST_WORDS);
            return false;
        }
        let now = Timestamp::now();
        let plan = plan(snapshot, &self.config.settings, now);
        if let Some(at) = plan.wake_at {
            self.queue.add_at(key.clone(), instant(at));
        }
        if plan.is_idle() {
            return false;
        }
        let is_new = self.first_sight(key) && snapshot.job.status.is_none();
        if is_new {
            tracing::info!(namespace = %key.namespace, trainingjob = %key.name, "Creating TrainingJob: {key}");
        }
        let reports = turn == Turn::Report || !self.queue.is_pressed();
        let mut outcome = execute(&self.port, &snapshot.job, &plan, reports, now).await;
        let events = std::mem::take(&mut outcome.events);
        if !events.is_empty() {
            let shared = self.clone();
            let recording = self.recording.clone().read_owned().await;
            tokio::spawn(async move {
                // What follows from the decision comes first; people do not read this fast.
                tokio::time::sleep(EVENT_DELAY).await;
                record(&shared.port, events).await;
                drop(recording);
            });
        }
        if is_new {
            self.metrics.job_created(key);
        }
        self.learn(key, snapshot, &plan, outcome, now);
        true
    }

    /// Whether this process has not begun with this job yet.
    fn first_sight(&self, key: &JobKey) -> bool {
        !std::mem::replace(&mut self.lock_memory().entry(key.clone()).or_default().begun, true)
    }

    /// Remembers what came of a plan, and when to look again.
    fn learn(&self, key: &JobKey, snapshot: &Snapshot, plan: &Plan, outcome: Outcome, now: Timestamp) {
        let mut all = self.lock_memory();
        let memory = all.entry(key.clone()).or_default();
        if outcome.status_written {
            memory.last_status_write = Some(now);
            let nothing = TrainingJobStatus::default();
            let before = snapshot.job.status.as_ref().unwrap_or(&nothing);
            self.metrics.status_written(key, before, &plan.status);
            self.tell(key, before, &plan.status, memory, now);
        }
        memory.expect(outcome.echoes);
        let generation = snapshot.generation();
        memory.obstacles.retain(|obstacle| obstacle.generation == generation && now < obstacle.retry_at);
        let mut fault = outcome.fault;
        memory.refusals += u32::from(!outcome.obstacles.is_empty());
        for (kind, object, message) in outcome.obstacles {
            // Right after an API server has started, its roles allow nothing for a moment.
            let by_role = kind == ObstacleKind::Forbidden && message.contains(" cannot ");
            if by_role && memory.refusals <= FORBIDDEN_TRIES {
                fault = Some(format!("{object}: {message}"));
                continue;
            }
            let retry_at =
                now + jiff::SignedDuration::try_from(retry_delay(kind, memory.refusals)).unwrap_or_default();
            tracing::warn!(namespace = %key.namespace, trainingjob = %key.name, %object, "refused: {message}");
            self.metrics.error(key, kind_name(kind));
            if kind == ObstacleKind::Quota {
                self.lock_cramped().insert(key.clone());
            }
            memory.obstacles.push(Obstacle { kind, object, message, generation, retry_at });
            self.queue.add(key.clone());
        }
        if let Some(fault) = fault {
            memory.faults += 1;
            self.metrics.error(key, "api");
            let delay = fault_delay(memory.faults);
            tracing::warn!(namespace = %key.namespace, trainingjob = %key.name, "{fault}; trying again in {delay:?}");
            self.queue.add_at(key.clone(), Instant::now() + delay);
        } else if outcome.outdated {
            // The newer version of the job brings it back by itself; this is only a safeguard.
            self.queue.add_at(key.clone(), Instant::now() + Duration::from_secs(2));
        } else {
            memory.faults = 0;
            if memory.obstacles.is_empty() {
                memory.refusals = 0;
            }
        }
        if outcome.report_due {
            self.queue.add_report(key.clone());
        }
    }

    /// One line per transition.
    fn tell(
        &self,
        key: &JobKey,
        before: &TrainingJobStatus,
        after: &TrainingJobStatus,
        memory: &mut Memory,
        now: Timestamp,
    ) {
        if before.state == after.state {
            return;
        }
        let state = after.state.map_or("", State::as_str);
        let message = after.message.as_deref().unwrap_or_default();
        tracing::info!(namespace = %key.namespace, trainingjob = %key.name, state, "{message}");
        match after.state {
            Some(State::Restarting) => {
                memory.recovering_since.get_or_insert(now);
            }
            Some(State::Running) => {
                if let Some(since) = memory.recovering_since.take() {
                    self.metrics.recovered(key, now.duration_since(since).as_secs_f64());
                }
            }
            _ => memory.recovering_since = None,
        }
    }

    fn sight(&self, key: &JobKey) -> Sight {
        let cache = self.lock_cache();
        let Some(job) = cache.job(key) else { return Sight::Gone };
        let job = match job {
            Job::Read(job) => job.clone(),
            Job::Unreadable(job) => {
                if job.managed_by.as_deref().is_some_and(|manager| manager != names::CONTROLLER_NAME) {
                    return Sight::Nothing;
                }
                let reference = JobRef {
                    namespace: key.namespace.to_string(),
                    name: key.name.to_string(),
                    uid: job.metadata.uid.clone().unwrap_or_default(),
                };
                if job.metadata.deletion_timestamp.is_none() {
                    return Sight::Unreadable(reference, job.clone());
                }
                let finalizers = job.metadata.finalizers.clone().unwrap_or_default();
                let others: Vec<String> =
                    finalizers.iter().filter(|name| *name != names::FINALIZER).cloned().collect();
                return if others.len() < finalizers.len() {
                    Sight::Leaving(reference, others)
                } else {
                    Sight::Nothing
                };
            }
        };
        let mut all = self.lock_memory();
        let memory = all.entry(key.clone()).or_default();
        memory.is_about(job.metadata.uid.as_deref().unwrap_or_default());
        if !memory.lost.is_empty() {
            // More pods vanished while the first were asked for.
            return Sight::Behind(Duration::ZERO);
        }
        if let Some(patience) = memory.behind(&cache, key) {
            return Sight::Behind(patience);
        }
        memory.forget_vanished(job.status.as_ref());
        let snapshot = Snapshot {
            job,
            pods: cache.pods.of(key).cloned().collect(),
            services: cache.services.of(key).cloned().collect(),
            config_maps: cache.config_maps.of(key).cloned().collect(),
            claims: cache.claims.of(key).cloned().collect(),
            vanished: memory.vanished.clone(),
            obstacles: memory.obstacles.clone(),
            progress: memory.progress.clone(),
            last_status_write: memory.last_status_write,
        };
        match memory.following.as_mut().and_then(|following| following.last_words(&snapshot)) {
            Some(patience) => Sight::Behind(patience),
            None => Sight::Clear(Box::new(snapshot)),
        }
    }

    /// A job that cannot even be read: its owner is told, once per generation, and the others go on. One that another
    /// version of the operator has begun with keeps its state: it may be in the middle of its training.
    async fn report_unreadable(&self, key: &JobKey, reference: &JobRef, job: &Unreadable) {
        let generation = job.metadata.generation.unwrap_or_default();
        let reported =
            self.lock_memory().entry(key.clone()).or_default().unreadable_reported == Some(generation);
        if reported {
            return;
        }
        let message = format!("this version of the operator cannot read the job: {}", job.error);
        tracing::warn!(namespace = %key.namespace, trainingjob = %key.name, "{message}");
        self.metrics.error(key, "unreadable");
        let version = job.metadata.resource_version.as_deref().unwrap_or_default();
        let mut patch = json!({"metadata": {"resourceVersion": version}, "status": {"message": message}});
        if !job.has_state {
            let failed = Condition {
                type_: condition::FAILED.to_owned(),
                status: "True".to_owned(),
                reason: UNREADABLE.to_owned(),
                message: message.clone(),
                last_transition_time: Time(Timestamp::now()),
                observed_generation: Some(generation),
            };
            patch["status"]["state"] = json!(State::Failed);
            patch["status"]["phase"] = json!(State::Failed.phase());
            patch["status"]["observedGeneration"] = json!(generation);
            patch["status"]["conditions"] = json!([failed]);
        }
        match self.port.patch_status(reference, &patch).await {
            Ok(_) => {
                self.with_memory(key, |memory| memory.unreadable_reported = Some(generation));
                let notice = Notice {
                    importance: Importance::Warning,
                    reason: "InvalidSpec",
                    message,
                    occurrence: generation.to_string(),
                };
                record(&self.port, vec![events::of_notice(reference, &notice, Timestamp::now())]).await;
            }
            Err(refusal) => {
                tracing::warn!(namespace = %key.namespace, trainingjob = %key.name, "its status was not written: {refusal}");
                self.queue.add_at(key.clone(), Instant::now() + Duration::from_secs(5));
            }
        }
    }

    fn forget(&self, key: &JobKey) {
        self.queue.forget(key);
        self.lock_cramped().remove(key);
        if self.lock_memory().remove(key).is_some_and(|memory| memory.begun) {
            tracing::info!(namespace = %key.namespace, trainingjob = %key.name, "TrainingJob is gone: {key}");
            self.metrics.job_deleted(key);
        }
    }

    pub(crate) fn with_cache<T>(&self, act: impl FnOnce(&mut Cache) -> T) -> T {
        act(&mut self.lock_cache())
    }

    /// Looks into what is remembered about a job. Nothing is remembered about one that is gone.
    pub(crate) fn with_memory<T>(&self, key: &JobKey, act: impl FnOnce(&mut Memory) -> T) -> Option<T> {
        self.lock_memory().get_mut(key).map(act)
    }

    /// A kind has been listed in full.
    pub(crate) fn listed(&self, kind: usize) {
        if !self.watches[kind].listed.swap(true, Ordering::Relaxed) {
            self.ready.add_permits(1);
        }
    }

    /// A watch has broken, or is back.
    pub(crate) fn watching(&self, kind: usize, is_up: bool) {
        let mut since = self.watches[kind].broken_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if is_up { None } else { since.or_else(|| Some(Instant::now())) };
    }

    /// What the operator cannot see: kinds that were never listed, and those whose watch has been down for long.
    pub(crate) fn unseen(&self) -> Vec<String> {
        let mut unseen = Vec::new();
        for (kind, watch) in watch::KINDS.iter().zip(&self.watches) {
            let since = *watch.broken_since.lock().unwrap_or_else(PoisonError::into_inner);
            if !watch.listed.load(Ordering::Relaxed) {
                unseen.push(format!("waiting for the first list of {kind}"));
            } else if let Some(since) = since.filter(|since| since.elapsed() >= BLIND) {
                unseen.push(format!("the watch of {kind} has been down for {} s", since.elapsed().as_secs()));
            }
        }
        unseen
    }

    /// A pod of this job ended or went: jobs beside it that a quota holds back may try again. What a job that is held
    /// back itself gives back is no room: it has only just tried.
    pub(crate) fn room_beside(&self, key: &JobKey) {
        let mut cramped = self.lock_cramped();
        if cramped.is_empty() || cramped.contains(key) {
            return;
        }
        let freed: Vec<JobKey> = cramped.extract_if(|other| other.namespace == key.namespace).collect();
        drop(cramped);
        for key in freed {
            self.with_memory(&key, |memory| {
                memory.obstacles.retain(|obstacle| obstacle.kind != ObstacleKind::Quota);
            });
            self.queue.add(key);
        }
    }

    /// A pod is no longer seen, although nobody had asked for its deletion: somebody may have taken its label. Called
    /// while the cache is locked, so that nobody plans without the pod before it is asked for.
    pub(crate) fn doubt(&self, cache: &Cache, key: &JobKey, pod: &LostPod) {
        let uid = match cache.job(key) {
            Some(Job::Read(job)) => job.metadata.uid.as_deref(),
            _ => None,
        };
        if uid != Some(&pod.job) {
            return;
        }
        let mut all = self.lock_memory();
        let memory = all.entry(key.clone()).or_default();
        if !memory.has_deleted(&pod.uid) {
            memory.lost.push(pod.clone());
        }
    }

    /// Asks whether the pods that vanished are really gone. One that is still there gets its labels back, so that
    /// nothing is concluded from its absence.
    async fn settle_doubts(&self, key: &JobKey) {
        let lost = self.with_memory(key, |memory| memory.lost.clone()).unwrap_or_default();
        let asked = join_all(lost.iter().map(|pod| self.ask_for(key, pod))).await;
        for (pod, found) in lost.into_iter().zip(asked) {
            self.with_memory(key, |memory| match found {
                Ok(None) => {
                    memory.lost.retain(|other| *other != pod);
                    memory.vanished.push(Vanished { name: pod.name, attempt: pod.attempt });
                }
                Ok(Some(echo)) => {
                    memory.lost.retain(|other| *other != pod);
                    memory.expect(vec![echo]);
                }
                Err(refusal) => {
                    tracing::warn!(job = %key, pod = %pod.name, "is it gone? {refusal}; asking again");
                    self.queue.add_at(key.clone(), Instant::now() + Duration::from_secs(1));
                }
            });
        }
    }

    /// Nothing, if the pod is gone or going; else what will be seen of it again.
    async fn ask_for(&self, key: &JobKey, pod: &LostPod) -> Result<Option<Echo>, Refusal> {
        let reference =
            JobRef { namespace: key.namespace.to_string(), name: key.name.to_string(), uid: pod.job.clone() };
        let metadata = match self.port.metadata(&reference, TargetKind::Pod, &pod.name).await {
            Ok(metadata) => metadata,
            Err(Refusal::NotFound) => return Ok(None),
            Err(refusal) => return Err(refusal),
        };
        let is_it = metadata.uid.as_deref() == Some(&pod.uid) && metadata.deletion_timestamp.is_none();
        if !is_it || controller(&metadata).as_deref() != Some(&pod.job) {
            return Ok(None);
        }
        tracing::warn!(job = %key, pod = %pod.name, "its label was removed; putting it back");
        match relabel(&self.port, &reference, TargetKind::Pod, &pod.name, &metadata).await {
            Ok(echo) => Ok(Some(echo)),
            Err(Refusal::NotFound | Refusal::Conflict) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    fn lock_cramped(&self) -> MutexGuard<'_, HashSet<JobKey>> {
        self.cramped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_memory(&self) -> MutexGuard<'_, HashMap<JobKey, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn instant(at: Timestamp) -> Instant {
    let wait = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
    // A millisecond more, so that rounding never wakes us just before.
    Instant::now() + wait + Duration::from_millis(1)
}

fn kind_name(kind: ObstacleKind) -> &'static str {
    match kind {
        ObstacleKind::NameConflict => "name_conflict",
        ObstacleKind::Quota => "quota",
        ObstacleKind::Forbidden => "forbidden",
        ObstacleKind::Invalid => "invalid",
    }
}

/// When to ask again for something that was refused: 2 s, 4 s … a minute (a quota: 15 s). What is invalid stays so until the spec
/// changes.
fn retry_delay(kind: ObstacleKind, refusals: u32) -> Duration {
    match kind {
        ObstacleKind::Invalid => Duration::from_hours(1),
        // Room that others make is not seen; room that our own jobs make is, at once.
        ObstacleKind::Quota => Duration::from_secs(1 << refusals.clamp(1, 4)).min(Duration::from_secs(15)),
        _ => Duration::from_secs(1 << refusals.clamp(1, 6)).min(Duration::from_mins(1)),
    }
}

/// When to try again after a passing fault: 0.25 s, 0.5 s … 8 s.
fn fault_delay(faults: u32) -> Duration {
    Duration::from_millis(250 << faults.saturating_sub(1).min(5))
}
