//! A listing, arranged so that layouts can ask what is in a directory.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::store::{Entry, Kind};

/// Everything in a place at one moment, by path.
#[derive(Debug, Default)]
pub struct Tree {
    entries: BTreeMap<String, Entry>,
    children: HashMap<String, Vec<String>>,
}

impl Tree {
    pub fn new(entries: Vec<Entry>) -> Self {
        let mut tree = Self::default();
        for entry in entries {
            tree.children.entry(parent(&entry.path).to_owned()).or_default().push(entry.path.clone());
            tree.entries.insert(entry.path.clone(), entry);
        }
        for names in tree.children.values_mut() {
            names.sort();
        }
        tree
    }

    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub fn has_file(&self, path: &str) -> bool {
        self.get(path).is_some_and(Entry::is_file)
    }

    /// Paths of the directories, the place itself (an empty path) first.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        let below = self
            .entries
            .values()
            .filter(|entry| entry.kind == Kind::Directory)
            .map(|entry| entry.path.as_str());
        std::iter::once("").chain(below)
    }

    /// What is directly in a directory, sorted.
    pub fn children(&self, directory: &str) -> impl Iterator<Item = &Entry> {
        self.children.get(directory).into_iter().flatten().filter_map(|path| self.entries.get(path))
    }

    /// Names of what is directly in a directory.
    pub fn names<'a>(&'a self, directory: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.children.get(directory).into_iter().flatten().map(|path| name(path))
    }

    /// The files in a directory and in all directories below it.
    pub fn files_below(&self, directory: &str) -> Vec<&Entry> {
        if directory.is_empty() {
            return self.entries.values().filter(|entry| entry.is_file()).collect();
        }
        let first = format!("{directory}/");
        self.entries
            .range(first.clone()..)
            .take_while(|(path, _)| path.starts_with(&first))
            .map(|(_, entry)| entry)
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
