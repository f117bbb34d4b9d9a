//! For every field of the spec: a live job whose field is changed and changed back is left exactly as if nobody had touched it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use trainyard_api::{State, TrainingJobSpec, crd, names};
use trainyard_plan::NewObject;
use trainyard_sim::{Make, World};

const NAME: &str = "bert";

/// Fields that the API server does not let anybody change.
const IMMUTABLE: [&str; 6] = ["framework", "model", "dataset", "gpusPerWorker", "gpuPerWorker", "managedBy"];

/// Another value for every field that can be changed.
fn others() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("image", json!("my/trainer:2")),
        ("command", json!(["python", "other.py"])),
        ("args", json!(["--fast"])),
        ("numWorkers", json!(3)),
        ("workers", json!(3)),
        ("procsPerWorker", json!(2)),
        ("resources", json!({"limits": {"cpu": "2"}})),
        ("hyperparameters", json!({"lr": 0.1})),
        ("env", json!([{"name": "MODE", "value": "other"}])),
        ("envFrom", json!([{"configMapRef": {"name": "other"}}])),
        ("dataVolume", json!({"claimName": "data"})),
        ("dataMountPath", json!("/other")),
        ("checkpoint", json!({"enabled": true, "frequency": 7})),
        ("checkpointDir", json!("/other")),
        ("checkpointInterval", json!(9)),
        ("networking", json!({"hostNetwork": true})),
        ("backoffLimit", json!(1)),
        ("restartPolicy", json!("Never")),
        ("failurePolicy", json!({"restartScope": "Worker"})),
        ("successPolicy", json!("AnyWorker")),
        ("suspend", json!(true)),
        ("activeDeadlineSeconds", json!(100_000)),
        ("startupTimeoutSeconds", json!(100_000)),
        ("stallTimeoutSeconds", json!(100_000)),
        ("ttlSecondsAfterFinished", json!(5)),
        ("cleanPodPolicy", json!("All")),
        ("progress", json!({"source": "None"})),
        ("roles", json!([{"name": "eval", "replicas": 1}])),
        ("template", json!({"spec": {"priorityClassName": "low"}})),
    ])
}

fn base() -> Value {
    json!({"image": "my/trainer:1", "numWorkers": 2, "checkpointDir": "/checkpoints"})
}

fn spec(value: &Value) -> TrainingJobSpec {
    serde_json::from_value(value.clone()).unwrap()
}

fn live() -> World {
    let mut world = World::new(Make::default(), false);
    world.server().keeps_made = true;
    world.submit(NAME, spec(&base()));
    settle(&mut world);
    world
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

#[test]
fn every_field_that_can_be_changed_has_another_value_here() {
    let schema = crd::schema();
    let fields = schema.properties.as_ref().and_then(|all| all["spec"].properties.as_ref()).unwrap();
    let known: BTreeSet<&str> = others().into_keys().chain(IMMUTABLE).collect();
    let all: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(all, known);
}

/// More values of fields that have fields of their own.
fn deeper() -> Vec<(&'static str, Value)> {
    vec![
        ("checkpoint", json!({"resume": "Never"})),
        ("checkpoint", json!({"keepLast": 7})),
        ("checkpoint", json!({"resumeArg": "--resume={path}"})),
        ("checkpoint", json!({"deleteOnCompletion": true})),
        ("checkpoint", json!({"holdEvictions": true})),
        ("checkpoint", json!({"enabled": false})),
        ("networking", json!({"masterPort": 12345})),
        ("networking", json!({"backend": "gloo"})),
        ("failurePolicy", json!({"rules": [{"exitCodes": [3], "action": "Ignore"}]})),
        ("roles", json!([{"name": "ps", "replicas": 2, "ranked": true}])),
        ("roles", json!([{"name": "head", "replicas": 1, "success": "Decides"}])),
        ("roles", json!([{"name": "eval", "replicas": 1, "order": "AfterWorkers"}])),
        ("template", json!({"metadata": {"labels": {"team": "other"}}})),
    ]
}

#[test]
fn there_and_back_again_leaves_nothing() {
    let before = left(&live());
    for (field, other) in others().into_iter().chain(deeper()) {
        let what = format!("{field}: {other}");
        // The two names of one thing are never both there.
        let alias = [("workers", "numWorkers")].into_iter().find(|(one, _)| *one == field);
        let mut changed = base();
        if let Some((_, twin)) = alias {
            changed.as_object_mut().unwrap().remove(twin);
        }
        // What means nothing without another.
        if field == "dataMountPath" {
            changed["dataVolume"] = json!({"claimName": "data"});
        }
        if other.get("resumeArg").is_some() {
            changed["command"] = json!(["python", "train.py"]);
        }
        changed[field] = other;
        let mut world = live();
        world.edit(NAME, |spec| {
            *spec = serde_json::from_value(changed).unwrap_or_else(|error| panic!("{field}: {error}"));
        });
        settle(&mut world);
        let wanted = if field == "suspend" { State::Suspended } else { State::Running };
        assert_eq!(world.state(NAME), Some(wanted), "{what} is in effect");
        world.edit(NAME, |spec| *spec = serde_json::from_value(base()).unwrap());
        settle(&mut world);
        assert_eq!(left(&world), before, "{what}");
        world.expect_quiet();
    }
}
