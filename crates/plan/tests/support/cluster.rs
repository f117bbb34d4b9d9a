//! A cluster in memory: what is in it, and what users and the world do to it. (The operator's half is `operator`.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{AgentReport, Attempt, Cause, State, TrainingJob, TrainingJobSpec, TrainingJobStatus};
use trainyard_plan::{
    AgentView, ClaimView, Disruption, Exit, Listening, NewObject, NodeNotice, NodeView, Notice, ObjectView,
    Obstacle, ObstacleKind, PodPhase, PodView, Settings, Snapshot, Stacks, Tail, Vanished, Waiting,
};

use super::job::dawn;
use super::operator::Tally;

/// Whether the log of rank 0 can be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    Always,
    Not,
    Since(Timestamp),
    /// By an operator that began then.
    Anew(Timestamp),
}

pub(crate) struct Cluster {
    pub(crate) settings: Settings,
    pub(crate) now: Timestamp,
    pub(crate) tally: Tally,
    /// None once the job is gone.
    pub(super) job: Option<TrainingJob>,
    pub(super) name: String,
    pub(super) pods: BTreeMap<String, PodView>,
    pub(super) services: BTreeMap<String, ObjectView>,
    pub(super) config_maps: BTreeMap<String, ObjectView>,
    pub(super) claims: BTreeMap<String, ClaimView>,
    /// What evictions have to keep to.
    pub(crate) budget: Option<PodDisruptionBudget>,
    pub(super) obstacles: Vec<Obstacle>,
    pub(super) last_status_write: Option<Timestamp>,
    /// Pods that the operator saw and that are gone.
    pub(crate) vanished: Vec<Vanished>,
    /// What the program of rank 0 says.
    pub(crate) progress: Option<trainyard_progress::Progress>,
    pub(crate) hearing: Hearing,
    pub(crate) stacks: Option<Stacks>,
    /// What the agent beside it says.
    pub(crate) agent: Option<AgentReport>,
    pub(crate) tails: Vec<Tail>,
    /// The grace of every deletion, in order.
    pub(crate) graces: Vec<Option<u32>>,
    pub(crate) nodes: Vec<NodeView>,
    pub(crate) notices: Vec<NodeNotice>,
    /// Everything that was ever created, newest last.
    pub(crate) created: Vec<NewObject>,
    pub(crate) events: Vec<Notice>,
    pub(super) occurrences: BTreeSet<(String, String)>,
    /// Every state that was written, without repetitions.
    pub(crate) states: Vec<State>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) uids: u32,
    /// Deleted pods stay, marked, until they are released.
    pub(super) lingering: bool,
    /// Objects without our labels under these names: invisible, but in the way.
    pub(super) strangers: BTreeSet<String>,
    /// No more pods than this.
    pub(super) quota: Option<usize>,
    /// Creating an object whose name starts like this is refused so.
    pub(super) refusals: Vec<(ObstacleKind, String)>,
    /// The operator dies after so many more writes.
    pub(super) writes_left: Option<usize>,
    /// The steps of a stage happen in the other order: nothing may depend on it.
    pub(crate) backwards: bool,
    /// Off for worlds that start in disorder: then even rules for orderly ones are not checked.
    pub(super) strict: bool,
}

impl Cluster {
    pub(crate) fn with_job(job: TrainingJob) -> Self {
        let name = job.metadata.name.clone().unwrap_or_default();
        Self {
            settings: Settings::default(),
            now: dawn(),
            tally: Tally::default(),
            job: Some(job),
            name,
            pods: BTreeMap::new(),
            services: BTreeMap::new(),
            config_maps: BTreeMap::new(),
            claims: BTreeMap::new(),
            obstacles: Vec::new(),
            last_status_write: None,
            progress: None,
            hearing: Hearing::Always,
            stacks: None,
            agent: None,
            budget: None,
            tails: Vec::new(),
            graces: Vec::new(),
            nodes: Vec::new(),
            notices: Vec::new(),
            vanished: Vec::new(),
            created: Vec::new(),
            events: Vec::new(),
            occurrences: BTreeSet::new(),
            states: Vec::new(),
            wake_at: None,
            uids: 0,
            lingering: false,
            strangers: BTreeSet::new(),
            quota: None,
            refusals: Vec::new(),
            writes_left: None,
            backwards: false,
            strict: true,
        }
    }

    /// A cluster that is in this state already, however odd it is.
    pub(crate) fn found_as(snapshot: Snapshot, settings: Settings, now: Timestamp) -> Self {
        let mut cluster = Self::with_job((*snapshot.job).clone());
        cluster.settings = settings;
        cluster.now = now;
        cluster.pods = snapshot.pods.into_iter().map(|pod| (pod.name.clone(), pod)).collect();
        cluster.services = snapshot.services.into_iter().map(|view| (view.name.clone(), view)).collect();
        cluster.config_maps =
            snapshot.config_maps.into_iter().map(|view| (view.name.clone(), view)).collect();
        cluster.claims = snapshot.claims.into_iter().map(|view| (view.name.clone(), view)).collect();
        cluster.obstacles = snapshot.obstacles;
        cluster.last_status_write = snapshot.last_status_write;
        cluster.progress.clone_from(&snapshot.progress);
        cluster.strict = false;
        cluster
    }

    /// Details of the status are written at once, so that the only wake-ups are those that matter.
    pub(crate) fn prompt(mut self) -> Self {
        self.settings.status_interval = SignedDuration::ZERO;
        self
    }

    // What one sees.

    pub(crate) fn exists(&self) -> bool {
        self.job.is_some()
    }

    pub(crate) fn job(&self) -> &TrainingJob {
        self.job.as_ref().expect("the job exists")
    }

    pub(crate) fn status(&self) -> &TrainingJobStatus {
        self.job().status.as_ref().expect("a status")
    }

    pub(crate) fn state(&self) -> State {
        self.status().state.expect("a state")
    }

    pub(crate) fn message(&self) -> &str {
        self.status().message.as_deref().expect("a message")
    }

    /// Status, reason and message of a condition.
    pub(crate) fn condition(&self, kind: &str) -> (&str, &str, &str) {
        let condition = self.status().condition(kind).unwrap_or_else(|| panic!("no condition {kind}"));
        (&condition.status, &condition.reason, &condition.message)
    }

    pub(crate) fn attempts(&self) -> &[Attempt] {
        &self.status().attempts
    }

    pub(crate) fn causes(&self) -> Vec<Cause> {
        self.attempts().iter().filter_map(|attempt| attempt.cause).collect()
    }

    /// Application, disruption, rescale, update.
    pub(crate) fn restarts(&self) -> (i32, i32, i32, i32) {
        let restarts = self.status().restarts.unwrap_or_default();
        (restarts.application, restarts.disruption, restarts.rescale, restarts.update)
    }

    /// Names of the pods, without the job's.
    pub(crate) fn pods(&self) -> Vec<String> {
        let prefix = format!("{}-", self.name);
        self.pods.keys().map(|name| name.strip_prefix(&prefix).unwrap_or(name).to_owned()).collect()
    }

    pub(crate) fn pod(&self, short: &str) -> &PodView {
        let name = self.long(short);
        self.pods.get(&name).unwrap_or_else(|| panic!("no pod {name}, only {:?}", self.pods()))
    }

    pub(crate) fn pod_attempts(&self) -> BTreeSet<Option<i32>> {
        self.pods.values().filter(|pod| self.is_own(pod)).map(|pod| pod.attempt).collect()
    }

    pub(crate) fn services(&self) -> &BTreeMap<String, ObjectView> {
        &self.services
    }

    pub(crate) fn config_maps(&self) -> &BTreeMap<String, ObjectView> {
        &self.config_maps
    }

    pub(crate) fn claims(&self) -> &BTreeMap<String, ClaimView> {
        &self.claims
    }

    /// Reasons of the events, in order.
    pub(crate) fn reasons(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.reason).collect()
    }

    /// The message of the last event of that reason.
    pub(crate) fn event(&self, reason: &str) -> &str {
        let event = self.events.iter().rev().find(|event| event.reason == reason);
        &event.unwrap_or_else(|| panic!("no event {reason}, only {:?}", self.reasons())).message
    }

    pub(crate) fn count(&self, reason: &str) -> usize {
        self.events.iter().filter(|event| event.reason == reason).count()
    }

    /// When the operator would look again by itself.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.wake_at
    }

    /// The same in seconds from now.
    pub(crate) fn wakes_in(&self) -> Option<i64> {
        self.wake_at.map(|at| at.duration_since(self.now).as_secs())
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            job: Arc::new(self.job().clone()),
            pods: self.pods.values().cloned().collect(),
            services: self.services.values().cloned().collect(),
            config_maps: self.config_maps.values().cloned().collect(),
            claims: self.claims.values().cloned().collect(),
            vanished: self.vanished.clone(),
            obstacles: self.obstacles.clone(),
            last_status_write: self.last_status_write,
            progress: self.progress.clone(),
            listening: self.listening(),
            stacks: self.stacks.clone(),
            agent: self.agent.clone().map(|report| self.heard(report)),
            tails: self.tails.clone(),
            nodes: self.nodes.clone(),
            notices: self.notices.clone().into(),
        }
    }

    /// The log of rank 0 is listened to since its pod is there, or since it was heard again.
    fn listening(&self) -> Option<Listening> {
        let pod = self.pods.get(&trainyard_plan::World::of(self.job()).leader())?;
        let began = pod.created?;
        let (began, since) = match self.hearing {
            Hearing::Always => (began, began),
            Hearing::Not => return None,
            Hearing::Since(since) => (began, since),
            Hearing::Anew(at) => (at, at),
        };
        Some(Listening { pod: pod.uid.clone(), began, since })
    }

    /// What the agent beside rank 0 says.
    fn heard(&self, report: AgentReport) -> AgentView {
        let leader = self.pods.get(&trainyard_plan::World::of(self.job()).leader());
        let pod = leader.map(|pod| pod.uid.clone()).unwrap_or_default();
        AgentView { pod, attempt: leader.and_then(|pod| pod.attempt), report }
    }

    // What users and the world do.

    /// Changes the spec, as `kubectl edit` does.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut TrainingJobSpec)) {
        let Some(job) = self.job.as_mut() else { return };
        let before = job.spec.clone();
        change(&mut job.spec);
        if job.spec != before {
            job.metadata.generation = job.metadata.generation.map(|generation| generation + 1);
        }
    }

    pub(crate) fn scale(&mut self, workers: i32) {
        self.edit(|spec| spec.num_workers = Some(workers));
    }

    pub(crate) fn suspend(&mut self) {
        self.edit(|spec| spec.suspend = Some(true));
    }

    pub(crate) fn resume(&mut self) {
        self.edit(|spec| spec.suspend = Some(false));
    }

    /// `kubectl delete`, without waiting.
    pub(crate) fn delete_job(&mut self) {
        let now = self.now;
        let Some(job) = self.job.as_mut() else { return };
        if job.metadata.finalizers.iter().flatten().next().is_none() {
            self.collect();
        } else {
            job.metadata.deletion_timestamp.get_or_insert(Time(now));
        }
    }

    /// Puts a finalizer of somebody else's on the job.
    pub(crate) fn hold_by(&mut self, finalizer: &str) {
        let metadata = &mut self.job.as_mut().expect("the job exists").metadata;
        metadata.finalizers.get_or_insert_default().push(finalizer.to_owned());
    }

    pub(crate) fn remove_status(&mut self) {
        self.job.as_mut().expect("the job exists").status = None;
        self.states.clear();
    }

    pub(crate) fn change_pod(&mut self, short: &str, change: impl FnOnce(&mut PodView)) {
        let name = self.long(short);
        let pods = self.pods();
        change(self.pods.get_mut(&name).unwrap_or_else(|| panic!("no pod {name}, only {pods:?}")));
    }

    /// The pod is on a node of its own and its containers run.
    pub(crate) fn run(&mut self, short: &str) {
        let node = format!("node-{short}");
        self.change_pod(short, |pod| {
            pod.phase = PodPhase::Running;
            pod.node.get_or_insert(node);
            pod.waiting = None;
        });
    }

    pub(crate) fn run_all(&mut self) {
        for pod in self.pods() {
            self.run(&pod);
        }
    }

    pub(crate) fn succeed(&mut self, short: &str) {
        let at = Some(self.now);
        self.change_pod(short, |pod| {
            pod.phase = PodPhase::Succeeded;
            pod.waiting = None;
            pod.exit = Some(Box::new(Exit { reason: Some("Completed".into()), at, ..Exit::default() }));
        });
    }

    pub(crate) fn succeed_all(&mut self) {
        for pod in self.pods() {
            self.succeed(&pod);
        }
    }

    pub(crate) fn fail(&mut self, short: &str, code: i32) {
        self.fail_because(short, code, "Error");
    }

    pub(crate) fn fail_because(&mut self, short: &str, code: i32, reason: &str) {
        let at = Some(self.now);
        self.change_pod(short, |pod| {
            pod.phase = PodPhase::Failed;
            pod.waiting = None;
            pod.exit = Some(Box::new(Exit { code, reason: Some(reason.into()), at, ..Exit::default() }));
        });
    }

    /// The pod's log ends like this.
    pub(crate) fn says(&mut self, short: &str, text: &str) {
        let pod = self.pod(short).uid.clone();
        self.tails.push(Tail { pod, text: Some(text.to_owned()) });
    }

    /// The cluster ends the pod.
    pub(crate) fn evict(&mut self, short: &str, why: &str) {
        self.fail(short, 137);
        self.disrupt(short, "EvictionByEvictionAPI", why);
    }

    /// The cluster says that it will end the pod.
    pub(crate) fn disrupt(&mut self, short: &str, reason: &str, why: &str) {
        self.change_pod(short, |pod| {
            let disruption = Disruption { reasons: vec![reason.into()], message: why.into() };
            pod.disruption = Some(Box::new(disruption));
        });
    }

    pub(crate) fn waits(&mut self, short: &str, reason: &str, message: &str) {
        self.change_pod(short, |pod| {
            pod.waiting = Some(Box::new(Waiting { reason: reason.into(), message: Some(message.into()) }));
        });
    }

    /// `kubectl delete pod`.
    pub(crate) fn delete_pod(&mut self, short: &str) {
        let name = self.long(short);
        self.take_pod(&name);
    }

    pub(super) fn take_pod(&mut self, name: &str) {
        if self.lingering {
            self.pods.get_mut(name).expect("the pod exists").deleting = true;
        } else {
            self.pods.remove(name);
        }
    }

    /// From now on, deleted pods stay until they are released.
    pub(crate) fn pods_linger(&mut self) {
        self.lingering = true;
    }

    pub(crate) fn pods_go_at_once(&mut self) {
        self.lingering = false;
        self.release();
    }

    /// Pods that are marked for deletion are gone now.
    pub(crate) fn release(&mut self) {
        self.pods.retain(|_, pod| !pod.deleting);
    }

    pub(crate) fn add_pod(&mut self, pod: PodView) {
        self.pods.insert(pod.name.clone(), pod);
    }

    pub(crate) fn remove_pod(&mut self, short: &str) {
        let name = self.long(short);
        self.pods.remove(&name);
    }

    pub(crate) fn change_service(&mut self, change: impl FnOnce(&mut ObjectView)) {
        self.services.values_mut().next().map(change).expect("a service");
    }

    pub(crate) fn change_config_map(&mut self, change: impl FnOnce(&mut ObjectView)) {
        self.config_maps.values_mut().next().map(change).expect("a config map");
    }

    pub(crate) fn delete_service(&mut self) {
        self.services.clear();
    }

    pub(crate) fn delete_config_map(&mut self) {
        self.config_maps.clear();
    }

    pub(crate) fn add_service(&mut self, view: ObjectView) {
        self.services.insert(view.name.clone(), view);
    }

    pub(crate) fn add_claim(&mut self, view: ClaimView) {
        self.claims.insert(view.name.clone(), view);
    }

    pub(crate) fn remove_claim(&mut self) {
        self.claims.clear();
    }

    /// Somebody else's object, without our labels, under this name.
    pub(crate) fn stranger(&mut self, short: &str) {
        self.strangers.insert(self.long(short));
    }

    /// Somebody else's budget, under the job's own name.
    pub(crate) fn strange_budget(&mut self) {
        self.strangers.insert(self.name.clone());
    }

    pub(crate) fn stranger_leaves(&mut self) {
        self.strangers.clear();
    }

    pub(crate) fn quota(&mut self, pods: Option<usize>) {
        self.quota = pods;
    }

    /// From now on, creating what is called so is refused.
    pub(crate) fn refuse(&mut self, kind: ObstacleKind, short: &str) {
        let name = self.long(short);
        self.refusals.push((kind, name));
    }

    pub(crate) fn refuse_nothing(&mut self) {
        self.refusals.clear();
    }

    fn long(&self, short: &str) -> String {
        format!("{}-{short}", self.name)
    }

    /// The job is gone, and the garbage collector takes what it owned.
    pub(super) fn collect(&mut self) {
        let uid = self.job.take().and_then(|job| job.metadata.uid);
        self.budget = None;
        self.pods.retain(|_, pod| pod.owner.as_deref() != uid.as_deref());
        self.services.retain(|_, view| view.owner != uid);
        self.config_maps.retain(|_, view| view.owner != uid);
    }

    pub(super) fn is_own(&self, pod: &PodView) -> bool {
        self.job
            .as_ref()
            .is_some_and(|job| pod.owner.is_some() && pod.owner.as_deref() == job.metadata.uid.as_deref())
    }
}
