//! A new object.

use jiff::Timestamp;
use serde_json::{Map, Value};
use trainyard_objects::{At as _, FieldError, FieldReason, names};

use super::{Options, Part, Written, check_type, decode, metadata, metadata_of, record, to_stored};
use crate::clock::seconds;
use crate::error::{ApiError, Result};
use crate::kinds::{Builtin, Kind, Source, Version};
use crate::rules;
use crate::state::State;
use crate::store::key;

/// Generated names are tried again this often when they are taken.
const TRIES: usize = 8;
/// A generated name is its given beginning, cut to this length, and a suffix.
const LONGEST_STEM: usize = 58;

/// A body that was found to be an object of its kind, with what is to be said about it.
pub(crate) struct NewObject {
    value: Value,
    warnings: Vec<String>,
}

impl NewObject {
    /// Reads a body. Needs nothing of the state, so that others can use it meanwhile.
    pub(crate) fn read(
        kind: &Kind,
        version: &Version,
        namespace: &str,
        mut body: Value,
        options: &Options,
    ) -> Result<Self> {
        check_type(kind, version, &body)?;
        let warnings = decode(kind, version, &mut body, options).map_err(|wrong| wrong.of(kind, version))?;
        metadata_of(&mut body).remove("managedFields");
        place_in(kind, namespace, &mut body)?;
        Ok(Self { value: body, warnings })
    }
}

/// A new object that has its name and all that the server decides, and is not stored yet.
pub(crate) struct Draft {
    value: Value,
    name: String,
    warnings: Vec<String>,
    /// What is wrong with it by rules that need the state.
    wrong: Vec<FieldError>,
}

impl Draft {
    /// Checks the object and records its owner. This is most of the work, and needs nothing of the state.
    pub(crate) fn check(
        mut self,
        kind: &Kind,
        version: &Version,
        options: &Options,
        managed: Option<Value>,
        now: Timestamp,
    ) -> Result<Self> {
        let wrong = wrong_with(kind, version, &self.value, None, std::mem::take(&mut self.wrong));
        if !wrong.is_empty() {
            // Events of the new group are events of the old one to those who judge them.
            let group = if kind.is(Builtin::NewEvent) { "" } else { &kind.group };
            return Err(ApiError::invalid(group, &kind.kind, &self.name, &wrong));
        }
        match managed {
            Some(managed) => {
                metadata_of(&mut self.value).insert("managedFields".to_owned(), managed);
            }
            None => record(now, version, None, &mut self.value, options, Part::Main),
        }
        to_stored(kind, &mut self.value);
        Ok(self)
    }
}

impl State {
    /// Creates an object from a body that was read.
    pub(crate) fn create(
        &mut self,
        kind: &Kind,
        version: &Version,
        body: NewObject,
        options: &Options,
    ) -> Result<Written> {
        let draft = self.draft(kind, version, body)?.check(kind, version, options, None, self.now())?;
        self.store_new(kind, draft, options)
    }

    /// Gives a new object what only the server knows.
    pub(crate) fn draft(&mut self, kind: &Kind, version: &Version, body: NewObject) -> Result<Draft> {
        self.admit_namespace(kind, &body.value)?;
        let draft = self.draft_decoded(kind, version, body.value)?;
        Ok(Draft { warnings: body.warnings, ..draft })
    }

    /// The rest of creating for server-side apply, which has recorded its own field owners.
    pub(super) fn create_applied(
        &mut self,
        kind: &Kind,
        version: &Version,
        value: Value,
        options: &Options,
        managed: Value,
    ) -> Result<Written> {
        let draft = self.draft_decoded(kind, version, value)?;
        let draft = draft.check(kind, version, options, Some(managed), self.now())?;
        self.store_new(kind, draft, options)
    }

    fn draft_decoded(&mut self, kind: &Kind, version: &Version, mut value: Value) -> Result<Draft> {
        let resource_version = value.text_at("/metadata/resourceVersion");
        if !resource_version.is_empty() && resource_version != "0" {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        self.own_metadata(kind, version, &mut value);
        if let Some(schema) = version.checks.schema()
            && kind.source == Source::Custom
        {
            schema.default(&mut value);
        }
        rules::prepare_create(self, kind, &mut value)?;
        let name = self.name_it(kind, &mut value)?;
        let wrong = rules::validate_in(self, kind, &value, None);
        Ok(Draft { value, name, warnings: Vec::new(), wrong })
    }

    /// Stores a new object that was checked.
    pub(crate) fn store_new(&mut self, kind: &Kind, draft: Draft, options: &Options) -> Result<Written> {
        let Draft { value, name, warnings, .. } = draft;
        let namespace = value.text_at("/metadata/namespace");
        if let Some(found) = self.store.get(&kind.resource, &key(namespace, &name)) {
            return Err(ApiError::already_exists(&kind.group, &kind.plural, &name, found.facts.deleting));
        }
        self.admit_quota(kind, &value, None)?;
        let object = if options.dry_run {
            self.pretended(value, None)
        } else {
            let object = self.put(kind, value)?;
            if matches!(kind.builtin(), Some(Builtin::Event | Builtin::NewEvent)) {
                self.expire_events(kind);
            }
            self.settle();
            object
        };
        Ok(Written { object, created: true, warnings })
    }

    /// Gives a new object what only the server decides.
    fn own_metadata(&self, kind: &Kind, version: &Version, value: &mut Value) {
        let (uid, now) = (self.uids.uid(), seconds(self.now()));
        let generation = match kind.source {
            Source::Custom => true,
            Source::Builtin(builtin) => rules::has_generation(builtin),
        };
        let metadata = metadata_of(value);
        for key in
            ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"]
        {
            metadata.remove(key);
        }
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), now.into());
        if generation {
            metadata.insert("generation".to_owned(), 1.into());
        }
        if version.has_status
            && kind.source == Source::Custom
            && let Some(fields) = value.as_object_mut()
        {
            fields.remove("status");
        }
    }

    /// The object's name, generated if only its beginning is given.
    fn name_it(&self, kind: &Kind, value: &mut Value) -> Result<String> {
        let given = value.text_at("/metadata/name").to_owned();
        if !given.is_empty() {
            return Ok(given);
        }
        let stem: String = value.text_at("/metadata/generateName").chars().take(LONGEST_STEM).collect();
        if stem.is_empty() {
            let error = FieldError::required("metadata.name", "name or generateName is required");
            return Err(ApiError::invalid(&kind.group, &kind.kind, "", &[error]));
        }
        let namespace = value.text_at("/metadata/namespace").to_owned();
        let free = (0..TRIES)
            .map(|_| format!("{stem}{}", self.uids.suffix()))
            .find(|name| self.store.get(&kind.resource, &key(&namespace, name)).is_none());
        let name = free.ok_or_else(|| ApiError::already_exists(&kind.group, &kind.plural, &stem, false))?;
        metadata_of(value).insert("name".to_owned(), name.as_str().into());
        Ok(name)
    }
}

/// Everything that is wrong with an object, by its metadata, its schema and the rules of its kind; `in_state` is what
/// rules that need the state found.
pub(super) fn wrong_with(
    kind: &Kind,
    version: &Version,
    value: &Value,
    old: Option<&Value>,
    in_state: Vec<FieldError>,
) -> Vec<FieldError> {
    let nothing = Value::Object(Map::new());
    let metadata = value.get("metadata").unwrap_or(&nothing);
    let mut wrong = Vec::new();
    if old.is_none() {
        let name = value.text_at("/metadata/name");
        let rule = match kind.builtin() {
            Some(Builtin::Namespace | Builtin::Service) => names::dns_label,
            _ => names::dns_subdomain,
        };
        let stem = value.text_at("/metadata/generateName");
        if !stem.is_empty() {
            // Something will follow it.
            let masked = stem.strip_suffix('-').map_or_else(|| stem.to_owned(), |start| format!("{start}a"));
            let path = "metadata.generateName";
            wrong.extend(rule(&masked).into_iter().map(|why| FieldError::invalid(path, stem, why)));
        }
        wrong.extend(rule(name).into_iter().map(|why| FieldError::invalid("metadata.name", name, why)));
    }
    wrong.extend(metadata::validate(metadata, old.and_then(|old| old.get("metadata"))));
    if !matches!(kind.builtin(), None | Some(Builtin::Definition)) {
        wrong.extend(metadata::unqualified_finalizers(metadata));
    }
    match kind.source {
        Source::Custom => {
            if let Some(schema) = version.checks.schema() {
                let errors = schema.validate(value, old);
                // Rules come last.
                let rules = errors.iter().position(|error| {
                    error.reason == FieldReason::Invalid && !error.detail.contains(" in body ")
                });
                let at = wrong.len() + rules.unwrap_or(errors.len());
                wrong.extend(errors);
                if let Some(error) = super::scale::negative(version, value) {
                    wrong.insert(at, error);
                }
            }
        }
        Source::Builtin(builtin) => wrong.extend(rules::validate(builtin, value, old)),
    }
    wrong.extend(in_state);
    wrong
}

/// Puts the object into the namespace of the path.
pub(super) fn place_in(kind: &Kind, namespace: &str, body: &mut Value) -> Result<()> {
    let metadata = metadata_of(body);
    if kind.namespaced {
        match metadata.get("namespace").and_then(Value::as_str) {
            Some(given) if !given.is_empty() && given != namespace => Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            )),
            _ => {
                metadata.insert("namespace".to_owned(), namespace.into());
                Ok(())
            }
        }
    } else {
        match metadata.remove("namespace") {
            Some(Value::String(given)) if !given.is_empty() => Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            )),
            _ => Ok(()),
        }
    }
}
