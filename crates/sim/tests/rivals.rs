//! Two operators at once, because a lease was lost: what went wrong when one of them saw what the other had written sooner than what it
//! had done. Each of these was found by random histories.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use serde_json::json;
use trainyard_api::{State, TrainingJobSpec, TrainingJobStatus};
use trainyard_operator::Watched;
use trainyard_plan::TargetKind;
use trainyard_sim::scenario::spec;
use trainyard_sim::{Make, World};

const NAME: &str = "bert";

fn status(world: &World) -> TrainingJobStatus {
    world.status(NAME).unwrap()
}

/// A job that runs, and two operators that know it.
fn two_operators(spec: TrainingJobSpec) -> World {
    let mut world = World::new(Make::default(), true);
    world.submit(NAME, spec);
    world.settle();
    world.run_all();
    world.settle();
    world.start_rival();
    world.settle();
    world
}

/// The first operator works as if it were alone.
fn first(world: &mut World) {
    world.work_alone(0, &Watched::ALL);
}

/// The second has seen nothing but jobs since.
fn second(world: &mut World) {
    world.work_alone(1, &[Watched::Jobs]);
}

/// A worker fails, and the first operator restarts all.
fn restarted(world: &mut World) {
    world.fail_pod("bert-workers-1", 1);
    first(world);
    world.release();
    first(world);
    world.skip(Duration::from_secs(20));
    first(world);
    world.run_all();
    first(world);
    assert_eq!((world.state(NAME), status(world).attempts.len()), (Some(State::Running), 2));
}

/// Pods that another operator had made, and that were not seen yet, were taken for lost.
#[test]
fn a_status_that_comes_sooner_than_its_pods_ends_nothing() {
    let mut world = two_operators(spec());
    restarted(&mut world);
    second(&mut world);
    assert_eq!((world.state(NAME), status(&world).attempts.len()), (Some(State::Running), 2));
}

/// The loss of a worker that the other operator had replaced already was counted again.
#[test]
fn a_worker_that_was_replaced_by_another_operator_is_not_counted_again() {
    let policy = json!({"restartScope": "Worker"});
    let mut world =
        two_operators(TrainingJobSpec { failure_policy: serde_json::from_value(policy).ok(), ..spec() });
    world.remove(TargetKind::Pod, "bert-workers-1");
    first(&mut world);
    world.work_alone(1, &[Watched::Pods]);
    world.release();
    first(&mut world);
    world.run_all();
    first(&mut world);
    second(&mut world);
    assert_eq!(status(&world).restarts.unwrap().disruption, 1);
}

/// What the agent of an attempt before had said replaced what the one of this attempt had.
#[test]
fn what_an_agent_of_an_earlier_attempt_said_is_old() {
    let mut world = two_operators(TrainingJobSpec { checkpoint_dir: Some("/checkpoints".into()), ..spec() });
    restarted(&mut world);
    world.save(NAME);
    first(&mut world);
    second(&mut world);
    world.work_alone(1, &Watched::ALL);
    assert_eq!(status(&world).checkpoint.unwrap().path, "/checkpoints/step-10");
}

/// The silence of a program that had ended was taken for that of the next one.
#[test]
fn silence_before_an_attempt_is_not_its_own() {
    let mut world = two_operators(TrainingJobSpec { stall_timeout_seconds: Some(15), ..spec() });
    world.progress(NAME);
    world.work_alone(1, &Watched::ALL);
    restarted(&mut world);
    world.work_alone(1, &[Watched::Jobs, Watched::Pods]);
    assert_eq!((world.state(NAME), status(&world).attempts.len()), (Some(State::Running), 2));
}

/// An operator that had not been told that a job is gone removed the claim of the next one of its name, as the first had wished.
/// (Seed 81044.)
#[test]
fn the_claim_of_the_next_job_of_a_name_stays() {
    let checkpoints = TrainingJobSpec { checkpoint_dir: Some("/checkpoints".into()), ..spec() };
    let passing = json!({"deleteOnCompletion": true});
    let checkpoint = serde_json::from_value(passing).ok();
    let mut world = two_operators(TrainingJobSpec { checkpoint, ..checkpoints.clone() });
    world.delete_job(NAME);
    second(&mut world);
    world.release();
    first(&mut world);
    assert!(!world.exists(NAME) && world.server().all(TargetKind::Claim).is_empty());
    world.submit(NAME, checkpoints);
    first(&mut world);
    let claims = |world: &World| world.server().all(TargetKind::Claim).len();
    assert_eq!(claims(&world), 1);
    world.work_alone(1, &[Watched::Pods, Watched::Claims]);
    assert_eq!(claims(&world), 1);
    assert!(world.trace().iter().any(|line| line.contains("get job bert")), "{:#?}", world.trace());
}
