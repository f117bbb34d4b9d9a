//! Carries out a plan. No meaningful choices are left: every step is safe to repeat, and what the cluster refuses
//! is reported back as an obstacle for the next plan.

use std::collections::BTreeMap;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use trainyard_api::{TrainingJob, TrainingJobStatus, names};
use trainyard_plan::{NewObject, ObstacleKind, Patch, Plan, StatusWrite, Step, Target, TargetKind};

use crate::events;
use crate::memory::Echo;
use crate::port::{JobRef, NewEvent, Port, Refusal, Written};
use crate::saying::StatusChange;
use crate::views::{attempt, controller, version};

/// What came of a plan.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Our writes, which the cache has to see before the next plan.
    pub echoes: Vec<Echo>,
    /// The status was written.
    pub status_written: bool,
    /// A report was put off.
    pub report_due: bool,
    /// What pods that hang said about where, by name.
    pub stacks: Vec<(String, String)>,
    /// What is now to be recorded.
    pub events: Vec<NewEvent>,
    /// What the cluster refused: kind, object, why.
    pub obstacles: Vec<(ObstacleKind, String, String)>,
    /// The plan was made from an old version of the job: make another.
    pub outdated: bool,
    /// A passing fault: try again after a while.
    pub fault: Option<String>,
    /// The fault is only about the budget: object and why. If it does not pass, the job goes on without one.
    pub unguarded: Option<(String, String)>,
}

impl Outcome {
    fn is_stopped(&self) -> bool {
        self.outdated || self.fault.is_some() || !self.obstacles.is_empty()
    }
}

/// Carries out `plan`, which was made for `job`. With `reports` false, a status that only reports is left for later.
pub async fn execute(
    port: &impl Port,
    job: &TrainingJob,
    plan: &Plan,
    reports: bool,
    now: Timestamp,
) -> Outcome {
    let mut run = Run {
        port,
        job,
        reference: reference(job),
        resource_version: job.metadata.resource_version.clone().unwrap_or_default(),
        outcome: Outcome::default(),
    };
    if plan.write == StatusWrite::BeforeSteps {
        run.write_status(&plan.status).await;
    }
    if !plan.hanging.is_empty() && !run.outcome.is_stopped() {
        let asked = plan.hanging.iter().map(|pod| run.port.stacks(&run.reference, pod));
        let said = plan.hanging.iter().zip(join_all(asked).await);
        // Who is silent while others answer is telling, too. Where nobody does, they could not be asked.
        let said: Vec<_> = said.map(|(pod, said)| (pod.name.clone(), said.unwrap_or_default())).collect();
        if said.iter().any(|(_, said)| !said.is_empty()) {
            run.outcome.stacks = said;
        }
    }
    for stage in &plan.stages {
        if run.outcome.is_stopped() {
            break;
        }
        run.stage(stage).await;
    }
    let is_report = plan.write == StatusWrite::Report || !plan.chores.is_empty();
    if is_report && !reports {
        run.outcome.report_due = !run.outcome.is_stopped();
    } else {
        if !run.outcome.is_stopped() {
            run.stage(&plan.chores).await;
        }
        if plan.write == StatusWrite::Report && !run.outcome.is_stopped() {
            run.write_status(&plan.status).await;
        }
    }
    // An event tells of what the status says: without the status, it has not happened yet.
    if plan.write == StatusWrite::Not || run.outcome.status_written {
        run.outcome.events =
            plan.notices.iter().map(|notice| events::of_notice(&run.reference, notice, now)).collect();
    }
    run.outcome
}

/// Records events. Nothing waits for them.
pub async fn record(port: &impl Port, events: Vec<NewEvent>) {
    let record = |event: NewEvent| async move {
        match port.record_event(&event).await {
            Ok(()) | Err(Refusal::AlreadyExists) => {}
            Err(refusal) => {
                let JobRef { namespace, name, .. } = &event.job;
                tracing::warn!(%namespace, trainingjob = %name, reason = %event.reason, "event not recorded: {refusal}");
            }
        }
    };
    join_all(events.into_iter().map(record)).await;
}

/// Whether it has the labels by which an object of this job is seen.
pub(crate) fn is_labelled(metadata: &ObjectMeta, job: &str) -> bool {
    label(metadata, names::MANAGED_BY_LABEL) == Some(names::MANAGED_BY)
        && label(metadata, names::JOB_LABEL) == Some(job)
}

/// Whether a claim, which has no owner on purpose, was made for a job of this name.
fn is_claim_of(metadata: &ObjectMeta, job: &str) -> bool {
    label(metadata, names::JOB_LABEL) == Some(job) && label(metadata, names::APP_LABEL) == Some(names::APP)
}

fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// Whether what stands where this pod should be was made for another attempt of the same job.
fn is_of_another_attempt(object: &NewObject, found: &ObjectMeta) -> bool {
    match object {
        NewObject::Pod(pod) => attempt(found).is_some_and(|other| attempt(&pod.metadata) != Some(other)),
        NewObject::Service(_) | NewObject::ConfigMap(_) | NewObject::Claim(_) => false,
    }
}

/// Puts the labels back by which an object of ours is seen.
pub(crate) async fn relabel(
    port: &impl Port,
    job: &JobRef,
    kind: TargetKind,
    name: &str,
    metadata: &ObjectMeta,
) -> Result<Echo, Refusal> {
    let labels = [(names::MANAGED_BY_LABEL, names::MANAGED_BY), (names::JOB_LABEL, job.name.as_str())];
    let patch = if metadata.labels.is_some() {
        let path = |label: &str| format!("/metadata/labels/{}", label.replace('/', "~1"));
        labels
            .iter()
            .map(|(label, value)| json!({"op": "add", "path": path(label), "value": value}))
            .collect()
    } else {
        json!([{"op": "add", "path": "/metadata/labels", "value": BTreeMap::from(labels)}])
    };
    let target = Target { kind, name: name.to_owned(), uid: metadata.uid.clone().unwrap_or_default() };
    let written = port.patch(job, &target, &patch).await?;
    Ok(Echo::Reached { kind, name: name.to_owned(), version: written.version })
}

fn reference(job: &TrainingJob) -> JobRef {
    JobRef {
        namespace: job.metadata.namespace.clone().unwrap_or_default(),
        name: job.metadata.name.clone().unwrap_or_default(),
        uid: job.metadata.uid.clone().unwrap_or_default(),
    }
}

struct Run<'a, P> {
    port: &'a P,
    job: &'a TrainingJob,
    reference: JobRef,
    /// The version of the job that the next write builds on: the plan's, then that of our own last write.
    resource_version: String,
    outcome: Outcome,
}

/// What came of one step.
enum Done {
    Yes,
    Echo(Echo),
    /// The job itself was written.
    Job(Written),
    Stopped(Refusal, String),
    /// This object is not ours.
    InTheWay(String, String),
    /// The budget cannot be had just now.
    NotYetGuarded(String, String),
    /// The budget cannot be had.
    Unguarded {
        taken: bool,
        what: String,
        why: String,
    },
}

impl<P: Port> Run<'_, P> {
    /// The steps of a stage do not depend on each other.
    async fn stage(&mut self, stage: &[Step]) {
        let results = join_all(stage.iter().map(|step| self.step(step))).await;
        for done in results {
            self.note(done);
        }
    }

    fn note(&mut self, done: Done) {
        match done {
            Done::Yes => {}
            Done::Echo(echo) => self.outcome.echoes.push(echo),
            Done::Job(written) => {
                self.outcome.echoes.push(Echo::Job(written.version));
                self.resource_version = written.resource_version;
            }
            Done::Stopped(Refusal::Conflict | Refusal::NotFound, _) => self.outcome.outdated = true,
            Done::Stopped(Refusal::Passing(why), what) => self.outcome.fault = Some(format!("{what}: {why}")),
            Done::InTheWay(what, why) => {
                self.outcome.obstacles.push((ObstacleKind::NameConflict, what, why));
            }
            Done::NotYetGuarded(what, why) => {
                self.outcome.fault = Some(format!("{what}: {why}"));
                self.outcome.unguarded = Some((what, why));
            }
            Done::Unguarded { taken, what, why } => {
                self.outcome.obstacles.push((ObstacleKind::Unguarded { taken }, what, why));
            }
            Done::Stopped(refusal, what) => {
                let kind = match &refusal {
                    Refusal::Quota(_) => ObstacleKind::Quota,
                    Refusal::Invalid(_) => ObstacleKind::Invalid,
                    _ => ObstacleKind::Forbidden,
                };
                self.outcome.obstacles.push((kind, what, refusal.to_string()));
            }
        }
    }

    async fn step(&self, step: &Step) -> Done {
        match step {
            Step::AddFinalizer => self.finalizers(true).await,
            Step::RemoveFinalizer => self.finalizers(false).await,
            Step::Create(object) => self.create(object).await,
            Step::Delete { target, grace } => self.delete(target, *grace).await,
            Step::Restore(patch) => self.patch(patch).await,
            Step::Nudge(patch) => match self.patch(patch).await {
                // A busy server is asked again. Where it is not allowed, the kubelet looks again by itself, only later.
                Done::Stopped(refusal, pod) if !matches!(refusal, Refusal::Passing(_)) => {
                    tracing::debug!(job = %self.reference.name, "{pod} cannot be nudged: {refusal}");
                    Done::Yes
                }
                done => done,
            },
            Step::Budget(budget) => self.budget(budget).await,
            Step::RemoveClaim(name) => self.remove_claim(name).await,
            Step::RemoveBudget(name) => match self.port.remove_budget(&self.reference, name).await {
                // What may not be removed goes with the job.
                Ok(()) | Err(Refusal::NotFound | Refusal::Forbidden(_)) => Done::Yes,
                Err(refusal) => not_yet_guarded(refusal, format!("pod disruption budget {name}")),
            },
            Step::DeleteJob => match self.port.delete_job(&self.reference).await {
                Ok(()) | Err(Refusal::NotFound) => Done::Yes,
                // Another job of that name by now, or only a busy server: the next look tells.
                Err(refusal) => Done::Stopped(refusal, "deleting the job".to_owned()),
            },
        }
    }

    async fn finalizers(&self, ours: bool) -> Done {
        let others = self.job.metadata.finalizers.iter().flatten().filter(|name| *name != names::FINALIZER);
        let mut finalizers: Vec<&str> = others.map(String::as_str).collect();
        if ours {
            finalizers.push(names::FINALIZER);
        }
        let patch = json!({"metadata": {"resourceVersion": self.resource_version, "finalizers": finalizers}});
        match self.port.patch_job(&self.reference, &patch).await {
            Ok(written) => Done::Job(written),
            // Without our finalizer, a job that is being deleted may go at once.
            Err(Refusal::NotFound) if !ours => Done::Yes,
            Err(refusal) => Done::Stopped(refusal, "the finalizer".to_owned()),
        }
    }

    async fn create(&self, object: &NewObject) -> Done {
        let (kind, name) = (object.kind(), object.name());
        match self.port.create(&self.reference, object).await {
            // Not the job has changed, but something that the API server counts with, such as a quota.
            Err(Refusal::Conflict) => Done::Stopped(
                Refusal::Passing("something it depends on has changed in the meantime".to_owned()),
                format!("{} {name}", kind.as_str()),
            ),
            Ok(written) => {
                Done::Echo(Echo::Reached { kind, name: name.to_owned(), version: written.version })
            }
            Err(Refusal::AlreadyExists) => self.in_the_way(object).await,
            // A namespace that goes away takes the job with it.
            Err(refusal) => Done::Stopped(refusal, format!("{} {name}", kind.as_str())),
        }
    }

    /// Something with our name exists, although the cache does not know it. If it is ours, somebody took its labels.
    async fn in_the_way(&self, object: &NewObject) -> Done {
        let (kind, name) = (object.kind(), object.name());
        let what = format!("{} {name}", kind.as_str());
        let metadata = match self.port.metadata(&self.reference, kind, name, None).await {
            Ok(metadata) => metadata,
            // Gone again: the next plan creates it.
            Err(Refusal::NotFound) => return Done::Stopped(Refusal::Conflict, what),
            Err(refusal) => return Done::Stopped(refusal, what),
        };
        let is_ours = match kind {
            TargetKind::Claim => is_claim_of(&metadata, &self.reference.name),
            _ => controller(&metadata).as_deref() == Some(&self.reference.uid),
        };
        if !is_ours {
            let owner =
                metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
            let whose = owner.map_or_else(
                || "it was not made by Trainyard".to_owned(),
                |owner| format!("it belongs to {} {}", owner.kind, owner.name),
            );
            let advice = match kind {
                TargetKind::Claim => "name it in checkpoint.storage.claimName, or give the job another name",
                _ => "delete it, or give the job another name",
            };
            return Done::InTheWay(what, format!("{whose}; {advice}"));
        }
        if is_of_another_attempt(object, &metadata) {
            // It came late, when nobody expected it any more. The watch will tell, and then it goes.
            return Done::Stopped(Refusal::Passing("a pod of another attempt has its name".to_owned()), what);
        }
        if is_labelled(&metadata, &self.reference.name) {
            return Done::Echo(Echo::Reached { kind, name: name.to_owned(), version: version(&metadata) });
        }
        match relabel(self.port, &self.reference, kind, name, &metadata).await {
            Ok(echo) => Done::Echo(echo),
            Err(Refusal::NotFound) => Done::Yes,
            Err(refusal) => Done::Stopped(refusal, what),
        }
    }

    async fn delete(&self, target: &Target, grace: Option<u32>) -> Done {
        match self.port.delete(&self.reference, target, grace).await {
            Err(Refusal::NotFound) => Done::Yes,
            // Another object of that name by now, or only a busy server, and then nothing that follows may happen: the next look tells.
            Err(refusal @ Refusal::Conflict) => Done::Stopped(refusal, target.name.clone()),
            Ok(()) => Done::Echo(Echo::Leaving {
                kind: target.kind,
                name: target.name.clone(),
                uid: target.uid.clone(),
            }),
            Err(refusal) => Done::Stopped(refusal, format!("{} {}", target.kind.as_str(), target.name)),
        }
    }

    /// A claim that was never seen may be there all the same.
    async fn remove_claim(&self, name: &str) -> Done {
        let what = format!("claim {name}");
        let metadata = match self.port.metadata(&self.reference, TargetKind::Claim, name, None).await {
            Ok(metadata) => metadata,
            Err(Refusal::NotFound) => return Done::Yes,
            Err(refusal) => return Done::Stopped(refusal, what),
        };
        let job = &self.reference.name;
        let is_ours = is_claim_of(&metadata, job) && is_labelled(&metadata, job);
        if !is_ours || metadata.deletion_timestamp.is_some() {
            return Done::Yes;
        }
        // Asked after the claim was seen: if the job is still there, that claim is not the one of a successor.
        match self.port.has_job(&self.reference).await {
            Ok(true) => {}
            Ok(false) => return Done::Yes,
            Err(refusal) => return Done::Stopped(refusal, what),
        }
        let uid = metadata.uid.unwrap_or_default();
        self.delete(&Target { kind: TargetKind::Claim, name: name.to_owned(), uid }, None).await
    }

    /// Nothing that may be wrong with a budget ends a training.
    async fn budget(&self, budget: &PodDisruptionBudget) -> Done {
        let what = format!("pod disruption budget {}", budget.metadata.name.as_deref().unwrap_or_default());
        match self.port.set_budget(&self.reference, budget).await {
            Ok(()) => Done::Yes,
            Err(Refusal::AlreadyExists) => {
                let why = "it was not made by this job; delete it, or give the job another name".to_owned();
                Done::Unguarded { taken: true, what, why }
            }
            Err(refusal @ (Refusal::Conflict | Refusal::Passing(_) | Refusal::NotFound)) => {
                not_yet_guarded(refusal, what)
            }
            Err(refusal) => Done::Unguarded { taken: false, what, why: refusal.to_string() },
        }
    }

    async fn patch(&self, Patch { target, patch }: &Patch) -> Done {
        match self.port.patch(&self.reference, target, patch).await {
            Ok(written) => Done::Echo(Echo::Reached {
                kind: target.kind,
                name: target.name.clone(),
                version: written.version,
            }),
            Err(Refusal::NotFound) => Done::Yes,
            // Another object of that name by now, or only a busy server, and then no event would bring the job back: the next look tells.
            Err(refusal @ Refusal::Conflict) => Done::Stopped(refusal, target.name.clone()),
            // Putting something back must not end a training.
            Err(Refusal::Invalid(why)) => Done::Stopped(Refusal::Forbidden(why), target.name.clone()),
            Err(refusal) => Done::Stopped(refusal, format!("{} {}", target.kind.as_str(), target.name)),
        }
    }

    async fn write_status(&mut self, status: &TrainingJobStatus) {
        let change = StatusChange::new(&self.resource_version, self.job.status.as_ref(), status);
        match self.port.write_status(&self.reference, &change).await {
            Ok(written) => {
                self.outcome.status_written = true;
                self.note(Done::Job(written));
            }
            Err(Refusal::Invalid(why)) => {
                // Our own status does not fit the CRD that is installed: nothing in the job can mend that.
                self.outcome.fault = Some(format!("the status was refused, is the CRD up to date? {why}"));
            }
            Err(refusal) => self.note(Done::Stopped(refusal, "the status".to_owned())),
        }
    }
}

/// Nobody watches budgets: one that has changed in the meantime is looked at again, and not left to the next version of the job.
fn not_yet_guarded(refusal: Refusal, what: String) -> Done {
    match refusal {
        Refusal::Conflict | Refusal::Passing(_) => Done::NotYetGuarded(what, refusal.to_string()),
        refusal => Done::Stopped(refusal, what),
    }
}
