//! Strategic merge of a pod template over a pod, on JSON.
//!
//! As `kubectl patch` does it: objects are merged, `null` removes, lists of things with a name are merged by that
//! name, other lists are replaced; `$patch: delete` and `$patch: replace` work on objects and on items.
//! One deliberate difference: tolerations are added to ours, because replacing them would
//! silently take a GPU job's own toleration away.

use serde_json::{Map, Value};

/// Lists in a pod whose items are merged by a key.
const KEYS: [(&str, &str); 12] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("ports", "containerPort"),
    ("imagePullSecrets", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
    ("schedulingGates", "name"),
    ("resourceClaims", "name"),
];

/// Lists whose items hold one thing of several kinds.
const ONE_SOURCE: [&str; 2] = ["volumes", "env"];

/// Lays `overlay` over `base`.
pub fn merge(base: &mut Value, overlay: &Value) {
    match (base, overlay) {
        (Value::Object(base), Value::Object(overlay)) => merge_objects(base, overlay),
        (base, overlay) => *base = overlay.clone(),
    }
}

fn merge_objects(base: &mut Map<String, Value>, overlay: &Map<String, Value>) {
    match directive(overlay) {
        Some("replace") => base.clear(),
        Some("delete") => return base.clear(),
        _ => {}
    }
    for (name, value) in overlay {
        if name.starts_with('$') {
            continue;
        }
        if value.is_null() {
            base.remove(name);
            continue;
        }
        let slot = base.entry(name.clone()).or_insert(Value::Null);
        match (slot, value) {
            (Value::Array(items), Value::Array(overlay)) if name == "tolerations" => {
                for item in overlay {
                    if !items.contains(item) {
                        items.push(item.clone());
                    }
                }
            }
            (Value::Array(items), Value::Array(overlay)) => match key_of(name) {
                Some(key) => merge_lists(items, overlay, key, ONE_SOURCE.contains(&name.as_str())),
                None => items.clone_from(overlay),
            },
            (slot @ Value::Null, Value::Array(overlay)) => {
                // Even with nothing below it, directives must not end up in the pod.
                let kept = overlay.iter().filter(|item| item_directive(item) != Some("delete"));
                *slot = Value::Array(kept.map(without_directive).collect());
            }
            (slot @ Value::Null, value) => *slot = without_directive(value),
            (slot, value) => merge(slot, value),
        }
    }
}

fn merge_lists(items: &mut Vec<Value>, overlay: &[Value], key: &str, one_source: bool) {
    for item in overlay {
        let position = items
            .iter()
            .position(|existing| existing.get(key).is_some() && existing.get(key) == item.get(key));
        match (position, item_directive(item)) {
            (Some(position), Some("delete")) => {
                items.remove(position);
            }
            (None, Some("delete")) => {}
            (_, Some("replace")) if item.get(key).is_none() => {
                // `- $patch: replace` as an item of its own: the rest of the overlay is the whole list.
                items.clear();
            }
            (Some(position), _) => {
                if one_source {
                    keep_one_source(&mut items[position], item, key);
                }
                merge(&mut items[position], item);
            }
            (None, _) => items.push(without_directive(item)),
        }
    }
}

/// A volume has one source, and so has a variable: an overlay that names another one replaces it.
fn keep_one_source(existing: &mut Value, overlay: &Value, key: &str) {
    let (Some(existing), Some(overlay)) = (existing.as_object_mut(), overlay.as_object()) else { return };
    let brings_another =
        overlay.keys().any(|name| name != key && !name.starts_with('$') && !existing.contains_key(name));
    if brings_another {
        existing.retain(|name, _| name == key);
    }
}

fn key_of(list: &str) -> Option<&'static str> {
    KEYS.iter().find(|(name, _)| *name == list).map(|(_, key)| *key)
}

fn directive(object: &Map<String, Value>) -> Option<&str> {
    object.get("$patch").and_then(Value::as_str)
}

fn item_directive(item: &Value) -> Option<&str> {
    item.as_object().and_then(directive)
}

fn without_directive(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, value)| !name.starts_with('$') && !value.is_null())
            .map(|(name, value)| (name.clone(), without_directive(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_directive).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(mut base: Value, overlay: &Value) -> Value {
        merge(&mut base, overlay);
        base
    }

    #[test]
    fn lists_with_keys_are_merged_and_others_replaced() {
        let base =
            json!({"containers": [{"name": "a", "args": ["1"], "env": [{"name": "X", "value": "1"}]}]});
        let overlay = json!({"containers": [
            {"name": "a", "args": ["2"], "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "3"}]},
            {"name": "b", "image": "i"},
        ]});
        let expected = json!({"containers": [
            {"name": "a", "args": ["2"], "env": [{"name": "X", "value": "3"}, {"name": "Y", "value": "2"}]},
            {"name": "b", "image": "i"},
        ]});
        assert_eq!(merged(base, &overlay), expected);
    }

    #[test]
    fn null_and_directives_remove() {
        let base = json!({"a": 1, "b": {"c": 2, "d": 3}, "volumes": [{"name": "x"}, {"name": "y"}]});
        let overlay = json!({"a": null, "b": {"$patch": "replace", "e": 4}, "volumes": [{"name": "x", "$patch": "delete"}]});
        assert_eq!(merged(base, &overlay), json!({"b": {"e": 4}, "volumes": [{"name": "y"}]}));
        let overlay = json!({"volumes": [{"$patch": "replace"}, {"name": "z"}]});
        assert_eq!(
            merged(json!({"volumes": [{"name": "x"}]}), &overlay),
            json!({"volumes": [{"name": "z"}]})
        );
        assert_eq!(
            merged(json!({}), &json!({"volumes": [{"name": "z", "$patch": "delete"}]})),
            json!({"volumes": []})
        );
    }

    #[test]
    fn another_volume_source_replaces_and_the_same_one_merges() {
        let base =
            json!({"volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}]});
        let larger = json!({"volumes": [{"name": "dshm", "emptyDir": {"sizeLimit": "64Gi"}}]});
        assert_eq!(
            merged(base.clone(), &larger),
            json!({"volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}]})
        );
        let host = json!({"volumes": [{"name": "dshm", "hostPath": {"path": "/dev/shm"}}]});
        assert_eq!(
            merged(base, &host),
            json!({"volumes": [{"name": "dshm", "hostPath": {"path": "/dev/shm"}}]})
        );
    }

    #[test]
    fn another_source_of_a_variable_replaces_its_value() {
        let base = json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]});
        let secret = json!({"secretKeyRef": {"name": "s", "key": "k"}});
        let overlay = json!({"env": [{"name": "A", "valueFrom": secret}, {"name": "B", "value": "2"}]});
        assert_eq!(
            merged(base, &overlay),
            json!({"env": [{"name": "A", "valueFrom": secret}, {"name": "B", "value": "2"}]})
        );
    }

    #[test]
    fn tolerations_are_added() {
        let base = json!({"tolerations": [{"key": "nvidia.com/gpu"}]});
        let overlay = json!({"tolerations": [{"key": "spot"}, {"key": "nvidia.com/gpu"}]});
        assert_eq!(
            merged(base, &overlay),
            json!({"tolerations": [{"key": "nvidia.com/gpu"}, {"key": "spot"}]})
        );
    }
}
