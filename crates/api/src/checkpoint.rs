//! Checkpoints, as the agent beside the leading rank reports them.
//!
//! The agent has no credentials of the cluster: it prints, and the operator reads its log.

use std::cmp::Ordering;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of the agent's container.
pub const AGENT_CONTAINER: &str = "trainyard-agent";

/// Name of the container that fetches the checkpoint which a worker goes on from, before its program starts.
pub const FETCH_CONTAINER: &str = "trainyard-fetch";

/// The file by which the agent says that the program may start.
pub const AGENT_READY_FILE: &str = "/run/trainyard/ready";

/// A complete checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointStatus {
    /// Where it is: a path in the container, or a URL in an object store.
    pub path: String,
    /// The last epoch in it, as far as its name or content tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The last step in it, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// When it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Bytes in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
}

impl CheckpointStatus {
    /// Whether it is further than the other one. The same epoch or step that was saved again is not; of those that tell neither, every
    /// other one is.
    pub fn is_past(&self, other: &Self) -> bool {
        let order =
            |own: Option<i64>, theirs: Option<i64>| own.zip(theirs).map(|(own, theirs)| own.cmp(&theirs));
        let (epoch, step) = (order(self.epoch, other.epoch), order(self.step, other.step));
        match (epoch, step) {
            (None, None) => self != other,
            // Some programs count their epochs anew when they go on, others their steps in every epoch.
            (Some(Ordering::Less), Some(Ordering::Greater)) => self.time > other.time,
            (Some(Ordering::Equal) | None, Some(order)) | (Some(order), _) => order.is_gt(),
        }
    }
}

/// What the agent says, one line of JSON each time that something changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReport {
    /// The newest complete checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointStatus>,
    /// The program does not start: this attempt should have been told to go on from `checkpoint` (or, without one, to
    /// start afresh), but was told something else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume_differs: bool,
    /// The storage could not be read: that there is no `checkpoint` says nothing about what is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
    /// A checkpoint is being written right now, or copied to where it is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writing: bool,
    /// The program has ended, and this checkpoint of it has not arrived in the bucket: it is lost with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsent: Option<String>,
    /// What looked like a checkpoint and was not complete, with the reasons. It was moved out of the program's way before that
    /// started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_aside: Option<String>,
    /// What is wrong with the storage, and what to do about it. Training goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<R> {
    trainyard_agent: R,
}

impl AgentReport {
    /// The report as a line, without its end.
    pub fn to_line(&self) -> String {
        serde_json::to_string(&Line { trainyard_agent: self }).unwrap_or_default()
    }

    /// Reads a line of the agent's log; nothing if it is something else.
    pub fn of_line(line: &str) -> Option<Self> {
        let line: Line<Self> = serde_json::from_str(line).ok()?;
        Some(line.trainyard_agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_line() {
        let report = AgentReport {
            checkpoint: Some(CheckpointStatus {
                path: "/checkpoints/model_5.ubj".into(),
                step: Some(6),
                ..Default::default()
            }),
            problem: Some("no space left".into()),
            ..Default::default()
        };
        assert_eq!(AgentReport::of_line(&report.to_line()), Some(report));
        let quiet = AgentReport::default().to_line();
        assert_eq!(quiet, r#"{"trainyardAgent":{}}"#);
        for other in ["", "{}", "epoch 1", r#"{"epoch": 3}"#] {
            assert_eq!(AgentReport::of_line(other), None, "{other}");
        }
    }
}
