//! Runs pods as processes on this machine, reporting as a kubelet would.
//!
//! A [`Node`] watches an API server (the embedded one, or any other), takes the pods that no node has, and runs their
//! containers in namespaces of their own where the machine allows it. It knows nothing about training jobs but the labels by
//! which it recognises pods that must start together.
//!
//! What differs from a cluster: images are not pulled (the command runs on this machine, as the user who started
//! trainyard, whatever `securityContext` says), the network is the machine's, and claims are directories.

mod book;
mod cgroup;
mod claims;
mod config;
mod desk;
mod env;
mod exec;
mod fit;
mod isolate;
mod leftovers;
mod logs;
mod machine;
mod names;
mod node;
mod notices;
mod pod;
mod ports;
mod probes;
mod process;
mod quantity;
mod rewrite;
mod shared;
mod sources;
mod status;
mod volumes;
mod watch;

pub use claims::directory as claim_directory;
pub use config::{Config, Isolation};
pub use logs::LogLimits;
pub use node::{Node, StartError};

pub mod shim {
    //! The helper process that containers are started by.

    pub use crate::isolate::main;
}
