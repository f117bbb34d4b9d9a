//! Who should have given up has not gone on: what the job's rules, its restart policy and the limit of same failures say is kept.

use trainyard_api::{
    Attempt, Cause, FailureAction, RestartPolicy, RestartScope, State, TrainingJob, TrainingJobStatus,
};
use trainyard_plan::{World, blames_a_peer};

use super::fact::Fact;
use super::status::SAME_FAILURES;
use super::{Checker, Verdict, demand, has_ended_since};

impl Checker {
    /// What has failed for good is not restarted, neither all of it nor one pod alone.
    pub(super) fn gives_up(
        &self,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Verdict {
        if new.is_terminal() {
            return Ok(());
        }
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        for worker in &new.worker_statuses {
            let before = old.worker_statuses.iter().find(|before| before.pod_name == worker.pod_name);
            let was_known = before.is_some_and(|before| before.failed_uid == worker.failed_uid);
            let pod = worker.failed_uid.as_ref().filter(|_| !was_known).and_then(|pod| self.pods.get(pod));
            if let Some(pod) = pod.filter(|pod| pod.job == uid) {
                let why = why_final(job, pod);
                demand!(why.is_none(), "{} failed and is replaced, and that is final: {why:?}", pod.name);
            }
        }
        let last = new.attempts.last().filter(|_| new.state == Some(State::Restarting));
        let Some(last) = last.filter(|last| has_ended_since(old, last)) else {
            return Ok(());
        };
        // Who is replaced alone can fail more than once in an attempt.
        let is_gang = job.spec.restart_scope() == RestartScope::Gang;
        let mut roots =
            self.of(uid, Some(last.number)).filter(|pod| Some(&pod.name) == last.pod_name.as_ref());
        if is_gang && last.cause.is_some_and(Cause::counts) {
            let why = roots.clone().find_map(|pod| why_final(job, pod));
            demand!(
                why.is_none(),
                "attempt {} is followed by another, and its end is final: {why:?}",
                last.number
            );
        }
        let rules = job.spec.failure_rules();
        let is_wanted = roots.any(|pod| pod.action(rules) == Some(FailureAction::RestartWithoutCounting));
        demand!(
            is_wanted || !same_failures(&new.attempts),
            "attempt {} is followed by another, and the same happened {SAME_FAILURES} times",
            last.number
        );
        Ok(())
    }
}

/// Why a failure is the last one, whatever else happened before.
fn why_final(job: &TrainingJob, pod: &Fact) -> Option<&'static str> {
    if !pod.failed_by_itself() || (blames_a_peer(&pod.words) && World::of(job).members().nth(1).is_some()) {
        return None;
    }
    let is_permanent = pod.exit_code.is_some_and(|code| (1..128).contains(&code));
    match (pod.action(job.spec.failure_rules()), job.spec.restart_policy()) {
        (Some(FailureAction::Fail), _) => Some("a rule says so"),
        (None, RestartPolicy::Never) => Some("restartPolicy Never"),
        (None, RestartPolicy::ExitCode) if is_permanent => Some("restartPolicy ExitCode"),
        (Some(_), _) | (None, RestartPolicy::ExitCode | RestartPolicy::OnFailure) => None,
    }
}

/// Whether the last of these ended as too many before it did, without progress. What came from outside in between says nothing.
fn same_failures(attempts: &[Attempt]) -> bool {
    let is_own =
        |attempt: &&Attempt| attempt.cause.is_some_and(|cause| cause.counts() || cause == Cause::Stalled);
    let told = |attempt: &Attempt| {
        let is_told = attempt.cause != Some(Cause::Application) || attempt.error.is_some();
        let error = attempt.error.clone().filter(|_| attempt.cause == Some(Cause::Application));
        is_told.then_some((attempt.cause, error))
    };
    let Some(ended) = attempts.last().filter(is_own) else { return false };
    let Some(last) = told(ended) else { return false };
    // Another spec is another story.
    let row = attempts.iter().rev().take_while(|attempt| attempt.inputs == ended.inputs);
    let row = row.take_while(|attempt| !attempt.made_progress()).filter(is_own);
    row.take_while(|attempt| told(attempt).as_ref() == Some(&last)).count() >= SAME_FAILURES
}
