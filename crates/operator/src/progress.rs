//! How far the trainings are, and what their agents see of the checkpoints: the logs of the pod of rank 0 of every running job are
//! followed through the Kubernetes API, so that the same code serves a real cluster and the embedded one.
//!
//! A source of progress only fills in `Memory::progress`; planning turns it into status. Another source (push, scrape)
//! belongs beside this one and does the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::AsyncReadExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use tokio::sync::Semaphore;
use trainyard_api::checkpoint::AGENT_CONTAINER;
use trainyard_api::{AgentReport, names};
use trainyard_plan::{AgentView, PodPhase, PodView, Snapshot, World};
use trainyard_progress::{Lines, read};

use crate::bookmark::Bookmark;
use crate::cache::{Job, JobKey};
use crate::driver::Shared;
use crate::memory::Ear;

/// How many logs of programs are followed at the same time; each is a connection. Jobs beyond that have no progress until others end.
const STREAMS_MAX: usize = 512;
/// How much of a log that was there before is read: enough to find the last word.
const TAIL_LINES: i64 = 200;
/// A log that cannot be had is asked for again after so long, and then ever more rarely.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LAST_DELAY: Duration = Duration::from_mins(1);
/// How long the end of a job waits for the last lines of its log.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// Whoever follows the logs.
pub(crate) struct Follower {
    pub(crate) client: kube::Client,
    streams: Arc<Semaphore>,
}

/// A log that is being followed. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Following {
    pod: String,
    task: tokio::task::JoinHandle<()>,
    /// Since when its pod has ended.
    ended: Option<Instant>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Following {
    fn start(shared: &Arc<Shared>, key: &JobKey, pod: &PodView, voice: Voice) -> Self {
        let task = follow(shared.clone(), key.clone(), pod.name.clone(), pod.uid.clone(), voice);
        Self { pod: pod.uid.clone(), task: tokio::spawn(task), ended: None }
    }

    /// What is left of the time that last words may take, from the first time that they are waited for.
    fn patience(&mut self) -> Option<Duration> {
        LAST_WORDS.checked_sub(self.ended.get_or_insert_with(Instant::now).elapsed())
    }

    /// How much longer to wait for the last words of an agent whose pod is gone: the next attempt goes on from what it saw last.
    pub(crate) fn last_report(&mut self, snapshot: &Snapshot) -> Option<Duration> {
        if self.task.is_finished() || snapshot.pods.iter().any(|pod| pod.uid == self.pod) {
            return None;
        }
        self.patience()
    }

    /// How much longer to wait for the last words of a pod that has ended.
    pub(crate) fn last_words(&mut self, snapshot: &Snapshot) -> Option<Duration> {
        let pod = snapshot.pods.iter().find(|pod| pod.uid == self.pod)?;
        // Only the end of a job waits: a restart is urgent.
        if self.task.is_finished() || pod.phase != PodPhase::Succeeded {
            return None;
        }
        self.patience()
    }
}

impl Follower {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client, streams: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }
}

impl Shared {
    /// Follows the log of the agent beside the leading pod's program, if there is one and nobody does yet.
    pub(crate) fn follow_agent(self: &Arc<Self>, key: &JobKey, snapshot: &Snapshot) {
        if !snapshot.job.spec.checkpoints_on() {
            return;
        }
        let name = World::of(&snapshot.job).leader();
        let Some(pod) = snapshot.own_pods().find(|pod| pod.name == name && pod.agent_started) else { return };
        self.with_memory(key, |memory| {
            if memory.agent.as_ref().is_none_or(|following| following.pod != pod.uid) {
                memory.agent = Some(Box::new(Following::start(self, key, pod, Voice::Agent)));
            }
        });
    }

    /// Follows the log of the job's leading pod, if there is one to follow and nobody does yet. Says whether the pod has
    /// succeeded before that: then its log is read first.
    pub(crate) fn follow_leader(self: &Arc<Self>, key: &JobKey, snapshot: &Snapshot) -> bool {
        let Some(pod) = leader(snapshot) else { return false };
        let begun = self.with_memory(key, |memory| {
            if memory.following.as_ref().is_some_and(|following| following.pod == pod.uid) {
                return false;
            }
            memory.progress = None;
            memory.ear = Some(Box::new(Ear::new(&pod.uid)));
            memory.following = Some(Box::new(Following::start(self, key, pod, Voice::Program)));
            true
        });
        begun == Some(true) && pod.phase == PodPhase::Succeeded
    }
}

fn leader(snapshot: &Snapshot) -> Option<&PodView> {
    let job = &*snapshot.job;
    if job.is_over() || !job.spec.reads_logs() {
        return None;
    }
    let name = World::of(job).leader();
    let begun = |pod: &PodView| matches!(pod.phase, PodPhase::Running | PodPhase::Succeeded);
    snapshot.own_pods().find(|pod| pod.name == name && !pod.deleting && begun(pod))
}

/// Whose log is followed.
#[derive(Clone, Copy, Debug)]
enum Voice {
    /// The training program.
    Program,
    /// The agent that watches the checkpoints.
    Agent,
}

/// What a line told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    None,
    /// Details: they can wait for a moment, and for each other.
    Some,
    /// A checkpoint is being written now, or is no longer, and evictions depend on it.
    Urgent,
}

impl Voice {
    fn container(self) -> &'static str {
        match self {
            Voice::Program => names::CONTAINER,
            Voice::Agent => AGENT_CONTAINER,
        }
    }
}

async fn follow(shared: Arc<Shared>, key: JobKey, name: String, uid: String, voice: Voice) {
    let follower = &shared.follower;
    let _stream = match voice {
        Voice::Program => match follower.streams.clone().acquire_owned().await {
            Ok(stream) => Some(stream),
            Err(_) => return,
        },
        // An agent may hold its program back until it is heard.
        Voice::Agent => None,
    };
    let pods: Api<Pod> = Api::namespaced(follower.client.clone(), &key.namespace);
    let interval = shared.config.settings.status_interval;
    let interval = Duration::try_from(interval).unwrap_or_default();
    let mut delay = FIRST_DELAY;
    let mut lines = Lines::default();
    let mut told: Option<Instant> = None;
    let mut bookmark = Bookmark::default();
    loop {
        let since_time = bookmark.reopen();
        let parameters = LogParams {
            follow: true,
            timestamps: true,
            container: Some(voice.container().to_owned()),
            tail_lines: since_time.is_none().then_some(TAIL_LINES),
            since_time,
            ..LogParams::default()
        };
        match pods.log_stream(&name, &parameters).await {
            Ok(stream) => {
                shared.listens(&key, &uid, voice, Some(Instant::now()));
                let mut stream = std::pin::pin!(stream);
                let mut piece = vec![0; 16 << 10];
                while let Ok(length @ 1..) = stream.read(&mut piece).await {
                    delay = FIRST_DELAY;
                    let mut news = News::None;
                    lines.push(&piece[..length], |line| {
                        if let Some(line) = bookmark.take(line) {
                            news = news.max(shared.take_line(&key, &uid, voice, line));
                        }
                    });
                    let now = Instant::now();
                    match news {
                        News::None => {}
                        News::Some => {
                            let at = told.map_or(now, |told| now.max(told + interval));
                            told = Some(at);
                            shared.queue.add_at(key.clone(), at);
                        }
                        News::Urgent => shared.queue.add(key.clone()),
                    }
                }
                lines.finish(|line| {
                    if let Some(line) = bookmark.take(line) {
                        shared.take_line(&key, &uid, voice, line);
                    }
                });
                shared.listens(&key, &uid, voice, None);
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::warn!(job = %key, "no progress: {} (the operator needs get on pods/log)", status.message);
            }
            Err(error) => {
                tracing::debug!(job = %key, pod = %name, "its log cannot be followed: {error}");
            }
        }
        if !shared.still_runs(&key, &name, &uid, voice) {
            break;
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LAST_DELAY);
    }
    // Whoever waits for the last words has them now.
    shared.queue.add(key);
}

impl Shared {
    /// The log of this pod is heard since then, or not any more.
    fn listens(&self, key: &JobKey, uid: &str, voice: Voice, since: Option<Instant>) {
        if !matches!(voice, Voice::Program) {
            return;
        }
        self.with_memory(key, |memory| {
            if let Some(ear) = memory.ear.as_mut().filter(|ear| ear.pod == uid) {
                ear.since = since.map(|now| if ear.again { now } else { ear.began });
                ear.again = true;
            }
        });
        let stalls = self.with_cache(|cache| match cache.job(key) {
            Some(Job::Read(job)) => job.spec.stall_timeout_seconds.is_some(),
            Some(Job::Unreadable(_)) | None => false,
        });
        if stalls && since.is_some() {
            // Silence counts from now on.
            self.queue.add(key.clone());
        }
    }

    /// Reads one line. Says whether it told anything.
    fn take_line(&self, key: &JobKey, uid: &str, voice: Voice, line: &str) -> News {
        let is_current = |following: &Option<Box<Following>>| {
            following.as_ref().is_some_and(|following| following.pod == uid)
        };
        let taken = match voice {
            Voice::Program => {
                let Some(reading) = read(line) else { return News::None };
                self.with_memory(key, |memory| {
                    if !is_current(&memory.following) {
                        return News::None;
                    }
                    memory.progress.get_or_insert_default().take(reading, Timestamp::now());
                    memory.heard = Some(Instant::now());
                    News::Some
                })
            }
            Voice::Agent => {
                let Some(report) = AgentReport::of_line(line) else { return News::None };
                let (holds, attempt) = self.with_cache(|cache| {
                    let holds = match cache.job(key) {
                        Some(Job::Read(job)) => job.spec.holds_evictions(),
                        Some(Job::Unreadable(_)) | None => false,
                    };
                    (holds, cache.pods.of(key).find(|pod| pod.uid == uid).and_then(|pod| pod.attempt))
                });
                self.with_memory(key, |memory| {
                    if !is_current(&memory.agent) {
                        return News::None;
                    }
                    let was_writing = memory.report.as_ref().is_some_and(|view| view.report.writing);
                    let is_urgent = holds && report.writing != was_writing;
                    memory.report = Some(Box::new(AgentView { pod: uid.to_owned(), attempt, report }));
                    if is_urgent { News::Urgent } else { News::Some }
                })
            }
        };
        taken.unwrap_or(News::None)
    }

    fn still_runs(&self, key: &JobKey, name: &str, uid: &str, voice: Voice) -> bool {
        self.with_cache(|cache| {
            cache.pods.named(key, name).is_some_and(|pod| {
                // An agent goes on for a moment after its program.
                let over = match voice {
                    Voice::Program => pod.is_finished(),
                    Voice::Agent => pod.is_finished() && pod.lingers.is_none(),
                };
                pod.uid == uid && !over
            })
        })
    }
}
