//! Sets of fields, in the form in which `managedFields` keeps them (`fieldsV1`).
//!
//! A set is a tree of JSON objects whose keys are steps: `f:` a field, `k:` an item by its keys, `v:` a value of a set. A
//! place belongs to the set if its object is empty or has the key `.`. The sets are kept and changed in this form, so that
//! recording an update costs as much as the update is large, not as the object is.

use serde_json::{Map, Value};

/// A set of fields.
pub(super) type Fields = Map<String, Value>;

const SELF: &str = ".";

/// Makes the tree of one place: whether it belongs to the set, and what is below it.
pub(super) fn place(member: bool, mut below: Fields) -> Option<Value> {
    if below.is_empty() {
        return member.then_some(Value::Object(below));
    }
    if member {
        below.insert(SELF.to_owned(), Value::Object(Map::new()));
    }
    Some(Value::Object(below))
}

/// Whether the place itself belongs to the set.
pub(super) fn is_member(place: &Value) -> bool {
    place.as_object().is_some_and(|below| below.is_empty() || below.contains_key(SELF))
}

/// The steps from a place, with the places that they lead to.
pub(super) fn below(place: &Value) -> impl Iterator<Item = (&String, &Value)> {
    place.as_object().into_iter().flatten().filter(|(step, _)| *step != SELF)
}

/// Adds what is in `more`.
pub(super) fn add(set: &mut Fields, more: &Fields) {
    for (step, place) in more {
        if step == SELF {
            set.insert(step.clone(), place.clone());
            continue;
        }
        let Some(existing) = set.get_mut(step) else {
            set.insert(step.clone(), place.clone());
            continue;
        };
        let member = is_member(existing) || is_member(place);
        if let (Some(existing), Some(more)) = (existing.as_object_mut(), place.as_object()) {
            add(existing, more);
            mark(existing, member);
        }
    }
}

/// Takes away the places that belong to `less`; not what is below them, unless it belongs to it, too.
pub(super) fn subtract(set: &mut Fields, less: &Fields) {
    for (step, place) in less {
        if step == SELF {
            continue;
        }
        let Some(existing) = set.get_mut(step) else { continue };
        let member = is_member(existing) && !is_member(place);
        let empty = match (existing.as_object_mut(), place.as_object()) {
            (Some(existing), Some(less)) => {
                existing.remove(SELF);
                subtract(existing, less);
                existing.remove(SELF);
                let empty = existing.is_empty();
                mark(existing, member);
                empty
            }
            _ => true,
        };
        if empty && !member {
            set.remove(step);
        }
    }
}

/// What belongs to both.
pub(super) fn common(left: &Fields, right: &Fields) -> Fields {
    let mut result = Map::new();
    for (step, place_left) in left {
        if step == SELF {
            continue;
        }
        let Some(place_right) = right.get(step) else { continue };
        if let (Some(below_left), Some(below_right)) = (place_left.as_object(), place_right.as_object()) {
            let member = is_member(place_left) && is_member(place_right);
            if let Some(shared) = place(member, common(below_left, below_right)) {
                result.insert(step.clone(), shared);
            }
        }
    }
    result
}

/// The paths of all places that belong to the set, as messages show them.
pub(super) fn paths(set: &Fields) -> Vec<String> {
    fn collect(place: &Value, path: &str, paths: &mut Vec<String>) {
        if is_member(place) {
            paths.push(path.to_owned());
        }
        for (step, place) in below(place) {
            collect(place, &format!("{path}{}", shown(step)), paths);
        }
    }
    let mut result = Vec::new();
    for (step, place) in set {
        if step != SELF {
            collect(place, &shown(step), &mut result);
        }
    }
    result
}

/// A step as messages show it.
pub(super) fn shown(step: &str) -> String {
    match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("v", value)) => format!("[={value}]"),
        Some(("i", index)) => format!("[{index}]"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!(".{step}"),
    }
}

fn mark(below: &mut Fields, member: bool) {
    if member && !below.is_empty() {
        below.insert(SELF.to_owned(), Value::Object(Map::new()));
    } else {
        below.remove(SELF);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> Fields {
        match value {
            Value::Object(fields) => fields,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn sums_and_differences() {
        let spec =
            json!({"f:spec": {".": {}, "f:a": {}, "f:b": {"k:{\"name\":\"x\"}": {".": {}, "f:v": {}}}}});
        let mut sum = set(json!({"f:spec": {"f:a": {}}}));
        add(&mut sum, &set(spec.clone()));
        assert_eq!(Value::Object(sum.clone()), spec);
        subtract(&mut sum, &set(json!({"f:spec": {"f:b": {"k:{\"name\":\"x\"}": {"f:v": {}}}}})));
        assert_eq!(
            Value::Object(sum.clone()),
            json!({"f:spec": {".": {}, "f:a": {}, "f:b": {"k:{\"name\":\"x\"}": {}}}})
        );
        subtract(&mut sum, &set(json!({"f:spec": {}})));
        assert_eq!(
            Value::Object(sum.clone()),
            json!({"f:spec": {"f:a": {}, "f:b": {"k:{\"name\":\"x\"}": {}}}})
        );
        let same = sum.clone();
        subtract(&mut sum, &same);
        assert_eq!(Value::Object(sum), json!({}));
        // A leaf becomes a place with something below it and still belongs to the set.
        let mut leaf = set(json!({"f:a": {}}));
        add(&mut leaf, &set(json!({"f:a": {"f:b": {}}})));
        assert_eq!(Value::Object(leaf), json!({"f:a": {".": {}, "f:b": {}}}));
    }

    #[test]
    fn what_is_common_and_how_it_is_shown() {
        let left =
            set(json!({"f:spec": {".": {}, "f:a": {}, "f:c": {"k:{\"name\":\"x\"}": {".": {}, "f:v": {}}}}}));
        let right = set(
            json!({"f:spec": {"f:c": {"k:{\"name\":\"x\"}": {"f:v": {}}}, "f:d": {}}, "f:s": {"v:\"x\"": {}}}),
        );
        let shared = common(&left, &right);
        assert_eq!(paths(&shared), [".spec.c[name=\"x\"].v"]);
        assert_eq!(paths(&right), [".s[=\"x\"]", ".spec.c[name=\"x\"].v", ".spec.d"]);
    }
}
