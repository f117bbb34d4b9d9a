//! Universal Binary JSON, as XGBoost writes it: followed to its end without making anything of it.

use super::{READ_WHOLE, Wholeness, hole_or_other};
use crate::store::{Store, StoreError};

/// Deeper than any model.
const DEPTH: usize = 200;

pub(crate) fn read(store: &dyn Store, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    let head = store.read(path, 0..size.min(1))?;
    if head != b"{" {
        return hole_or_other(store, path, size);
    }
    let is_large = size > READ_WHOLE;
    let is_whole = if is_large {
        store.read(path, size - 1..size)? == b"}"
    } else {
        let content = store.read(path, 0..size)?;
        Walk { bytes: &content, at: 0 }.value(DEPTH).is_some_and(|end| end == content.len())
    };
    Ok(match (is_whole, is_large) {
        (true, false) => Wholeness::Whole,
        (true, true) => Wholeness::Likely,
        (false, _) => Wholeness::Cut("it ends in the middle".to_owned()),
    })
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip(&mut self, length: usize) -> Option<usize> {
        let end = self.at.checked_add(length)?;
        if end > self.bytes.len() {
            return None;
        }
        self.at = end;
        Some(end)
    }

    /// A number of elements or bytes, big-endian, with its type before it.
    fn count(&mut self) -> Option<usize> {
        let width = match self.byte()? {
            b'i' | b'U' => 1,
            b'I' => 2,
            b'l' => 4,
            b'L' => 8,
            _ => return None,
        };
        let bytes = self.bytes.get(self.at..self.at.checked_add(width)?)?;
        self.at += width;
        let number = bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        usize::try_from(number).ok()
    }

    fn text(&mut self) -> Option<usize> {
        let length = self.count()?;
        self.skip(length)
    }

    fn value(&mut self, depth: usize) -> Option<usize> {
        let kind = self.byte()?;
        self.value_of(kind, depth)
    }

    fn value_of(&mut self, kind: u8, depth: usize) -> Option<usize> {
        match kind {
            b'{' => self.container(b'}', depth.checked_sub(1)?),
            b'[' => self.container(b']', depth.checked_sub(1)?),
            b'S' | b'H' => self.text(),
            _ => self.skip(width(kind)?),
        }
    }

    fn container(&mut self, end: u8, depth: usize) -> Option<usize> {
        let is_object = end == b'}';
        let mut kind = None;
        if self.peek()? == b'$' {
            self.at += 1;
            kind = Some(self.byte()?);
        }
        if self.peek()? == b'#' {
            self.at += 1;
            let count = self.count()?;
            if let Some(width) = kind.filter(|_| !is_object).and_then(width) {
                return self.skip(count.checked_mul(width)?);
            }
            for _ in 0..count {
                if is_object {
                    self.text()?;
                }
                match kind {
                    Some(kind) => self.value_of(kind, depth)?,
                    None => self.value(depth)?,
                };
            }
            return Some(self.at);
        }
        while self.peek()? != end {
            if is_object {
                self.text()?;
            }
            self.value(depth)?;
        }
        self.at += 1;
        Some(self.at)
    }
}

/// Bytes of a plain value.
fn width(kind: u8) -> Option<usize> {
    Some(match kind {
        b'Z' | b'N' | b'T' | b'F' => 0,
        b'i' | b'U' | b'C' => 1,
        b'I' => 2,
        b'l' | b'd' => 4,
        b'L' | b'D' => 8,
        _ => return None,
    })
}
