//! Nodes that are about to be taken away, as taints and conditions announce it (spot markets, maintenance): the workers there can
//! still save their work, if they are told in time.
//!
//! A watch of its own, which may be missing: without it, or the right to it, the operator hears of the node when its pods are evicted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::Api;
use kube::runtime::watcher::{self, Event};
use trainyard_plan::NodeNotice;

use crate::cache::JobKey;
use crate::core::Core;
use crate::driver::Shared;
use crate::views::SlimNode;
use crate::watch::{self, Delay};

/// Whoever may not watch nodes is asked again ever more rarely, down to this: rights seldom change. Not at once, because an API server that
/// has just started refuses everything for a moment, and a spot market gives two minutes.
const REFUSED: Duration = Duration::from_mins(5);
/// So many refusals in a row are told.
const REFUSALS: u32 = 5;

/// What is announced.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    by_node: BTreeMap<String, NodeNotice>,
    /// The same, as snapshots have it.
    all: Arc<[NodeNotice]>,
    /// Of the list that is being received.
    listed: Option<BTreeMap<String, NodeNotice>>,
}

impl Notices {
    pub(crate) fn all(&self) -> Arc<[NodeNotice]> {
        self.all.clone()
    }

    /// Takes in what a watch says about nodes. Names those about which something is announced that was not before.
    fn see(&mut self, event: Event<SlimNode>, signs: &[String]) -> Vec<String> {
        match event {
            Event::Init => {
                self.listed = Some(BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(node) => {
                let notice = notice(&node, signs);
                self.listed
                    .get_or_insert_default()
                    .extend(notice.map(|notice| (notice.node.clone(), notice)));
                Vec::new()
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                self.replace(listed)
            }
            Event::Apply(node) => self.tell(name(&node), notice(&node, signs)),
            Event::Delete(node) => self.tell(name(&node), None),
        }
    }

    /// This is announced of a node now.
    fn tell(&mut self, node: &str, notice: Option<NodeNotice>) -> Vec<String> {
        if self.by_node.get(node) == notice.as_ref() {
            return Vec::new();
        }
        let mut next = self.by_node.clone();
        match notice {
            Some(notice) => next.insert(node.to_owned(), notice),
            None => next.remove(node),
        };
        self.replace(next)
    }

    fn replace(&mut self, next: BTreeMap<String, NodeNotice>) -> Vec<String> {
        if next == self.by_node {
            return Vec::new();
        }
        let new = next.values().filter(|notice| self.by_node.get(&notice.node) != Some(notice));
        let new = new.map(|notice| notice.node.clone()).collect();
        self.all = next.values().cloned().collect();
        self.by_node = next;
        new
    }
}

/// What a node announces.
fn notice(node: &SlimNode, signs: &[String]) -> Option<NodeNotice> {
    let why = node.announces(signs)?.to_owned();
    Some(NodeNotice { node: name(node).to_owned(), why })
}

fn name(node: &SlimNode) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

impl Core {
    /// Takes in what a watch says about nodes, and names the jobs that have pods on one that is about to go.
    pub(crate) fn see_node(&mut self, event: Event<SlimNode>, signs: &[String]) -> Vec<JobKey> {
        let nodes = self.notices.see(event, signs);
        self.jobs_on(&nodes)
    }

    /// Takes in all that is announced, from whoever watches nodes otherwise.
    pub fn hear_notices(&mut self, all: Vec<NodeNotice>) -> Vec<JobKey> {
        let all = all.into_iter().map(|notice| (notice.node.clone(), notice)).collect();
        let nodes = self.notices.replace(all);
        self.jobs_on(&nodes)
    }

    fn jobs_on(&self, nodes: &[String]) -> Vec<JobKey> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let is_meant = |key: &&JobKey| {
            let mut pods = self.cache.pods.of(key);
            pods.any(|pod| pod.node.as_ref().is_some_and(|node| nodes.contains(node)))
        };
        let mut jobs: Vec<JobKey> = self.cache.pods.keys().filter(is_meant).cloned().collect();
        jobs.sort();
        jobs
    }
}

/// Watches the nodes, for ever.
pub(crate) async fn follow(shared: Arc<Shared>, client: kube::Client) {
    let signs = shared.config.node_notices.clone();
    if signs.is_empty() {
        return;
    }
    // Few nodes have anything to say, and none is kept that has not: small pages, for large clusters.
    let stream = watcher::watcher(Api::<SlimNode>::all(client), watcher::Config::default().page_size(100));
    pin_mut!(stream);
    let mut delay = Delay::default();
    let mut refusals = 0;
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                // A list that comes to its end says nothing about the right to watch.
                if matches!(event, Event::Apply(_) | Event::Delete(_)) {
                    refusals = 0;
                }
                if !matches!(event, Event::Init) {
                    delay = Delay::default();
                }
                shared.see_node(event, &signs);
            }
            Err(error) if watch::refusal(&error).is_some_and(|status| status.code == 403) => {
                refusals += 1;
                if refusals == REFUSALS {
                    tracing::info!(
                        "nodes cannot be watched: workers are not stopped before a spot node is taken away, but when their pods are \
                         evicted (the operator needs list and watch on nodes; --node-notices none ends this)"
                    );
                }
                tokio::time::sleep(refused_delay(refusals)).await;
            }
            Err(error) => {
                shared.metrics.watch_failed("nodes");
                tracing::debug!("watch of nodes broke, trying again: {error}");
                delay.pass().await;
            }
        }
    }
}

/// 1 s, 2 s, 4 s … 5 min.
fn refused_delay(refusals: u32) -> Duration {
    Duration::from_secs(1 << refusals.saturating_sub(1).min(9)).min(REFUSED)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, taints: &[&str], conditions: &[(&str, &str)]) -> SlimNode {
        let taints: Vec<_> = taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
        let conditions: Vec<_> =
            conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        let node = json!({
            "metadata": {"name": name},
            "spec": {"taints": taints},
            "status": {"conditions": conditions},
        });
        serde_json::from_value(node).unwrap()
    }

    fn signs() -> Vec<String> {
        vec!["spot".to_owned(), "Preempt".to_owned()]
    }

    #[test]
    fn a_refusal_that_passes_does_not_make_deaf() {
        let waited: Duration = (1..=6).map(refused_delay).sum();
        assert!(waited < Duration::from_mins(2), "{waited:?}");
        assert_eq!(refused_delay(u32::MAX), REFUSED);
    }

    #[test]
    fn a_notice_is_new_once() {
        let mut notices = Notices::default();
        let see = |notices: &mut Notices, event| notices.see(event, &signs());
        assert!(see(&mut notices, Event::Apply(node("a", &["other"], &[("Preempt", "False")]))).is_empty());
        assert_eq!(see(&mut notices, Event::Apply(node("a", &["spot"], &[]))), ["a"]);
        assert!(see(&mut notices, Event::Apply(node("a", &["spot"], &[("Ready", "True")]))).is_empty());
        assert_eq!(see(&mut notices, Event::Apply(node("b", &[], &[("Preempt", "True")]))), ["b"]);
        // A full list says the same, and that a is gone.
        assert!(see(&mut notices, Event::Init).is_empty());
        assert!(see(&mut notices, Event::InitApply(node("b", &[], &[("Preempt", "True")]))).is_empty());
        assert_eq!(notices.all().len(), 2, "until the list is complete, nothing is forgotten");
        assert!(see(&mut notices, Event::InitDone).is_empty());
        let all: Vec<_> = notices.all().iter().map(|notice| notice.node.clone()).collect();
        assert_eq!(all, ["b"]);
        see(&mut notices, Event::Apply(node("b", &[], &[])));
        assert!(notices.all().is_empty(), "it was taken back");
    }
}
