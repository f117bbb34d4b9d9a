//! A claim outlives its job, unless the job said that its checkpoints are to go with it.

use trainyard_api::{TrainingJob, names};
use trainyard_plan::TargetKind;

use super::{Checker, Verdict, demand};
use crate::server::{Child, Server};

/// A job that is gone, and whose claim was to go with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owing {
    /// The versions at which it was made, and at which it was told to go.
    born: u64,
    left: u64,
    /// Somebody could know that it goes before it was gone.
    had_finalizer: bool,
}

impl Checker {
    /// A job is gone for good. What was to go with it, and has no owner that it would follow, is gone, too.
    pub(super) fn gone(&mut self, server: &Server, job: &TrainingJob) -> Verdict {
        let claim = names::claim(job.metadata.name.as_deref().unwrap_or_default());
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        // Of a job that cannot be read, nobody knows whether its claim was to go.
        if !job.spec.delete_checkpoints_with_job() || server.unreadable.contains(uid) {
            self.owing.remove(&claim);
            return Ok(());
        }
        let owing = Owing {
            born: self.born.get(uid).copied().unwrap_or_default(),
            left: self.leaving.get(uid).copied().unwrap_or_else(|| server.version()),
            had_finalizer: self.finalized.contains(uid),
        };
        self.owing.insert(claim, owing);
        self.claims_left(server)
    }

    /// No claim is left of a job that wanted it gone.
    pub(crate) fn claims_left(&self, server: &Server) -> Verdict {
        for (name, owing) in &self.owing {
            let claim = server.all(TargetKind::Claim).get(name);
            let is_left = claim.is_some_and(|claim| owing.is_owed(claim));
            // As long as the next job of that name is there, it is that one's.
            let has_heir = server
                .jobs()
                .any(|job| names::claim(job.metadata.name.as_deref().unwrap_or_default()) == *name);
            demand!(has_heir || !is_left, "the job is gone, and its claim {name} is not");
        }
        Ok(())
    }
}

impl Owing {
    fn is_owed(self, claim: &Child) -> bool {
        // What was made when the job was told to go, by somebody who did not know, is the next job's.
        if !claim.ours || claim.is_deleting() || claim.born > self.left {
            return false;
        }
        // Without a finalizer, nobody hears of the end: so the finalizer comes before the claim, unless that was there before, or what an
        // earlier job of this name wanted has landed late.
        self.had_finalizer || (claim.born > self.born && !claim.is_late())
    }
}
