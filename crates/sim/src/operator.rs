//! One operator in the simulation: the real core, the real order of turns, the real looks, each as a future that is polled by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trainyard_operator::{
    Core, Eyes, JobKey, Look, Metrics, Moment, Planner, Turn, Turns, Watched, record, unread,
};
use trainyard_plan::{AgentView, NodeNotice, PodPhase, PodView, Settings, Snapshot, Tail, World as Roles};
use trainyard_progress::Progress;

use crate::check::Sight;
use crate::port::{Fate, Gate, SimPort, lock};
use crate::server::Child;

/// What all operators of a world share.
#[derive(Clone)]
pub(crate) struct House {
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) planner: Planner,
    pub(crate) clock: Arc<Mutex<Moment>>,
}

/// Something that is under way.
struct Task {
    /// The job that is being looked at; nothing for the recording of events.
    key: Option<JobKey>,
    future: Pin<Box<dyn Future<Output = Look>>>,
}

pub(crate) struct Operator {
    core: Arc<Mutex<Core>>,
    pub(crate) turns: Turns,
    port: SimPort,
    house: House,
    tasks: Vec<Task>,
    /// When there will be a turn, as far as was known when there was none.
    pub(crate) next: Option<Instant>,
    /// How much of each watch's journal has been seen.
    seen: [usize; Watched::ALL.len()],
    /// Of that, what was lost since the watch last started over: kind and number.
    missed: BTreeSet<(usize, usize)>,
    ears: Arc<Mutex<Ears>>,
    /// The nodes of which it knows that they will be taken away.
    announced: BTreeSet<String>,
}

/// Whose logs an operator follows, by job: the uids of pods.
#[derive(Default)]
struct Ears {
    programs: BTreeMap<JobKey, String>,
    agents: BTreeMap<JobKey, String>,
    /// Jobs of which something was heard.
    news: Vec<JobKey>,
}

impl Operator {
    /// A new process: it lists everything before it does anything.
    pub(crate) fn start(house: House, port: SimPort) -> Self {
        let port = SimPort { gate: Arc::new(Mutex::new(Gate::default())), ..port };
        let mut operator = Self {
            core: Arc::default(),
            turns: Turns::default(),
            port,
            house,
            tasks: Vec::new(),
            next: None,
            seen: [0; Watched::ALL.len()],
            missed: BTreeSet::new(),
            ears: Arc::default(),
            announced: BTreeSet::new(),
        };
        for kind in Watched::ALL {
            operator.relist(kind);
        }
        operator
    }

    /// The watch of this kind starts over with a full list.
    pub(crate) fn relist(&mut self, kind: Watched) {
        let (list, end) = {
            let server = lock(&self.port.server);
            (server.list(kind), server.journal(kind).len())
        };
        self.seen[kind as usize] = end;
        self.missed.retain(|(lost, _)| *lost != kind as usize);
        for sighting in list {
            self.see(sighting);
        }
    }

    /// How many events of a watch have not been delivered yet.
    pub(crate) fn behind(&self, kind: Watched) -> usize {
        lock(&self.port.server).journal(kind).len() - self.seen[kind as usize]
    }

    /// Whether any event has not been delivered yet.
    pub(crate) fn is_behind(&self) -> bool {
        let server = lock(&self.port.server);
        Watched::ALL.into_iter().any(|kind| server.journal(kind).len() > self.seen[kind as usize])
    }

    /// How many have been.
    pub(crate) fn seen(&self, kind: Watched) -> usize {
        self.seen[kind as usize]
    }

    /// The watch delivers its next event. Says whether there was one.
    pub(crate) fn deliver(&mut self, kind: Watched) -> bool {
        let next = lock(&self.port.server).journal(kind).get(self.seen[kind as usize]).cloned();
        let Some(sighting) = next else { return false };
        self.seen[kind as usize] += 1;
        self.see(sighting);
        true
    }

    /// It hears which nodes will be taken away. Says whether that is news.
    pub(crate) fn hear_notices(&mut self) -> bool {
        let announced = lock(&self.port.server).announced.clone();
        if announced == self.announced {
            return false;
        }
        let notice = |node: &String| NodeNotice { node: node.clone(), why: "spot".to_owned() };
        let about = lock(&self.core).hear_notices(announced.iter().map(notice).collect());
        self.announced = announced;
        for key in about {
            self.turns.add(key);
        }
        true
    }

    /// The last event comes once more.
    pub(crate) fn repeat(&mut self, kind: Watched) {
        let last = self.seen[kind as usize].checked_sub(1);
        let sighting = last.and_then(|last| lock(&self.port.server).journal(kind).get(last).cloned());
        if let Some(sighting) = sighting {
            self.see(sighting);
        }
    }

    /// The watch goes back to where it had told so much.
    pub(crate) fn go_back(&mut self, kind: Watched, told: usize) {
        self.seen[kind as usize] = told;
    }

    /// The next event never comes.
    pub(crate) fn drop_event(&mut self, kind: Watched) {
        self.missed.insert((kind as usize, self.seen[kind as usize]));
        self.seen[kind as usize] += 1;
    }

    /// What it acts from if it looks now.
    pub(crate) fn sight(&self, clock_set: usize) -> Sight {
        let wall = lock(&self.house.clock).wall;
        let ahead = wall.duration_since(lock(&self.port.server).now);
        Sight { seen: self.seen, missed: self.missed.clone(), wall, ahead, clock_set }
    }

    /// Whether its watches have told it of everything.
    pub(crate) fn misses_nothing(&self) -> bool {
        self.missed.is_empty()
    }

    fn see(&mut self, sighting: trainyard_operator::Sighting) {
        let about = lock(&self.core).see(sighting);
        for key in about {
            self.turns.add(key);
        }
    }

    fn now(&self) -> Instant {
        lock(&self.house.clock).instant
    }

    /// Takes the next turn, if there is one, and begins a look. Says what it is about.
    pub(crate) fn begin(&mut self) -> Option<JobKey> {
        let now = self.now();
        let (key, turn) = match self.turns.take(now) {
            Ok(turn) => turn,
            Err(next) => {
                self.next = next;
                return None;
            }
        };
        let reports = turn == Turn::Report || !self.turns.is_pressed(now);
        let (core, port, house) = (self.core.clone(), self.port.clone(), self.house.clone());
        let (about, ears) = (key.clone(), self.ears.clone());
        let future = async move {
            let eyes = Eyes {
                core: &core,
                port: &port,
                planner: house.planner,
                settings: &house.settings,
                metrics: &house.metrics,
                clock: || *lock(&house.clock),
            };
            let listen =
                |snapshot: &Snapshot| listen(&core, &port, &ears, &about, snapshot, *lock(&house.clock));
            eyes.look_at(&about, reports, listen).await
        };
        self.tasks.push(Task { key: Some(key.clone()), future: Box::pin(future) });
        self.poll();
        Some(key)
    }

    /// What waits at the gate.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.port.gate).waiting()
    }

    /// Lets one call through, and everything go on that waited for it.
    pub(crate) fn let_through(&mut self, index: usize, fate: Fate) -> String {
        let what = lock(&self.port.gate).open(index, fate);
        self.poll();
        what
    }

    /// Its end: of what it has asked for, this is on its way already, and will be done.
    pub(crate) fn break_down(&mut self, on_their_way: &mut dyn FnMut() -> bool) {
        lock(&self.port.gate).break_down(on_their_way);
        self.poll();
    }

    /// A pod says something. Whoever follows its log hears it. Says whether what its agent said was heard.
    pub(crate) fn hear(&mut self, job: &JobKey, pod: &str, now: Moment) -> bool {
        let (program, agent) = {
            let ears = lock(&self.ears);
            let follows = |who: &BTreeMap<JobKey, String>| who.get(job).is_some_and(|uid| uid == pod);
            (follows(&ears.programs), follows(&ears.agents))
        };
        let server = lock(&self.port.server);
        let mut core = lock(&self.core);
        if let Some(said) = server.said.get(pod).filter(|_| program) {
            core.hear_progress(job, pod, Some(at(said, now.wall)), now.instant);
        }
        if let Some(report) = server.reports.get(pod).filter(|_| agent) {
            let attempt = server.pods().find(|child| child.uid == pod).and_then(Child::attempt);
            core.hear_agent(job, AgentView { pod: pod.to_owned(), attempt, report: report.clone() });
        }
        drop((server, core));
        if program || agent {
            self.turns.add(job.clone());
        }
        agent
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> Option<usize> {
        self.port.actor.process()
    }

    /// Lets everything go on that can.
    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let mut ended = Vec::new();
        let mut index = 0;
        while index < self.tasks.len() {
            match self.tasks[index].future.as_mut().poll(&mut context) {
                Poll::Pending => index += 1,
                Poll::Ready(look) => ended.push((self.tasks.remove(index).key, look)),
            }
        }
        let now = self.now();
        for key in std::mem::take(&mut lock(&self.ears).news) {
            self.turns.add(key);
        }
        for (key, look) in ended {
            let Some(key) = key else { continue };
            self.turns.follow(&key, &look, now);
            self.turns.done(&key);
            if !look.events.is_empty() {
                let (port, events) = (self.port.clone(), look.events);
                let future = async move {
                    record(&port, events).await;
                    Look::default()
                };
                self.tasks.push(Task { key: None, future: Box::pin(future) });
                self.poll();
            }
        }
    }
}

/// Follows the logs of the leading pod, and reads the last lines of pods that failed, as the operator's driver does. Says how long to
/// wait with the plan, if something is heard that belongs into it.
fn listen(
    core: &Mutex<Core>,
    port: &SimPort,
    ears: &Mutex<Ears>,
    key: &JobKey,
    snapshot: &Snapshot,
    now: Moment,
) -> Option<Duration> {
    let job = &*snapshot.job;
    let (server, mut core, mut ears) = (lock(&port.server), lock(core), lock(ears));
    let name = Roles::of(job).leader();
    let leader = snapshot.own_pods().find(|pod| pod.name == name);
    let begun = |pod: &&PodView| matches!(pod.phase, PodPhase::Running | PodPhase::Succeeded);
    let is_followed = !job.is_over() && job.spec.reads_logs();
    if let Some(pod) = leader.filter(|pod| is_followed && !pod.deleting).filter(begun)
        && ears.programs.get(key) != Some(&pod.uid)
    {
        ears.programs.insert(key.clone(), pod.uid.clone());
        // Whoever begins to read a log does not know when its lines were written.
        let said = server.said.get(&pod.uid).map(|said| at(said, now.wall));
        if said.is_some() {
            ears.news.push(key.clone());
        }
        core.hear_progress(key, &pod.uid, said, now.instant);
    }
    if let Some(pod) = leader.filter(|pod| job.spec.checkpoints_on() && pod.agent_started)
        && ears.agents.get(key) != Some(&pod.uid)
    {
        ears.agents.insert(key.clone(), pod.uid.clone());
        if let Some(report) = server.reports.get(&pod.uid) {
            core.hear_agent(
                key,
                AgentView { pod: pod.uid.clone(), attempt: pod.attempt, report: report.clone() },
            );
            ears.news.push(key.clone());
        }
    }
    let unread = unread(snapshot);
    for pod in &unread {
        let text = Some(server.logs.get(&pod.uid).cloned().unwrap_or_default());
        core.hear_tail(key, Tail { pod: pod.uid.clone(), text });
    }
    (!unread.is_empty()).then_some(Duration::ZERO)
}

/// What was said, as heard at that time.
fn at(said: &Progress, now: Timestamp) -> Progress {
    let mut heard = said.clone();
    heard.updated = Some(now);
    heard
}
