//! Which job is looked at next. A job is in one place at a time: it is never worked on twice at once, and news
//! about it while it is being worked on brings it back afterwards.
//!
//! Reports (a status that decides nothing, and its events) wait behind real work: when a thousand jobs are created
//! at once, their pods come first. A report that has waited long gets a small share of the turns all the same.

//! This is the order of turns without a clock and without anybody who waits; `queue` adds both.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::cache::JobKey;
use crate::look::{Found, Look};

/// A report that has waited this long gets its share of the turns, however much work there is …
const REPORT_PATIENCE: Duration = Duration::from_secs(3);
/// … which is one in so many.
const REPORT_SHARE: u32 = 16;
/// So many turns of work within so short a time are a rush: more than the handful that a single job causes.
const RUSH: usize = 32;
const RUSH_WINDOW: Duration = Duration::from_millis(200);

/// Why a job is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Something may have to be done.
    Work,
    /// There is time for a report.
    Report,
}

/// Who is next.
#[derive(Default)]
pub struct Turns {
    work: VecDeque<JobKey>,
    queued: HashSet<JobKey>,
    reports: VecDeque<(Instant, JobKey)>,
    reporting: HashSet<JobKey>,
    busy: HashSet<JobKey>,
    /// News that came while the job was busy.
    again: HashSet<JobKey>,
    timers: BTreeMap<(Instant, u64), JobKey>,
    timer_of: HashMap<JobKey, (Instant, u64)>,
    sequence: u64,
    /// When the last turns of work were given.
    recent: VecDeque<Instant>,
    /// Turns of work since the last report.
    since_report: u32,
}

impl Turns {
    /// There is news about this job.
    pub fn add(&mut self, key: JobKey) {
        if self.busy.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.work.push_back(key);
        }
    }

    /// Looks at this job again at that time, unless an earlier time is set already.
    pub fn add_at(&mut self, key: JobKey, at: Instant) {
        if let Some(earlier) = self.timer_of.get(&key).copied() {
            if earlier.0 <= at {
                return;
            }
            self.timers.remove(&earlier);
        }
        self.sequence += 1;
        let slot = (at, self.sequence);
        self.timers.insert(slot, key.clone());
        self.timer_of.insert(key, slot);
    }

    /// This job has something to report, when there is time.
    pub(crate) fn add_report(&mut self, key: JobKey, now: Instant) {
        if self.reporting.insert(key.clone()) {
            self.reports.push_back((now, key));
        }
    }

    /// What a look at this job asks for.
    pub fn follow(&mut self, key: &JobKey, look: &Look, now: Instant) {
        if look.found == Found::Gone {
            self.forget(key);
        }
        if look.again {
            self.add(key.clone());
        }
        if let Some(at) = look.wake_at {
            self.add_at(key.clone(), at);
        }
        if look.report_due {
            self.add_report(key.clone(), now);
        }
    }

    /// The job that was taken may be taken again.
    pub fn done(&mut self, key: &JobKey) {
        self.busy.remove(key);
        if self.again.remove(key) {
            self.add(key.clone());
        }
    }

    /// How many wait for their turn.
    pub(crate) fn depth(&self) -> usize {
        self.work.len() + self.reports.len()
    }

    /// A job that is gone needs no timer.
    fn forget(&mut self, key: &JobKey) {
        if let Some(slot) = self.timer_of.remove(key) {
            self.timers.remove(&slot);
        }
    }

    /// The next turn, or the time to wait for. The job is busy until `done`.
    pub fn take(&mut self, now: Instant) -> Result<(JobKey, Turn), Option<Instant>> {
        while let Some((&slot, _)) = self.timers.first_key_value()
            && slot.0 <= now
            && let Some(key) = self.timers.remove(&slot)
        {
            self.timer_of.remove(&key);
            self.add(key);
        }
        let pressed = self.is_pressed(now);
        let waited = self.reports.front().map(|(since, _)| now.duration_since(*since));
        let due = waited.is_some_and(|waited| {
            !pressed
                || (waited >= REPORT_PATIENCE && (self.since_report >= REPORT_SHARE || self.work.is_empty()))
        });
        if due && let Some((_, key)) = self.reports.pop_front() {
            self.since_report = 0;
            self.reporting.remove(&key);
            if self.busy.contains(&key) {
                // It is being worked on: whatever comes of it replaces this report.
                self.again.insert(key);
            } else {
                if self.queued.remove(&key) {
                    self.work.retain(|queued| *queued != key);
                }
                self.busy.insert(key.clone());
                return Ok((key, Turn::Report));
            }
        }
        if let Some(key) = self.work.pop_front() {
            self.since_report = self.since_report.saturating_add(1);
            self.recent.push_back(now);
            if self.recent.len() > RUSH {
                self.recent.pop_front();
            }
            self.queued.remove(&key);
            self.busy.insert(key.clone());
            return Ok((key, Turn::Work));
        }
        let timer = self.timers.first_key_value().map(|(slot, _)| slot.0);
        let calm = (!self.reports.is_empty()).then(|| now + RUSH_WINDOW);
        Err([timer, calm].into_iter().flatten().min())
    }

    /// Whether there is so much work that reports should wait.
    pub fn is_pressed(&self, now: Instant) -> bool {
        let rush = self.recent.len() == RUSH
            && self.recent.front().is_some_and(|first| now.duration_since(*first) < RUSH_WINDOW);
        !self.work.is_empty() || rush
    }
}
