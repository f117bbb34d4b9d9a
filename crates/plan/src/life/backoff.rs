//! How long to wait before the next attempt.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::hash;

use crate::draft::{Draft, later};
use crate::settings::Settings;

/// The delay before restart number `restart` (1 for the first): base, 2 × base, 4 × base … up to the maximum,
/// with up to a tenth more. That jitter comes from the job, not from chance: the same job waits the same time in every
/// test and after every crash, while a thousand jobs that failed together do not come back together.
pub(super) fn delay(settings: &Settings, uid: &str, restart: i32) -> SignedDuration {
    let doublings = u32::try_from(restart.saturating_sub(1)).unwrap_or(0).min(20);
    let base = settings.backoff_base.as_millis().saturating_mul(1 << doublings);
    let capped = base.min(settings.backoff_max.as_millis());
    let spread = i128::from(hash::of_parts(&[uid, &restart.to_string()]) % 1000);
    let millis = capped + capped * spread / 10_000;
    SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// The moment before which nothing is started, if it is still to come.
pub(super) fn pending(draft: &Draft<'_>) -> Option<Time> {
    // Further away than the longest delay with its jitter: somebody has set the clock back since.
    let longest = draft.settings.backoff_max.saturating_add(draft.settings.backoff_max / 10);
    let latest = until(draft.now, longest);
    draft.status.backoff_until.clone().filter(|until| draft.now < until.0 && until.0 <= latest)
}

/// The moment when the next attempt may start, in whole seconds, rounded up: the status keeps no more.
pub(super) fn until(now: Timestamp, delay: SignedDuration) -> Timestamp {
    if delay.is_zero() {
        return Timestamp::from_second(now.as_second()).unwrap_or(now);
    }
    let at = later(now, delay);
    let up = i64::from(at.subsec_nanosecond() > 0);
    Timestamp::from_second(at.as_second() + up).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_maximum_with_a_little_jitter() {
        let settings = Settings::default();
        let seconds = |restart| delay(&settings, "uid-1", restart).as_secs();
        for (restart, base) in [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 320), (7, 360), (90, 360)] {
            let seconds = seconds(restart);
            assert!((base..=base + base / 10).contains(&seconds), "restart {restart}: {seconds} s");
        }
        assert_eq!(delay(&settings, "uid-1", 3), delay(&settings, "uid-1", 3));
        assert_ne!(delay(&settings, "uid-1", 3), delay(&settings, "uid-2", 3));
    }

    #[test]
    fn no_base_means_no_delay() {
        let settings = Settings { backoff_base: SignedDuration::ZERO, ..Settings::default() };
        let now: Timestamp = "2026-01-01T00:00:00.7Z".parse().unwrap();
        assert!(until(now, delay(&settings, "u", 2)) <= now);
        assert_eq!(until(now, SignedDuration::from_secs(10)).to_string(), "2026-01-01T00:00:11Z");
    }
}
