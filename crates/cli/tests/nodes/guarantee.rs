//! Nothing is lost: a real training on real nodes, in which everything is killed in turn at random moments, ends as one that nobody
//! disturbed, bit for bit.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use trainyard_api::checkpoint::AGENT_CONTAINER;
use trainyard_api::names::CONTAINER;
use trainyard_api::{Attempt, Cause, State};
use trainyard_testcluster::{RootFs, nodes_enabled};

use super::support::{IMAGE, Yard};
use super::training::{Training, node_of, tell};
use crate::common::example::{Example, Saved};
use crate::common::moments::Moments;
use crate::common::training::Work;

/// A kill comes when three more were saved at the latest, and something must be left for the last one.
const EPOCHS: i64 = 36;
/// As many as the test causes by killing programs: one more failure that counts, and the job would fail.
const BACKOFF_LIMIT: i32 = 3;
/// Python with torch, and the PyTorch example in /app.
const TORCH_IMAGE: &str = "test/ddp:1";

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
    // One cluster for both: it is up to each to leave it as it was.
    let mut yard = Yard::new(2).await;
    yard.start_operator().await;
    survives(&mut yard, "digits", Example::DIGITS, IMAGE).await;
    // Between nodes, a step takes longer.
    let Some(example) = Example::ddp().map(|example| Example { batch_size: 12, ..example }) else { return };
    yard.image(TORCH_IMAGE, RootFs::torch(), example).await;
    survives(&mut yard, "ddp", example, TORCH_IMAGE).await;
}

async fn survives(yard: &mut Yard, name: &str, example: Example, image: &str) {
    let work = Work { backoff_limit: BACKOFF_LIMIT, ..Work::short(example, EPOCHS) };
    let calm = Training::start(yard, format!("{name}-calm"), example, image, work).await;
    let status = yard.until_state(&calm.job, State::Completed).await;
    assert_eq!(status.restarts.unwrap_or_default().total(), 0, "{status:#?}");
    let expected = calm.checkpoints.last();
    yard.tell("the undisturbed training has ended");

    let training = Training::start(yard, name.to_owned(), example, image, work).await;
    let mut chance = Chance { moments: Moments::new(), longest: calm.checkpoints.took().mul_f64(1.5) };
    // What was saved when an attempt was ended; the next may not begin before that.
    let mut kept = Vec::new();

    // Programs: a worker, the one that leads, the agent beside it. The agent comes back by itself.
    let first = training.next(yard, 0).await;
    kept.push(chance.wait(yard, &training).await);
    training.kill(yard, 1, CONTAINER).await;
    let second = training.next(yard, first).await;
    kept.push(chance.wait(yard, &training).await);
    training.kill(yard, 0, CONTAINER).await;
    let third = training.next(yard, second).await;
    chance.wait(yard, &training).await;
    training.kill(yard, 0, AGENT_CONTAINER).await;
    yard.wait_for("the agent runs again", async || training.agent_starts(yard).await == 2).await;
    yard.tell("the agent runs again");

    // The operator, whose successor finds everything as it was.
    chance.wait(yard, &training).await;
    yard.kill_operator();
    yard.tell("killed: the operator");
    yard.start_operator().await;

    // The node of the one that leads. It stays off.
    kept.push(chance.wait(yard, &training).await);
    let node = training.node_of(yard, 0).await;
    yard.cluster.node(node).kill();
    yard.tell(&format!("power cut: node-{node}"));
    let fourth = training.next(yard, third).await;
    for pod in yard.pods(&training.job).await {
        assert_ne!(node_of(&pod), node, "{} is on a node that is off", pod.name_any());
        let resumed = told(&pod).unwrap();
        assert!(resumed.starts_with("/checkpoints/checkpoint-epoch-"), "{resumed}");
    }

    yard.the_role_sufficed();

    // The API server: the training goes on without it, until a worker dies whose end nobody can be told of.
    let pod = training.pod(1);
    let (host, id) = yard.cluster.running_container("default", &pod, CONTAINER).await.unwrap();
    // They find each other by names, which nobody knows that the API server has not told of.
    training.further(yard).await;
    yard.kill_apiserver();
    training.further(yard).await;
    kept.push(chance.wait(yard, &training).await);
    yard.cluster.node(host).kill_container(&id).await.unwrap();
    yard.tell(&format!("killed: {CONTAINER} of {pod}"));
    yard.start_apiserver().await;
    let last = training.next(yard, fourth).await;

    // Once more: it ends without it.
    training.further(yard).await;
    yard.kill_apiserver();
    training.ended(yard).await;
    yard.start_apiserver().await;

    let status = yard.until_state(&training.job, State::Completed).await;
    for attempt in &status.attempts {
        tell(yard, attempt);
    }
    assert!(training.checkpoints.last() == expected, "the weights differ from those of the undisturbed run");

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
        (Cause::Application, Some(worker.as_str()), Some(137)),
        (Cause::Succeeded, None, None),
    ];
    assert_eq!(ends, expected);
    assert_eq!(real.last().unwrap().number, last, "the API server's absence made no attempt of its own");

    // No more than one interval is done again.
    for (attempt, kept) in real[1..].iter().zip(kept) {
        let from = training.checkpoints.begun_with(attempt);
        assert!(from >= kept, "{kept:?} was saved, and attempt {} began with {from:?}", attempt.number);
    }

    yard.cluster.node(node).start().await.unwrap();
    yard.tell(&format!("node-{node} is back"));
}

/// When the next one is killed.
struct Chance {
    moments: Moments,
    longest: Duration,
}

impl Chance {
    /// Lets some time pass: mostly since the next checkpoint, else since now, when a program may just be starting. Says what is saved
    /// then.
    async fn wait(&mut self, yard: &Yard, training: &Training) -> Saved {
        if self.moments.mostly() {
            training.further(yard).await;
        }
        training.checkpoints.wait(self.moments.within(self.longest)).await;
        let saved = training.saved();
        yard.tell(&format!("saved: {saved:?}"));
        saved
    }
}
