//! CustomResourceDefinitions: what a definition must say, and what it may not change later.

use serde_json::{Value, json};
use trainyard_objects::{At as _, FieldError, names};

use super::{default, items, object};
use crate::clock::seconds;
use crate::collect::DEFINITION_FINALIZER;
use crate::kinds::custom;
use crate::state::State;

pub(super) fn prepare(state: &State, definition: &mut Value, old: Option<&Value>) {
    let spec = object(definition, "spec");
    let names = object(spec, "names");
    let kind = names.text_at("/kind").to_owned();
    default(names, "singular", kind.to_lowercase());
    default(names, "listKind", format!("{kind}List"));
    default(spec, "conversion", json!({"strategy": "None"}));
    let names = definition["spec"]["names"].clone();
    let storage: Vec<Value> = items(&definition["spec"], "versions")
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    let time = seconds(state.now());
    let condition = |kind: &str, status: bool, reason: &str, message: &str| {
        let status = if status { "True" } else { "False" };
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time})
    };
    let conditions = match taken(state, &definition["spec"]) {
        None => json!([
            condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
            condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted"),
        ]),
        Some((reason, message)) => json!([
            condition("NamesAccepted", false, reason, &message),
            condition("Established", false, "NotAccepted", "not all names are accepted"),
        ]),
    };
    if old.is_none() {
        let metadata = &mut definition["metadata"];
        let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|one| one == DEFINITION_FINALIZER) {
            finalizers.push(DEFINITION_FINALIZER.into());
        }
        metadata["finalizers"] = finalizers.into();
        // What a controller would find out a moment later is known here at once.
        definition["status"] = json!({
            "acceptedNames": names,
            "conditions": conditions,
            "storedVersions": storage,
        });
    } else {
        definition["status"]["acceptedNames"] = names;
        let mut stored = definition["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
        for name in storage {
            if !stored.contains(&name) {
                stored.push(name);
            }
        }
        definition["status"]["storedVersions"] = stored.into();
    }
}

pub(super) fn validate(state: &State, definition: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &definition["spec"];
    let mut errors = Vec::new();
    let (group, plural) = (spec.text_at("/group"), spec.text_at("/names/plural"));
    let name = definition.text_at("/metadata/name");
    let wanted = format!("{plural}.{group}");
    if name != wanted {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    } else {
        errors.extend(
            names::dns_subdomain(group).into_iter().map(|why| FieldError::invalid("spec.group", group, why)),
        );
    }
    for key in ["plural", "kind"] {
        if spec.text_at(&format!("/names/{key}")).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{key}"), ""));
        }
    }
    for key in ["plural", "singular"] {
        let given = spec.text_at(&format!("/names/{key}"));
        if !given.is_empty() {
            let wrong = names::dns_1035_label(given);
            errors.extend(
                wrong.into_iter().map(|why| FieldError::invalid(format!("spec.names.{key}"), given, why)),
            );
        }
    }
    let scopes = ["Cluster", "Namespaced"];
    if !scopes.contains(&spec.text_at("/scope")) {
        errors.push(FieldError::not_supported("spec.scope", spec.text_at("/scope"), &scopes));
    }
    if spec.text_at("/conversion/strategy") != "None" {
        errors.push(FieldError::invalid(
            "spec.conversion.strategy",
            spec.text_at("/conversion/strategy"),
            "Trainyard's embedded control plane serves versions of one schema only (strategy None); webhooks need a cluster",
        ));
    }
    let mut seen = Vec::new();
    for (index, version) in items(spec, "versions").enumerate() {
        let given = version.text_at("/name");
        let wrong = names::dns_1035_label(given);
        errors.extend(
            wrong
                .into_iter()
                .map(|why| FieldError::invalid(format!("spec.versions[{index}].name"), given, why)),
        );
        if seen.contains(&given) {
            let detail = "must contain unique version names";
            errors.push(FieldError::invalid("spec.versions", spec["versions"].clone(), detail));
        }
        seen.push(given);
        for (at, field) in items(version, "selectableFields").enumerate() {
            let path = field.text_at("/jsonPath");
            if !custom::is_path(path) {
                let place = format!("spec.versions[{index}].selectableFields[{at}].jsonPath");
                errors.push(FieldError::invalid(place, path, "is an invalid path"));
            }
        }
    }
    if seen.is_empty() {
        errors.push(FieldError::required("spec.versions", "must have at least one version"));
        return errors;
    }
    if let Err(wrong) = custom::kind(definition) {
        errors.extend(wrong);
    }
    match old {
        Some(old) => errors.extend(changes(spec, &old["spec"])),
        None if group.ends_with(".k8s.io") && state.kinds.find(group, plural).is_some() => {
            errors.push(FieldError::forbidden("spec.group", format!("{wanted} is built in")));
        }
        None => {}
    }
    errors
}

fn changes(spec: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for path in ["/group", "/names/plural", "/names/kind", "/scope"] {
        if spec.at(path) != old.at(path) {
            errors.push(FieldError::invalid(
                format!("spec{}", path.replace('/', ".")),
                spec.at(path).cloned().unwrap_or_default(),
                "field is immutable",
            ));
        }
    }
    errors
}

/// Which of a definition's names another kind of its group has.
fn taken(state: &State, spec: &Value) -> Option<(&'static str, String)> {
    let (group, plural) = (spec.text_at("/group"), spec.text_at("/names/plural"));
    let names = &spec["names"];
    for other in state.kinds.all().filter(|other| other.group == group && other.plural != plural) {
        for (reason, name) in [
            ("KindConflict", names.text_at("/kind")),
            ("ListKindConflict", names.text_at("/listKind")),
            ("SingularConflict", names.text_at("/singular")),
        ] {
            if [&other.kind, &other.list_kind, &other.singular].iter().any(|one| *one == name) {
                return Some((reason, format!("\"{name}\" is already in use")));
            }
        }
        for name in items(names, "shortNames").filter_map(Value::as_str) {
            if other.short_names.iter().any(|one| one == name) {
                return Some(("ShortNamesConflict", format!("\"{name}\" is already in use")));
            }
        }
    }
    None
}
