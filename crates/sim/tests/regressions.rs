//! What the simulator has found, told as stories: each of these went wrong once. Seeds change their meaning when the histories do;
//! stories do not.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;
use trainyard_api::{
    Cause, CleanPodPolicy, RestartPolicy, Role, RoleOrder, State, TrainingJobSpec, TrainingJobStatus, names,
};
use trainyard_operator::Watched;
use trainyard_plan::TargetKind;
use trainyard_sim::scenario::spec;
use trainyard_sim::{Child, Delivery, Fate, Make, World};

const NAME: &str = "bert";

fn submitted(spec: TrainingJobSpec) -> World {
    let mut world = World::new(Make::default(), true);
    world.submit(NAME, spec);
    world.settle();
    world
}

fn running(spec: TrainingJobSpec) -> World {
    let mut world = submitted(spec);
    world.run_all();
    world.settle();
    assert_eq!(world.state(NAME), Some(State::Running));
    world
}

fn status(world: &World) -> TrainingJobStatus {
    world.status(NAME).unwrap()
}

/// Whoever fails is replaced alone.
fn one_by_one() -> TrainingJobSpec {
    let policy = json!({"restartScope": "Worker"});
    TrainingJobSpec { failure_policy: serde_json::from_value(policy).ok(), ..spec() }
}

/// An evaluator that starts when all workers have.
fn with_evaluator(spec: TrainingJobSpec) -> TrainingJobSpec {
    let order = Some(RoleOrder::AfterWorkers);
    let role = Role { name: "eval".into(), replicas: Some(1), order, ..Role::default() };
    TrainingJobSpec { roles: Some(vec![role]), ..spec }
}

fn take_label(world: &mut World, pod: &str) {
    world.change(TargetKind::Pod, pod, |pod| {
        pod["metadata"]["labels"][names::MANAGED_BY_LABEL] = "nobody".into();
    });
}

fn has_label(world: &World, pod: &str) -> bool {
    let server = world.server();
    server.all(TargetKind::Pod)[pod].label(names::MANAGED_BY_LABEL) == Some(names::MANAGED_BY)
}

/// The pod was taken for deleted: the attempt ended, and the next one began beside it.
#[test]
fn a_pod_that_lost_its_label_while_no_operator_ran_is_not_gone() {
    let mut world = running(spec());
    world.kill_operator(0);
    take_label(&mut world, "bert-workers-0");
    world.start_operator();
    world.pass(Duration::from_secs(5));
    assert!(has_label(&world, "bert-workers-0"));
    assert_eq!((world.state(NAME), status(&world).attempts.len()), (Some(State::Running), 1));
}

/// The label is put back, and the watch takes longer to tell than an operator waits for its own writes. Then the pod was taken for deleted
/// without being asked for again: the training is restarted for nothing.
#[test]
fn a_pod_whose_label_is_back_is_not_gone_because_the_watch_is_slow() {
    let mut world = running(spec());
    let (from, time) = (world.delivered() + 2, Duration::from_secs(45));
    world.set_delivery(Delivery::Slow { from, time, kind: Some(Watched::Pods) });
    take_label(&mut world, "bert-workers-0");
    world.pass(Duration::from_mins(3));
    assert!(has_label(&world, "bert-workers-0"));
    assert_eq!((world.state(NAME), status(&world).attempts.len()), (Some(State::Running), 1));
}

/// Nobody asked for a pod that went out of sight while its job could not be read. When the job could be read again, the pod was taken for
/// deleted. (Seeds 1381, 17578 and 19999.)
#[test]
fn a_label_that_is_lost_while_the_job_cannot_be_read_is_put_back() {
    let mut world = running(spec());
    world.set_unreadable(NAME, true);
    world.settle();
    take_label(&mut world, "bert-workers-0");
    world.settle();
    world.set_unreadable(NAME, false);
    world.pass(Duration::from_secs(5));
    assert!(has_label(&world, "bert-workers-0"));
    assert_eq!((world.state(NAME), status(&world).attempts.len()), (Some(State::Running), 1));
}

/// The job had failed, and when the operator's patience was over, the watch had not told so yet: from what it had seen, its pods were to be
/// made, and they were. (Seeds 6955 and 39881.)
#[test]
fn a_job_that_has_ended_is_not_begun_again_because_the_watch_is_slow() {
    let spec = TrainingJobSpec {
        restart_policy: Some(RestartPolicy::Never),
        clean_pod_policy: Some(CleanPodPolicy::All),
        ..spec()
    };
    let mut world = submitted(with_evaluator(spec));
    let (from, time) = (world.delivered() + 2, Duration::from_mins(5));
    world.set_delivery(Delivery::Slow { from, time, kind: Some(Watched::Jobs) });
    world.fail_pod("bert-workers-0", 1);
    world.pass(Duration::from_mins(2));
    assert_eq!(world.state(NAME), Some(State::Failed));
    assert!(world.pod_names().is_empty(), "{:?}", world.pod_names());
}

/// The job was gone before it had a finalizer, and the watch had not told: its pods were made again as fast as they were collected.
/// (Seed 1197001.)
#[test]
fn the_pods_of_a_job_that_is_gone_are_not_made_again_and_again() {
    let mut world = World::new(Make::default(), true);
    world.submit(NAME, spec());
    world.settle_with(&mut |_| Some(Fate::TooMany));
    let (from, time) = (world.delivered() + 1, Duration::from_mins(5));
    world.set_delivery(Delivery::Slow { from, time, kind: Some(Watched::Jobs) });
    world.delete_job(NAME);
    world.pass(Duration::from_mins(2));
    let made =
        |pod: &str| world.trace().iter().filter(|line| line.ends_with(&format!("{pod} created"))).count();
    assert_eq!((made("pod bert-workers-0"), made("pod bert-workers-1")), (1, 1));
}

/// What was refused was asked for again when the wall clock had come to that moment, hours later.
#[test]
fn what_was_refused_is_asked_for_again_although_the_clock_is_set_back() {
    let mut world = World::new(Make::default(), true);
    world.set_quota(Some(1));
    world.submit(NAME, spec());
    world.settle();
    assert_eq!((world.state(NAME), world.pod_names().len()), (Some(State::Pending), 0));
    world.jump(SignedDuration::from_hours(-2));
    world.set_quota(None);
    world.pass(Duration::from_mins(1));
    assert_eq!(world.pod_names().len(), 2, "{:?}", world.state(NAME));
}

/// A busy server's 409 was taken for "there is another pod of that name", and so the pod for gone.
#[test]
fn a_label_that_cannot_be_put_back_at_once_is_put_back_later() {
    let mut world = running(spec());
    take_label(&mut world, "bert-workers-0");
    // The pod is asked for, and then changed.
    let patch = world.calls() + 2;
    world.settle_with(&mut |call| Some(if call == patch { Fate::Conflict } else { Fate::Served }));
    world.pass(Duration::from_secs(5));
    assert!(world.trace().iter().any(|line| line.contains("patch pod bert-workers-0: Conflict")));
    assert!(has_label(&world, "bert-workers-0"));
    assert_eq!((world.state(NAME), status(&world).attempts.len()), (Some(State::Running), 1));
}

/// The watch told of the first pod's end before the operator had deleted the second: the operator asked for what it had itself removed.
#[test]
fn what_the_operator_deleted_itself_is_not_looked_for() {
    let mut world = submitted(spec());
    world.edit(NAME, |spec| spec.image = Some("my/trainer:2".into()));
    world.pass(Duration::from_secs(5));
    assert_eq!(status(&world).attempts.len(), 2);
    // One that begins an attempt may make sure that nobody is left of the last one, but has nothing to put back.
    assert!(!world.trace().iter().any(|line| line.contains("patch pod")), "{:#?}", world.trace());
}

/// The operator dies when it has written that the attempt is over; then a pod of that attempt loses its label. It was found only when its
/// name was needed, and until then the next attempt had begun beside it.
#[test]
fn the_next_attempt_does_not_begin_beside_a_pod_that_is_out_of_sight() {
    let mut world = running(spec());
    world.fail_pod("bert-workers-0", 1);
    let dies_before = world.calls() + 2;
    let mut dead = false;
    world.settle_with(&mut |call| {
        let dies = call == dies_before && !dead;
        dead |= dies;
        (!dies).then_some(Fate::Served)
    });
    assert!(dead);
    if world.server().all(TargetKind::Pod).contains_key("bert-workers-1") {
        take_label(&mut world, "bert-workers-1");
    }
    // What must not be side by side is watched by the rules of every step.
    world.pass(Duration::from_secs(5));
    world.release();
    world.pass(Duration::from_mins(1));
    world.release();
    world.pass(Duration::from_mins(1));
    world.run_all();
    world.settle();
    assert_eq!(world.state(NAME), Some(State::Running));
    assert_eq!(status(&world).attempts.len(), 2);
}

/// The same, when the status is gone, too: nothing says that there was an attempt before, and nobody is asked for.
#[test]
fn without_a_status_no_attempt_begins_beside_a_pod_that_is_out_of_sight() {
    let mut world = running(spec());
    for image in ["my/trainer:2", "my/trainer:3"] {
        world.run_all();
        world.edit(NAME, |spec| spec.image = Some(image.into()));
        world.pass(Duration::from_secs(5));
        if image == "my/trainer:2" {
            world.release();
            world.pass(Duration::from_secs(5));
        }
    }
    world.lose_pod("bert-workers-0");
    take_label(&mut world, "bert-workers-1");
    world.remove_status(NAME);
    world.settle();
    let server = world.server();
    let numbers = server.pods().map(Child::attempt).collect::<BTreeSet<_>>();
    assert!(numbers.len() < 2, "{numbers:?}");
}

/// The worker that missed its evicted peer failed, was seen first, and its failure was counted.
#[test]
fn who_fails_because_a_peer_was_taken_is_not_to_blame() {
    let mut world = running(spec());
    world.fail_pod("bert-workers-0", 1);
    world.evict("bert-workers-1");
    world.settle();
    let status = status(&world);
    assert_eq!(status.attempts[0].cause, Some(Cause::Disruption));
    assert_eq!(status.restarts.unwrap().application, 0);
}

/// A worker that waits to be replaced counted as one that runs: the job was Running with nobody in it.
#[test]
fn a_job_without_its_only_worker_is_not_running() {
    let mut world = submitted(TrainingJobSpec { num_workers: Some(1), ..one_by_one() });
    world.fail_pod("bert-workers-0", 1);
    world.settle();
    assert_ne!(world.state(NAME), Some(State::Running));
    world.pass(Duration::from_mins(1));
    world.run_all();
    world.settle();
    assert_eq!(world.state(NAME), Some(State::Running));
}

/// The status that was written then had no state at all.
#[test]
fn a_worker_fails_and_somebody_takes_the_status_away() {
    let mut world = submitted(one_by_one());
    world.fail_pod("bert-workers-0", 2);
    world.remove_status(NAME);
    world.settle();
    assert!(world.state(NAME).is_some());
}

/// A worker that a quota refuses was asked for again at once, and again, as fast as the API server answered.
#[test]
fn a_single_worker_that_a_quota_refuses_is_not_asked_for_in_a_loop() {
    let mut world = running(one_by_one());
    world.set_quota(Some(1));
    world.fail_pod("bert-workers-1", 1);
    let before = world.calls();
    world.pass(Duration::from_mins(2));
    assert!(world.calls() - before < 60, "{} calls", world.calls() - before);
    world.set_quota(None);
    world.pass(Duration::from_mins(1));
    world.run_all();
    world.settle();
    assert_eq!(world.pod_names().len(), 2);
}

/// Nobody replaced a worker that failed before all pods had been there, and the evaluator waited for it for ever.
#[test]
fn a_worker_that_fails_before_the_evaluator_is_made_is_replaced() {
    let mut world = submitted(with_evaluator(one_by_one()));
    world.fail_pod("bert-workers-0", 1);
    for _ in 0..3 {
        world.pass(Duration::from_secs(30));
        world.release();
        world.run_all();
    }
    world.settle();
    assert_eq!(world.state(NAME), Some(State::Running));
}

/// The evaluator waited for a worker to start whose failure is ignored.
#[test]
fn a_worker_whose_failure_is_ignored_is_not_waited_for() {
    let policy = json!({"rules": [{"exitCodes": [2], "action": "Ignore"}]});
    let policy = serde_json::from_value(policy).ok();
    let mut world = submitted(with_evaluator(TrainingJobSpec { failure_policy: policy, ..spec() }));
    world.fail_pod("bert-workers-0", 2);
    world.run("bert-workers-1");
    world.settle();
    assert!(world.pod_names().contains(&"bert-eval-0".to_owned()));
}

/// A stall was waited for that had come long ago, and never acted upon: the operator looked at the job a thousand times a second.
#[test]
fn silence_ends_the_attempt_of_a_job_whose_workers_are_replaced_alone() {
    let mut world = running(TrainingJobSpec { stall_timeout_seconds: Some(60), ..one_by_one() });
    world.progress(NAME);
    world.pass(Duration::from_mins(3));
    assert_eq!(status(&world).attempts[0].cause, Some(Cause::Stalled));
}

/// The leader was done, the others were not, and its silence was taken for a stall; then, nothing ever was one. The others have as
/// long as a stall takes, from its end on.
#[test]
fn who_outlasts_a_leader_that_is_done_has_its_time_and_no_more() {
    let mut world = running(TrainingJobSpec { stall_timeout_seconds: Some(60), ..spec() });
    world.progress(NAME);
    world.pass(Duration::from_secs(50));
    world.succeed("bert-workers-0");
    world.pass(Duration::from_secs(55));
    assert_eq!((world.state(NAME), status(&world).attempts.len()), (Some(State::Running), 1));
    world.pass(Duration::from_secs(10));
    assert_eq!(status(&world).attempts[0].cause, Some(Cause::Stalled));
}

/// Of a job whose workers are replaced alone, nobody heard the agent that held the leader.
#[test]
fn a_leader_that_its_agent_holds_is_told_to_go_on_from_what_is_there() {
    let kept = || TrainingJobSpec { checkpoint_dir: Some("/checkpoints".into()), ..one_by_one() };
    let mut world = running(kept());
    world.save(NAME);
    world.settle();
    world.delete_job(NAME);
    world.settle();
    world.release();
    world.pass(Duration::from_secs(5));
    assert!(!world.exists(NAME));
    world.submit(NAME, kept());
    for _ in 0..3 {
        world.pass(Duration::from_secs(5));
        world.release();
        world.run_all();
    }
    world.settle();
    let attempt = status(&world).attempts.pop().unwrap();
    assert_eq!(attempt.resumed_from.unwrap().path, "/checkpoints/step-10");
    assert_eq!(world.state(NAME), Some(State::Running));
}

/// As long as budgets could not be written, nothing was reported: the job seemed to wait for its pods, which ran.
#[test]
fn a_budget_that_cannot_be_had_keeps_no_report_back() {
    let mut world = World::new(Make::default(), true);
    world.server().no_budgets = Some("no endpoints available");
    world.submit(NAME, one_by_one());
    world.settle();
    world.run_all();
    world.pass(Duration::from_secs(15));
    assert_eq!(world.state(NAME), Some(State::Running));
    let message = status(&world).message.unwrap();
    assert!(message.contains("no endpoints available"), "{message}");
    world.server().no_budgets = None;
    world.pass(Duration::from_mins(2));
    assert_eq!(world.server().budgets().len(), 1);
    let message = status(&world).message.unwrap();
    assert!(!message.contains("no endpoints available"), "{message}");
}

/// A job that cannot be read is deleted. The operator dies when it has sent that its finalizer goes; its successor sends it again, and the
/// job is gone. Then there is another of its name, and what the first one sent takes its finalizers.
#[test]
fn a_job_that_cannot_be_read_leaves_the_next_of_its_name_alone() {
    let mut world = submitted(spec());
    world.set_unreadable(NAME, true);
    world.settle();
    world.delete_job(NAME);
    world.crashes_late = true;
    let mut dead = false;
    world.settle_with(&mut |_| std::mem::replace(&mut dead, true).then_some(Fate::Served));
    assert!(!world.exists(NAME) && world.adrift() > 0);
    world.submit(NAME, spec());
    world.settle();
    world.land_all();
    let server = world.server();
    assert!(server.job(NAME).unwrap().metadata.finalizers.is_some());
}

/// A job whose checkpoints go with it cannot be read any more when its deletion is seen: nobody knows then that they were to go, so they
/// stay, and it goes all the same (seed 202764). The checker had demanded what nobody could know.
#[test]
fn the_checkpoints_of_a_job_that_cannot_be_read_outlive_it() {
    let mut world = running(TrainingJobSpec {
        checkpoint: serde_json::from_value(json!({"deleteOnCompletion": true})).ok(),
        checkpoint_dir: Some("/checkpoints".into()),
        ..spec()
    });
    world.delete_job(NAME);
    world.set_unreadable(NAME, true);
    world.settle();
    world.release();
    world.settle();
    assert!(!world.exists(NAME));
    let server = world.server();
    let claims: Vec<&String> = server.all(TargetKind::Claim).keys().collect();
    assert_eq!(claims, ["bert-checkpoints"]);
}

/// What is saved between the order to go and the end is what the next attempt goes on from.
#[test]
fn what_is_saved_in_the_time_that_is_left_is_gone_on_from() {
    let mut world = running(TrainingJobSpec { checkpoint_dir: Some("/checkpoints".into()), ..spec() });
    world.save(NAME);
    world.edit(NAME, |spec| spec.suspend = Some(true));
    world.settle();
    world.save(NAME);
    world.settle();
    world.release();
    world.settle();
    world.edit(NAME, |spec| spec.suspend = Some(false));
    world.settle();
    let attempt = status(&world).attempts.pop().unwrap();
    assert_eq!(attempt.resumed_from.unwrap().path, "/checkpoints/step-20");
}

/// Half a gang is taken back, because a quota refused the rest, and the operator dies when it has asked for that. Its successor has room,
/// and goes on with the half that is there; then what the first had asked for happens. The checker blamed the dead (seed 1001384).
#[test]
fn half_a_gang_that_is_taken_back_late_is_made_again() {
    for calls in 0..16 {
        let mut world = World::new(Make::default(), true);
        world.crashes_late = true;
        world.set_quota(Some(1));
        world.submit(NAME, spec());
        world.stop_after(calls);
        world.set_quota(None);
        world.replace_operator(0);
        world.settle();
        world.land_all();
        for _ in 0..3 {
            world.pass(Duration::from_secs(30));
            world.release();
            world.run_all();
        }
        world.settle();
        assert_eq!(world.state(NAME), Some(State::Running), "dead after {calls} calls");
    }
}

/// An operator dies when it has sent its first pods, and one of them comes when its worker is to be replaced in the next attempt. The new pod
/// was asked for before the old one was removed, in vain and for ever. (Seed 1093099.)
#[test]
fn a_worker_is_replaced_although_a_pod_of_an_earlier_attempt_has_its_name() {
    let mut world = World::new(Make::default(), true);
    world.submit(NAME, one_by_one());
    // The service and the config map are there, and pods are asked for.
    world.stop_after(2);
    world.kill_operator_late(0, &mut || true);
    assert!(world.adrift() > 1);
    world.start_operator();
    world.settle();
    world.run_all();
    world.edit(NAME, |spec| spec.image = Some("my/trainer:2".into()));
    world.settle();
    world.release();
    world.settle();
    world.run_all();
    world.settle();
    assert_eq!((world.state(NAME), status(&world).attempts.len()), (Some(State::Running), 2));
    world.fail_pod("bert-workers-0", 1);
    world.settle();
    // When it may be replaced, the old one comes.
    world.skip(Duration::from_secs(20));
    world.land_all();
    world.pass(Duration::from_mins(2));
    world.release();
    world.pass(Duration::from_mins(2));
    world.run_all();
    world.settle();
    assert_eq!(world.state(NAME), Some(State::Running));
    assert!(world.server().pods().all(|pod| pod.attempt() == Some(2)));
}

/// The log was followed until its pod went, and what it said was told, although the job says that nobody is to read it.
#[test]
fn a_log_that_nobody_is_to_read_any_more_tells_nothing() {
    let mut world = running(spec());
    let says = |world: &mut World| {
        world.progress(NAME);
        world.pass(Duration::from_secs(10));
        status(world).current_epoch
    };
    let source = |source: &str| serde_json::from_value(json!({"source": source})).ok();
    assert_eq!(says(&mut world), Some(1));
    world.edit(NAME, |spec| spec.progress = source("None"));
    assert_eq!(says(&mut world), Some(1), "the last word stands");
    world.edit(NAME, |spec| spec.progress = source("Auto"));
    assert_eq!(says(&mut world), Some(3));
    assert_eq!(status(&world).attempts.len(), 1);
}
