//! One look at everything: which checkpoints are complete, which are partial, and whether one is being written.
//!
//! What has not changed since the last look is not read again.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::layouts::{self, Candidate, Layout, Proof, Verdict, is_unfinished_name};
use crate::numbers::Numbers;
use crate::store::{Store, StoreError};
use crate::tree::{self, Tree};

/// What has changed within this time may still be being written.
pub const QUIET: Duration = Duration::from_secs(5);

/// A file from so far in the future was stamped by another clock.
const FUTURE: Duration = Duration::from_hours(1);

/// A moment, on two clocks: one that people read and that may jump, and one that only goes on.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub wall: Timestamp,
    pub elapsed: Duration,
}

/// May anybody be writing while we look?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// No: those of the attempt before are dead, and this one's have not started.
    None,
    Some,
}

/// A complete checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub candidate: Candidate,
    pub numbers: Numbers,
    /// When it was changed last.
    pub time: Option<Timestamp>,
    pub size: u64,
}

/// What a look found.
#[derive(Debug, Default)]
pub struct Survey {
    pub tree: Tree,
    /// Newest first.
    pub complete: Vec<Checkpoint>,
    /// With the reason.
    pub partial: Vec<(Candidate, String)>,
    pub is_writing: bool,
    pub problems: Vec<String>,
    /// There may be more than was seen.
    pub is_incomplete: bool,
}

/// Looks again and again, and remembers.
#[derive(Debug)]
pub struct Scanner {
    layouts: Vec<Layout>,
    known: HashMap<String, Known>,
    has_looked: bool,
}

#[derive(Debug)]
struct Known {
    layout: Layout,
    stamp: u64,
    changed_at: Option<Duration>,
    verdict: Verdict,
}

impl Scanner {
    pub fn new(layouts: Vec<Layout>) -> Self {
        Self { layouts, known: HashMap::new(), has_looked: false }
    }

    pub fn look(&mut self, store: &dyn Store, now: Moment, writers: Writers) -> Result<Survey, StoreError> {
        let listing = store.list()?;
        let mut survey = Survey { tree: Tree::new(listing.entries), ..Survey::default() };
        survey.problems.extend(listing.problems.iter().map(ToString::to_string));
        if listing.is_incomplete {
            survey.is_incomplete = true;
            survey.problems.push(format!(
                "{} cannot be listed as a whole: until it can, nothing in it is moved aside or removed",
                store.place()
            ));
        }
        let mut known = HashMap::new();
        for candidate in layouts::claim(&survey.tree, &self.layouts) {
            match self.know(&candidate, &survey.tree, store, now) {
                Ok(mine) => {
                    let is_changing =
                        writers == Writers::Some && is_changing(&mine.1, &candidate, &survey.tree, now);
                    survey.sort_in(candidate, &mine, is_changing, now);
                    known.insert(mine.0, mine.1);
                }
                // Programs remove their old checkpoints themselves.
                Err(StoreError::Vanished(_)) => {}
                Err(error) => survey.problems.push(error.to_string()),
            }
        }
        let is_recent = |entry: &&crate::store::Entry| is_near(entry.modified, now.wall);
        let is_unfinished = |entry: &&crate::store::Entry| is_unfinished_name(tree::name(&entry.path));
        if writers == Writers::Some
            && survey.tree.entries().filter(is_unfinished).any(|entry| is_recent(&entry))
        {
            survey.is_writing = true;
        }
        self.known = known;
        self.has_looked = true;
        sort_newest_first(&mut survey.complete, Checkpoint::place);
        survey.problems.sort();
        survey.problems.dedup();
        Ok(survey)
    }

    fn know(
        &mut self,
        candidate: &Candidate,
        tree: &Tree,
        store: &dyn Store,
        now: Moment,
    ) -> Result<(String, Known), StoreError> {
        let stamp = tree.stamp(candidate.files.iter().chain(&candidate.witnesses));
        let path = candidate.path.clone();
        match self.known.remove(&path) {
            Some(known) if known.stamp == stamp && known.layout == candidate.layout => Ok((path, known)),
            earlier => {
                let is_new = earlier.is_none() && !self.has_looked;
                let changed_at = (!is_new).then_some(now.elapsed);
                let verdict = layouts::judge(candidate, tree, store)?;
                Ok((path, Known { layout: candidate.layout, stamp, changed_at, verdict }))
            }
        }
    }
}

impl Survey {
    fn sort_in(
        &mut self,
        candidate: Candidate,
        (_, known): &(String, Known),
        is_changing: bool,
        now: Moment,
    ) {
        let place = &candidate.path;
        match &known.verdict {
            Verdict::Complete { proof: Proof::Quiet, .. } | Verdict::Partial(_) | Verdict::Unclear(_) if is_changing => {
                self.is_writing = true;
            }
            Verdict::Complete { numbers, .. } => {
                let time = last_change(&candidate, &self.tree);
                if time.is_some_and(|time| time.duration_since(now.wall).unsigned_abs() > FUTURE && time > now.wall) {
                    self.problems.push(format!(
                        "the time of {place} is in the future: set the clocks of the nodes and of the storage (NTP); \
                         steps and epochs decide about the newest checkpoint as long as names or contents tell them"
                    ));
                }
                let size = self.tree.size_of(&candidate.files);
                self.complete.push(Checkpoint { numbers: *numbers, time, size, candidate });
            }
            Verdict::Partial(why) => self.partial.push((candidate, why.clone())),
            Verdict::Unclear(why) => self.problems.push(format!(
                "{place} looks like a checkpoint, but {why}: it is left alone and not resumed from; remove it, or name the \
                 layout in checkpoint.layout"
            )),
            Verdict::Foreign => {}
        }
    }
}

/// Was it seen to change within the last few seconds, or does its time say so? The clock of the storage may be another one
/// than ours, so what was seen counts, too.
fn is_changing(known: &Known, candidate: &Candidate, tree: &Tree, now: Moment) -> bool {
    let was_seen = known.changed_at.is_some_and(|then| now.elapsed.saturating_sub(then) < QUIET);
    was_seen || is_near(last_change(candidate, tree), now.wall)
}

fn last_change(candidate: &Candidate, tree: &Tree) -> Option<Timestamp> {
    candidate.files.iter().filter_map(|path| tree.get(path)).filter_map(|entry| entry.modified).max()
}

/// Within a few seconds, before or after.
fn is_near(time: Option<Timestamp>, now: Timestamp) -> bool {
    time.is_some_and(|time| time.duration_since(now).unsigned_abs() < QUIET)
}

/// Where a checkpoint stands in the row of all.
#[derive(Clone, Debug)]
pub struct Place {
    pub numbers: Numbers,
    /// Nothing if nobody knows any more.
    pub layout: Option<Layout>,
    pub size: u64,
    pub time: Option<Timestamp>,
    pub path: String,
}

impl Checkpoint {
    pub fn place(&self) -> Place {
        Place {
            numbers: self.numbers,
            layout: Some(self.candidate.layout),
            size: self.size,
            time: self.time,
            path: self.candidate.path.clone(),
        }
    }
}

/// Sorts by step, then epoch, then time. Of those that have come equally far, the one of the layout that asks for more is the
/// better one to go on from, then the larger one: programs save notes beside their checkpoints.
///
/// A program may put the step into some names and not into others (`epoch-3.pt`, `epoch-3-step-610.pt`). Where not all have
/// a step, epochs decide first; where not all have an epoch either, the time. What has no number at all comes last: it
/// says nothing about where to go on.
pub fn sort_newest_first<T>(items: &mut [T], place: impl Fn(&T) -> Place) {
    let numbers = || items.iter().map(|item| place(item).numbers).filter(|numbers| !numbers.is_empty());
    let all_have_steps = numbers().all(|numbers| numbers.step.is_some());
    let all_have_epochs = numbers().all(|numbers| numbers.epoch.is_some());
    items.sort_by_cached_key(|item| {
        let Place { numbers: Numbers { step, epoch }, layout, size, time, path } = place(item);
        let by_number = if all_have_steps {
            (step, epoch)
        } else if all_have_epochs {
            (epoch, step)
        } else {
            (None, None)
        };
        let is_compared = by_number != (None, None);
        // What asks for more stands first among the layouts.
        let worth = is_compared.then_some((layout.map(Reverse), size));
        Reverse((step.is_some() || epoch.is_some(), by_number, worth, time, path))
    });
}
