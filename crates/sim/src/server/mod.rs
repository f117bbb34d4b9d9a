//! A small model of the API server: exactly what the operator can notice of it, for the kinds that the operator touches, at the
//! speed of a map. `tests/embedded.rs` holds it to the embedded API server, answer by answer.

mod body;
mod child;
mod cluster;
mod past;
mod store;
mod verbs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use body::Body;
pub use child::Child;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::Value;
use trainyard_api::{AgentReport, CheckpointStatus, TrainingJob, TrainingJobSpec};
use trainyard_operator::{JobRef, NewEvent, Refusal, Sighting, Watched, Written};
use trainyard_plan::{NewObject, NodeState, Target, TargetKind};
use trainyard_progress::Progress;

use self::past::Past;
use self::store::parse;
use crate::wire::Late;

/// The one namespace.
pub const NAMESPACE: &str = "ml";

/// Who changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    Operator(usize),
    /// The same, in a write that lands when it does not wait for it any more.
    Late(usize),
    User,
    /// Scheduler, kubelets, garbage collector.
    Cluster,
}

/// What happened to the state, in order, for whoever checks it.
#[derive(Clone, Debug)]
pub enum Change {
    Created(TargetKind, String),
    /// Marked for deletion.
    Marked(TargetKind, String),
    /// It was this, and is no more.
    Removed(TargetKind, Box<Child>),
    Changed(TargetKind, String),
    /// A budget for evictions was made, or removed.
    BudgetMade(String),
    BudgetGone(String),
    JobCreated(String),
    /// A job, as it was and as it is now.
    Job(Arc<TrainingJob>, Arc<TrainingJob>),
    JobGone(Arc<TrainingJob>),
    Recorded(NewEvent),
    /// Something was written for one job, and another one was changed, in words.
    Astray(String),
}

/// What somebody asks for, whatever comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Create,
    Delete,
}

/// How often it was asked for an object of this kind and name that it be made, and that it be removed.
pub type Asks = BTreeMap<(&'static str, String), [usize; 2]>;

/// What was done to the server, so that it can be done to another one.
#[derive(Clone, Debug)]
pub enum Deed {
    /// What was to be made, and the uid of what has that name now.
    Create(Box<NewObject>, String, Result<Written, Refusal>),
    Delete(Target, Option<u32>, Result<(), Refusal>),
    Patch(Target, Value, Result<Written, Refusal>),
    PatchJob(JobRef, Value, Result<Written, Refusal>),
    PatchStatus(JobRef, Value, Result<Written, Refusal>),
    DeleteJob(JobRef, Result<(), Refusal>),
    Budget(JobRef, Box<PodDisruptionBudget>, Result<(), Refusal>),
    RemoveBudget(JobRef, String, Result<(), Refusal>),
    Record(NewEvent, Result<(), Refusal>),
    /// Somebody reads the metadata of a job, as it is.
    ReadJob(JobRef, Box<Result<ObjectMeta, Refusal>>),
    /// The same of another object, as it is or, if old reads are wanted, as it was at that version.
    Read(TargetKind, String, Option<u64>, Box<Result<ObjectMeta, Refusal>>),
    /// The metadata of all pods, of no more than so many, likewise.
    ReadPods(Option<u64>, usize, Result<Option<Vec<ObjectMeta>>, Refusal>),
    Submit(String, Box<TrainingJobSpec>),
    Edit(String, Box<TrainingJobSpec>),
    UserDeletes(String),
    RemoveStatus(String),
    /// An object as it was (nothing, if it is new) and as it is now.
    Change(TargetKind, String, Value, Value),
    Remove(TargetKind, String, Option<i64>),
    Quota(Option<usize>),
}

/// A deed, and what there was when it was done.
#[derive(Clone, Debug)]
pub struct Logged {
    pub deed: Deed,
    /// What each job was called by then: its name, uid and version.
    pub jobs: Vec<[String; 3]>,
    /// Every object by kind and name, and whether an operator made it.
    pub state: BTreeMap<(&'static str, String), (bool, Value)>,
}

/// What a watch told: of which kind, whether it is gone, and its metadata.
pub type Told = (Watched, bool, Arc<ObjectMeta>);

/// The API server, its controllers as far as they matter, and everything that it remembers.
#[expect(clippy::struct_excessive_bools, reason = "each is switched for itself")]
pub struct Server {
    pub now: Timestamp,
    version: u64,
    uids: u64,
    jobs: BTreeMap<String, Arc<TrainingJob>>,
    children: [BTreeMap<String, Child>; 4],
    events: BTreeSet<String>,
    /// Budgets for evictions, by name. Nobody watches them.
    budgets: BTreeMap<String, PodDisruptionBudget>,
    /// The step that the program of each pod has saved last, by uid.
    pub saved: BTreeMap<String, i64>,
    /// Those of them that are as somebody wanted who did not wait for it any more.
    late_budgets: BTreeSet<String>,
    /// Why budgets cannot be written just now.
    pub no_budgets: Option<&'static str>,
    /// What watches were told, by kind.
    journal: [Vec<Sighting>; 5],
    /// Which of the events of pods tell that one has ended, or is gone.
    ends: Vec<usize>,
    /// No more pods than this that have not ended.
    pub quota: Option<usize>,
    /// Off: dependents of what is gone stay until `collect` is called.
    pub collects_at_once: bool,
    /// What the programs of pods said last about how far they are, what their agents said about checkpoints, and the last lines of
    /// their logs, by uid.
    pub said: BTreeMap<String, Progress>,
    pub reports: BTreeMap<String, AgentReport>,
    pub logs: BTreeMap<String, String>,
    /// The newest checkpoint in the storage of each job, by name: it outlives the job.
    pub stored: BTreeMap<String, CheckpointStatus>,
    /// Jobs that operators cannot read, by uid: a newer version of the CRD knows more.
    pub unreadable: BTreeSet<String>,
    /// Nodes that do not answer any more.
    pub dead: BTreeSet<String>,
    /// Those of them that are not even known any more.
    pub removed: BTreeSet<String>,
    /// Operators may not look at nodes.
    pub hides_nodes: bool,
    /// What each process was last answered about each node.
    pub(crate) answers: BTreeMap<(usize, String), NodeState>,
    /// Nodes that are about to be taken away.
    pub announced: BTreeSet<String>,
    /// Statuses go through JSON and back, as on the wire. It takes most of the time of a history, so not every one does.
    pub speaks_json: bool,
    /// What objects were made of is kept.
    pub keeps_made: bool,
    /// Everything that was done, if somebody wants to know.
    pub log: Option<Vec<Logged>>,
    /// And what watches told of it, likewise.
    pub told: Vec<Told>,
    /// Writes that land later.
    pub(crate) wire: Vec<Late>,
    /// Who asks for a version or a newer one is told of that version. Off: of the newest.
    pub reads_old: bool,
    past: Vec<Past>,
    /// What operators ask for is counted.
    pub asks: Option<Asks>,
    changes: Vec<(Actor, Change)>,
}

impl Actor {
    pub(crate) fn late(self) -> Self {
        match self {
            Actor::Operator(number) => Actor::Late(number),
            other => other,
        }
    }

    /// An operator, dead or alive.
    pub fn is_operator(self) -> bool {
        self.process().is_some()
    }

    /// The number of the operator's process.
    pub fn process(self) -> Option<usize> {
        match self {
            Actor::Operator(number) | Actor::Late(number) => Some(number),
            Actor::User | Actor::Cluster => None,
        }
    }
}

const KINDS: [TargetKind; 4] =
    [TargetKind::Pod, TargetKind::Service, TargetKind::ConfigMap, TargetKind::Claim];

/// The kind that the watch of such objects is for.
pub(crate) fn watched(kind: TargetKind) -> Watched {
    match kind {
        TargetKind::Pod => Watched::Pods,
        TargetKind::Service => Watched::Services,
        TargetKind::ConfigMap => Watched::ConfigMaps,
        TargetKind::Claim => Watched::Claims,
    }
}

impl Server {
    pub fn new(now: Timestamp) -> Self {
        Self {
            now,
            version: 1000,
            uids: 0,
            jobs: BTreeMap::new(),
            children: Default::default(),
            events: BTreeSet::new(),
            budgets: BTreeMap::new(),
            saved: BTreeMap::new(),
            late_budgets: BTreeSet::new(),
            no_budgets: None,
            journal: Default::default(),
            ends: Vec::new(),
            quota: None,
            collects_at_once: true,
            said: BTreeMap::new(),
            reports: BTreeMap::new(),
            logs: BTreeMap::new(),
            stored: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            dead: BTreeSet::new(),
            removed: BTreeSet::new(),
            hides_nodes: false,
            answers: BTreeMap::new(),
            announced: BTreeSet::new(),
            speaks_json: true,
            keeps_made: false,
            log: None,
            told: Vec::new(),
            wire: Vec::new(),
            reads_old: false,
            past: Vec::new(),
            asks: None,
            changes: Vec::new(),
        }
    }

    // What one sees.

    pub fn job(&self, name: &str) -> Option<&Arc<TrainingJob>> {
        self.jobs.get(name)
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Arc<TrainingJob>> {
        self.jobs.values()
    }

    pub fn all(&self, kind: TargetKind) -> &BTreeMap<String, Child> {
        &self.children[kind as usize]
    }

    pub fn pods(&self) -> impl Iterator<Item = &Child> {
        self.all(TargetKind::Pod).values()
    }

    pub fn children(&self) -> impl Iterator<Item = (TargetKind, &Child)> {
        KINDS.into_iter().flat_map(|kind| self.all(kind).values().map(move |child| (kind, child)))
    }

    /// Names of all events that were recorded.
    pub fn events(&self) -> &BTreeSet<String> {
        &self.events
    }

    pub fn budgets(&self) -> &BTreeMap<String, PodDisruptionBudget> {
        &self.budgets
    }

    /// What this budget says was asked for by somebody who did not wait for it any more. Nobody watches budgets, so it stays.
    pub fn is_late_budget(&self, name: &str) -> bool {
        self.late_budgets.contains(name)
    }

    /// The events of a watch, from the beginning.
    pub fn journal(&self, kind: Watched) -> &[Sighting] {
        &self.journal[kind as usize]
    }

    /// Whether this event tells that a pod has ended, or is gone.
    pub(crate) fn tells_of_end(&self, kind: Watched, event: usize) -> bool {
        kind == Watched::Pods && self.ends.contains(&event)
    }

    /// What a watch that starts over is told.
    pub fn list(&self, kind: Watched) -> Vec<Sighting> {
        let target = KINDS.into_iter().find(|target| watched(*target) == kind);
        let mut list = Vec::new();
        match target {
            None => {
                list.push(Sighting::job(Event::Init));
                list.extend(self.jobs().map(|job| self.sighted(job, Event::InitApply(()))));
                list.push(Sighting::job(Event::InitDone));
            }
            Some(target) => {
                let selected = self.all(target).values().filter(|child| child.is_selected());
                list.push(parse(kind, Event::Init));
                list.extend(selected.map(|child| self.journal[kind as usize][child.told].listed()));
                list.push(parse(kind, Event::InitDone));
            }
        }
        list
    }

    /// Notes what was done.
    pub(crate) fn logs(&mut self, deed: impl FnOnce() -> Deed) {
        if self.log.is_none() {
            return;
        }
        let jobs = self.jobs().map(|job| {
            let metadata = &job.metadata;
            [&metadata.name, &metadata.uid, &metadata.resource_version]
                .map(|it| it.clone().unwrap_or_default())
        });
        let jobs = jobs.collect();
        let state = self.state();
        if let Some(log) = &mut self.log {
            log.push(Logged { deed: deed(), jobs, state });
        }
    }

    /// Notes what a watch told.
    fn tells(&mut self, kind: Watched, gone: bool, metadata: impl FnOnce() -> Arc<ObjectMeta>) {
        if self.log.is_some() {
            self.told.push((kind, gone, metadata()));
        }
    }

    fn state(&self) -> BTreeMap<(&'static str, String), (bool, Value)> {
        let children = self.children().map(|(kind, child)| {
            ((kind.as_str(), child.name().to_owned()), (child.ours, child.value.to_json()))
        });
        let budgets = self.budgets.iter().map(|(name, budget)| {
            (("budget", name.clone()), (true, serde_json::to_value(budget).unwrap_or_default()))
        });
        let jobs = self.jobs.iter().map(|(name, job)| {
            (("job", name.clone()), (false, serde_json::to_value(&**job).unwrap_or_default()))
        });
        children.chain(budgets).chain(jobs).collect()
    }

    /// Somebody asks for this.
    pub(crate) fn count(&mut self, asked: Asked, kind: TargetKind, name: &str) {
        if let Some(asks) = &mut self.asks {
            asks.entry((kind.as_str(), name.to_owned())).or_default()[asked as usize] += 1;
        }
    }

    /// What happened since somebody last asked.
    pub fn take_changes(&mut self) -> Vec<(Actor, Change)> {
        std::mem::take(&mut self.changes)
    }

    /// How often anything was written.
    pub fn version(&self) -> u64 {
        self.version
    }
}
