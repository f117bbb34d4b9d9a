//! What a kubelet would say about a pod, from what happened to its containers: PURE.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::fit::is_sidecar;

/// What became of one container so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Story {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) role: Role,
    pub(crate) now: Now,
    /// The end of the run before this one.
    pub(crate) last: Option<End>,
    pub(crate) restarts: i32,
    /// Its readiness probe says so, or it has none and runs.
    pub(crate) ready: bool,
    /// Its startup probe says so, or it has none and runs.
    pub(crate) started: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the next container starts.
    Init,
    /// An init container that goes on beside the others.
    Sidecar,
    Main,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Now {
    Waiting { reason: &'static str, message: Option<String> },
    Running { since: Timestamp, id: String },
    Ended(End),
}

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct End {
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
    pub(crate) message: Option<String>,
    pub(crate) started: Option<Timestamp>,
    pub(crate) finished: Timestamp,
    pub(crate) id: String,
}

/// Why a pod was ended from outside, which decides its phase whatever its containers say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The machine took the pod away: nothing that the program did.
    pub(crate) disruption: bool,
}

/// What is known of a pod.
#[derive(Clone, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) stories: &'a [Story],
    pub(crate) address: &'a str,
    pub(crate) host_address: &'a str,
    pub(crate) started: Timestamp,
    pub(crate) verdict: Option<&'a Verdict>,
    pub(crate) deleting: bool,
}

impl Story {
    /// The containers of a pod, none of which has been started.
    pub(crate) fn of(pod: &Pod) -> Vec<Self> {
        let Some(spec) = &pod.spec else { return Vec::new() };
        let init = spec.init_containers.iter().flatten();
        let has_init = spec.init_containers.as_ref().is_some_and(|init| !init.is_empty());
        let waiting = if has_init { "PodInitializing" } else { "ContainerCreating" };
        let init =
            init.map(|container| (container, if is_sidecar(container) { Role::Sidecar } else { Role::Init }));
        init.chain(spec.containers.iter().map(|container| (container, Role::Main)))
            .map(|(container, role)| Self {
                name: container.name.clone(),
                image: container.image.clone().unwrap_or_default(),
                role,
                now: Now::Waiting { reason: waiting, message: None },
                last: None,
                restarts: 0,
                ready: false,
                started: false,
            })
            .collect()
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.now, Now::Running { .. })
    }

    pub(crate) fn end(&self) -> Option<&End> {
        match &self.now {
            Now::Ended(end) => Some(end),
            Now::Waiting { .. } | Now::Running { .. } => None,
        }
    }

    /// Whether it needs not be waited for any more, if it is one of those that run before the others.
    pub(crate) fn lets_pass(&self) -> bool {
        match self.role {
            Role::Init => self.end().is_some_and(|end| end.code == 0),
            Role::Sidecar => self.started,
            Role::Main => true,
        }
    }

    fn status(&self) -> ContainerStatus {
        let (waiting, running, ended) = match &self.now {
            Now::Waiting { reason, message } => {
                let waiting =
                    ContainerStateWaiting { reason: Some((*reason).to_owned()), message: message.clone() };
                (Some(waiting), None, None)
            }
            Now::Running { since, .. } => {
                (None, Some(ContainerStateRunning { started_at: Some(time(*since)) }), None)
            }
            Now::Ended(end) => (None, None, Some(terminated(end))),
        };
        let id = match &self.now {
            Now::Running { id, .. } => Some(id),
            Now::Ended(end) => Some(&end.id),
            Now::Waiting { .. } => self.last.as_ref().map(|end| &end.id),
        };
        let finished_well = self.role == Role::Init && self.end().is_some_and(|end| end.code == 0);
        ContainerStatus {
            name: self.name.clone(),
            image: self.image.clone(),
            image_id: String::new(),
            container_id: id.filter(|id| !id.is_empty()).cloned(),
            ready: finished_well || (self.is_running() && self.ready),
            started: Some(self.is_running() && self.started),
            restart_count: self.restarts,
            state: Some(ContainerState { waiting, running, terminated: ended }),
            last_state: Some(ContainerState {
                terminated: self.last.as_ref().map(terminated),
                ..ContainerState::default()
            }),
            ..ContainerStatus::default()
        }
    }
}

fn terminated(end: &End) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: end.code,
        reason: Some(end.reason.to_owned()),
        message: end.message.clone(),
        started_at: end.started.map(time),
        finished_at: Some(time(end.finished)),
        container_id: Some(end.id.clone()).filter(|id| !id.is_empty()),
        signal: None,
    }
}

/// Kubernetes writes whole seconds.
fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// The phase of a pod with these containers.
pub(crate) fn phase(pod: &Pod, stories: &[Story], verdict: Option<&Verdict>) -> &'static str {
    let policy = restart_policy(pod);
    let mut of_init = stories.iter().filter(|story| story.role != Role::Main);
    let init_failed = stories.iter().any(|story| {
        story.role == Role::Init && policy == "Never" && story.end().is_some_and(|end| end.code != 0)
    });
    let mains: Vec<&Story> = stories.iter().filter(|story| story.role == Role::Main).collect();
    let all_ended = mains.iter().all(|story| story.end().is_some());
    let all_well = mains.iter().all(|story| story.end().is_some_and(|end| end.code == 0));
    let anything_runs = stories.iter().any(Story::is_running);
    if verdict.is_some() && !anything_runs {
        return "Failed";
    }
    if init_failed {
        return if anything_runs { "Pending" } else { "Failed" };
    }
    if !all_ended && of_init.any(|story| !story.lets_pass() && story.restarts == 0) {
        return "Pending";
    }
    let final_for = match policy {
        "Never" => all_ended,
        "OnFailure" => all_well,
        _ => false,
    };
    if final_for {
        return match (stories.iter().any(|story| story.role == Role::Sidecar && story.is_running()), all_well)
        {
            (true, _) => "Running",
            (false, true) => "Succeeded",
            (false, false) => "Failed",
        };
    }
    let begun = |story: &&Story| story.is_running() || story.end().is_some() || story.last.is_some();
    if mains.iter().any(begun) { "Running" } else { "Pending" }
}

pub(crate) fn restart_policy(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always")
}

/// The whole status. What it does not know about (conditions of others, the quality of service) stays.
pub(crate) fn status(known: &Known<'_>, now: Timestamp) -> PodStatus {
    let Known { pod, stories, address, host_address, started, verdict, deleting } = known;
    let before = pod.status.clone().unwrap_or_default();
    let phase = phase(pod, stories, *verdict);
    let statuses = |init: bool| -> Option<Vec<ContainerStatus>> {
        let wanted = stories.iter().filter(|story| (story.role != Role::Main) == init);
        let statuses: Vec<ContainerStatus> = wanted.map(Story::status).collect();
        (!statuses.is_empty()).then_some(statuses)
    };
    let mut status = PodStatus {
        phase: Some(phase.to_owned()),
        container_statuses: statuses(false),
        init_container_statuses: statuses(true),
        host_ip: Some((*host_address).to_owned()),
        host_ips: Some(vec![HostIP { ip: (*host_address).to_owned() }]),
        pod_ip: Some((*address).to_owned()),
        pod_ips: Some(vec![PodIP { ip: (*address).to_owned() }]),
        start_time: Some(time(*started)),
        reason: verdict.map(|verdict| verdict.reason.to_owned()).or(before.reason.clone()),
        message: verdict.map(|verdict| verdict.message.clone()).or(before.message.clone()),
        ..before
    };
    let conditions = conditions(known, phase, *deleting);
    let existing = status.conditions.get_or_insert_default();
    for wanted in conditions {
        set_condition(existing, wanted, now);
    }
    status
}

fn conditions(known: &Known<'_>, phase: &str, deleting: bool) -> Vec<PodCondition> {
    let stories = known.stories;
    let ended = matches!(phase, "Succeeded" | "Failed");
    let of_init: Vec<&Story> = stories.iter().filter(|story| story.role != Role::Main).collect();
    let incomplete: Vec<&str> =
        of_init.iter().filter(|story| !story.lets_pass()).map(|story| story.name.as_str()).collect();
    // A sidecar that has ended with its pod does not make the pod uninitialized again.
    let mains_begun = stories.iter().any(|story| {
        story.role == Role::Main && (!matches!(story.now, Now::Waiting { .. }) || story.last.is_some())
    });
    let initialized = incomplete.is_empty() || mains_begun;
    let unready: Vec<&str> = stories
        .iter()
        .filter(|story| story.role == Role::Main && !(story.is_running() && story.ready))
        .map(|story| story.name.as_str())
        .collect();
    let listed = |what: &str, names: &[&str]| format!("containers with {what} status: [{}]", names.join(" "));
    let condition = |kind: &str, holds: bool, reason: Option<&str>, message: Option<String>| PodCondition {
        type_: kind.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.map(str::to_owned),
        message,
        observed_generation: known.pod.metadata.generation,
        ..PodCondition::default()
    };
    let completed = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    };
    let not_initialized = Some(listed("incomplete", &incomplete)).filter(|_| !initialized);
    let ready = !ended && initialized && unready.is_empty();
    let not_ready = Some(listed("unready", &unready)).filter(|_| !ready && !ended && !unready.is_empty());
    let why = completed.or(if ready { None } else { Some("ContainersNotReady") });
    let begun = stories.iter().any(|story| !matches!(story.now, Now::Waiting { .. }) || story.last.is_some());
    let mut conditions = vec![
        condition("PodReadyToStartContainers", begun && !ended, None, None),
        condition(
            "Initialized",
            initialized,
            if initialized {
                completed.filter(|_| phase == "Succeeded")
            } else {
                Some("ContainersNotInitialized")
            },
            not_initialized,
        ),
        condition("Ready", ready && !deleting, why, not_ready.clone()),
        condition("ContainersReady", ready, why, not_ready),
        condition("PodScheduled", true, None, None),
    ];
    if let Some(verdict) = known.verdict.filter(|verdict| verdict.disruption) {
        let message = Some(verdict.message.clone());
        conditions.push(condition("DisruptionTarget", true, Some("TerminationByKubelet"), message));
    }
    conditions
}

/// Puts a condition in, with a new moment of transition only if it changed.
pub(crate) fn set_condition(existing: &mut Vec<PodCondition>, mut wanted: PodCondition, now: Timestamp) {
    let old = existing.iter().position(|condition| condition.type_ == wanted.type_);
    wanted.last_transition_time = old
        .map(|old| &existing[old])
        .filter(|old| old.status == wanted.status)
        .and_then(|old| old.last_transition_time.clone())
        .or(Some(time(now)));
    match old {
        Some(old) => existing[old] = wanted,
        None => existing.push(wanted),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(policy: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": policy,
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "a"}, {"name": "b"}]}}))
        .unwrap()
    }

    fn running() -> Now {
        Now::Running { since: Timestamp::UNIX_EPOCH, id: "process://1".to_owned() }
    }

    fn ended(code: i32) -> Now {
        Now::Ended(End {
            code,
            reason: if code == 0 { "Completed" } else { "Error" },
            message: None,
            started: Some(Timestamp::UNIX_EPOCH),
            finished: Timestamp::UNIX_EPOCH,
            id: String::new(),
        })
    }

    fn waiting() -> Now {
        Now::Waiting { reason: "PodInitializing", message: None }
    }

    fn stories(pod: &Pod, nows: [Now; 4]) -> Vec<Story> {
        let mut stories = Story::of(pod);
        for (story, now) in stories.iter_mut().zip(nows) {
            story.started = matches!(now, Now::Running { .. });
            story.ready = story.started;
            story.now = now;
        }
        stories
    }

    #[test]
    fn phases() {
        let table = [
            ("Never", [waiting(), waiting(), waiting(), waiting()], "Pending"),
            ("Never", [running(), waiting(), waiting(), waiting()], "Pending"),
            ("Never", [ended(1), waiting(), waiting(), waiting()], "Failed"),
            ("OnFailure", [ended(1), waiting(), waiting(), waiting()], "Pending"),
            ("Never", [ended(0), running(), running(), running()], "Running"),
            ("Never", [ended(0), running(), ended(1), running()], "Running"),
            ("Never", [ended(0), running(), ended(0), ended(0)], "Running"),
            ("Never", [ended(0), ended(137), ended(0), ended(0)], "Succeeded"),
            ("Never", [ended(0), ended(0), ended(3), ended(0)], "Failed"),
            ("OnFailure", [ended(0), running(), ended(3), ended(0)], "Running"),
            ("Always", [ended(0), running(), ended(0), ended(0)], "Running"),
        ];
        for (policy, nows, wanted) in table {
            let pod = pod(policy);
            assert_eq!(phase(&pod, &stories(&pod, nows.clone()), None), wanted, "{policy} {nows:?}");
        }
    }

    #[test]
    fn the_status_as_a_kubelet_writes_it() {
        let pod = pod("Never");
        let shown = |nows: [Now; 4], verdict: Option<&Verdict>| {
            let stories = stories(&pod, nows);
            let known = Known {
                pod: &pod,
                stories: &stories,
                address: "127.77.0.1",
                host_address: "127.0.0.1",
                started: Timestamp::UNIX_EPOCH,
                verdict,
                deleting: false,
            };
            status(&known, Timestamp::UNIX_EPOCH)
        };
        insta::assert_yaml_snapshot!(
            "initializing",
            shown([running(), waiting(), waiting(), waiting()], None)
        );
        insta::assert_yaml_snapshot!("running", shown([ended(0), running(), running(), running()], None));
        insta::assert_yaml_snapshot!("failed", shown([ended(0), ended(137), ended(1), ended(0)], None));
        let verdict = Verdict {
            reason: "Terminated",
            message: "Pod was terminated in response to imminent node shutdown.".to_owned(),
            disruption: true,
        };
        insta::assert_yaml_snapshot!(
            "shut-down",
            shown([ended(0), ended(0), ended(143), ended(143)], Some(&verdict))
        );
    }

    #[test]
    fn conditions_of_others_stay_and_moments_change_only_with_the_condition() {
        let moment = |second| Timestamp::from_second(second).unwrap();
        let condition = |kind: &str, status: &str| PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            ..PodCondition::default()
        };
        let mut existing = Vec::new();
        set_condition(&mut existing, condition("DisruptionTarget", "True"), moment(1));
        set_condition(&mut existing, condition("Ready", "False"), moment(2));
        set_condition(&mut existing, condition("Ready", "False"), moment(3));
        assert_eq!(existing[1].last_transition_time, Some(time(moment(2))));
        set_condition(&mut existing, condition("Ready", "True"), moment(4));
        assert_eq!(existing[1].last_transition_time, Some(time(moment(4))));
        assert_eq!(existing.len(), 2);
    }
}
