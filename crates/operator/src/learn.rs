//! What came of a plan: what is remembered of it, and when to look again.

use std::time::Duration;

use trainyard_api::{State, TrainingJobStatus};
use trainyard_plan::{Obstacle, ObstacleKind, Plan, Snapshot, Stacks};

use crate::acquaintance::Acquaintance;
use crate::cache::JobKey;
use crate::execute::Outcome;
use crate::look::{Eyes, Look};
use crate::moment::Moment;
use crate::port::Port;

/// How often the role may not allow something before the job's owner hears of it.
const FORBIDDEN_TRIES: u32 = 5;

/// How often a budget may be out of reach before the job goes on without it: nobody who trains waits for one.
const BUDGET_TRIES: u32 = 4;

/// When to look again after a plan that was made from an old version of the job. The newer version brings the job back by itself;
/// this is only a safeguard.
const OUTDATED_AGAIN: Duration = Duration::from_secs(2);

impl<P: Port, C: Fn() -> Moment> Eyes<'_, P, C> {
    /// Remembers what came of a plan that was made at `planned`, and says in `look` what is to happen next.
    pub(crate) fn learn(
        &self,
        key: &JobKey,
        snapshot: &Snapshot,
        plan: &Plan,
        outcome: Outcome,
        planned: Moment,
        look: &mut Look,
    ) {
        let now = (self.clock)().instant;
        let mut core = self.core();
        let memory = core.remember(key);
        if outcome.status_written {
            memory.last_status_write = Some(planned.instant);
            memory.acquainted = Some(Acquaintance::with(Some(&plan.status)));
            let nothing = TrainingJobStatus::default();
            let before = snapshot.job.status.as_ref().unwrap_or(&nothing);
            self.metrics.status_written(key, before, &plan.status);
            tell(key, before, &plan.status);
        }
        memory.expect(outcome.echoes, now);
        let attempt = plan.status.attempts.last().map(|attempt| attempt.number);
        if let Some(attempt) = attempt.filter(|_| !outcome.stacks.is_empty()) {
            memory.stacks = Some(Box::new(Stacks { attempt, said: outcome.stacks }));
            look.again = true;
        }
        let generation = snapshot.generation();
        memory
            .obstacles
            .retain(|(obstacle, again)| obstacle.generation == generation && planned.instant < *again);
        let mut fault = outcome.fault;
        let mut obstacles = outcome.obstacles;
        if let Some((object, message)) = outcome.unguarded
            && memory.faults >= BUDGET_TRIES
        {
            fault = None;
            obstacles.push((ObstacleKind::Unguarded { taken: false }, object, message));
        }
        let mut cramped = false;
        memory.refusals += u32::from(!obstacles.is_empty());
        for (kind, object, message) in obstacles {
            // Right after an API server has started, its roles allow nothing for a moment.
            let is_refused =
                matches!(kind, ObstacleKind::Forbidden | ObstacleKind::Unguarded { taken: false });
            let by_role = is_refused && message.contains(" cannot ");
            if by_role && memory.refusals <= FORBIDDEN_TRIES {
                fault = Some(format!("{object}: {message}"));
                continue;
            }
            let again = planned.instant + retry_delay(kind, memory.refusals);
            let retry_at = planned.wall_at(again).unwrap_or(planned.wall);
            tracing::warn!(namespace = %key.namespace, trainingjob = %key.name, %object, "refused: {message}");
            self.metrics.error(key, kind_name(kind));
            cramped |= kind == ObstacleKind::Quota;
            memory.obstacles.push((Obstacle { kind, object, message, generation, retry_at }, again));
            look.again = true;
        }
        if let Some(fault) = fault {
            memory.faults += 1;
            self.metrics.error(key, "api");
            let delay = fault_delay(memory.faults);
            tracing::warn!(namespace = %key.namespace, trainingjob = %key.name, "{fault}; trying again in {delay:?}");
            look.wake(now + delay);
        } else if outcome.outdated {
            look.wake(now + OUTDATED_AGAIN);
        } else if memory.obstacles.is_empty() {
            memory.faults = 0;
            memory.refusals = 0;
        }
        look.report_due = outcome.report_due;
        if cramped {
            core.room.is_missed_by(key);
        }
    }
}

/// One line per transition.
fn tell(key: &JobKey, before: &TrainingJobStatus, after: &TrainingJobStatus) {
    if before.state == after.state {
        return;
    }
    let state = after.state.map_or("", State::as_str);
    let message = after.message.as_deref().unwrap_or_default();
    tracing::info!(namespace = %key.namespace, trainingjob = %key.name, state, "{message}");
}

fn kind_name(kind: ObstacleKind) -> &'static str {
    match kind {
        ObstacleKind::NameConflict => "name_conflict",
        ObstacleKind::Quota => "quota",
        ObstacleKind::Forbidden => "forbidden",
        ObstacleKind::Invalid => "invalid",
        ObstacleKind::Unguarded { .. } => "unguarded",
    }
}

/// When to ask again for something that was refused: 2 s, 4 s … a minute (a quota: 15 s). What is invalid stays so until the spec
/// changes.
fn retry_delay(kind: ObstacleKind, refusals: u32) -> Duration {
    match kind {
        ObstacleKind::Invalid => Duration::from_hours(1),
        // Room that others make is not seen; room that our own jobs make is, at once.
        ObstacleKind::Quota => Duration::from_secs(1 << refusals.clamp(1, 4)).min(Duration::from_secs(15)),
        _ => Duration::from_secs(1 << refusals.clamp(1, 6)).min(Duration::from_mins(1)),
    }
}

/// When to try again after a passing fault: 0.25 s, 0.5 s … 8 s.
fn fault_delay(faults: u32) -> Duration {
    Duration::from_millis(250 << faults.saturating_sub(1).min(5))
}
