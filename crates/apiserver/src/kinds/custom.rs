//! From a CustomResourceDefinition to a kind.

use std::sync::Arc;

use serde_json::{Value, json};
use trainyard_objects::{At as _, FieldError, Schema};

use super::columns::Column;
use super::jsonpath::JsonPath;
use super::{Checks, Kind, Scale, Source, Version};

/// The kind that a definition describes, or everything that is wrong with it.
pub(crate) fn kind(definition: &Value) -> Result<Kind, Vec<FieldError>> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| -> Vec<String> { value.as_array().into_iter().flatten().map(text).collect() };
    let names = &spec["names"];
    let (group, plural) = (text(&spec["group"]), text(&names["plural"]));
    let mut errors = Vec::new();
    let mut versions = Vec::new();
    // A schema that all versions share is blamed once, where older definitions had it.
    let schemas: Vec<&Value> =
        spec["versions"].as_array().into_iter().flatten().map(|version| &version["schema"]).collect();
    let shared = schemas.windows(2).all(|pair| pair[0] == pair[1]);
    for (index, version) in spec["versions"].as_array().into_iter().flatten().enumerate() {
        match self::version(&group, version, index, shared) {
            Ok(version) => versions.push(version),
            Err(wrong) => {
                for error in wrong {
                    if !errors.contains(&error) {
                        errors.push(error);
                    }
                }
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if versions.iter().filter(|version| version.storage).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        return Err(vec![FieldError::invalid("spec.versions", spec["versions"].clone(), detail)]);
    }
    let kind = text(&names["kind"]);
    let or = |given: String, otherwise: String| if given.is_empty() { otherwise } else { given };
    Ok(Kind {
        resource: Arc::from(format!("{plural}.{group}")),
        list_kind: or(text(&names["listKind"]), format!("{kind}List")),
        singular: or(text(&names["singular"]), kind.to_lowercase()),
        group,
        kind,
        plural,
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        versions,
        source: Source::Custom,
    })
}

fn version(group: &str, version: &Value, index: usize, shared: bool) -> Result<Version, Vec<FieldError>> {
    let path = format!("spec.versions[{index}]");
    let name = version["name"].as_str().unwrap_or_default();
    let schema_path = format!("{path}.schema.openAPIV3Schema");
    let Some(source) = version.at("/schema/openAPIV3Schema").filter(|schema| schema.is_object()) else {
        return Err(vec![FieldError::required(schema_path, "schemas are required")]);
    };
    let schema_path = if shared { "spec.validation.openAPIV3Schema".to_owned() } else { schema_path };
    let schema = Schema::compile(source).map_err(|errors| {
        errors
            .into_iter()
            .map(|mut error| {
                error.path = if error.path.is_empty() {
                    schema_path.clone()
                } else {
                    format!("{schema_path}.{}", error.path)
                };
                error
            })
            .collect::<Vec<_>>()
    })?;
    let mut errors = Vec::new();
    let mut columns = Vec::new();
    for (at, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
        match Column::custom(column) {
            Some(column) => columns.push(column),
            None => errors.push(FieldError::invalid(
                format!("{path}.additionalPrinterColumns[{at}].jsonPath"),
                column["jsonPath"].clone(),
                "must be a simple json path",
            )),
        }
    }
    if columns.is_empty() {
        let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
        columns.extend(Column::custom(&age));
    }
    let subresources = &version["subresources"];
    let place = |key: &str| {
        let text = subresources["scale"][key].as_str()?;
        Some(text.trim_start_matches('.').split('.').map(str::to_owned).collect::<Vec<_>>())
    };
    let scale = match (place("specReplicasPath"), place("statusReplicasPath")) {
        (Some(spec_replicas), Some(status_replicas)) => {
            Some(Scale { spec_replicas, status_replicas, selector: place("labelSelectorPath") })
        }
        _ => None,
    };
    let selectable: Vec<String> = version["selectableFields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|field| field["jsonPath"].as_str())
        .map(|path| path.trim_start_matches('.').to_owned())
        .collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let deprecated = version["deprecated"].as_bool().unwrap_or(false);
    let warning = deprecated.then(|| {
        version["deprecationWarning"]
            .as_str()
            .map_or_else(|| format!("{group}/{name} is deprecated"), str::to_owned)
    });
    Ok(Version {
        name: name.to_owned(),
        api_version: format!("{group}/{name}"),
        served: version["served"].as_bool().unwrap_or(false),
        storage: version["storage"].as_bool().unwrap_or(false),
        warning,
        columns,
        has_status: subresources.get("status").is_some_and(Value::is_object),
        scale,
        selectable,
        checks: Checks::custom(source.clone(), Arc::new(schema)),
    })
}

/// Whether a definition's names are its own, so that its kind is served.
pub(crate) fn is_established(definition: &Value) -> bool {
    definition["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Established" && one["status"] == "True"))
}

/// Whether a path that selects objects is a plain one.
pub(crate) fn is_path(text: &str) -> bool {
    text.starts_with('.') && JsonPath::parse(text).is_some()
}
