//! What is seen, as status: counts, pods, values in effect, and one sentence for people.

use std::collections::BTreeSet;

use trainyard_api::{
    AllocatedResources, Cause, CheckpointDefaults, CheckpointStatus, CleanPodPolicy, Effective, Phase,
    RestartScope, State, SuccessPolicy, TrainingJob, TrainingJobSpec, WorkerCounts, WorkerStatus, condition,
    names,
};

use super::judge::{Gang, is_copying};
use crate::build;
use crate::draft::{Draft, whole_seconds};
use crate::settings::Settings;
use crate::snapshot::{AgentView, PodPhase, PodView};
use crate::stacks;
use crate::text;
use crate::world::{Rank, World};

/// Fills in everything that only describes.
pub(super) fn observe(draft: &mut Draft<'_>, world: &World<'_>, gang: &Gang<'_>) {
    let job = &*draft.snapshot.job;
    let restart_count = draft.status.restarts.unwrap_or_default().total();
    let mut workers = Vec::new();
    let mut replicas = 0;
    // Who is restarted alone is counted alone, within the attempt.
    let alone = job.spec.restart_scope() == RestartScope::Worker && !draft.status.attempts.is_empty();
    let restart_count = if job.spec.restart_scope() == RestartScope::Worker { 0 } else { restart_count };
    let under_way =
        draft.status.attempts.last().is_some_and(|last| last.is_open() && last.created_time.is_some());
    let copying = is_copying(draft.snapshot, world, gang);
    for member in world.members() {
        let name = member.pod_name(world.job);
        let pod = gang.get(name.as_str()).copied();
        // A pod that succeeded in this attempt and was cleaned away has still succeeded.
        let may_be_kept = pod.is_none() && under_way;
        let kept = may_be_kept.then(|| remembered(&draft.status.worker_statuses, &name)).flatten();
        if member.role.is_workers() && pod.is_some() {
            replicas += 1;
        }
        let single =
            alone.then(|| draft.status.worker_statuses.iter().find(|worker| worker.pod_name == name));
        let single = single.flatten();
        // Once another pod has started in its place, the loss of that one is a new loss.
        let runs_again = |failed: &str| pod.is_some_and(|pod| pod.has_started() && pod.uid != failed);
        let failed_uid = single.and_then(|worker| worker.failed_uid.clone());
        // Until its last checkpoint has been copied, the leader is not done: if it is lost now, so is what it did.
        let phase = match pod.map_or(Phase::Pending, phase) {
            Phase::Succeeded if copying && member.rank == Some(Rank(0)) => Phase::Running,
            phase => phase,
        };
        let was_ignored = remembered(&draft.status.worker_statuses, &name).is_some_and(|it| it.ignored);
        let worker = kept.cloned().unwrap_or_else(|| WorkerStatus {
            failed_uid: failed_uid.filter(|failed| !runs_again(failed)),
            worker_id: i32::try_from(member.index).unwrap_or(i32::MAX),
            role: member.role.name.to_owned(),
            node_name: pod.and_then(|pod| pod.node.clone()),
            phase,
            status: phase,
            ignored: phase == Phase::Failed && under_way && was_ignored,
            restart_count: single.map_or(restart_count, |worker| worker.restart_count),
            message: pod.and_then(pod_message),
            pod_name: name,
        });
        workers.push(worker);
    }
    draft.status.resources = Some(allocated(world, gang));
    draft.status.effective = Some(Box::new(effective(job, world, draft.settings)));
    progress(draft);
    checkpoints(draft);
    let desired = i32::try_from(world.size()).unwrap_or(i32::MAX);
    draft.status.workers = Some(WorkerCounts { desired, ..WorkerCounts::default() });
    draft.status.worker_statuses = workers;
    count(draft, world);
    draft.status.replicas = Some(replicas);
    draft.status.selector = Some(format!(
        "{}={},{}={},{}={}",
        names::APP_LABEL,
        names::APP,
        names::JOB_LABEL,
        world.job,
        names::ROLE_LABEL,
        names::WORKERS
    ));
}

/// Counts who has a rank by phases.
pub(super) fn count(draft: &mut Draft<'_>, world: &World<'_>) {
    let ranked =
        |worker: &&WorkerStatus| world.roles.iter().any(|role| role.name == worker.role && role.is_ranked());
    let desired = draft.status.workers.unwrap_or_default().desired;
    let mut counts = WorkerCounts { desired, ..WorkerCounts::default() };
    draft.status.worker_statuses.iter().filter(ranked).for_each(|worker| counts.add(worker.phase));
    draft.status.workers = Some(counts);
}

/// What the program said about how far it is. Without news, the last word stands.
fn progress(draft: &mut Draft<'_>) {
    let snapshot = draft.snapshot;
    let given = snapshot.job.spec.total_epochs();
    let status = &mut draft.status;
    // Of a program that never told of an epoch, the number may be the one that somebody has just taken out of the spec.
    let may_be_given =
        status.current_epoch.is_none() && status.observed_generation != Some(snapshot.generation());
    status.total_epochs = given.or(status.total_epochs.filter(|_| !may_be_given));
    let Some(progress) = &snapshot.progress else { return };
    status.total_epochs = progress.epochs.map(whole).or(given);
    status.current_epoch = progress.epoch.map(whole).or(status.current_epoch);
    status.metrics = progress.metrics.iter().map(|(name, value)| (name.clone(), *value)).collect();
    let epochs = given_epochs(&snapshot.job.spec);
    if let Some(fraction) = progress.fraction(epochs) {
        // 100% is for a job that is done.
        status.progress = Some(format!("{:.0}%", (fraction * 100.0).floor().min(99.0)));
    }
    // What is not at work comes no nearer to its end.
    let runs = status.attempts.last().is_some_and(|last| last.is_open() && last.running_time.is_some());
    status.estimated_completion = progress.estimate(epochs).filter(|_| runs).map(whole_seconds);
    if let (Some(start), Some(updated)) = (&status.start_time, progress.updated) {
        status.duration = Some(text::duration(updated.duration_since(start.0)));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of epochs")]
fn given_epochs(spec: &TrainingJobSpec) -> Option<f64> {
    spec.total_epochs().map(|epochs| epochs as f64)
}

/// Where the programs of an attempt that stalled hung, once they have said so.
pub(super) fn hung(draft: &mut Draft<'_>) {
    let Some(stacks) = &draft.snapshot.stacks else { return };
    let world = World::of(&draft.snapshot.job);
    let mut attempts = draft.status.attempts.iter_mut();
    let attempt =
        attempts.find(|attempt| attempt.number == stacks.attempt && attempt.cause == Some(Cause::Stalled));
    let Some(attempt) = attempt.filter(|attempt| attempt.error.is_none()) else { return };
    let title = |pod: &str| {
        let member = world.members().find(|member| member.pod_name(world.job) == pod);
        member.map_or_else(|| pod.to_owned(), |member| member.title())
    };
    let said = stacks.said.iter().map(|(pod, text)| (title(pod), text.as_str()));
    let Some(summary) = stacks::summary(said) else { return };
    attempt.error = Some(summary.clone());
    draft.warning("Stalled", format!("It hung: {summary}"), format!("stacks/{}", stacks.attempt));
}

/// What the agent said about the checkpoints. Without news, the last word stands.
fn checkpoints(draft: &mut Draft<'_>) {
    let spec = &draft.snapshot.job.spec;
    if draft.settings.agent_image.is_none() && spec.checkpoint_bucket().is_some() {
        return checkpoint_problem(draft, "NoAgent", NO_AGENT);
    }
    let Some(agent) = &draft.snapshot.agent else {
        if draft.settings.agent_image.is_none() && spec.checkpoints_on() {
            // What programs save there stays, and many find it by themselves.
            draft.condition(condition::CHECKPOINT_PROBLEM, true, UNWATCHED, NOBODY_WATCHES);
        }
        return;
    };
    let last = draft.status.attempts.last();
    if is_outdated(draft, agent) {
        return;
    }
    let number = last.filter(|last| last.is_open()).map(|last| last.number);
    let mut current = draft.snapshot.own_pods().filter(|pod| pod.attempt == number);
    // To an attempt that starts afresh, what an earlier one saved means nothing.
    if !draft.snapshot.job.spec.resumes() && !current.any(|pod| pod.uid == agent.pod) {
        return;
    }
    let report = &agent.report;
    note_moved_aside(draft, agent);
    let saved = report.checkpoint.as_ref().filter(|newest| draft.status.checkpoint.as_ref() != Some(newest));
    if let Some(saved) = saved {
        // Once in a while is enough for people.
        let window = |at: &CheckpointStatus| at.time.as_ref().map(|time| time.0.as_second() / EVENT_SECONDS);
        let before = draft.status.checkpoint.as_ref().and_then(window);
        if window(saved).is_none_or(|now| before != Some(now)) && !report.resume_differs {
            let message = format!("Saved {} ({})", text::checkpoint(saved), saved.path);
            draft.normal("CheckpointSaved", message, window(saved).unwrap_or_default());
        }
    }
    // What could not be read may still be there.
    let unknown = report.unread && report.checkpoint.is_none();
    if draft.status.checkpoint != report.checkpoint && !unknown {
        draft.status.checkpoint.clone_from(&report.checkpoint);
    }
    match &report.problem {
        Some(problem) => checkpoint_problem(draft, "Storage", problem),
        None => draft.condition_over(condition::CHECKPOINT_PROBLEM, "Storage", "The storage is in order"),
    }
}

/// What an attempt found to be cut off, and does not go on from.
fn note_moved_aside(draft: &mut Draft<'_>, agent: &AgentView) {
    let Some(moved) = &agent.report.moved_aside else { return };
    let Some(attempt) = draft.open_attempt().filter(|open| Some(open.number) == agent.attempt) else {
        return;
    };
    if attempt.moved_aside.is_none() {
        attempt.moved_aside = Some(moved.clone());
        let number = attempt.number;
        let message =
            format!("Not complete, and moved to .trainyard/quarantine beside the checkpoints: {moved}");
        draft.warning("CheckpointMovedAside", message, number);
    }
}

/// Another has taken the place of the pod that said so, and another operator has heard what it says: the old word counts no more.
fn is_outdated(draft: &Draft<'_>, agent: &AgentView) -> bool {
    let Some(last) = draft.status.attempts.last() else { return false };
    let leader = World::of(&draft.snapshot.job).leader();
    let mut pods = draft.snapshot.own_pods().filter(|pod| pod.name == leader);
    let is_replaced = pods.any(|pod| pod.attempt == Some(last.number) && pod.uid != agent.pod);
    is_replaced || agent.attempt.is_some_and(|attempt| attempt < last.number)
}

/// Nothing is saved, or not where it should be: told once, whenever it begins.
fn checkpoint_problem(draft: &mut Draft<'_>, reason: &str, problem: &str) {
    let known = draft.status.condition(condition::CHECKPOINT_PROBLEM);
    if known.is_none_or(|known| known.status != "True" || known.reason == UNWATCHED) {
        // Since when all was well tells one time from another, however often this is tried.
        let since = known.map(|known| known.last_transition_time.0.to_string()).unwrap_or_default();
        draft.warning(condition::CHECKPOINT_PROBLEM, problem, since);
    }
    draft.condition(condition::CHECKPOINT_PROBLEM, true, reason, problem);
}

/// What is wrong with the checkpoints of a job that runs, to be said behind the rest.
pub(super) fn behind_the_rest(draft: &Draft<'_>) -> String {
    let problem = draft.status.condition(condition::CHECKPOINT_PROBLEM);
    let problem = problem.filter(|problem| problem.status == "True" && problem.reason != UNWATCHED);
    problem.map(|problem| format!("; checkpoints: {}", problem.message)).unwrap_or_default()
}

/// Why the leading worker is not started: nobody knows what it should go on from.
pub(super) fn unread(draft: &Draft<'_>) -> Option<(String, String)> {
    let agent = draft.snapshot.agent.as_ref().filter(|agent| agent.report.unread)?;
    let is_here = draft.snapshot.own_pods().any(|pod| pod.uid == agent.pod && !pod.has_started());
    let problem = agent.report.problem.clone().filter(|_| is_here)?;
    Some((condition::CHECKPOINT_PROBLEM.to_owned(), problem))
}

const NO_AGENT: &str = "checkpoints are not copied to the bucket, because the operator has no image of the agent that does it: \
                        start the operator with --agent-image";

/// The reason for a condition that is no failure of the storage.
const UNWATCHED: &str = "Unwatched";

const NOBODY_WATCHES: &str = "nobody looks after the checkpoints, so that restarts do not know of them, because the operator has no image \
                         of the agent that does it: start the operator with --agent-image";

/// `CheckpointSaved` is told once in so many seconds.
const EVENT_SECONDS: i64 = 300;

#[expect(clippy::cast_possible_truncation, reason = "a float becomes the nearest integer there is")]
fn whole(number: f64) -> i64 {
    number.floor() as i64
}

/// The training is over: nothing is left to estimate. Whether it has done it all is known of one whose workers all succeeded, and of one
/// that said so.
pub(super) fn conclude_progress(draft: &mut Draft<'_>, all_done: bool) {
    draft.status.estimated_completion = None;
    let spec = &draft.snapshot.job.spec;
    // One worker is enough there, and this is how far the leading one was.
    let says_little = spec.success_policy() == SuccessPolicy::AnyWorker;
    let progress = draft.snapshot.progress.as_ref();
    let fraction = progress.and_then(|progress| progress.fraction(given_epochs(spec)));
    let has_done_all = fraction.is_some_and(|fraction| fraction >= 1.0);
    let is_over = draft.status.state == Some(State::Completed);
    let is_all = is_over && has_done_all || all_done && !says_little;
    if is_all && draft.status.progress.is_some() {
        draft.status.progress = Some("100%".to_owned());
    }
}

/// A worker that is done in this attempt, whether or not its pod is still there.
pub(super) fn remembered<'s>(workers: &'s [WorkerStatus], name: &str) -> Option<&'s WorkerStatus> {
    let is_done = |worker: &WorkerStatus| worker.phase == Phase::Succeeded || worker.ignored;
    workers.iter().find(|worker| worker.pod_name == name && is_done(worker))
}

/// The last report of a job that has ended: of its pods, those are told of that ended by themselves, or that may go on.
pub(super) fn conclude(draft: &mut Draft<'_>) {
    let ended = |worker: &WorkerStatus| matches!(worker.phase, Phase::Succeeded | Phase::Failed);
    if draft.status.worker_statuses.iter().all(ended) {
        draft.status.resources = draft.status.resources.map(|_| AllocatedResources::default());
        return;
    }
    let job = &*draft.snapshot.job;
    let world = World::of(job);
    let number = draft.status.attempts.last().map(|attempt| attempt.number);
    let may_go_on = job.spec.clean_pod_policy() == CleanPodPolicy::None;
    let alive: Gang<'_> = draft
        .snapshot
        .own_pods()
        .filter(|pod| may_go_on && pod.attempt == number)
        .map(|pod| (pod.name.as_str(), pod))
        .collect();
    draft.status.worker_statuses.retain_mut(|worker| {
        let pod = alive.get(worker.pod_name.as_str());
        if !ended(worker) {
            let Some(pod) = pod else { return false };
            worker.phase = phase(pod);
            worker.status = worker.phase;
            worker.node_name.clone_from(&pod.node);
            worker.message = pod_message(pod);
        }
        true
    });
    count(draft, &world);
    draft.status.resources = Some(allocated(&world, &alive));
}

fn phase(pod: &PodView) -> Phase {
    match pod.phase {
        PodPhase::Pending => Phase::Pending,
        PodPhase::Running => Phase::Running,
        PodPhase::Succeeded => Phase::Succeeded,
        PodPhase::Failed => Phase::Failed,
    }
}

fn pod_message(pod: &PodView) -> Option<String> {
    if let Some(exit) = pod.exit.as_ref().filter(|exit| exit.code != 0) {
        let reason = exit.reason.as_ref().filter(|reason| *reason != "Error");
        return Some(match reason {
            Some(reason) => format!("{reason}, {}", text::exit_code(exit.code)),
            None => text::exit_code(exit.code),
        });
    }
    if pod.deleting {
        return Some("is being removed".to_owned());
    }
    pod.waiting.as_ref().map(|waiting| match &waiting.message {
        Some(message) => format!("{}: {message}", waiting.reason),
        None => waiting.reason.clone(),
    })
}

/// What holds the pods up that do not run yet: the first reason that is not just "it takes a moment".
pub(super) fn holdup(world: &World<'_>, gang: &Gang<'_>) -> Option<(String, String)> {
    world.members().find_map(|member| {
        let name = member.pod_name(world.job);
        let pod = gang.get(name.as_str())?;
        let waiting = pod.waiting.as_ref().filter(|_| pod.phase == PodPhase::Pending)?;
        let detail = || format!("{name}: {}", pod_message(pod).unwrap_or_default());
        (!pod.waits_without_a_word()).then(|| (waiting.reason.clone(), detail()))
    })
}

fn allocated(world: &World<'_>, gang: &Gang<'_>) -> AllocatedResources {
    let mut gpus = 0;
    let mut nodes = BTreeSet::new();
    for member in world.members() {
        let pod = gang.get(member.pod_name(world.job).as_str()).copied();
        if let Some(pod) = pod.filter(|pod| !pod.is_finished())
            && let Some(node) = &pod.node
        {
            gpus += member.role.gpus;
            nodes.insert(node.clone());
        }
    }
    AllocatedResources {
        allocated_gpus: gpus,
        allocated_nodes: i32::try_from(nodes.len()).unwrap_or(i32::MAX),
    }
}

fn effective(job: &TrainingJob, world: &World<'_>, settings: &Settings) -> Effective {
    let spec = &job.spec;
    Effective {
        framework: spec.framework(),
        image: build::image(job, None, settings),
        num_workers: spec.worker_count(),
        world_size: i32::try_from(world.size()).unwrap_or(i32::MAX),
        gpus_per_worker: spec.gpus_per_worker(),
        procs_per_worker: spec.procs_per_worker(),
        backend: spec.backend(),
        master_port: build::master_port(job),
        backoff_limit: spec.backoff_limit(),
        restart_policy: spec.restart_policy(),
        clean_pod_policy: spec.clean_pod_policy(),
        checkpoint: spec.checkpoints_on().then(|| CheckpointDefaults {
            directory: spec.checkpoint_directory().to_owned(),
            frequency: spec.checkpoint_frequency(),
            claim_name: build::claim_name(job),
            url: build::place_in_bucket(job),
        }),
    }
}
