//! The spec of a `TrainingJob`: the Rust types from which the CRD is generated.
//!
//! Doc comments of fields become `kubectl explain`, so they are written for users. A field is here only if it
//! already does what it says. Defaults depend on the form of the job and are resolved by the methods of
//! `defaults`, never written into the spec.

mod checkpoint;
mod defaults;
mod role;

pub use checkpoint::{Checkpoint, CheckpointLayout, CheckpointStorage, ClaimAccessMode, Resume, StorageType};
pub use defaults::Form;
pub use role::{Role, RoleOrder, RoleSuccess};

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entries::Entries;
use crate::policy::{CleanPodPolicy, FailurePolicy, RestartPolicy, SuccessPolicy};
use crate::quantity::Resources;
use crate::status::TrainingJobStatus;

/// What to train, with how many workers, and what to do when something breaks.
///
/// Give either `image` (your own program) or both `model` and `dataset` (a recipe of your platform).
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ml.example.com",
    version = "v1",
    kind = "TrainingJob",
    plural = "trainingjobs",
    singular = "trainingjob",
    shortname = "tj",
    shortname = "trainingjob",
    namespaced,
    status = "TrainingJobStatus",
    derive = "PartialEq",
    doc = "A training job: workers that Trainyard starts, wires together, restarts when they fail, and cleans up."
)]
#[serde(rename_all = "camelCase")]
pub struct TrainingJobSpec {
    /// Which launch contract the workers get: the environment variables that the framework's launcher reads.
    /// Default: pytorch. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<Framework>,

    /// Container image of the workers. Without it, `model` and `dataset` are required and the operator's
    /// default image is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,

    /// The program to run, one word per item. Without it, the image's own entry point runs (a job without an
    /// image runs the framework's launcher on /app/train.py).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(max = 65536)))]
    pub command: Option<Vec<String>>,

    /// Arguments of the program, after `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), inner(length(max = 65536)))]
    pub args: Option<Vec<String>>,

    /// Name of the model, given to the workers as MODEL. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub model: Option<String>,

    /// Name of the data set, given to the workers as DATASET. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub dataset: Option<String>,

    /// How many worker pods. Default: 1; 0 is allowed beside a ranked role. Changing it restarts the workers with
    /// the new world size. The same as `workers`: give one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1024))]
    pub num_workers: Option<i32>,

    /// How many worker pods; the same as `numWorkers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1024))]
    pub workers: Option<i32>,

    /// GPUs of each worker. Default: 0 for a job with an image, 1 for a job with a model and a dataset.
    /// Immutable. The same as `gpuPerWorker`: give one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 8))]
    pub gpus_per_worker: Option<i32>,

    /// GPUs of each worker; the same as `gpusPerWorker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 8))]
    pub gpu_per_worker: Option<i32>,

    /// Processes that a launcher starts in each worker (PET_NPROC_PER_NODE). Default: the GPUs of a worker, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub procs_per_worker: Option<i32>,

    /// Requests and limits of each worker. A job without an image gets the operator's defaults for what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Free-form settings of the training: strings, numbers and booleans. Each becomes HYPERPARAM_<NAME> in the
    /// workers, and all of them stand in hyperparameters.json of the job's config map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "hyperparameters_schema")]
    pub hyperparameters: Option<Entries<Value>>,

    /// Environment variables of the workers. They win over what Trainyard sets, except for ranks and addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub env: Option<Vec<EnvVar>>,

    /// Config maps and secrets whose entries become environment variables of the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub env_from: Option<Vec<EnvFromSource>>,

    /// A claim with the training data, mounted in every pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_volume: Option<DataVolume>,

    /// Where the data volume is mounted. Default: /data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/"))]
    pub data_mount_path: Option<String>,

    /// Where the program keeps its checkpoints, and on what storage. Checkpoints are on when this or
    /// `checkpointDir` is given, and always for a job without an image, unless `enabled` is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Box<Checkpoint>>,

    /// Directory of the checkpoints; the same as `checkpoint.directory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/"))]
    pub checkpoint_dir: Option<String>,

    /// Save a checkpoint every so many epochs; the same as `checkpoint.frequency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub checkpoint_interval: Option<i32>,

    /// How the workers talk to each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networking: Option<Box<Networking>>,

    /// Restarts allowed after failures of the program. Default: 3, so the fourth failure is final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub backoff_limit: Option<i32>,

    /// What happens when a worker fails. OnFailure (default): all workers are restarted together, up to
    /// `backoffLimit` times. Never: the first failure ends the job. ExitCode: exit codes 1 to 127 end the job, 128
    /// and over (signals) restart it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,

    /// What particular failures mean, and who is restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<Box<FailurePolicy>>,

    /// When the job has succeeded. AllWorkers (default): when all workers have. Leader: when the pod of rank 0 has, whatever
    /// the others do. AnyWorker: when any worker has. A role with success Decides decides instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_policy: Option<SuccessPolicy>,

    /// True removes the pods and keeps the rest; false again starts the next attempt, from the newest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// The job fails when it has been active for so many seconds (suspended time does not count).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 315_360_000))]
    pub active_deadline_seconds: Option<i64>,

    /// The job fails when the pods of an attempt are not all running after so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 315_360_000))]
    pub startup_timeout_seconds: Option<i64>,

    /// An attempt that reports no progress for so many seconds is ended and restarted from the newest checkpoint. It counts
    /// from the first progress of the attempt: a program that never reports any is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 315_360_000))]
    pub stall_timeout_seconds: Option<i64>,

    /// The finished job is deleted after so many seconds. Without it, it stays until somebody deletes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 315_360_000))]
    pub ttl_seconds_after_finished: Option<i64>,

    /// Where Trainyard reads from how far the training is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Box<ProgressSpec>>,

    /// Which pods are removed when the job has finished. Running (default): those that still run, so that the logs
    /// of the others can be read. All: every pod. None: none, even those that still run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clean_pod_policy: Option<CleanPodPolicy>,

    /// Groups of pods beside the workers. The pods of a role are called {job}-{role}-{i}.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub roles: Option<Vec<Role>>,

    /// A pod template that is laid over the pods that Trainyard builds, as a strategic merge: node selectors,
    /// tolerations, affinity, sidecars, volumes, security settings, service account. The training container is
    /// called training-worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "template_schema")]
    pub template: Option<Value>,

    /// Another controller that owns this job. Trainyard then leaves it alone. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub managed_by: Option<String>,
}

/// Which launch contract the workers get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    #[default]
    Pytorch,
    Custom,
}

impl Framework {
    pub fn as_str(self) -> &'static str {
        match self {
            Framework::Pytorch => "pytorch",
            Framework::Custom => "custom",
        }
    }
}

/// A claim with training data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolume {
    /// Name of the persistent volume claim, in the job's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
    /// Mount it read-only. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// How the workers talk to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Networking {
    /// Collective backend, told to the program in the config map and as TRAINYARD_BACKEND. Default: nccl with
    /// GPUs, else gloo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<Backend>,
    /// Port on which rank 0 listens. Default: 29500, or with hostNetwork one that is derived from the job, so that two
    /// jobs on one node do not collide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub master_port: Option<i32>,
    /// Network interface for NCCL and gloo (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME). Default: they choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub interface: Option<String>,
    /// Run the pods in their node's network. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
}

/// Collective backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    Nccl,
    Gloo,
    Mpi,
}

impl Backend {
    pub fn as_str(self) -> &'static str {
        match self {
            Backend::Nccl => "nccl",
            Backend::Gloo => "gloo",
            Backend::Mpi => "mpi",
        }
    }
}

/// Where Trainyard reads from how far the training is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgressSpec {
    /// Auto (default): whatever there is. Logs: the log of the pod of rank 0, in which lines such as
    /// {"epoch": 3, "epochs": 10, "loss": 0.23} are understood. None: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ProgressSource>,
    /// How many epochs there are, for programs that do not say so. Default: hyperparameters.epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub total_epochs: Option<i64>,
}

/// A source of progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProgressSource {
    // Whatever there is.
    #[default]
    Auto,
    // The log of the pod of rank 0.
    Logs,
    // Nowhere.
    None,
}

fn hyperparameters_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 256,
        // Numbers, strings and booleans side by side have no structural type; the values are checked by the operator.
        "additionalProperties": {
            "description": "A string, a number or a boolean.",
            "x-kubernetes-preserve-unknown-fields": true,
        },
    })
}

fn template_schema(_: &mut SchemaGenerator) -> Schema {
    // The whole schema of a pod template would make the CRD six times as large; the operator checks it instead.
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}
