//! Patches of all four kinds: what comes of them is an update, or (of an apply) a create.

use std::sync::Arc;

use serde_json::{Value, json};
use trainyard_objects::{ApplyError, At as _, FieldError, PatchError, apply, patch};

use super::{
    Options, Part, Undecodable, Written, check_type, create::place_in, decode, decode_as_given, from_stored,
    manager, metadata_of,
};
use crate::clock::seconds;
use crate::error::{ApiError, Result};
use crate::kinds::{Kind, Source, Version};
use crate::state::State;
use crate::store::{Object, key};

/// How a change is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patch {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Patch {
    pub(crate) fn from_content_type(content_type: &str) -> Option<Self> {
        match content_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

impl State {
    /// Changes an object as a patch says.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own, and there is one caller")]
    pub(crate) fn patch(
        &mut self,
        kind: &Kind,
        version: &Version,
        (namespace, name): (&str, &str),
        part: Part,
        how: Patch,
        change: &Value,
        options: &Options,
    ) -> Result<Written> {
        if how == Patch::Apply {
            return self.apply(kind, version, (namespace, name), part, change, options);
        }
        let live = self.find(kind, namespace, name)?;
        let mut current = live.value();
        from_stored(kind, version, &mut current);
        let mut new = patched(kind, version, how, &current, change)?;
        if !new.is_object() {
            return Err(ApiError::bad_request("the patch leaves no object"));
        }
        // Patches of a whole object may leave its type and its identity alone, but not change them.
        check_type(kind, version, &new)
            .map_err(|error| Undecodable(error.message().to_owned()).of_patch(&new))?;
        let warnings = decode(kind, version, &mut new, options).map_err(|wrong| {
            // The patch was applied once already; its refusal shows what came of it.
            wrong.of_patch(&patched(kind, version, how, &current, change).unwrap_or_default())
        })?;
        let uid = new.text_at("/metadata/uid");
        if !uid.is_empty() && *uid != *live.facts.uid {
            let error = FieldError::invalid("metadata.uid", uid, "field is immutable");
            return Err(ApiError::invalid(&kind.group, &kind.kind, name, &[error]));
        }
        let given = new.text_at("/metadata/name");
        if given != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        if kind.namespaced && new.text_at("/metadata/namespace") != namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let written = self.replace_known(kind, version, (&live, current), part, new, options, None)?;
        Ok(Written { warnings, ..written })
    }

    /// Server-side apply.
    fn apply(
        &mut self,
        kind: &Kind,
        version: &Version,
        (namespace, name): (&str, &str),
        part: Part,
        intent: &Value,
        options: &Options,
    ) -> Result<Written> {
        let mut intent = intent.clone();
        if intent.text_at("/apiVersion").is_empty() || intent.text_at("/kind").is_empty() {
            return Err(ApiError::bad_request(
                "invalid object type: apiVersion and kind must be set in a server-side apply",
            ));
        }
        if check_type(kind, version, &intent).is_err() {
            let given = intent.text_at("/apiVersion");
            let whole = if given.contains('/') { given.to_owned() } else { format!("/{given}") };
            return Err(ApiError::bad_request(format!(
                "invalid object type: {whole}, Kind={}",
                intent.text_at("/kind")
            )));
        }
        if intent.at("/metadata/managedFields").is_some_and(|managed| !managed.is_null()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let warnings =
            decode_as_given(kind, version, &mut intent, options).map_err(|wrong| wrong.of(kind, version))?;
        let live = self.store.get(&kind.resource, &key(namespace, name)).cloned();
        check_intent(kind, version, (namespace, name), &intent, live.as_deref(), &warnings)?;
        let given = intent.text_at("/metadata/name");
        if !given.is_empty() && given != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        metadata_of(&mut intent).insert("name".to_owned(), name.into());
        place_in(kind, namespace, &mut intent)?;
        if live.is_none() {
            if part != Part::Main {
                return Err(ApiError::not_found(&kind.group, &kind.plural, name));
            }
            self.admit_namespace(kind, &intent)?;
            if !intent.text_at("/metadata/uid").is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    intent.text_at("/metadata/uid")
                );
                return Err(ApiError::conflict(&kind.group, &kind.plural, name, &why));
            }
        }
        let merged = self.merged(kind, version, live.as_deref(), part, &intent, options)?;
        let written = self.put_applied(kind, version, live, part, merged, options)?;
        Ok(Written { warnings, ..written })
    }

    fn put_applied(
        &mut self,
        kind: &Kind,
        version: &Version,
        live: Option<Arc<Object>>,
        part: Part,
        mut merged: Value,
        options: &Options,
    ) -> Result<Written> {
        super::without_empties(kind, &mut merged);
        let managed = metadata_of(&mut merged).remove("managedFields").unwrap_or_else(|| json!([]));
        if let Some(live) = live {
            return self.replace(kind, version, &live, part, merged, options, Some(managed));
        }
        metadata_of(&mut merged).remove("resourceVersion");
        self.create_applied(kind, version, merged, options, managed)
    }

    fn merged(
        &self,
        kind: &Kind,
        version: &Version,
        live: Option<&Object>,
        part: Part,
        intent: &Value,
        options: &Options,
    ) -> Result<Value> {
        let time = seconds(self.now());
        let manager = manager(version, options, part, &time);
        let current = live.map(|live| {
            let mut value = live.value();
            from_stored(kind, version, &mut value);
            value
        });
        let mut intent = intent.clone();
        // A status that is not applied here must still be one that could be.
        if part == Part::Main && version.has_status && intent.get("status").is_some() {
            apply(None, &intent, &manager, true, version.checks.shape())
                .map_err(|error| refused(kind, intent.text_at("/metadata/name"), error))?;
        }
        // What a subresource does not change is not applied through it either.
        restrict(kind, version, part, &mut intent);
        let resource_version = metadata_of(&mut intent).remove("resourceVersion");
        let mut merged = apply(current.as_ref(), &intent, &manager, options.force, version.checks.shape())
            .map_err(|error| refused(kind, intent.text_at("/metadata/name"), error))?;
        if let Some(wanted) = resource_version {
            metadata_of(&mut merged).insert("resourceVersion".to_owned(), wanted);
        }
        Ok(merged)
    }
}

/// What only an apply is refused for: fields that are not there, and nulls that are not allowed.
fn check_intent(
    kind: &Kind,
    version: &Version,
    (namespace, name): (&str, &str),
    intent: &Value,
    live: Option<&Object>,
    warnings: &[String],
) -> Result<()> {
    let unknown =
        warnings.iter().find_map(|warning| warning.strip_prefix("unknown field \"")?.strip_suffix('"'));
    if let Some(path) = unknown {
        return Err(ApiError::bad_request(format!(
            "failed to create typed patch object ({namespace}/{name}; {}, Kind={}): .{path}: field not declared in schema",
            version.api_version, kind.kind
        )));
    }
    if kind.source == Source::Custom
        && let Some(schema) = version.checks.schema()
    {
        let mut whole = intent.clone();
        schema.default(&mut whole);
        let live = live.map(Object::value).unwrap_or_default();
        // Where there is a default, a null stands for it; where there is a value of somebody else, that stays.
        let is_filled = |path: &str| {
            [&whole, &live].into_iter().any(|object| {
                let found = path.split('.').try_fold(object, |value, key| value.get(key));
                found.is_some_and(|value| !value.is_null())
            })
        };
        let nulls: Vec<FieldError> = schema
            .validate(intent, None)
            .into_iter()
            .filter(|error| error.detail.ends_with("\"null\"") && !is_filled(&error.path))
            .collect();
        if !nulls.is_empty() {
            return Err(ApiError::invalid(&kind.group, &kind.kind, name, &nulls));
        }
    }
    Ok(())
}

fn restrict(kind: &Kind, version: &Version, part: Part, intent: &mut Value) {
    let Some(fields) = intent.as_object_mut() else { return };
    match part {
        Part::Main if version.has_status => {
            fields.remove("status");
        }
        Part::Status => {
            fields.retain(|key, _| ["apiVersion", "kind", "metadata", "status"].contains(&key.as_str()));
            if kind.source == Source::Custom
                && let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata
                    .retain(|key, _| ["name", "namespace", "resourceVersion", "uid"].contains(&key.as_str()));
            }
        }
        _ => {}
    }
}

fn refused(kind: &Kind, name: &str, error: ApplyError) -> ApiError {
    match error {
        ApplyError::Malformed(why) => ApiError::bad_request(why),
        ApplyError::Conflicts(conflicts) => {
            let causes = conflicts
                .iter()
                .map(|conflict| {
                    json!({
                        "reason": "FieldManagerConflict",
                        "message": format!("conflict with {}", conflict.manager),
                        "field": conflict.path,
                    })
                })
                .collect();
            let message = conflict_message(&conflicts);
            let _ = (kind, name);
            ApiError::new(409, "Conflict", message).with_causes(causes)
        }
    }
}

/// One conflict in a line, more as a list by manager.
fn conflict_message(conflicts: &[trainyard_objects::Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.path);
    }
    let mut managers: Vec<&str> = conflicts.iter().map(|conflict| conflict.manager.as_str()).collect();
    managers.sort_unstable();
    managers.dedup();
    let mut lines = Vec::new();
    for manager in managers {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(
            conflicts.iter().filter(|one| one.manager == manager).map(|one| format!("- {}", one.path)),
        );
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

fn patched(kind: &Kind, version: &Version, how: Patch, current: &Value, change: &Value) -> Result<Value> {
    let result = match how {
        Patch::Json => patch::json(current, change),
        Patch::Merge => {
            if !change.is_object() {
                return Err(ApiError::bad_request(format!(
                    "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                    super::json_type(change)
                )));
            }
            let mut new = current.clone();
            patch::merge(&mut new, change);
            Ok(new)
        }
        Patch::Strategic if kind.source == Source::Custom => {
            return Err(ApiError::unsupported(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        Patch::Strategic => patch::strategic(current, change, version.checks.shape()),
        Patch::Apply => return Err(ApiError::internal("an apply is no patch of its own")),
    };
    result.map_err(|error| match error {
        PatchError::Malformed(why) => ApiError::bad_request(why),
        PatchError::Unapplicable(why) if why.starts_with("The allowed maximum operations") => {
            ApiError::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
        }
        PatchError::Unapplicable(why) => {
            ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request")
                .with_causes(vec![json!({"message": why})])
        }
    })
}
