//! Trainyard on one machine: the real binary, real processes, no cluster.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bucket;
mod faults;
mod guarantee;
mod run;
mod support;
mod up;
