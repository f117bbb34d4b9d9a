//! The shell around the core: the queue, a task for each look, the watches, metrics and probes, and the end of all of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::runtime::watcher::Event;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore};
use trainyard_plan::{Snapshot, plan};

use crate::cache::{Cache, JobKey};
use crate::config::Config;
use crate::core::Core;
use crate::execute::record;
use crate::look::{Eyes, Found};
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::moment::Moment;
use crate::port::{KubePort, NewEvent};
use crate::progress::{Follower, LAST_WORDS};
use crate::queue::Queue;
use crate::readiness::Readiness;
use crate::sighting::Sighting;
use crate::turns::Turn;
use crate::views::SlimNode;
use crate::{http, watch};

/// How long work that is under way may take to end after the operator was told to stop.
const LAST_WORK: Duration = Duration::from_secs(4);

/// So long nothing happens before the operator is at rest.
const REST_AFTER: Duration = Duration::from_secs(1);

/// How long an event waits, so that it is not in the way of the work it tells of.
const EVENT_DELAY: Duration = Duration::from_millis(100);

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
    pub(crate) readiness: Readiness,
    core: Mutex<Core>,
    /// Held for reading while events are being recorded.
    recording: Arc<RwLock<()>>,
    port: KubePort,
    pub(crate) follower: Follower,
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
            readiness: Readiness::default(),
            core: Mutex::default(),
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
    shared.readiness.all_listed().await;
    tracing::info!(controller = "trainingjob", "worker count" = shared.config.workers, "Starting workers");
    while let Ok(slot) = slots.clone().acquire_owned().await {
        let Some((key, turn)) = shared.next().await else { return };
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

impl Shared {
    /// The next job. When nothing comes for a while after something did, it is time for a rest.
    async fn next(&self) -> Option<(JobKey, Turn)> {
        if let Ok(next) = tokio::time::timeout(REST_AFTER, self.queue.next()).await {
            return next;
        }
        (self.config.at_rest)();
        self.queue.next().await
    }

    /// One look at a job, and what is to happen next. Says whether there was anything to do.
    async fn look_at(self: &Arc<Self>, key: &JobKey, turn: Turn) -> bool {
        let eyes = Eyes {
            core: &self.core,
            planner: plan,
            port: &self.port,
            settings: &self.config.settings,
            metrics: &self.metrics,
            clock: Moment::now,
        };
        let news = self.queue.since(key);
        let reports = turn == Turn::Report || !self.queue.is_pressed();
        let look = eyes.look_at(key, reports, |snapshot| self.last_words(key, snapshot)).await;
        if let (Some(news), Some(decided)) = (news, look.decided) {
            self.metrics.reacted(decided.duration_since(news).as_secs_f64(), look.ends_attempt);
        }
        self.queue.follow(key, &look);
        if !look.events.is_empty() {
            self.record(look.events).await;
        }
        look.found == Found::SomethingToDo
    }

    /// How long the plan waits for the last words of a pod. Whoever reads them brings the job back earlier.
    fn last_words(self: &Arc<Self>, key: &JobKey, snapshot: &Snapshot) -> Option<Duration> {
        self.follow_agent(key, snapshot);
        self.ask_why(key, snapshot);
        let followed = self.with_memory(key, |memory| {
            let program = memory.following.as_mut().and_then(|following| following.last_words(snapshot));
            program.or_else(|| memory.agent.as_mut()?.last_report(snapshot))
        });
        followed
            .flatten()
            .or_else(|| self.read_tails(key, snapshot))
            .or_else(|| self.follow_leader(key, snapshot).then_some(LAST_WORDS))
    }

    /// Records events beside everything else.
    async fn record(self: &Arc<Self>, events: Vec<NewEvent>) {
        let shared = self.clone();
        let recording = self.recording.clone().read_owned().await;
        tokio::spawn(async move {
            // What follows from the decision comes first; people do not read this fast.
            tokio::time::sleep(EVENT_DELAY).await;
            record(&shared.port, events).await;
            drop(recording);
        });
    }

    /// Takes in what a watch says, and queues the jobs that it is about.
    pub(crate) fn see(&self, sighting: Sighting) {
        let about = self.lock().see(sighting);
        for key in about {
            self.queue.add(key);
        }
    }

    /// The same of what a watch says about nodes.
    pub(crate) fn see_node(&self, event: Event<SlimNode>, signs: &[String]) {
        let about = self.lock().see_node(event, signs);
        for key in about {
            self.queue.add(key);
        }
    }

    pub(crate) fn with_cache<T>(&self, act: impl FnOnce(&Cache) -> T) -> T {
        act(&self.lock().cache)
    }

    /// Looks into what is remembered about a job. Nothing is remembered about one that is gone.
    pub(crate) fn with_memory<T>(&self, key: &JobKey, act: impl FnOnce(&mut Memory) -> T) -> Option<T> {
        self.lock().memory(key).map(act)
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
