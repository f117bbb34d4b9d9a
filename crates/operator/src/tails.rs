//! The ends of the logs of pods that failed: they tell the root from those who only miss a peer. They are read before the
//! decision, because afterwards the pods are gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::AsyncReadExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use trainyard_api::names;
use trainyard_plan::{PodPhase, PodView, Snapshot, Tail, blames_a_peer};

use crate::cache::JobKey;
use crate::driver::Shared;

/// So many logs are read at once, of the pods that failed first: most of the time, the root is among them.
const PODS_MAX: usize = 8;
/// No more are read to find the root, however many pods failed.
const PODS_READ: usize = 64;
/// Behind what it was, a collective can have much to say.
const LINES: i64 = 200;
const BYTES: usize = 64 << 10;

impl Shared {
    /// Reads the logs of pods that failed. Says how long to wait for them.
    pub(crate) fn read_tails(self: &Arc<Self>, key: &JobKey, snapshot: &Snapshot) -> Option<Duration> {
        let (pods, patience) = (unread(snapshot), self.config.log_patience);
        self.with_memory(key, |memory| {
            memory.tails.retain(|tail| snapshot.pods.iter().any(|pod| pod.uid == tail.pod));
            if pods.is_empty() {
                memory.reading = None;
                return None;
            }
            if let Some(since) = memory.reading {
                let left = patience.checked_sub(since.elapsed());
                if left.is_none() {
                    // Nothing is known of them, and nothing will be.
                    let nothing = |pod: &&PodView| Tail { pod: pod.uid.clone(), text: None };
                    memory.tails.extend(pods.iter().map(nothing));
                    memory.reading = None;
                }
                return left;
            }
            memory.reading = Some(Instant::now());
            let pods = pods.iter().map(|pod| Speaker::of(pod)).collect();
            tokio::spawn(read(self.clone(), key.clone(), pods));
            Some(patience)
        })
        .flatten()
    }
}

/// Pods of the current attempt that failed by themselves, the first of them, whose logs have not been read.
pub fn unread(snapshot: &Snapshot) -> Vec<&PodView> {
    let status = snapshot.job.status.as_ref();
    // The status of a job that has just begun may not be written yet: reports wait behind work.
    let number = match status.and_then(|status| status.attempts.last()) {
        Some(last) if last.is_open() => last.number,
        Some(last) => last.number + 1,
        None => 1,
    };
    let failed = |pod: &&PodView| {
        let ended = pod.phase == PodPhase::Failed && pod.exit.as_ref().is_some_and(|exit| exit.code != 0);
        ended && pod.attempt == Some(number) && !pod.deleting && pod.disruption.is_none()
    };
    let mut pods: Vec<&PodView> = snapshot.own_pods().filter(failed).collect();
    pods.sort_by_key(|pod| pod.exit.as_ref().and_then(|exit| exit.at));
    // A rule about words is about those of every pod. Otherwise the first few will do, as long as one of them does not only miss a peer.
    let rules = snapshot.job.spec.failure_rules();
    if !rules.iter().any(|rule| rule.log_pattern.is_some()) {
        let victims = pods.iter().take_while(|pod| snapshot.tail(pod).is_some_and(blames_a_peer)).count();
        pods.truncate((victims + PODS_MAX).min(PODS_READ));
    }
    pods.retain(|pod| !snapshot.was_asked(pod));
    pods.truncate(PODS_MAX);
    pods
}

/// The container of a pod that failed.
struct Speaker {
    pod: String,
    uid: String,
    container: String,
}

impl Speaker {
    fn of(pod: &PodView) -> Self {
        let init = pod.exit.as_ref().and_then(|exit| exit.init.clone());
        let container = init.unwrap_or_else(|| names::CONTAINER.to_owned());
        Self { pod: pod.name.clone(), uid: pod.uid.clone(), container }
    }
}

async fn read(shared: Arc<Shared>, key: JobKey, pods: Vec<Speaker>) {
    let api: Api<Pod> = Api::namespaced(shared.follower.client.clone(), &key.namespace);
    let patience = shared.config.log_patience;
    let read = |Speaker { pod, uid, container }: Speaker| {
        let api = &api;
        async move {
            let end = end_of_log(api, &pod, &container, LINES, BYTES);
            let text = match tokio::time::timeout(patience, end).await {
                Ok(Ok(text)) => Some(text),
                Ok(Err(error)) => {
                    tracing::debug!(%pod, "the end of its log cannot be read: {error}");
                    None
                }
                Err(_) => None,
            };
            Tail { pod: uid, text }
        }
    };
    let tails = join_all(pods.into_iter().map(read)).await;
    shared.with_memory(&key, |memory| {
        memory.reading = None;
        for tail in tails {
            if memory.tails.iter().all(|known| known.pod != tail.pod) {
                memory.tails.push(tail);
            }
        }
    });
    shared.queue.add(key);
}

/// The last lines of a container's log, and of those the last bytes. (The API server's own limit counts from the beginning of
/// the lines, and would cut off the end of long ones.)
pub(crate) async fn end_of_log(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    lines: i64,
    bytes: usize,
) -> Result<String, kube::Error> {
    let parameters =
        LogParams { container: Some(container.to_owned()), tail_lines: Some(lines), ..LogParams::default() };
    let mut stream = std::pin::pin!(pods.log_stream(pod, &parameters).await?);
    let mut end: Vec<u8> = Vec::new();
    let mut piece = vec![0; 16 << 10];
    // What was read until a connection broke is better than nothing.
    while let Ok(length @ 1..) = stream.read(&mut piece).await {
        end.extend_from_slice(&piece[..length]);
        let surplus = end.len().saturating_sub(bytes);
        end.drain(..surplus);
    }
    Ok(String::from_utf8_lossy(&end).into_owned())
}
