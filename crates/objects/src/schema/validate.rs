//! Validation: an object against its schema, in the API server's order and words.
//!
//! On an update, a complaint about a part that is the same as before is dropped (ratcheting): objects that an older
//! schema let in can still be changed elsewhere. Parts correspond by field, by key in lists of type map, and not at all
//! in other lists.

use serde_json::{Map, Value};

use super::Schema;
use super::cel;
use super::node::{Additional, Bound, Checks, Kind, Node, NodeId};
use crate::error::{go_float, quoted};
use crate::path::Path;
use crate::shape::{ListKey, ListType};
use crate::{FieldError, FieldReason};

const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing \
                           errors to complete validation";

pub(super) fn validate(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut walk = Walk { schema, path: Path::default(), errors: Vec::new(), visited: 0 };
    walk.node(schema.root, object, old);
    let mut errors = walk.errors;
    if schema.node(schema.root).unique_below {
        // Lists that were not unique before are nobody's fault now.
        let was_fine = old.is_none_or(|old| unique(schema, old).is_empty());
        if was_fine {
            errors.extend(unique(schema, object));
        }
    }
    if schema.node(schema.root).rules_below {
        if errors.iter().any(|error| blocks_rules(error.reason)) {
            errors.push(FieldError::invalid("<nil>", Value::Null, NOT_CHECKED));
        } else {
            errors.extend(cel::check(schema, object, old));
        }
    }
    errors
}

/// Validates a value that stands at a node of the schema, without rules.
pub(super) fn below(schema: &Schema, node: NodeId, value: &Value) -> Vec<FieldError> {
    let mut walk = Walk { schema, path: Path::default(), errors: Vec::new(), visited: 0 };
    walk.node(node, value, None);
    walk.errors
}

/// Rules can rely on types and on what is required.
fn blocks_rules(reason: FieldReason) -> bool {
    matches!(
        reason,
        FieldReason::NotSupported
            | FieldReason::Required
            | FieldReason::TooLong
            | FieldReason::TooMany
            | FieldReason::TypeInvalid
    )
}

struct Walk<'a> {
    schema: &'a Schema,
    path: Path,
    errors: Vec<FieldError>,
    /// How many places have been looked at: of several alternatives that all fail, the one that reached most is told.
    visited: usize,
}

impl<'a> Walk<'a> {
    fn node(&mut self, id: NodeId, value: &Value, old: Option<&Value>) {
        let before = self.errors.len();
        self.visited += 1;
        self.value(self.schema.node(id), value, old);
        if self.errors.len() > before && old == Some(value) {
            self.errors.truncate(before);
        }
    }

    fn value(&mut self, node: &'a Node, value: &Value, old: Option<&Value>) {
        self.kind(node, value);
        let checks = node.checks.as_deref();
        if let Some(checks) = checks.filter(|_| !value.is_null()) {
            self.junctors(checks, value, old);
        }
        match (value, checks) {
            (Value::String(text), Some(checks)) => self.string(node, checks, text),
            (Value::Number(_), _) => self.number(node, checks, value),
            (Value::Array(items), _) => self.array(node, items, old),
            _ => {}
        }
        if let Some(checks) = checks {
            self.allowed(checks, value);
        }
        if let Value::Object(fields) = value {
            self.object(node, fields, old);
        }
    }

    fn kind(&mut self, node: &Node, value: &Value) {
        if node.kind == Kind::Any || (value.is_null() && node.nullable) || has_kind(value, node.kind) {
            return;
        }
        let (kind, format) = kind_and_format(value);
        // A format, where there is one, is what the message names; a quirk that clients have seen for years.
        let text = value.is_string() || value.is_array() || value.is_null();
        let (wanted, found) = match &*node.format_name {
            "" => (node.kind.name(), kind),
            _ if text => (node.kind.name(), kind),
            wanted => (wanted, format),
        };
        let path = self.path.as_str();
        let detail = format!("{path} in body must be of type {wanted}: {}", quoted(found));
        self.push(FieldReason::TypeInvalid, Some(found.into()), detail);
    }

    fn allowed(&mut self, checks: &Checks, value: &Value) {
        if checks.allowed.is_empty() || checks.allowed.iter().any(|allowed| same_json(allowed, value)) {
            return;
        }
        let allowed: Vec<String> = checks
            .allowed
            .iter()
            .map(|allowed| quoted(&allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned)))
            .collect();
        let detail = format!("supported values: {}", allowed.join(", "));
        self.push(FieldReason::NotSupported, Some(value.clone()), detail);
    }

    fn string(&mut self, node: &Node, checks: &Checks, text: &str) {
        let length = || text.chars().count() as u64;
        // The first of these three is told; the format in any case.
        if let Some(most) = checks.max_length.filter(|most| text.len() as u64 > *most && length() > *most) {
            let unit = if most == 1 { "byte" } else { "bytes" };
            self.push(FieldReason::TooLong, None, format!("may not be more than {most} {unit}"));
        } else if let Some(least) = checks.min_length.filter(|least| length() < *least) {
            self.complain(text, &format!("should be at least {least} chars long"));
        } else if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            self.complain(text, &format!("should match '{pattern}'"));
        }
        if checks.format.is_some_and(|format| !format.accepts(text)) {
            let path = self.path.as_str();
            let detail = format!("{path} in body must be of type {}: {}", node.format_name, quoted(text));
            self.push(FieldReason::TypeInvalid, Some(text.into()), detail);
        }
    }

    fn number(&mut self, node: &Node, checks: Option<&Checks>, value: &Value) {
        let number = value.as_f64().unwrap_or(f64::NAN);
        let out_of_range = match (node.kind, &*node.format_name) {
            (Kind::Integer, _) if number.fract() != 0.0 => true,
            (Kind::Integer, "int32") => number < f64::from(i32::MIN) || number > f64::from(i32::MAX),
            (Kind::Integer, _) => value.as_i64().is_none() && number.abs() >= 9.3e18,
            (Kind::Number, "float") => number.abs() > f64::from(f32::MAX),
            _ => false,
        };
        if out_of_range {
            let format = match &*node.format_name {
                format @ ("int32" | "int64" | "float" | "double") => format!("with format {format}"),
                _ => "(default format)".to_owned(),
            };
            let detail = format!(
                "Checked value must be of type {} {format} in {}",
                node.kind.name(),
                self.path.as_str()
            );
            self.errors.push(FieldError::invalid("<nil>", "", detail));
        }
        let Some(checks) = checks else { return };
        if let Some(factor) = checks.multiple_of {
            self.multiple_of(value, number, factor);
        }
        if let Some(Bound { value: bound, exclusive }) = checks.minimum
            && (number < bound || (exclusive && number <= bound))
        {
            let than = if exclusive { "greater than" } else { "greater than or equal to" };
            self.complain(value.clone(), &format!("should be {than} {}", bound_text(bound, value)));
        }
        if let Some(Bound { value: bound, exclusive }) = checks.maximum
            && (number > bound || (exclusive && number >= bound))
        {
            let than = if exclusive { "less than" } else { "less than or equal to" };
            self.complain(value.clone(), &format!("should be {than} {}", bound_text(bound, value)));
        }
    }

    fn multiple_of(&mut self, value: &Value, number: f64, factor: f64) {
        // Beside a whole number, the server cuts the factor down to one, and complains about what it made of it.
        let factor = if value.is_f64() { factor } else { factor.trunc() };
        if factor == 0.0 {
            let detail = format!("factor MultipleOf declared for {} must be positive: 0", self.path.as_str());
            self.push(FieldReason::Invalid, Some(0.into()), detail);
        } else if !is_multiple(number, factor) {
            self.complain(value.clone(), &format!("should be a multiple of {}", bound_text(factor, value)));
        }
    }

    fn array(&mut self, node: &'a Node, items: &[Value], old: Option<&Value>) {
        if let Some(item_node) = node.items {
            let old_items = match (&node.list, old) {
                (ListType::Map(keys), Some(Value::Array(old))) => Some((keys, old)),
                _ => None,
            };
            for (index, item) in items.iter().enumerate() {
                let old_item = old_items.and_then(|(keys, old)| same_item(keys, item, old));
                let mark = self.path.index(index);
                self.node(item_node, item, old_item);
                self.path.back(mark);
            }
        }
        let Some(checks) = &node.checks else { return };
        let count = items.len() as u64;
        if let Some(least) = checks.min_items.filter(|least| count < *least) {
            self.complain(count, &format!("should have at least {least} items"));
        }
        if let Some(most) = checks.max_items.filter(|most| count > *most) {
            self.too_many(count, most);
        }
        if checks.unique_items && (1..items.len()).any(|index| items[..index].contains(&items[index])) {
            self.complain("", "shouldn't contain duplicates");
        }
    }

    fn object(&mut self, node: &'a Node, fields: &Map<String, Value>, old: Option<&Value>) {
        let checks = node.checks.as_deref();
        let count = fields.len() as u64;
        if let Some(least) = checks.and_then(|checks| checks.min_properties).filter(|least| count < *least) {
            self.complain(count, &format!("should have at least {least} properties"));
        }
        if let Some(most) = checks.and_then(|checks| checks.max_properties).filter(|most| count > *most) {
            self.too_many(count, most);
        }
        let root = self.path.as_str().is_empty();
        for (name, value) in fields {
            let child = match (node.properties.get(name), node.additional) {
                (Some(property), _) => *property,
                (None, Additional::Schema(values)) => values,
                (None, Additional::Forbidden) => {
                    let path = self.path.as_str();
                    let detail = format!("{path}.{name} in body is a forbidden property");
                    self.push(FieldReason::Invalid, Some(name.as_str().into()), detail);
                    continue;
                }
                (None, Additional::Unsaid | Additional::Anything) => continue,
            };
            // Both are converted to the version of the request, so a change of these cannot be seen.
            let seen = !(root && matches!(name.as_str(), "apiVersion" | "kind"));
            let old_value = old.filter(|_| seen).and_then(|old| old.get(name));
            let mark = self.path.field(name);
            self.node(child, value, old_value);
            self.path.back(mark);
        }
        for name in checks.map_or(&[][..], |checks| &checks.required) {
            if !fields.contains_key(name) {
                let mark = self.path.field(name);
                self.push(FieldReason::Required, None, String::new());
                self.path.back(mark);
            }
        }
        if node.embedded {
            for name in ["apiVersion", "kind"] {
                if fields.get(name).and_then(Value::as_str).unwrap_or_default().is_empty() {
                    let mark = self.path.field(name);
                    self.push(FieldReason::Required, None, "must not be empty".to_owned());
                    self.path.back(mark);
                }
            }
        }
    }

    /// `anyOf`, `oneOf`, `allOf` and `not`.
    fn junctors(&mut self, checks: &'a Checks, value: &Value, old: Option<&Value>) {
        let quoted_path = || quoted(self.path.as_str());
        if !checks.any_of.is_empty() {
            let complaints = format!("{} must validate at least one schema (anyOf)", quoted_path());
            let mut best: Option<Branch> = None;
            let mut fits = false;
            for branch in &checks.any_of {
                let branch = self.branch(*branch, value, old);
                fits = branch.errors.is_empty();
                if fits {
                    break;
                }
                if best.as_ref().is_none_or(|best| branch.visited > best.visited) {
                    best = Some(branch);
                }
            }
            if !fits {
                self.errors.push(FieldError::invalid("<nil>", "", complaints));
                self.errors.extend(best.into_iter().flat_map(|best| best.errors));
            }
        }
        if !checks.one_of.is_empty() {
            let complaints =
                format!("{} must validate one and only one schema (oneOf)", quoted(self.path.as_str()));
            let results: Vec<Branch> =
                checks.one_of.iter().map(|branch| self.branch(*branch, value, old)).collect();
            match results.iter().filter(|branch| branch.errors.is_empty()).count() {
                1 => {}
                0 => {
                    self.errors.push(FieldError::invalid(
                        "<nil>",
                        "",
                        format!("{complaints}. Found none valid"),
                    ));
                    // The first of those that reached most.
                    let best = results.into_iter().rev().max_by_key(|branch| branch.visited);
                    self.errors.extend(best.into_iter().flat_map(|best| best.errors));
                }
                many => {
                    let detail = format!("{complaints}. Found {many} valid alternatives");
                    self.errors.push(FieldError::invalid("<nil>", "", detail));
                }
            }
        }
        if !checks.all_of.is_empty() {
            let mut fitting = 0;
            for branch in &checks.all_of {
                let Branch { errors, .. } = self.branch(*branch, value, old);
                fitting += usize::from(errors.is_empty());
                self.errors.extend(errors);
            }
            if fitting < checks.all_of.len() {
                let none = if fitting == 0 { ". None validated" } else { "" };
                let path = quoted(self.path.as_str());
                let detail = format!("{path} must validate all the schemas (allOf){none}");
                self.errors.push(FieldError::invalid("<nil>", "", detail));
            }
        }
        if let Some(not) = checks.not
            && self.branch(not, value, old).errors.is_empty()
        {
            let detail = format!("{} must not validate the schema (not)", quoted(self.path.as_str()));
            self.errors.push(FieldError::invalid("<nil>", "", detail));
        }
    }

    /// What one branch of a junctor says, apart.
    fn branch(&mut self, node: NodeId, value: &Value, old: Option<&Value>) -> Branch {
        let kept = std::mem::take(&mut self.errors);
        let before = self.visited;
        self.value(self.schema.node(node), value, old);
        Branch { errors: std::mem::replace(&mut self.errors, kept), visited: self.visited - before }
    }

    fn complain(&mut self, value: impl Into<Value>, what: &str) {
        let detail = format!("{} in body {what}", self.path.as_str());
        self.push(FieldReason::Invalid, Some(value.into()), detail);
    }

    fn too_many(&mut self, count: u64, most: u64) {
        let unit = if most == 1 { "item" } else { "items" };
        self.push(FieldReason::TooMany, Some(count.into()), format!("must have at most {most} {unit}"));
    }

    fn push(&mut self, reason: FieldReason, value: Option<Value>, detail: String) {
        self.errors.push(FieldError { reason, path: self.path.shown(), value, detail });
    }
}

struct Branch {
    errors: Vec<FieldError>,
    visited: usize,
}

/// The item of `old` that has the same keys.
pub(super) fn same_item<'v>(keys: &[ListKey], item: &Value, old: &'v [Value]) -> Option<&'v Value> {
    let key = |item: &Value, key: &ListKey| item.get(&key.name).or(key.default.as_ref()).cloned();
    old.iter().find(|candidate| {
        candidate.is_object() && keys.iter().all(|name| key(candidate, name) == key(item, name))
    })
}

/// Lists of type set and map in which something is there twice.
fn unique(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    twice(schema, schema.root, object, &mut Path::default(), &mut errors);
    errors
}

fn twice(schema: &Schema, id: NodeId, value: &Value, path: &mut Path, errors: &mut Vec<FieldError>) {
    let node = schema.node(id);
    if !node.unique_below {
        return;
    }
    match value {
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => {
                    repeated(items.iter(), path, errors, Value::clone);
                }
                ListType::Map(keys) => {
                    let not_object = items.iter().position(|item| !(item.is_object() || item.is_null()));
                    if let Some(index) = not_object {
                        let mark = path.index(index);
                        let detail = "must be an object for an array of list-type map";
                        errors.push(FieldError::invalid(path.shown(), items[index].clone(), detail));
                        path.back(mark);
                        return;
                    }
                    let key_of = |item: &Value| -> Value {
                        let present = keys
                            .iter()
                            .filter_map(|key| Some((key.name.clone(), item.get(&key.name)?.clone())));
                        Value::Object(present.collect())
                    };
                    repeated(items.iter(), path, errors, key_of);
                }
            }
            if let Some(item_node) = node.items {
                for (index, item) in items.iter().enumerate() {
                    let mark = path.index(index);
                    twice(schema, item_node, item, path, errors);
                    path.back(mark);
                }
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let (child, mark) = match node.properties.get(name) {
                    Some(child) => (*child, path.field(name)),
                    None => match node.additional.schema() {
                        Some(child) => (child, path.key(name)),
                        None => continue,
                    },
                };
                twice(schema, child, value, path, errors);
                path.back(mark);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Tells of each key that is there more than once, at its second appearance.
fn repeated<'v>(
    items: impl Iterator<Item = &'v Value>,
    path: &mut Path,
    errors: &mut Vec<FieldError>,
    key_of: impl Fn(&Value) -> Value,
) {
    let mut seen: Vec<(Value, u32)> = Vec::new();
    for (index, item) in items.enumerate() {
        let key = key_of(item);
        match seen.iter_mut().find(|(other, _)| *other == key) {
            Some((_, times)) => {
                *times += 1;
                if *times == 2 {
                    let mark = path.index(index);
                    errors.push(FieldError::duplicate(path.shown(), key));
                    path.back(mark);
                }
            }
            None => seen.push((key, 1)),
        }
    }
}

fn has_kind(value: &Value, kind: Kind) -> bool {
    let whole = |value: &Value| {
        value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
    };
    match kind {
        Kind::Any => true,
        Kind::Object => value.is_object(),
        Kind::Array => value.is_array(),
        Kind::String => value.is_string(),
        Kind::Boolean => value.is_boolean(),
        Kind::Number => value.is_number(),
        Kind::Integer => whole(value),
        Kind::IntOrString => value.is_string() || whole(value),
    }
}

fn kind_and_format(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

/// Equality in which 1 and 1.0 are the same number.
fn same_json(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

fn is_multiple(number: f64, factor: f64) -> bool {
    let times = number / factor;
    (times - times.round()).abs() < 1e-9
}

/// A bound as the message shows it: beside a whole number as a whole number.
fn bound_text(bound: f64, beside: &Value) -> String {
    if beside.is_f64() { go_float(bound) } else { format!("{bound}") }
}
