//! `cargo xtask bench --local`: one machine without a cluster. Speed is compared with something else in the same run.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::json;
use trainyard_api::{State, TrainingJob, crd};
use trainyard_apiserver::ApiServer;
use trainyard_operator::{Config, Operator};
use trainyard_testcluster::{Binaries, TestCluster};

use crate::bench::{all_requests, post_all, training_job};
use crate::manifests::root;

/// Jobs for the create rate: on the embedded server, and on the real one.
const CREATES: (usize, usize) = (2_000, 300);
const STARTS: usize = 10;

pub(crate) async fn measure(jobs: usize) -> anyhow::Result<()> {
    first_worker()?;
    create_rate().await?;
    through_the_operator(jobs).await?;
    idle_control_plane()
}

/// From the start of the command to the first line of a worker's program.
fn first_worker() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("stamp.py"), "import time\nopen('started', 'w').write(str(time.time_ns()))\n")?;
    std::fs::write(
        at("job.yaml"),
        "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {name: quick}\n\
         spec: {image: none, framework: custom, command: [sh, -c, 'date +%s%N > started']}\n",
    )?;
    let mut ours = Vec::new();
    for _ in 0..STARTS {
        let mut command = Command::new(root().join("target/release/trainyard"));
        command.args(["run", "job.yaml", "-o", "json"]).current_dir(directory.path());
        ours.push(started(command, &at("started"))?);
    }
    let [p50, worst] = middle_and_worst(&mut ours);
    println!(
        "trainyard run → first worker started:  p50 {p50:>6.0} ms, worst {worst:.0} ms (wanted: at most 150)"
    );
    // Debian's torch belongs to Debian's Python, which may not be the first one in PATH.
    let has_torch = |python: &&str| {
        let asked = Command::new(python).args(["-c", "import torch"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has_torch) else {
        println!("  torchrun with the same program:      skipped, python3 has no torch here");
        return Ok(());
    };
    let mut theirs = Vec::new();
    for _ in 0..3 {
        let mut command = Command::new(python);
        command.args(["-m", "torch.distributed.run", "--nproc_per_node=1", "stamp.py"]);
        command.current_dir(directory.path()).env("PET_REDIRECTS", "1").env("PET_TEE", "1");
        theirs.push(started(command, &at("started"))?);
    }
    let [p50, worst] = middle_and_worst(&mut theirs);
    println!("  torchrun with the same program:      p50 {p50:>6.0} ms, worst {worst:.0} ms");
    Ok(())
}

fn started(mut command: Command, stamp: &Path) -> anyhow::Result<Duration> {
    let _ = std::fs::remove_file(stamp);
    let before = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let output = command.output().context("starting")?;
    let text = std::fs::read_to_string(stamp)
        .with_context(|| format!("it never started: {}", String::from_utf8_lossy(&output.stderr)))?;
    let after = Duration::from_nanos(text.trim().parse()?);
    Ok(after.saturating_sub(before))
}

fn middle_and_worst(times: &mut [Duration]) -> [f64; 2] {
    times.sort_unstable();
    let millis = |at: usize| times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    [millis(times.len() / 2), millis(times.len().saturating_sub(1))]
}

/// Creates per second of the embedded API server and of the real one, with the same client code: jobs, and the pods,
/// services and config maps that the operator makes for them. On the embedded one, owners that do not exist would
/// have their objects collected, so there the objects have none.
async fn create_rate() -> anyhow::Result<()> {
    let embedded = ApiServer::builder().build()?;
    let client = embedded.client("default");
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &crd::training_job()).await?;
    let ours = rate(&client, CREATES.0).await?;

    let binaries = Binaries::ensure(&mut |line| println!("{line}"))?;
    let cluster = TestCluster::builder().controllers(false).start_with(binaries).await?;
    let file = root().join("kubernetes/base/trainingjob-crd.yaml");
    let file = file.to_str().context("a path that is no text")?;
    cluster.kubectl().run(&["apply", "-f", file]).await?.expect("the CRD");
    cluster.await_kind("trainingjobs.ml.example.com").await?;
    let client = trainyard_operator::connect(cluster.config().await?)?;
    let theirs = rate(&client, CREATES.1).await?;
    cluster.stop().await;
    println!("creates per second, embedded API server: {ours:>8.0}");
    println!("creates per second, real API server:     {theirs:>8.0}");
    println!("  ratio:                                 {:>8.1} (wanted: at least 20)", ours / theirs);
    Ok(())
}

async fn rate(client: &Client, jobs: usize) -> anyhow::Result<f64> {
    let mut requests = all_requests("default", jobs)?;
    for (_, body) in &mut requests {
        let mut object: serde_json::Value = serde_json::from_slice(body)?;
        if let Some(metadata) = object.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
            metadata.remove("ownerReferences");
        }
        *body = serde_json::to_vec(&object)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let count = requests.len() as f64;
    Ok(count / post_all(client, requests).await?.as_secs_f64())
}

/// Many jobs through the operator, with pods that end at once.
async fn through_the_operator(jobs: usize) -> anyhow::Result<()> {
    let server = ApiServer::builder().build()?;
    let client = server.client("default");
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &crd::training_job()).await?;
    let operator = Operator::bind(client.clone(), Config::default()).await?;
    let operator = tokio::spawn(operator.run(std::future::pending()));
    let node = tokio::spawn(end_pods_at_once(client.clone()));

    let api: Api<TrainingJob> = Api::namespaced(client.clone(), "default");
    let start = Instant::now();
    for index in 0..jobs {
        api.create(&PostParams::default(), &training_job("default", &format!("job-{index}"), 3)).await?;
    }
    loop {
        let list = api.list(&ListParams::default()).await?;
        let done = |job: &&TrainingJob| {
            job.status.as_ref().and_then(|status| status.state) == Some(State::Completed)
        };
        if list.items.iter().filter(done).count() == jobs {
            break;
        }
        if start.elapsed() > Duration::from_mins(5) {
            bail!("not all jobs completed within five minutes");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!(
        "{jobs} jobs × 4 workers through the operator, first create → all completed: {:.1} s (wanted: at most 10)",
        start.elapsed().as_secs_f64()
    );
    node.abort();
    operator.abort();
    Ok(())
}

async fn end_pods_at_once(client: Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    let ended = json!({"status": {"phase": "Succeeded", "containerStatuses": [{
        "name": "training-worker", "image": "train:1", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
    }]}});
    let mut events = std::pin::pin!(watcher::watcher(pods, watcher::Config::default()));
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event else { continue };
        if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded") {
            continue;
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&ended)).await;
    }
}

/// Resident memory of a control plane that nobody uses.
fn idle_control_plane() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut up = Ended(
        Command::new(root().join("target/release/trainyard"))
            .args(["up", "--state"])
            .arg(directory.path())
            .args(["--address", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?,
    );
    let start = Instant::now();
    while !directory.path().join("kubeconfig").exists() {
        if start.elapsed() > Duration::from_secs(30) {
            bail!("the control plane does not start");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(3));
    let status = std::fs::read_to_string(format!("/proc/{}/status", up.0.id()))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    println!("idle `trainyard up`:                     {:>8.1} MB (wanted: under 25)", kilobytes / 1024.0);
    let _ = up.0.kill();
    Ok(())
}

/// A process that does not outlive the bench.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
