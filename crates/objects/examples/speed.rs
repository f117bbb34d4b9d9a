//! How long one object takes, in microseconds: `cargo run --release -p trainyard-objects --example speed`.

#![expect(clippy::unwrap_used, reason = "a tool for maintainers may just stop")]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use trainyard_objects::{Manager, Schema, Shape, apply, track};

const ROUNDS: u32 = 2_000;

fn timed(what: &str, mut work: impl FnMut()) {
    work();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        work();
    }
    println!("{what:<44} {:>8.1} µs", start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS));
}

fn document(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn main() {
    let crd = document("kubernetes/base/trainingjob-crd.yaml");
    let source = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let start = Instant::now();
    let schema = Schema::compile(source).unwrap();
    println!("compile the TrainingJob schema: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);

    let job = document("config/samples/ml_v1_trainingjob.yaml");
    let manager = |name| Manager {
        name,
        api_version: "ml.example.com/v1",
        subresource: "",
        time: "2026-01-01T00:00:00Z",
    };
    println!("a job of {} bytes", job.to_string().len());
    timed("clone", || drop(black_box(job.clone())));
    timed("clone, prune", || drop(black_box(schema.prune(&mut job.clone()))));
    timed("clone, default", || schema.default(black_box(&mut job.clone())));
    timed("validate a new job", || drop(black_box(schema.validate(&job, None))));
    timed("validate an unchanged job", || drop(black_box(schema.validate(&job, Some(&job)))));
    timed("clone, track a new job", || {
        track(None, black_box(&mut job.clone()), &manager("a"), schema.shape());
    });
    let mut live = job.clone();
    track(None, &mut live, &manager("a"), schema.shape());
    let mut running = live.clone();
    running["status"] = json!({"state": "Running", "workers": {"ready": 1}, "conditions": [{"type": "Ready", "status": "True"}]});
    timed("validate a new status", || drop(black_box(schema.validate(&running, Some(&live)))));
    let status = Manager { subresource: "status", ..manager("b") };
    timed("clone, track a new status", || {
        track(Some(&live), black_box(&mut running.clone()), &status, schema.shape());
    });
    timed("apply a new job", || drop(black_box(apply(None, &job, &manager("a"), false, schema.shape()))));
    timed("apply the same job", || {
        drop(black_box(apply(Some(&live), &job, &manager("c"), false, schema.shape())));
    });

    let env: Vec<Value> =
        (0..30).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "value"})).collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "x-0", "namespace": "n", "labels": {"a": "b", "c": "d"}, "ownerReferences": [{"uid": "u", "name": "x"}]},
        "spec": {"containers": [{"name": "main", "image": "i", "env": env, "resources": {"limits": {"cpu": "1"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}], "volumes": [{"name": "v", "emptyDir": {}}]},
    });
    let pods = Shape::builtin("", "Pod");
    println!("a pod of {} bytes", pod.to_string().len());
    let operator =
        Manager { name: "operator", api_version: "v1", subresource: "", time: "2026-01-01T00:00:00Z" };
    timed("clone", || drop(black_box(pod.clone())));
    timed("clone, track a new pod", || track(None, black_box(&mut pod.clone()), &operator, &pods));
    let mut live = pod.clone();
    track(None, &mut live, &operator, &pods);
    let mut running = live.clone();
    running["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let kubelet = Manager { name: "kubelet", subresource: "status", ..operator };
    timed("clone", || drop(black_box(running.clone())));
    timed("clone, track a new status", || {
        track(Some(&live), black_box(&mut running.clone()), &kubelet, &pods);
    });
}
