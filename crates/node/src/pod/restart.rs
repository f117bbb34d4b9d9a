//! How long a container waits before it is started again: PURE.
//!
//! The first time not at all, then ten seconds, doubling up to five minutes, as the kubelet does. Whoever has run for
//! ten minutes starts over.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(10);
const LAST: Duration = Duration::from_mins(5);
const FORGIVEN_AFTER: i64 = 600;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    delay: Option<Duration>,
    due: Option<Instant>,
    never: bool,
}

impl Backoff {
    /// For what cannot be started, now or later.
    pub(super) fn never() -> Self {
        Self { never: true, ..Self::default() }
    }

    /// A run has ended.
    pub(super) fn ended(&mut self, now: Instant, started: Option<Timestamp>, finished: Timestamp) {
        let ran = started.map_or(0, |started| finished.duration_since(started).as_secs());
        if ran >= FORGIVEN_AFTER {
            self.delay = None;
        }
        let delay = self.delay.unwrap_or_default();
        self.due = Some(now + delay);
        self.delay = Some(if delay.is_zero() { FIRST } else { (delay * 2).min(LAST) });
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        !self.never && self.due.is_none_or(|due| due <= now)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// How long it still takes; none if it may start now.
    pub(super) fn delay(&self, now: Instant) -> Option<Duration> {
        self.due.filter(|due| *due > now).map(|due| due - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delays_double_and_are_forgiven() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        assert!(backoff.is_due(now));
        let moment = |second| Timestamp::from_second(second).unwrap();
        let mut delays = Vec::new();
        for _ in 0..8 {
            backoff.ended(now, Some(moment(0)), moment(1));
            delays.push(backoff.delay(now).unwrap_or_default().as_secs());
        }
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
        backoff.ended(now, Some(moment(0)), moment(600));
        assert!(backoff.is_due(now));
    }
}
