//! Pod statuses as a kubelet writes them, as strategic merge patches: conditions merge by type, so
//! those of the scheduler and of evictions stay.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::node;

/// Where a pod is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Bound, its containers are being made.
    Creating,
    /// Its containers wait for something that does not come.
    Stuck {
        reason: String,
        message: Option<String>,
    },
    Running,
    /// Its containers ended and wait to be started again.
    BackOff,
    Ended {
        code: i32,
        reason: Option<String>,
        message: Option<String>,
    },
}

/// What has to be remembered from one status to the next.
#[derive(Debug)]
pub(super) struct Life {
    address: Ipv4Addr,
    since: Time,
    /// When the containers started, and whether they have.
    started: Option<Time>,
    ended: bool,
    restarts: i32,
    last_end: Option<Value>,
    /// The conditions with the time of their last change.
    conditions: BTreeMap<&'static str, (bool, Time)>,
}

impl Life {
    /// Picks up a pod where its status says it is: it may have run before these nodes did.
    pub(super) fn of(pod: &Pod, address: Ipv4Addr) -> Self {
        let none = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&none);
        let first = status.container_statuses.iter().flatten().next();
        let running = first.and_then(|container| container.state.as_ref()?.running.as_ref());
        let phase = status.phase.as_deref();
        let since = status.start_time.clone().unwrap_or_else(now);
        Self {
            address: status.pod_ip.as_deref().and_then(|ip| ip.parse().ok()).unwrap_or(address),
            started: (phase == Some("Running"))
                .then(|| running.and_then(|state| state.started_at.clone()).unwrap_or_else(|| since.clone())),
            since,
            ended: matches!(phase, Some("Succeeded" | "Failed")),
            restarts: first.map_or(0, |container| container.restart_count),
            last_end: None,
            conditions: BTreeMap::new(),
        }
    }

    pub(super) fn started(&self) -> bool {
        self.started.is_some()
    }

    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    pub(super) fn restarts(&self) -> i32 {
        self.restarts
    }

    /// The containers ended and are going to start again.
    pub(super) fn restart(&mut self, code: i32, reason: Option<&str>) {
        self.last_end = Some(self.terminated(code, reason, None));
        self.started = None;
        self.restarts += 1;
    }

    /// The patch that says that the pod is there.
    pub(super) fn enter(&mut self, pod: &Pod, stage: &Stage) -> Value {
        match stage {
            Stage::Running if self.started.is_none() => self.started = Some(now()),
            Stage::Ended { .. } => self.ended = true,
            _ => {}
        }
        let spec = pod.spec.as_ref();
        let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
        let phase = match stage {
            Stage::Creating | Stage::Stuck { .. } => "Pending",
            Stage::Running | Stage::BackOff => "Running",
            Stage::Ended { code: 0, .. } => "Succeeded",
            Stage::Ended { .. } => "Failed",
        };
        let generation = pod.metadata.generation;
        let containers_are = self.state(stage, !init.is_empty());
        let mut status = json!({
            "phase": phase,
            "observedGeneration": generation,
            "startTime": self.since,
            "hostIP": node::ADDRESS,
            "hostIPs": [{"ip": node::ADDRESS}],
            "conditions": self.conditions(stage, !init.is_empty(), generation),
            "containerStatuses": containers
                .iter()
                .map(|container| self.main_container(pod, container, &containers_are))
                .collect::<Vec<_>>(),
        });
        if !matches!(stage, Stage::Creating) {
            status["podIP"] = json!(self.address);
            status["podIPs"] = json!([{"ip": self.address}]);
        }
        if !init.is_empty() {
            status["initContainerStatuses"] =
                init.iter().map(|container| self.init_container(pod, container, stage)).collect();
        }
        // The uid makes the API server refuse it for another pod of the same name.
        json!({"metadata": {"uid": pod.uid()}, "status": status})
    }

    fn conditions(&mut self, stage: &Stage, has_init: bool, generation: Option<i64>) -> Value {
        let not_ready = Some("ContainersNotReady");
        let creating = matches!(stage, Stage::Creating);
        let (ready, why_not) = match stage {
            Stage::Running => (true, None),
            Stage::Ended { code: 0, .. } => (false, Some("PodCompleted")),
            Stage::Ended { .. } => (false, Some("PodFailed")),
            Stage::Creating | Stage::Stuck { .. } | Stage::BackOff => (false, not_ready),
        };
        let initialized = !(creating && has_init);
        let initialized_reason = match stage {
            Stage::Ended { code: 0, .. } => Some("PodCompleted"),
            _ => (!initialized).then_some("ContainersNotInitialized"),
        };
        let sandbox = !creating && !matches!(stage, Stage::Ended { .. });
        let all = [
            ("PodReadyToStartContainers", sandbox, None),
            ("Initialized", initialized, initialized_reason),
            ("ContainersReady", ready, why_not),
            ("Ready", ready, why_not),
        ];
        all.into_iter()
            .map(|(kind, value, reason)| {
                let entry = self.conditions.entry(kind).or_insert_with(|| (value, now()));
                if entry.0 != value {
                    *entry = (value, now());
                }
                json!({
                    "type": kind,
                    "status": if value { "True" } else { "False" },
                    // Null takes away what an earlier status said.
                    "reason": reason,
                    "message": null,
                    "observedGeneration": generation,
                    "lastProbeTime": null,
                    "lastTransitionTime": entry.1,
                })
            })
            .collect()
    }

    /// The state of the pod's main containers.
    fn state(&self, stage: &Stage, has_init: bool) -> Value {
        match stage {
            Stage::Creating if has_init => json!({"waiting": {"reason": "PodInitializing"}}),
            Stage::Creating => json!({"waiting": {"reason": "ContainerCreating"}}),
            Stage::Stuck { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            Stage::Running => json!({"running": {"startedAt": self.started}}),
            Stage::BackOff => json!({"waiting": {
                "reason": "CrashLoopBackOff",
                "message": "back-off restarting failed container",
            }}),
            Stage::Ended { code, reason, message } => {
                json!({"terminated": self.terminated(*code, reason.as_deref(), message.as_deref())})
            }
        }
    }

    /// The state of an init container. One with a restart policy of its own runs beside the others.
    fn init_state(&self, stage: &Stage, sidecar: bool) -> Value {
        match stage {
            Stage::Creating => json!({"waiting": {"reason": "PodInitializing"}}),
            Stage::Stuck { .. } | Stage::Running | Stage::BackOff if sidecar => {
                json!({"running": {"startedAt": self.since}})
            }
            _ => json!({"terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": self.since,
                "finishedAt": if sidecar { now() } else { self.since.clone() },
            }}),
        }
    }

    fn terminated(&self, code: i32, reason: Option<&str>, message: Option<&str>) -> Value {
        let usual = if code == 0 { "Completed" } else { "Error" };
        json!({
            "exitCode": code,
            "reason": reason.unwrap_or(usual),
            "message": message,
            "startedAt": self.started,
            "finishedAt": now(),
        })
    }

    fn main_container(&self, pod: &Pod, container: &Container, state: &Value) -> Value {
        let mut status = container_status(pod, container, state);
        status["restartCount"] = json!(self.restarts);
        if let Some(end) = &self.last_end {
            status["lastState"] = json!({"terminated": end});
        }
        status
    }

    fn init_container(&self, pod: &Pod, container: &Container, stage: &Stage) -> Value {
        let sidecar = container.restart_policy.as_deref() == Some("Always");
        let mut status = container_status(pod, container, &self.init_state(stage, sidecar));
        if !sidecar && status["state"].get("terminated").is_some() {
            // It did its work and is ready for good.
            status["ready"] = json!(true);
        }
        status
    }
}

fn container_status(pod: &Pod, container: &Container, state: &Value) -> Value {
    let runs = state.get("running").is_some();
    let made = state.get("waiting").is_none();
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "containerID": made.then(|| format!("hollow://{}-{}", pod.uid().unwrap_or_default(), container.name)),
        "ready": runs,
        "started": runs,
        "restartCount": 0,
        "lastState": {},
        "state": state,
    })
}

fn now() -> Time {
    Time(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        let pod = json!({
            "metadata": {"name": "p", "uid": "u", "generation": 3},
            "spec": {
                "initContainers": [{"name": "prepare", "image": "i"}, {"name": "log", "image": "i", "restartPolicy": "Always"}],
                "containers": [{"name": "main", "image": "i"}],
            },
        });
        serde_json::from_value(pod).unwrap()
    }

    /// State and readiness of every container, in order, and the value of two conditions.
    fn summary(patch: &Value) -> String {
        let status = &patch["status"];
        let containers = ["initContainerStatuses", "containerStatuses"].into_iter().flat_map(|list| {
            status[list].as_array().unwrap().iter().map(|container| {
                let state = container["state"].as_object().unwrap().keys().next().unwrap().clone();
                if container["ready"] == true { format!("{state}+") } else { state }
            })
        });
        let containers = containers.collect::<Vec<_>>().join(" ");
        let condition = |kind| {
            let all = status["conditions"].as_array().unwrap();
            all.iter().find(|condition| condition["type"] == kind).unwrap()["status"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let phase = status["phase"].as_str().unwrap();
        format!(
            "{phase}: {containers}, initialized {}, ready {}",
            condition("Initialized"),
            condition("Ready")
        )
    }

    #[test]
    fn a_pod_looks_as_if_a_kubelet_ran_it() {
        let pod = pod();
        let mut life = Life::of(&pod, Ipv4Addr::LOCALHOST);
        let mut enter = |stage| summary(&life.enter(&pod, &stage));
        assert_eq!(
            enter(Stage::Creating),
            "Pending: waiting waiting waiting, initialized False, ready False"
        );
        assert_eq!(
            enter(Stage::Running),
            "Running: terminated+ running+ running+, initialized True, ready True"
        );
        assert_eq!(
            enter(Stage::Ended { code: 1, reason: None, message: None }),
            "Failed: terminated+ terminated terminated, initialized True, ready False"
        );
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_last_change() {
        let pod = pod();
        let mut life = Life::of(&pod, Ipv4Addr::LOCALHOST);
        let time = |patch: &Value, kind| {
            let all = patch["status"]["conditions"].as_array().unwrap();
            all.iter().find(|condition| condition["type"] == kind).unwrap()["lastTransitionTime"].clone()
        };
        life.enter(&pod, &Stage::Running);
        let long_ago = Time(Timestamp::UNIX_EPOCH);
        for (_, changed) in life.conditions.values_mut() {
            *changed = long_ago.clone();
        }
        let end = life.enter(&pod, &Stage::Ended { code: 0, reason: None, message: None });
        assert_eq!(time(&end, "Initialized"), json!(long_ago));
        assert_ne!(time(&end, "Ready"), json!(long_ago));
    }

    #[test]
    fn a_pod_is_picked_up_where_it_was() {
        let mut pod = pod();
        let mut life = Life::of(&pod, Ipv4Addr::new(100, 64, 0, 9));
        assert!(!life.started() && !life.ended());
        let patch = life.enter(&pod, &Stage::Running);
        pod.status = serde_json::from_value(patch["status"].clone()).unwrap();
        let again = Life::of(&pod, Ipv4Addr::LOCALHOST);
        assert!(again.started() && !again.ended());
        assert_eq!(again.address, Ipv4Addr::new(100, 64, 0, 9));
    }
}
