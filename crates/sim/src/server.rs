//! A small model of the API server: exactly what the operator can notice of it, for the kinds that the operator touches, at the
//! speed of a map. `tests/embedded.rs` holds it to the embedded API server, answer by answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use trainyard_api::{AgentReport, CheckpointStatus, TrainingJob, TrainingJobSpec, TrainingJobStatus, names};
use trainyard_objects::patch;
use trainyard_operator::{JobRef, NewEvent, Refusal, Sighting, StatusChange, Watched, Written};
use trainyard_plan::{NewObject, NodeState, Target, TargetKind};
use trainyard_progress::Progress;

/// The one namespace.
pub const NAMESPACE: &str = "ml";

/// Who changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    Operator(usize),
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
    JobCreated(String),
    /// A job, as it was and as it is now.
    Job(Arc<TrainingJob>, Arc<TrainingJob>),
    JobGone(Arc<TrainingJob>),
    Recorded(NewEvent),
}

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
    Submit(String, Box<TrainingJobSpec>),
    Edit(String, Box<TrainingJobSpec>),
    UserDeletes(String),
    /// An object as it was (nothing, if it is new) and as it is now.
    Change(TargetKind, String, Value, Value),
    Remove(TargetKind, String, Option<i64>),
    Quota(Option<usize>),
}

/// A deed, and what the job was called by then: its uid and version.
pub type Logged = (Deed, Option<(String, String)>);

/// Anything but a job.
#[derive(Clone, Debug)]
pub struct Child {
    pub uid: String,
    pub version: u64,
    /// Metadata, and of the rest what is read back by somebody.
    pub value: Value,
    /// An operator made it.
    pub ours: bool,
    /// What it was made of, if that is kept.
    pub made: Option<Arc<NewObject>>,
    /// Where in the journal its watch was last told of it.
    told: usize,
    /// The checkpoint that its program was told to go on from.
    pub resume: Option<String>,
    /// Its place in the world of ranks.
    pub rank: Option<String>,
}

/// The API server, its controllers as far as they matter, and everything that it remembers.
pub struct Server {
    pub now: Timestamp,
    version: u64,
    uids: u64,
    jobs: BTreeMap<String, Arc<TrainingJob>>,
    children: [BTreeMap<String, Child>; 4],
    events: BTreeSet<String>,
    /// Budgets for evictions, by name. Nobody watches them.
    budgets: BTreeMap<String, PodDisruptionBudget>,
    /// Why budgets cannot be written just now.
    pub no_budgets: Option<&'static str>,
    /// What watches were told, by kind.
    journal: [Vec<Sighting>; 5],
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
    /// Nodes that do not answer any more.
    pub dead: BTreeSet<String>,
    /// Statuses go through JSON and back, as on the wire. It takes most of the time of a history, so not every one does.
    pub speaks_json: bool,
    /// What objects were made of is kept.
    pub keeps_made: bool,
    /// Everything that was done, if somebody wants to know.
    pub log: Option<Vec<Logged>>,
    changes: Vec<(Actor, Change)>,
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

impl Child {
    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub fn is_deleting(&self) -> bool {
        self.value["metadata"].get("deletionTimestamp").is_some()
    }

    pub fn phase(&self) -> &str {
        self.value["status"]["phase"].as_str().unwrap_or_default()
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    pub fn node(&self) -> Option<&str> {
        self.value["spec"].get("nodeName")?.as_str()
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.value["metadata"]["labels"].get(name)?.as_str()
    }

    /// The uid of the controlling owner.
    pub fn controller(&self) -> Option<&str> {
        let owners = self.value["metadata"]["ownerReferences"].as_array()?;
        owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
    }

    pub fn attempt(&self) -> Option<i32> {
        self.label(names::ATTEMPT_LABEL)?.parse().ok()
    }

    fn is_selected(&self) -> bool {
        self.label(names::MANAGED_BY_LABEL) == Some(names::MANAGED_BY)
    }

    fn is_owned_by(&self, uid: &str) -> bool {
        let owners = self.value["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
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
            no_budgets: None,
            journal: Default::default(),
            quota: None,
            collects_at_once: true,
            said: BTreeMap::new(),
            reports: BTreeMap::new(),
            logs: BTreeMap::new(),
            stored: BTreeMap::new(),
            dead: BTreeSet::new(),
            speaks_json: true,
            keeps_made: false,
            log: None,
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

    /// The events of a watch, from the beginning.
    pub fn journal(&self, kind: Watched) -> &[Sighting] {
        &self.journal[kind as usize]
    }

    /// What a watch that starts over is told.
    pub fn list(&self, kind: Watched) -> Vec<Sighting> {
        let target = KINDS.into_iter().find(|target| watched(*target) == kind);
        let mut list = Vec::new();
        match target {
            None => {
                list.push(Sighting::job(Event::Init));
                list.extend(self.jobs().map(|job| Sighting::job(Event::InitApply(job.clone()))));
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
        let job = self.jobs().next().map(|job| {
            let metadata = &job.metadata;
            (metadata.uid.clone().unwrap_or_default(), metadata.resource_version.clone().unwrap_or_default())
        });
        if let Some(log) = &mut self.log {
            log.push((deed(), job));
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

    // What the operator asks for: the verbs of its port.

    pub fn create(&mut self, by: Actor, object: &NewObject) -> Result<Written, Refusal> {
        let (kind, name) = (object.kind(), object.name().to_owned());
        if self.all(kind).contains_key(&name) {
            return Err(Refusal::AlreadyExists);
        }
        if kind == TargetKind::Pod {
            let used = self.pods().filter(|pod| !pod.has_ended()).count();
            if let Some(quota) = self.quota.filter(|quota| used >= *quota) {
                return Err(Refusal::Quota(format!(
                    "pods \"{name}\" is forbidden: exceeded quota: team, requested: pods=1, used: pods={used}, limited: pods={quota}"
                )));
            }
        }
        let value = match object {
            NewObject::Pod(pod) => {
                let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
                json!({
                    "metadata": pod.metadata,
                    "spec": {"terminationGracePeriodSeconds": grace.unwrap_or(30)},
                    "status": {"phase": "Pending"},
                })
            }
            NewObject::Service(service) => json!({"metadata": service.metadata, "spec": service.spec}),
            NewObject::ConfigMap(map) => json!({"metadata": map.metadata, "data": map.data}),
            NewObject::Claim(claim) => json!({"metadata": claim.metadata, "spec": claim.spec}),
        };
        let made = self.keeps_made.then(|| Arc::new(object.clone()));
        let written = self.insert(by, kind, &name, value, true, made);
        if let (NewObject::Pod(pod), Some(child)) = (object, self.children[kind as usize].get_mut(&name)) {
            child.resume = variable(pod, "RESUME_FROM_CHECKPOINT");
            child.rank = variable(pod, "RANK").or_else(|| variable(pod, "PET_NODE_RANK"));
        }
        Ok(written)
    }

    pub fn delete(&mut self, by: Actor, target: &Target, grace: Option<u32>) -> Result<(), Refusal> {
        let child = self.all(target.kind).get(&target.name).ok_or(Refusal::NotFound)?;
        if child.uid != target.uid {
            return Err(Refusal::Conflict);
        }
        self.remove(by, target.kind, &target.name, grace.map(i64::from));
        Ok(())
    }

    pub fn patch(&mut self, by: Actor, target: &Target, operations: &Value) -> Result<Written, Refusal> {
        let child = self.all(target.kind).get(&target.name).ok_or(Refusal::NotFound)?;
        if child.uid != target.uid {
            return Err(Refusal::Conflict);
        }
        let new =
            patch::json(&child.value, operations).map_err(|error| Refusal::Invalid(format!("{error:?}")))?;
        Ok(self.replace(by, target.kind, &target.name, new))
    }

    pub fn patch_job(&mut self, by: Actor, name: &str, patch: &Value) -> Result<Written, Refusal> {
        let asked = patch["metadata"].get("resourceVersion").and_then(Value::as_str);
        let job = self.at_version(name, asked)?;
        let Some(finalizers) = patch["metadata"]["finalizers"].as_array() else {
            return Ok(written(&job.metadata));
        };
        let finalizers: Vec<String> =
            finalizers.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let held = job.metadata.finalizers.clone().unwrap_or_default();
        if held == finalizers {
            return Ok(written(&job.metadata));
        }
        let is_going = job.metadata.deletion_timestamp.is_some();
        if is_going && finalizers.iter().any(|finalizer| !held.contains(finalizer)) {
            return Err(Refusal::Invalid(
                "no new finalizers can be added if the object is being deleted".to_owned(),
            ));
        }
        let mut new = (**job).clone();
        let is_over = is_going && finalizers.is_empty();
        new.metadata.finalizers = (!finalizers.is_empty()).then_some(finalizers);
        if is_over {
            return Ok(self.erase_job(by, new));
        }
        Ok(self.put_job(by, new))
    }

    pub fn patch_status(&mut self, by: Actor, name: &str, patch: &Value) -> Result<Written, Refusal> {
        let asked = patch["metadata"].get("resourceVersion").and_then(Value::as_str);
        let job = self.at_version(name, asked)?;
        let unreadable = |error| Refusal::Invalid(format!("the status cannot be read: {error}"));
        let stored = match &job.status {
            Some(status) => serde_json::to_value(status).map_err(unreadable)?,
            None => json!({}),
        };
        let mut status = stored.clone();
        patch::merge(&mut status, &patch["status"]);
        if status == stored {
            return Ok(written(&job.metadata));
        }
        let parsed = serde_json::from_value(status).map_err(unreadable)?;
        Ok(self.put_job(by, with_status(job, Some(parsed))))
    }

    /// The same without JSON: at that version, the status is the one that the writer builds on.
    pub fn put_status(
        &mut self,
        by: Actor,
        name: &str,
        change: &StatusChange<'_>,
    ) -> Result<Written, Refusal> {
        let job = self.at_version(name, Some(change.version))?;
        if job.status.as_ref() == Some(change.after) {
            return Ok(written(&job.metadata));
        }
        Ok(self.put_job(by, with_status(job, Some(change.after.clone()))))
    }

    pub fn delete_job(&mut self, by: Actor, name: &str, uid: Option<&str>) -> Result<(), Refusal> {
        let job = self.job(name).ok_or(Refusal::NotFound)?.clone();
        if uid.is_some() && uid != job.metadata.uid.as_deref() {
            return Err(Refusal::Conflict);
        }
        if job.metadata.finalizers.iter().flatten().next().is_none() {
            self.erase_job(by, (*job).clone());
        } else if job.metadata.deletion_timestamp.is_none() {
            let mut new = (*job).clone();
            new.metadata.deletion_timestamp = Some(Time(self.now));
            new.metadata.deletion_grace_period_seconds = Some(0);
            new.metadata.generation = new.metadata.generation.map(|generation| generation + 1);
            self.put_job(by, new);
        }
        Ok(())
    }

    pub fn set_budget(
        &mut self,
        _: Actor,
        job: &JobRef,
        budget: &PodDisruptionBudget,
    ) -> Result<(), Refusal> {
        if let Some(why) = self.no_budgets {
            return Err(Refusal::Passing(why.to_owned()));
        }
        let name = budget.metadata.name.clone().unwrap_or_default();
        match self.budgets.get_mut(&name) {
            Some(other) if !is_of(other, &job.uid) => return Err(Refusal::AlreadyExists),
            Some(same) if same.spec == budget.spec => return Ok(()),
            Some(old) => old.spec.clone_from(&budget.spec),
            None => drop(self.budgets.insert(name, budget.clone())),
        }
        self.version += 1;
        // What is made for a job that is gone goes after it.
        if self.collects_at_once {
            self.collect_budgets();
        }
        Ok(())
    }

    pub fn remove_budget(&mut self, _: Actor, job: &JobRef, name: &str) -> Result<(), Refusal> {
        let budget = self.budgets.get(name).ok_or(Refusal::NotFound)?;
        if is_of(budget, &job.uid) {
            self.version += 1;
            self.budgets.remove(name);
        }
        Ok(())
    }

    fn collect_budgets(&mut self) {
        let Self { jobs, budgets, .. } = self;
        let is_there = |uid: &str| jobs.values().any(|job| job.metadata.uid.as_deref() == Some(uid));
        budgets.retain(|_, budget| {
            let owners = budget.metadata.owner_references.as_deref().unwrap_or_default();
            owners.is_empty() || owners.iter().any(|owner| is_there(&owner.uid))
        });
    }

    pub fn record(&mut self, by: Actor, event: &NewEvent) -> Result<(), Refusal> {
        if !self.events.insert(event.name.clone()) {
            return Err(Refusal::AlreadyExists);
        }
        self.version += 1;
        self.changes.push((by, Change::Recorded(event.clone())));
        Ok(())
    }

    pub fn node(&self, name: &str) -> NodeState {
        if self.dead.contains(name) { NodeState::Unreachable } else { NodeState::Ready }
    }

    pub fn metadata(&self, kind: TargetKind, name: &str) -> Result<ObjectMeta, Refusal> {
        let child = self.all(kind).get(name).ok_or(Refusal::NotFound)?;
        serde_json::from_value(child.value["metadata"].clone())
            .map_err(|error| Refusal::Passing(error.to_string()))
    }

    // What users and the cluster do.

    /// `kubectl create`.
    pub fn submit(&mut self, name: &str, spec: TrainingJobSpec) {
        self.uids += 1;
        let mut job = TrainingJob::new(name, spec);
        job.metadata.namespace = Some(NAMESPACE.to_owned());
        job.metadata.uid = Some(format!("job-{}", self.uids));
        job.metadata.generation = Some(1);
        job.metadata.creation_timestamp = Some(Time(whole_seconds(self.now)));
        self.jobs.insert(name.to_owned(), Arc::new(job.clone()));
        self.changes.push((Actor::User, Change::JobCreated(name.to_owned())));
        self.put_job(Actor::User, job);
        if let Some(job) = self.job(name).cloned() {
            self.logs(|| Deed::Submit(name.to_owned(), Box::new(job.spec.clone())));
        }
    }

    /// `kubectl edit`.
    pub fn edit(&mut self, name: &str, change: impl FnOnce(&mut TrainingJobSpec)) {
        let Some(job) = self.job(name) else { return };
        let mut new = (**job).clone();
        change(&mut new.spec);
        if new.spec != job.spec {
            new.metadata.generation = new.metadata.generation.map(|generation| generation + 1);
            let spec = Box::new(new.spec.clone());
            self.put_job(Actor::User, new);
            self.logs(|| Deed::Edit(name.to_owned(), spec));
        }
    }

    /// Somebody takes the status away.
    pub fn remove_status(&mut self, name: &str) {
        if let Some(job) = self.job(name).filter(|job| job.status.is_some()) {
            self.put_job(Actor::User, with_status(job, None));
        }
    }

    /// An object of somebody else's.
    pub fn plant(&mut self, by: Actor, kind: TargetKind, name: &str, mut value: Value) {
        if self.all(kind).contains_key(name) {
            return;
        }
        value["metadata"]["name"] = name.into();
        value["metadata"]["namespace"] = NAMESPACE.into();
        if kind == TargetKind::Pod && value.get("status").is_none() {
            value["status"] = json!({"phase": "Pending"});
        }
        let logged = if self.log.is_some() { value.clone() } else { Value::Null };
        self.insert(by, kind, name, value, false, None);
        self.logs(|| Deed::Change(kind, name.to_owned(), Value::Null, logged));
    }

    /// Changes an object, as it is stored.
    pub fn change(&mut self, by: Actor, kind: TargetKind, name: &str, change: impl FnOnce(&mut Value)) {
        let Some(child) = self.all(kind).get(name) else { return };
        let mut new = child.value.clone();
        change(&mut new);
        let logged = self.log.is_some().then(|| (child.value.clone(), new.clone()));
        self.replace(by, kind, name, new);
        if let Some((old, new)) = logged {
            self.logs(|| Deed::Change(kind, name.to_owned(), old, new));
        }
    }

    /// Deletes an object. A pod on a node takes its time, unless `grace` is 0.
    pub fn remove(&mut self, by: Actor, kind: TargetKind, name: &str, grace: Option<i64>) {
        let Some(child) = self.all(kind).get(name) else { return };
        let takes_time = kind == TargetKind::Pod && child.node().is_some() && !child.has_ended();
        let own = child.value["spec"]["terminationGracePeriodSeconds"].as_i64();
        let pending = child.value["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let grace = if takes_time { grace.or(pending).or(own).unwrap_or(30) } else { 0 };
        if grace > 0 {
            let is_first = !child.is_deleting();
            let pending = child.value["metadata"]["deletionGracePeriodSeconds"].as_i64();
            if is_first || pending.is_some_and(|pending| grace < pending) {
                let mut new = child.value.clone();
                let until = whole_seconds(self.now + SignedDuration::from_secs(grace));
                new["metadata"]["deletionTimestamp"] = json!(Time(until));
                new["metadata"]["deletionGracePeriodSeconds"] = grace.into();
                self.replace(by, kind, name, new);
                if is_first {
                    self.changes.push((by, Change::Marked(kind, name.to_owned())));
                }
            }
            return;
        }
        self.version += 1;
        let version = self.version;
        let Some(mut child) = self.children[kind as usize].remove(name) else { return };
        child.version = version;
        child.value["metadata"]["resourceVersion"] = version.to_string().into();
        if child.is_selected() {
            self.journal[watched(kind) as usize].push(parse(watched(kind), Event::Delete(&child.value)));
        }
        self.changes.push((by, Change::Removed(kind, Box::new(child))));
    }

    /// The garbage collector: what belongs to nobody any more goes.
    pub fn collect(&mut self) {
        self.collect_budgets();
        for (kind, name) in self.garbage() {
            self.remove(Actor::Cluster, kind, &name, None);
        }
    }

    /// What waits for the garbage collector.
    pub fn garbage(&self) -> Vec<(TargetKind, String)> {
        if self.children.iter().all(BTreeMap::is_empty) {
            return Vec::new();
        }
        let owners: Vec<&str> = self.jobs().filter_map(|job| job.metadata.uid.as_deref()).collect();
        let is_garbage = |child: &Child| {
            let references = child.value["metadata"]["ownerReferences"].as_array();
            let is_gone = |owner: &Value| {
                owner["kind"] == names::KIND
                    && owner["uid"].as_str().is_some_and(|uid| !owners.contains(&uid))
            };
            !child.is_deleting() && references.is_some_and(|all| !all.is_empty() && all.iter().all(is_gone))
        };
        let garbage = self.children().filter(|(_, child)| is_garbage(child));
        garbage.map(|(kind, child)| (kind, child.name().to_owned())).collect()
    }

    // Below the verbs.

    fn at_version(&self, name: &str, asked: Option<&str>) -> Result<&Arc<TrainingJob>, Refusal> {
        let job = self.job(name).ok_or(Refusal::NotFound)?;
        if asked.is_some() && asked != job.metadata.resource_version.as_deref() {
            return Err(Refusal::Conflict);
        }
        Ok(job)
    }

    fn insert(
        &mut self,
        by: Actor,
        kind: TargetKind,
        name: &str,
        mut value: Value,
        ours: bool,
        made: Option<Arc<NewObject>>,
    ) -> Written {
        self.version += 1;
        self.uids += 1;
        let uid = format!("{}-{}", kind.as_str().replace(' ', "-"), self.uids);
        let metadata = &mut value["metadata"];
        metadata["uid"] = uid.as_str().into();
        metadata["namespace"] = NAMESPACE.into();
        metadata["resourceVersion"] = self.version.to_string().into();
        metadata["creationTimestamp"] = json!(Time(whole_seconds(self.now)));
        let journal = &mut self.journal[watched(kind) as usize];
        let child = Child {
            uid,
            version: self.version,
            value,
            ours,
            made,
            told: journal.len(),
            resume: None,
            rank: None,
        };
        if child.is_selected() {
            journal.push(parse(watched(kind), Event::Apply(&child.value)));
        }
        self.children[kind as usize].insert(name.to_owned(), child);
        self.changes.push((by, Change::Created(kind, name.to_owned())));
        self.written()
    }

    fn replace(&mut self, by: Actor, kind: TargetKind, name: &str, mut new: Value) -> Written {
        let version = self.version + 1;
        let Some(child) = self.children[kind as usize].get_mut(name) else { return Written::default() };
        if new == child.value {
            return Written { version: child.version, resource_version: child.version.to_string() };
        }
        self.version = version;
        new["metadata"]["resourceVersion"] = version.to_string().into();
        let was_selected = child.is_selected();
        let mut old = std::mem::replace(&mut child.value, new);
        child.version = version;
        let event = match (was_selected, child.is_selected()) {
            (_, true) => Some(Event::Apply(&child.value)),
            (true, false) => {
                // Whoever watches by label is told that it is gone, as it was when it was last selected.
                old["metadata"]["resourceVersion"] = version.to_string().into();
                Some(Event::Delete(&old))
            }
            (false, false) => None,
        };
        let journal = &mut self.journal[watched(kind) as usize];
        child.told = journal.len();
        journal.extend(event.map(|event| parse(watched(kind), event)));
        self.changes.push((by, Change::Changed(kind, name.to_owned())));
        self.written()
    }

    fn put_job(&mut self, by: Actor, mut job: TrainingJob) -> Written {
        self.version += 1;
        job.metadata.resource_version = Some(self.version.to_string());
        let job = Arc::new(job);
        self.journal[Watched::Jobs as usize].push(Sighting::job(Event::Apply(job.clone())));
        if let Some(stored) = job.metadata.name.as_ref().and_then(|name| self.jobs.get_mut(name)) {
            let before = std::mem::replace(stored, job.clone());
            self.changes.push((by, Change::Job(before, job)));
        }
        self.written()
    }

    fn erase_job(&mut self, by: Actor, mut job: TrainingJob) -> Written {
        self.version += 1;
        job.metadata.resource_version = Some(self.version.to_string());
        let name = job.metadata.name.clone().unwrap_or_default();
        self.jobs.remove(&name);
        let job = Arc::new(job);
        self.journal[Watched::Jobs as usize].push(Sighting::job(Event::Delete(job.clone())));
        let uid = job.metadata.uid.clone().unwrap_or_default();
        self.changes.push((by, Change::JobGone(job)));
        let written = self.written();
        if self.collects_at_once {
            self.collect_budgets();
        }
        if self.collects_at_once && self.children().any(|(_, child)| child.is_owned_by(&uid)) {
            self.collect();
        }
        written
    }

    fn written(&self) -> Written {
        Written { version: self.version, resource_version: self.version.to_string() }
    }
}

fn is_of(budget: &PodDisruptionBudget, job: &str) -> bool {
    budget.metadata.owner_references.iter().flatten().any(|owner| owner.uid == job)
}

fn written(metadata: &ObjectMeta) -> Written {
    let resource_version = metadata.resource_version.clone().unwrap_or_default();
    Written { version: resource_version.parse().unwrap_or(0), resource_version }
}

fn parse(kind: Watched, event: Event<&Value>) -> Sighting {
    Sighting::parse(kind, event).expect("what the model stores can be read")
}

/// The same job with another status, without a copy of the old one.
fn with_status(job: &TrainingJob, status: Option<TrainingJobStatus>) -> TrainingJob {
    TrainingJob { metadata: job.metadata.clone(), spec: job.spec.clone(), status }
}

/// What a pod's program is told in this variable.
fn variable(pod: &Pod, name: &str) -> Option<String> {
    let containers = pod.spec.as_ref().map(|spec| &spec.containers);
    let mut variables = containers.into_iter().flatten().flat_map(|container| container.env.iter().flatten());
    variables.find(|variable| variable.name == name)?.value.clone()
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
