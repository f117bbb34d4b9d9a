//! The one cache: every job, and the views of everything that carries its label.
//!
//! Plain data, changed by watch events only, never by our own writes: what is in here has really been seen.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trainyard_api::{TrainingJob, names};
use trainyard_plan::{ClaimView, ObjectView, PodView};

use crate::guard::Unreadable;
use crate::memory::LostPod;
use crate::port::JobRef;
use crate::views::version;

/// A job's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl JobKey {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn of_job(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self::new(metadata.namespace.as_deref()?, metadata.name.as_deref()?))
    }

    /// The job of this name that has this uid.
    pub(crate) fn reference(&self, uid: String) -> JobRef {
        JobRef { namespace: self.namespace.to_string(), name: self.name.to_string(), uid }
    }

    /// The job that an object belongs to: its controller, or for what has none (claims) the one whose label it carries.
    /// Labels can be edited; an object must not move from job to job with them.
    pub(crate) fn of_child(metadata: &ObjectMeta) -> Option<Self> {
        let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let job = match owner {
            Some(owner) => (owner.kind == names::KIND).then_some(&owner.name)?,
            None => metadata.labels.as_ref()?.get(names::JOB_LABEL)?,
        };
        Some(Self::new(metadata.namespace.as_deref()?, job))
    }
}

impl std::fmt::Display for JobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A job, or what is known of one that cannot be read.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Read(Arc<TrainingJob>),
    Unreadable(Arc<Unreadable>),
}

impl Job {
    pub(crate) fn uid(&self) -> Option<&str> {
        match self {
            Job::Read(job) => job.metadata.uid.as_deref(),
            Job::Unreadable(job) => job.metadata.uid.as_deref(),
        }
    }
}

/// What a shelf is sorted by.
pub(crate) trait Named {
    fn name(&self) -> &str;

    /// A pod that nobody had asked to go, in case it is no longer seen.
    fn if_lost(&self) -> Option<LostPod> {
        None
    }

    /// Uses what it has in common with this one, instead of having its own.
    fn share(&mut self, _: &Self) {}

    /// It is a pod, which takes its share of a quota until it has ended.
    fn counts(&self) -> bool {
        false
    }

    fn has_ended(&self) -> bool {
        false
    }
}

impl Named for Job {
    fn name(&self) -> &str {
        match self {
            Job::Read(job) => job.metadata.name.as_deref().unwrap_or_default(),
            Job::Unreadable(job) => job.metadata.name.as_deref().unwrap_or_default(),
        }
    }
}

impl Named for PodView {
    fn name(&self) -> &str {
        &self.name
    }

    fn if_lost(&self) -> Option<LostPod> {
        let job = self.owner.as_deref().filter(|_| !self.deleting)?.to_owned();
        Some(LostPod { job, name: self.name.clone(), uid: Some(self.uid.clone()), attempt: self.attempt })
    }

    fn share(&mut self, other: &Self) {
        let fields = [
            (&mut self.owner, &other.owner),
            (&mut self.inputs, &other.inputs),
            (&mut self.shape, &other.shape),
            (&mut self.announced, &other.announced),
        ];
        for (mine, theirs) in fields {
            if mine == theirs {
                mine.clone_from(theirs);
            }
        }
    }

    fn counts(&self) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        self.is_finished() && self.lingers.is_none()
    }
}

impl Named for ObjectView {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for ClaimView {
    fn name(&self) -> &str {
        &self.name
    }
}

/// The cache of all kinds.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) jobs: Shelf<Job>,
    pub(crate) pods: Shelf<PodView>,
    pub(crate) services: Shelf<ObjectView>,
    pub(crate) config_maps: Shelf<ObjectView>,
    pub(crate) claims: Shelf<ClaimView>,
}

/// One kind of object: by job, then by name.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    /// Sorted by name. A tree would take room for eleven where most jobs have one.
    items: HashMap<JobKey, Vec<Seen<T>>>,
    /// The newest version that the watch has delivered.
    newest: u64,
    /// Counts the times that the watch started over with a full list.
    pass: u64,
    /// While a list is being read: the newest version in it. It says nothing about what is still to come.
    listing: Option<u64>,
}

#[derive(Debug)]
struct Seen<T> {
    version: u64,
    pass: u64,
    view: T,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), newest: 0, pass: 0, listing: None }
    }
}

impl<T: Named> Shelf<T> {
    /// An object as it is now. Gives back what it was before.
    pub(crate) fn put(&mut self, key: JobKey, version: u64, view: T) -> Option<T> {
        let mut seen = Seen { version, pass: self.pass, view };
        let newest = self.listing.as_mut().unwrap_or(&mut self.newest);
        *newest = (*newest).max(seen.version);
        let of_job = self.items.entry(key).or_default();
        if let Some(other) = of_job.first() {
            seen.view.share(&other.view);
        }
        match position(of_job, seen.view.name()) {
            Ok(position) => Some(std::mem::replace(&mut of_job[position], seen).view),
            Err(position) => {
                of_job.reserve_exact(1);
                of_job.insert(position, seen);
                None
            }
        }
    }

    /// An object that is gone, as it was last seen.
    pub(crate) fn remove(&mut self, key: &JobKey, metadata: &ObjectMeta) -> Option<T> {
        self.newest = self.newest.max(version(metadata));
        let of_job = self.items.get_mut(key)?;
        let position = position(of_job, metadata.name.as_deref().unwrap_or_default());
        let removed = position.ok().map(|position| of_job.remove(position).view);
        if of_job.is_empty() {
            self.items.remove(key);
        }
        removed
    }

    /// The newest version that the watch has delivered.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// The watch starts over: what it does not mention until `end_pass` is gone.
    pub(crate) fn begin_pass(&mut self) {
        self.pass += 1;
        self.listing = Some(0);
    }

    /// Forgets what the full list did not mention, and says what and whose it was.
    pub(crate) fn end_pass(&mut self) -> Vec<(JobKey, T)> {
        let pass = self.pass;
        self.newest = self.newest.max(self.listing.take().unwrap_or(0));
        let mut removed = Vec::new();
        self.items.retain(|key, of_job| {
            let gone = of_job.extract_if(.., |seen| seen.pass != pass);
            removed.extend(gone.map(|seen| (key.clone(), seen.view)));
            !of_job.is_empty()
        });
        // The order in which a map gives its keys is a matter of chance.
        removed.sort_by(|(left, _), (right, _)| left.cmp(right));
        self.items.shrink_to_fit();
        removed
    }

    pub(crate) fn of<'a>(&'a self, key: &JobKey) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.items.get(key).into_iter().flatten().map(|seen| &seen.view)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &JobKey> {
        self.items.keys()
    }

    /// Whether the watch has delivered this version of an object, or a newer one, or news after which it must have.
    pub(crate) fn has_reached(&self, key: &JobKey, name: &str, version: u64) -> bool {
        self.seen(key, name).map_or(self.newest, |seen| seen.version.max(self.newest)) >= version
    }

    /// This key, or the same one if it is known here: then there is nothing new to keep.
    pub(crate) fn known(&self, key: JobKey) -> JobKey {
        self.items.get_key_value(&key).map_or(key, |(known, _)| known.clone())
    }

    pub(crate) fn named(&self, key: &JobKey, name: &str) -> Option<&T> {
        self.seen(key, name).map(|seen| &seen.view)
    }

    fn seen(&self, key: &JobKey, name: &str) -> Option<&Seen<T>> {
        let of_job = self.items.get(key)?;
        position(of_job, name).ok().map(|position| &of_job[position])
    }
}

fn position<T: Named>(of_job: &[Seen<T>], name: &str) -> Result<usize, usize> {
    of_job.binary_search_by(|seen| seen.view.name().cmp(name))
}

impl Cache {
    pub(crate) fn job(&self, key: &JobKey) -> Option<&Job> {
        self.jobs.named(key, &key.name)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    impl Named for &'static str {
        fn name(&self) -> &str {
            self
        }
    }

    #[test]
    fn a_full_list_forgets_what_it_does_not_mention() {
        let mut shelf = Shelf::default();
        let key = JobKey::new("ml", "bert");
        shelf.put(key.clone(), 1, "a");
        shelf.put(key.clone(), 2, "b");
        shelf.begin_pass();
        shelf.put(key.clone(), 2, "b");
        assert_eq!(
            shelf.of(&key).copied().collect::<String>(),
            "ab",
            "until the list is complete, nothing is lost"
        );
        assert_eq!(shelf.end_pass(), vec![(key.clone(), "a")]);
        assert_eq!(shelf.of(&key).copied().collect::<String>(), "b");
    }

    #[test]
    fn versions_are_reached_by_the_object_or_by_later_news() {
        let mut shelf = Shelf::default();
        let key = JobKey::new("ml", "bert");
        assert!(!shelf.has_reached(&key, "a", 5));
        shelf.put(key.clone(), 7, "b");
        assert!(shelf.has_reached(&key, "a", 5), "a was created and deleted before b");
        assert!(!shelf.has_reached(&key, "b", 8));

        // The objects of a list come in the order of their names: one says nothing about the next.
        shelf.begin_pass();
        shelf.put(key.clone(), 20, "a");
        assert!(shelf.has_reached(&key, "a", 20) && !shelf.has_reached(&key, "b", 19));
        shelf.put(key.clone(), 19, "b");
        shelf.end_pass();
        assert!(shelf.has_reached(&key, "c", 20));
    }

    #[test]
    fn an_object_belongs_to_its_controller_whatever_its_labels_say() {
        let owner = |kind: &str| OwnerReference {
            kind: kind.into(),
            name: "bert".into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let metadata = |label: Option<&str>, kind: Option<&str>| ObjectMeta {
            namespace: Some("ml".into()),
            labels: label.map(|job| [(names::JOB_LABEL.to_owned(), job.to_owned())].into()),
            owner_references: kind.map(|kind| vec![owner(kind)]),
            ..ObjectMeta::default()
        };
        let bert = Some(JobKey::new("ml", "bert"));
        assert_eq!(JobKey::of_child(&metadata(None, Some("TrainingJob"))), bert);
        assert_eq!(JobKey::of_child(&metadata(Some("other"), Some("TrainingJob"))), bert);
        assert_eq!(JobKey::of_child(&metadata(Some("bert"), Some("ReplicaSet"))), None);
        assert_eq!(JobKey::of_child(&metadata(Some("bert"), None)), bert, "a claim has no owner");
    }
}
