//! What a failure leads to: the job's own rules first, then its restart policy, then the limits.

use jiff::SignedDuration;
use regex_lite::Regex;
use trainyard_api::{
    Attempt, Cause, FailureAction, FailureRule, RestartPolicy, Restarts, TrainingJobSpec, TrainingJobStatus,
};

use super::judge::Ending;
use crate::settings::Settings;
use crate::snapshot::PodView;
use crate::text;
use crate::words::{Words, signature};

/// The first rule that matches a pod that failed. Whoever is only a victim of another's failure ends no job by its exit code.
pub(super) fn action(
    rules: &[FailureRule],
    pod: &PodView,
    words: &Words,
    tail: Option<&str>,
    is_victim: bool,
) -> Option<FailureAction> {
    let is_meant =
        |rule: &&FailureRule| !(is_victim && rule.action == FailureAction::Fail && rule.exit_codes.is_some());
    rules.iter().filter(is_meant).find(|rule| matches(rule, pod, words, tail)).map(|rule| rule.action)
}

fn matches(rule: &FailureRule, pod: &PodView, words: &Words, tail: Option<&str>) -> bool {
    let code = exit_code(Some(pod), words);
    let reason = pod.exit.as_ref().and_then(|exit| exit.reason.as_deref());
    let is_reason = |wanted: &String| {
        let disrupted = pod.disruption.as_ref().is_some_and(|why| why.reasons.contains(wanted));
        reason == Some(wanted) || disrupted
    };
    let found = |pattern: &String| {
        let pattern = Regex::new(pattern).ok();
        pattern.zip(tail).is_some_and(|(pattern, tail)| pattern.is_match(tail))
    };
    let codes = rule.exit_codes.as_ref();
    (codes.is_some() || rule.reasons.is_some() || rule.log_pattern.is_some())
        && codes.is_none_or(|codes| code.is_some_and(|code| codes.contains(&code)))
        && rule.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(is_reason))
        && rule.log_pattern.as_ref().is_none_or(found)
}

/// The code of the program that failed.
pub(super) fn exit_code(pod: Option<&PodView>, words: &Words) -> Option<i32> {
    Some(words.code(pod?.exit.as_ref()?.code))
}

/// Why a failure is the last one: a reason for the condition, and a sentence.
pub(super) struct Final {
    pub(super) reason: &'static str,
    pub(super) why: String,
}

/// Whether it uses up `backoffLimit`.
pub(super) fn counts(ending: &Ending<'_>) -> bool {
    match ending.action {
        Some(FailureAction::Restart) => true,
        Some(FailureAction::RestartWithoutCounting | FailureAction::Ignore) => false,
        Some(FailureAction::Fail) | None => ending.cause.counts(),
    }
}

/// Whether it is written down before anything else that ends the attempt: it is counted, or the job's rules say that it is final.
pub(super) fn matters(ending: &Ending<'_>) -> bool {
    counts(ending) || ending.action == Some(FailureAction::Fail)
}

/// Why this failure is the last one, if it is. `attempts` ends with the one that has just failed.
pub(super) fn is_final(
    spec: &TrainingJobSpec,
    settings: &Settings,
    restarts: &Restarts,
    attempts: &[Attempt],
    ending: &Ending<'_>,
) -> Option<Final> {
    let told = |reason: &'static str, why: &str| Some(Final { reason, why: why.to_owned() });
    if ending.action == Some(FailureAction::Fail) {
        return told("FailurePolicy", "a rule of failurePolicy says that this is final");
    }
    let is_wanted = ending.action == Some(FailureAction::RestartWithoutCounting);
    if let Some(times) = same_failure(settings, attempts).filter(|_| !is_wanted) {
        let why = format!(
            "the same happened {times} times without progress in between: it is not tried again, whatever backoffLimit \
             allows"
        );
        return told("SameFailure", &why);
    }
    if !counts(ending) {
        return None;
    }
    let code = exit_code(ending.pod, &ending.words).filter(|_| !ending.rootless);
    let by_rule = ending.action == Some(FailureAction::Restart);
    match spec.restart_policy() {
        // What a rule wants to be restarted is, whatever the restart policy says.
        RestartPolicy::Never if !by_rule => {
            told("RestartPolicyNever", "restartPolicy Never: it is not restarted")
        }
        RestartPolicy::ExitCode if !by_rule && code.is_some_and(|code| (1..128).contains(&code)) => {
            told("PermanentExitCode", "restartPolicy ExitCode: exit codes below 128 are not restarted")
        }
        _ if restarts.application >= spec.backoff_limit() => match spec.backoff_limit() {
            limit if restarts.application > limit => {
                let restarts = restarts.application;
                told(
                    "BackoffLimitExceeded",
                    &format!("it was restarted {restarts} times, and backoffLimit is {limit}"),
                )
            }
            0 => told("BackoffLimitExceeded", "backoffLimit is 0: it is not restarted"),
            1 => told("BackoffLimitExceeded", "the one restart of backoffLimit is used up"),
            limit => {
                told("BackoffLimitExceeded", &format!("all {limit} restarts of backoffLimit are used up"))
            }
        },
        _ => None,
    }
}

/// How often the last attempts ended for one and the same reason, without progress in between, if that is too often. It
/// takes more than an exit code to know: the same error in the log, too little memory, or a stall.
fn same_failure(settings: &Settings, attempts: &[Attempt]) -> Option<usize> {
    let limit = usize::try_from(settings.same_failures).ok().filter(|limit| *limit > 0)?;
    let root = |attempt: &Attempt| match attempt.cause? {
        // Whoever is killed for its memory has said nothing about it, or anything.
        cause @ (Cause::Stalled | Cause::OutOfMemory) => Some((cause, String::new())),
        Cause::Application => Some((Cause::Application, signature(attempt.error.as_deref()?))),
        _ => None,
    };
    let ended = attempts.last()?;
    let last = root(ended)?;
    // Whoever changes the spec wants to see what comes of it.
    let of_this_spec = attempts.iter().rev().take_while(|attempt| attempt.inputs == ended.inputs);
    let without_progress = of_this_spec.take_while(|attempt| !attempt.made_progress());
    // What came from outside says nothing about the program.
    let own = without_progress.filter(|attempt| {
        matches!(attempt.cause, Some(Cause::Application | Cause::OutOfMemory | Cause::Stalled))
    });
    let times = own.take_while(|attempt| root(attempt).as_ref() == Some(&last)).count();
    (times >= limit).then_some(times)
}

/// How many attempts in a row, up to the one that has just failed, failed without progress: by themselves, or by what came from
/// outside, as that one did. One that ran for long is the first of a new row, and one that got past a new checkpoint is none.
pub(super) fn streak(attempts: &[Attempt], cause: Cause) -> i32 {
    let mut streak = 0;
    for attempt in attempts.iter().rev() {
        let Some(failed) = attempt.cause.filter(|cause| Cause::FAILURES.contains(cause)) else { break };
        if attempt.made_progress() {
            break;
        }
        // Who was drained often does not wait longer when its program fails, and the other way round.
        streak += i32::from(failed.counts() == cause.counts());
        let ran = attempt.running_time.as_ref().zip(attempt.end_time.as_ref());
        if ran.is_some_and(|(began, ended)| ended.0.duration_since(began.0) >= LONG) {
            break;
        }
    }
    streak
}

/// Whoever ran for so long has not failed at once.
pub(super) const LONG: SignedDuration = SignedDuration::from_mins(10);

/// Nodes on which the remembered attempts failed too often, sorted.
pub(super) fn avoided(settings: &Settings, status: &TrainingJobStatus) -> Vec<String> {
    let limit = usize::try_from(settings.node_failures).unwrap_or(usize::MAX);
    if limit == 0 {
        return Vec::new();
    }
    // What a program does by itself (memory, stalls of all) is not the node's fault.
    let blamed = |attempt: &&Attempt| matches!(attempt.cause, Some(Cause::Application | Cause::Disruption));
    let nodes: Vec<&String> =
        status.attempts.iter().filter(blamed).filter_map(|attempt| attempt.node_name.as_ref()).collect();
    let mut avoided: Vec<String> = nodes
        .iter()
        .filter(|node| nodes.iter().filter(|other| other == node).count() >= limit)
        .map(|node| (*node).clone())
        .collect();
    avoided.sort_unstable();
    avoided.dedup();
    avoided
}

/// "restart 2 of 3 in 20s", "restart 1 of 3 now".
pub(super) fn restart_words(restarts: &Restarts, limit: i32, delay: SignedDuration) -> String {
    let wait = if delay.is_zero() { "now".to_owned() } else { format!("in {}", text::duration(delay)) };
    format!("restart {} of {limit} {wait}", restarts.application)
}
