//! What users and the cluster do.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use trainyard_api::checkpoint::AGENT_CONTAINER;
use trainyard_api::{AgentReport, CheckpointStatus, TrainingJobSpec, names};
use trainyard_operator::JobKey;
use trainyard_plan::{TargetKind, World as Roles};
use trainyard_progress::Reading;

use super::World;
use crate::port::lock;
use crate::server::{Actor, Body, Child, Deed, NAMESPACE};

/// So many epochs all programs have before them.
const EPOCHS: f64 = 100.0;

impl World {
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

    /// The job cannot be read any more, or again.
    pub fn set_unreadable(&mut self, name: &str, unreadable: bool) {
        self.tell(|| format!("user makes {name} unreadable: {unreadable}"));
        self.server().set_unreadable(name, unreadable);
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
        let uid = self.server().job(name).and_then(|job| job.metadata.uid.clone());
        self.check.forget_status(&uid.unwrap_or_default());
        self.witness();
    }

    /// Somebody else wants to see a job before it goes, or has.
    pub fn audit(&mut self, name: &str, holds: bool) {
        self.tell(|| format!("somebody else holds {name}: {holds}"));
        self.server().audit(name, holds);
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

    pub(super) fn pod(&mut self, name: &str, why: &str, change: impl FnOnce(&mut Body)) {
        self.tell(|| format!("cluster: {name} {why}"));
        self.server().alter(Actor::Cluster, TargetKind::Pod, name, change);
        self.witness();
    }

    pub(super) fn has_ended(&self, name: &str) -> bool {
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
            let mut status = json!({
                "phase": "Running",
                "containerStatuses": [{"name": names::CONTAINER, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": {"running": {"startedAt": now.to_string()}}}],
            });
            if led.is_some() {
                status["initContainerStatuses"] = agent_runs();
            }
            keep_disruption(pod, &mut status);
            pod.set_status(|| format!("node-{name}"), status);
        });
        if let Some((job, uid)) = led {
            let checkpoint = self.server().stored.get(&job).cloned();
            self.report(&job, &uid, AgentReport { checkpoint, ..AgentReport::default() });
        }
    }

    /// The pod is on a node of its own, which makes nothing of it: its kubelet has met an error, and looks again later.
    pub fn bind(&mut self, name: &str) {
        let is_bound = self.server().all(TargetKind::Pod).get(name).is_none_or(|pod| pod.node().is_some());
        if is_bound || self.has_ended(name) {
            return;
        }
        let now = Timestamp::from_second(self.now().as_second()).unwrap_or_default();
        self.pod(name, "is on its node", |pod| {
            let bound =
                json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now.to_string()});
            pod.set_status(|| format!("node-{name}"), json!({"phase": "Pending", "conditions": [bound]}));
        });
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
        self.pod(pod, "is held by its agent", |held| {
            let held = held.rest_mut();
            held["spec"]["nodeName"] = format!("node-{pod}").into();
            held["status"]["initContainerStatuses"] = agent_runs();
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
        self.check.hear(&about, uid, &report);
        self.server().reports.insert(uid.to_owned(), report);
        self.heard(job, uid);
    }

    fn heard(&mut self, job: &str, uid: &str) {
        let (key, now) = (JobKey::new(NAMESPACE, job), *lock(&self.house.clock));
        let mut hearers = Vec::new();
        for operator in &mut self.operators {
            if operator.hear(&key, uid, now) {
                hearers.extend(operator.process());
            }
        }
        let server = lock(&self.server);
        let report = server.reports.get(uid).and_then(|report| report.checkpoint.as_ref());
        let step = report.and_then(|newest| newest.step);
        if let (Some(about), Some(step)) = (server.job(job).and_then(|job| job.metadata.uid.clone()), step) {
            for process in hearers {
                self.check.heard.insert((process, about.clone()), step);
            }
        }
    }

    /// The leading pod of a job, while it runs: also when it was told to go, for as long as it has, on a node that is there.
    fn leader(&self, job: &str) -> Option<String> {
        let server = self.server();
        let job = server.job(job)?;
        let pod = server.all(TargetKind::Pod).get(&Roles::of(job).leader())?;
        let runs = pod.phase() == "Running" && pod.controller() == job.metadata.uid.as_deref();
        let is_alive = pod.node().is_some_and(|node| !server.dead.contains(node));
        (runs && is_alive).then(|| pod.uid.clone())
    }

    /// The leading program of a job says that it has come to the next epoch.
    pub fn progress(&mut self, job: &str) {
        let Some(uid) = self.leader(job) else { return };
        let now = self.now();
        self.tell(|| format!("program of {job} goes on"));
        let (about, epoch) = {
            let mut server = self.server();
            let said = server.said.entry(uid.clone()).or_default();
            let epoch = said.epoch.unwrap_or_default() + 1.0;
            said.take(Reading { epoch: Some(epoch), epochs: Some(EPOCHS), ..Reading::default() }, now);
            (server.job(job).and_then(|job| job.metadata.uid.clone()).unwrap_or_default(), epoch)
        };
        self.check.hear_epoch(about, epoch);
        self.check.said.insert(uid.clone(), now);
        self.heard(job, &uid);
    }

    /// The leading program of a job saves a checkpoint, and the agent beside it says so.
    pub fn save(&mut self, job: &str) {
        let Some(uid) = self.leader(job) else { return };
        if !self.server().job(job).is_some_and(|job| job.spec.checkpoints_on()) {
            return;
        }
        let now = Timestamp::from_second(self.now().as_second()).unwrap_or_default();
        let checkpoint = {
            let mut server = self.server();
            let resumes = server.job(job).is_some_and(|job| job.spec.resumes());
            let saved = if resumes {
                server.stored.get(job).and_then(|stored| stored.step)
            } else {
                // It has begun afresh, and saves the same once more.
                server.saved.get(&uid).copied()
            };
            let step = saved.unwrap_or_default() + 10;
            server.saved.insert(uid.clone(), step);
            let checkpoint = CheckpointStatus {
                path: format!("/checkpoints/step-{step}"),
                step: Some(step),
                time: Some(Time(now)),
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

    fn end(&mut self, name: &str, why: &str, code: i32, reason: &str) {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        self.end_as(name, why, phase, code, reason, |_| {});
    }

    /// The program of a pod has ended with this code, and its kubelet says so, and what else there is to say.
    pub(super) fn end_as(
        &mut self,
        name: &str,
        why: &str,
        phase: &str,
        code: i32,
        reason: &str,
        more: impl FnOnce(&mut Value),
    ) {
        if self.has_ended(name) {
            return;
        }
        let now = Timestamp::from_second(self.now().as_second()).unwrap_or_default();
        self.pod(name, why, |pod| {
            let mut status = json!({
                "phase": phase,
                "containerStatuses": [{"name": names::CONTAINER, "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": {"terminated": {
                        "exitCode": code, "reason": reason, "finishedAt": now.to_string(),
                    }}}],
            });
            keep_disruption(pod, &mut status);
            more(&mut status);
            pod.set_status(|| format!("node-{name}"), status);
        });
    }

    pub fn succeed(&mut self, name: &str) {
        self.end(name, "succeeds", 0, "Completed");
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
        self.end(name, &format!("fails with {code}"), code, "Error");
    }

    /// It uses more memory than it may.
    pub fn out_of_memory(&mut self, name: &str) {
        self.end(name, "uses too much memory", 137, "OOMKilled");
    }

    pub fn cannot_be_placed(&mut self, name: &str) {
        let pending = self.server().all(TargetKind::Pod).get(name).is_some_and(|pod| pod.node().is_none());
        if pending && !self.has_ended(name) {
            self.pod(name, "cannot be placed", |pod| {
                pod.rest_mut()["status"]["conditions"] = json!([{
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/3 nodes are available",
                }]);
            });
        }
    }

    /// A pod is gone without a trace.
    pub fn lose_pod(&mut self, name: &str) {
        self.tell(|| format!("cluster: {name} is gone"));
        self.server().remove(Actor::Cluster, TargetKind::Pod, name, Some(0));
        self.server().logs(|| Deed::Remove(TargetKind::Pod, name.to_owned(), Some(0)));
        self.witness();
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
}

/// That the cluster takes a pod is not forgotten when something else happens to it.
fn keep_disruption(pod: &Body, status: &mut Value) {
    let conditions = &pod["status"]["conditions"];
    if conditions[0]["type"] == "DisruptionTarget" {
        status["conditions"] = conditions.clone();
    }
}

/// The agent in a pod has been started.
fn agent_runs() -> Value {
    json!([{"name": AGENT_CONTAINER, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}])
}
