//! Checkpoints in a bucket, where every pod has a disk of its own and nothing else: what the bucket has is enough to go on, for another
//! attempt on both nodes and for a job that is made again. A claim that is to go with its job does.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt};
use trainyard_api::checkpoint::FETCH_CONTAINER;
use trainyard_api::names::CONTAINER;
use trainyard_api::{Attempt, Cause, State};
use trainyard_testbucket::Server;
use trainyard_testcluster::nodes_enabled;

use super::support::{IMAGE, Yard};
use super::training::{Training, node_of, tell};
use crate::common::example::{Example, Saved};
use crate::common::training::{Checkpoints, Work};

/// The agent looks every two seconds, in which a fast machine does a dozen: a lot has to be left when the job is deleted.
const EPOCHS: i64 = 36;
const JOB: &str = "digits";
const PLACE: &str = "s3://models/runs/default/digits";
const SECRET: &str = "s3-credentials";

/// Shows what it was told to go on from, and ends if that is not there.
const PROGRAM: &str = r#"[ -z "${RESUME_FROM_CHECKPOINT:-}" ] || sha256sum "$RESUME_FROM_CHECKPOINT"; exec python3 /app/digits/train.py"#;

/// Two workers are never on one node.
const APART: &str = "  template:
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {trainingjob: digits}}}
";

#[tokio::test]
async fn a_bucket_is_enough_to_go_on_from_and_a_claim_goes_with_its_job() {
    if !nodes_enabled() {
        return;
    }
    let mut yard = Yard::new(2).await;
    yard.start_operator().await;
    let expected = a_claim_goes_with_its_job_and_not_before(&yard).await;
    a_bucket_is_enough_to_go_on_from(&yard, &expected).await;
    yard.the_role_sufficed();
}

/// Returns what a training saves last that nobody disturbs.
async fn a_claim_goes_with_its_job_and_not_before(yard: &Yard) -> Vec<u8> {
    let example = Example::DIGITS;
    let work = Work { backoff_limit: 0, ..Work::short(example, EPOCHS) };
    // No pod may start before its directory is ready for it.
    every_node(yard, "cordon").await;
    let place = format!(
        "  image: {IMAGE}\n  command: [python3, /app/digits/train.py]\n  \
         resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}\n  checkpoint: {{deleteOnCompletion: true}}\n"
    );
    yard.apply(&work.manifest("calm", example, &place)).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(yard.client.clone());
    let claim = "calm-checkpoints";
    yard.wait_for("the job's claim", async || claims.get_opt(claim).await.unwrap().is_some()).await;
    let directory = yard.bound(claim).await;
    every_node(yard, "uncordon").await;

    yard.until_state("calm", State::Completed).await;
    let left = claims.get(claim).await.unwrap();
    assert_eq!(left.metadata.deletion_timestamp, None, "it is the job's as long as there is a job");
    let expected = example.content(&directory, EPOCHS);
    yard.tell("the undisturbed training has ended, and its claim is there");

    yard.kubectl(&["delete", "tj", "calm"]).await;
    yard.wait_for("the claim goes", async || claims.get_opt(claim).await.unwrap().is_none()).await;
    yard.wait_for("what was in it goes", async || !directory.exists()).await;
    yard.tell("its claim has gone with it");
    expected
}

async fn every_node(yard: &Yard, command: &str) {
    for node in yard.cluster.nodes() {
        yard.kubectl(&[command, &node.name()]).await;
    }
}

async fn a_bucket_is_enough_to_go_on_from(yard: &Yard, expected: &[u8]) {
    let bucket = Bucket::new(yard).await;
    let training = &bucket.training;
    yard.apply(&bucket.manifest).await;

    // A worker dies that saves nothing itself.
    bucket.further(yard).await;
    let progress = yard.until(JOB, "progress", |status| status.current_epoch.is_some()).await;
    let under_way = progress.current_epoch.unwrap();
    let kept = bucket.kept();
    training.kill(yard, 1, CONTAINER).await;
    let last = training.next(yard, 1).await;
    let attempts = yard.status(JOB).await.unwrap().attempts;
    let failed = &attempts[0];
    let end = (failed.cause, failed.pod_name.as_deref(), failed.exit_code);
    assert_eq!(end, (Some(Cause::Application), Some("digits-workers-1"), Some(137)));
    let from = bucket.goes_on(yard, attempts.last().unwrap()).await;
    assert!(from >= kept, "{kept:?} was in the bucket, and {from:?} was gone on from");
    assert!(from.epoch >= under_way - 1, "epoch {under_way} was under way, and {from:?} was gone on from");

    // The whole job goes, with the disks of all its pods.
    bucket.further(yard).await;
    let attempts = yard.status(JOB).await.unwrap().attempts;
    assert_eq!(attempts.last().unwrap().number, last, "nothing else has happened");
    yard.kubectl(&["delete", "tj", JOB]).await;
    yard.wait_for("its pods go", async || yard.pods(JOB).await.is_empty()).await;
    let kept = bucket.kept();
    yard.tell(&format!("the job is gone, and the bucket has {kept:?}"));
    assert!(kept > from && kept.epoch < EPOCHS, "{kept:?}");

    yard.apply(&bucket.manifest).await;
    training.next(yard, 0).await;
    let attempts = yard.status(JOB).await.unwrap().attempts;
    assert_eq!(attempts[0].cause, Some(Cause::Resume), "it knew of no checkpoint: {attempts:#?}");
    assert_eq!(attempts.len(), 2, "{attempts:#?}");
    assert_eq!(bucket.goes_on(yard, &attempts[1]).await, kept);

    let status = yard.until_state(JOB, State::Completed).await;
    tell(yard, status.attempts.last().unwrap());
    assert_eq!(status.restarts.unwrap_or_default().total(), 0, "{:#?}", status.attempts);
    assert_eq!(status.checkpoint.unwrap().path, format!("{PLACE}/checkpoint-epoch-{EPOCHS}.json"));
    assert_eq!(bucket.kept().epoch, EPOCHS);
    assert!(training.checkpoints.last() == expected, "the weights differ from those of the undisturbed run");
}

/// A training whose checkpoints are in a bucket of this machine.
struct Bucket {
    // Its directory is that of the job in the bucket.
    training: Training,
    manifest: String,
    _server: Server,
}

impl Bucket {
    async fn new(yard: &Yard) -> Self {
        let buckets = yard.cluster.dir().join("buckets");
        std::fs::create_dir_all(buckets.join("models")).unwrap();
        let server = Server::start_at(yard.cluster.address(), &buckets);
        let variables = server.variables("secret");
        let literals = variables.iter().map(|(name, value)| format!("--from-literal={name}={value}"));
        let literals: Vec<String> = literals.collect();
        let mut create = vec!["create", "secret", "generic", SECRET];
        create.extend(literals.iter().map(String::as_str));
        yard.kubectl(&create).await;

        let example = Example::DIGITS;
        let work = Work { backoff_limit: 1, ..Work::short(example, EPOCHS) };
        let place = format!(
            "  image: {IMAGE}\n  command: [sh, -euc, '{PROGRAM}']\n  \
             resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}\n  envFrom: [{{secretRef: {{name: {SECRET}}}}}]\n  \
             checkpoint: {{keepLast: 2, storage: {{type: s3, path: 's3://models/runs'}}}}\n{APART}"
        );
        let manifest = work.manifest(JOB, example, &place);
        let directory = buckets.join(PLACE.strip_prefix("s3://").unwrap());
        let checkpoints = Checkpoints { directory, example, work };
        Self { training: Training { job: JOB.to_owned(), checkpoints }, manifest, _server: server }
    }

    fn directory(&self) -> &Path {
        &self.training.checkpoints.directory
    }

    /// The newest whose copy is complete.
    fn kept(&self) -> Saved {
        let names = std::fs::read_dir(self.directory()).into_iter().flatten().flatten();
        let copied = |name: PathBuf| Example::DIGITS.named(name.to_str()?.strip_suffix(".complete")?);
        names.filter_map(|entry| copied(entry.file_name().into())).max().unwrap_or_default()
    }

    /// Waits until the bucket has more.
    async fn further(&self, yard: &Yard) {
        let before = self.kept();
        yard.wait_for("more is in the bucket", async || self.kept() > before).await;
        yard.tell(&format!("the bucket has {:?}", self.kept()));
    }

    /// Sees that the attempt under way goes on from the bucket on both nodes, and says from what.
    async fn goes_on(&self, yard: &Yard, attempt: &Attempt) -> Saved {
        let path = &attempt.resumed_from.as_ref().unwrap().path;
        let name = path.strip_prefix(&format!("{PLACE}/")).unwrap();
        // What an attempt goes on from is never removed.
        let shown = format!("{}  /checkpoints/{name}", sum(&self.directory().join(name)));
        let pods = yard.pods(JOB).await;
        let [leader, worker] = &pods[..] else { panic!("two pods, not {}", pods.len()) };
        assert_ne!(node_of(leader), node_of(worker));
        assert!(fetched(leader).is_none(), "its agent does that");
        let fetched = fetched(worker).and_then(|status| status.state?.terminated);
        assert_eq!(fetched.map(|end| end.exit_code), Some(0), "{FETCH_CONTAINER} has done its work");
        for pod in &pods {
            let log = ["logs", &pod.name_any(), "-c", CONTAINER];
            let what = format!("{} finds {shown}", pod.name_any());
            yard.wait_for(&what, async || yard.kubectl(&log).await.lines().any(|line| line == shown)).await;
        }
        yard.tell(&format!("both nodes go on from {path}"));
        self.training.checkpoints.begun_with(attempt)
    }
}

/// What has become of the container that fetches the checkpoint, if the pod has it.
fn fetched(pod: &Pod) -> Option<ContainerStatus> {
    let mut statuses = pod.status.as_ref()?.init_container_statuses.iter().flatten();
    statuses.find(|status| status.name == FETCH_CONTAINER).cloned()
}

fn sum(file: &Path) -> String {
    let summed = Command::new("sha256sum").arg(file).output().unwrap();
    assert!(summed.status.success(), "{}", String::from_utf8_lossy(&summed.stderr));
    String::from_utf8(summed.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}
