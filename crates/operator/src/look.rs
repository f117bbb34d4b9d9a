//! One look at a job: doubts → sight → plan → execute → what is learnt from it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trainyard_api::{Attempt, TrainingJobStatus};
use trainyard_plan::{Plan, Settings, Snapshot, StatusWrite};

use crate::cache::JobKey;
use crate::core::{Core, Sight};
use crate::execute::execute;
use crate::metrics::Metrics;
use crate::moment::Moment;
use crate::port::{NewEvent, Port};
use crate::views::version;

/// When to try again to write about a job that cannot be read.
pub(crate) const UNREADABLE_AGAIN: Duration = Duration::from_secs(5);

/// What decides: a snapshot, settings and the time in, a plan out. There is one (`trainyard_plan::plan`); whoever wants to watch it at
/// work, or to see that a wrong one is noticed, puts another around it.
pub type Planner = fn(&Snapshot, &Settings, Timestamp) -> Plan;

/// Everything that a look needs.
pub struct Eyes<'a, P, C> {
    /// Never locked while something is awaited.
    pub core: &'a Mutex<Core>,
    pub port: &'a P,
    pub planner: Planner,
    pub settings: &'a Settings,
    pub metrics: &'a Metrics,
    pub clock: C,
}

/// What a look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Found {
    #[default]
    NothingToDo,
    SomethingToDo,
    /// The job is gone: it needs no timers any more.
    Gone,
}

/// What came of a look, and what is to happen next.
#[derive(Debug, Default)]
pub struct Look {
    pub found: Found,
    /// Look again as soon as there is a turn.
    pub again: bool,
    /// Look again at that time although nothing changed.
    pub wake_at: Option<Instant>,
    /// A report was put off until there is time for it.
    pub report_due: bool,
    /// When it was clear what to do.
    pub decided: Option<Instant>,
    /// That was to end the attempt.
    pub ends_attempt: bool,
    /// What is now to be recorded.
    pub events: Vec<NewEvent>,
}

impl Look {
    /// Looks again at that time, or earlier if something else wants so.
    pub(crate) fn wake(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn later(at: Instant) -> Self {
        Self { wake_at: Some(at), ..Self::default() }
    }
}

impl<P: Port, C: Fn() -> Moment> Eyes<'_, P, C> {
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One look at a job. With `reports` false, what only reports is left for later. `wait` may hold the plan back for a while, because
    /// something is about to be known that belongs into it.
    pub async fn look_at(
        &self,
        key: &JobKey,
        reports: bool,
        wait: impl FnOnce(&Snapshot) -> Option<Duration>,
    ) -> Look {
        if let Some(at) = self.settle_doubts(key).await {
            return Look::later(at);
        }
        let again = self.ask_for_nodes(key).await;
        let now = (self.clock)();
        let sight = self.core().sight(key, now);
        match sight {
            Sight::Gone => self.forget(key),
            Sight::Behind(at) => Look::later(at),
            Sight::Unreadable(reference, job) => self.report_unreadable(key, &reference, &job).await,
            Sight::Leaving(reference, job) => self.let_go(key, &reference, &job).await,
            Sight::Nothing => Look::default(),
            Sight::Clear(snapshot) => {
                if let Some(patience) = wait(&snapshot) {
                    return Look::later(now.instant + patience);
                }
                let mut look = self.advance(key, reports, &snapshot).await;
                if let Some(again) = again {
                    look.wake(again);
                }
                look
            }
        }
    }

    /// snapshot → plan → execute → what comes of it.
    async fn advance(&self, key: &JobKey, reports: bool, snapshot: &Snapshot) -> Look {
        let now = (self.clock)();
        let mut plan = (self.planner)(snapshot, self.settings, now.wall);
        let mut look = Look { wake_at: plan.wake_at.map(|at| now.until(at)), ..Look::default() };
        if plan.is_idle() {
            return look;
        }
        look.found = Found::SomethingToDo;
        look.decided = Some((self.clock)().instant);
        let is_under_way = |status: &TrainingJobStatus| status.attempts.last().is_some_and(Attempt::is_open);
        look.ends_attempt =
            snapshot.job.status.as_ref().is_some_and(is_under_way) && !is_under_way(&plan.status);
        let is_new = self.first_sight(key) && snapshot.job.status.is_none();
        if is_new {
            tracing::info!(namespace = %key.namespace, trainingjob = %key.name, "Creating TrainingJob: {key}");
        }
        if self.is_before_own(key, snapshot) {
            // The job may have ended since. What follows from an old status waits until that has been written, which is refused
            // unless it is still the newest: then the API server was set back.
            plan.write = StatusWrite::BeforeSteps;
        }
        if let Some(at) = self.make_way(key, &snapshot.job, &plan.gone).await {
            look.wake(at);
            return look;
        }
        let mut outcome = execute(self.port, &snapshot.job, &plan, reports, now.wall).await;
        look.events = std::mem::take(&mut outcome.events);
        if is_new {
            self.metrics.job_created(key);
        }
        self.learn(key, snapshot, &plan, outcome, now, &mut look);
        look
    }

    /// Whether the job is seen as it was before this process wrote it last.
    fn is_before_own(&self, key: &JobKey, snapshot: &Snapshot) -> bool {
        let version = version(&snapshot.job.metadata);
        self.core().memory(key).is_some_and(|memory| memory.is_before_own(version))
    }

    /// Whether this process has not begun with this job yet.
    fn first_sight(&self, key: &JobKey) -> bool {
        !std::mem::replace(&mut self.core().remember(key).begun, true)
    }

    fn forget(&self, key: &JobKey) -> Look {
        if self.core().forget(key) {
            tracing::info!(namespace = %key.namespace, trainingjob = %key.name, "TrainingJob is gone: {key}");
            self.metrics.job_deleted(key);
        }
        Look { found: Found::Gone, ..Look::default() }
    }
}
