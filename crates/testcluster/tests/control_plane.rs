//! The control plane itself: what a test may rely on, with real binaries.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{apply, get, processes_of, see};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams};
use trainyard_testcluster::{Error, TestCluster, enabled, shared};

#[tokio::test]
async fn starts_answers_kubectl_and_leaves_nothing() {
    if !enabled() {
        return;
    }
    let start = Instant::now();
    let cluster = TestCluster::builder().start().await.unwrap();
    println!("start-up: {:?}", start.elapsed());

    let version = cluster.kubectl().run(&["version"]).await.unwrap().expect("version");
    assert!(version.contains("Server Version: v1.36.3"), "{version}");
    let dir = cluster.dir().to_owned();
    assert_eq!(
        cluster.processes().iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    );

    let start = Instant::now();
    drop(cluster);
    println!("drop: {:?}", start.elapsed());
    assert!(!dir.exists());
    // A watcher may need a moment to see that its pipe is closed.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(processes_of(dir.to_str().unwrap()), [""; 0]);
}

#[tokio::test]
async fn without_controllers_pods_can_be_created_at_once() {
    if !enabled() {
        return;
    }
    let start = Instant::now();
    let cluster = TestCluster::builder().controllers(false).start().await.unwrap();
    println!("start-up without controllers: {:?}", start.elapsed());
    let run = ["run", "p", "--image=none", "--restart=Never"];
    cluster.kubectl().run(&run).await.unwrap().expect("run");
    cluster.stop().await;
}

#[tokio::test]
async fn owned_objects_are_collected() {
    if !enabled() {
        return;
    }
    let cluster = shared().await;
    let owner = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}"#;
    apply(cluster, owner).await;
    let uid = get(cluster, "configmap owner", "{.metadata.uid}").await;
    let dependent = format!(
        r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "owned", "ownerReferences": [
            {{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{uid}"}}]}}}}"#
    );
    apply(cluster, &dependent).await;
    cluster.kubectl().run(&["delete", "configmap", "owner"]).await.unwrap().expect("delete");
    see(cluster, "configmap owned", "{.metadata.name}", "").await;
}

#[tokio::test]
async fn claims_are_bound() {
    if !enabled() {
        return;
    }
    let cluster = shared().await;
    let claim = r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
";
    apply(cluster, claim).await;
    see(cluster, "pvc data", "{.status.phase}", "Bound").await;
    cluster.kubectl().run(&["delete", "pvc", "data"]).await.unwrap().expect("delete");
    see(cluster, "pv", "{.items[*].metadata.name}", "").await;
}

#[tokio::test]
async fn users_are_under_rbac() {
    if !enabled() {
        return;
    }
    let cluster = shared().await;
    cluster.kubectl().run(&["create", "namespace", "team"]).await.unwrap().expect("namespace");
    for (name, subject) in [
        ("to-user", "--user=ada"),
        ("to-group", "--group=readers"),
        ("to-account", "--serviceaccount=team:robot"),
    ] {
        let bind = ["create", "rolebinding", "-n", "team", name, "--clusterrole=view", subject];
        cluster.kubectl().run(&bind).await.unwrap().expect("bind");
    }
    let configs = [
        cluster.config_for("ada", &[]).await.unwrap(),
        cluster.config_for("bob", &["writers", "readers"]).await.unwrap(),
        cluster.config_for_service_account("team", "robot").await.unwrap(),
    ];
    for config in configs {
        let client = kube::Client::try_from(config).unwrap();
        let list = async |namespace| {
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            maps.list(&ListParams::default()).await
        };
        // The binding takes a moment to reach the authorizer.
        let start = Instant::now();
        while let Err(error) = list("team").await {
            assert!(start.elapsed() < Duration::from_secs(10), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(matches!(list("default").await, Err(kube::Error::Api(status)) if status.is_forbidden()));
    }
    let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    let robot = cluster.kubeconfig_for_service_account("team", "robot").unwrap();
    let name = cluster.kubectl().kubeconfig(robot).run(&whoami).await.unwrap().expect("whoami");
    assert_eq!(name, "system:serviceaccount:team:robot");
    assert!(matches!(cluster.kubeconfig_for("eve", &["a", "b", "c"]), Err(Error::TooManyGroups { .. })));
}

#[tokio::test]
async fn the_api_server_can_go_and_come_back() {
    if !enabled() {
        return;
    }
    let mut cluster = TestCluster::builder().start().await.unwrap();
    let client = cluster.client().await.unwrap();
    cluster.kubectl().run(&["create", "configmap", "kept"]).await.unwrap().expect("create");
    cluster.stop_apiserver();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.list(&ListParams::default()).await.unwrap_err();
    assert!(!cluster.kubectl().run(&["get", "configmap", "kept"]).await.unwrap().success);
    let start = Instant::now();
    cluster.start_apiserver().await.unwrap();
    println!("API server back: {:?}", start.elapsed());
    cluster.kubectl().run(&["get", "configmap", "kept"]).await.unwrap().expect("get");
    pods.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_scheduler_that_ends_is_started_again() {
    if !enabled() {
        return;
    }
    let cluster = TestCluster::builder().start().await.unwrap();
    let (_, keeper) = cluster.processes().into_iter().find(|(name, _)| *name == "kube-scheduler").unwrap();
    let programs = || {
        let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap();
        let is_it = |pid: &String| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim() == "kube-scheduler"
        };
        children.split_whitespace().map(str::to_owned).filter(is_it).collect::<Vec<_>>()
    };
    let before = programs();
    assert!(Command::new("kill").arg("-9").args(&before).status().unwrap().success());
    let run = ["run", "p", "--image=none", "--restart=Never"];
    cluster.kubectl().run(&run).await.unwrap().expect("run");
    // There is no node, which only a scheduler says.
    see(&cluster, "pod p", "{.status.conditions[0].reason}", "Unschedulable").await;
    assert!(!programs().is_empty() && programs() != before, "{before:?}, {:?}", programs());
}

#[tokio::test]
async fn a_component_that_cannot_start_says_why() {
    if !enabled() {
        return;
    }
    let error = TestCluster::builder().apiserver_arg("--no-such-flag").start().await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("kube-apiserver ended (exit status: 1)"), "{text}");
    assert!(text.contains("unknown flag: --no-such-flag"), "{text}");
    let Error::Ended { log, .. } = error else { panic!("{error:?}") };
    let dir = log.parent().unwrap().parent().unwrap();
    assert!(log.exists());
    assert_eq!(processes_of(dir.to_str().unwrap()), [""; 0]);
    std::fs::remove_dir_all(dir).unwrap();
}

/// Not a test: what the next one kills. Says where its cluster is, then does nothing.
#[tokio::test]
async fn hold_a_cluster() {
    if std::env::var_os("HOLD_A_CLUSTER").is_none() {
        return;
    }
    println!("cluster in {}", shared().await.dir().display());
    std::future::pending::<()>().await;
}

#[test]
fn nothing_outlives_a_killed_process() {
    if !enabled() {
        return;
    }
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold_a_cluster", "--nocapture"])
        .env("HOLD_A_CLUSTER", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
    let dir = lines.find_map(|line| Some(line.split_once("cluster in ")?.1.to_owned())).unwrap();
    // Four components, their watchers, who starts two of them again when they end, and the one that removes the directory.
    assert_eq!(processes_of(&dir).len(), 11, "{:#?}", processes_of(&dir));

    // SIGKILL: no destructor runs.
    holder.kill().unwrap();
    let start = Instant::now();
    while !processes_of(&dir).is_empty() || std::path::Path::new(&dir).exists() {
        assert!(start.elapsed() < Duration::from_secs(5), "left: {:#?}", processes_of(&dir));
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("gone after: {:?}", start.elapsed());
    holder.wait().unwrap();
}
