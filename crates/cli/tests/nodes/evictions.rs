//! A node is drained while a checkpoint is being written: whoever drains waits until it is, if the job asks for that.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use trainyard_api::{Cause, State};
use trainyard_testcluster::nodes_enabled;

use super::support::{IMAGE, Yard};

/// Workers that do nothing: what they would save, the test writes into their directory.
const JOB: &str = "apiVersion: ml.example.com/v1
kind: TrainingJob
metadata: {name: saving}
spec:
  framework: custom
  image: test/digits:1
  numWorkers: 2
  command: [python3, -c, 'import signal, time; signal.signal(15, lambda *_: exit(0)); time.sleep(36000)']
  resources: {requests: {cpu: 100m, memory: 64Mi}}
  checkpoint: {holdEvictions: true, storage: {claimName: saving-saved}}
";

/// A checkpoint that is being written, a few bytes at a time, until it is told to end.
struct Write {
    path: PathBuf,
    ends: Arc<AtomicBool>,
    writer: JoinHandle<()>,
}

impl Write {
    fn begin(directory: &Path, epoch: u32) -> Self {
        let path = directory.join(format!("checkpoint-epoch-{epoch}.json"));
        let ends = Arc::new(AtomicBool::new(false));
        let (mut file, told) = (File::create(&path).unwrap(), ends.clone());
        let writer = std::thread::spawn(move || {
            write!(file, "{{\"epoch\": {epoch}, \"weights\": [0.0").unwrap();
            while !told.load(Ordering::Relaxed) {
                write!(file, ", 0.1").unwrap();
                std::thread::sleep(Duration::from_millis(100));
            }
            write!(file, "]}}").unwrap();
        });
        Self { path, ends, writer }
    }

    /// The last bytes are written.
    fn end(self) -> PathBuf {
        self.ends.store(true, Ordering::Relaxed);
        self.writer.join().unwrap();
        self.path
    }
}

fn kept(status: &trainyard_api::TrainingJobStatus) -> Option<i32> {
    status.disruption_budget.as_ref()?.min_available
}

/// Asks for the eviction of a pod, once: clients of other kinds try again and again by themselves.
async fn is_refused(yard: &Yard, pod: &str) {
    let eviction = format!(
        r#"{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"name": "{pod}", "namespace": "default"}}}}"#
    );
    let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
    let asked =
        yard.cluster.kubectl().stdin(eviction).run(&["create", "--raw", &path, "-f", "-"]).await.unwrap();
    assert!(!asked.success && asked.stderr.contains("disruption budget"), "{asked}");
}

#[tokio::test]
async fn a_drain_waits_until_the_checkpoint_is_written() {
    if !nodes_enabled() {
        return;
    }
    assert!(JOB.contains(IMAGE), "the image of the other tests");
    let mut yard = Yard::new(1).await;
    yard.start_operator().await;
    let directory = yard.claim("saving-saved").await;
    yard.apply(JOB).await;
    yard.until_state("saving", State::Running).await;
    yard.until("saving", "a budget that holds nobody", |status| kept(status) == Some(0)).await;

    let write = Write::begin(&directory, 1);
    yard.until("saving", "both are held", |status| kept(status) == Some(2)).await;
    yard.tell("a checkpoint is being written, and the pods are held");
    is_refused(&yard, "saving-workers-1").await;
    let node = yard.kubectl(&["get", "nodes", "-o", "name"]).await;
    let drain = ["drain", node.trim(), "--ignore-daemonsets", "--delete-emptydir-data", "--force"];
    let drain = [&drain[..], &["--pod-selector=trainingjob=saving", "--timeout=120s"]].concat();
    let cordoned = ["get", node.trim(), "-o", "jsonpath={.spec.unschedulable}"];
    let path = tokio::join!(yard.kubectl(&drain), async {
        yard.wait_for("the drain begins", async || yard.kubectl(&cordoned).await == "true").await;
        is_refused(&yard, "saving-workers-0").await;
        let status = yard.status("saving").await.unwrap();
        assert_eq!((status.attempts.len(), kept(&status)), (1, Some(2)), "nobody was evicted");
        yard.tell("nobody was evicted");
        let path = write.end();
        let status = yard.until("saving", "nobody is held", |status| kept(status) == Some(0)).await;
        assert_eq!(status.checkpoint.unwrap().epoch, Some(1));
        yard.tell("the checkpoint is written, and nobody is held");
        path
    })
    .1;
    yard.tell("the node is drained");
    yard.kubectl(&["uncordon", node.trim()]).await;
    // Whoever drains asks for pods by their names, and may meet those of the next attempt, too.
    let running = |status: &trainyard_api::TrainingJobStatus| {
        status.state == Some(State::Running) && status.attempts.len() > 1
    };
    let status = yard.until("saving", "the next attempt", running).await;
    let attempts = status.attempts.len();
    assert_eq!(status.attempts[0].cause, Some(Cause::Disruption));
    let resumed = status.attempts[attempts - 1].resumed_from.as_ref().unwrap();
    assert_eq!(Path::new(&resumed.path).file_name(), path.file_name());

    // Of what is there, less is kept from now on, by the agent that runs.
    for epoch in 2..=4 {
        Write::begin(&directory, epoch).end();
    }
    let left = |from: u32| {
        (1..=4).all(|epoch: u32| {
            // What was resumed from stays.
            directory.join(format!("checkpoint-epoch-{epoch}.json")).exists() == (epoch == 1 || epoch >= from)
        })
    };
    yard.until("saving", "the last checkpoint", |status| {
        status.checkpoint.as_ref().is_some_and(|newest| newest.epoch == Some(4))
    })
    .await;
    yard.wait_for("the newest three are kept", async || left(2)).await;
    yard.kubectl(&[
        "patch",
        "tj",
        "saving",
        "--type=merge",
        "-p",
        r#"{"spec":{"checkpoint":{"keepLast":1}}}"#,
    ])
    .await;
    let file =
        ["exec", "saving-workers-0", "-c", "trainyard-agent", "--", "cat", "/etc/trainingjob/keep_last"];
    yard.wait_for("the agent's pod hears of it", async || yard.kubectl(&file).await.trim() == "1").await;
    yard.tell("the agent's pod has heard of another keepLast");
    yard.wait_for("only the newest is kept", async || left(4)).await;
    yard.tell("another keepLast has taken effect");
    assert_eq!(yard.status("saving").await.unwrap().attempts.len(), attempts, "without a restart");

    yard.kubectl(&["patch", "tj", "saving", "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#]).await;
    let suspended = |status: &trainyard_api::TrainingJobStatus| {
        status.state == Some(State::Suspended) && status.disruption_budget.is_none()
    };
    yard.until("saving", "no budget without pods", suspended).await;
    let left = yard.kubectl(&["get", "pdb", "-o", "name"]).await;
    assert_eq!(left.trim(), "");
    yard.the_role_sufficed();
}
