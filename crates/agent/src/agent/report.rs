//! What is told: the newest checkpoint that will be there for the next attempt, and what is wrong.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::checkpoint::{AgentReport, CheckpointStatus};

use crate::copy::Copy;
use crate::layouts::Candidate;
use crate::mirror::Marker;
use crate::numbers::Numbers;
use crate::room::Need;
use crate::scan::{self, Checkpoint, Place, Survey};
use crate::store::{QUARANTINE, StoreError};
use crate::upkeep::Kept;

use super::{Agent, Start};

impl Agent {
    /// Is there too little room for another checkpoint?
    ///
    /// Nobody can tell while one is being written, since that takes the room. Nothing at all fits into a full disk, though.
    pub(super) fn lack_of_room(&self, survey: &Survey) -> Option<String> {
        let room = self.store.room()?;
        let needs = |candidate: &Candidate, bytes: u64| {
            let files = u64::try_from(candidate.files.len()).unwrap_or(u64::MAX);
            Need { bytes, files: if candidate.is_one_file() { files } else { files + 1 } }
        };
        let newest = survey.complete.iter().find(|checkpoint| !checkpoint.numbers.is_empty());
        let whole = newest.map(|checkpoint| needs(&checkpoint.candidate, checkpoint.size));
        // Of what was cut off, at least as much as there is was to be written.
        let cut = survey.partial.iter().map(|(it, _)| needs(it, survey.tree.size_of(&it.files)));
        let next = whole.or_else(|| cut.max_by_key(|need| need.bytes));
        let next = next.filter(|_| !self.is_ending && !survey.is_writing);
        let has_quarantine = self.store.exists(QUARANTINE).unwrap_or(false);
        room.problem(self.store.place(), next, has_quarantine)
    }

    /// The newest checkpoint that will be there for the next attempt.
    fn newest<'a>(&'a self, survey: &'a Survey) -> Option<&'a Checkpoint> {
        let is_safe = |checkpoint: &&Checkpoint| {
            let copy = self.copy.as_ref().filter(|_| self.start == Start::Ready);
            copy.is_none_or(|copy| copy.mirror.has(checkpoint, &survey.tree))
        };
        survey.complete.iter().find(is_safe)
    }

    /// What the copy has of earlier saves of checkpoints that have been saved again since: the newest.
    fn saved_again<'a>(&'a self, survey: &'a Survey) -> Option<&'a Marker> {
        let copy = self.copy.as_ref().filter(|_| self.start == Start::Ready)?;
        let unsent = survey.complete.iter().filter(|checkpoint| !copy.mirror.has(checkpoint, &survey.tree));
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

    pub(super) fn report(&mut self, survey: &Survey) -> AgentReport {
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
            unsent: self.unsent.clone().filter(|_| self.is_owing()),
            moved_aside: self.quarantine.words(),
            problem: None,
        };
        if let (Some(unsent), Some(copy), true) = (&self.unsent, &self.copy, self.is_owing())
            && copy.mirror.under_way().is_none()
        {
            add_problems(
                &mut report,
                [format!(
                    "the program has ended, but {unsent} is not in {} yet: it is lost with the pod unless it arrives before that \
                     ends; give pods more time for it (terminationGracePeriodSeconds in the template)",
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
        let of_the_copy = self.copy.as_ref().map(Copy::problems).unwrap_or_default();
        add_problems(
            &mut report,
            survey
                .problems
                .iter()
                .chain(&self.lasting_problems)
                .chain(&self.quarantine.problems)
                .cloned()
                .chain(of_the_copy),
        );
        report
    }

    pub(super) fn failed(&self, error: &StoreError) -> AgentReport {
        AgentReport {
            checkpoint: self.last_seen.clone(),
            resume_differs: self.start == Start::Differs,
            unread: self.last_seen.is_none(),
            moved_aside: self.quarantine.words(),
            problem: Some(error.to_string()),
            ..AgentReport::default()
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

/// At most a few, so that the status of a job stays readable.
pub(super) fn add_problems(report: &mut AgentReport, problems: impl IntoIterator<Item = String>) {
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
