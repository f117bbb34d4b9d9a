//! `cargo xtask bench --recovery`: on real nodes, a worker of eight is killed with -9. How long until all run again?
//!
//! Two programs: one that ends when it is asked to, and one that does not listen. The second is the usual one: Python that is
//! the first process of its container and waits for a peer. Each is killed several times, since one lucky round says little;
//! what a round that took too long left behind is kept, for whoever looks for the reason.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use trainyard_api::{Attempt, State, TrainingJob, names};
use trainyard_testcluster::{RootFs, TestCluster};

use crate::bench::RunningOperator;
use crate::manifests::root;

const WORKERS: usize = 8;
const NAMESPACE: &str = "default";
const IMAGE: &str = "bench/sleeper:1";
const WANTED: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_mins(2);

/// Reports progress and does nothing else. Rank 0 leaves a checkpoint, so that the next attempt has something to go on from.
const PROGRAM: &str = r#"
import json, os, signal, sys, time
if sys.argv[1] == "listens":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
step = 0
while True:
    step += 1
    if os.environ["RANK"] == "0":
        print(json.dumps({"epoch": 1, "epochs": 2, "step": step, "steps": 100000}), flush=True)
        if step == 1:
            directory = os.environ["CHECKPOINT_DIR"]
            with open(directory + "/.unfinished", "w") as file:
                json.dump({"weights": [1, 2, 3]}, file)
            os.replace(directory + "/.unfinished", directory + "/checkpoint-epoch-1.json")
    time.sleep(1)
"#;

pub(crate) async fn measure(rounds: usize) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        println!("recovery on real nodes:                     skipped, they take root");
        return Ok(());
    }
    let cluster = TestCluster::builder().real_nodes(2).start().await?;
    let measured = on(&cluster, rounds.max(1)).await;
    cluster.stop().await;
    measured
}

async fn on(cluster: &TestCluster, rounds: usize) -> anyhow::Result<()> {
    let work = tempfile::tempdir()?;
    let program = work.path().join("sleeper.py");
    std::fs::write(&program, PROGRAM)?;
    std::fs::set_permissions(&program, Permissions::from_mode(0o644))?;
    let files = RootFs::python()
        .file(root().join("target/release/trainyard"), "/usr/local/bin/trainyard")
        .file(&program, "/app/sleeper.py");
    cluster.image(IMAGE, &files).await?;
    let crd = root().join("kubernetes/base/trainingjob-crd.yaml").display().to_string();
    cluster.kubectl().run(&["apply", "-f", &crd]).await?.expect("the CRD");
    cluster.await_kind("trainingjobs.ml.example.com").await?;
    let client = cluster.client().await?;
    let _operator = RunningOperator::start(cluster, NAMESPACE, &["--agent-image", IMAGE]).await?;

    let (mut columns, mut too_long) = (Vec::new(), Vec::new());
    for program in [Program::Listens, Program::Deaf] {
        let mut measured = Vec::new();
        for round in 1..=rounds {
            let job = format!("{}-{round}", program.name());
            let recovery = one(cluster, &client, program, &job).await?;
            println!("recovery, {job}: {:.2} s, {} nudged", recovery.took().as_secs_f64(), recovery.nudged);
            if recovery.took() > WANTED {
                too_long.push(keep(cluster, &job).await?);
            }
            measured.push(recovery);
            tidy(&client, &job).await?;
        }
        measured.sort_by_key(Recovery::took);
        let slowest = measured.pop();
        // Of one round, that is all there is.
        columns.extend(
            (!measured.is_empty()).then(|| measured.swap_remove(measured.len() / 2)).map(|it| ("median", it)),
        );
        columns.extend(slowest.map(|it| ("slowest", it)));
    }
    print(&columns, rounds);
    for place in too_long {
        println!(
            "  a round took too long: what its pods, events and components told is in {}",
            place.display()
        );
    }
    Ok(())
}

/// What the workers do when they are asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Listens,
    Deaf,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Listens => "listens",
            Self::Deaf => "deaf",
        }
    }
}

/// Keeps what there is to know about a job, before it goes: where.
async fn keep(cluster: &TestCluster, job: &str) -> anyhow::Result<PathBuf> {
    let place = root().join("target/recovery").join(job);
    std::fs::create_dir_all(&place)?;
    for entry in std::fs::read_dir(cluster.dir().join("logs"))? {
        let path = entry?.path();
        if let Some(name) = path.file_name() {
            std::fs::copy(&path, place.join(name))?;
        }
    }
    for kind in ["trainingjobs", "pods", "events"] {
        let told = cluster.kubectl().run(&["get", kind, "-n", NAMESPACE, "-o", "yaml"]).await?;
        std::fs::write(place.join(kind).with_extension("yaml"), told.expect("what there is"))?;
    }
    Ok(place)
}

/// Ends the job and all its pods, so that the next round has the nodes for itself.
async fn tidy(client: &Client, job: &str) -> anyhow::Result<()> {
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    jobs.delete(job, &DeleteParams::default()).await?;
    let all = ListParams::default().labels(&format!("trainingjob={job}"));
    let start = Instant::now();
    while !pods.list_metadata(&all).await?.items.is_empty() {
        // Some do not listen.
        pods.delete_collection(&DeleteParams::default().grace_period(1), &all).await?;
        if start.elapsed() > PATIENCE {
            bail!("pods of {job} stay");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// When each part of a recovery was over, seen from outside, and what the status says of it.
struct Recovery {
    program: Program,
    /// The API server knows that the program has ended.
    failed: Duration,
    /// The attempt is closed in the status.
    decided: Duration,
    /// No pod of the old attempt is left.
    gone: Duration,
    /// All pods of the new one exist.
    created: Duration,
    /// All of them are on a node.
    scheduled: Duration,
    /// All programs run that need not wait for the agent.
    others: Duration,
    /// All programs run.
    running: Duration,
    /// Pods whose kubelets had to be asked to look again.
    nudged: usize,
    old: Attempt,
    new: Attempt,
}

impl Recovery {
    /// From the moment on at which it could be known that the program had ended.
    fn took(&self) -> Duration {
        self.running.saturating_sub(self.failed)
    }
}

async fn one(
    cluster: &TestCluster,
    client: &Client,
    program: Program,
    job: &str,
) -> anyhow::Result<Recovery> {
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    claim(cluster, client, job).await?;
    jobs.create(&PostParams::default(), &sleeper(job, program)?).await?;
    // The checkpoint is known: what follows is a life in full swing.
    let at = |job: &TrainingJob| {
        let status = job.status.as_ref()?;
        (status.state == Some(State::Running)).then_some(())?;
        status.checkpoint.as_ref().map(drop)
    };
    until(&jobs, job, "runs and has a checkpoint", at).await?;

    let selector = format!("trainingjob={job}");
    // What was before is of no interest.
    let now = jobs.list_metadata(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let pod_events = pods.watch(&WatchParams::default().labels(&selector), &now).await?;
    let job_events = jobs.watch(&WatchParams::default(), &now).await?;
    futures::pin_mut!(pod_events, job_events);

    let victim = names::pod(job, "workers", 3);
    cluster.kill_container(NAMESPACE, &victim, names::CONTAINER).await?;
    let killed = Instant::now();
    let mut seen = Seen::default();
    while !seen.all_run() {
        let left = PATIENCE.checked_sub(killed.elapsed()).context("it never came back")?;
        tokio::select! {
            event = pod_events.next() => seen.pod(event.context("the watch ended")??, killed.elapsed()),
            event = job_events.next() => seen.job(event.context("the watch ended")??, killed.elapsed()),
            () = tokio::time::sleep(left) => {}
        }
    }
    let attempts = until(&jobs, job, "says that it runs again", |job| {
        let attempts = &job.status.as_ref()?.attempts;
        attempts.last().filter(|last| last.number == 2 && last.running_time.is_some())?;
        Some(attempts.clone())
    })
    .await?;
    let [old, new] = <[Attempt; 2]>::try_from(attempts).ok().context("there are more attempts than two")?;
    let end_of = |moments: &[Option<Duration>]| moments.iter().flatten().max().copied().unwrap_or_default();
    Ok(Recovery {
        program,
        failed: seen.failed.context("nobody saw the pod fail")?,
        decided: seen.decided.context("nobody saw the decision")?,
        gone: end_of(&seen.gone),
        created: end_of(&seen.created),
        scheduled: end_of(&seen.scheduled),
        others: end_of(&seen.running[1..]),
        running: end_of(&seen.running),
        nudged: seen.nudged.iter().filter(|nudged| **nudged).count(),
        old,
        new,
    })
}

/// What the watches have told so far, by rank.
#[derive(Default)]
struct Seen {
    failed: Option<Duration>,
    decided: Option<Duration>,
    gone: [Option<Duration>; WORKERS],
    created: [Option<Duration>; WORKERS],
    scheduled: [Option<Duration>; WORKERS],
    running: [Option<Duration>; WORKERS],
    nudged: [bool; WORKERS],
}

impl Seen {
    fn all_run(&self) -> bool {
        self.running.iter().all(Option::is_some)
    }

    fn pod(&mut self, event: WatchEvent<Pod>, now: Duration) {
        let (pod, gone) = match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
            WatchEvent::Deleted(pod) => (pod, true),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => return,
        };
        let name = pod.name_any();
        let rank = name.rsplit('-').next().and_then(|rank| rank.parse::<usize>().ok());
        let Some(rank) = rank.filter(|rank| *rank < WORKERS) else { return };
        let old = pod.labels().get("trainingjob.ml.example.com/attempt").is_some_and(|number| number == "1");
        let is_nudged = pod.annotations().contains_key(names::NUDGED_ANNOTATION);
        // Not the phase: a kubelet calls a pod Failed when it has cleaned up after it.
        let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        let mut states = statuses.into_iter().filter_map(|status| status.state);
        if old {
            if states.any(|state| state.terminated.is_some()) {
                self.failed.get_or_insert(now);
            }
            if gone {
                self.gone[rank].get_or_insert(now);
            }
            return;
        }
        self.created[rank].get_or_insert(now);
        self.nudged[rank] |= is_nudged;
        if pod.spec.is_some_and(|spec| spec.node_name.is_some()) {
            self.scheduled[rank].get_or_insert(now);
        }
        if states.any(|state| state.running.is_some()) {
            self.running[rank].get_or_insert(now);
        }
    }

    fn job(&mut self, event: WatchEvent<TrainingJob>, now: Duration) {
        if let WatchEvent::Modified(job) = event
            && let Some(first) = job.status.as_ref().and_then(|status| status.attempts.first())
            && !first.is_open()
        {
            self.decided.get_or_insert(now);
        }
    }
}

fn print(columns: &[(&str, Recovery)], rounds: usize) {
    println!(
        "one of {WORKERS} workers on 2 nodes killed with -9, {rounds} times each, seconds after the kill:"
    );
    let line = |what: &str, cell: &dyn Fn(&Recovery) -> String| {
        let cells: Vec<String> = columns.iter().map(|(_, column)| format!("{:>12}", cell(column))).collect();
        println!("  {what:<46}{}", cells.concat());
    };
    let moment = |moment: Duration| format!("{:.2}", moment.as_secs_f64());
    let of: Vec<String> = columns.iter().map(|(of, _)| format!("{of:>12}")).collect();
    println!("  {:<46}{}", "of the rounds", of.concat());
    line("the program on SIGTERM", &|it| {
        match it.program {
            Program::Deaf => "stays",
            Program::Listens => "ends",
        }
        .to_owned()
    });
    line("the program's end is told (kubelet)", &|it| moment(it.failed));
    line("the decision is written (operator)", &|it| moment(it.decided));
    line("the old pods are gone (their grace, kubelet)", &|it| moment(it.gone));
    line("the new pods exist (operator)", &|it| moment(it.created));
    line("they are on nodes (scheduler)", &|it| moment(it.scheduled));
    line("all but rank 0 run (kubelet)", &|it| moment(it.others));
    line("all run (kubelet, agent)", &|it| moment(it.running));
    line("pods that were nudged (operator)", &|it| it.nudged.to_string());
    line(&format!("failure seen → all run (wanted: at most {})", WANTED.as_secs()), &|it| {
        moment(it.took())
    });
    let told = |seconds: Option<i64>| seconds.map_or("-".to_owned(), |seconds| seconds.to_string());
    line("status: seen after", &|it| told(it.old.seconds.seen));
    line("status: torn down in", &|it| told(it.old.seconds.torn_down));
    line("status: scheduled in", &|it| told(it.new.seconds.scheduled));
    line("status: started in", &|it| told(it.new.seconds.started));
    line("status: went on from a checkpoint", &|it| {
        if it.new.resumed_from.is_some() { "yes" } else { "no" }.to_owned()
    });
}

fn sleeper(name: &str, program: Program) -> anyhow::Result<TrainingJob> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "ml.example.com/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": "custom", "image": IMAGE, "numWorkers": WORKERS,
            "command": ["python3", "/app/sleeper.py", program.name()],
            "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
            "checkpoint": {"storage": {"claimName": name}},
        },
    }))?)
}

/// A claim that the workers may write to. Kubelets do not give directories of a node to a pod's group.
async fn claim(cluster: &TestCluster, client: &Client, name: &str) -> anyhow::Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "16Mi"}}},
    }))?;
    claims.create(&PostParams::default(), &claim).await?;
    let start = Instant::now();
    let volume = loop {
        if let Some(volume) = claims.get(name).await?.spec.and_then(|spec| spec.volume_name) {
            break volume;
        }
        if start.elapsed() > PATIENCE {
            bail!("the claim {name} is never bound");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let path = ["get", "pv", &volume, "-o", "jsonpath={.spec.hostPath.path}"];
    let path = cluster.kubectl().run(&path).await?.expect("the volume");
    let inside = path.strip_prefix("/tmp/").context("a volume elsewhere")?;
    std::fs::set_permissions(cluster.dir().join("tmp").join(inside), Permissions::from_mode(0o777))?;
    Ok(())
}

async fn until<T>(
    jobs: &Api<TrainingJob>,
    name: &str,
    what: &str,
    wanted: impl Fn(&TrainingJob) -> Option<T>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        let job = jobs.get(name).await?;
        if let Some(found) = wanted(&job) {
            return Ok(found);
        }
        if start.elapsed() > PATIENCE {
            bail!("{name} never {what}: {:#?}", job.status);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
