//! Another value for every field of the spec that can be changed: what that costs a job that runs, and where it shows.

use serde_json::{Value, json};
use trainyard_api::{Checkpoint, FailurePolicy, Networking, ProgressSpec, Role, TrainingJobSpec, names};

use super::events::{self, Event};

/// What has no other value here: the API server does not let anybody change it.
pub(super) const IMMUTABLE: [&str; 7] =
    ["framework", "model", "dataset", "gpusPerWorker", "gpuPerWorker", "managedBy", "checkpoint.storage"];

/// What a change costs a job that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    Nothing,
    Rescale,
    Update,
    Suspension,
}

/// A field, and another value for it.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// What the field is in, from the spec down.
    pub(super) field: String,
    /// What is in a spec in which the field means something, over the usual.
    given: Value,
    /// What is then changed.
    patch: Value,
    pub(super) cost: Cost,
    /// Something else than the spec is different while a healthy job runs with it.
    pub(super) shows: bool,
    /// What has to happen for the field to decide about it.
    pub(super) event: Option<Event>,
}

impl Change {
    fn new(value: Value, cost: Cost) -> Self {
        let (field, given) = (String::new(), json!({}));
        Self { field, given, patch: value, cost, shows: true, event: None }
    }

    /// It means something only in a spec with this.
    fn given(self, given: Value) -> Self {
        Self { given, ..self }
    }

    /// It decides about this.
    fn about(self, event: Event) -> Self {
        Self { event: Some(event), ..self }
    }

    fn inside(mut self, name: &str) -> Self {
        self.field = if self.field.is_empty() { name.to_owned() } else { format!("{name}.{}", self.field) };
        self.patch = json!({ name: self.patch });
        self
    }

    pub(super) fn what(&self) -> String {
        format!("{}: {}", self.field, self.patch)
    }

    /// The spec as it is, and with the other value.
    pub(super) fn specs(&self) -> (Value, Value) {
        let mut before = json!({"image": "my/trainer:1", "numWorkers": 2, "checkpointDir": "/checkpoints"});
        merge(&mut before, &self.given);
        let mut after = before.clone();
        merge(&mut after, &self.patch);
        (before, after)
    }

    /// The other value, where it stands.
    pub(super) fn patch(&self) -> &Value {
        &self.patch
    }
}

/// As a JSON merge patch does.
fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *value = patch.clone();
        return;
    };
    for (name, patch) in fields {
        if patch.is_null() {
            value.as_object_mut().map(|fields| fields.remove(name));
        } else {
            merge(&mut value[name], patch);
        }
    }
}

/// Pods are made of it.
fn pods(value: Value) -> Change {
    Change::new(value, Cost::Update)
}

/// It says how many pods there are.
fn size(value: Value) -> Change {
    Change::new(value, Cost::Rescale)
}

/// It takes effect at once, and that shows.
fn policy(value: Value) -> Change {
    Change::new(value, Cost::Nothing)
}

/// It takes effect at once, and that does not show until something happens that it decides about.
fn decision(value: Value, event: Event) -> Change {
    Change { shows: false, ..policy(value).about(event) }
}

/// Nobody may change it.
fn fixed() -> [Change; 0] {
    []
}

/// The changes of every field of a type. Whoever adds a field has to say here what a change of it means, or this does not compile.
macro_rules! every_field {
    ($type:ident { $($field:ident: $changes:expr),* $(,)? }) => {{
        let _without_dots = |$type { $($field: _),* }: $type| ();
        let mut all = Vec::new();
        $(all.extend(Vec::from($changes).into_iter().map(|change: Change| change.inside(&camel(stringify!($field)))));)*
        all
    }};
}

/// The name of a field as it is written.
fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| name + &part[..1].to_uppercase() + &part[1..])
}

pub(super) fn changes() -> Vec<Change> {
    every_field!(TrainingJobSpec {
        framework: fixed(),
        image: [pods(json!("my/trainer:2"))],
        command: [pods(json!(["python", "other.py"]))],
        args: [pods(json!(["--fast"]))],
        model: fixed(),
        dataset: fixed(),
        num_workers: [size(json!(3))],
        workers: [size(json!(3)).given(json!({"numWorkers": null, "workers": 2}))],
        gpus_per_worker: fixed(),
        gpu_per_worker: fixed(),
        procs_per_worker: [pods(json!(2))],
        resources: [pods(json!({"limits": {"cpu": "2"}})), pods(json!({"requests": {"cpu": "1"}}))],
        hyperparameters: [pods(json!({"lr": 0.1}))],
        env: [pods(env())],
        env_from: [
            pods(json!([{"configMapRef": {"name": "other", "optional": true}}])),
            pods(json!([{"prefix": "S_", "secretRef": {"name": "other", "optional": true}}])),
        ],
        data_volume: [
            pods(json!({"claimName": "data"})),
            pods(json!({"claimName": "data", "readOnly": true}))
                .given(json!({"dataVolume": {"claimName": "data"}})),
        ],
        data_mount_path: [pods(json!("/other")).given(json!({"dataVolume": {"claimName": "data"}}))],
        checkpoint: checkpoint(),
        checkpoint_dir: [pods(json!("/other"))],
        checkpoint_interval: [pods(json!(9))],
        networking: every_field!(Networking {
            backend: [pods(json!("nccl"))],
            master_port: [pods(json!(12345))],
            interface: [pods(json!("eth1"))],
            host_network: [pods(json!(true))],
        }),
        backoff_limit: [policy(json!(0)).about(events::FAILS)],
        restart_policy: [
            policy(json!("Never")).about(events::FAILS),
            policy(json!("ExitCode")).about(events::FAILS)
        ],
        failure_policy: every_field!(FailurePolicy {
            restart_scope: [policy(json!("Worker")).about(events::FAILS)],
            rules: [
                decision(json!([{"exitCodes": [1], "action": "Ignore"}]), events::FAILS),
                decision(json!([{"exitCodes": [1], "action": "Fail"}]), events::FAILS),
                decision(json!([{"reasons": ["OOMKilled"], "action": "Fail"}]), events::OUT_OF_MEMORY),
                decision(
                    json!([{"reasons": ["EvictionByEvictionAPI"], "action": "Restart"}]),
                    events::EVICTED
                ),
                decision(json!([{"logPattern": "ECC", "action": "RestartWithoutCounting"}]), events::FAILS),
            ],
        }),
        success_policy: [
            decision(json!("AnyWorker"), events::ONE_SUCCEEDS),
            decision(json!("Leader"), events::LEADER_SUCCEEDS),
        ],
        suspend: [Change::new(json!(true), Cost::Suspension)],
        active_deadline_seconds: [decision(json!(300), events::GROWS_OLD)],
        startup_timeout_seconds: [decision(json!(20), events::DOES_NOT_COME_BACK)],
        stall_timeout_seconds: [decision(json!(60), events::FALLS_SILENT)],
        ttl_seconds_after_finished: [decision(json!(5), events::SUCCEEDS)],
        progress: every_field!(ProgressSpec {
            source: [decision(json!("None"), events::FALLS_SILENT)],
            // All programs say themselves how many there are, once they run.
            total_epochs: [policy(json!(12))],
        }),
        clean_pod_policy: [
            policy(json!("All")).about(events::SUCCEEDS),
            policy(json!("None")).about(events::LEADER_SUCCEEDS).given(json!({"successPolicy": "Leader"})),
        ],
        roles: roles(),
        template: [
            pods(json!({"spec": {"priorityClassName": "low"}})),
            pods(json!({"metadata": {"labels": {"team": "other"}}})),
        ],
        managed_by: fixed(),
    })
}

fn checkpoint() -> Vec<Change> {
    every_field!(Checkpoint {
        enabled: [pods(json!(false))],
        frequency: [pods(json!(7))],
        directory: [pods(json!("/other"))
            .given(json!({"checkpointDir": null, "checkpoint": {"directory": "/checkpoints"}}))],
        keep_last: [policy(json!(7))],
        resume: [decision(json!("Never"), events::COMES_BACK)],
        resume_arg: [decision(json!("--resume={path}"), events::COMES_BACK)
            .given(json!({"command": ["python", "train.py"]}))],
        layout: [decision(json!("torch"), events::COMES_BACK)],
        storage: fixed(),
        delete_on_completion: [decision(json!(true), events::IS_DELETED)],
        hold_evictions: [policy(json!(true))],
    })
}

fn roles() -> Vec<Change> {
    let fields = every_field!(Role {
        name: [pods(json!("other"))],
        replicas: [size(json!(2))],
        image: [pods(json!("my/other:1"))],
        command: [pods(json!(["other"]))],
        args: [pods(json!(["--other"]))],
        env: [pods(env())],
        resources: [pods(json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}))],
        gpus_per_replica: [pods(json!(1))],
        template: [pods(json!({"spec": {"priorityClassName": "low"}}))],
        ranked: [pods(json!(true))],
        order: [decision(json!("AfterWorkers"), events::COMES_BACK)],
        success: [
            decision(json!("Decides"), events::EVALUATOR_SUCCEEDS),
            decision(json!("Required"), events::WORKERS_SUCCEED),
        ],
    });
    let evaluator = json!({"name": "eval", "replicas": 1});
    let in_list = |change: Change| {
        let mut role = evaluator.clone();
        merge(&mut role, &change.patch);
        Change { patch: json!([role]), ..change }.given(json!({"roles": [evaluator]}))
    };
    let mut all: Vec<Change> = fields.into_iter().map(in_list).collect();
    // A role more is another kind of pods.
    all.push(pods(json!([evaluator])));
    all
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
