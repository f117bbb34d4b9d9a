//! Absence is checked before it is believed: a pod that is no longer seen, although nobody had asked it to go, may only have lost
//! its label.

use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trainyard_api::TrainingJob;
use trainyard_plan::{Target, TargetKind, Vanished};

use crate::cache::{Job, JobKey};
use crate::core::Core;
use crate::execute::{is_labelled, relabel};
use crate::look::Eyes;
use crate::memory::{Echo, LostPod};
use crate::moment::Moment;
use crate::port::{JobRef, Port, Refusal};
use crate::views::{attempt, controller, version};

/// When to ask again after a passing fault.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// When to ask again for a job that is gone, and of which the watch has not told yet.
const JOB_AGAIN: Duration = Duration::from_secs(5);

impl Core {
    /// The pods of this job that are no longer seen.
    fn lost(&mut self, key: &JobKey) -> Vec<LostPod> {
        let uid = self.cache.job(key).and_then(Job::uid).map(str::to_owned);
        let Some(memory) = self.memory(key) else { return Vec::new() };
        // With a job that is gone, all that it made is.
        memory.lost.retain(|pod| Some(&pod.job) == uid.as_ref());
        memory.lost.clone()
    }

    /// A pod is no longer seen. Noted in the same breath as its absence, so that nobody plans without it before it is asked for.
    pub(crate) fn doubt(&mut self, key: &JobKey, pod: LostPod) {
        if self.cache.job(key).and_then(Job::uid) != Some(&pod.job) {
            return;
        }
        let memory = self.remember(key);
        if !pod.uid.as_ref().is_some_and(|uid| memory.has_deleted(uid)) {
            memory.lost.push(pod);
        }
    }
}

/// Which pods are to be gone before the next attempt begins.
struct Before<'a> {
    /// The uid of their job.
    job: &'a str,
    /// The last attempt, which has ended. Without one, somebody has removed the status, and all are of before.
    attempt: Option<i32>,
    /// The version of what was seen last, if there was anything: none of any version would do.
    seen: Option<u64>,
}

/// What is left of a pod that is no longer seen.
enum Left {
    Nothing,
    /// It will be seen again.
    Seen(Echo),
    Going,
}

impl<P: Port, C: Fn() -> Moment> Eyes<'_, P, C> {
    /// Asks whether the pods that vanished are really gone. One that is still there gets its labels back, so that
    /// nothing is concluded from its absence. Says when to ask again, if there was no answer.
    pub(crate) async fn settle_doubts(&self, key: &JobKey) -> Option<Instant> {
        let lost = self.core().lost(key);
        let first = lost.first()?;
        let asked = join_all(lost.iter().map(|pod| self.ask_for(key, pod))).await;
        if asked.iter().any(|found| matches!(found, Ok(None)))
            && let Some(patience) = self.is_job_gone(key, &first.job).await
        {
            return Some((self.clock)().instant + patience);
        }
        let now = (self.clock)().instant;
        let mut core = self.core();
        let memory = core.memory(key)?;
        let mut again = None;
        for (pod, found) in lost.into_iter().zip(asked) {
            match found {
                Ok(None) => {
                    memory.lost.retain(|other| *other != pod);
                    // One that this process never saw is missing by the word of a status, which somebody may remove.
                    if pod.uid.is_some() {
                        memory.vanished.push(Vanished { name: pod.name, attempt: pod.attempt });
                    }
                }
                Ok(Some(echo)) => {
                    memory.lost.retain(|other| *other != pod);
                    memory.expect(vec![echo], now);
                }
                Err(refusal) => {
                    tracing::warn!(job = %key, pod = %pod.name, "is it gone? {refusal}; asking again");
                    again = Some(now + ASK_AGAIN);
                }
            }
        }
        again
    }

    /// Pods go with their job. Nobody makes them again for one that is gone, only because the watch is slow to tell: they would be
    /// collected at once, and made again, for as long as it takes. Says when to ask again, if the job is gone or there was no answer.
    async fn is_job_gone(&self, key: &JobKey, uid: &str) -> Option<Duration> {
        match self.port.has_job(&key.reference(uid.to_owned())).await {
            Ok(true) => None,
            Ok(false) => Some(JOB_AGAIN),
            Err(refusal) => {
                tracing::warn!(job = %key, "has it gone with its pods? {refusal}; asking again");
                Some(ASK_AGAIN)
            }
        }
    }

    /// Makes sure that these pods of an attempt that has ended are gone: not only out of sight. One that has lost its label gets it back
    /// and is then removed like any other; one that the watch never told of is removed here. Says when to ask again, if one is left.
    pub(crate) async fn make_way(&self, key: &JobKey, job: &TrainingJob, pods: &[String]) -> Option<Instant> {
        if pods.is_empty() {
            return None;
        }
        let before = Before {
            job: job.metadata.uid.as_deref().unwrap_or_default(),
            attempt: job.status.as_ref().and_then(|status| status.attempts.last()).map(|last| last.number),
            // All of them were made before what was seen last.
            seen: Some(self.core().cache.pods.newest()).filter(|version| *version > 0),
        };
        let beside = self.beside(key, &before, pods.len()).await;
        let left = pods.iter().map(|name| async {
            let found = match &beside {
                Some(beside) => beside.iter().find(|pod| pod.name.as_ref() == Some(name)).cloned(),
                None => self.find(key, &before, name).await?,
            };
            match found {
                Some(metadata) => self.remove_unseen(key, &before, name, metadata).await,
                None => Ok(Left::Nothing),
            }
        });
        let left = join_all(left).await;
        let now = (self.clock)().instant;
        let mut core = self.core();
        let memory = core.remember(key);
        let mut again = None;
        for (name, left) in pods.iter().zip(left) {
            match left {
                Ok(Left::Nothing) => {}
                Ok(Left::Seen(echo)) => {
                    memory.expect(vec![echo], now);
                    again = Some(now);
                }
                Ok(Left::Going) => again = again.or(Some(now + ASK_AGAIN)),
                Err(refusal) => {
                    tracing::warn!(job = %key, pod = %name, "is it gone? {refusal}; asking again");
                    again = again.or(Some(now + ASK_AGAIN));
                }
            }
        }
        again
    }

    /// All pods around the job in one answer, if that is not much more than was to be asked for. Without an answer, or with too long a
    /// one, they are asked for one by one.
    async fn beside(&self, key: &JobKey, before: &Before<'_>, wanted: usize) -> Option<Vec<ObjectMeta>> {
        let reference = key.reference(before.job.to_owned());
        self.port.pods_beside(&reference, before.seen, 4 * wanted + 16).await.ok().flatten()
    }

    async fn find(
        &self,
        key: &JobKey,
        before: &Before<'_>,
        name: &str,
    ) -> Result<Option<ObjectMeta>, Refusal> {
        let reference = key.reference(before.job.to_owned());
        let mut asked = self.port.metadata(&reference, TargetKind::Pod, name, before.seen).await;
        if before.seen.is_some() && !matches!(asked, Ok(_) | Err(Refusal::NotFound)) {
            // A server that was set back does not know that version, and may never do.
            asked = self.port.metadata(&reference, TargetKind::Pod, name, None).await;
        }
        match asked {
            Ok(metadata) => Ok(Some(metadata)),
            Err(Refusal::NotFound) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    async fn remove_unseen(
        &self,
        key: &JobKey,
        before: &Before<'_>,
        name: &str,
        metadata: ObjectMeta,
    ) -> Result<Left, Refusal> {
        let reference = key.reference(before.job.to_owned());
        if controller(&metadata).as_deref() != Some(before.job) {
            return Ok(Left::Nothing);
        }
        if !is_labelled(&metadata, &key.name) {
            return Ok(self
                .put_back(key, &reference, name, &metadata)
                .await?
                .map_or(Left::Going, Left::Seen));
        }
        if attempt(&metadata).zip(before.attempt).is_some_and(|(attempt, last)| attempt > last) {
            // Somebody else has begun already: the watch will tell.
            return Ok(Left::Going);
        }
        if metadata.deletion_timestamp.is_none() {
            tracing::warn!(job = %key, pod = %name, "it was never seen; removing it");
            let uid = metadata.uid.unwrap_or_default();
            let target = Target { kind: TargetKind::Pod, name: name.to_owned(), uid };
            match self.port.delete(&reference, &target, None).await {
                Ok(()) | Err(Refusal::NotFound | Refusal::Conflict) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(Left::Going)
    }

    /// Nothing, if the pod is gone; else what will be seen of it again. One that is going is there until it has gone.
    async fn ask_for(&self, key: &JobKey, pod: &LostPod) -> Result<Option<Echo>, Refusal> {
        let reference = key.reference(pod.job.clone());
        let metadata = match self.port.metadata(&reference, TargetKind::Pod, &pod.name, None).await {
            Ok(metadata) => metadata,
            Err(Refusal::NotFound) => return Ok(None),
            Err(refusal) => return Err(refusal),
        };
        if controller(&metadata).as_deref() != Some(&pod.job) {
            return Ok(None);
        }
        if is_labelled(&metadata, &key.name) {
            // Only the watch is late: it is still there, or another operator has made the next one of its name.
            let (kind, name, version) = (TargetKind::Pod, pod.name.clone(), version(&metadata));
            return Ok(Some(Echo::Reached { kind, name, version }));
        }
        self.put_back(key, &reference, &pod.name, &metadata).await
    }

    /// Gives a pod the label back by which it is seen. Nothing, if it has gone meanwhile.
    async fn put_back(
        &self,
        key: &JobKey,
        reference: &JobRef,
        name: &str,
        metadata: &ObjectMeta,
    ) -> Result<Option<Echo>, Refusal> {
        tracing::warn!(job = %key, pod = %name, "its label was removed; putting it back");
        match relabel(self.port, reference, TargetKind::Pod, name, metadata).await {
            Ok(echo) => Ok(Some(echo)),
            Err(Refusal::NotFound) => Ok(None),
            // Another pod of its name by now, or only a busy server: asking again tells.
            Err(refusal) => Err(refusal),
        }
    }
}
