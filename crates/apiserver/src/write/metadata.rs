//! The metadata that all objects have: what may be in it, and which of it is the server's own.

use serde_json::{Map, Value};
use trainyard_objects::{FieldError, names};

use super::json_type;

/// Field, type.
const FIELDS: [(&str, &str); 15] = [
    ("annotations", "map"),
    ("creationTimestamp", "string"),
    ("deletionGracePeriodSeconds", "number"),
    ("deletionTimestamp", "string"),
    ("finalizers", "strings"),
    ("generateName", "string"),
    ("generation", "number"),
    ("labels", "map"),
    ("managedFields", "array"),
    ("name", "string"),
    ("namespace", "string"),
    ("ownerReferences", "array"),
    ("resourceVersion", "string"),
    ("selfLink", "string"),
    ("uid", "string"),
];

const OWNER_FIELDS: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

/// Removes nulls and unknown fields; returns the paths of the latter, or what has a wrong type, in words.
pub(crate) fn prune(metadata: &mut Value) -> Result<Vec<String>, String> {
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Some(fields) = metadata.as_object_mut() else {
        return Err(mismatch("metadata", metadata, "v1.ObjectMeta"));
    };
    let mut unknown = Vec::new();
    fields.retain(|key, value| {
        let known = FIELDS.iter().any(|(name, _)| name == key);
        if !known {
            unknown.push(format!("metadata.{key}"));
        }
        known && !value.is_null()
    });
    for (key, kind) in FIELDS {
        let Some(value) = fields.get_mut(key) else { continue };
        let path = format!("metadata.{key}");
        match (kind, &mut *value) {
            ("string", Value::String(_)) | ("array", Value::Array(_)) => {}
            ("number", Value::Number(number)) if number.is_i64() => {}
            ("map", Value::Object(entries)) => {
                for (name, value) in entries.iter_mut() {
                    match value {
                        Value::String(_) => {}
                        Value::Null => *value = "".into(),
                        other => return Err(mismatch(&format!("{path}.{name}"), other, "string")),
                    }
                }
            }
            ("strings", Value::Array(items)) => {
                if let Some(wrong) = items.iter().find(|item| !item.is_string()) {
                    return Err(mismatch(&path, wrong, "string"));
                }
            }
            (wanted, other) => {
                let wanted = match wanted {
                    "map" => "map[string]string",
                    "strings" => "[]string",
                    "number" => "int64",
                    "array" => "[]v1.OwnerReference",
                    other => other,
                };
                return Err(mismatch(&path, other, wanted));
            }
        }
    }
    if let Some(Value::Array(owners)) = fields.get_mut("ownerReferences") {
        for (index, owner) in owners.iter_mut().enumerate() {
            let path = format!("metadata.ownerReferences[{index}]");
            let Some(owner) = owner.as_object_mut() else {
                return Err(mismatch(&path, owner, "v1.OwnerReference"));
            };
            owner.retain(|key, value| {
                let known = OWNER_FIELDS.contains(&key.as_str());
                if !known {
                    unknown.push(format!("{path}.{key}"));
                }
                known && !value.is_null()
            });
        }
    }
    Ok(unknown)
}

/// Leaves out empty lists and maps.
pub(crate) fn without_empties(fields: &mut Map<String, Value>) {
    for key in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
        let empty = match fields.get(key) {
            Some(Value::Object(entries)) => entries.is_empty(),
            // An empty list of managed fields is an order to forget them.
            Some(Value::Array(items)) => items.is_empty() && key != "managedFields",
            _ => false,
        };
        if empty {
            fields.remove(key);
        }
    }
}

fn mismatch(path: &str, value: &Value, wanted: &str) -> String {
    format!("json: cannot unmarshal {} into Go struct field .{path} of type {wanted}", json_type(value))
}

/// Everything that is wrong with the metadata of an object, whatever its kind; its name is the kind's affair.
pub(crate) fn validate(metadata: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut each = |path: &str, value: &str, wrong: Vec<String>| {
        errors.extend(wrong.into_iter().map(|why| FieldError::invalid(path, value, why)));
    };
    for (name, value) in entries(metadata, "labels") {
        each("metadata.labels", name, names::label_key(name));
        if let Some(value) = value.as_str() {
            each("metadata.labels", value, names::label_value(value));
        }
    }
    for (name, _) in entries(metadata, "annotations") {
        each("metadata.annotations", name, names::label_key(&name.to_lowercase()));
    }
    let size: usize = entries(metadata, "annotations")
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > 262_144 {
        errors.push(FieldError::too_long("metadata.annotations", 262_144));
    }
    for finalizer in list(metadata, "finalizers").filter_map(Value::as_str) {
        errors.extend(
            names::label_key(finalizer)
                .into_iter()
                .map(|why| FieldError::invalid("metadata.finalizers", finalizer, why)),
        );
    }
    errors.extend(owners(metadata));
    if let Some(old) = old {
        errors.extend(changes(metadata, old));
    }
    errors
}

/// Finalizers of built-in kinds say whose they are.
pub(crate) fn unqualified_finalizers(metadata: &Value) -> Vec<FieldError> {
    let standard = ["kubernetes", "orphan", "foregroundDeletion"];
    list(metadata, "finalizers")
        .filter_map(Value::as_str)
        .enumerate()
        .filter(|(_, finalizer)| !finalizer.contains('/') && !standard.contains(finalizer))
        .map(|(index, finalizer)| {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            FieldError::invalid(format!("metadata.finalizers[{index}]"), finalizer, why)
        })
        .collect()
}

fn owners(metadata: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controllers = Vec::new();
    for owner in list(metadata, "ownerReferences") {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        let invalid = |key: &str, detail: &str| {
            FieldError::invalid(format!("metadata.ownerReferences.{key}"), text(key), detail)
        };
        if text("apiVersion").is_empty() {
            errors.push(invalid("apiVersion", "version must not be empty"));
        }
        for key in ["kind", "name", "uid"] {
            if text(key).is_empty() {
                errors.push(invalid(key, "must not be empty"));
            }
        }
        if owner.get("controller").and_then(Value::as_bool).unwrap_or(false) {
            controllers.push((text("kind").to_owned(), text("name").to_owned()));
        }
    }
    if let [(first_kind, first), (kind, name), ..] = controllers.as_slice() {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            list(metadata, "ownerReferences").cloned().collect::<Vec<_>>(),
            format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first_kind}/{first} and {kind}/{name}"
            ),
        ));
    }
    errors
}

fn changes(metadata: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.get("deletionTimestamp").is_some() {
        let before: Vec<&str> = list(old, "finalizers").filter_map(Value::as_str).collect();
        let added: Vec<String> = list(metadata, "finalizers")
            .filter_map(Value::as_str)
            .filter(|finalizer| !before.contains(finalizer))
            .map(|finalizer| format!("\"{finalizer}\""))
            .collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.join(", ")
                ),
            ));
        }
    }
    errors
}

fn entries<'a>(metadata: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    metadata.get(key).and_then(Value::as_object).into_iter().flatten()
}

pub(crate) fn list<'a>(metadata: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    metadata.get(key).and_then(Value::as_array).into_iter().flatten()
}
