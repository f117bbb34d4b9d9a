//! Checks a JSON value against a structural schema, as an API server does at admission.
//!
//! For files that have not met an API server yet. It reports every problem at once and an unknown field as
//! an error, which is what `kubectl apply` does by default. CEL rules are not run here (see `validate`).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use crate::problem::{FieldPath, Problem};

/// Everything in `value` that the schema does not allow.
pub fn check(schema: &JSONSchemaProps, value: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    node(schema, value, &FieldPath::root(), &mut problems);
    problems
}

fn node(schema: &JSONSchemaProps, value: &Value, path: &FieldPath, problems: &mut Vec<Problem>) {
    let mut problem = |message: String| problems.push(Problem::error(path.clone(), message));
    if value.is_null() {
        if schema.nullable != Some(true) {
            problem(format!("must be {}, not null", wanted(schema)));
        }
        return;
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        if !(value.is_i64() || value.is_u64() || value.is_string()) {
            problem(format!("must be a whole number or a string, not {}", shown(value)));
        }
    } else if let Some(kind) = schema.type_.as_deref()
        && !has_type(value, kind)
    {
        problem(format!("must be {}, not {}", article(kind), shown(value)));
        return;
    }
    if let Some(allowed) = &schema.enum_
        && !allowed.iter().any(|allowed| allowed.0 == *value)
    {
        let allowed: Vec<String> = allowed.iter().map(|allowed| plain(&allowed.0)).collect();
        problem(format!("{} is not one of {}", shown(value), allowed.join(", ")));
    }
    if let Some(number) = value.as_f64() {
        if let Some(minimum) = schema.minimum
            && number < minimum
        {
            problem(format!("{} is too small: at least {minimum}", shown(value)));
        }
        if let Some(maximum) = schema.maximum
            && number > maximum
        {
            problem(format!("{} is too large: at most {maximum}", shown(value)));
        }
    }
    match value {
        Value::String(text) => string(schema, text, &mut problem),
        Value::Array(items) => array(schema, items, path, problems),
        Value::Object(fields) => object(schema, fields, path, problems),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn string(schema: &JSONSchemaProps, text: &str, problem: &mut impl FnMut(String)) {
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if schema.min_length.is_some_and(|minimum| length < minimum) {
        problem("must not be empty".to_owned());
    }
    if let Some(maximum) = schema.max_length
        && length > maximum
    {
        problem(format!("has {length} characters: at most {maximum}"));
    }
    if let Some(pattern) = &schema.pattern
        && regex_lite::Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
    {
        problem(format!("\"{text}\" does not match {pattern}"));
    }
}

fn array(schema: &JSONSchemaProps, items: &[Value], path: &FieldPath, problems: &mut Vec<Problem>) {
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(minimum) = schema.min_items
        && count < minimum
    {
        problems.push(Problem::error(path.clone(), format!("must have at least {minimum} item(s)")));
    }
    if let Some(maximum) = schema.max_items
        && count > maximum
    {
        problems.push(Problem::error(path.clone(), format!("has {count} items: at most {maximum}")));
    }
    if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            node(schema, item, &path.index(index), problems);
        }
    }
    if schema.x_kubernetes_list_type.as_deref() == Some("map") {
        let keys = schema.x_kubernetes_list_map_keys.as_deref().unwrap_or_default();
        let key_of = |item: &Value| -> Vec<Value> {
            keys.iter().map(|key| item.get(key).cloned().unwrap_or_default()).collect()
        };
        for (index, item) in items.iter().enumerate() {
            if items[..index].iter().any(|earlier| key_of(earlier) == key_of(item)) {
                problems.push(Problem::error(
                    path.index(index),
                    format!("is there twice: another item has the same {}", keys.join(" and ")),
                ));
            }
        }
    }
}

fn object(
    schema: &JSONSchemaProps,
    fields: &serde_json::Map<String, Value>,
    path: &FieldPath,
    problems: &mut Vec<Problem>,
) {
    for name in schema.required.iter().flatten() {
        if !fields.contains_key(name) {
            problems.push(Problem::error(path.key(name), "is required"));
        }
    }
    if let Some(maximum) = schema.max_properties
        && i64::try_from(fields.len()).unwrap_or(i64::MAX) > maximum
    {
        problems
            .push(Problem::error(path.clone(), format!("has {} entries: at most {maximum}", fields.len())));
    }
    let metadata = path.segments().is_empty();
    for (name, value) in fields {
        let known = schema.properties.as_ref().and_then(|properties| properties.get(name));
        match (known, &schema.additional_properties) {
            // The API server checks these itself, the same way for every kind.
            _ if metadata && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") => {}
            (Some(known), _) => node(known, value, &path.key(name), problems),
            (None, Some(JSONSchemaPropsOrBool::Schema(values))) => {
                node(values, value, &path.key(name), problems);
            }
            (None, Some(JSONSchemaPropsOrBool::Bool(true))) => {}
            _ if schema.x_kubernetes_preserve_unknown_fields == Some(true) => {}
            _ => problems.push(Problem::error(path.key(name), unknown_field(schema, name))),
        }
    }
}

fn unknown_field(schema: &JSONSchemaProps, name: &str) -> String {
    let names = schema.properties.iter().flatten().map(|(name, _)| name.as_str());
    match nearest(name, names) {
        Some(near) => format!("unknown field; did you mean {near}?"),
        None => "unknown field".to_owned(),
    }
}

/// The name that is at most two edits away, if there is one.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|candidate| (edits(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= 2)
        .min()
        .map(|(_, n)| n)
}

fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, l) in left.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, r) in right.iter().enumerate() {
            let substitute = diagonal + usize::from(l != *r);
            diagonal = row[column + 1];
            row[column + 1] = substitute.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

fn has_type(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        // JSON has one kind of number: 3.0 is a whole one.
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn wanted(schema: &JSONSchemaProps) -> &str {
    schema.type_.as_deref().map_or("a value", article)
}

fn article(kind: &str) -> &str {
    match kind {
        "string" => "a string",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "a set of fields",
        other => other,
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "a set of fields".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        other => {
            let mut text = other.to_string();
            if text.chars().count() > 60 {
                text = text.chars().take(57).chain("...".chars()).collect();
            }
            text
        }
    }
}
