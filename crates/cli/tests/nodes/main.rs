//! Trainyard on real nodes: kubelets, containers, claims, names by DNS, and a real training in them.
//!
//! `cargo xtask test --cluster` runs these as root; otherwise each says that it was skipped.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;

mod bucket;
mod evictions;
mod guarantee;
mod stops;
mod support;
mod training;
