//! safetensors: a length, a header in JSON, and the tensors that it places.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{READ_WHOLE, Wholeness, u64_at};
use crate::store::{Store, StoreError};

/// The format's own limit of the header.
const LARGEST_HEADER: u64 = 100_000_000;

/// What the header says about a tensor. It also has an entry with texts, which has no place.
#[derive(Deserialize)]
struct Tensor {
    data_offsets: Option<(u64, u64)>,
}

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
    if length > READ_WHOLE {
        return Ok(Wholeness::Likely);
    }
    let header = serde_json::from_slice::<BTreeMap<String, Tensor>>(&store.read(path, 8..8 + length)?);
    let Ok(header) = header else { return cut("its header does not parse") };
    let end = header.values().filter_map(|tensor| tensor.data_offsets).map(|(_, end)| end).max().unwrap_or(0);
    let is_whole = (8 + length).checked_add(end) == Some(size);
    if is_whole { Ok(Wholeness::Whole) } else { cut("its tensors do not add up to its size") }
}
