//! A log while it is written: appended, rotated, and kept in memory while the disk has no room.
//!
//! A program must never be held up or ended because its log cannot be written. What memory does not keep either is
//! lost, and the log says how much.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::LogLimits;
use super::record::{note, output_bytes};

/// So much is kept in memory of what cannot be written.
const UNSAVED_MAX: usize = 4 * 1024 * 1024;
/// A disk that was full is asked again after this time.
const RETRY: Duration = Duration::from_millis(500);

/// The log of one run of a container, while it is written.
#[derive(Debug)]
pub(crate) struct Log {
    pub(super) path: PathBuf,
    limits: LogLimits,
    pub(super) state: watch::Sender<State>,
    writer: Mutex<Writer>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) rotations: u64,
    pub(super) written: u64,
    /// How many pieces could not be written so far.
    unsaved: u64,
    pub(super) ended: bool,
}

#[derive(Debug, Default)]
pub(super) struct Writer {
    file: Option<File>,
    size: u64,
    /// What could not be written yet, and belongs behind the end of the file.
    pub(super) unsaved: VecDeque<Vec<u8>>,
    unsaved_bytes: usize,
    /// The number of the first piece of it, or of the next that comes.
    pub(super) first: u64,
    /// Bytes of output that memory did not keep either.
    pub(super) lost: u64,
    /// Why the last of it was not written.
    pub(super) why: String,
    retry: Option<Instant>,
    pub(super) saved: Option<Saved>,
}

/// Where pieces went that were written after all: a reader who had them from memory goes on behind them.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) rotations: u64,
    pub(super) begins: u64,
    pub(super) first: u64,
    pub(super) ends: Vec<u64>,
}

/// What of a log is not on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsaved {
    /// Bytes of output.
    pub(crate) bytes: u64,
    pub(crate) why: String,
}

impl Log {
    pub(crate) fn new(path: PathBuf, limits: LogLimits) -> Arc<Self> {
        Arc::new(Self { path, limits, state: watch::Sender::default(), writer: Mutex::default() })
    }

    /// A log that nobody writes any more.
    pub(crate) fn ended(path: PathBuf) -> Arc<Self> {
        let log = Self::new(path, LogLimits::default());
        log.end();
        log
    }

    pub(crate) fn end(&self) {
        {
            let mut writer = self.writer();
            if !writer.unsaved.is_empty() {
                writer.retry = None;
                self.save(&mut writer, &[]);
            }
        }
        self.state.send_modify(|state| state.ended = true);
    }

    /// What could not be written, and why, if something could not.
    pub(crate) fn unsaved(&self) -> Option<Unsaved> {
        let writer = self.writer();
        let kept: u64 = writer.unsaved.iter().map(|piece| output_bytes(piece)).sum();
        let bytes = kept + writer.lost;
        (bytes > 0).then(|| Unsaved { bytes, why: writer.why.clone() })
    }

    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds whole lines in their final form. They are in the page cache when this returns, or in our memory.
    pub(super) fn append(&self, text: &[u8]) {
        let mut writer = self.writer();
        if !writer.unsaved.is_empty() {
            return self.save(&mut writer, text);
        }
        if writer.size > 0 && writer.size + text.len() as u64 > self.limits.max_bytes {
            writer.file = None;
            rotate(&self.path, self.limits.max_files);
            writer.size = 0;
            self.state.send_modify(|state| state.rotations += 1);
        }
        if let Err(error) = writer.write(&self.path, text) {
            tracing::warn!("the log {} cannot be written: {error}", self.path.display());
            writer.why = error.to_string();
            writer.keep(text);
            self.state.send_modify(|state| state.unsaved += 1);
            return;
        }
        self.state.send_modify(|state| state.written += text.len() as u64);
    }

    /// Writes what is kept in memory, and what comes behind it: all of it or nothing.
    fn save(&self, writer: &mut Writer, text: &[u8]) {
        let due = writer.retry.is_none_or(|retry| retry <= Instant::now());
        if due {
            let mut all = Vec::with_capacity(writer.unsaved_bytes + text.len() + 256);
            if writer.lost > 0 {
                all.extend_from_slice(note(writer.lost, &self.path, &writer.why).as_bytes());
            }
            let mut ends = Vec::with_capacity(writer.unsaved.len());
            for piece in &writer.unsaved {
                all.extend_from_slice(piece);
                ends.push(all.len() as u64);
            }
            all.extend_from_slice(text);
            match writer.write(&self.path, &all) {
                Ok(begins) => {
                    for end in &mut ends {
                        *end += begins;
                    }
                    let rotations = self.state.borrow().rotations;
                    writer.saved = Some(Saved { rotations, begins, first: writer.first, ends });
                    writer.first += writer.unsaved.len() as u64;
                    writer.unsaved.clear();
                    writer.unsaved_bytes = 0;
                    writer.lost = 0;
                    writer.retry = None;
                    self.state.send_modify(|state| state.written += all.len() as u64);
                    return;
                }
                Err(error) => {
                    writer.why = error.to_string();
                    writer.retry = Some(Instant::now() + RETRY);
                }
            }
        }
        if !text.is_empty() {
            writer.keep(text);
            self.state.send_modify(|state| state.unsaved += 1);
        }
    }
}

impl Writer {
    /// Keeps in memory what cannot be written, as much of it as is reasonable.
    fn keep(&mut self, text: &[u8]) {
        self.unsaved_bytes += text.len();
        self.unsaved.push_back(text.to_vec());
        while self.unsaved_bytes > UNSAVED_MAX
            && self.unsaved.len() > 1
            && let Some(oldest) = self.unsaved.pop_front()
        {
            self.unsaved_bytes -= oldest.len();
            self.lost += output_bytes(&oldest);
            self.first += 1;
        }
    }

    /// Writes whole records or nothing; where they begin.
    fn write(&mut self, path: &Path, text: &[u8]) -> io::Result<u64> {
        if self.file.is_none() {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            self.file = Some(OpenOptions::new().create(true).append(true).open(path)?);
        }
        let Some(file) = &mut self.file else { return Ok(0) };
        let before = file.metadata()?.len();
        if let Err(error) = file.write_all(text) {
            // Half a line would be read as garbage. The next time may find another file there.
            let _ = file.set_len(before);
            self.file = None;
            return Err(error);
        }
        self.size = before + text.len() as u64;
        Ok(before)
    }
}

pub(super) fn rotated(path: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn rotate(path: &Path, max_files: u32) {
    let oldest = max_files.saturating_sub(1);
    if oldest == 0 {
        let _ = fs::remove_file(path);
    }
    for number in (0..oldest).rev() {
        let _ = fs::rename(rotated(path, number), rotated(path, number + 1));
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use jiff::Timestamp;
    use trainyard_apiserver::LogOptions;

    use super::super::record::LINE_MAX;
    use super::super::told::{say, text, written};
    use super::super::{last_lines, read};
    use super::*;

    /// Says something that does not fit on the disk, which then stays full.
    fn say_in_vain(log: &Log, text: &str) {
        log.writer().file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        say(log, text);
        log.writer().retry = Some(Instant::now() + Duration::from_hours(1));
    }

    #[tokio::test]
    async fn what_does_not_fit_on_the_disk_is_read_from_memory_and_written_later() {
        let (_directory, log) = written(LogLimits::default(), ["one\n".to_owned()]);
        let follow = LogOptions { follow: true, ..LogOptions::default() };
        let mut following = read(log.clone(), follow.clone(), Timestamp::now());
        assert_eq!(following.next().await.unwrap().unwrap(), "one\n");
        let mut late = read(log.clone(), follow, Timestamp::now());
        say_in_vain(&log, "two\n");
        say(&log, "three\n");
        assert_eq!(log.unsaved().unwrap().bytes, 10);
        assert!(log.unsaved().unwrap().why.starts_with("No space left on device"));
        assert_eq!(following.next().await.unwrap().unwrap(), "two\nthree\n");
        assert_eq!(last_lines(&log, 1, 100).unwrap(), "three\n");
        let options = LogOptions { tail_lines: Some(1), ..LogOptions::default() };
        assert_eq!(text(&log, options).await, "three\n");
        say(&log, "four\n");
        log.writer().retry = None;
        say(&log, "five\n");
        log.end();
        assert_eq!(log.unsaved(), None);
        let all = "one\ntwo\nthree\nfour\nfive\n";
        assert_eq!(text(&log, LogOptions::default()).await, all);
        let mut rest = Vec::new();
        while let Some(piece) = following.next().await {
            rest.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(String::from_utf8(rest).unwrap(), "four\nfive\n", "nothing twice");
        let mut seen = Vec::new();
        while let Some(piece) = late.next().await {
            seen.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(String::from_utf8(seen).unwrap(), all);
    }

    #[tokio::test]
    async fn what_memory_does_not_keep_either_is_counted() {
        let (_directory, log) = written(LogLimits::default(), ["one\n".to_owned()]);
        let line = "x".repeat(LINE_MAX - 1) + "\n";
        say_in_vain(&log, &line);
        for _ in 1..2 * UNSAVED_MAX / LINE_MAX {
            say(&log, &line);
        }
        assert_eq!(log.unsaved().unwrap().bytes, 2 * UNSAVED_MAX as u64);
        log.end();
        let all = text(&log, LogOptions::default()).await;
        let note = all.lines().nth(1).unwrap();
        let lost = note.strip_prefix("[trainyard: ").unwrap().split(' ').next().unwrap();
        let lost: usize = lost.parse().unwrap();
        assert!(note.contains("bytes of output were lost here") && note.contains("No space left"), "{note}");
        assert_eq!(all.matches('x').count() / (LINE_MAX - 1) * LINE_MAX + lost, 2 * UNSAVED_MAX);
    }
}
