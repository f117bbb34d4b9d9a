//! An attempt ends for the reason that is told: each cause has its fact, as the world knows it and not as the operator tells.

use std::collections::BTreeMap;

use trainyard_api::{Attempt, Cause, FailureAction, RestartScope, State, TrainingJob, TrainingJobStatus};
use trainyard_operator::Watched;
use trainyard_plan::World as Roles;

use super::fact::Fact;
use super::status::is_invalid;
use super::{Checker, Verdict, demand};
use crate::mishap::Mishap;
use crate::server::{Actor, Child};

/// So many failures on one node make a job avoid it.
const NODE_FAILURES: usize = 2;

impl Checker {
    /// What is said about attempts that have ended by now is so.
    pub(super) fn caused(
        &mut self,
        by: Actor,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Verdict {
        let mut restarts = false;
        for attempt in &new.attempts {
            let known = old.attempts.iter().find(|known| known.number == attempt.number);
            let Some(cause) = attempt.cause.filter(|_| known.is_none_or(Attempt::is_open)) else { continue };
            let is_so = self.has_fact(job, new, attempt, cause);
            demand!(
                is_so,
                "attempt {} is said to have ended with {cause:?}, which is not so",
                attempt.number
            );
            self.mishaps.insert(Mishap::Ended(cause.as_str()));
            self.hides_nothing(by, job, attempt, cause)?;
            self.named(job, attempt)?;
            restarts |= new.state == Some(State::Restarting) && cause != Cause::Unknown;
            if cause == Cause::Update {
                let uid = job.metadata.uid.clone().unwrap_or_default();
                self.updated.insert(uid, (attempt.number, job.metadata.generation));
            }
        }
        let avoided = if restarts { to_avoid(new) } else { old.avoided_nodes.clone() };
        demand!(
            new.avoided_nodes == avoided,
            "the nodes {:?} are avoided, and it should be {avoided:?}",
            new.avoided_nodes
        );
        Ok(())
    }

    fn has_fact(
        &self,
        job: &TrainingJob,
        status: &TrainingJobStatus,
        attempt: &Attempt,
        cause: Cause,
    ) -> bool {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let pods = || self.of(uid, Some(attempt.number));
        let named = |pod: &Fact| attempt.pod_name.as_ref().is_none_or(|name| *name == pod.name);
        // What a rule ignores ends nothing.
        let matters = |pod: &Fact| !pod.is_ignored(job.spec.failure_rules());
        let is_out_of_memory = |pod: &Fact| pod.reason.as_deref() == Some("OOMKilled");
        match cause {
            Cause::Succeeded => status.state == Some(State::Completed),
            // What a pod does that is being taken is not the program's doing, whatever its exit code.
            Cause::Application => pods()
                .any(|pod| named(pod) && pod.failed_by_itself() && matters(pod) && !is_out_of_memory(pod)),
            Cause::OutOfMemory => pods()
                .any(|pod| named(pod) && pod.failed_by_itself() && matters(pod) && is_out_of_memory(pod)),
            // See `counted` and `stalled`, which know more about it.
            Cause::Disruption | Cause::Stalled => true,
            Cause::Resume => {
                let mut held = self.pods.iter().filter(|(pod, _)| self.held.contains(*pod));
                held.any(|(_, pod)| pod.job == uid && pod.attempt == Some(attempt.number))
            }
            Cause::Rescale => {
                let shape = Roles::of(job).shape();
                pods().any(|pod| pod.shape != shape)
            }
            Cause::Update => self.edited.contains(uid),
            Cause::Suspend => job.spec.suspended() && status.state == Some(State::Suspended),
            // Why a job has failed is told with its end (see `gave_up`).
            Cause::Deadline | Cause::StartupTimeout => status.state == Some(State::Failed),
            Cause::InvalidSpec => is_invalid(job) && status.state == Some(State::Failed),
            // There were pods of a later one: somebody took the record away, or two wrote it.
            Cause::Unknown => {
                self.pods.values().any(|pod| pod.job == uid && pod.attempt > Some(attempt.number))
            }
        }
    }

    /// A success or a failure that was seen is not told as something else, which would not be counted.
    fn hides_nothing(&self, by: Actor, job: &TrainingJob, attempt: &Attempt, cause: Cause) -> Verdict {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let Some(sight) = self.sight(by, name) else { return Ok(()) };
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let is_seen =
            |pod: &Fact| !pod.gone && pod.seen_as.is_some_and(|event| sight.has(Watched::Pods, event));
        let won = |pod: &Fact| pod.succeeded() && is_seen(pod);
        demand!(
            matches!(cause, Cause::Succeeded | Cause::Unknown)
                || !self.has_succeeded(uid, job, Some(attempt), &won, &|_| false),
            "attempt {} is said to have ended with {cause:?}, and all had succeeded before",
            attempt.number
        );
        // Whoever is stopped on purpose may have lost somebody before: only what counts comes first.
        let stops = matches!(cause, Cause::Suspend | Cause::InvalidSpec);
        if !stops && !matches!(cause, Cause::Stalled | Cause::Resume | Cause::Rescale | Cause::Update) {
            return Ok(());
        }
        if stops && self.of(uid, Some(attempt.number)).any(|pod| pod.is_taken() || pod.noticed) {
            return Ok(());
        }
        // Who is replaced alone is counted alone, once all have been there, and before anything else ends the attempt.
        let alone = job.spec.restart_scope() == RestartScope::Worker && attempt.created_time.is_some();
        let world = Roles::of(job);
        let is_member = |pod: &Fact| world.members().any(|member| member.pod_name(world.job) == pod.name);
        let is_told = |id: &String, pod: &Fact| alone && (self.accounted.contains(id) || !is_member(pod));
        let rules = job.spec.failure_rules();
        let is_spared = |pod: &Fact| match pod.action(rules) {
            Some(FailureAction::Ignore) => true,
            Some(FailureAction::RestartWithoutCounting) => stops,
            Some(FailureAction::Restart | FailureAction::Fail) | None => false,
        };
        let mut failed = self.pods.iter().filter(|(id, pod)| {
            let is_of = pod.job == uid && pod.attempt == Some(attempt.number);
            is_of && pod.failed() && !pod.going && is_seen(pod) && !is_spared(pod) && !is_told(id, pod)
        });
        let hidden = failed.next();
        demand!(
            hidden.is_none(),
            "attempt {} is said to have ended with {cause:?}, and {:?} had failed before",
            attempt.number,
            hidden.map(|(_, pod)| &pod.name)
        );
        Ok(())
    }

    /// The exit code and the node are those of the pod that is named.
    fn named(&self, job: &TrainingJob, attempt: &Attempt) -> Verdict {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let named = |pod: &&Fact| attempt.pod_name.as_ref().is_none_or(|name| *name == pod.name);
        let pods = || self.of(uid, Some(attempt.number)).filter(named);
        let (code, node) = (attempt.exit_code, attempt.node_name.as_ref());
        demand!(
            code.is_none_or(|code| pods().any(|pod| pod.exit_code == Some(code))),
            "attempt {} is said to have ended with exit code {code:?} of {:?}",
            attempt.number,
            attempt.pod_name
        );
        demand!(
            node.is_none() || (attempt.pod_name.is_some() && pods().any(|pod| pod.node.as_ref() == node)),
            "attempt {} is said to have ended on node {node:?} with {:?}",
            attempt.number,
            attempt.pod_name
        );
        let is_failure = attempt.cause.is_some_and(Cause::counts);
        demand!(
            !is_failure || (code.is_some() && node.is_some() == attempt.pod_name.is_some()),
            "attempt {} failed in {:?}, and neither code nor node is told",
            attempt.number,
            attempt.pod_name
        );
        Ok(())
    }

    /// After an attempt that ended because its spec changed, pods are made of another one.
    pub(super) fn made_of_another_spec(&self, job: &TrainingJob, child: &Child) -> Verdict {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let Some((before, generation)) = self.updated.get(uid) else { return Ok(()) };
        // It may have been changed back since.
        let is_next = child.attempt() == Some(before + 1) && *generation == job.metadata.generation;
        let Some(made) = self.pods.get(&child.uid).filter(|_| is_next) else { return Ok(()) };
        demand!(
            self.of(uid, Some(*before)).any(|pod| pod.inputs != made.inputs),
            "attempt {before} ended because the spec changed, and {} is made of the same",
            child.name()
        );
        Ok(())
    }
}

/// The nodes on which too many of the attempts that are remembered failed or were disrupted.
fn to_avoid(status: &TrainingJobStatus) -> Vec<String> {
    let mut failures: BTreeMap<&String, usize> = BTreeMap::new();
    for attempt in &status.attempts {
        if matches!(attempt.cause, Some(Cause::Application | Cause::Disruption))
            && let Some(node) = &attempt.node_name
        {
            *failures.entry(node).or_default() += 1;
        }
    }
    let avoided = failures.into_iter().filter(|(_, failures)| *failures >= NODE_FAILURES);
    avoided.map(|(node, _)| node.clone()).collect()
}
