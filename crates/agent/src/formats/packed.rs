//! Compressed files, followed to their end: whether the writer came there shows without understanding what is in them.

use std::io::{self, Read};

use flate2::bufread::{GzDecoder, ZlibDecoder};

use super::{READ_WHOLE, Wholeness};
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
    let mut decoder = ZlibDecoder::new(bytes);
    Some(comes_to_its_end(&mut decoder)? && decoder.into_inner().is_empty())
}

/// One or several of them, one behind the other.
fn gzip(bytes: &[u8]) -> Option<bool> {
    let mut rest = bytes;
    loop {
        let mut decoder = GzDecoder::new(rest);
        if !comes_to_its_end(&mut decoder)? {
            return Some(false);
        }
        rest = decoder.into_inner();
        if !rest.starts_with(&[0x1f, 0x8b]) {
            return Some(rest.is_empty());
        }
    }
}

/// So much is unpacked at the most: a few kilobytes can be terabytes of zeros.
const UNPACKED: u64 = 1 << 30;

/// Unpacks to where the writer has set an end, with its checksum, and keeps nothing of it. Nothing if there is none; false if it is too far.
fn comes_to_its_end(packed: &mut impl Read) -> Option<bool> {
    io::copy(&mut packed.take(UNPACKED), &mut io::sink()).ok().map(|length| length < UNPACKED)
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
