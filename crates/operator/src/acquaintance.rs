//! Which pods there are, by the word of a status that somebody else has written: the operator before this one, or another that does
//! not know yet that it was replaced. Watches of jobs and of pods are not one: such a status may come sooner than the pods that it
//! tells of. Whoever judged by the pods of before would end an attempt that runs, or count a failure once more.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use trainyard_api::{TrainingJob, TrainingJobStatus};

use crate::cache::{Cache, JobKey};
use crate::memory::LostPod;

/// What a status says about which pods there are: of which attempt, and who was replaced. Changes when that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acquaintance(u64);

impl Acquaintance {
    pub(crate) fn with(status: Option<&TrainingJobStatus>) -> Self {
        let mut hasher = DefaultHasher::new();
        if let Some(status) = status.filter(|status| !status.is_terminal()) {
            created_attempt(status).hash(&mut hasher);
            for worker in &status.worker_statuses {
                (worker.restart_count, &worker.failed_uid).hash(&mut hasher);
            }
        }
        Self(hasher.finish())
    }
}

/// The last attempt whose pods have all been made. Of one whose pods are still being made, nothing is concluded from their absence.
fn created_attempt(status: &TrainingJobStatus) -> Option<i32> {
    let last = status.attempts.last()?;
    (!last.is_open() || last.created_time.is_some()).then_some(last.number)
}

/// Pods to be asked for by name before anything is concluded, because what the status says of them is new to this process, and not
/// its own word. A process that has only just listed all pods asks for those that are missing: they may have lost their labels while
/// nobody looked, or have been made since.
pub(crate) fn make(
    known: &mut Option<Acquaintance>,
    job: &TrainingJob,
    cache: &Cache,
    key: &JobKey,
) -> Vec<LostPod> {
    let status = job.status.as_ref();
    let now = Acquaintance::with(status);
    let before = known.replace(now);
    let Some(status) = status.filter(|status| before != Some(now) && !status.is_terminal()) else {
        return Vec::new();
    };
    let Some(attempt) = created_attempt(status) else { return Vec::new() };
    let is_known = |name: &String| {
        cache.pods.named(key, name).is_some_and(|pod| {
            pod.owner.as_deref() == job.metadata.uid.as_deref() && pod.attempt >= Some(attempt)
        })
    };
    let names = status.worker_statuses.iter().map(|worker| &worker.pod_name);
    names
        .filter(|name| before.is_some() || !is_known(name))
        .map(|name| LostPod {
            job: job.metadata.uid.clone().unwrap_or_default(),
            name: name.clone(),
            uid: None,
            attempt: Some(attempt),
        })
        .collect()
}
