//! A compiled structural schema: pruning, defaulting and validation of objects.
//!
//! A schema is compiled once, when a CustomResourceDefinition arrives, and then used for every object: regular
//! expressions and CEL programs are ready, and nothing of the schema's JSON is looked at again.

mod cel;
mod compile;
mod default;
mod format;
mod node;
mod prune;
mod rule;
mod validate;

use std::sync::OnceLock;

use serde_json::Value;

use self::node::{Node, NodeId};
use crate::{FieldError, Shape};

/// A schema that is compiled once and used for every object of a kind.
#[derive(Debug)]
pub struct Schema {
    nodes: Vec<Node>,
    root: NodeId,
    /// Made when it is asked for: built-in kinds have another one.
    shape: OnceLock<Shape>,
}

impl Schema {
    /// Compiles an `openAPIV3Schema`, refusing what an API server refuses: a schema that is not structural, patterns
    /// and rules that cannot be compiled, defaults that are not valid.
    ///
    /// The paths of the errors are relative to the schema: `properties[spec].type`.
    pub fn compile(schema: &Value) -> Result<Self, Vec<FieldError>> {
        compile::compile(schema)
    }

    /// Removes the fields that the schema does not know and returns their paths in order, for
    /// `unknown field "spec.foo"`. At the root and in embedded resources, `apiVersion`, `kind` and what every
    /// object's metadata can hold is known without being in the schema.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(self, object)
    }

    /// Fills in defaults, and removes nulls that are neither allowed nor to be replaced by a default.
    pub fn default(&self, object: &mut Value) {
        default::default(self, object);
    }

    /// Everything that is wrong with an object: types, bounds, formats, required fields, uniqueness in lists and, if
    /// those leave an object that rules can look at, the CEL rules.
    ///
    /// With the old object, a value that was already wrong and stays as it is is accepted, and rules about the
    /// transition (`oldSelf`) are checked.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        validate::validate(self, object, old)
    }

    /// How the lists and maps of the kind merge.
    pub fn shape(&self) -> &Shape {
        self.shape.get_or_init(|| compile::shape_of(&self.nodes, self.root))
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }
}
