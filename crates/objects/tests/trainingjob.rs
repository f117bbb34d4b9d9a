//! The project's own CRD: every sample passes, and what is wrong is refused in the API server's words.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use trainyard_objects::{Schema, error};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn schemas() -> Vec<(String, Schema)> {
    let crd = documents(&repository().join("kubernetes/base/trainingjob-crd.yaml")).remove(0);
    crd["spec"]["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| {
            let schema = Schema::compile(&version["schema"]["openAPIV3Schema"]);
            let schema = schema.unwrap_or_else(|errors| panic!("{}", error::joined(&errors)));
            (version["name"].as_str().unwrap().to_owned(), schema)
        })
        .collect()
}

fn samples() -> Vec<(String, Value)> {
    let mut samples = Vec::new();
    for directory in ["crates/plan/tests/manifests", "config/samples"] {
        for entry in std::fs::read_dir(repository().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            for document in documents(&path) {
                if document["kind"] == "TrainingJob" {
                    samples.push((path.display().to_string(), document));
                }
            }
        }
    }
    assert!(samples.len() >= 5, "{}", samples.len());
    samples
}

#[test]
fn every_sample_is_accepted_as_it_is() {
    let schemas = schemas();
    assert_eq!(schemas.len(), 2);
    for (path, sample) in samples() {
        for (version, schema) in &schemas {
            let mut object = sample.clone();
            assert_eq!(schema.prune(&mut object), Vec::<String>::new(), "{path} {version}");
            schema.default(&mut object);
            assert_eq!(object, sample, "{path}: the schema has no defaults");
            let errors = schema.validate(&object, None);
            assert_eq!(error::joined(&errors), "[]", "{path} {version}");
            let errors = schema.validate(&object, Some(&object));
            assert_eq!(error::joined(&errors), "[]", "{path} {version}: unchanged");
        }
    }
}

fn job(spec: Value) -> Value {
    json!({"apiVersion": "ml.example.com/v1", "kind": "TrainingJob", "metadata": {"name": "bert"}, "spec": spec})
}

#[test]
fn what_is_wrong_is_told_in_the_servers_words() {
    let (_, schema) = schemas().remove(0);
    let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was \
                     invalid; correct the existing errors to complete validation";
    let table = [
        (json!({}), "spec: Invalid value: give image, or both model and dataset".to_owned()),
        (
            json!({"image": "i", "numWorkers": "x"}),
            format!(
                "[spec.numWorkers: Invalid value: \"string\": spec.numWorkers in body must be of type integer: \"string\", {unchecked}]"
            ),
        ),
        (
            json!({"image": "i", "numWorkers": -1}),
            "[spec.numWorkers: Invalid value: -1: spec.numWorkers in body should be greater than or equal to 0, \
             spec: Invalid value: at least one worker is needed (0 is allowed only beside a ranked role)]"
                .to_owned(),
        ),
        (
            json!({"image": "i", "numWorkers": 1, "workers": 2}),
            "spec: Invalid value: numWorkers and workers are two names of one field: keep one of them; to scale a job \
             with numWorkers: kubectl scale tj/NAME --replicas=N; a job with workers: kubectl scale \
             trainingjobs.v1alpha1.ml.example.com/NAME --replicas=N"
                .to_owned(),
        ),
    ];
    for (spec, expected) in table {
        assert_eq!(error::joined(&schema.validate(&job(spec.clone()), None)), expected, "{spec}");
    }
}

#[test]
fn what_must_not_change_is_refused_when_it_does() {
    let (_, schema) = schemas().remove(0);
    let old = job(json!({"image": "i", "framework": "pytorch"}));
    let new = job(json!({"image": "i", "framework": "custom"}));
    assert_eq!(
        error::joined(&schema.validate(&new, Some(&old))),
        "spec.framework: Invalid value: framework is immutable (it is pytorch): create another job for another framework"
    );
    assert_eq!(schema.validate(&new, None), []);
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let (_, schema) = schemas().remove(0);
    let mut object =
        job(json!({"image": "i", "foo": 1, "checkpoint": {"bar": {}}, "template": {"x": {"y": 1}}}));
    object["metadata"]["odd"] = json!(1);
    let unknown = schema.prune(&mut object);
    assert_eq!(unknown, ["metadata.odd", "spec.checkpoint.bar", "spec.foo"]);
    assert_eq!(object, job(json!({"image": "i", "checkpoint": {}, "template": {"x": {"y": 1}}})));
    assert_eq!(schema.prune(&mut object), Vec::<String>::new());
}
