//! The smaller kinds: config maps, secrets, claims, namespaces, events, leases and the like.

use serde_json::{Value, json};
use trainyard_objects::{At as _, FieldError, names};

use super::{canonical_amounts, default, items, object, wrong_amounts};
use crate::kinds::Builtin;

pub(super) fn prepare(builtin: Builtin, value: &mut Value, old: Option<&Value>) {
    match builtin {
        Builtin::Namespace => {
            let name = value.text_at("/metadata/name").to_owned();
            let labels = object(&mut value["metadata"], "labels");
            labels["kubernetes.io/metadata.name"] = name.into();
            if old.is_none() {
                value["spec"] = json!({"finalizers": ["kubernetes"]});
                value["status"] = json!({"phase": "Active"});
            }
        }
        Builtin::Secret => {
            default(value, "type", "Opaque");
            let plain = value.as_object_mut().and_then(|fields| fields.remove("stringData"));
            if let Some(Value::Object(plain)) = plain {
                let data = object(value, "data");
                for (key, text) in plain {
                    data[key.as_str()] = base64(text.as_str().unwrap_or_default().as_bytes()).into();
                }
            }
        }
        Builtin::Claim => {
            let spec = object(value, "spec");
            default(spec, "volumeMode", "Filesystem");
            if let Some(resources) = spec.get_mut("resources") {
                canonical_amounts(resources.get_mut("requests"));
                canonical_amounts(resources.get_mut("limits"));
            }
            if old.is_none() {
                value["status"] = json!({"phase": "Pending"});
            } else if let Some(volume) = old.and_then(|old| old.at("/spec/volumeName")) {
                default(object(value, "spec"), "volumeName", volume.clone());
            }
        }
        Builtin::Volume => {
            let spec = object(value, "spec");
            default(spec, "volumeMode", "Filesystem");
            default(spec, "persistentVolumeReclaimPolicy", "Retain");
            canonical_amounts(spec.get_mut("capacity"));
            if old.is_none() {
                value["status"] = json!({"phase": "Pending"});
            }
        }
        Builtin::Quota => {
            canonical_amounts(object(value, "spec").get_mut("hard"));
            if old.is_none()
                && let Some(fields) = value.as_object_mut()
            {
                fields.remove("status");
            }
        }
        Builtin::Budget if old.is_none() => value["status"] = super::budgets::unknown(),
        Builtin::PriorityClass => default(value, "preemptionPolicy", "PreemptLowerPriority"),
        Builtin::StorageClass => {
            default(value, "reclaimPolicy", "Delete");
            default(value, "volumeBindingMode", "Immediate");
        }
        _ => {}
    }
}

pub(super) fn validate(builtin: Builtin, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match builtin {
        Builtin::ConfigMap => {
            let mut errors = keys(value, "data");
            errors.extend(keys(value, "binaryData"));
            for key in
                value.get("data").and_then(Value::as_object).into_iter().flat_map(serde_json::Map::keys)
            {
                if value["binaryData"].get(key).is_some() {
                    let detail = "duplicate of key present in binaryData";
                    errors.push(FieldError::invalid(format!("data[{key}]"), key.as_str(), detail));
                }
            }
            errors.extend(too_large(value, &["data", "binaryData"]));
            if let Some(old) = old {
                errors.extend(immutable(value, old, &["data", "binaryData"]));
            }
            errors
        }
        Builtin::Secret => {
            let mut errors = keys(value, "data");
            errors.extend(too_large(value, &["data"]));
            if let Some(old) = old {
                if value.get("type") != old.get("type") {
                    let given = value.get("type").cloned().unwrap_or_default();
                    errors.push(FieldError::invalid("type", given, "field is immutable"));
                }
                errors.extend(immutable(value, old, &["data"]));
            }
            errors
        }
        Builtin::Claim => claim(value, old),
        Builtin::Event => event(value, old),
        Builtin::NewEvent => new_event(value, old),
        Builtin::Lease => lease(value),
        Builtin::Quota => {
            let mut errors = wrong_amounts("spec.hard", value.at("/spec/hard"));
            if let Some(old) = old
                && value.at("/spec/scopes") != old.at("/spec/scopes")
            {
                let given = value.at("/spec/scopes").cloned().unwrap_or_default();
                errors.push(FieldError::invalid("spec.scopes", given, "field is immutable"));
            }
            errors
        }
        Builtin::PriorityClass => {
            let name = value.text_at("/metadata/name");
            let number = value["value"].as_i64().unwrap_or(0);
            let mut errors = Vec::new();
            if number > 1_000_000_000 && !name.starts_with("system-") {
                let detail = "maximum allowed value of a user defined priority is 1000000000";
                errors.push(FieldError::forbidden("value", detail));
            }
            if old.is_some_and(|old| old["value"] != value["value"]) {
                errors.push(FieldError::forbidden("value", "may not be changed in an update."));
            }
            errors
        }
        Builtin::StorageClass => {
            let mut errors = Vec::new();
            if value.text_at("/provisioner").is_empty() {
                errors.push(FieldError::required("provisioner", ""));
            }
            errors
        }
        Builtin::Volume => {
            let mut errors = wrong_amounts("spec.capacity", value.at("/spec/capacity"));
            if items(&value["spec"], "accessModes").next().is_none() {
                errors.push(FieldError::required("spec.accessModes", ""));
            }
            if value.at("/spec/capacity/storage").is_none() {
                errors.push(FieldError::required("spec.capacity", ""));
            }
            errors
        }
        _ => Vec::new(),
    }
}

fn keys(value: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in value.get(field).and_then(Value::as_object).into_iter().flat_map(serde_json::Map::keys) {
        for why in names::config_key(key) {
            errors.push(FieldError::invalid(format!("{field}[{key}]"), key.as_str(), why));
        }
    }
    errors
}

fn too_large(value: &Value, fields: &[&str]) -> Option<FieldError> {
    let size: usize = fields
        .iter()
        .filter_map(|field| value.get(*field).and_then(Value::as_object))
        .flatten()
        .map(|(_, text)| text.as_str().map_or(0, str::len))
        .sum();
    (size > 1 << 20).then(|| FieldError::too_long("[]", 1 << 20))
}

fn immutable(value: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if value.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for field in fields {
        if value.get(*field) != old.get(*field) {
            errors.push(FieldError::forbidden(*field, "field is immutable when `immutable` is set"));
        }
    }
    errors
}

fn claim(value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &value["spec"];
    let mut errors = Vec::new();
    let modes = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    if items(spec, "accessModes").next().is_none() {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    for mode in items(spec, "accessModes").filter_map(Value::as_str) {
        if !modes.contains(&mode) {
            errors.push(FieldError::not_supported("spec.accessModes", mode, &modes));
        }
    }
    if spec.at("/resources/requests/storage").is_none() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    }
    errors.extend(wrong_amounts("spec.resources.requests", spec.at("/resources/requests")));
    if let Some(old) = old {
        let fixed = |spec: &Value| {
            let mut spec = spec.clone();
            if let Some(fields) = spec.as_object_mut() {
                fields.remove("resources");
                fields.remove("volumeAttributesClassName");
            }
            spec
        };
        let (mut before, after) = (fixed(&old["spec"]), fixed(spec));
        // Binding fills these in.
        for key in ["volumeName", "storageClassName"] {
            if before.get(key).is_none()
                && let Some(given) = after.get(key)
            {
                before[key] = given.clone();
            }
        }
        if before != after {
            errors.push(FieldError::forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            ));
        }
    }
    errors
}

fn event(value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let involved = value.text_at("/involvedObject/namespace");
    about_elsewhere(value, old, "involvedObject", involved)
}

/// An event is told in the namespace of what it is about; of things without one, in the default one.
fn about_elsewhere(value: &Value, old: Option<&Value>, field: &str, involved: &str) -> Vec<FieldError> {
    let namespace = value.text_at("/metadata/namespace");
    let matches = if involved.is_empty() {
        ["default", "kube-system"].contains(&namespace)
    } else {
        involved == namespace
    };
    if old.is_some() || matches {
        return Vec::new();
    }
    let detail = "does not match event.namespace";
    vec![FieldError::invalid(format!("{field}.namespace"), involved, detail)]
}

fn new_event(value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if old.is_some() {
        return Vec::new();
    }
    let mut errors = about_elsewhere(value, old, "regarding", value.text_at("/regarding/namespace"));
    if value.text_at("/eventTime").is_empty() {
        errors.push(FieldError::required("eventTime", ""));
    } else {
        for key in ["reportingController", "reportingInstance", "action", "reason"] {
            if value.text_at(&format!("/{key}")).is_empty() {
                errors.push(FieldError::required(key, ""));
            }
        }
    }
    let kind = value.text_at("/type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid("type", kind, format!("has invalid value: {kind}")));
    }
    errors
}

fn lease(value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(seconds) = value.at("/spec/leaseDurationSeconds").and_then(Value::as_i64)
        && seconds <= 0
    {
        let detail = "must be greater than 0";
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, detail));
    }
    errors
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64, as `data` of secrets has it.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = (u32::from(chunk[0]) << 16)
            | (u32::from(chunk.get(1).copied().unwrap_or(0)) << 8)
            | u32::from(chunk.get(2).copied().unwrap_or(0));
        for index in 0..4 {
            if index <= chunk.len() {
                let six = (word >> (18 - 6 * index)) & 63;
                out.push(char::from(ALPHABET[six as usize]));
            } else {
                out.push('=');
            }
        }
    }
    out
}
