//! A job that is being deleted: its pods first, then its claim if it asked for that, then the finalizer. The rest is collected
//! through owner references.

use jiff::Timestamp;
use trainyard_api::names;

use super::{force, has_finalizer, idle};
use crate::build;
use crate::draft::{delete_pod, later};
use crate::plan::{Importance, Notice, Plan, Step};
use crate::settings::Settings;
use crate::snapshot::Snapshot;

pub(super) fn plan(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = idle(snapshot);
    let Some(since) = snapshot.job.metadata.deletion_timestamp.as_ref().filter(|_| has_finalizer(snapshot))
    else {
        return plan;
    };
    let staying = snapshot.own_pods().filter(|pod| !pod.deleting).map(|pod| delete_pod(pod, None));
    let stuck = force::steps(snapshot, settings, now);
    let pods: Vec<Step> = staying.chain(stuck).collect();
    if !pods.is_empty() {
        plan.stages.push(pods);
    }
    let left = snapshot.own_pods().count();
    // A pod on a dead node stays for ever: it must not hold the job for ever, too.
    let patience = later(since.0, settings.deletion_patience);
    if left > 0 && now < patience {
        plan.wake_at = Some(force::next(snapshot, settings, now).map_or(patience, |next| next.min(patience)));
        return plan;
    }
    if left > 0 {
        plan.notices.push(Notice {
            importance: Importance::Warning,
            reason: "ReconcileFailed",
            message: format!(
                "{} still there; left to the garbage collector",
                if left == 1 { "1 pod is".to_owned() } else { format!("{left} pods are") }
            ),
            occurrence: "deletion".to_owned(),
        });
    }
    // A claim that this job does not use may hold the checkpoints of an earlier job of its name.
    if snapshot.job.spec.delete_checkpoints_with_job() && build::makes_claim(&snapshot.job) {
        let wanted = names::claim(snapshot.name());
        if !snapshot.claims.iter().any(|claim| claim.name == wanted && claim.deleting) {
            plan.stages.push(vec![Step::RemoveClaim(wanted)]);
        }
    }
    plan.stages.push(vec![Step::RemoveFinalizer]);
    plan
}
