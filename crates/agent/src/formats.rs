//! File formats, read just far enough to tell whether a file is whole.
//!
//! Libraries exist for most of them, but they are made to load: they read everything, or are lenient about what is
//! missing. Here the question is only whether the writer came to its end, for files of many gigabytes, from a few ranges.

pub(crate) mod bundle;
pub(crate) mod hdf5;
pub(crate) mod json;
pub(crate) mod npy;
pub(crate) mod packed;
pub(crate) mod pickle;
pub(crate) mod protobuf;
pub(crate) mod safetensors;
pub(crate) mod ubjson;
pub(crate) mod zip;

use crate::store::{Store, StoreError};

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wholeness {
    /// The content proves that its writer finished.
    Whole,
    /// It looks whole, but was too large to be sure: it must not be changing any more.
    Likely,
    /// It begins as it should, but something is missing.
    Cut(String),
    /// It is of another format.
    Other,
}

/// Files up to this size are read as a whole where only that tells; of larger ones the ends must do.
///
/// The agent shares the memory of the pod.
pub(crate) const READ_WHOLE: u64 = 16 << 20;

/// What a file is that does not begin as it should: zeros are what a machine that lost power leaves of one that was not on
/// the disk yet.
pub(crate) fn hole_or_other(store: &dyn Store, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    let head = store.read(path, 0..size.min(4096))?;
    let is_hole = head.iter().all(|byte| *byte == 0);
    Ok(if is_hole { Wholeness::Cut("it begins with zeros".to_owned()) } else { Wholeness::Other })
}

/// Little-endian numbers out of bytes; nothing beyond their end.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
