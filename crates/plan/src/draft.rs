//! A plan in the making: the status as it changes, and what is to be done about it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use trainyard_api::{Attempt, Cause, CheckpointStatus, State, TrainingJobStatus};

use crate::plan::{Importance, Notice, Plan, StatusWrite, Step, Target, TargetKind};
use crate::settings::Settings;
use crate::snapshot::{PodView, Snapshot};

/// How many attempts the status remembers.
const ATTEMPTS_KEPT: usize = 10;

pub(crate) struct Draft<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Timestamp,
    pub(crate) status: TrainingJobStatus,
    /// Pods that must be gone before anything of this is done.
    pub(crate) gone: Vec<String>,
    /// Pods to ask where they hang.
    pub(crate) hanging: Vec<Target>,
    pub(crate) stages: Vec<Vec<Step>>,
    pub(crate) chores: Vec<Step>,
    notices: Vec<Notice>,
    wake_at: Option<Timestamp>,
    decided: bool,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, settings: &'a Settings, now: Timestamp) -> Self {
        Self {
            snapshot,
            settings,
            now,
            status: snapshot.job.status.clone().unwrap_or_default(),
            gone: Vec::new(),
            hanging: Vec::new(),
            stages: Vec::new(),
            chores: Vec::new(),
            notices: Vec::new(),
            wake_at: None,
            decided: false,
        }
    }

    /// Now, as the API server will give it back: in whole seconds. Anything finer would look like a change for ever.
    pub(crate) fn time(&self) -> Time {
        whole_seconds(self.now)
    }

    /// The steps follow from this status: it is written before them.
    pub(crate) fn decide(&mut self) {
        self.decided = true;
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.decided
    }

    pub(crate) fn state(&mut self, state: State) {
        self.status.state = Some(state);
        self.status.phase = Some(state.phase());
    }

    pub(crate) fn message(&mut self, message: impl Into<String>) {
        self.status.message = Some(message.into());
    }

    pub(crate) fn stage(&mut self, steps: Vec<Step>) {
        if !steps.is_empty() {
            self.stages.push(steps);
        }
    }

    /// Looks again at that time, or earlier if something else wants so.
    pub(crate) fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    pub(crate) fn normal(
        &mut self,
        reason: &'static str,
        message: impl Into<String>,
        occurrence: impl ToString,
    ) {
        self.notice(Importance::Normal, reason, message.into(), occurrence.to_string());
    }

    pub(crate) fn warning(
        &mut self,
        reason: &'static str,
        message: impl Into<String>,
        occurrence: impl ToString,
    ) {
        self.notice(Importance::Warning, reason, message.into(), occurrence.to_string());
    }

    fn notice(&mut self, importance: Importance, reason: &'static str, message: String, occurrence: String) {
        self.notices.push(Notice { importance, reason, message, occurrence });
    }

    /// Sets a condition. Its time moves only when its status flips.
    pub(crate) fn condition(&mut self, kind: &str, holds: bool, reason: &str, message: impl Into<String>) {
        let status = if holds { "True" } else { "False" };
        let time = self.time();
        let generation = Some(self.snapshot.generation());
        let existing = self.status.conditions.iter_mut().find(|condition| condition.type_ == kind);
        match existing {
            Some(condition) => {
                if condition.status != status {
                    condition.last_transition_time = time;
                }
                status.clone_into(&mut condition.status);
                reason.clone_into(&mut condition.reason);
                condition.message = message.into();
                condition.observed_generation = generation;
            }
            None => self.status.conditions.push(Condition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message: message.into(),
                last_transition_time: time,
                observed_generation: generation,
            }),
        }
    }

    /// A condition that no longer holds, if it ever did.
    pub(crate) fn condition_over(&mut self, kind: &str, reason: &str, message: &str) {
        if self.status.condition(kind).is_some_and(|condition| condition.status == "True") {
            self.condition(kind, false, reason, message);
        }
    }

    pub(crate) fn open_attempt(&mut self) -> Option<&mut Attempt> {
        self.status.attempts.last_mut().filter(|attempt| attempt.is_open())
    }

    pub(crate) fn begin_attempt(&mut self, number: i32, world: String, inputs: Option<String>) {
        let time = self.time();
        self.status.backoff_until = None;
        self.status.attempts.push(Attempt::begun(number, world, inputs, time));
        let surplus = self.status.attempts.len().saturating_sub(ATTEMPTS_KEPT);
        self.status.attempts.drain(..surplus);
    }

    /// Ends the current attempt, if one is open.
    pub(crate) fn end_attempt(&mut self, cause: Cause, pod: Option<&PodView>, message: &str) {
        let time = self.time();
        self.status.estimated_completion = None;
        // What was found in the storage before anything had begun is nobody's progress.
        let reached = self.progress().filter(|_| cause != Cause::Resume);
        if let Some(attempt) = self.open_attempt() {
            attempt.reached = reached;
            let failed = pod.and_then(|pod| pod.exit.as_ref()?.at);
            attempt.seconds.seen = failed.map(|at| time.0.duration_since(at).as_secs().max(0));
            attempt.end_time = Some(time);
            attempt.cause = Some(cause);
            attempt.message = Some(message.to_owned());
            if let Some(pod) = pod {
                attempt.pod_name = Some(pod.name.clone());
                attempt.exit_code = pod.exit.as_ref().map(|exit| exit.code);
                attempt.node_name.clone_from(&pod.node);
            }
        }
    }

    /// The newest checkpoint, if it is further than the one that the last attempt began with; of an attempt that began afresh, than what
    /// earlier ones had reached. What is saved again at the same place is no progress.
    pub(crate) fn progress(&self) -> Option<Box<CheckpointStatus>> {
        let newest = self.status.checkpoint.as_ref()?;
        let (last, earlier) = self.status.attempts.split_last()?;
        let is_further = match &last.resumed_from {
            Some(from) => newest.is_past(from),
            None => {
                earlier.iter().filter_map(|attempt| attempt.reached.as_ref()).all(|it| newest.is_past(it))
            }
        };
        is_further.then(|| Box::new(newest.clone()))
    }

    /// Deletes those of the pods that are not on their way out already, with the grace that they ask for.
    pub(crate) fn delete_pods<'p>(&mut self, pods: impl IntoIterator<Item = &'p PodView>) {
        let pods = pods.into_iter().filter(|pod| !pod.deleting);
        self.stage(pods.map(|pod| delete_pod(pod, None)).collect());
    }

    pub(crate) fn finish(mut self) -> Plan {
        self.status.observed_generation = Some(self.snapshot.generation());
        let before = self.snapshot.job.status.as_ref();
        let due = self.snapshot.last_status_write.map(|last| later(last, self.settings.status_interval));
        let write = if before == Some(&self.status) {
            StatusWrite::Not
        } else if self.decided {
            StatusWrite::BeforeSteps
        } else if !self.notices.is_empty()
            || before.is_none_or(|before| !is_same_essence(before, &self.status))
            || due.is_none_or(|due| due <= self.now)
        {
            StatusWrite::Report
        } else {
            if let Some(due) = due {
                self.wake(due);
            }
            StatusWrite::Not
        };
        Plan {
            status: self.status,
            write,
            gone: self.gone,
            hanging: self.hanging,
            stages: self.stages,
            chores: self.chores,
            notices: self.notices,
            wake_at: self.wake_at,
        }
    }
}

pub(crate) fn delete_pod(pod: &PodView, grace: Option<u32>) -> Step {
    Step::Delete { target: target(pod), grace }
}

/// This very pod.
pub(crate) fn target(pod: &PodView) -> Target {
    Target { kind: TargetKind::Pod, name: pod.name.clone(), uid: pod.uid.clone() }
}

/// The time after a while. Times and limits come from outside: beyond the end of time they mean "never".
pub(crate) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX })
}

pub(crate) fn whole_seconds(at: Timestamp) -> Time {
    // Cannot fail: dropping the fraction moves towards the epoch, which is in range.
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// Whether two statuses say the same as far as people and programs wait for it. The rest may lag behind by `status_interval`.
fn is_same_essence(one: &TrainingJobStatus, other: &TrainingJobStatus) -> bool {
    // Without `..`, so that a new field has to find its place here.
    let TrainingJobStatus {
        message: _,
        duration: _,
        progress: _,
        current_epoch: _,
        estimated_completion: _,
        metrics: _,
        total_epochs: _,
        workers: _,
        replicas: _,
        worker_statuses: _,
        resources: _,
        state,
        phase,
        observed_generation,
        effective,
        start_time,
        active_since,
        completion_time,
        selector,
        checkpoint,
        restarts,
        avoided_nodes,
        disruption_budget,
        backoff_until,
        attempts,
        conditions,
    } = one;
    let same_but_words = |(one, other): (&Condition, &Condition)| {
        let Condition { type_, status, reason, message: _, last_transition_time, observed_generation } = one;
        *type_ == other.type_
            && *status == other.status
            && *reason == other.reason
            && *last_transition_time == other.last_transition_time
            && *observed_generation == other.observed_generation
    };
    *state == other.state
        && *phase == other.phase
        && *observed_generation == other.observed_generation
        && *effective == other.effective
        && *start_time == other.start_time
        && *active_since == other.active_since
        && *completion_time == other.completion_time
        && *selector == other.selector
        && *checkpoint == other.checkpoint
        && *restarts == other.restarts
        && *avoided_nodes == other.avoided_nodes
        && *disruption_budget == other.disruption_budget
        && *backoff_until == other.backoff_until
        && *attempts == other.attempts
        && conditions.len() == other.conditions.len()
        && conditions.iter().zip(&other.conditions).all(same_but_words)
}
