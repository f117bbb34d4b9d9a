//! A pod whose node makes nothing of it, while the others of its attempt run and wait for it.
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

/// Nudges those that are late. Where most are, that is what starting takes there: an image, a volume, a new machine.
pub(super) fn late_pods(draft: &mut Draft<'_>, gang: &Gang<'_>) {
    let after = draft.settings.nudge_after;
    let untouched =
        gang.values().filter(|pod| !pod.deleting).filter_map(|pod| Some((*pod, pod.untouched_since?)));
    let untouched: Vec<_> = untouched.collect();
    let started = gang.values().filter(|pod| pod.has_started()).count();
    // A single pod has no others to compare with.
    let are_few = untouched.len() <= started || gang.len() == 1;
    if after.is_zero() || !are_few {
        return;
    }
    let mut steps = Vec::new();
    // Since when it is there is told in whole seconds: it may be up to one less.
    for (pod, since) in untouched {
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
