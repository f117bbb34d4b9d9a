//! `cargo xtask bench`: the operator on a real API server, next to a bare client that posts the same objects.
//!
//! Machines differ and are noisy, so speed is given as a ratio between two runs on one machine, in one go. No nodes are
//! needed: etcd and the API server alone show what the operator costs.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::request::Request;
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trainyard_api::{State, TrainingJob};
use trainyard_plan::{NewObject, Settings, Snapshot, Step, plan};
use trainyard_testcluster::{Binaries, Component, TestCluster};

use crate::manifests::root;
use crate::test::cargo;

const WORKERS: i32 = 4;
/// Connections of the bare client.
const CONNECTIONS: usize = 16;
/// Clients that create jobs for the operator.
const CLIENTS: usize = 8;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Jobs to create; 0 leaves the load out
    #[arg(long, default_value_t = 1000)]
    jobs: usize,
    /// Only what needs no cluster: one machine, the embedded control plane
    #[arg(long)]
    local: bool,
    /// Only the recovery of a job on real nodes, which takes root
    #[arg(long, conflicts_with = "local")]
    recovery: bool,
    /// How often a worker is killed on real nodes, of each program
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Failures to react to
    #[arg(long, default_value_t = 300)]
    reactions: usize,
    /// Only the large gang that is killed
    #[arg(long, conflicts_with_all = ["local", "recovery"])]
    gang: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        // The embedded control plane is measured inside this very process. Both programs in one go: built one after
        // the other, they would need different features of the same libraries.
        println!("building the release binaries");
        let build = ["build", "--release", "--quiet", "--package", "trainyard", "--package", "xtask"];
        if !cargo(&build).status()?.success() {
            bail!("the release build failed");
        }
        let mut again = std::process::Command::new(root().join("target/release/xtask"));
        if !again.args(std::env::args().skip(1)).current_dir(root()).status()?.success() {
            bail!("the bench failed");
        }
        return Ok(());
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        if args.recovery {
            return crate::recovery::measure(args.rounds).await;
        }
        if args.gang {
            let (cluster, client) = start().await?;
            gang(&cluster, &client).await?;
            cluster.stop().await;
            return Ok(());
        }
        if !args.local {
            measure(args).await?;
            crate::recovery::measure(args.rounds).await?;
        }
        crate::local::measure(args.jobs).await?;
        crate::simulator::measure()
    })
}

/// A real API server with our CRD, and namespaces for everything that is measured.
async fn start() -> anyhow::Result<(TestCluster, Client)> {
    let binaries = Binaries::ensure(&mut |line| println!("{line}"))?;
    let cluster = TestCluster::builder().controllers(false).start_with(binaries).await?;
    let crd = root().join("kubernetes/base/trainingjob-crd.yaml");
    let crd = crd.to_str().context("a path that is no text")?;
    cluster.kubectl().run(&["apply", "-f", crd]).await?.expect("the CRD");
    cluster.await_kind("trainingjobs.ml.example.com").await?;
    // The bare client is as good as ours, so that the ratio says something about the operator.
    let client = trainyard_operator::connect(cluster.config().await?)?;
    for namespace in ["bare", "operated", "life", "reaction", "gang", "gang-bare"] {
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &object).await?;
    }
    Ok((cluster, client))
}

async fn measure(args: &Args) -> anyhow::Result<()> {
    let (cluster, client) = start().await?;
    let operator = RunningOperator::start(&cluster, "life", &[]).await?;
    one_life(&client).await?;
    let (writes, refused) = operator.writes().await?;
    println!(
        "writes of one job's whole life:            {writes:>8}   (wanted: at most 20), refused: {refused} (wanted: 0)"
    );
    drop(operator);

    let operator = RunningOperator::start(&cluster, "reaction", &["--backoff-seconds=0"]).await?;
    let mut times = reactions(&client, args.reactions).await?;
    let own = operator.own_time().await?;
    drop(operator);
    let mut bare = bare_reactions(&client, args.reactions).await?;
    let [p50, p99] = percentiles(&mut times);
    println!(
        "pod failed → replacement created:     p50 {p50:>5.1} ms, p99 {p99:.1} ms (wanted: p99 at most 50)"
    );
    println!(
        "  of that, the operator's own time from each piece of news to what it does: {own} (wanted: p99 under 5)"
    );
    let [p50, p99] = percentiles(&mut bare);
    println!("  the same requests by a bare client: p50 {p50:>5.1} ms, p99 {p99:.1} ms");

    gang(&cluster, &client).await?;

    if args.jobs > 0 {
        load(&cluster, &client, args).await?;
    }
    cluster.stop().await;
    Ok(())
}

/// Many jobs at once, and what they cost.
async fn load(cluster: &TestCluster, client: &Client, args: &Args) -> anyhow::Result<()> {
    let bare = bare_client(client, args.jobs).await?;
    println!("bare client, {CONNECTIONS} connections:            {:>8.2} s", bare.as_secs_f64());

    let mut operator = RunningOperator::start(cluster, "operated", &[]).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = operator.resident()?;
    let operated = create_jobs(client, args.jobs).await?;
    println!("operator, {CLIENTS} clients, first create → last pod: {:>6.2} s", operated.as_secs_f64());
    println!(
        "  ratio to the bare client:                {:>8.2}   (wanted: at most 1.30)",
        operated.as_secs_f64() / bare.as_secs_f64()
    );
    until_reported(client, args.jobs).await?;
    let (writes, refused) = operator.writes().await?;
    println!("  writes:                                  {writes:>8}   refused: {refused}");
    println!("operator memory, idle:                     {idle:>8.1} MB (wanted: at most 15)");
    println!(
        "operator memory, after {} jobs:          {:>8.1} MB (wanted: at most 25)",
        args.jobs,
        operator.resident()?
    );
    println!("operator CPU for them:                     {:>8.2} s  (wanted: at most 5)", operator.cpu()?);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (later, _) = operator.writes().await?;
    println!("API calls of {} idle jobs in 10 s:       {:>8}   (wanted: 0)", args.jobs, later - writes);
    operator.component.check()?;
    drop(operator);
    Ok(())
}

pub(crate) fn training_job(namespace: &str, name: &str, backoff_limit: i32) -> TrainingJob {
    let value = json!({
        "apiVersion": "ml.example.com/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "image": "train:1",
            "command": ["python", "train.py"],
            "args": ["--epochs=10", "--batch-size=64"],
            "numWorkers": WORKERS,
            "backoffLimit": backoff_limit,
            "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}},
            "hyperparameters": {"learningRate": 0.001, "optimizer": "adam"},
        },
    });
    serde_json::from_value(value).unwrap_or_else(|error| panic!("the bench's own job: {error}"))
}

/// Posts what the operator would create, and the jobs themselves, with nothing in between.
async fn bare_client(client: &Client, jobs: usize) -> anyhow::Result<Duration> {
    let requests = all_requests("bare", jobs)?;
    post_all(client, requests).await
}

/// The jobs, and what the operator would create for them: path and body of each.
pub(crate) fn all_requests(namespace: &str, jobs: usize) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut requests = Vec::new();
    for index in 0..jobs {
        let mut job = training_job(namespace, &format!("job-{index}"), 3);
        requests.push((TrainingJob::url_path(&(), Some(namespace)), serde_json::to_vec(&job)?));
        job.metadata.uid = Some(format!("00000000-0000-0000-0000-{index:012}"));
        for step in
            plan(&Snapshot::of(job), &Settings::default(), Timestamp::now()).stages.into_iter().flatten()
        {
            if let Step::Create(object) = step {
                requests.push(match object {
                    NewObject::Pod(pod) => (Pod::url_path(&(), Some(namespace)), serde_json::to_vec(&pod)?),
                    NewObject::Service(it) => (
                        k8s_openapi::api::core::v1::Service::url_path(&(), Some(namespace)),
                        serde_json::to_vec(&it)?,
                    ),
                    NewObject::ConfigMap(it) => (
                        k8s_openapi::api::core::v1::ConfigMap::url_path(&(), Some(namespace)),
                        serde_json::to_vec(&it)?,
                    ),
                    NewObject::Claim(it) => (
                        k8s_openapi::api::core::v1::PersistentVolumeClaim::url_path(&(), Some(namespace)),
                        serde_json::to_vec(&it)?,
                    ),
                });
            }
        }
    }
    Ok(requests)
}

/// Posts all of them over several connections.
pub(crate) async fn post_all(client: &Client, requests: Vec<(String, Vec<u8>)>) -> anyhow::Result<Duration> {
    let requests = Arc::new(Mutex::new(requests.into_iter()));
    let start = Instant::now();
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (client, requests) = (client.clone(), requests.clone());
        connections.spawn(async move {
            let next = || requests.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some((url, body)) = next() {
                let request = Request::new(url).create(&PostParams::default(), body)?;
                client.request_text(request).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = connections.join_next().await {
        done??;
    }
    Ok(start.elapsed())
}

/// Creates jobs from several clients at once and waits for the last pod.
async fn create_jobs(client: &Client, jobs: usize) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let clients: FuturesUnordered<_> = (0..CLIENTS)
        .map(|first| async move {
            let api: Api<TrainingJob> = Api::namespaced(client.clone(), "operated");
            for index in (first..jobs).step_by(CLIENTS) {
                let job = training_job("operated", &format!("job-{index}"), 3);
                api.create(&PostParams::default(), &job).await?;
            }
            anyhow::Ok(())
        })
        .collect();
    let create = clients.collect::<Vec<_>>();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "operated");
    let wanted = i64::try_from(jobs)? * i64::from(WORKERS);
    let count = async {
        loop {
            let list = pods.list_metadata(&ListParams::default().limit(1)).await?;
            let seen = i64::try_from(list.items.len())? + list.metadata.remaining_item_count.unwrap_or(0);
            if seen >= wanted {
                return anyhow::Ok(start.elapsed());
            }
            if start.elapsed() > Duration::from_mins(10) {
                bail!("only {seen} of {wanted} pods after ten minutes");
            }
            // Asking is not free for the API server either.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let (created, elapsed) = tokio::join!(create, count);
    created.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
    elapsed
}

/// Until every job says that its pods were created: after that, nothing happens any more.
async fn until_reported(client: &Client, jobs: usize) -> anyhow::Result<()> {
    let start = Instant::now();
    let api: Api<TrainingJob> = Api::namespaced(client.clone(), "operated");
    loop {
        let list = api.list(&ListParams::default()).await?;
        let told = |job: &&TrainingJob| {
            let attempts = job.status.as_ref().map(|status| status.attempts.as_slice()).unwrap_or_default();
            attempts.last().is_some_and(|attempt| attempt.created_time.is_some())
        };
        if list.items.iter().filter(told).count() == jobs {
            break;
        }
        if start.elapsed() > Duration::from_mins(5) {
            bail!("not every job was reported within five minutes");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!("  all reported after another:              {:>8.2} s", start.elapsed().as_secs_f64());
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}

async fn set_status(pods: &Api<Pod>, name: &str, status: Value) -> anyhow::Result<Pod> {
    Ok(pods.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?)
}

fn ended(phase: &str, code: i32) -> Value {
    let terminated = json!({"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }});
    json!({"phase": phase, "containerStatuses": [{
        "name": "training-worker", "image": "train:1", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": terminated},
    }]})
}

/// From create to deleted, with pods that start and end one after the other.
async fn one_life(client: &Client) -> anyhow::Result<()> {
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), "life");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "life");
    let state = async |wanted: State| {
        let start = Instant::now();
        while jobs.get("bert").await?.status.and_then(|status| status.state) != Some(wanted) {
            if start.elapsed() > Duration::from_secs(30) {
                bail!("the job never came to {wanted:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    jobs.create(&PostParams::default(), &training_job("life", "bert", 3)).await?;
    state(State::Initializing).await?;
    for index in 0..WORKERS {
        set_status(&pods, &format!("bert-workers-{index}"), json!({"phase": "Running"})).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    state(State::Running).await?;
    for index in 0..WORKERS {
        set_status(&pods, &format!("bert-workers-{index}"), ended("Succeeded", 0)).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    state(State::Completed).await?;
    jobs.delete("bert", &DeleteParams::default()).await?;
    until_gone(&jobs, "bert").await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(())
}

async fn until_gone(jobs: &Api<TrainingJob>, name: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    while jobs.get_opt(name).await?.is_some() {
        if start.elapsed() > Duration::from_secs(30) {
            bail!("the job {name} never went");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Failures of one job: as many as a job may have.
const ROUNDS: usize = 100;

/// How long it takes from a pod's failure until its replacement exists, on an idle system.
async fn reactions(client: &Client, count: usize) -> anyhow::Result<Vec<Duration>> {
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), "reaction");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "reaction");
    let mut times = Vec::new();
    // A job may fail so often and no more.
    for done in (0..count).step_by(ROUNDS) {
        let name = format!("bert-{done}");
        jobs.create(&PostParams::default(), &training_job("reaction", &name, 100)).await?;
        failures((&jobs, &name), &pods, (count - done).min(ROUNDS), &mut times).await?;
        if done + ROUNDS < count {
            jobs.delete(&name, &DeleteParams::default()).await?;
            until_gone(&jobs, &name).await?;
        }
    }
    Ok(times)
}

/// Failures of one job, one after the other.
async fn failures(
    (jobs, name): (&Api<TrainingJob>, &str),
    pods: &Api<Pod>,
    count: usize,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    let attempt = |pod: &Pod| {
        pod.labels().get("trainingjob.ml.example.com/attempt").and_then(|it| it.parse::<usize>().ok())
    };
    let victim = format!("{name}-workers-2");
    for round in 1..=count {
        until_created(jobs, name, round).await?;
        let from =
            pods.list_metadata(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
        let watch = pods.watch(&kube::api::WatchParams::default(), &from).await?;
        futures::pin_mut!(watch);
        set_status(pods, &victim, ended("Failed", 1)).await?;
        let failed = Instant::now();
        let mut replaced = 0;
        while replaced < usize::try_from(WORKERS)? {
            match watch.next().await {
                Some(Ok(kube::api::WatchEvent::Added(pod))) if attempt(&pod) == Some(round + 1) => {
                    replaced += 1;
                    if pod.name_any() == victim {
                        times.push(failed.elapsed());
                    }
                }
                Some(Ok(_)) => {}
                other => bail!("the watch ended: {other:?}"),
            }
        }
    }
    Ok(())
}

/// Median and 99th percentile, in milliseconds: the smallest time that so many are within.
fn percentiles(times: &mut [Duration]) -> [f64; 2] {
    times.sort_unstable();
    [50, 99].map(|percent| {
        let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    })
}

/// What a reaction consists of (a status, four deletes, four creates, each after the other), with nobody watching.
async fn bare_reactions(client: &Client, count: usize) -> anyhow::Result<Vec<Duration>> {
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), "reaction");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "reaction");
    let mut times = Vec::new();
    let last = jobs.list_metadata(&ListParams::default()).await?.items.first().map(ResourceExt::name_any);
    let last = last.context("the job of the operator's reactions is gone")?;
    for round in 0..count {
        let templates: Vec<Pod> = pods.list(&ListParams::default()).await?.items;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let start = Instant::now();
        let status = json!({"status": {"message": format!("round {round}")}});
        jobs.patch_status(&last, &PatchParams::default(), &Patch::Merge(status)).await?;
        let names = templates.iter().map(ResourceExt::name_any);
        let params = DeleteParams::default();
        futures::future::try_join_all(names.map(|name| {
            let (pods, params) = (pods.clone(), params.clone());
            async move { pods.delete(&name, &params).await }
        }))
        .await?;
        let post = PostParams::default();
        let fresh: Vec<Pod> = templates.into_iter().map(renewed).collect();
        futures::future::try_join_all(fresh.iter().map(|pod| pods.create(&post, pod))).await?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// Workers of the gang that is killed at once.
const GANG: i32 = 100;
/// Enough for a median that does not depend on what else the machine did in some of them.
const GANG_ROUNDS: usize = 40;

/// A large gang is killed: how long until all of it exists again, next to a bare client that does the same in turn, so that both have
/// the same machine.
async fn gang(cluster: &TestCluster, client: &Client) -> anyhow::Result<()> {
    let operator =
        RunningOperator::start(cluster, "gang", &["--backoff-seconds=0", "--same-failure-limit=0"]).await?;
    let gang = Gang::new(client, "gang");
    let alike = Gang::new(client, "gang-bare");
    let mut job = training_job("gang", "big", 100);
    job.spec.num_workers = Some(GANG);
    gang.jobs.create(&PostParams::default(), &job).await?;
    until_created(&gang.jobs, "big", 1).await?;
    job.metadata.namespace = Some("gang-bare".to_owned());
    alike.jobs.create(&PostParams::default(), &job).await?;
    for pod in gang.pods.list(&ListParams::default()).await?.items {
        let mut pod = renewed(pod);
        pod.metadata.namespace = Some("gang-bare".to_owned());
        alike.pods.create(&PostParams::default(), &pod).await?;
    }
    let (mut operated, mut bare) = (Vec::new(), Vec::new());
    for round in 1..=GANG_ROUNDS {
        operated.push(gang.restarted(async { Ok(()) }).await?);
        until_created(&gang.jobs, "big", round + 1).await?;
        let templates = alike.pods.list(&ListParams::default()).await?.items;
        bare.push(alike.restarted(alike.by_hand(templates)).await?);
    }
    drop(operator);
    let ([operated, _], [bare, _]) = (percentiles(&mut operated), percentiles(&mut bare));
    println!(
        "gang of {GANG} killed → all pods exist again:  {operated:>7.0} ms, a bare client: {bare:.0} ms"
    );
    println!(
        "  its rate:                                {:>8.2} of a bare client's (wanted: at least 0.90)",
        bare / operated
    );
    Ok(())
}

/// A gang in a namespace of its own.
struct Gang {
    jobs: Api<TrainingJob>,
    pods: Api<Pod>,
}

impl Gang {
    fn new(client: &Client, namespace: &str) -> Self {
        Self {
            jobs: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
        }
    }

    /// One worker fails; how long until all have been made anew, as a watch tells, while `work` is done about it.
    async fn restarted(&self, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<Duration> {
        let list = self.pods.list_metadata(&ListParams::default()).await?;
        let from = list.metadata.resource_version.unwrap_or_default();
        let watch = self.pods.watch_metadata(&kube::api::WatchParams::default(), &from).await?;
        futures::pin_mut!(watch);
        let start = Instant::now();
        set_status(&self.pods, "big-workers-7", ended("Failed", 1)).await?;
        let all_made = async {
            let mut created = 0;
            while created < GANG {
                match watch.next().await {
                    Some(Ok(kube::api::WatchEvent::Added(_))) => created += 1,
                    Some(Ok(_)) => {}
                    other => bail!("the watch ended: {other:?}"),
                }
            }
            Ok(())
        };
        futures::future::try_join(work, all_made).await?;
        Ok(start.elapsed())
    }

    /// What is to be done, by a client that knows it beforehand.
    async fn by_hand(&self, templates: Vec<Pod>) -> anyhow::Result<()> {
        let status = json!({"status": {"message": format!("{:?}", Instant::now())}});
        self.jobs.patch_status("big", &PatchParams::default(), &Patch::Merge(status)).await?;
        let params = DeleteParams::default();
        let deletes = templates.iter().map(|pod| {
            let (name, params) = (pod.name_any(), &params);
            async move { self.pods.delete(&name, params).await.map(drop) }
        });
        futures::stream::iter(deletes).buffer_unordered(CONNECTIONS).try_collect::<()>().await?;
        let post = PostParams::default();
        let fresh = templates.iter().cloned().map(renewed).collect::<Vec<Pod>>();
        let creates = fresh.iter().map(|pod| {
            let post = &post;
            async move { self.pods.create(post, pod).await.map(drop) }
        });
        futures::stream::iter(creates).buffer_unordered(CONNECTIONS).try_collect::<()>().await?;
        Ok(())
    }
}

/// The same pod, to be created again.
fn renewed(mut pod: Pod) -> Pod {
    pod.metadata.resource_version = None;
    pod.metadata.uid = None;
    pod
}

/// All pods of this attempt exist and the operator has said so: the system is idle.
async fn until_created(jobs: &Api<TrainingJob>, name: &str, attempt: usize) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let job = jobs.get(name).await?;
        let last = job.status.as_ref().and_then(|status| status.attempts.last());
        let ready = last
            .is_some_and(|last| usize::try_from(last.number) == Ok(attempt) && last.created_time.is_some());
        if ready {
            // What is left to say about it has been said.
            tokio::time::sleep(Duration::from_millis(50)).await;
            return Ok(());
        }
        if start.elapsed() > Duration::from_secs(30) {
            bail!("attempt {attempt} never came up: {:?}", job.status);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) struct RunningOperator {
    component: Component,
    address: String,
}

impl RunningOperator {
    pub(crate) async fn start(cluster: &TestCluster, namespace: &str, more: &[&str]) -> anyhow::Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let mut argv: Vec<OsString> = vec![root().join("target/release/trainyard").into()];
        let kubeconfig = cluster.kubeconfig().display().to_string();
        let flags = [
            "operator",
            "--kubeconfig",
            &kubeconfig,
            "--namespace",
            namespace,
            "--metrics-address",
            &address,
        ];
        argv.extend(flags.iter().chain(more).map(OsString::from));
        let log = cluster.dir().join(format!("operator-{namespace}.log"));
        let component = Component::start("operator", &argv, log)?;
        let operator = Self { component, address };
        let start = Instant::now();
        while operator.get("/readyz").await.is_none_or(|text| text.trim() != "ok") {
            if start.elapsed() > Duration::from_secs(30) {
                bail!("the operator is not ready after 30 s:\n{}", operator.component.tail());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(operator)
    }

    async fn get(&self, path: &str) -> Option<String> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(&self.address).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }

    /// How long the operator itself takes from the news of a failure to its decision about it, as its own histogram says: the share of
    /// reactions within the bounds around the 99th percentile.
    async fn own_time(&self) -> anyhow::Result<String> {
        let text = self.get("/metrics").await.context("no metrics")?;
        let buckets: Vec<(f64, f64)> = text
            .lines()
            .filter_map(|line| {
                let labels = line.strip_prefix("trainingjob_operator_reaction_seconds_bucket{")?;
                let (labels, count) = labels.split_once("} ")?;
                let rest = labels.contains("decision=\"end of attempt\"").then_some(labels)?;
                let bound = rest.split_once("le=\"")?.1.split('"').next()?;
                Some((bound.parse().unwrap_or(f64::INFINITY), count.parse().ok()?))
            })
            .collect();
        let all = buckets.last().map_or(0.0, |(_, count)| *count);
        let within = |share: f64| {
            let bucket = buckets.iter().find(|(_, count)| *count >= share * all);
            bucket.map_or(f64::INFINITY, |(bound, _)| bound * 1000.0)
        };
        Ok(format!("p50 within {} ms, p99 within {} ms of {all} reactions", within(0.5), within(0.99)))
    }

    /// Writes so far, and how many of them were refused.
    async fn writes(&self) -> anyhow::Result<(u64, u64)> {
        let text = self.get("/metrics").await.context("no metrics")?;
        let (mut all, mut refused) = (0, 0);
        for line in text.lines().filter(|line| line.starts_with("trainingjob_operator_api_requests_total{")) {
            let number: u64 = line.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            all += number;
            if !line.contains("result=\"ok\"") {
                println!("  refused: {line}");
                refused += number;
            }
        }
        Ok((all, refused))
    }

    /// Resident memory in MB.
    fn resident(&self) -> anyhow::Result<f64> {
        let status = self.proc("status")?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        let kilobytes: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kilobytes / 1024.0)
    }

    /// CPU time so far, in seconds.
    fn cpu(&self) -> anyhow::Result<f64> {
        let stat = self.proc("stat")?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        // utime and stime, in hundredths of a second on every Linux.
        Ok((ticks(11) + ticks(12)) / 100.0)
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        let path = Path::new("/proc").join(self.component.pid().to_string()).join(file);
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }
}
