//! The part of the spec about roles: groups of pods beside the workers.
//!
//! Doc comments of fields become `kubectl explain`, so they are written for users.

use k8s_openapi::api::core::v1::EnvVar;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::template_schema;
use crate::quantity::Resources;

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
