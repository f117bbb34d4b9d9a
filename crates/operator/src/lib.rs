//! The operator's shell around the planner: watch → cache → snapshot → plan → execute.
//!
//! Nothing here decides what should happen to a job; that is `trainyard-plan`. This crate sees to it that plans are
//! made from a cache that has caught up with our own writes, that each is carried out once, and
//! that people can see what happens (logs, events, metrics).

mod cache;
mod config;
mod connect;
mod driver;
mod events;
mod execute;
mod guard;
mod http;
mod memory;
mod metrics;
mod port;
mod progress;
mod queue;
mod views;
mod watch;

pub use config::Config;
pub use connect::connect;
pub use driver::{Operator, StartError};
pub use execute::{Outcome, execute, record};
pub use memory::Echo;
pub use metrics::Metrics;
pub use port::{JobRef, KubePort, NewEvent, Port, Refusal, Written};
