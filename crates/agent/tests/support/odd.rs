//! A directory on which something happens while it is listed and read.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::ops::Range;

use trainyard_agent::room::Room;
use trainyard_agent::store::{Directory, Listing, Store, StoreError};

pub(crate) struct Odd {
    directory: Directory,
    /// Why it cannot be listed at all, if it cannot.
    pub(crate) unlisted: Box<dyn Fn() -> Option<StoreError>>,
    /// Changes what is listed.
    pub(crate) listed: Box<dyn Fn(&mut Listing)>,
    /// Happens before a file is read: its path.
    pub(crate) before_read: Box<dyn Fn(&str)>,
    /// Sees how many bytes were read at once.
    pub(crate) was_read: Box<dyn Fn(usize)>,
    /// What is left, if not what the directory says.
    pub(crate) room: Box<dyn Fn() -> Option<Room>>,
}

impl Odd {
    /// In this directory, nothing odd happens yet.
    pub(crate) fn over(directory: Directory) -> Self {
        Self {
            directory,
            unlisted: Box::new(|| None),
            listed: Box::new(|_| {}),
            before_read: Box::new(|_| {}),
            was_read: Box::new(|_| {}),
            room: Box::new(|| None),
        }
    }
}

impl Store for Odd {
    fn place(&self) -> &str {
        self.directory.place()
    }
    fn list(&self) -> Result<Listing, StoreError> {
        if let Some(error) = (self.unlisted)() {
            return Err(error);
        }
        let mut listing = self.directory.list()?;
        (self.listed)(&mut listing);
        Ok(listing)
    }
    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        (self.before_read)(path);
        let content = self.directory.read(path, range)?;
        (self.was_read)(content.len());
        Ok(content)
    }
    fn write(&self, path: &str, content: &[u8]) -> Result<(), StoreError> {
        self.directory.write(path, content)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.directory.rename(from, to)
    }
    fn exists(&self, path: &str) -> Result<bool, StoreError> {
        self.directory.exists(path)
    }
    fn renames_at_once(&self) -> bool {
        self.directory.renames_at_once()
    }
    fn remove(&self, root: &str, files: &[&str]) -> Result<(), StoreError> {
        self.directory.remove(root, files)
    }
    fn room(&self) -> Option<Room> {
        (self.room)().or_else(|| self.directory.room())
    }
}
