//! Trainyard on one machine: the real binary, real processes, no cluster.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;

mod bucket;
mod faults;
mod grace;
mod guarantee;
mod hangs;
mod node;
mod parts;
mod plane;
mod policies;
mod run;
mod support;
mod torchrun;
mod training;
mod up;
