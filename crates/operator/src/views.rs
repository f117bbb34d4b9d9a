//! Slim forms of Kubernetes objects, for the wire: they parse only what planning reads.
//!
//! A pod of ours is six kilobytes of JSON, most of it what we wrote ourselves. Parsing a few hundred bytes
//! of it, and keeping less, is what makes thousands of pods cheap.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Deserializer};
use trainyard_api::checkpoint::AGENT_CONTAINER;
use trainyard_api::names;
use trainyard_plan::{
    ClaimView, Company, Disruption, Exit, ObjectView, PodPhase, PodView, Waiting, fingerprint,
};

macro_rules! slim {
    ($slim:ident of $full:ty, $scope:ty { $($field:ident : $kind:ty),* $(,)? }) => {
        #[derive(Clone, Debug, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $slim {
            /// Whoever tells of an object more than once has it once.
            #[serde(default, deserialize_with = "shared")]
            pub(crate) metadata: Arc<ObjectMeta>,
            $(#[serde(default)] $field: $kind,)*
        }

        impl Resource for $slim {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$full>::kind(&())
            }
            fn group((): &()) -> Cow<'_, str> {
                <$full>::group(&())
            }
            fn version((): &()) -> Cow<'_, str> {
                <$full>::version(&())
            }
            fn plural((): &()) -> Cow<'_, str> {
                <$full>::plural(&())
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                Arc::make_mut(&mut self.metadata)
            }
        }
    };
}

fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<ObjectMeta>, D::Error> {
    ObjectMeta::deserialize(deserializer).map(Arc::new)
}

slim!(SlimPod of Pod, NamespaceResourceScope { spec: SlimPodSpec, status: SlimPodStatus });
slim!(SlimService of Service, NamespaceResourceScope { spec: SlimServiceSpec });
slim!(SlimConfigMap of ConfigMap, NamespaceResourceScope { data: BTreeMap<String, String> });
slim!(SlimClaim of PersistentVolumeClaim, NamespaceResourceScope { spec: SlimClaimSpec });
slim!(SlimNode of Node, ClusterResourceScope { spec: SlimNodeSpec, status: SlimNodeStatus });

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimNodeSpec {
    taints: Vec<SlimTaint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimTaint {
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimNodeStatus {
    conditions: Vec<SlimNodeCondition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimNodeCondition {
    r#type: String,
    status: String,
}

impl SlimNode {
    /// The first of these taints or conditions that it has.
    pub(crate) fn announces(&self, signs: &[String]) -> Option<&str> {
        let taints = self.spec.taints.iter().map(|taint| taint.key.as_str());
        let conditions = self.status.conditions.iter().filter(|condition| condition.status == "True");
        let conditions = conditions.map(|condition| condition.r#type.as_str());
        taints.chain(conditions).find(|name| signs.iter().any(|sign| sign == name))
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimPodSpec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimPodStatus {
    phase: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    conditions: Vec<SlimCondition>,
    init_container_statuses: Vec<SlimContainerStatus>,
    container_statuses: Vec<SlimContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimCondition {
    r#type: String,
    status: String,
    last_transition_time: Option<Timestamp>,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimContainerStatus {
    name: String,
    state: SlimContainerState,
    /// How it ended before it was started again.
    last_state: SlimContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimContainerState {
    running: Option<SlimRunning>,
    waiting: Option<SlimWaiting>,
    terminated: Option<SlimTerminated>,
}

/// That it is there says it all.
#[derive(Clone, Debug, Default, Deserialize)]
struct SlimRunning {}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimWaiting {
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimTerminated {
    exit_code: i32,
    reason: Option<String>,
    message: Option<String>,
    finished_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimServiceSpec {
    selector: BTreeMap<String, String>,
    ports: Vec<SlimPort>,
    publish_not_ready_addresses: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimPort {
    port: i32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimClaimSpec {
    access_modes: Vec<String>,
}

/// A slim object that becomes a view in the cache.
pub(crate) trait Viewed {
    type View;
    fn view(self) -> Self::View;
}

impl Viewed for SlimPod {
    type View = PodView;

    fn view(self) -> PodView {
        let exit = self.exit();
        let waiting = self.waiting();
        let disruption = self.disruption();
        let untouched_since = self.untouched_since();
        let lingers = exit.is_some() && self.status.phase.as_deref() == Some("Running");
        let lingers = lingers.then(|| self.company());
        let notes = self.metadata.annotations.as_ref();
        let note = |name: &str| notes.and_then(|notes| notes.get(name)).map(|note| note.as_str().into());
        PodView {
            attempt: attempt(&self.metadata),
            inputs: note(names::INPUTS_ANNOTATION),
            shape: note(names::SHAPE_ANNOTATION),
            announced: note(names::ANNOUNCED_ANNOTATION),
            owner: controller(&self.metadata).map(Into::into),
            created: self.metadata.creation_timestamp.as_ref().map(|time| time.0),
            untouched_since: untouched_since.filter(|_| note(names::NUDGED_ANNOTATION).is_none()),
            deleting: self.metadata.deletion_timestamp.is_some(),
            // Sidecars end as they like: what the training container did decides.
            phase: match (self.status.phase.as_deref(), &exit) {
                // A program that saves its work and ends well when it is told to go is not done.
                (Some("Running" | "Succeeded" | "Failed"), Some(exit))
                    if exit.code == 0 && self.was_told_to_go(exit, disruption.is_some()) =>
                {
                    PodPhase::Failed
                }
                (Some("Running" | "Succeeded" | "Failed"), Some(exit)) if exit.code == 0 => {
                    PodPhase::Succeeded
                }
                (Some("Running" | "Failed"), Some(_)) | (Some("Failed"), None) => PodPhase::Failed,
                (Some("Succeeded"), _) => PodPhase::Succeeded,
                (Some("Running" | "Unknown"), _) => PodPhase::Running,
                _ => PodPhase::Pending,
            },
            leaves_by: self.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            agent_started: self.status.init_container_statuses.iter().any(|container| {
                let state = &container.state;
                let begun = state.running.is_some() || state.terminated.is_some();
                container.name == AGENT_CONTAINER && begun
            }),
            lingers,
            node: self.spec.node_name,
            name: self.metadata.name.clone().unwrap_or_default(),
            uid: self.metadata.uid.clone().unwrap_or_default(),
            exit: exit.map(Box::new),
            waiting: waiting.map(Box::new),
            disruption: disruption.map(Box::new),
        }
    }
}

/// What a program's end looks like that the kubelet killed, as a shell tells it.
const KILLED: i32 = 137;

/// The kubelet's word for a container that it cannot find any more; others have others for the same.
const CONTAINER_MISLAID: &str = "ContainerStatusUnknown";

impl SlimPod {
    /// How the training container ended. Sidecars end as they like.
    fn exit(&self) -> Option<Exit> {
        let containers = &self.status.container_statuses;
        let training = containers.iter().find(|container| container.name == names::CONTAINER);
        // An agent that ended badly has not failed the training.
        let inits = self.status.init_container_statuses.iter();
        // Nor has a sidecar that is started again. Only an init container whose failure is the pod's has.
        let is_over = self.status.phase.as_deref() == Some("Failed");
        let failed_init = inits.filter(|container| {
            is_over
                && container.name != AGENT_CONTAINER
                && container.state.terminated.as_ref().is_some_and(|terminated| terminated.exit_code != 0)
        });
        let mut ended = training.into_iter().chain(failed_init).filter_map(|container| {
            let init = (container.name != names::CONTAINER).then(|| container.name.clone());
            container.state.terminated.as_ref().map(|ended| (init, ended))
        });
        let own_doing = self.own_doing();
        let Some((init, ended)) = ended.next() else {
            // Its containers are forgotten, and what it did is not.
            let (reason, message) = own_doing?;
            let (reason, message) = (Some(reason.to_owned()), message.map(str::to_owned));
            return Some(Exit { code: KILLED, reason, of_pod: true, message, ..Exit::default() });
        };
        let of_pod = own_doing.is_some();
        let (reason, message) = match own_doing {
            Some((reason, message)) => (Some(reason.to_owned()), message.map(str::to_owned)),
            None => (ended.reason.clone(), ended.message.clone()),
        };
        Some(Exit { code: ended.exit_code, init, reason, of_pod, message, at: ended.finished_at })
    }

    /// Why the kubelet ended the pod, if that is the pod's own doing: a limit of its own that it went past. (Where its node is in need,
    /// Kubernetes adds the condition `DisruptionTarget`.)
    fn own_doing(&self) -> Option<(&str, Option<&str>)> {
        let (reason, message) = (self.status.reason.as_deref()?, self.status.message.as_deref());
        let is_own = match reason {
            "DeadlineExceeded" => true,
            "Evicted" => {
                let by_node = message.is_none_or(|message| message.starts_with("The node "));
                !by_node && self.disruption_target().is_none()
            }
            _ => false,
        };
        (is_own && self.status.phase.as_deref() == Some("Failed")).then_some((reason, message))
    }

    /// The node has lost the container, as one that was switched off and on again: nobody knows how its program ended.
    fn was_mislaid(&self) -> bool {
        let containers = self.status.container_statuses.iter();
        let mut ended = containers.filter(|container| container.name == names::CONTAINER);
        let ended = ended.find_map(|container| container.state.terminated.as_ref());
        ended.is_some_and(|ended| match ended.reason.as_deref() {
            Some("ContainerStatusUnknown") => true,
            // What containerd says.
            Some("Unknown") => ended.exit_code == 255,
            _ => false,
        })
    }

    /// Since when it has been on its node, if nothing has been made of it there.
    fn untouched_since(&self) -> Option<Timestamp> {
        let is = |kind: &str| {
            let mut conditions = self.status.conditions.iter();
            conditions.find(|condition| condition.r#type == kind && condition.status == "True")
        };
        let mut containers =
            self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        let has_begun = is("PodReadyToStartContainers").is_some()
            || containers.any(|it| it.state.running.is_some() || it.state.terminated.is_some())
            || !matches!(self.status.phase.as_deref(), None | Some("Pending"));
        let bound = is("PodScheduled").filter(|_| !has_begun && self.spec.node_name.is_some());
        bound.and_then(|bound| bound.last_transition_time)
    }

    /// What still runs when the program has ended. Kubernetes ends its own kind of sidecars, which are init containers.
    fn company(&self) -> Company {
        let mut containers = self.status.container_statuses.iter();
        let other = |container: &SlimContainerStatus| {
            container.name != names::CONTAINER && container.state.running.is_some()
        };
        if containers.any(other) { Company::Others } else { Company::Sidecars }
    }

    fn disruption_target(&self) -> Option<&SlimCondition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.r#type == "DisruptionTarget" && condition.status == "True")
    }

    /// Whether it ended after somebody had decided that it should: the cluster, or whoever deleted it.
    fn was_told_to_go(&self, exit: &Exit, disrupted: bool) -> bool {
        // A kubelet that ends a pod says that the pod failed, whatever its program made of it.
        let by_kubelet =
            self.status.phase.as_deref() == Some("Failed") && (disrupted || self.own_doing().is_some());
        let told = self.metadata.deletion_timestamp.as_ref().map(|leaves_by| {
            let grace = self.metadata.deletion_grace_period_seconds.unwrap_or_default();
            leaves_by.0.saturating_sub(SignedDuration::from_secs(grace)).unwrap_or(leaves_by.0)
        });
        by_kubelet || told.is_some_and(|told| exit.at.is_none_or(|at| at.as_second() >= told.as_second()))
    }

    /// Why it does not run yet: the scheduler's reason, or a container's.
    fn waiting(&self) -> Option<Waiting> {
        let unscheduled = self.status.conditions.iter().find(|condition| {
            condition.r#type == "PodScheduled" && condition.status == "False" && condition.reason.is_some()
        });
        if let Some(condition) = unscheduled {
            return Some(Waiting {
                reason: condition.reason.clone().unwrap_or_default(),
                message: condition.message.clone(),
            });
        }
        let containers = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        let waiting = containers.filter_map(|container| Some((container.state.waiting.as_ref()?, container)));
        let waiting = waiting.filter_map(|(waiting, container)| {
            waiting.reason.clone().map(|reason| (reason, waiting, container))
        });
        // A real reason hides behind containers that only wait for their turn.
        let (reason, waiting, container) = waiting.min_by_key(|(reason, ..)| reason == "PodInitializing")?;
        let ended = container.last_state.terminated.as_ref().and_then(|ended| ended.message.as_deref());
        let ended = ended.map(str::trim).filter(|ended| !ended.is_empty());
        // That it is held back after it ended says nothing about why it ended.
        let said: Vec<&str> = waiting.message.as_deref().into_iter().chain(ended).collect();
        Some(Waiting { reason, message: (!said.is_empty()).then(|| said.join(": ")) })
    }

    fn disruption(&self) -> Option<Disruption> {
        let target = self.disruption_target();
        if target.is_none() && self.own_doing().is_some() {
            return None;
        }
        let reason = self.status.reason.as_deref().filter(|reason| {
            matches!(
                *reason,
                "Evicted"
                    | "Preempted"
                    | "Preempting"
                    | "NodeLost"
                    | "NodeShutdown"
                    | "Shutdown"
                    | "Terminated"
            )
        });
        if target.is_none() && reason.is_none() && self.was_mislaid() {
            let message = "its node lost the container, as when it is switched off and on again".to_owned();
            return Some(Disruption { reasons: vec![CONTAINER_MISLAID.to_owned()], message });
        }
        // A pod that failed before its program was started: the node did not take it, or could not.
        let never_ran = self.status.phase.as_deref() == Some("Failed") && self.exit().is_none();
        let reason = reason.or_else(|| self.status.reason.as_deref().filter(|_| never_ran));
        if target.is_none() && reason.is_none() {
            return None;
        }
        let told = target.and_then(|target| target.message.clone().or_else(|| target.reason.clone()));
        let message = told.unwrap_or_else(|| {
            let said: Vec<&str> = reason.into_iter().chain(self.status.message.as_deref()).collect();
            said.join(": ")
        });
        let reasons = target.and_then(|target| target.reason.clone()).into_iter();
        let reasons = reasons.chain(reason.map(str::to_owned)).collect();
        Some(Disruption { reasons, message })
    }
}

impl Viewed for SlimService {
    type View = ObjectView;

    fn view(self) -> ObjectView {
        let ports: Vec<i32> = self.spec.ports.iter().map(|port| port.port).collect();
        let seen = fingerprint::service(&self.spec.selector, &ports, self.spec.publish_not_ready_addresses);
        object_view(&self.metadata, seen)
    }
}

impl Viewed for SlimConfigMap {
    type View = ObjectView;

    fn view(self) -> ObjectView {
        let seen = fingerprint::config_map(&self.data);
        object_view(&self.metadata, seen)
    }
}

impl Viewed for SlimClaim {
    type View = ClaimView;

    fn view(self) -> ClaimView {
        ClaimView {
            shared: self.spec.access_modes.iter().any(|mode| mode == "ReadWriteMany"),
            deleting: self.metadata.deletion_timestamp.is_some(),
            name: self.metadata.name.clone().unwrap_or_default(),
            uid: self.metadata.uid.clone().unwrap_or_default(),
        }
    }
}

fn object_view(metadata: &ObjectMeta, fingerprint: u64) -> ObjectView {
    ObjectView {
        owner: controller(metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        fingerprint,
    }
}

/// The uid of the controlling owner.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<String> {
    let owners = metadata.owner_references.iter().flatten();
    owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).next()
}

/// The attempt that a pod belongs to; none when the label is missing or not a number.
pub(crate) fn attempt(metadata: &ObjectMeta) -> Option<i32> {
    metadata.labels.as_ref()?.get(names::ATTEMPT_LABEL)?.parse().ok()
}

/// Resource versions are comparable numbers (Kubernetes 1.35 says so officially; etcd's always were).
pub(crate) fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(metadata: Value, status: Value) -> PodView {
        let pod: SlimPod =
            serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": status}))
                .expect("a pod");
        pod.view()
    }

    /// A pod whose training container ended like this.
    fn ended(phase: &str, code: i32, at: &str) -> Value {
        let terminated = json!({"exitCode": code, "reason": "Completed", "finishedAt": at});
        json!({"phase": phase, "containerStatuses": [{"name": names::CONTAINER, "state": {"terminated": terminated}}]})
    }

    #[test]
    fn who_ends_well_because_it_was_told_to_go_is_not_done() {
        let at = "2026-11-16T10:00:30Z";
        assert_eq!(view(json!({}), ended("Succeeded", 0, at)).phase, PodPhase::Succeeded);
        // A node that shuts down, or evicts, says that the pod failed.
        let mut status = ended("Failed", 0, at);
        status["reason"] = "Terminated".into();
        let pod = view(json!({}), status);
        assert_eq!(pod.phase, PodPhase::Failed);
        assert_eq!(pod.disruption.map(|why| why.reasons), Some(vec!["Terminated".to_owned()]));
        // A drain deletes the pod, with 30 s of grace: at 10:00:20 in the first case, after its end in the second.
        for (leaves_by, phase) in
            [("2026-11-16T10:00:50Z", PodPhase::Failed), ("2026-11-16T10:05:00Z", PodPhase::Succeeded)]
        {
            let metadata = json!({"deletionTimestamp": leaves_by, "deletionGracePeriodSeconds": 30});
            assert_eq!(view(metadata, ended("Succeeded", 0, at)).phase, phase, "{leaves_by}");
        }
    }

    #[test]
    fn a_pod_of_which_its_node_has_made_nothing_says_since_when() {
        let bound = "2026-11-16T10:00:30Z";
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": bound});
        let since = |annotations: Value, status: Value| {
            let pod: SlimPod = serde_json::from_value(json!({
                "metadata": {"annotations": annotations}, "spec": {"nodeName": "node-1"}, "status": status,
            }))
            .expect("a pod");
            pod.view().untouched_since.map(|since| since.to_string())
        };
        let waits =
            json!([{"name": names::CONTAINER, "state": {"waiting": {"reason": "ContainerCreating"}}}]);
        let place = |ready: &str| json!({"type": "PodReadyToStartContainers", "status": ready});
        // Its kubelet has not said anything, or that it has no place for it yet.
        let silent = json!({"phase": "Pending", "conditions": [scheduled]});
        let without = json!({"phase": "Pending", "conditions": [scheduled, place("False")], "containerStatuses": waits});
        for status in [&silent, &without] {
            assert_eq!(since(json!({}), status.clone()).as_deref(), Some(bound), "{status}");
            let nudged = json!({names::NUDGED_ANNOTATION: bound});
            assert_eq!(since(nudged, status.clone()), None, "it was nudged for that");
        }
        // It has one, and pulls an image; or an agent holds it.
        let pulls =
            json!({"phase": "Pending", "conditions": [scheduled, place("True")], "containerStatuses": waits});
        let held = json!({"phase": "Pending", "conditions": [scheduled],
            "initContainerStatuses": [{"name": AGENT_CONTAINER, "state": {"running": {}}}]});
        let running = json!({"phase": "Running", "conditions": [scheduled]});
        for status in [pulls, held, running, json!({"phase": "Pending"})] {
            assert_eq!(since(json!({}), status.clone()), None, "{status}");
        }
    }

    #[test]
    fn a_sidecar_that_is_started_again_has_not_failed_the_training() {
        let sidecar = json!([{"name": "logs", "state": {"terminated": {"exitCode": 1}}}]);
        let running = json!([{"name": names::CONTAINER, "state": {"running": {}}}]);
        let status =
            json!({"phase": "Running", "initContainerStatuses": sidecar, "containerStatuses": running});
        assert_eq!(view(json!({}), status).phase, PodPhase::Running);
        // An init container that fails takes the pod with it.
        let status = json!({"phase": "Failed", "initContainerStatuses": sidecar, "containerStatuses": [
            {"name": names::CONTAINER, "state": {"waiting": {"reason": "PodInitializing"}}},
        ]});
        let pod = view(json!({}), status);
        assert_eq!(pod.phase, PodPhase::Failed);
        let exit = pod.exit.expect("it ended");
        assert_eq!((exit.code, exit.init.as_deref()), (1, Some("logs")));
    }

    #[test]
    fn who_is_held_back_after_it_ended_says_why_it_ended() {
        let agent = json!([{"name": AGENT_CONTAINER,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}},
            "lastState": {"terminated": {"exitCode": 128, "message": "mounting /checkpoints: No such file or directory\n"}}}]);
        let pod = view(json!({}), json!({"phase": "Pending", "initContainerStatuses": agent}));
        let waiting = pod.waiting.expect("it waits");
        let told = "back-off 40s restarting: mounting /checkpoints: No such file or directory";
        assert_eq!((&*waiting.reason, waiting.message.as_deref()), ("CrashLoopBackOff", Some(told)));
    }

    #[test]
    fn who_lingers_because_of_a_sidecar_will_end() {
        let ended = json!({"name": names::CONTAINER, "state": {"terminated": {"exitCode": 3}}});
        let other = json!({"name": "logs", "state": {"running": {}}});
        let agent = json!([{"name": AGENT_CONTAINER, "state": {"running": {}}}]);
        let beside =
            json!({"phase": "Running", "initContainerStatuses": agent, "containerStatuses": [ended]});
        let company = json!({"phase": "Running", "containerStatuses": [ended, other]});
        for (status, with) in [(beside, Company::Sidecars), (company, Company::Others)] {
            let pod = view(json!({}), status);
            assert_eq!((pod.phase, pod.lingers), (PodPhase::Failed, Some(with)));
        }
    }

    #[test]
    fn a_container_that_its_node_lost_was_disrupted() {
        for (reason, code) in [("ContainerStatusUnknown", 137), ("Unknown", 255)] {
            let mut status = ended("Failed", code, "2026-11-16T10:00:30Z");
            status["containerStatuses"][0]["state"]["terminated"]["reason"] = reason.into();
            let pod = view(json!({}), status);
            let why = pod.disruption.expect("its node was switched off");
            assert_eq!(
                (pod.phase, why.reasons),
                (PodPhase::Failed, vec!["ContainerStatusUnknown".to_owned()])
            );
        }
        assert!(view(json!({}), ended("Failed", 255, "2026-11-16T10:00:30Z")).disruption.is_none());
    }

    #[test]
    fn who_goes_past_a_limit_of_its_own_was_not_disrupted_and_is_not_done() {
        let too_large = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ";
        for (reason, message, code) in
            [("Evicted", too_large, 137), ("DeadlineExceeded", "Pod was active on the node longer than …", 0)]
        {
            let mut status = ended("Failed", code, "2026-11-16T10:00:30Z");
            status["reason"] = reason.into();
            status["message"] = message.into();
            let pod = view(json!({}), status.clone());
            assert_eq!((pod.phase, pod.disruption), (PodPhase::Failed, None), "{reason}");
            let exit = pod.exit.expect("it ended");
            assert_eq!((exit.reason.as_deref(), exit.message.as_deref()), (Some(reason), Some(message)));
            // A kubelet may have forgotten its containers.
            status["containerStatuses"] = json!([]);
            let pod = view(json!({}), status);
            let reason_of = pod.exit.as_ref().and_then(|exit| exit.reason.as_deref());
            assert_eq!((pod.phase, reason_of), (PodPhase::Failed, Some(reason)));
        }
        // A node in need takes pods that did nothing wrong.
        let mut status = ended("Failed", 137, "2026-11-16T10:00:30Z");
        status["reason"] = "Evicted".into();
        status["message"] = "The node was low on resource: memory.".into();
        assert!(view(json!({}), status).disruption.is_some());
    }

    #[test]
    fn a_disruption_has_all_its_names() {
        let mut status = ended("Failed", 137, "2026-11-16T10:00:30Z");
        status["reason"] = "Evicted".into();
        status["message"] = "The node was low on resource: memory.".into();
        status["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
            "message": "The node was low on resource: memory. Threshold quantity: 100Mi"}]);
        let why = view(json!({}), status).disruption.expect("it was disrupted");
        assert_eq!(why.reasons, ["TerminationByKubelet", "Evicted"]);
        assert!(why.message.starts_with("The node was low"), "{}", why.message);
    }
}
