//! The queue that the driver serves: the order of turns, shared by tasks, with a clock and somebody who waits.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::cache::JobKey;
use crate::look::Look;
use crate::turns::{Turn, Turns};

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    turns: Turns,
    /// Since when there is news about the jobs that wait for their turn.
    since: HashMap<JobKey, Instant>,
    closed: bool,
}

impl Queue {
    /// There is news about this job.
    pub(crate) fn add(&self, key: JobKey) {
        let mut state = self.lock();
        state.since.entry(key.clone()).or_insert_with(Instant::now);
        state.turns.add(key);
        drop(state);
        self.news.notify_one();
    }

    /// Looks at this job again at that time, unless an earlier time is set already.
    pub(crate) fn add_at(&self, key: JobKey, at: Instant) {
        self.lock().turns.add_at(key, at);
        self.news.notify_one();
    }

    /// What a look at this job asks for.
    pub(crate) fn follow(&self, key: &JobKey, look: &Look) {
        self.lock().turns.follow(key, look, Instant::now());
        self.news.notify_one();
    }

    /// When the news came because of which this job has its turn, if it is news. Asked once.
    pub(crate) fn since(&self, key: &JobKey) -> Option<Instant> {
        self.lock().since.remove(key)
    }

    /// The next job; none after `close`. It is busy until `done`.
    pub(crate) async fn next(&self) -> Option<(JobKey, Turn)> {
        loop {
            let wait = {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                match state.turns.take(Instant::now()) {
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
        state.turns.done(key);
        // What came while the API server was awaited could not be answered earlier.
        if let Some(since) = state.since.get_mut(key) {
            *since = Instant::now();
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
        self.lock().turns.is_pressed(Instant::now())
    }

    pub(crate) fn depth(&self) -> usize {
        self.lock().turns.depth()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while holding it would have to come from the collections themselves.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        queue.follow(&key("a"), &Look { report_due: true, ..Look::default() });
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
