//! How attempts and jobs end: each of these is a decision, written down before anything follows from it.

use trainyard_api::{Cause, CleanPodPolicy, RestartPolicy, Restarts, State, condition};

use super::{backoff, report};
use crate::draft::Draft;
use crate::snapshot::PodView;
use crate::text;

/// The training succeeded.
pub(super) fn complete(draft: &mut Draft<'_>) {
    let message = "Training job completed successfully";
    draft.end_attempt(Cause::Succeeded, None, message);
    end(draft, State::Completed, message);
    draft.condition(condition::COMPLETED, true, "TrainingCompleted", message);
    draft.condition(condition::RUNNING, false, "TrainingCompleted", message);
    draft.condition_over(condition::RESTARTING, "TrainingCompleted", message);
    draft.normal("TrainingCompleted", message, "");
}

/// The job ends without success.
pub(super) fn fail(draft: &mut Draft<'_>, reason: &str, message: &str) {
    end(draft, State::Failed, message);
    draft.condition(condition::FAILED, true, reason, message);
    if draft.status.condition(condition::RUNNING).is_some() {
        draft.condition(condition::RUNNING, false, reason, message);
    }
    draft.condition_over(condition::RESTARTING, reason, message);
    draft.condition_over(condition::SUSPENDED, reason, message);
    let occurrence = draft.snapshot.generation();
    draft.warning(
        if reason == "InvalidSpec" { "InvalidSpec" } else { "TrainingFailed" },
        message,
        occurrence,
    );
}

fn end(draft: &mut Draft<'_>, state: State, message: &str) {
    draft.decide();
    let time = draft.time();
    draft.state(state);
    draft.message(message);
    draft.status.backoff_until = None;
    draft.status.duration =
        draft.status.start_time.as_ref().map(|start| text::duration(time.0.duration_since(start.0)));
    draft.status.completion_time = Some(time);
    clean_up(draft);
    report::conclude_progress(draft, state == State::Completed);
    report::conclude(draft);
}

/// Removes the pods that the job's policy does not keep.
pub(super) fn clean_up(draft: &mut Draft<'_>) {
    let snapshot = draft.snapshot;
    match snapshot.job.spec.clean_pod_policy() {
        CleanPodPolicy::None => {}
        CleanPodPolicy::All => draft.delete_pods(snapshot.own_pods()),
        CleanPodPolicy::Running => {
            draft.delete_pods(snapshot.own_pods().filter(|pod| !pod.is_finished() || pod.lingers));
        }
    }
}

/// The attempt ends before its time: the next one follows, unless the failures are used up.
pub(super) fn end_attempt(draft: &mut Draft<'_>, cause: Cause, pod: Option<&PodView>, message: &str) {
    draft.decide();
    let number = draft.status.attempts.last().map_or(1, |attempt| attempt.number);
    draft.end_attempt(cause, pod, message);
    let mut restarts = draft.status.restarts.unwrap_or_default();
    if cause.counts() {
        announce_failure(draft, number, pod, message);
        if let Some(reason) = final_reason(draft, &restarts, pod) {
            fail(draft, reason, &format!("{message}; {}", why_final(draft, reason)));
            return;
        }
    }
    let delay = match cause {
        Cause::Application | Cause::OutOfMemory => {
            restarts.application = restarts.application.saturating_add(1);
            backoff::delay(draft.settings, draft.snapshot.uid(), restarts.application)
        }
        Cause::Rescale => {
            restarts.rescale = restarts.rescale.saturating_add(1);
            jiff::SignedDuration::ZERO
        }
        Cause::Update => {
            restarts.update = restarts.update.saturating_add(1);
            jiff::SignedDuration::ZERO
        }
        _ => {
            restarts.disruption = restarts.disruption.saturating_add(1);
            jiff::SignedDuration::ZERO
        }
    };
    draft.status.restarts = Some(restarts);
    let message = restart_message(draft, cause, &restarts, delay, message);
    draft.status.backoff_until =
        (!delay.is_zero()).then(|| crate::draft::whole_seconds(backoff::until(draft.now, delay)));
    match cause {
        Cause::Rescale => draft.normal("Rescaled", &message, number),
        Cause::Update => draft.normal("SpecChanged", &message, number),
        Cause::Application | Cause::OutOfMemory => draft.warning("Restarting", &message, number),
        _ => draft.warning("WorkerDisrupted", &message, number),
    }
    draft.state(State::Restarting);
    draft.condition(condition::RUNNING, false, cause.as_str(), &message);
    draft.condition(condition::RESTARTING, true, cause.as_str(), &message);
    draft.message(message);
    let snapshot = draft.snapshot;
    draft.delete_pods(snapshot.own_pods());
    if let Some(until) = &draft.status.backoff_until {
        draft.wake(until.0);
    }
}

fn announce_failure(draft: &mut Draft<'_>, number: i32, pod: Option<&PodView>, message: &str) {
    let pod = pod.map_or("", |pod| pod.name.as_str());
    draft.warning("WorkerFailed", message, format!("{number}/{pod}"));
}

/// Why this failure is the last one, if it is.
fn final_reason(draft: &Draft<'_>, restarts: &Restarts, pod: Option<&PodView>) -> Option<&'static str> {
    let spec = &draft.snapshot.job.spec;
    let code = pod.and_then(|pod| pod.exit.as_ref()).map(|exit| exit.code);
    match spec.restart_policy() {
        RestartPolicy::Never => Some("RestartPolicyNever"),
        RestartPolicy::ExitCode if code.is_some_and(|code| (1..128).contains(&code)) => {
            Some("PermanentExitCode")
        }
        _ if restarts.application >= spec.backoff_limit() => Some("BackoffLimitExceeded"),
        _ => None,
    }
}

fn why_final(draft: &Draft<'_>, reason: &str) -> String {
    match reason {
        "RestartPolicyNever" => "restartPolicy Never: it is not restarted".to_owned(),
        "PermanentExitCode" => "restartPolicy ExitCode: exit codes below 128 are not restarted".to_owned(),
        _ => match draft.snapshot.job.spec.backoff_limit() {
            0 => "backoffLimit is 0: it is not restarted".to_owned(),
            limit => format!("all {limit} restarts of backoffLimit are used up"),
        },
    }
}

fn restart_message(
    draft: &Draft<'_>,
    cause: Cause,
    restarts: &Restarts,
    delay: jiff::SignedDuration,
    message: &str,
) -> String {
    match cause {
        Cause::Application | Cause::OutOfMemory => {
            let limit = draft.snapshot.job.spec.backoff_limit();
            let wait =
                if delay.is_zero() { "now".to_owned() } else { format!("in {}", text::duration(delay)) };
            format!("{message}; restart {} of {limit} {wait}", restarts.application)
        }
        Cause::Rescale | Cause::Update => message.to_owned(),
        _ => format!("{message}; all workers are restarted, which does not count as a failure"),
    }
}
