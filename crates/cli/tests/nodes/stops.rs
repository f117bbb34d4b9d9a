//! Programs that are stopped, and what they still have to say: who is told to go saves what it has done, who hangs tells where, and
//! who cannot start says why.

use trainyard_api::{Cause, State, TrainingJobStatus};
use trainyard_testcluster::nodes_enabled;

use super::support::{IMAGE, Yard};
use super::training::Training;
use crate::common::example::{Example, Saved};
use crate::common::training::Work;

/// Hangs in its first attempt, after some progress, as one that waits for data would.
const HANGING: &str = r#"apiVersion: ml.example.com/v1
kind: TrainingJob
metadata: {name: hanging}
spec:
  framework: custom
  image: test/digits:1
  numWorkers: 2
  command:
    - python3
    - -c
    - |
      import os, time
      def wait_for_data():
          while True:
              time.sleep(60)
      print('{"epoch": 1, "epochs": 2}', flush=True)
      if os.environ["TRAINYARD_ATTEMPT"] == "1":
          wait_for_data()
  resources: {requests: {cpu: 100m, memory: 64Mi}}
  stallTimeoutSeconds: 2
"#;

/// Asks for a secret that nobody made.
const UNMOUNTED: &str = "apiVersion: ml.example.com/v1
kind: TrainingJob
metadata: {name: unmounted}
spec:
  framework: custom
  image: test/digits:1
  command: [python3, -c, 'pass']
  resources: {requests: {cpu: 100m, memory: 64Mi}}
  template:
    spec:
      volumes: [{name: keys, secret: {secretName: nobodys-keys}}]
      containers: [{name: training-worker, volumeMounts: [{name: keys, mountPath: /keys}]}]
";

#[tokio::test]
async fn who_is_drained_saves_and_who_hangs_says_where() {
    if !nodes_enabled() {
        return;
    }
    let mut yard = Yard::new(1).await;
    yard.start_operator().await;
    a_drained_program_goes_on_from_what_it_saved_in_its_grace(&yard).await;
    a_hanging_program_says_where_through_exec(&yard).await;
    a_volume_that_cannot_be_mounted_is_told(&yard).await;
    yard.the_role_sufficed();
}

async fn a_drained_program_goes_on_from_what_it_saved_in_its_grace(yard: &Yard) {
    // Nothing of this may count as a failure.
    let work = Work { backoff_limit: 0, ..Work::long() };
    let training = Training::start(yard, "drained".to_owned(), Example::DIGITS, IMAGE, work).await;
    let progress = |status: &TrainingJobStatus| {
        status.attempts.last().is_some_and(|attempt| attempt.seconds.first_step.is_some())
    };
    yard.until(&training.job, "progress", progress).await;
    assert_eq!(training.saved(), Saved::default(), "nothing is saved before it is asked for");
    let node = yard.kubectl(&["get", "nodes", "-o", "name"]).await;
    let selector = format!("--pod-selector=trainingjob={}", training.job);
    let drain = ["drain", node.trim(), "--force", "--delete-emptydir-data", &selector, "--timeout=120s"];
    yard.kubectl(&drain).await;
    let saved = training.saved();
    yard.tell(&format!("the node is drained, with {saved:?}"));
    assert!(saved.step > 0, "{saved:?}");
    yard.kubectl(&["uncordon", node.trim()]).await;
    training.next(yard, 1).await;
    let status = yard.status(&training.job).await.unwrap();
    assert_eq!(status.attempts[0].cause, Some(Cause::Disruption), "{status:#?}");
    let last = status.attempts.last().unwrap();
    assert_eq!(training.checkpoints.begun_with(last), saved, "{status:#?}");
    yard.kubectl(&["delete", "trainingjob", &training.job]).await;
}

async fn a_hanging_program_says_where_through_exec(yard: &Yard) {
    assert!(HANGING.contains(IMAGE), "the image of the other tests");
    yard.apply(HANGING).await;
    let status = yard.until_state("hanging", State::Completed).await;
    let stalled = &status.attempts[0];
    assert_eq!(stalled.cause, Some(Cause::Stalled), "{status:#?}");
    let error = stalled.error.as_deref().unwrap_or_default();
    let both = "Worker 0, Worker 1 in wait_for_data (<string>:4), called from <module> (<string>:7)";
    assert_eq!(error, both, "{status:#?}");
}

async fn a_volume_that_cannot_be_mounted_is_told(yard: &Yard) {
    yard.apply(UNMOUNTED).await;
    let words =
        "FailedMount: MountVolume.SetUp failed for volume \"keys\" : secret \"nobodys-keys\" not found";
    let told =
        |status: &TrainingJobStatus| status.message.as_ref().is_some_and(|message| message.contains(words));
    yard.until("unmounted", words, told).await;
    yard.kubectl(&["create", "secret", "generic", "nobodys-keys"]).await;
    yard.until_state("unmounted", State::Completed).await;
}
