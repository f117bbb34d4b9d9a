//! safetensors: a length, a header in JSON, and the tensors that it places.

use serde_json::Value;

use super::{Wholeness, u64_at};
use crate::store::{Store, StoreError};

/// The format's own limit of the header.
const LARGEST_HEADER: u64 = 100_000_000;

pub(crate) fn read(store: &dyn Store, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    let cut = |why: &str| Ok(Wholeness::Cut(why.to_owned()));
    let Some(length) = u64_at(&store.read(path, 0..size.min(8))?, 0) else {
        return cut("its header is missing");
    };
    if length > LARGEST_HEADER {
        return Ok(Wholeness::Other);
    }
    if length == 0 || size < 8 + length {
        return cut("its header is cut off");
    }
    let Ok(Value::Object(header)) = serde_json::from_slice(&store.read(path, 8..8 + length)?) else {
        return cut("its header does not parse");
    };
    let end_of = |tensor: &Value| tensor.pointer("/data_offsets/1").and_then(Value::as_u64);
    let end = header.values().filter_map(end_of).max().unwrap_or(0);
    if 8 + length + end == size { Ok(Wholeness::Whole) } else { cut("its tensors do not add up to its size") }
}
