//! A Kubernetes-compatible API server in memory.
//!
//! It does what the operator, the node and people with `kubectl` rely on, with the real one's words, and answers
//! everything else with a clear refusal. It is for one machine: there is one user, who may do everything.
//!
//! ```no_run
//! # fn main() -> Result<(), trainyard_apiserver::StartError> {
//! let server = trainyard_apiserver::ApiServer::builder().build()?;
//! let client = server.client("default"); // no socket in between
//! # let _ = client;
//! # Ok(())
//! # }
//! ```

mod body;
mod clock;
mod collect;
mod discovery;
mod error;
mod exec;
mod http;
mod kinds;
mod kubelet;
mod openapi;
mod read;
mod rules;
mod serve;
mod shared;
mod state;
mod store;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

pub use body::Body;
pub use clock::{Clock, SystemClock};
pub use http::Service;
pub use kubelet::{
    ExecExit, ExecOptions, ExecSession, Kubelet, KubeletError, LogOptions, LogStream, PodId, Resize,
};
pub use serve::{Tls, TlsError, kubeconfig};
pub use store::Trouble;

use shared::Shared;
use state::State;
use store::Store;

/// How many changes of each kind are remembered for watchers, if nothing else is said.
const HISTORY: usize = 10_000;

/// Why the server could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] Trouble),
    /// What every cluster begins with could not be made.
    #[error("the control plane could not be set up: {0}")]
    Setup(String),
}

/// The server. Cheap to clone; all clones are one server, which lives as long as one of them does.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

/// How a server is made.
pub struct Builder {
    clock: Arc<dyn Clock>,
    seed: Option<u64>,
    state_dir: Option<PathBuf>,
    history: usize,
    token: Option<String>,
}

impl ApiServer {
    /// A server with the wall clock, in memory only.
    pub fn builder() -> Builder {
        Builder { clock: Arc::new(SystemClock), seed: None, state_dir: None, history: HISTORY, token: None }
    }

    /// A client of this server, with no socket in between.
    ///
    /// Must be called inside a tokio runtime.
    pub fn client(&self, namespace: &str) -> kube::Client {
        kube::Client::new(self.service(), namespace)
    }

    /// The server as a tower service for requests with any body. Nobody is asked for a token here.
    pub fn service(&self) -> Service {
        Service(self.shared.clone())
    }

    /// Plugs in the node that runs the pods, for their logs and for exec.
    pub fn set_kubelet(&self, kubelet: Arc<dyn Kubelet>) {
        self.shared.set_kubelet(kubelet);
    }
}

impl Builder {
    /// Takes the time from elsewhere.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes uids and generated names repeatable.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Keeps everything in this directory, across restarts.
    #[must_use]
    pub fn state_dir(mut self, directory: &Path) -> Self {
        self.state_dir = Some(directory.to_owned());
        self
    }

    /// How many changes of each kind are remembered for watchers.
    #[must_use]
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    /// The bearer token that [`ApiServer::serve`] demands. Without one, it demands none.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Makes the server.
    pub fn build(self) -> Result<ApiServer, StartError> {
        let store = match &self.state_dir {
            Some(directory) => Store::open(directory, self.history)?,
            None => Store::new(self.history),
        };
        let seed = self.seed.unwrap_or_else(random);
        let mut state = State::new(store, self.clock, seed);
        state.begin().map_err(|error| StartError::Setup(error.message().to_owned()))?;
        Ok(ApiServer { shared: Arc::new(Shared::new(state, self.token)) })
    }
}

/// A seed that nobody can foresee: what the standard library gives its hash maps.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}
