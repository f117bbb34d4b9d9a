//! What the operator asks for: the verbs of its port.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};
use trainyard_api::{TrainingJob, names};
use trainyard_objects::patch;
use trainyard_operator::{JobRef, NewEvent, Refusal, StatusChange, Written};
use trainyard_plan::{NewObject, NodeState, Target, TargetKind};

use super::store::with_status;
use super::{Actor, Body, Change, Child, Server};

impl Server {
    pub fn create(&mut self, by: Actor, job: &JobRef, object: &NewObject) -> Result<Written, Refusal> {
        let (kind, name) = (object.kind(), object.name().to_owned());
        if self.all(kind).contains_key(&name) {
            return Err(Refusal::AlreadyExists);
        }
        if let Some((quota, used)) = self.exceeded().filter(|_| kind == TargetKind::Pod) {
            return Err(Refusal::Quota(format!(
                "pods \"{name}\" is forbidden: exceeded quota: team, requested: pods=1, used: pods={used}, limited: pods={quota}"
            )));
        }
        let value = match object {
            NewObject::Pod(pod) => {
                let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
                let rest = json!({
                    "spec": {"terminationGracePeriodSeconds": grace.unwrap_or(30)},
                    "status": {"phase": "Pending"},
                });
                Body::new(pod.metadata.clone(), rest)
            }
            NewObject::Service(service) => Body::new(service.metadata.clone(), json!({"spec": service.spec})),
            NewObject::ConfigMap(map) => Body::new(map.metadata.clone(), json!({"data": map.data})),
            NewObject::Claim(claim) => Body::new(claim.metadata.clone(), json!({"spec": claim.spec})),
        };
        let made = self.keeps_made.then(|| Arc::new(object.clone()));
        let written = self.insert(by, kind, &name, value, true, made);
        if let (NewObject::Pod(pod), Some(child)) = (object, self.children[kind as usize].get_mut(&name)) {
            child.resume = variable(pod, "RESUME_FROM_CHECKPOINT");
            let program = pod.spec.as_ref().and_then(|spec| spec.containers.first());
            child.image = program.and_then(|program| program.image.clone());
            child.rank = variable(pod, "RANK").or_else(|| variable(pod, "PET_NODE_RANK"));
            child.avoids = avoids(pod);
        }
        self.is_of(by, job, kind, &name);
        // What is made for a job that is gone goes after it.
        let is_orphan =
            |child: &Child| !child.owners().is_empty() && !self.jobs().any(|job| is_owner(job, child));
        if self.collects_at_once && self.all(kind).get(&name).is_some_and(is_orphan) {
            self.collect();
        }
        Ok(written)
    }

    /// The quota, and how much of it is used, if there is no room for another pod.
    pub(super) fn exceeded(&self) -> Option<(usize, usize)> {
        let quota = self.quota?;
        let used = self.pods().filter(|pod| !pod.has_ended()).count();
        (used >= quota).then_some((quota, used))
    }

    pub fn delete(
        &mut self,
        by: Actor,
        job: &JobRef,
        target: &Target,
        grace: Option<u32>,
    ) -> Result<(), Refusal> {
        let child = self.all(target.kind).get(&target.name).ok_or(Refusal::NotFound)?;
        if child.uid != target.uid {
            return Err(Refusal::Conflict);
        }
        self.is_of(by, job, target.kind, &target.name);
        self.remove(by, target.kind, &target.name, grace.map(i64::from));
        Ok(())
    }

    pub fn patch(
        &mut self,
        by: Actor,
        job: &JobRef,
        target: &Target,
        operations: &Value,
    ) -> Result<Written, Refusal> {
        let child = self.all(target.kind).get(&target.name).ok_or(Refusal::NotFound)?;
        if child.uid != target.uid {
            return Err(Refusal::Conflict);
        }
        let new = patch::json(&child.value.to_json(), operations)
            .map_err(|error| Refusal::Invalid(format!("{error:?}")))?;
        let new = Body::from_json(new).map_err(|error| Refusal::Invalid(error.to_string()))?;
        self.is_of(by, job, target.kind, &target.name);
        Ok(self.replace(by, target.kind, &target.name, new))
    }

    /// Nothing but the version, if there is one, says which job is meant: a patch of a job is not told its uid.
    pub fn patch_job(&mut self, by: Actor, meant: &JobRef, patch: &Value) -> Result<Written, Refusal> {
        let asked = patch["metadata"].get("resourceVersion").and_then(Value::as_str);
        let job = self.at_version(&meant.name, asked)?;
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
        self.is_meant(by, meant);
        let is_over = is_going && finalizers.is_empty();
        if let Some(taken) = held.iter().find(|held| *held != names::FINALIZER && !finalizers.contains(held))
        {
            self.changes.push((by, Change::Astray(format!("finalizer {taken} was taken"))));
        }
        new.metadata.finalizers = (!finalizers.is_empty()).then_some(finalizers);
        if is_over {
            return Ok(self.erase_job(by, new));
        }
        Ok(self.put_job(by, new))
    }

    pub fn patch_status(&mut self, by: Actor, meant: &JobRef, patch: &Value) -> Result<Written, Refusal> {
        let asked = patch["metadata"].get("resourceVersion").and_then(Value::as_str);
        let job = self.at_version(&meant.name, asked)?;
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
        let new = with_status(job, Some(parsed));
        self.is_meant(by, meant);
        Ok(self.put_job(by, new))
    }

    /// The same without JSON: at that version, the status is the one that the writer builds on.
    pub fn put_status(
        &mut self,
        by: Actor,
        meant: &JobRef,
        change: &StatusChange<'_>,
    ) -> Result<Written, Refusal> {
        let job = self.at_version(&meant.name, Some(change.version))?;
        if job.status.as_ref() == Some(change.after) {
            return Ok(written(&job.metadata));
        }
        let new = with_status(job, Some(change.after.clone()));
        self.is_meant(by, meant);
        Ok(self.put_job(by, new))
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
        by: Actor,
        job: &JobRef,
        budget: &PodDisruptionBudget,
    ) -> Result<(), Refusal> {
        if let Some(why) = self.no_budgets {
            return Err(Refusal::Passing(why.to_owned()));
        }
        let name = budget.metadata.name.clone().unwrap_or_default();
        match self.budgets.get_mut(&name) {
            Some(other) if !is_of(other, &job.uid) => return Err(Refusal::AlreadyExists),
            Some(same) if same.spec == budget.spec => {
                if !matches!(by, Actor::Late(_)) {
                    self.late_budgets.remove(&name);
                }
                return Ok(());
            }
            Some(old) => old.spec.clone_from(&budget.spec),
            None => {
                self.budgets.insert(name.clone(), budget.clone());
                self.changes.push((by, Change::BudgetMade(name.clone())));
            }
        }
        if matches!(by, Actor::Late(_)) {
            self.late_budgets.insert(name);
        } else {
            self.late_budgets.remove(&name);
        }
        self.version += 1;
        // What is made for a job that is gone goes after it.
        if self.collects_at_once {
            self.collect_budgets();
        }
        Ok(())
    }

    pub fn remove_budget(&mut self, by: Actor, job: &JobRef, name: &str) -> Result<(), Refusal> {
        let budget = self.budgets.get(name).ok_or(Refusal::NotFound)?;
        if is_of(budget, &job.uid) {
            self.version += 1;
            self.budgets.remove(name);
            self.changes.push((by, Change::BudgetGone(name.to_owned())));
            self.late_budgets.remove(name);
        }
        Ok(())
    }

    pub fn record(&mut self, by: Actor, event: &NewEvent) -> Result<(), Refusal> {
        if !self.events.insert(event.name.clone()) {
            return Err(Refusal::AlreadyExists);
        }
        self.version += 1;
        self.changes.push((by, Change::Recorded(event.clone())));
        Ok(())
    }

    /// Where a pod hangs, if it is that very pod, and its node answers.
    pub fn stacks(&self, pod: &Target) -> Option<String> {
        let asked = self.all(TargetKind::Pod).get(&pod.name).filter(|child| child.uid == pod.uid)?;
        let answers = asked.phase() == "Running" && !self.dead.contains(asked.node()?);
        answers
            .then(|| "Thread 0x1 (most recent call first):\n  File \"train.py\", line 1 in step".to_owned())
    }

    pub fn node(&self, name: &str) -> NodeState {
        match name {
            _ if self.hides_nodes => NodeState::Hidden,
            name if self.removed.contains(name) => NodeState::Gone,
            name if self.dead.contains(name) => NodeState::Unreachable,
            _ => NodeState::Ready,
        }
    }

    /// What is written for a job touches this very job, and not another that has its name by now.
    fn is_meant(&mut self, by: Actor, meant: &JobRef) {
        let uid = self.job(&meant.name).and_then(|job| job.metadata.uid.as_deref()).unwrap_or_default();
        if uid != meant.uid {
            let astray = format!("{uid} was changed, and {} was meant", meant.uid);
            self.changes.push((by, Change::Astray(astray)));
        }
    }

    /// The same for an object of a job. A claim outlives its job, and belongs to whoever has the name.
    fn is_of(&mut self, by: Actor, job: &JobRef, kind: TargetKind, name: &str) {
        let child = self.all(kind).get(name).filter(|child| child.ours && kind != TargetKind::Claim);
        let owner = child.map(|child| child.controller().unwrap_or_default());
        if let Some(owner) = owner.filter(|owner| *owner != job.uid) {
            let astray = format!("{} {name} of {owner} was changed for {}", kind.as_str(), job.uid);
            self.changes.push((by, Change::Astray(astray)));
        }
    }

    fn at_version(&self, name: &str, asked: Option<&str>) -> Result<&Arc<TrainingJob>, Refusal> {
        let job = self.job(name).ok_or(Refusal::NotFound)?;
        if asked.is_some() && asked != job.metadata.resource_version.as_deref() {
            return Err(Refusal::Conflict);
        }
        Ok(job)
    }
}

fn is_owner(job: &TrainingJob, child: &Child) -> bool {
    job.metadata.uid.as_deref().is_some_and(|uid| child.is_owned_by(uid))
}

fn is_of(budget: &PodDisruptionBudget, job: &str) -> bool {
    budget.metadata.owner_references.iter().flatten().any(|owner| owner.uid == job)
}

fn written(metadata: &ObjectMeta) -> Written {
    let resource_version = metadata.resource_version.clone().unwrap_or_default();
    Written { version: resource_version.parse().unwrap_or(0), resource_version }
}

/// What a pod's program is told in this variable.
fn variable(pod: &Pod, name: &str) -> Option<String> {
    let containers = pod.spec.as_ref().map(|spec| &spec.containers);
    let mut variables = containers.into_iter().flatten().flat_map(|container| container.env.iter().flatten());
    variables.find(|variable| variable.name == name)?.value.clone()
}

/// The nodes that a pod is to be kept away from, if there are others.
fn avoids(pod: &Pod) -> Vec<String> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let preferred =
        affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    let fields =
        preferred.into_iter().flatten().flat_map(|term| term.preference.match_fields.iter().flatten());
    let away = fields.filter(|field| field.key == "metadata.name" && field.operator == "NotIn");
    away.flat_map(|field| field.values.iter().flatten().cloned()).collect()
}
