//! How the cluster takes pods and nodes away.

use serde_json::json;
use trainyard_plan::TargetKind;

use super::World;
use crate::mishap::Mishap;
use crate::server::{Actor, Deed};

impl World {
    /// Whoever drains a node, or an autoscaler, asks for it: the pod is told to go, and has its time. How its program ends then
    /// is its own affair.
    pub fn evict(&mut self, name: &str) {
        let is_going =
            self.server().all(TargetKind::Pod).get(name).is_none_or(crate::server::Child::is_deleting);
        if is_going || self.has_ended(name) {
            return;
        }
        self.pod(name, "is evicted", |pod| {
            pod.rest_mut()["status"]["conditions"] =
                json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]);
        });
        self.server().remove(Actor::Cluster, TargetKind::Pod, name, None);
        self.server().logs(|| Deed::Remove(TargetKind::Pod, name.to_owned(), None));
        self.witness();
    }

    /// Its kubelet evicts it, because the node is in need: it has failed at once, and nobody deletes it.
    pub fn evict_by_kubelet(&mut self, name: &str, code: i32) {
        self.end_as(name, "is evicted by its kubelet", "Failed", code, "Error", |status| {
            status["reason"] = "Evicted".into();
            status["message"] = "The node was low on resource: memory".into();
            status["conditions"] =
                json!([{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]);
        });
    }

    /// Its kubelet ends it, because it went past a limit of its own.
    pub fn fill_its_disk(&mut self, name: &str) {
        self.end_as(name, "fills its disk", "Failed", 137, "Error", |status| {
            status["reason"] = "Evicted".into();
            status["message"] =
                "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.".into();
        });
    }

    /// Operators may look at nodes, or not.
    pub fn hide_nodes(&mut self, hides: bool) {
        self.tell(|| format!("operators may not look at nodes: {hides}"));
        self.server().hides_nodes = hides;
    }

    /// The node of this pod is gone: the pod is marked, and only force can remove it, or the node's removal.
    pub fn lose_node(&mut self, name: &str) {
        let node = self.server().all(TargetKind::Pod).get(name).and_then(|pod| pod.node().map(str::to_owned));
        let Some(node) = node.filter(|_| !self.has_ended(name)) else { return };
        self.meets(Mishap::NodeLost);
        self.server().dead.insert(node);
        self.pod(name, "loses its node", |pod| {
            pod.rest_mut()["status"]["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            }]);
        });
        self.server().remove(Actor::Cluster, TargetKind::Pod, name, None);
        self.server().logs(|| Deed::Remove(TargetKind::Pod, name.to_owned(), None));
        self.witness();
    }

    /// Its node is not there any more at all. Whoever removes what was on it is slow.
    pub fn remove_node(&mut self, name: &str) {
        self.lose_node(name);
        let node = self.server().all(TargetKind::Pod).get(name).and_then(|pod| pod.node().map(str::to_owned));
        if let Some(node) = node {
            self.tell(|| format!("cluster: {node} is removed"));
            self.server().removed.insert(node);
        }
    }

    /// It is announced that the node of this pod will be taken away.
    pub fn announce(&mut self, name: &str) {
        let node = self.server().all(TargetKind::Pod).get(name).and_then(|pod| pod.node().map(str::to_owned));
        let Some(node) = node else { return };
        self.meets(Mishap::Announced);
        self.tell(|| format!("cluster: {node} will be taken away"));
        self.check.announce(&node);
        self.server().announced.insert(node);
    }

    /// That was taken back.
    pub fn keep_nodes(&mut self) {
        self.server().announced.clear();
    }

    /// Nodes are well again.
    pub fn heal_nodes(&mut self) {
        self.tell(|| "cluster: all nodes answer".to_owned());
        self.server().dead.clear();
        self.server().removed.clear();
    }
}
