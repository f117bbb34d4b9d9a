//! What differs between two objects, and what an object says, as sets of fields.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::fields::{Fields, place};
use crate::shape::{At, ListKey, ListType, Shape};

/// Fields that the server itself keeps; nobody owns them.
const SERVERS: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// The difference between an old and a new object.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// What is no longer there.
    pub(super) gone: Fields,
    /// What is new or different.
    pub(super) changed: Fields,
}

/// Compares two objects, leaving out what nobody owns.
pub(super) fn compare(old: Option<&Value>, new: &Value, shape: &Shape) -> Difference {
    let at = shape.root();
    let mut difference = Difference::default();
    for (name, old, new) in zipped(old.and_then(Value::as_object), new.as_object()) {
        match name {
            "apiVersion" | "kind" => {}
            "metadata" => {
                let at = at.field(name);
                let mut below = Difference::default();
                for (name, old, new) in zipped(old.and_then(Value::as_object), new.and_then(Value::as_object))
                {
                    if !SERVERS.contains(&name) {
                        below.put(field_step(name), between(old, new, at.field(name)));
                    }
                }
                difference.put(
                    field_step(name),
                    Places { gone: place(false, below.gone), changed: place(false, below.changed) },
                );
            }
            _ => {
                let old = old.or_else(|| absent(at, name, new));
                difference.put(field_step(name), between(old, new, at.field(name)));
            }
        }
    }
    difference
}

/// All fields that an object sets, leaving out what nobody owns.
pub(super) fn fields_of(object: &Value, shape: &Shape) -> Fields {
    let mut set = Map::new();
    let at = shape.root();
    for (name, value) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                let at = at.field(name);
                let mut below = Map::new();
                for (name, value) in value.as_object().into_iter().flatten() {
                    if !SERVERS.contains(&name.as_str()) {
                        put_said(&mut below, at, name, value);
                    }
                }
                if let Some(place) = place(false, below) {
                    set.insert(field_step(name), place);
                }
            }
            _ => put_said(&mut set, at, name, value),
        }
    }
    set
}

pub(super) fn field_step(name: &str) -> String {
    let mut step = String::with_capacity(name.len() + 2);
    step.push_str("f:");
    step.push_str(name);
    step
}

/// The step to an item of a list that is merged; `None` if the item lacks its keys.
pub(super) fn item_step(list: &ListType, item: &Value) -> Option<String> {
    match list {
        ListType::Atomic => None,
        ListType::Set => Some(format!("v:{item}")),
        ListType::Map(keys) => {
            let fields = item.as_object()?;
            let mut step = String::from("k:{");
            let mut sorted: Vec<&ListKey> = keys.iter().collect();
            sorted.sort_by(|left, right| left.name.cmp(&right.name));
            let mut found = false;
            for key in sorted {
                let Some(value) = fields.get(&key.name).or(key.default.as_ref()) else { continue };
                if found {
                    step.push(',');
                }
                found = true;
                step.push('"');
                step.push_str(&key.name);
                step.push_str("\":");
                step.push_str(&value.to_string());
            }
            step.push('}');
            found.then_some(step)
        }
    }
}

/// The two differences of one place.
#[derive(Debug, Default)]
struct Places {
    gone: Option<Value>,
    changed: Option<Value>,
}

impl Difference {
    fn put(&mut self, step: String, Places { gone, changed }: Places) {
        match (gone, changed) {
            (None, None) => {}
            (Some(gone), None) => {
                self.gone.insert(step, gone);
            }
            (None, Some(changed)) => {
                self.changed.insert(step, changed);
            }
            (Some(gone), Some(changed)) => {
                self.gone.insert(step.clone(), gone);
                self.changed.insert(step, changed);
            }
        }
    }

    fn into_places(self, old: Option<&Value>, new: Option<&Value>, modified: bool) -> Places {
        Places {
            gone: place(new.is_none(), self.gone),
            changed: place(old.is_none() || modified, self.changed),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Nothing,
    Leaf,
    Map,
    List,
}

fn form(value: Option<&Value>) -> Form {
    match value {
        None | Some(Value::Null) => Form::Nothing,
        Some(Value::Object(_)) => Form::Map,
        Some(Value::Array(_)) => Form::List,
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Form::Leaf,
    }
}

fn between(old: Option<&Value>, new: Option<&Value>, at: At<'_>) -> Places {
    let (old_form, new_form) = (form(old), form(new));
    let is = |wanted: Form| {
        (old_form == wanted || new_form == wanted)
            && [old_form, new_form].into_iter().all(|found| found == wanted || found == Form::Nothing)
    };
    let size = |value: Option<&Value>| match value {
        Some(Value::Object(fields)) => fields.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    };
    let filled = size(old) + size(new) > 0;
    if is(Form::Map) && !at.is_atomic_map() && filled {
        return between_maps(old, new, at, false);
    }
    if is(Form::List) && *at.list() != ListType::Atomic && filled {
        if let Some(places) = between_lists(old, new, at) {
            return places;
        }
    } else if old_form != new_form && old_form != Form::Nothing && new_form != Form::Nothing {
        // Another form altogether: what was below is gone, what is below is new.
        return between_maps(old, new, at, true);
    }
    if old == new {
        return Places::default();
    }
    let member = || Some(Value::Object(Map::new()));
    match new {
        None => Places { gone: member(), changed: None },
        Some(_) => Places { gone: None, changed: member() },
    }
}

fn between_maps(old: Option<&Value>, new: Option<&Value>, at: At<'_>, modified: bool) -> Places {
    let mut difference = Difference::default();
    for (name, old_field, new) in zipped(old.and_then(Value::as_object), new.and_then(Value::as_object)) {
        let old_field = old_field.or_else(|| old.and_then(|_| absent(at, name, new)));
        difference.put(field_step(name), between(old_field, new, at.field(name)));
    }
    difference.into_places(old, new, modified)
}

/// What stands for a field that is not written but counts as there.
fn absent(at: At<'_>, name: &str, new: Option<&Value>) -> Option<&'static Value> {
    static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    let stand_in = match new? {
        Value::Object(_) => &*EMPTY,
        Value::Array(_) => &Value::Null,
        _ => return None,
    };
    at.is_always_there(name).then_some(stand_in)
}

/// `None` if some item cannot be told apart: then the list is one piece.
fn between_lists(old: Option<&Value>, new: Option<&Value>, at: At<'_>) -> Option<Places> {
    if old == new {
        return Some(Places::default());
    }
    let list = at.list();
    let steps = |value: Option<&Value>| -> Option<Vec<String>> {
        value.and_then(Value::as_array).into_iter().flatten().map(|item| item_step(list, item)).collect()
    };
    let (old_steps, new_steps) = (steps(old)?, steps(new)?);
    let old_items = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let new_items = new.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut difference = Difference::default();
    for (step, item) in new_steps.iter().zip(new_items) {
        let before = old_steps.iter().position(|other| other == step).map(|index| &old_items[index]);
        difference.put(step.clone(), between(before, Some(item), at.item()));
    }
    for (step, item) in old_steps.iter().zip(old_items) {
        if !new_steps.contains(step) {
            difference.put(step.clone(), between(Some(item), None, at.item()));
        }
    }
    Some(difference.into_places(old, new, false))
}

/// Both objects' fields by name.
fn zipped<'a>(
    old: Option<&'a Map<String, Value>>,
    new: Option<&'a Map<String, Value>>,
) -> impl Iterator<Item = (&'a str, Option<&'a Value>, Option<&'a Value>)> {
    let in_new = new.into_iter().flatten();
    let in_new =
        in_new.map(move |(name, value)| (name.as_str(), old.and_then(|old| old.get(name)), Some(value)));
    let only_old = old.into_iter().flatten();
    let only_old = only_old
        .filter(move |(name, _)| !new.is_some_and(|new| new.contains_key(*name)))
        .map(|(name, value)| (name.as_str(), Some(value), None));
    in_new.chain(only_old)
}

fn put_said(set: &mut Fields, at: At<'_>, name: &str, value: &Value) {
    // A named field is more than a place for what is below it only if nothing is.
    let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
    let own = empty || !at.is_named(name);
    if let Some(place) = said(value, at.field(name), own) {
        set.insert(field_step(name), place);
    }
}

/// The places that a value sets; `own` if its own place is among them in any case.
fn said(value: &Value, at: At<'_>, own: bool) -> Option<Value> {
    match value {
        Value::Object(fields) if !at.is_atomic_map() => {
            let mut below = Map::new();
            for (name, value) in fields {
                put_said(&mut below, at, name, value);
            }
            place(own, below)
        }
        Value::Array(items) if *at.list() != ListType::Atomic => {
            let steps: Option<Vec<String>> = items.iter().map(|item| item_step(at.list(), item)).collect();
            let Some(steps) = steps else { return place(true, Map::new()) };
            let mut below = Map::new();
            for (step, item) in steps.into_iter().zip(items) {
                if let Some(place) = said(item, at.item(), true) {
                    below.insert(step, place);
                }
            }
            place(own, below)
        }
        _ => place(true, Map::new()),
    }
}
