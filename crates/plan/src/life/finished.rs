//! A job that has ended: its pods go as its policy says, and it goes itself when its time is over.

use jiff::SignedDuration;

use super::ending;
use crate::draft::Draft;
use crate::plan::Step;

pub(super) fn tidy(draft: &mut Draft<'_>) {
    ending::clean_up(draft);
    let ttl = draft.snapshot.job.spec.ttl_seconds_after_finished;
    let ended = draft.status.completion_time.as_ref().map(|time| time.0);
    if let (Some(ttl), Some(ended)) = (ttl, ended) {
        let due = ended + SignedDuration::from_secs(ttl);
        if due <= draft.now {
            draft.stage(vec![Step::DeleteJob]);
        } else {
            draft.wake(due);
        }
    }
}
