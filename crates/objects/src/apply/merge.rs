//! Laying an applied configuration over the live object, and removing what is no longer applied.

use serde_json::{Map, Value};

use super::compare::{field_step, item_step};
use super::fields::{self, Fields, is_member};
use crate::path::Path;
use crate::shape::{At, ListType};

/// An intent with a list whose items cannot be told apart: where, and why.
#[derive(Debug)]
pub(super) struct Unmergeable(pub(super) String);

/// The live value with the intent laid over it.
pub(super) fn merged(
    live: &Value,
    intent: &Value,
    at: At<'_>,
    path: &mut Path,
) -> Result<Value, Unmergeable> {
    match (live, intent) {
        (Value::Object(live), Value::Object(intent)) if !at.is_atomic_map() => {
            let mut result = live.clone();
            for (name, value) in intent {
                let mark = path.field(name);
                let value = match live.get(name) {
                    Some(existing) => merged(existing, value, at.field(name), path)?,
                    None => checked(value, at.field(name), path)?,
                };
                path.back(mark);
                result.insert(name.clone(), value);
            }
            Ok(Value::Object(result))
        }
        (Value::Array(live), Value::Array(intent)) if *at.list() != ListType::Atomic => {
            merged_lists(live, intent, at, path).map(Value::Array)
        }
        // Nothing is said about what is below.
        (Value::Object(_) | Value::Array(_), Value::Null) => Ok(live.clone()),
        (_, intent) => checked(intent, at, path),
    }
}

/// A value that is all new, once its lists are known to be mergeable.
fn checked(value: &Value, at: At<'_>, path: &mut Path) -> Result<Value, Unmergeable> {
    match value {
        Value::Object(fields) if !at.is_atomic_map() => {
            for (name, value) in fields {
                let mark = path.field(name);
                checked(value, at.field(name), path)?;
                path.back(mark);
            }
        }
        Value::Array(items) if *at.list() != ListType::Atomic => {
            for (item, step) in items.iter().zip(steps(items, at, path)?) {
                let mark = path.step(&fields::shown(&step));
                checked(item, at.item(), path)?;
                path.back(mark);
            }
        }
        _ => {}
    }
    Ok(value.clone())
}

/// Items of the intent come in its order; items that only the live list has stay where they are among the others.
fn merged_lists(
    live: &[Value],
    intent: &[Value],
    at: At<'_>,
    path: &mut Path,
) -> Result<Vec<Value>, Unmergeable> {
    let wanted = steps(intent, at, path)?;
    let existing: Vec<Option<String>> = live.iter().map(|item| item_step(at.list(), item)).collect();
    let mut items = Vec::with_capacity(intent.len());
    for (item, step) in intent.iter().zip(&wanted) {
        let before = existing.iter().position(|other| other.as_ref() == Some(step));
        let mark = path.step(&fields::shown(step));
        items.push(match before {
            Some(before) => merged(&live[before], item, at.item(), path)?,
            None => checked(item, at.item(), path)?,
        });
        path.back(mark);
    }
    let mut result = Vec::with_capacity(live.len().max(intent.len()));
    let mut items = items.into_iter().enumerate().peekable();
    for (index, step) in existing.iter().enumerate() {
        let Some(at_intent) = step.as_ref().and_then(|step| wanted.iter().position(|other| other == step))
        else {
            result.push(live[index].clone());
            continue;
        };
        // Everything that the intent has up to this item, unless the intent has put it earlier.
        while let Some((_, item)) = items.next_if(|(index, _)| *index <= at_intent) {
            result.push(item);
        }
    }
    result.extend(items.map(|(_, item)| item));
    Ok(result)
}

fn steps(items: &[Value], at: At<'_>, path: &Path) -> Result<Vec<String>, Unmergeable> {
    let mut steps: Vec<String> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Some(step) = item_step(at.list(), item) else {
            let keys: Vec<&str> = match at.list() {
                ListType::Map(keys) => keys.iter().map(|key| key.name.as_str()).collect(),
                ListType::Atomic | ListType::Set => Vec::new(),
            };
            let keys = Value::from(keys);
            return Err(Unmergeable(format!(
                ".{}: element {index}: associative list with keys has an element that omits all key fields {keys} (and \
                 doesn't have default values for any key fields)",
                path.as_str()
            )));
        };
        if steps.contains(&step) {
            let key = fields::shown(&step);
            return Err(Unmergeable(format!(".{}: duplicate entries for key {key}", path.as_str())));
        }
        steps.push(step);
    }
    Ok(steps)
}

/// Removes from `value` what its manager applied before (`last`) and what now belongs to nobody (`owned` is what all
/// managers own together, with what this one applies now).
pub(super) fn prune(value: &mut Value, last: &Fields, owned: Option<&Fields>, at: At<'_>) {
    match value {
        Value::Object(fields) if !at.is_atomic_map() => {
            fields.retain(|name, value| {
                keep(value, &field_step(name), at.field(name), last, owned, at.is_named(name))
            });
        }
        Value::Array(items) if *at.list() != ListType::Atomic => {
            items.retain_mut(|item| match item_step(at.list(), item) {
                Some(step) => keep(item, &step, at.item(), last, owned, false),
                None => true,
            });
        }
        _ => {}
    }
}

fn keep(
    value: &mut Value,
    step: &str,
    at: At<'_>,
    last: &Fields,
    owned: Option<&Fields>,
    named: bool,
) -> bool {
    let Some(was) = last.get(step) else { return true };
    let now = owned.and_then(|owned| owned.get(step));
    // A named field belongs to whoever owns something below it.
    let member = |place: &Value| named || is_member(place);
    if member(was) && !now.is_some_and(member) {
        return false;
    }
    let before = size(value);
    if let Some(was) = was.as_object() {
        prune(value, was, now.and_then(Value::as_object), at);
    }
    // What has become empty by this goes, too, unless somebody wants just that.
    !(before > 0 && size(value) == 0 && !now.is_some_and(is_member))
}

fn size(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// A copy without `metadata.managedFields`, which is never merged.
pub(super) fn without_managed_fields(object: &Value) -> Value {
    let mut copy = Map::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        let value = match value {
            Value::Object(metadata) if name == "metadata" => Value::Object(
                metadata
                    .iter()
                    .filter(|(name, _)| *name != "managedFields")
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            ),
            other => other.clone(),
        };
        copy.insert(name.clone(), value);
    }
    Value::Object(copy)
}
