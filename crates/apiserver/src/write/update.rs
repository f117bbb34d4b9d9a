//! A changed object: optimistic concurrency, which parts of it may change through which subresource, generation.

use std::sync::Arc;

use serde_json::{Map, Value};
use trainyard_objects::{At as _, FieldError};

use super::{
    NewObject, Options, Part, Written, check_type,
    create::{place_in, wrong_with},
    decode, from_stored, metadata_of, record, to_stored,
};
use crate::error::{ApiError, Result};
use crate::kinds::{Builtin, Kind, Source, Version};
use crate::rules;
use crate::state::State;
use crate::store::{Object, key};

/// Metadata that only the server changes.
const OURS: [&str; 6] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

impl State {
    pub(crate) fn find(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>> {
        self.store
            .get(&kind.resource, &key(namespace, name))
            .cloned()
            .ok_or_else(|| ApiError::not_found(&kind.group, &kind.plural, name))
    }

    /// Replaces an object, or one part of it, by a request's body.
    pub(crate) fn update(
        &mut self,
        kind: &Kind,
        version: &Version,
        place: (&str, &str),
        part: Part,
        mut body: Value,
        options: &Options,
    ) -> Result<Written> {
        let (namespace, name) = place;
        check_type(kind, version, &body)?;
        let warnings = decode(kind, version, &mut body, options).map_err(|wrong| wrong.of(kind, version))?;
        let given = body.text_at("/metadata/name");
        if given.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        if given != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        place_in(kind, namespace, &mut body)?;
        let live = match self.find(kind, namespace, name) {
            Ok(live) => live,
            // Some kinds may be put into being.
            Err(_) if part == Part::Main && rules::creates_on_update(kind) => {
                let body = NewObject::read(kind, version, namespace, body, options)?;
                return self.create(kind, version, body, options);
            }
            Err(missing) => return Err(missing),
        };
        if body.text_at("/metadata/resourceVersion").is_empty() && !rules::updates_unconditionally(kind) {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            return Err(ApiError::invalid(&kind.group, &kind.plural, name, &[error]));
        }
        let written = self.replace(kind, version, &live, part, body, options, None)?;
        Ok(Written { warnings, ..written })
    }

    /// Puts `new` in the place of `live`, as far as `part` allows. `managed` are field owners that are recorded already.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own, and there are three callers")]
    pub(super) fn replace(
        &mut self,
        kind: &Kind,
        version: &Version,
        live: &Arc<Object>,
        part: Part,
        new: Value,
        options: &Options,
        managed: Option<Value>,
    ) -> Result<Written> {
        let mut old = live.value();
        from_stored(kind, version, &mut old);
        self.replace_known(kind, version, (live, old), part, new, options, managed)
    }

    /// The same, for those who have read `live` already.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own, and there are two callers")]
    pub(super) fn replace_known(
        &mut self,
        kind: &Kind,
        version: &Version,
        (live, old): (&Arc<Object>, Value),
        part: Part,
        mut new: Value,
        options: &Options,
        managed: Option<Value>,
    ) -> Result<Written> {
        check_preconditions(kind, live, &new)?;
        keep_ours(&mut new, &old);
        let asked_managed = metadata_of(&mut new).remove("managedFields");
        let mut new = parts(kind, version, part, new, &old);
        if let Some(schema) = version.checks.schema()
            && kind.source == Source::Custom
        {
            schema.default(&mut new);
        }
        rules::prepare_update(self, kind, part, &mut new, &old);
        if part != Part::Status && rules::is_new_generation(kind, version, &new, &old) {
            let generation = old.at("/metadata/generation").and_then(Value::as_i64).unwrap_or(0) + 1;
            metadata_of(&mut new).insert("generation".to_owned(), generation.into());
        }
        let name = &*live.facts.name;
        let wrong = match part {
            Part::Status => wrong_with_status(kind, version, &new, &old),
            Part::Main | Part::Finalize | Part::Scale => {
                let in_state = rules::validate_in(self, kind, &new, Some(&old));
                wrong_with(kind, version, &new, Some(&old), in_state)
            }
        };
        if !wrong.is_empty() {
            return Err(ApiError::invalid(&kind.group, &kind.kind, name, &wrong));
        }
        if part == Part::Main {
            self.admit_quota(kind, &new, Some(&old))?;
        }
        match managed {
            Some(managed) => {
                metadata_of(&mut new).insert("managedFields".to_owned(), managed);
            }
            None => self.own_fields(version, &old, &mut new, asked_managed, options, part),
        }
        let unchanged = |object| Ok(Written { object, created: false, warnings: Vec::new() });
        if same(&new, &old) {
            return unchanged(live.clone());
        }
        to_stored(kind, &mut new);
        if options.dry_run {
            return unchanged(self.pretended(new, Some(live)));
        }
        let object = if is_released(kind, &new) { self.erase(kind, new)? } else { self.put(kind, new)? };
        self.settle();
        unchanged(object)
    }

    /// Field owners after an update: recorded, or thrown away when the request says so.
    fn own_fields(
        &self,
        version: &Version,
        old: &Value,
        new: &mut Value,
        asked: Option<Value>,
        options: &Options,
        part: Part,
    ) {
        let reset = match &asked {
            Some(Value::Array(items)) => {
                items.is_empty() || items.iter().all(|item| item.as_object().is_none_or(Map::is_empty))
            }
            _ => false,
        };
        // Of an object that nobody manages, nothing is recorded before somebody applies it.
        let Some(before) = old.at("/metadata/managedFields").filter(|_| !reset) else { return };
        metadata_of(new).insert("managedFields".to_owned(), before.clone());
        if !same(new, old) {
            record(self.now(), version, Some(old), new, options, part);
        }
    }
}

/// What a write demands of the object that it changes: its version and its uid.
fn check_preconditions(kind: &Kind, live: &Object, new: &Value) -> Result<()> {
    let name = &*live.facts.name;
    let (wanted, uid) = (new.text_at("/metadata/resourceVersion"), new.text_at("/metadata/uid"));
    if !uid.is_empty() && uid != &*live.facts.uid {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            live.facts.uid
        );
        return Err(ApiError::conflict(&kind.group, &kind.plural, name, &why));
    }
    if wanted.is_empty() || wanted == "0" {
        return Ok(());
    }
    match wanted.parse::<u64>() {
        Ok(wanted) if wanted == live.revision => Ok(()),
        Ok(_) => Err(ApiError::modified(&kind.group, &kind.plural, name)),
        Err(_) => {
            let error =
                FieldError::invalid("metadata.resourceVersion", wanted, "must be an unsigned integer");
            Err(ApiError::invalid(&kind.group, &kind.kind, name, &[error]))
        }
    }
}

fn wrong_with_status(kind: &Kind, version: &Version, new: &Value, old: &Value) -> Vec<FieldError> {
    match (kind.source, version.checks.schema()) {
        (Source::Custom, Some(schema)) => schema.validate(new, Some(old)),
        (Source::Builtin(builtin), _) => rules::validate_status(builtin, new, old),
        (Source::Custom, None) => Vec::new(),
    }
}

fn keep_ours(new: &mut Value, old: &Value) {
    let before = old.get("metadata").cloned().unwrap_or_default();
    let metadata = metadata_of(new);
    for key in OURS {
        match before.get(key) {
            Some(value) => metadata.insert(key.to_owned(), value.clone()),
            None => metadata.remove(key),
        };
    }
    for key in ["name", "namespace", "resourceVersion", "generateName"] {
        match before.get(key) {
            Some(value) => metadata.insert(key.to_owned(), value.clone()),
            None => metadata.remove(key),
        };
    }
}

/// The old object with the part of the new one that the request may change.
fn parts(kind: &Kind, version: &Version, part: Part, mut new: Value, old: &Value) -> Value {
    match part {
        Part::Main | Part::Scale => {
            if version.has_status
                && let Some(fields) = new.as_object_mut()
            {
                match old.get("status") {
                    Some(status) => fields.insert("status".to_owned(), status.clone()),
                    None => fields.remove("status"),
                };
            }
            if kind.is(Builtin::Namespace) {
                copy(&mut new, old, "spec");
            }
            new
        }
        Part::Status => {
            let mut result = old.clone();
            let status = new.get("status").cloned();
            if let Some(fields) = result.as_object_mut() {
                match status {
                    Some(status) => fields.insert("status".to_owned(), status),
                    None => fields.remove("status"),
                };
            }
            // The status of built-in kinds comes with labels and annotations, that of custom ones alone.
            if kind.source != Source::Custom {
                let given = metadata_of(&mut new);
                let metadata = metadata_of(&mut result);
                for key in ["labels", "annotations", "finalizers"] {
                    match given.remove(key) {
                        Some(value) => metadata.insert(key.to_owned(), value),
                        None => metadata.remove(key),
                    };
                }
            }
            result
        }
        Part::Finalize => {
            let mut result = old.clone();
            copy(&mut result, &new, "spec");
            result
        }
    }
}

fn copy(to: &mut Value, from: &Value, key: &str) {
    if let Some(fields) = to.as_object_mut() {
        match from.get(key) {
            Some(value) => fields.insert(key.to_owned(), value.clone()),
            None => fields.remove(key),
        };
    }
}

/// Whether two forms of an object are the same, but for when its fields were last written.
fn same(one: &Value, other: &Value) -> bool {
    if one == other {
        return true;
    }
    let managed = |value: &Value| {
        let mut entries = value.at("/metadata/managedFields").cloned().unwrap_or_default();
        for entry in entries.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        entries
    };
    let differs = |left: &Map<String, Value>, right: &Map<String, Value>| {
        left.iter().any(|(key, value)| key != "metadata" && right.get(key) != Some(value))
            || left.len() != right.len()
    };
    let (Some(left), Some(right)) = (one.as_object(), other.as_object()) else { return false };
    if differs(left, right) {
        return false;
    }
    let rest = |value: &Value| {
        let mut metadata = value.get("metadata").cloned().unwrap_or_default();
        if let Some(fields) = metadata.as_object_mut() {
            fields.remove("managedFields");
        }
        metadata
    };
    rest(one) == rest(other) && managed(one) == managed(other)
}

/// Whether an object that is being deleted has nothing left to wait for.
pub(super) fn is_released(kind: &Kind, value: &Value) -> bool {
    let metadata = &value["metadata"];
    if metadata.get("deletionTimestamp").is_none() {
        return false;
    }
    let finalizers = metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    let spec_finalizers = kind.is(Builtin::Namespace)
        && value.at("/spec/finalizers").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    // A pod with grace left goes when its node says so.
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
    !finalizers && !spec_finalizers && !grace
}
