//! Schemas of the built-in kinds, generated from their Rust types when somebody asks.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The structural schema of a type, with everything in place of the references.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let (root, definitions) = definitions_of::<T>();
    let mut schema = inlined(&root, &definitions, 0);
    // What every object has, and the server looks after itself.
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("metadata".to_owned(), json!({"type": "object"}));
    }
    schema
}

/// The schema of a type and all that it refers to, as OpenAPI components.
pub(crate) fn definitions_of<T: JsonSchema>() -> (Value, Map<String, Value>) {
    let mut settings = SchemaSettings::openapi3();
    settings.meta_schema = None;
    settings.transforms.clear();
    let mut generator = settings.into_generator();
    let root = generator.subschema_for::<T>().to_value();
    let definitions = generator.take_definitions(true);
    (root, definitions)
}

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

fn inlined(schema: &Value, definitions: &Map<String, Value>, depth: usize) -> Value {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next()) {
        // Only schemas of definitions contain themselves; those are checked when they are compiled.
        if depth > 24 || name.ends_with("JSONSchemaProps") {
            return json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
        if name.ends_with(QUANTITY) || name.ends_with("IntOrString") {
            return json!({"x-kubernetes-int-or-string": true});
        }
        return definitions.get(name).map_or(Value::Null, |found| inlined(found, definitions, depth + 1));
    }
    let mut out = Map::new();
    let Some(object) = schema.as_object() else { return schema.clone() };
    for (key, value) in object {
        let value = match key.as_str() {
            // Words are for people who ask for the schema; checking needs none. What is missing is told by the rules of
            // the kind, where it matters; in a status nobody asks.
            "description" | "required" => continue,
            "properties" => Value::Object(
                value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, property)| (name.clone(), inlined(property, definitions, depth + 1)))
                    .collect(),
            ),
            "items" | "additionalProperties" => inlined(value, definitions, depth + 1),
            // A reference with a description beside it comes wrapped.
            "allOf" if value.as_array().is_some_and(|all| all.len() == 1) => {
                let inner = inlined(&value[0], definitions, depth + 1);
                out.extend(inner.as_object().cloned().unwrap_or_default());
                continue;
            }
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}

/// The schemas that describe `metadata`.
pub(crate) fn metadata() -> Map<String, Value> {
    definitions_of::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>().1
}
