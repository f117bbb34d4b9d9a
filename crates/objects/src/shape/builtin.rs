//! The shapes of the built-in kinds, from a table that is made from an API server's own description of them
//! (`examples/shapes.rs`).
//!
//! A line is the name of a type (of a kind: `group/Kind`) and its fields that are not plain:
//!
//! | sign | the field is |
//! |---|---|
//! | `x:Type` | of a type that has a line of its own |
//! | `x:@` | an object's metadata |
//! | `x:{}Type` | a map of that type, with keys that users choose |
//! | `x:[a,b=c]Type` | a list whose items are told apart by `a` and `b`, which is `c` if absent |
//! | `x:[]Type` | a list that is one piece, except for strategic merge patches |
//! | `x:<>` | a set |
//! | `x:!`, or `!` alone | one piece |
//! | `^` before these | always there in the server's own types, if only as null |
//! | `~key`, `~` | merged by a strategic merge patch: by that key, or as a set |
//! | `~!` | a strategic merge patch expects `$retainKeys` here |

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::{ListKey, ListType, Node, PatchStrategy, Shape, push_metadata};

const TABLE: &str = include_str!("builtin.txt");

struct Table {
    nodes: Arc<Vec<Node>>,
    kinds: HashMap<&'static str, usize>,
    /// The shape of a kind of which only the metadata is known.
    other: usize,
}

static BUILTIN: LazyLock<Table> = LazyLock::new(read);

pub(super) fn shape(group: &str, kind: &str) -> Shape {
    let table = &*BUILTIN;
    let root = table.kinds.get(format!("{group}/{kind}").as_str()).copied().unwrap_or(table.other);
    Shape { nodes: Arc::clone(&table.nodes), root, builtin: true }
}

fn read() -> Table {
    let mut nodes = Vec::new();
    let metadata = push_metadata(&mut nodes);
    let mut lines: Vec<(&'static str, &'static str)> = Vec::new();
    let mut types: HashMap<&'static str, usize> = HashMap::new();
    for line in TABLE.lines() {
        let (name, fields) = line.split_once(' ').unwrap_or((line, ""));
        types.insert(name, nodes.len());
        lines.push((name, fields));
        nodes.push(Node::default());
    }
    let plain = nodes.len();
    nodes.push(Node::default());
    let other = nodes.len();
    nodes.push(Node { fields: [("metadata".to_owned(), metadata)].into(), ..Node::default() });
    for (name, fields) in &lines {
        let Some(&id) = types.get(name) else { continue };
        for field in fields.split_ascii_whitespace() {
            if field == "!" {
                nodes[id].atomic = true;
                continue;
            }
            let Some((field, signs)) = field.split_once(':') else { continue };
            let child = match signs {
                "@" => metadata,
                _ => child(&mut nodes, &types, plain, signs.trim_start_matches('^')),
            };
            if signs.starts_with('^') {
                nodes[id].always.push(field.to_owned());
            }
            nodes[id].fields.insert(field.to_owned(), child);
        }
    }
    let kinds = lines.iter().filter(|(name, _)| name.contains('/'));
    let kinds = kinds.filter_map(|(name, _)| Some((*name, *types.get(name)?))).collect();
    Table { nodes: Arc::new(nodes), kinds, other }
}

fn child(nodes: &mut Vec<Node>, types: &HashMap<&'static str, usize>, plain: usize, signs: &str) -> usize {
    let mut strategies = signs.split('~');
    let form = strategies.next().unwrap_or_default();
    let mut patch = PatchStrategy::default();
    for strategy in strategies {
        match strategy {
            "!" => patch.retain_keys = true,
            "" => patch.merge = true,
            key => {
                patch.merge = true;
                patch.key = Some(key.to_owned());
            }
        }
    }
    let of = |name: &str| types.get(name).copied().unwrap_or(plain);
    let node = if form == "!" {
        Node { atomic: true, patch, ..Node::default() }
    } else if form == "<>" {
        Node { list: ListType::Set, items: Some(plain), patch, ..Node::default() }
    } else if let Some(name) = form.strip_prefix("{}") {
        Node { open: true, rest: Some(of(name)), patch, ..Node::default() }
    } else if let Some((keys, name)) = form.strip_prefix('[').and_then(|form| form.split_once(']')) {
        let keys: Vec<ListKey> = keys
            .split(',')
            .filter(|key| !key.is_empty())
            .map(|key| match key.split_once('=') {
                Some((name, default)) => {
                    ListKey { name: name.to_owned(), default: Some(Value::from(default)) }
                }
                None => ListKey { name: key.to_owned(), default: None },
            })
            .collect();
        let list = if keys.is_empty() { ListType::Atomic } else { ListType::Map(keys) };
        Node { list, items: Some(of(name)), patch, ..Node::default() }
    } else if patch == PatchStrategy::default() {
        return of(form);
    } else {
        Node { patch, ..nodes[of(form)].clone() }
    };
    nodes.push(node);
    nodes.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let pod = Shape::builtin("", "Pod");
        let containers = pod.root().field("spec").field("containers");
        assert!(matches!(containers.list(), ListType::Map(keys) if keys[0].name == "name"));
        let ports = containers.item().field("ports");
        let ListType::Map(keys) = ports.list() else { panic!("{ports:?}") };
        assert_eq!(keys[1], ListKey { name: "protocol".to_owned(), default: Some("TCP".into()) });
        assert_eq!(ports.patch().and_then(|patch| patch.key.as_deref()), Some("containerPort"));
        assert!(pod.root().field("spec").is_always_there("containers"));
        assert!(pod.root().field("spec").field("nodeSelector").is_atomic_map());
        assert_eq!(*pod.root().field("spec").field("tolerations").list(), ListType::Atomic);
        let volumes = pod.root().field("spec").field("volumes").patch().unwrap();
        assert!(volumes.merge && volumes.retain_keys && volumes.key.as_deref() == Some("name"));
        assert!(!pod.root().field("metadata").field("labels").is_named("app"));
        assert!(pod.root().field("spec").is_named("hostname"));
        let template = Shape::builtin("apps", "Deployment");
        let containers = template.root().field("spec").field("template").field("spec").field("containers");
        assert!(matches!(containers.list(), ListType::Map(_)));
        let other = Shape::builtin("example.com", "Unheard");
        assert!(matches!(other.root().field("metadata").field("ownerReferences").list(), ListType::Map(_)));
    }

    #[test]
    fn every_type_in_the_table_has_a_line() {
        let names: Vec<&str> = TABLE.lines().filter_map(|line| line.split(' ').next()).collect();
        for line in TABLE.lines() {
            for field in line.split(' ').skip(1) {
                let Some((_, signs)) = field.split_once(':') else { continue };
                let form = signs.trim_start_matches('^').split('~').next().unwrap_or_default();
                let name = form.rsplit([']', '}', '>']).next().unwrap_or_default();
                assert!(matches!(name, "" | "!" | "@") || names.contains(&name), "{line}");
            }
        }
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name} is there twice");
        }
    }
}
