//! What the operator knows, and what it concludes from that: the cache, what is remembered about each job, and who waits
//! for room in a quota.
//!
//! No runtime, no clock, no client: news comes in through `see`, the time is given with every question, and what is to happen
//! next goes out as data. The driver puts tasks and timers around it; the simulator drives the same code step by step.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use trainyard_api::names;
use trainyard_plan::{PodView, Snapshot};

use crate::acquaintance;
use crate::cache::{Cache, Job, JobKey};
use crate::guard::Unreadable;
use crate::memory::Memory;
use crate::moment::Moment;
use crate::notices::Notices;
use crate::port::JobRef;
use crate::room::Room;

/// The state of one operator.
#[derive(Default)]
pub struct Core {
    pub(crate) cache: Cache,
    pub(crate) room: Room,
    pub(crate) notices: Notices,
    memories: HashMap<JobKey, Memory>,
}

/// What there is to do about a job.
pub(crate) enum Sight {
    Gone,
    /// The cache has not seen our own last writes yet. What is awaited brings the job back; this moment is for the case that
    /// it never comes.
    Behind(Instant),
    Unreadable(JobRef, Arc<Unreadable>),
    /// An unreadable job that is being deleted and has our finalizer.
    Leaving(JobRef, Arc<Unreadable>),
    Nothing,
    Clear(Box<Snapshot>),
}

impl Core {
    /// What is remembered about a job. Nothing is remembered about one that is gone.
    pub(crate) fn memory(&mut self, key: &JobKey) -> Option<&mut Memory> {
        self.memories.get_mut(key)
    }

    /// The same, from now on.
    pub(crate) fn remember(&mut self, key: &JobKey) -> &mut Memory {
        self.memories.entry(key.clone()).or_default()
    }

    /// A job that is gone. Says whether we had begun with it.
    pub(crate) fn forget(&mut self, key: &JobKey) -> bool {
        self.room.forget(key);
        self.memories.remove(key).is_some_and(|memory| memory.begun)
    }

    /// What there is to do about this job, as far as it can be seen.
    pub(crate) fn sight(&mut self, key: &JobKey, now: Moment) -> Sight {
        let job = match self.cache.job(key) {
            None => return Sight::Gone,
            Some(Job::Read(job)) => job.clone(),
            Some(Job::Unreadable(job)) => return unreadable(key, job),
        };
        let cache = &self.cache;
        let memory = self.memories.entry(key.clone()).or_default();
        memory.is_about(job.metadata.uid.as_deref().unwrap_or_default());
        if !memory.lost.is_empty() {
            // More pods vanished while the first were asked for.
            return Sight::Behind(now.instant);
        }
        if let Some(patience) = memory.behind(cache, key, now.instant) {
            return Sight::Behind(now.instant + patience);
        }
        // Only now: a status from before our own last one would be new, and then our own again.
        memory.lost.extend(acquaintance::make(&mut memory.acquainted, &job, cache, key));
        if !memory.lost.is_empty() {
            return Sight::Behind(now.instant);
        }
        memory.forget_vanished(job.status.as_ref());
        memory.forget_stacks(job.status.as_ref());
        let mut pods: Vec<PodView> = cache.pods.of(key).cloned().collect();
        if let Some(holdup) = &memory.holdup {
            holdup.explain(&mut pods);
        }
        // A log that is still followed when nobody is to read it any more tells nothing, from then on.
        let is_heard = job.spec.reads_logs();
        Sight::Clear(Box::new(Snapshot {
            job,
            pods,
            services: cache.services.of(key).cloned().collect(),
            config_maps: cache.config_maps.of(key).cloned().collect(),
            claims: cache.claims.of(key).cloned().collect(),
            vanished: memory.vanished.clone(),
            obstacles: memory.obstacles_at(now),
            progress: memory.progress_at(now).filter(|_| is_heard),
            listening: memory.listening_at(now).filter(|_| is_heard),
            agent: memory.report.as_deref().cloned(),
            tails: memory.tails.clone(),
            stacks: memory.stacks.as_deref().cloned(),
            nodes: memory.nodes.iter().map(|node| node.view.clone()).collect(),
            notices: self.notices.all(),
            last_status_write: memory.last_status_write.and_then(|at| now.wall_at(at)),
        }))
    }
}

/// What to do about a job that cannot be read.
fn unreadable(key: &JobKey, job: &Arc<Unreadable>) -> Sight {
    if job.managed_by.as_deref().is_some_and(|manager| manager != names::CONTROLLER_NAME) {
        return Sight::Nothing;
    }
    let reference = key.reference(job.metadata.uid.clone().unwrap_or_default());
    if job.metadata.deletion_timestamp.is_none() {
        return Sight::Unreadable(reference, job.clone());
    }
    let mut finalizers = job.metadata.finalizers.iter().flatten();
    if finalizers.any(|name| name == names::FINALIZER) {
        Sight::Leaving(reference, job.clone())
    } else {
        Sight::Nothing
    }
}
