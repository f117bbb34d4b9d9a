//! What is said about an attempt that goes on: state, conditions, message, and how long its parts took.

use trainyard_api::{Attempt, State, condition};

use super::judge::{Gang, is_copying};
use super::running::{is_created, present, waiting_state};
use super::staffing::blocker;
use super::{force, report};
use crate::draft::Draft;
use crate::text;
use crate::world::World;

/// State, conditions and message of an attempt that goes on.
pub(super) fn describe(draft: &mut Draft<'_>, world: &World<'_>, gang: &Gang<'_>, leaving: usize) {
    let total = world.members().count();
    let present = present(world, gang);
    let workers = usize::try_from(world.size()).unwrap_or(usize::MAX);
    let time = draft.time();
    let created = is_created(draft);
    if created {
        note_times(draft, world, gang);
    }
    let workers_before = &draft.status.worker_statuses;
    // Who has not started may be done, or wait to be replaced.
    let missing = world.members().filter(|member| member.role.is_required()).filter(|member| {
        let name = member.pod_name(world.job);
        let started = gang.get(name.as_str()).is_some_and(|pod| pod.has_started() && !pod.deleting);
        !started && report::remembered(workers_before, &name).is_none()
    });
    let missing = missing.count();
    let required_started = missing == 0;
    if created
        && required_started
        && draft.open_attempt().is_some_and(|attempt| attempt.running_time.is_none())
    {
        if let Some(attempt) = draft.open_attempt() {
            let scheduled = attempt.seconds.scheduled.unwrap_or_default();
            let created = attempt.created_time.as_ref();
            attempt.seconds.started =
                created.map(|created| (time.0.duration_since(created.0).as_secs() - scheduled).max(0));
            attempt.running_time = Some(time);
        }
        let number = draft.status.attempts.last().map_or(1, |attempt| attempt.number);
        draft.normal("TrainingStarted", format!("All workers active ({workers} of {workers})"), number);
    }
    let running = draft.open_attempt().is_some_and(|attempt: &mut Attempt| attempt.running_time.is_some());
    if running && missing > 0 {
        return describe_gap(draft, world, gang, missing);
    }
    if running {
        draft.state(State::Running);
        draft.condition(condition::RUNNING, true, "TrainingStarted", "All workers active");
        draft.condition_over(condition::RESTARTING, "Restarted", "All workers run again");
        draft.condition_over(condition::STALLED, "Restarted", "All workers run again");
        let counts = draft.status.workers.unwrap_or_default();
        let copying = is_copying(draft.snapshot, world, gang);
        let ignored = draft.status.worker_statuses.iter().filter(|worker| worker.ignored).count();
        let done = usize::try_from(counts.succeeded).unwrap_or(0) + ignored;
        let message = match done {
            _ if copying => {
                "the leading worker is done; its last checkpoint is being copied to the bucket".to_owned()
            }
            0 => format!("{} running", text::count(workers, "worker")),
            done => {
                format!("{} running, {done} done", text::count(workers.saturating_sub(done), "worker"))
            }
        };
        draft.message(message + &report::behind_the_rest(draft));
        return;
    }
    if present > 0 && leaving == 0 {
        draft.state(State::Initializing);
        let started = gang.values().filter(|pod| pod.has_started()).count();
        let summary = format!("{started} of {} running", text::count(total, "pod"));
        if let Some(blocker) = blocker(draft, world).filter(|_| !created) {
            let message = blocked(draft, &blocker);
            draft.condition(condition::RUNNING, false, "WaitingForPods", &summary);
            draft.message(format!("{summary}; {message}"));
        } else if let Some((reason, detail)) = report::unread(draft).or_else(|| report::holdup(world, gang)) {
            draft.condition(condition::RUNNING, false, &reason, &detail);
            draft.message(format!("{summary}; {detail}"));
        } else {
            draft.condition(condition::RUNNING, false, "WaitingForPods", &summary);
            draft.message(summary);
        }
        return;
    }
    draft.state(waiting_state(draft));
    // Why the last attempt ended, and what follows from it, is what people want to read first.
    let restarting = draft.status.condition(condition::RESTARTING).filter(|it| it.status == "True");
    let ended = draft.status.attempts.last().filter(|last| !last.is_open());
    let why = restarting.map(|it| it.message.as_str()).or(ended.and_then(|last| last.message.as_deref()));
    let last = why.map(|why| format!("{why}; ")).unwrap_or_default();
    let message = if leaving > 0 {
        let stuck = force::why_not(draft.snapshot, draft.settings, draft.now).map(|why| format!("; {why}"));
        let pods = text::count(leaving, "pod");
        format!("{last}waiting for {pods} of the last attempt to go{}", stuck.unwrap_or_default())
    } else if let Some(blocker) = blocker(draft, world) {
        blocked(draft, &blocker)
    } else if let Some(until) = &draft.status.backoff_until {
        format!("{last}that is at {}", until.0)
    } else {
        format!("creating {}", text::count(total, "pod"))
    };
    draft.message(message);
}

/// How long it took until all were on a node, and until the first progress.
fn note_times(draft: &mut Draft<'_>, world: &World<'_>, gang: &Gang<'_>) {
    let time = draft.time();
    let placed = world.members().all(|member| {
        let pod = gang.get(member.pod_name(world.job).as_str());
        pod.is_none_or(|pod| pod.node.is_some() || pod.is_finished())
    });
    let progressed = draft.snapshot.progress.as_ref().and_then(|progress| progress.updated);
    if let Some(attempt) = draft.open_attempt() {
        if let (true, None, Some(created)) = (placed, attempt.seconds.scheduled, &attempt.created_time) {
            attempt.seconds.scheduled = Some(time.0.duration_since(created.0).as_secs().max(0));
        }
        if let (None, Some(at), Some(began)) = (attempt.seconds.first_step, progressed, &attempt.running_time)
        {
            attempt.seconds.first_step = Some(at.duration_since(began.0).as_secs().max(0));
        }
    }
}

/// Some work, and others are replaced (`restartScope: Worker`), or about to be judged.
fn describe_gap(draft: &mut Draft<'_>, world: &World<'_>, gang: &Gang<'_>, missing: usize) {
    draft.state(State::Running);
    let total = world.members().filter(|member| member.role.is_required()).count();
    let summary = format!("{} of {} running", total - missing, text::count(total, "worker"));
    draft.condition(condition::RUNNING, true, "WorkersMissing", &summary);
    let why = draft.status.condition(condition::RESTARTING).filter(|it| it.status == "True");
    let why = why.map(|restarting| restarting.message.clone());
    let holdup = report::unread(draft).or_else(|| report::holdup(world, gang)).map(|(_, detail)| detail);
    let said: Vec<String> = [Some(summary), why, holdup].into_iter().flatten().collect();
    draft.message(said.join("; ") + &report::behind_the_rest(draft));
}

/// Says that something is in the way.
fn blocked(draft: &mut Draft<'_>, blocker: &str) -> String {
    let message = format!("waiting for {blocker} of an earlier job to go");
    draft.condition(condition::RESOURCES_CREATED, false, "NameConflict", &message);
    message
}
