//! For every field of the spec: a live job whose field is changed and changed back is left exactly as if nobody had touched it, and
//! meanwhile the other value is in effect.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod decisions;
mod events;
mod fields;
mod states;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::{Value, json};
use trainyard_api::{Restarts, State, TrainingJobSpec, crd, names};
use trainyard_plan::NewObject;
use trainyard_sim::{Make, World};

use fields::{Change, Cost, IMMUTABLE, changes};

const NAME: &str = "bert";

fn spec(value: &Value) -> TrainingJobSpec {
    serde_json::from_value(value.clone()).unwrap()
}

fn submitted(value: &Value) -> World {
    let mut world = World::new(Make::default(), false);
    world.server().keeps_made = true;
    world.submit(NAME, spec(value));
    world
}

fn live(value: &Value) -> World {
    let mut world = submitted(value);
    settle(&mut world);
    world
}

fn edit(world: &mut World, value: &Value) {
    world.edit(NAME, |old| *old = spec(value));
}

/// Everything comes to rest, and all pods run.
fn settle(world: &mut World) {
    for _ in 0..4 {
        world.pass(Duration::from_secs(10));
        world.release();
        world.run_all();
    }
    world.pass(Duration::from_secs(10));
}

/// What there is, without what tells of the past: numbers of attempts, identities, times.
fn left(world: &World) -> Value {
    let mut left = left_but_spec(world);
    left["spec"] = serde_json::to_value(world.server().job(NAME).map(|job| &job.spec)).unwrap();
    left
}

fn objects(world: &World) -> BTreeMap<String, Value> {
    let server = world.server();
    let objects = server.children().map(|(kind, child)| {
        let mut value = match child.made.as_deref() {
            Some(NewObject::Pod(pod)) => serde_json::to_value(pod).unwrap(),
            // These are mended when they differ: what is stored counts.
            _ => json!({
                "labels": child.value["metadata"]["labels"],
                "spec": child.value["spec"],
                "data": child.value["data"],
            }),
        };
        forget(&mut value);
        value["goes"] = child.is_deleting().into();
        value["phase"] = child.phase().into();
        (format!("{} {}", kind.as_str(), child.name()), value)
    });
    objects.collect()
}

fn left_but_spec(world: &World) -> Value {
    let status = world.status(NAME).unwrap_or_default();
    let conditions: BTreeSet<(String, String)> = status
        .conditions
        .iter()
        .filter(|condition| condition.status == "True")
        .map(|condition| (condition.type_.clone(), condition.reason.clone()))
        .collect();
    let waits = status.backoff_until.as_ref().map(|until| until.0.duration_since(world.now()).as_secs());
    json!({
        "objects": objects(world),
        "budgets": world.server().budgets().keys().collect::<Vec<_>>(),
        "budget": status.disruption_budget,
        "state": status.state,
        "workers": status.workers,
        "replicas": status.replicas,
        "resources": status.resources,
        "effective": status.effective,
        "conditions": conditions,
        "message": status.message,
        "epoch": status.current_epoch,
        "epochs": status.total_epochs,
        "progress": status.progress,
        "completed": status.completion_time.is_some(),
        "waits": waits,
    })
}

/// Takes the number of the attempt, and how far the training was, out of a pod.
fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove(names::ATTEMPT_LABEL);
            if fields.get("name").is_some_and(|name| name == "TRAINYARD_ATTEMPT") {
                fields.remove("value");
            }
            fields.values_mut().for_each(forget);
        }
        Value::Array(all) => {
            // What the agent is told.
            all.retain(|value| !value.as_str().is_some_and(|text| text.starts_with("--attempt=")));
            all.iter_mut().for_each(forget);
        }
        Value::String(text) => {
            if let Some((path, _)) = text.split_once("/step-") {
                *text = format!("{path}/step-some");
            }
        }
        _ => {}
    }
}

/// What it has cost so far: how many attempts, and restarts by cause.
fn spent(world: &World) -> (i32, Restarts) {
    let status = world.status(NAME).unwrap_or_default();
    (status.attempts.last().map_or(0, |last| last.number), status.restarts.unwrap_or_default())
}

/// What so many changes of this kind cost a job that runs, which had one attempt until then.
fn bill(cost: Cost, times: i32) -> (i32, Restarts) {
    let nothing = Restarts::default();
    match cost {
        Cost::Nothing => (1, nothing),
        Cost::Rescale => (1 + times, Restarts { rescale: times, total: times, ..nothing }),
        Cost::Update => (1 + times, Restarts { update: times, total: times, ..nothing }),
        // It begins anew when it goes on, and that is no restart.
        Cost::Suspension => (1 + times / 2, nothing),
    }
}

/// Where two values differ, and how.
fn differences(is: &Value, should: &Value, path: &str, found: &mut Vec<String>) {
    match (is, should) {
        (Value::Object(is), Value::Object(should)) => {
            for name in is.keys().chain(should.keys().filter(|name| !is.contains_key(*name))) {
                let [is, should] = [is, should].map(|fields| fields.get(name).unwrap_or(&Value::Null));
                differences(is, should, &format!("{path}/{name}"), found);
            }
        }
        (Value::Array(is), Value::Array(should)) if is.len() == should.len() => {
            for (index, (is, should)) in is.iter().zip(should).enumerate() {
                differences(is, should, &format!("{path}/{index}"), found);
            }
        }
        _ if is == should => {}
        _ => found.push(format!("{path} is {is}, not {should}")),
    }
}

#[track_caller]
fn assert_same(is: &Value, should: &Value, what: &str) {
    let mut found = Vec::new();
    differences(is, should, "", &mut found);
    assert!(found.is_empty(), "{what}: {found:#?}");
}

/// Without claims that only the other one has: there may be work in them.
fn without_older_claims(mut left: Value, known: &Value) -> Value {
    let objects = left["objects"].as_object_mut().unwrap();
    objects.retain(|name, _| !name.starts_with("claim ") || known["objects"].get(name).is_some());
    left
}

fn without_pods(mut left: Value) -> Value {
    left["objects"].as_object_mut().unwrap().retain(|name, _| !name.starts_with("pod "));
    left
}

/// All leaves of a schema, with dots between names; a list is what its items are.
fn leaves(schema: &JSONSchemaProps, path: &str, all: &mut BTreeSet<String>) {
    let mut schema = schema;
    while let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        schema = items;
    }
    match &schema.properties {
        Some(fields) => {
            for (name, field) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(field, &format!("{path}{dot}{name}"), all);
            }
        }
        None => drop(all.insert(path.to_owned())),
    }
}

/// Those of these leaves that are in a value.
fn reached(value: &Value, path: &str, all: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    if all.contains(path) {
        found.insert(path.to_owned());
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                reached(value, &format!("{path}{dot}{name}"), all, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| reached(item, path, all, found)),
        _ => {}
    }
}

#[test]
fn every_leaf_that_can_be_changed_has_another_value_here() {
    let schema = crd::schema();
    let mut all = BTreeSet::new();
    leaves(&schema.properties.as_ref().unwrap()["spec"], "", &mut all);
    assert!(all.len() > 90, "{all:?}");
    let is_fixed = |leaf: &String| {
        IMMUTABLE
            .iter()
            .any(|fixed| leaf == fixed || leaf.strip_prefix(fixed).is_some_and(|rest| rest.starts_with('.')))
    };
    all.retain(|leaf| !is_fixed(leaf));
    let mut found = BTreeSet::new();
    for change in changes() {
        reached(change.patch(), "", &all, &mut found);
    }
    assert_eq!(all.difference(&found).collect::<Vec<_>>(), Vec::<&String>::new());
}

fn wanted(change: &Change) -> State {
    if change.cost == Cost::Suspension { State::Suspended } else { State::Running }
}

/// While the other value holds, what is there is what that would have left from the beginning, and it is something else, unless
/// the field only decides about what may happen. A change costs what it must, and not a restart more.
#[test]
fn there_and_back_again_leaves_nothing() {
    for change in changes() {
        let what = change.what();
        let (here, there) = change.specs();
        let mut world = live(&here);
        let (before, unchanged) = (left(&world), left_but_spec(&world));
        edit(&mut world, &there);
        settle(&mut world);
        assert_eq!(world.state(NAME), Some(wanted(&change)), "{what} is in effect");
        let meanwhile = left_but_spec(&world);
        assert_eq!(meanwhile != unchanged, change.shows, "{what} shows");
        assert_eq!(spent(&world), bill(change.cost, 1), "what {what} costs");
        if change.cost != Cost::Suspension {
            let alone = left_but_spec(&live(&there));
            let [meanwhile, alone] = [&meanwhile, &alone].map(|left| match change.cost {
                // Those that are there are let be.
                Cost::Nothing => without_pods(left.clone()),
                _ => without_older_claims(left.clone(), &alone),
            });
            assert_same(&meanwhile, &alone, &format!("{what} from the beginning"));
        }
        edit(&mut world, &here);
        settle(&mut world);
        assert_same(&left(&world), &before, &what);
        assert_eq!(spent(&world), bill(change.cost, 2), "what {what} costs there and back");
        world.expect_quiet();
    }
}

/// What was there from the beginning is taken away and put back. A claim that was made meanwhile stays: there may be work in it. So do
/// the service and the config map of a job that was to be suspended before it had any.
#[test]
fn away_and_back_again_leaves_nothing() {
    for change in changes().into_iter().filter(|change| change.cost != Cost::Suspension) {
        let what = change.what();
        let (away, here) = change.specs();
        let mut world = live(&here);
        let before = left(&world);
        edit(&mut world, &away);
        settle(&mut world);
        assert_eq!(world.state(NAME), Some(State::Running), "{what} is gone");
        assert_eq!(spent(&world), bill(change.cost, 1), "what it costs without {what}");
        edit(&mut world, &here);
        settle(&mut world);
        assert_same(&without_older_claims(left(&world), &before), &before, &what);
        assert_eq!(spent(&world), bill(change.cost, 2), "what it costs without {what} and back");
        world.expect_quiet();
    }
}

/// Whoever changes a mind does not wait until the first change has come to an end.
#[test]
fn there_and_at_once_back_again_leaves_nothing() {
    for change in changes() {
        let (here, there) = change.specs();
        let before = left(&live(&here));
        for calls in [0, 1, 2, 3, 5, 8] {
            let what = format!("{}, back after {calls} calls", change.what());
            let mut world = live(&here);
            edit(&mut world, &there);
            world.stop_after(world.calls() + calls);
            edit(&mut world, &here);
            settle(&mut world);
            assert_same(&left(&world), &before, &what);
            let possible = [0, 1, 2].map(|times| bill(change.cost, times));
            assert!(possible.contains(&spent(&world)), "{what}: {:?}", spent(&world));
            assert!(calls > 0 || spent(&world) == possible[0], "{what}: nobody has seen it");
            world.expect_quiet();
        }
    }
}
