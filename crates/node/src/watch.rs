//! Watches: what changes in the API becomes news on the desk. No polling; a watch that breaks comes back by itself.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::desk::Message;

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LAST_DELAY: Duration = Duration::from_secs(5);

pub(crate) fn start(client: &kube::Client, desk: &mpsc::UnboundedSender<Message>) -> Vec<JoinHandle<()>> {
    vec![
        tokio::spawn(follow::<PersistentVolumeClaim>(client.clone(), desk.clone(), |event| match event {
            Event::Apply(claim) | Event::InitApply(claim) => Some(Message::Claim(Box::new(claim))),
            Event::Delete(claim) => Some(Message::ClaimGone(Box::new(claim))),
            Event::Init | Event::InitDone => None,
        })),
        tokio::spawn(follow::<ConfigMap>(client.clone(), desk.clone(), |event| match event {
            Event::Apply(map) | Event::InitApply(map) => Some(Message::ConfigMap(Box::new(map))),
            // Files that pods have stay.
            Event::Delete(_) | Event::Init | Event::InitDone => None,
        })),
        tokio::spawn(follow::<Service>(client.clone(), desk.clone(), |event| match event {
            Event::Apply(service) | Event::InitApply(service) => Some(Message::Service(Box::new(service))),
            Event::Delete(service) => Some(Message::ServiceGone(Box::new(service))),
            Event::Init | Event::InitDone => None,
        })),
        tokio::spawn(follow::<Pod>(client.clone(), desk.clone(), |event| {
            Some(match event {
                Event::Apply(pod) | Event::InitApply(pod) => Message::Pod(Box::new(pod)),
                Event::Delete(pod) => Message::PodGone(Box::new(pod)),
                Event::Init => Message::PodListBegins,
                Event::InitDone => Message::PodListEnds,
            })
        })),
    ]
}

async fn follow<K>(
    client: kube::Client,
    desk: mpsc::UnboundedSender<Message>,
    message: impl Fn(Event<K>) -> Option<Message>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let stream = watcher::watcher(Api::<K>::all(client), watcher::Config::default());
    pin_mut!(stream);
    let mut delay = FIRST_DELAY;
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                if !matches!(event, Event::Init) {
                    delay = FIRST_DELAY;
                }
                if let Some(message) = message(event)
                    && desk.send(message).is_err()
                {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(kind = %K::plural(&()), "watch broke, trying again: {error}");
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(LAST_DELAY);
            }
        }
    }
}
