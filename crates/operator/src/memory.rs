//! What this process remembers about a job and need not survive it: the writes whose echo it waits for, what was
//! refused, and how often something went wrong in a row.

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use trainyard_api::{Attempt, TrainingJobStatus};
use trainyard_plan::{AgentView, Listening, Obstacle, Stacks, Tail, TargetKind, Vanished};
use trainyard_progress::Progress;

use crate::acquaintance::Acquaintance;
use crate::cache::{Cache, JobKey};
use crate::holdups::Holdup;
use crate::moment::Moment;
use crate::nodes::KnownNode;
use crate::progress::Following;

/// How long the echo of our own write may take before a plan is made without it. Only a watch that lost an
/// object which was created and deleted while it was down makes us wait this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Clocks that differ by more than this were set; by less, they only run differently.
const CLOCK_SET: SignedDuration = SignedDuration::from_secs(2);

/// A write of ours that the cache must have seen before the next plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Echo {
    /// The job itself has reached this version.
    Job(u64),
    /// An object was created or changed.
    Reached { kind: TargetKind, name: String, version: u64 },
    /// An object is gone, or marked for deletion.
    Leaving { kind: TargetKind, name: String, uid: String },
}

/// A pod that is no longer seen, although nobody had asked for its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostPod {
    /// The uid of its job.
    pub(crate) job: String,
    pub(crate) name: String,
    /// None: this process never saw it.
    pub(crate) uid: Option<String>,
    pub(crate) attempt: Option<i32>,
}

/// The log of a program, and whether it can be heard.
#[derive(Debug)]
pub(crate) struct Ear {
    /// The uid of the pod.
    pub(crate) pod: String,
    pub(crate) began: Instant,
    /// None while the connection is down.
    pub(crate) since: Option<Instant>,
    /// It was up before.
    pub(crate) again: bool,
}

impl Ear {
    /// Nothing has been heard of this pod yet.
    pub(crate) fn new(pod: &str) -> Self {
        Self { pod: pod.to_owned(), began: Instant::now(), since: None, again: false }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The job that all of this is about: another of the same name starts afresh.
    job: String,
    /// This process has begun with the job: it is announced and counted once.
    pub(crate) begun: bool,
    /// This process knows the pods that this tells of, whatever their labels were when it started, and whoever made them.
    pub(crate) acquainted: Option<Acquaintance>,
    echoes: Vec<Echo>,
    /// The version of the job that this process wrote last.
    wrote: Option<u64>,
    waiting_since: Option<Instant>,
    /// What was refused, and when to try again: by the clock that nobody sets.
    pub(crate) obstacles: Vec<(Obstacle, Instant)>,
    pub(crate) last_status_write: Option<Instant>,
    /// The log that is followed for progress, and what it said.
    pub(crate) following: Option<Box<Following>>,
    pub(crate) progress: Option<Box<Progress>>,
    /// When that was, by the clock that nobody sets.
    pub(crate) heard: Option<Instant>,
    /// Whether it is listened to.
    pub(crate) ear: Option<Box<Ear>>,
    /// The agent's log that is followed, and what it said last.
    pub(crate) agent: Option<Box<Following>>,
    pub(crate) report: Option<Box<AgentView>>,
    /// The ends of the logs of pods that failed, and since when they are being read.
    pub(crate) tails: Vec<Tail>,
    pub(crate) reading: Option<Instant>,
    /// A pod that does not start, and why.
    pub(crate) holdup: Option<Box<Holdup>>,
    /// Where the pods of an attempt that stalled hung.
    pub(crate) stacks: Option<Box<Stacks>>,
    /// Nodes of pods that do not go.
    pub(crate) nodes: Vec<KnownNode>,
    /// Passing faults in a row, for the delay until the next try.
    pub(crate) faults: u32,
    /// Refusals in a row, likewise.
    pub(crate) refusals: u32,
    /// Pods that vanished without having been asked to go.
    pub(crate) lost: Vec<LostPod>,
    /// Those of them that are really gone.
    pub(crate) vanished: Vec<Vanished>,
    /// Generation for which an unreadable job has been reported.
    pub(crate) unreadable_reported: Option<i64>,
}

impl Memory {
    /// Forgets everything if this is another job than before.
    pub(crate) fn is_about(&mut self, uid: &str) {
        if self.job.is_empty() {
            // What was doubted before the first look, and found, is about this job.
            uid.clone_into(&mut self.job);
        } else if self.job != uid {
            *self = Self { job: uid.to_owned(), ..Self::default() };
        }
    }

    /// Whether we have asked for the deletion of this object ourselves.
    pub(crate) fn has_deleted(&self, object: &str) -> bool {
        self.echoes.iter().any(|echo| matches!(echo, Echo::Leaving { uid, .. } if uid == object))
    }

    /// What the program said, and when, in the time of the wall clock as it is now: somebody may have set it since.
    pub(crate) fn progress_at(&self, now: Moment) -> Option<Progress> {
        let mut progress = self.progress.as_deref().cloned()?;
        let heard = self.heard.and_then(|heard| now.wall_at(heard));
        if let (Some(updated), Some(heard)) = (progress.updated, heard)
            && updated.duration_since(heard).abs() > CLOCK_SET
        {
            progress.updated = Some(heard);
        }
        Some(progress)
    }

    /// What was refused, in the time of the wall clock as it is now.
    pub(crate) fn obstacles_at(&self, now: Moment) -> Vec<Obstacle> {
        let at = |(obstacle, again): &(Obstacle, Instant)| {
            let retry_at = now.wall_at(*again).unwrap_or(obstacle.retry_at);
            Obstacle { retry_at, ..obstacle.clone() }
        };
        self.obstacles.iter().map(at).collect()
    }

    /// Whose log is listened to, in the time of the wall clock as it is now.
    pub(crate) fn listening_at(&self, now: Moment) -> Option<Listening> {
        let ear = self.ear.as_deref()?;
        let (began, since) = (now.wall_at(ear.began)?, now.wall_at(ear.since?)?);
        Some(Listening { pod: ear.pod.clone(), began, since })
    }

    /// Once all pods of an attempt have been seen, the status knows which are missing.
    pub(crate) fn forget_vanished(&mut self, status: Option<&TrainingJobStatus>) {
        let Some(last) = status.and_then(|status| status.attempts.last()) else { return };
        let settled =
            if last.is_open() && last.created_time.is_none() { last.number - 1 } else { last.number };
        self.vanished.retain(|pod| pod.attempt.is_some_and(|attempt| attempt > settled));
    }

    /// Once the status says where an attempt hung, or another has begun, nobody asks any more.
    pub(crate) fn forget_stacks(&mut self, status: Option<&TrainingJobStatus>) {
        let Some(stacks) = &self.stacks else { return };
        let told = |attempt: &Attempt| {
            attempt.number > stacks.attempt || (attempt.number == stacks.attempt && attempt.error.is_some())
        };
        if status.is_none_or(|status| status.attempts.iter().any(told)) {
            self.stacks = None;
        }
    }

    /// Whether this version of the job is from before our own last write: the watch is slow, or has lost an event.
    pub(crate) fn is_before_own(&self, version: u64) -> bool {
        self.wrote.is_some_and(|wrote| version < wrote)
    }

    pub(crate) fn expect(&mut self, echoes: Vec<Echo>, now: Instant) {
        let mut written = echoes.iter().rev().filter_map(|echo| match echo {
            Echo::Job(version) => Some(*version),
            Echo::Reached { .. } | Echo::Leaving { .. } => None,
        });
        self.wrote = written.next().or(self.wrote);
        self.echoes.extend(echoes);
        // The watch may have been quicker than the rest of the plan: what we deleted ourselves is not lost.
        let mut lost = std::mem::take(&mut self.lost);
        lost.retain(|pod| !pod.uid.as_ref().is_some_and(|uid| self.has_deleted(uid)));
        self.lost = lost;
        self.waiting_since = (!self.echoes.is_empty()).then_some(now);
    }

    /// How much longer to wait for the cache, or nothing when it has caught up with our writes.
    pub(crate) fn behind(&mut self, cache: &Cache, key: &JobKey, now: Instant) -> Option<Duration> {
        self.echoes.retain(|echo| !has_arrived(echo, cache, key));
        if self.echoes.is_empty() {
            // Most jobs are quiet most of the time: they need not keep room for their next writes.
            self.echoes = Vec::new();
            self.waiting_since = None;
            return None;
        }
        let waited = now.duration_since(*self.waiting_since.get_or_insert(now));
        if waited >= PATIENCE {
            tracing::warn!(job = %key, echoes = ?self.echoes, "own writes were not seen again; asking for the pods, going on without the rest");
            self.lost = self.out_of_sight(cache, key);
            self.echoes.clear();
            self.waiting_since = None;
            return (!self.lost.is_empty()).then_some(Duration::ZERO);
        }
        PATIENCE.checked_sub(waited)
    }
}

impl Memory {
    /// Pods that we wrote and that are not seen: the watch may only be slow.
    fn out_of_sight(&self, cache: &Cache, key: &JobKey) -> Vec<LostPod> {
        let written = self.echoes.iter().filter_map(|echo| match echo {
            Echo::Reached { kind: TargetKind::Pod, name, .. } => Some(name),
            _ => None,
        });
        let unseen = written.filter(|name| cache.pods.named(key, name).is_none());
        let lost = unseen.map(|name| LostPod {
            job: self.job.clone(),
            name: name.clone(),
            uid: None,
            attempt: None,
        });
        lost.collect()
    }
}

fn has_arrived(echo: &Echo, cache: &Cache, key: &JobKey) -> bool {
    match echo {
        Echo::Job(version) => cache.jobs.has_reached(key, &key.name, *version),
        Echo::Reached { kind, name, version } => match kind {
            TargetKind::Pod => cache.pods.has_reached(key, name, *version),
            TargetKind::Service => cache.services.has_reached(key, name, *version),
            TargetKind::ConfigMap => cache.config_maps.has_reached(key, name, *version),
            TargetKind::Claim => cache.claims.has_reached(key, name, *version),
        },
        Echo::Leaving { kind, name, uid } => match kind {
            TargetKind::Pod => cache.pods.named(key, name).is_none_or(|pod| pod.uid != *uid || pod.deleting),
            TargetKind::Service => {
                cache.services.named(key, name).is_none_or(|view| view.uid != *uid || view.deleting)
            }
            TargetKind::ConfigMap => {
                cache.config_maps.named(key, name).is_none_or(|view| view.uid != *uid || view.deleting)
            }
            TargetKind::Claim => {
                cache.claims.named(key, name).is_none_or(|claim| claim.uid != *uid || claim.deleting)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_before_the_first_look_is_kept_and_what_is_of_another_job_is_not() {
        let mut memory = Memory::default();
        memory.vanished.push(Vanished { name: "bert-workers-0".into(), attempt: Some(1) });
        memory.expect(vec![Echo::Job(7)], Instant::now());
        memory.is_about("uid-1");
        assert_eq!((memory.vanished.len(), memory.echoes.len()), (1, 1));
        memory.is_about("uid-1");
        assert_eq!((memory.vanished.len(), memory.echoes.len()), (1, 1));
        memory.is_about("uid-2");
        assert!(memory.vanished.is_empty() && memory.echoes.is_empty() && !memory.is_before_own(1));
    }
}
