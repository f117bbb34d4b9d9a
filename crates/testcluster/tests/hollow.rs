//! Hollow nodes: pods walk as the script says, and look as if a kubelet had run them.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod common;

use std::time::{Duration, Instant};

use common::{apply, get, see};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use trainyard_testcluster::{Error, HollowNodes, Script, TestCluster, Then, enabled, shared};

/// Decides by name, so that manifests need nothing special.
fn by_name(pod: &Pod) -> Script {
    let soon = Duration::from_millis(100);
    match pod.name_any().as_str() {
        "quick" => Script { start_after: soon, ..Script::exit(soon, 0) },
        "broken" => Script {
            then: Then::Exit {
                after: soon,
                code: 137,
                reason: Some("OOMKilled".into()),
                message: Some("out of memory".into()),
            },
            ..Script::default()
        },
        "unpullable" => Script::never_start("ImagePullBackOff", "no such image"),
        "slow-to-stop" => Script { stop_after: Duration::from_secs(1), ..Script::default() },
        name if name.starts_with("many-") => Script::exit(Duration::ZERO, 0),
        _ => Script::run_forever(),
    }
}

/// The nodes of the shared cluster, for all tests here.
async fn cluster() -> (&'static TestCluster, &'static HollowNodes) {
    static NODES: tokio::sync::OnceCell<HollowNodes> = tokio::sync::OnceCell::const_new();
    let cluster = shared().await;
    let start = async || cluster.hollow_nodes(3, &[("nvidia.com/gpu", "8")], by_name).await.unwrap();
    (cluster, NODES.get_or_init(start).await)
}

fn pod(name: &str, extra: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{restartPolicy: Never, \
         containers: [{{name: main, image: none}}], {extra}}}}}"
    )
}

#[tokio::test]
async fn a_pod_walks_to_success_and_is_deleted() {
    if !enabled() {
        return;
    }
    let (cluster, _) = cluster().await;
    let sidecar = "initContainers: [{name: prepare, image: i}, {name: log, image: s, restartPolicy: Always}]";
    apply(cluster, &pod("quick", sidecar)).await;
    let client = cluster.client().await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client);
    await_condition(pods.clone(), "quick", conditions::is_pod_running()).await.unwrap();
    see(cluster, "pod quick", "{.status.phase}", "Succeeded").await;

    let status = pods.get("quick").await.unwrap().status.unwrap();
    let main = &status.container_statuses.as_ref().unwrap()[0];
    let end = main.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (0, Some("Completed")));
    assert!(end.started_at.as_ref().unwrap().0 <= end.finished_at.as_ref().unwrap().0);
    assert!(!main.ready);
    let init = status.init_container_statuses.as_ref().unwrap();
    assert!(
        init[0].ready && init.iter().all(|c| c.state.as_ref().unwrap().terminated.is_some()),
        "{init:#?}"
    );
    assert!(status.start_time.is_some() && status.host_ip.is_some() && status.pod_ip.is_some());
    let condition = |kind: &str| {
        let all = status.conditions.as_ref().unwrap();
        let found = all.iter().find(|condition| condition.type_ == kind).unwrap();
        (found.status.clone(), found.reason.clone())
    };
    assert_eq!(condition("PodScheduled").0, "True");
    assert_eq!(condition("Initialized").0, "True");
    assert_eq!(condition("Ready"), ("False".into(), Some("PodCompleted".into())));
    assert_eq!(condition("ContainersReady"), ("False".into(), Some("PodCompleted".into())));

    pods.delete("quick", &DeleteParams::default()).await.unwrap();
    see(cluster, "pod quick", "{.metadata.name}", "").await;
}

#[tokio::test]
async fn a_pod_can_fail_or_never_start() {
    if !enabled() {
        return;
    }
    let (cluster, _) = cluster().await;
    apply(cluster, &pod("broken", "")).await;
    apply(cluster, &pod("unpullable", "")).await;
    see(cluster, "pod broken", "{.status.phase}", "Failed").await;
    let end = "{.status.containerStatuses[0].state.terminated['exitCode','reason','message']}";
    assert_eq!(get(cluster, "pod broken", end).await, "137 OOMKilled out of memory");
    let why = "{.status.containerStatuses[0].state.waiting.reason}";
    see(cluster, "pod unpullable", why, "ImagePullBackOff").await;
    assert_eq!(get(cluster, "pod unpullable", "{.status.phase}").await, "Pending");
    let start = Instant::now();
    cluster.kubectl().run(&["delete", "pod", "broken", "unpullable"]).await.unwrap().expect("delete");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_running_pod_is_ended_by_the_test() {
    if !enabled() {
        return;
    }
    let (cluster, nodes) = cluster().await;
    apply(cluster, &pod("service", "")).await;
    see(cluster, "pod service", "{.status.conditions[?(@.type=='Ready')].status}", "True").await;
    nodes.end_pod("default", "service", 3, Some("Error")).await.unwrap();
    assert_eq!(get(cluster, "pod service", "{.status.phase}").await, "Failed");
    assert!(matches!(nodes.end_pod("default", "nobody", 0, None).await, Err(Error::NoSuchPod { .. })));
    cluster.kubectl().run(&["delete", "pod", "service"]).await.unwrap().expect("delete");
    assert!(matches!(nodes.end_pod("default", "service", 0, None).await, Err(Error::NoSuchPod { .. })));

    // With a restart policy its containers start again.
    apply(cluster, &pod("daemon", "").replace("Never", "Always")).await;
    see(cluster, "pod daemon", "{.status.phase}", "Running").await;
    nodes.end_pod("default", "daemon", 1, None).await.unwrap();
    let again = "{.status.phase} {.status.containerStatuses[0]['restartCount','ready']} \
                 {.status.containerStatuses[0].lastState.terminated.exitCode}";
    see(cluster, "pod daemon", again, "Running 1 true 1").await;
    nodes.end_pod("default", "daemon", 1, None).await.unwrap();
    see(cluster, "pod daemon", "{.status.containerStatuses[0].state.waiting.reason}", "CrashLoopBackOff")
        .await;
    cluster.kubectl().run(&["delete", "pod", "daemon"]).await.unwrap().expect("delete");
}

#[tokio::test]
async fn a_pod_may_take_its_time_to_stop() {
    if !enabled() {
        return;
    }
    let (cluster, _) = cluster().await;
    apply(cluster, &pod("slow-to-stop", "")).await;
    see(cluster, "pod slow-to-stop", "{.status.phase}", "Running").await;
    let start = Instant::now();
    cluster.kubectl().run(&["delete", "pod", "slow-to-stop"]).await.unwrap().expect("delete");
    let took = start.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn deployments_scale_and_are_collected() {
    if !enabled() {
        return;
    }
    let (cluster, _) = cluster().await;
    let create = ["create", "deployment", "web", "--image=none", "--replicas=3"];
    cluster.kubectl().run(&create).await.unwrap().expect("create");
    see(cluster, "deployment web", "{.status.readyReplicas}", "3").await;
    cluster.kubectl().run(&["delete", "deployment", "web"]).await.unwrap().expect("delete");
    see(cluster, "pods -l app=web", "{.items[*].metadata.name}", "").await;
}

#[tokio::test]
async fn hundreds_of_pods_walk_at_once() {
    const COUNT: usize = 300;
    if !enabled() {
        return;
    }
    let (cluster, _) = cluster().await;
    cluster.kubectl().run(&["create", "namespace", "many"]).await.unwrap().expect("namespace");
    see(cluster, "serviceaccount -n many default", "{.metadata.name}", "default").await;
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "many");
    let start = Instant::now();
    let create = (0..COUNT).map(|number| {
        let pods = pods.clone();
        async move {
            let pod = serde_json::from_value(serde_json::json!({
                "metadata": {"name": format!("many-{number}")},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]},
            }));
            pods.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
        }
    });
    futures::future::join_all(create).await;
    println!("{COUNT} pods created: {:?}", start.elapsed());
    let succeeded = ListParams::default().fields("status.phase=Succeeded");
    while pods.list_metadata(&succeeded).await.unwrap().items.len() < COUNT {
        assert!(start.elapsed() < Duration::from_mins(1));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{COUNT} pods succeeded: {:?}", start.elapsed());
    let start = Instant::now();
    pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    while !pods.list_metadata(&ListParams::default()).await.unwrap().items.is_empty() {
        assert!(start.elapsed() < Duration::from_mins(1));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{COUNT} pods deleted: {:?}", start.elapsed());
}

#[tokio::test]
async fn nodes_are_lost_and_found() {
    if !enabled() {
        return;
    }
    // Pods of a lost node are given up at once. The grace period is longer than the API server's restart below takes on
    // a busy machine: nobody can renew a lease meanwhile, and the nodes must not count as lost for that.
    let mut builder = TestCluster::builder().controller_manager_arg("--node-monitor-grace-period=20s");
    for why in ["not-ready", "unreachable"] {
        builder = builder.apiserver_arg(format!("--default-{why}-toleration-seconds=0"));
    }
    let mut cluster = builder.start().await.unwrap();
    let start = Instant::now();
    let nodes =
        HollowNodes::start(cluster.client().await.unwrap(), 2, &[], |_| Script::run_forever()).await.unwrap();
    apply(&cluster, &pod("p", "")).await;
    see(&cluster, "pod p", "{.status.phase}", "Running").await;
    println!("first pod runs: {:?}", start.elapsed());
    let ready = "{.status.conditions[?(@.type=='Ready')].status}";

    // They survive a restart of the API server.
    cluster.stop_apiserver();
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.start_apiserver().await.unwrap();
    nodes.set_script(|_| Script::exit(Duration::ZERO, 0));
    apply(&cluster, &pod("q", "")).await;
    see(&cluster, "pod q", "{.status.phase}", "Succeeded").await;

    // Were it the last one, the controller manager would rather doubt itself.
    let lost = get(&cluster, "pod p", "{.spec.nodeName}").await;
    let node = format!("node {lost}");
    nodes.silence(&lost);
    see(&cluster, &node, ready, "Unknown").await;
    see(
        &cluster,
        "pod p",
        "{.status.conditions[?(@.type=='DisruptionTarget')].reason}",
        "DeletionByTaintManager",
    )
    .await;
    assert_eq!(get(&cluster, "pod p", "{.status.phase}").await, "Running");
    nodes.revive(&lost).await.unwrap();
    see(&cluster, &node, ready, "True").await;
    see(&cluster, "pod p", "{.metadata.name}", "").await;
    nodes.stop().await.unwrap();
    assert_eq!(get(&cluster, "nodes", "{.items[*].metadata.name}").await, "");
}
