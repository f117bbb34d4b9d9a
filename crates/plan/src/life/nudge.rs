//! A pod whose node makes nothing of it, so that the others of its attempt wait for it.
//!
//! A kubelet that meets an error when it begins with a pod tries again after a break of its own, 10 to 15 s. Errors that are over in a moment
//! are common there: a kubelet may read a claim only when the API server has noticed that a pod on its node uses it, and for the first pod of
//! a job on a node the kubelet itself may have noticed sooner. Whatever changes in a pod makes its kubelet look at once, so a late pod is
//! changed, once: it gets a note of when that was.

use serde_json::json;
use trainyard_api::names;

use super::judge::Gang;
use crate::draft::{Draft, later};
use crate::plan::{Patch, Step, Target, TargetKind};
use crate::snapshot::PodView;

/// Nudges those that are late. Who pulls an image is not: its node has made a place for it.
pub(super) fn late_pods(draft: &mut Draft<'_>, gang: &Gang<'_>) {
    let after = draft.settings.nudge_after;
    if after.is_zero() {
        return;
    }
    let mut steps = Vec::new();
    for pod in gang.values().filter(|pod| !pod.deleting) {
        let Some(since) = pod.untouched_since else { continue };
        // Since when it is there is told in whole seconds: it may be up to one less.
        let due = later(since, after);
        if due > draft.now {
            draft.wake(due);
        } else {
            steps.push(nudge(draft, pod));
        }
    }
    draft.stage(steps);
}

fn nudge(draft: &Draft<'_>, pod: &PodView) -> Step {
    let path = format!("/metadata/annotations/{}", names::NUDGED_ANNOTATION.replace('/', "~1"));
    Step::Nudge(Patch {
        target: Target { kind: TargetKind::Pod, name: pod.name.clone(), uid: pod.uid.clone() },
        patch: json!([{"op": "add", "path": path, "value": draft.time().0.to_string()}]),
    })
}
