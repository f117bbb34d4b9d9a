//! The pages' manifests, unchanged, and the commands around them.

use std::time::Duration;

use trainyard_api::State;
use trainyard_testcluster::{Script, enabled};

use super::support::Yard;

const LAB: &str = include_str!("../../../plan/tests/manifests/lab-pytorch-mnist.yaml");
const LECTURE: &str = include_str!("../../../plan/tests/manifests/lecture-mnist-training.yaml");
const GUIDE: &str = include_str!("../../../plan/tests/manifests/guide-test-job.yaml");

#[tokio::test]
async fn the_lab_from_apply_to_delete() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("ml-jobs").await;
    let dry = yard.cluster.kubectl().stdin(LAB).run(&["apply", "--dry-run=server", "-f", "-"]).await.unwrap();
    assert!(dry.expect("dry run").contains("created (server dry run)"));
    yard.apply(LAB).await.expect("apply");
    yard.until_state("pytorch-mnist", State::Running).await;

    let row = yard.kubectl(&["get", "trainingjobs"]).await;
    let header: Vec<&str> = row.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "STATE", "PROGRESS", "EPOCH", "WORKERS", "AGE"]);
    assert!(row.contains("Running"), "{row}");
    let lab = yard.kubectl(&["get", "trainingjobs.v1alpha1.ml.example.com"]).await;
    let header: Vec<&str> = lab.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "FRAMEWORK", "WORKERS", "PHASE", "AGE"]);
    assert!(lab.contains("pytorch") && lab.contains("Running"), "{lab}");

    let pods = yard.kubectl(&["get", "pods", "-l", "trainingjob.ml.example.com/worker", "-o", "name"]).await;
    assert_eq!(pods.trim(), "pod/pytorch-mnist-workers-0\npod/pytorch-mnist-workers-1");
    assert_eq!(yard.kubectl(&["get", "pvc", "-o", "name"]).await, "", "no checkpointDir, no claim");

    // The patch exactly as the page has it: kubectl asks for its default version.
    let patch = r#"[{"op": "replace", "path": "/spec/workers", "value": 4}]"#;
    yard.kubectl(&["patch", "trainingjob", "pytorch-mnist", "--type=json", "-p", patch]).await;
    let status = yard
        .until("pytorch-mnist", "four workers running", |status| {
            status.state == Some(State::Running) && status.workers.is_some_and(|workers| workers.active == 4)
        })
        .await;
    let restarts = status.restarts.unwrap();
    assert_eq!((restarts.rescale, restarts.application, restarts.disruption), (1, 0, 0));
    for pod in yard.pods("pytorch-mnist").await {
        let env = &pod.spec.as_ref().unwrap().containers[0].env.clone().unwrap();
        let value =
            |name: &str| env.iter().find(|variable| variable.name == name).unwrap().value.clone().unwrap();
        assert_eq!((value("WORLD_SIZE"), value("PET_NNODES")), ("4".into(), "4".into()));
        assert_eq!(pod.metadata.labels.unwrap()["trainingjob.ml.example.com/attempt"], "2");
    }

    yard.end_all("pytorch-mnist", 0).await;
    let wait = ["wait", "--for=condition=Completed", "trainingjob/pytorch-mnist", "--timeout=30s"];
    yard.kubectl(&wait).await;
    let status = yard.until_state("pytorch-mnist", State::Completed).await;
    assert!(status.start_time.is_some() && status.completion_time.is_some() && status.duration.is_some());
    assert_eq!(status.observed_generation, Some(2));

    let described = yard.kubectl(&["describe", "trainingjob", "pytorch-mnist"]).await;
    for event in
        ["Created 2 worker pods", "Created 4 worker pods", "Rescaled", "Training job completed successfully"]
    {
        assert!(described.contains(event), "{event} is missing:\n{described}");
    }
    let once = [
        "Created",
        "Rescaled",
        "TrainingCompleted",
        "TrainingStarted",
        "TrainingStarted",
        "WorkersCreated",
        "WorkersCreated",
    ];
    yard.wait_for("the last event", async || yard.events("pytorch-mnist").await.len() == once.len()).await;
    assert_eq!(yard.events("pytorch-mnist").await, once, "each once per occurrence");

    yard.kubectl(&["delete", "trainingjob", "pytorch-mnist"]).await;
    let left = yard.kubectl_in(&["get", "pods"]).await;
    assert!(left.stderr.contains("No resources found"), "{left}");
    yard.wait_for("the garbage collector", async || {
        yard.kubectl(&["get", "svc,cm,pods", "-l", "trainingjob=pytorch-mnist", "-o", "name"])
            .await
            .is_empty()
    })
    .await;
}

#[tokio::test]
async fn the_lecture() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("ml-team").await;
    yard.apply(LECTURE).await.expect("apply");
    // Its data claim does not exist: a condition says so, in the scheduler's words.
    let status = yard
        .until("mnist-training", "a condition that names the claim", |status| {
            status.message.as_deref().unwrap_or_default().contains("training-data-pvc")
        })
        .await;
    assert_eq!(status.state, Some(State::Initializing));
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: training-data-pvc}\nspec:\n  accessModes: [ReadWriteMany]\n  resources: {requests: {storage: 1Gi}}\n";
    yard.apply(claim).await.expect("the claim");
    let status = yard.until_state("mnist-training", State::Running).await;
    assert_eq!(status.resources.unwrap().allocated_gpus, 4);
    for pod in yard.pods("mnist-training").await {
        let container = &pod.spec.as_ref().unwrap().containers[0];
        assert_eq!(container.resources.as_ref().unwrap().limits.as_ref().unwrap()["nvidia.com/gpu"].0, "1");
        let mounts: Vec<&str> =
            container.volume_mounts.iter().flatten().map(|mount| mount.mount_path.as_str()).collect();
        assert!(mounts.contains(&"/data") && mounts.contains(&"/checkpoints/mnist"), "{mounts:?}");
        let env = container.env.clone().unwrap();
        let value =
            |name: &str| env.iter().find(|variable| variable.name == name).unwrap().value.clone().unwrap();
        assert_eq!(
            (value("HYPERPARAM_LEARNINGRATE"), value("HYPERPARAM_MOMENTUM")),
            ("0.001".into(), "0.9".into())
        );
    }
    yard.end_all("mnist-training", 0).await;
    yard.until_state("mnist-training", State::Completed).await;
    yard.kubectl(&["delete", "trainingjob", "mnist-training"]).await;
    let claims = yard.kubectl(&["get", "pvc", "-l", "trainingjob=mnist-training", "-o", "name"]).await;
    assert_eq!(
        claims.trim(),
        "persistentvolumeclaim/mnist-training-checkpoints",
        "checkpoints outlive the job"
    );

    // A job of the same name finds them again.
    yard.apply(LECTURE).await.expect("apply");
    yard.until_state("mnist-training", State::Running).await;
    yard.kubectl(&["delete", "trainingjob", "mnist-training"]).await;
}

#[tokio::test]
async fn the_guide() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("default").await;
    yard.script(|_| Script::exit(Duration::from_millis(300), 0));
    yard.apply(GUIDE).await.expect("apply");
    let status = yard.until_state("test-job", State::Completed).await;
    assert_eq!(status.total_epochs, Some(10));
    let effective = status.effective.unwrap();
    assert_eq!((effective.image.as_str(), effective.gpus_per_worker), ("training-image:resnet50", 1));
    assert_eq!(effective.checkpoint.unwrap().claim_name.as_deref(), Some("test-job-checkpoints"));
    assert!(yard.log().contains("Creating TrainingJob: default/test-job"));
    let all = yard.kubectl(&["get", "pods,svc,cm,pvc", "-l", "trainingjob=test-job", "-o", "name"]).await;
    let mut all: Vec<&str> = all.lines().collect();
    all.sort_unstable();
    assert_eq!(
        all,
        [
            "configmap/test-job-config",
            "persistentvolumeclaim/test-job-checkpoints",
            "pod/test-job-workers-0",
            "pod/test-job-workers-1",
            "service/test-job-workers",
        ]
    );
    let patched = yard
        .kubectl_in(&["patch", "tj", "test-job", "--type=merge", "-p", r#"{"spec":{"model":"vgg"}}"#])
        .await;
    assert!(!patched.success);
    assert!(
        patched.stderr.contains("spec.model")
            && patched.stderr.contains("model is immutable (it is resnet50)"),
        "{patched}"
    );
    yard.kubectl(&["delete", "trainingjob", "test-job"]).await;
}
