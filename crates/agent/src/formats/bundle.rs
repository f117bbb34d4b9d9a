//! The index of a TensorFlow checkpoint: a sorted table (LevelDB's format) that says where each tensor is.

use std::collections::BTreeMap;

use crate::store::{Store, StoreError};

use super::{READ_WHOLE, u32_at, u64_at};

const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
const FOOTER: u64 = 48;

/// What an index tells.
pub(crate) enum Index {
    /// How many bytes each shard must have at least.
    Shards(BTreeMap<u64, u64>),
    /// It has its end, but is too large to be read.
    Huge,
    /// It is cut off, or another file.
    Cut,
}

pub(crate) fn read(store: &dyn Store, path: &str, size: u64) -> Result<Index, StoreError> {
    if size < FOOTER {
        return Ok(Index::Cut);
    }
    if size > READ_WHOLE {
        let has_end = u64_at(&store.read(path, size - 8..size)?, 0) == Some(MAGIC);
        return Ok(if has_end { Index::Huge } else { Index::Cut });
    }
    Ok(sizes(&store.read(path, 0..size)?).map_or(Index::Cut, Index::Shards))
}

fn sizes(content: &[u8]) -> Option<BTreeMap<u64, u64>> {
    let footer = content.get(content.len().checked_sub(48)?..)?;
    if u64_at(footer, 40)? != MAGIC {
        return None;
    }
    let mut at = 0;
    // The first handle is that of a block about the table, which TensorFlow leaves empty.
    varint(footer, &mut at)?;
    varint(footer, &mut at)?;
    let index = handle(footer, &mut at)?;
    let mut sizes = BTreeMap::new();
    for (_, position) in entries(block(content, index)?)? {
        let data = handle(position, &mut 0)?;
        for (key, value) in entries(block(content, data)?)? {
            // The header has an empty key, and says how many shards there are.
            if key.is_empty() {
                let count =
                    fields(value)?.into_iter().find(|(field, _)| *field == 1).map_or(1, |(_, value)| value);
                for shard in 0..count.min(100_000) {
                    sizes.entry(shard).or_insert(0);
                }
                continue;
            }
            let (mut shard, mut offset, mut length) = (0, 0, 0);
            for (field, value) in fields(value)? {
                match field {
                    3 => shard = value,
                    4 => offset = value,
                    5 => length = value,
                    _ => {}
                }
            }
            let end = u64::checked_add(offset, length)?;
            let least = sizes.entry(shard).or_insert(0);
            *least = end.max(*least);
        }
    }
    Some(sizes)
}

fn handle(bytes: &[u8], at: &mut usize) -> Option<(usize, usize)> {
    let offset = usize::try_from(varint(bytes, at)?).ok()?;
    let size = usize::try_from(varint(bytes, at)?).ok()?;
    Some((offset, size))
}

/// A block that is not compressed; TensorFlow compresses none.
fn block(content: &[u8], (offset, size): (usize, usize)) -> Option<&[u8]> {
    let end = offset.checked_add(size)?;
    (*content.get(end)? == 0).then(|| content.get(offset..end))?
}

/// Keys and values. Keys share their beginnings with the one before.
fn entries(block: &[u8]) -> Option<Vec<(Vec<u8>, &[u8])>> {
    let restarts = usize::try_from(u32_at(block, block.len().checked_sub(4)?)?).ok()?;
    let end = block.len().checked_sub(4)?.checked_sub(restarts.checked_mul(4)?)?;
    let mut entries = Vec::new();
    let mut key: Vec<u8> = Vec::new();
    let mut at = 0;
    while at < end {
        let shared = usize::try_from(varint(block, &mut at)?).ok()?;
        let own = usize::try_from(varint(block, &mut at)?).ok()?;
        let length = usize::try_from(varint(block, &mut at)?).ok()?;
        if shared > key.len() {
            return None;
        }
        key.truncate(shared);
        key.extend_from_slice(block.get(at..at.checked_add(own)?)?);
        at += own;
        entries.push((key.clone(), block.get(at..at.checked_add(length)?)?));
        at += length;
    }
    Some(entries)
}

/// The integers among a message's fields.
fn fields(message: &[u8]) -> Option<Vec<(u64, u64)>> {
    let mut fields = Vec::new();
    let mut at = 0;
    while at < message.len() {
        let tag = varint(message, &mut at)?;
        match tag & 7 {
            0 => fields.push((tag >> 3, varint(message, &mut at)?)),
            1 => at += 8,
            2 => {
                let length = usize::try_from(varint(message, &mut at)?).ok()?;
                at = at.checked_add(length)?;
            }
            5 => at += 4,
            _ => return None,
        }
    }
    Some(fields)
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
