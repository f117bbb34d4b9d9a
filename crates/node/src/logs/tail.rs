//! The end of a log: in which files, and where in them, the last lines begin.
//!
//! Files are read backwards in chunks, so that the last words of a log of gigabytes cost no more than those of a short one.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::CHUNK;
use super::record::{TAG, last_records};
use super::writer::{Log, rotated};

/// The files of a log, oldest first.
pub(super) fn files(path: &Path) -> VecDeque<PathBuf> {
    let mut files = VecDeque::new();
    for number in 0.. {
        let file = rotated(path, number);
        // While the newest is being put aside it may be missing for a moment.
        if !file.exists() && number > 0 {
            break;
        }
        files.push_front(file);
    }
    files
}

/// The last lines of a log as text, at most so many bytes of it.
pub(crate) fn last_lines(log: &Log, lines: u64, bytes: usize) -> Option<String> {
    let unsaved: Vec<u8> = log.writer().unsaved.iter().flatten().copied().collect();
    let (from, found) = last_records(&unsaved, lines);
    let (files, mut offset) = tail(&log.path, lines - found);
    let mut text = Vec::new();
    for file in files {
        // On a full disk there may be none.
        let Ok(mut file) = File::open(file) else { continue };
        file.seek(SeekFrom::Start(std::mem::take(&mut offset))).ok()?;
        file.read_to_end(&mut text).ok()?;
    }
    text.extend_from_slice(&unsaved[from..]);
    let records = text.split(|byte| *byte == b'\n').filter(|record| record.len() >= TAG + 2);
    let mut plain = Vec::new();
    for record in records {
        plain.extend_from_slice(&record[TAG + 2..]);
        if record[TAG] == b'F' {
            plain.push(b'\n');
        }
    }
    let from = plain.len().saturating_sub(bytes);
    Some(String::from_utf8_lossy(&plain[from..]).into_owned()).filter(|text| !text.is_empty())
}

/// Where the last lines begin: the files to read and the offset in the first of them.
pub(super) fn tail(path: &Path, lines: u64) -> (VecDeque<PathBuf>, u64) {
    let mut wanted = lines;
    let mut chosen = VecDeque::new();
    for file in files(path).into_iter().rev() {
        chosen.push_front(file.clone());
        if wanted == 0 {
            let end = fs::metadata(&file).map_or(0, |metadata| metadata.len());
            return (chosen, end);
        }
        if let Ok(Some(offset)) = nth_line_from_end(&file, &mut wanted) {
            return (chosen, offset);
        }
    }
    (chosen, 0)
}

/// The offset of the line that many lines before the end; none if the file has fewer (they are subtracted then).
fn nth_line_from_end(path: &Path, wanted: &mut u64) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let mut end = file.metadata()?.len();
    let mut buffer = vec![0; CHUNK];
    // The beginning of what follows the chunk: a record's tag may be there.
    let mut later = Vec::new();
    // Where the record begins that follows the one that is looked at, and how many lines end before the end.
    let (size, mut following, mut lines) = (end, end, 0);
    let mut record = |head: &[u8], at: u64| {
        // Only the last piece of a long line ends it; a last piece without an end is a line, too.
        if head.get(TAG) == Some(&b'F') || following == size {
            lines += 1;
            if lines == *wanted + 1 {
                return Some(following);
            }
        }
        following = at;
        None
    };
    while end > 0 {
        let start = end.saturating_sub(CHUNK as u64);
        let length = usize::try_from(end - start).unwrap_or(CHUNK);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut buffer[..length])?;
        let ends = (0..length).rev().filter(|at| buffer[*at] == b'\n');
        for at in ends {
            let head: Vec<u8> = buffer[at + 1..length].iter().chain(&later).take(TAG + 1).copied().collect();
            let begin = start + at as u64 + 1;
            // After the last line end there is no record.
            if !head.is_empty()
                && let Some(offset) = record(&head, begin)
            {
                return Ok(Some(offset));
            }
        }
        later = buffer[..length.min(TAG + 1)].iter().chain(&later).take(TAG + 1).copied().collect();
        end = start;
    }
    if !later.is_empty()
        && let Some(offset) = record(&later, 0)
    {
        return Ok(Some(offset));
    }
    if lines == *wanted {
        return Ok(Some(0));
    }
    *wanted -= lines;
    Ok(None)
}
