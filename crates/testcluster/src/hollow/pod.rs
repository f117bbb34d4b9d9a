//! One pod's way through its phases.
//!
//! A walker is told of its pod's deletion by the watch, and of orders by the test; it is aborted
//! when the pod is gone, so it may wait for ever where a pod would.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use tokio::sync::{mpsc, oneshot, watch};

use super::status::{Life, Stage};
use super::{Script, Then, Yard};

/// A kubelet starts a container again at once, then after 10 s, doubling up to five minutes.
const RESTART_PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));

/// The end of a pod's containers.
#[derive(Debug)]
pub(super) struct End {
    pub(super) code: i32,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    /// Told when the API server knows.
    pub(super) done: Option<oneshot::Sender<()>>,
}

/// What ends a wait.
enum Next {
    Elapsed,
    Deleted,
    End(End),
}

pub(super) struct Walker {
    yard: Arc<Yard>,
    node: String,
    latest: watch::Receiver<Pod>,
    orders: mpsc::UnboundedReceiver<End>,
    script: Script,
    life: Life,
}

impl Walker {
    pub(super) fn new(
        yard: Arc<Yard>,
        node: String,
        latest: watch::Receiver<Pod>,
        orders: mpsc::UnboundedReceiver<End>,
    ) -> Self {
        let (script, life) = {
            let pod = latest.borrow();
            (yard.decide(&pod), Life::of(&pod, yard.next_address()))
        };
        Self { yard, node, latest, orders, script, life }
    }

    pub(super) async fn walk(mut self) {
        self.live().await;
        // Here it is being deleted.
        if !self.life.ended() {
            let scripted = self.stopped();
            let end = tokio::select! {
                Some(ordered) = self.orders.recv() => ordered,
                () = tokio::time::sleep(self.script.stop_after) => scripted,
            };
            self.finish(end).await;
        }
        self.delete().await;
    }

    /// How its containers end when it is deleted.
    fn stopped(&self) -> End {
        if self.life.started() {
            return End { code: self.script.stop_code, reason: None, message: None, done: None };
        }
        End {
            code: 137,
            reason: Some("ContainerStatusUnknown".into()),
            message: Some("The container could not be located when the pod was terminated".into()),
            done: None,
        }
    }

    /// Until the pod is deleted.
    async fn live(&mut self) {
        let ended = self.live_until_ended().await;
        if ended {
            // Orders are for a pod that runs; those who gave one learn that this does not.
            while !matches!(self.wait(None).await, Next::Deleted) {}
        }
    }

    /// Whether the pod ended; otherwise it was deleted before.
    async fn live_until_ended(&mut self) -> bool {
        if self.life.ended() {
            return true;
        }
        if !self.life.started()
            && let Some(ended) = self.come_up().await
        {
            return ended;
        }
        loop {
            self.report(&Stage::Running).await;
            let script = match &self.script.then {
                Then::Exit { after, code, reason, message } => Some((
                    *after,
                    End { code: *code, reason: reason.clone(), message: message.clone(), done: None },
                )),
                Then::RunForever | Then::NeverStart { .. } => None,
            };
            let (after, scripted) = script.unzip();
            let end = match (self.wait(after).await, scripted) {
                (Next::End(end), _) | (Next::Elapsed, Some(end)) => end,
                (Next::Deleted | Next::Elapsed, _) => return false,
            };
            if !self.restarts(end.code) {
                self.finish(end).await;
                return true;
            }
            self.life.restart(end.code, end.reason.as_deref());
            let pause = restart_pause(self.life.restarts());
            if !pause.is_zero() {
                self.report(&Stage::BackOff).await;
            }
            if let Some(done) = end.done {
                let _ = done.send(());
            }
            if let Next::Deleted = self.wait_out(pause).await {
                return false;
            }
        }
    }

    /// From bound to started. `Some` when it does not come to that: whether the pod ended.
    async fn come_up(&mut self) -> Option<bool> {
        let mut next = Next::Elapsed;
        if !self.script.start_after.is_zero() {
            self.report(&Stage::Creating).await;
            next = self.wait(Some(self.script.start_after)).await;
        }
        if let (Next::Elapsed, Then::NeverStart { reason, message }) = (&next, &self.script.then) {
            let stage = Stage::Stuck { reason: reason.clone(), message: message.clone() };
            self.report(&stage).await;
            next = self.wait(None).await;
        }
        match next {
            Next::Elapsed => None,
            Next::Deleted => Some(false),
            Next::End(end) => {
                self.finish(end).await;
                Some(true)
            }
        }
    }

    async fn finish(&mut self, end: End) {
        self.report(&Stage::Ended { code: end.code, reason: end.reason, message: end.message }).await;
        if let Some(done) = end.done {
            let _ = done.send(());
        }
    }

    fn restarts(&self, code: i32) -> bool {
        let pod = self.latest.borrow();
        match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => false,
            Some("OnFailure") => code != 0,
            _ => true,
        }
    }

    /// Waits for so long, or for ever; the pod's deletion comes first.
    async fn wait(&mut self, how_long: Option<Duration>) -> Next {
        let elapsed = async {
            match how_long {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Ok(_) = self.latest.wait_for(|pod| pod.metadata.deletion_timestamp.is_some()) => Next::Deleted,
            Some(end) = self.orders.recv() => Next::End(end),
            () = elapsed => Next::Elapsed,
        }
    }

    /// Waits without taking orders.
    async fn wait_out(&mut self, how_long: Duration) -> Next {
        tokio::select! {
            Ok(_) = self.latest.wait_for(|pod| pod.metadata.deletion_timestamp.is_some()) => Next::Deleted,
            () = tokio::time::sleep(how_long) => Next::Elapsed,
        }
    }

    async fn report(&mut self, stage: &Stage) {
        let pod = self.latest.borrow().clone();
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        let patch = Patch::Strategic(self.life.enter(&pod, stage));
        let pods: Api<Pod> = Api::namespaced(self.yard.client.clone(), &namespace);
        let params = PatchParams::default();
        let request = || pods.patch_status(&name, &params, &patch);
        if self.yard.request(&self.node, request).await.is_none() {
            // The pod is gone, and the watch is about to say so.
            std::future::pending::<()>().await;
        }
    }

    async fn delete(&self) {
        let (name, namespace, uid) = {
            let pod = self.latest.borrow();
            (pod.name_any(), pod.namespace().unwrap_or_default(), pod.uid())
        };
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.yard.client.clone(), &namespace);
        let request = || async {
            match pods.delete(&name, &now).await {
                // Another pod has its name by now.
                Err(kube::Error::Api(status)) if status.is_conflict() => Ok(()),
                other => other.map(drop),
            }
        };
        self.yard.request(&self.node, request).await;
    }
}

fn restart_pause(restarts: i32) -> Duration {
    let Some(doublings) = u32::try_from(restarts).unwrap_or(0).checked_sub(2) else { return Duration::ZERO };
    let factor = 2_u32.saturating_pow(doublings);
    RESTART_PAUSES.0.saturating_mul(factor).min(RESTART_PAUSES.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_slow_down() {
        let pauses: Vec<u64> = (1..=8).map(|restarts| restart_pause(restarts).as_secs()).collect();
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(restart_pause(i32::MAX).as_secs(), 300);
    }
}
