//! Nodes are asked for only when one of their pods does not go although its time is over, or is taken away because of its node: is
//! it dead, or only slow?

use std::time::{Duration, Instant};

use futures::future::join_all;
use trainyard_plan::{NodeView, force_due};

use crate::cache::JobKey;
use crate::look::Eyes;
use crate::moment::Moment;
use crate::port::Port;

/// What was learnt of a node holds for so long.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// What is known of a node, and since when.
#[derive(Clone, Debug)]
pub(crate) struct KnownNode {
    pub(crate) view: NodeView,
    since: Instant,
}

impl<P: Port, C: Fn() -> Moment> Eyes<'_, P, C> {
    /// Asks for the nodes of pods that are overdue or may be lost. Says when to ask again, if one of them is alive or did not tell.
    pub(crate) async fn ask_for_nodes(&self, key: &JobKey) -> Option<Instant> {
        let now = (self.clock)();
        let unknown: Vec<String> = {
            let mut core = self.core();
            let mut nodes: Vec<String> = core
                .cache
                .pods
                .of(key)
                .filter(|pod| {
                    let is_overdue = force_due(pod, self.settings).is_some_and(|due| due <= now.wall);
                    is_overdue || pod.may_be_lost()
                })
                .filter_map(|pod| pod.node.clone())
                .collect();
            if nodes.is_empty() {
                if let Some(memory) = core.memory(key) {
                    memory.nodes = Vec::new();
                }
                return None;
            }
            nodes.sort_unstable();
            nodes.dedup();
            // Nothing is remembered yet of a job that this process has never looked at: it is looked at, and then again.
            let Some(memory) = core.memory(key) else { return Some(now.instant) };
            memory.nodes.retain(|node| now.instant.duration_since(node.since) < KNOWN_FOR);
            nodes.retain(|name| memory.nodes.iter().all(|node| node.view.name != *name));
            nodes
        };
        let answers = join_all(unknown.iter().map(|name| self.port.node(name))).await;
        let mut core = self.core();
        let memory = core.memory(key)?;
        for (name, answer) in unknown.into_iter().zip(answers) {
            match answer {
                Ok(state) => {
                    memory.nodes.push(KnownNode { view: NodeView { name, state }, since: now.instant });
                }
                Err(refusal) => tracing::warn!(job = %key, node = %name, "how is it? {refusal}"),
            }
        }
        Some(now.instant + KNOWN_FOR)
    }
}
