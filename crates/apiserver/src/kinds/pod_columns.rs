//! How a pod is shown in a row: the state that matters most, in one word.

use jiff::Timestamp;
use serde_json::Value;
use trainyard_objects::At as _;

use super::columns::{age, length, list, or_none};

/// Restarts of containers, and when the last one was.
#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<String>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += status["restartCount"].as_i64().unwrap_or(0);
        let at = status.text_at("/lastState/terminated/finishedAt");
        if !at.is_empty() && self.last.as_deref().is_none_or(|last| last < at) {
            self.last = Some(at.to_owned());
        }
    }
}

/// The cells of a pod, after its name.
pub(super) fn row(pod: &Value, created: String, now: Timestamp) -> Vec<Value> {
    let sidecars = || list(pod, "/spec/initContainers").filter(|one| one["restartPolicy"] == "Always");
    let total = length(pod, "/spec/containers") + sidecars().count();
    let mut ready = 0;
    let (mut restarts, mut reason) = (Restarts::default(), None);
    let mut of_sidecars = Restarts::default();
    for (index, status) in list(pod, "/status/initContainerStatuses").enumerate() {
        restarts.add(status);
        let is_sidecar = sidecars().any(|one| one["name"] == status["name"]);
        if is_sidecar {
            of_sidecars.add(status);
        }
        if terminated(status).is_some_and(|state| state["exitCode"] == 0) {
            continue;
        }
        if is_sidecar && status["started"] == true {
            ready += usize::from(status["ready"] == true);
            continue;
        }
        reason = Some(initializing(pod, index, status));
        break;
    }
    if reason.is_none() {
        restarts = of_sidecars;
        reason = Some(running(pod, &mut ready, &mut restarts));
    }
    let mut reason = reason.unwrap_or_default();
    if !pod.text_at("/metadata/deletionTimestamp").is_empty() {
        if pod.text_at("/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(pod.text_at("/status/phase"), "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut reason);
        }
    }
    let restarts = match restarts.last {
        Some(at) if restarts.count > 0 => format!("{} ({} ago)", restarts.count, age(Some(&at), now)),
        _ => restarts.count.to_string(),
    };
    vec![
        format!("{ready}/{total}").into(),
        reason.into(),
        restarts.into(),
        created.into(),
        or_none(pod.text_at("/status/podIP")),
        or_none(pod.text_at("/spec/nodeName")),
        or_none(pod.text_at("/status/nominatedNodeName")),
        "<none>".into(),
    ]
}

fn terminated(status: &Value) -> Option<&Value> {
    status.at("/state/terminated").filter(|state| state.is_object())
}

/// Why a container ended.
fn ended(state: &Value) -> String {
    match (state["reason"].as_str().unwrap_or_default(), state["signal"].as_i64()) {
        ("", Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        ("", _) => format!("ExitCode:{}", state["exitCode"]),
        (why, _) => why.to_owned(),
    }
}

/// What a pod says that still has init containers to run.
fn initializing(pod: &Value, index: usize, status: &Value) -> String {
    if let Some(state) = terminated(status) {
        return format!("Init:{}", ended(state));
    }
    match status.text_at("/state/waiting/reason") {
        "" | "PodInitializing" => format!("Init:{index}/{}", length(pod, "/spec/initContainers")),
        why => format!("Init:{why}"),
    }
}

/// What a pod says whose containers run, or should, or did.
fn running(pod: &Value, ready: &mut usize, restarts: &mut Restarts) -> String {
    let mut reason = match (pod.text_at("/status/reason"), pod.text_at("/status/phase")) {
        ("", phase) => phase.to_owned(),
        (reason, _) => reason.to_owned(),
    };
    let condition = |kind: &str| list(pod, "/status/conditions").find(|one| one["type"] == kind);
    if condition("PodScheduled").is_some_and(|scheduled| scheduled["reason"] == "SchedulingGated") {
        "SchedulingGated".clone_into(&mut reason);
    }
    let mut any_running = false;
    let statuses: Vec<&Value> = list(pod, "/status/containerStatuses").collect();
    for status in statuses.iter().rev() {
        restarts.add(status);
        match (status.text_at("/state/waiting/reason"), terminated(status)) {
            ("", Some(state)) => reason = ended(state),
            ("", None) => {
                if status["ready"] == true && status.at("/state/running").is_some() {
                    any_running = true;
                    *ready += 1;
                }
            }
            (why, _) => why.clone_into(&mut reason),
        }
    }
    if reason == "Completed" && any_running {
        let is_ready = condition("Ready").is_some_and(|ready| ready["status"] == "True");
        (if is_ready { "Running" } else { "NotReady" }).clone_into(&mut reason);
    }
    reason
}
