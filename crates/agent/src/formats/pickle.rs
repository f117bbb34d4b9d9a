//! Python pickles, walked without making anything of them.
//!
//! A pickle can run any code when it is loaded. This only follows the opcodes: it tells whether the pickle comes to its
//! end, and passes on the texts and integers in it.
//!
//! A few megabytes of pickle may hold millions of values, and the agent has little memory: no value is kept, only where the
//! texts are that may be referred to.

/// Longer texts are neither keys nor paths.
const LONGEST_TEXT: u64 = 4096;

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
    let mut memo = Memo::default();
    let mut depth = 0_usize;
    // Where the value is that may be noted next, if it is a text.
    let mut last = None;
    loop {
        let at = input.at;
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
            b'X' | b'T' | 0x8c | b'U' | 0x8d | b'V' | b'S' => input.text(opcode)?,
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
            b'h' | b'j' | b'g' => {
                let number = input.memo_number(opcode)?;
                if !memo.has(number) {
                    return None;
                }
                let noted = memo.text(number);
                let value = noted.map_or(Some(Atom::Other), |at| Input { bytes, at }.text_there())?;
                visit(depth, &value);
                last = noted;
                continue;
            }
            b'q' | b'r' | b'p' => {
                memo.put(input.memo_number(opcode)?, last);
                continue;
            }
            0x94 => {
                memo.put(memo.next, last);
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
        last = matches!(value, Atom::Text(_)).then_some(at);
    }
}

/// What a pickle refers to again: where its texts are.
#[derive(Default)]
struct Memo {
    /// By number, which only goes up: so does every pickler.
    texts: Vec<(u32, u32)>,
    /// The number of the next value, whatever it is.
    next: u64,
}

impl Memo {
    fn put(&mut self, number: u64, text: Option<usize>) {
        let is_new = number >= self.next;
        self.next = self.next.max(number.saturating_add(1));
        if let (true, Some(text)) = (is_new, text)
            && let (Ok(number), Ok(text)) = (u32::try_from(number), u32::try_from(text))
        {
            self.texts.push((number, text));
        }
    }

    fn has(&self, number: u64) -> bool {
        number < self.next
    }

    /// Where a text is; nothing if the value is of another kind.
    fn text(&self, number: u64) -> Option<usize> {
        let found = self.texts.binary_search_by_key(&number, |(number, _)| u64::from(*number)).ok()?;
        usize::try_from(self.texts[found].1).ok()
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

    /// The text of an opcode.
    fn text(&mut self, opcode: u8) -> Option<Atom> {
        let length = match opcode {
            0x8c | b'U' => self.number(1)?,
            b'X' | b'T' => self.number(4)?,
            0x8d => self.number(8)?,
            b'V' | b'S' => {
                let line = self.line()?;
                let is_short = line.len() as u64 <= LONGEST_TEXT;
                let text = || String::from_utf8_lossy(line).trim_matches(['\'', '"']).to_owned();
                return Some(if is_short { Atom::Text(text()) } else { Atom::Other });
            }
            _ => return None,
        };
        let content = self.take(length)?;
        let is_short = length <= LONGEST_TEXT;
        let text = || String::from_utf8_lossy(content).into_owned();
        Some(if is_short { Atom::Text(text()) } else { Atom::Other })
    }

    /// The text whose opcode is here.
    fn text_there(mut self) -> Option<Atom> {
        let opcode = self.byte()?;
        self.text(opcode)
    }

    /// The number of a value that is noted, or referred to.
    fn memo_number(&mut self, opcode: u8) -> Option<u64> {
        match opcode {
            b'h' | b'q' => self.number(1),
            b'j' | b'r' => self.number(4),
            _ => self.line_number(),
        }
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

    /// `pickle.dumps([{"step": 1}, {"step": 2}], protocol=4)`, where the second key refers to the first.
    #[test]
    fn a_text_that_is_referred_to_is_told_again() {
        let sample = b"\x80\x04]\x94(}\x94\x8c\x04step\x94K\x01s}\x94h\x02K\x02se.";
        let mut texts = 0;
        let end = walk(sample, |_, atom| texts += usize::from(*atom == Atom::Text("step".to_owned())));
        assert_eq!((end, texts), (Some(sample.len()), 2));
        // What was never noted cannot be referred to.
        assert_eq!(walk(b"\x80\x04h\x02.", |_, _| {}), None);
    }

    #[test]
    fn a_pickle_that_is_cut_off_has_no_end() {
        for length in 0..SAMPLE.len() {
            assert_eq!(walk(&SAMPLE[..length], |_, _| {}), None, "{length}");
        }
    }
}
