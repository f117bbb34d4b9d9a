//! What the tests of the planner stand on: jobs that read like sentences, and an obedient cluster in memory.
//!
//! The cluster carries out plans as the real executor does, write by write, and may be told to stop (crash) after
//! any of them. It also watches the planner: a plan that breaks a rule of the house fails the test at once.
#![allow(dead_code, unused_imports, reason = "every test file uses its own part of this")]

mod cluster;
mod job;
mod operator;
mod rules;

pub(crate) use cluster::{Cluster, Hearing};
pub(crate) use job::{Job, job, role};
pub(crate) use operator::Crashed;

/// What happens in a story.
pub(crate) type Happening = fn(&mut Cluster);

/// Few random cases for every day, so that the tests stay quick; `PROPTEST_CASES=50000` for a long night.
pub(crate) fn cases(cases: u32) -> proptest::test_runner::Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    proptest::test_runner::Config {
        cases: asked.unwrap_or(cases),
        failure_persistence: None,
        ..Default::default()
    }
}
