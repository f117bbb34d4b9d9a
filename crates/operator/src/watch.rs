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

use crate::cache::{Cache, Job, JobKey, Named, Shelf};
use crate::driver::Shared;
use crate::guard::Guarded;
use crate::memory::LostPod;
use crate::views::{SlimClaim, SlimConfigMap, SlimPod, SlimService, Viewed, version};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LAST_DELAY: Duration = Duration::from_secs(5);

/// The kinds that are watched; the operator is ready when each has been listed once.
pub(crate) const KINDS: [&str; 5] =
    ["trainingjobs", "pods", "services", "configmaps", "persistentvolumeclaims"];

/// Starts all watches.
pub(crate) fn start(shared: &Arc<Shared>, client: &kube::Client) -> Vec<tokio::task::JoinHandle<()>> {
    let spawn_children = [
        tokio::spawn(follow_children::<SlimPod>(shared.clone(), client.clone(), 1, |cache| &mut cache.pods)),
        tokio::spawn(follow_children::<SlimService>(shared.clone(), client.clone(), 2, |cache| {
            &mut cache.services
        })),
        tokio::spawn(follow_children::<SlimConfigMap>(shared.clone(), client.clone(), 3, |cache| {
            &mut cache.config_maps
        })),
        tokio::spawn(follow_children::<SlimClaim>(shared.clone(), client.clone(), 4, |cache| {
            &mut cache.claims
        })),
    ];
    let mut tasks = vec![tokio::spawn(follow_jobs(shared.clone(), client.clone()))];
    tasks.extend(spawn_children);
    tasks
}

async fn follow_jobs(shared: Arc<Shared>, client: kube::Client) {
    let api: Api<Guarded> = scoped(&shared, client);
    follow(shared, api, watcher::Config::default(), 0, |cache, event| {
        apply(&mut cache.jobs, event, |job| match job {
            Guarded::Read(mut job) => {
                job.metadata.managed_fields = None;
                if let Some(annotations) = &mut job.metadata.annotations {
                    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
                }
                Job::Read(Arc::from(job))
            }
            Guarded::Unreadable(job) => Job::Unreadable(Arc::from(job)),
        })
    })
    .await;
}

async fn follow_children<K>(
    shared: Arc<Shared>,
    client: kube::Client,
    kind: usize,
    shelf: fn(&mut Cache) -> &mut Shelf<K::View>,
) where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Viewed
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
    K::View: Named + Send,
{
    let api: Api<K> = scoped(&shared, client);
    let selector = format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY);
    follow(shared, api, watcher::Config::default().labels(&selector), kind, move |cache, event| {
        apply(shelf(cache), event, Viewed::view)
    })
    .await;
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

/// What one event means to the rest of the operator.
#[derive(Default)]
struct News {
    /// The jobs that it is about.
    about: Vec<JobKey>,
    /// Pods that are no longer seen, although nobody had asked them to go.
    lost: Vec<(JobKey, LostPod)>,
    /// A pod of this job no longer counts against a quota.
    room: Option<JobKey>,
}

/// Puts one event into the cache and says what is new.
fn apply<K: Resource<DynamicType = ()>, T: Named>(
    shelf: &mut Shelf<T>,
    event: Event<K>,
    view: impl Fn(K) -> T,
) -> News {
    let key = |object: &K| {
        let metadata = object.meta();
        if K::plural(&()) == names::PLURAL { JobKey::of_job(metadata) } else { JobKey::of_child(metadata) }
    };
    match event {
        Event::Init => {
            shelf.begin_pass();
            News::default()
        }
        Event::InitDone => {
            let mut news = News::default();
            for (key, view) in shelf.end_pass() {
                news.lost.extend(view.if_lost().map(|pod| (key.clone(), pod)));
                news.about.push(key);
            }
            news
        }
        Event::Apply(object) | Event::InitApply(object) => {
            let Some(key) = key(&object) else { return News::default() };
            let version = version(object.meta());
            let view = view(object);
            let ended = view.has_ended();
            let before = shelf.put(key.clone(), version, view);
            let room = (ended && before.is_some_and(|before| !before.has_ended())).then(|| key.clone());
            News { about: vec![key], lost: Vec::new(), room }
        }
        Event::Delete(object) => {
            let Some(key) = key(&object) else { return News::default() };
            let Some(view) = shelf.remove(&key, object.meta()) else { return News::default() };
            News {
                lost: view.if_lost().map(|pod| (key.clone(), pod)).into_iter().collect(),
                room: (view.counts() && !view.has_ended()).then(|| key.clone()),
                about: vec![key],
            }
        }
    }
}

async fn follow<K>(
    shared: Arc<Shared>,
    api: Api<K>,
    config: watcher::Config,
    kind: usize,
    apply: impl Fn(&mut Cache, Event<K>) -> News,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let _end = End { shared: shared.clone(), kind };
    // Small pages: the first list of a large cluster must not need more memory than the cache itself.
    let stream = watcher::watcher(api, config.page_size(100));
    pin_mut!(stream);
    let mut delay = FIRST_DELAY;
    // Why it is down. A watch that stays down for the same reason is told of once.
    let mut broken: Option<String> = None;
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                // The start of a list is no answer yet: it comes before the API server is asked.
                if !matches!(event, Event::Init) {
                    if broken.take().is_some() {
                        tracing::info!(kind = KINDS[kind], "watch is back");
                        shared.watching(kind, true);
                    }
                    delay = FIRST_DELAY;
                }
                let listed = matches!(event, Event::InitDone);
                let news = shared.with_cache(|cache| {
                    let news = apply(cache, event);
                    // Before anybody can plan without these pods.
                    for (key, pod) in &news.lost {
                        shared.doubt(cache, key, pod);
                    }
                    news
                });
                if let Some(key) = news.room {
                    shared.room_beside(&key);
                }
                for key in news.about {
                    shared.queue.add(key);
                }
                if listed {
                    shared.listed(kind);
                }
            }
            Err(error) => {
                shared.metrics.watch_failed(KINDS[kind]);
                let why = explained(kind, &error);
                if broken.as_ref() != Some(&why) {
                    tracing::warn!(kind = KINDS[kind], "watch broke, trying again: {why}");
                }
                broken = Some(why);
                shared.watching(kind, false);
                // The stream asks the API server again only when it is polled.
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(LAST_DELAY);
            }
        }
    }
}

/// A watch never ends by itself. If one does (a panic), the operator is not ready any more, and says so.
struct End {
    shared: Arc<Shared>,
    kind: usize,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.watching(self.kind, false);
    }
}

fn explained(kind: usize, error: &watcher::Error) -> String {
    let api = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    };
    match api {
        Some(status) if status.code == 404 && kind == 0 => {
            "the API server does not know TrainingJob: apply the CRD first (trainyard crds | kubectl apply -f -)".to_owned()
        }
        Some(status) if status.code == 403 => {
            format!("{} (the operator needs get, list and watch on {})", status.message, KINDS[kind])
        }
        _ => error.to_string(),
    }
}
