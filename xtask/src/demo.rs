//! `cargo xtask demo`: a job from `kubectl apply` to `Completed`, with a worker that fails on the way.
//!
//! Control plane, kubectl and operator are real; the nodes are hollow, so nothing is trained: what is shown is what the
//! operator does.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api;
use trainyard_api::{State, TrainingJob};
use trainyard_testcluster::{Binaries, Component, Script, TestCluster};

use crate::manifests::root;
use crate::test::cargo;

const SAMPLE: &str = "config/samples/ml_v1alpha1_trainingjob.yaml";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Let the operator's own log lines through
    #[arg(long)]
    logs: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    println!("building trainyard");
    if !cargo(&["build", "--quiet", "--package", "trainyard"]).status()?.success() {
        bail!("the build failed");
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(show(args))
}

async fn show(args: &Args) -> anyhow::Result<()> {
    let binaries = Binaries::ensure(&mut |line| println!("{line}"))?;
    println!("starting etcd, API server, controller manager, scheduler and two hollow nodes");
    let cluster = TestCluster::builder().start_with(binaries).await?;
    let _nodes = cluster.hollow_nodes(2, &[], walk).await?;
    let file = |path: &str| root().join(path).display().to_string();
    kubectl(&cluster, &["apply", "-f", &file("kubernetes/base/trainingjob-crd.yaml")]).await?;
    cluster.await_kind("trainingjobs.ml.example.com").await?;
    kubectl(&cluster, &["create", "namespace", "ml-jobs"]).await?;

    let command: [OsString; 6] = [
        root().join("target/debug/trainyard").into(),
        "operator".into(),
        format!("--kubeconfig={}", cluster.kubeconfig().display()).into(),
        "--no-metrics".into(),
        "--log-format=text".into(),
        "--backoff-seconds=2".into(),
    ];
    let log = cluster.dir().join("operator.log");
    let mut operator = Component::start("operator", &command, log.clone())?;
    kubectl(&cluster, &["apply", "-f", &file(SAMPLE)]).await?;

    let start = Instant::now();
    let jobs: Api<TrainingJob> = Api::namespaced(cluster.client().await?, "ml-jobs");
    let mut told = String::new();
    loop {
        operator.check()?;
        let status = jobs.get("pytorch-mnist").await?.status.unwrap_or_default();
        let line = format!(
            "{:<13} {}",
            status.state.map_or("", State::as_str),
            status.message.as_deref().unwrap_or("accepted")
        );
        if line != told {
            println!("{:>6.1} s  {line}", start.elapsed().as_secs_f64());
            told = line;
        }
        if status.is_terminal() {
            break;
        }
        if start.elapsed() > Duration::from_mins(2) {
            bail!("the job did not end within two minutes:\n{}", operator.tail());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    kubectl(&cluster, &["get", "trainingjobs,pods", "-n", "ml-jobs"]).await?;
    kubectl(&cluster, &["events", "-n", "ml-jobs", "--for", "trainingjob/pytorch-mnist"]).await?;
    kubectl(&cluster, &["delete", "trainingjob", "pytorch-mnist", "-n", "ml-jobs"]).await?;
    if args.logs {
        print!("{}", std::fs::read_to_string(&log).context("the operator's log")?);
    }
    cluster.stop().await;
    Ok(())
}

/// Worker 1 fails in the first attempt; everybody else runs for a while and succeeds.
fn walk(pod: &Pod) -> Script {
    let first = pod.labels().get("trainingjob.ml.example.com/attempt").is_some_and(|attempt| attempt == "1");
    if first && pod.name_any().ends_with("-1") {
        Script::exit(Duration::from_secs(2), 1)
    } else {
        Script::exit(Duration::from_secs(4), 0)
    }
}

async fn kubectl(cluster: &TestCluster, arguments: &[&str]) -> anyhow::Result<()> {
    // A path of this checkout would only distract.
    let shown: Vec<String> =
        arguments.iter().map(|word| word.rsplit("/../").next().unwrap_or(word).to_owned()).collect();
    println!("$ kubectl {}", shown.join(" "));
    let output = cluster.kubectl().run(arguments).await?;
    print!("{}{}", output.stdout, output.stderr);
    if output.success { Ok(()) } else { bail!("kubectl failed") }
}
