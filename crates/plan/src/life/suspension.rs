//! `spec.suspend`: no pods, everything else stays.

use trainyard_api::{Cause, State, condition};

use super::{budget, report, running};
use crate::draft::Draft;
use crate::text;
use crate::world::World;

/// Takes the job out of the cluster.
pub(super) fn hold(draft: &mut Draft<'_>) {
    let snapshot = draft.snapshot;
    let job = &*snapshot.job;
    let world = World::of(job);
    let left = snapshot.own_pods().count();
    if draft.status.state != Some(State::Suspended) {
        let message = "Suspended by spec.suspend";
        draft.decide();
        draft.end_attempt(Cause::Suspend, None, message);
        draft.status.backoff_until = None;
        draft.state(State::Suspended);
        draft.condition(condition::SUSPENDED, true, "SuspendedByUser", "Set suspend to false to go on");
        if draft.status.condition(condition::RUNNING).is_some() {
            draft.condition(condition::RUNNING, false, "SuspendedByUser", message);
        }
        draft.condition_over(condition::RESTARTING, "SuspendedByUser", message);
        draft.condition_over(condition::STALLED, "SuspendedByUser", message);
        let generation = snapshot.generation();
        draft.normal("Suspended", message, generation);
    }
    draft.delete_pods(snapshot.own_pods());
    draft.message(match left {
        0 => "Suspended: no pods; set suspend to false to go on".to_owned(),
        left => format!("Suspended: {} to be removed", text::count(left, "pod")),
    });
    if left == 0 {
        running::note_torn_down(draft);
    }
    report::observe(draft, &world, &super::judge::Gang::new());
    // It comes nearer again when the job goes on.
    draft.status.estimated_completion = None;
    budget::remove(draft);
}

/// Lets it go on.
pub(super) fn release(draft: &mut Draft<'_>) {
    if draft.status.state == Some(State::Suspended) {
        draft.condition(condition::SUSPENDED, false, "Resumed", "suspend is false");
        // The time that the job was suspended does not count.
        draft.status.active_since = draft.status.start_time.is_some().then(|| draft.time());
        draft.state(State::Pending);
        let generation = draft.snapshot.generation();
        draft.normal("Resumed", "Resumed: the workers are started again", generation);
    }
}
