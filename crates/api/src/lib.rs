//! What users write and read: the `TrainingJob`, in both of its vocabularies.
//!
//! Everything here is plain data and pure functions: types, the names of the objects a job makes,
//! the CRD with its rules, and validation. No client, no clock, no async: anything may depend on it.

pub mod checkpoint;
pub mod crd;
mod entries;
mod fields;
pub mod hash;
pub mod names;
mod policy;
pub mod problem;
mod quantity;
mod rules;
pub mod schema;
mod spec;
pub mod spelling;
mod status;
mod template;
mod validate;

pub use checkpoint::{AgentReport, CheckpointStatus};
pub use entries::Entries;
pub use policy::{
    CleanPodPolicy, FailureAction, FailurePolicy, FailureRule, RestartPolicy, RestartScope, SuccessPolicy,
};
pub use problem::{FieldPath, Problem, Severity};
pub use quantity::{Quantity, Resources};
pub use spec::{
    Backend, Checkpoint, CheckpointLayout, CheckpointStorage, ClaimAccessMode, DataVolume, Form, Framework,
    Networking, ProgressSource, ProgressSpec, Resume, Role, RoleOrder, RoleSuccess, StorageType, TrainingJob,
    TrainingJobSpec,
};
pub use status::{
    AllocatedResources, Attempt, AttemptSeconds, Cause, CheckpointDefaults, DisruptionBudget, Effective,
    Phase, Restarts, State, TrainingJobStatus, WorkerCounts, WorkerStatus, condition,
};
pub use template::{Training, template_problems};
pub use validate::validate;
