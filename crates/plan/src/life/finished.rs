//! A job that has ended: its pods go as its policy says, and it goes itself when its time is over.

use jiff::SignedDuration;

use super::{ending, report};
use crate::draft::{Draft, later};
use crate::plan::Step;

pub(super) fn tidy(draft: &mut Draft<'_>) {
    ending::clean_up(draft);
    report::conclude(draft);
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
