//! What is to be done: specific enough that nothing meaningful is left to decide while doing it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::Value;
use trainyard_api::TrainingJobStatus;

/// What to do about one job now.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The status as it will be true once this plan is carried out.
    pub status: TrainingJobStatus,
    /// When that status is written.
    pub write: StatusWrite,
    /// Pods of the attempt before that must be gone, in truth and not only out of sight, before anything of this is done: only
    /// then may the next attempt begin.
    pub gone: Vec<String>,
    /// Pods that hang. They are asked where, once the decision is written: to answer may be the last that they do.
    pub hanging: Vec<Target>,
    /// Stages in order; the steps of a stage do not depend on each other. A stage that was refused ends the plan.
    pub stages: Vec<Vec<Step>>,
    /// Steps that nothing waits for: they go with the report and may be put off together with it.
    pub chores: Vec<Step>,
    /// Events to record, after the status is written.
    pub notices: Vec<Notice>,
    /// When to look again although nothing changed.
    pub wake_at: Option<Timestamp>,
}

/// When the status of a plan is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusWrite {
    /// Not now: it is the same, or only details differ and the last write is too recent.
    Not,
    /// Before the steps: they follow from a decision that could not be found again after a crash.
    BeforeSteps,
    /// With the steps: it only reports.
    Report,
}

/// One call to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    AddFinalizer,
    RemoveFinalizer,
    Create(NewObject),
    /// Deletes an object. A pod gets so many seconds to end; its own number without one, none at all with zero.
    Delete {
        target: Target,
        grace: Option<u32>,
    },
    /// Puts back what somebody changed by hand.
    Restore(Patch),
    /// Changes a pod so that its kubelet looks at it at once. Nothing depends on it.
    Nudge(Patch),
    /// Deletes the claim of that name, if it is this job's: one that nobody has seen may be there, and one that was seen may be that of
    /// the next job of this name.
    RemoveClaim(String),
    /// Makes the job's budget for evictions, or changes it if it is there.
    Budget(Box<PodDisruptionBudget>),
    /// Removes the budget of that name, if it is this job's.
    RemoveBudget(String),
    /// Deletes the job itself: its time after the end is over.
    DeleteJob,
}

/// An object to create.
#[derive(Clone, Debug, PartialEq)]
pub enum NewObject {
    Pod(Box<Pod>),
    Service(Box<Service>),
    ConfigMap(Box<ConfigMap>),
    Claim(Box<PersistentVolumeClaim>),
}

/// An object of ours, named so that only this very one can be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub kind: TargetKind,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TargetKind {
    Pod,
    Service,
    ConfigMap,
    Claim,
}

impl TargetKind {
    pub fn as_str(self) -> &'static str {
        match self {
            TargetKind::Pod => "pod",
            TargetKind::Service => "service",
            TargetKind::ConfigMap => "config map",
            TargetKind::Claim => "claim",
        }
    }
}

/// A JSON patch (RFC 6902) of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    pub target: Target,
    pub patch: Value,
}

/// A Kubernetes event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub importance: Importance,
    pub reason: &'static str,
    pub message: String,
    /// Tells one occurrence from another: recording the same occurrence again is recognised by the API server.
    pub occurrence: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    Normal,
    Warning,
}

impl NewObject {
    pub fn kind(&self) -> TargetKind {
        match self {
            NewObject::Pod(_) => TargetKind::Pod,
            NewObject::Service(_) => TargetKind::Service,
            NewObject::ConfigMap(_) => TargetKind::ConfigMap,
            NewObject::Claim(_) => TargetKind::Claim,
        }
    }

    pub fn name(&self) -> &str {
        let metadata = match self {
            NewObject::Pod(pod) => &pod.metadata,
            NewObject::Service(service) => &service.metadata,
            NewObject::ConfigMap(map) => &map.metadata,
            NewObject::Claim(claim) => &claim.metadata,
        };
        metadata.name.as_deref().unwrap_or_default()
    }
}

impl Plan {
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.stages.iter().flatten().chain(&self.chores)
    }

    /// Nothing to do and nothing to say.
    pub fn is_idle(&self) -> bool {
        self.write == StatusWrite::Not
            && self.stages.is_empty()
            && self.chores.is_empty()
            && self.notices.is_empty()
    }
}
