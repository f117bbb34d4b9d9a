//! What Trainyard relies on in a Kubernetes API, asked of any API server over HTTP.
//!
//! The same cases run against a real kube-apiserver and against the embedded one, and both must
//! pass. The real one is the oracle: a case that it fails is wrong. Cases compare what Kubernetes
//! documents or what clients act on (codes, reasons, messages, causes, fields), never the order of
//! keys or the number in a resourceVersion.
//!
//! A case is an async function that gets a [`Sandbox`], which is a namespace of its own on a
//! [`Target`]. It fails by panicking; the helpers' panics show the request and the answer.

mod answer;
mod cases;
mod compare;
pub mod differential;
mod fixtures;
mod run;
mod sandbox;
mod target;
mod watch;

pub use answer::Answer;
pub use cases::{Case, all};
pub use run::run;
pub use sandbox::Sandbox;
pub use target::Target;
pub use watch::Watch;

/// How many changes of each kind a server may remember for watchers at most, where it can be told:
/// one case writes more than that and then asks for the first.
pub const HISTORY: usize = 1000;
