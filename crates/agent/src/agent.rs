//! The agent itself: what it decides at the start, and what it says.

use std::collections::HashSet;
use std::path::PathBuf;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::checkpoint::{AgentReport, CheckpointStatus};

use crate::layouts::{self, Layout};
use crate::mirror::{self, Mirror};
use crate::scan::{Checkpoint, Moment, Scanner, Survey, Writers};
use crate::store::{Bucket, Store, StoreError};
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
    copy: Option<Copy>,
    start: Start,
    /// What was found last, for when storage does not answer.
    last_seen: Option<CheckpointStatus>,
    /// What was there before, and is not to be used.
    ignored: HashSet<(String, u64)>,
    /// Problems that are not of a single look.
    lasting_problems: Vec<String>,
}

/// The copy in a bucket, if there is one.
struct Copy {
    mirror: Mirror,
    bucket: Bucket,
    restores: bool,
    has_newest: bool,
}

impl Agent {
    pub fn new(store: Box<dyn Store>, options: Options) -> Self {
        let scanner = Scanner::new(options.layouts.clone());
        let (ignored, lasting_problems) = (HashSet::new(), Vec::new());
        Self {
            store,
            options,
            scanner,
            copy: None,
            start: Start::Ready,
            last_seen: None,
            ignored,
            lasting_problems,
        }
    }

    /// Keeps a copy of the directory in a bucket; `restores` from it at the start.
    ///
    /// A checkpoint is then reported when its copy is complete: the directory may go with the pod.
    pub fn with_copy_in(
        mut self,
        url: &str,
        variables: Vec<(String, String)>,
        restores: bool,
    ) -> Result<Self, StoreError> {
        let bucket = Bucket::open(url, variables.clone())?;
        let url = url.to_owned();
        let mirror = Mirror::new(move || Bucket::open(&url, variables));
        self.copy = Some(Copy { mirror, bucket, restores, has_newest: false });
        Ok(self)
    }

    /// The first look. Decides whether the program may start, and lets it.
    pub fn begin(&mut self, now: Moment) -> AgentReport {
        if self.was_let_go() {
            self.recall_copy();
            self.let_go();
            return self.look(now);
        }
        let survey = match self.first_survey(now) {
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
        let newest = self.usable(&survey).next().map(|checkpoint| self.full_path(&checkpoint.candidate.path));
        let given = self.options.resumed_from.as_deref().map(trimmed).filter(|path| !path.is_empty());
        let is_right = self.options.resume == Resume::Never || newest.as_deref().map(trimmed) == given;
        self.start = if is_right { Start::Ready } else { Start::Differs };
        if is_right {
            self.let_go();
        }
        self.report(&survey)
    }

    /// Looks while nobody writes: the writers of the attempt before are dead, and those of this one wait for us. So what
    /// is partial now stays so, and can be moved aside.
    fn first_survey(&mut self, now: Moment) -> Result<Survey, StoreError> {
        let survey = self.scanner.look(self.store.as_ref(), now, Writers::None)?;
        self.lasting_problems = upkeep::quarantine(self.store.as_ref(), &survey);
        let wants_restore = self.options.resume == Resume::Auto;
        let Some(copy) = self.copy.as_ref().filter(|copy| copy.restores && wants_restore) else {
            self.recall_copy();
            return Ok(survey);
        };
        let restored = mirror::restore(&copy.bucket, self.store.as_ref(), &survey);
        self.recall_copy();
        match restored {
            Ok(false) => Ok(survey),
            Ok(true) => self.scanner.look(self.store.as_ref(), now, Writers::None),
            Err(error) => {
                self.lasting_problems
                    .push(format!("the copy of the checkpoints could not be restored: {error}"));
                Ok(survey)
            }
        }
    }

    /// Asks the bucket what is there already.
    fn recall_copy(&mut self) {
        let Some(copy) = &mut self.copy else { return };
        match mirror::markers(&copy.bucket) {
            Ok(markers) => copy.mirror.knows(markers),
            // It is sent again then.
            Err(error) => self.lasting_problems.push(error.to_string()),
        }
    }

    /// Any later look.
    pub fn look(&mut self, now: Moment) -> AgentReport {
        let survey = match self.scanner.look(self.store.as_ref(), now, Writers::Some) {
            Ok(survey) => survey,
            Err(error) => return self.failed(&error),
        };
        if self.start == Start::Differs {
            return self.report(&survey);
        }
        self.send_next(&survey, now);
        let mut report = self.report(&survey);
        add_problems(&mut report, self.keep_house(survey));
        report
    }

    /// The last look. Waits until the copy of the newest checkpoint is complete, if there is to be one.
    pub fn finish(&mut self, now: Moment) -> AgentReport {
        let mut report = self.look(now);
        // What is under way may be an older one, and the newest may change once more while we send it.
        for _ in 0..3 {
            let Some(copy) = self.copy.as_mut().filter(|copy| copy.mirror.under_way().is_some()) else {
                break;
            };
            copy.mirror.finish(now.elapsed);
            report = self.look(now);
        }
        report
    }

    /// Sends the newest of the checkpoints to be kept that the copy does not have, unless another is under way.
    fn send_next(&mut self, survey: &Survey, now: Moment) {
        let keep = self.options.keep_last;
        let count = if keep == 0 { usize::MAX } else { keep };
        let protected = self.resumed_from_inside().map(str::to_owned);
        let ignored = &self.ignored;
        let Some(copy) = &mut self.copy else { return };
        copy.mirror.catch_up(now.elapsed);
        let is_usable = |checkpoint: &&Checkpoint| !is_in(ignored, checkpoint);
        let newest: Vec<&Checkpoint> = survey.complete.iter().filter(is_usable).take(count).collect();
        copy.has_newest = newest.first().is_none_or(|checkpoint| copy.mirror.has(checkpoint, &survey.tree));
        copy.mirror.offer(self.store.place(), (survey, keep, protected.as_deref()), &newest, now.elapsed);
    }

    pub fn start(&self) -> Start {
        self.start
    }

    fn keep_house(&self, mut survey: Survey) -> Vec<String> {
        survey.complete.retain(|checkpoint| !is_in(&self.ignored, checkpoint));
        // Usually there is nothing to do, and nothing has to be read to know it.
        if self.options.keep_last == 0 || survey.complete.len() <= self.options.keep_last {
            return Vec::new();
        }
        let mut protected = layouts::pointed_at(&survey.tree, self.store.as_ref());
        protected.extend(self.resumed_from_inside().map(str::to_owned));
        protected.extend(self.copy.as_ref().and_then(|copy| copy.mirror.under_way()).map(str::to_owned));
        upkeep::retain(self.store.as_ref(), &survey, self.options.keep_last, &protected)
    }

    /// What this attempt resumed from, as a path in the place.
    fn resumed_from_inside(&self) -> Option<&str> {
        let path = self.options.resumed_from.as_deref().map(trimmed)?;
        path.strip_prefix(self.store.place().trim_end_matches('/'))?.strip_prefix('/')
    }

    /// Complete checkpoints that are not to be ignored, newest first.
    fn usable<'a>(&'a self, survey: &'a Survey) -> impl Iterator<Item = &'a Checkpoint> {
        survey.complete.iter().filter(|checkpoint| !is_in(&self.ignored, checkpoint))
    }

    /// The newest checkpoint that will be there for the next attempt.
    fn newest<'a>(&'a self, survey: &'a Survey) -> Option<&'a Checkpoint> {
        let is_safe = |checkpoint: &&Checkpoint| {
            let copy = self.copy.as_ref().filter(|_| self.start == Start::Ready);
            copy.is_none_or(|copy| copy.mirror.has(checkpoint, &survey.tree))
        };
        self.usable(survey).find(is_safe)
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
        let of_the_copy = self.copy.as_ref().and_then(|copy| copy.mirror.problem()).map(str::to_owned);
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

fn is_in(ignored: &HashSet<(String, u64)>, checkpoint: &Checkpoint) -> bool {
    !ignored.is_empty() && ignored.contains(&(checkpoint.candidate.path.clone(), checkpoint.stamp))
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
