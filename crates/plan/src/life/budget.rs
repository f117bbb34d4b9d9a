//! The budget that evictions have to keep to: those of nodes being drained, or of autoscalers.
//!
//! A gang dies with any of its pods, so keeping some of them would only make drains slower. Pods that are replaced one by one
//! are evicted one by one. And a job may ask that nobody is evicted while a checkpoint is being written.
//!
//! Budgets are not watched: the status tells what was done about them. That there is to be one is written before it is made, so
//! that whoever comes later knows to remove it; what it allows is written after that was done, so that it is rather done twice
//! than never.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{DisruptionBudget, Phase, RestartScope, WorkerStatus, condition, names};

use super::judge::Gang;
use super::running;
use crate::build;
use crate::draft::{Draft, later};
use crate::plan::Step;
use crate::snapshot::{Obstacle, ObstacleKind};

/// Makes the budget what it should be while the job is to run.
pub(super) fn keep(draft: &mut Draft<'_>, gang: &Gang<'_>) {
    let job = &*draft.snapshot.job;
    let is_alone = draft.status.worker_statuses.len() < 2;
    let one_by_one = job.spec.restart_scope() == RestartScope::Worker && !is_alone;
    if !one_by_one && !job.spec.holds_evictions() {
        return remove(draft);
    }
    let known = job.status.as_ref().and_then(|status| status.disruption_budget.as_deref());
    let Some(known) = known else {
        draft.status.disruption_budget = Some(Box::default());
        return;
    };
    let mut budget = known.clone();
    // Without all of its pods, nothing is being written, and nobody is there who must stay.
    budget.writing_since = if running::is_created(draft) { writing_since(draft, known, gang) } else { None };
    if running::is_created(draft) {
        let until = budget.writing_since.as_ref().map(|since| later(since.0, draft.settings.hold_evictions));
        let until = until.filter(|until| draft.now < *until);
        if let Some(until) = until {
            draft.wake(until);
        }
        // Whose failure does not matter is as good as done: nobody waits until it is healthy.
        let is_left = |worker: &&WorkerStatus| worker.phase != Phase::Succeeded && !worker.ignored;
        let left = draft.status.worker_statuses.iter().filter(is_left);
        let left = i32::try_from(left.count()).unwrap_or(i32::MAX);
        let wanted = match (until, one_by_one) {
            (Some(_), _) => left,
            (None, true) => (left - 1).max(0),
            (None, false) => 0,
        };
        if let Some(obstacle) = obstacle(draft) {
            tell(draft, obstacle);
        } else if budget.min_available != Some(wanted) && !draft.is_decided() {
            draft.stage(vec![Step::Budget(Box::new(build::budget(job, wanted, until.is_some())))]);
            budget.min_available = Some(wanted);
        }
    }
    draft.status.disruption_budget = Some(Box::new(budget));
}

/// Nobody is left to guard, or nobody asks for it any more.
pub(super) fn remove(draft: &mut Draft<'_>) {
    if draft.status.disruption_budget.is_none() || draft.is_decided() {
        return;
    }
    if let Some(obstacle) = obstacle(draft) {
        draft.wake(obstacle.retry_at);
        return;
    }
    draft.stage(vec![Step::RemoveBudget(names::budget(draft.snapshot.name()))]);
    draft.status.disruption_budget = None;
}

/// Since when a checkpoint is being written that evictions wait for. Until the agent is heard again, its last word stands.
fn writing_since(draft: &Draft<'_>, known: &DisruptionBudget, gang: &Gang<'_>) -> Option<Time> {
    if !draft.snapshot.job.spec.holds_evictions() {
        return None;
    }
    let Some(agent) = &draft.snapshot.agent else { return known.writing_since.clone() };
    let mut pods = gang.values();
    let is_there = pods.any(|pod| pod.uid == agent.pod && (pod.lingers.is_some() || !pod.is_finished()));
    let is_writing = is_there && agent.report.writing;
    is_writing.then(|| known.writing_since.clone().unwrap_or_else(|| draft.time()))
}

/// Why the cluster would not do what was asked about the budget, while it is too early to ask again.
pub(super) fn obstacle<'a>(draft: &Draft<'a>) -> Option<&'a Obstacle> {
    running::current_obstacles(draft).find(|obstacle| matches!(obstacle.kind, ObstacleKind::Unguarded { .. }))
}

/// Says that the pods are not guarded. They run all the same.
fn tell(draft: &mut Draft<'_>, obstacle: &Obstacle) {
    let (reason, notice, how) = match obstacle.kind {
        ObstacleKind::Unguarded { taken: true } => ("NameConflict", "NameConflict", "exists already"),
        _ => ("Forbidden", "ReconcileFailed", "was refused"),
    };
    let message = format!("{} {how}: {}", obstacle.object, obstacle.message);
    let told = draft.snapshot.job.status.as_ref().and_then(|s| s.condition(condition::RESOURCES_CREATED));
    if told.is_none_or(|told| told.reason != reason) {
        let occurrence = format!("{}/{}", draft.snapshot.generation(), obstacle.object);
        draft.warning(notice, &message, occurrence);
    }
    draft.condition(condition::RESOURCES_CREATED, false, reason, &message);
    draft.wake(obstacle.retry_at);
    let goes_on = draft.status.message.take().unwrap_or_default();
    draft.message(format!("{goes_on}; {message}"));
}
