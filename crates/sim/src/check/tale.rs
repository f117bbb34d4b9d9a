//! What is decided is told to people, too: by an event for every end, unless whoever wrote it down died, or was not answered.

use trainyard_api::{Cause, State, TrainingJob, TrainingJobStatus};
use trainyard_operator::NewEvent;

use super::{Checker, Verdict, demand, has_ended_since};
use crate::server::Actor;

/// Longer messages are cut.
const WORDS: usize = 900;

/// An event that is to come.
#[derive(Debug)]
pub(crate) struct Tale {
    process: usize,
    job: String,
    reason: &'static str,
    /// What it begins with.
    words: String,
}

impl Checker {
    /// What this status decides is to be told.
    pub(super) fn is_to_tell(
        &mut self,
        by: Actor,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let Actor::Operator(process) = by else { return };
        // What people have been told once is not told again when somebody takes the status away.
        if self.unanswered || self.robbed.contains(uid) {
            return;
        }
        let ended = new.attempts.last().filter(|last| has_ended_since(old, last));
        let (reason, words) = match (new.state, ended) {
            (Some(State::Restarting), Some(ended)) => {
                let reason = match ended.cause {
                    Some(Cause::Application | Cause::OutOfMemory) => "Restarting",
                    Some(Cause::Disruption) => "WorkerDisrupted",
                    Some(Cause::Stalled) => "Stalled",
                    Some(Cause::Rescale) => "Rescaled",
                    Some(Cause::Update) => "SpecChanged",
                    _ => return,
                };
                (reason, ended.message.as_deref())
            }
            (Some(State::Completed), _) if old.state != new.state => {
                ("TrainingCompleted", new.message.as_deref())
            }
            _ => return,
        };
        let words = words.unwrap_or_default().chars().take(WORDS).collect();
        self.untold.push(Tale { process, job: uid.to_owned(), reason, words });
    }

    /// An event was recorded.
    pub(super) fn is_told(&mut self, by: Actor, event: &NewEvent) {
        self.untold.retain(|tale| {
            let is_it = tale.job == event.job.uid && tale.reason == event.reason;
            !(is_it && Some(tale.process) == by.process() && event.message.starts_with(&tale.words))
        });
    }

    /// This process is dead, or does not know what came of a call.
    pub(crate) fn excuse(&mut self, process: Option<usize>) {
        self.untold.retain(|tale| Some(tale.process) != process);
    }

    /// Everything is at rest.
    pub(crate) fn all_is_told(&self) -> Verdict {
        let untold = self.untold.first();
        demand!(untold.is_none(), "nobody was told: {untold:?}");
        Ok(())
    }
}
