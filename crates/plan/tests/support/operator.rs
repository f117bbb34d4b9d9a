//! The operator of the cluster in memory: it plans, and carries out plans write by write, as the real executor does.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use trainyard_api::{State, TrainingJobStatus, names};
use trainyard_plan::{
    ClaimView, NewObject, Notice, ObjectView, Obstacle, ObstacleKind, Patch, Plan, PodPhase, PodView,
    StatusWrite, Step, Target, TargetKind, fingerprint, plan,
};

use super::cluster::Cluster;
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
    /// Finalizers, budgets and restored objects.
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

impl Cluster {
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

    /// One look, and what follows from it.
    pub(crate) fn look_once(&mut self) {
        let plan = self.plan();
        assert!(self.execute(&plan).is_ok(), "nothing crashes here");
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
        if !refused {
            for step in &plan.chores {
                self.step(step)?;
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
            Step::Delete { target, grace } => self.delete(target, *grace),
            Step::Restore(restore) => self.restore(restore),
            Step::Nudge(nudge) => {
                self.tally.patches += 1;
                let pod = self.pods.get_mut(&nudge.target.name).expect("nudges a pod that exists");
                pod.untouched_since = None;
            }
            Step::Budget(budget) => self.set_budget(budget),
            Step::RemoveClaim(name) => {
                self.tally.deletes += usize::from(self.claims.remove(name).is_some());
            }
            Step::RemoveBudget(_) => {
                self.tally.deletes += 1;
                self.budget = None;
            }
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
            NewObject::Pod(pod) => {
                let view = PodView { created: Some(self.now), ..view_of(pod, &uid) };
                self.pods.insert(name.clone(), view).is_some()
            }
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
                let view = ClaimView { name: name.clone(), uid: uid.clone(), deleting: false, shared };
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

    fn set_budget(&mut self, budget: &PodDisruptionBudget) {
        let name = budget.metadata.name.clone().expect("a name");
        if self.strangers.contains(&name) {
            self.tally.refused += 1;
            self.obstacles.push(Obstacle {
                kind: ObstacleKind::Unguarded { taken: true },
                object: format!("pod disruption budget {name}"),
                message: "it was not made by Trainyard".into(),
                generation: self.job().metadata.generation.unwrap_or_default(),
                retry_at: self.now + SignedDuration::from_secs(30),
            });
            return;
        }
        self.tally.patches += 1;
        self.budget = Some(budget.clone());
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

    fn delete(&mut self, target: &Target, grace: Option<u32>) {
        self.tally.deletes += 1;
        self.graces.push(grace);
        match target.kind {
            TargetKind::Pod => {
                let pod = self.pods.get(&target.name).expect("deletes a pod that exists");
                assert_eq!(pod.uid, target.uid, "deletes another pod of that name");
                assert!(self.is_own(pod), "deletes somebody else's pod");
                if grace == Some(0) {
                    self.pods.remove(&target.name);
                } else {
                    self.take_pod(&target.name);
                }
            }
            TargetKind::Claim => {
                assert!(self.claims.remove(&target.name).is_some(), "deletes a claim that exists");
            }
            TargetKind::Service | TargetKind::ConfigMap => panic!("deletes {target:?}"),
        }
    }

    fn restore(&mut self, restore: &Patch) {
        self.tally.patches += 1;
        let value = |path: &str| -> Value {
            let operations = restore.patch.as_array().expect("a JSON patch");
            let operation = operations.iter().find(|operation| operation["path"] == path);
            operation.unwrap_or_else(|| panic!("nothing about {path}"))["value"].clone()
        };
        let name = &restore.target.name;
        match restore.target.kind {
            TargetKind::Service => {
                let selector: BTreeMap<String, String> =
                    serde_json::from_value(value("/spec/selector")).expect("a selector");
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
                let data: BTreeMap<String, String> = serde_json::from_value(value("/data")).expect("data");
                let view = self.config_maps.get_mut(name).expect("restores a config map that exists");
                view.fingerprint = fingerprint::config_map(&data);
            }
            kind => panic!("restores a {}", kind.as_str()),
        }
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
        owner: controller(metadata).map(Into::into),
        attempt: label(names::ATTEMPT_LABEL).and_then(|attempt| attempt.parse().ok()),
        inputs: note(names::INPUTS_ANNOTATION).map(Into::into),
        shape: note(names::SHAPE_ANNOTATION).map(Into::into),
        announced: note(names::ANNOUNCED_ANNOTATION).map(Into::into),
        created: None,
        untouched_since: None,
        deleting: false,
        leaves_by: None,
        phase: PodPhase::Pending,
        lingers: None,
        agent_started: false,
        node: None,
        exit: None,
        waiting: None,
        disruption: None,
    }
}
