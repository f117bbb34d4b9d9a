//! Laying an applied configuration over the live object, and removing what is no longer applied.

use serde_json::{Map, Value};

use super::ApplyError;
use super::compare::{field_step, item_step};
use super::fields::{Fields, is_member};
use crate::shape::{At, ListType};

/// The live value with the intent laid over it.
pub(super) fn merged(live: &Value, intent: &Value, at: At<'_>) -> Result<Value, ApplyError> {
    match (live, intent) {
        (Value::Object(live), Value::Object(intent)) if !at.is_atomic_map() => {
            let mut result = live.clone();
            for (name, value) in intent {
                let value = match live.get(name) {
                    Some(existing) => merged(existing, value, at.field(name))?,
                    None => checked(value, at.field(name))?,
                };
                result.insert(name.clone(), value);
            }
            Ok(Value::Object(result))
        }
        (Value::Array(live), Value::Array(intent)) if *at.list() != ListType::Atomic => {
            merged_lists(live, intent, at).map(Value::Array)
        }
        // Nothing is said about what is below.
        (Value::Object(_) | Value::Array(_), Value::Null) => Ok(live.clone()),
        (_, intent) => checked(intent, at),
    }
}

/// A value that is all new, once its lists are known to be mergeable.
fn checked(value: &Value, at: At<'_>) -> Result<Value, ApplyError> {
    match value {
        Value::Object(fields) if !at.is_atomic_map() => {
            for (name, value) in fields {
                checked(value, at.field(name))?;
            }
        }
        Value::Array(items) if *at.list() != ListType::Atomic => {
            steps(items, at)?;
            for item in items {
                checked(item, at.item())?;
            }
        }
        _ => {}
    }
    Ok(value.clone())
}

/// Items of the intent come in its order; items that only the live list has stay where they are among the others.
fn merged_lists(live: &[Value], intent: &[Value], at: At<'_>) -> Result<Vec<Value>, ApplyError> {
    let wanted = steps(intent, at)?;
    let existing: Vec<Option<String>> = live.iter().map(|item| item_step(at.list(), item)).collect();
    let position = |step: &String| existing.iter().position(|other| other.as_ref() == Some(step));
    let item = |index: usize| match position(&wanted[index]) {
        Some(before) => merged(&live[before], &intent[index], at.item()),
        None => checked(&intent[index], at.item()),
    };
    let mut result = Vec::with_capacity(live.len().max(intent.len()));
    let mut next = 0;
    for (index, step) in existing.iter().enumerate() {
        let Some(at_intent) = step.as_ref().and_then(|step| wanted.iter().position(|other| other == step))
        else {
            result.push(live[index].clone());
            continue;
        };
        // Everything that the intent has up to this item, unless the intent has put it earlier.
        while next <= at_intent {
            result.push(item(next)?);
            next += 1;
        }
    }
    while next < wanted.len() {
        result.push(item(next)?);
        next += 1;
    }
    Ok(result)
}

fn steps(items: &[Value], at: At<'_>) -> Result<Vec<String>, ApplyError> {
    let mut steps: Vec<String> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Some(step) = item_step(at.list(), item) else {
            let keys = match at.list() {
                ListType::Map(keys) => {
                    keys.iter().map(|key| key.name.as_str()).collect::<Vec<_>>().join(", ")
                }
                ListType::Atomic | ListType::Set => String::new(),
            };
            return Err(ApplyError::Malformed(format!(
                "element {index}: associative list with keys has an element that omits key field \"{keys}\""
            )));
        };
        if steps.contains(&step) {
            return Err(ApplyError::Malformed(format!("duplicate entries for key [{}]", &step[2..])));
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
