//! The agent itself: what it is told, and what it does from look to look.

mod report;
mod start;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use trainyard_api::checkpoint::{AgentReport, CheckpointStatus};

use crate::copy::Copy;
use crate::crew::{Crews, Workers};
use crate::ignored::Ignored;
use crate::jobs::{self, Job};
use crate::layouts::{self, Candidate, Layout};
use crate::mirror::{Bell, Spared};
use crate::scan::{Checkpoint, Moment, Scanner, Survey, Writers};
use crate::store::{Store, StoreError};
use crate::tree;
use crate::upkeep::{self, Quarantine};

use report::add_problems;
pub use start::Start;
pub(crate) use start::{FIRST_BREAK, LET_GO, LONGEST_BREAK};

/// What the agent is told.
#[derive(Clone, Debug)]
pub struct Options {
    pub layouts: Vec<Layout>,
    /// How many complete checkpoints to keep; 0 keeps all.
    pub keep_last: usize,
    /// What this attempt was told to go on from.
    pub resumed_from: Option<String>,
    pub resume: Resume,
    /// Made when the program may start.
    pub ready_file: Option<PathBuf>,
    /// Differs from attempt to attempt, and from job to job.
    pub attempt: Option<String>,
}

/// Does the job go on from what is there?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    Auto,
    Never,
}

pub struct Agent {
    store: Box<dyn Store>,
    options: Options,
    scanner: Scanner,
    copy: Option<Copy>,
    start: Start,
    /// What was found last, for when storage does not answer.
    last_seen: Option<CheckpointStatus>,
    /// What was there before, and is not to be used.
    ignored: Ignored,
    job: Job,
    /// Another job that is at work in the same place: nobody can tell which checkpoint is whose.
    other_job: Option<String>,
    next_beat: Duration,
    /// Problems that are not of a single look.
    lasting_problems: Vec<String>,
    /// What was moved aside before the start.
    quarantine: Quarantine,
    /// What was said when the program was held last, and when to try again.
    held: AgentReport,
    held_until: Duration,
    held_for: Duration,
    /// Since when the credentials have been refused.
    refused_since: Option<Duration>,
    /// How many this attempt has.
    workers: Option<Workers>,
    /// Stands for what they run.
    inputs: Option<String>,
    /// Those of all attempts, if that is known.
    crews: Option<Crews>,
    /// Where to read how many checkpoints to keep: that may change while the agent runs.
    keep_last_file: Option<PathBuf>,
    /// The agent is about to end: what matters now is the newest checkpoint, and what is of its own.
    is_ending: bool,
    /// What is to be copied next, or is under way.
    unsent: Option<String>,
    before_letting_go: Option<Box<dyn Fn()>>,
}

impl Agent {
    pub fn new(store: Box<dyn Store>, options: Options) -> Self {
        let scanner = Scanner::new(options.layouts.clone());
        let (ignored, lasting_problems) = (Ignored::default(), Vec::new());
        let job = Job::of_attempt(options.attempt.as_deref());
        Self {
            store,
            options,
            scanner,
            copy: None,
            start: Start::Ready,
            last_seen: None,
            ignored,
            job,
            other_job: None,
            next_beat: Duration::ZERO,
            lasting_problems,
            quarantine: Quarantine::default(),
            held: AgentReport::default(),
            held_until: Duration::ZERO,
            held_for: Duration::ZERO,
            refused_since: None,
            workers: None,
            inputs: None,
            crews: None,
            keep_last_file: None,
            is_ending: false,
            unsent: None,
            before_letting_go: None,
        }
    }

    /// Keeps a copy of the directory in a bucket; `restores` from it at the start.
    ///
    /// A checkpoint is then reported when its copy is complete, and by its place in the bucket: the directory may go with
    /// the pod.
    #[must_use]
    pub fn with_copy_in(mut self, url: &str, variables: Vec<(String, String)>, restores: bool) -> Self {
        self.copy = Some(Copy::new(url, variables, restores));
        self
    }

    /// The name of the pod tells a job that was made again from another one.
    #[must_use]
    pub fn in_pod(mut self, name: String) -> Self {
        self.job = self.job.in_pod(name);
        self
    }

    /// Has this called before the program may be running: from then on there may be something to save.
    #[must_use]
    pub fn before_letting_go(mut self, call: Box<dyn Fn()>) -> Self {
        self.before_letting_go = Some(call);
        self
    }

    /// How many may save their parts of a checkpoint.
    #[must_use]
    pub fn with_workers(mut self, workers: Workers) -> Self {
        self.workers = Some(workers);
        self
    }

    /// What the workers run, as a text that changes with it: another program may save in fewer ranks.
    #[must_use]
    pub fn with_inputs(mut self, inputs: String) -> Self {
        self.inputs = Some(inputs);
        self
    }

    /// How many checkpoints to keep stands in this file, and may change. While it cannot be read, the last number counts.
    #[must_use]
    pub fn with_keep_last_in(mut self, file: PathBuf) -> Self {
        self.keep_last_file = Some(file);
        self
    }

    fn reread_keep_last(&mut self) {
        let text = self.keep_last_file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        if let Some(number) = text.and_then(|text| text.trim().parse().ok()) {
            self.options.keep_last = number;
        }
    }

    /// The first look. Decides whether the program may start, and lets it.
    pub fn begin(&mut self, now: Moment) -> AgentReport {
        self.lasting_problems.clear();
        self.quarantine.problems.clear();
        match self.try_to_begin(now) {
            Ok(report) => report,
            Err(error) => self.hold(&error, now),
        }
    }

    /// A place in a bucket, and a directory with a copy, are a job's own.
    fn may_be_shared(&self) -> bool {
        self.copy.is_none() && self.store.renames_at_once() && !self.job.is_unknown()
    }

    /// Only where a look has worked: a note would make a directory that is missing.
    fn listen_for_others(&mut self, now: Moment) {
        if !self.may_be_shared() {
            return;
        }
        let due = now.elapsed >= self.next_beat;
        if due {
            self.next_beat = now.elapsed + jobs::BEAT;
        }
        // Before every removal: another may have begun just now. What cannot be read is told by the look.
        self.other_job = jobs::hear(self.store.as_ref(), &self.job, now.wall, due).unwrap_or_default();
    }

    /// What is to be ignored in this directory, if this job has ever started afresh in it.
    fn noted_as_ignored(&mut self) -> Option<Ignored> {
        let noted = Ignored::read(self.store.as_ref(), &self.job);
        noted.unwrap_or_else(|error| {
            self.lasting_problems.push(error.to_string());
            None
        })
    }

    fn ignore(&mut self, ignored: Ignored) {
        self.scanner.ignores(ignored.clone());
        self.ignored = ignored;
    }

    fn tend_copy(&mut self, now: Moment) {
        let attempt = self.options.attempt.as_deref().unwrap_or_default();
        if let Some(copy) = &mut self.copy {
            copy.tend(attempt, (self.options.resume, &self.job), now);
        }
    }

    /// Any later look.
    pub fn look(&mut self, now: Moment) -> AgentReport {
        match self.start {
            Start::Held if now.elapsed < self.held_until => self.held.clone(),
            Start::Held => self.begin(now),
            Start::Ready => self.look_at(now, Writers::Some),
            // The program has not started.
            Start::Differs => self.look_at(now, Writers::None),
        }
    }

    fn look_at(&mut self, now: Moment, writers: Writers) -> AgentReport {
        self.reread_keep_last();
        let survey = match self.scanner.look(self.store.as_ref(), now, writers) {
            Ok(survey) => survey,
            Err(error) => return self.failed(&error),
        };
        self.listen_for_others(now);
        if self.start == Start::Differs {
            return self.report(&survey);
        }
        let protected = self.protected(&survey);
        self.send_next(&survey, &protected, now);
        let mut report = self.report(&survey);
        // What is complete only because nobody writes any more is not enough to remove another for: it may be that
        // somebody does.
        if !self.is_ending {
            add_problems(&mut report, self.keep_house(&survey, protected));
        }
        // What was removed has made room.
        add_problems(&mut report, self.lack_of_room(&survey));
        report
    }

    /// The last look. Waits until all that is to be kept has been copied, if there is to be a copy, or something has failed:
    /// then [`Self::is_owing`].
    pub fn finish(&mut self, now: Moment) -> AgentReport {
        self.is_ending = true;
        if self.start != Start::Ready || self.copy.is_none() {
            let writers = self.writers_at_the_end();
            let report =
                if self.start == Start::Held { self.held.clone() } else { self.look_at(now, writers) };
            if self.may_be_shared() {
                // If it cannot be noted, others see it after a while.
                let _ = jobs::end(self.store.as_ref(), &self.job);
            }
            return report;
        }
        // What is under way may be an older one.
        loop {
            if let Some(copy) = &mut self.copy {
                copy.hurry();
            }
            let report = self.look_at(now, Writers::None);
            let Some(copy) = self.copy.as_mut().filter(|copy| copy.mirror.under_way().is_some()) else {
                return report;
            };
            if !copy.mirror.finish(now.elapsed) {
                break;
            }
        }
        match self.scanner.look(self.store.as_ref(), now, Writers::None) {
            Ok(survey) => self.report(&survey),
            Err(error) => self.failed(&error),
        }
    }

    /// An agent beside a program is told to end when that has ended. Programs in other pods may go on in the same directory.
    fn writers_at_the_end(&self) -> Writers {
        let is_alone = self.copy.is_some() || self.workers.is_some_and(|workers| workers.pods == 1);
        if is_alone || self.start == Start::Differs { Writers::None } else { Writers::Some }
    }

    /// Is there anything that should be in the bucket and is not, although the agent is to end?
    pub fn is_owing(&self) -> bool {
        self.is_ending && self.unsent.is_some()
    }

    /// Does the bucket refuse it, which does not pass by itself?
    pub fn is_refused(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| {
            copy.problem.as_ref().is_some_and(StoreError::is_refusal) || copy.mirror.is_refused()
        })
    }

    /// Sends the newest of the checkpoints to be kept that the copy does not have, unless another is under way.
    fn send_next(&mut self, survey: &Survey, protected: &BTreeSet<String>, now: Moment) {
        let keep = self.options.keep_last;
        self.tend_copy(now);
        let resumed_from = self.resumed_from_inside().map(str::to_owned);
        let store = self.store.as_ref();
        let Some(copy) = &mut self.copy else { return };
        copy.mirror.catch_up(now.elapsed);
        let mut stay: Vec<&Checkpoint> = survey.complete.iter().collect();
        let surplus = upkeep::surplus(stay.iter().copied(), keep, protected);
        stay.retain(|checkpoint| !surplus.iter().any(|old| old.candidate.path == checkpoint.candidate.path));
        if self.is_ending && !stay.is_empty() {
            // There may not be the time for all of them: `final.pt` is worth more than an old one of a row.
            stay[1..].sort_by_key(|checkpoint| upkeep::is_one_of_many(&checkpoint.candidate.path));
        }
        let unsent = stay.iter().find(|checkpoint| !copy.mirror.has(checkpoint, &survey.tree));
        self.unsent = unsent.map(|checkpoint| checkpoint.candidate.path.clone());
        if !copy.is_known {
            return;
        }
        let spared = || spared(survey, store, resumed_from);
        copy.mirror.offer(store.place(), (survey, keep), &stay, spared, now.elapsed);
    }

    /// Has a bell rung whenever a copy has arrived, or failed to: then it is time for a look.
    pub fn rings(&self, bell: Bell) {
        if let Some(copy) = &self.copy {
            copy.mirror.rings(bell);
        }
    }

    pub fn start(&self) -> Start {
        self.start
    }

    /// What is not removed from the directory, however old it is.
    fn protected(&self, survey: &Survey) -> BTreeSet<String> {
        // Usually there is nothing to remove, and nothing has to be read to know it.
        if self.options.keep_last == 0 || survey.complete.len() <= self.options.keep_last {
            return BTreeSet::new();
        }
        let resumed_from = self.resumed_from_inside().map(str::to_owned);
        let Spared { paths: mut protected, best } = spared(survey, self.store.as_ref(), resumed_from);
        let candidates = survey.complete.iter().map(|checkpoint| &checkpoint.candidate);
        let is_best = |candidate: &&Candidate| {
            candidate.roots.iter().any(|root| best.iter().any(|name| name == tree::name(root)))
        };
        protected.extend(candidates.filter(is_best).map(|candidate| candidate.path.clone()));
        protected
    }

    fn keep_house(&self, survey: &Survey, mut protected: BTreeSet<String>) -> Vec<String> {
        if self.other_job.is_some() || survey.is_incomplete {
            return Vec::new();
        }
        let own: Vec<&Checkpoint> = survey.complete.iter().collect();
        protected.extend(self.copy.as_ref().and_then(|copy| copy.mirror.under_way()).map(str::to_owned));
        upkeep::retain(self.store.as_ref(), &own, self.options.keep_last, &protected)
    }

    /// What this attempt resumed from, as a path in the place.
    fn resumed_from_inside(&self) -> Option<&str> {
        self.inside(self.given()?)
    }

    /// What this attempt was told to go on from, if anything.
    fn given(&self) -> Option<&str> {
        self.options.resumed_from.as_deref().map(trimmed).filter(|path| !path.is_empty())
    }

    /// The part of a path, or of a URL in the copy, that is inside of the place.
    fn inside<'p>(&self, path: &'p str) -> Option<&'p str> {
        let copy = self.copy.as_ref().map(|copy| copy.place.as_str());
        copy.into_iter().chain([self.store.place()]).find_map(|place| inside(place, path))
    }
}

/// What is not removed, be it here or in the bucket, however old it is.
fn spared(survey: &Survey, store: &dyn Store, resumed_from: Option<String>) -> Spared {
    let mut paths = layouts::pointed_at(&survey.tree, store);
    paths.extend(resumed_from);
    paths.extend(survey.spared.iter().cloned());
    let newest = survey.complete.first();
    let best = newest.map(|newest| layouts::named_as_best(&newest.candidate, &survey.tree, store));
    Spared { paths, best: best.unwrap_or_default() }
}

/// The part of a path that is inside of a place; nothing if it is elsewhere.
pub(crate) fn inside<'p>(place: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(place.trim_end_matches('/'))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

fn trimmed(path: &str) -> &str {
    path.trim().trim_end_matches('/')
}
