//! What happens when something ends: pods, attempts, the job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens when a worker fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicy {
    // All workers are restarted together, up to `backoffLimit` times.
    #[default]
    OnFailure,
    // The first failure ends the job.
    Never,
    // Exit codes 1 to 127 end the job; 128 and over (signals) restart it, up to `backoffLimit` times.
    ExitCode,
}

/// Which pods are removed when the job has finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CleanPodPolicy {
    // Those that still run; finished ones stay, so that their logs can be read.
    #[default]
    Running,
    // All of them.
    All,
    // None: even those that still run stay as they are.
    None,
}

/// What failures mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicy {
    /// Who is restarted when a worker fails. Gang (default): all pods, together, since a collective cannot take a single
    /// new member. Worker: only the one that failed, for workers that are independent or find each other again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_scope: Option<RestartScope>,
    /// What particular failures mean; the first rule that matches decides. Without one, restartPolicy and backoffLimit do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub rules: Option<Vec<FailureRule>>,
}

/// Who is restarted when a worker fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartScope {
    // All pods, together.
    #[default]
    Gang,
    // Only the one that failed.
    Worker,
}

/// A rule about failures. It matches when everything that it names does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureRule {
    /// Exit codes of the program, such as 42. For torchrun, the code of the child that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), inner(range(min = 1, max = 255)))]
    pub exit_codes: Option<Vec<i32>>,
    /// Why the pod ended: OOMKilled, Error, Evicted, … as `kubectl describe pod` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 64)))]
    pub reasons: Option<Vec<String>>,
    /// A regular expression that is looked for in the last lines of the program's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub log_pattern: Option<String>,
    /// Restart: restart, counted, up to backoffLimit. RestartWithoutCounting: restart, whatever backoffLimit says.
    /// Fail: the job fails at once. Ignore: the pod counts as done, the others go on.
    pub action: FailureAction,
}

/// What a rule does about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailureAction {
    // Restart, counted, up to backoffLimit.
    Restart,
    // Restart, whatever backoffLimit says.
    RestartWithoutCounting,
    // The job fails at once.
    Fail,
    // The pod counts as done, the others go on.
    Ignore,
}

/// When the job has succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SuccessPolicy {
    // When all workers have.
    #[default]
    AllWorkers,
    // When the pod of rank 0 has.
    Leader,
    // When any worker has.
    AnyWorker,
}
