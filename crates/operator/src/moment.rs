//! A moment, as both clocks show it. The core has no clock of its own: whoever drives it says what time it is.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For what is written, and for deadlines that are written.
    pub wall: Timestamp,
    /// For patience: it never jumps.
    pub instant: Instant,
}

impl Moment {
    pub fn now() -> Self {
        Self { wall: Timestamp::now(), instant: Instant::now() }
    }

    /// What the wall clock shows at another moment, if it is always set as it is now.
    pub(crate) fn wall_at(self, at: Instant) -> Option<Timestamp> {
        let ahead = SignedDuration::try_from(at.saturating_duration_since(self.instant)).ok()?;
        let ago = SignedDuration::try_from(self.instant.saturating_duration_since(at)).ok()?;
        self.wall.checked_add(ahead).ok()?.checked_sub(ago).ok()
    }

    /// When the wall clock will show `at`, if nobody sets it meanwhile.
    pub(crate) fn until(self, at: Timestamp) -> Instant {
        let wait = Duration::try_from(at.duration_since(self.wall)).unwrap_or_default();
        // A millisecond more, so that rounding never wakes us just before.
        self.instant + wait + Duration::from_millis(1)
    }
}
