//! All objects, one counter of revisions, and the last changes of each kind.
//!
//! Synchronous and without a clock: whoever holds the store decides when something happens. It knows nothing about
//! what objects mean; it must never lose, reorder or half-apply a change.

mod object;
mod persist;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

pub(crate) use object::{Object, Owner, key};
use persist::Journal;
pub use persist::Trouble;

/// Changes that are remembered for each kind, however small.
const BYTES: usize = 8 << 20;

/// The table of an object and its key in it.
type Location = (Arc<str>, Box<str>);

/// Everything there is.
pub(crate) struct Store {
    revision: u64,
    tables: HashMap<Arc<str>, Table>,
    /// Which objects name an owner of this uid.
    owned: HashMap<Box<str>, BTreeSet<Location>>,
    /// How many changes of a kind are remembered.
    history: usize,
    /// Of no kind are changes up to this revision remembered.
    floor: u64,
    journal: Option<Journal>,
}

#[derive(Default)]
struct Table {
    objects: BTreeMap<Box<str>, Arc<Object>>,
    changes: VecDeque<Change>,
    /// Size of the remembered changes.
    bytes: usize,
    /// Changes up to this revision are forgotten.
    floor: u64,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    /// The object after the change; of a deleted one, its last form.
    pub(crate) object: Arc<Object>,
    pub(crate) before: Option<Arc<Object>>,
    pub(crate) deleted: bool,
}

/// A revision whose changes are not remembered any more.
#[derive(Debug)]
pub(crate) struct Forgotten {
    pub(crate) oldest: u64,
}

impl Store {
    pub(crate) fn new(history: usize) -> Self {
        Self {
            revision: 1,
            tables: HashMap::new(),
            owned: HashMap::new(),
            history: history.max(1),
            floor: 0,
            journal: None,
        }
    }

    /// A store that is kept in a directory: what is there already is read first.
    pub(crate) fn open(directory: &Path, history: usize) -> Result<Self, Trouble> {
        let mut store = Self::new(history);
        let (journal, contents) = Journal::open(directory)?;
        for (resource, key, value, revision) in contents.objects {
            let object = Arc::new(Object::new(value, revision));
            store.index(&resource, &key, &object);
            store.tables.entry(resource).or_default().objects.insert(key, object);
        }
        store.revision = contents.revision.max(1);
        // Who watched before the restart cannot be told what happened meanwhile: nothing is remembered.
        store.floor = store.revision;
        store.journal = Some(journal);
        store.compact()?;
        Ok(store)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, resource: &str, key: &str) -> Option<&Arc<Object>> {
        self.tables.get(resource)?.objects.get(key)
    }

    /// All objects of a kind in a namespace (or in all, if it is empty), in the order of their keys.
    pub(crate) fn list<'a>(
        &'a self,
        resource: &str,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let from = prefix.clone();
        self.tables
            .get(resource)
            .into_iter()
            .flat_map(move |table| {
                table.objects.range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded))
            })
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(_, object)| object)
    }

    pub(crate) fn count(&self, resource: &str) -> usize {
        self.tables.get(resource).map_or(0, |table| table.objects.len())
    }

    /// The kinds that have objects.
    pub(crate) fn resources(&self) -> Vec<Arc<str>> {
        let mut all: Vec<_> = self
            .tables
            .iter()
            .filter(|(_, table)| !table.objects.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        all.sort_unstable();
        all
    }

    /// Objects that name an owner of this uid.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(Arc<str>, Arc<Object>)> {
        let Some(places) = self.owned.get(uid) else { return Vec::new() };
        places
            .iter()
            .filter_map(|(resource, key)| Some((resource.clone(), self.get(resource, key)?.clone())))
            .collect()
    }

    /// Puts an object in its place; it gets the next revision.
    pub(crate) fn put(&mut self, resource: &Arc<str>, value: Value) -> io::Result<Arc<Object>> {
        let revision = self.revision + 1;
        let object = Arc::new(Object::new(value, revision));
        let key: Box<str> = key(&object.facts.namespace, &object.facts.name).into();
        if let Some(journal) = &mut self.journal {
            journal.put(resource, &object)?;
        }
        self.revision = revision;
        let before = self.tables.get(resource).and_then(|table| table.objects.get(&key)).cloned();
        if let Some(before) = &before {
            self.unindex(resource, &key, before);
        }
        self.index(resource, &key, &object);
        let table = self.tables.entry(resource.clone()).or_default();
        table.objects.insert(key, object.clone());
        table.remember(Change { revision, object: object.clone(), before, deleted: false }, self.history);
        self.compact_if_due();
        Ok(object)
    }

    /// Removes an object; `last` is the form in which it goes (with the revision of its going).
    pub(crate) fn remove(&mut self, resource: &Arc<str>, last: Value) -> io::Result<Arc<Object>> {
        let revision = self.revision + 1;
        let object = Arc::new(Object::new(last, revision));
        let key: Box<str> = key(&object.facts.namespace, &object.facts.name).into();
        if let Some(journal) = &mut self.journal {
            journal.remove(resource, &key, revision)?;
        }
        self.revision = revision;
        let table = self.tables.entry(resource.clone()).or_default();
        let before = table.objects.remove(&key);
        table.remember(
            Change { revision, object: object.clone(), before: before.clone(), deleted: true },
            self.history,
        );
        if let Some(before) = before {
            self.unindex(resource, &key, &before);
        }
        self.compact_if_due();
        Ok(object)
    }

    /// Forgets what happened to a kind until now: nobody can have seen it.
    pub(crate) fn forget(&mut self, resource: &Arc<str>) {
        let revision = self.revision;
        let table = self.tables.entry(resource.clone()).or_default();
        table.changes.clear();
        table.bytes = 0;
        table.floor = revision;
    }

    /// Forgets what happened until now.
    pub(crate) fn forget_all(&mut self) {
        self.floor = self.revision;
        for table in self.tables.values_mut() {
            table.changes.clear();
            table.bytes = 0;
        }
    }

    /// What happened to a kind after a revision, oldest first.
    pub(crate) fn changes(
        &self,
        resource: &str,
        after: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Change>, Forgotten> {
        let table = self.tables.get(resource);
        let floor = table.map_or(0, |table| table.floor).max(self.floor);
        if after < floor {
            return Err(Forgotten { oldest: floor });
        }
        Ok(table.into_iter().flat_map(move |table| {
            let from = table.changes.partition_point(|change| change.revision <= after);
            table.changes.range(from..)
        }))
    }

    /// All objects of a kind as they were at a revision.
    pub(crate) fn list_at(
        &self,
        resource: &str,
        namespace: &str,
        revision: u64,
    ) -> Result<Vec<Arc<Object>>, Forgotten> {
        let mut changes = self.changes(resource, revision)?.rev().peekable();
        if changes.peek().is_none() {
            return Ok(self.list(resource, namespace).cloned().collect());
        }
        let mut then: BTreeMap<String, Arc<Object>> = self
            .list(resource, namespace)
            .map(|object| (key(&object.facts.namespace, &object.facts.name), object.clone()))
            .collect();
        for change in changes {
            let facts = &change.object.facts;
            if !namespace.is_empty() && &*facts.namespace != namespace {
                continue;
            }
            let key = key(&facts.namespace, &facts.name);
            match &change.before {
                Some(before) => then.insert(key, before.clone()),
                None => then.remove(&key),
            };
        }
        Ok(then.into_values().collect())
    }

    fn index(&mut self, resource: &Arc<str>, key: &str, object: &Object) {
        for owner in &object.facts.owners {
            self.owned.entry(owner.uid.clone()).or_default().insert((resource.clone(), key.into()));
        }
    }

    fn unindex(&mut self, resource: &Arc<str>, key: &str, object: &Object) {
        for owner in &object.facts.owners {
            if let Some(places) = self.owned.get_mut(&owner.uid) {
                places.remove(&(resource.clone(), key.into()));
                if places.is_empty() {
                    self.owned.remove(&owner.uid);
                }
            }
        }
    }

    fn compact_if_due(&mut self) {
        if self.journal.as_ref().is_some_and(Journal::is_long)
            && let Err(trouble) = self.compact()
        {
            // The old journal goes on; the next write tries again.
            tracing::warn!("the journal could not be made shorter: {trouble}");
        }
    }

    fn compact(&mut self) -> Result<(), Trouble> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let all = self
            .tables
            .iter()
            .flat_map(|(resource, table)| table.objects.values().map(move |object| (&**resource, &**object)));
        journal.rewrite(self.revision, all)
    }
}

impl Table {
    fn remember(&mut self, change: Change, limit: usize) {
        self.bytes += change.object.json.len();
        self.changes.push_back(change);
        while self.changes.len() > limit || (self.bytes > BYTES && self.changes.len() > limit.min(1000)) {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.bytes -= oldest.object.json.len();
            self.floor = oldest.revision;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, label: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "n", "labels": {"l": label}}})
    }

    fn names(objects: &[Arc<Object>]) -> Vec<String> {
        objects
            .iter()
            .map(|object| {
                format!(
                    "{}={}",
                    object.facts.name,
                    object.value()["metadata"]["labels"]["l"].as_str().unwrap_or("")
                )
            })
            .collect()
    }

    #[test]
    fn a_list_at_an_old_revision_shows_what_was_there_then() {
        let pods: Arc<str> = "pods".into();
        let mut store = Store::new(10);
        store.put(&pods, pod("a", "1")).unwrap();
        let then = store.put(&pods, pod("b", "1")).unwrap().revision;
        store.put(&pods, pod("a", "2")).unwrap();
        store.remove(&pods, pod("b", "1")).unwrap();
        store.put(&pods, pod("c", "1")).unwrap();
        assert_eq!(names(&store.list_at("pods", "n", then).unwrap()), ["a=1", "b=1"]);
        assert_eq!(names(&store.list_at("pods", "n", store.revision()).unwrap()), ["a=2", "c=1"]);
        assert_eq!(names(&store.list_at("pods", "other", then).unwrap()), [""; 0]);
    }

    #[test]
    fn changes_are_forgotten_from_the_oldest_on_and_that_is_told() {
        let pods: Arc<str> = "pods".into();
        let mut store = Store::new(2);
        let first = store.put(&pods, pod("a", "1")).unwrap().revision;
        for label in ["2", "3"] {
            store.put(&pods, pod("a", label)).unwrap();
        }
        assert_eq!(store.changes("pods", first).unwrap().count(), 2);
        assert_eq!(store.changes("pods", first - 1).err().unwrap().oldest, first);
    }
}
