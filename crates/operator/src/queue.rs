//! Which job is looked at next. A job is in one place at a time: it is never worked on twice at once, and news
//! about it while it is being worked on brings it back afterwards.
//!
//! Reports (a status that decides nothing, and its events) wait behind real work: when a thousand jobs are created
//! at once, their pods come first. A report that has waited long gets a small share of the turns all the same.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::cache::JobKey;

/// A report that has waited this long gets its share of the turns, however much work there is …
const REPORT_PATIENCE: Duration = Duration::from_secs(3);
/// … which is one in so many.
const REPORT_SHARE: u32 = 16;
/// So many turns of work within so short a time are a rush: more than the handful that a single job causes.
const RUSH: usize = 32;
const RUSH_WINDOW: Duration = Duration::from_millis(200);

/// Why a job is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something may have to be done.
    Work,
    /// There is time for a report.
    Report,
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
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
    closed: bool,
    /// When the last turns of work were given.
    recent: VecDeque<Instant>,
    /// Turns of work since the last report.
    since_report: u32,
}

impl Queue {
    /// There is news about this job.
    pub(crate) fn add(&self, key: JobKey) {
        let mut state = self.lock();
        state.add(key);
        drop(state);
        self.news.notify_one();
    }

    /// Looks at this job again at that time, unless an earlier time is set already.
    pub(crate) fn add_at(&self, key: JobKey, at: Instant) {
        let mut state = self.lock();
        if let Some(earlier) = state.timer_of.get(&key).copied() {
            if earlier.0 <= at {
                return;
            }
            state.timers.remove(&earlier);
        }
        state.sequence += 1;
        let slot = (at, state.sequence);
        state.timers.insert(slot, key.clone());
        state.timer_of.insert(key, slot);
        drop(state);
        self.news.notify_one();
    }

    /// This job has something to report, when there is time.
    pub(crate) fn add_report(&self, key: JobKey) {
        let mut state = self.lock();
        if state.reporting.insert(key.clone()) {
            state.reports.push_back((Instant::now(), key));
        }
        drop(state);
        self.news.notify_one();
    }

    /// The next job; none after `close`. It is busy until `done`.
    pub(crate) async fn next(&self) -> Option<(JobKey, Turn)> {
        loop {
            let wait = {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                match state.take(Instant::now()) {
                    Ok(turn) => return Some(turn),
                    Err(wait) => wait,
                }
            };
            match wait {
                Some(until) => {
                    tokio::select! {
                        () = self.news.notified() => {}
                        () = tokio::time::sleep_until(until.into()) => {}
                    }
                }
                None => self.news.notified().await,
            }
        }
    }

    pub(crate) fn done(&self, key: &JobKey) {
        let mut state = self.lock();
        state.busy.remove(key);
        if state.again.remove(key) {
            state.add(key.clone());
        }
        drop(state);
        self.news.notify_one();
    }

    /// Nobody is served any more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_one();
    }

    /// Whether there is so much work that reports should wait.
    pub(crate) fn is_pressed(&self) -> bool {
        self.lock().is_pressed(Instant::now())
    }

    pub(crate) fn depth(&self) -> usize {
        let state = self.lock();
        state.work.len() + state.reports.len()
    }

    /// A job that is gone needs no timer.
    pub(crate) fn forget(&self, key: &JobKey) {
        let mut state = self.lock();
        if let Some(slot) = state.timer_of.remove(key) {
            state.timers.remove(&slot);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic while holding it would have to come from the collections themselves.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, key: JobKey) {
        if self.busy.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.work.push_back(key);
        }
    }

    /// The next turn, or the time to wait for.
    fn take(&mut self, now: Instant) -> Result<(JobKey, Turn), Option<Instant>> {
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

    fn is_pressed(&self, now: Instant) -> bool {
        let rush = self.recent.len() == RUSH
            && self.recent.front().is_some_and(|first| now.duration_since(*first) < RUSH_WINDOW);
        !self.work.is_empty() || rush
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> JobKey {
        JobKey::new("ml", name)
    }

    #[tokio::test]
    async fn a_busy_job_comes_back_once_it_is_done() {
        let queue = Queue::default();
        queue.add(key("a"));
        queue.add(key("a"));
        assert_eq!(queue.next().await, Some((key("a"), Turn::Work)));
        queue.add(key("a"));
        queue.add(key("b"));
        assert_eq!(queue.next().await, Some((key("b"), Turn::Work)), "a is busy");
        queue.done(&key("a"));
        assert_eq!(queue.next().await, Some((key("a"), Turn::Work)));
        queue.done(&key("a"));
        assert_eq!(queue.depth(), 0);
    }

    #[tokio::test]
    async fn reports_wait_behind_work_and_the_earliest_timer_wins() {
        let queue = Queue::default();
        queue.add_report(key("a"));
        queue.add(key("b"));
        assert_eq!(queue.next().await, Some((key("b"), Turn::Work)));
        assert_eq!(queue.next().await, Some((key("a"), Turn::Report)));
        let soon = Instant::now() + Duration::from_millis(5);
        queue.add_at(key("c"), soon + Duration::from_hours(1));
        queue.add_at(key("c"), soon);
        queue.add_at(key("c"), soon + Duration::from_mins(1));
        assert_eq!(queue.next().await, Some((key("c"), Turn::Work)));
        queue.close();
        assert_eq!(queue.next().await, None);
    }
}
