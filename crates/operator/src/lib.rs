//! The operator's shell around the planner: watch → cache → snapshot → plan → execute.
//!
//! Nothing here decides what should happen to a job; that is `trainyard-plan`. This crate sees to it that plans are
//! made from a cache that has caught up with our own writes, that each is carried out once, and
//! that people can see what happens (logs, events, metrics).

mod acquaintance;
mod bookmark;
mod cache;
mod config;
mod connect;
mod core;
mod doubts;
mod driver;
mod events;
mod execute;
mod guard;
mod hearing;
mod holdups;
mod http;
mod learn;
mod look;
mod memory;
mod metrics;
mod moment;
mod nodes;
mod notices;
mod port;
mod progress;
mod queue;
mod readiness;
mod room;
mod saying;
mod sighting;
mod stacks;
mod tails;
mod turns;
mod unreadable;
mod views;
mod watch;

pub use cache::JobKey;
pub use config::Config;
pub use connect::connect;
pub use core::Core;
pub use driver::{Operator, StartError};
pub use execute::{Outcome, execute, record};
pub use look::{Eyes, Found, Look, Planner};
pub use memory::Echo;
pub use metrics::Metrics;
pub use moment::Moment;
pub use port::{JobRef, KubePort, NewEvent, Port, Refusal, Written};
pub use saying::StatusChange;
pub use sighting::{Sighting, Watched};
pub use tails::unread;
pub use turns::{Turn, Turns};
