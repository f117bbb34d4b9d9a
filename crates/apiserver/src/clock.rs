//! Time and identity, injected: with a clock and a seed of its own, a simulator sees the same run twice.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;

/// Where the server takes the time from.
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

impl<F: Fn() -> Timestamp + Send + Sync + 'static> Clock for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// RFC 3339 in whole seconds, as `metadata.creationTimestamp` has it.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A source of uids and name suffixes: a sequence that its seed decides (SplitMix64).
#[derive(Debug)]
pub(crate) struct Uids(AtomicU64);

/// Letters that make no words and are not mistaken for each other.
const SUFFIX: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Uids {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(crate) fn next(&self) -> u64 {
        let state =
            self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A uid in the form of a random UUID (version 4).
    pub(crate) fn uid(&self) -> String {
        let (high, low) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48) & 0x3fff,
            low & 0xffff_ffff_ffff
        )
    }

    /// The end of a generated name.
    pub(crate) fn suffix(&self) -> String {
        let mut number = self.next();
        (0..5)
            .map(|_| {
                let letter = SUFFIX[usize::try_from(number % 27).unwrap_or(0)];
                number /= 27;
                char::from(letter)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_uids_and_they_look_like_uuids() {
        let (one, other) = (Uids::new(7), Uids::new(7));
        let uid = one.uid();
        assert_eq!(uid, other.uid());
        assert_ne!(uid, one.uid());
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]), "{uid}");
        assert_eq!(one.suffix().len(), 5);
    }
}
