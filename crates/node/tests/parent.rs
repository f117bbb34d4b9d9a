//! Nothing survives the death of the process that runs the node, even by kill -9.
//!
//! The test starts itself again as that process, kills it, and looks for the containers' processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use trainyard_apiserver::ApiServer;
use trainyard_node::{Config, Isolation, Node};

/// Set in the process that is going to be killed: its state directory, and whether containers have namespaces.
const VICTIM: &str = "TRAINYARD_TEST_VICTIM";
const MARKER: &str = "TRAINYARD_TEST_MARKER";

#[tokio::test(flavor = "multi_thread")]
async fn victim() {
    let (Ok(state), Ok(marker)) = (std::env::var(VICTIM), std::env::var(MARKER)) else { return };
    let api = ApiServer::builder().build().unwrap();
    let client = api.client("default");
    let mut config = Config::new(Path::new(&state));
    config.shim = vec![env!("CARGO_BIN_EXE_trainyard-shim").to_owned()];
    config.working_dir = "/tmp".into();
    if state.ends_with("off") {
        config.isolation = Isolation::Off;
    }
    let node = Node::start(client.clone(), config).await.unwrap();
    let text = format!(
        "trap '' TERM HUP INT; setsid sleep {marker} & sleep {marker} & while :; do sleep {marker}; done"
    );
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "worker"},
        "spec": {"restartPolicy": "Never",
            "containers": [{"name": "main", "image": "i", "command": ["sh", "-c", text]}]},
    }))
    .unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "default");
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let running =
        |pod: Option<&Pod>| pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some("Running");
    kube::runtime::wait::await_condition(pods, "worker", running).await.unwrap();
    println!("\nrunning");
    std::future::pending::<()>().await;
    drop(node);
}

fn sleepers(marker: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.ends_with(format!("sleep\0{marker}\0").as_bytes())).count()
}

/// Looks again until it is so; whoever waits in vain fails.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < patience, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn dies_with_its_parent(suffix: &str, number: u32) {
    let state = tempfile::tempdir().unwrap();
    let marker = format!("{}{number}", std::process::id() + 10_000);
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["victim", "--exact", "--nocapture"])
        .env(VICTIM, state.path().join(suffix))
        .env(MARKER, &marker)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "running"), "the pod never ran");
    eventually("three processes in the container", || sleepers(&marker) == 3);
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("no process is left", || sleepers(&marker) == 0);
}

#[test]
fn with_namespaces() {
    dies_with_its_parent("on", 1);
}

#[test]
fn without_namespaces() {
    dies_with_its_parent("off", 2);
}
