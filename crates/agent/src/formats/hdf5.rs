//! HDF5 (Keras weights): the superblock says where the file ends.

use super::{Wholeness, hole_or_other, u64_at};
use crate::store::{Store, StoreError};

pub(crate) fn read(store: &dyn Store, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    let head = store.read(path, 0..size.min(96))?;
    if !head.starts_with(b"\x89HDF\r\n\x1a\n") {
        return hole_or_other(store, path, size);
    }
    // The end stands behind the addresses of the base and of one more table, each of eight bytes.
    let end = match head.get(8) {
        Some(0) => u64_at(&head, 40),
        Some(1) => u64_at(&head, 44),
        Some(2 | 3) => u64_at(&head, 28),
        _ => None,
    };
    Ok(match end {
        Some(end) if end <= size => Wholeness::Whole,
        Some(_) => Wholeness::Cut("it is shorter than its superblock says".to_owned()),
        None => Wholeness::Cut("its superblock does not read".to_owned()),
    })
}
