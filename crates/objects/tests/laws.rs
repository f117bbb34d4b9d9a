//! What must hold for all objects, tried on many.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use trainyard_objects::{Manager, Schema, Shape, apply, patch, track};

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let recorded: Value = serde_json::from_str(include_str!("recorded/ownership.json")).unwrap();
    Schema::compile(&recorded["schema"]).unwrap()
});

fn manager(name: &'static str) -> Manager<'static> {
    Manager { name, api_version: "test.example.com/v1", subresource: "", time: "2026-01-01T00:00:00Z" }
}

fn thing(spec: Value) -> Value {
    json!({"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec})
}

/// A few letters, so that the same ones meet.
fn name() -> impl Strategy<Value = String> {
    "[a-d]"
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![(-3..3_i64).prop_map(Value::from), name().prop_map(Value::from), Just(json!(true))];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(name(), inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn part() -> impl Strategy<Value = Map<String, Value>> {
    (option::of(0..3_i64), option::of(name())).prop_map(|(size, note)| {
        let mut part = Map::new();
        part.extend(size.map(|size| ("size".to_owned(), size.into())));
        part.extend(note.map(|note| ("note".to_owned(), note.into())));
        part
    })
}

/// A spec with every kind of list and map.
fn spec() -> impl Strategy<Value = Value> {
    (
        option::of(1..4_i64),
        option::of(btree_map(name(), name(), 0..3)),
        option::of(proptest::sample::subsequence(vec!["p", "q", "r"], 1..3)),
        // An empty list by key belongs to nobody, so nobody takes it away: it has no law.
        option::of(btree_map(name(), part(), 1..4)),
        option::of((0..2_i64, 0..2_i64)),
        option::of(btree_map(name(), any_json(), 0..3)),
        option::of(vec(0..3_i64, 0..3)),
    )
        .prop_map(|(count, labels, tags, parts, atom, free, list)| {
            let mut spec = Map::new();
            spec.insert("image".to_owned(), "abc".into());
            spec.extend(count.map(|count| ("count".to_owned(), count.into())));
            spec.extend(labels.map(|labels| ("labels".to_owned(), json!(labels))));
            spec.extend(tags.map(|tags| ("tags".to_owned(), json!(tags))));
            spec.extend(parts.map(|parts| {
                let parts = parts.into_iter().map(|(name, mut part)| {
                    part.insert("name".to_owned(), name.into());
                    Value::Object(part)
                });
                ("parts".to_owned(), parts.collect())
            }));
            spec.extend(atom.map(|(x, y)| ("atom".to_owned(), json!({"x": x, "y": y}))));
            spec.extend(free.map(|free| ("free".to_owned(), json!(free))));
            spec.extend(
                list.map(|list| ("list".to_owned(), list.into_iter().map(|a| json!({"a": a})).collect())),
            );
            Value::Object(spec)
        })
}

/// A pod's spec with lists by key, a set and single pieces, to be used as an object and as a patch.
fn pod() -> impl Strategy<Value = Value> {
    let container = (option::of(btree_map(name(), name(), 0..3)), option::of(vec(name(), 0..3)));
    (
        btree_map(name(), container, 1..3),
        option::of(btree_map(name(), name(), 0..3)),
        option::of(vec(name(), 0..2)),
        option::of(proptest::sample::subsequence(vec!["p", "q", "r"], 0..3)),
    )
        .prop_map(|(containers, selector, tolerations, finalizers)| {
            let containers: Vec<Value> = containers
                .into_iter()
                .map(|(name, (env, args))| {
                    let mut container = Map::from_iter([("name".to_owned(), name.into())]);
                    container.extend(env.map(|env| {
                        let env = env.into_iter().map(|(name, value)| json!({"name": name, "value": value}));
                        ("env".to_owned(), env.collect())
                    }));
                    container.extend(args.map(|args| ("args".to_owned(), json!(args))));
                    Value::Object(container)
                })
                .collect();
            let mut spec = Map::from_iter([("containers".to_owned(), Value::from(containers))]);
            spec.extend(selector.map(|selector| ("nodeSelector".to_owned(), json!(selector))));
            spec.extend(tolerations.map(|keys| {
                ("tolerations".to_owned(), keys.into_iter().map(|key| json!({"key": key})).collect())
            }));
            let mut metadata = Map::from_iter([("name".to_owned(), "x".into())]);
            metadata.extend(finalizers.map(|finalizers| ("finalizers".to_owned(), json!(finalizers))));
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        })
}

/// All fields that somebody owns.
fn owned(object: &Value) -> BTreeSet<String> {
    fn collect(place: &Value, path: &str, paths: &mut BTreeSet<String>) {
        let below = place.as_object().unwrap();
        if below.is_empty() || below.contains_key(".") {
            paths.insert(path.to_owned());
        }
        for (step, place) in below.iter().filter(|(step, _)| *step != ".") {
            collect(place, &format!("{path} {step}"), paths);
        }
    }
    let mut paths = BTreeSet::new();
    for entry in object["metadata"]["managedFields"].as_array().unwrap() {
        collect(&entry["fieldsV1"], "", &mut paths);
    }
    paths
}

fn without_owners(mut object: Value) -> Value {
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    object
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_twice_changes_nothing(first in spec(), second in spec()) {
        let shape = SCHEMA.shape();
        let one = apply(None, &thing(first), &manager("one"), false, shape).unwrap();
        let both = apply(Some(&one), &thing(second.clone()), &manager("two"), true, shape).unwrap();
        let again = apply(Some(&both), &thing(second), &manager("two"), false, shape).unwrap();
        prop_assert_eq!(again, both);
    }

    #[test]
    fn who_applies_alone_gets_what_he_says(first in spec(), second in spec()) {
        let shape = SCHEMA.shape();
        let before = apply(None, &thing(first), &manager("one"), false, shape).unwrap();
        let after = apply(Some(&before), &thing(second.clone()), &manager("one"), false, shape).unwrap();
        // The order of items that stay may be that of before.
        prop_assert_eq!(ordered(without_owners(after)), ordered(thing(second)));
    }

    #[test]
    fn what_others_apply_stays(first in spec(), second in spec()) {
        let shape = SCHEMA.shape();
        let one = apply(None, &thing(first.clone()), &manager("one"), false, shape).unwrap();
        let both = apply(Some(&one), &thing(second), &manager("two"), true, shape).unwrap();
        let back = apply(Some(&both), &thing(json!({})), &manager("two"), false, shape).unwrap();
        // Whatever the first said and the second did not take away is still there.
        let again = apply(Some(&back), &thing(first.clone()), &manager("one"), true, shape).unwrap();
        prop_assert_eq!(ordered(without_owners(again)), ordered(thing(first)));
    }

    #[test]
    fn an_update_that_changes_nothing_owns_nothing(first in spec(), second in spec()) {
        let shape = SCHEMA.shape();
        let mut live = thing(first);
        track(None, &mut live, &manager("one"), shape);
        let mut changed = thing(second);
        track(Some(&live), &mut changed, &manager("two"), shape);
        let mut same = without_owners(changed.clone());
        track(Some(&changed), &mut same, &manager("three"), shape);
        prop_assert_eq!(same, changed);
    }

    #[test]
    fn every_field_has_one_updater(first in spec(), second in spec()) {
        let shape = SCHEMA.shape();
        let mut live = thing(first);
        track(None, &mut live, &manager("one"), shape);
        let mut changed = thing(second);
        track(Some(&live), &mut changed, &manager("two"), shape);
        // Together they own what one who had created it would own.
        let mut alone = without_owners(changed.clone());
        track(None, &mut alone, &manager("one"), shape);
        prop_assert_eq!(owned(&changed), owned(&alone));
    }

    #[test]
    fn pruning_and_defaulting_are_done_once(spec in spec(), stray in any_json()) {
        let mut object = thing(spec);
        object["spec"]["stray"] = stray.clone();
        object["spec"]["parts"] = json!([{"name": "a", "stray": stray}]);
        SCHEMA.prune(&mut object);
        let pruned = object.clone();
        prop_assert_eq!(SCHEMA.prune(&mut object), Vec::<String>::new());
        prop_assert_eq!(&object, &pruned);
        SCHEMA.default(&mut object);
        let defaulted = object.clone();
        SCHEMA.default(&mut object);
        prop_assert_eq!(object, defaulted);
    }

    #[test]
    fn what_was_accepted_is_accepted_unchanged(spec in spec()) {
        let mut object = thing(spec);
        SCHEMA.default(&mut object);
        prop_assert_eq!(SCHEMA.validate(&object, Some(&object)), vec![]);
    }

    #[test]
    fn strategic_patches_are_applied_once(target in pod(), patch in pod()) {
        let shape = Shape::builtin("", "Pod");
        let once = patch::strategic(&target, &patch, &shape).unwrap();
        prop_assert_eq!(&patch::strategic(&once, &patch, &shape).unwrap(), &once);
        prop_assert_eq!(&patch::strategic(&target, &json!({}), &shape).unwrap(), &target);
        prop_assert_eq!(&patch::strategic(&json!({}), &target, &shape).unwrap(), &target);
        prop_assert_eq!(&patch::strategic(&target, &target, &shape).unwrap(), &target);
    }

    #[test]
    fn merge_patches_are_applied_once(target in any_json(), patch in any_json()) {
        let mut once = target;
        patch::merge(&mut once, &patch);
        let mut twice = once.clone();
        patch::merge(&mut twice, &patch);
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn nothing_panics(target in any_json(), patch in any_json(), text in ".{0,20}") {
        let shape = Shape::builtin("", "Pod");
        let _ = patch::json(&target, &json!([patch, {"op": "add", "path": text, "value": 1}]));
        let _ = patch::strategic(&target, &patch, &shape);
        let _ = apply(Some(&target), &patch, &manager("one"), true, &shape);
        let _ = Schema::compile(&patch);
        let mut object = thing(patch);
        let _ = SCHEMA.prune(&mut object);
        SCHEMA.default(&mut object);
        let _ = SCHEMA.validate(&object, Some(&target));
        let _ = trainyard_objects::LabelSelector::parse(&text);
        let _ = trainyard_objects::FieldSelector::parse(&text);
    }
}

/// Lists by key in one order.
fn ordered(mut object: Value) -> Value {
    if let Some(Value::Array(parts)) = object["spec"].get_mut("parts") {
        parts.sort_by_key(|part| part["name"].to_string());
    }
    if let Some(Value::Array(tags)) = object["spec"].get_mut("tags") {
        tags.sort_by_key(ToString::to_string);
    }
    object
}
