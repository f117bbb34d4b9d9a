//! The entries of `metadata.managedFields`: who owns what.

use serde_json::{Map, Value, json};

use super::Manager;
use super::fields::{self, Fields};

/// Beyond so many, the oldest updaters become one.
const MOST_UPDATERS: usize = 10;
const ANCIENT: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: Option<String>,
    pub(super) fields: Fields,
}

impl Entry {
    pub(super) fn new(manager: &Manager<'_>, operation: Operation, fields: Fields) -> Self {
        Self {
            manager: manager.name.to_owned(),
            operation,
            api_version: manager.api_version.to_owned(),
            subresource: manager.subresource.to_owned(),
            time: Some(manager.time.to_owned()),
            fields,
        }
    }

    /// Whether it is the entry of this manager: appliers keep theirs across versions.
    pub(super) fn is_of(&self, manager: &Manager<'_>, operation: Operation) -> bool {
        self.operation == operation
            && self.manager == manager.name
            && self.subresource == manager.subresource
            && (operation == Operation::Apply || self.api_version == manager.api_version)
    }

    /// The manager as conflicts show it.
    pub(super) fn shown(&self) -> String {
        let mut text = crate::error::quoted(&self.manager);
        if !self.subresource.is_empty() {
            text.push_str(" with subresource ");
            text.push_str(&crate::error::quoted(&self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(" using ");
            text.push_str(&self.api_version);
        }
        text
    }

    fn read(entry: &Value) -> Option<Self> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
        let operation = match entry.get("operation").and_then(Value::as_str) {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return None,
        };
        if entry.get("fieldsType").and_then(Value::as_str) != Some("FieldsV1") {
            return None;
        }
        Some(Self {
            manager: text("manager").unwrap_or_default(),
            operation,
            api_version: text("apiVersion").filter(|version| !version.is_empty())?,
            subresource: text("subresource").unwrap_or_default(),
            time: text("time"),
            fields: entry.get("fieldsV1").and_then(Value::as_object).cloned().unwrap_or_default(),
        })
    }

    fn into_json(self) -> Value {
        let mut entry = Map::new();
        entry.insert("apiVersion".to_owned(), self.api_version.into());
        entry.insert("fieldsType".to_owned(), "FieldsV1".into());
        entry.insert("fieldsV1".to_owned(), Value::Object(self.fields));
        entry.insert("manager".to_owned(), self.manager.into());
        entry.insert("operation".to_owned(), self.operation.name().into());
        if !self.subresource.is_empty() {
            entry.insert("subresource".to_owned(), self.subresource.into());
        }
        if let Some(time) = self.time {
            entry.insert("time".to_owned(), time.into());
        }
        Value::Object(entry)
    }
}

/// The entries of an object; `None` if there are none that can be read.
pub(super) fn read(object: &Value) -> Option<Vec<Entry>> {
    let entries = object.get("metadata")?.get("managedFields")?.as_array()?;
    let entries: Option<Vec<Entry>> = entries.iter().map(Entry::read).collect();
    entries.filter(|entries| !entries.is_empty())
}

/// Whether the object asks for its ownership to be forgotten: by one empty entry or, in built-in kinds, by none. (In a
/// custom resource, the server cannot tell an empty list from an absent one.)
pub(super) fn is_reset(object: &Value, builtin: bool) -> bool {
    match object.get("metadata").and_then(|metadata| metadata.get("managedFields")) {
        Some(Value::Array(entries)) => match entries.as_slice() {
            [] => builtin,
            [Value::Object(entry)] => entry.is_empty(),
            _ => false,
        },
        _ => false,
    }
}

/// Writes the entries into an object, in the server's order.
pub(super) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    sort(&mut entries);
    let Some(object) = object.as_object_mut() else { return };
    if entries.is_empty() {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        return;
    }
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        let entries = entries.into_iter().map(Entry::into_json).collect();
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

fn sort(entries: &mut [Entry]) {
    entries.sort_by(|left, right| {
        let key = |entry: &'_ Entry| (entry.operation, entry.time.clone());
        key(left)
            .cmp(&key(right))
            .then_with(|| left.manager.cmp(&right.manager))
            .then_with(|| left.api_version.cmp(&right.api_version))
            .then_with(|| left.subresource.cmp(&right.subresource))
    });
}

/// Keeps the number of updaters bounded.
pub(super) fn cap(entries: &mut Vec<Entry>) {
    let updaters =
        |entries: &[Entry]| entries.iter().filter(|entry| entry.operation == Operation::Update).count();
    if updaters(entries) <= MOST_UPDATERS {
        return;
    }
    sort(entries);
    while updaters(entries) > MOST_UPDATERS {
        let Some(oldest) =
            entries.iter().position(|entry| entry.operation == Operation::Update && entry.manager != ANCIENT)
        else {
            return;
        };
        let mut oldest = entries.remove(oldest);
        let ancient = entries.iter_mut().find(|entry| {
            entry.manager == ANCIENT
                && entry.operation == Operation::Update
                && entry.api_version == oldest.api_version
                && entry.subresource == oldest.subresource
        });
        if let Some(ancient) = ancient {
            fields::add(&mut ancient.fields, &oldest.fields);
            ancient.time = ancient.time.take().max(oldest.time);
        } else {
            // Renaming does not make them fewer, but gives the next one somewhere to go.
            ANCIENT.clone_into(&mut oldest.manager);
            entries.push(oldest);
        }
    }
}
