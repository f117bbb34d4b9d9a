//! Nothing is lost: a real training on real nodes, in which everything is killed in turn, ends as one that nobody disturbed, bit
//! for bit.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use trainyard_api::checkpoint::AGENT_CONTAINER;
use trainyard_api::names::CONTAINER;
use trainyard_api::{Attempt, Cause, State, TrainingJobStatus};
use trainyard_testcluster::nodes_enabled;

use super::support::{IMAGE, Yard};

const EPOCHS: i64 = 14;
/// As many as the test causes by killing programs: one more failure that counts, and the job would fail.
const BACKOFF_LIMIT: i32 = 2;

/// The digits example, small.
fn digits(name: &str) -> String {
    format!(
        "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {{name: {name}}}\nspec:\n  framework: custom\n  \
         image: {IMAGE}\n  numWorkers: 2\n  command: [python3, /app/train.py]\n  backoffLimit: {BACKOFF_LIMIT}\n  \
         resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}\n  \
         hyperparameters: {{epochs: {EPOCHS}, samples: 1200, seed: 1}}\n  \
         checkpoint: {{keepLast: 2, storage: {{claimName: {name}-saved}}}}\n"
    )
}

/// A job under way, and where its checkpoints are on this machine.
struct Training<'a> {
    job: &'a str,
    checkpoints: PathBuf,
}

impl<'a> Training<'a> {
    async fn start(yard: &Yard, job: &'a str) -> Self {
        let checkpoints = yard.claim(&format!("{job}-saved")).await;
        yard.apply(&digits(job)).await;
        Self { job, checkpoints }
    }

    /// The weights at the end.
    fn weights(&self) -> Vec<u8> {
        std::fs::read(self.checkpoints.join(format!("checkpoint-epoch-{EPOCHS}.json"))).unwrap()
    }

    fn pod(&self, rank: i32) -> String {
        format!("{}-workers-{rank}", self.job)
    }

    /// Waits until one more epoch is saved, and says which.
    async fn further(&self, yard: &Yard) -> i64 {
        let before = saved(&self.checkpoints);
        yard.wait_for("another epoch is saved", async || saved(&self.checkpoints) > before).await;
        let epoch = saved(&self.checkpoints);
        yard.tell(&format!("epoch {epoch} is saved"));
        epoch
    }

    async fn kill(&self, yard: &Yard, rank: i32, container: &str) {
        yard.cluster.kill_container("default", &self.pod(rank), container).await.unwrap();
        yard.tell(&format!("killed: {container} of {}", self.pod(rank)));
    }

    /// The number of the node on which the worker is.
    async fn node_of(&self, yard: &Yard, rank: i32) -> usize {
        let name = self.pod(rank);
        let pods = yard.pods(self.job).await;
        node_of(pods.iter().find(|pod| pod.name_any() == name).unwrap())
    }

    /// How often the agent was started in the pod that is there now; nothing while it does not run.
    async fn agent_starts(&self, yard: &Yard) -> i32 {
        let pods = yard.pods(self.job).await;
        let leader = pods.into_iter().find(|pod| pod.name_any() == self.pod(0));
        let statuses = leader.and_then(|pod| pod.status?.init_container_statuses).unwrap_or_default();
        let agent = statuses.into_iter().find(|status| status.name == AGENT_CONTAINER);
        agent.filter(|agent| agent.started == Some(true)).map_or(0, |agent| agent.restart_count + 1)
    }

    /// Waits until the last epoch is saved.
    async fn ended(&self, yard: &Yard) {
        yard.wait_for("the last epoch is saved", async || saved(&self.checkpoints) == EPOCHS).await;
        yard.tell("the last epoch is saved");
    }

    /// Waits until an attempt after this one runs, and returns its number.
    async fn next(&self, yard: &Yard, number: i32) -> i32 {
        let status = yard.until(self.job, "the next attempt runs", |status| goes_on(status, number)).await;
        for attempt in status.attempts.iter().filter(|attempt| attempt.number >= number) {
            tell(yard, attempt);
        }
        status.attempts.last().unwrap().number
    }
}

fn goes_on(status: &TrainingJobStatus, after: i32) -> bool {
    let last = status.attempts.last();
    last.is_some_and(|last| last.number > after && last.running_time.is_some() && last.is_open())
}

/// The newest epoch that was saved.
fn saved(checkpoints: &Path) -> i64 {
    let names = std::fs::read_dir(checkpoints).into_iter().flatten().flatten();
    let epoch = |name: String| name.strip_prefix("checkpoint-epoch-")?.strip_suffix(".json")?.parse().ok();
    names.filter_map(|entry| epoch(entry.file_name().into_string().ok()?)).max().unwrap_or(0)
}

fn tell(yard: &Yard, attempt: &Attempt) {
    let path = attempt.resumed_from.as_ref().map_or("nothing", |checkpoint| checkpoint.path.as_str());
    let end = match attempt.cause {
        Some(cause) => format!("{}: {}", cause.as_str(), attempt.message.as_deref().unwrap_or_default()),
        None => "goes on".to_owned(),
    };
    yard.tell(&format!("   attempt {}, from {path}: {end} ({:?})", attempt.number, attempt.seconds));
}

fn node_of(pod: &Pod) -> usize {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap();
    name.strip_prefix("node-").unwrap().parse().unwrap()
}

/// What the program in a pod was told to go on from.
fn told(pod: &Pod) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    let environment = containers.iter().find(|it| it.name == CONTAINER)?.env.as_ref()?;
    environment.iter().find(|it| it.name == "RESUME_FROM_CHECKPOINT")?.value.clone()
}

#[tokio::test]
async fn a_training_in_which_everything_is_killed_ends_as_one_that_nobody_disturbed() {
    if !nodes_enabled() {
        return;
    }
    let mut yard = Yard::new(2).await;
    yard.start_operator().await;
    let calm = Training::start(&yard, "calm").await;
    let status = yard.until_state("calm", State::Completed).await;
    assert_eq!(status.restarts.unwrap_or_default().total(), 0, "{status:#?}");
    let expected = calm.weights();
    yard.tell("the undisturbed training has ended");

    let training = Training::start(&yard, "digits").await;
    // What was saved when it was killed; the next attempt may not begin before that.
    let mut kept = Vec::new();

    // Programs: a worker, the one that leads, the agent beside it. The agent comes back by itself.
    kept.push(training.further(&yard).await);
    training.kill(&yard, 1, CONTAINER).await;
    let second = training.next(&yard, 1).await;
    kept.push(training.further(&yard).await);
    training.kill(&yard, 0, CONTAINER).await;
    let third = training.next(&yard, second).await;
    training.further(&yard).await;
    training.kill(&yard, 0, AGENT_CONTAINER).await;
    yard.wait_for("the agent runs again", async || training.agent_starts(&yard).await == 2).await;
    yard.tell("the agent runs again");

    // The operator, whose successor finds everything as it was.
    training.further(&yard).await;
    yard.kill_operator();
    yard.tell("killed: the operator");
    yard.start_operator().await;

    // The node of the one that leads. It stays off.
    kept.push(training.further(&yard).await);
    let node = training.node_of(&yard, 0).await;
    yard.cluster.node(node).kill();
    yard.tell(&format!("power cut: node-{node}"));
    let last = training.next(&yard, third).await;
    for pod in yard.pods("digits").await {
        assert_ne!(node_of(&pod), node, "{} is on a node that is off", pod.name_any());
        let resumed = told(&pod).unwrap();
        assert!(resumed.starts_with("/checkpoints/checkpoint-epoch-"), "{resumed}");
    }

    yard.the_role_sufficed();

    // The API server: the training goes on, and maybe ends, without it.
    yard.cluster.stop_apiserver();
    yard.tell("killed: the API server");
    training.ended(&yard).await;
    yard.cluster.start_apiserver().await.unwrap();
    yard.tell("the API server is back");

    let status = yard.until_state("digits", State::Completed).await;
    for attempt in &status.attempts {
        tell(&yard, attempt);
    }
    assert!(training.weights() == expected, "the weights differ from those of the undisturbed run");

    // Each cause is told, and only what the programs did counts.
    let restarts = status.restarts.unwrap();
    assert_eq!((restarts.application, restarts.disruption), (BACKOFF_LIMIT, 1), "{status:#?}");
    // An attempt that was told of an older checkpoint than there is ends before it has begun.
    let real = status.attempts.iter().filter(|attempt| attempt.cause != Some(Cause::Resume));
    let real: Vec<&Attempt> = real.collect();
    let ends: Vec<_> =
        real.iter().map(|it| (it.cause.unwrap(), it.pod_name.as_deref(), it.exit_code)).collect();
    let (worker, leader) = (training.pod(1), training.pod(0));
    let expected = [
        (Cause::Application, Some(worker.as_str()), Some(137)),
        (Cause::Application, Some(leader.as_str()), Some(137)),
        (Cause::Disruption, Some(leader.as_str()), None),
        (Cause::Succeeded, None, None),
    ];
    assert_eq!(ends, expected);
    assert_eq!(real.last().unwrap().number, last, "the API server's absence made no attempt of its own");

    // No more than one interval is done again.
    for (attempt, kept) in real[1..].iter().zip(kept) {
        let epoch = attempt.resumed_from.as_ref().and_then(|checkpoint| checkpoint.epoch);
        assert!(
            epoch >= Some(kept),
            "epoch {kept} was saved, and attempt {} began at {epoch:?}",
            attempt.number
        );
    }
}
