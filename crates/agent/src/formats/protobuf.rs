//! Protocol buffers: a row of fields, each with its length before it. Whoever follows them comes out at the end of the file.

use crate::store::{Store, StoreError};

/// Fields of the outermost message; there are few, since all that is large is in them.
const MOST: usize = 64;

/// Bytes of a field's number and length at most.
const HEAD: u64 = 20;

/// Do the outermost fields add up to the size of the file? What has more of them than is sensible is believed.
pub(crate) fn is_whole(store: &dyn Store, path: &str, size: u64) -> Result<bool, StoreError> {
    let mut at = 0;
    for _ in 0..MOST {
        if at == size {
            return Ok(size > 0);
        }
        let head = store.read(path, at..size.min(at.saturating_add(HEAD)))?;
        let Some(length) = length_of_field(&head) else { return Ok(false) };
        at = at.saturating_add(length);
        if at > size {
            return Ok(false);
        }
    }
    Ok(true)
}

fn length_of_field(head: &[u8]) -> Option<u64> {
    let (tag, of_tag) = varint(head)?;
    let rest = head.get(of_tag..)?;
    let length = match tag & 7 {
        0 => varint(rest)?.1 as u64,
        1 => 8,
        2 => {
            let (length, of_length) = varint(rest)?;
            length.checked_add(of_length as u64)?
        }
        5 => 4,
        _ => return None,
    };
    length.checked_add(of_tag as u64)
}

/// A number, and how many bytes it has.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let value = bytes[..length]
        .iter()
        .rev()
        .try_fold(0_u64, |value, byte| value.checked_mul(128).map(|value| value | u64::from(byte & 0x7F)))?;
    Some((value, length))
}
