//! `trainyard up`: a control plane that other processes talk to.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use trainyard_api::{State, TrainingJob};

use crate::plane::{Plane, client};
use crate::support::{Bench, job};

#[tokio::test(flavor = "multi_thread")]
async fn jobs_outlive_the_control_plane() {
    let bench = Bench::new();
    let Plane { up, client, jobs } = Plane::start(&bench).await;
    // It would save its work and end well when it is told to stop, which does not mean that it is done.
    let script = "trap 'exit 0' TERM; echo MARK attempt $TRAINYARD_ATTEMPT; \
                  while test $TRAINYARD_ATTEMPT = 1; do sleep 0.05; done; exit 0";
    jobs.create(&job("bert", 2, &script.replace("MARK", &bench.mark))).await;
    jobs.until_state("bert", State::Running).await;

    // Nothing happens, so nothing is written: neither by the operator nor by the node.
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let everything = async || {
        let pods = pods.list(&ListParams::default()).await.unwrap();
        let pods: Vec<_> = pods.items.iter().map(ResourceExt::resource_version).collect();
        (pods, jobs.get("bert").await.resource_version())
    };
    let mut before = everything().await;
    let mut quiet = 0;
    for _ in 0..50 {
        // The last words about the start may still be on their way.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let now = everything().await;
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        if quiet == 3 {
            break;
        }
    }
    assert_eq!(quiet, 3, "somebody writes although nothing happens");

    let second = bench.run(&["up", "--state", "state", "--address", "127.0.0.1:0"]);
    assert_eq!(second.code, Some(2), "{second}");
    assert!(second.stderr.contains("in use by another trainyard"), "{second}");

    let down = bench.run(&["down", "--state", "state"]);
    assert_eq!(down.code, Some(0), "{down}");
    assert_eq!(up.wait().code, Some(0));
    bench.nobody_is_left();

    let Plane { up, jobs, .. } = Plane::start(&bench).await;
    let restarts = jobs.until_state("bert", State::Completed).await.restarts.unwrap();
    assert_eq!((restarts.disruption, restarts.application), (1, 0), "a stop of the machine is no failure");
    jobs.delete("bert").await;
    up.signal("-TERM");
    assert_eq!(up.wait().code, Some(0));
    let down = bench.run(&["down", "--state", "state"]);
    assert!(down.code == Some(0) && down.stdout.contains("No control plane runs"), "{down}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_in_without_the_token() {
    let bench = Bench::new();
    let plane = Plane::start(&bench).await;
    let path = bench.path().join("state/kubeconfig");
    let text = std::fs::read_to_string(&path).unwrap();
    let token = std::fs::read_to_string(bench.path().join("state/token")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "only its owner may read it");
    std::fs::write(&path, text.replace(token.trim(), "0000")).unwrap();
    let stranger = client(&bench).await;
    let jobs: Api<TrainingJob> = Api::all(stranger);
    match jobs.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 401, "{status:?}"),
        other => panic!("{other:?}"),
    }
    std::fs::write(&path, text).unwrap();
    let jobs: Api<TrainingJob> = Api::all(client(&bench).await);
    assert!(
        jobs.list(&ListParams::default()).await.unwrap().items.iter().all(|job| !job.name_any().is_empty())
    );
    drop(plane);
}

#[test]
fn what_cannot_be_served_is_told() {
    let bench = Bench::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = bench.run(&["up", "--state", "state", "--address", &address]);
    assert_eq!(ended.code, Some(2), "{ended}");
    assert!(ended.stderr.contains("--address"), "{ended}");
    let ended = bench.run(&["up", "--state", "state", "--address", "0.0.0.0:0", "--insecure"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("loopback"), "{ended}");
}

#[test]
fn in_the_background_it_says_where_it_is() {
    let bench = Bench::new();
    let up = bench.run(&["up", "-d", "--state", "state", "--address", "127.0.0.1:0"]);
    assert_eq!(up.code, Some(0), "{up}");
    assert!(up.stdout.starts_with("export KUBECONFIG="), "{up}");
    let down = bench.run(&["down", "--state", "state"]);
    assert!(down.code == Some(0) && down.stdout.contains("has ended"), "{down}");
}

/// The lab's commands as they are written, with the real kubectl, on a job that sleeps.
#[tokio::test(flavor = "multi_thread")]
async fn the_labs_session() {
    if !trainyard_testcluster::enabled() {
        return;
    }
    let bench = Bench::new();
    let plane = Plane::start(&bench).await;
    let binaries = trainyard_testcluster::Binaries::ensure(&mut |_| {}).unwrap();
    let kubectl = |arguments: &[&str]| {
        let output = std::process::Command::new(binaries.path("kubectl"))
            .args(arguments)
            .env("KUBECONFIG", bench.path().join("state/kubeconfig"))
            .env("HOME", bench.path())
            .current_dir(bench.path())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let ok = |arguments: &[&str]| {
        let (success, out, err) = kubectl(arguments);
        assert!(success, "{arguments:?}\n{out}\n{err}");
        out
    };
    let lab = job("pytorch-mnist", 2, "echo MARK rank $RANK of $WORLD_SIZE; exec sleep 1000")
        .replace("ml.example.com/v1", "ml.example.com/v1alpha1")
        .replace("numWorkers", "workers")
        .replace("{name: pytorch-mnist}", "{name: pytorch-mnist, namespace: ml-jobs}");
    bench.write("sample.yaml", &lab);
    ok(&["create", "namespace", "ml-jobs"]);
    assert!(ok(&["apply", "--dry-run=server", "-f", "sample.yaml"]).contains("created (server dry run)"));
    ok(&["apply", "-f", "sample.yaml"]);
    let running = "--for=jsonpath={.status.state}=Running";
    ok(&["wait", running, "trainingjob/pytorch-mnist", "-n", "ml-jobs", "--timeout=60s"]);
    let listed = ok(&["get", "trainingjobs", "-n", "ml-jobs"]);
    assert!(listed.starts_with("NAME            STATE     PROGRESS   EPOCH   WORKERS   AGE"), "{listed}");
    let alpha = ok(&["get", "trainingjobs.v1alpha1.ml.example.com", "-n", "ml-jobs"]);
    assert!(alpha.contains("FRAMEWORK") && alpha.contains("custom"), "{alpha}");
    let described = ok(&["describe", "trainingjob", "pytorch-mnist", "-n", "ml-jobs"]);
    for part in ["Worker Statuses", "Created 2 worker pods", "TrainingStarted"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    let selector = "trainingjob.ml.example.com/worker";
    assert_eq!(ok(&["get", "pods", "-n", "ml-jobs", "-l", selector, "-o", "name"]).lines().count(), 2);
    let logs = ok(&["logs", "-n", "ml-jobs", "-l", selector]);
    assert!(logs.contains("rank 0 of 2") && logs.contains("rank 1 of 2"), "{logs}");
    let patch = r#"[{"op": "replace", "path": "/spec/workers", "value": 4}]"#;
    ok(&["patch", "trainingjob", "pytorch-mnist", "-n", "ml-jobs", "--type=json", "-p", patch]);
    let four = "--for=jsonpath={.status.workers.active}=4";
    ok(&["wait", four, "trainingjob/pytorch-mnist", "-n", "ml-jobs", "--timeout=60s"]);
    let name = ok(&["exec", "-n", "ml-jobs", "pytorch-mnist-workers-3", "--", "hostname"]);
    assert_eq!(name.trim(), "pytorch-mnist-workers-3");
    ok(&["delete", "trainingjob", "pytorch-mnist", "-n", "ml-jobs"]);
    let (_, out, err) = kubectl(&["get", "pods", "-n", "ml-jobs"]);
    assert!(out.is_empty() && err.contains("No resources found"), "{out}{err}");
    let (success, _, err) = kubectl(&["create", "deployment", "x", "--image=y"]);
    assert!(!success && !err.is_empty(), "refused in words: {err}");
    bench.nobody_is_left();
    drop(plane);
}
