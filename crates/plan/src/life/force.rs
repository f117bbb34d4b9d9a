//! Pods that do not go although their time is over, because their node is dead: they are removed by force.
//!
//! Only then: a node that answers will remove its pods itself, and a pod that still runs must not be replaced beside it.

use jiff::Timestamp;

use crate::draft::{delete_pod, later};
use crate::plan::Step;
use crate::settings::Settings;
use crate::snapshot::{NodeState, PodView, Snapshot};

/// The steps that remove such pods.
pub(super) fn steps(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Vec<Step> {
    let overdue = snapshot.own_pods().filter(|pod| due(pod, settings).is_some_and(|due| due <= now));
    let dead = overdue.filter(|pod| {
        let node = snapshot.nodes.iter().find(|node| Some(&node.name) == pod.node.as_ref());
        node.is_some_and(|node| node.state != NodeState::Ready)
    });
    dead.map(|pod| delete_pod(pod, Some(0))).collect()
}

/// When a pod that is on its way out has had its time.
pub fn due(pod: &PodView, settings: &Settings) -> Option<Timestamp> {
    Some(later(pod.leaves_by?, settings.force_after))
}

/// When to look again: the next pod's time is over.
pub(super) fn next(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Option<Timestamp> {
    snapshot.own_pods().filter_map(|pod| due(pod, settings)).filter(|due| *due > now).min()
}
