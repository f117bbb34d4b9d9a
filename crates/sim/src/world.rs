//! A world in which a history happens: the API server, one operator or two, a clock, and what users and the cluster do.
//!
//! Single-threaded and without chance of its own: the same calls give the same history.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use trainyard_api::checkpoint::AGENT_CONTAINER;
use trainyard_api::{
    AgentReport, CheckpointStatus, State, TrainingJob, TrainingJobSpec, TrainingJobStatus, names,
};
use trainyard_operator::{JobKey, Metrics, Moment, Planner, Watched};
use trainyard_plan::{Settings, TargetKind, World as Roles, plan};
use trainyard_progress::Reading;

use crate::check::Checker;
use crate::operator::{House, Operator};
use crate::port::{Fate, Gate, SimPort, Twist, lock};
use crate::server::{Actor, Child, Deed, NAMESPACE, Server};

/// More rounds than anything needs that comes to rest at all.
const ROUNDS: usize = 400;

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

/// What happens to the events of watches on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    #[default]
    Prompt,
    /// The event of this number never comes; the watch starts over when everything is at rest.
    Lost(usize),
    /// It comes twice.
    Twice(usize),
    /// From that number on, events (of one kind or all) wait until so many more have gathered, or nothing else happens. Meanwhile
    /// the operator looks at what it sees.
    Late { from: usize, depth: usize, kind: Option<Watched> },
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
    /// Events of this kind, or all, wait until the journals are so long.
    held: Option<(Option<Watched>, usize)>,
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
            held: None,
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

    /// It dies, and another takes its place.
    pub fn replace_operator(&mut self, index: usize) {
        self.kill_operator(index);
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
    }

    /// Begins a look, if somebody's turn has come.
    pub(crate) fn begin(&mut self, operator: usize) -> bool {
        let Some(key) = self.operators[operator].begin() else { return false };
        self.tell(|| format!("looks at {key}"));
        self.witness();
        true
    }

    pub(crate) fn deliver(&mut self, operator: usize, kind: Watched) -> bool {
        self.operators[operator].deliver(kind)
    }

    /// How many events of such kinds there have been.
    fn gathered(&self, kind: Option<Watched>) -> usize {
        let server = self.server();
        let kinds = Watched::ALL.into_iter().filter(|one| kind.is_none_or(|kind| kind == *one));
        kinds.map(|kind| server.journal(kind).len()).sum()
    }

    /// Delivers everything that may be delivered. Says whether that was anything.
    fn deliver_all(&mut self, operator: usize) -> bool {
        let mut any = false;
        for kind in Watched::ALL {
            while self.operators[operator].behind(kind) > 0 {
                if let Delivery::Late { from, depth, kind: held } = self.delivery
                    && self.delivered + 1 == from
                    && held.is_none_or(|held| held == kind)
                {
                    self.delivery = Delivery::Prompt;
                    let enough = self.gathered(held) + depth;
                    self.tell(|| format!("events of {held:?} are late"));
                    self.held = Some((held, enough));
                }
                if let Some((held, enough)) = self.held
                    && held.is_none_or(|held| held == kind)
                {
                    if self.gathered(held) < enough {
                        break;
                    }
                    self.held = None;
                }
                self.delivered += 1;
                any = true;
                match self.delivery {
                    Delivery::Lost(at) if at == self.delivered => {
                        self.tell(|| format!("an event of {} is lost", kind.plural()));
                        self.operators[operator].drop_event(kind);
                    }
                    Delivery::Twice(at) if at == self.delivered => {
                        self.deliver(operator, kind);
                        self.operators[operator].repeat(kind);
                    }
                    _ => {
                        self.deliver(operator, kind);
                    }
                }
            }
        }
        if self.held.is_some() && any {
            self.look_at_all();
        }
        any
    }

    /// Everybody gets a turn, as if a timer had been set.
    fn look_at_all(&mut self) {
        let keys: Vec<JobKey> = self.server().jobs().filter_map(|job| key(job)).collect();
        for operator in &mut self.operators {
            for key in &keys {
                operator.turns.add(key.clone());
            }
        }
    }

    /// Watches start over, as they do when they break.
    pub fn resync(&mut self) {
        for operator in &mut self.operators {
            for kind in Watched::ALL {
                operator.relist(kind);
            }
        }
    }

    /// Everything that operators can do without the time passing. All events are delivered.
    pub fn settle(&mut self) {
        self.settle_with(&mut |_| Some(Fate::Served));
    }

    /// The same, with the fate of every call as told; none means that the operator dies before it.
    pub fn settle_with(&mut self, fates: Fates<'_>) {
        for _ in 0..ROUNDS {
            if !self.round(fates) && self.held.take().is_none() {
                // What two did side by side has been put in order.
                self.check.rivals &= self.operators.len() > 1;
                return;
            }
        }
        // Two operators that remember different refusals may go on for ever; when one of them dies, there is rest.
        if self.operators.len() == 1 {
            self.fail("no rest");
        }
    }

    /// One round of every operator: deliver what may be delivered, look, write. Says whether anything happened.
    fn round(&mut self, fates: Fates<'_>) -> bool {
        let mut busy = false;
        let mut operator = 0;
        while operator < self.operators.len() {
            busy |= self.deliver_all(operator);
            if self.begin(operator) {
                busy = true;
            }
            if self.operators[operator].waiting() > 0 {
                busy = true;
                let Some(fate) = fates(self.calls + 1) else {
                    self.replace_operator(operator);
                    continue;
                };
                let index = if self.backwards { self.operators[operator].waiting() - 1 } else { 0 };
                self.let_through(operator, index, fate);
            }
            operator += 1;
        }
        busy
    }

    pub(crate) fn instant(&self) -> Instant {
        lock(&self.house.clock).instant
    }

    /// When the next timer of an operator is due.
    fn next_timer(&self) -> Option<Instant> {
        let now = lock(&self.house.clock).instant;
        self.operators.iter().filter_map(|operator| operator.next).min().map(|at| at.max(now))
    }

    /// Time passes, and nobody does anything meanwhile.
    pub fn skip(&mut self, time: Duration) {
        let mut clock = lock(&self.house.clock);
        clock.instant += time;
        let passed = SignedDuration::try_from(time).unwrap_or_default();
        clock.wall += passed;
        drop(clock);
        self.server().now += passed;
    }

    /// Somebody sets the clock of the operators' machine.
    pub fn jump(&mut self, by: SignedDuration) {
        self.tell(|| format!("the clock of the operators is set by {} s", by.as_secs()));
        lock(&self.house.clock).wall += by;
        self.check.clock_set = true;
    }

    /// Time passes, and whoever waits for a moment gets it.
    pub fn pass(&mut self, time: Duration) {
        self.pass_with(time, &mut |_| Some(Fate::Served));
    }

    pub fn pass_with(&mut self, time: Duration, fates: Fates<'_>) {
        let end = lock(&self.house.clock).instant + time;
        for _ in 0..ROUNDS {
            self.settle_with(fates);
            let now = lock(&self.house.clock).instant;
            let Some(at) = self.next_timer().filter(|at| *at <= end) else {
                self.skip(end - now);
                return self.settle_with(fates);
            };
            self.skip(at - now);
        }
        self.fail("time does not pass: a busy loop");
    }

    /// Time passes until `is_over` says so of the number of the next call, at most so long.
    pub(crate) fn pass_until(&mut self, time: Duration, is_over: &mut dyn FnMut(usize) -> bool) {
        let end = lock(&self.house.clock).instant + time;
        for _ in 0..ROUNDS {
            if is_over(self.calls + 1) {
                return;
            }
            if self.round(&mut |_| Some(Fate::Served)) {
                continue;
            }
            let now = lock(&self.house.clock).instant;
            match self.next_timer().filter(|at| *at <= end) {
                Some(at) => self.skip(at - now),
                None => return self.skip(end - now),
            }
        }
    }

    /// How often operators made and removed what.
    pub fn tally(&self) -> crate::check::Tally {
        self.check.tally.clone()
    }

    /// Goes on until nothing happens any more, however long that takes. Pods that were told to go do go.
    pub fn run_out(&mut self) {
        for _ in 0..ROUNDS {
            self.settle();
            self.collect();
            if self.release() {
                continue;
            }
            let now = lock(&self.house.clock).instant;
            match self.next_timer() {
                Some(at) => self.skip(at - now),
                None => return,
            }
        }
        self.fail("never comes to rest");
    }

    /// When nothing changes, the API server is not asked for anything, however often the operators look.
    pub fn expect_quiet(&mut self) {
        let before = (self.server().version(), self.calls);
        self.look_at_all();
        self.settle();
        if before != (self.server().version(), self.calls) {
            self.fail("something is written, or asked for, although nothing has changed");
        }
    }

    // What users and the cluster do.

    pub fn submit(&mut self, name: &str, spec: TrainingJobSpec) {
        self.tell(|| format!("user submits {name}"));
        self.server().submit(name, spec);
        self.witness();
    }

    pub fn edit(&mut self, name: &str, change: impl FnOnce(&mut TrainingJobSpec)) {
        self.tell(|| format!("user edits {name}"));
        self.server().edit(name, change);
        self.witness();
    }

    /// `kubectl delete`, without waiting.
    pub fn delete_job(&mut self, name: &str) {
        self.tell(|| format!("user deletes {name}"));
        // A job that is gone already is gone.
        let _gone = self.server().delete_job(Actor::User, name, None);
        self.server().logs(|| Deed::UserDeletes(name.to_owned()));
        self.witness();
    }

    pub fn remove_status(&mut self, name: &str) {
        self.tell(|| format!("user removes the status of {name}"));
        self.server().remove_status(name);
        self.check.forget_status(name);
        self.witness();
    }

    pub fn set_quota(&mut self, pods: Option<usize>) {
        self.tell(|| format!("quota: {pods:?}"));
        self.server().quota = pods;
        self.server().logs(|| Deed::Quota(pods));
    }

    /// Somebody else's object under this name.
    pub fn plant(&mut self, kind: TargetKind, name: &str, value: Value) {
        self.tell(|| format!("user makes {} {name}", kind.as_str()));
        self.server().plant(Actor::User, kind, name, value);
        self.witness();
    }

    pub fn remove(&mut self, kind: TargetKind, name: &str) {
        self.tell(|| format!("user deletes {} {name}", kind.as_str()));
        self.server().remove(Actor::User, kind, name, None);
        self.server().logs(|| Deed::Remove(kind, name.to_owned(), None));
        self.witness();
    }

    pub fn change(&mut self, kind: TargetKind, name: &str, change: impl FnOnce(&mut Value)) {
        self.tell(|| format!("user changes {} {name}", kind.as_str()));
        self.server().change(Actor::User, kind, name, change);
        self.witness();
    }

    /// The garbage collector runs.
    pub fn collect(&mut self) {
        self.server().collect();
        self.witness();
    }

    /// Names of all pods.
    pub fn pod_names(&self) -> Vec<String> {
        self.server().all(TargetKind::Pod).keys().cloned().collect()
    }

    fn pod(&mut self, name: &str, why: &str, change: impl FnOnce(&mut Value)) {
        self.tell(|| format!("cluster: {name} {why}"));
        self.server().change(Actor::Cluster, TargetKind::Pod, name, change);
        self.witness();
    }

    fn has_ended(&self, name: &str) -> bool {
        self.server().all(TargetKind::Pod).get(name).is_none_or(Child::has_ended)
    }

    /// The pod is on a node of its own and its containers run.
    pub fn run(&mut self, name: &str) {
        if self.has_ended(name) {
            return;
        }
        let led = self.led_by(name);
        if let Some((job, uid)) = &led
            && self.is_held(job, name, uid)
        {
            return;
        }
        let now = self.now();
        self.pod(name, "runs", |pod| {
            if pod["spec"].get("nodeName").is_none() {
                pod["spec"]["nodeName"] = format!("node-{name}").into();
            }
            pod["status"] = json!({
                "phase": "Running",
                "containerStatuses": [{"name": names::CONTAINER, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": {"running": {"startedAt": now.to_string()}}}],
            });
            if led.is_some() {
                pod["status"]["initContainerStatuses"] = agent_runs();
            }
        });
        if let Some((job, uid)) = led {
            let checkpoint = self.server().stored.get(&job).cloned();
            self.report(&job, &uid, AgentReport { checkpoint, ..AgentReport::default() });
        }
    }

    /// The job that this pod leads, if an agent is beside its program, and the pod's uid.
    fn led_by(&self, name: &str) -> Option<(String, String)> {
        let server = self.server();
        let pod = server.all(TargetKind::Pod).get(name).filter(|pod| pod.ours && !pod.is_deleting())?;
        let job = server.jobs().find(|job| job.metadata.uid.as_deref() == pod.controller())?;
        let leads = job.spec.checkpoints_on() && Roles::of(job).leader() == name;
        leads.then(|| (job.metadata.name.clone().unwrap_or_default(), pod.uid.clone()))
    }

    /// The agent does not let the program start that was told to go on from something else than what is there.
    fn is_held(&mut self, job: &str, pod: &str, uid: &str) -> bool {
        let (told, stored, resumes) = {
            let server = self.server();
            let told = server.all(TargetKind::Pod).get(pod).and_then(|pod| pod.resume.clone());
            let resumes = server.job(job).is_some_and(|job| job.spec.resumes());
            (told, server.stored.get(job).cloned(), resumes)
        };
        let has_begun =
            self.server().all(TargetKind::Pod).get(pod).is_some_and(|pod| pod.phase() == "Running");
        if has_begun || !resumes || told.as_deref() == stored.as_ref().map(|stored| stored.path.as_str()) {
            return false;
        }
        self.pod(pod, "is held by its agent", |pod| {
            pod["spec"]["nodeName"] =
                format!("node-{}", pod["metadata"]["name"].as_str().unwrap_or_default()).into();
            pod["status"]["initContainerStatuses"] = agent_runs();
        });
        self.report(
            job,
            uid,
            AgentReport { checkpoint: stored, resume_differs: true, ..AgentReport::default() },
        );
        true
    }

    /// The agent in this pod says something, and whoever listens hears it.
    fn report(&mut self, job: &str, uid: &str, report: AgentReport) {
        self.tell(|| format!("agent of {job}: {:?}", report.checkpoint.as_ref().map(|newest| &newest.path)));
        let about = self.server().job(job).and_then(|job| job.metadata.uid.clone()).unwrap_or_default();
        self.check.hear(&about, &report);
        self.server().reports.insert(uid.to_owned(), report);
        self.heard(job, uid);
    }

    fn heard(&mut self, job: &str, uid: &str) {
        let (key, now) = (JobKey::new(NAMESPACE, job), *lock(&self.house.clock));
        for operator in &mut self.operators {
            operator.hear(&key, uid, now);
        }
    }

    /// The leading pod of a job, while it runs.
    fn leader(&self, job: &str) -> Option<String> {
        let server = self.server();
        let job = server.job(job)?;
        let pod = server.all(TargetKind::Pod).get(&Roles::of(job).leader())?;
        let runs = pod.phase() == "Running" && pod.controller() == job.metadata.uid.as_deref();
        (runs && !pod.is_deleting()).then(|| pod.uid.clone())
    }

    /// The leading program of a job says that it has come to the next epoch.
    pub fn progress(&mut self, job: &str) {
        let Some(uid) = self.leader(job) else { return };
        let now = self.now();
        self.tell(|| format!("program of {job} goes on"));
        {
            let mut server = self.server();
            let said = server.said.entry(uid.clone()).or_default();
            let epoch = said.epoch.unwrap_or_default() + 1.0;
            said.take(Reading { epoch: Some(epoch), epochs: Some(100.0), ..Reading::default() }, now);
        }
        self.check.said.insert(uid.clone(), now);
        self.heard(job, &uid);
    }

    /// The leading program of a job saves a checkpoint, and the agent beside it says so.
    pub fn save(&mut self, job: &str) {
        let Some(uid) = self.leader(job) else { return };
        if !self.server().job(job).is_some_and(|job| job.spec.checkpoints_on()) {
            return;
        }
        let checkpoint = {
            let mut server = self.server();
            let step = server.stored.get(job).and_then(|stored| stored.step).unwrap_or_default() + 10;
            let checkpoint = CheckpointStatus {
                path: format!("/checkpoints/step-{step}"),
                step: Some(step),
                ..CheckpointStatus::default()
            };
            server.stored.insert(job.to_owned(), checkpoint.clone());
            checkpoint
        };
        self.report(job, &uid, AgentReport { checkpoint: Some(checkpoint), ..AgentReport::default() });
    }

    pub fn run_all(&mut self) {
        for pod in self.pod_names() {
            self.run(&pod);
        }
    }

    fn end(&mut self, name: &str, why: &str, code: i32, reason: &str, disruption: Option<&str>) {
        if self.has_ended(name) {
            return;
        }
        let now = Timestamp::from_second(self.now().as_second()).unwrap_or_default();
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        self.pod(name, why, |pod| {
            if pod["spec"].get("nodeName").is_none() {
                pod["spec"]["nodeName"] = format!("node-{name}").into();
            }
            pod["status"] = json!({
                "phase": phase,
                "containerStatuses": [{"name": names::CONTAINER, "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": {"terminated": {
                        "exitCode": code, "reason": reason, "finishedAt": now.to_string(),
                    }}}],
            });
            if let Some(reason) = disruption {
                pod["status"]["conditions"] =
                    json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
            }
        });
    }

    pub fn succeed(&mut self, name: &str) {
        self.end(name, "succeeds", 0, "Completed", None);
    }

    pub fn succeed_all(&mut self) {
        for pod in self.pod_names() {
            self.succeed(&pod);
        }
    }

    pub fn fail_pod(&mut self, name: &str, code: i32) {
        self.fail_saying(name, code, "");
    }

    /// It fails, and this is the end of its log.
    pub fn fail_saying(&mut self, name: &str, code: i32, words: &str) {
        let uid = self.server().all(TargetKind::Pod).get(name).map(|pod| pod.uid.clone());
        if let Some(uid) = uid.filter(|_| !words.is_empty() && !self.has_ended(name)) {
            self.server().logs.insert(uid, words.to_owned());
        }
        self.end(name, &format!("fails with {code}"), code, "Error", None);
    }

    pub fn evict(&mut self, name: &str) {
        self.end(name, "is evicted", 137, "Error", Some("EvictionByEvictionAPI"));
    }

    pub fn cannot_be_placed(&mut self, name: &str) {
        let pending = self.server().all(TargetKind::Pod).get(name).is_some_and(|pod| pod.node().is_none());
        if pending && !self.has_ended(name) {
            self.pod(name, "cannot be placed", |pod| {
                pod["status"]["conditions"] = json!([{
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/3 nodes are available",
                }]);
            });
        }
    }

    /// The node of this pod is gone: the pod is marked, and only force can remove it, or the node's removal.
    pub fn lose_node(&mut self, name: &str) {
        let node = self.server().all(TargetKind::Pod).get(name).and_then(|pod| pod.node().map(str::to_owned));
        let Some(node) = node.filter(|_| !self.has_ended(name)) else { return };
        self.server().dead.insert(node);
        self.pod(name, "loses its node", |pod| {
            pod["status"]["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            }]);
        });
        self.server().remove(Actor::Cluster, TargetKind::Pod, name, None);
        self.server().logs(|| Deed::Remove(TargetKind::Pod, name.to_owned(), None));
        self.witness();
    }

    /// A pod is gone without a trace.
    pub fn lose_pod(&mut self, name: &str) {
        self.tell(|| format!("cluster: {name} is gone"));
        self.server().remove(Actor::Cluster, TargetKind::Pod, name, Some(0));
        self.server().logs(|| Deed::Remove(TargetKind::Pod, name.to_owned(), Some(0)));
        self.witness();
    }

    /// Nodes are well again.
    pub fn heal_nodes(&mut self) {
        self.tell(|| "cluster: all nodes answer".to_owned());
        self.server().dead.clear();
    }

    /// Pods that are marked for deletion are gone now, unless their node is dead. Says whether there were any.
    pub fn release(&mut self) -> bool {
        let going: Vec<String> = {
            let server = self.server();
            let alive = |pod: &Child| pod.node().is_none_or(|node| !server.dead.contains(node));
            let going = server.pods().filter(|pod| pod.is_deleting() && alive(pod));
            going.map(|pod| pod.name().to_owned()).collect()
        };
        for name in &going {
            self.lose_pod(name);
        }
        !going.is_empty()
    }

    // What one sees.

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

/// The agent in a pod has been started.
fn agent_runs() -> Value {
    json!([{"name": AGENT_CONTAINER, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}])
}

pub(crate) fn key(job: &TrainingJob) -> Option<JobKey> {
    Some(JobKey::new(job.metadata.namespace.as_deref()?, job.metadata.name.as_deref()?))
}
