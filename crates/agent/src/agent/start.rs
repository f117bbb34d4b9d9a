//! Whether the program may start: what it goes on from is found, fetched if need be, and compared with what it was told.

use std::time::Duration;

use jiff::Timestamp;
use trainyard_api::checkpoint::AgentReport;

use crate::copy::Who;
use crate::crew::Crews;
use crate::mirror::{self, Marker};
use crate::scan::{Moment, Survey, Writers};
use crate::store::{Store, StoreError};
use crate::upkeep;

use super::report::add_problems;
use super::{Agent, Resume};

/// Which attempt has been let go, so that an agent that is started again does not decide again.
pub(crate) const LET_GO: &str = ".trainyard/attempt";

/// A bucket that could not be read at the start is asked again after the first of these, and then ever more rarely.
pub(crate) const FIRST_BREAK: Duration = Duration::from_secs(2);
pub(crate) const LONGEST_BREAK: Duration = Duration::from_mins(1);

/// A directory that cannot be listed as a whole before the program starts is listed so many times, with pauses: network
/// file systems have bad moments.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

/// Credentials in the environment can be corrected only by a start of the container: after so long, that is worth one.
const PATIENCE: Duration = Duration::from_mins(1);

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

impl Agent {
    /// Fails only if the copy cannot be read, and the program must not start without.
    pub(super) fn try_to_begin(&mut self, now: Moment) -> Result<AgentReport, StoreError> {
        self.crews = Crews::read(self.store.as_ref());
        self.scanner.knows_crews(self.crews.clone());
        let trusted = self.resumed_from_inside().map(str::to_owned);
        self.scanner.trusts(trusted.as_deref());
        let was_let_go = self.was_let_go();
        if was_let_go {
            // It runs, and may have saved what nobody has copied.
            self.warn_of_letting_go();
        }
        if was_let_go || self.was_let_go_elsewhere()? {
            self.remember(now);
            // In another pod's place, with a directory of its own, nobody has noted it yet.
            self.muster(now.wall);
            self.let_go();
            return Ok(self.look(now));
        }
        let noted = self.noted_as_ignored().unwrap_or_default();
        self.ignore(noted);
        // Nobody writes: the writers of the attempt before are dead, and those of this one wait for us. So what is partial
        // now stays so, and can be moved aside.
        let mut survey = match self.look_before_the_start(now) {
            Ok(survey) => survey,
            Err(error) => {
                // Training is not stopped because of its directory. It may start afresh, which is told, unless the bucket
                // has something that would be lost by that.
                if self.options.resume == Resume::Auto && !self.copies()?.is_empty() {
                    return Err(error);
                }
                self.muster(now.wall);
                self.let_go();
                return Ok(self.failed(&error));
            }
        };
        self.listen_for_others(now);
        // Unless not all was seen by which it is judged, or it may be another job's.
        if self.other_job.is_none() && !survey.is_incomplete {
            self.quarantine.add(upkeep::quarantine(self.store.as_ref(), &survey));
            self.note_lacks(&survey);
        }
        match self.options.resume {
            Resume::Auto => survey = self.restored(survey, now)?,
            Resume::Never => {
                let mut ignored = self.ignored.clone();
                ignored.add(std::mem::take(&mut survey.saves));
                self.ignore(ignored);
                survey.complete.clear();
                let written = self.ignored.write(self.store.as_ref(), &self.job);
                self.lasting_problems.extend(written.err().map(|error| error.to_string()));
            }
        }
        let newest = survey.complete.first().map(|checkpoint| &checkpoint.candidate);
        let is_right = match (newest, self.given()) {
            _ if self.options.resume == Resume::Never => true,
            // What was told may be where nobody could look.
            (_, Some(_)) if survey.is_incomplete && self.copy.is_none() => true,
            // Earlier versions named any file of those that belong together.
            (Some(newest), Some(given)) => self
                .inside(given)
                .is_some_and(|path| newest.path == path || newest.roots.iter().any(|root| root == path)),
            (newest, given) => newest.is_none() && given.is_none(),
        };
        if is_right {
            self.muster(now.wall);
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
        let mut tries = 1;
        loop {
            let found = self.scanner.look(self.store.as_ref(), now, Writers::None);
            let is_whole = found.as_ref().is_ok_and(|survey| !survey.is_incomplete);
            if is_whole || tries == TRIES {
                return found;
            }
            tries += 1;
            // A listing that is not whole may be a large one: two of them do not fit into the agent's memory.
            drop(found);
            std::thread::sleep(PAUSE);
        }
    }

    /// Learns what the agent before this one, in the same attempt, had decided to ignore.
    fn remember(&mut self, now: Moment) {
        if let Some(copy) = &mut self.copy {
            copy.let_go_by = Who::Before;
        }
        let noted = self.noted_as_ignored();
        let is_lost = noted.is_none() && self.options.resume == Resume::Never;
        self.ignore(noted.unwrap_or_default());
        // It could not be written. Nobody can tell any more what is this attempt's own, so nothing of it is removed, but a
        // later attempt may go on from it.
        if is_lost && let Ok(survey) = self.scanner.look(self.store.as_ref(), now, Writers::Some) {
            let mut ignored = self.ignored.clone();
            ignored.add(survey.saves);
            self.ignore(ignored);
        }
    }

    /// What the bucket has that the job may go on from, newest first.
    fn copies(&mut self) -> Result<Vec<Marker>, StoreError> {
        let is_told = self.given().is_some();
        let Some(copy) = self.copy.as_mut().filter(|copy| copy.restores) else { return Ok(Vec::new()) };
        let mut markers = match copy.bucket().and_then(|bucket| mirror::markers(bucket)) {
            // Nothing can be in it, and nobody knows of anything: nothing is lost by a start.
            Err(StoreError::NoBucket(_)) if !is_told => return Ok(Vec::new()),
            markers => markers?,
        };
        copy.knows(markers.clone(), self.options.resume, &self.job)?;
        markers.retain(|marker| copy.mirror.earlier(&marker.path).is_some());
        Ok(markers)
    }

    /// Fetches what the bucket has, if it is newer than what is here.
    fn restored(&mut self, mut survey: Survey, now: Moment) -> Result<Survey, StoreError> {
        for marker in &self.copies()? {
            let Some(copy) = self.copy.as_mut().filter(|_| mirror::is_newer(marker, &survey)) else { break };
            mirror::fetch(copy.bucket()?, self.store.as_ref(), marker)?;
            survey = self.scanner.look(self.store.as_ref(), now, Writers::None)?;
            if survey.complete.iter().any(|checkpoint| checkpoint.candidate.path == marker.path) {
                break;
            }
            self.lasting_problems.push(format!(
                "{} was fetched from {}, but is no complete checkpoint: check checkpoint.layout",
                marker.path, copy.place
            ));
            if !survey.is_incomplete {
                self.quarantine.add(upkeep::quarantine(self.store.as_ref(), &survey));
            }
        }
        Ok(survey)
    }

    pub(super) fn hold(&mut self, error: &StoreError, now: Moment) -> AgentReport {
        self.start = Start::Held;
        self.held_for = (self.held_for * 2).clamp(FIRST_BREAK, LONGEST_BREAK);
        self.held_until = now.elapsed + self.held_for;
        let is_refused = error.is_about_credentials();
        self.refused_since = is_refused.then(|| self.refused_since.unwrap_or(now.elapsed));
        if let Some(copy) = self.copy.as_mut().filter(|_| is_refused) {
            copy.forget_credentials();
        }
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

    /// Is the program held back by credentials that only another start of this process can correct?
    pub fn needs_a_restart(&self, now: Moment) -> bool {
        let since = self.refused_since.filter(|_| self.start == Start::Held);
        since.is_some_and(|since| now.elapsed.saturating_sub(since) >= PATIENCE)
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

    /// Notes who is let go: from now on, what is saved is theirs.
    fn muster(&mut self, since: Timestamp) {
        let Some(workers) = self.workers else { return };
        let Some(crews) = &mut self.crews else { return };
        // Where nothing can be written, that has been told.
        let _ = crews.go_on((workers, self.inputs.clone()), since, self.store.as_ref());
        self.scanner.knows_crews(self.crews.clone());
    }

    /// Notes what those lacked that have been moved aside: if it is always the same, the program saves so.
    fn note_lacks(&mut self, survey: &Survey) {
        let Some(crews) = self.crews.as_mut().filter(|_| self.quarantine.problems.is_empty()) else { return };
        let _ = crews.lacked(&survey.lacks, self.store.as_ref());
        self.scanner.knows_crews(self.crews.clone());
    }

    fn warn_of_letting_go(&self) {
        if let Some(call) = &self.before_letting_go {
            call();
        }
    }

    fn let_go(&mut self) {
        self.warn_of_letting_go();
        self.start = Start::Ready;
        let attempt = self.options.attempt.clone().unwrap_or_default();
        if !attempt.is_empty() {
            match self.store.write(LET_GO, attempt.as_bytes()) {
                // Every look tells it, as long as it is so.
                Ok(()) | Err(StoreError::Missing(_)) => {}
                Err(error) => self.lasting_problems.push(error.to_string()),
            }
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
