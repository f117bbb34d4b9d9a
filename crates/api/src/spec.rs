//! The spec of a `TrainingJob`: the Rust types from which the CRD is generated.
//!
//! Doc comments of fields become `kubectl explain`, so they are written for users. A field is here only if it
//! already does what it says. Defaults depend on the form of the job and are resolved by the methods below,
//! never written into the spec.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entries::Entries;
use crate::policy::{CleanPodPolicy, FailurePolicy, FailureRule, RestartPolicy, RestartScope, SuccessPolicy};
use crate::quantity::{Quantity, Resources};
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

/// Where the program keeps its checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// False turns checkpoints off. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Save a checkpoint every so many epochs (CHECKPOINT_FREQUENCY). Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub frequency: Option<i32>,
    /// Directory of the checkpoints in the container (CHECKPOINT_DIR). Default: /checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/"))]
    pub directory: Option<String>,
    /// How many complete checkpoints are kept; older ones are removed. 0 keeps all. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub keep_last: Option<i32>,
    /// Auto (default): every attempt but the first goes on from the newest complete checkpoint
    /// (RESUME_FROM_CHECKPOINT), and so does the first one if there is one in the storage. Never: every attempt starts afresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// An argument that is added to the program when it goes on from a checkpoint; {path} stands for it:
    /// --resume={path}.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub resume_arg: Option<String>,
    /// How the program writes its checkpoints. Default: auto, whatever is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<CheckpointLayout>,
    /// The storage behind the directory. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<CheckpointStorage>,
    /// True removes the claim {job}-checkpoints when the job is deleted, never before. Default: false, so the
    /// checkpoints outlive the job, and a job of the same name finds them again. What is in a bucket always stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_on_completion: Option<bool>,
    /// True holds back voluntary evictions (a node being drained, an autoscaler) of all pods of the job while a
    /// checkpoint is being written, for a quarter of an hour at most; whoever drains tries again until it is written. Needs
    /// checkpoints. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_evictions: Option<bool>,
}

/// Where an attempt begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Resume {
    // At the newest complete checkpoint.
    #[default]
    Auto,
    // Afresh.
    Never,
}

/// How a program writes its checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckpointLayout {
    #[default]
    Auto,
    Torch,
    Huggingface,
    Dcp,
    Tensorflow,
    Orbax,
    Megatron,
    Deepspeed,
    Xgboost,
    Files,
}

impl CheckpointLayout {
    pub fn as_str(self) -> &'static str {
        match self {
            CheckpointLayout::Auto => "auto",
            CheckpointLayout::Torch => "torch",
            CheckpointLayout::Huggingface => "huggingface",
            CheckpointLayout::Dcp => "dcp",
            CheckpointLayout::Tensorflow => "tensorflow",
            CheckpointLayout::Orbax => "orbax",
            CheckpointLayout::Megatron => "megatron",
            CheckpointLayout::Deepspeed => "deepspeed",
            CheckpointLayout::Xgboost => "xgboost",
            CheckpointLayout::Files => "files",
        }
    }
}

/// The storage behind the checkpoint directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointStorage {
    /// Kind of storage: pvc (default) is a persistent volume claim; s3 and gcs are buckets, to which the checkpoints of
    /// the leading worker's directory are copied, and from which every worker gets the one that it goes on from.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<StorageType>,
    /// Directory inside the claim (default: its root), or the bucket: s3://bucket/prefix, gs://bucket/prefix. In a bucket,
    /// the place of a job is {path}/{namespace}/{name}.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: Option<String>,
    /// Size of the claim that is made. Default: 100Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// Storage class of the claim that is made. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class: Option<String>,
    /// Use this claim instead of making {job}-checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: Option<String>,
    /// Access mode of the claim that is made. Default: ReadWriteMany for several pods, else ReadWriteOnce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<ClaimAccessMode>,
}

/// Kind of storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StorageType {
    #[default]
    Pvc,
    S3,
    Gcs,
}

impl StorageType {
    /// How the URLs of its buckets begin; a claim has none.
    pub fn scheme(self) -> Option<&'static str> {
        match self {
            StorageType::Pvc => None,
            StorageType::S3 => Some("s3://"),
            StorageType::Gcs => Some("gs://"),
        }
    }
}

/// Access mode of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClaimAccessMode {
    ReadWriteOnce,
    ReadWriteMany,
    ReadWriteOncePod,
}

impl ClaimAccessMode {
    pub fn as_str(self) -> &'static str {
        match self {
            ClaimAccessMode::ReadWriteOnce => "ReadWriteOnce",
            ClaimAccessMode::ReadWriteMany => "ReadWriteMany",
            ClaimAccessMode::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }
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

/// A group of pods beside the workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Role {
    /// Name of the role: part of its pods' names, so a DNS label; not `workers`.
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// How many pods. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub replicas: Option<i32>,
    /// Container image. Default: the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// The program to run. Default: for a ranked role the job's command and args, else the image's entry point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(max = 65536)))]
    pub command: Option<Vec<String>>,
    /// Arguments of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), inner(length(max = 65536)))]
    pub args: Option<Vec<String>>,
    /// Environment variables of this role's pods, over those of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub env: Option<Vec<EnvVar>>,
    /// Requests and limits of each pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// GPUs of each pod. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 8))]
    pub gpus_per_replica: Option<i32>,
    /// A pod template that is laid over this role's pods, after the job's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "template_schema")]
    pub template: Option<Value>,
    /// True: its pods are part of the world of ranks, before the workers. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranked: Option<bool>,
    /// When its pods start. WithWorkers (default). BeforeWorkers: the workers are created when all of its pods run.
    /// AfterWorkers: its pods are created when all workers run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<RoleOrder>,
    /// Its part in the job's success. Ignored (default): the job does not wait for it to end. Required (default of a
    /// ranked role): all of its pods must succeed, as all workers must. Decides: the job has succeeded as soon as all
    /// of its pods have, whatever the others do. A pod that fails ends the attempt in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<RoleSuccess>,
}

/// When the pods of a role start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RoleOrder {
    // Before the workers: these are created when all of its pods run.
    BeforeWorkers,
    // Together with the workers.
    #[default]
    WithWorkers,
    // After the workers: when all of them run.
    AfterWorkers,
}

/// The part of a role in the job's success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RoleSuccess {
    // The job does not wait for it to end.
    #[default]
    Ignored,
    // All of its pods must succeed, as all workers must.
    Required,
    // The job has succeeded as soon as all of its pods have, whatever the others do.
    Decides,
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

/// Which of the two ways of writing a job this is: it decides the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `image` is given: the user's own program. Nothing is assumed about it.
    OwnProgram,
    /// `model` and `dataset` without an image: a recipe of the platform, with a full set of defaults.
    Recipe,
}

/// Default values that do not depend on the operator's settings.
impl TrainingJobSpec {
    pub fn form(&self) -> Form {
        if self.image.is_some() { Form::OwnProgram } else { Form::Recipe }
    }

    pub fn framework(&self) -> Framework {
        self.framework.unwrap_or_default()
    }

    pub fn worker_count(&self) -> i32 {
        self.num_workers.or(self.workers).unwrap_or(1)
    }

    /// What the user calls the number of workers in this job.
    pub fn worker_count_field(&self) -> &'static str {
        if self.workers.is_some() { "workers" } else { "numWorkers" }
    }

    pub fn gpus_per_worker(&self) -> i32 {
        self.gpus_per_worker.or(self.gpu_per_worker).unwrap_or(match self.form() {
            Form::OwnProgram => 0,
            Form::Recipe => 1,
        })
    }

    /// What the user calls the GPUs of a worker in this job.
    pub fn gpu_count_field(&self) -> &'static str {
        if self.gpu_per_worker.is_some() { "gpuPerWorker" } else { "gpusPerWorker" }
    }

    pub fn procs_per_worker(&self) -> i32 {
        self.procs_per_worker.unwrap_or_else(|| self.gpus_per_worker().max(1))
    }

    pub fn backoff_limit(&self) -> i32 {
        self.backoff_limit.unwrap_or(3)
    }

    pub fn restart_policy(&self) -> RestartPolicy {
        self.restart_policy.unwrap_or_default()
    }

    pub fn clean_pod_policy(&self) -> CleanPodPolicy {
        self.clean_pod_policy.unwrap_or_default()
    }

    pub fn suspended(&self) -> bool {
        self.suspend.unwrap_or(false)
    }

    pub fn data_mount_path(&self) -> &str {
        self.data_mount_path.as_deref().unwrap_or("/data")
    }

    pub fn roles(&self) -> &[Role] {
        self.roles.as_deref().unwrap_or_default()
    }

    pub fn checkpoints_on(&self) -> bool {
        match self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.enabled) {
            Some(enabled) => enabled,
            None => self.checkpoint.is_some() || self.checkpoint_dir.is_some() || self.form() == Form::Recipe,
        }
    }

    pub fn checkpoint_directory(&self) -> &str {
        let directory = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.directory.as_deref());
        directory.or(self.checkpoint_dir.as_deref()).unwrap_or("/checkpoints")
    }

    pub fn checkpoint_frequency(&self) -> i32 {
        let frequency = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.frequency);
        frequency.or(self.checkpoint_interval).unwrap_or(1)
    }

    pub fn checkpoint_storage(&self) -> Option<&CheckpointStorage> {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.storage.as_ref())
    }

    /// The bucket that the checkpoints are kept in, as it was written, if they are on and it is one.
    pub fn checkpoint_bucket(&self) -> Option<&str> {
        let storage = self.checkpoint_storage().filter(|_| self.checkpoints_on())?;
        storage.kind.unwrap_or_default().scheme()?;
        storage.path.as_deref()
    }

    pub fn delete_checkpoints_with_job(&self) -> bool {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.delete_on_completion).unwrap_or(false)
    }

    pub fn keep_last(&self) -> i32 {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.keep_last).unwrap_or(3)
    }

    /// Whether evictions are held back while a checkpoint is being written.
    pub fn holds_evictions(&self) -> bool {
        let asked = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.hold_evictions);
        self.checkpoints_on() && asked == Some(true)
    }

    /// Whether attempts go on from checkpoints.
    pub fn resumes(&self) -> bool {
        let resume = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.resume).unwrap_or_default();
        self.checkpoints_on() && resume == Resume::Auto
    }

    pub fn checkpoint_layout(&self) -> CheckpointLayout {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.layout).unwrap_or_default()
    }

    pub fn restart_scope(&self) -> RestartScope {
        self.failure_policy.as_ref().and_then(|policy| policy.restart_scope).unwrap_or_default()
    }

    pub fn failure_rules(&self) -> &[FailureRule] {
        self.failure_policy.as_ref().and_then(|policy| policy.rules.as_deref()).unwrap_or_default()
    }

    pub fn success_policy(&self) -> SuccessPolicy {
        self.success_policy.unwrap_or_default()
    }

    pub fn host_network(&self) -> bool {
        self.networking.as_ref().and_then(|networking| networking.host_network).unwrap_or(false)
    }

    pub fn backend(&self) -> Backend {
        self.networking
            .as_ref()
            .and_then(|networking| networking.backend)
            .unwrap_or(if self.gpus_per_worker() > 0 { Backend::Nccl } else { Backend::Gloo })
    }

    /// Whether the log of the pod of rank 0 is read for progress.
    pub fn reads_logs(&self) -> bool {
        let source = self.progress.as_ref().and_then(|progress| progress.source).unwrap_or_default();
        source != ProgressSource::None
    }

    /// `progress.totalEpochs`, or `hyperparameters.epochs` when it is a whole number.
    pub fn total_epochs(&self) -> Option<i64> {
        if let Some(total) = self.progress.as_ref().and_then(|progress| progress.total_epochs) {
            return Some(total);
        }
        let epochs = self.hyperparameters.as_ref()?.get("epochs")?;
        epochs.as_i64().or_else(|| epochs.as_str()?.parse().ok()).filter(|epochs| *epochs > 0)
    }
}

impl Role {
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }

    pub fn ranked(&self) -> bool {
        self.ranked.unwrap_or(false)
    }

    pub fn success(&self) -> RoleSuccess {
        self.success.unwrap_or(if self.ranked() { RoleSuccess::Required } else { RoleSuccess::Ignored })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_follow_the_form() {
        let own = TrainingJobSpec { image: Some("x".into()), ..Default::default() };
        assert_eq!((own.gpus_per_worker(), own.checkpoints_on(), own.backend()), (0, false, Backend::Gloo));
        let recipe =
            TrainingJobSpec { model: Some("m".into()), dataset: Some("d".into()), ..Default::default() };
        assert_eq!(
            (recipe.gpus_per_worker(), recipe.checkpoints_on(), recipe.backend()),
            (1, true, Backend::Nccl)
        );
        let lab = TrainingJobSpec { checkpoint_dir: Some("/c".into()), ..own };
        assert!(lab.checkpoints_on());
        assert_eq!(lab.checkpoint_directory(), "/c");
    }
}
