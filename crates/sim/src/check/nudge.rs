//! Pods that are nudged: none before its time, none again by one who knows that it was.

use trainyard_api::names;

use super::{Checker, Verdict, demand};
use crate::server::{Actor, Child, Server};

/// So many seconds a pod is on its node before it is late.
const NUDGE_AFTER: i64 = 3;

impl Checker {
    /// An operator has changed this pod.
    pub(super) fn nudged(&mut self, server: &Server, by: Actor, child: &Child) -> Verdict {
        let who = by.process().filter(|_| !self.unanswered);
        let Some(fact) = self.pods.get_mut(&child.uid) else { return Ok(()) };
        let nudge = child.annotation(names::NUDGED_ANNOTATION).unwrap_or_default();
        if fact.nudge == nudge {
            return Ok(());
        }
        nudge.clone_into(&mut fact.nudge);
        let is_first = who.is_none_or(|who| fact.nudged_by.insert(who));
        demand!(is_first, "pod {} is nudged again by one who knows that it was", child.name());
        // Whoever sets the clock makes any time seem over. Since when it is there is told in whole seconds.
        let is_late = fact.bound.is_some_and(|bound| {
            self.clock_set > 0 || server.now.as_second() - bound.as_second() >= NUDGE_AFTER
        });
        demand!(is_late, "pod {} is nudged, and on its node since {:?}", child.name(), fact.bound);
        Ok(())
    }
}
