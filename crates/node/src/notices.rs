//! Events on pods, in the words of the kubelet and the scheduler. They wait behind everything else, and when there are
//! too many of them some are dropped.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::PostParams;
use tokio::sync::{broadcast, mpsc};

/// Who says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    Scheduler,
    Kubelet,
}

/// The way to the task that writes events.
#[derive(Debug)]
pub(crate) struct Notices {
    sender: mpsc::Sender<Event>,
    node: String,
    number: AtomicU64,
    said: Mutex<BTreeSet<String>>,
    remarks: broadcast::Sender<String>,
}

impl Notices {
    pub(crate) fn start(client: kube::Client, node: String) -> Self {
        let (sender, mut events) = mpsc::channel::<Event>(4096);
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
                if let Err(error) = api.create(&PostParams::default(), &event).await {
                    tracing::debug!("an event was not written: {error}");
                }
            }
        });
        let remarks = broadcast::Sender::new(64);
        Self { sender, node, number: AtomicU64::new(0), said: Mutex::default(), remarks }
    }

    pub(crate) fn normal(&self, pod: &Pod, voice: Voice, reason: &str, message: impl Into<String>) {
        self.send(pod, voice, "Normal", reason, message.into());
    }

    pub(crate) fn warning(&self, pod: &Pod, voice: Voice, reason: &str, message: impl Into<String>) {
        self.send(pod, voice, "Warning", reason, message.into());
    }

    /// Tells people who watch what they would not look for in events.
    pub(crate) fn remark(&self, text: String) {
        // Nobody may be listening.
        let _ = self.remarks.send(text);
    }

    pub(crate) fn remarks(&self) -> broadcast::Receiver<String> {
        self.remarks.subscribe()
    }

    /// Whether this has not been said by this node before.
    pub(crate) fn first_time(&self, what: String) -> bool {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(what)
    }

    /// A pod is gone: what was said about it need not be remembered.
    pub(crate) fn forget(&self, uid: &str) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).retain(|what| !what.contains(uid));
    }

    fn send(&self, pod: &Pod, voice: Voice, kind: &str, reason: &str, message: String) {
        let now = Timestamp::now();
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let metadata = &pod.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        let nanos = now.as_nanosecond();
        let (component, host) = match voice {
            Voice::Scheduler => ("default-scheduler", None),
            Voice::Kubelet => ("kubelet", Some(self.node.clone())),
        };
        let at = Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", nanos + i128::from(number))),
                namespace: metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: metadata.name.clone(),
                namespace: metadata.namespace.clone(),
                uid: metadata.uid.clone(),
                ..ObjectReference::default()
            },
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            count: Some(1),
            first_timestamp: at.clone(),
            last_timestamp: at,
            source: Some(EventSource { component: Some(component.to_owned()), host: host.clone() }),
            reporting_component: Some(component.to_owned()),
            reporting_instance: host,
            ..Event::default()
        };
        // A full queue means that thousands of events are waiting: one less will not be missed.
        let _ = self.sender.try_send(event);
    }
}
