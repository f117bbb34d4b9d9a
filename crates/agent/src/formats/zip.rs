//! ZIP archives: what torch.save, Keras and NumPy's savez write.
//!
//! The central directory is at the end and is written last, so an archive in which it reads, and describes what is
//! before it, was finished. Only the two ends are read.

use crate::store::{Store, StoreError};

use super::{READ_WHOLE, u16_at, u32_at, u64_at};

const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const END_64: &[u8] = b"PK\x06\x06";
const LOCATOR_64: &[u8] = b"PK\x06\x07";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Archive {
    Whole(Vec<Member>),
    /// It has its end, but too many members to read about all of them. The name of the first.
    Huge(Option<String>),
    /// It begins as an archive does, with this member if that much is there.
    Cut {
        why: String,
        first: Option<String>,
    },
    Other,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Where its content begins, if that could be told without reading.
    header_at: u64,
    pub(crate) size: u64,
    pub(crate) is_stored: bool,
}

impl Member {
    /// The content of a member that is stored without compression.
    pub(crate) fn content(&self, store: &dyn Store, path: &str) -> Result<Vec<u8>, StoreError> {
        let header = store.read(path, self.header_at..self.header_at + 30)?;
        let (Some(name), Some(extra)) = (u16_at(&header, 26), u16_at(&header, 28)) else {
            return Ok(Vec::new());
        };
        let start = self.header_at + 30 + u64::from(name) + u64::from(extra);
        store.read(path, start..start + self.size)
    }
}

pub(crate) fn read(store: &dyn Store, path: &str, size: u64) -> Result<Archive, StoreError> {
    let head = store.read(path, 0..size.min(30 + 1024))?;
    if !head.starts_with(&LOCAL[..LOCAL.len().min(head.len())]) || head.is_empty() {
        return Ok(Archive::Other);
    }
    let cut = |why: &str| Ok(Archive::Cut { why: why.to_owned(), first: first_name(&head) });
    let tail_at = size.saturating_sub(22 + 65_535 + 76);
    let tail = store.read(path, tail_at..size)?;
    let Some(end) = find_end(&tail) else { return cut("its end is missing") };
    let Some((directory_at, directory_size, count)) = directory(&tail, tail_at, end) else {
        return cut("its end does not read");
    };
    let end_at = tail_at + end as u64;
    let fits = directory_at.checked_add(directory_size).is_some_and(|directory_end| directory_end <= end_at);
    if !fits {
        return cut("its list of members is not where its end says");
    }
    if directory_size > READ_WHOLE {
        let is_there = store.read(path, directory_at..directory_at + 4)? == CENTRAL;
        return if is_there {
            Ok(Archive::Huge(first_name(&head)))
        } else {
            cut("its list of members does not read")
        };
    }
    let list = store.read(path, directory_at..directory_at + directory_size)?;
    let Some(members) = members(&list, count, directory_at) else {
        return cut("its list of members does not read");
    };
    // A file system that lost power can leave holes in the middle: the outermost members must at least begin.
    let outermost =
        [members.iter().min_by_key(|member| member.header_at), members.iter().max_by_key(|m| m.header_at)];
    for member in outermost.into_iter().flatten() {
        if store.read(path, member.header_at..member.header_at + 4)? != LOCAL {
            return cut("there is a hole in it");
        }
    }
    Ok(Archive::Whole(members))
}

/// The name of the first member, from its own header.
fn first_name(head: &[u8]) -> Option<String> {
    let length = usize::from(u16_at(head, 26)?);
    String::from_utf8(head.get(30..30 + length)?.to_vec()).ok()
}

/// The last record whose comment reaches exactly to the end of the file.
fn find_end(tail: &[u8]) -> Option<usize> {
    (0..=tail.len().checked_sub(22)?).rev().find(|&at| {
        tail[at..].starts_with(END)
            && u16_at(tail, at + 20).is_some_and(|comment| at + 22 + usize::from(comment) == tail.len())
    })
}

/// Where the central directory is, how long, and how many members it names.
fn directory(tail: &[u8], tail_at: u64, end: usize) -> Option<(u64, u64, u64)> {
    let count = u64::from(u16_at(tail, end + 10)?);
    let size = u64::from(u32_at(tail, end + 12)?);
    let at = u64::from(u32_at(tail, end + 16)?);
    let locator = end.checked_sub(20).filter(|&locator| tail[locator..].starts_with(LOCATOR_64));
    if count != 0xFFFF && size != 0xFFFF_FFFF && at != 0xFFFF_FFFF {
        return Some((at, size, count));
    }
    let record = u64_at(tail, locator? + 8)?.checked_sub(tail_at)?;
    let record = usize::try_from(record).ok()?;
    if !tail.get(record..)?.starts_with(END_64) {
        return None;
    }
    Some((u64_at(tail, record + 48)?, u64_at(tail, record + 40)?, u64_at(tail, record + 32)?))
}

fn members(list: &[u8], count: u64, directory_at: u64) -> Option<Vec<Member>> {
    let mut members = Vec::new();
    let mut at = 0;
    while at < list.len() {
        if !list[at..].starts_with(CENTRAL) {
            return None;
        }
        let is_stored = u16_at(list, at + 10)? == 0;
        let compressed = u32_at(list, at + 20)?;
        let uncompressed = u32_at(list, at + 24)?;
        let name_length = usize::from(u16_at(list, at + 28)?);
        let extra_length = usize::from(u16_at(list, at + 30)?);
        let comment_length = usize::from(u16_at(list, at + 32)?);
        let header = u32_at(list, at + 42)?;
        let name = String::from_utf8_lossy(list.get(at + 46..at + 46 + name_length)?).into_owned();
        let extra = list.get(at + 46 + name_length..at + 46 + name_length + extra_length)?;
        let mut large = large_numbers(extra).into_iter();
        let mut number = |small: u32| if small == u32::MAX { large.next() } else { Some(u64::from(small)) };
        // In the order in which the large ones are listed.
        number(uncompressed)?;
        let size = number(compressed)?;
        let header_at = number(header)?;
        if header_at.checked_add(30)?.checked_add(size)? > directory_at {
            return None;
        }
        members.push(Member { name, header_at, size, is_stored });
        at += 46 + name_length + extra_length + comment_length;
    }
    (at == list.len() && members.len() as u64 == count).then_some(members)
}

/// The 64-bit numbers of an extra field, for those that do not fit into 32 bits.
fn large_numbers(extra: &[u8]) -> Vec<u64> {
    let mut at = 0;
    while let (Some(kind), Some(length)) = (u16_at(extra, at), u16_at(extra, at + 2)) {
        let length = usize::from(length);
        if kind == 1 {
            return (0..length / 8).filter_map(|index| u64_at(extra, at + 4 + index * 8)).collect();
        }
        at += 4 + length;
    }
    Vec::new()
}
