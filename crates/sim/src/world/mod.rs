//! A world in which a history happens: the API server, one operator or two, a clock, and what users and the cluster do.
//!
//! Single-threaded and without chance of its own: the same calls give the same history.

mod cluster;
mod late;
mod time;
mod watches;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trainyard_api::{State, TrainingJob, TrainingJobStatus};
use trainyard_operator::{JobKey, Metrics, Moment, Planner};
use trainyard_plan::{Settings, plan};

pub use watches::Delivery;
use watches::Held;

use crate::check::Checker;
use crate::operator::{House, Operator};
use crate::port::{Fate, Gate, SimPort, Twist, lock};
use crate::server::{Actor, NAMESPACE, Server};

/// When all histories begin.
pub fn dawn() -> Timestamp {
    Timestamp::constant(1_772_355_600, 0)
}

/// The monotonic clock's origin. Only differences to it are ever looked at.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// Counters that nobody reads here; making them anew for each history would cost more than the history.
fn metrics() -> Arc<Metrics> {
    static METRICS: OnceLock<Arc<Metrics>> = OnceLock::new();
    METRICS.get_or_init(|| Arc::new(Metrics::new(NAMESPACE))).clone()
}

/// What may be wrong with the operators of a world, on purpose.
#[derive(Clone, Copy)]
pub struct Make {
    pub planner: Planner,
    pub twist: Option<Twist>,
}

impl Default for Make {
    fn default() -> Self {
        Self { planner: plan, twist: None }
    }
}

/// Decides the fate of every call of an operator while the world comes to rest, by the number of the call.
pub type Fates<'a> = &'a mut dyn FnMut(usize) -> Option<Fate>;

pub struct World {
    server: Arc<Mutex<Server>>,
    pub(crate) operators: Vec<Operator>,
    house: House,
    twist: Option<Twist>,
    processes: usize,
    pub(crate) check: Checker,
    trace: Option<Vec<String>>,
    /// Calls of operators that were let through.
    calls: usize,
    delivery: Delivery,
    /// Of calls that wait, the newest is served first.
    pub(crate) backwards: bool,
    /// How long to wait before the next thing happens.
    pub(crate) patience: Duration,
    /// Events that came to operators.
    delivered: usize,
    /// Whoever dies has sent what it asked for.
    pub crashes_late: bool,
    /// What is on its way lands after so many more calls; if nothing is said, when its time is over.
    pub(crate) late_after: Option<usize>,
    /// The number of the call after which it does.
    lands_at: Option<usize>,
    held: Option<Held>,
    missed_end: bool,
}

impl World {
    /// An empty cluster with one operator.
    pub fn new(make: Make, traced: bool) -> Self {
        let settings = Settings { agent_image: Some("trainyard:1".to_owned()), ..Settings::default() };
        let settings = Arc::new(settings);
        let clock = Arc::new(Mutex::new(Moment { wall: dawn(), instant: origin() }));
        let house = House { settings, metrics: metrics(), planner: make.planner, clock };
        let mut world = Self {
            server: Arc::new(Mutex::new(Server::new(dawn()))),
            operators: Vec::new(),
            house,
            twist: make.twist,
            processes: 0,
            check: Checker::default(),
            trace: traced.then(Vec::new),
            calls: 0,
            delivery: Delivery::Prompt,
            backwards: false,
            patience: Duration::ZERO,
            delivered: 0,
            crashes_late: false,
            late_after: None,
            lands_at: None,
            held: None,
            missed_end: false,
        };
        world.start_operator();
        world
    }

    pub fn server(&self) -> MutexGuard<'_, Server> {
        lock(&self.server)
    }

    /// The true time. Operators may believe another (see `jump`).
    pub fn now(&self) -> Timestamp {
        self.server().now
    }

    pub fn calls(&self) -> usize {
        self.calls
    }

    pub fn delivered(&self) -> usize {
        self.delivered
    }

    pub fn set_delivery(&mut self, delivery: Delivery) {
        self.delivery = delivery;
    }

    /// The lines so far.
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }

    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.trace.is_none() {
            return;
        }
        let since = self.now().duration_since(dawn());
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.3} {}", since.as_secs_f64(), line()));
        }
    }

    /// Looks at what has just happened.
    pub(crate) fn witness(&mut self) {
        let changes = self.server().take_changes();
        for (by, change) in changes {
            if self.trace.is_some() {
                self.tell(|| format!("    {by:?}: {}", crate::check::told(&change)));
            }
            let server = self.server.clone();
            let complaint = self.check.note(&lock(&server), by, &change);
            if let Err(complaint) = complaint {
                self.fail(&complaint);
            }
        }
    }

    /// The history ends here: a rule is broken.
    pub(crate) fn fail(&mut self, complaint: &str) -> ! {
        self.tell(|| format!("BROKEN: {complaint}"));
        for line in self.trace() {
            eprintln!("{line}");
        }
        panic!("{complaint}");
    }

    // Operators.

    pub fn start_operator(&mut self) {
        self.processes += 1;
        let actor = Actor::Operator(self.processes);
        self.tell(|| format!("{actor:?} starts"));
        let gate = Arc::new(Mutex::new(Gate::default()));
        let port = SimPort {
            server: self.server.clone(),
            gate,
            actor,
            traced: self.trace.is_some(),
            twist: self.twist,
        };
        self.operators.push(Operator::start(self.house.clone(), port));
    }

    /// This operator dies, whatever it is doing.
    pub fn kill_operator(&mut self, index: usize) {
        self.tell(|| format!("operator at {index} dies"));
        self.operators.remove(index);
    }

    /// It dies, and of what it has asked for, this is on its way already: it happens later.
    pub fn kill_operator_late(&mut self, index: usize, on_their_way: &mut dyn FnMut() -> bool) {
        self.operators[index].break_down(on_their_way);
        self.kill_operator(index);
        self.lands_at = self.late_after.map(|steps| self.calls + steps);
    }

    /// It dies, and another takes its place.
    pub fn replace_operator(&mut self, index: usize) {
        let late = self.crashes_late;
        self.kill_operator_late(index, &mut || late);
        self.start_operator();
    }

    /// Lets one call of an operator through.
    pub(crate) fn let_through(&mut self, operator: usize, index: usize, fate: Fate) {
        self.calls += 1;
        let what = self.operators[operator].let_through(index, fate);
        self.tell(|| match fate {
            Fate::Served => format!("  {what}"),
            fate => format!("  {what}: {fate:?}"),
        });
        self.witness();
        if self.late_after.is_some() && self.lands_at.is_none() && self.adrift() > 0 {
            self.lands_at = self.late_after.map(|steps| self.calls + steps);
        }
    }

    /// Begins a look, if somebody's turn has come.
    pub(crate) fn begin(&mut self, operator: usize) -> bool {
        let Some(key) = self.operators[operator].begin() else { return false };
        self.tell(|| format!("looks at {key}"));
        self.witness();
        true
    }

    /// How often operators made and removed what.
    pub fn tally(&self) -> crate::check::Tally {
        self.check.tally.clone()
    }

    pub fn status(&self, name: &str) -> Option<TrainingJobStatus> {
        self.server().job(name)?.status.clone()
    }

    pub fn state(&self, name: &str) -> Option<State> {
        self.server().job(name)?.status.as_ref()?.state
    }

    /// It has ended, or is gone.
    pub fn is_over(&self, name: &str) -> bool {
        let server = self.server();
        server.job(name).is_none_or(|job| job.status.as_ref().is_some_and(TrainingJobStatus::is_terminal))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.server().job(name).is_some()
    }
}

pub(crate) fn key(job: &TrainingJob) -> Option<JobKey> {
    Some(JobKey::new(job.metadata.namespace.as_deref()?, job.metadata.name.as_deref()?))
}
