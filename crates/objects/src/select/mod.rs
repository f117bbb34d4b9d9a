//! Which objects a request is about: label selectors and field selectors.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;

/// A selector that cannot be understood, in the API server's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);
