//! Times that a status tells, and how long is waited, by the clock of whoever tells it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{Attempt, Cause, State, TrainingJob, TrainingJobStatus, WorkerStatus, condition};
use trainyard_operator::Watched;
use trainyard_plan::{World, inputs_of};

use super::made::LONGEST_WAIT;
use super::status::is_mendable;
use super::{Checker, Verdict, demand, has_ended_since, open_attempt};
use crate::server::{Actor, Server};

/// Times are told in whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The first wait after a failure, and the longest.
const BASE: i64 = 10;
const MOST: i64 = 360;

/// Whoever ran for so long has not failed at once.
const LONG: SignedDuration = SignedDuration::from_mins(10);

impl Checker {
    /// A job is deleted by an operator only when it has ended, and its time since then is over.
    pub(super) fn expired(&self, server: &Server, by: Actor, job: &TrainingJob) -> Verdict {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        // What was changed since it looked, it could not know. This deletion is an event of its own.
        let told = server.journal(Watched::Jobs).len();
        let knows = |seen: usize| seen + 1 >= told;
        let sight = self.sight(by, name).filter(|sight| !sight.misses(Watched::Jobs));
        if !sight.is_some_and(|sight| knows(sight.seen[Watched::Jobs as usize])) {
            return Ok(());
        }
        let ended = job.status.as_ref().filter(|status| status.is_terminal());
        let ended = ended.and_then(|status| status.completion_time.as_ref());
        let ttl = job.spec.ttl_seconds_after_finished.filter(|ttl| *ttl >= 0);
        let due = ended.zip(ttl).map(|(ended, ttl)| ended.0 + SignedDuration::from_secs(ttl));
        demand!(due.is_some(), "job {name} was deleted; it ended at {ended:?}, and its time is {ttl:?}");
        let is_due = |(_, now): (Timestamp, Timestamp)| due.is_some_and(|due| due <= now);
        demand!(
            self.walls(by, name, server.now).is_none_or(is_due),
            "job {name} was deleted before its time, which is {due:?}"
        );
        Ok(())
    }

    /// When a job began is told once. Since when it has been active is told anew when it goes on after it was held.
    pub(super) fn timed(
        &self,
        now: Timestamp,
        by: Actor,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Verdict {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let walls = self.walls(by, name, now);
        let is_now = |time: &Option<Time>| {
            let within =
                |time: &Time| walls.is_none_or(|(began, now)| began - SECOND < time.0 && time.0 <= now);
            time.as_ref().is_none_or(within)
        };
        demand!(
            new.start_time == old.start_time || (old.start_time.is_none() && is_now(&new.start_time)),
            "it began at {:?}, and now it began at {:?}",
            old.start_time,
            new.start_time
        );
        demand!(
            new.completion_time.is_none()
                || new.completion_time == old.completion_time
                || is_now(&new.completion_time),
            "it ended at {:?}, before {:?}, and its clock was {walls:?}",
            new.completion_time,
            old.completion_time
        );
        for attempt in &new.attempts {
            let known = old.attempts.iter().find(|known| known.number == attempt.number);
            let before = known.map(moments).unwrap_or_default();
            for ((what, time), (_, before)) in moments(attempt).into_iter().zip(before) {
                demand!(
                    if before.is_some() { before == time } else { is_now(&time.cloned()) },
                    "attempt {} {what} at {before:?}, and now at {time:?}; the clock was {walls:?}",
                    attempt.number
                );
            }
        }
        let is_held =
            |status: &TrainingJobStatus| status.state == Some(State::Suspended) || is_mendable(status);
        let goes_on = is_held(old) && !is_held(new) && new.start_time.is_some();
        let is_kept = new.active_since == old.active_since && !goes_on;
        let may_begin = old.active_since.is_none() || goes_on || is_mendable(old);
        demand!(
            is_kept || (may_begin && is_now(&new.active_since)),
            "it was active since {:?}, in {:?}; now it is since {:?}, in {:?}",
            old.active_since,
            old.state,
            new.active_since,
            new.state
        );
        Ok(())
    }

    /// The next attempt, or the next pod in the place of one that failed alone, waits as long as it should: neither less nor more.
    pub(super) fn waits(
        &self,
        now: Timestamp,
        by: Actor,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Verdict {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let Some((began, wall)) = self.walls(by, name, now).filter(|_| self.clock_set == 0) else {
            return Ok(());
        };
        let until = new.backoff_until.as_ref().map(|until| until.0);
        let before = old.backoff_until.as_ref().map(|until| until.0);
        let within = |row: i32, until: Timestamp| {
            let base = BASE.saturating_mul(1 << (row - 1).clamp(0, 10)).min(MOST);
            let (least, most) = (SignedDuration::from_secs(base), SignedDuration::from_millis(base * 1100));
            began + least <= until && until <= wall + most + SECOND
        };
        let ended = new.attempts.last().filter(|last| has_ended_since(old, last));
        if let Some(ended) = ended.filter(|_| new.state == Some(State::Restarting)) {
            let row = row(&new.attempts);
            demand!(
                until.map_or(row < 1, |until| row >= 1 && within(row, until)),
                "attempt {} ended with {:?} at {wall}, number {row} in a row, and the next one waits until {until:?}",
                ended.number,
                ended.cause
            );
            return Ok(());
        }
        let counted = |status: &TrainingJobStatus| status.restarts.unwrap_or_default().application;
        let goes_on = open_attempt(new).is_some() && ended.is_none();
        // Others may wait already: they are not cut short.
        let is_cut = |before: Timestamp| wall < before && until.is_none_or(|until| until < before);
        let is_possible = |before: &Timestamp| *before <= began + LONGEST_WAIT;
        let replaces = |worker: &&WorkerStatus| {
            let known = old.worker_statuses.iter().find(|known| known.pod_name == worker.pod_name);
            worker.failed_uid.is_some() && known.is_none_or(|known| known.failed_uid != worker.failed_uid)
        };
        demand!(
            !goes_on
                || !new.worker_statuses.iter().any(|worker| replaces(&worker))
                || !before.filter(is_possible).is_some_and(is_cut),
            "one more is replaced at {wall}; others were to wait until {before:?}, and now it is {until:?}"
        );
        if goes_on && counted(new) > counted(old) {
            let row = if ran_well(old, new, wall) { 1 } else { counted(new) };
            // Who waits already is not cut short.
            let is_of_before = |until: Timestamp| before.is_some_and(|before| before >= until);
            demand!(
                until.is_some_and(|until| within(row, until) || (until > wall && is_of_before(until))),
                "a worker failed at {wall}, number {row} in a row, and the next one waits until {until:?}"
            );
            return Ok(());
        }
        // Who is replaced without being counted does not wait the first time in a row.
        let lost = new.worker_statuses.iter().filter(|worker| replaces(worker));
        if let Some(lost) = lost.max_by_key(|worker| worker.restart_count).filter(|_| goes_on) {
            let row = if ran_well(old, new, wall) { 0 } else { (lost.restart_count - 1).min(3) };
            let left = before.filter(|before| *before > wall);
            let is_right = until.map_or(row < 1, |until| row >= 1 && within(row, until));
            demand!(
                is_right || (until.is_some() && until == left),
                "{} was lost at {wall}, number {row} in a row, and the next one waits until {until:?}",
                lost.pod_name
            );
            return Ok(());
        }
        let is_free = new.is_terminal()
            || new.state == Some(State::Suspended)
            || new.attempts.last().is_some_and(Attempt::made_progress);
        // Whoever changes what the pods are made of need not wait.
        let is_changed = old.attempts.last().is_some_and(|last| {
            last.inputs.as_ref().is_some_and(|inputs| *inputs != inputs_of(&job.spec))
                || last.world.as_ref().is_some_and(|world| *world != World::of(job).shape())
        });
        let is_free = is_free || is_changed;
        let is_over = |before: Timestamp| before <= wall || before > began + LONGEST_WAIT;
        demand!(
            until == before || (until.is_none() && (is_free || before.is_none_or(is_over))),
            "the next attempt was to wait until {before:?}, and at {wall} until {until:?}"
        );
        Ok(())
    }
}

/// What happened to an attempt, and when.
fn moments(attempt: &Attempt) -> [(&'static str, Option<&Time>); 4] {
    [
        ("began", attempt.start_time.as_ref()),
        ("was complete", attempt.created_time.as_ref()),
        ("ran", attempt.running_time.as_ref()),
        ("ended", attempt.end_time.as_ref()),
    ]
}

/// The number of the wait that follows the last of these: how many in a row failed without progress as it did, by themselves or by what
/// came from outside, of which the first does not wait.
fn row(attempts: &[Attempt]) -> i32 {
    let is_own = |cause: Cause| matches!(cause, Cause::Application | Cause::OutOfMemory);
    let is_failure = |cause: &Cause| is_own(*cause) || matches!(cause, Cause::Disruption | Cause::Stalled);
    let Some(last) = attempts.last().and_then(|last| last.cause).filter(is_failure) else { return 0 };
    let mut row = 0;
    for attempt in attempts.iter().rev() {
        let Some(cause) = attempt.cause.filter(is_failure).filter(|_| attempt.reached.is_none()) else {
            break;
        };
        row += i32::from(is_own(cause) == is_own(last));
        let ran = attempt.running_time.as_ref().zip(attempt.end_time.as_ref());
        if ran.is_some_and(|(began, ended)| ended.0.duration_since(began.0) >= LONG) {
            break;
        }
    }
    if is_own(last) { row } else { row - 1 }
}

/// All ran together for long since somebody was replaced, or something was saved since.
fn ran_well(old: &TrainingJobStatus, new: &TrainingJobStatus, wall: Timestamp) -> bool {
    let whole = old.condition(condition::RESTARTING).filter(|last| last.status == "False");
    let Some(since) = whole.map(|whole| whole.last_transition_time.0) else { return false };
    let saved = new.checkpoint.as_ref().and_then(|checkpoint| checkpoint.time.as_ref());
    wall.duration_since(since) >= LONG || saved.is_some_and(|saved| saved.0 > since)
}
