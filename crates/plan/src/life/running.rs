//! A job that should run: judge its current attempt, and take the next step of it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use trainyard_api::{
    Cause, Phase, RestartScope, RoleOrder, State, TrainingJob, WorkerStatus, condition, names,
};

use super::describe::describe;
use super::judge::{Case, Gang, Verdict};
use super::{backoff, budget, ending, has_finalizer, invalid, nudge, policy, report, single};
use crate::build;
use crate::draft::{Draft, later};
use crate::inputs;
use crate::plan::{NewObject, Patch, Step, Target, TargetKind};
use crate::snapshot::{ObjectView, Obstacle, ObstacleKind, PodPhase, PodView};
use crate::text;
use crate::world::{self, Member, World};

/// Why a job waits that a quota holds back.
const QUOTA: &str = "QuotaExceeded";

/// Of the nodes that are about to be taken away, so many are named in a pod. Taints usually keep it away from all of them.
const MOST_AVOIDED: usize = 20;

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
    if let Some(reason) = overdue(draft, &world, &gang, &ignored) {
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

fn begin(draft: &mut Draft<'_>, world: String, inputs: Option<String>, number: i32) {
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

/// A deadline that has passed.
enum Overdue {
    Active(i64),
    Startup(i64, Option<String>),
}

fn overdue(draft: &mut Draft<'_>, world: &World<'_>, gang: &Gang<'_>, ignored: &[&str]) -> Option<Overdue> {
    let spec = &draft.snapshot.job.spec;
    let due =
        |since: Option<Timestamp>, limit: Option<i64>| Some(later(since?, SignedDuration::from_secs(limit?)));
    let active = due(draft.status.active_since.as_ref().map(|time| time.0), spec.active_deadline_seconds);
    let starting =
        draft.status.attempts.last().filter(|attempt| attempt.is_open() && attempt.running_time.is_none());
    // Waiting for a quota is not starting up: that begins when the pods are there.
    let since = starting.and_then(|attempt| match (&attempt.created_time, &attempt.start_time) {
        // All who may be there by now have been let in; others wait for these to start.
        (None, _) if awaits_quota(draft) => {
            let are_in = missing(world, gang, ignored).is_empty();
            are_in.then(|| gang.values().filter_map(|pod| pod.created).max()).flatten()
        }
        (Some(since), _) | (None, Some(since)) => Some(since.0),
        (None, None) => None,
    });
    // Who takes the place of another while the rest goes on has to start up, too.
    let alone = spec.restart_scope() == RestartScope::Worker && starting.is_none();
    let replaced = gang.values().filter(|pod| alone && pod.phase == PodPhase::Pending && !pod.deleting);
    let since = since.or_else(|| replaced.filter_map(|pod| pod.created).min());
    let startup = due(since, spec.startup_timeout_seconds);
    if active.is_some_and(|due| due <= draft.now) {
        return Some(Overdue::Active(spec.active_deadline_seconds.unwrap_or_default()));
    }
    if startup.is_some_and(|due| due <= draft.now) {
        let any = |worker: &WorkerStatus| {
            worker.message.as_ref().map(|message| format!("{}: {message}", worker.pod_name))
        };
        let holdup = report::unread(draft).or_else(|| report::holdup(world, gang)).map(|(_, detail)| detail);
        let holdup = holdup.or_else(|| draft.status.worker_statuses.iter().find_map(any));
        return Some(Overdue::Startup(spec.startup_timeout_seconds.unwrap_or_default(), holdup));
    }
    for due in [active, startup].into_iter().flatten() {
        draft.wake(due);
    }
    None
}

fn awaits_quota(draft: &Draft<'_>) -> bool {
    draft
        .status
        .condition(condition::RESOURCES_CREATED)
        .is_some_and(|created| created.status == "False" && created.reason == QUOTA)
}

impl Overdue {
    fn fail(self, draft: &mut Draft<'_>) {
        let (cause, reason, message) = match self {
            Overdue::Active(limit) => (
                Cause::Deadline,
                "DeadlineExceeded",
                format!("the job was active for longer than activeDeadlineSeconds ({limit} s)"),
            ),
            Overdue::Startup(limit, holdup) => (
                Cause::StartupTimeout,
                "StartupTimeout",
                format!(
                    "not all pods were running after startupTimeoutSeconds ({limit} s){}",
                    holdup.map(|holdup| format!(": {holdup}")).unwrap_or_default()
                ),
            ),
        };
        draft.end_attempt(cause, None, &message);
        ending::fail(draft, reason, &message);
    }
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

/// Builds an object of a job.
type Make = fn(&TrainingJob) -> NewObject;

/// What puts an object back that has this fingerprint, if it should have another.
type Mend = fn(&TrainingJob, u64) -> Option<Value>;

/// Makes and mends the service, the config map and the claim. What is going or not ours is left alone (see `blocker`).
fn furnish(draft: &mut Draft<'_>, world: &World<'_>) {
    let snapshot = draft.snapshot;
    let job = &*snapshot.job;
    let uid = snapshot.uid();
    let mut steps = Vec::new();

    // Made if it is not there, put back if somebody changed it.
    let mut keep =
        |kind: TargetKind, name: String, views: &[ObjectView], make: Make, restore: Mend| match views
            .iter()
            .find(|view| view.name == name)
        {
            None => steps.push(Step::Create(make(job))),
            Some(view) if view.owner.as_deref() == Some(uid) && !view.deleting => {
                if let Some(patch) = restore(job, view.fingerprint) {
                    steps.push(Step::Restore(Patch {
                        target: Target { kind, name, uid: view.uid.clone() },
                        patch,
                    }));
                }
            }
            Some(_) => {}
        };
    let service: Make = |job| NewObject::Service(Box::new(build::service(job)));
    let name = names::service(world.job);
    keep(TargetKind::Service, name, &snapshot.services, service, build::restore_service);
    let config: Make = |job| NewObject::ConfigMap(Box::new(build::config_map(job)));
    let name = names::config_map(world.job);
    keep(TargetKind::ConfigMap, name, &snapshot.config_maps, config, build::restore_config_map);
    let claim = names::claim(world.job);
    if !snapshot.claims.iter().any(|view| view.name == claim)
        && let Some(claim) = build::claim(job, world)
    {
        steps.push(Step::Create(NewObject::Claim(Box::new(claim))));
    }
    draft.stage(steps);
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

/// Whether pods may be created now: no backoff, nobody else's pods or dying objects under our names.
fn may_start(draft: &mut Draft<'_>, world: &World<'_>) -> bool {
    if let Some(until) = backoff::pending(draft) {
        draft.wake(until.0);
        return false;
    }
    blocker(draft, world).is_none()
}

/// An object under one of our names that is on its way out, or belongs to an earlier job of the same name. The cache
/// tells when it is gone.
pub(super) fn blocker(draft: &Draft<'_>, world: &World<'_>) -> Option<String> {
    let snapshot = draft.snapshot;
    let uid = snapshot.uid();
    let foreign = |owner: Option<&str>| owner != Some(uid);
    let service = names::service(world.job);
    let config = names::config_map(world.job);
    let claim = names::claim(world.job);
    let objects = snapshot.services.iter().filter(|view| view.name == service).map(|view| ("service", view));
    let objects = objects
        .chain(snapshot.config_maps.iter().filter(|view| view.name == config).map(|v| ("config map", v)));
    let mut objects = objects.filter(|(_, view)| view.deleting || foreign(view.owner.as_deref()));
    let pod = snapshot.pods.iter().find(|pod| {
        foreign(pod.owner.as_deref()) && world.members().any(|member| member.pod_name(world.job) == pod.name)
    });
    let mut claims = snapshot.claims.iter().filter(|_| build::makes_claim(&snapshot.job));
    let claim = claims.find(|view| view.name == claim && view.deleting);
    pod.map(|pod| format!("pod {}", pod.name))
        .or_else(|| objects.next().map(|(kind, view)| format!("{kind} {}", view.name)))
        .or_else(|| claim.map(|claim| format!("claim {}", claim.name)))
}

/// Who is to be there by now and is not: whose turn it is, in the order of the roles.
fn missing<'w>(world: &'w World<'w>, gang: &Gang<'_>, ignored: &[&str]) -> Vec<Member<'w, 'w>> {
    let started = |order: RoleOrder| {
        world.members().filter(|member| member.role.order == order && member.role.replicas > 0).all(
            |member| {
                let name = member.pod_name(world.job);
                // Whose failure does not matter is not waited for.
                let is_ignored = ignored.contains(&name.as_str());
                is_ignored || gang.get(name.as_str()).is_some_and(|pod| pod.has_started())
            },
        )
    };
    let turn = |member: &Member<'_, '_>| match member.role.order {
        RoleOrder::BeforeWorkers => true,
        RoleOrder::WithWorkers => started(RoleOrder::BeforeWorkers),
        RoleOrder::AfterWorkers => started(RoleOrder::BeforeWorkers) && started(RoleOrder::WithWorkers),
    };
    let is_there = |member: &Member<'_, '_>| gang.contains_key(member.pod_name(world.job).as_str());
    world.members().filter(|member| !is_there(member) && turn(member)).collect()
}

/// Creates the pods that are missing, in the order of their roles.
fn staff(
    draft: &mut Draft<'_>,
    world: &World<'_>,
    gang: &Gang<'_>,
    ignored: &[&str],
    number: i32,
    inputs: &str,
) {
    if is_created(draft) {
        return;
    }
    let missing = missing(world, gang, ignored);
    if missing.is_empty() {
        return;
    }
    if draft.open_attempt().is_none() {
        draft.gone = pods_before(draft, world);
        begin(draft, world.shape(), Some(inputs.to_owned()), number);
    }
    create(draft, world, &missing, number, inputs);
}

/// The pods of the attempt that ended last. None of them is seen any more, but one may only have lost its label, or never have been
/// told of: in that case, two attempts would work on the same checkpoints.
fn pods_before(draft: &Draft<'_>, world: &World<'_>) -> Vec<String> {
    let last = draft.status.attempts.last();
    if last.is_none() && !has_finalizer(draft.snapshot) {
        // Nearly always, this is the first attempt.
        return Vec::new();
    }
    // With our finalizer and without attempts, it waited for its first start, or somebody has removed the status.
    let now: BTreeSet<String> = world.members().map(|member| member.pod_name(world.job)).collect();
    let before = last
        .and_then(|last| last.world.as_deref())
        .into_iter()
        .flat_map(|shape| world::pods_of_shape(world.job, shape));
    now.into_iter().chain(before).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Creates pods of the open attempt.
pub(super) fn create(
    draft: &mut Draft<'_>,
    world: &World<'_>,
    members: &[Member<'_, '_>],
    number: i32,
    inputs: &str,
) {
    let job = &*draft.snapshot.job;
    let resumed = draft.open_attempt().and_then(|attempt| attempt.resumed_from.clone());
    let announced: Vec<&str> = draft.snapshot.notices.iter().map(|notice| notice.node.as_str()).collect();
    let avoided = draft.status.avoided_nodes.iter().map(String::as_str);
    let avoided: BTreeSet<&str> = avoided.chain(announced.iter().copied().take(MOST_AVOIDED)).collect();
    let avoided: Vec<&str> = avoided.into_iter().collect();
    let order = build::Order {
        job,
        world,
        attempt: number,
        inputs,
        resume: resumed.as_deref(),
        avoided: &avoided,
        announced: &announced,
        settings: draft.settings,
    };
    let pod = |member: &Member<'_, '_>| Step::Create(NewObject::Pod(Box::new(order.pod(member))));
    let steps = members.iter().map(pod).collect();
    draft.stage(steps);
}
