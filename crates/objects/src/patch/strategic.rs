//! Strategic merge patch: a merge patch that knows which lists are merged by which key.
//!
//! Directives in the patch: `$patch: replace|merge|delete` in an object or as an item, `$deleteFromPrimitiveList/x` and
//! `$setElementOrder/x` beside a list, `$retainKeys` in an object that holds one of several alternatives.

use serde_json::{Map, Value};

use super::PatchError;
use crate::Shape;
use crate::shape::At;

const DIRECTIVE: &str = "$patch";
const DELETE_VALUES: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";
const RETAIN: &str = "$retainKeys";

/// Lays `patch` over a copy of `target`. The shape must be that of a built-in kind: custom resources have no strategic
/// merge (415 UnsupportedMediaType).
pub fn strategic(target: &Value, patch: &Value, shape: &Shape) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed("a strategic merge patch must be an object".to_owned()));
    };
    let target = target.as_object().cloned().unwrap_or_default();
    object(target, patch, shape.root()).map(Value::Object)
}

fn object(
    mut target: Map<String, Value>,
    patch: &Map<String, Value>,
    at: At<'_>,
) -> Result<Map<String, Value>, PatchError> {
    match directive(patch)? {
        Some(Directive::Replace) => return Ok(without_directives(patch)),
        Some(Directive::Delete) => return Ok(Map::new()),
        Some(Directive::Merge) | None => {}
    }
    if let Some(retained) = patch.get(RETAIN) {
        retain(&mut target, patch, retained)?;
    }
    // Kept only for the order of lists, which few patches set.
    let ordered = patch.keys().any(|name| name.starts_with(ORDER));
    let original = if ordered { target.clone() } else { Map::new() };
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_VALUES) {
            delete_values(&mut target, list, value)?;
        }
    }
    for (name, value) in patch {
        if is_directive(name) {
            continue;
        }
        let place = at.field(name);
        let merged = match (target.remove(name), value) {
            (_, Value::Null) => continue,
            (Some(Value::Object(existing)), Value::Object(patch)) => {
                Value::Object(object(existing, patch, place)?)
            }
            (Some(Value::Array(existing)), Value::Array(patch)) => {
                Value::Array(list(&existing, patch, place)?)
            }
            (None, Value::Array(patch)) => Value::Array(list(&[], patch, place)?),
            // Nothing before, another form, or a plain value.
            (_, Value::Object(patch)) => Value::Object(object(Map::new(), patch, place)?),
            (_, other) => other.clone(),
        };
        target.insert(name.clone(), merged);
    }
    for (name, order) in patch {
        let Some(list) = name.strip_prefix(ORDER) else { continue };
        let Value::Array(order) = order else {
            return Err(PatchError::Malformed("invalid patch format of setElementOrder list".to_owned()));
        };
        if let Some(Value::Array(items)) = target.get_mut(list) {
            let key = at.field(list).patch().and_then(|strategy| strategy.key.clone());
            // Where the server's own items go is told by where they were.
            let server = original.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            *items = in_order(std::mem::take(items), order, server, key.as_deref());
        }
    }
    Ok(target)
}

fn list(server: &[Value], patch: &[Value], at: At<'_>) -> Result<Vec<Value>, PatchError> {
    let Some(strategy) = at.patch().filter(|strategy| strategy.merge) else {
        return patch.iter().map(cleaned).collect();
    };
    let Some(key) = strategy.key.as_deref() else {
        // A set of plain values.
        let new = patch.iter().filter(|value| !server.contains(value));
        let items = server.iter().chain(new).cloned().collect();
        return Ok(in_order(items, patch, server, None));
    };
    let mut items = server.to_vec();
    let mut merged: Vec<&Map<String, Value>> = Vec::new();
    for item in patch {
        let Some(fields) = item.as_object() else {
            let lists = go_text(&Value::from(vec![Value::from(server), Value::from(patch)]));
            return Err(PatchError::Malformed(format!("list element types are not identical: {lists}")));
        };
        match directive(fields)? {
            // Whatever else the item says: the other items are the whole list.
            Some(Directive::Replace) => {
                let rest = patch.iter().filter(|item| item.get(DIRECTIVE).is_none());
                return rest.map(cleaned).collect();
            }
            Some(Directive::Delete) => {
                let gone = merge_key(fields, key)?;
                items.retain(|existing| existing.get(key) != Some(gone));
            }
            Some(Directive::Merge) => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Malformed(why.to_owned()));
            }
            None => merged.push(fields),
        }
    }
    for fields in merged {
        let wanted = merge_key(fields, key)?;
        match items.iter_mut().find(|existing| existing.get(key) == Some(wanted)) {
            Some(existing) => {
                let target = existing.as_object().cloned().unwrap_or_default();
                *existing = Value::Object(object(target, fields, at.item())?);
            }
            None => items.push(Value::Object(object(Map::new(), fields, at.item())?)),
        }
    }
    Ok(in_order(items, patch, server, Some(key)))
}

fn merge_key<'p>(fields: &'p Map<String, Value>, key: &str) -> Result<&'p Value, PatchError> {
    fields.get(key).ok_or_else(|| {
        let map = go_map(fields);
        PatchError::Malformed(format!("map: {map} does not contain declared merge key: {key}"))
    })
}

/// What the patch names comes in its order; what only the server has stays before those that it was before.
fn in_order(items: Vec<Value>, order: &[Value], server: &[Value], key: Option<&str>) -> Vec<Value> {
    let name = |item: &Value| key.map_or_else(|| Some(item.clone()), |key| item.get(key).cloned());
    let position = |list: &[Value], item: &Value| {
        let wanted = name(item)?;
        list.iter().position(|other| name(other).as_ref() == Some(&wanted))
    };
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| position(order, item).is_some());
    named.sort_by_key(|item| position(order, item));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let place = position(server, &item);
        let before = |other: &Value| place.is_some() && position(server, other) < place;
        while let Some(other) = others.next_if(|other| before(other)) {
            result.push(other);
        }
        result.push(item);
    }
    result.extend(others);
    result
}

fn retain(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    retained: &Value,
) -> Result<(), PatchError> {
    let Some(retained) = retained.as_array() else {
        return Err(PatchError::Malformed("invalid patch format of retainKeys".to_owned()));
    };
    let named = |name: &str| retained.iter().any(|retained| retained == name);
    if patch.iter().any(|(name, value)| !is_directive(name) && !value.is_null() && !named(name)) {
        return Err(PatchError::Malformed("invalid patch format of retainKeys".to_owned()));
    }
    target.retain(|name, _| named(name));
    Ok(())
}

fn delete_values(target: &mut Map<String, Value>, list: &str, values: &Value) -> Result<(), PatchError> {
    let Value::Array(values) = values else {
        return Err(PatchError::Malformed("invalid patch format of primitive list".to_owned()));
    };
    if let Some(Value::Array(items)) = target.get_mut(list) {
        items.retain(|item| !values.contains(item));
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directive {
    Replace,
    Delete,
    Merge,
}

fn directive(patch: &Map<String, Value>) -> Result<Option<Directive>, PatchError> {
    match patch.get(DIRECTIVE) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some("replace") => Ok(Some(Directive::Replace)),
            Some("delete") => Ok(Some(Directive::Delete)),
            Some("merge") => Ok(Some(Directive::Merge)),
            _ => {
                let (value, patch) = (go_text(value), go_map(patch));
                Err(PatchError::Malformed(format!("unknown patch type: {value} in map: {patch}")))
            }
        },
    }
}

fn is_directive(name: &str) -> bool {
    name == DIRECTIVE || name == RETAIN || name.starts_with(DELETE_VALUES) || name.starts_with(ORDER)
}

/// A part of the patch that is used as it is must not carry directives into the object.
fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch
        .iter()
        .filter(|(name, value)| !is_directive(name) && !value.is_null())
        .filter_map(|(name, value)| Some((name.clone(), cleaned(value).ok()?)))
        .collect()
}

fn cleaned(value: &Value) -> Result<Value, PatchError> {
    Ok(match value {
        Value::Object(fields) => Value::Object(without_directives(fields)),
        Value::Array(items) => {
            let deleted = |item: &&Value| item.get(DIRECTIVE) == Some(&Value::from("delete"));
            Value::Array(items.iter().filter(|item| !deleted(item)).map(cleaned).collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    })
}

/// A map as Go prints it, which is how it stands in messages.
fn go_map(map: &Map<String, Value>) -> String {
    let entries: Vec<String> = map.iter().map(|(name, value)| format!("{name}:{}", go_text(value))).collect();
    format!("map[{}]", entries.join(" "))
}

fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => go_map(map),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": spec})
    }

    #[test]
    fn lists_maps_and_directives() {
        let table = [
            // Containers by name, args replaced, env by name.
            (
                json!({"containers": [{"name": "a", "args": ["1"], "env": [{"name": "X", "value": "1"}]}]}),
                json!({"containers": [{"name": "a", "args": ["2"], "env": [{"name": "Y", "value": "2"}]}, {"name": "b"}]}),
                json!({"containers": [
                    {"name": "a", "args": ["2"], "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
                    {"name": "b"},
                ]}),
            ),
            // Null removes; tolerations are one piece.
            (
                json!({"hostname": "x", "tolerations": [{"key": "a"}]}),
                json!({"hostname": null, "tolerations": [{"key": "b"}]}),
                json!({"tolerations": [{"key": "b"}]}),
            ),
            // Items are deleted by their key, or the list is replaced.
            (
                json!({"volumes": [{"name": "a"}, {"name": "b"}]}),
                json!({"volumes": [{"name": "a", "$patch": "delete"}]}),
                json!({"volumes": [{"name": "b"}]}),
            ),
            (
                json!({"volumes": [{"name": "a"}, {"name": "b"}]}),
                json!({"volumes": [{"$patch": "replace"}, {"name": "c"}]}),
                json!({"volumes": [{"name": "c"}]}),
            ),
            // An object is replaced.
            (
                json!({"securityContext": {"runAsUser": 1, "fsGroup": 2}}),
                json!({"securityContext": {"$patch": "replace", "runAsUser": 3}}),
                json!({"securityContext": {"runAsUser": 3}}),
            ),
            // Another source of a volume: kubectl names what stays.
            (
                json!({"volumes": [{"name": "a", "emptyDir": {}}]}),
                json!({"volumes": [{"name": "a", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}),
                json!({"volumes": [{"name": "a", "hostPath": {"path": "/x"}}]}),
            ),
            // The order of kubectl apply.
            (
                json!({"containers": [{"name": "a"}, {"name": "b"}]}),
                json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b", "image": "i"}]}),
                json!({"containers": [{"name": "b", "image": "i"}, {"name": "a"}]}),
            ),
        ];
        for (target, patch, expected) in table {
            let result = strategic(&pod(target), &json!({"spec": patch}), &Shape::builtin("", "Pod"));
            assert_eq!(result.unwrap(), pod(expected), "{patch}");
        }
    }

    #[test]
    fn sets_of_values() {
        let target = json!({"metadata": {"finalizers": ["a", "b"]}});
        let shape = Shape::builtin("", "Pod");
        let added = json!({"metadata": {"finalizers": ["b", "c"]}});
        assert_eq!(
            strategic(&target, &added, &shape).unwrap(),
            json!({"metadata": {"finalizers": ["a", "b", "c"]}})
        );
        let removed = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
        assert_eq!(strategic(&target, &removed, &shape).unwrap(), json!({"metadata": {"finalizers": ["b"]}}));
    }

    #[test]
    fn what_cannot_be_applied_is_told() {
        let shape = Shape::builtin("", "Pod");
        let table = [
            (
                json!({"containers": [{"image": "i"}]}),
                "map: map[image:i] does not contain declared merge key: name",
            ),
            (
                json!({"securityContext": {"$patch": "bake"}}),
                "unknown patch type: bake in map: map[$patch:bake]",
            ),
        ];
        for (patch, expected) in table {
            let error = strategic(&pod(json!({})), &json!({"spec": patch}), &shape).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
