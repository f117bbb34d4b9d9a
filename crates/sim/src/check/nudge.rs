//! Pods that are nudged: none before its time, none again by one who was told that it was.

use trainyard_api::names;
use trainyard_operator::Watched;

use super::{Checker, Verdict, demand};
use crate::server::{Actor, Child, Server};

/// So many seconds a pod is on its node before it is late.
const NUDGE_AFTER: i64 = 3;

impl Checker {
    /// An operator has changed this pod.
    pub(super) fn nudged(&mut self, server: &Server, by: Actor, child: &Child) -> Verdict {
        let nudge = child.annotation(names::NUDGED_ANNOTATION).unwrap_or_default();
        let Some(fact) = self.pods.get(&child.uid).filter(|fact| fact.nudge != nudge) else { return Ok(()) };
        let sight = self.sight(by, child.label(names::JOB_LABEL).unwrap_or_default());
        let knows = |event| sight.is_some_and(|sight| sight.has(Watched::Pods, event));
        demand!(!fact.nudged_as.is_some_and(knows), "pod {} is nudged again, which was known", child.name());
        // Whoever sets the clock makes any time seem over. Since when it is there is told in whole seconds.
        let is_late = fact.bound.is_some_and(|bound| {
            self.clock_set > 0 || server.now.as_second() - bound.as_second() >= NUDGE_AFTER
        });
        demand!(is_late, "pod {} is nudged, and on its node since {:?}", child.name(), fact.bound);
        if let Some(fact) = self.pods.get_mut(&child.uid) {
            nudge.clone_into(&mut fact.nudge);
            fact.nudged_as = fact.seen_as;
        }
        Ok(())
    }
}
