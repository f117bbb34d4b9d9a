//! A job that has ended: its pods go as its policy says, and it goes itself when its time is over.

use jiff::SignedDuration;

use super::{budget, ending, report};
use crate::draft::{Draft, later};
use crate::plan::Step;

pub(super) fn tidy(draft: &mut Draft<'_>) {
    let generation = draft.snapshot.generation();
    if draft.status.observed_generation.is_some_and(|observed| observed < generation) {
        draft.warning(
            "SpecChanged",
            "The job has ended: of this change, only cleanPodPolicy and ttlSecondsAfterFinished take effect. \
             To train again, delete the job and apply it again",
            // Changes while it ran are told by the number of the attempt: these must not look like one of them.
            format!("ended/{generation}"),
        );
    }
    ending::clean_up(draft);
    report::conclude(draft);
    budget::remove(draft);
    // A negative time is refused by validation; on a job that got past it, it must not mean "at once".
    let ttl = draft.snapshot.job.spec.ttl_seconds_after_finished.filter(|ttl| *ttl >= 0);
    let ended = draft.status.completion_time.as_ref().map(|time| time.0);
    if let (Some(ttl), Some(ended)) = (ttl, ended) {
        let due = later(ended, SignedDuration::from_secs(ttl));
        if due <= draft.now {
            draft.stage(vec![Step::DeleteJob]);
        } else {
            draft.wake(due);
        }
    }
}
