//! Who is stopped on purpose gets SIGTERM and some time; what it saves in that time is where the next attempt begins.

use serde_json::json;
use trainyard_api::{Cause, State, TrainingJobStatus};

use crate::common::example::{Example, Saved};
use crate::common::training::Work;
use crate::plane::Plane;
use crate::support::Bench;
use crate::training::Training;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_saves_when_it_is_told_to_stop_is_gone_on_from() {
    stops(Example::DIGITS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_pytorch_saves_when_it_is_told_to_stop_is_gone_on_from() {
    let Some(example) = Example::ddp() else { return };
    stops(example).await;
}

async fn stops(example: Example) {
    let bench = Bench::new();
    let plane = Plane::start(&bench).await;
    let jobs = &plane.jobs;
    let training = Training::start(&bench, jobs, example, Work::long()).await;

    let attempt = training.first_progress(jobs).await;
    assert_eq!(training.saved(), Saved::default(), "nothing is saved before it is asked for");
    jobs.change(training.job, json!({"suspend": true})).await;
    let gone = |status: &TrainingJobStatus| {
        let message = status.message.as_deref().unwrap_or_default();
        status.state == Some(State::Suspended) && message.contains("no pods")
    };
    let status = jobs.until(training.job, "suspended, and all are gone", gone).await;
    assert_eq!(training.end_of(jobs, attempt).await.cause, Some(Cause::Suspend));
    let first = training.saved();
    assert!(first.step > 0, "{first:?}");
    assert_eq!(example.at(&status.checkpoint.unwrap().path), Some(first), "where it will go on");
    jobs.change(training.job, json!({"suspend": false})).await;
    assert_eq!(training.goes_on_from(jobs, attempt, first).await, first);

    let attempt = training.first_progress(jobs).await;
    jobs.change(training.job, json!({"numWorkers": 1})).await;
    assert_eq!(training.end_of(jobs, attempt).await.cause, Some(Cause::Rescale));
    let from = training.goes_on_from(jobs, attempt, first).await;
    assert!(from > first && from == training.saved(), "{from:?} after {first:?}");
}
