//! Pruning: what the schema does not know is not kept.

use serde_json::{Map, Value};

use super::Schema;
use super::node::{Additional, NodeId};
use crate::path::Path;

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// What the metadata of any object can hold.
const METADATA: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
const OWNER: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

pub(super) fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    pruned(schema, schema.root, object, true)
}

/// Prunes a value that stands at a node of the schema.
pub(super) fn below(schema: &Schema, node: NodeId, value: &mut Value) -> Vec<String> {
    pruned(schema, node, value, false)
}

fn pruned(schema: &Schema, node: NodeId, value: &mut Value, resource: bool) -> Vec<String> {
    let mut pruning = Pruning { schema, path: Path::default(), unknown: Vec::new() };
    pruning.value(value, Some(node), resource);
    pruning.unknown.sort();
    pruning.unknown
}

struct Pruning<'a> {
    schema: &'a Schema,
    path: Path,
    unknown: Vec<String>,
}

impl Pruning<'_> {
    /// `resource` is set where an object with its own metadata starts.
    fn value(&mut self, value: &mut Value, node: Option<NodeId>, resource: bool) {
        match value {
            Value::Object(fields) => self.object(fields, node, resource),
            Value::Array(items) => {
                let item_node = node.and_then(|node| self.schema.node(node).items);
                // Where everything is kept, so are items of which nothing is known.
                let kept =
                    item_node.is_none() && node.is_some_and(|node| self.schema.node(node).preserve_unknown);
                if kept {
                    return;
                }
                for (index, item) in items.iter_mut().enumerate() {
                    if item.is_object() || item.is_array() {
                        let mark = self.path.index(index);
                        self.value(item, item_node, false);
                        self.path.back(mark);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>, node: Option<NodeId>, resource: bool) {
        let schema = self.schema;
        let Some(node) = node.map(|node| schema.node(node)) else {
            for name in fields.keys() {
                self.record(name);
            }
            fields.clear();
            return;
        };
        let resource = resource || node.embedded;
        let known = |name: &str| {
            (resource && META.contains(&name))
                || node.preserve_unknown
                || node.properties.contains_key(name)
                || matches!(node.additional, Additional::Anything | Additional::Schema(_))
        };
        // Nearly always nothing is unknown: look first, and remove only then.
        if fields.keys().any(|name| !known(name)) {
            fields.retain(|name, _| {
                let keep = known(name);
                if !keep {
                    self.record(name);
                }
                keep
            });
        }
        for (name, value) in fields.iter_mut() {
            if !(value.is_object() || value.is_array()) {
                continue;
            }
            if resource && META.contains(&name.as_str()) {
                if name == "metadata" {
                    self.metadata(value);
                }
                continue;
            }
            let child = match node.properties.get(name) {
                Some(property) => Some(*property),
                None => match node.additional {
                    Additional::Schema(values) => Some(values),
                    Additional::Anything => None,
                    Additional::Unsaid | Additional::Forbidden => continue,
                },
            };
            let mark = self.path.field(name);
            self.value(value, child, false);
            self.path.back(mark);
        }
    }

    fn metadata(&mut self, metadata: &mut Value) {
        let mark = self.path.field("metadata");
        self.keep(metadata, &METADATA);
        if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
            let list = self.path.field("ownerReferences");
            for (index, owner) in owners.iter_mut().enumerate() {
                let item = self.path.index(index);
                self.keep(owner, &OWNER);
                self.path.back(item);
            }
            self.path.back(list);
        }
        self.path.back(mark);
    }

    fn keep(&mut self, value: &mut Value, known: &[&str]) {
        let Some(fields) = value.as_object_mut() else { return };
        if fields.keys().all(|name| known.contains(&name.as_str())) {
            return;
        }
        fields.retain(|name, _| {
            let keep = known.contains(&name.as_str());
            if !keep {
                self.record(name);
            }
            keep
        });
    }

    fn record(&mut self, name: &str) {
        let mark = self.path.field(name);
        self.unknown.push(self.path.as_str().to_owned());
        self.path.back(mark);
    }
}
