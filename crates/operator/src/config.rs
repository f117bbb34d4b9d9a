//! What the operator is told when it starts.

use std::net::SocketAddr;
use std::time::Duration;

use trainyard_plan::Settings;

/// By these, clouds announce that a spot node will be taken away: AWS (its termination handler), Google, Azure.
const NODE_NOTICES: [&str; 3] = [
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "PreemptScheduled",
];

/// Everything that can be set. Defaults suit a cluster of any size.
#[derive(Clone, Debug)]
pub struct Config {
    /// What planning depends on.
    pub settings: Settings,
    /// The one namespace to watch; all of them when none is given.
    pub namespace: Option<String>,
    /// The namespace that the operator itself is in; without one, that of its client.
    pub own_namespace: Option<String>,
    /// Jobs that are worked on at the same time.
    pub workers: usize,
    /// Requests to the API server that are under way at the same time.
    pub max_in_flight: usize,
    /// So long a decision waits for the logs of pods that failed. A node that is down does not answer.
    pub log_patience: Duration,
    /// Where metrics and probes are served; nowhere when empty.
    pub http: Vec<SocketAddr>,
    /// Name of this process in events.
    pub instance: String,
    /// Taints and conditions of nodes that announce that a node will be taken away; nobody listens for any when empty.
    pub node_notices: Vec<String>,
    /// Called when a rush is over and nothing is left to do for the moment.
    pub at_rest: fn(),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            namespace: None,
            own_namespace: None,
            workers: 16,
            max_in_flight: 16,
            log_patience: Duration::from_secs(2),
            http: Vec::new(),
            instance: "trainyard".to_owned(),
            node_notices: NODE_NOTICES.map(str::to_owned).to_vec(),
            at_rest: || {},
        }
    }
}
