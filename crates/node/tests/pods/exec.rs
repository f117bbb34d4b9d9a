//! Commands inside containers.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trainyard_apiserver::{ExecExit, ExecOptions, Kubelet, KubeletError};

use crate::support::{World, id, script};

async fn world() -> (World, k8s_openapi::api::core::v1::Pod) {
    let world = World::new().await;
    let mut pod = script("open", "sleep 600");
    pod["spec"]["hostname"] = json!("inside");
    pod["spec"]["containers"][0]["env"] = json!([{"name": "WHO", "value": "me"}]);
    world.create(pod).await;
    let pod = world.wait_phase("open", "Running").await;
    (world, pod)
}

fn command(words: &[&str]) -> ExecOptions {
    let command = words.iter().map(|word| (*word).to_owned()).collect();
    ExecOptions { command, stdin: true, stdout: true, stderr: true, tty: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_its_namespaces_with_its_environment() {
    let (world, pod) = world().await;
    let mut session = world
        .node
        .exec(&id(&pod), "main", command(&["sh", "-c", "hostname; echo $WHO; cat; echo e >&2; exit 5"]))
        .await
        .unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"typed\n").await.unwrap();
    stdin.shutdown().await.unwrap();
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    session.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
    session.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!((out.as_str(), err.as_str()), ("inside\nme\ntyped\n", "e\n"));
    assert_eq!(session.exit.await, ExecExit::Code(5));
    let mut session = world.node.exec(&id(&pod), "main", command(&["ps", "-e"])).await.unwrap();
    let mut out = String::new();
    session.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
    assert!(out.contains("sleep") && out.lines().count() < 8, "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_terminal() {
    let (world, pod) = world().await;
    let options = ExecOptions {
        tty: true,
        stderr: false,
        ..command(&["sh", "-c", "tty >/dev/null && echo terminal; read x; stty size; echo got $x"])
    };
    let mut session = world.node.exec(&id(&pod), "main", options).await.unwrap();
    session.resize.as_ref().unwrap()(100, 40);
    let mut out = session.stdout.take().unwrap();
    let mut text = String::new();
    let mut buffer = [0; 256];
    while !text.contains("terminal") {
        let length = out.read(&mut buffer).await.unwrap();
        assert!(length > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"hello\n").await.unwrap();
    out.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("40 100") && text.contains("got hello"), "{text}");
    assert_eq!(session.exit.await, ExecExit::Code(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_run() {
    let (world, pod) = world().await;
    let mut session = world.node.exec(&id(&pod), "main", command(&["no-such-program"])).await.unwrap();
    let mut err = String::new();
    session.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!(err, "exec: \"no-such-program\": executable file not found in $PATH\n");
    assert_eq!(session.exit.await, ExecExit::Code(127));
    world.run(script("over", "true")).await;
    let over = world.pods().get("over").await.unwrap();
    let refused = world.node.exec(&id(&over), "main", command(&["true"])).await;
    assert!(matches!(refused, Err(KubeletError::BadRequest(message)) if message.contains("is not running")));
}
