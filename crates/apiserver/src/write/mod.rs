//! Everything that changes an object takes the same way: decode, prune, default, the kind's own rules, admission,
//! validation, versions, store.

mod admit;
mod create;
mod delete;
pub(crate) mod metadata;
mod patch;
mod quota;
mod scale;
mod update;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value};
use trainyard_objects::{At as _, FieldError, Manager, track};

use crate::clock::seconds;
use crate::error::{ApiError, Result};
use crate::kinds::{Kind, Source, Version, events};
use crate::state::State;
use crate::store::Object;

pub(crate) use create::NewObject;
pub(crate) use delete::{DeleteOptions, Deleted, Propagation, disown};
pub(crate) use patch::Patch;

/// What a write is told besides the object.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) dry_run: bool,
    pub(crate) manager: String,
    pub(crate) validation: Validation,
    /// Server-side apply: take fields over from others.
    pub(crate) force: bool,
    /// Fields that the body has more than once.
    pub(crate) duplicates: Vec<String>,
}

/// What happens about fields that a kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validation {
    Ignore,
    Warn,
    Strict,
}

impl Options {
    /// Of the server's own writes.
    pub(crate) fn internal() -> Self {
        Self {
            dry_run: false,
            manager: "trainyard".to_owned(),
            validation: Validation::Ignore,
            force: false,
            duplicates: Vec::new(),
        }
    }
}

/// What came of a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Arc<Object>,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    /// `namespaces/finalize`.
    Finalize,
    /// The whole object, through its `scale`.
    Scale,
}

impl Part {
    fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
            Self::Scale => "scale",
        }
    }
}

/// Checks that a body is the kind of object that the path is about.
fn check_type(kind: &Kind, version: &Version, body: &Value) -> Result<()> {
    let (given_version, given_kind) = (body.text_at("/apiVersion"), body.text_at("/kind"));
    let unrecognized = |field: &str| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object '{field}' is missing in '{body}'",
            kind.kind
        ))
    };
    // Built-in kinds may leave out what the path says anyway.
    let custom = kind.source == Source::Custom;
    if given_kind.is_empty() && (custom || !given_version.is_empty()) {
        return Err(unrecognized("Kind"));
    }
    if given_version.is_empty() && custom {
        return Err(unrecognized("apiVersion"));
    }
    let registered = given_version.is_empty() || given_version == version.api_version;
    if custom && !registered {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({})",
            version.api_version
        )));
    }
    if custom && given_kind != kind.kind {
        let error = FieldError::invalid("kind", given_kind, format!("must be {}", kind.kind));
        return Err(ApiError::invalid(&kind.group, given_kind, body.text_at("/metadata/name"), &[error]));
    }
    if !registered || (!given_kind.is_empty() && given_kind != kind.kind) {
        let name = if registered { version.name.as_str() } else { given_version };
        let whole = if registered { version.api_version.as_str() } else { given_version };
        let short = name.rsplit('/').next().unwrap_or_default();
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version \"{short}\" cannot be handled as a {}: no kind \"{given_kind}\" is registered for version \"{whole}\"",
            kind.kind
        )));
    }
    Ok(())
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Why a body cannot be taken for an object of its kind, in the words of the API server's decoder.
struct Undecodable(String);

impl Undecodable {
    /// As the refusal of a whole object.
    fn of(self, kind: &Kind, version: &Version) -> ApiError {
        ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {}",
            kind.kind, version.name, kind.kind, self.0
        ))
    }

    /// As the refusal of a patch, which shows what came of it.
    fn of_patch(self, patched: &Value) -> ApiError {
        let error = FieldError::invalid("patch", patched.to_string(), self.0);
        ApiError::invalid("", "", "", &[error])
    }
}

/// Brings a body into the form that is worked on: no unknown fields, types as they must be, nothing that is empty and
/// would be left out. Returns warnings.
fn decode(
    kind: &Kind,
    version: &Version,
    body: &mut Value,
    options: &Options,
) -> Result<Vec<String>, Undecodable> {
    let warnings = decode_as_given(kind, version, body, options)?;
    without_empties(kind, body);
    Ok(warnings)
}

/// The same, but what is empty stays: who applies it owns it.
fn decode_as_given(
    kind: &Kind,
    version: &Version,
    body: &mut Value,
    options: &Options,
) -> Result<Vec<String>, Undecodable> {
    let Some(fields) = body.as_object_mut() else { return Ok(Vec::new()) };
    fields.insert("apiVersion".to_owned(), version.api_version.as_str().into());
    fields.insert("kind".to_owned(), kind.kind.as_str().into());
    let mut metadata = fields.remove("metadata").unwrap_or_else(|| Value::Object(Map::new()));
    let mut unknown = metadata::prune(&mut metadata).map_err(Undecodable)?;
    if kind.source != Source::Custom {
        // In Go, null is the same as nothing, and among texts it is an empty one.
        for key in ["data", "stringData"] {
            if let Some(texts) = body.get_mut(key).and_then(Value::as_object_mut) {
                texts.values_mut().filter(|value| value.is_null()).for_each(|value| *value = "".into());
            }
        }
        without_nulls(body);
    }
    if let Some(schema) = version.checks.schema() {
        unknown.extend(schema.prune(body));
        if let Source::Builtin(builtin) = kind.source {
            let wrong = schema.validate(body, None);
            if let Some(first) = wrong.first() {
                return Err(Undecodable(unmarshal(&kind.kind, first)));
            }
            if crate::rules::has_wrong_amount(builtin, body) {
                return Err(Undecodable(crate::rules::WRONG_AMOUNT.to_owned()));
            }
        }
    }
    if let Some(fields) = body.as_object_mut() {
        fields.insert("metadata".to_owned(), metadata);
    }
    unknown.sort_unstable();
    let texts: Vec<String> = options
        .duplicates
        .iter()
        .map(|path| format!("duplicate field \"{path}\""))
        .chain(unknown.iter().map(|path| format!("unknown field \"{path}\"")))
        .collect();
    match options.validation {
        Validation::Ignore => Ok(Vec::new()),
        Validation::Strict if !texts.is_empty() => {
            Err(Undecodable(format!("strict decoding error: {}", texts.join(", "))))
        }
        _ => Ok(texts),
    }
}

/// A value of the wrong type, in the words of Go's decoder.
fn unmarshal(kind: &str, error: &FieldError) -> String {
    if error.detail.ends_with("of type byte") || error.detail.contains("of type byte:") {
        let text = error.value.as_ref().and_then(Value::as_str).unwrap_or_default();
        let at = text.bytes().position(|byte| !byte.is_ascii_alphanumeric() && !b"+/=".contains(&byte));
        return format!("illegal base64 data at input byte {}", at.unwrap_or(text.len()));
    }
    // The schema's words: `… must be of type string: "integer"`.
    let words = error.detail.split_once("of type ").map_or("", |(_, words)| words);
    let (wanted, found) = words.split_once(": ").unwrap_or((words, ""));
    let found = match found.trim_matches('"') {
        "integer" | "number" | "int32" | "int64" | "float" | "double" => "number",
        "boolean" => "bool",
        "" => error.value.as_ref().map_or("value", json_type),
        found => found,
    };
    format!("json: cannot unmarshal {found} into Go struct field {kind}.{} of type {wanted}", error.path)
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Maps that are left out when they are empty; an empty object elsewhere (`emptyDir: {}`) says something.
const MAPS: [&str; 7] =
    ["data", "binaryData", "stringData", "nodeSelector", "limits", "requests", "selector"];

/// Leaves out what Go would: empty lists and maps of the metadata and of built-in kinds. (The schema of a definition
/// may well have an empty one.)
fn without_empties(kind: &Kind, value: &mut Value) {
    metadata::without_empties(metadata_of(value));
    if kind.source == Source::Custom || kind.is(crate::kinds::Builtin::Definition) {
        return;
    }
    for (key, field) in value.as_object_mut().into_iter().flatten() {
        if key != "metadata" {
            inner_empties(field);
        }
    }
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|key, value| !is_left_out(key, value));
    }
}

fn inner_empties(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| !is_left_out(key, value));
            fields.values_mut().for_each(inner_empties);
        }
        Value::Array(items) => items.iter_mut().for_each(inner_empties),
        _ => {}
    }
}

fn is_left_out(key: &str, value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty() && MAPS.contains(&key),
        _ => false,
    }
}

/// From the form of a request to the form of the store.
fn to_stored(kind: &Kind, value: &mut Value) {
    if kind.is(crate::kinds::Builtin::NewEvent) {
        events::to_stored(value);
    } else {
        set_api_version(value, &kind.storage().api_version);
    }
}

/// From the form of the store to that of a request.
pub(crate) fn from_stored(kind: &Kind, version: &Version, value: &mut Value) {
    if kind.is(crate::kinds::Builtin::NewEvent) {
        events::to_new(value);
    } else {
        set_api_version(value, &version.api_version);
    }
}

fn set_api_version(value: &mut Value, api_version: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), api_version.into());
    }
}

fn metadata_of(value: &mut Value) -> &mut Map<String, Value> {
    let Value::Object(fields) = value else {
        // Bodies that are no objects were refused before.
        unreachable!("objects are checked to be objects when they are decoded")
    };
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    match metadata {
        Value::Object(metadata) => metadata,
        _ => unreachable!("made an object just now"),
    }
}

/// Who writes here.
fn manager<'a>(version: &'a Version, options: &'a Options, part: Part, time: &'a str) -> Manager<'a> {
    Manager {
        name: &options.manager,
        api_version: &version.api_version,
        subresource: part.subresource(),
        time,
    }
}

/// Records who wrote which fields.
fn record(
    now: Timestamp,
    version: &Version,
    live: Option<&Value>,
    new: &mut Value,
    options: &Options,
    part: Part,
) {
    track(live, new, &manager(version, options, part, &seconds(now)), version.checks.shape());
}

impl State {
    /// What a dry run answers: the object as it would be, with nothing stored.
    fn pretended(&self, value: Value, live: Option<&Object>) -> Arc<Object> {
        Arc::new(Object::pretended(
            value,
            live.map_or(self.store.revision(), |live| live.revision),
            live.is_some(),
        ))
    }
}
