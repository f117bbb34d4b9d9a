//! From the JSON of an `openAPIV3Schema` to a compiled schema, with the refusals of an API server.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::Schema;
use super::cel;
use super::format::Format;
use super::node::{Additional, Bound, Checks, Kind, Node, NodeId};
use super::rule::{self, Needs, Rules};
use crate::FieldError;
use crate::shape::{self, ListKey, ListType, Shape};

/// Deeper than anybody writes, and far from the end of the stack.
const DEEPEST: usize = 128;

pub(super) fn compile(schema: &Value) -> Result<Schema, Vec<FieldError>> {
    let mut compiler = Compiler { nodes: Vec::new(), errors: Vec::new() };
    let root = compiler.node(schema, String::new(), Level::Root, 0);
    let Compiler { mut nodes, mut errors } = compiler;
    look_below(&mut nodes);
    nodes.shrink_to_fit();
    let schema = Schema { nodes, root, shape: OnceLock::new() };
    if errors.is_empty() {
        errors.extend(bad_defaults(&schema, root, String::new()));
    }
    if errors.is_empty() {
        return Ok(schema);
    }
    errors.sort_by_cached_key(ToString::to_string);
    Err(errors)
}

/// Where a schema stands in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
    /// Below `allOf`, `anyOf`, `oneOf` or `not`, where only conditions may stand.
    Condition,
}

struct Compiler {
    nodes: Vec<Node>,
    errors: Vec<FieldError>,
}

impl Compiler {
    /// `path` ends with a dot, unless it is empty.
    fn node(&mut self, schema: &Value, path: String, level: Level, depth: usize) -> NodeId {
        let id = self.nodes.len();
        self.nodes.push(Node::default());
        let Some(schema) = schema.as_object() else {
            self.errors.push(FieldError::invalid(trimmed(&path), schema.clone(), "must be a schema"));
            return id;
        };
        if depth > DEEPEST {
            self.errors.push(FieldError::forbidden(trimmed(&path), "is nested too deeply"));
            return id;
        }
        let structure = Structure::read(schema);
        self.structural(schema, &structure, &path, level);
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();

        let mut node = Node {
            kind: structure.kind,
            format_name: text("format").into(),
            nullable: flag("nullable"),
            preserve_unknown: structure.preserve_unknown,
            embedded: structure.embedded,
            default: schema.get("default").filter(|default| !default.is_null()).cloned().map(Box::new),
            atomic_map: text("x-kubernetes-map-type") == "atomic",
            ..Node::default()
        };
        node.checks = self.checks(schema, &structure, &path, depth).boxed();
        let below = |level: Level, other: Level| if level == Level::Condition { level } else { other };
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let path = format!("{path}properties[{name}].");
            let child = self.node(property, path, below(level, Level::Field), depth + 1);
            node.properties.insert(name.clone(), child);
        }
        node.additional = match schema.get("additionalProperties") {
            None | Some(Value::Null) => Additional::Unsaid,
            Some(Value::Bool(true)) => Additional::Anything,
            Some(Value::Bool(false)) => Additional::Forbidden,
            Some(values) => {
                let path = format!("{path}additionalProperties.");
                Additional::Schema(self.node(values, path, below(level, Level::Field), depth + 1))
            }
        };
        node.items = schema
            .get("items")
            .map(|items| self.node(items, format!("{path}items."), below(level, Level::Item), depth + 1));
        node.list = self.list_type(schema, &node, &path);
        if let Some(rules) =
            schema.get("x-kubernetes-validations").and_then(Value::as_array).filter(|r| !r.is_empty())
        {
            match Rules::compile(rules, &path) {
                Ok(compiled) => {
                    let resource = level == Level::Root || node.embedded;
                    self.unknown_to_rules(&node, &compiled, rules, &path, resource);
                    node.rules = Some(Box::new(compiled));
                }
                Err(errors) => self.errors.extend(errors),
            }
        }
        self.nodes[id] = node;
        id
    }

    /// What makes a schema structural.
    fn structural(&mut self, schema: &Map<String, Value>, structure: &Structure, path: &str, level: Level) {
        let mut forbid =
            |field: &str, why: &str| self.errors.push(FieldError::forbidden(format!("{path}{field}"), why));
        let has = |field: &str| schema.get(field).is_some_and(|value| !value.is_null());
        for field in ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id"] {
            if has(field) {
                forbid(field, &format!("{field} is not supported"));
            }
        }
        if has("properties") && schema.get("additionalProperties").is_some_and(Value::is_object) {
            forbid("additionalProperties", "additionalProperties and properties are mutual exclusive");
        }
        if level == Level::Condition {
            self.condition(schema, path);
            return;
        }
        if level == Level::Root && has("additionalProperties") {
            forbid("additionalProperties", "must not be used at the root");
        }
        let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if structure.embedded && kind != "object" {
            let why = "must be object if x-kubernetes-embedded-resource is true";
            self.errors.push(match kind {
                "" => FieldError::required(format!("{path}type"), why),
                other => FieldError::invalid(format!("{path}type"), other, why),
            });
        } else if kind.is_empty() && !structure.int_or_string && !structure.preserve_unknown {
            let why = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field | Level::Condition => "must not be empty for specified object fields",
            };
            self.errors.push(FieldError::required(format!("{path}type"), why));
        }
        if !kind.is_empty() && Kind::from_name(kind).is_none() {
            let supported = ["array", "boolean", "integer", "number", "object", "string"];
            self.errors.push(FieldError::not_supported(format!("{path}type"), kind, &supported));
        }
        if level == Level::Root && !kind.is_empty() && kind != "object" {
            self.errors.push(FieldError::invalid(format!("{path}type"), kind, "must be object at the root"));
        }
        if kind == "array" && !has("items") {
            self.errors.push(FieldError::required(format!("{path}items"), "must be specified"));
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.errors.push(FieldError::forbidden(format!("{path}uniqueItems"), why));
        }
        if has("x-kubernetes-map-type") && kind != "object" {
            let why = "must be object if x-kubernetes-map-type is specified";
            self.errors.push(FieldError::invalid(format!("{path}type"), kind, why));
        }
        if structure.int_or_string && structure.preserve_unknown {
            let why = "must be false if x-kubernetes-int-or-string is true";
            self.errors.push(FieldError::invalid(
                format!("{path}x-kubernetes-preserve-unknown-fields"),
                true,
                why,
            ));
        }
        if level == Level::Root
            && let Some(metadata) = schema.get("properties").and_then(|properties| properties.get("metadata"))
        {
            let allowed = |name: &String| name == "name" || name == "generateName";
            let only_names = metadata
                .get("properties")
                .and_then(Value::as_object)
                .is_none_or(|properties| properties.keys().all(allowed));
            if !only_names {
                let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
                self.errors.push(FieldError::forbidden(format!("{path}properties[metadata]"), why));
            }
        }
    }

    fn condition(&mut self, schema: &Map<String, Value>, path: &str) {
        let undefined = "must be undefined to be structural";
        let empty = "must be empty to be structural";
        let untrue = "must be false to be structural";
        let table = [
            ("type", empty),
            ("additionalProperties", undefined),
            ("default", undefined),
            ("title", empty),
            ("description", empty),
            ("nullable", untrue),
            ("x-kubernetes-preserve-unknown-fields", untrue),
            ("x-kubernetes-embedded-resource", untrue),
            ("x-kubernetes-int-or-string", untrue),
            ("x-kubernetes-list-map-keys", empty),
            ("x-kubernetes-list-type", undefined),
            ("x-kubernetes-map-type", undefined),
            ("x-kubernetes-validations", empty),
        ];
        for (field, why) in table {
            let set = !matches!(schema.get(field), None | Some(Value::Null | Value::Bool(false)));
            if set {
                self.errors.push(FieldError::forbidden(format!("{path}{field}"), why));
            }
        }
        if schema.get("properties").is_some_and(|properties| properties.get("metadata").is_some()) {
            let why = "must not be specified in a nested context";
            self.errors.push(FieldError::forbidden(format!("{path}properties[metadata]"), why));
        }
    }

    fn checks(
        &mut self,
        schema: &Map<String, Value>,
        structure: &Structure,
        path: &str,
        depth: usize,
    ) -> Checks {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let count = |name: &str| schema.get(name).and_then(Value::as_u64);
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let bound = |name: &str, exclusive: &str| {
            number(name).map(|value| Bound { value, exclusive: flag(exclusive) })
        };
        let strings = |name: &str| -> Vec<String> {
            let list = schema.get(name).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        let pattern = schema.get("pattern").and_then(Value::as_str).filter(|pattern| !pattern.is_empty());
        let pattern = pattern.and_then(|pattern| match Regex::new(pattern) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                let detail = format!("must be a valid regular expression, but isn't: {error}");
                self.errors.push(FieldError::invalid(format!("{path}pattern"), pattern, detail));
                None
            }
        });
        let mut branches = |name: &str, skipped: bool| -> Vec<NodeId> {
            let list = schema.get(name).and_then(Value::as_array).filter(|_| !skipped);
            let list = list.into_iter().flatten().enumerate();
            list.map(|(index, branch)| {
                let path = format!("{path}{name}[{index}].");
                // The one form in which types may stand here is that of `x-kubernetes-int-or-string`.
                if structure.int_or_string && name == "allOf" && is_int_or_string(branch.get("anyOf")) {
                    let mut rest = branch.clone();
                    if let Some(rest) = rest.as_object_mut() {
                        rest.remove("anyOf");
                    }
                    return self.node(&rest, path, Level::Condition, depth + 1);
                }
                self.node(branch, path, Level::Condition, depth + 1)
            })
            .collect()
        };
        let typed_any_of = structure.int_or_string && is_int_or_string(schema.get("anyOf"));
        let any_of = branches("anyOf", typed_any_of);
        let one_of = branches("oneOf", false);
        let all_of = branches("allOf", false);
        let not = schema.get("not").filter(|not| not.is_object());
        let not = not.map(|not| self.node(not, format!("{path}not."), Level::Condition, depth + 1));
        Checks {
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf").filter(|factor| *factor > 0.0),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern,
            format: schema.get("format").and_then(Value::as_str).and_then(Format::from_name),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            required: strings("required"),
            allowed: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            all_of,
            any_of,
            one_of,
            not,
        }
    }

    /// Rules about fields that the schema does not have.
    fn unknown_to_rules(
        &mut self,
        node: &Node,
        compiled: &Rules,
        sources: &[Value],
        path: &str,
        resource: bool,
    ) {
        for (index, (rule, source)) in compiled.rules.iter().zip(sources).enumerate() {
            let path = format!("{path}x-kubernetes-validations[{index}]");
            for (field, program) in rule.programs() {
                let mut needs = Needs::default();
                needs.collect(program.expression());
                if let Some(unknown) = self.unknown_field(node, &needs, resource) {
                    let detail = format!("{}: undefined field '{unknown}'", rule::failed_to_compile(field));
                    self.errors.push(FieldError::invalid(
                        format!("{path}.{field}"),
                        rule::shown(source),
                        detail,
                    ));
                }
            }
            let Some(field_path) = &rule.field_path else { continue };
            // Only plain paths are looked at; those with brackets are rare and left to the reader of the message.
            let plain = !field_path.contains('[');
            let mut needs = Needs::default();
            needs.reach(field_path.split('.'));
            if plain && self.unknown_field(node, &needs, resource).is_some() {
                let given = source.get("fieldPath").cloned().unwrap_or_default();
                self.errors.push(FieldError::invalid(
                    format!("{path}.fieldPath"),
                    given,
                    "must be a valid path",
                ));
            }
        }
    }

    /// A field that is looked at and that the schema cannot have, if there is one.
    fn unknown_field(&self, node: &Node, needs: &Needs, resource: bool) -> Option<String> {
        if matches!(node.kind, Kind::String | Kind::Integer | Kind::Number | Kind::Boolean) {
            // A single value has no fields at all.
            return needs.fields.keys().next().cloned();
        }
        if node.kind != Kind::Object || node.additional != Additional::Unsaid {
            return None;
        }
        needs.fields.iter().find_map(|(name, needs)| {
            if resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                return None;
            }
            match node
                .properties
                .iter()
                .find(|(property, _)| cel::escaped(property) == *name || *property == name)
            {
                Some((_, child)) => {
                    self.unknown_field(&self.nodes[*child], needs, self.nodes[*child].embedded)
                }
                None => Some(name.clone()),
            }
        })
    }

    fn list_type(&mut self, schema: &Map<String, Value>, node: &Node, path: &str) -> ListType {
        let Some(list_type) = schema.get("x-kubernetes-list-type").and_then(Value::as_str) else {
            return ListType::Atomic;
        };
        let mut refuse = |error: FieldError| {
            self.errors.push(error);
            ListType::Atomic
        };
        if node.kind != Kind::Array {
            let why = "must be array if x-kubernetes-list-type is specified";
            return refuse(FieldError::invalid(format!("{path}type"), node.kind.name(), why));
        }
        match list_type {
            "atomic" => ListType::Atomic,
            "set" => ListType::Set,
            "map" => {
                let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys: Vec<&str> = keys.into_iter().flatten().filter_map(Value::as_str).collect();
                let keys_path = format!("{path}x-kubernetes-list-map-keys");
                let items = schema.get("items");
                let item = |field: &str| items.and_then(|items| items.get(field));
                let item_type = item("type").and_then(Value::as_str).unwrap_or_default();
                if item_type != "object" {
                    let why = "must be object if parent array's x-kubernetes-list-type is map";
                    refuse(FieldError::invalid(format!("{path}items.type"), item_type, why));
                }
                if keys.is_empty() {
                    let why = "must not be empty if x-kubernetes-list-type is map";
                    return refuse(FieldError::required(keys_path, why));
                }
                let mut found = Vec::new();
                for key in &keys {
                    let Some(property) = item("properties").and_then(|properties| properties.get(*key))
                    else {
                        let why = "entries must all be names of item properties";
                        return refuse(FieldError::invalid(keys_path, keys.clone(), why));
                    };
                    let default = property.get("default").filter(|default| !default.is_null()).cloned();
                    let required = item("required").and_then(Value::as_array);
                    let required = required.is_some_and(|names| names.iter().any(|name| name == *key));
                    if default.is_none() && !required {
                        let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                                   required property";
                        return refuse(FieldError::required(
                            format!("{path}items.properties[{key}].default"),
                            why,
                        ));
                    }
                    found.push(ListKey { name: (*key).to_owned(), default });
                }
                ListType::Map(found)
            }
            other => {
                let path = format!("{path}x-kubernetes-list-type");
                refuse(FieldError::not_supported(path, other, &["atomic", "set", "map"]))
            }
        }
    }
}

/// What decides how the rest of a schema is read.
struct Structure {
    kind: Kind,
    int_or_string: bool,
    preserve_unknown: bool,
    embedded: bool,
}

impl Structure {
    fn read(schema: &Map<String, Value>) -> Self {
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let int_or_string = flag("x-kubernetes-int-or-string");
        let kind = match schema.get("type").and_then(Value::as_str) {
            _ if int_or_string => Kind::IntOrString,
            Some(name) => Kind::from_name(name).unwrap_or_default(),
            None => Kind::Any,
        };
        Self {
            kind,
            int_or_string,
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
        }
    }
}

fn is_int_or_string(any_of: Option<&Value>) -> bool {
    let types: Vec<Option<&str>> = any_of
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|branch| branch.get("type").and_then(Value::as_str))
        .collect();
    types == [Some("integer"), Some("string")]
}

fn trimmed(path: &str) -> String {
    path.trim_end_matches('.').to_owned()
}

/// Marks the nodes below which there is something to do. Repeated until nothing changes, because nodes may form circles.
fn look_below(nodes: &mut [Node]) {
    loop {
        let mut changed = false;
        for id in 0..nodes.len() {
            let node = &nodes[id];
            let children = node
                .properties
                .values()
                .copied()
                .chain(node.additional.schema())
                .chain(node.items)
                .chain(node.all_of().iter().copied());
            let (mut rules, mut defaults, mut unique) = (
                node.rules.is_some() || node.rules_below,
                node.default.is_some() || node.defaults_below,
                node.list != ListType::Atomic || node.unique_below,
            );
            for child in children {
                let child = &nodes[child];
                rules |= child.rules_below;
                defaults |= child.defaults_below;
                unique |= child.unique_below;
            }
            let node = &mut nodes[id];
            changed |=
                (rules, defaults, unique) != (node.rules_below, node.defaults_below, node.unique_below);
            (node.rules_below, node.defaults_below, node.unique_below) = (rules, defaults, unique);
        }
        if !changed {
            return;
        }
    }
}

/// Nodes of the shape are the nodes of the schema, with the metadata that every object has.
pub(super) fn shape_of(nodes: &[Node], root: NodeId) -> Shape {
    let mut shapes: Vec<shape::Node> = nodes
        .iter()
        .map(|node| shape::Node {
            fields: node.properties.clone(),
            rest: node.additional.schema(),
            items: node.items,
            list: node.list.clone(),
            atomic: node.atomic_map,
            always: Vec::new(),
            open: node.additional.schema().is_some(),
            patch: shape::PatchStrategy::default(),
        })
        .collect();
    let metadata = shape::push_metadata(&mut shapes);
    shapes[root].fields.insert("metadata".to_owned(), metadata);
    for (id, node) in nodes.iter().enumerate() {
        if node.embedded {
            shapes[id].fields.insert("metadata".to_owned(), metadata);
        }
    }
    Shape::new(shapes, root)
}

/// Defaults that the schema itself would refuse, or that hold fields it does not know.
fn bad_defaults(schema: &Schema, id: NodeId, path: String) -> Vec<FieldError> {
    let node = schema.node(id);
    let mut errors = Vec::new();
    if let Some(default) = &node.default {
        let path = format!("{path}default");
        // The node alone, as if it were a schema of its own.
        errors.extend(super::validate::below(schema, id, default).into_iter().map(|error| {
            let place = if error.path == "<nil>" { path.clone() } else { format!("{path}.{}", error.path) };
            FieldError { path: place, ..error }
        }));
        if errors.is_empty() {
            let mut pruned = (**default).clone();
            let unknown = super::prune::below(schema, id, &mut pruned);
            if !unknown.is_empty() {
                errors.push(FieldError::invalid(path, (**default).clone(), "must not have unknown fields"));
            }
        }
    }
    let children = node
        .properties
        .iter()
        .map(|(name, child)| (format!("{path}properties[{name}]."), *child))
        .chain(node.items.map(|items| (format!("{path}items."), items)))
        .chain(node.additional.schema().map(|values| (format!("{path}additionalProperties."), values)));
    for (path, child) in children.collect::<Vec<_>>() {
        if schema.node(child).defaults_below {
            errors.extend(bad_defaults(schema, child, path));
        }
    }
    errors
}
