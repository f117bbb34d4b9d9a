//! How attempts and jobs end: each of these is a decision, written down before anything follows from it.

use trainyard_api::{Cause, CleanPodPolicy, FailureAction, Restarts, State, condition};

use super::judge::Ending;
use super::{backoff, force, policy, report};
use crate::build;
use crate::draft::{Draft, delete_pod, target, whole_seconds};
use crate::snapshot::{Company, PodPhase, PodView, Snapshot};
use crate::text;
use crate::world::World;

/// So many pods are asked where they hang: in a large gang, most hang at the same place.
const ASKED: usize = 16;

/// The training succeeded, as far as the job's rules do not ignore that so many of its pods failed.
pub(super) fn complete(draft: &mut Draft<'_>, ignored: usize) {
    let done = match ignored {
        0 => "Training job completed successfully",
        1 => "Training job completed; 1 worker failed and was ignored",
        many => &format!("Training job completed; {many} workers failed and were ignored"),
    };
    let lost = lost_copy(draft.snapshot);
    let message = lost.as_ref().map_or_else(|| done.to_owned(), |lost| format!("{done}, but {lost}"));
    let message = message.as_str();
    if let Some(lost) = &lost {
        draft.condition(condition::CHECKPOINT_PROBLEM, true, "Lost", lost);
        draft.warning(condition::CHECKPOINT_PROBLEM, lost, "lost");
    }
    draft.end_attempt(Cause::Succeeded, None, message);
    end(draft, State::Completed, message, ignored == 0);
    draft.condition(condition::COMPLETED, true, "TrainingCompleted", message);
    draft.condition(condition::RUNNING, false, "TrainingCompleted", message);
    draft.condition_over(condition::RESTARTING, "TrainingCompleted", message);
    draft.condition_over(condition::STALLED, "TrainingCompleted", message);
    draft.normal("TrainingCompleted", message, "");
}

/// What the leading program saved last and its agent could not bring to the bucket in time. Its pod is no place to keep it.
fn lost_copy(snapshot: &Snapshot) -> Option<String> {
    let place = build::place_in_bucket(&snapshot.job)?;
    let leader = World::of(&snapshot.job).leader();
    let agent = snapshot.agent.as_ref()?;
    snapshot.own_pods().find(|pod| pod.name == leader && pod.uid == agent.pod)?;
    let unsent = agent.report.unsent.as_ref()?;
    Some(format!(
        "checkpoint {unsent} did not arrive in {place} and was lost with the pod: give pods more time for it \
         (terminationGracePeriodSeconds in the template)"
    ))
}

/// The job ends without success.
pub(super) fn fail(draft: &mut Draft<'_>, reason: &str, message: &str) {
    end(draft, State::Failed, message, false);
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

fn end(draft: &mut Draft<'_>, state: State, message: &str, all_done: bool) {
    draft.decide();
    let time = draft.time();
    draft.state(state);
    draft.message(message);
    draft.status.backoff_until = None;
    draft.status.duration =
        draft.status.start_time.as_ref().map(|start| text::duration(time.0.duration_since(start.0)));
    draft.status.completion_time = Some(time);
    clean_up(draft);
    report::conclude_progress(draft, all_done);
    report::conclude(draft);
}

/// Removes the pods that the job's policy does not keep.
pub(super) fn clean_up(draft: &mut Draft<'_>) {
    let snapshot = draft.snapshot;
    match snapshot.job.spec.clean_pod_policy() {
        CleanPodPolicy::None => {}
        CleanPodPolicy::All => draft.delete_pods(snapshot.own_pods()),
        CleanPodPolicy::Running => {
            // The agent ends by itself, when it has looked once more; then the pod and its log stay as those of the others do.
            draft.delete_pods(
                snapshot.own_pods().filter(|pod| !pod.is_finished() || pod.lingers == Some(Company::Others)),
            );
        }
    }
}

/// The attempt ends before its time: the next one follows, unless the failures are used up.
pub(super) fn end_attempt(draft: &mut Draft<'_>, ending: &Ending<'_>) {
    draft.decide();
    let Ending { cause, pod, message, .. } = ending;
    let number = draft.status.attempts.last().map_or(1, |attempt| attempt.number);
    close(draft, ending);
    if *cause == Cause::Stalled && draft.settings.ask_for_stacks {
        let running = draft.snapshot.own_pods().filter(|pod| pod.phase == PodPhase::Running && !pod.deleting);
        draft.hanging = running.take(ASKED).map(target).collect();
    }
    let counts = policy::counts(ending);
    if cause.counts() {
        announce_failure(draft, number, *pod, 0, message);
    }
    if *cause == Cause::Stalled {
        draft.condition(condition::STALLED, true, cause.as_str(), message.as_str());
    }
    let mut restarts = draft.status.restarts.unwrap_or_default();
    let spec = &draft.snapshot.job.spec;
    if let Some(end) = policy::is_final(spec, draft.settings, &restarts, &draft.status.attempts, ending) {
        fail(draft, end.reason, &format!("{message}; {}", end.why));
        return;
    }
    count(&mut restarts, *cause, counts);
    let delay = delay(draft, *cause);
    draft.status.restarts = Some(restarts);
    draft.status.avoided_nodes = policy::avoided(draft.settings, &draft.status);
    let message = restart_message(draft, ending, counts, &restarts, delay);
    hold_off(draft, delay);
    match cause {
        Cause::Rescale => draft.normal("Rescaled", &message, number),
        Cause::Update => draft.normal("SpecChanged", &message, number),
        Cause::Resume => draft.normal("ResumingFromCheckpoint", &message, format!("found/{number}")),
        Cause::Stalled => draft.warning("Stalled", &message, number),
        Cause::Application | Cause::OutOfMemory => draft.warning("Restarting", &message, number),
        _ => draft.warning("WorkerDisrupted", &message, number),
    }
    draft.state(State::Restarting);
    draft.condition(condition::RUNNING, false, cause.as_str(), &message);
    draft.condition(condition::RESTARTING, true, cause.as_str(), &message);
    draft.message(message);
    let snapshot = draft.snapshot;
    // Who is stopped on purpose gets its grace to save its work; what is left of a broken collective has nothing to save.
    // Without any time, a pod is gone before its program is, and the next one would work beside it.
    let grace = ending.broken.then_some(draft.settings.survivor_grace.max(1));
    let grace_of =
        |pod: &PodView| grace.map(|grace| if copies(snapshot, pod) { grace.max(COPY_GRACE) } else { grace });
    let going = snapshot.own_pods().filter(|pod| !pod.deleting);
    draft.stage(going.map(|pod| delete_pod(pod, grace_of(pod))).collect());
    draft.stage(force::hasten(snapshot, draft.settings, draft.now));
}

/// What is being copied to a bucket when a collective breaks gets so many seconds to arrive.
const COPY_GRACE: u32 = 30;

/// Whether the agent of this pod copies a checkpoint, which would be lost with the pod.
fn copies(snapshot: &Snapshot, pod: &PodView) -> bool {
    let is_leader = pod.name == World::of(&snapshot.job).leader();
    let says_so = snapshot.agent.as_ref().is_some_and(|agent| agent.pod == pod.uid && agent.report.writing);
    snapshot.job.spec.checkpoint_bucket().is_some() && is_leader && (pod.lingers.is_some() || says_so)
}

/// Writes down why the attempt ended.
pub(super) fn close(draft: &mut Draft<'_>, ending: &Ending<'_>) {
    draft.end_attempt(ending.cause, ending.pod, &ending.message);
    let Some(attempt) = draft.status.attempts.last_mut() else { return };
    attempt.exit_code = policy::exit_code(ending.pod, &ending.words);
    attempt.error.clone_from(&ending.words.error);
    if ending.pod.is_some_and(|pod| pod.deleting && pod.disruption.is_none() && !ending.cause.counts()) {
        // Somebody deleted it: that is not its node's doing.
        attempt.node_name = None;
    }
    if ending.rootless {
        // Who only lost a peer is not to blame, and neither is its node. Its complaint is no error, unless it may be about something
        // else: a database, for example.
        (attempt.pod_name, attempt.node_name) = (None, None);
        attempt.error.take_if(|_| ending.words.is_of_collective);
    }
}

/// Nothing is started until this delay is over.
pub(super) fn hold_off(draft: &mut Draft<'_>, delay: jiff::SignedDuration) {
    let until = (!delay.is_zero()).then(|| whole_seconds(backoff::until(draft.now, delay)));
    if let Some(until) = &until {
        draft.wake(until.0);
    }
    draft.status.backoff_until = until;
}

pub(super) fn count(restarts: &mut Restarts, cause: Cause, counts: bool) {
    let counter = match cause {
        _ if counts => &mut restarts.application,
        Cause::Rescale => &mut restarts.rescale,
        Cause::Update => &mut restarts.update,
        Cause::Stalled => &mut restarts.stall,
        // Nothing had begun yet.
        Cause::Resume => return,
        _ => &mut restarts.disruption,
    };
    *counter = counter.saturating_add(1);
    restarts.total = restarts.total();
}

/// How long the next attempt waits. Failures without progress wait longer and longer; the first disruption in a row does not wait, and
/// neither does whoever got past a new checkpoint.
fn delay(draft: &Draft<'_>, cause: Cause) -> jiff::SignedDuration {
    let streak = policy::streak(&draft.status.attempts, cause);
    let restart = match cause {
        Cause::Application | Cause::OutOfMemory => streak,
        Cause::Disruption | Cause::Stalled => streak - 1,
        _ => 0,
    };
    if restart < 1 {
        return jiff::SignedDuration::ZERO;
    }
    backoff::delay(draft.settings, draft.snapshot.uid(), restart)
}

/// A worker that is replaced alone can fail more than once in one attempt: `again` counts these.
pub(super) fn announce_failure(
    draft: &mut Draft<'_>,
    number: i32,
    pod: Option<&PodView>,
    again: i32,
    message: &str,
) {
    let pod = pod.map_or("", |pod| pod.name.as_str());
    let occurrence = if again == 0 { format!("{number}/{pod}") } else { format!("{number}/{pod}/{again}") };
    draft.warning("WorkerFailed", message, occurrence);
}

fn restart_message(
    draft: &Draft<'_>,
    ending: &Ending<'_>,
    counts: bool,
    restarts: &Restarts,
    delay: jiff::SignedDuration,
) -> String {
    let message = &ending.message;
    let from = match draft.status.checkpoint.as_ref().filter(|_| draft.snapshot.job.spec.resumes()) {
        Some(checkpoint) if ending.broken => format!(", from {}", text::checkpoint(checkpoint)),
        // They have time to save.
        Some(checkpoint) => format!(", from {} or a newer one", text::checkpoint(checkpoint)),
        None => String::new(),
    };
    match ending.cause {
        Cause::Rescale | Cause::Update => format!("{message}{from}"),
        Cause::Resume => format!("{message}: the workers are started again{from}"),
        _ if counts => {
            let limit = draft.snapshot.job.spec.backoff_limit();
            format!("{message}; {}{from}", policy::restart_words(restarts, limit, delay))
        }
        _ => {
            let wait = if delay.is_zero() { String::new() } else { format!(" in {}", text::duration(delay)) };
            let by_rule = ending.action == Some(FailureAction::RestartWithoutCounting);
            let rule = if by_rule { " (a rule of failurePolicy)" } else { "" };
            format!(
                "{message}; all workers are restarted{wait}{from}, which does not count as a failure{rule}"
            )
        }
    }
}
