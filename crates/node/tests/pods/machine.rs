//! The node itself: what it has, who fits, stopping, and starting again.

use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node as NodeObject, PersistentVolumeClaim};
use kube::Api;
use serde_json::{Value, json};
use trainyard_apiserver::{ExecOptions, ExecSession, Kubelet, KubeletError, LogOptions, LogStream, PodId};
use trainyard_node::{Node, StartError};

use crate::support::{World, config, script};

/// A node that is gone.
struct Nobody;
impl Kubelet for Nobody {
    fn logs(&self, _: &PodId, _: &str, _: LogOptions) -> BoxFuture<'static, Result<LogStream, KubeletError>> {
        unreachable!()
    }
    fn exec(
        &self,
        _: &PodId,
        _: &str,
        _: ExecOptions,
    ) -> BoxFuture<'static, Result<ExecSession, KubeletError>> {
        unreachable!()
    }
}

fn with_cpu(name: &str, cpu: &str, text: &str) -> Value {
    let mut pod = script(name, text);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

fn unschedulable(pod: &k8s_openapi::api::core::v1::Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    condition.message.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_says_what_it_has() {
    let world = World::with(|config| {
        config.gpus = Some(2);
        config.memory = Some("3Gi".to_owned());
    })
    .await;
    let node = Api::<NodeObject>::all(world.client.clone()).get("box").await.unwrap();
    let status = node.status.unwrap();
    let amounts = status.allocatable.unwrap();
    assert_eq!(amounts["cpu"].0, "4");
    assert_eq!(amounts["memory"].0, "3Gi");
    assert_eq!(amounts["nvidia.com/gpu"].0, "2");
    assert!(
        status
            .conditions
            .unwrap()
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_fit_waits_and_says_why() {
    let world = World::new().await;
    world.create(with_cpu("large", "3", "sleep 600")).await;
    world.wait_phase("large", "Running").await;
    world.create(with_cpu("next", "2", "true")).await;
    let waiting = world.wait("next", "unschedulable", |pod| unschedulable(pod).is_some()).await;
    assert!(unschedulable(&waiting).unwrap().starts_with("0/1 nodes are available: 1 Insufficient cpu."));
    assert!(
        world
            .event("next", "FailedScheduling")
            .await
            .starts_with("0/1 nodes are available: 1 Insufficient cpu.")
    );
    world.delete("large", 0).await;
    world.wait_phase("next", "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_its_claim() {
    let world = World::new().await;
    let mut pod = script("claimant", "ls -d /data");
    pod["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "later"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "d", "mountPath": "/data"}]);
    world.create(pod).await;
    let waiting = world.wait("claimant", "unschedulable", |pod| unschedulable(pod).is_some()).await;
    let message = unschedulable(&waiting).unwrap();
    assert!(
        message.starts_with("0/1 nodes are available: persistentvolumeclaim \"later\" not found."),
        "{message}"
    );
    let claim = json!({"metadata": {"name": "later"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    world.create_any::<PersistentVolumeClaim>(claim).await;
    world.wait_phase("claimant", "Succeeded").await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), "default");
    let bound = |claim: Option<&PersistentVolumeClaim>| {
        claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound")
    };
    kube::runtime::wait::await_condition(claims, "later", bound).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_ends_pods_as_a_disruption_and_the_next_start_finds_them_ended() {
    let world = World::new().await;
    let pod =
        world.create(script("worker", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")).await;
    world.wait_phase("worker", "Running").await;
    world.wait_output(&pod, "main", "ready").await;
    world.node.stop(Duration::from_secs(30)).await;
    let pod = world.pods().get("worker").await.unwrap();
    let status = pod.status.unwrap();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("Terminated")));
    let disrupted = |all: &Vec<k8s_openapi::api::core::v1::PodCondition>| {
        all.iter().any(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")
    };
    assert!(status.conditions.as_ref().is_some_and(disrupted));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_node_that_died_are_taken_up() {
    let world = World::new().await;
    world.create(script("once", "sleep 600")).await;
    let mut forever = script("forever", "sleep 600");
    forever["spec"]["restartPolicy"] = json!("Always");
    world.create(forever).await;
    world.wait_phase("once", "Running").await;
    world.wait_phase("forever", "Running").await;
    let World { api, node, state, .. } = world;
    // The API server forgets the old node, which ends without a word.
    api.set_kubelet(std::sync::Arc::new(Nobody));
    assert!(matches!(
        Node::start(api.client("default"), config(&state)).await,
        Err(StartError::InUse { .. })
    ));
    drop(std::sync::Arc::into_inner(node).unwrap());
    let next = config(&state);
    let world = World::of(api, state, next).await;
    let once = world.wait_phase("once", "Failed").await.status.unwrap();
    let ended = once.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    world
        .wait("forever", "running again", |pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            statuses.is_some_and(|all| {
                all[0].restart_count == 1
                    && all[0].state.as_ref().is_some_and(|state| state.running.is_some())
            })
        })
        .await;
    world.node.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_for_nobody_else_to_read_and_memory_is_given_back() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::with(|config| config.isolation = trainyard_node::Isolation::Off).await;
    let secret = json!({"metadata": {"name": "hush"}, "stringData": {"pw": "s3cret"}, "type": "Opaque"});
    world.create_any::<k8s_openapi::api::core::v1::Secret>(secret).await;
    let mut pod = script("reader", "cat /m/pw; stat -c %a /m/pw; echo /shm; sleep 600");
    pod["spec"]["volumes"] = json!([{"name": "m", "secret": {"secretName": "hush"}},
        {"name": "s", "emptyDir": {"medium": "Memory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "m", "mountPath": "/m"}, {"name": "s", "mountPath": "/shm"}]);
    let pod = world.create(pod).await;
    world.wait_phase("reader", "Running").await;
    let options = LogOptions { follow: true, limit_bytes: Some(60), ..LogOptions::default() };
    let text = world.log(&pod, "main", options).await;
    assert!(text.starts_with("s3cret600\n/dev/shm/trainyard-"), "{text}");
    let memory: std::path::PathBuf =
        text.lines().nth(1).unwrap().split('/').take(4).collect::<Vec<_>>().join("/").into();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&world.state.path().join("node")), 0o700);
    assert_eq!(mode(&memory), 0o700);
    // Of a node that was killed, the next start with its directory gives the memory back.
    world.node.stop(Duration::ZERO).await;
    std::fs::create_dir_all(memory.join("left")).unwrap();
    let World { api, node, state, .. } = world;
    api.set_kubelet(std::sync::Arc::new(Nobody));
    drop(std::sync::Arc::into_inner(node).unwrap());
    std::fs::create_dir_all(memory.join("left")).unwrap();
    let next = config(&state);
    let _world = World::of(api, state, next).await;
    assert!(!memory.join("left").exists());
}
