//! Trainyard on one machine: the real binary, real processes, no cluster.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bucket;
mod faults;
mod guarantee;
mod node;
mod run;
mod support;
mod up;
