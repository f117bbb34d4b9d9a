//! An obedient cluster in memory: it does what plans say, and what tests say happens to pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;
use trainyard_api::{Attempt, Cause, State, TrainingJob, TrainingJobSpec, TrainingJobStatus, names};
use trainyard_plan::{
    ClaimView, Exit, NewObject, Notice, ObjectView, Obstacle, ObstacleKind, Plan, PodPhase, PodView, Restore,
    Settings, Snapshot, StatusWrite, Step, Target, TargetKind, Waiting, fingerprint, plan,
};

use super::job::dawn;
use super::rules;

/// More rounds than any story needs to come to rest.
const ROUNDS: usize = 40;

/// The operator died after a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Crashed;

/// What was asked of the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) creates: usize,
    pub(crate) deletes: usize,
    /// Finalizers and restored objects.
    pub(crate) patches: usize,
    pub(crate) statuses: usize,
    pub(crate) events: usize,
    /// Events that had been recorded before: refused as AlreadyExists.
    pub(crate) repeated_events: usize,
    pub(crate) refused: usize,
}

impl Tally {
    pub(crate) fn writes(&self) -> usize {
        let Self { creates, deletes, patches, statuses, events, repeated_events, refused } = self;
        creates + deletes + patches + statuses + events + repeated_events + refused
    }
}

pub(crate) struct Cluster {
    pub(crate) settings: Settings,
    pub(crate) now: Timestamp,
    pub(crate) tally: Tally,
    /// None once the job is gone.
    job: Option<TrainingJob>,
    name: String,
    pods: BTreeMap<String, PodView>,
    services: BTreeMap<String, ObjectView>,
    config_maps: BTreeMap<String, ObjectView>,
    claims: BTreeMap<String, ClaimView>,
    obstacles: Vec<Obstacle>,
    last_status_write: Option<Timestamp>,
    /// Everything that was ever created, newest last.
    pub(crate) created: Vec<NewObject>,
    pub(crate) events: Vec<Notice>,
    occurrences: BTreeSet<(String, String)>,
    /// Every state that was written, without repetitions.
    pub(crate) states: Vec<State>,
    wake_at: Option<Timestamp>,
    uids: u32,
    /// Deleted pods stay, marked, until they are released.
    lingering: bool,
    /// Objects without our labels under these names: invisible, but in the way.
    strangers: BTreeSet<String>,
    /// No more pods than this.
    quota: Option<usize>,
    /// Creating an object whose name starts like this is refused so.
    refusals: Vec<(ObstacleKind, String)>,
    /// The operator dies after so many more writes.
    writes_left: Option<usize>,
    /// The steps of a stage happen in the other order: nothing may depend on it.
    pub(crate) backwards: bool,
    /// Off for worlds that start in disorder: then even rules for orderly ones are not checked.
    strict: bool,
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
            obstacles: self.obstacles.clone(),
            last_status_write: self.last_status_write,
        }
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
            pod.exit = Some(Exit { code: 0, reason: Some("Completed".into()), message: None, at });
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
            pod.exit = Some(Exit { code, reason: Some(reason.into()), message: None, at });
        });
    }

    /// The cluster ends the pod.
    pub(crate) fn evict(&mut self, short: &str, why: &str) {
        self.fail(short, 137);
        self.change_pod(short, |pod| pod.disruption = Some(why.into()));
    }

    pub(crate) fn waits(&mut self, short: &str, reason: &str, message: &str) {
        self.change_pod(short, |pod| {
            pod.waiting = Some(Waiting { reason: reason.into(), message: Some(message.into()) });
        });
    }

    /// `kubectl delete pod`.
    pub(crate) fn delete_pod(&mut self, short: &str) {
        let name = self.long(short);
        self.take_pod(&name);
    }

    fn take_pod(&mut self, name: &str) {
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

    // The operator.

    /// The operator will die after so many more writes.
    pub(crate) fn crash_after(&mut self, writes: usize) {
        self.writes_left = Some(writes);
    }

    pub(crate) fn will_crash(&self) -> bool {
        self.writes_left.is_some()
    }

    /// A new operator: it remembers nothing.
    pub(crate) fn operator_restarts(&mut self) {
        self.writes_left = None;
        self.obstacles.clear();
        self.last_status_write = None;
    }

    /// What the planner says now.
    pub(crate) fn plan(&self) -> Plan {
        let snapshot = self.snapshot();
        let made = plan(&snapshot, &self.settings, self.now);
        rules::check(&snapshot, &made, self.now, self.strict);
        let again = plan(&snapshot, &self.settings, self.now);
        assert_eq!(made, again, "the same snapshot gave two plans");
        made
    }

    /// Plans and executes once. Says whether there was anything to do.
    pub(crate) fn round(&mut self) -> Result<bool, Crashed> {
        if self.job.is_none() {
            self.wake_at = None;
            return Ok(false);
        }
        let plan = self.plan();
        self.wake_at = plan.wake_at;
        if plan.is_idle() {
            return Ok(false);
        }
        self.execute(&plan)?;
        Ok(true)
    }

    /// Goes on until there is nothing to do, unless the operator dies.
    pub(crate) fn try_settle(&mut self) -> Result<(), Crashed> {
        for _ in 0..ROUNDS {
            if !self.round()? {
                return Ok(());
            }
        }
        panic!("no rest after {ROUNDS} rounds: {:#?}", self.plan());
    }

    /// Goes on until there is nothing to do. A dead operator is followed by another.
    pub(crate) fn settle(&mut self) {
        while self.try_settle() == Err(Crashed) {
            self.operator_restarts();
        }
    }

    /// Goes on until nothing happens any more, however long that takes. Pods that were told to go do go.
    pub(crate) fn run_out(&mut self) {
        for _ in 0..100 {
            self.settle();
            let going = self.pods.len();
            self.release();
            if self.pods.len() < going {
                continue;
            }
            match self.wake_at {
                Some(at) => self.now = self.now.max(at),
                None => return,
            }
        }
        panic!("wakes up again and again: {:#?}", self.plan());
    }

    /// Lets time pass. The operator looks only when it asked for it.
    pub(crate) fn pass(&mut self, seconds: i64) {
        let until = self.now + SignedDuration::from_secs(seconds);
        let mut looks = 0;
        while let Some(at) = self.wake_at.filter(|at| *at <= until) {
            looks += 1;
            assert!(looks < 200, "wakes up again and again: {:#?}", self.plan());
            self.now = self.now.max(at);
            self.settle();
        }
        self.now = until;
    }

    /// Nothing happens until the operator looks again by itself; one nanosecond before, it would do nothing.
    pub(crate) fn sleep(&mut self) {
        let at = self.wake_at.expect("somebody has to wake up");
        self.now = at - SignedDuration::from_nanos(1);
        let early = self.plan();
        assert!(early.is_idle(), "acts before its time: {early:#?}");
        assert_eq!(early.wake_at, Some(at), "wakes at another time when it looks early");
        self.now = at;
        assert!(!self.plan().is_idle(), "woke up for nothing");
        self.settle();
    }

    fn execute(&mut self, plan: &Plan) -> Result<(), Crashed> {
        let before = self.tally.refused;
        let mut written = false;
        if plan.write == StatusWrite::BeforeSteps {
            self.write_status(plan)?;
            written = true;
        }
        let mut refused = false;
        for stage in &plan.stages {
            let mut steps: Vec<&Step> = stage.iter().collect();
            if self.backwards {
                steps.reverse();
            }
            for step in steps {
                self.step(step)?;
            }
            refused = self.tally.refused > before;
            if refused {
                break;
            }
        }
        if plan.write == StatusWrite::Report && !refused && self.job.is_some() {
            self.write_status(plan)?;
            written = true;
        }
        if written || plan.write == StatusWrite::Not {
            for notice in &plan.notices {
                self.record(notice)?;
            }
        }
        Ok(())
    }

    fn wrote(&mut self) -> Result<(), Crashed> {
        match &mut self.writes_left {
            Some(1) => Err(Crashed),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn write_status(&mut self, plan: &Plan) -> Result<(), Crashed> {
        let before = self.job().status.clone();
        assert_ne!(before.as_ref(), Some(&plan.status), "wrote a status that did not change");
        if self.strict {
            self.check_transition(before.as_ref(), &plan.status);
        }
        // As the API server gives it back.
        let text = serde_json::to_string(&plan.status).expect("JSON");
        let status: TrainingJobStatus = serde_json::from_str(&text).expect("a status");
        assert_eq!(status, plan.status, "the status does not survive the API server");
        if let Some(state) = status.state.filter(|state| self.states.last() != Some(state)) {
            self.states.push(state);
        }
        self.job.as_mut().expect("the job exists").status = Some(status);
        self.last_status_write = Some(self.now);
        self.tally.statuses += 1;
        self.wrote()
    }

    fn check_transition(&self, before: Option<&TrainingJobStatus>, after: &TrainingJobStatus) {
        let from = before.and_then(|status| status.state);
        let to = after.state.expect("a status without a state");
        // After a crash, or without a status, the pods may be further than the record.
        let looked_away = before.is_none_or(|before| {
            before.attempts.last().map(|attempt| attempt.number)
                < after.attempts.last().map(|attempt| attempt.number)
        });
        let recovered = looked_away && self.pods.values().any(|pod| self.is_own(pod));
        assert!(
            recovered || is_allowed_now(from, to, before),
            "from {from:?} to {to:?}: {:?}",
            after.message
        );
    }

    fn record(&mut self, notice: &Notice) -> Result<(), Crashed> {
        if self.occurrences.insert((notice.reason.to_owned(), notice.occurrence.clone())) {
            self.events.push(notice.clone());
            self.tally.events += 1;
        } else {
            self.tally.repeated_events += 1;
        }
        self.wrote()
    }

    fn step(&mut self, step: &Step) -> Result<(), Crashed> {
        let refused = self.tally.refused;
        match step {
            Step::AddFinalizer => {
                let finalizers =
                    self.job.as_mut().expect("the job exists").metadata.finalizers.get_or_insert_default();
                assert!(!finalizers.iter().any(|finalizer| finalizer == names::FINALIZER), "has it already");
                finalizers.push(names::FINALIZER.into());
                self.tally.patches += 1;
            }
            Step::RemoveFinalizer => {
                let job = self.job.as_mut().expect("the job exists");
                let finalizers = job.metadata.finalizers.get_or_insert_default();
                finalizers.retain(|finalizer| finalizer != names::FINALIZER);
                let gone = finalizers.is_empty() && job.metadata.deletion_timestamp.is_some();
                self.tally.patches += 1;
                if gone {
                    self.collect();
                }
            }
            Step::Create(object) => self.create(object),
            Step::Delete(target) => self.delete(target),
            Step::Restore(restore) => self.restore(restore),
            Step::DeleteJob => {
                self.tally.deletes += 1;
                self.delete_job();
            }
        }
        // What was refused is no write after which one could crash.
        if self.tally.refused > refused { Ok(()) } else { self.wrote() }
    }

    fn create(&mut self, object: &NewObject) {
        let name = object.name().to_owned();
        if let Some((kind, message)) = self.refusal(object) {
            self.tally.refused += 1;
            self.obstacles.push(Obstacle {
                kind,
                object: format!("{} {name}", object.kind().as_str()),
                message,
                generation: self.job().metadata.generation.unwrap_or_default(),
                retry_at: self.now + SignedDuration::from_secs(30),
            });
            return;
        }
        self.uids += 1;
        self.tally.creates += 1;
        self.created.push(object.clone());
        let uid = format!("uid-{}", self.uids);
        let shown = |metadata: &ObjectMeta, fingerprint| ObjectView {
            name: name.clone(),
            uid: uid.clone(),
            owner: controller(metadata),
            fingerprint,
            deleting: false,
        };
        let clash = match object {
            NewObject::Pod(pod) => self.pods.insert(name.clone(), view_of(pod, &uid)).is_some(),
            NewObject::Service(service) => {
                let view = shown(&service.metadata, service_fingerprint(service));
                self.services.insert(name.clone(), view).is_some()
            }
            NewObject::ConfigMap(map) => {
                let data = map.data.clone().unwrap_or_default();
                let view = shown(&map.metadata, fingerprint::config_map(&data));
                self.config_maps.insert(name.clone(), view).is_some()
            }
            NewObject::Claim(claim) => {
                assert_eq!(claim.metadata.owner_references, None, "the claim must outlive the job");
                let modes = claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten());
                let shared = modes.into_iter().any(|mode| mode == "ReadWriteMany");
                let view =
                    ClaimView { name: name.clone(), uid: uid.clone(), deleting: false, shared, bound: true };
                self.claims.insert(name.clone(), view).is_some()
            }
        };
        assert!(!clash, "two objects called {name}");
        if self.strict {
            assert!(
                self.pod_attempts().len() <= 1,
                "pods of two attempts at once: {:?}",
                self.pod_attempts()
            );
        }
    }

    fn refusal(&self, object: &NewObject) -> Option<(ObstacleKind, String)> {
        let name = object.name();
        if self.strangers.contains(name) {
            return Some((ObstacleKind::NameConflict, "it was not made by Trainyard".into()));
        }
        if matches!(object, NewObject::Pod(_)) && self.quota.is_some_and(|quota| self.pods.len() >= quota) {
            return Some((ObstacleKind::Quota, "exceeded quota: team-a".into()));
        }
        let refused = self.refusals.iter().find(|(_, prefix)| name.starts_with(prefix.as_str()))?;
        Some((refused.0, "the API server says no".into()))
    }

    fn delete(&mut self, target: &Target) {
        self.tally.deletes += 1;
        match target.kind {
            TargetKind::Pod => {
                let pod = self.pods.get(&target.name).expect("deletes a pod that exists");
                assert_eq!(pod.uid, target.uid, "deletes another pod of that name");
                assert!(self.is_own(pod), "deletes somebody else's pod");
                self.take_pod(&target.name);
            }
            TargetKind::Claim => {
                assert!(self.claims.remove(&target.name).is_some(), "deletes a claim that exists");
            }
            TargetKind::Service | TargetKind::ConfigMap => panic!("deletes {target:?}"),
        }
    }

    fn restore(&mut self, restore: &Restore) {
        self.tally.patches += 1;
        let value = |path: &str| -> Value {
            let operations = restore.patch.as_array().expect("a JSON patch");
            let operation = operations.iter().find(|operation| operation["path"] == path);
            operation.unwrap_or_else(|| panic!("nothing about {path}"))["value"].clone()
        };
        let name = &restore.target.name;
        match restore.target.kind {
            TargetKind::Service => {
                let selector = serde_json::from_value(value("/spec/selector")).expect("a selector");
                let ports: Vec<i32> = value("/spec/ports")
                    .as_array()
                    .expect("ports")
                    .iter()
                    .map(|port| serde_json::from_value(port["port"].clone()).expect("a port"))
                    .collect();
                let early = value("/spec/publishNotReadyAddresses") == true;
                let view = self.services.get_mut(name).expect("restores a service that exists");
                view.fingerprint = fingerprint::service(&selector, &ports, early);
            }
            TargetKind::ConfigMap => {
                let data = serde_json::from_value(value("/data")).expect("data");
                let view = self.config_maps.get_mut(name).expect("restores a config map that exists");
                view.fingerprint = fingerprint::config_map(&data);
            }
            kind => panic!("restores a {}", kind.as_str()),
        }
    }

    /// The job is gone, and the garbage collector takes what it owned.
    fn collect(&mut self) {
        let uid = self.job.take().and_then(|job| job.metadata.uid);
        self.pods.retain(|_, pod| pod.owner != uid);
        self.services.retain(|_, view| view.owner != uid);
        self.config_maps.retain(|_, view| view.owner != uid);
    }

    fn is_own(&self, pod: &PodView) -> bool {
        self.job.as_ref().is_some_and(|job| pod.owner.is_some() && pod.owner == job.metadata.uid)
    }
}

fn is_allowed_now(from: Option<State>, to: State, before: Option<&TrainingJobStatus>) -> bool {
    let invalid = before
        .and_then(|status| status.condition("Failed"))
        .is_some_and(|failed| failed.status == "True" && failed.reason == "InvalidSpec");
    rules::is_allowed(from, to) && (from != Some(State::Failed) || to == State::Failed || invalid)
}

fn controller(metadata: &ObjectMeta) -> Option<String> {
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    assert_eq!(owner.block_owner_deletion, Some(true));
    Some(owner.uid.clone())
}

fn service_fingerprint(service: &Service) -> u64 {
    let spec = service.spec.clone().expect("a spec");
    let ports: Vec<i32> = spec.ports.iter().flatten().map(|port| port.port).collect();
    fingerprint::service(
        &spec.selector.unwrap_or_default(),
        &ports,
        spec.publish_not_ready_addresses.unwrap_or_default(),
    )
}

/// What a cache would keep of a new pod.
fn view_of(pod: &Pod, uid: &str) -> PodView {
    let metadata = &pod.metadata;
    let label = |name: &str| metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let note = |name: &str| metadata.annotations.as_ref().and_then(|notes| notes.get(name)).cloned();
    PodView {
        name: metadata.name.clone().expect("a name"),
        uid: uid.to_owned(),
        owner: controller(metadata),
        attempt: label(names::ATTEMPT_LABEL).and_then(|attempt| attempt.parse().ok()),
        inputs: note(names::INPUTS_ANNOTATION),
        shape: note(names::SHAPE_ANNOTATION),
        deleting: false,
        phase: PodPhase::Pending,
        node: None,
        exit: None,
        waiting: None,
        disruption: None,
    }
}
