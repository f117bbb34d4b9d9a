//! What is peculiar to each built-in kind: its defaults, what must hold, and what may not change.

pub(crate) mod budgets;
mod definitions;
mod others;
pub(crate) use others::base64;
pub(crate) mod pods;
pub(crate) mod services;

use serde_json::{Map, Value};
use trainyard_objects::{At as _, FieldError};

use crate::error::Result;
use crate::kinds::{Builtin, Kind, Source, Version};
use crate::state::State;
use crate::write::Part;

/// Fills in what a new object of a built-in kind begins with.
pub(crate) fn prepare_create(state: &mut State, kind: &Kind, value: &mut Value) -> Result<()> {
    match kind.builtin() {
        Some(Builtin::Pod) => pods::prepare(state, value),
        Some(Builtin::Service) => {
            services::prepare(state, value, None);
            Ok(())
        }
        Some(Builtin::Definition) => {
            definitions::prepare(state, value, None);
            Ok(())
        }
        Some(builtin) => {
            others::prepare(builtin, value, None);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Carries over and fills in what a changed object of a built-in kind needs.
pub(crate) fn prepare_update(state: &mut State, kind: &Kind, part: Part, new: &mut Value, old: &Value) {
    match kind.builtin() {
        Some(Builtin::Pod) if part == Part::Main => pods::prepare_change(new, old),
        Some(Builtin::Service) => services::prepare(state, new, Some(old)),
        Some(Builtin::Definition) => definitions::prepare(state, new, Some(old)),
        Some(builtin) if part == Part::Main => others::prepare(builtin, new, Some(old)),
        _ => {}
    }
}

/// Everything that is wrong with an object of a built-in kind, as far as it says so itself.
pub(crate) fn validate(builtin: Builtin, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match builtin {
        Builtin::Pod => pods::validate(value, old),
        Builtin::Service => services::validate(value, old),
        Builtin::Budget => budgets::validate(value),
        Builtin::Definition => Vec::new(),
        other => others::validate(other, value, old),
    }
}

/// What is wrong with an object beside the others: a definition may clash with another one.
pub(crate) fn validate_in(state: &State, kind: &Kind, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if kind.is(Builtin::Definition) { definitions::validate(state, value, old) } else { Vec::new() }
}

/// Everything that is wrong with a new status of a built-in kind.
pub(crate) fn validate_status(builtin: Builtin, new: &Value, old: &Value) -> Vec<FieldError> {
    match builtin {
        Builtin::Pod => pods::validate_status(new, old),
        _ => Vec::new(),
    }
}

/// Whether objects of a built-in kind count the versions of their spec.
pub(crate) fn has_generation(builtin: Builtin) -> bool {
    matches!(builtin, Builtin::Pod | Builtin::Budget | Builtin::Definition)
}

/// Whether a change is one of what is wanted, not only of what is.
pub(crate) fn is_new_generation(kind: &Kind, version: &Version, new: &Value, old: &Value) -> bool {
    match kind.source {
        Source::Builtin(builtin) => has_generation(builtin) && new.get("spec") != old.get("spec"),
        Source::Custom => {
            let nothing = Map::new();
            let (new, old) = (new.as_object().unwrap_or(&nothing), old.as_object().unwrap_or(&nothing));
            let counts = |key: &String| {
                key != "metadata" && key != "apiVersion" && !(key == "status" && version.has_status)
            };
            new.iter().any(|(key, value)| counts(key) && old.get(key) != Some(value))
                || old.keys().any(|key| counts(key) && !new.contains_key(key))
        }
    }
}

/// Whether a PUT may create.
pub(crate) fn creates_on_update(kind: &Kind) -> bool {
    matches!(kind.builtin(), Some(Builtin::Lease | Builtin::Event | Builtin::NewEvent))
}

/// Whether a PUT without a resourceVersion means "whatever is there".
pub(crate) fn updates_unconditionally(kind: &Kind) -> bool {
    !matches!(kind.builtin(), None | Some(Builtin::Definition | Builtin::Lease))
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// Sets a field that is not there yet.
fn default(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut() {
        fields.entry(key).or_insert_with(|| value.into());
    }
}

/// Makes sure that a field is an object, and gives it.
fn object<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    let field = &mut value[key];
    if !field.is_object() {
        *field = Value::Object(Map::new());
    }
    field
}

fn each(value: &mut Value, key: &str, mut work: impl FnMut(&mut Value)) {
    if let Some(Value::Array(all)) = value.get_mut(key) {
        all.iter_mut().for_each(&mut work);
    }
}

/// Writes all amounts of a map in their canonical form.
fn canonical_amounts(amounts: Option<&mut Value>) {
    for amount in amounts.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        *amount = crate::kinds::quantity::canonical(&text).unwrap_or(text).into();
    }
}

/// What is said of an amount that cannot be read.
pub(crate) const WRONG_AMOUNT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Whether there is an amount that cannot be read where one must be.
pub(crate) fn has_wrong_amount(builtin: Builtin, value: &Value) -> bool {
    let unreadable = |amount: &Value| {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        crate::kinds::quantity::Amount::parse(&text).is_none()
    };
    let in_map = |amounts: Option<&Value>| {
        amounts.and_then(Value::as_object).is_some_and(|amounts| amounts.values().any(unreadable))
    };
    let in_resources =
        |resources: &Value| in_map(resources.get("limits")) || in_map(resources.get("requests"));
    let spec = &value["spec"];
    match builtin {
        Builtin::Pod => {
            ["containers", "initContainers"]
                .iter()
                .any(|key| items(spec, key).any(|container| in_resources(&container["resources"])))
                || items(spec, "volumes")
                    .any(|volume| volume.at("/emptyDir/sizeLimit").is_some_and(unreadable))
                || in_map(spec.get("overhead"))
        }
        Builtin::Claim => in_resources(&spec["resources"]),
        Builtin::Quota => in_map(spec.get("hard")),
        Builtin::Volume => in_map(spec.get("capacity")),
        Builtin::Node => in_map(value.at("/status/capacity")) || in_map(value.at("/status/allocatable")),
        _ => false,
    }
}

/// Amounts that cannot be.
fn wrong_amounts(path: &str, amounts: Option<&Value>) -> Vec<FieldError> {
    amounts
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(name, amount)| {
            let text = amount.as_str()?;
            let negative =
                crate::kinds::quantity::Amount::parse(text)? < crate::kinds::quantity::Amount::ZERO;
            negative.then(|| {
                FieldError::invalid(format!("{path}[{name}]"), text, "must be greater than or equal to 0")
            })
        })
        .collect()
}
