//! Events have two groups and one store: `v1` is what is stored, `events.k8s.io/v1` is a view of it.

use serde_json::{Map, Value};

/// Fields that only have other names: stored, in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// A stored event as `events.k8s.io/v1` shows it.
pub(crate) fn to_new(event: &mut Value) {
    rename(event, NAMES.iter().copied(), "events.k8s.io/v1");
}

/// An event of `events.k8s.io/v1` as it is stored.
pub(crate) fn to_stored(event: &mut Value) {
    rename(event, NAMES.iter().map(|(stored, new)| (*new, *stored)), "v1");
}

fn rename(event: &mut Value, names: impl Iterator<Item = (&'static str, &'static str)>, api_version: &str) {
    let Some(fields) = event.as_object_mut() else { return };
    let mut renamed = Map::new();
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            renamed.insert(to.to_owned(), value);
        }
    }
    fields.extend(renamed);
    fields.insert("apiVersion".to_owned(), api_version.into());
}

/// The name of a field in the store, for a selector that names it as `events.k8s.io` does.
pub(crate) fn stored_path(path: &str) -> String {
    for (stored, new) in NAMES {
        if let Some(rest) = path.strip_prefix(new)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            return format!("{stored}{rest}");
        }
    }
    path.to_owned()
}
