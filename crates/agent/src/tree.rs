//! A listing, arranged so that layouts can ask what is in a directory.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::store::{Entry, Kind};

/// Everything in a place at one moment, by path.
///
/// No path is kept twice: there may be many, and the agent has little memory.
#[derive(Debug, Default)]
pub struct Tree {
    /// Sorted by path.
    entries: Vec<Entry>,
    /// What is directly in each directory, as places in the entries.
    children: HashMap<String, Vec<usize>>,
}

impl Tree {
    pub fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        // In a bucket, an object and a directory may have the same name.
        entries.dedup_by(|later, earlier| {
            let is_same = later.path == earlier.path;
            if is_same {
                std::mem::swap(later, earlier);
            }
            is_same
        });
        let mut children: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let parent = parent(&entry.path);
            match children.get_mut(parent) {
                Some(beside) => beside.push(at),
                None => _ = children.insert(parent.to_owned(), vec![at]),
            }
        }
        Self { entries, children }
    }

    pub fn get(&self, path: &str) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| entry.path.as_str().cmp(path)).ok()?;
        self.entries.get(at)
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub fn has_file(&self, path: &str) -> bool {
        self.get(path).is_some_and(Entry::is_file)
    }

    /// Paths of the directories, the place itself (an empty path) first.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        let below = self
            .entries
            .iter()
            .filter(|entry| entry.kind == Kind::Directory)
            .map(|entry| entry.path.as_str());
        std::iter::once("").chain(below)
    }

    /// What is directly in a directory, sorted.
    pub fn children(&self, directory: &str) -> impl Iterator<Item = &Entry> {
        self.children.get(directory).into_iter().flatten().map(|at| &self.entries[*at])
    }

    /// Names of what is directly in a directory.
    pub fn names<'a>(&'a self, directory: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.children.get(directory).into_iter().flatten().map(|at| name(&self.entries[*at].path))
    }

    /// The files in a directory and in all directories below it.
    pub fn files_below(&self, directory: &str) -> Vec<&Entry> {
        if directory.is_empty() {
            return self.entries.iter().filter(|entry| entry.is_file()).collect();
        }
        let first = format!("{directory}/");
        let begin = self.entries.partition_point(|entry| entry.path < first);
        self.entries[begin..]
            .iter()
            .take_while(|entry| entry.path.starts_with(&first))
            .filter(|entry| entry.is_file())
            .collect()
    }

    /// Bytes of these files in all.
    pub fn size_of(&self, paths: &[String]) -> u64 {
        paths.iter().filter_map(|path| self.get(path)).map(Entry::size).sum()
    }

    /// Changes when one of the files does.
    pub fn stamp<'a>(&self, paths: impl IntoIterator<Item = &'a String>) -> u64 {
        let mut hasher = DefaultHasher::new();
        for path in paths {
            path.hash(&mut hasher);
            if let Some(entry) = self.get(path) {
                (entry.size(), entry.modified, entry.tag).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

/// The directory that something is in; empty for the place itself.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The last part of a path.
pub fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// A path in a directory.
pub fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Is it somewhere below this directory?
pub(crate) fn is_inside(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}
