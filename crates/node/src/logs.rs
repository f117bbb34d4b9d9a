//! The output of containers: captured line by line with the moment of writing, rotated, and read again.
//!
//! The format is that of the container runtimes (`2026-01-02T03:04:05.000000006Z stdout F text`; `P` where the line
//! goes on). A program is never held up or ended because its log cannot be written: what does not fit on the disk is kept in
//! memory, where readers find it, and written when there is room. What memory does not keep is lost, and the log says how much.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::watch;
use trainyard_apiserver::LogOptions;

/// Longer lines are kept in pieces.
const LINE_MAX: usize = 16 * 1024;
const CHUNK: usize = 64 * 1024;
/// So much is kept in memory of what cannot be written.
const UNSAVED_MAX: usize = 4 * 1024 * 1024;
/// A disk that was full is asked again after this time.
const RETRY: Duration = Duration::from_millis(500);
/// `2026-01-02T03:04:05.000000006Z`
const STAMP: usize = 30;
/// Where a record says whether the line ends with it.
const TAG: usize = STAMP + 8;

/// How much of a container's output is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// A log file that is larger is put aside, and a new one is begun.
    pub max_bytes: u64,
    /// So many files are kept of one container, the newest ones.
    pub max_files: u32,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { max_bytes: 10 * 1024 * 1024, max_files: 5 }
    }
}

/// The log of one run of a container, while it is written.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    limits: LogLimits,
    state: watch::Sender<State>,
    writer: Mutex<Writer>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    rotations: u64,
    written: u64,
    /// How many pieces could not be written so far.
    unsaved: u64,
    ended: bool,
}

#[derive(Debug, Default)]
struct Writer {
    file: Option<File>,
    size: u64,
    /// What could not be written yet, and belongs behind the end of the file.
    unsaved: VecDeque<Vec<u8>>,
    unsaved_bytes: usize,
    /// The number of the first piece of it, or of the next that comes.
    first: u64,
    /// Bytes of output that memory did not keep either.
    lost: u64,
    /// Why the last of it was not written.
    why: String,
    retry: Option<Instant>,
    saved: Option<Saved>,
}

/// Where pieces went that were written after all: a reader who had them from memory goes on behind them.
#[derive(Debug)]
struct Saved {
    rotations: u64,
    begins: u64,
    first: u64,
    ends: Vec<u64>,
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

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds whole lines in their final form. They are in the page cache when this returns, or in our memory.
    fn append(&self, text: &[u8]) {
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

/// What stands in a log, or in what is read of it, where something is missing.
fn note(lost: u64, path: &Path, why: &str) -> String {
    format!(
        "{} stderr F [trainyard: {lost} bytes of output were lost here: {}: {why}]\n",
        stamp(Timestamp::now()),
        path.display(),
    )
}

/// How much of these records the program said.
fn output_bytes(records: &[u8]) -> u64 {
    let records = records.split(|byte| *byte == b'\n').filter(|record| record.len() >= TAG + 2);
    records.map(|record| (record.len() - TAG - 2) as u64 + u64::from(record[TAG] == b'F')).sum()
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

fn rotated(path: &Path, number: u32) -> PathBuf {
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

/// Fixed width, so that stamps can be compared as text.
fn stamp(at: Timestamp) -> String {
    format!("{at:.9}")
}

/// Reads both streams to their ends and writes them to the log.
pub(crate) async fn capture(stdout: Option<ChildStdout>, stderr: Option<ChildStderr>, log: Arc<Log>) {
    let out = async {
        if let Some(stdout) = stdout {
            copy(stdout, "stdout", &log).await;
        }
    };
    let err = async {
        if let Some(stderr) = stderr {
            copy(stderr, "stderr", &log).await;
        }
    };
    tokio::join!(out, err);
    log.end();
}

async fn copy(mut from: impl AsyncRead + Unpin, stream: &str, log: &Log) {
    let mut buffer = Vec::with_capacity(8 * 1024);
    let mut text = Vec::new();
    loop {
        // A container that says little costs little: the buffer grows with what is read at once.
        buffer.reserve(8 * 1024);
        let read = from.read_buf(&mut buffer).await.unwrap_or(0);
        let stamp = stamp(Timestamp::now());
        let taken = format_lines(&buffer, read == 0, &stamp, stream, &mut text);
        buffer.drain(..taken);
        if buffer.is_empty() && buffer.capacity() > CHUNK {
            buffer = Vec::with_capacity(CHUNK);
        }
        if !text.is_empty() {
            log.append(&text);
            text.clear();
            text.shrink_to(2 * CHUNK);
        }
        if read == 0 {
            return;
        }
    }
}

/// Puts the whole lines of `input` into `output`, and says how much of the input that was.
fn format_lines(input: &[u8], at_end: bool, stamp: &str, stream: &str, output: &mut Vec<u8>) -> usize {
    let mut taken = 0;
    let mut line = |tag: u8, text: &[u8]| {
        output.extend_from_slice(stamp.as_bytes());
        output.push(b' ');
        output.extend_from_slice(stream.as_bytes());
        output.extend_from_slice(&[b' ', tag, b' ']);
        output.extend_from_slice(text);
        output.push(b'\n');
    };
    loop {
        let rest = &input[taken..];
        let end = rest.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
        match end {
            Some(end) => {
                line(b'F', &rest[..end]);
                taken += end + 1;
            }
            None if rest.len() >= LINE_MAX => {
                line(b'P', &rest[..LINE_MAX]);
                taken += LINE_MAX;
            }
            None => {
                if at_end && !rest.is_empty() {
                    line(b'P', rest);
                    taken += rest.len();
                }
                return taken;
            }
        }
    }
}

/// The files of a log, oldest first.
fn files(path: &Path) -> VecDeque<PathBuf> {
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

/// Where the last lines begin in records that are in memory, and how many of those wanted there are.
fn last_records(records: &[u8], lines: u64) -> (usize, u64) {
    let mut begin = records.len();
    let mut found = 0;
    let mut end = records.len();
    while end > 0 && found <= lines {
        let at = records[..end - 1].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
        if records.get(at + TAG) == Some(&b'F') || end == records.len() {
            found += 1;
        }
        if found <= lines {
            begin = at;
        }
        end = at;
    }
    (begin, found.min(lines))
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
fn tail(path: &Path, lines: u64) -> (VecDeque<PathBuf>, u64) {
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
    use super::*;

    fn written(limits: LogLimits, lines: impl IntoIterator<Item = String>) -> (tempfile::TempDir, Arc<Log>) {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::new(directory.path().join("0.log"), limits);
        for (second, line) in lines.into_iter().enumerate() {
            let at = Timestamp::from_second(1_000 + i64::try_from(second).unwrap()).unwrap();
            let mut text = Vec::new();
            format_lines(line.as_bytes(), true, &stamp(at), "stdout", &mut text);
            log.append(&text);
        }
        (directory, log)
    }

    async fn text(log: &Arc<Log>, options: LogOptions) -> String {
        let now = Timestamp::from_second(1_010).unwrap();
        let pieces: Vec<_> = read(log.clone(), options, now).map(Result::unwrap).collect().await;
        String::from_utf8(pieces.concat()).unwrap()
    }

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
    async fn long_lines_and_a_last_line_without_an_end_come_back_as_they_were() {
        let endless = "x".repeat(LINE_MAX * 2 + 5);
        let (_directory, log) = written(LogLimits::default(), [format!("a\n{endless}\n"), "end".to_owned()]);
        assert_eq!(text(&log, LogOptions::default()).await, format!("a\n{endless}\nend"));
        let options = LogOptions { tail_lines: Some(2), ..LogOptions::default() };
        assert_eq!(text(&log, options).await, format!("{endless}\nend"));
    }

    fn say(log: &Log, text: &str) {
        let mut records = Vec::new();
        format_lines(text.as_bytes(), true, &stamp(Timestamp::now()), "stdout", &mut records);
        log.append(&records);
    }

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
