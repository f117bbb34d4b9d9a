//! A log as it is asked for: from a line or a moment on, followed or not, as a stream.
//!
//! A follower sees every line once, across rotations and whether a line was in the file or in memory when it was read.
//! It never holds up who writes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;
use tokio::sync::watch;
use trainyard_apiserver::LogOptions;

use super::CHUNK;
use super::record::{STAMP, TAG, last_records, note, stamp};
use super::tail::{files, tail};
use super::writer::{Log, State, rotated};

/// What is asked for of a log, as a stream that ends with the log (or, without `follow`, where the log ends now).
pub(crate) fn read(
    log: Arc<Log>,
    options: LogOptions,
    now: Timestamp,
) -> BoxStream<'static, io::Result<Bytes>> {
    let state = log.state.subscribe();
    let seen = *state.borrow();
    let mut since = options.since_time;
    if let Some(seconds) = options.since_seconds {
        let seconds = jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        since = now.checked_sub(seconds).ok().max(since);
    }
    let since = since.map(stamp);
    let mut unsaved = Vec::new();
    let (files, offset, next_unsaved) = match options.tail_lines {
        Some(lines) => {
            let memory;
            (memory, unsaved) = {
                let writer = log.writer();
                let next = writer.first + writer.unsaved.len() as u64;
                (next, writer.unsaved.iter().flatten().copied().collect::<Vec<u8>>())
            };
            let (from, found) = last_records(&unsaved, lines);
            unsaved.drain(..from);
            let (files, offset) = tail(&log.path, lines - found);
            (files, offset, memory)
        }
        None => (files(&log.path), 0, 0),
    };
    let reader = Reader {
        log,
        state,
        seen,
        files,
        current: None,
        offset,
        rest: Vec::new(),
        since,
        timestamps: options.timestamps,
        follow: options.follow,
        left: options.limit_bytes,
        line_begins: true,
        unsaved,
        next_unsaved,
        lost: 0,
        whence: Whence::File,
    };
    stream::unfold(reader, |mut reader| async {
        let next = reader.next().await?;
        Some((next, reader))
    })
    .boxed()
}

struct Reader {
    log: Arc<Log>,
    state: watch::Receiver<State>,
    seen: State,
    files: VecDeque<PathBuf>,
    current: Option<File>,
    offset: u64,
    rest: Vec<u8>,
    since: Option<String>,
    timestamps: bool,
    follow: bool,
    left: Option<u64>,
    line_begins: bool,
    /// What was in memory when the last lines were asked for, to be read behind the files.
    unsaved: Vec<u8>,
    /// The number of the next piece to be read from memory.
    next_unsaved: u64,
    /// What memory had not kept when it was read last.
    lost: u64,
    whence: Whence,
}

/// Where the last of what was read came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whence {
    File,
    /// The file goes on somewhere else than where it was left.
    Memory,
}

impl Reader {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if self.left == Some(0) {
                return None;
            }
            if self.current.is_none() {
                self.open_next();
            }
            let read = match self.read_chunk() {
                Ok(read) => read,
                Err(error) => return Some(Err(error)),
            };
            if read > 0 {
                let text = self.take_text();
                if !text.is_empty() {
                    return Some(Ok(text));
                }
                continue;
            }
            if !self.files.is_empty() {
                self.current = None;
                continue;
            }
            // All that is there has been read.
            if !self.unsaved.is_empty() {
                self.rest = std::mem::take(&mut self.unsaved);
                self.leave_file();
                return Some(Ok(self.take_text()));
            }
            if self.go_on_behind_memory() {
                continue;
            }
            let now = *self.state.borrow_and_update();
            if self.whence == Whence::Memory && now.written != self.seen.written {
                // It has been written just now.
                continue;
            }
            if now.rotations > self.seen.rotations && self.follow {
                // What was put aside in between is in numbered files; the file that was read last is the newest of
                // those that were there.
                let missed = u32::try_from(now.rotations - self.seen.rotations).unwrap_or(u32::MAX);
                self.seen = now;
                if self.current.take().is_some() {
                    let between = (0..missed).rev().map(|number| rotated(&self.log.path, number));
                    self.files.extend(between.filter(|file| file.exists()));
                } else {
                    self.files = files(&self.log.path);
                }
                continue;
            }
            if now.written != self.seen.written {
                self.seen = now;
                if self.current.is_none() {
                    self.files.push_back(self.log.path.clone());
                }
                if self.follow {
                    continue;
                }
            }
            if self.read_memory() {
                let text = self.take_text();
                if !text.is_empty() {
                    return Some(Ok(text));
                }
                continue;
            }
            if now.ended || !self.follow {
                return None;
            }
            if self.state.changed().await.is_err() {
                return None;
            }
        }
    }

    /// If what was read from memory has been written meanwhile: goes to where it ends in the file.
    fn go_on_behind_memory(&mut self) -> bool {
        let log = self.log.clone();
        let writer = log.writer();
        let Some(saved) = &writer.saved else { return false };
        let end = saved.first + saved.ends.len() as u64;
        if self.next_unsaved > end || (self.next_unsaved == end && self.whence == Whence::File) {
            return false;
        }
        // Of a piece that memory did not keep, the file says so at its beginning.
        let last = self.next_unsaved.checked_sub(saved.first + 1);
        let last = last.and_then(|last| saved.ends.get(usize::try_from(last).ok()?));
        let offset = last.copied().unwrap_or(saved.begins);
        let whence = std::mem::replace(&mut self.whence, Whence::File);
        self.next_unsaved = end;
        self.lost = 0;
        if whence == Whence::File {
            // It is in the file, which is read on.
            return false;
        }
        self.seen = *self.state.borrow();
        let age = u32::try_from(self.seen.rotations - saved.rotations).unwrap_or(u32::MAX);
        self.current = None;
        self.offset = offset;
        self.files = (0..=age).rev().map(|number| rotated(&self.log.path, number)).collect();
        true
    }

    /// Takes what could not be written. False if there is nothing that has not been read.
    fn read_memory(&mut self) -> bool {
        let log = self.log.clone();
        let writer = log.writer();
        let now = *self.state.borrow();
        if (now.written, now.rotations) != (self.seen.written, self.seen.rotations) {
            // The file comes first.
            return false;
        }
        let skip = usize::try_from(self.next_unsaved.saturating_sub(writer.first)).unwrap_or(usize::MAX);
        if writer.unsaved.len() <= skip {
            return false;
        }
        let lost = writer.lost - self.lost.min(writer.lost);
        if self.next_unsaved < writer.first && lost > 0 {
            self.rest.extend_from_slice(note(lost, &log.path, &writer.why).as_bytes());
        }
        for piece in writer.unsaved.iter().skip(skip) {
            self.rest.extend_from_slice(piece);
        }
        self.lost = writer.lost;
        self.next_unsaved = writer.first + writer.unsaved.len() as u64;
        self.leave_file();
        true
    }

    /// From here on memory is read, until what was in it is in the file.
    fn leave_file(&mut self) {
        self.whence = Whence::Memory;
        self.current = None;
    }

    fn open_next(&mut self) {
        let Some(path) = self.files.pop_front() else { return };
        let Ok(mut file) = File::open(&path) else { return };
        let offset = std::mem::take(&mut self.offset);
        if offset == 0 || file.seek(SeekFrom::Start(offset)).is_ok() {
            self.current = Some(file);
        }
    }

    fn read_chunk(&mut self) -> io::Result<usize> {
        let Some(file) = &mut self.current else { return Ok(0) };
        let start = self.rest.len();
        self.rest.resize(start + CHUNK, 0);
        let read = file.read(&mut self.rest[start..]);
        self.rest.truncate(start + *read.as_ref().unwrap_or(&0));
        read
    }

    /// The text of the whole records that have been read, as it was asked for.
    fn take_text(&mut self) -> Bytes {
        let mut text = Vec::with_capacity(self.rest.len());
        let mut taken = 0;
        while let Some(end) = self.rest[taken..].iter().position(|byte| *byte == b'\n') {
            let record = &self.rest[taken..taken + end];
            taken += end + 1;
            if record.len() < TAG + 2 || record[STAMP] != b' ' {
                continue;
            }
            let (at, rest) = record.split_at(STAMP);
            if self.since.as_ref().is_some_and(|since| at < since.as_bytes()) {
                continue;
            }
            if self.timestamps && self.line_begins {
                text.extend_from_slice(at);
                text.push(b' ');
            }
            let whole = rest[8] == b'F';
            text.extend_from_slice(&rest[10..]);
            if whole {
                text.push(b'\n');
            }
            self.line_begins = whole;
        }
        self.rest.drain(..taken);
        if let Some(left) = &mut self.left {
            text.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= text.len() as u64;
        }
        Bytes::from(text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::LogLimits;
    use super::super::record::format_lines;
    use super::super::told::{text, written};
    use super::*;

    fn ten() -> Vec<String> {
        (0..10).map(|number| format!("line {number}\n")).collect()
    }

    #[tokio::test]
    async fn all_of_it_and_parts_of_it() {
        let (_directory, log) = written(LogLimits::default(), ten());
        let all = text(&log, LogOptions::default()).await;
        assert_eq!(all, ten().concat());
        for lines in 0..12 {
            let options = LogOptions { tail_lines: Some(lines), ..LogOptions::default() };
            let from = 10 - usize::try_from(lines).unwrap().min(10);
            assert_eq!(text(&log, options).await, ten()[from..].concat(), "the last {lines}");
        }
        let options = LogOptions { since_seconds: Some(3), ..LogOptions::default() };
        assert_eq!(text(&log, options).await, "line 7\nline 8\nline 9\n");
        let options = LogOptions { limit_bytes: Some(9), ..LogOptions::default() };
        assert_eq!(text(&log, options).await, "line 0\nli");
        let options = LogOptions { tail_lines: Some(1), timestamps: true, ..LogOptions::default() };
        assert_eq!(text(&log, options).await, "1970-01-01T00:16:49.000000000Z line 9\n");
    }

    #[tokio::test]
    async fn a_rotated_log_is_read_as_one_and_the_oldest_part_goes() {
        let limits = LogLimits { max_bytes: 200, max_files: 3 };
        let (directory, log) = written(limits, ten());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
        let kept = text(&log, LogOptions::default()).await;
        assert!(ten().concat().ends_with(&kept) && kept.lines().count() > 6, "{kept}");
        let options = LogOptions { tail_lines: Some(6), ..LogOptions::default() };
        assert_eq!(text(&log, options).await, ten()[4..].concat());
    }

    #[tokio::test]
    async fn following_sees_every_line_once_across_rotations() {
        let (_directory, log) = written(LogLimits { max_bytes: 500, max_files: 100 }, []);
        let options = LogOptions { follow: true, ..LogOptions::default() };
        let mut stream = read(log.clone(), options, Timestamp::now());
        let writer = tokio::spawn(async move {
            for number in 0..500 {
                let mut text = Vec::new();
                let line = format!("{number}\n");
                format_lines(line.as_bytes(), false, &stamp(Timestamp::now()), "stdout", &mut text);
                log.append(&text);
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            log.end();
        });
        let mut seen = Vec::new();
        while let Some(piece) = stream.next().await {
            seen.extend_from_slice(&piece.unwrap());
        }
        writer.await.unwrap();
        let wanted: String = (0..500).map(|number| number.to_string() + "\n").collect();
        assert_eq!(String::from_utf8(seen).unwrap(), wanted);
    }
}
