//! Watches: they keep the cache true and tell the queue whom the news is about.
//!
//! Selected by label on the server's side, so that other people's pods cost nothing. A watch that breaks comes back by
//! itself, with a delay that grows up to a few seconds, and starts over with a full list when it has to.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use trainyard_api::names;

use crate::driver::Shared;
use crate::guard::Guarded;
use crate::notices;
use crate::sighting::{Sighting, Watched};
use crate::views::{SlimClaim, SlimConfigMap, SlimPod, SlimService};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LAST_DELAY: Duration = Duration::from_secs(5);

/// How long a watch that broke waits: longer each time.
pub(crate) struct Delay(Duration);

impl Default for Delay {
    fn default() -> Self {
        Self(FIRST_DELAY)
    }
}

impl Delay {
    pub(crate) async fn pass(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LAST_DELAY);
    }
}

/// Starts all watches.
pub(crate) fn start(shared: &Arc<Shared>, client: &kube::Client) -> Vec<tokio::task::JoinHandle<()>> {
    let ours = || {
        let selector = format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY);
        watcher::Config::default().labels(&selector)
    };
    let all = watcher::Config::default();
    vec![
        tokio::spawn(follow::<Guarded>(shared.clone(), client.clone(), all, Watched::Jobs)),
        tokio::spawn(follow::<SlimPod>(shared.clone(), client.clone(), ours(), Watched::Pods)),
        tokio::spawn(follow::<SlimService>(shared.clone(), client.clone(), ours(), Watched::Services)),
        tokio::spawn(follow::<SlimConfigMap>(shared.clone(), client.clone(), ours(), Watched::ConfigMaps)),
        tokio::spawn(follow::<SlimClaim>(shared.clone(), client.clone(), ours(), Watched::Claims)),
        tokio::spawn(notices::follow(shared.clone(), client.clone())),
    ]
}

fn scoped<K>(shared: &Shared, client: kube::Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match &shared.config.namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    }
}

async fn follow<K>(shared: Arc<Shared>, client: kube::Client, config: watcher::Config, kind: Watched)
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
    Sighting: From<Event<K>>,
{
    let api: Api<K> = scoped(&shared, client);
    let _end = End { shared: shared.clone(), kind };
    // Small pages: the first list of a large cluster must not need more memory than the cache itself.
    let stream = watcher::watcher(api, config.page_size(100));
    pin_mut!(stream);
    let mut delay = Delay::default();
    // Why it is down. A watch that stays down for the same reason is told of once.
    let mut broken: Option<String> = None;
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                // The start of a list is no answer yet: it comes before the API server is asked.
                if !matches!(event, Event::Init) {
                    if broken.take().is_some() {
                        tracing::info!(kind = kind.plural(), "watch is back");
                        shared.readiness.watching(kind, true);
                    }
                    delay = Delay::default();
                }
                let listed = matches!(event, Event::InitDone);
                shared.see(event.into());
                if listed {
                    shared.readiness.listed(kind);
                }
            }
            Err(error) => {
                shared.metrics.watch_failed(kind.plural());
                let why = explained(kind, &error);
                if broken.as_ref() != Some(&why) {
                    tracing::warn!(kind = kind.plural(), "watch broke, trying again: {why}");
                }
                broken = Some(why);
                shared.readiness.watching(kind, false);
                // The stream asks the API server again only when it is polled.
                delay.pass().await;
            }
        }
    }
}

/// A watch never ends by itself. If one does (a panic), the operator is not ready any more, and says so.
struct End {
    shared: Arc<Shared>,
    kind: Watched,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.readiness.watching(self.kind, false);
    }
}

/// What the API server said, if it was that.
pub(crate) fn refusal(error: &watcher::Error) -> Option<&kube::core::Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    }
}

fn explained(kind: Watched, error: &watcher::Error) -> String {
    match refusal(error) {
        Some(status) if status.code == 404 && kind == Watched::Jobs => {
            "the API server does not know TrainingJob: apply the CRD first (trainyard crds | kubectl apply -f -)".to_owned()
        }
        Some(status) if status.code == 403 => {
            format!("{} (the operator needs get, list and watch on {})", status.message, kind.plural())
        }
        _ => error.to_string(),
    }
}
