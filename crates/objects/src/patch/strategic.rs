//! Strategic merge patch: a merge patch that knows which lists are merged by which key.

use serde_json::Value;

use super::PatchError;
use crate::Shape;

/// Lays `patch` over a copy of `target`.
pub fn strategic(target: &Value, patch: &Value, shape: &Shape) -> Result<Value, PatchError> {
    let _ = (target, patch, shape);
    Err(PatchError::Malformed("strategic merge patch is not supported".to_owned()))
}
