//! The part of the spec about checkpoints: where they are, how they are written, what becomes of them.
//!
//! Doc comments of fields become `kubectl explain`, so they are written for users.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

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
