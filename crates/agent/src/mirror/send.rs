//! What the thread that sends does with one checkpoint: its files, its marker, and then what it has made old.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::marker::{LARGEST_MARKER, Marker, Part, markers};
use crate::store::{Bucket, Store, StoreError};
use crate::tree;
use crate::upkeep;

pub(super) struct Job {
    pub(super) root: PathBuf,
    pub(super) marker: Marker,
    /// What has arrived of the same path.
    pub(super) earlier: Option<Marker>,
    /// Whether it is the newest of all: others are not named as that.
    pub(super) is_newest: bool,
    pub(super) keep: usize,
    /// Paths that stay.
    pub(super) protected: BTreeSet<String>,
    /// Names that stay, wherever they are.
    pub(super) best: Vec<String>,
    pub(super) untouchable: Vec<Marker>,
}

pub(super) enum Outcome {
    Sent(Marker, Cleaning),
    /// It changed or went away in the meantime. Its path.
    Moot(String),
    Failed(StoreError),
}

/// What became of the old checkpoints in the bucket.
#[derive(Default)]
pub(super) struct Cleaning {
    /// Paths.
    pub(super) removed: Vec<String>,
    pub(super) problem: Option<StoreError>,
}

pub(super) fn send(bucket: &Bucket, mut job: Job) -> Outcome {
    let sent = placed(bucket, &mut job).and_then(|place| match place {
        Place::Taken => Ok(true),
        Place::Free => try_to_send(bucket, &job),
    });
    match sent {
        Ok(true) => {
            // It is there, whatever becomes of the old ones.
            let cleaning = retain(bucket, &job);
            Outcome::Sent(job.marker, cleaning)
        }
        // What vanished is a file of the directory, since nothing of the bucket was needed.
        Ok(false) | Err(StoreError::Vanished(_)) => Outcome::Moot(job.marker.path),
        Err(error) => Outcome::Failed(error),
    }
}

enum Place {
    Free,
    /// By the same save.
    Taken,
}

/// Finds the place beside the earlier save. The bucket is asked which that is: a marker may have been written although nobody heard of
/// it, and then what it names must not be written over. It may be of this very save, which then need not be sent again.
fn placed(bucket: &Bucket, job: &mut Job) -> Result<Place, StoreError> {
    // Its object is replaced as a whole.
    if job.marker.is_one_file() {
        return Ok(Place::Free);
    }
    let name = Marker::name(&job.marker.path);
    job.earlier = match bucket.read(&name, 0..LARGEST_MARKER) {
        Ok(content) => serde_json::from_slice(&content).ok(),
        Err(StoreError::Vanished(_)) => None,
        Err(error) => return Err(error),
    };
    if job.earlier.as_ref().is_some_and(|earlier| earlier.is_same(&job.marker))
        && let Some(marker) = markers(bucket)?.into_iter().find(|marker| marker.is_same(&job.marker))
    {
        (job.marker, job.earlier) = (marker, None);
        return Ok(Place::Taken);
    }
    job.marker = job.earlier.iter().fold(job.marker.clone(), Marker::beside);
    Ok(Place::Free)
}

fn try_to_send(bucket: &Bucket, job: &Job) -> Result<bool, StoreError> {
    let Job { root, marker, earlier, is_newest, .. } = job;
    let name = Marker::name(&marker.path);
    // One that does not count now must not begin to, of files of two saves.
    if earlier.is_none() && !marker.is_one_file() {
        bucket.remove(&name, &[&name])?;
    }
    for part in &marker.files {
        // A program that writes over its own checkpoint may do so while we read it.
        if !bucket.upload(&root.join(&part.path), part.object(), &|metadata| part.is(metadata))? {
            return Ok(false);
        }
    }
    // For people who fetch it by hand.
    if let Some((path, content)) = marker.pointer().filter(|_| *is_newest) {
        bucket.write(&path, content.as_bytes())?;
    }
    let content = serde_json::to_vec(marker)
        .map_err(|error| StoreError::Other { place: name.clone(), reason: error.to_string() })?;
    bucket.write(&name, &content)?;
    Ok(true)
}

/// Removes what may go from the bucket; markers first.
fn retain(bucket: &Bucket, job: &Job) -> Cleaning {
    let mut cleaning = Cleaning::default();
    cleaning.problem = try_to_retain(bucket, job, &mut cleaning.removed).err();
    cleaning
}

fn try_to_retain(bucket: &Bucket, job: &Job, removed: &mut Vec<String>) -> Result<(), StoreError> {
    let replaced = replaced(job);
    if job.keep == 0 && replaced.is_empty() {
        return Ok(());
    }
    let all = markers(bucket)?;
    let goes = going(&all, job);
    // An object may be of several: files that came one after another were sent first by themselves, and then together.
    let others = all.iter().filter(|marker| !goes.iter().any(|old| std::ptr::eq(*old, *marker)));
    let stays: BTreeSet<&str> =
        others.chain([&job.marker]).flat_map(|marker| &marker.files).map(Part::object).collect();
    let replaced: Vec<&str> = replaced.into_iter().filter(|object| !stays.contains(object)).collect();
    bucket.remove(&job.marker.path, &replaced)?;
    for marker in goes {
        let name = Marker::name(&marker.path);
        let files = marker.own_files().map(Part::object).filter(|object| !stays.contains(object));
        let files: Vec<&str> = std::iter::once(name.as_str()).chain(files).collect();
        // Without its marker it counts no more, even if the rest cannot be removed.
        removed.push(marker.path.clone());
        bucket.remove(tree::parent(&marker.path), &files)?;
    }
    Ok(())
}

/// Objects of the earlier save of the same path. If an agent is killed before they go, they are written over by the save
/// after the next.
fn replaced(job: &Job) -> Vec<&str> {
    let stays: BTreeSet<&str> = job.marker.files.iter().map(Part::object).collect();
    let earlier = job.earlier.iter().flat_map(Marker::own_files).map(Part::object);
    earlier.filter(|object| !stays.contains(object)).collect()
}

/// What is surplus, and what was only a part of another.
fn going<'a>(all: &'a [Marker], job: &Job) -> Vec<&'a Marker> {
    let Job { keep, best, untouchable, .. } = job;
    if *keep == 0 {
        return Vec::new();
    }
    let is_best =
        |marker: &&Marker| marker.roots.iter().any(|root| best.iter().any(|name| name == tree::name(root)));
    let mut protected = job.protected.clone();
    protected.extend(all.iter().filter(is_best).map(|marker| marker.path.clone()));
    let own = all.iter().filter(|marker| !untouchable.contains(marker));
    let is_part = |marker: &&Marker| {
        !protected.contains(&marker.path) && all.iter().any(|other| marker.is_part_of(other))
    };
    let (mut parts, whole): (Vec<&Marker>, Vec<&Marker>) = own.partition(is_part);
    parts.extend(upkeep::surplus(whole, *keep, &protected));
    parts
}
