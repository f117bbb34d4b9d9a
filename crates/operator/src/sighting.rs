//! What the watches say, and what that means: the cache is brought up to date, vanished pods are doubted, and the jobs that the news
//! is about are named.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::watcher::Event;
use serde::Deserialize;
use serde_json::Value;
use trainyard_api::{TrainingJob, names};

use crate::cache::{Cache, Job, JobKey, Named, Shelf};
use crate::core::Core;
use crate::guard::Guarded;
use crate::memory::LostPod;
use crate::views::{SlimClaim, SlimConfigMap, SlimPod, SlimService, Viewed, version};

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Watched {
    Jobs,
    Pods,
    Services,
    ConfigMaps,
    Claims,
}

impl Watched {
    pub const ALL: [Watched; 5] =
        [Watched::Jobs, Watched::Pods, Watched::Services, Watched::ConfigMaps, Watched::Claims];

    /// As URLs and roles spell it.
    pub fn plural(self) -> &'static str {
        match self {
            Watched::Jobs => names::PLURAL,
            Watched::Pods => "pods",
            Watched::Services => "services",
            Watched::ConfigMaps => "configmaps",
            Watched::Claims => "persistentvolumeclaims",
        }
    }
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub struct Sighting(Seen);

#[derive(Clone, Debug)]
enum Seen {
    Jobs(Event<Guarded>),
    Pods(Event<SlimPod>),
    Services(Event<SlimService>),
    ConfigMaps(Event<SlimConfigMap>),
    Claims(Event<SlimClaim>),
}

macro_rules! sightings {
    ($($kind:ident of $object:ty),* $(,)?) => {
        $(impl From<Event<$object>> for Sighting {
            fn from(event: Event<$object>) -> Self {
                Self(Seen::$kind(event))
            }
        })*

        impl Sighting {
            /// The event of a watch that delivers objects as the API server writes them.
            pub fn parse(kind: Watched, event: Event<&Value>) -> Result<Self, serde_json::Error> {
                Ok(match kind {
                    $(Watched::$kind => Self(Seen::$kind(parsed(event)?)),)*
                })
            }
        }
    };
}

sightings! {
    Jobs of Guarded,
    Pods of SlimPod,
    Services of SlimService,
    ConfigMaps of SlimConfigMap,
    Claims of SlimClaim,
}

impl Sighting {
    /// A job that can be read, and has been.
    pub fn job(event: Event<Arc<TrainingJob>>) -> Self {
        Self(Seen::Jobs(match event {
            Event::Init => Event::Init,
            Event::InitApply(job) => Event::InitApply(Guarded::Read(job)),
            Event::InitDone => Event::InitDone,
            Event::Apply(job) => Event::Apply(Guarded::Read(job)),
            Event::Delete(job) => Event::Delete(Guarded::Read(job)),
        }))
    }

    /// The same of another state of an object, of which nothing but the metadata has changed. Of a job, nothing is changed.
    #[must_use]
    pub fn renewed(mut self, metadata: Arc<ObjectMeta>) -> Self {
        match &mut self.0 {
            Seen::Jobs(_) => {}
            Seen::Pods(event) => told(event, |pod| pod.metadata = metadata),
            Seen::Services(event) => told(event, |service| service.metadata = metadata),
            Seen::ConfigMaps(event) => told(event, |map| map.metadata = metadata),
            Seen::Claims(event) => told(event, |claim| claim.metadata = metadata),
        }
        self
    }

    /// The same object is gone.
    #[must_use]
    pub fn gone(self) -> Self {
        fn gone<K>(event: Event<K>) -> Event<K> {
            match event {
                Event::Apply(object) | Event::InitApply(object) => Event::Delete(object),
                other => other,
            }
        }
        Self(match self.0 {
            Seen::Jobs(event) => Seen::Jobs(gone(event)),
            Seen::Pods(event) => Seen::Pods(gone(event)),
            Seen::Services(event) => Seen::Services(gone(event)),
            Seen::ConfigMaps(event) => Seen::ConfigMaps(gone(event)),
            Seen::Claims(event) => Seen::Claims(gone(event)),
        })
    }

    /// What a watch told of an object, as a list would tell it.
    #[must_use]
    pub fn listed(&self) -> Self {
        fn listed<K: Clone>(event: &Event<K>) -> Event<K> {
            match event {
                Event::Apply(object) => Event::InitApply(object.clone()),
                other => other.clone(),
            }
        }
        Self(match &self.0 {
            Seen::Jobs(event) => Seen::Jobs(listed(event)),
            Seen::Pods(event) => Seen::Pods(listed(event)),
            Seen::Services(event) => Seen::Services(listed(event)),
            Seen::ConfigMaps(event) => Seen::ConfigMaps(listed(event)),
            Seen::Claims(event) => Seen::Claims(listed(event)),
        })
    }
}

fn told<K>(event: &mut Event<K>, change: impl FnOnce(&mut K)) {
    if let Event::InitApply(object) | Event::Apply(object) | Event::Delete(object) = event {
        change(object);
    }
}

fn parsed<'v, K: Deserialize<'v>>(event: Event<&'v Value>) -> Result<Event<K>, serde_json::Error> {
    Ok(match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(K::deserialize(object)?),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(K::deserialize(object)?),
        Event::Delete(object) => Event::Delete(K::deserialize(object)?),
    })
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

impl Core {
    /// Takes in one event. Gives the jobs that are to be looked at because of it.
    pub fn see(&mut self, Sighting(seen): Sighting) -> Vec<JobKey> {
        let Cache { jobs, pods, services, config_maps, claims } = &mut self.cache;
        let news = match seen {
            Seen::Jobs(event) => apply(jobs, event, |key| key, slim_job),
            Seen::Pods(event) => apply(pods, event, |key| jobs.known(key), Viewed::view),
            Seen::Services(event) => apply(services, event, |key| jobs.known(key), Viewed::view),
            Seen::ConfigMaps(event) => apply(config_maps, event, |key| jobs.known(key), Viewed::view),
            Seen::Claims(event) => apply(claims, event, |key| jobs.known(key), Viewed::view),
        };
        for (key, pod) in news.lost {
            self.doubt(&key, pod);
        }
        let mut about = news.room.map(|key| self.room_beside(&key)).unwrap_or_default();
        about.extend(news.about);
        about
    }
}

/// A job without what nobody reads.
fn slim_job(job: Guarded) -> Job {
    match job {
        Guarded::Read(mut job) => {
            // One that somebody else keeps as well has its room anyway.
            if let Some(job) = Arc::get_mut(&mut job) {
                job.metadata.managed_fields = None;
                if let Some(annotations) = &mut job.metadata.annotations {
                    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
                }
                if let Some(status) = &mut job.status {
                    // A list that was read piece by piece has room for more.
                    status.attempts.shrink_to_fit();
                    status.conditions.shrink_to_fit();
                    status.worker_statuses.shrink_to_fit();
                }
            }
            Job::Read(job)
        }
        Guarded::Unreadable(job) => Job::Unreadable(job.into()),
    }
}

/// Puts one event into the cache and says what is new.
fn apply<K: Resource<DynamicType = ()>, T: Named>(
    shelf: &mut Shelf<T>,
    event: Event<K>,
    known: impl Fn(JobKey) -> JobKey,
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
            let Some(key) = key(&object).map(known) else { return News::default() };
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
