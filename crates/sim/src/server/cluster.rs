//! What users and the cluster do.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde_json::{Value, json};
use trainyard_api::{TrainingJob, TrainingJobSpec, names};
use trainyard_plan::TargetKind;

use super::past::Past;
use super::store::{READABLE, told, whole_seconds, with_status};
use super::{Actor, Body, Change, Child, Deed, NAMESPACE, Server, watched};

/// A finalizer that is not ours.
const FOREIGN: &str = "example.com/audit";

impl Server {
    /// `kubectl create`: refused as long as there is one of that name.
    pub fn submit(&mut self, name: &str, spec: TrainingJobSpec) {
        if self.jobs.contains_key(name) {
            return;
        }
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

    /// Somebody writes something into a job that operators cannot read, or takes it out again.
    pub fn set_unreadable(&mut self, name: &str, unreadable: bool) {
        let Some(job) = self.job(name) else { return };
        let mut new = (**job).clone();
        let uid = new.metadata.uid.clone().unwrap_or_default();
        let is_new = if unreadable { self.unreadable.insert(uid) } else { self.unreadable.remove(&uid) };
        if !is_new {
            return;
        }
        new.metadata.generation = new.metadata.generation.map(|generation| generation + 1);
        self.put_job(Actor::User, new);
    }

    /// Somebody else puts a finalizer on a job, or takes it off again.
    pub fn audit(&mut self, name: &str, holds: bool) {
        let Some(job) = self.job(name) else { return };
        let mut new = (**job).clone();
        let is_going = new.metadata.deletion_timestamp.is_some();
        let finalizers = new.metadata.finalizers.get_or_insert_default();
        let is_held = finalizers.iter().any(|held| held == FOREIGN);
        if holds == is_held || (holds && is_going) {
            return;
        }
        if holds {
            finalizers.insert(0, FOREIGN.to_owned());
        } else {
            finalizers.retain(|held| held != FOREIGN);
        }
        if finalizers.is_empty() {
            new.metadata.finalizers = None;
        }
        if is_going && new.metadata.finalizers.is_none() {
            self.erase_job(Actor::User, new);
        } else {
            self.put_job(Actor::User, new);
        }
    }

    /// Somebody else's budget. Says whether there was room for it.
    pub fn plant_budget(&mut self, name: &str) -> bool {
        if self.budgets.contains_key(name) {
            return false;
        }
        let mut budget = PodDisruptionBudget::default();
        budget.metadata.name = Some(name.to_owned());
        self.budgets.insert(name.to_owned(), budget);
        true
    }

    /// Its owner takes it away again, if it is still there as it was.
    pub fn take_budget(&mut self, name: &str) -> bool {
        let is_there = self
            .budgets
            .get(name)
            .is_some_and(|budget| budget.spec.is_none() && budget.metadata.owner_references.is_none());
        is_there && self.budgets.remove(name).is_some()
    }

    /// Somebody takes the status away.
    pub fn remove_status(&mut self, name: &str) {
        if let Some(job) = self.job(name).filter(|job| job.status.is_some()) {
            self.put_job(Actor::User, with_status(job, None));
            self.logs(|| Deed::RemoveStatus(name.to_owned()));
        }
    }

    /// An object of somebody else's.
    pub fn plant(&mut self, by: Actor, kind: TargetKind, name: &str, mut value: Value) {
        // A quota is for everybody.
        if self.all(kind).contains_key(name) || (kind == TargetKind::Pod && self.exceeded().is_some()) {
            return;
        }
        value["metadata"]["name"] = name.into();
        value["metadata"]["namespace"] = NAMESPACE.into();
        if kind == TargetKind::Pod && value.get("status").is_none() {
            value["status"] = json!({"phase": "Pending"});
        }
        let logged = if self.log.is_some() { value.clone() } else { Value::Null };
        self.insert(by, kind, name, Body::from_json(value).expect(READABLE), false, None);
        self.logs(|| Deed::Change(kind, name.to_owned(), Value::Null, logged));
    }

    /// Changes an object, as JSON.
    pub fn change(&mut self, by: Actor, kind: TargetKind, name: &str, change: impl FnOnce(&mut Value)) {
        self.alter(by, kind, name, |body| {
            let mut whole = body.to_json();
            change(&mut whole);
            *body = Body::from_json(whole).expect(READABLE);
        });
    }

    /// Changes an object, as it is stored.
    pub fn alter(&mut self, by: Actor, kind: TargetKind, name: &str, change: impl FnOnce(&mut Body)) {
        let Some(child) = self.all(kind).get(name) else { return };
        let mut new = child.value.clone();
        change(&mut new);
        let logged = self.log.is_some().then(|| (child.value.to_json(), new.to_json()));
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
        let pending = child.value.metadata().deletion_grace_period_seconds;
        let grace = if takes_time { grace.or(pending).or(own).unwrap_or(30) } else { 0 };
        if grace > 0 {
            let is_first = !child.is_deleting();
            if is_first || pending.is_some_and(|pending| grace < pending) {
                let mut new = child.value.clone();
                let until = whole_seconds(self.now + SignedDuration::from_secs(grace));
                let metadata = new.metadata_mut();
                metadata.deletion_timestamp = Some(Time(until));
                metadata.deletion_grace_period_seconds = Some(grace);
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
        let from = std::mem::replace(&mut child.version, version);
        let metadata = child.value.metadata().clone();
        self.past.push(Past { kind, name: name.to_owned(), from, until: version, metadata });
        let is_deleting = child.is_deleting();
        let last = child.value.metadata_mut();
        last.resource_version = Some(version.to_string());
        if is_deleting {
            // Its time was cut short, or was over.
            last.deletion_grace_period_seconds = Some(0);
        }
        if child.is_selected() {
            let journal = &mut self.journal[watched(kind) as usize];
            let sighting = told(self.speaks_json, kind, &child.value, journal.get(child.told)).gone();
            if kind == TargetKind::Pod {
                self.ends.push(journal.len());
            }
            journal.push(sighting);
            let metadata = child.value.metadata().clone();
            self.tells(watched(kind), true, || metadata);
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
            let is_gone =
                |owner: &OwnerReference| owner.kind == names::KIND && !owners.contains(&owner.uid.as_str());
            !child.is_deleting() && !child.owners().is_empty() && child.owners().iter().all(is_gone)
        };
        let garbage = self.children().filter(|(_, child)| is_garbage(child));
        garbage.map(|(kind, child)| (kind, child.name().to_owned())).collect()
    }

    pub(super) fn collect_budgets(&mut self) {
        let Self { jobs, budgets, .. } = self;
        let is_there = |uid: &str| jobs.values().any(|job| job.metadata.uid.as_deref() == Some(uid));
        budgets.retain(|_, budget| {
            let owners = budget.metadata.owner_references.as_deref().unwrap_or_default();
            owners.is_empty() || owners.iter().any(|owner| is_there(&owner.uid))
        });
    }
}
