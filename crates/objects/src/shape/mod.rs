//! How the lists and maps of a kind merge: by key, as a set, or as one piece.
//!
//! A shape comes from the `x-kubernetes-*` extensions of a schema or, for built-in kinds, from a table. What a shape
//! does not know is treated as an API server treats it: objects merge field by field, lists are one piece.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// The shape of one kind. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shape {
    nodes: Arc<Vec<Node>>,
    root: usize,
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
    pub(crate) patch: PatchStrategy,
}

/// A place in a shape that is being walked; unknown places are everywhere.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    nodes: &'a [Node],
    node: Option<usize>,
}

impl Shape {
    pub(crate) fn new(nodes: Vec<Node>, root: usize) -> Self {
        Self { nodes: Arc::new(nodes), root }
    }

    /// The top of an object.
    pub fn root(&self) -> At<'_> {
        At { nodes: &self.nodes, node: Some(self.root) }
    }
}

impl<'a> At<'a> {
    fn node(self) -> Option<&'a Node> {
        self.node.map(|node| &self.nodes[node])
    }

    /// The place of a field of an object.
    #[must_use]
    pub fn field(self, name: &str) -> Self {
        let node = self.node().and_then(|node| node.fields.get(name).copied().or(node.rest));
        Self { nodes: self.nodes, node }
    }

    /// The place of the items of a list.
    #[must_use]
    pub fn item(self) -> Self {
        Self { nodes: self.nodes, node: self.node().and_then(|node| node.items) }
    }

    /// How a list merges that is here.
    pub fn list(self) -> &'a ListType {
        self.node().map_or(&ListType::Atomic, |node| &node.list)
    }

    /// Whether an object that is here is one piece.
    pub fn is_atomic_map(self) -> bool {
        self.node().is_some_and(|node| node.atomic)
    }

    /// What a strategic merge patch does here.
    pub fn patch(self) -> Option<&'a PatchStrategy> {
        self.node().map(|node| &node.patch)
    }
}

impl Shape {
    /// The shape of a built-in kind; for an unknown one, that of its metadata.
    pub fn builtin(group: &str, kind: &str) -> Self {
        let _ = (group, kind);
        let mut nodes = vec![Node::default()];
        let metadata = push_metadata(&mut nodes);
        nodes[0].fields.insert("metadata".to_owned(), metadata);
        Self::new(nodes, 0)
    }
}

/// Adds the shape of every object's metadata; returns where it is.
pub(crate) fn push_metadata(nodes: &mut Vec<Node>) -> usize {
    let start = nodes.len();
    let key = ListKey { name: "uid".to_owned(), default: None };
    nodes.push(Node {
        fields: BTreeMap::from([
            ("ownerReferences".to_owned(), start + 1),
            ("finalizers".to_owned(), start + 2),
        ]),
        ..Node::default()
    });
    nodes.push(Node {
        list: ListType::Map(vec![key]),
        items: Some(start + 3),
        patch: PatchStrategy { merge: true, key: Some("uid".to_owned()), retain_keys: false },
        ..Node::default()
    });
    nodes.push(Node {
        list: ListType::Set,
        patch: PatchStrategy { merge: true, key: None, retain_keys: false },
        ..Node::default()
    });
    // A reference to an owner is one piece.
    nodes.push(Node { atomic: true, ..Node::default() });
    start
}
