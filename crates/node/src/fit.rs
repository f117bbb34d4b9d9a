//! Which pending pods can start: PURE. In the order of their creation; what does not fit lets others pass.
//!
//! Pods of one attempt of a training job wait for each other anyway, so they are admitted together or not at all: two
//! half-started gangs would hold what the other needs, for ever. Where some roles start after others, that holds for those that are made
//! at the same time.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use trainyard_api::names;

use crate::quantity;

/// Amounts by the name of the resource, in thousandths.
pub(crate) type Amounts = BTreeMap<String, i64>;

/// Which gang a pod belongs to: namespace, job, attempt.
pub(crate) type Gang = (String, String, String);

/// Those of a gang that start together, in words: which, and how many (`workers=4,ps=2`).
pub(crate) type Wave = (Gang, String);

/// What the node has to give.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capacity {
    pub(crate) allocatable: Amounts,
    pub(crate) max_pods: i64,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) node: String,
}

/// A pod that waits.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) pod: &'a Pod,
    /// Why its claims cannot be used yet.
    pub(crate) claims: Option<String>,
}

/// What becomes of one pending pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Start,
    /// In the scheduler's words.
    Unschedulable(String),
    /// Other pods of the wave do not exist yet; that is nothing to complain about.
    WaitForGang,
}

/// Judges the pending pods, oldest first. `running` are the pods that hold resources now, `waves` says how many pods
/// of a wave exist in all (waiting, running or ended).
pub(crate) fn admit(
    capacity: &Capacity,
    running: &[Amounts],
    pending: &[Candidate<'_>],
    waves: &BTreeMap<Wave, usize>,
) -> Vec<Verdict> {
    let mut free = capacity.allocatable.clone();
    for amounts in running {
        subtract(&mut free, amounts);
    }
    let mut places = capacity.max_pods - i64::try_from(running.len()).unwrap_or(i64::MAX);
    let mut verdicts: Vec<Option<Verdict>> = vec![None; pending.len()];
    for index in 0..pending.len() {
        if verdicts[index].is_some() {
            continue;
        }
        let members = members(pending, index);
        let verdict = if is_incomplete(pending[index].pod, waves) {
            Verdict::WaitForGang
        } else {
            judge(capacity, &free, places, pending, &members)
        };
        if verdict == Verdict::Start {
            for member in &members {
                subtract(&mut free, &requests(pending[*member].pod));
                places -= 1;
            }
        }
        for member in members {
            verdicts[member] = Some(verdict.clone());
        }
    }
    verdicts.into_iter().map(|verdict| verdict.unwrap_or(Verdict::WaitForGang)).collect()
}

/// The gang of a pod, if it is one of a training job.
pub(crate) fn gang(pod: &Pod) -> Option<Gang> {
    let labels = pod.metadata.labels.as_ref()?;
    let attempt = labels.get(names::ATTEMPT_LABEL)?;
    let job = labels.get(names::JOB_LABEL)?;
    Some((pod.metadata.namespace.clone().unwrap_or_default(), job.clone(), attempt.clone()))
}

/// The wave of a pod, if it is one of a training job.
pub(crate) fn wave(pod: &Pod) -> Option<Wave> {
    Some((gang(pod)?, together(pod).unwrap_or_default().to_owned()))
}

fn together(pod: &Pod) -> Option<&str> {
    let notes = pod.metadata.annotations.as_ref()?;
    notes.get(names::TOGETHER_ANNOTATION).or_else(|| notes.get(names::SHAPE_ANNOTATION)).map(String::as_str)
}

/// How many pods start together with it.
fn wave_size(pod: &Pod) -> Option<usize> {
    together(pod)?.split(',').map(|role| role.split_once('=')?.1.parse::<usize>().ok()).sum()
}

fn is_incomplete(pod: &Pod, waves: &BTreeMap<Wave, usize>) -> bool {
    let Some(wave) = wave(pod) else { return false };
    wave_size(pod).is_some_and(|size| waves.get(&wave).copied().unwrap_or_default() < size)
}

fn members(pending: &[Candidate<'_>], index: usize) -> Vec<usize> {
    let own = wave(pending[index].pod).filter(|_| wave_size(pending[index].pod).is_some());
    match own {
        Some(own) => {
            (index..pending.len()).filter(|other| wave(pending[*other].pod).as_ref() == Some(&own)).collect()
        }
        None => vec![index],
    }
}

fn judge(
    capacity: &Capacity,
    free: &Amounts,
    places: i64,
    pending: &[Candidate<'_>],
    members: &[usize],
) -> Verdict {
    let members: Vec<&Candidate<'_>> = members.iter().map(|member| &pending[*member]).collect();
    if let Some(why) = members.iter().find_map(|member| member.claims.as_ref()) {
        return Verdict::Unschedulable(words(std::slice::from_ref(why), false));
    }
    if members.iter().any(|member| !selects(member.pod, capacity)) {
        let why = "1 node(s) didn't match Pod's node affinity/selector".to_owned();
        return Verdict::Unschedulable(words(&[why], false));
    }
    let mut wanted = Amounts::new();
    for member in &members {
        add(&mut wanted, &requests(member.pod));
    }
    let short = |available: &Amounts| -> BTreeSet<String> {
        let available = |name: &str| available.get(name).copied().unwrap_or_default();
        wanted
            .iter()
            .filter(|(name, amount)| **amount > available(name))
            .map(|(name, _)| name.clone())
            .collect()
    };
    let lacking = short(free);
    let count = i64::try_from(members.len()).unwrap_or(i64::MAX);
    let mut reasons: Vec<String> = lacking.iter().map(|name| format!("1 Insufficient {name}")).collect();
    if places < count {
        reasons.push("1 Too many pods".to_owned());
    }
    if reasons.is_empty() {
        return Verdict::Start;
    }
    reasons.sort();
    let never = short(&capacity.allocatable);
    let mut message = words(&reasons, never.is_empty() && count <= capacity.max_pods);
    if let Some(name) = lacking.iter().next().filter(|_| !never.is_empty() || members.len() > 1) {
        let amount = |amounts: &Amounts| plain(name, amounts.get(name).copied().unwrap_or_default());
        let who = if members.len() > 1 {
            format!("The {} pods of this attempt start together and ask for", members.len())
        } else {
            "The pod asks for".to_owned()
        };
        let (wanted, total, free) = (amount(&wanted), amount(&capacity.allocatable), amount(free));
        message = format!("{message} {who} {wanted} {name}; this machine has {total}, {free} of it free.");
    }
    Verdict::Unschedulable(message)
}

/// `0/1 nodes are available: …`, as the scheduler says it.
fn words(reasons: &[String], could_fit: bool) -> String {
    let preemption = if could_fit {
        "1 No preemption victims found for incoming pod"
    } else {
        "1 Preemption is not helpful for scheduling"
    };
    format!(
        "0/1 nodes are available: {}. preemption: 0/1 nodes are available: {preemption}.",
        reasons.join(", ")
    )
}

/// An amount as a person would write it.
fn plain(name: &str, millis: i64) -> String {
    const MEBI: i64 = 1024 * 1024;
    if name == "memory" || name == "ephemeral-storage" {
        return format!("{}Mi", millis / 1000 / MEBI);
    }
    if millis % 1000 == 0 { (millis / 1000).to_string() } else { format!("{millis}m") }
}

/// Whether the pod's node selector and required node affinity allow this node.
fn selects(pod: &Pod, capacity: &Capacity) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let labels = &capacity.labels;
    let by_selector = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key).is_some_and(|own| own == value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    by_selector
        && required.is_none_or(|required| {
            required.node_selector_terms.iter().any(|term| {
                let labels_match = term.match_expressions.iter().flatten().all(|expression| {
                    holds(labels.get(&expression.key), &expression.operator, expression.values.as_deref())
                });
                let fields_match = term.match_fields.iter().flatten().all(|expression| {
                    let own = (expression.key == "metadata.name").then_some(&capacity.node);
                    holds(own, &expression.operator, expression.values.as_deref())
                });
                labels_match && fields_match
            })
        })
}

fn holds(own: Option<&String>, operator: &str, values: Option<&[String]>) -> bool {
    let values = values.unwrap_or_default();
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
    match operator {
        "In" => own.is_some_and(|own| values.contains(own)),
        "NotIn" => own.is_none_or(|own| !values.contains(own)),
        "Exists" => own.is_some(),
        "DoesNotExist" => own.is_none(),
        "Gt" => number(own).zip(number(values.first())).is_some_and(|(own, value)| own > value),
        "Lt" => number(own).zip(number(values.first())).is_some_and(|(own, value)| own < value),
        _ => false,
    }
}

/// What a pod takes: its containers and sidecars together, or its largest init container, whichever is more.
pub(crate) fn requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let mut total = Amounts::new();
    for container in &spec.containers {
        add(&mut total, &container_requests(container));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let mut now = sidecars.clone();
        add(&mut now, &container_requests(container));
        if is_sidecar(container) {
            sidecars.clone_from(&now);
        }
        for (name, amount) in now {
            let highest = peak.entry(name).or_default();
            *highest = amount.max(*highest);
        }
    }
    add(&mut total, &sidecars);
    for (name, amount) in peak {
        let wanted = total.entry(name).or_default();
        *wanted = amount.max(*wanted);
    }
    add(&mut total, &overhead(spec));
    total.retain(|_, amount| *amount > 0);
    total
}

/// An init container that goes on beside the others.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn overhead(spec: &PodSpec) -> Amounts {
    amounts(spec.overhead.as_ref())
}

fn container_requests(container: &Container) -> Amounts {
    let Some(resources) = &container.resources else { return Amounts::new() };
    let mut all = amounts(resources.limits.as_ref());
    all.extend(amounts(resources.requests.as_ref()));
    all
}

pub(crate) fn amounts(quantities: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let known = |(name, amount): (&String, &Quantity)| Some((name.clone(), quantity::millis(amount)?));
    quantities.into_iter().flatten().filter_map(known).collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *total.entry(name.clone()).or_default() += amount;
    }
}

fn subtract(total: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        *total.entry(name.clone()).or_default() -= amount;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, cpu: &str, gang: Option<(&str, &str)>) -> Pod {
        let mut metadata = json!({"name": name, "namespace": "ml"});
        if let Some((job, shape)) = gang {
            metadata["labels"] = json!({names::JOB_LABEL: job, names::ATTEMPT_LABEL: "1"});
            metadata["annotations"] = json!({names::SHAPE_ANNOTATION: shape});
        }
        serde_json::from_value(json!({
            "metadata": metadata,
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        }))
        .unwrap()
    }

    fn capacity(cpu: i64) -> Capacity {
        Capacity {
            allocatable: [("cpu".to_owned(), cpu * 1000), ("memory".to_owned(), 8 << 30)].into(),
            max_pods: 10,
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            node: "box".to_owned(),
        }
    }

    fn admitted(cpu: i64, running: &[Amounts], pods: &[Pod]) -> Vec<Verdict> {
        let pending: Vec<_> = pods.iter().map(|pod| Candidate { pod, claims: None }).collect();
        let mut waves = BTreeMap::new();
        for wave in pods.iter().filter_map(wave) {
            *waves.entry(wave).or_insert(0) += 1;
        }
        admit(&capacity(cpu), running, &pending, &waves)
    }

    fn started(verdicts: &[Verdict]) -> Vec<bool> {
        verdicts.iter().map(|verdict| *verdict == Verdict::Start).collect()
    }

    #[test]
    fn in_order_and_small_ones_pass() {
        let pods = [pod("a", "1", None), pod("b", "2", None), pod("c", "500m", None)];
        assert_eq!(started(&admitted(2, &[], &pods)), [true, false, true]);
    }

    #[test]
    fn a_gang_starts_together_or_not_at_all() {
        let one = ("one", "workers=2");
        let two = ("two", "workers=2");
        let pods = [
            pod("one-0", "1", Some(one)),
            pod("two-0", "1", Some(two)),
            pod("one-1", "1", Some(one)),
            pod("two-1", "1", Some(two)),
        ];
        assert_eq!(started(&admitted(3, &[], &pods)), [true, false, true, false]);
        assert_eq!(started(&admitted(4, &[], &pods)), [true; 4]);
        assert_eq!(admitted(4, &[], &pods[..1]), [Verdict::WaitForGang]);
    }

    #[test]
    fn whoever_starts_first_does_not_wait_for_whoever_comes_then() {
        let waits_with = |name, roles: &str| {
            let mut pod = pod(name, "1", Some(("one", "ps=2,workers=2")));
            let notes = pod.metadata.annotations.as_mut().unwrap();
            notes.insert(names::TOGETHER_ANNOTATION.to_owned(), roles.to_owned());
            pod
        };
        let mut pods = vec![waits_with("ps-0", "ps=2")];
        assert_eq!(admitted(4, &[], &pods), [Verdict::WaitForGang]);
        pods.push(waits_with("ps-1", "ps=2"));
        assert_eq!(started(&admitted(4, &[], &pods)), [true, true]);
        pods.push(waits_with("workers-0", "workers=2"));
        assert_eq!(started(&admitted(4, &[], &pods)), [true, true, false], "its own wave has two");
    }

    #[test]
    fn reasons_are_the_scheduler_s() {
        let busy: Amounts = [("cpu".to_owned(), 1500)].into();
        let verdicts = admitted(2, &[busy], &[pod("a", "1", None)]);
        let Verdict::Unschedulable(message) = &verdicts[0] else { panic!("{verdicts:?}") };
        assert_eq!(
            message,
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        );
        let verdicts = admitted(2, &[], &[pod("a", "4", None)]);
        let Verdict::Unschedulable(message) = &verdicts[0] else { panic!("{verdicts:?}") };
        assert!(message.contains("1 Preemption is not helpful for scheduling."), "{message}");
        assert!(message.ends_with("The pod asks for 4 cpu; this machine has 2, 2 of it free."), "{message}");
        let gang = ("one", "workers=2");
        let verdicts = admitted(1, &[], &[pod("a", "1", Some(gang)), pod("b", "1", Some(gang))]);
        let Verdict::Unschedulable(message) = &verdicts[1] else { panic!("{verdicts:?}") };
        assert!(message.contains("The 2 pods of this attempt start together and ask for 2 cpu"), "{message}");
    }

    #[test]
    fn selectors_and_claims() {
        let mut elsewhere = pod("a", "1", None);
        elsewhere.spec.as_mut().unwrap().node_selector = Some([("zone".to_owned(), "b".to_owned())].into());
        let verdicts = admitted(2, &[], std::slice::from_ref(&elsewhere));
        assert!(
            matches!(&verdicts[0], Verdict::Unschedulable(why) if why.contains("didn't match Pod's node affinity/selector"))
        );
        let pod = pod("a", "1", None);
        let pending =
            [Candidate { pod: &pod, claims: Some("persistentvolumeclaim \"x\" not found".to_owned()) }];
        let verdicts = admit(&capacity(2), &[], &pending, &BTreeMap::new());
        assert!(
            matches!(&verdicts[0], Verdict::Unschedulable(why) if why.starts_with("0/1 nodes are available: persistentvolumeclaim \"x\" not found."))
        );
    }

    #[test]
    fn init_containers_and_sidecars_count_as_kubernetes_counts_them() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"name": "big", "resources": {"requests": {"cpu": "3"}, "limits": {"memory": "1k"}}}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}))
        .unwrap();
        let wanted: Amounts = [("cpu".to_owned(), 4000), ("memory".to_owned(), 1_000_000)].into();
        assert_eq!(requests(&pod), wanted);
    }
}
