//! `restartScope: Worker`: whoever fails is replaced alone, and the others go on.
//!
//! The attempt stays open. A failure is counted once, because the status of the worker names the pod whose failure it counted;
//! only then the pod is removed, and a new one takes its place.

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{FailureAction, Phase, State, condition};

use super::judge::{Case, Ending, has_failed};
use super::{backoff, ending, policy, report, running, staffing};
use crate::draft::Draft;
use crate::snapshot::{PodPhase, PodView};
use crate::text;
use crate::world::Member;

/// Counts, removes and replaces single pods. Says whether that was all there is to do now.
pub(super) fn mend(draft: &mut Draft<'_>, case: &Case<'_, '_>) -> bool {
    let Some(attempt) = case.attempt.filter(|attempt| attempt.is_open() && attempt.created_time.is_some())
    else {
        return false;
    };
    let mut losses = Loss::all(case);
    if let Some(until) = is_awaited(case, &losses) {
        draft.wake(until);
        return false;
    }
    // One decision at a time: each is written down before anything follows from it.
    if let Some(new) = losses.iter().position(|(member, loss)| !case.is_recorded(member, loss.pod)) {
        let is_known = has_root(&losses);
        let (member, loss) = &mut losses[new];
        if loss.ending.rootless && is_known {
            // Who was lost is among them, and this one only complains of it.
            loss.ending.action.get_or_insert(FailureAction::RestartWithoutCounting);
        }
        record(draft, case, member, loss, attempt.number);
        return true;
    }
    let gone: Vec<&PodView> = losses.iter().filter_map(|(_, loss)| loss.pod).collect();
    draft.delete_pods(gone);
    if let Some(until) = backoff::pending(draft) {
        draft.wake(until.0);
        return false;
    }
    draft.status.backoff_until = None;
    let missing = losses.into_iter().filter(|(_, loss)| loss.pod.is_none());
    let missing: Vec<Member<'_, '_>> = missing.map(|(member, _)| member).collect();
    // Under its name there may be a pod of an earlier attempt, which came when nobody waited for it any more: that goes first.
    let has_room = case.snapshot.own_pods().all(|pod| pod.attempt == Some(attempt.number));
    // What was refused is not asked for again before its time.
    if has_room && !missing.is_empty() && running::refusal(draft).is_none() {
        staffing::create(draft, case.world, &missing, attempt.number, case.inputs);
    }
    false
}

/// All that is new are complaints of a lost peer, which may be seen until then.
pub(super) fn root_is_awaited(case: &Case<'_, '_>) -> Option<Timestamp> {
    is_awaited(case, &Loss::all(case))
}

fn is_awaited<'a>(case: &Case<'_, 'a>, losses: &[(Member<'_, '_>, Loss<'a>)]) -> Option<Timestamp> {
    if has_root(losses) {
        return None;
    }
    let new = losses.iter().filter(|(member, loss)| !case.is_recorded(member, loss.pod));
    case.root_is_awaited(new.filter_map(|(_, loss)| loss.pod))
}

/// Whether one of these is a loss that others may complain about.
fn has_root(losses: &[(Member<'_, '_>, Loss<'_>)]) -> bool {
    losses.iter().any(|(_, loss)| !loss.ending.rootless)
}

/// A worker that has to be replaced.
struct Loss<'a> {
    /// None when it is gone already.
    pod: Option<&'a PodView>,
    ending: Ending<'a>,
}

impl<'a> Loss<'a> {
    /// All that have to be replaced, in the order of their ranks.
    fn all<'w>(case: &Case<'w, 'a>) -> Vec<(Member<'w, 'w>, Self)> {
        let of = |member: Member<'w, 'w>| {
            let pod = case.gang.get(member.pod_name(case.world.job).as_str()).copied();
            Self::of(case, &member, pod).map(|loss| (member, loss))
        };
        case.world.members().filter_map(of).collect()
    }

    fn of(case: &Case<'_, 'a>, member: &Member<'_, '_>, pod: Option<&'a PodView>) -> Option<Self> {
        let succeeded = case.member_succeeded(member);
        match pod {
            _ if succeeded => None,
            Some(pod) if has_failed(pod) => Some(Self { pod: Some(pod), ending: case.failure(pod) }),
            Some(pod) if pod.deleting && pod.phase != PodPhase::Succeeded => {
                Some(Self { pod: Some(pod), ending: case.taken(member, Some(pod)) })
            }
            Some(pod) => case.leaves(member, pod).map(|ending| Self { pod: Some(pod), ending }),
            // Of a world of another shape this member was never a part.
            None => case.made_for_this_shape().then(|| Self { pod: None, ending: case.taken(member, None) }),
        }
    }
}

/// The delays of who is replaced without being counted grow so often.
const MOST_UNCOUNTED: i32 = 3;

/// Whether all have run together for long since somebody was replaced, or a checkpoint was saved since: then the next failure is the
/// first of a new row.
fn has_run_well(draft: &Draft<'_>) -> bool {
    let Some(last) = draft.status.condition(condition::RESTARTING).filter(|last| last.status == "False")
    else {
        return false;
    };
    let since = last.last_transition_time.0;
    let saved = draft.status.checkpoint.as_ref().and_then(|checkpoint| checkpoint.time.as_ref());
    draft.now.duration_since(since) >= policy::LONG || saved.is_some_and(|saved| saved.0 > since)
}

fn record(draft: &mut Draft<'_>, case: &Case<'_, '_>, member: &Member<'_, '_>, loss: &Loss<'_>, number: i32) {
    draft.decide();
    let ending = &loss.ending;
    let counts = policy::counts(ending);
    let name = member.pod_name(case.world.job);
    let mut restarts = draft.status.restarts.unwrap_or_default();
    if ending.cause.counts() {
        let mut workers = draft.status.worker_statuses.iter();
        let again = workers.find(|worker| worker.pod_name == name).map_or(0, |worker| worker.restart_count);
        ending::announce_failure(draft, number, loss.pod, again, &ending.message);
    }
    let end = policy::is_final(&case.snapshot.job.spec, draft.settings, &restarts, &[], ending);
    if let Some(end) = end.filter(|_| policy::matters(ending)) {
        ending::close(draft, ending);
        ending::fail(draft, end.reason, &format!("{}; {}", ending.message, end.why));
        return;
    }
    ending::count(&mut restarts, ending.cause, counts);
    draft.status.restarts = Some(restarts);
    let mut count = 0;
    for worker in draft.status.worker_statuses.iter_mut().filter(|worker| worker.pod_name == name) {
        worker.restart_count = worker.restart_count.saturating_add(1);
        worker.failed_uid = Some(loss.pod.map_or_else(|| "gone".to_owned(), |pod| pod.uid.clone()));
        worker.phase = Phase::Pending;
        worker.status = Phase::Pending;
        count = worker.restart_count;
    }
    report::count(draft, case.world);
    let delay = if ending.awaits_storage {
        backoff::delay(draft.settings, draft.snapshot.uid(), count)
    } else if counts {
        let row = if has_run_well(draft) { 1 } else { restarts.application };
        backoff::delay(draft.settings, draft.snapshot.uid(), row)
    } else if count > 1 && !has_run_well(draft) {
        // Not the first time in a row. Others that were lost in the same moment wait with it, so it is never long.
        backoff::delay(draft.settings, draft.snapshot.uid(), (count - 1).min(MOST_UNCOUNTED))
    } else {
        SignedDuration::ZERO
    };
    let message = if counts {
        let limit = case.snapshot.job.spec.backoff_limit();
        format!("{}; {}", ending.message, policy::restart_words(&restarts, limit, delay))
    } else {
        let wait = if delay.is_zero() { String::new() } else { format!(" in {}", text::duration(delay)) };
        format!("{}; it is replaced{wait}, which does not count as a failure", ending.message)
    };
    draft.warning(
        if ending.cause.counts() { "Restarting" } else { "WorkerDisrupted" },
        &message,
        format!("{number}/{name}/{count}"),
    );
    // A delay that another worker waits out is neither cut short nor forgotten.
    let others = backoff::pending(draft);
    ending::hold_off(draft, delay);
    draft.status.backoff_until = draft.status.backoff_until.take().max(others);
    if let Some(until) = draft.status.backoff_until.clone() {
        draft.wake(until.0);
    }
    if draft.status.state.is_none() {
        // Somebody took the status away. Whether all run is seen at the next look.
        draft.state(State::Initializing);
    }
    draft.condition(condition::RESTARTING, true, ending.cause.as_str(), &message);
    draft.message(message);
    // The next look removes the pod: by then this is written.
    draft.delete_pods(loss.pod);
}
