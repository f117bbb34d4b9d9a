//! What the tests on one machine and those on real nodes have in common.

#![expect(unreachable_pub, reason = "a test program exports nothing")]

pub mod example;
pub mod moments;
pub mod status;
pub mod training;
