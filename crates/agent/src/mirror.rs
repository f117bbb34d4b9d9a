//! A copy of the checkpoints in a bucket, for programs that know directories only.
//!
//! A checkpoint is sent file by file, and a marker with the list of its files last: what has no marker, or lacks a file
//! of it, was cut off and is never restored. A checkpoint that is saved again under the same name is sent beside the earlier
//! one, which goes when the new marker has taken the place of the old, so that one of the two is always there. A single
//! file needs no place beside: an object is replaced as a whole.

mod marker;
mod restore;
mod send;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use self::marker::{Marker, Part, markers};
pub use self::restore::{fetch, is_newer};
use self::send::{Cleaning, Job, Outcome, send};
use crate::outputs::Evidence;
use crate::scan::{self, Checkpoint, Survey};
use crate::store::{Bucket, StoreError};
use crate::tree::Tree;
use crate::upkeep::Kept;

/// After an upload that failed.
const BREAK: Duration = Duration::from_secs(15);

/// So many times in a row may a checkpoint change while it is sent, before that is told.
const HASTE: u32 = 3;

/// Sends checkpoints, one at a time, beside the looking.
pub struct Mirror {
    jobs: Sender<Job>,
    outcomes: Receiver<Outcome>,
    /// What has arrived, by path.
    arrived: HashMap<String, Marker>,
    under_way: Option<String>,
    problem: Option<String>,
    /// What changed while it was sent, and how many times in a row.
    hasty: HashMap<String, u32>,
    is_refused: bool,
    rest_until: Duration,
    /// What is not this job's to remove.
    untouchable: Vec<Marker>,
    bell: Arc<OnceLock<Bell>>,
}

/// Rung when something has been sent, or could not be.
pub type Bell = Box<dyn Fn() + Send + Sync>;

/// Makes a connection.
pub type Open = dyn Fn() -> Result<Bucket, StoreError> + Send + Sync;

/// What is to stay of what was sent, besides the newest.
#[derive(Clone, Debug, Default)]
pub struct Spared {
    /// Paths.
    pub paths: BTreeSet<String>,
    /// Names of what a program has found to be the best, wherever they are. After a restart they are in the bucket only.
    pub best: Vec<String>,
}

impl Mirror {
    /// `open` makes a connection for the thread that sends.
    pub fn new(open: Arc<Open>) -> Self {
        let (jobs, received) = channel::<Job>();
        let (tell, outcomes) = channel();
        let bell = Arc::new(OnceLock::<Bell>::new());
        let ring = bell.clone();
        std::thread::spawn(move || {
            let mut bucket = None;
            for job in received {
                // What is missing for it, such as a file with credentials, may have come by now.
                let outcome = match bucket.take().map_or_else(&*open, Ok) {
                    Ok(opened) => send(bucket.insert(opened), job),
                    Err(error) => Outcome::Failed(error),
                };
                // Credentials are read anew: files may have been corrected.
                if matches!(&outcome, Outcome::Failed(error) if error.is_about_credentials()) {
                    bucket = None;
                }
                if tell.send(outcome).is_err() {
                    return;
                }
                if let Some(ring) = ring.get() {
                    ring();
                }
            }
        });
        let (arrived, rest_until) = (HashMap::new(), Duration::ZERO);
        let untouchable = Vec::new();
        Self {
            jobs,
            outcomes,
            arrived,
            under_way: None,
            problem: None,
            hasty: HashMap::new(),
            is_refused: false,
            rest_until,
            untouchable,
            bell,
        }
    }

    /// Rings this from now on; the first one counts.
    pub fn rings(&self, bell: Bell) {
        let _ = self.bell.set(bell);
    }

    /// Never removes these.
    pub fn spares(&mut self, markers: &[Marker]) {
        self.untouchable.extend_from_slice(markers);
    }

    /// Ends the break after an upload that failed.
    pub fn hurry(&mut self) {
        self.rest_until = Duration::ZERO;
    }

    /// What an agent before this one sent.
    pub fn knows(&mut self, markers: Vec<Marker>) {
        self.arrived.extend(markers.into_iter().map(|marker| (marker.path.clone(), marker)));
    }

    pub fn has(&self, checkpoint: &Checkpoint, tree: &Tree) -> bool {
        self.arrived
            .get(&checkpoint.candidate.path)
            .is_some_and(|marker| marker.is_same(&Marker::of(checkpoint, tree)))
    }

    /// The newest that has arrived, also of agents before this one, unless it is not to be used.
    pub fn newest(&self) -> Option<&Marker> {
        let mut usable: Vec<&Marker> =
            self.arrived.values().filter(|marker| !self.untouchable.contains(marker)).collect();
        let states = Evidence::of(usable.iter().map(|marker| marker.thing()));
        usable.retain(|marker| !states.is_against(&marker.thing()));
        scan::sort_newest_first(&mut usable, |marker| marker.place());
        usable.first().copied()
    }

    /// What has arrived of an earlier save of this path, unless it is not to be used.
    pub fn earlier(&self, path: &str) -> Option<&Marker> {
        self.arrived.get(path).filter(|marker| !self.untouchable.contains(marker))
    }

    pub fn under_way(&self) -> Option<&str> {
        self.under_way.as_deref()
    }

    /// Was what was sent last refused?
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    pub fn problems(&self) -> Vec<String> {
        let hasty = self.hasty.iter().filter(|(_, times)| **times >= HASTE).map(|(path, _)| {
            format!(
                "{path} is saved again before it has been copied, so that the bucket does not get it: save less often, or \
                 under another name each time (with the step in it), or write to another name and rename it"
            )
        });
        self.problem.iter().cloned().chain(hasty).collect()
    }

    /// Notes what has happened since.
    pub fn catch_up(&mut self, elapsed: Duration) {
        while let Ok(outcome) = self.outcomes.try_recv() {
            self.note(outcome, elapsed);
        }
    }

    /// Waits for what is under way. Tells whether it has arrived.
    pub fn finish(&mut self, elapsed: Duration) -> bool {
        if self.under_way.is_none() {
            return false;
        }
        let Ok(outcome) = self.outcomes.recv() else { return false };
        let has_arrived = matches!(outcome, Outcome::Sent(..));
        self.note(outcome, elapsed);
        has_arrived
    }

    fn note(&mut self, outcome: Outcome, elapsed: Duration) {
        self.under_way = None;
        self.is_refused = matches!(&outcome, Outcome::Failed(error) if error.is_refusal());
        match outcome {
            Outcome::Sent(marker, Cleaning { removed, problem }) => {
                self.problem = problem
                    .map(|error| format!("old checkpoints could not be removed from the bucket: {error}"));
                self.hasty.remove(&marker.path);
                self.arrived.retain(|path, _| !removed.contains(path));
                self.arrived.insert(marker.path.clone(), marker);
            }
            Outcome::Moot(path) => *self.hasty.entry(path).or_default() += 1,
            Outcome::Failed(error) => {
                self.problem = Some(format!("a checkpoint could not be copied: {error}"));
                self.rest_until = elapsed + BREAK;
            }
        }
    }

    /// Sends the first of these that has not arrived and does not change all the time, and removes none of them. Tells whether there is anything under way
    /// now. `spared` is asked only if something is sent.
    pub fn offer(
        &mut self,
        root: &str,
        (survey, keep): (&Survey, usize),
        newest_first: &[&Checkpoint],
        spared: impl FnOnce() -> Spared,
        elapsed: Duration,
    ) -> bool {
        // What is not to be copied any more is no problem.
        self.hasty.retain(|path, _| newest_first.iter().any(|checkpoint| checkpoint.candidate.path == *path));
        if self.under_way.is_some() {
            return true;
        }
        if elapsed < self.rest_until {
            return false;
        }
        // What changed while it was sent may do so for ever: the others come first.
        let haste = |checkpoint: &Checkpoint| self.hasty.get(&checkpoint.candidate.path).copied();
        let unsent = newest_first.iter().filter(|checkpoint| !self.has(checkpoint, &survey.tree));
        let Some(next) = unsent.min_by_key(|checkpoint| haste(checkpoint)) else {
            return false;
        };
        let marker = Marker::of(next, &survey.tree);
        let earlier = self.arrived.get(&marker.path).cloned();
        self.under_way = Some(marker.path.clone());
        let offered = newest_first.iter().map(|checkpoint| checkpoint.candidate.path.as_str());
        let Spared { paths: mut protected, best } = spared();
        protected.extend(offered.map(str::to_owned));
        let untouchable = self.untouchable.clone();
        let is_newest = newest_first.first().is_some_and(|first| first.candidate.path == marker.path);
        let root = PathBuf::from(root);
        let job = Job { root, marker, earlier, is_newest, keep, protected, best, untouchable };
        if self.jobs.send(job).is_err() {
            self.under_way = None;
        }
        self.under_way.is_some()
    }
}
