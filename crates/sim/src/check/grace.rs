//! How much time pods get to go: their own, if they can use it, and force only where nobody is left to let them go.

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{Attempt, Cause, TrainingJob};
use trainyard_plan::NodeState;

use super::count::has_to_leave;
use super::fact::Fact;
use super::{Checker, Verdict, demand};
use crate::server::{Actor, Child, Server};

/// So long after its time a pod on a dead node is removed by force.
const FORCE_AFTER: SignedDuration = SignedDuration::from_secs(10);

impl Checker {
    /// A pod was told to go. Whoever is stopped on purpose can save its work, and has its own time for that; only what is left of a broken
    /// attempt has less.
    pub(super) fn has_its_time(&self, server: &Server, by: Actor, child: &Child) -> Verdict {
        let own = child.value["spec"]["terminationGracePeriodSeconds"].as_i64();
        let given = child.value.metadata().deletion_grace_period_seconds;
        let job = server.jobs().find(|job| job.metadata.uid.as_deref() == child.controller());
        let Some(job) = job.filter(|_| given < own && matches!(by, Actor::Operator(_))) else {
            return Ok(());
        };
        let attempts = job.status.iter().flat_map(|status| &status.attempts);
        let attempt = attempts.into_iter().find(|attempt| Some(attempt.number) == child.attempt());
        // Somebody took the status away: why it was told to go, nobody knows any more.
        let is_told =
            attempt.is_some() || !self.robbed.contains(job.metadata.uid.as_deref().unwrap_or_default());
        let is_broken = attempt.is_some_and(|attempt| self.is_broken(server, by, job, attempt));
        demand!(
            is_broken || !is_told || self.may_not_know(by, job),
            "pod {} has {given:?} s to go, and {own:?} of its own; its attempt ended with {:?}",
            child.name(),
            attempt.and_then(|attempt| attempt.cause)
        );
        Ok(())
    }

    /// Somebody is missing in this attempt without whom the others cannot go on.
    fn is_broken(&self, server: &Server, by: Actor, job: &TrainingJob, attempt: &Attempt) -> bool {
        match attempt.cause {
            Some(Cause::Application | Cause::OutOfMemory | Cause::Stalled | Cause::Resume) => true,
            Some(Cause::Disruption) => {
                let uid = job.metadata.uid.as_deref().unwrap_or_default();
                let has_ended = |pod: &Fact| pod.gone || pod.exit_code.is_some();
                let on_dead_node =
                    |pod: &Fact| pod.node.as_ref().is_some_and(|node| is_dead(server, by, node));
                // Beside one that failed, nobody can go on, whoever else was taken.
                self.of(uid, Some(attempt.number)).any(Fact::failed_by_itself)
                    || !has_to_leave(attempt)
                        && attempt.pod_name.as_ref().is_none_or(|name| {
                            let mut named =
                                self.of(uid, Some(attempt.number)).filter(|pod| pod.name == *name);
                            named.any(|pod| has_ended(pod) || on_dead_node(pod))
                        })
            }
            _ => false,
        }
    }

    /// A pod that was going has less time now than it had: nobody on its node uses it.
    pub(super) fn hastened(&self, server: &Server, by: Actor, child: &Child, before: Option<i64>) -> Verdict {
        let given = child.value.metadata().deletion_grace_period_seconds;
        let is_hastened = before.zip(given).is_some_and(|(before, given)| given < before);
        if !is_hastened || child.node().is_some_and(|node| is_dead(server, by, node)) {
            return Ok(());
        }
        // Somebody else had told it to go, and this one does so, too.
        self.has_its_time(server, by, child)
    }

    /// A pod that was going is removed by force: its node was dead when it was last asked for, and its time was over.
    pub(super) fn forced(&self, server: &Server, by: Actor, child: &Child) -> Verdict {
        // What lands late was decided from what was known then. Whoever has ended needs no force.
        let Some(node) = child.node().filter(|_| matches!(by, Actor::Operator(_)) && !child.has_ended())
        else {
            return Ok(());
        };
        demand!(
            is_dead(server, by, node),
            "pod {} was removed by force, and its node is {:?}",
            child.name(),
            by.process().and_then(|process| server.answers.get(&(process, node.to_owned())))
        );
        let job = server.jobs().find(|job| job.metadata.uid.as_deref() == child.controller());
        let name = job.and_then(|job| job.metadata.name.as_deref()).unwrap_or_default();
        let leaves_by = child.value.metadata().deletion_timestamp.as_ref().map(|time| time.0);
        let is_due = |(_, now): (Timestamp, Timestamp)| {
            leaves_by.is_some_and(|leaves_by| leaves_by + FORCE_AFTER <= now)
        };
        demand!(
            self.walls(by, name, server.now).is_none_or(is_due),
            "pod {} was removed by force, and it had until {leaves_by:?}",
            child.name()
        );
        Ok(())
    }
}

/// This operator was last told that the node is gone or silent.
fn is_dead(server: &Server, by: Actor, node: &str) -> bool {
    let answer = by.process().and_then(|process| server.answers.get(&(process, node.to_owned())));
    matches!(answer, Some(NodeState::Unreachable | NodeState::Gone))
}
