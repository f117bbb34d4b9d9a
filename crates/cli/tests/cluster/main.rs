//! Trainyard on a real Kubernetes: the real binary, the real kubectl, real etcd, API server, controller manager and
//! scheduler. Nodes are hollow: they walk pods through their phases as each test says.
//!
//! `cargo xtask test --cluster` runs these; without it each says that it was skipped.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod crash;
mod early;
mod http;
mod life;
mod load;
mod notices;
mod pages;
mod refused;
mod support;
mod unreadable;
