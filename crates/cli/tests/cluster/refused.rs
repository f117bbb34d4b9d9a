//! Bad manifests, and what the API server says to each.

use trainyard_testcluster::enabled;

use super::support::Yard;

/// (what is wrong, the spec in YAML, fragments of the message).
const BAD: &[(&str, &str, &[&str])] = &[
    ("nothing to run", "{}", &["give image, or both model and dataset"]),
    ("a model without a dataset", "{model: m}", &["give image, or both model and dataset"]),
    (
        "an unknown framework",
        "{image: a, framework: caffe}",
        &["spec.framework", "Unsupported value", "pytorch"],
    ),
    ("no workers", "{image: a, numWorkers: 0}", &["at least one worker is needed"]),
    ("no workers, the other name", "{image: a, workers: 0}", &["at least one worker is needed"]),
    ("a negative number", "{image: a, numWorkers: -1}", &["spec.numWorkers", "greater than or equal to 0"]),
    ("too many workers", "{image: a, numWorkers: 1025}", &["spec.numWorkers", "1024"]),
    ("too many workers, the other name", "{image: a, workers: 1025}", &["spec.workers", "1024"]),
    ("a number as text", "{image: a, numWorkers: many}", &["spec.numWorkers", "integer"]),
    (
        "two names for workers",
        "{image: a, numWorkers: 1, workers: 1}",
        &["numWorkers and workers are two names"],
    ),
    (
        "two names for GPUs",
        "{image: a, gpusPerWorker: 1, gpuPerWorker: 1}",
        &["gpusPerWorker and gpuPerWorker are two names"],
    ),
    (
        "two names for the directory",
        "{image: a, checkpointDir: /c, checkpoint: {directory: /d}}",
        &["checkpoint.directory and checkpointDir are two names"],
    ),
    (
        "two names for the interval",
        "{image: a, checkpointInterval: 2, checkpoint: {frequency: 2}}",
        &["checkpoint.frequency and checkpointInterval are two names"],
    ),
    ("too many GPUs", "{image: a, gpusPerWorker: 9}", &["spec.gpusPerWorker", "less than or equal to 8"]),
    ("no processes", "{image: a, procsPerWorker: 0}", &["spec.procsPerWorker", "greater than or equal to 1"]),
    ("an empty command", "{image: a, command: []}", &["spec.command", "at least 1 items"]),
    ("a command as text", "{image: a, command: python train.py}", &["spec.command", "array"]),
    ("an empty image", "{image: ''}", &["spec.image", "at least 1 chars long"]),
    ("a restart policy of pods", "{image: a, restartPolicy: Always}", &["spec.restartPolicy", "OnFailure"]),
    ("an unknown clean-up", "{image: a, cleanPodPolicy: Some}", &["spec.cleanPodPolicy", "Running"]),
    ("a limit below zero", "{image: a, backoffLimit: -1}", &["spec.backoffLimit"]),
    ("a limit above its bound", "{image: a, backoffLimit: 101}", &["spec.backoffLimit", "100"]),
    ("no time at all", "{image: a, activeDeadlineSeconds: 0}", &["spec.activeDeadlineSeconds"]),
    ("a negative time", "{image: a, ttlSecondsAfterFinished: -1}", &["spec.ttlSecondsAfterFinished"]),
    (
        "a port out of range",
        "{image: a, networking: {masterPort: 70000}}",
        &["spec.networking.masterPort", "65535"],
    ),
    ("an unknown backend", "{image: a, networking: {backend: smoke}}", &["spec.networking.backend", "nccl"]),
    ("a relative directory", "{image: a, checkpointDir: c}", &["spec.checkpointDir", "^/"]),
    ("no epochs between checkpoints", "{image: a, checkpointInterval: 0}", &["spec.checkpointInterval"]),
    (
        "unknown storage",
        "{image: a, checkpoint: {storage: {type: tape}}}",
        &["spec.checkpoint.storage.type", "pvc"],
    ),
    (
        "a claim of one's own with a size",
        "{image: a, checkpoint: {storage: {claimName: c, size: 1Gi}}}",
        &["claimName names a claim that exists already"],
    ),
    (
        "a path that climbs out",
        "{image: a, checkpoint: {storage: {path: ../x}}}",
        &["must stay inside the claim"],
    ),
    ("a mount without a volume", "{image: a, dataMountPath: /d}", &["dataMountPath needs dataVolume"]),
    (
        "a volume without a claim",
        "{image: a, dataVolume: {}}",
        &["spec.dataVolume.claimName", "Required value"],
    ),
    ("a role called workers", "{image: a, roles: [{name: workers}]}", &["choose another name"]),
    ("a role with a bad name", "{image: a, roles: [{name: Head_1}]}", &["spec.roles[0].name"]),
    (
        "two roles of one name",
        "{image: a, roles: [{name: x}, {name: x}]}",
        &["spec.roles[1]", "Duplicate value"],
    ),
    (
        "an unknown order",
        "{image: a, roles: [{name: x, order: First}]}",
        &["spec.roles[0].order", "BeforeWorkers"],
    ),
    ("a misspelt field", "{image: a, numWorker: 2}", &["unknown field \"spec.numWorker\""]),
    ("hyperparameters as a list", "{image: a, hyperparameters: [1]}", &["spec.hyperparameters"]),
    ("resources as text", "{image: a, resources: {limits: {cpu: [1]}}}", &["spec.resources.limits"]),
];

#[tokio::test]
async fn bad_manifests_get_an_error_that_names_the_field() {
    if !enabled() {
        return;
    }
    let yard = Yard::without_operator("refused").await;
    assert!(BAD.len() >= 30);
    for (what, spec, fragments) in BAD {
        let manifest = format!(
            "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {{name: bad}}\nspec: {spec}\n"
        );
        let answer = yard.apply(&manifest).await;
        assert!(!answer.success, "{what} was accepted: {spec}");
        for fragment in *fragments {
            assert!(answer.stderr.contains(fragment), "{what}: no \"{fragment}\" in\n{}", answer.stderr);
        }
    }
    for name in ["a.b", "1a", &"a".repeat(51)] {
        let manifest = format!(
            "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {{name: '{name}'}}\nspec: {{image: a}}\n"
        );
        let answer = yard.apply(&manifest).await;
        assert!(!answer.success && answer.stderr.contains("at most 50 characters"), "{name}: {answer}");
    }
    let longest = "a".repeat(50);
    let role =
        "metadata: {name: NAME}\nspec: {image: a, roles: [{name: evaluator}]}\n".replace("NAME", &longest);
    let answer = yard.apply(&format!("apiVersion: ml.example.com/v1\nkind: TrainingJob\n{role}")).await;
    assert!(!answer.success && answer.stderr.contains("at most 57 characters together"), "{answer}");
}

#[tokio::test]
async fn immutable_fields_stay_as_they_are() {
    if !enabled() {
        return;
    }
    let yard = Yard::without_operator("immutable").await;
    let manifest = "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {name: bert}\nspec: {model: bert, dataset: wiki, checkpoint: {storage: {size: 1Gi}}, managedBy: example.com/other}\n";
    yard.apply(manifest).await.expect("apply");
    let changes = [
        (r#"{"framework":"custom"}"#, "framework is immutable (it is pytorch)"),
        (r#"{"model":"gpt"}"#, "model is immutable (it is bert)"),
        (r#"{"dataset":"books"}"#, "dataset is immutable (it is wiki)"),
        (r#"{"gpusPerWorker":2}"#, "gpusPerWorker is immutable"),
        (r#"{"gpuPerWorker":2}"#, "gpusPerWorker is immutable"),
        (r#"{"checkpoint":{"storage":{"size":"2Gi"}}}"#, "checkpoint.storage is immutable"),
        (r#"{"checkpoint":null}"#, "checkpoint.storage is immutable"),
        (r#"{"managedBy":null}"#, "managedBy is immutable (it is example.com/other)"),
    ];
    for (change, message) in changes {
        let patch = format!(r#"{{"spec":{change}}}"#);
        let answer = yard.kubectl_in(&["patch", "tj", "bert", "--type=merge", "-p", &patch]).await;
        assert!(!answer.success && answer.stderr.contains(message), "{change}: {answer}");
    }
    // What only says the same in other words is no change.
    let same = r#"{"spec":{"framework":"pytorch","gpusPerWorker":1,"numWorkers":3}}"#;
    yard.kubectl(&["patch", "tj", "bert", "--type=merge", "-p", same]).await;
}
