//! Server-side apply and the ownership of fields.

use serde_json::Value;

use crate::Shape;

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// The name of the field manager.
    pub name: &'a str,
    /// The version in which the request was made.
    pub api_version: &'a str,
    /// `status`, `scale` …, or empty.
    pub subresource: &'a str,
    /// The time of the request, RFC 3339.
    pub time: &'a str,
}

/// A field that somebody else owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as it is shown: `"kubectl" using v1`.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub path: String,
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Others own some of the fields: 409 Conflict, unless forced.
    #[error("Apply failed with {} conflict(s)", .0.len())]
    Conflicts(Vec<Conflict>),
    /// The intent cannot be merged (a list has the same key twice): 400 BadRequest or 500, as it says.
    #[error("{0}")]
    Malformed(String),
}

/// Applies what `manager` wants to the live object; the result has its `metadata.managedFields`.
pub fn apply(
    live: Option<&Value>,
    intent: &Value,
    manager: &Manager<'_>,
    force: bool,
    shape: &Shape,
) -> Result<Value, ApplyError> {
    let _ = (live, intent, manager, force, shape);
    Err(ApplyError::Malformed("server-side apply is not supported".to_owned()))
}

/// Records in `new` that what changed since `live` now belongs to `manager`.
pub fn track(live: Option<&Value>, new: &mut Value, manager: &Manager<'_>, shape: &Shape) {
    let _ = (live, new, manager, shape);
}
