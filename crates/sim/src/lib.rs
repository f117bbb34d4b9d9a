//! Deterministic simulation: the real planner, the real executor and the real core of the operator, against a model of the API
//! server, with a virtual clock and with everything that can go wrong in between.
//!
//! Single-threaded, and reproducible from a seed: `cargo run -q --profile sim -p trainyard-sim -- --seed 4711` tells that history
//! again, line by line, as CI told it. `history` makes random ones, `scenario` tells known ones and disturbs them at every place; `check` says what
//! must be true after every step.

mod check;
pub mod history;
mod mishap;
mod operator;
mod port;
pub mod scenario;
mod server;
mod wire;
mod world;

pub use check::{Count, Tally};
pub use mishap::Mishap;
pub use port::{Fate, Twist};
pub use server::{Actor, Asked, Asks, Body, Change, Child, Deed, Logged, NAMESPACE, Server, Told};
pub use wire::Late;
pub use world::{Delivered, Delivery, Fates, Make, World, dawn};
