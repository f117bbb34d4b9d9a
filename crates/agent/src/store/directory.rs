//! A mounted directory.
//!
//! Links are never followed, and only regular files are opened, without waiting: a pipe in a checkpoint directory must not
//! stop the agent.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::{Entry, Kind, Listing, OURS, Store, StoreError};
use crate::room::Room;

/// Deeper than any framework goes.
const DEPTH: usize = 12;

/// More entries than a checkpoint directory has: a sign that it is something else.
const MOST: usize = 200_000;

/// More bytes of paths than fit into the agent's memory, with all that is made of them.
const MOST_BYTES: usize = 24 << 20;

/// What other software keeps in directories, and nobody may touch.
const NOT_CHECKPOINTS: [&str; 4] = [OURS, "lost+found", ".snapshot", ".snapshots"];

#[derive(Debug)]
pub struct Directory {
    place: String,
    root: PathBuf,
}

impl Directory {
    pub fn new(place: &str) -> Self {
        let place = if place.len() > 1 { place.trim_end_matches('/') } else { place };
        Self { place: place.to_owned(), root: PathBuf::from(place) }
    }

    fn full(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn failed(&self, path: &str, error: &std::io::Error) -> StoreError {
        StoreError::of_io(&self.full(path).to_string_lossy(), error)
    }

    fn make_room_for(&self, path: &str) -> Result<(), StoreError> {
        refuse_links(&self.root, path)?;
        // A place that is missing is not mounted. Were it made, nobody would be told any more.
        if !self.root.exists() {
            return Err(StoreError::Missing(self.place.clone()));
        }
        let full = self.full(path);
        full.parent().map_or(Ok(()), fs::create_dir_all).map_err(|error| self.failed(path, &error))
    }

    /// Wherever this is cut off, what is left does not look complete, since the files go in the right order.
    fn remove_in_place(&self, root: &str, files: &[&str]) -> Result<(), StoreError> {
        for path in files {
            match fs::remove_file(self.full(path)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(self.failed(path, &error));
                }
                _ => {}
            }
        }
        match fs::symlink_metadata(self.full(root)) {
            Ok(metadata) if metadata.is_dir() => {
                fs::remove_dir_all(self.full(root)).map_err(|error| self.failed(root, &error))
            }
            _ => Ok(()),
        }
    }

    /// `bytes` are those of all paths so far.
    fn walk(&self, below: &str, depth: usize, real_root: &Path, listing: &mut Listing, bytes: &mut usize) {
        let items = match fs::read_dir(self.full(below)) {
            Ok(items) => items,
            Err(error) => return listing.note(self.failed(below, &error)),
        };
        for item in items {
            let item = match item {
                Ok(item) => item,
                Err(error) => {
                    listing.note(self.failed(below, &error));
                    continue;
                }
            };
            // A name that is not UTF-8 cannot be given to a program in a variable either.
            let Ok(name) = item.file_name().into_string() else { continue };
            if below.is_empty() && NOT_CHECKPOINTS.contains(&name.as_str()) {
                continue;
            }
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            *bytes += path.len();
            if listing.entries.len() >= MOST || *bytes > MOST_BYTES {
                let limit = listing.entries.len();
                return listing.note(StoreError::TooMany { place: self.place.clone(), limit });
            }
            // Of the entry itself, not of what a link leads to.
            let metadata = match item.metadata() {
                Ok(metadata) => metadata,
                Err(error) => {
                    listing.note(self.failed(&path, &error));
                    continue;
                }
            };
            let kind = if metadata.is_symlink() {
                Kind::Link { target: target_inside(&item.path(), real_root) }
            } else if metadata.is_dir() {
                Kind::Directory
            } else if metadata.is_file() {
                Kind::File { size: metadata.len() }
            } else {
                continue;
            };
            let is_directory = kind == Kind::Directory;
            let modified = metadata.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
            listing.entries.push(Entry { path: path.clone(), kind, modified, tag: metadata.ino() });
            if is_directory && depth < DEPTH {
                self.walk(&path, depth + 1, real_root, listing, bytes);
            }
        }
    }
}

impl Listing {
    /// What vanishes while it is being listed is no problem: programs remove their old checkpoints themselves.
    fn note(&mut self, problem: StoreError) {
        if matches!(problem, StoreError::Vanished(_)) {
            return;
        }
        self.is_incomplete = true;
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// What is ours is written and removed without being asked about: it must not be elsewhere. Of other paths, no listing leads
/// through a link.
pub(crate) fn refuse_links(root: &Path, path: &str) -> Result<(), StoreError> {
    let inside = Path::new(path);
    if !inside.starts_with(OURS) {
        return Ok(());
    }
    // The last part, too: what is to be replaced or emptied must not be a link either.
    for ours in inside.ancestors().filter(|ours| !ours.as_os_str().is_empty()) {
        let full = root.join(ours);
        if fs::symlink_metadata(&full).is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(StoreError::Link(full.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}

/// Where a link leads, if that exists and is inside. A loop leads nowhere.
fn target_inside(link: &Path, real_root: &Path) -> Option<String> {
    let target = fs::canonicalize(link).ok()?;
    let inside = target.strip_prefix(real_root).ok()?.to_str()?;
    (!inside.is_empty()).then(|| inside.to_owned())
}

impl Store for Directory {
    fn place(&self) -> &str {
        &self.place
    }

    fn list(&self) -> Result<Listing, StoreError> {
        let real_root = fs::canonicalize(&self.root).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => StoreError::Missing(self.place.clone()),
            _ => StoreError::of_io(&self.place, &error),
        })?;
        if !real_root.is_dir() {
            return Err(StoreError::NotADirectory(self.place.clone()));
        }
        fs::read_dir(&self.root).map_err(|error| StoreError::of_io(&self.place, &error))?;
        let mut listing = Listing::default();
        self.walk("", 0, &real_root, &mut listing, &mut 0);
        Ok(listing)
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let failed = |error: std::io::Error| self.failed(path, &error);
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(self.full(path))
            .map_err(failed)?;
        file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
        let mut content = Vec::new();
        file.take(range.end.saturating_sub(range.start)).read_to_end(&mut content).map_err(failed)?;
        Ok(content)
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<(), StoreError> {
        self.make_room_for(path)?;
        let unfinished = format!("{path}.tmp");
        fs::write(self.full(&unfinished), content).map_err(|error| self.failed(&unfinished, &error))?;
        fs::rename(self.full(&unfinished), self.full(path)).map_err(|error| self.failed(path, &error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.make_room_for(to)?;
        fs::rename(self.full(from), self.full(to)).map_err(|error| self.failed(from, &error))
    }

    fn exists(&self, path: &str) -> Result<bool, StoreError> {
        match fs::symlink_metadata(self.full(path)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed(path, &error)),
        }
    }

    fn written(&self, path: &str) -> Option<Timestamp> {
        fs::symlink_metadata(self.full(path)).and_then(|it| it.modified()).ok()?.try_into().ok()
    }

    fn renames_at_once(&self) -> bool {
        true
    }

    fn remove(&self, root: &str, files: &[&str]) -> Result<(), StoreError> {
        // Renaming takes it out of sight at once. The trash is emptied before, too: an agent may have been killed over it.
        let trash = format!("{OURS}/trash");
        refuse_links(&self.root, &trash)?;
        let empty = || match fs::remove_dir_all(self.full(&trash)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.failed(&trash, &error)),
            _ => Ok(()),
        };
        empty()?;
        match self.rename(root, &format!("{trash}/{root}")) {
            Ok(()) => empty(),
            // There is no room even for the trash. What is removed makes some.
            Err(StoreError::NoSpace(_)) => self.remove_in_place(root, files),
            Err(error) => Err(error),
        }
    }

    fn room(&self) -> Option<Room> {
        let told = rustix::fs::statvfs(&self.root).ok()?;
        let (bytes, all_bytes) = (told.f_bavail, told.f_blocks);
        Some(Room {
            bytes: bytes.saturating_mul(told.f_frsize),
            all_bytes: all_bytes.saturating_mul(told.f_frsize),
            files: told.f_favail,
            all_files: told.f_files,
        })
    }
}
