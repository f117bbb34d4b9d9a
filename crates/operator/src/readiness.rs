//! Whether the operator can see: each kind has been listed once, and no watch has been down for long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::sighting::Watched;

/// A watch that has been down for so long makes the operator not ready.
const BLIND: Duration = Duration::from_secs(30);

/// What is known of all watches.
pub(crate) struct Readiness {
    watches: [Watch; Watched::ALL.len()],
    /// One permit for each kind that has been listed.
    listed: Semaphore,
}

/// What is known of one watch.
#[derive(Default)]
struct Watch {
    /// It has been listed in full once.
    listed: AtomicBool,
    broken_since: Mutex<Option<Instant>>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { watches: Default::default(), listed: Semaphore::new(0) }
    }
}

impl Readiness {
    /// A kind has been listed in full.
    pub(crate) fn listed(&self, kind: Watched) {
        if !self.watches[kind as usize].listed.swap(true, Ordering::Relaxed) {
            self.listed.add_permits(1);
        }
    }

    /// Waits until every kind has been listed in full.
    pub(crate) async fn all_listed(&self) {
        // The semaphore is never closed.
        let _all = self.listed.acquire_many(u32::try_from(Watched::ALL.len()).unwrap_or(0)).await;
    }

    /// A watch has broken, or is back.
    pub(crate) fn watching(&self, kind: Watched, is_up: bool) {
        let broken = &self.watches[kind as usize].broken_since;
        let mut since = broken.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if is_up { None } else { since.or_else(|| Some(Instant::now())) };
    }

    /// What the operator cannot see: kinds that were never listed, and those whose watch has been down for long.
    pub(crate) fn unseen(&self) -> Vec<String> {
        let mut unseen = Vec::new();
        for (kind, watch) in Watched::ALL.iter().zip(&self.watches) {
            let kind = kind.plural();
            let since = *watch.broken_since.lock().unwrap_or_else(PoisonError::into_inner);
            if !watch.listed.load(Ordering::Relaxed) {
                unseen.push(format!("waiting for the first list of {kind}"));
            } else if let Some(since) = since.filter(|since| since.elapsed() >= BLIND) {
                unseen.push(format!("the watch of {kind} has been down for {} s", since.elapsed().as_secs()));
            }
        }
        unseen
    }
}
