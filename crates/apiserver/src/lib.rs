//! A Kubernetes-compatible API server in memory.
//!
//! It does what the operator, the node and people with `kubectl` rely on, with the real one's words, and answers
//! everything else with a clear refusal. It is for one machine: there is one user, who may do everything.

mod body;
mod kubelet;

pub use body::Body;
pub use kubelet::{
    ExecExit, ExecOptions, ExecSession, Kubelet, KubeletError, LogOptions, LogStream, PodId,
};
