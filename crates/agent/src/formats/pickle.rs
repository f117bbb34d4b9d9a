//! Python pickles, walked without making anything of them.
//!
//! A pickle can run any code when it is loaded. This only follows the opcodes: it tells whether the pickle comes to its
//! end, and passes on the texts and integers in it.

use std::collections::HashMap;

/// A value in a pickle, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Atom {
    Text(String),
    Integer(i64),
    /// Anything else.
    Other,
}

/// Follows a pickle to its end, and tells how many bytes it has; nothing if it is cut off or no pickle.
///
/// `visit` is told each value, and how many collections around it are open: the items of the outermost dictionary are
/// at depth 1, or 0 if there is only one.
#[expect(clippy::too_many_lines, reason = "an arm for each opcode")]
pub(crate) fn walk(bytes: &[u8], mut visit: impl FnMut(usize, &Atom)) -> Option<usize> {
    let mut input = Input { bytes, at: 0 };
    let mut memo: HashMap<u64, Atom> = HashMap::new();
    let mut depth = 0_usize;
    let mut last = Atom::Other;
    loop {
        let opcode = input.byte()?;
        let value = match opcode {
            b'.' => return Some(input.at),
            b'(' => {
                depth += 1;
                continue;
            }
            // What ends at a mark makes something of all since.
            b'1' | b'e' | b'u' | 0x90 => {
                depth = depth.checked_sub(1)?;
                continue;
            }
            b'd' | b'l' | b'o' | b't' | 0x91 => {
                depth = depth.checked_sub(1)?;
                Atom::Other
            }
            b'i' => {
                depth = depth.checked_sub(1)?;
                input.line()?;
                input.line()?;
                Atom::Other
            }
            b'X' | b'T' => input.text(4)?,
            0x8c | b'U' => input.text(1)?,
            0x8d => input.text(8)?,
            b'V' | b'S' => {
                Atom::Text(String::from_utf8_lossy(input.line()?).trim_matches(['\'', '"']).to_owned())
            }
            b'K' => Atom::Integer(i64::try_from(input.number(1)?).ok()?),
            b'M' => Atom::Integer(i64::try_from(input.number(2)?).ok()?),
            b'J' => Atom::Integer(i64::from(i32::from_le_bytes(input.take(4)?.try_into().ok()?))),
            b'I' | b'L' => {
                let text = String::from_utf8_lossy(input.line()?).into_owned();
                text.trim_end_matches('L').parse().map_or(Atom::Other, Atom::Integer)
            }
            0x8a => {
                let length = input.number(1)?;
                long(input.take(length)?)
            }
            0x8b | b'B' => input.skip_counted(4)?,
            b'C' => input.skip_counted(1)?,
            0x8e | 0x96 => input.skip_counted(8)?,
            b'G' => input.skip(8)?,
            b'F' | b'P' => {
                input.line()?;
                Atom::Other
            }
            b'c' => {
                input.line()?;
                input.line()?;
                Atom::Other
            }
            b'N'
            | b'Q'
            | b'R'
            | b'b'
            | b'}'
            | b']'
            | b')'
            | 0x81
            | 0x85..=0x89
            | 0x8f
            | 0x92
            | 0x93
            | 0x97
            | b'2' => Atom::Other,
            0x82 => input.skip(1)?,
            0x83 => input.skip(2)?,
            0x84 => input.skip(4)?,
            b'h' => memo.get(&input.number(1)?)?.clone(),
            b'j' => memo.get(&input.number(4)?)?.clone(),
            b'g' => memo.get(&input.line_number()?)?.clone(),
            b'q' => {
                memo.insert(input.number(1)?, last.clone());
                continue;
            }
            b'r' => {
                memo.insert(input.number(4)?, last.clone());
                continue;
            }
            b'p' => {
                memo.insert(input.line_number()?, last.clone());
                continue;
            }
            0x94 => {
                memo.insert(memo.len() as u64, last.clone());
                continue;
            }
            b'0' | b'a' | b's' | 0x98 => continue,
            0x80 => {
                input.take(1)?;
                continue;
            }
            0x95 => {
                input.take(8)?;
                continue;
            }
            _ => return None,
        };
        visit(depth, &value);
        last = value;
    }
}

/// Integers among the items of the outermost dictionary, by key.
pub(crate) fn outermost_integers(bytes: &[u8], mut found: impl FnMut(&str, i64)) -> Option<usize> {
    let mut key: Option<String> = None;
    walk(bytes, |depth, atom| {
        if depth > 1 {
            key = None;
            return;
        }
        match (key.take(), atom) {
            (Some(key), Atom::Integer(value)) => found(&key, *value),
            (_, Atom::Text(text)) => key = Some(text.clone()),
            _ => {}
        }
    })
}

fn long(bytes: &[u8]) -> Atom {
    if bytes.len() > 8 {
        return Atom::Other;
    }
    let sign = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xFF } else { 0 };
    let mut all = [sign; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    Atom::Integer(i64::from_le_bytes(all))
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(length).ok()?)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number(&mut self, length: usize) -> Option<u64> {
        let mut all = [0; 8];
        all[..length].copy_from_slice(self.take(length as u64)?);
        Some(u64::from_le_bytes(all))
    }

    fn text(&mut self, length_of_length: usize) -> Option<Atom> {
        let length = self.number(length_of_length)?;
        Some(Atom::Text(String::from_utf8_lossy(self.take(length)?).into_owned()))
    }

    fn skip(&mut self, length: u64) -> Option<Atom> {
        self.take(length)?;
        Some(Atom::Other)
    }

    fn skip_counted(&mut self, length_of_length: usize) -> Option<Atom> {
        let length = self.number(length_of_length)?;
        self.skip(length)
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|&byte| byte == b'\n')?;
        self.at += length + 1;
        Some(&rest[..length])
    }

    fn line_number(&mut self) -> Option<u64> {
        std::str::from_utf8(self.line()?).ok()?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pickle.dumps({"epoch": 3, "nested": {"epoch": 9}, "global_step": 70000, "big": 2**40}, protocol=2)`
    const SAMPLE: &[u8] = b"\x80\x02}q\x00(X\x05\x00\x00\x00epochq\x01K\x03X\x06\x00\x00\x00nestedq\x02}q\x03h\x01K\x09sX\x0b\x00\x00\x00global_stepq\x04Jp\x11\x01\x00X\x03\x00\x00\x00bigq\x05\x8a\x06\x00\x00\x00\x00\x00\x01u.";

    #[test]
    fn integers_of_the_outermost_dictionary_are_found() {
        let mut found = Vec::new();
        let end = outermost_integers(SAMPLE, |key, value| found.push((key.to_owned(), value)));
        assert_eq!(end, Some(SAMPLE.len()));
        assert_eq!(found[0], ("epoch".to_owned(), 3));
        assert!(found.contains(&("global_step".to_owned(), 70_000)), "{found:?}");
        assert!(found.contains(&("big".to_owned(), 1 << 40)), "{found:?}");
    }

    #[test]
    fn a_pickle_that_is_cut_off_has_no_end() {
        for length in 0..SAMPLE.len() {
            assert_eq!(walk(&SAMPLE[..length], |_, _| {}), None, "{length}");
        }
    }
}
