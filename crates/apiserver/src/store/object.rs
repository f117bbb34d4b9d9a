//! One version of one object: its JSON, once, and the few facts that are asked for again and again.

use std::fmt::Write as _;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use trainyard_objects::At as _;

/// An object as it was at one revision.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) revision: u64,
    /// With `apiVersion` and `kind` first, so that another version's `apiVersion` can be put in their place.
    pub(crate) json: Bytes,
    /// Where what follows them begins.
    tail: usize,
    pub(crate) facts: Facts,
}

/// What selectors, owners and deletion need to know without reading the JSON again.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) labels: Option<Map<String, Value>>,
    pub(crate) owners: Box<[Owner]>,
    pub(crate) finalizers: bool,
    pub(crate) deleting: bool,
    /// `spec.nodeName` and `status.phase`, which pods are selected by.
    pub(crate) node: Option<Box<str>>,
    pub(crate) phase: Option<Box<str>>,
}

/// One of an object's owner references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) api_version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) blocks: bool,
}

impl Object {
    /// Writes an object down. Its `metadata.resourceVersion` is the revision.
    pub(crate) fn new(mut value: Value, revision: u64) -> Self {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
        }
        let facts = Facts::of(&value);
        let (json, tail) = write(&value);
        Self { revision, json, tail, facts }
    }

    /// An object that is not stored: it has the resourceVersion of the one that it would replace, or none.
    pub(crate) fn pretended(mut value: Value, revision: u64, replaces: bool) -> Self {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            if replaces {
                metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
            } else {
                metadata.remove("resourceVersion");
            }
        }
        let facts = Facts::of(&value);
        let (json, tail) = write(&value);
        Self { revision, json, tail, facts }
    }

    /// The object as data.
    pub(crate) fn value(&self) -> Value {
        // Our own writing is always readable.
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// Its metadata, as it is written.
    pub(crate) fn metadata(&self) -> &str {
        #[derive(Deserialize)]
        struct Only<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }
        serde_json::from_slice::<Only<'_>>(&self.json).map_or("{}", |only| only.metadata.get())
    }

    /// What follows `apiVersion` and `kind`: the rest of the object, up to and with its closing brace.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.json[self.tail..]
    }
}

fn write(value: &Value) -> (Bytes, usize) {
    let mut json = Vec::with_capacity(1024);
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    json.extend_from_slice(b"{\"apiVersion\":");
    put(&mut json, object.get("apiVersion").unwrap_or(&Value::Null));
    json.extend_from_slice(b",\"kind\":");
    put(&mut json, object.get("kind").unwrap_or(&Value::Null));
    let tail = json.len();
    for (key, value) in object {
        if key != "apiVersion" && key != "kind" {
            json.push(b',');
            put(&mut json, key);
            json.push(b':');
            put(&mut json, value);
        }
    }
    json.push(b'}');
    json.shrink_to_fit();
    (json.into(), tail)
}

fn put(json: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    // Writing plain data into memory cannot fail.
    let _ = serde_json::to_writer(json, value);
}

impl Facts {
    pub(crate) fn of(value: &Value) -> Self {
        let nothing = Value::Null;
        let metadata = value.get("metadata").unwrap_or(&nothing);
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default().into();
        let list = |key: &str| metadata.get(key).and_then(Value::as_array);
        Self {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            labels: metadata.get("labels").and_then(Value::as_object).cloned(),
            owners: list("ownerReferences").into_iter().flatten().map(Owner::of).collect(),
            finalizers: list("finalizers").is_some_and(|all| !all.is_empty()),
            deleting: metadata.get("deletionTimestamp").is_some_and(|at| !at.is_null()),
            node: value.at("/spec/nodeName").and_then(Value::as_str).map(Into::into),
            phase: value.at("/status/phase").and_then(Value::as_str).map(Into::into),
        }
    }
}

impl Owner {
    fn of(reference: &Value) -> Self {
        let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default().into();
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            blocks: reference.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false),
        }
    }

    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// The place of an object among its kind: `namespace/name`, or `name` where there are no namespaces.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    let mut key = String::with_capacity(namespace.len() + name.len() + 1);
    if !namespace.is_empty() {
        let _ = write!(key, "{namespace}/");
    }
    key.push_str(name);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_begins_with_version_and_kind_and_reads_back() {
        let object = Object::new(
            json!({"a": 1, "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"b": "2", "a": "1"}}}),
            7,
        );
        assert!(object.json.starts_with(b"{\"apiVersion\":\"v1\",\"kind\":\"Pod\","));
        assert!(object.tail().starts_with(b",\"a\":1"));
        assert_eq!(object.value()["metadata"]["resourceVersion"], "7");
        assert_eq!(object.facts.labels.as_ref().unwrap()["a"], "1");
    }
}
