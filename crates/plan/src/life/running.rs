//! A job that should run: judge its current attempt, and take the next step of it.

use jiff::Timestamp;
use trainyard_api::{Cause, Phase, RestartScope, State, condition};

use super::describe::describe;
use super::judge::{Case, Gang, Verdict};
use super::staffing::{furnish, may_start, staff};
use super::{backoff, budget, deadlines, ending, invalid, nudge, policy, report, single};
use crate::build;
use crate::draft::Draft;
use crate::inputs;
use crate::snapshot::{Obstacle, ObstacleKind, PodView};
use crate::text;
use crate::world::World;

/// Why a job waits that a quota holds back.
pub(super) const QUOTA: &str = "QuotaExceeded";

pub(super) fn advance(draft: &mut Draft<'_>) {
    let snapshot = draft.snapshot;
    let job = &*snapshot.job;
    let world = World::of(job);
    let inputs = inputs::hash_of(&job.spec);

    let number = current_attempt(draft);
    // Numbers come from labels, too, and end somewhere: pods of an attempt that has ended are never the next one's.
    let ended = draft.status.attempts.last().is_some_and(|last| !last.is_open() && last.number == number);
    let (gang, older): (Vec<&PodView>, Vec<&PodView>) =
        snapshot.own_pods().partition(|pod| pod.attempt == Some(number) && !ended);
    let gang: Gang<'_> = gang.into_iter().map(|pod| (pod.name.as_str(), pod)).collect();
    recover_record(draft, &world, number, &gang);
    if snapshot.own_pods().next().is_none() {
        note_torn_down(draft);
    }

    report::observe(draft, &world, &gang);
    note_reached(draft);
    note_created(draft, &world, &gang);
    let attempt = draft.status.attempts.last().filter(|attempt| attempt.number == number).cloned();
    let attempt = attempt.as_ref();
    let case = Case::of(draft, &world, &gang, attempt, &draft.status.worker_statuses, &inputs);
    let (verdict, stall_due) = (case.judge(), case.stall_due());
    let ignored: Vec<&str> =
        gang.values().filter(|pod| case.is_ignored(pod)).map(|pod| pod.name.as_str()).collect();
    let failures = gang.values().filter(|pod| ignored.contains(&pod.name.as_str()));
    let failures: Vec<(&PodView, String)> = failures.map(|pod| (*pod, case.failure(pod).message)).collect();
    for (pod, message) in failures {
        announce_ignored(draft, number, pod, &message);
    }
    for worker in &mut draft.status.worker_statuses {
        worker.ignored |= ignored.contains(&worker.pod_name.as_str());
    }
    if verdict == Verdict::Succeeded {
        let ignored = draft.status.worker_statuses.iter().filter(|worker| worker.ignored).count();
        return ending::complete(draft, ignored);
    }
    if let Some(reason) = deadlines::overdue(draft, &world, &gang, &ignored) {
        return reason.fail(draft);
    }
    match verdict {
        Verdict::Ends(ending) => return ending::end_attempt(draft, &ending),
        Verdict::Wait(until) => draft.wake(until),
        Verdict::GoesOn | Verdict::Succeeded => {}
    }
    if job.spec.restart_scope() == RestartScope::Worker {
        // They are changed while they are looked at.
        let workers = draft.status.worker_statuses.clone();
        let case = Case::of(draft, &world, &gang, attempt, &workers, &inputs);
        if single::mend(draft, &case) {
            return;
        }
    }
    if let Some(due) = stall_due.filter(|due| *due > draft.now) {
        draft.wake(due);
    }
    if let Some(refusal) = refusal(draft) {
        return refused(draft, &world, &gang, &older, number, refusal);
    }
    draft.delete_pods(older.iter().copied());
    furnish(draft, &world);
    // Beside a pod that is still going, its gang would wait for it half started.
    let room = older.is_empty() && gang.values().all(|pod| !pod.deleting);
    changed_while_waiting(draft, &world, &inputs);
    if room && may_start(draft, &world) {
        staff(draft, &world, &gang, &ignored, number, &inputs);
    }
    if is_created(draft) && budget::obstacle(draft).is_none() {
        let message = created_message(&world) + &unshared_claim(draft, &world).unwrap_or_default();
        draft.condition(condition::RESOURCES_CREATED, true, "WorkersCreated", message);
    }
    nudge::late_pods(draft, &gang);
    describe(draft, &world, &gang, older.len());
    budget::keep(draft, &gang);
}

/// What has happened before a job is stopped counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing that would be lost with the pods.
    Nothing,
    /// It has succeeded, or somebody has failed, and that is not written down yet: `advance` does so.
    Undecided,
    /// Somebody has failed; what it was will be known by then.
    Unclear(Timestamp),
}

/// What the pods tell that is to be written down before they are removed on purpose: else a training that is done would be done
/// again, and a job could be kept alive beyond its limit by whoever stops it in time.
pub(super) fn before_it_stops(draft: &Draft<'_>) -> Before {
    let Some(attempt) = draft.status.attempts.last().filter(|attempt| attempt.is_open()) else {
        return Before::Nothing;
    };
    let job = &*draft.snapshot.job;
    let (world, inputs) = (World::of(job), inputs::hash_of(&job.spec));
    let gang = draft.snapshot.own_pods().filter(|pod| pod.attempt == Some(attempt.number));
    let gang: Gang<'_> = gang.map(|pod| (pod.name.as_str(), pod)).collect();
    let case = Case::of(draft, &world, &gang, Some(attempt), &draft.status.worker_statuses, &inputs);
    match case.judge() {
        Verdict::Succeeded => Before::Undecided,
        Verdict::Ends(ending) if policy::matters(&ending) => Before::Undecided,
        Verdict::GoesOn if case.has_uncounted() => {
            single::root_is_awaited(&case).map_or(Before::Undecided, Before::Unclear)
        }
        Verdict::Wait(until) => Before::Unclear(until),
        Verdict::Ends(_) | Verdict::GoesOn => Before::Nothing,
    }
}

/// A failure that does not matter is told, too, once: the status then says that it failed.
fn announce_ignored(draft: &mut Draft<'_>, number: i32, pod: &PodView, message: &str) {
    let mut known = draft.snapshot.job.status.iter().flat_map(|status| &status.worker_statuses);
    if known.any(|worker| worker.pod_name == pod.name && worker.phase == Phase::Failed) {
        return;
    }
    let mut workers = draft.status.worker_statuses.iter();
    let again = workers.find(|worker| worker.pod_name == pod.name).map_or(0, |worker| worker.restart_count);
    let message = format!("{message}; ignored by a rule of failurePolicy");
    ending::announce_failure(draft, number, Some(pod), again, &message);
}

/// The number of the attempt that runs or comes next. Pods know it, too: a status that somebody removed is found again.
fn current_attempt(draft: &Draft<'_>) -> i32 {
    let recorded = draft
        .status
        .attempts
        .last()
        .map_or(1, |attempt| attempt.number.saturating_add(i32::from(!attempt.is_open())));
    let seen = draft.snapshot.own_pods().filter_map(|pod| pod.attempt).max().unwrap_or(1);
    recorded.max(seen)
}

/// Pods exist for an attempt that the status does not know: it was removed, or this process crashed before writing.
fn recover_record(draft: &mut Draft<'_>, world: &World<'_>, number: i32, gang: &Gang<'_>) {
    let known = draft.status.attempts.last().is_some_and(|attempt| attempt.number >= number);
    if gang.is_empty() || known {
        return;
    }
    draft.end_attempt(Cause::Unknown, None, "the record of how this attempt ended was lost");
    // The job may have been rescaled since.
    let shape = gang.values().find_map(|pod| pod.shape.as_deref().map(str::to_owned));
    let inputs = gang.values().find_map(|pod| pod.inputs.as_deref().map(str::to_owned));
    begin(draft, shape.unwrap_or_else(|| world.shape()), inputs, number);
}

/// All pods of the attempt are there, for the first time. That is noted before they are judged: pods may be quick.
fn note_created(draft: &mut Draft<'_>, world: &World<'_>, gang: &Gang<'_>) {
    let time = draft.time();
    let all = present(world, gang) == world.members().count();
    let Some(attempt) = draft.open_attempt().filter(|attempt| all && attempt.created_time.is_none()) else {
        return;
    };
    attempt.created_time = Some(time);
    let number = attempt.number;
    if number == 1 {
        draft.normal("Created", "TrainingJob resources created successfully", "");
    }
    draft.normal("WorkersCreated", created_message(world), number);
    draft.condition(condition::RESOURCES_CREATED, true, "WorkersCreated", created_message(world));
}

/// A claim that was made for one pod is kept when the job grows: its pods can then share it on one node only.
fn unshared_claim(draft: &Draft<'_>, world: &World<'_>) -> Option<String> {
    let job = &*draft.snapshot.job;
    let name = build::claim_name(job).filter(|_| build::makes_claim(job) && world.members().count() > 1)?;
    let claim = draft.snapshot.claims.iter().find(|claim| claim.name == name && !claim.shared)?;
    Some(format!("; claim {} is not ReadWriteMany: all pods that use it must be on one node", claim.name))
}

fn created_message(world: &World<'_>) -> String {
    format!("Created {}", text::count(usize::try_from(world.size()).unwrap_or(usize::MAX), "worker pod"))
}

pub(super) fn is_created(draft: &mut Draft<'_>) -> bool {
    draft.open_attempt().is_some_and(|attempt| attempt.created_time.is_some())
}

/// How many of the pods that should be there are.
pub(super) fn present(world: &World<'_>, gang: &Gang<'_>) -> usize {
    let pods = world.members().filter_map(|member| gang.get(member.pod_name(world.job).as_str()));
    pods.filter(|pod| !pod.deleting).count()
}

/// All pods of the attempt that ended last are gone.
pub(super) fn note_torn_down(draft: &mut Draft<'_>) {
    let now = draft.time();
    let last = draft.status.attempts.last_mut().filter(|last| last.seconds.torn_down.is_none());
    if let Some((last, ended)) = last.and_then(|last| last.end_time.clone().map(|ended| (last, ended))) {
        last.seconds.torn_down = Some(now.0.duration_since(ended.0).as_secs().max(0));
    }
}

/// What the attempt that ended last saved at its very end, and its agent told of only then: it got further all the same, and the next
/// one need not wait.
fn note_reached(draft: &mut Draft<'_>) {
    let Some(reached) = draft.progress() else { return };
    let Some(last) = draft.status.attempts.last_mut().filter(|last| !last.is_open()) else { return };
    if last.cause.is_none_or(|cause| cause == Cause::Resume) {
        return;
    }
    let is_first = last.reached.replace(reached).is_none();
    if is_first && draft.status.backoff_until.take().is_some() {
        draft.decide();
    }
}

pub(super) fn begin(draft: &mut Draft<'_>, world: String, inputs: Option<String>, number: i32) {
    let time = draft.time();
    note_torn_down(draft);
    draft.begin_attempt(number, world, inputs);
    let resumes = draft.snapshot.job.spec.resumes();
    if !resumes {
        // What an earlier attempt saved is not where this one is.
        draft.status.checkpoint = None;
    }
    if let Some(checkpoint) = draft.status.checkpoint.clone() {
        let message = format!("Resuming from {} ({})", text::checkpoint(&checkpoint), checkpoint.path);
        draft.normal("ResumingFromCheckpoint", message, number);
        if let Some(attempt) = draft.open_attempt() {
            attempt.resumed_from = Some(Box::new(checkpoint));
        }
        // All ranks must go on from the same one, whatever is saved until the last of them is created.
        draft.decide();
    }
    // None so far is a number, too, for whoever lists jobs.
    draft.status.restarts.get_or_insert_default();
    draft.status.start_time.get_or_insert_with(|| time.clone());
    draft.status.active_since.get_or_insert(time);
}

/// What the cluster refused for this spec, while it is too early to ask again.
pub(super) fn refusal<'a>(draft: &Draft<'a>) -> Option<&'a Obstacle> {
    // Nobody waits for a budget.
    let current =
        current_obstacles(draft).filter(|obstacle| !matches!(obstacle.kind, ObstacleKind::Unguarded { .. }));
    // An invalid spec is the one thing that waiting does not mend: it is told first.
    current.min_by_key(|obstacle| obstacle.kind != ObstacleKind::Invalid)
}

/// What was refused for this spec, and is not to be asked for again yet.
pub(super) fn current_obstacles<'a>(draft: &Draft<'a>) -> impl Iterator<Item = &'a Obstacle> + use<'a> {
    let Draft { snapshot, now, .. } = *draft;
    let generation = snapshot.generation();
    let obstacles = snapshot.obstacles.iter();
    obstacles.filter(move |obstacle| obstacle.generation == generation && now < obstacle.retry_at)
}

fn refused(
    draft: &mut Draft<'_>,
    world: &World<'_>,
    gang: &Gang<'_>,
    older: &[&PodView],
    number: i32,
    obstacle: &Obstacle,
) {
    let message = match obstacle.kind {
        ObstacleKind::NameConflict => format!("{} exists already: {}", obstacle.object, obstacle.message),
        _ => format!("{} was refused: {}", obstacle.object, obstacle.message),
    };
    let (reason, notice) = match obstacle.kind {
        ObstacleKind::Invalid => return invalid::refuse(draft, &message),
        ObstacleKind::NameConflict => ("NameConflict", "NameConflict"),
        ObstacleKind::Quota => (QUOTA, QUOTA),
        ObstacleKind::Forbidden | ObstacleKind::Unguarded { .. } => ("Forbidden", "ReconcileFailed"),
    };
    let told = draft.status.condition(condition::RESOURCES_CREATED);
    if told.is_none_or(|told| told.reason != reason) {
        let occurrence = format!("{}/{number}/{}", draft.snapshot.generation(), obstacle.object);
        draft.warning(notice, &message, occurrence);
    }
    draft.condition(condition::RESOURCES_CREATED, false, reason, &message);
    draft.delete_pods(older.iter().copied());
    draft.wake(obstacle.retry_at);
    if is_created(draft) {
        // The gang is complete: it goes on without what was refused.
        describe(draft, world, gang, older.len());
        let goes_on = draft.status.message.take().unwrap_or_default();
        draft.message(format!("{goes_on}; {message}"));
    } else {
        // Half a gang would hold its share of the cluster and wait for the other half.
        draft.delete_pods(gang.values().copied());
        draft.state(waiting_state(draft));
        draft.message(message);
    }
}

/// What a job is called that has no pods yet: one that is being restarted still is, any other waits for a start.
pub(super) fn waiting_state(draft: &Draft<'_>) -> State {
    match draft.status.state {
        Some(State::Restarting) => State::Restarting,
        _ => State::Pending,
    }
}

/// Who changes what the pods are made of while a job waits after a failure has mended something: it is tried at once.
fn changed_while_waiting(draft: &mut Draft<'_>, world: &World<'_>, inputs: &str) {
    if backoff::pending(draft).is_none() {
        return;
    }
    let last = draft.status.attempts.last().filter(|last| !last.is_open());
    let is_made_of = last.and_then(|last| last.inputs.as_deref());
    let shape = last.and_then(|last| last.world.as_deref());
    let notice = if is_made_of.is_some_and(|before| before != inputs) {
        ("SpecChanged", "The spec was changed: the next attempt begins with it, and does not wait".to_owned())
    } else if let Some(before) = shape.filter(|before| *before != world.shape()) {
        let shape = world.shape();
        ("Rescaled", format!("rescaled from {before} to {shape}: the next attempt does not wait"))
    } else {
        return;
    };
    draft.status.backoff_until = None;
    draft.decide();
    draft.normal(notice.0, notice.1, format!("waiting/{}", draft.snapshot.generation()));
}
