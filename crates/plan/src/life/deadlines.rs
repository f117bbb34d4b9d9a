//! The limits of a job that runs, or is being started: `activeDeadlineSeconds` and `startupTimeoutSeconds`.

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{Cause, RestartScope, WorkerStatus, condition};

use super::judge::Gang;
use super::running::QUOTA;
use super::staffing::missing;
use super::{ending, report};
use crate::draft::{Draft, later};
use crate::snapshot::PodPhase;
use crate::world::World;

/// A deadline that has passed.
pub(super) enum Overdue {
    Active(i64),
    Startup(i64, Option<String>),
}

pub(super) fn overdue(
    draft: &mut Draft<'_>,
    world: &World<'_>,
    gang: &Gang<'_>,
    ignored: &[&str],
) -> Option<Overdue> {
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
    pub(super) fn fail(self, draft: &mut Draft<'_>) {
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
