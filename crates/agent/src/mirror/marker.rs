//! What says that a checkpoint has arrived in a bucket: the list of its files, written last.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::layouts;
use crate::numbers::Numbers;
use crate::outputs::{Evidence, Thing};
use crate::scan::{self, Checkpoint};
use crate::store::{Entry, Kind, Store, StoreError};
use crate::tree::Tree;
use crate::upkeep::Kept;

/// Behind the path of a checkpoint.
const MARKER: &str = ".complete";

/// Behind the name of a root that is sent again, every other time.
const AGAIN: &str = ".again";

/// A marker lists files; larger ones are not ours.
pub(super) const LARGEST_MARKER: u64 = 16 << 20;

/// What says that a checkpoint has arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The word for it; earlier versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    pub roots: Vec<String>,
    pub files: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub path: String,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<Timestamp>,
    /// The name of its object, if that is not its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

impl Marker {
    pub(super) fn of(checkpoint: &Checkpoint, tree: &Tree) -> Self {
        let part = |path: &String| {
            let entry = tree.get(path);
            let (size, modified) = (entry.map_or(0, Entry::size), entry.and_then(|entry| entry.modified));
            Part { path: path.clone(), size, modified, object: None }
        };
        let Numbers { step, epoch } = checkpoint.numbers;
        let candidate = &checkpoint.candidate;
        let files = candidate.files.iter().filter(|path| tree.has_file(path)).map(part);
        Self {
            path: candidate.path.clone(),
            step,
            epoch,
            layout: Some(candidate.layout.to_string()),
            roots: candidate.roots.clone(),
            files: files.collect(),
        }
    }

    pub fn time(&self) -> Option<Timestamp> {
        self.own_files().filter_map(|part| part.modified).max()
    }

    /// Bytes of what is its own.
    pub fn size(&self) -> u64 {
        self.own_files().map(|part| part.size).sum()
    }

    /// Without those that are beside it: earlier versions listed the file that names the newest checkpoint, which changes
    /// with every save.
    pub(super) fn own_files(&self) -> impl Iterator<Item = &Part> {
        let is_inside =
            |path: &str| self.roots.iter().any(|root| path == root || path.starts_with(&format!("{root}/")));
        self.files.iter().filter(move |part| is_inside(&part.path))
    }

    /// Do both stand for the same save?
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let numbers = |marker: &Self| (marker.step, marker.epoch);
        self.path == other.path
            && numbers(self) == numbers(other)
            && self.roots == other.roots
            && self.own_files().map(Part::content).eq(other.own_files().map(Part::content))
    }

    /// Is all of it in the other one, and not the other way round?
    pub(super) fn is_part_of(&self, other: &Self) -> bool {
        self.roots.len() < other.roots.len() && self.roots.iter().all(|root| other.roots.contains(root))
    }

    /// The same, with its objects where those of an earlier save are not.
    pub(super) fn beside(mut self, earlier: &Self) -> Self {
        let is_free = earlier.files.iter().any(|part| part.object.is_some());
        if is_free || self.is_one_file() {
            return self;
        }
        let roots = &self.roots;
        for part in &mut self.files {
            let inside = |root: &String| {
                let rest = part.path.strip_prefix(root.as_str())?;
                (rest.is_empty() || rest.starts_with('/')).then(|| format!("{root}{AGAIN}{rest}"))
            };
            part.object = roots.iter().find_map(inside);
        }
        self
    }

    /// The file that names it to its program, and what is to be in it.
    pub(super) fn pointer(&self) -> Option<(String, String)> {
        layouts::pointer_to(&self.path, self.files.iter().map(|part| part.path.as_str()))
    }

    /// Is it a single file? Its object is whole by itself, whichever of several saves it is of.
    pub(super) fn is_one_file(&self) -> bool {
        matches!(self.files.as_slice(), [part] if part.path == self.path)
    }

    pub(super) fn name(path: &str) -> String {
        format!("{path}{MARKER}")
    }

    pub(super) fn thing(&self) -> Thing<'_> {
        let layout = self.layout.as_deref().and_then(|word| word.parse().ok());
        Thing { layout, path: &self.path, files: Kept::files(self), time: self.place().time }
    }
}

impl Part {
    /// Its name in the bucket.
    pub(super) fn object(&self) -> &str {
        self.object.as_deref().unwrap_or(&self.path)
    }

    fn content(&self) -> (&str, u64, Option<Timestamp>) {
        (&self.path, self.size, self.modified)
    }

    pub(super) fn is(&self, metadata: &std::fs::Metadata) -> bool {
        let modified = metadata.modified().ok().and_then(|time| time.try_into().ok());
        metadata.len() == self.size && modified == self.modified
    }
}

impl Kept for Marker {
    fn place(&self) -> scan::Place {
        scan::Place {
            numbers: Numbers { step: self.step, epoch: self.epoch },
            layout: self.layout.as_deref().and_then(|word| word.parse().ok()),
            size: self.size(),
            time: self.time(),
            path: self.path.clone(),
        }
    }

    fn roots(&self) -> &[String] {
        &self.roots
    }

    fn files(&self) -> Vec<&str> {
        self.files.iter().map(|part| part.path.as_str()).collect()
    }
}

/// The complete checkpoints in a bucket, newest first.
pub fn markers(bucket: &dyn Store) -> Result<Vec<Marker>, StoreError> {
    let tree = Tree::new(bucket.list()?.entries);
    let is_marker = |path: &str, size: u64| {
        // Earlier versions copied what had not been finished.
        let is_finished = |path: &str| !layouts::is_unfinished(path);
        size <= LARGEST_MARKER && path.strip_suffix(MARKER).is_some_and(is_finished)
    };
    let mut markers = Vec::new();
    for entry in tree.entries().filter(|entry| entry.is_file() && is_marker(&entry.path, entry.size())) {
        let content = match bucket.read(&entry.path, 0..entry.size()) {
            Ok(content) => content,
            Err(StoreError::Vanished(_)) => continue,
            Err(error) => return Err(error),
        };
        let Ok(mut marker) = serde_json::from_slice::<Marker>(&content) else { continue };
        // The object may be of a later save than its marker, if an agent was killed between the two.
        if marker.is_one_file()
            && let Some(object) = tree.get(&marker.path)
        {
            marker.files[0].size = object.size();
        }
        let is_there = |part: &Part| {
            tree.get(part.object()).is_some_and(|entry| entry.kind == Kind::File { size: part.size })
        };
        let is_own = |path: &str| Path::new(path).is_relative() && !path.split('/').any(|part| part == "..");
        let is_sane = marker.roots.iter().all(|path| is_own(path))
            && marker.files.iter().all(|part| is_own(&part.path) && is_own(part.object()));
        if is_sane && marker.own_files().next().is_some() && marker.own_files().all(is_there) {
            markers.push(marker);
        }
    }
    // Earlier versions copied what a program had written beside its checkpoints.
    let states = Evidence::of(markers.iter().map(Marker::thing));
    markers.retain(|marker| !states.is_against(&marker.thing()));
    scan::sort_newest_first(&mut markers, Marker::place);
    Ok(markers)
}
