//! What can be done to a Kubernetes object as plain JSON, with an API server's rules and in its words.
//!
//! Schemas (prune, default, validate, CEL), patches (JSON, merge, strategic), server-side apply with field ownership,
//! selectors and names. Everything here is a function of its arguments: no runtime, no clock, no network, no types of
//! particular kinds.

pub mod apply;
mod at;
pub mod error;
pub mod names;
pub mod patch;
mod path;
pub mod schema;
pub mod select;
pub mod shape;

pub use apply::{ApplyError, Conflict, Manager, apply, track};
pub use at::At;
pub use error::{FieldError, FieldReason};
pub use patch::PatchError;
pub use schema::Schema;
pub use select::{FieldSelector, LabelSelector, SelectorError};
pub use shape::Shape;
