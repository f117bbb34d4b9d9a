//! A failure is counted once, and nothing else is.

use trainyard_api::{Attempt, Cause, FailureAction, RestartScope, State, TrainingJob, TrainingJobStatus};

use super::fact::Fact;
use super::{Checker, Verdict, demand};

/// So many attempts are remembered.
const ATTEMPTS_KEPT: usize = 10;

impl Checker {
    /// A failure is counted once, the limit is kept, and what is said of the failure is what happened.
    pub(super) fn counted(
        &mut self,
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
        let closed = |attempt: &&Attempt| {
            let known = old.attempts.iter().find(|known| known.number == attempt.number);
            !attempt.is_open() && known.is_none_or(Attempt::is_open)
        };
        let newly: Vec<&Attempt> = new.attempts.iter().filter(closed).collect();
        let failures: Vec<&&Attempt> =
            newly.iter().filter(|attempt| attempt.cause.is_some_and(Cause::counts)).collect();
        for attempt in &failures {
            let name = attempt.pod_name.as_deref().unwrap_or_default();
            let mut pods = self.of(uid, Some(attempt.number)).filter(|pod| pod.name == name);
            demand!(
                pods.any(|pod| pod.exit_code.is_some_and(|code| code != 0)),
                "attempt {} is said to have failed in {name}, which did not fail",
                attempt.number
            );
        }
        for attempt in newly.iter().filter(|attempt| attempt.cause == Some(Cause::Disruption)) {
            let mut pods = self.of(uid, Some(attempt.number));
            let taken = pods.any(|pod| pod.disruption.is_some() || pod.going);
            demand!(taken || self.rivals, "attempt {} was disrupted, and nobody was taken", attempt.number);
        }
        let counted = |status: &TrainingJobStatus| status.restarts.unwrap_or_default().application;
        let limit = job.spec.backoff_limit();
        let is_final = new.state == Some(State::Failed);
        let more = counted(new) - counted(old);
        let mut expected = (0, 0);
        let alone = self.written_down(uid, job, old, new)?;
        let gangs = newly.iter().map(|attempt| self.weight(uid, job, attempt));
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
        demand!(more == 0 || counted(new) <= limit, "{} restarts counted, {limit} allowed", counted(new));
        let newly_failed = is_final && old.state != Some(State::Failed);
        demand!(
            !newly_failed || reason != "BackoffLimitExceeded" || counted(new) >= limit,
            "given up after {} restarts, {limit} are allowed",
            counted(new)
        );
        Ok(())
    }

    /// How often the failure of a pod counts: its rule says so, or that it failed by itself does. What the cluster took may have
    /// failed, too, before or after the operator looked: then both answers are right, if there is a rule about it.
    fn worth(job: &TrainingJob, pod: Option<&Fact>) -> (i32, i32) {
        let rules = job.spec.failure_rules();
        let by_itself = pod.filter(|pod| pod.failed() && pod.disruption.is_none() && !pod.going);
        let Some(pod) = by_itself else {
            return (0, i32::from(!rules.is_empty() || pod.is_some_and(Fact::failed)));
        };
        match pod.action(rules) {
            Some(FailureAction::RestartWithoutCounting | FailureAction::Ignore) => (0, 0),
            Some(FailureAction::Restart | FailureAction::Fail) | None => (1, 1),
        }
    }

    /// The same for an attempt that has ended.
    fn weight(&self, uid: &str, job: &TrainingJob, attempt: &Attempt) -> (i32, i32) {
        let name = attempt.pod_name.as_deref().unwrap_or_default();
        let pod =
            self.of(uid, Some(attempt.number)).filter(|pod| pod.name == name).max_by_key(|pod| pod.failed());
        match attempt.cause {
            Some(cause) if cause.counts() => match pod.and_then(|pod| pod.action(job.spec.failure_rules())) {
                Some(FailureAction::RestartWithoutCounting | FailureAction::Ignore) => (0, 0),
                Some(FailureAction::Restart | FailureAction::Fail) | None => (1, 1),
            },
            Some(Cause::Disruption) => (0, i32::from(!job.spec.failure_rules().is_empty())),
            _ => (0, 0),
        }
    }

    /// Workers that are restarted alone: each pod that failed is written down once.
    fn written_down(
        &mut self,
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
            let fact = self.pods.get(pod).filter(|fact| fact.job == uid);
            demand!(fact.is_some() || pod == "gone", "the failure of {pod} is counted, which never was");
            worth.push(Self::worth(job, fact));
            let is_first = pod == "gone" || self.accounted.insert(pod.clone());
            demand!(is_first || self.rivals, "the failure of {pod} is counted twice");
        }
        Ok(worth)
    }
}
