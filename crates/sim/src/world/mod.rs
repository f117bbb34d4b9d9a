//! A world in which a history happens: the API server, one operator or two, a clock, and what users and the cluster do.
//!
//! Single-threaded and without chance of its own: the same calls give the same history.

mod cluster;
mod late;
mod taken;
mod time;
mod watches;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trainyard_api::{State, TrainingJob, TrainingJobStatus};
use trainyard_operator::{JobKey, Metrics, Moment, Planner};
use trainyard_plan::{Settings, plan};

use watches::{Again, Held};
pub use watches::{Delivered, Delivery};

use crate::check::{Checker, is_mendable};
use crate::mishap::Mishap;
use crate::operator::{House, Operator};
use crate::port::{Fate, Gate, SimPort, Twist, lock};
use crate::server::{Actor, Change, NAMESPACE, Server};

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

/// The same for all histories.
fn settings() -> Arc<Settings> {
    static SETTINGS: OnceLock<Arc<Settings>> = OnceLock::new();
    let settings = || Settings { agent_image: Some("trainyard:1".to_owned()), ..Settings::default() };
    SETTINGS.get_or_init(|| Arc::new(settings())).clone()
}

/// What may be wrong with the operators of a world, on purpose.
#[derive(Clone, Copy)]
pub struct Make {
    pub planner: Planner,
    pub twist: Option<Twist>,
    /// A broken rule whose complaint says this ends nothing: a test wants to see what comes of it.
    pub forgiven: Option<&'static str>,
}

impl Default for Make {
    fn default() -> Self {
        Self { planner: plan, twist: None, forgiven: None }
    }
}

/// Decides the fate of every call of an operator while the world comes to rest, by the number of the call.
pub type Fates<'a> = &'a mut dyn FnMut(usize) -> Option<Fate>;

pub struct World {
    server: Arc<Mutex<Server>>,
    pub(crate) operators: Vec<Operator>,
    house: House,
    twist: Option<Twist>,
    forgiven: Option<&'static str>,
    processes: usize,
    pub(crate) check: Checker,
    trace: Option<Vec<String>>,
    /// Calls of operators that were let through.
    calls: usize,
    /// How often operators changed a status.
    status_writes: usize,
    delivery: Delivery,
    /// Of calls that wait, the newest is served first.
    pub(crate) backwards: bool,
    /// How long to wait before the next thing happens.
    pub(crate) patience: Duration,
    /// How many things have happened.
    scene: usize,
    /// How many looks were taken.
    looks: usize,
    /// Events that came to operators.
    deliveries: Vec<Delivered>,
    /// The watch that goes back when all is quiet.
    again: Option<Again>,
    /// What operators recorded for users to read.
    recorded: Vec<String>,
    /// The operator dies when it has been answered so many calls.
    pub(crate) dies_after: Option<usize>,
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
        let settings = settings();
        let clock = Arc::new(Mutex::new(Moment { wall: dawn(), instant: origin() }));
        let house = House { settings, metrics: metrics(), planner: make.planner, clock };
        let mut world = Self {
            server: Arc::new(Mutex::new(Server::new(dawn()))),
            operators: Vec::new(),
            house,
            twist: make.twist,
            forgiven: make.forgiven,
            processes: 0,
            check: Checker::default(),
            trace: traced.then(Vec::new),
            calls: 0,
            status_writes: 0,
            delivery: Delivery::Prompt,
            backwards: false,
            patience: Duration::ZERO,
            scene: 0,
            looks: 0,
            deliveries: Vec::new(),
            recorded: Vec::new(),
            again: None,
            dies_after: None,
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
        self.deliveries.len()
    }

    /// The events that came, in order.
    pub fn deliveries(&self) -> &[Delivered] {
        &self.deliveries
    }

    /// How many things have happened.
    pub fn scene(&self) -> usize {
        self.scene
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
            if let Change::Job(before, after) = &change
                && by.is_operator()
                && before.status != after.status
            {
                self.status_writes += 1;
            }
            if let Change::Recorded(event) = &change {
                self.recorded.push(format!("{}: {}", event.reason, event.message));
            }
            let is_forgiven = |complaint: &String| self.forgiven.is_some_and(|part| complaint.contains(part));
            if let Some(complaint) = complaint.err().filter(|complaint| !is_forgiven(complaint)) {
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

    /// Another operator beside those that are there.
    pub fn start_rival(&mut self) {
        self.meets(Mishap::Rival);
        self.start_operator();
    }

    /// This operator dies, whatever it is doing.
    pub fn kill_operator(&mut self, index: usize) {
        self.tell(|| format!("operator at {index} dies"));
        let process = self.operators[index].process();
        self.check.excuse(process);
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
        if fate != Fate::Served {
            self.meets(Mishap::Call(fate));
            let process = self.operators[operator].process();
            self.check.excuse(process);
        }
        let what = self.operators[operator].let_through(index, fate);
        self.tell(|| match fate {
            Fate::Served => format!("  {what}"),
            fate => format!("  {what}: {fate:?}"),
        });
        self.check.unanswered = fate == Fate::AnswerLost;
        self.witness();
        self.check.unanswered = false;
        if self.late_after.is_some() && self.lands_at.is_none() && self.adrift() > 0 {
            self.lands_at = self.late_after.map(|steps| self.calls + steps);
        }
    }

    /// Begins a look, if somebody's turn has come.
    pub(crate) fn begin(&mut self, operator: usize) -> bool {
        let Some(key) = self.operators[operator].begin() else { return false };
        if let Some(process) = self.operators[operator].process() {
            let sight = self.operators[operator].sight(self.check.clock_set);
            self.check.looks(process, key.clone(), sight);
        }
        self.tell(|| format!("looks at {key}"));
        self.witness();
        self.looks += 1;
        true
    }

    /// How often operators made and removed what.
    pub fn tally(&self) -> crate::check::Tally {
        self.check.tally.clone()
    }

    /// How often operators changed a status.
    pub fn status_writes(&self) -> usize {
        self.status_writes
    }

    /// What operators recorded for users to read, in order.
    pub fn recorded(&self) -> &[String] {
        &self.recorded
    }

    /// What went wrong so far, and what it came to.
    pub fn mishaps(&self) -> &BTreeSet<Mishap> {
        &self.check.mishaps
    }

    pub(crate) fn meets(&mut self, mishap: Mishap) {
        self.check.mishaps.insert(mishap);
    }

    pub fn status(&self, name: &str) -> Option<TrainingJobStatus> {
        self.server().job(name)?.status.clone()
    }

    pub fn state(&self, name: &str) -> Option<State> {
        self.server().job(name)?.status.as_ref()?.state
    }

    /// It has ended for good, or is gone. One that cannot be read, or is invalid, goes on when somebody mends it.
    pub fn is_over(&self, name: &str) -> bool {
        let server = self.server();
        let is_over = |status: &TrainingJobStatus| status.is_terminal() && !is_mendable(status);
        server.job(name).is_none_or(|job| job.status.as_ref().is_some_and(is_over))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.server().job(name).is_some()
    }
}

pub(crate) fn key(job: &TrainingJob) -> Option<JobKey> {
    Some(JobKey::new(job.metadata.namespace.as_deref()?, job.metadata.name.as_deref()?))
}
