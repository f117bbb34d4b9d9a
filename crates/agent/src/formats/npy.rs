//! A NumPy array in a file of its own: the header says how many bytes follow.

use super::{Wholeness, hole_or_other, u16_at, u32_at};
use crate::store::{Store, StoreError};

pub(crate) fn read(store: &dyn Store, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    let head = store.read(path, 0..size.min(64 << 10))?;
    if !head.starts_with(b"\x93NUMPY") {
        return hole_or_other(store, path, size);
    }
    let Some((at, end)) = header(&head) else {
        return Ok(Wholeness::Cut("its header is missing".to_owned()));
    };
    if end > size {
        return Ok(Wholeness::Cut("its header is cut off".to_owned()));
    }
    let text = usize::try_from(end).ok().and_then(|end| std::str::from_utf8(head.get(at..end)?).ok());
    Ok(match text.and_then(bytes) {
        Some(bytes) if end.saturating_add(bytes) <= size => Wholeness::Whole,
        Some(_) => Wholeness::Cut("it is shorter than its header says".to_owned()),
        // Of a kind that is not known here, such as records.
        None => Wholeness::Likely,
    })
}

/// Where the header begins and ends.
fn header(head: &[u8]) -> Option<(usize, u64)> {
    let (at, length) = match head.get(6)? {
        1 => (10, u32::from(u16_at(head, 8)?)),
        _ => (12, u32_at(head, 8)?),
    };
    Some((at, at as u64 + u64::from(length)))
}

/// How many bytes a header promises; nothing if it does not say that in a way that is known here.
fn bytes(header: &str) -> Option<u64> {
    let after = |key: &str| header.split_once(key).map(|(_, rest)| rest.trim_start());
    let kind = after("'descr':")?.strip_prefix('\'')?.split('\'').next()?;
    // `<f4`, `<M8[ns]`: the digits are bytes for each element. Texts (`<U3`) have four for each letter. Objects (`|O`) are pickled and say
    // nothing.
    let digits = kind.trim_start_matches(|c: char| !c.is_ascii_digit());
    let digits = digits.split(|c: char| !c.is_ascii_digit()).next()?;
    let each: u64 = digits.parse().ok().or_else(|| kind.ends_with('O').then_some(0))?;
    let each = if kind.contains('U') { each.checked_mul(4)? } else { each };
    let shape = after("'shape':")?.strip_prefix('(')?.split(')').next()?;
    let mut elements: u64 = 1;
    for dimension in shape.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        elements = elements.checked_mul(dimension.parse().ok()?)?;
    }
    elements.checked_mul(each)
}
