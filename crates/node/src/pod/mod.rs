//! One task per pod: volumes, init containers, sidecars, containers, restarts, the end, and the status all along.
//!
//! The task is a loop of three steps: start what can be started, report what has changed, wait for what happens next.

mod hook;
mod launch;
mod report;
mod restart;

pub(crate) use report::remove_object;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodStatus};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::cgroup::Group;
use crate::env::Sources;
use crate::leftovers;
use crate::notices::Voice;
use crate::probes;
use crate::process::{Control, Exit};
use crate::rewrite::Rewrites;
use crate::shared::{Door, Shared};
use crate::status::{End, Now, Role, Story, Verdict, restart_policy};
use crate::volumes::Place;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
/// How long to wait before something that did not work is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// A container that failed a probe and does not end is killed, and looked at again after this time.
const KILL_AGAIN: Duration = Duration::from_millis(200);
/// What a pod gets to end in, if it does not say.
const GRACE: i64 = 30;

/// What the node decided about a pod when it took it.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) pod: Arc<Pod>,
    /// The pod is not bound to this node yet.
    pub(crate) bind: bool,
    /// It ran before this node was started, and its processes are gone.
    pub(crate) lost: bool,
    pub(crate) address: String,
    pub(crate) gpus: Vec<u32>,
    pub(crate) rewrites: Rewrites,
    pub(crate) claims: BTreeMap<String, PathBuf>,
}

/// What a pod's task is told.
#[derive(Debug)]
pub(crate) enum News {
    /// The object changed (it may be on its way out).
    Changed(Arc<Pod>),
    /// A config map that it has as files is there, or has changed.
    ConfigMap(Arc<ConfigMap>),
    /// The object is gone: end everything at once.
    Gone,
    /// The node stops; so much time is left.
    NodeStops(Duration),
}

/// How a pod's task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The pod has run to its end; its object is still there.
    Finished,
    /// The object is gone, too.
    Removed,
}

/// Runs a pod to its end.
pub(crate) async fn run(
    shared: Arc<Shared>,
    assignment: Assignment,
    news: mpsc::UnboundedReceiver<News>,
) -> Outcome {
    let mut task = Task::new(shared, assignment);
    task.live(news).await
}

/// Something that happened in one of the pod's containers.
enum Happened {
    Ended {
        index: usize,
        run: i32,
        exit: Exit,
    },
    Probed {
        index: usize,
        run: i32,
        result: probes::Result,
    },
    /// What it wanted to do when it was started went wrong.
    NotGreeted {
        index: usize,
        run: i32,
        why: String,
    },
    /// What it wanted to do before it is told to end is done.
    Prepared {
        index: usize,
        run: i32,
    },
}

struct Task {
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    assignment: Assignment,
    uid: String,
    began: Timestamp,
    stories: Vec<Story>,
    runs: Vec<Option<Run>>,
    restarts: Vec<restart::Backoff>,
    sources: Sources,
    volumes: Option<BTreeMap<String, Place>>,
    stopping: Option<Stopping>,
    verdict: Option<Verdict>,
    reported: Option<PodStatus>,
    /// When to try again what did not work.
    again: Option<Instant>,
    /// When to write a status again that was not written.
    report_again: Option<Instant>,
    /// Containers that failed a probe, and when they are killed.
    kill: Vec<(usize, Instant)>,
    happened: (mpsc::UnboundedSender<Happened>, mpsc::UnboundedReceiver<Happened>),
}

/// A container that runs.
struct Run {
    control: Control,
    group: Option<Group>,
    farewell: Farewell,
    door: Arc<Door>,
    probes: Vec<tokio::task::JoinHandle<()>>,
    /// Taken off the list of what a successor would have to end, when it has ended.
    _noted: Option<leftovers::Entry>,
}

/// How far the end of a container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    /// Nobody has asked for it.
    None,
    /// Its `preStop` hook runs.
    Hook,
    /// The hook is done: it is to be told.
    Said,
    /// It has been told.
    Told,
}

/// The pod is on its way out.
#[derive(Clone, Copy, Debug)]
struct Stopping {
    deadline: Instant,
    /// The deadline has passed, and who still ran was killed.
    killed: bool,
    /// The object is to be removed afterwards.
    remove: bool,
    gone: bool,
}

impl Task {
    fn new(shared: Arc<Shared>, assignment: Assignment) -> Self {
        let pod = assignment.pod.clone();
        let stories = Story::of(&pod);
        let count = stories.len();
        let before = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        Self {
            shared,
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            pod,
            assignment,
            began: before.unwrap_or_else(Timestamp::now),
            stories,
            runs: (0..count).map(|_| None).collect(),
            restarts: vec![restart::Backoff::default(); count],
            sources: Sources::default(),
            volumes: None,
            stopping: None,
            verdict: None,
            reported: None,
            again: None,
            report_again: None,
            kill: Vec::new(),
            happened: mpsc::unbounded_channel(),
        }
    }

    async fn live(&mut self, mut news: mpsc::UnboundedReceiver<News>) -> Outcome {
        if self.assignment.lost {
            self.take_up_lost();
        }
        if self.pod.metadata.deletion_timestamp.is_some() {
            self.changed(self.pod.clone());
        }
        if self.assignment.bind && !self.bind().await {
            return Outcome::Removed;
        }
        loop {
            self.advance().await;
            if self.is_over() {
                return self.finish().await;
            }
            self.report_again = None;
            self.report().await;
            let next = self.next_deadline();
            tokio::select! {
                Some(happened) = self.happened.1.recv() => self.happened(happened),
                some = news.recv() => match some {
                    Some(News::Changed(pod)) => self.changed(pod),
                    Some(News::ConfigMap(map)) => self.config_map_changed(&map),
                    Some(News::NodeStops(grace)) => self.node_stops(grace),
                    // Nothing more to come: the node is being dropped.
                    Some(News::Gone) | None => self.stop(Duration::ZERO, false, true),
                },
                () = until(next) => self.again = self.again.filter(|again| *again > Instant::now()),
            }
        }
    }

    /// Starts what can be started, ends what must end.
    async fn advance(&mut self) {
        if let Some(stopping) = self.stopping {
            return self.advance_stop(stopping).await;
        }
        if self.past_deadline() {
            let seconds = self.active_deadline().unwrap_or_default();
            tracing::debug!(pod = self.pod.metadata.name, "was active longer than {seconds} s");
            self.verdict = Some(Verdict {
                reason: "DeadlineExceeded",
                message: "Pod was active on the node longer than the specified deadline".to_owned(),
                disruption: false,
            });
            self.stop(self.grace(), false, false);
            return Box::pin(self.advance()).await;
        }
        self.kill_unhealthy().await;
        if self.again.is_some() || !self.make_volumes().await {
            return;
        }
        for index in 0..self.stories.len() {
            if self.stories[index].role == Role::Main {
                continue;
            }
            self.start_if_due(index).await;
            if !self.stories[index].lets_pass() && !self.main_has_begun() {
                return self.end_sidecars_if_done().await;
            }
        }
        for index in 0..self.stories.len() {
            if self.stories[index].role == Role::Main {
                self.start_if_due(index).await;
            }
        }
        self.end_sidecars_if_done().await;
    }

    fn main_has_begun(&self) -> bool {
        let begun = |story: &Story| story.is_running() || story.end().is_some() || story.last.is_some();
        self.stories.iter().any(|story| story.role == Role::Main && begun(story))
    }

    async fn start_if_due(&mut self, index: usize) {
        let due = match &self.stories[index].now {
            Now::Running { .. } => false,
            Now::Waiting { .. } => self.restarts[index].is_due(Instant::now()),
            Now::Ended(end) => {
                self.will_restart(index, end.code) && self.restarts[index].is_due(Instant::now())
            }
        };
        if due {
            self.start(index).await;
        }
    }

    /// Whether a container that ended like this is started again.
    fn will_restart(&self, index: usize, code: i32) -> bool {
        if self.stopping.is_some() {
            return false;
        }
        match (self.stories[index].role, restart_policy(&self.pod)) {
            (Role::Sidecar, _) => !self.mains_are_done(),
            (Role::Init, policy) => policy != "Never" && code != 0,
            (Role::Main, "Always") => true,
            (Role::Main, "OnFailure") => code != 0,
            (Role::Main, _) => false,
        }
    }

    /// Whether nothing but sidecars is left to run.
    fn mains_are_done(&self) -> bool {
        let init_failed = self.stories.iter().enumerate().any(|(index, story)| {
            story.role == Role::Init
                && story.end().is_some_and(|end| end.code != 0)
                && !self.will_restart(index, 1)
        });
        let done = |(index, story): (usize, &Story)| match story.end() {
            Some(end) => !self.will_restart(index, end.code),
            None => false,
        };
        init_failed || self.stories.iter().enumerate().filter(|(_, story)| story.role == Role::Main).all(done)
    }

    async fn end_sidecars_if_done(&mut self) {
        if !self.mains_are_done() || !self.stories.iter().any(Story::is_running) {
            return;
        }
        // Sidecars have the pod's grace to end in, like everything else.
        let grace = self.grace();
        self.stop(grace, false, false);
        if let Some(stopping) = self.stopping {
            self.advance_stop(stopping).await;
        }
    }

    /// Tells the containers to end: first all but the sidecars, then these, and at the deadline whoever is left.
    async fn advance_stop(&mut self, stopping: Stopping) {
        let late = Instant::now() >= stopping.deadline;
        if let Some(stopping) = &mut self.stopping {
            stopping.killed = late;
        }
        let others_run = self.stories.iter().any(|story| story.role != Role::Sidecar && story.is_running());
        for index in 0..self.runs.len() {
            let is_sidecar = self.stories[index].role == Role::Sidecar;
            if !(is_sidecar && others_run) || late {
                self.say_farewell(index, late).await;
            }
        }
    }

    /// Brings a container nearer to its end: its hook, the request, and when it is too late, the kill.
    async fn say_farewell(&mut self, index: usize, late: bool) {
        let Some(run) = &mut self.runs[index] else { return };
        if late {
            run.control.signal(SIGKILL).await;
            return;
        }
        if run.farewell == Farewell::None {
            run.farewell = Farewell::Said;
            self.run_hook(index);
        }
        if let Some(run) = &mut self.runs[index]
            && run.farewell == Farewell::Said
        {
            run.farewell = Farewell::Told;
            run.control.signal(SIGTERM).await;
        }
    }

    async fn kill_unhealthy(&mut self) {
        for (index, deadline) in self.kill.clone() {
            self.say_farewell(index, Instant::now() >= deadline).await;
        }
    }

    fn is_over(&self) -> bool {
        if self.runs.iter().any(Option::is_some) {
            return false;
        }
        self.stopping.is_some() || self.mains_are_done()
    }

    /// The last report, and the object's end if it is on its way out.
    async fn finish(&mut self) -> Outcome {
        if let Some(stopping) = self.stopping
            && stopping.gone
        {
            return Outcome::Removed;
        }
        self.report_until_written().await;
        // Somebody may have asked for its removal while the last container ended.
        if self.stopping.is_some_and(|stopping| stopping.remove) && self.remove_object().await {
            return Outcome::Removed;
        }
        Outcome::Finished
    }

    fn happened(&mut self, happened: Happened) {
        match happened {
            Happened::Ended { index, run, exit } if self.stories[index].restarts == run => {
                self.ended(index, exit);
            }
            Happened::Probed { index, run, result } if self.stories[index].restarts == run => {
                self.probed(index, result);
            }
            Happened::Prepared { index, run } if self.stories[index].restarts == run => {
                if let Some(run) = &mut self.runs[index] {
                    run.farewell = Farewell::Said;
                }
            }
            Happened::NotGreeted { index, run, why } if self.stories[index].restarts == run => {
                self.not_greeted(index, &why);
            }
            Happened::Ended { .. }
            | Happened::Probed { .. }
            | Happened::NotGreeted { .. }
            | Happened::Prepared { .. } => {}
        }
    }

    fn ended(&mut self, index: usize, exit: Exit) {
        let Some(run) = self.runs[index].take() else { return };
        self.kill.retain(|(other, _)| *other != index);
        for probe in &run.probes {
            probe.abort();
        }
        let code = exit.code();
        let out_of_memory = code != 0 && run.group.as_ref().is_some_and(Group::ran_out_of_memory);
        let name = self.stories[index].name.clone();
        let not_logged = self.say_what_is_not_logged(index);
        let (since, id) = match &self.stories[index].now {
            Now::Running { since, id } => (Some(*since), id.clone()),
            Now::Waiting { .. } | Now::Ended(_) => (None, String::new()),
        };
        let end = End {
            code,
            reason: if out_of_memory {
                "OOMKilled"
            } else if code == 0 {
                "Completed"
            } else {
                "Error"
            },
            message: self.last_words(index, code).or(not_logged.filter(|_| code != 0)),
            started: since,
            finished: Timestamp::now(),
            id,
        };
        self.shared.with_container(&self.uid, &name, |container| container.door = None);
        self.restarts[index].ended(Instant::now(), since, end.finished);
        self.conclude(index, end);
    }

    /// Puts the end of a run into the story, with what comes next.
    fn conclude(&mut self, index: usize, end: End) {
        let code = end.code;
        self.stories[index].ready = false;
        self.stories[index].started = false;
        self.stories[index].now = Now::Ended(end.clone());
        if !self.will_restart(index, code) {
            return;
        }
        if let Some(delay) = self.restarts[index].delay(Instant::now()) {
            let name = &self.stories[index].name;
            let metadata = &self.pod.metadata;
            let message = format!(
                "back-off {}s restarting failed container={name} pod={}_{}({})",
                delay.as_secs().max(1),
                metadata.name.as_deref().unwrap_or_default(),
                metadata.namespace.as_deref().unwrap_or_default(),
                self.uid
            );
            self.shared.notices.warning(&self.pod, Voice::Kubelet, "BackOff", message.clone());
            self.stories[index].last = Some(end);
            self.stories[index].now = Now::Waiting { reason: "CrashLoopBackOff", message: Some(message) };
        }
    }

    fn changed(&mut self, pod: Arc<Pod>) {
        self.pod = pod;
        if self.pod.metadata.deletion_timestamp.is_some() {
            let seconds = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(GRACE);
            let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            let first = self.stopping.is_none_or(|stopping| !stopping.remove);
            if first && self.runs.iter().any(Option::is_some) {
                let names: Vec<&str> = self.running_names();
                let message = format!("Stopping container {}", names.join(", "));
                self.shared.notices.normal(&self.pod, Voice::Kubelet, "Killing", message);
            }
            self.stop(grace, true, false);
        }
    }

    fn running_names(&self) -> Vec<&str> {
        self.stories.iter().filter(|story| story.is_running()).map(|story| story.name.as_str()).collect()
    }

    fn node_stops(&mut self, grace: Duration) {
        if self.stopping.is_none_or(|stopping| !stopping.remove) {
            self.verdict.get_or_insert_with(|| Verdict {
                reason: "Terminated",
                message: "Pod was terminated in response to imminent node shutdown.".to_owned(),
                disruption: true,
            });
        }
        self.stop(grace.min(self.grace()), false, false);
    }

    /// From now on the pod ends. An earlier deadline stays.
    fn stop(&mut self, grace: Duration, remove: bool, gone: bool) {
        let deadline = Instant::now() + grace;
        let stopping = self.stopping.get_or_insert(Stopping { deadline, killed: false, remove, gone });
        if deadline < stopping.deadline {
            stopping.deadline = deadline;
            stopping.killed = false;
        }
        stopping.remove |= remove;
        stopping.gone |= gone;
    }

    fn grace(&self) -> Duration {
        let seconds = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        Duration::from_secs(u64::try_from(seconds.unwrap_or(GRACE)).unwrap_or_default())
    }

    fn active_deadline(&self) -> Option<i64> {
        self.pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds)
    }

    fn past_deadline(&self) -> bool {
        let active = Timestamp::now().duration_since(self.began).as_secs();
        self.active_deadline().is_some_and(|seconds| active >= seconds)
    }

    /// When something is to be done although nothing happens.
    fn next_deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let active = self.active_deadline().filter(|_| self.stopping.is_none()).map(|seconds| {
            let left = seconds - Timestamp::now().duration_since(self.began).as_secs();
            // The clock counts whole seconds: a moment later the deadline has surely passed.
            now + Duration::from_secs(u64::try_from(left).unwrap_or_default()) + Duration::from_millis(50)
        });
        // A program that cannot be killed is asked again from time to time.
        let kill =
            self.stopping.map(|stopping| if stopping.killed { now + RETRY } else { stopping.deadline });
        let unhealthy = self.kill.iter().map(|(_, deadline)| (*deadline).max(now + KILL_AGAIN)).min();
        let waits = |index: &usize| {
            matches!(self.stories[*index].now, Now::Waiting { reason: "CrashLoopBackOff", .. })
                && self.stopping.is_none()
        };
        let restart =
            (0..self.stories.len()).filter(waits).filter_map(|index| self.restarts[index].due()).min();
        [self.again, self.report_again, active, kill, restart, unhealthy].into_iter().flatten().min()
    }

    fn spec(&self, index: usize) -> Option<Container> {
        let spec = self.pod.spec.as_ref()?;
        let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        containers.nth(index).cloned()
    }

    /// The processes of a pod that ran before this node was started are gone: it died, and they died with it.
    fn take_up_lost(&mut self) {
        let statuses = self.pod.status.clone().unwrap_or_default();
        let of_init = statuses.init_container_statuses.into_iter().flatten();
        let all: Vec<_> = of_init.chain(statuses.container_statuses.into_iter().flatten()).collect();
        let message = "trainyard was stopped while this container ran";
        for index in 0..self.stories.len() {
            let Some(status) = all.iter().find(|status| status.name == self.stories[index].name) else {
                continue;
            };
            self.stories[index].restarts = status.restart_count;
            let state = status.state.clone().unwrap_or_default();
            if state.running.is_none() && state.terminated.is_none() {
                continue;
            }
            let ended = state.terminated.unwrap_or_default();
            let was_running = state.running.is_some();
            let end = End {
                code: if was_running { 137 } else { ended.exit_code },
                reason: match (was_running, ended.exit_code) {
                    (true, _) => "ContainerStatusUnknown",
                    (false, 0) => "Completed",
                    (false, _) => "Error",
                },
                message: if was_running { Some(message.to_owned()) } else { ended.message },
                started: state
                    .running
                    .and_then(|state| state.started_at)
                    .or(ended.started_at)
                    .map(|time| time.0),
                finished: ended.finished_at.map_or_else(Timestamp::now, |time| time.0),
                id: status.container_id.clone().unwrap_or_default(),
            };
            self.conclude(index, end);
        }
        if restart_policy(&self.pod) == "Never"
            && !self.stories.iter().all(|story| story.end().is_some_and(|end| end.code == 0))
        {
            self.verdict =
                Some(Verdict { reason: "Terminated", message: message.to_owned(), disruption: true });
            self.stop(Duration::ZERO, false, false);
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl Task {
    fn probed(&mut self, index: usize, result: probes::Result) {
        let has_readiness = self.spec(index).is_some_and(|container| container.readiness_probe.is_some());
        match result {
            probes::Result::Started => {
                self.stories[index].started = true;
                self.stories[index].ready = !has_readiness;
            }
            probes::Result::Ready(ready) => self.stories[index].ready = ready,
            probes::Result::Unhealthy { message } => {
                let name = self.stories[index].name.clone();
                self.shared.notices.warning(&self.pod, Voice::Kubelet, "Unhealthy", message);
                let message = format!("Container {name} failed its probe, will be restarted");
                self.shared.notices.normal(&self.pod, Voice::Kubelet, "Killing", message);
                self.kill.push((index, Instant::now() + self.grace()));
            }
        }
    }
}
