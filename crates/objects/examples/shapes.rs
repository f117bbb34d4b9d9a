//! Makes the table of the built-in kinds' shapes from an API server's OpenAPI document:
//!
//! ```sh
//! kubectl get --raw /openapi/v2 | cargo run -p trainyard-objects --example shapes > crates/objects/src/shape/builtin.txt
//! ```
//!
//! The table has one line for each type that is not plain. `shape/builtin.rs` reads it and says what the signs mean.

#![expect(clippy::unwrap_used, reason = "a tool for maintainers may just stop")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

/// The kinds in the table, by group.
const KINDS: &[(&str, &str)] = &[
    (
        "io.k8s.api.core.v1",
        "Pod Service Endpoints ConfigMap Secret ServiceAccount PersistentVolumeClaim PersistentVolume",
    ),
    ("io.k8s.api.core.v1", "Node Namespace Event ResourceQuota LimitRange PodTemplate ReplicationController"),
    ("io.k8s.api.events.v1", "Event"),
    ("io.k8s.api.coordination.v1", "Lease"),
    ("io.k8s.api.batch.v1", "Job CronJob"),
    ("io.k8s.api.apps.v1", "Deployment ReplicaSet StatefulSet DaemonSet ControllerRevision"),
    ("io.k8s.api.scheduling.v1", "PriorityClass"),
    ("io.k8s.api.storage.v1", "StorageClass"),
    ("io.k8s.api.policy.v1", "PodDisruptionBudget"),
    ("io.k8s.api.rbac.v1", "Role RoleBinding ClusterRole ClusterRoleBinding"),
    ("io.k8s.api.discovery.v1", "EndpointSlice"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1", "CustomResourceDefinition"),
];

struct Document {
    definitions: Value,
    lines: BTreeMap<String, String>,
    /// Types that are being written: they may contain themselves.
    open: BTreeSet<String>,
}

fn main() {
    let document: Value = serde_json::from_reader(std::io::stdin()).unwrap();
    let mut document = Document {
        definitions: document["definitions"].clone(),
        lines: BTreeMap::new(),
        open: BTreeSet::new(),
    };
    for (package, kinds) in KINDS {
        for kind in kinds.split(' ') {
            let name = format!("{package}.{kind}");
            let group =
                document.definitions[&name]["x-kubernetes-group-version-kind"][0]["group"].as_str().unwrap();
            let key = format!("{group}/{kind}");
            document.write(&name);
            let line = document.lines.get(&name).cloned().unwrap_or_default();
            document.lines.insert(key, line);
        }
    }
    let is_kind = |name: &str| name.contains('/');
    for (name, line) in &document.lines {
        if is_kind(name) {
            println!("{name}{line}");
        } else if KINDS
            .iter()
            .all(|(package, kinds)| !kinds.split(' ').any(|kind| *name == format!("{package}.{kind}")))
        {
            println!("{}{line}", short(name));
        }
    }
}

impl Document {
    /// Writes the line of a type; says whether it is anything but plain.
    fn write(&mut self, name: &str) -> bool {
        if self.open.contains(name) || self.lines.contains_key(name) {
            return true;
        }
        self.open.insert(name.to_owned());
        let definition = self.definitions[name].clone();
        let mut line = String::new();
        if definition["x-kubernetes-map-type"] == "atomic" {
            line.push_str(" !");
        } else {
            for (field, schema) in definition["properties"].as_object().into_iter().flatten() {
                // Every kind's metadata is the same, and is not in the table.
                let metadata =
                    field == "metadata" && reference(schema).is_some_and(|name| name.ends_with("ObjectMeta"));
                let described = if metadata { "@".to_owned() } else { self.describe(schema) };
                let required = definition["required"]
                    .as_array()
                    .is_some_and(|names| names.iter().any(|name| name == field));
                // The server's own types always hold these, if only as null.
                let always = if required && !metadata && !described.is_empty() { "^" } else { "" };
                if !described.is_empty() {
                    let _ = write!(line, " {field}:{always}{described}");
                }
            }
        }
        self.open.remove(name);
        if line.is_empty() {
            return false;
        }
        self.lines.insert(name.to_owned(), line);
        true
    }

    /// A type's name in the table if it is anything but plain, or nothing.
    fn type_name(&mut self, schema: &Value) -> String {
        match reference(schema) {
            Some(name) if self.write(name) => short(name),
            _ => String::new(),
        }
    }

    fn describe(&mut self, schema: &Value) -> String {
        let strategy = schema["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
        let key = schema["x-kubernetes-patch-merge-key"].as_str().unwrap_or_default();
        let mut patch = String::new();
        if strategy.contains("merge") {
            let _ = write!(patch, "~{key}");
        }
        if strategy.contains("retainKeys") {
            patch.push_str("~!");
        }
        let described = match (schema["type"].as_str(), schema["x-kubernetes-map-type"].as_str()) {
            (_, Some("atomic")) => "!".to_owned(),
            (Some("array"), _) => {
                let items = &schema["items"];
                match schema["x-kubernetes-list-type"].as_str() {
                    Some("set") => "<>".to_owned(),
                    Some("map") => {
                        let keys: Vec<String> = schema["x-kubernetes-list-map-keys"]
                            .as_array()
                            .unwrap()
                            .iter()
                            .map(|key| self.list_key(items, key.as_str().unwrap()))
                            .collect();
                        format!("[{}]{}", keys.join(","), self.type_name(items))
                    }
                    _ if patch.is_empty() => String::new(),
                    _ => format!("[]{}", self.type_name(items)),
                }
            }
            (Some("object"), _) if schema["additionalProperties"].is_object() => {
                format!("{{}}{}", self.type_name(&schema["additionalProperties"]))
            }
            _ => self.type_name(schema),
        };
        format!("{described}{patch}")
    }

    fn list_key(&self, items: &Value, key: &str) -> String {
        let default = reference(items).map(|name| &self.definitions[name]["properties"][key]["default"]);
        match default.and_then(Value::as_str) {
            Some(default) => format!("{key}={default}"),
            None if key == "protocol" => format!("{key}=TCP"),
            None => key.to_owned(),
        }
    }
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str().map(|reference| reference.trim_start_matches("#/definitions/"))
}

/// The last word of a type's name; the two types with the same one are different kinds, which are named by group.
fn short(name: &str) -> String {
    name.rsplit('.').next().unwrap().to_owned()
}
