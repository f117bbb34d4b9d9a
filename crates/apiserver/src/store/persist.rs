//! The store on disk: one journal, to which every change is appended before it is made.
//!
//! A journal is a line that says what it is, then one record per change: length and checksum, then JSON. What a crash
//! left unfinished at the end is cut off. When a journal has grown long, a new one with only what exists takes its
//! place: written beside it, synced, then renamed, so that at any moment one of the two is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;
use trainyard_objects::At as _;

use super::Object;

const FORMAT: u32 = 1;
const NAME: &str = "objects.journal";
/// Below this size a journal is never rewritten.
const SHORT: u64 = 4 << 20;

/// Why a state directory cannot be used.
#[derive(Debug, Error)]
pub enum Trouble {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error(
        "{path} is in use by another trainyard: end that one first (trainyard down), or use another directory"
    )]
    InUse { path: PathBuf },
    #[error(
        "{path} was written by a newer trainyard (format {found}, this one knows up to {FORMAT}): use that one, or \
         another directory"
    )]
    Newer { path: PathBuf, found: u32 },
    #[error("{path} is no journal of trainyard: use another directory")]
    Foreign { path: PathBuf },
    #[error("{path} is damaged at byte {at}: {why} (restore it, or move it away to start empty)")]
    Damaged { path: PathBuf, at: u64, why: String },
}

/// Everything a journal tells.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) revision: u64,
    pub(super) objects: Vec<(Arc<str>, Box<str>, Value, u64)>,
}

/// The open journal of a state directory. The directory is ours while this lives.
pub(super) struct Journal {
    directory: PathBuf,
    file: File,
    length: u64,
    /// Length after the last rewriting.
    base: u64,
    /// A write that failed half-way left something behind this length.
    torn: bool,
    syncer: SyncSender<File>,
    lock: File,
}

#[derive(Serialize, Deserialize)]
struct Header {
    #[serde(rename = "trainyardState")]
    format: u32,
    revision: u64,
}

#[derive(Serialize, Deserialize)]
struct Record<'a> {
    #[serde(rename = "r", borrow)]
    resource: std::borrow::Cow<'a, str>,
    #[serde(rename = "v")]
    revision: u64,
    /// The key of what was removed.
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    removed: Option<std::borrow::Cow<'a, str>>,
    #[serde(rename = "o", borrow, default, skip_serializing_if = "Option::is_none")]
    object: Option<&'a RawValue>,
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that is just being started still has it, too.
        let _ = self.lock.unlock();
    }
}

impl Journal {
    pub(super) fn open(directory: &Path) -> Result<(Self, Contents), Trouble> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |error| Trouble::Io { path, error }
        };
        fs::create_dir_all(directory).map_err(fail(directory))?;
        let lock_path = directory.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(fail(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(Trouble::InUse { path: directory.to_owned() }),
            Err(fs::TryLockError::Error(error)) => return Err(Trouble::Io { path: lock_path, error }),
        }
        let path = directory.join(NAME);
        let mut file = private(&path, false).map_err(fail(&path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fail(&path))?;
        let (contents, length) = read(&path, &bytes)?;
        file.set_len(length).map_err(fail(&path))?;
        file.seek(SeekFrom::End(0)).map_err(fail(&path))?;
        let journal = Self {
            directory: directory.to_owned(),
            file,
            length,
            base: 0,
            torn: false,
            syncer: syncer(),
            lock,
        };
        Ok((journal, contents))
    }

    pub(super) fn is_long(&self) -> bool {
        self.length > SHORT && self.length > self.base * 4
    }

    pub(super) fn put(&mut self, resource: &str, object: &Object) -> io::Result<()> {
        self.append(&record(resource, object)?)
    }

    pub(super) fn remove(&mut self, resource: &str, key: &str, revision: u64) -> io::Result<()> {
        self.append(&Record { resource: resource.into(), revision, removed: Some(key.into()), object: None })
    }

    fn append(&mut self, record: &Record<'_>) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.length)?;
            self.file.seek(SeekFrom::End(0))?;
            self.torn = false;
        }
        let framed = framed(record)?;
        if let Err(error) = self.file.write_all(&framed) {
            self.torn = true;
            return Err(error);
        }
        self.length += framed.len() as u64;
        // The file is complete for every later process now. The disk follows in the background; a full channel means
        // that a sync is under way already, and another one follows it.
        if let Ok(file) = self.file.try_clone() {
            let _ = self.syncer.try_send(file);
        }
        Ok(())
    }

    /// Replaces the journal by one that tells only what exists.
    pub(super) fn rewrite<'a>(
        &mut self,
        revision: u64,
        objects: impl Iterator<Item = (&'a str, &'a Object)>,
    ) -> Result<(), Trouble> {
        let fresh = self.directory.join(format!("{NAME}.new"));
        let path = self.directory.join(NAME);
        let written = || -> io::Result<File> {
            let mut out = BufWriter::new(private(&fresh, true)?);
            let header = Header { format: FORMAT, revision };
            serde_json::to_writer(&mut out, &header)?;
            out.write_all(b"\n")?;
            for (resource, object) in objects {
                out.write_all(&framed(&record(resource, object)?)?)?;
            }
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(&self.directory)?.sync_all()?;
            Ok(file)
        };
        self.file = written().map_err(|error| Trouble::Io { path: fresh.clone(), error })?;
        self.length = self.file.metadata().map_or(0, |metadata| metadata.len());
        self.base = self.length;
        self.torn = false;
        Ok(())
    }
}

/// Secrets are in here: nobody else may read it.
fn private(path: &Path, fresh: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().read(true).write(true).create(true).truncate(fresh).mode(0o600).open(path)
}

/// A thread that syncs files to the disk, one after the other, as long as the journal lives.
fn syncer() -> SyncSender<File> {
    let (sender, files) = mpsc::sync_channel::<File>(1);
    // Without the thread, nothing is synced early; a crash of the machine may then lose the last changes.
    let _ = std::thread::Builder::new().name("journal".into()).stack_size(64 << 10).spawn(move || {
        for file in files {
            let _ = file.sync_data();
        }
    });
    sender
}

fn record<'a>(resource: &'a str, object: &'a Object) -> io::Result<Record<'a>> {
    let json = std::str::from_utf8(&object.json).map_err(io::Error::other)?;
    // Our own writing is JSON; this only borrows it.
    let object_json: &RawValue = serde_json::from_str(json)?;
    Ok(Record {
        resource: resource.into(),
        revision: object.revision,
        removed: None,
        object: Some(object_json),
    })
}

fn framed(record: &Record<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 8];
    serde_json::to_writer(&mut bytes, record)?;
    let length = u32::try_from(bytes.len() - 8).map_err(io::Error::other)?;
    let sum = checksum(&bytes[8..]);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes.push(b'\n');
    Ok(bytes)
}

/// FNV-1a: enough to tell a half-written record from a whole one.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Reads a journal up to where it is whole.
fn read(path: &Path, bytes: &[u8]) -> Result<(Contents, u64), Trouble> {
    let mut contents = Contents::default();
    if bytes.is_empty() {
        return Ok((contents, 0));
    }
    let foreign = || Trouble::Foreign { path: path.to_owned() };
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(foreign)?;
    let header: Header = serde_json::from_slice(&bytes[..end]).map_err(|_| foreign())?;
    if header.format > FORMAT {
        return Err(Trouble::Newer { path: path.to_owned(), found: header.format });
    }
    contents.revision = header.revision;
    let mut objects = std::collections::BTreeMap::new();
    let mut at = end + 1;
    while let Some((body, next)) = frame(bytes, at) {
        let damaged = |why: String| Trouble::Damaged { path: path.to_owned(), at: at as u64, why };
        let record: Record<'_> = serde_json::from_slice(body).map_err(|error| damaged(error.to_string()))?;
        contents.revision = contents.revision.max(record.revision);
        let resource: Arc<str> = record.resource.as_ref().into();
        match (record.removed, record.object) {
            (Some(key), _) => {
                objects.remove(&(resource, Box::<str>::from(key.as_ref())));
            }
            (None, Some(raw)) => {
                let value: Value =
                    serde_json::from_str(raw.get()).map_err(|error| damaged(error.to_string()))?;
                let text = |path: &str| value.at(path).and_then(Value::as_str).unwrap_or_default();
                let key = super::key(text("/metadata/namespace"), text("/metadata/name"));
                objects.insert((resource, key.into()), (value, record.revision));
            }
            (None, None) => return Err(damaged("a record without a change".to_owned())),
        }
        at = next;
    }
    // Damage in the middle is not a crash's doing: a whole record after it says so.
    if at < bytes.len()
        && (at + 1..bytes.len()).any(|later| bytes[later - 1] == b'\n' && frame(bytes, later).is_some())
    {
        let why = "a record is broken, but there are whole ones after it".to_owned();
        return Err(Trouble::Damaged { path: path.to_owned(), at: at as u64, why });
    }
    contents.objects = objects
        .into_iter()
        .map(|((resource, key), (value, revision))| (resource, key, value, revision))
        .collect();
    Ok((contents, at as u64))
}

/// The record at a place, if it is whole, and where the next one begins.
fn frame(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let word = |from: usize| -> Option<u32> {
        Some(u32::from_le_bytes(bytes.get(from..from + 4)?.try_into().ok()?))
    };
    let length = usize::try_from(word(at)?).ok()?;
    let body = bytes.get(at + 8..(at + 8).checked_add(length)?)?;
    let newline = bytes.get(at + 8 + length) == Some(&b'\n');
    (newline && length > 0 && word(at + 4)? == checksum(body)).then_some((body, at + 8 + length + 1))
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::*;
    use serde_json::json;

    fn map(name: &str, text: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": {"t": text}})
    }

    #[test]
    fn what_was_written_is_there_after_a_restart_and_revisions_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let maps: Arc<str> = "configmaps".into();
        let mut store = Store::open(dir.path(), 10).unwrap();
        store.put(&maps, map("a", "1")).unwrap();
        store.put(&maps, map("b", "1")).unwrap();
        store.put(&maps, map("a", "2")).unwrap();
        let last = store.remove(&maps, map("b", "1")).unwrap().revision;
        drop(store);
        let store = Store::open(dir.path(), 10).unwrap();
        assert_eq!(store.revision(), last);
        let all: Vec<_> =
            store.list("configmaps", "").map(|object| object.value()["data"]["t"].clone()).collect();
        assert_eq!(all, ["2"]);
        assert!(
            store.changes("configmaps", last - 1).is_err(),
            "what happened before the restart is forgotten"
        );
    }

    #[test]
    fn a_half_written_record_is_cut_off_and_damage_elsewhere_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let maps: Arc<str> = "configmaps".into();
        let path = dir.path().join(NAME);
        let mut store = Store::open(dir.path(), 10).unwrap();
        store.put(&maps, map("a", "1")).unwrap();
        store.put(&maps, map("b", "1")).unwrap();
        drop(store);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let store = Store::open(dir.path(), 10).unwrap();
        assert_eq!(store.count("configmaps"), 1);
        drop(store);
        let mut damaged = whole.clone();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 20;
        damaged[first] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(matches!(Store::open(dir.path(), 10), Err(Trouble::Damaged { .. })));
    }

    #[test]
    fn two_at_once_and_a_newer_format_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), 10).unwrap();
        assert!(matches!(Store::open(dir.path(), 10), Err(Trouble::InUse { .. })));
        drop(store);
        fs::write(dir.path().join(NAME), "{\"trainyardState\":2,\"revision\":1}\n").unwrap();
        assert!(matches!(Store::open(dir.path(), 10), Err(Trouble::Newer { found: 2, .. })));
        fs::write(dir.path().join(NAME), "hello\n").unwrap();
        assert!(matches!(Store::open(dir.path(), 10), Err(Trouble::Foreign { .. })));
    }
}
