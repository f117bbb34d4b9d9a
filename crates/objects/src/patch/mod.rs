//! The three patches that change a part of an object: JSON patch, JSON merge patch, strategic merge patch.
//!
//! Server-side apply, the fourth, is in [`mod@crate::apply`].

mod json;
mod merge;
mod strategic;

pub use json::json;
pub use merge::merge;
pub use strategic::strategic;

/// A patch that cannot be applied, in the API server's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself cannot be read: 400 BadRequest. (For some of these the real server says 500, as if it were its own
    /// fault.)
    #[error("{0}")]
    Malformed(String),
    /// It can be read, but not be applied to this object (a failed `test`, a missing path): 422 Invalid.
    #[error("{0}")]
    Unapplicable(String),
}
