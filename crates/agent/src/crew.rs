//! Who writes checkpoints, and since when.
//!
//! Noted beside the checkpoints: a job may have more or fewer workers from one attempt to the next, or another program, and then its
//! checkpoints have more or fewer files. What such checkpoints lacked is noted, too, since they are moved aside before the next attempt.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::store::{Store, StoreError};

const NOTE: &str = ".trainyard/crew";

/// So many changes are remembered: older checkpoints are hardly there any more.
const MOST: usize = 50;

/// How many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workers {
    pub pods: u64,
    /// In each pod.
    pub processes: u64,
}

impl Workers {
    /// Nobody knows how many.
    const UNKNOWN: Self = Self { pods: 0, processes: 0 };
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Crew {
    workers: Workers,
    /// Stands for what they run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inputs: Option<String>,
    /// When they were let go. What is older is not theirs.
    since: Timestamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lacks: Vec<Lacked>,
}

/// How many checkpoints in a row lacked the same, compared with the last one that was whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lacked {
    /// That which was whole.
    pub(crate) after: String,
    pub(crate) missing: String,
    pub(crate) times: usize,
}

/// The workers of all attempts, oldest first. Those of several attempts in a row that have as many, and run the same, are one crew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crews(Vec<Crew>);

impl Crews {
    /// As noted. If they cannot be read, that says nothing.
    pub(crate) fn read(store: &dyn Store) -> Option<Self> {
        match store.read(NOTE, 0..64 << 10) {
            // Of a note that is damaged, nothing is left but that there was one.
            Ok(content) => Some(serde_json::from_slice(&content).unwrap_or_else(|_| Self::unknown())),
            Err(StoreError::Vanished(_)) => Some(Self::default()),
            Err(_) => None,
        }
    }

    fn unknown() -> Self {
        let (workers, since) = (Workers::UNKNOWN, Timestamp::MIN);
        Self(vec![Crew { workers, inputs: None, since, lacks: Vec::new() }])
    }

    /// These go on, and that is noted if it is new.
    pub(crate) fn go_on(
        &mut self,
        (workers, inputs): (Workers, Option<String>),
        since: Timestamp,
        store: &dyn Store,
    ) -> Result<(), StoreError> {
        if self.0.last().is_some_and(|last| last.workers == workers && last.inputs == inputs) {
            return Ok(());
        }
        self.0.push(Crew { workers, inputs, since, lacks: Vec::new() });
        self.0.drain(..self.0.len().saturating_sub(MOST));
        self.note(store)?;
        // What they save is stamped by the same clock.
        if let (Some(last), Some(since)) = (self.0.last_mut(), store.written(NOTE)) {
            last.since = since;
            self.note(store)?;
        }
        Ok(())
    }

    /// Notes what the checkpoints of the last of them lacked, before these are moved aside.
    pub(crate) fn lacked(&mut self, lacks: &[Lacked], store: &dyn Store) -> Result<(), StoreError> {
        let Some(last) = self.0.last_mut().filter(|last| last.lacks != lacks && !lacks.is_empty()) else {
            return Ok(());
        };
        last.lacks = lacks.to_vec();
        self.note(store)
    }

    /// How many have been moved aside for the same.
    pub(crate) fn times(&self, after: &str, missing: &str) -> usize {
        let lacks = self.0.last().map(|last| last.lacks.as_slice()).unwrap_or_default();
        let known = lacks.iter().find(|lacked| lacked.after == after && lacked.missing == missing);
        known.map_or(0, |lacked| lacked.times)
    }

    fn note(&self, store: &dyn Store) -> Result<(), StoreError> {
        let content = serde_json::to_vec(self)
            .map_err(|error| StoreError::Other { place: NOTE.to_owned(), reason: error.to_string() })?;
        store.write(NOTE, &content)
    }

    /// Which of them was at work then, as a number: 0 before the first that is known of. Nothing if there was one, but nobody knows which.
    pub(crate) fn at(&self, time: Option<Timestamp>) -> Option<usize> {
        let number = time.map_or(0, |time| self.0.iter().filter(|crew| crew.since <= time).count());
        let crew = number.checked_sub(1).and_then(|index| self.0.get(index));
        crew.is_none_or(|crew| crew.workers != Workers::UNKNOWN).then_some(number)
    }
}
