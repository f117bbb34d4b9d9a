//! The agent itself: what it decides at the start, and what it says.

use std::collections::HashSet;
use std::path::PathBuf;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::checkpoint::{AgentReport, CheckpointStatus};

use crate::layouts::{self, Layout};
use crate::scan::{Checkpoint, Moment, Scanner, Survey, Writers};
use crate::store::{Store, StoreError};
use crate::upkeep;

/// Which attempt has been let go, so that an agent that is started again does not decide again.
const LET_GO: &str = ".trainyard/attempt";

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
}

pub struct Agent {
    store: Box<dyn Store>,
    options: Options,
    scanner: Scanner,
    start: Start,
    /// What was found last, for when storage does not answer.
    last_seen: Option<CheckpointStatus>,
    /// What was there before, and is not to be used.
    ignored: HashSet<(String, u64)>,
    /// Problems that are not of a single look.
    lasting_problems: Vec<String>,
}

impl Agent {
    pub fn new(store: Box<dyn Store>, options: Options) -> Self {
        let scanner = Scanner::new(options.layouts.clone());
        let (ignored, lasting_problems) = (HashSet::new(), Vec::new());
        Self { store, options, scanner, start: Start::Ready, last_seen: None, ignored, lasting_problems }
    }

    /// The first look. Decides whether the program may start, and lets it.
    pub fn begin(&mut self, now: Moment) -> AgentReport {
        if self.was_let_go() {
            self.let_go();
            return self.look(now);
        }
        // The writers of the attempt before are dead, and those of this one wait for us.
        let survey = match self.scanner.look(self.store.as_ref(), now, Writers::None) {
            Ok(survey) => survey,
            Err(error) => {
                // Training is not stopped because of its storage. It may start afresh, which is told.
                self.let_go();
                return self.failed(&error);
            }
        };
        if self.options.resume == Resume::Never {
            let there = survey
                .complete
                .iter()
                .map(|checkpoint| (checkpoint.candidate.path.clone(), checkpoint.stamp));
            self.ignored = there.collect();
        }
        let newest = self.newest(&survey).map(|checkpoint| self.full_path(&checkpoint.candidate.path));
        let given = self.options.resumed_from.as_deref().map(trimmed).filter(|path| !path.is_empty());
        let is_right = self.options.resume == Resume::Never || newest.as_deref().map(trimmed) == given;
        self.start = if is_right { Start::Ready } else { Start::Differs };
        self.lasting_problems = upkeep::quarantine(self.store.as_ref(), &survey);
        if is_right {
            self.let_go();
        }
        self.report(&survey)
    }

    /// Any later look.
    pub fn look(&mut self, now: Moment) -> AgentReport {
        let survey = match self.scanner.look(self.store.as_ref(), now, Writers::Some) {
            Ok(survey) => survey,
            Err(error) => return self.failed(&error),
        };
        let mut report = self.report(&survey);
        if self.start == Start::Ready {
            let problems = self.keep_house(survey);
            add_problems(&mut report, problems);
        }
        report
    }

    pub fn start(&self) -> Start {
        self.start
    }

    fn keep_house(&self, mut survey: Survey) -> Vec<String> {
        survey.complete.retain(|checkpoint| !self.is_ignored(checkpoint));
        let mut protected = layouts::pointed_at(&survey.tree, self.store.as_ref());
        let root = format!("{}/", self.store.place().trim_end_matches('/'));
        let resumed_from = self.options.resumed_from.as_deref().map(trimmed);
        protected.extend(resumed_from.and_then(|path| path.strip_prefix(&root)).map(str::to_owned));
        upkeep::retain(self.store.as_ref(), &survey, self.options.keep_last, &protected)
    }

    fn is_ignored(&self, checkpoint: &Checkpoint) -> bool {
        !self.ignored.is_empty()
            && self.ignored.contains(&(checkpoint.candidate.path.clone(), checkpoint.stamp))
    }

    fn newest<'a>(&self, survey: &'a Survey) -> Option<&'a Checkpoint> {
        survey.complete.iter().find(|checkpoint| !self.is_ignored(checkpoint))
    }

    fn full_path(&self, path: &str) -> String {
        if path.is_empty() {
            self.store.place().to_owned()
        } else {
            format!("{}/{path}", self.store.place().trim_end_matches('/'))
        }
    }

    fn report(&mut self, survey: &Survey) -> AgentReport {
        let status = |checkpoint: &Checkpoint| CheckpointStatus {
            path: self.full_path(&checkpoint.candidate.path),
            epoch: checkpoint.numbers.epoch,
            step: checkpoint.numbers.step,
            time: checkpoint.time.map(Time),
            size: i64::try_from(checkpoint.size).ok(),
        };
        self.last_seen = self.newest(survey).map(status);
        let mut report = AgentReport {
            checkpoint: self.last_seen.clone(),
            resume_differs: self.start == Start::Differs,
            writing: survey.is_writing,
            problem: None,
        };
        add_problems(&mut report, survey.problems.iter().chain(&self.lasting_problems).cloned());
        report
    }

    fn failed(&self, error: &StoreError) -> AgentReport {
        AgentReport {
            checkpoint: self.last_seen.clone(),
            resume_differs: self.start == Start::Differs,
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

    fn let_go(&mut self) {
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
