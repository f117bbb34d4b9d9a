//! Checkpoints: which are there, which of them are whole, which is the newest.
//!
//! The agent runs beside the leading rank of a job and is the only part of Trainyard that touches storage. It looks
//! at a directory or a bucket ([`store`]), recognises what the common frameworks leave there ([`layouts`]), tells what is
//! complete from what was cut off ([`scan`]), moves the latter aside, removes what is older than the job wants to keep
//! ([`upkeep`]), copies to and from a bucket ([`mirror`]), and says what it found in lines of JSON ([`agent`]).
//!
//! It must never stop a training because of what it finds, and never remove what may be a good checkpoint.

pub mod agent;
mod copy;
pub mod crew;
mod formats;
mod ignored;
mod jobs;
pub mod layouts;
pub mod mirror;
pub mod numbers;
mod outputs;
pub mod room;
pub mod run;
pub mod scan;
mod sets;
pub mod store;
pub mod tree;
pub mod upkeep;

pub use agent::{Agent, Options, Resume, Start};
pub use layouts::Layout;
