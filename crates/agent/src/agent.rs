//! The agent itself: what it decides at the start, and what it says.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::checkpoint::{AgentReport, CheckpointStatus};

use crate::copy::{Copy, Who};
use crate::ignored::Ignored;
use crate::jobs::{self, Job};
use crate::layouts::{self, Candidate, Layout};
use crate::mirror::{self, Bell, Marker};
use crate::numbers::Numbers;
use crate::room::Need;
use crate::scan::{self, Checkpoint, Moment, Place, Scanner, Survey, Writers};
use crate::store::{QUARANTINE, Store, StoreError};
use crate::upkeep::{self, Kept};

/// Which attempt has been let go, so that an agent that is started again does not decide again.
pub(crate) const LET_GO: &str = ".trainyard/attempt";

/// A bucket that could not be read at the start is asked again after the first of these, and then ever more rarely.
pub(crate) const FIRST_BREAK: Duration = Duration::from_secs(2);
pub(crate) const LONGEST_BREAK: Duration = Duration::from_mins(1);

/// A directory that cannot be listed as a whole before the program starts is listed so many times, with pauses: network
/// file systems have bad moments.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

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

/// Whether the program may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It was told to go on from the right checkpoint.
    Ready,
    /// It was told something else, and has to be started anew.
    Differs,
    /// Nobody knows, because the bucket cannot be read. Starting afresh might lose what is there.
    Held,
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
    /// What was said when the program was held last, and when to try again.
    held: AgentReport,
    held_until: Duration,
    held_for: Duration,
    /// Where to read how many checkpoints to keep: that may change while the agent runs.
    keep_last_file: Option<PathBuf>,
    /// The agent is about to end: what matters now is the newest checkpoint, and what is of its own.
    is_ending: bool,
    /// What is to be copied next, or is under way.
    unsent: Option<String>,
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
            held: AgentReport::default(),
            held_until: Duration::ZERO,
            held_for: Duration::ZERO,
            keep_last_file: None,
            is_ending: false,
            unsent: None,
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
        match self.try_to_begin(now) {
            Ok(report) => report,
            Err(error) => self.hold(&error, now),
        }
    }

    /// Fails only if the copy cannot be read, and the program must not start without.
    fn try_to_begin(&mut self, now: Moment) -> Result<AgentReport, StoreError> {
        if self.was_let_go() || self.was_let_go_elsewhere()? {
            self.remember(now);
            self.let_go();
            return Ok(self.look(now));
        }
        // Nobody writes: the writers of the attempt before are dead, and those of this one wait for us. So what is partial
        // now stays so, and can be moved aside.
        let mut survey = match self.look_before_the_start(now) {
            Ok(survey) => survey,
            Err(error) => {
                // Training is not stopped because of its directory. It may start afresh, which is told.
                self.let_go();
                return Ok(self.failed(&error));
            }
        };
        self.listen_for_others(now);
        self.ignored = self.noted_as_ignored().unwrap_or_default();
        survey.partial.retain(|(candidate, _)| !self.ignored.has_candidate(candidate, &survey.tree));
        let problems = self.quarantine(&survey);
        self.lasting_problems.extend(problems);
        match self.options.resume {
            Resume::Auto => survey = self.restored(survey, now)?,
            Resume::Never => {
                self.ignored.add_checkpoints(&survey.complete);
                let written = self.ignored.write(self.store.as_ref(), &self.job);
                self.lasting_problems.extend(written.err().map(|error| error.to_string()));
            }
        }
        let newest = self.usable(&survey).next().map(|checkpoint| checkpoint.candidate.path.as_str());
        let is_right = match (newest, self.given()) {
            _ if self.options.resume == Resume::Never => true,
            // What was told may be where nobody could look.
            (_, Some(_)) if survey.is_incomplete && self.copy.is_none() => true,
            (Some(newest), Some(given)) => self.inside(given) == Some(newest),
            (newest, given) => newest.is_none() && given.is_none(),
        };
        if is_right {
            self.let_go();
            self.tend_copy(now);
        } else {
            self.start = Start::Differs;
        }
        let mut report = self.report(&survey);
        add_problems(&mut report, self.lack_of_room(&survey));
        Ok(report)
    }

    fn look_before_the_start(&mut self, now: Moment) -> Result<Survey, StoreError> {
        let mut survey = self.scanner.look(self.store.as_ref(), now, Writers::None)?;
        for _ in 1..TRIES {
            if !survey.is_incomplete {
                break;
            }
            std::thread::sleep(PAUSE);
            survey = self.scanner.look(self.store.as_ref(), now, Writers::None)?;
        }
        Ok(survey)
    }

    /// Moves aside what is partial, unless not all was seen by which that is judged, or it may be another job's.
    fn quarantine(&self, survey: &Survey) -> Vec<String> {
        let may_touch = self.other_job.is_none() && !survey.is_incomplete;
        if may_touch { upkeep::quarantine(self.store.as_ref(), survey) } else { Vec::new() }
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

    /// Learns what the agent before this one, in the same attempt, had decided to ignore.
    fn remember(&mut self, now: Moment) {
        if let Some(copy) = &mut self.copy {
            copy.let_go_by = Who::Before;
        }
        let noted = self.noted_as_ignored();
        let is_lost = noted.is_none() && self.options.resume == Resume::Never;
        self.ignored = noted.unwrap_or_default();
        // It could not be written. Nobody can tell any more what is this attempt's own, so nothing of it is removed, but a
        // later attempt may go on from it.
        if is_lost && let Ok(survey) = self.scanner.look(self.store.as_ref(), now, Writers::Some) {
            self.ignored.add_checkpoints(&survey.complete);
        }
    }

    fn tend_copy(&mut self, now: Moment) {
        let attempt = self.options.attempt.as_deref().unwrap_or_default();
        if let Some(copy) = &mut self.copy {
            copy.tend(attempt, (self.options.resume, &self.job), now);
        }
    }

    /// Fetches what the bucket has, if it is newer than what is here.
    fn restored(&mut self, mut survey: Survey, now: Moment) -> Result<Survey, StoreError> {
        let is_told = self.given().is_some();
        let Some(copy) = self.copy.as_mut().filter(|copy| copy.restores) else { return Ok(survey) };
        let markers = match copy.bucket().and_then(|bucket| mirror::markers(bucket)) {
            // Nothing can be in it, and nobody knows of anything: nothing is lost by a start.
            Err(StoreError::NoBucket(_)) if !is_told => return Ok(survey),
            markers => markers?,
        };
        copy.knows(markers.clone(), self.options.resume, &self.job)?;
        survey.complete.retain(|checkpoint| !self.ignored.has(checkpoint));
        for marker in &markers {
            if copy.mirror.earlier(&marker.path).is_none() {
                continue;
            }
            if !mirror::is_newer(marker, &survey) {
                break;
            }
            mirror::fetch(copy.bucket()?, self.store.as_ref(), marker)?;
            survey = self.scanner.look(self.store.as_ref(), now, Writers::None)?;
            survey.complete.retain(|checkpoint| !self.ignored.has(checkpoint));
            if survey.complete.iter().any(|checkpoint| checkpoint.candidate.path == marker.path) {
                break;
            }
            self.lasting_problems.push(format!(
                "{} was fetched from {}, but is no complete checkpoint: check checkpoint.layout",
                marker.path, copy.place
            ));
            if !survey.is_incomplete {
                self.lasting_problems.extend(upkeep::quarantine(self.store.as_ref(), &survey));
            }
        }
        Ok(survey)
    }

    fn hold(&mut self, error: &StoreError, now: Moment) -> AgentReport {
        self.start = Start::Held;
        self.held_for = (self.held_for * 2).clamp(FIRST_BREAK, LONGEST_BREAK);
        self.held_until = now.elapsed + self.held_for;
        self.held = AgentReport {
            unread: true,
            problem: Some(format!(
                "the program is not started, because what it should go on from cannot be read: {error}; this is tried \
                 again until it works; to start afresh instead, suspend the job and resume it with \
                 checkpoint.resume: Never"
            )),
            ..AgentReport::default()
        };
        self.held.clone()
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
        add_problems(&mut report, self.keep_house(&survey, protected));
        // What was removed has made room.
        add_problems(&mut report, self.lack_of_room(&survey));
        report
    }

    /// Is there too little room for another checkpoint?
    ///
    /// Nobody can tell while one is being written, since that takes the room. Nothing at all fits into a full disk, though.
    fn lack_of_room(&self, survey: &Survey) -> Option<String> {
        let room = self.store.room()?;
        let needs = |candidate: &Candidate, bytes: u64| {
            let files = u64::try_from(candidate.files.len()).unwrap_or(u64::MAX);
            Need {
                bytes,
                files: if candidate.files == [candidate.path.as_str()] { files } else { files + 1 },
            }
        };
        let newest = self.usable(survey).find(|checkpoint| !checkpoint.numbers.is_empty());
        let whole = newest.map(|checkpoint| needs(&checkpoint.candidate, checkpoint.size));
        // Of what was cut off, at least as much as there is was to be written.
        let cut = survey.partial.iter().map(|(it, _)| needs(it, survey.tree.size_of(&it.files)));
        let next = whole.or_else(|| cut.max_by_key(|need| need.bytes));
        let next = next.filter(|_| !self.is_ending && !survey.is_writing);
        let has_quarantine = self.store.exists(QUARANTINE).unwrap_or(false);
        room.problem(self.store.place(), next, has_quarantine)
    }

    /// The last look. Waits until all that is to be kept has been copied, if there is to be a copy, or something has failed:
    /// then [`Self::is_owing`].
    pub fn finish(&mut self, now: Moment) -> AgentReport {
        self.is_ending = true;
        if self.start != Start::Ready || self.copy.is_none() {
            // An agent beside a program is told to end when that has ended: nobody writes any more.
            let report =
                if self.start == Start::Held { self.held.clone() } else { self.look_at(now, Writers::None) };
            if self.may_be_shared() {
                // If it cannot be noted, others see it after a while.
                let _ = jobs::end(self.store.as_ref(), &self.job);
            }
            return report;
        }
        // What is under way may be an older one. Here, too, nobody writes any more.
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
        let resumed_from = self.resumed_from_inside().map(str::to_owned);
        self.tend_copy(now);
        let ignored = &self.ignored;
        let Some(copy) = &mut self.copy else { return };
        copy.mirror.catch_up(now.elapsed);
        let mut stay: Vec<&Checkpoint> =
            survey.complete.iter().filter(|checkpoint| !ignored.has(checkpoint)).collect();
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
        let kept = (survey, keep, resumed_from.as_deref());
        copy.mirror.offer(self.store.place(), kept, &stay, now.elapsed);
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
        if self.options.keep_last == 0 || self.usable(survey).count() <= self.options.keep_last {
            return BTreeSet::new();
        }
        let mut protected = layouts::pointed_at(&survey.tree, self.store.as_ref());
        protected.extend(self.resumed_from_inside().map(str::to_owned));
        let newest = self.usable(survey).next();
        protected.extend(
            newest.and_then(|newest| {
                layouts::named_as_best(&newest.candidate, &survey.tree, self.store.as_ref())
            }),
        );
        protected
    }

    fn keep_house(&self, survey: &Survey, mut protected: BTreeSet<String>) -> Vec<String> {
        if self.other_job.is_some() || survey.is_incomplete {
            return Vec::new();
        }
        let own: Vec<&Checkpoint> = self.usable(survey).collect();
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

    /// Complete checkpoints that are not to be ignored, newest first.
    fn usable<'a>(&'a self, survey: &'a Survey) -> impl Iterator<Item = &'a Checkpoint> {
        survey.complete.iter().filter(|checkpoint| !self.ignored.has(checkpoint))
    }

    /// The newest checkpoint that will be there for the next attempt.
    fn newest<'a>(&'a self, survey: &'a Survey) -> Option<&'a Checkpoint> {
        let is_safe = |checkpoint: &&Checkpoint| {
            let copy = self.copy.as_ref().filter(|_| self.start == Start::Ready);
            copy.is_none_or(|copy| copy.mirror.has(checkpoint, &survey.tree))
        };
        self.usable(survey).find(is_safe)
    }

    /// What the copy has of earlier saves of checkpoints that have been saved again since: the newest.
    fn saved_again<'a>(&'a self, survey: &'a Survey) -> Option<&'a Marker> {
        let copy = self.copy.as_ref().filter(|_| self.start == Start::Ready)?;
        let unsent = self.usable(survey).filter(|checkpoint| !copy.mirror.has(checkpoint, &survey.tree));
        let mut earlier: Vec<&Marker> =
            unsent.filter_map(|checkpoint| copy.mirror.earlier(&checkpoint.candidate.path)).collect();
        scan::sort_newest_first(&mut earlier, |marker| marker.place());
        earlier.first().copied()
    }

    /// The path as it is reported: in the copy, if there is one, since the directory may go with the pod.
    fn full_path(&self, path: &str) -> String {
        let place = self.copy.as_ref().map_or(self.store.place(), |copy| &copy.place);
        if path.is_empty() { place.to_owned() } else { format!("{}/{path}", place.trim_end_matches('/')) }
    }

    fn report(&mut self, survey: &Survey) -> AgentReport {
        let status = |checkpoint: &Checkpoint| CheckpointStatus {
            path: self.full_path(&checkpoint.candidate.path),
            epoch: checkpoint.numbers.epoch,
            step: checkpoint.numbers.step,
            time: checkpoint.time.map(Time),
            size: i64::try_from(checkpoint.size).ok(),
        };
        let of_marker = |marker: &Marker| CheckpointStatus {
            path: self.full_path(&marker.path),
            epoch: marker.epoch,
            step: marker.step,
            time: marker.time().map(Time),
            size: i64::try_from(marker.size()).ok(),
        };
        let mut here: Vec<(Place, CheckpointStatus)> = self
            .newest(survey)
            .map(|checkpoint| (checkpoint.place(), status(checkpoint)))
            .into_iter()
            .collect();
        here.extend(self.saved_again(survey).map(|marker| (marker.place(), of_marker(marker))));
        scan::sort_newest_first(&mut here, |(place, _)| place.clone());
        let here = here.into_iter().next();
        let is_better = |marker: &&Marker| here.is_none() || marker.step.is_some() || marker.epoch.is_some();
        let in_bucket = match &self.copy {
            // The directory may have only what has not been copied yet, or what says nothing about where to go on.
            Some(copy)
                if self.start == Start::Ready
                    && here.as_ref().is_none_or(|(place, _)| place.numbers.is_empty()) =>
            {
                copy.mirror.newest().filter(is_better)
            }
            _ => None,
        };
        let found = in_bucket.map(of_marker).or_else(|| here.map(|(_, status)| status));
        // What was seen before may be where nobody could look this time.
        let before = self.last_seen.take().filter(|_| survey.is_incomplete);
        self.last_seen = newer(before, found);
        let mut report = AgentReport {
            checkpoint: self.last_seen.clone(),
            resume_differs: self.start == Start::Differs,
            unread: survey.is_incomplete || self.copy.as_ref().is_some_and(|copy| !copy.is_known),
            writing: survey.is_writing
                || self.copy.as_ref().is_some_and(|copy| copy.mirror.under_way().is_some()),
            problem: None,
        };
        if let (Some(unsent), Some(copy), true) = (&self.unsent, &self.copy, self.is_owing())
            && copy.mirror.under_way().is_none()
        {
            add_problems(
                &mut report,
                [format!(
                    "the program has ended, but {unsent} is not in {} yet: it is lost with the pod unless it arrives before that \
                     ends",
                    copy.place
                )],
            );
        }
        let shared = self.other_job.as_ref().map(|other| {
            format!(
                "another job, with the pod {other}, saves to the same directory: nothing in it is moved aside or removed, and \
                 either may go on from the other's checkpoints; give each job a checkpoint.storage.path of its own"
            )
        });
        add_problems(&mut report, shared);
        let of_the_copy = self
            .copy
            .iter()
            .flat_map(|copy| copy.problem.iter().map(ToString::to_string).chain(copy.mirror.problems()));
        let of_the_copy = of_the_copy.collect::<Vec<_>>();
        add_problems(
            &mut report,
            survey.problems.iter().chain(&self.lasting_problems).cloned().chain(of_the_copy),
        );
        report
    }

    fn failed(&self, error: &StoreError) -> AgentReport {
        AgentReport {
            checkpoint: self.last_seen.clone(),
            resume_differs: self.start == Start::Differs,
            unread: self.last_seen.is_none(),
            problem: Some(error.to_string()),
            ..AgentReport::default()
        }
    }

    /// Has an agent of this attempt decided already? Then its program runs, and writes.
    fn was_let_go(&self) -> bool {
        let attempt = self.options.attempt.as_deref();
        let noted = self.options.ready_file.as_deref().and_then(|path| std::fs::read_to_string(path).ok());
        let is_ready = noted.is_some_and(|noted| attempt.is_none_or(|attempt| noted == attempt));
        let in_storage = || {
            let attempt = attempt?;
            Some(self.store.read(LET_GO, 0..4096).ok()? == attempt.as_bytes())
        };
        is_ready || in_storage().unwrap_or(false)
    }

    /// Was this attempt let go in another pod, whose place this one takes? Then it goes on from what that one went on from,
    /// which is fetched, and the others are not started again.
    fn was_let_go_elsewhere(&mut self) -> Result<bool, StoreError> {
        let told = self.resumed_from_inside().map(str::to_owned);
        let Some(attempt) = self.options.attempt.clone() else { return Ok(false) };
        let resume = self.options.resume;
        let Some(copy) = self.copy.as_mut().filter(|copy| copy.restores) else { return Ok(false) };
        // A bucket that cannot be read is a matter of the first look.
        let noted = copy.bucket().and_then(|bucket| bucket.read(LET_GO, 0..4096));
        if noted.is_err() || noted.is_ok_and(|noted| noted != attempt.as_bytes()) {
            return Ok(false);
        }
        if let Some(told) = told.filter(|_| resume == Resume::Auto) {
            let markers = mirror::markers(copy.bucket()?)?;
            let Some(marker) = markers.iter().find(|marker| marker.path == told) else { return Ok(false) };
            mirror::fetch(copy.bucket()?, self.store.as_ref(), marker)?;
        }
        Ok(true)
    }

    fn let_go(&mut self) {
        self.start = Start::Ready;
        let attempt = self.options.attempt.clone().unwrap_or_default();
        if !attempt.is_empty()
            && let Err(error) = self.store.write(LET_GO, attempt.as_bytes())
        {
            self.lasting_problems.push(error.to_string());
        }
        let Some(path) = &self.options.ready_file else { return };
        let made = path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(path, attempt));
        if let Err(error) = made {
            self.lasting_problems.push(format!(
                "the program cannot be let go, because {} cannot be made ({error}): give the agent a writable directory for it",
                path.display()
            ));
        }
    }
}

/// The newer one of two.
fn newer(one: Option<CheckpointStatus>, other: Option<CheckpointStatus>) -> Option<CheckpointStatus> {
    let place = |status: &CheckpointStatus| Place {
        numbers: Numbers { step: status.step, epoch: status.epoch },
        layout: None,
        size: 0,
        time: status.time.as_ref().map(|time| time.0),
        path: status.path.clone(),
    };
    let mut both: Vec<CheckpointStatus> = one.into_iter().chain(other).collect();
    scan::sort_newest_first(&mut both, place);
    both.into_iter().next()
}

/// The part of a path that is inside of a place; nothing if it is elsewhere.
pub(crate) fn inside<'p>(place: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(place.trim_end_matches('/'))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

fn trimmed(path: &str) -> &str {
    path.trim().trim_end_matches('/')
}

/// At most a few, so that the status of a job stays readable.
fn add_problems(report: &mut AgentReport, problems: impl IntoIterator<Item = String>) {
    const MOST: usize = 3;
    let mut all: Vec<String> = report.problem.take().into_iter().collect();
    for problem in problems {
        if !all.contains(&problem) {
            all.push(problem);
        }
    }
    let more = all.len().saturating_sub(MOST);
    all.truncate(MOST);
    if more > 0 {
        all.push(format!("and {more} more like these"));
    }
    report.problem = (!all.is_empty()).then(|| all.join("; "));
}
