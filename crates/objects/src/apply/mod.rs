//! Server-side apply and the ownership of fields.
//!
//! Who applies says all that he wants; what he said before and does not say now goes, unless somebody else wants it. Who
//! updates owns what he changed. Ownership is in `metadata.managedFields`, one entry for each manager, operation,
//! version and subresource.

mod compare;
mod entries;
mod fields;
mod merge;

use std::fmt;

use serde_json::{Map, Value, json};

use self::entries::{Entry, Operation};
use self::fields::Fields;
use self::merge::Unmergeable;
use crate::Shape;
use crate::path::Path;

/// The annotation in which client-side apply keeps what was applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// The name of the field manager.
    pub name: &'a str,
    /// The version in which the request was made: `v1`, `ml.example.com/v1`.
    pub api_version: &'a str,
    /// `status`, `scale` …, or empty.
    pub subresource: &'a str,
    /// The time of the request, RFC 3339 in whole seconds.
    pub time: &'a str,
}

/// A field that somebody else owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as it is shown: `"kubectl" using v1`.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub path: String,
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// Others own some of the fields with other values: 409 Conflict, unless forced. Each is a cause
    /// `FieldManagerConflict` with the message `conflict with {manager}` and the path as its field.
    Conflicts(Vec<Conflict>),
    /// The intent cannot be merged, because a list has the same item twice or items without their keys: 500, as the real
    /// server answers.
    Malformed(String),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conflicts = match self {
            Self::Malformed(message) => return formatter.write_str(message),
            Self::Conflicts(conflicts) => conflicts,
        };
        if let [Conflict { manager, path }] = conflicts.as_slice() {
            return write!(formatter, "Apply failed with 1 conflict: conflict with {manager}: {path}");
        }
        write!(formatter, "Apply failed with {} conflicts: ", conflicts.len())?;
        let mut previous = None;
        for Conflict { manager, path } in conflicts {
            if previous != Some(manager) {
                let line = if previous.is_some() { "\n" } else { "" };
                write!(formatter, "{line}conflicts with {manager}:")?;
                previous = Some(manager);
            }
            write!(formatter, "\n- {path}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ApplyError {}

/// Applies what `manager` wants to the live object; the result has its `metadata.managedFields`.
///
/// If nothing changes, the result equals the live object. Defaults, `resourceVersion` and the like are the caller's, as
/// is that `intent` has no `managedFields` (400: `metadata.managedFields must be nil`).
pub fn apply(
    live: Option<&Value>,
    intent: &Value,
    manager: &Manager<'_>,
    force: bool,
    shape: &Shape,
) -> Result<Value, ApplyError> {
    match try_apply(live, intent, manager, force, shape) {
        Err(ApplyError::Conflicts(conflicts)) if manager.name == "kubectl" => {
            // Who applied on the client's side before may go on without forcing.
            let allowed = live.map(|live| applied_by_client(live, shape)).unwrap_or_default();
            let remaining: Vec<Conflict> =
                conflicts.into_iter().filter(|conflict| !allowed.contains(&conflict.path)).collect();
            if remaining.is_empty() {
                try_apply(live, intent, manager, true, shape)
            } else {
                Err(ApplyError::Conflicts(remaining))
            }
        }
        result => result,
    }
}

fn try_apply(
    live: Option<&Value>,
    intent: &Value,
    manager: &Manager<'_>,
    force: bool,
    shape: &Shape,
) -> Result<Value, ApplyError> {
    let before = live.map_or_else(|| json!({}), merge::without_managed_fields);
    let intent = merge::without_managed_fields(intent);
    let mut others = live.and_then(entries::read).unwrap_or_default();
    if let Some(live) = live
        && others.is_empty()
    {
        others.extend(first_owner(live, manager, shape));
    }
    let mut result = merge::merged(&before, &intent, shape.root(), &mut Path::default())
        .map_err(|error| ApplyError::Malformed(unmergeable(&intent, error)))?;

    let own = compare::fields_of(&intent, shape);
    let last = others
        .iter()
        .position(|entry| entry.is_of(manager, Operation::Apply))
        .map(|index| others.remove(index));
    if let Some(last) = &last {
        let mut owned = own.clone();
        for entry in &others {
            fields::add(&mut owned, &entry.fields);
        }
        // What makes it this object stays, whoever names it.
        for name in ["apiVersion", "kind", "metadata"] {
            owned.entry(compare::field_step(name)).or_insert_with(|| json!({}));
        }
        merge::prune(&mut result, &last.fields, Some(&owned), shape.root());
    }

    let difference = compare::compare(Some(&before), &result, shape);
    if !force {
        let conflicts = conflicts(&others, &difference.changed);
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    for entry in &mut others {
        fields::subtract(&mut entry.fields, &difference.changed);
        fields::subtract(&mut entry.fields, &difference.gone);
    }
    let mut entry = Entry::new(manager, Operation::Apply, own);
    if result == before {
        // Time is when the object was changed last; who only agrees has none.
        entry.time = last.and_then(|last| last.time);
    }
    others.push(entry);
    entries::write(&mut result, others);
    Ok(result)
}

/// Records in `new` that what changed since `live` now belongs to `manager`.
///
/// `new` is the object as the request made it, with defaults but before the server's own changes to it (admission, status of
/// a new object), which belong to nobody. It comes with the `managedFields` that the request brought: none or unreadable ones
/// mean those of the live object, `[{}]` (for built-in kinds also `[]`) that ownership is forgotten. A write to a subresource cannot change them.
pub fn track(live: Option<&Value>, new: &mut Value, manager: &Manager<'_>, shape: &Shape) {
    let live_entries = || live.and_then(entries::read).unwrap_or_default();
    let mut known = if !manager.subresource.is_empty() {
        live_entries()
    } else if entries::is_reset(new, shape.is_builtin()) {
        Vec::new()
    } else {
        entries::read(new).unwrap_or_else(live_entries)
    };
    let difference = compare::compare(live, new, shape);
    if !(difference.changed.is_empty() && difference.gone.is_empty()) {
        for entry in &mut known {
            fields::subtract(&mut entry.fields, &difference.changed);
            fields::subtract(&mut entry.fields, &difference.gone);
        }
    }
    if !difference.changed.is_empty() {
        match known.iter_mut().find(|entry| entry.is_of(manager, Operation::Update)) {
            Some(own) => {
                fields::add(&mut own.fields, &difference.changed);
                own.time = Some(manager.time.to_owned());
            }
            None => known.push(Entry::new(manager, Operation::Update, difference.changed)),
        }
        entries::cap(&mut known);
    }
    entries::write(new, known);
}

fn unmergeable(intent: &Value, Unmergeable(why): Unmergeable) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = |name: &str| text(intent.get("metadata").and_then(|metadata| metadata.get(name)));
    format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): {why}",
        metadata("namespace"),
        metadata("name"),
        text(intent.get("apiVersion")),
        text(intent.get("kind"))
    )
}

/// An object that nobody owned until now belongs to whoever came before.
fn first_owner(live: &Value, manager: &Manager<'_>, shape: &Shape) -> Option<Entry> {
    let all = compare::compare(None, live, shape).changed;
    let before = Manager { name: "before-first-apply", subresource: "", ..*manager };
    (!all.is_empty()).then(|| Entry::new(&before, Operation::Update, all))
}

fn conflicts(others: &[Entry], changed: &Fields) -> Vec<Conflict> {
    let mut conflicts: Vec<Conflict> = Vec::new();
    let mut sorted: Vec<&Entry> = others.iter().collect();
    sorted.sort_by(|left, right| left.manager.cmp(&right.manager));
    for entry in sorted {
        let manager = entry.shown();
        for path in fields::paths(&fields::common(&entry.fields, changed)) {
            conflicts.push(Conflict { manager: manager.clone(), path });
        }
    }
    conflicts
}

/// The fields that client-side apply set and that still are as it left them.
fn applied_by_client(live: &Value, shape: &Shape) -> Vec<String> {
    let annotation =
        live.get("metadata").and_then(|metadata| metadata.get("annotations")?.get(LAST_APPLIED)?.as_str());
    let Some(Ok(applied)) = annotation.map(serde_json::from_str::<Value>) else { return Vec::new() };
    if applied.get("apiVersion") != live.get("apiVersion") {
        return Vec::new();
    }
    let mut set: Map<String, Value> = compare::fields_of(&applied, shape);
    let difference = compare::compare(Some(&applied), &merge::without_managed_fields(live), shape);
    fields::subtract(&mut set, &difference.changed);
    fields::subtract(&mut set, &difference.gone);
    fields::paths(&set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(name: &str) -> Manager<'_> {
        Manager { name, api_version: "v1", subresource: "", time: "2026-01-01T00:00:00Z" }
    }

    fn map(data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
    }

    #[test]
    fn conflicts_are_told_by_manager() {
        let shape = Shape::builtin("", "ConfigMap");
        let mut live = map(json!({"a": "1", "b": "1"}));
        track(None, &mut live, &manager("one"), &shape);
        let mut changed = live.clone();
        changed["data"]["c"] = "1".into();
        track(Some(&live), &mut changed, &Manager { subresource: "status", ..manager("two") }, &shape);
        let wanted = map(json!({"a": "2", "b": "2", "c": "2"}));
        let error = apply(Some(&changed), &wanted, &manager("three"), false, &shape).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Apply failed with 3 conflicts: conflicts with \"one\" using v1:\n- .data.a\n- .data.b\nconflicts with \"two\" with \
             subresource \"status\" using v1:\n- .data.c"
        );
    }

    #[test]
    fn who_applied_on_the_clients_side_goes_on_without_force() {
        let shape = Shape::builtin("", "ConfigMap");
        let applied = map(json!({"a": "1"}));
        let mut live = map(json!({"a": "1", "b": "1"}));
        live["metadata"]["annotations"] = json!({LAST_APPLIED: applied.to_string()});
        track(None, &mut live, &manager("kubectl-client-side-apply"), &shape);
        let wanted = map(json!({"a": "2"}));
        assert!(apply(Some(&live), &wanted, &manager("kubectl"), false, &shape).is_ok());
        assert!(apply(Some(&live), &wanted, &manager("somebody"), false, &shape).is_err());
        let not_applied = map(json!({"b": "2"}));
        assert!(apply(Some(&live), &not_applied, &manager("kubectl"), false, &shape).is_err());
    }

    #[test]
    fn an_object_without_owners_belonged_to_somebody() {
        let shape = Shape::builtin("", "ConfigMap");
        let error =
            apply(Some(&map(json!({"a": "1"}))), &map(json!({"a": "2"})), &manager("one"), false, &shape);
        assert_eq!(
            error.unwrap_err().to_string(),
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
        );
    }

    #[test]
    fn updaters_do_not_pile_up() {
        let shape = Shape::builtin("", "ConfigMap");
        let mut live = map(json!({}));
        for number in 0..30 {
            let mut new = live.clone();
            new["data"][format!("k{number}")] = "1".into();
            let (name, time) = (format!("m{number:02}"), format!("2026-01-01T00:00:{number:02}Z"));
            track(Some(&live), &mut new, &Manager { name: &name, time: &time, ..manager("") }, &shape);
            live = new;
        }
        let owners = live["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(owners.len(), 10);
        assert_eq!(owners[0]["manager"], "ancient-changes");
        assert_eq!(owners[0]["fieldsV1"]["f:data"].as_object().unwrap().len(), 21);
        assert_eq!(owners[9]["manager"], "m29");
    }
}
