//! What was on its way when nobody waited for it any more lands.

use std::time::{Duration, Instant};

use super::World;
use crate::mishap::Mishap;
use crate::port::lock;

impl World {
    /// How much is on its way.
    pub fn adrift(&self) -> usize {
        self.server().wire.len()
    }

    /// One of these writes happens now.
    pub fn land(&mut self, index: usize) {
        let late = self.server().wire.remove(index);
        self.tell(|| format!("  lands late: {}", late.what));
        self.meets(Mishap::Landed);
        {
            let mut server = self.server();
            (late.landing)(&mut server, late.by);
        }
        self.check.sent = Some(late.sent);
        self.witness();
        self.check.sent = None;
    }

    /// Everything that is on its way lands, in the order in which it was sent.
    pub fn land_all(&mut self) {
        while self.adrift() > 0 {
            self.land(0);
        }
    }

    /// Everything lands for which it is time.
    pub(super) fn land_due(&mut self) -> bool {
        if self.server().wire.is_empty() {
            return false;
        }
        let now = self.now();
        let is_time = self.lands_at.take_if(|at| *at <= self.calls).is_some();
        let before = self.adrift();
        loop {
            let next = self.server().wire.iter().position(|late| is_time || late.due <= now);
            let Some(next) = next else { break };
            self.land(next);
        }
        before != self.adrift()
    }

    /// When the next of them has landed at the latest.
    pub(super) fn next_landing(&self) -> Option<Instant> {
        let now = lock(&self.house.clock).instant;
        let server = self.server();
        let due = server.wire.iter().map(|late| late.due).min()?;
        let left = Duration::try_from(due.duration_since(server.now)).unwrap_or_default();
        Some(now + left)
    }
}
