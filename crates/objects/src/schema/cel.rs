//! Evaluation of CEL rules against an object.
//!
//! kube-cel brings the language and Kubernetes' functions. The walk and the conversion of values are ours: kube-cel's own
//! converts the whole object anew at every place of the schema, and knows neither ratcheting nor list types.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use kube_cel::KubeCelExt;
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map as CelMap, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use regex::Regex;
use serde_json::{Map, Value};

use super::Schema;
use super::format::{self, Format};
use super::node::{Additional, Kind, Node, NodeId};
use super::rule::{Needs, Rule, Rules};
use super::validate::same_item;
use crate::path::Path;
use crate::shape::ListType;
use crate::{FieldError, FieldReason};

/// The language with Kubernetes' functions: made once, it is larger than most objects.
static LANGUAGE: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function("matches", matches);
    // The language's crate has no types as values; their names do as well.
    context.add_function("type", type_name);
    for name in TYPES {
        context.add_variable_from_value(name, name);
    }
    context
});

/// Evaluates all rules that apply.
pub(super) fn check(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut walk = Walk { schema, path: Path::default(), errors: Vec::new() };
    walk.node(schema.root, object, old, old.is_some_and(|old| old == object));
    walk.errors
}

struct Walk<'a> {
    schema: &'a Schema,
    path: Path,
    errors: Vec<FieldError>,
}

impl Walk<'_> {
    /// `unchanged`: the nearest part that has a counterpart in the old object equals it.
    fn node(&mut self, id: NodeId, value: &Value, old: Option<&Value>, unchanged: bool) {
        let node = self.schema.node(id);
        if !node.rules_below || value.is_null() {
            return;
        }
        if let Some(rules) = &node.rules {
            self.rules(node, id, rules, value, old, unchanged);
        }
        for branch in node.all_of() {
            self.node(*branch, value, old, false);
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let (child, mark) = match (node.properties.get(name), node.additional) {
                        (Some(property), _) => (*property, self.path.field(name)),
                        (None, Additional::Schema(values)) => (values, self.path.key(name)),
                        (None, Additional::Unsaid | Additional::Anything | Additional::Forbidden) => continue,
                    };
                    let old_value = old.and_then(|old| old.get(name));
                    let unchanged = unchanged || old_value.is_some_and(|old| old == value);
                    self.node(child, value, old_value, unchanged);
                    self.path.back(mark);
                }
            }
            Value::Array(items) => {
                let Some(item_node) = node.items else { return };
                for (index, item) in items.iter().enumerate() {
                    let old_item = match (&node.list, old) {
                        (ListType::Map(keys), Some(Value::Array(old))) => same_item(keys, item, old),
                        _ => None,
                    };
                    let unchanged = unchanged || old_item.is_some_and(|old| old == item);
                    let mark = self.path.index(index);
                    self.node(item_node, item, old_item, unchanged);
                    self.path.back(mark);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn rules(
        &mut self,
        node: &Node,
        id: NodeId,
        rules: &Rules,
        value: &Value,
        old: Option<&Value>,
        unchanged: bool,
    ) {
        let applies = |rule: &Rule| {
            if rule.transition { old.is_some() || rule.optional_old } else { !unchanged }
        };
        if !rules.rules.iter().any(applies) {
            return;
        }
        let resource = id == self.schema.root || node.embedded;
        let convert = |value: &Value| cel_value(self.schema, node, value, Some(&rules.needs), resource);
        let mut scope = LANGUAGE.new_inner_scope();
        scope.add_variable_from_value("self", convert(value));
        let cel_old = if rules.rules.iter().any(|rule| rule.transition) { old.map(convert) } else { None };
        if let Some(old) = &cel_old {
            scope.add_variable_from_value("oldSelf", old.clone());
        }
        for rule in rules.rules.iter().filter(|rule| applies(rule)) {
            let optional;
            let scope = if rule.transition && rule.optional_old {
                let mut inner = scope.new_inner_scope();
                let old = cel_old.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                inner.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
                optional = inner;
                &optional
            } else {
                &scope
            };
            let error = match rule.program.execute(scope) {
                Ok(Cel::Bool(true)) => continue,
                Ok(Cel::Bool(false)) => self.broken(node, rule, scope, value),
                Ok(_) => self.failed(node, format!("rule did not evaluate to bool: {}", rule.name())),
                Err(error) => self.failed(node, failure(&error, rule)),
            };
            self.errors.push(error);
        }
    }

    /// The rule does not hold.
    fn broken(&mut self, node: &Node, rule: &Rule, scope: &Context<'_>, value: &Value) -> FieldError {
        let detail = rule
            .message_program
            .as_ref()
            .and_then(|program| match program.execute(scope) {
                Ok(Cel::String(text)) => Some(text.trim().to_owned()),
                _ => None,
            })
            .filter(|text| !text.is_empty() && !text.contains('\n') && text.len() <= 5 * 1024)
            .unwrap_or_else(|| rule.default_message());
        // Whole objects and lists are too much to show.
        let shown = (!matches!(node.kind, Kind::Object | Kind::Array)).then(|| value.clone());
        let mark = rule.field_path.as_deref().map(|path| {
            if path.starts_with('[') {
                self.path.key(path.trim_matches(['[', ']', '\'']))
            } else {
                self.path.field(path)
            }
        });
        let path = self.path.shown();
        if let Some(mark) = mark {
            self.path.back(mark);
        }
        let detail = if rule.reason == FieldReason::Duplicate { String::new() } else { detail };
        FieldError { reason: rule.reason, path, value: shown, detail }
    }

    /// The rule could not be evaluated.
    fn failed(&self, node: &Node, detail: String) -> FieldError {
        FieldError::invalid(self.path.shown(), node.kind.name(), detail)
    }
}

fn failure(error: &ExecutionError, rule: &Rule) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key} evaluating rule: {}", rule.name()),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => {
            format!("index out of bounds: {index} evaluating rule: {}", rule.name())
        }
        ExecutionError::UndeclaredReference(name) => {
            format!("this server does not know '{name}', which is used by rule: {}", rule.name())
        }
        other => format!("{other} evaluating rule: {}", rule.name()),
    }
}

/// A JSON value as CEL sees it: by its schema, and only as far as the rules look.
fn cel_value(schema: &Schema, node: &Node, value: &Value, needs: Option<&Needs>, resource: bool) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match (node.kind, number.as_i64()) {
            (Kind::Number, _) | (_, None) => {
                let float = number.as_f64().unwrap_or(f64::NAN);
                #[expect(clippy::cast_possible_truncation, reason = "whole numbers that were written as 3.0")]
                if node.kind == Kind::Integer { Cel::Int(float as i64) } else { Cel::Float(float) }
            }
            (_, Some(whole)) => Cel::Int(whole),
        },
        Value::String(text) => cel_text(node, text),
        Value::Array(items) => {
            let convert = |item: &Value| match node.items {
                Some(items) => cel_value(schema, schema.node(items), item, None, false),
                None => untyped(item),
            };
            Cel::List(Arc::new(items.iter().map(convert).collect()))
        }
        Value::Object(fields) => {
            let needs = needs.filter(|needs| !needs.whole);
            let is_map = matches!(node.additional, Additional::Schema(_) | Additional::Anything);
            let mut map =
                HashMap::with_capacity(fields.len().min(needs.map_or(usize::MAX, |n| n.fields.len())));
            let resource = resource || node.embedded;
            for (name, value) in fields {
                let key = if is_map { name.clone() } else { escaped(name) };
                let need = match needs {
                    None => None,
                    Some(needs) => match needs.field(&key) {
                        Some(need) => Some(need),
                        None => continue,
                    },
                };
                let value = if resource && name == "metadata" {
                    metadata(value)
                } else {
                    match node.properties.get(name).copied().or(node.additional.schema()) {
                        Some(child) => cel_value(schema, schema.node(child), value, need, false),
                        None => untyped(value),
                    }
                };
                map.insert(Key::String(Arc::new(key)), value);
            }
            Cel::Map(CelMap { map: Arc::new(map) })
        }
    }
}

/// Of metadata, rules see the names only.
fn metadata(value: &Value) -> Cel {
    let names = ["name", "generateName"];
    let visible: Map<String, Value> =
        names.into_iter().filter_map(|name| Some((name.to_owned(), value.get(name)?.clone()))).collect();
    untyped(&Value::Object(visible))
}

fn cel_text(node: &Node, text: &str) -> Cel {
    let special = match node.format() {
        Some(Format::DateTime) => format::date_time(text).map(Cel::Timestamp),
        Some(Format::Date) => format::date(text).map(Cel::Timestamp),
        Some(Format::Duration) => format::duration(text).map(Cel::Duration),
        Some(Format::Byte) => decoded(text).map(|bytes| Cel::Bytes(Arc::new(bytes))),
        _ => None,
    };
    special.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

fn untyped(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Cel::Int(whole),
            None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(untyped).collect())),
        Value::Object(fields) => {
            let map =
                fields.iter().map(|(name, value)| (Key::String(Arc::new(name.clone())), untyped(value)));
            Cel::Map(CelMap { map: Arc::new(map.collect()) })
        }
    }
}

/// Words that CEL keeps for itself.
const RESERVED: [&str; 20] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

/// The name of a field in CEL, where not every name can be written.
pub(super) fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) || name == "while" {
        return format!("__{name}__");
    }
    if !name.contains(['_', '.', '-', '/']) {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| -> Option<u32> {
        Some(u32::from(match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        }))
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for byte in group {
            bits = bits << 6 | digit(*byte)?;
        }
        bits <<= 6 * (4 - group.len());
        let [_, first, second, third] = bits.to_be_bytes();
        bytes.extend([first, second, third].into_iter().take(group.len() - 1));
    }
    Some(bytes)
}

/// The types that a rule can name: `type(self.port) == string`.
const TYPES: [&str; 9] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"];

fn type_name(value: Cel) -> Arc<String> {
    let name = match value {
        Cel::Bool(_) => "bool",
        Cel::Bytes(_) => "bytes",
        Cel::Float(_) => "double",
        Cel::Int(_) => "int",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        Cel::String(_) => "string",
        Cel::UInt(_) => "uint",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Function(..) | Cel::Opaque(_) => "type",
    };
    Arc::new(name.to_owned())
}

/// `text.matches(pattern)`: the language's own compiles the pattern at every call.
fn matches(This(text): This<Arc<String>>, pattern: Arc<String>) -> Result<bool, ExecutionError> {
    /// Patterns are literals in rules, so there are few; a rule that builds them must not fill the memory.
    const KEPT: usize = 512;
    static PATTERNS: LazyLock<RwLock<HashMap<String, Regex>>> = LazyLock::new(RwLock::default);

    let known = PATTERNS.read().unwrap_or_else(PoisonError::into_inner).get(pattern.as_str()).cloned();
    if let Some(known) = known {
        return Ok(known.is_match(&text));
    }
    let compiled = Regex::new(&pattern).map_err(|error| {
        ExecutionError::function_error("matches", format!("'{pattern}' not a valid regex:\n{error}"))
    })?;
    let fits = compiled.is_match(&text);
    let mut patterns = PATTERNS.write().unwrap_or_else(PoisonError::into_inner);
    if patterns.len() >= KEPT {
        patterns.clear();
    }
    patterns.insert(pattern.as_ref().clone(), compiled);
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(rule: &Value, properties: &Value) -> Schema {
        let spec = json!({"type": "object", "properties": properties, "x-kubernetes-validations": [rule]});
        Schema::compile(&json!({"type": "object", "properties": {"spec": spec}})).unwrap()
    }

    fn complaints(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<String> {
        let wrapped = |spec: &Value| json!({"spec": spec});
        schema.validate(&wrapped(new), old.map(wrapped).as_ref()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_that_cel_cannot_write_are_escaped() {
        let text = json!({"type": "string"});
        let properties = json!({"namespace": text, "a-b": text, "c.d": text, "e__f": text, "_g": text});
        let rule = json!({"rule": "self.__namespace__ + self.a__dash__b + self.c__dot__d + self.e__underscores__f + self._g == '12345'"});
        let schema = schema(&rule, &properties);
        let spec = json!({"namespace": "1", "a-b": "2", "c.d": "3", "e__f": "4", "_g": "5"});
        assert_eq!(complaints(&schema, &spec, None), Vec::<String>::new());
    }

    #[test]
    fn an_optional_old_value_may_be_absent() {
        let rule = json!({"rule": "oldSelf.hasValue() ? oldSelf.value().n <= self.n : self.n == 1", "optionalOldSelf": true, "message": "no"});
        let schema = schema(&rule, &json!({"n": {"type": "integer"}}));
        assert_eq!(complaints(&schema, &json!({"n": 1}), None), Vec::<String>::new());
        assert_eq!(complaints(&schema, &json!({"n": 2}), None), ["spec: Invalid value: no"]);
        assert_eq!(complaints(&schema, &json!({"n": 3}), Some(&json!({"n": 2}))), Vec::<String>::new());
        assert_eq!(
            complaints(&schema, &json!({"n": 1}), Some(&json!({"n": 2}))),
            ["spec: Invalid value: no"]
        );
    }

    #[test]
    fn values_have_the_types_of_their_schema() {
        let properties = json!({
            "at": {"type": "string", "format": "date-time"},
            "data": {"type": "string", "format": "byte"},
            "ratio": {"type": "number"},
            "port": {"x-kubernetes-int-or-string": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        });
        let spec = json!({"at": "2026-01-01T00:00:00Z", "data": "aGk=", "ratio": 1, "port": "http", "labels": {"a-b": "c"}});
        for rule in [
            "self.at.getFullYear() == 2026",
            "self.data == b'hi'",
            "self.ratio / 2.0 == 0.5",
            "type(self.port) == string && type(self.ratio) != int",
            "self.labels['a-b'] == 'c'",
            "self.labels.all(k, k.matches('^[a-z-]+$'))",
            "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
        ] {
            let schema = schema(&json!({"rule": rule}), &properties);
            assert_eq!(complaints(&schema, &spec, None), Vec::<String>::new(), "{rule}");
        }
    }
}
