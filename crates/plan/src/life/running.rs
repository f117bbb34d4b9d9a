//! A job that should run: judge its current attempt, and take the next step of it.

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{Attempt, Cause, RoleOrder, State, condition, names};

use super::judge::{Gang, Verdict, judge};
use super::{ending, invalid, report};
use crate::build;
use crate::draft::Draft;
use crate::inputs;
use crate::plan::{NewObject, Restore, Step, Target, TargetKind};
use crate::snapshot::{Obstacle, ObstacleKind, PodView};
use crate::text;
use crate::world::{Member, World};

pub(super) fn advance(draft: &mut Draft<'_>) {
    let snapshot = draft.snapshot;
    let job = &*snapshot.job;
    let world = World::of(job);
    let inputs = inputs::hash_of(&job.spec);

    let number = current_attempt(draft);
    let (gang, older): (Vec<&PodView>, Vec<&PodView>) =
        snapshot.own_pods().partition(|pod| pod.attempt == Some(number));
    let gang: Gang<'_> = gang.into_iter().map(|pod| (pod.name.as_str(), pod)).collect();
    recover_record(draft, number, &gang);

    let attempt = draft.status.attempts.last().filter(|attempt| attempt.number == number).cloned();
    report::observe(draft, &world, &gang);
    match judge(&world, &gang, attempt.as_ref(), &draft.status, &inputs) {
        Verdict::Succeeded => return ending::complete(draft),
        verdict => {
            if let Some(reason) = overdue(draft) {
                return reason.fail(draft);
            }
            if let Verdict::Ends { cause, pod, message } = verdict {
                return ending::end_attempt(draft, cause, pod, &message);
            }
        }
    }
    if let Some(refusal) = refusal(draft) {
        return refused(draft, &gang, &older, refusal);
    }
    draft.delete_pods(older.iter().copied());
    let missing = furnish(draft, &world);
    if older.is_empty() && may_start(draft, &world) {
        staff(draft, &world, &gang, number, &inputs);
    }
    describe(draft, &world, &gang, older.len(), missing);
}

/// The number of the attempt that runs or comes next. Pods know it, too: a status that somebody removed is found again.
fn current_attempt(draft: &Draft<'_>) -> i32 {
    let recorded = draft
        .status
        .attempts
        .last()
        .map_or(1, |attempt| if attempt.is_open() { attempt.number } else { attempt.number + 1 });
    let seen = draft.snapshot.own_pods().filter_map(|pod| pod.attempt).max().unwrap_or(1);
    recorded.max(seen)
}

/// Pods exist for an attempt that the status does not know: it was removed, or this process crashed before writing.
fn recover_record(draft: &mut Draft<'_>, number: i32, gang: &Gang<'_>) {
    let known = draft.status.attempts.last().is_some_and(|attempt| attempt.number >= number);
    if gang.is_empty() || known {
        return;
    }
    draft.end_attempt(Cause::Unknown, None, "the record of how this attempt ended was lost");
    begin(draft, number);
}

fn begin(draft: &mut Draft<'_>, number: i32) {
    let time = draft.time();
    draft.begin_attempt(number);
    draft.status.start_time.get_or_insert_with(|| time.clone());
    draft.status.active_since.get_or_insert(time);
}

/// A deadline that has passed.
enum Overdue {
    Active(i64),
    Startup(i64, Option<String>),
}

fn overdue(draft: &mut Draft<'_>) -> Option<Overdue> {
    let spec = &draft.snapshot.job.spec;
    let due = |since: Option<Timestamp>, limit: Option<i64>| Some(since? + SignedDuration::from_secs(limit?));
    let active = due(draft.status.active_since.as_ref().map(|time| time.0), spec.active_deadline_seconds);
    let starting =
        draft.status.attempts.last().filter(|attempt| attempt.is_open() && attempt.running_time.is_none());
    let startup = due(
        starting.and_then(|attempt| attempt.start_time.as_ref()).map(|time| time.0),
        spec.startup_timeout_seconds,
    );
    if active.is_some_and(|due| due <= draft.now) {
        return Some(Overdue::Active(spec.active_deadline_seconds.unwrap_or_default()));
    }
    if startup.is_some_and(|due| due <= draft.now) {
        let holdup = draft.status.worker_statuses.iter().find_map(|worker| {
            worker.message.as_ref().map(|message| format!("{}: {message}", worker.pod_name))
        });
        return Some(Overdue::Startup(spec.startup_timeout_seconds.unwrap_or_default(), holdup));
    }
    for due in [active, startup].into_iter().flatten() {
        draft.wake(due);
    }
    None
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
fn refusal<'a>(draft: &Draft<'a>) -> Option<&'a Obstacle> {
    let snapshot = draft.snapshot;
    snapshot
        .obstacles
        .iter()
        .find(|obstacle| obstacle.generation == snapshot.generation() && draft.now < obstacle.retry_at)
}

fn refused(draft: &mut Draft<'_>, gang: &Gang<'_>, older: &[&PodView], obstacle: &Obstacle) {
    let message = format!("{} was refused: {}", obstacle.object, obstacle.message);
    let (reason, notice) = match obstacle.kind {
        ObstacleKind::Invalid => return invalid::refuse(draft, &message),
        ObstacleKind::NameConflict => ("NameConflict", "NameConflict"),
        ObstacleKind::Quota => ("QuotaExceeded", "QuotaExceeded"),
        ObstacleKind::Forbidden => ("Forbidden", "ReconcileFailed"),
    };
    let told = draft.status.condition(condition::RESOURCES_CREATED);
    if told.is_none_or(|told| told.reason != reason) {
        let occurrence = format!("{}/{}", draft.snapshot.generation(), obstacle.object);
        draft.warning(notice, &message, occurrence);
    }
    draft.condition(condition::RESOURCES_CREATED, false, reason, &message);
    // Half a gang would hold its share of the cluster and wait for the other half.
    let complete = draft.open_attempt().is_some_and(|attempt| attempt.created_time.is_some());
    if !complete {
        draft.delete_pods(gang.values().copied());
        draft.state(if draft.status.attempts.len() > 1 { State::Restarting } else { State::Pending });
    }
    draft.delete_pods(older.iter().copied());
    draft.message(message);
    draft.wake(obstacle.retry_at);
}

/// Makes and mends the service, the config map and the claim. Says whether any of them is missing.
fn furnish(draft: &mut Draft<'_>, world: &World<'_>) -> bool {
    let snapshot = draft.snapshot;
    let job = &*snapshot.job;
    let uid = snapshot.uid();
    let mut steps = Vec::new();
    let mut missing = false;

    let service = build::service(job);
    match snapshot.services.iter().find(|view| Some(&view.name) == service.metadata.name.as_ref()) {
        None => {
            missing = true;
            steps.push(Step::Create(NewObject::Service(Box::new(service))));
        }
        Some(view) if view.owner.as_deref() == Some(uid) && !view.deleting => {
            if let Some(patch) = build::restore_service(&service, view.fingerprint) {
                let target =
                    Target { kind: TargetKind::Service, name: view.name.clone(), uid: view.uid.clone() };
                steps.push(Step::Restore(Restore { target, patch }));
            }
        }
        Some(_) => missing = true,
    }
    let config = build::config_map(job);
    match snapshot.config_maps.iter().find(|view| Some(&view.name) == config.metadata.name.as_ref()) {
        None => {
            missing = true;
            steps.push(Step::Create(NewObject::ConfigMap(Box::new(config))));
        }
        Some(view) if view.owner.as_deref() == Some(uid) && !view.deleting => {
            if let Some(patch) = build::restore_config_map(&config, view.fingerprint) {
                let target =
                    Target { kind: TargetKind::ConfigMap, name: view.name.clone(), uid: view.uid.clone() };
                steps.push(Step::Restore(Restore { target, patch }));
            }
        }
        Some(_) => missing = true,
    }
    if let Some(claim) = build::claim(job, world) {
        match snapshot.claims.iter().find(|view| Some(&view.name) == claim.metadata.name.as_ref()) {
            None => {
                missing = true;
                steps.push(Step::Create(NewObject::Claim(Box::new(claim))));
            }
            Some(view) => missing |= view.deleting,
        }
    }
    draft.stage(steps);
    missing
}

/// Whether pods may be created now: no backoff, nobody else's pods or dying objects under our names.
fn may_start(draft: &mut Draft<'_>, world: &World<'_>) -> bool {
    if let Some(until) = draft.status.backoff_until.clone()
        && draft.now < until.0
    {
        draft.wake(until.0);
        return false;
    }
    blocker(draft, world).is_none()
}

/// An object under one of our names that is on its way out, or belongs to an earlier job of the same name. The cache
/// tells when it is gone.
fn blocker(draft: &Draft<'_>, world: &World<'_>) -> Option<String> {
    let snapshot = draft.snapshot;
    let uid = snapshot.uid();
    let foreign = |owner: &Option<String>| owner.as_deref() != Some(uid);
    let service = names::service(world.job);
    let config = names::config_map(world.job);
    let claim = names::claim(world.job);
    let objects = snapshot.services.iter().filter(|view| view.name == service).map(|view| ("service", view));
    let objects = objects
        .chain(snapshot.config_maps.iter().filter(|view| view.name == config).map(|v| ("config map", v)));
    let mut objects = objects.filter(|(_, view)| view.deleting || foreign(&view.owner));
    let pod = snapshot.pods.iter().find(|pod| {
        foreign(&pod.owner) && world.members().any(|member| member.pod_name(world.job) == pod.name)
    });
    let claim = snapshot.claims.iter().find(|view| view.name == claim && view.deleting);
    pod.map(|pod| format!("pod {}", pod.name))
        .or_else(|| objects.next().map(|(kind, view)| format!("{kind} {}", view.name)))
        .or_else(|| claim.map(|claim| format!("claim {}", claim.name)))
}

/// Creates the pods that are missing, in the order of their roles.
fn staff(draft: &mut Draft<'_>, world: &World<'_>, gang: &Gang<'_>, number: i32, inputs: &str) {
    let job = &*draft.snapshot.job;
    let started = |order: RoleOrder| {
        world
            .members()
            .filter(|member| member.role.order == order && member.role.replicas > 0)
            .all(|member| gang.get(member.pod_name(world.job).as_str()).is_some_and(|pod| pod.has_started()))
    };
    let turn = |member: &Member<'_, '_>| match member.role.order {
        RoleOrder::BeforeWorkers => true,
        RoleOrder::WithWorkers => started(RoleOrder::BeforeWorkers),
        RoleOrder::AfterWorkers => started(RoleOrder::BeforeWorkers) && started(RoleOrder::WithWorkers),
    };
    let complete = draft.open_attempt().is_some_and(|attempt| attempt.created_time.is_some());
    let missing: Vec<Member<'_, '_>> = world
        .members()
        .filter(|member| !complete && !gang.contains_key(member.pod_name(world.job).as_str()) && turn(member))
        .collect();
    if missing.is_empty() {
        return;
    }
    let build = |member: &Member<'_, '_>| {
        let pod = build::pod(job, world, member, number, inputs, draft.settings);
        Step::Create(NewObject::Pod(Box::new(pod)))
    };
    let steps = missing.iter().map(build).collect();
    draft.stage(steps);
    if draft.open_attempt().is_none() {
        begin(draft, number);
    }
}

/// State, conditions and message of an attempt that goes on.
fn describe(draft: &mut Draft<'_>, world: &World<'_>, gang: &Gang<'_>, leaving: usize, missing: bool) {
    let total = world.members().count();
    let present = gang.values().filter(|pod| !pod.deleting).count();
    let workers = usize::try_from(world.size()).unwrap_or(usize::MAX);
    let time = draft.time();
    let first = draft.status.attempts.len() <= 1;

    let created_now = present == total
        && !missing
        && draft.open_attempt().is_some_and(|attempt| attempt.created_time.is_none());
    if created_now {
        if let Some(attempt) = draft.open_attempt() {
            attempt.created_time = Some(time.clone());
        }
        let number = draft.status.attempts.last().map_or(1, |attempt| attempt.number);
        if number == 1 {
            draft.normal("Created", "TrainingJob resources created successfully", "");
        }
        let message = format!("Created {}", text::count(workers, "worker pod"));
        draft.normal("WorkersCreated", &message, number);
    }
    let created = draft.open_attempt().is_some_and(|attempt| attempt.created_time.is_some());
    if created {
        let message = format!("Created {}", text::count(workers, "worker pod"));
        draft.condition(condition::RESOURCES_CREATED, true, "WorkersCreated", message);
    }
    let required_started = world
        .members()
        .filter(|member| member.role.is_required())
        .all(|member| gang.get(member.pod_name(world.job).as_str()).is_none_or(|pod| pod.has_started()));
    if created
        && required_started
        && draft.open_attempt().is_some_and(|attempt| attempt.running_time.is_none())
    {
        if let Some(attempt) = draft.open_attempt() {
            attempt.running_time = Some(time);
        }
        let number = draft.status.attempts.last().map_or(1, |attempt| attempt.number);
        draft.normal("TrainingStarted", format!("All workers active ({workers} of {workers})"), number);
    }
    let running = draft.open_attempt().is_some_and(|attempt: &mut Attempt| attempt.running_time.is_some());
    if running {
        draft.state(State::Running);
        draft.condition(condition::RUNNING, true, "TrainingStarted", "All workers active");
        draft.condition_over(condition::RESTARTING, "Restarted", "All workers run again");
        let counts = draft.status.workers.unwrap_or_default();
        draft.message(match counts.succeeded {
            0 => format!("{} running", text::count(workers, "worker")),
            done => format!(
                "{} running, {done} done",
                text::count(workers - usize::try_from(done).unwrap_or(0), "worker")
            ),
        });
        return;
    }
    if present > 0 && leaving == 0 {
        draft.state(State::Initializing);
        let started = gang.values().filter(|pod| pod.has_started()).count();
        let summary = format!("{started} of {} running", text::count(total, "pod"));
        if let Some((reason, detail)) = report::holdup(world, gang) {
            draft.condition(condition::RUNNING, false, &reason, &detail);
            draft.message(format!("{summary}; {detail}"));
        } else {
            draft.condition(condition::RUNNING, false, "WaitingForPods", &summary);
            draft.message(summary);
        }
        return;
    }
    draft.state(if first && draft.status.restarts.is_none() { State::Pending } else { State::Restarting });
    let message = if leaving > 0 {
        format!("waiting for {} of the last attempt to go", text::count(leaving, "pod"))
    } else if let Some(blocker) = blocker(draft, world) {
        let message = format!("waiting for {blocker} of an earlier job to go");
        draft.condition(condition::RESOURCES_CREATED, false, "NameConflict", &message);
        message
    } else if let Some(until) = &draft.status.backoff_until {
        let last =
            draft.status.attempts.last().and_then(|attempt| attempt.message.as_deref()).unwrap_or_default();
        format!("{last}; restarting at {}", until.0)
    } else {
        format!("creating {}", text::count(total, "pod"))
    };
    draft.message(message);
}
