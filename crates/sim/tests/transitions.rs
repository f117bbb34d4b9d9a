//! For every field of the spec: a live job whose field is changed and changed back is left exactly as if nobody had touched it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::{Value, json};
use trainyard_api::{State, TrainingJobSpec, crd, names};
use trainyard_plan::NewObject;
use trainyard_sim::{Make, World};

const NAME: &str = "bert";

/// What has no other value here, and why: the API server does not let anybody change it.
const IMMUTABLE: [&str; 7] =
    ["framework", "model", "dataset", "gpusPerWorker", "gpuPerWorker", "managedBy", "checkpoint.storage"];

/// Another value for every field that can be changed; for fields that have fields of their own, several.
fn others() -> Vec<(&'static str, Value)> {
    let role = |field: &str, value: Value| {
        let mut role = json!({"name": "eval", "replicas": 1});
        role[field] = value;
        ("roles", json!([role]))
    };
    vec![
        ("image", json!("my/trainer:2")),
        ("command", json!(["python", "other.py"])),
        ("args", json!(["--fast"])),
        ("numWorkers", json!(3)),
        ("workers", json!(3)),
        ("procsPerWorker", json!(2)),
        ("resources", json!({"limits": {"cpu": "2"}})),
        ("resources", json!({"requests": {"cpu": "1"}})),
        ("hyperparameters", json!({"lr": 0.1})),
        ("env", env()),
        ("envFrom", json!([{"configMapRef": {"name": "other", "optional": true}}])),
        ("envFrom", json!([{"prefix": "S_", "secretRef": {"name": "other", "optional": true}}])),
        ("dataVolume", json!({"claimName": "data"})),
        ("dataVolume", json!({"claimName": "data", "readOnly": true})),
        ("dataMountPath", json!("/other")),
        ("checkpoint", json!({"enabled": true, "frequency": 7})),
        ("checkpoint", json!({"enabled": false})),
        ("checkpoint", json!({"directory": "/other"})),
        ("checkpoint", json!({"layout": "torch"})),
        ("checkpoint", json!({"resume": "Never"})),
        ("checkpoint", json!({"keepLast": 7})),
        ("checkpoint", json!({"resumeArg": "--resume={path}"})),
        ("checkpoint", json!({"deleteOnCompletion": true})),
        ("checkpoint", json!({"holdEvictions": true})),
        ("checkpointDir", json!("/other")),
        ("checkpointInterval", json!(9)),
        ("networking", json!({"hostNetwork": true})),
        ("networking", json!({"masterPort": 12345})),
        ("networking", json!({"backend": "gloo"})),
        ("networking", json!({"interface": "eth1"})),
        ("backoffLimit", json!(1)),
        ("restartPolicy", json!("Never")),
        ("failurePolicy", json!({"restartScope": "Worker"})),
        ("failurePolicy", json!({"rules": [{"exitCodes": [3], "action": "Ignore"}]})),
        ("failurePolicy", json!({"rules": [{"reasons": ["OOMKilled"], "action": "Fail"}]})),
        ("failurePolicy", json!({"rules": [{"logPattern": "ECC", "action": "RestartWithoutCounting"}]})),
        ("successPolicy", json!("AnyWorker")),
        ("suspend", json!(true)),
        ("activeDeadlineSeconds", json!(100_000)),
        ("startupTimeoutSeconds", json!(100_000)),
        ("stallTimeoutSeconds", json!(100_000)),
        ("ttlSecondsAfterFinished", json!(5)),
        ("cleanPodPolicy", json!("All")),
        ("progress", json!({"source": "None"})),
        ("progress", json!({"totalEpochs": 12})),
        role("replicas", json!(2)),
        role("ranked", json!(true)),
        role("success", json!("Decides")),
        role("order", json!("AfterWorkers")),
        role("image", json!("my/other:1")),
        role("command", json!(["other"])),
        role("args", json!(["--other"])),
        role("env", env()),
        role("gpusPerReplica", json!(1)),
        role("resources", json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}})),
        role("template", json!({"spec": {"priorityClassName": "low"}})),
        ("template", json!({"spec": {"priorityClassName": "low"}})),
        ("template", json!({"metadata": {"labels": {"team": "other"}}})),
    ]
}

/// A variable from everywhere that one can come from.
fn env() -> Value {
    let source = |name: &str, kind: &str, value: Value| json!({"name": name, "valueFrom": {kind: value}});
    json!([
        {"name": "MODE", "value": "other"},
        source("MAP", "configMapKeyRef", json!({"name": "map", "key": "key", "optional": true})),
        source("SECRET", "secretKeyRef", json!({"name": "secret", "key": "key", "optional": true})),
        source("NODE", "fieldRef", json!({"apiVersion": "v1", "fieldPath": "spec.nodeName"})),
        source("CPU", "resourceFieldRef",
            json!({"resource": "limits.cpu", "divisor": "1", "containerName": names::CONTAINER})),
        source("FILE", "fileKeyRef",
            json!({"volumeName": "files", "path": "a.env", "key": "key", "optional": true})),
    ])
}

fn base() -> Value {
    json!({"image": "my/trainer:1", "numWorkers": 2, "checkpointDir": "/checkpoints"})
}

fn spec(value: &Value) -> TrainingJobSpec {
    serde_json::from_value(value.clone()).unwrap()
}

/// The same with this in it.
fn with(field: &str, other: &Value) -> Value {
    let mut changed = base();
    // The two names of one thing are never both there.
    if field == "workers" {
        changed.as_object_mut().unwrap().remove("numWorkers");
    }
    if other.get("directory").is_some() {
        changed.as_object_mut().unwrap().remove("checkpointDir");
    }
    // What means nothing without another.
    if field == "dataMountPath" {
        changed["dataVolume"] = json!({"claimName": "data"});
    }
    if other.get("resumeArg").is_some() {
        changed["command"] = json!(["python", "train.py"]);
    }
    changed[field] = other.clone();
    changed
}

fn live(value: &Value) -> World {
    let mut world = World::new(Make::default(), false);
    world.server().keeps_made = true;
    world.submit(NAME, spec(value));
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
    let server = world.server();
    let objects: BTreeMap<String, Value> = server
        .children()
        .map(|(kind, child)| {
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
            (format!("{} {}", kind.as_str(), child.name()), value)
        })
        .collect();
    let job = server.job(NAME).unwrap();
    let status = job.status.as_ref().unwrap();
    let conditions: BTreeSet<(String, String)> = status
        .conditions
        .iter()
        .filter(|condition| condition.status == "True")
        .map(|condition| (condition.type_.clone(), condition.reason.clone()))
        .collect();
    json!({
        "objects": objects,
        "budgets": server.budgets().keys().collect::<Vec<_>>(),
        "budget": status.disruption_budget,
        "spec": job.spec,
        "state": status.state,
        "workers": status.workers,
        "replicas": status.replicas,
        "resources": status.resources,
        "effective": status.effective,
        "conditions": conditions,
        "message": status.message,
        "completion": status.completion_time,
        "backoff": status.backoff_until,
    })
}

/// Takes the number of the attempt out of a pod.
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
        _ => {}
    }
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
                reached(value, &format!("{path}.{name}"), all, found);
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
    for (field, other) in others() {
        reached(&other, field, &all, &mut found);
    }
    assert_eq!(all.difference(&found).collect::<Vec<_>>(), Vec::<&String>::new());
}

fn wanted(field: &str) -> State {
    if field == "suspend" { State::Suspended } else { State::Running }
}

#[test]
fn there_and_back_again_leaves_nothing() {
    let before = left(&live(&base()));
    for (field, other) in others() {
        let what = format!("{field}: {other}");
        let mut world = live(&base());
        edit(&mut world, &with(field, &other));
        settle(&mut world);
        assert_eq!(world.state(NAME), Some(wanted(field)), "{what} is in effect");
        edit(&mut world, &base());
        settle(&mut world);
        assert_eq!(left(&world), before, "{what}");
        world.expect_quiet();
    }
}

/// What was there from the beginning is taken away and put back. A claim that was made meanwhile stays: there may be work in it. So do
/// the service and the config map of a job that was to be suspended before it had any.
#[test]
fn away_and_back_again_leaves_nothing() {
    for (field, other) in others().into_iter().filter(|(field, _)| *field != "suspend") {
        let what = format!("{field}: {other}");
        let set = with(field, &other);
        let before = left(&live(&set));
        let mut world = live(&set);
        edit(&mut world, &base());
        settle(&mut world);
        assert_eq!(world.state(NAME), Some(State::Running), "{what} is gone");
        edit(&mut world, &set);
        settle(&mut world);
        let mut after = left(&world);
        let known = before["objects"].as_object().unwrap();
        let objects = after["objects"].as_object_mut().unwrap();
        objects.retain(|name, _| !name.starts_with("claim ") || known.contains_key(name));
        assert_eq!(after, before, "{what}");
        world.expect_quiet();
    }
}

/// Whoever changes a mind does not wait until the first change has come to an end.
#[test]
fn there_and_at_once_back_again_leaves_nothing() {
    let before = left(&live(&base()));
    for (field, other) in others() {
        for calls in [0, 1, 2, 3, 5, 8] {
            let what = format!("{field}: {other}, back after {calls} calls");
            let mut world = live(&base());
            edit(&mut world, &with(field, &other));
            world.stop_after(world.calls() + calls);
            edit(&mut world, &base());
            settle(&mut world);
            assert_eq!(left(&world), before, "{what}");
            world.expect_quiet();
        }
    }
}
