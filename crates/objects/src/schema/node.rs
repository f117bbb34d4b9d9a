//! One place in a compiled schema.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::format::Format;
use super::rule::Rules;
use crate::shape::ListType;

/// Index of a node in its schema. Nodes refer to each other by index, so that a schema may contain itself.
pub(super) type NodeId = usize;

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what a schema says of a place are independent flags")]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// The `format` as written: some messages show it instead of the type.
    pub(super) format_name: Box<str>,
    pub(super) nullable: bool,
    pub(super) properties: BTreeMap<String, NodeId>,
    pub(super) additional: Additional,
    pub(super) items: Option<NodeId>,
    pub(super) preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) default: Option<Box<Value>>,
    pub(super) list: ListType,
    pub(super) atomic_map: bool,
    /// Boxed, because most places check no more than the type.
    pub(super) checks: Option<Box<Checks>>,
    pub(super) rules: Option<Box<Rules>>,
    /// Whether this node or one below it has rules, defaults or unique lists: walks skip the others.
    pub(super) rules_below: bool,
    pub(super) defaults_below: bool,
    pub(super) unique_below: bool,
}

impl Node {
    /// The nodes whose conditions must all hold here.
    pub(super) fn all_of(&self) -> &[NodeId] {
        self.checks.as_ref().map_or(&[], |checks| &checks.all_of)
    }

    /// The format that a string here must have, if the server checks it.
    pub(super) fn format(&self) -> Option<Format> {
        self.checks.as_ref().and_then(|checks| checks.format)
    }
}

/// The JSON type that is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// What may stand beside the named properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Additional {
    /// Nothing is said.
    #[default]
    Unsaid,
    /// `additionalProperties: false`.
    Forbidden,
    /// `additionalProperties: true`.
    Anything,
    /// Values of this schema.
    Schema(NodeId),
}

impl Additional {
    pub(super) fn schema(self) -> Option<NodeId> {
        match self {
            Self::Schema(node) => Some(node),
            Self::Unsaid | Self::Forbidden | Self::Anything => None,
        }
    }
}

/// What a value must satisfy, apart from its type.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) minimum: Option<Bound>,
    pub(super) maximum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) pattern: Option<Regex>,
    pub(super) format: Option<Format>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) unique_items: bool,
    pub(super) min_properties: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) required: Vec<String>,
    pub(super) allowed: Vec<Value>,
    pub(super) all_of: Vec<NodeId>,
    pub(super) any_of: Vec<NodeId>,
    pub(super) one_of: Vec<NodeId>,
    pub(super) not: Option<NodeId>,
}

impl Checks {
    /// `None` if there is nothing to check.
    pub(super) fn boxed(self) -> Option<Box<Self>> {
        let Self {
            minimum: None,
            maximum: None,
            multiple_of: None,
            min_length: None,
            max_length: None,
            pattern: None,
            format: None,
            min_items: None,
            max_items: None,
            unique_items: false,
            min_properties: None,
            max_properties: None,
            required,
            allowed,
            all_of,
            any_of,
            one_of,
            not: None,
        } = &self
        else {
            return Some(Box::new(self));
        };
        let nothing = required.is_empty()
            && allowed.is_empty()
            && all_of.is_empty()
            && any_of.is_empty()
            && one_of.is_empty();
        (!nothing).then(|| Box::new(self))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) exclusive: bool,
}
