//! Pods that do not go although their time is over, because their node is dead: they are removed by force.
//!
//! Only then: a node that answers will remove its pods itself, and a pod that still runs must not be replaced beside it.

use jiff::{SignedDuration, Timestamp};

use crate::draft::{delete_pod, later};
use crate::plan::Step;
use crate::settings::Settings;
use crate::snapshot::{NodeState, PodView, Snapshot};

/// The steps that remove such pods.
pub(super) fn steps(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Vec<Step> {
    let dead = overdue(snapshot, settings, now).filter(|pod| snapshot.is_on_dead_node(pod));
    dead.map(|pod| delete_pod(pod, Some(0))).collect()
}

/// Why a pod that should be gone is still waited for, if nobody will remove it by force.
pub(super) fn why_not(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Option<String> {
    overdue(snapshot, settings, now).find_map(|pod| {
        let PodView { name, node, .. } = pod;
        let node = node.as_deref().unwrap_or_default();
        Some(match snapshot.node_of(pod)? {
            NodeState::Unreachable | NodeState::Gone => return None,
            NodeState::Ready => {
                format!("{name} does not go although its time is over, and its node {node} answers: see kubectl describe pod {name}")
            }
            NodeState::Hidden => format!(
                "{name} does not go although its time is over, and whether its node {node} is dead cannot be known: the operator needs \
                 the right to get nodes"
            ),
        })
    })
}

fn overdue<'s>(
    snapshot: &'s Snapshot,
    settings: &Settings,
    now: Timestamp,
) -> impl Iterator<Item = &'s PodView> {
    snapshot.own_pods().filter(move |pod| due(pod, settings).is_some_and(|due| due <= now))
}

/// The steps by which pods on dead nodes have no more time than what is left of their gang: nobody uses it.
pub(super) fn hasten(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Vec<Step> {
    let soon = later(now, SignedDuration::from_secs(settings.survivor_grace.into()));
    let waits = |pod: &&PodView| pod.leaves_by.is_some_and(|leaves_by| leaves_by > soon);
    let dead = snapshot.own_pods().filter(waits).filter(|pod| snapshot.is_on_dead_node(pod));
    // Without any time they would go before anybody knows that they are gone for good.
    dead.map(|pod| delete_pod(pod, Some(settings.survivor_grace.max(1)))).collect()
}

/// When a pod that is on its way out has had its time.
pub fn due(pod: &PodView, settings: &Settings) -> Option<Timestamp> {
    Some(later(pod.leaves_by?, settings.force_after))
}

/// When to look again: the next pod's time is over.
pub(super) fn next(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Option<Timestamp> {
    snapshot.own_pods().filter_map(|pod| due(pod, settings)).filter(|due| *due > now).min()
}
