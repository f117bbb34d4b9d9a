//! The one place where everything is: objects, kinds, time. Whoever changes something holds it alone.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_objects::At as _;

use crate::clock::{Clock, Uids};
use crate::error::{ApiError, Result};
use crate::kinds::{Builtin, Kind, Registry, custom};
use crate::store::{Object, Owner, Store, key};

/// Everything that requests read and change.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Registry,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) uids: Uids,
    /// What happened and has consequences that are not drawn yet.
    pub(crate) notes: VecDeque<Note>,
    /// Tables that changed since their watchers were last told.
    pub(crate) touched: BTreeSet<Arc<str>>,
    /// Events that were made since old ones were last removed.
    new_events: usize,
    /// How many service addresses were given out.
    pub(crate) addresses: u32,
}

/// Something that garbage collection, namespaces or quotas may have to act upon.
#[derive(Debug)]
pub(crate) enum Note {
    Changed { resource: Arc<str>, key: String },
    Gone { resource: Arc<str>, namespace: Box<str>, uid: Box<str>, owners: Box<[Owner]> },
}

impl State {
    pub(crate) fn new(store: Store, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let mut state = Self {
            store,
            kinds: Registry::with_builtins(),
            clock,
            uids: Uids::new(seed),
            notes: VecDeque::new(),
            touched: BTreeSet::new(),
            new_events: 0,
            addresses: 0,
        };
        state.read_definitions();
        state.addresses = state
            .store
            .list("services", "")
            .filter_map(|service| service_number(&service.value()))
            .max()
            .unwrap_or(0);
        state
    }

    /// Brings back the kinds of the definitions that are in the store.
    fn read_definitions(&mut self) {
        let definitions: Vec<Value> = self
            .store
            .list("customresourcedefinitions.apiextensions.k8s.io", "")
            .map(|one| one.value())
            .collect();
        for definition in definitions.into_iter().filter(custom::is_established) {
            match custom::kind(&definition) {
                Ok(kind) => self.kinds.add(kind),
                Err(errors) => {
                    let name = &definition["metadata"]["name"];
                    tracing::error!(%name, "a stored definition cannot be used: {errors:?}");
                }
            }
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Stores an object under the next revision.
    pub(crate) fn put(&mut self, kind: &Kind, value: Value) -> Result<Arc<Object>> {
        let object = self.store.put(&kind.resource, value).map_err(not_written)?;
        if kind.is(Builtin::Definition) {
            let definition = object.value();
            if custom::is_established(&definition)
                && let Ok(defined) = custom::kind(&definition)
            {
                if self.kinds.by_resource(&defined.resource).is_none() {
                    self.store.forget(&defined.resource);
                }
                self.kinds.add(defined);
            }
        }
        self.touched.insert(kind.resource.clone());
        self.notes.push_back(Note::Changed {
            resource: kind.resource.clone(),
            key: key(&object.facts.namespace, &object.facts.name),
        });
        Ok(object)
    }

    /// Events are kept for an hour, as in Kubernetes. Called for every new one; most calls do nothing.
    pub(crate) fn expire_events(&mut self, kind: &Kind) {
        self.new_events += 1;
        if self.new_events < EVENTS_BETWEEN_SWEEPS {
            return;
        }
        self.new_events = 0;
        let oldest = crate::clock::seconds(self.now() - EVENTS_LIVE);
        let old: Vec<Value> = self
            .store
            .list(&kind.resource, "")
            .map(|event| event.value())
            .filter(|event| last_seen(event) < oldest.as_str())
            .collect();
        for event in old {
            if let Err(error) = self.erase(kind, event) {
                tracing::warn!("an old event could not be removed: {}", error.message());
            }
        }
    }

    /// Removes an object for good; `last` is the form in which watchers see it go.
    pub(crate) fn erase(&mut self, kind: &Kind, last: Value) -> Result<Arc<Object>> {
        let object = self.store.remove(&kind.resource, last).map_err(not_written)?;
        if kind.is(Builtin::Definition)
            && let Some((plural, group)) = object.facts.name.split_once('.')
        {
            self.kinds.remove(group, plural);
            let gone: Arc<str> = object.facts.name.as_ref().into();
            self.store.forget(&gone);
            self.touched.insert(gone);
        }
        self.touched.insert(kind.resource.clone());
        self.notes.push_back(Note::Gone {
            resource: kind.resource.clone(),
            namespace: object.facts.namespace.clone(),
            uid: object.facts.uid.clone(),
            owners: object.facts.owners.clone(),
        });
        Ok(object)
    }

    /// Makes what every cluster begins with.
    pub(crate) fn begin(&mut self) -> Result<()> {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            if self.store.get("namespaces", name).is_none() {
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                self.make("", "Namespace", "", namespace)?;
            }
        }
        for (name, value) in
            [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)]
        {
            if self.store.get("priorityclasses.scheduling.k8s.io", name).is_none() {
                let class = json!({
                    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                    "metadata": {"name": name}, "value": value,
                });
                self.make("scheduling.k8s.io", "PriorityClass", "", class)?;
            }
        }
        self.settle();
        self.store.forget_all();
        Ok(())
    }

    /// Creates something on the server's own account.
    pub(crate) fn make(&mut self, group: &str, kind: &str, namespace: &str, value: Value) -> Result<()> {
        let Some(kind) = self.kinds.by_kind(group, kind).cloned() else { return Ok(()) };
        let options = crate::write::Options::internal();
        let value = crate::write::NewObject::read(&kind, kind.storage(), namespace, value, &options)?;
        self.create(&kind, kind.storage(), value, &options).map(drop)
    }
}

const EVENTS_BETWEEN_SWEEPS: usize = 256;
const EVENTS_LIVE: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// When an event was last written, in whole seconds of RFC 3339, which sort as they are.
fn last_seen(event: &Value) -> &str {
    let paths = ["/series/lastObservedTime", "/lastTimestamp", "/metadata/creationTimestamp"];
    let moments = paths.iter().filter_map(|path| event.at(path).and_then(Value::as_str));
    moments.max().unwrap_or_default()
}

/// The number of a service address that was given out earlier.
fn service_number(service: &Value) -> Option<u32> {
    let address: std::net::Ipv4Addr = service.at("/spec/clusterIP")?.as_str()?.parse().ok()?;
    u32::from(address).checked_sub(u32::from(crate::rules::services::FIRST_ADDRESS))
}

fn not_written(error: std::io::Error) -> ApiError {
    ApiError::internal(format!("the change could not be written to the state directory: {error}"))
}
