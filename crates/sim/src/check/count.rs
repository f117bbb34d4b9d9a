//! A failure is counted once, and nothing else is.

use trainyard_api::{Attempt, Cause, FailureAction, RestartScope, State, TrainingJob, TrainingJobStatus};
use trainyard_operator::Watched;
use trainyard_plan::{World, blames_a_peer};

use super::fact::Fact;
use super::{Checker, Verdict, demand, has_ended_since};
use crate::mishap::Mishap;
use crate::server::Actor;

/// So many attempts are remembered.
const ATTEMPTS_KEPT: usize = 10;

impl Checker {
    /// A failure is counted once, the limit is kept, and what is said of the failure is what happened.
    pub(super) fn counted(
        &mut self,
        by: Actor,
        uid: &str,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
        reason: &str,
    ) -> Verdict {
        let numbers: Vec<i32> = new.attempts.iter().map(|attempt| attempt.number).collect();
        demand!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "attempts out of order: {numbers:?}");
        let oldest = numbers.first().copied().unwrap_or(i32::MAX);
        let lost = old.attempts.iter().find(|known| !numbers.contains(&known.number));
        demand!(
            lost.is_none_or(|lost| numbers.len() >= ATTEMPTS_KEPT && lost.number < oldest),
            "attempt {:?} is forgotten: {numbers:?}",
            lost.map(|lost| lost.number)
        );
        for attempt in &new.attempts {
            let known = old.attempts.iter().find(|known| known.number == attempt.number);
            let was_closed = known.is_some_and(|known| !known.is_open());
            demand!(
                !was_closed || known.is_some_and(|known| known.cause == attempt.cause && !attempt.is_open()),
                "attempt {} had ended with {:?}; now it is {:?}",
                attempt.number,
                known.and_then(|known| known.cause),
                attempt.cause
            );
        }
        let newly: Vec<&Attempt> =
            new.attempts.iter().filter(|attempt| has_ended_since(old, attempt)).collect();
        let failures: Vec<&&Attempt> =
            newly.iter().filter(|attempt| attempt.cause.is_some_and(Cause::counts)).collect();
        for attempt in &failures {
            self.blamed(uid, job, attempt)?;
        }
        let name = job.metadata.name.as_deref().unwrap_or_default();
        for attempt in newly.iter().filter(|attempt| attempt.cause == Some(Cause::Disruption)) {
            // Whoever is told to leave its node was not put there although that was known.
            let leaves = has_to_leave(attempt);
            let named = |pod: &&Fact| attempt.pod_name.as_ref().is_none_or(|name| *name == pod.name);
            let mut pods = self.of(uid, Some(attempt.number)).filter(named);
            let taken = pods.any(|pod| if leaves { pod.noticed } else { pod.is_taken() });
            // Who is never told of a pod, or that it has its label again, takes it for gone.
            let misled = match self.sight(by, name) {
                Some(sight) => {
                    let is_unseen =
                        |pod: &Fact| pod.seen_as.is_some_and(|event| !sight.has(Watched::Pods, event));
                    sight.misses(Watched::Pods) && self.of(uid, Some(attempt.number)).any(is_unseen)
                }
                None => self.misled,
            };
            demand!(
                taken || misled,
                "attempt {} was disrupted, and nobody was taken: {:?}",
                attempt.number,
                attempt.pod_name
            );
        }
        let counted = |status: &TrainingJobStatus| status.restarts.unwrap_or_default().application;
        let limit = job.spec.backoff_limit();
        let is_final = new.state == Some(State::Failed);
        let more = counted(new) - counted(old);
        let alone = self.written_down(by, uid, job, old, new)?;
        let replaced = alone.len();
        let mut expected = (0, 0);
        let gangs = newly.iter().map(|attempt| self.weight(by, uid, job, attempt));
        for (least, most) in alone.into_iter().chain(gangs).filter(|_| !is_final) {
            expected = (expected.0 + least, expected.1 + most);
        }
        demand!(
            (expected.0..=expected.1).contains(&more),
            "{} attempts failed, {more} were counted, and it should be {} to {}",
            failures.len(),
            expected.0,
            expected.1
        );
        restarted(&newly, replaced, is_final, old, new)?;
        demand!(more == 0 || counted(new) <= limit, "{} restarts counted, {limit} allowed", counted(new));
        let newly_failed = is_final && old.state != Some(State::Failed);
        demand!(
            !newly_failed || reason != "BackoffLimitExceeded" || counted(new) >= limit,
            "given up after {} restarts, {limit} are allowed",
            counted(new)
        );
        Ok(())
    }

    /// Whoever is named as the root has failed, and does not only complain about a peer. Nobody is named where somebody does.
    fn blamed(&self, uid: &str, job: &TrainingJob, attempt: &Attempt) -> Verdict {
        let number = attempt.number;
        let mut failed = self.of(uid, Some(number)).filter(|pod| pod.failed());
        let complains = |pod: &Fact| blames_a_peer(&pod.words);
        let Some(name) = attempt.pod_name.as_deref() else {
            demand!(
                failed.any(complains),
                "attempt {number} is said to have lost a peer, and nobody says so"
            );
            return Ok(());
        };
        // Who is replaced alone can fail more than once.
        let roots: Vec<&Fact> = failed.filter(|pod| pod.name == name).collect();
        demand!(!roots.is_empty(), "attempt {number} is said to have failed in {name}, which did not fail");
        // Whose words nobody has read is named for its exit code.
        let has_peers = World::of(job).members().count() > 1;
        let is_victim = attempt.cause == Some(Cause::Application)
            && has_peers
            && attempt.error.is_some()
            && roots.iter().all(|pod| complains(pod));
        demand!(!is_victim, "attempt {number} is said to have failed in {name}, which only lost a peer");
        Ok(())
    }

    /// How often the loss of a pod counts, at least and at most: that it failed by itself does, unless its rule says something else; that
    /// it was taken does not, unless a rule says so of what the operator saw.
    fn worth(&self, by: Actor, job: &TrainingJob, pod: Option<&Fact>) -> (i32, i32) {
        let rules = job.spec.failure_rules();
        // Of one that is gone, nothing is known.
        let Some(pod) = pod else { return (0, 0) };
        if !pod.failed_by_itself() {
            return self.worth_of_taken(by, job, pod);
        }
        match pod.action(rules) {
            Some(FailureAction::RestartWithoutCounting | FailureAction::Ignore) => (0, 0),
            // Who only complains of a peer does not count beside the one that was lost, if the operator knew of that.
            Some(FailureAction::Fail) | None if blames_a_peer(&pod.words) && self.lost_beside(pod) => (0, 1),
            Some(FailureAction::Restart | FailureAction::Fail) | None => (1, 1),
        }
    }

    /// The same of one that was taken. Until the operator has been told how it ended, its end does not matter.
    pub(super) fn worth_of_taken(&self, by: Actor, job: &TrainingJob, pod: &Fact) -> (i32, i32) {
        let rules = job.spec.failure_rules();
        let counts = |action| i32::from(action == Some(FailureAction::Restart));
        let (last, early) = (counts(pod.action(rules)), counts(pod.early_action(rules)));
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let is_known = |event| self.sight(by, name).is_some_and(|sight| sight.has(Watched::Pods, event));
        if pod.seen_as.is_some_and(is_known) { (last, last) } else { (last.min(early), last.max(early)) }
    }

    /// Whether another pod of its attempt was lost, too.
    fn lost_beside(&self, pod: &Fact) -> bool {
        let mut others = self.of(&pod.job, pod.attempt).filter(|other| other.name != pod.name);
        others.any(|other| other.failed() || other.is_taken() || other.noticed)
    }

    /// The same for an attempt that has ended.
    pub(super) fn weight(&self, by: Actor, uid: &str, job: &TrainingJob, attempt: &Attempt) -> (i32, i32) {
        let counts = |pod: Option<&Fact>| match pod.and_then(|pod| pod.action(job.spec.failure_rules())) {
            Some(FailureAction::RestartWithoutCounting | FailureAction::Ignore) => 0,
            Some(FailureAction::Restart | FailureAction::Fail) | None => 1,
        };
        let mut pods = self.of(uid, Some(attempt.number));
        match (attempt.cause, attempt.pod_name.as_deref()) {
            (Some(cause), Some(name)) if cause.counts() => {
                let count = counts(pods.filter(|pod| pod.name == name).max_by_key(|pod| pod.failed()));
                (count, count)
            }
            // One of those who lost a peer has ended it, but is not named for it.
            (Some(cause), None) if cause.counts() => {
                let all = pods.filter(|pod| pod.failed()).map(|pod| counts(Some(pod)));
                all.fold((1, 0), |(least, most), count| (count.min(least), count.max(most)))
            }
            // Who has to leave its node has not been taken yet, and who is gone says nothing.
            (Some(Cause::Disruption), Some(name)) if !has_to_leave(attempt) => {
                let named = pods.by_ref().filter(|pod| pod.name == name && pod.is_taken());
                let all = named.map(|pod| self.worth_of_taken(by, job, pod));
                all.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))).unwrap_or((0, 0))
            }
            _ => (0, 0),
        }
    }

    /// Workers that are restarted alone: each pod that failed is written down once.
    fn written_down(
        &mut self,
        by: Actor,
        uid: &str,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Result<Vec<(i32, i32)>, String> {
        let mut worth = Vec::new();
        for worker in &new.worker_statuses {
            let before = old.worker_statuses.iter().find(|before| before.pod_name == worker.pod_name);
            let Some(pod) = &worker.failed_uid else { continue };
            if before.is_some_and(|before| before.failed_uid.as_ref() == Some(pod)) {
                continue;
            }
            demand!(job.spec.restart_scope() == RestartScope::Worker, "{pod} is counted alone");
            if worker.restart_count > 1 {
                self.mishaps.insert(Mishap::FailedAgain);
            }
            let fact = self.pods.get(pod).filter(|fact| fact.job == uid);
            demand!(fact.is_some() || pod == "gone", "the failure of {pod} is counted, which never was");
            let is_lost = |fact: &Fact| fact.failed() || fact.is_taken() || fact.noticed;
            demand!(fact.is_none_or(is_lost), "{pod} is replaced, and nothing had happened to it");
            // Who had to leave its node was replaced for that, if nobody had told yet that it failed.
            let name = job.metadata.name.as_deref().unwrap_or_default();
            let is_seen = |event| self.sight(by, name).is_some_and(|sight| sight.has(Watched::Pods, event));
            let has_left = fact.is_some_and(|fact| fact.noticed && !fact.seen_as.is_some_and(is_seen));
            worth.push(if has_left {
                let most = self.worth(by, job, fact).1;
                (0, most)
            } else {
                self.worth(by, job, fact)
            });
            let times = before.map_or(0, |before| before.restart_count) + 1;
            demand!(
                worker.restart_count == times,
                "{} is replaced for time {times}, and that is told as {}",
                worker.pod_name,
                worker.restart_count
            );
            let is_first = pod == "gone" || self.accounted.insert(pod.clone());
            demand!(is_first, "the failure of {pod} is counted twice");
        }
        Ok(worth)
    }
}

/// It ended because a pod is on a node that will be taken away.
pub(super) fn has_to_leave(attempt: &Attempt) -> bool {
    attempt.message.as_ref().is_some_and(|message| message.contains("has to leave node"))
}

/// Every restart is counted once, for what it was; whoever gives up restarts nothing.
fn restarted(
    newly: &[&Attempt],
    alone: usize,
    is_final: bool,
    old: &TrainingJobStatus,
    new: &TrainingJobStatus,
) -> Verdict {
    let (was, is) = (old.restarts.unwrap_or_default(), new.restarts.unwrap_or_default());
    let of = |causes: &[Cause]| {
        let same = newly.iter().filter(|attempt| attempt.cause.is_some_and(|cause| causes.contains(&cause)));
        i32::try_from(if is_final { 0 } else { same.count() }).unwrap_or(i32::MAX)
    };
    let alone = if is_final { 0 } else { i32::try_from(alone).unwrap_or(i32::MAX) };
    let failures = of(&[Cause::Application, Cause::OutOfMemory, Cause::Disruption]) + alone;
    let more = [
        is.application + is.disruption - was.application - was.disruption,
        is.stall - was.stall,
        is.rescale - was.rescale,
        is.update - was.update,
    ];
    let expected = [failures, of(&[Cause::Stalled]), of(&[Cause::Rescale]), of(&[Cause::Update])];
    demand!(
        more == expected,
        "of failures and disruptions, stalls, rescales and updates, {more:?} more were counted, and it should be {expected:?}"
    );
    demand!(is.total == is.total(), "{is:?} do not add up");
    Ok(())
}
