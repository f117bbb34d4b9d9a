//! What a start afresh leaves behind: checkpoints that are neither resumed from, nor counted, nor removed.
//!
//! The list is kept beside them. An agent that is started again has to know it, and so has a later attempt of the job that
//! may resume again: the run before the start afresh may have come further.

use std::collections::HashSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::jobs::Job;
use crate::layouts::Candidate;
use crate::mirror::Marker;
use crate::store::{Entry, Store, StoreError};
use crate::tree::Tree;

const LIST: &str = ".trainyard/ignored";

/// A list that is larger is not ours.
const LARGEST: u64 = 16 << 20;

/// One save of a checkpoint, or of a part of one that is a file by itself. Another one under the same name is another matter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Save {
    path: String,
    size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ignored {
    job: Job,
    checkpoints: HashSet<Save>,
}

impl Save {
    pub(crate) fn of(candidate: &Candidate, tree: &Tree) -> Self {
        let entries = || candidate.files.iter().filter_map(|path| tree.get(path));
        let (size, time) =
            (entries().map(Entry::size).sum(), entries().filter_map(|entry| entry.modified).max());
        Self { path: candidate.path.clone(), size, time }
    }
}

impl From<&Marker> for Save {
    fn from(marker: &Marker) -> Self {
        Self { path: marker.path.clone(), size: marker.size(), time: marker.time() }
    }
}

impl Ignored {
    /// The list of this job; nothing if there is none. That of another job says nothing about this one, which decides for
    /// itself.
    pub(crate) fn read(store: &dyn Store, job: &Job) -> Result<Option<Self>, StoreError> {
        let content = match store.read(LIST, 0..LARGEST) {
            Ok(content) => content,
            Err(StoreError::Vanished(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let list = serde_json::from_slice::<Self>(&content).ok();
        Ok(list.filter(|list| list.job.is_same(job)))
    }

    pub(crate) fn write(&self, store: &dyn Store, job: &Job) -> Result<(), StoreError> {
        let list = Self { job: job.clone(), checkpoints: self.checkpoints.clone() };
        let content = serde_json::to_vec(&list)
            .map_err(|error| StoreError::Other { place: LIST.to_owned(), reason: error.to_string() })?;
        store.write(LIST, &content)
    }

    pub(crate) fn add(&mut self, saves: impl IntoIterator<Item = Save>) {
        self.checkpoints.extend(saves);
    }

    pub(crate) fn add_copies<'a>(&mut self, markers: impl IntoIterator<Item = &'a Marker>) {
        self.checkpoints.extend(markers.into_iter().map(Save::from));
    }

    /// However it seems to be now: the file that names the newest may have gone back with the start afresh.
    pub(crate) fn has_candidate(&self, candidate: &Candidate, tree: &Tree) -> bool {
        !self.checkpoints.is_empty() && self.checkpoints.contains(&Save::of(candidate, tree))
    }

    pub(crate) fn has_copy(&self, marker: &Marker) -> bool {
        !self.checkpoints.is_empty() && self.checkpoints.contains(&Save::from(marker))
    }
}
