//! A NumPy array in a file of its own: the header says how many bytes follow.

use super::{Wholeness, hole_or_other, u16_at, u32_at};
use crate::store::{Store, StoreError};

pub(crate) fn read(store: &dyn Store, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    let head = store.read(path, 0..size.min(64 << 10))?;
    if !head.starts_with(b"\x93NUMPY") {
        return hole_or_other(store, path, size);
    }
    Ok(match expected(&head) {
        Some(expected) if expected <= size => Wholeness::Whole,
        Some(_) => Wholeness::Cut("it is shorter than its header says".to_owned()),
        None => Wholeness::Cut("its header does not read".to_owned()),
    })
}

fn expected(head: &[u8]) -> Option<u64> {
    let (at, length) = match head.get(6)? {
        1 => (10, u32::from(u16_at(head, 8)?)),
        _ => (12, u32_at(head, 8)?),
    };
    let end = at + usize::try_from(length).ok()?;
    let header = std::str::from_utf8(head.get(at..end)?).ok()?;
    let after = |key: &str| header.split_once(key).map(|(_, rest)| rest.trim_start());
    let kind = after("'descr':")?.strip_prefix('\'')?.split('\'').next()?;
    // `<f4`: the digits are bytes for each element. Objects (`|O`) are pickled and say nothing.
    let digits = kind.trim_start_matches(|c: char| !c.is_ascii_digit());
    let each: u64 = digits.parse().ok().or_else(|| kind.ends_with('O').then_some(0))?;
    let shape = after("'shape':")?.strip_prefix('(')?.split(')').next()?;
    let mut elements: u64 = 1;
    for dimension in shape.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        elements = elements.checked_mul(dimension.parse().ok()?)?;
    }
    elements.checked_mul(each)?.checked_add(end as u64)
}
