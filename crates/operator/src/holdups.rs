//! Why a pod does not start that its kubelet explains in events only: a volume that cannot be mounted, a network that cannot be made.
//!
//! The pod's status just says that its containers are being created. As long as it does, its events are asked for, ever more rarely; what they
//! say takes the place of that. Without the right to list events, all is as if they said nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use trainyard_plan::{PodPhase, PodView, Snapshot, Waiting};

use crate::cache::JobKey;
use crate::driver::Shared;

/// So long starting takes often enough.
const FIRST_DELAY: Duration = Duration::from_secs(10);
const LAST_DELAY: Duration = Duration::from_mins(5);
/// A pod has no more kinds of trouble.
const EVENTS: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(10);

/// A pod that does not start, and what its events say.
#[derive(Debug)]
pub(crate) struct Holdup {
    /// The pod's uid.
    pod: String,
    /// When its events are asked for again, and how long after that.
    due: Instant,
    delay: Duration,
    said: Option<Waiting>,
}

impl Holdup {
    fn of(pod: &PodView) -> Self {
        Self { pod: pod.uid.clone(), due: Instant::now() + FIRST_DELAY, delay: FIRST_DELAY, said: None }
    }

    /// Says in the pod what its events say, unless it says more by itself.
    pub(crate) fn explain(&self, pods: &mut [PodView]) {
        let held = pods.iter_mut().find(|pod| pod.uid == self.pod && is_mute(pod));
        if let (Some(pod), Some(said)) = (held, &self.said) {
            pod.waiting = Some(Box::new(said.clone()));
        }
    }
}

/// It is on a node, does not run, and its status does not say why.
fn is_mute(pod: &PodView) -> bool {
    pod.waits_without_a_word() && pod.node.is_some() && !pod.deleting
}

impl Shared {
    /// Asks for the events of a pod that does not start, if it is time to.
    pub(crate) fn ask_why(self: &Arc<Self>, key: &JobKey, snapshot: &Snapshot) {
        // What was heard is in the snapshot: it is the same pod.
        let is_held = |memory: &crate::memory::Memory, pod: &&PodView| {
            is_mute(pod) || memory.holdup.as_ref().is_some_and(|it| it.pod == pod.uid && it.said.is_some())
        };
        let is_over = snapshot.job.is_over();
        let due = self.with_memory(key, |memory| {
            let waits = |pod: &&PodView| pod.phase == PodPhase::Pending && !pod.deleting && !is_over;
            let pod = snapshot.own_pods().find(|pod| waits(pod) && is_held(memory, pod));
            let Some(pod) = pod else {
                memory.holdup = None;
                return None;
            };
            if memory.holdup.as_ref().is_none_or(|holdup| holdup.pod != pod.uid) {
                memory.holdup = Some(Box::new(Holdup::of(pod)));
            }
            let holdup = memory.holdup.as_mut()?;
            let is_due = holdup.due <= Instant::now();
            if is_due {
                holdup.delay = (holdup.delay * 2).min(LAST_DELAY);
                holdup.due = Instant::now() + holdup.delay;
                tokio::spawn(ask(self.clone(), key.clone(), pod.uid.clone()));
            }
            Some(holdup.due)
        });
        if let Some(due) = due.flatten() {
            self.queue.add_at(key.clone(), due);
        }
    }
}

async fn ask(shared: Arc<Shared>, key: JobKey, pod: String) {
    let events: Api<Event> = Api::namespaced(shared.follower.client.clone(), &key.namespace);
    let selector = format!("involvedObject.uid={pod},type=Warning");
    let list = ListParams::default().fields(&selector).limit(EVENTS);
    let said = match tokio::time::timeout(PATIENCE, events.list(&list)).await {
        Ok(Ok(list)) => newest(list.items),
        Ok(Err(error)) => {
            tracing::debug!(job = %key, "events of a pod that does not start cannot be read: {error}");
            return;
        }
        Err(_) => return,
    };
    let news = shared.with_memory(&key, |memory| {
        let holdup = memory.holdup.as_mut().filter(|holdup| holdup.pod == pod && holdup.said != said);
        holdup.map(|holdup| holdup.said = said).is_some()
    });
    if news == Some(true) {
        shared.queue.add(key);
    }
}

/// What was said last.
fn newest(events: Vec<Event>) -> Option<Waiting> {
    let at = |event: &Event| -> Option<Timestamp> {
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let exact = series.or(event.event_time.as_ref()).map(|time| time.0);
        exact.or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
    };
    let last = events.into_iter().max_by_key(|event| at(event))?;
    Some(Waiting { reason: last.reason?, message: last.message })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(event: Value) -> Event {
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn the_last_of_several_events_counts() {
        let meta = |name: &str| json!({"name": name});
        let events = vec![
            event(json!({"metadata": meta("a"), "involvedObject": {}, "reason": "FailedScheduling",
                "message": "no room", "eventTime": "2026-11-18T07:00:00.000000Z"})),
            event(json!({"metadata": meta("b"), "involvedObject": {}, "reason": "FailedMount",
                "message": "secret \"nope\" not found", "lastTimestamp": "2026-11-18T07:01:00Z"})),
        ];
        let said = newest(events).unwrap();
        assert_eq!(said.reason, "FailedMount");
        assert_eq!(said.message.as_deref(), Some("secret \"nope\" not found"));
        assert_eq!(newest(Vec::new()), None);
    }
}
