//! What the operator is told when it starts.

use std::net::SocketAddr;

use trainyard_plan::Settings;

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
    /// Where metrics and probes are served; nowhere when empty.
    pub http: Vec<SocketAddr>,
    /// Name of this process in events.
    pub instance: String,
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
            http: Vec::new(),
            instance: "trainyard".to_owned(),
            at_rest: || {},
        }
    }
}
