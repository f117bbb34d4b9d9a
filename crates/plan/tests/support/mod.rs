//! What the tests of the planner stand on: jobs that read like sentences, and an obedient cluster in memory.
//!
//! The cluster carries out plans as the real executor does, write by write, and may be told to stop (crash) after
//! any of them. It also watches the planner: a plan that breaks a rule of the house fails the test at once.
#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(unused_imports, reason = "every test file uses its own part of this")]

mod cluster;
mod job;
mod rules;

pub(crate) use cluster::{Cluster, Crashed, Tally};
pub(crate) use job::{Job, job, role};
pub(crate) use rules::is_allowed;
