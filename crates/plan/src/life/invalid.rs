//! A spec that cannot run: Failed with `InvalidSpec`, and looked at again when the spec changes.

use trainyard_api::{Cause, Problem, State, TrainingJobStatus, condition};

use super::{ending, finished};
use crate::draft::Draft;

const REASON: &str = "InvalidSpec";
/// The reason that the operator gives for a job that it cannot read.
pub const UNREADABLE: &str = "Unreadable";

/// Whether the job has failed because of its spec.
pub(super) fn is_the_reason(status: &TrainingJobStatus) -> bool {
    has_failed_for(status, REASON)
}

/// Whether an operator that could not read the job has said so. This one can.
pub(super) fn was_unreadable(status: &TrainingJobStatus) -> bool {
    has_failed_for(status, UNREADABLE)
}

fn has_failed_for(status: &TrainingJobStatus, reason: &str) -> bool {
    let failed = status.condition(condition::FAILED).filter(|_| status.state == Some(State::Failed));
    failed.is_some_and(|failed| failed.status == "True" && failed.reason == reason)
}

pub(super) fn fail(draft: &mut Draft<'_>, problems: &[Problem]) {
    let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
    refuse(draft, &list.join("; "));
}

/// Fails the job with these words, once per generation of its spec.
pub(super) fn refuse(draft: &mut Draft<'_>, message: &str) {
    let told =
        is_the_reason(&draft.status) && draft.status.observed_generation == Some(draft.snapshot.generation());
    if told {
        return finished::tidy(draft);
    }
    draft.end_attempt(Cause::InvalidSpec, None, message);
    ending::fail(draft, REASON, message);
}

/// The spec has changed and is good now: the job starts, as if it had waited.
pub(super) fn forgive(draft: &mut Draft<'_>) {
    draft.condition(condition::FAILED, false, "SpecChanged", "The spec is valid now");
    // The time in which it could not run does not count.
    draft.status.active_since = draft.status.start_time.is_some().then(|| draft.time());
    draft.status.completion_time = None;
    draft.status.duration = None;
    draft.state(State::Pending);
}
