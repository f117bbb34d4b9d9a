//! How the lists and maps of a kind merge: by key, as a set, or as one piece.
//!
//! A shape comes from the `x-kubernetes-*` extensions of a schema or, for built-in kinds, from a table. What a shape
//! does not know is treated as an API server treats it: objects merge field by field, lists are one piece.

mod builtin;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// The shape of one kind. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shape {
    nodes: Arc<Vec<Node>>,
    root: usize,
    builtin: bool,
}

/// How a list merges.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ListType {
    /// As one piece.
    #[default]
    Atomic,
    /// By its values, each of which is there once.
    Set,
    /// By the keys of its items.
    Map(Vec<ListKey>),
}

/// One of the keys that tell the items of a list apart.
#[derive(Clone, Debug, PartialEq)]
pub struct ListKey {
    /// The field of the item.
    pub name: String,
    /// What it is if it is absent.
    pub default: Option<Value>,
}

/// How a strategic merge patch treats a field, where that differs from a plain merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// A list is merged: by this key, or as a set of values if there is none.
    pub merge: bool,
    /// The key by which items are the same.
    pub key: Option<String>,
    /// `$retainKeys` is expected: fields that are not named go.
    pub retain_keys: bool,
}

/// One place in a shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) fields: BTreeMap<String, usize>,
    pub(crate) rest: Option<usize>,
    pub(crate) items: Option<usize>,
    pub(crate) list: ListType,
    pub(crate) atomic: bool,
    /// Fields that an object of this type has even where they are not written.
    pub(crate) always: Vec<String>,
    /// Its keys are data (labels), not fields of a type.
    pub(crate) open: bool,
    pub(crate) patch: PatchStrategy,
}

/// A place in a shape that is being walked; unknown places are everywhere.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    shape: &'a Shape,
    node: Option<usize>,
}

impl Shape {
    pub(crate) fn new(nodes: Vec<Node>, root: usize) -> Self {
        Self { nodes: Arc::new(nodes), root, builtin: false }
    }

    /// The top of an object.
    pub fn root(&self) -> At<'_> {
        At { shape: self, node: Some(self.root) }
    }

    /// Whether this is the shape of a built-in kind.
    pub(crate) fn is_builtin(&self) -> bool {
        self.builtin
    }
}

impl<'a> At<'a> {
    fn node(self) -> Option<&'a Node> {
        self.node.map(|node| &self.shape.nodes[node])
    }

    /// The place of a field of an object.
    #[must_use]
    pub fn field(self, name: &str) -> Self {
        let node = self.node().and_then(|node| node.fields.get(name).copied().or(node.rest));
        Self { shape: self.shape, node }
    }

    /// The place of the items of a list.
    #[must_use]
    pub fn item(self) -> Self {
        Self { shape: self.shape, node: self.node().and_then(|node| node.items) }
    }

    /// How a list merges that is here.
    pub fn list(self) -> &'a ListType {
        self.node().map_or(&ListType::Atomic, |node| &node.list)
    }

    /// Whether an object that is here is one piece.
    pub fn is_atomic_map(self) -> bool {
        self.node().is_some_and(|node| node.atomic)
    }

    /// Whether the name is that of a field of a type, not a key that somebody chose.
    pub fn is_named(self, name: &str) -> bool {
        match self.node() {
            Some(node) => node.fields.contains_key(name) || (self.shape.builtin && !node.open),
            None => self.shape.builtin,
        }
    }

    /// Whether the field counts as there even where it is not written: the server's own types hold some parts always.
    pub(crate) fn is_always_there(self, name: &str) -> bool {
        let root = self.node == Some(self.shape.root);
        match self.node() {
            Some(node) if node.always.iter().any(|always| always == name) => true,
            // The parts of a built-in kind, but not its maps.
            Some(_) => root && self.shape.builtin && !self.field(name).node().is_some_and(|part| part.open),
            None => false,
        }
    }

    /// What a strategic merge patch does here.
    pub fn patch(self) -> Option<&'a PatchStrategy> {
        self.node().map(|node| &node.patch)
    }
}

impl Shape {
    /// The shape of a built-in kind; for an unknown one, that of its metadata.
    pub fn builtin(group: &str, kind: &str) -> Self {
        builtin::shape(group, kind)
    }
}

/// Adds the shape of every object's metadata; returns where it is.
pub(crate) fn push_metadata(nodes: &mut Vec<Node>) -> usize {
    let merged =
        |key: Option<&str>| PatchStrategy { merge: true, key: key.map(str::to_owned), retain_keys: false };
    let mut push = |node: Node| {
        nodes.push(node);
        nodes.len() - 1
    };
    // A reference to an owner is one piece.
    let owner = push(Node { atomic: true, ..Node::default() });
    let uid = ListKey { name: "uid".to_owned(), default: None };
    let owners = push(Node {
        list: ListType::Map(vec![uid]),
        items: Some(owner),
        patch: merged(Some("uid")),
        ..Node::default()
    });
    let finalizers = push(Node { list: ListType::Set, patch: merged(None), ..Node::default() });
    let map = push(Node { open: true, ..Node::default() });
    let plain = push(Node::default());
    let fields = [
        ("annotations", map),
        ("deletionGracePeriodSeconds", plain),
        ("deletionTimestamp", plain),
        ("finalizers", finalizers),
        ("generateName", plain),
        ("labels", map),
        ("ownerReferences", owners),
    ];
    let fields = fields.into_iter().map(|(name, node)| (name.to_owned(), node)).collect();
    push(Node { fields, ..Node::default() })
}
