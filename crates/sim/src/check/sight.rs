//! What an operator could know when it decided: nobody is blamed for what no watch had told, and everybody for the rest.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use trainyard_operator::{JobKey, Watched};

use super::Checker;
use crate::server::Actor;

/// What an operator had been told when it began the look at a job from which it now acts.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    /// So many events of each watch.
    pub(crate) seen: [usize; Watched::ALL.len()],
    /// Without these, which were lost: kind and number.
    pub(crate) missed: BTreeSet<(usize, usize)>,
    /// Its clock then, and how far that is ahead of the true time.
    pub(crate) wall: Timestamp,
    pub(crate) ahead: SignedDuration,
    /// How often that had been set by then.
    pub(crate) clock_set: usize,
}

impl Sight {
    /// Whether it had been told of this event.
    pub(super) fn has(&self, kind: Watched, event: usize) -> bool {
        event < self.seen[kind as usize] && !self.missed.contains(&(kind as usize, event))
    }

    /// Whether it will never be told of something.
    pub(super) fn misses(&self, kind: Watched) -> bool {
        self.missed.iter().any(|(lost, _)| *lost == kind as usize)
    }
}

/// Who wrote the status of a job last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    /// Nobody, if the answer was lost: then it is known when the watch has told.
    pub(super) process: Option<usize>,
    pub(super) version: u64,
    /// The event that tells of it.
    pub(super) event: usize,
}

impl Checker {
    /// An operator begins a look.
    pub(crate) fn looks(&mut self, process: usize, job: JobKey, sight: Sight) {
        match self.sights.iter_mut().find(|(who, about, _)| *who == process && *about == job) {
            Some(known) => known.2 = sight,
            None => self.sights.push((process, job, sight)),
        }
    }

    /// What this operator acts from. Of what was sent earlier and lands late, nobody knows any more.
    pub(super) fn sight(&self, by: Actor, job: &str) -> Option<&Sight> {
        let Actor::Operator(process) = by else { return None };
        let known = self.sights.iter().find(|(who, about, _)| *who == process && *about.name == *job);
        known.map(|(.., sight)| sight)
    }

    /// What its clock was when it began, and is now, unless somebody has set it meanwhile: it decided in between.
    pub(super) fn walls(&self, by: Actor, job: &str, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let sight = self.sight(by, job).filter(|sight| sight.clock_set == self.clock_set)?;
        Some((sight.wall, now + sight.ahead))
    }
}
