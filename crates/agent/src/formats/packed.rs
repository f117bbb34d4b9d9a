//! Compressed files, followed to their end. What is in them is not unpacked: whether the writer came to the end shows without it.

use super::{READ_WHOLE, Wholeness, u32_at};
use crate::store::{Store, StoreError};

/// What a compressed file is, by its first bytes. `Other` if they are not known, `Likely` where nothing can be told.
pub(crate) fn read(store: &dyn Store, path: &str, size: u64) -> Result<Wholeness, StoreError> {
    let head = store.read(path, 0..size.min(6))?;
    let tail = || store.read(path, size.saturating_sub(TAIL)..size);
    Ok(match head.as_slice() {
        [0x1f, 0x8b, ..] | [0x78, ..] if size > READ_WHOLE => Wholeness::Likely,
        [0x1f, 0x8b, ..] => verdict(gzip(&store.read(path, 0..size)?)),
        [0x78, flags, ..] if u16::from_be_bytes([0x78, *flags]).is_multiple_of(31) && flags & 0x20 == 0 => {
            verdict(zlib(&store.read(path, 0..size)?))
        }
        [b'B', b'Z', b'h', ..] => verdict(ends_as_bzip2(&tail()?).then_some(true)),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => verdict(tail()?.ends_with(b"YZ").then_some(true)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x04, 0x22, 0x4d, 0x18, ..] | [0x78, ..] => Wholeness::Likely,
        _ => Wholeness::Other,
    })
}

/// Nothing if the end is missing, else whether it is where the file ends.
fn verdict(end: Option<bool>) -> Wholeness {
    match end {
        Some(true) => Wholeness::Whole,
        Some(false) => Wholeness::Likely,
        None => Wholeness::Cut("it ends in the middle".to_owned()),
    }
}

/// Bytes of what is behind the last block of bzip2, wherever in a byte it begins.
const TAIL: u64 = 11;

/// Behind the last block there is a number, and a checksum of four bytes.
fn ends_as_bzip2(tail: &[u8]) -> bool {
    const END: u128 = 0x1772_4538_5090;
    let bits = tail.iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    (0..8).any(|padding| bits >> (32 + padding) & 0xffff_ffff_ffff == END)
}

fn zlib(bytes: &[u8]) -> Option<bool> {
    let (end, _) = deflated(bytes.get(2..)?)?;
    let end = 2 + end + 4;
    (end <= bytes.len()).then_some(end == bytes.len())
}

/// One or several of them, one behind the other.
fn gzip(bytes: &[u8]) -> Option<bool> {
    let mut rest = bytes;
    loop {
        let begin = after_header(rest)?;
        let (end, length) = deflated(rest.get(begin..)?)?;
        let end = begin + end;
        // A checksum, and how long it was.
        if u64::from(u32_at(rest, end + 4)?) != length & 0xffff_ffff {
            return None;
        }
        rest = rest.get(end + 8..)?;
        if !rest.starts_with(&[0x1f, 0x8b]) {
            return Some(rest.is_empty());
        }
    }
}

fn after_header(bytes: &[u8]) -> Option<usize> {
    let flags = *bytes.get(3)?;
    let mut at = 10;
    if flags & 4 != 0 {
        at += 2 + usize::from(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    }
    // A name, and a remark.
    for flag in [8, 16] {
        if flags & flag != 0 {
            at += bytes.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
        }
    }
    Some(if flags & 2 == 0 { at } else { at + 2 })
}

/// Where deflated data ends, and how long it is when it is unpacked. Nothing if it is cut off or makes no sense. (RFC 1951)
fn deflated(bytes: &[u8]) -> Option<(usize, u64)> {
    let mut input = Bits { bytes, at: 0, left: 0, held: 0 };
    let mut length = 0;
    loop {
        let is_last = input.take(1)? == 1;
        length += match input.take(2)? {
            0 => input.stored()?,
            1 => input.coded(&Code::fixed(), &Code::of(&[5; 30]))?,
            2 => {
                let (texts, distances) = input.codes()?;
                input.coded(&texts, &distances)?
            }
            _ => return None,
        };
        if is_last {
            return Some((input.at, length));
        }
    }
}

/// Bits, the lowest of each byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many of the byte before are left.
    left: u32,
    held: u32,
}

impl Bits<'_> {
    fn take(&mut self, count: u32) -> Option<u32> {
        while self.left < count {
            self.held |= u32::from(*self.bytes.get(self.at)?) << self.left;
            self.at += 1;
            self.left += 8;
        }
        let taken = self.held & ((1 << count) - 1);
        self.held >>= count;
        self.left -= count;
        Some(taken)
    }

    /// A block as it is. It begins with the next byte.
    fn stored(&mut self) -> Option<u64> {
        (self.left, self.held) = (0, 0);
        let (length, inverse) = (self.take(16)?, self.take(16)?);
        let end = self.at.checked_add(usize::try_from(length).ok()?)?;
        if length ^ 0xffff != inverse || end > self.bytes.len() {
            return None;
        }
        self.at = end;
        Some(u64::from(length))
    }

    fn symbol(&mut self, code: &Code) -> Option<u16> {
        let (mut value, mut first, mut index) = (0_u32, 0_u32, 0_u32);
        for count in &code.counts[1..] {
            value |= self.take(1)?;
            if value < first + count {
                return code.symbols.get(usize::try_from(index + value - first).ok()?).copied();
            }
            index += count;
            first = (first + count) << 1;
            value <<= 1;
        }
        None
    }

    /// The codes of a block, which are packed themselves.
    fn codes(&mut self) -> Option<(Code, Code)> {
        const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        let texts = usize::try_from(self.take(5)? + 257).ok()?;
        let distances = usize::try_from(self.take(5)? + 1).ok()?;
        let count = usize::try_from(self.take(4)? + 4).ok()?;
        let mut lengths = [0; 19];
        for place in &ORDER[..count] {
            lengths[*place] = u8::try_from(self.take(3)?).ok()?;
        }
        let code = Code::of(&lengths);
        let mut lengths: Vec<u8> = Vec::with_capacity(texts + distances);
        while lengths.len() < texts + distances {
            let (length, times) = match self.symbol(&code)? {
                16 => (*lengths.last()?, 3 + self.take(2)?),
                17 => (0, 3 + self.take(3)?),
                18 => (0, 11 + self.take(7)?),
                length => (u8::try_from(length).ok()?, 1),
            };
            lengths.extend((0..times).map(|_| length));
        }
        let (first, second) = lengths.split_at(texts);
        (lengths.len() == texts + distances).then(|| (Code::of(first), Code::of(second)))
    }

    fn coded(&mut self, texts: &Code, distances: &Code) -> Option<u64> {
        const LENGTHS: [u64; 29] = [
            3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131,
            163, 195, 227, 258,
        ];
        const MORE: [u32; 29] =
            [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
        let mut length = 0;
        loop {
            match self.symbol(texts)? {
                0..256 => length += 1,
                256 => return Some(length),
                symbol => {
                    let which = usize::from(symbol - 257);
                    length += LENGTHS.get(which)? + u64::from(self.take(*MORE.get(which)?)?);
                    let distance = u32::from(self.symbol(distances)?);
                    self.take((distance / 2).saturating_sub(1))?;
                }
            }
        }
    }
}

/// How symbols are written: how many there are of each length, and which, in order.
struct Code {
    counts: [u32; 16],
    symbols: Vec<u16>,
}

impl Code {
    fn of(lengths: &[u8]) -> Self {
        let mut counts = [0; 16];
        let mut symbols: Vec<(u8, u16)> =
            (0..).zip(lengths).map(|(symbol, length)| (*length, symbol)).collect();
        symbols.retain(|(length, _)| (1..16).contains(length));
        symbols.sort_unstable();
        for (length, _) in &symbols {
            counts[usize::from(*length)] += 1;
        }
        Self { counts, symbols: symbols.into_iter().map(|(_, symbol)| symbol).collect() }
    }

    fn fixed() -> Self {
        let mut lengths = [8; 288];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        Self::of(&lengths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_to_its_end_or_not() {
        // `zlib.compress(b"checkpoint" * 5)`, and the same as it is.
        let coded = b"\x78\x9c\x4b\xce\x48\x4d\xce\x2e\xc8\xcf\xcc\x2b\x49\x26\x92\x05\x00\x0f\xbc\x14\xc9";
        let stored = b"\x78\x01\x01\x05\x00\xfa\xff\x63\x68\x65\x63\x6b\x05\xf4\x01\xff";
        for whole in [&coded[..], &stored[..]] {
            assert_eq!(zlib(whole), Some(true));
            assert_eq!(zlib(&[whole, b"more"].concat()), Some(false));
            for length in 0..whole.len() {
                assert_eq!(zlib(&whole[..length]), None, "{length}");
            }
        }
    }

    #[test]
    fn the_end_of_bzip2_is_found_wherever_in_a_byte_it_begins() {
        for padding in 0..8 {
            let end = (0x1772_4538_5090_u128 << 32 | 0xdead_beef) << padding;
            let mut tail = end.to_be_bytes()[5..].to_vec();
            assert!(ends_as_bzip2(&tail), "{padding}");
            tail.rotate_left(3);
            assert!(!ends_as_bzip2(&tail), "{padding}");
        }
    }
}
