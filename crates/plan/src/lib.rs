//! The planner: everything that belongs to one job at one moment in, what to do about it out.
//!
//! Pure. No client, no clock, no randomness: the same snapshot, settings and time give the same plan, on any
//! machine, in any test. All of the policy lives here.
//!
//! The way through: [`Snapshot`] → [`plan`] → [`Plan`]. `world` says which pods there should be, `build` makes
//! them, `life` decides.

mod build;
mod draft;
mod frameworks;
mod inputs;
mod life;
mod plan;
mod settings;
mod snapshot;
mod stacks;
pub mod strategic;
mod text;
mod words;
mod world;

pub use build::fingerprint;
pub use inputs::hash_of as inputs_of;
pub use life::{UNREADABLE, force_due, plan};
pub use plan::{Importance, NewObject, Notice, Patch, Plan, StatusWrite, Step, Target, TargetKind};
pub use settings::Settings;
pub use snapshot::{
    AgentView, ClaimView, Company, Disruption, Exit, Listening, NodeNotice, NodeState, NodeView, ObjectView,
    Obstacle, ObstacleKind, PodPhase, PodView, Snapshot, Stacks, Tail, Vanished, Waiting,
};
pub use words::blames_a_peer;
pub use world::{Member, Rank, World};
