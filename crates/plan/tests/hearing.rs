//! What is heard of programs, and what is not: silence that is a stall or a broken line, words that came late, and victims of
//! somebody else's failure.

mod support;

use jiff::SignedDuration;
use support::{Cluster, Hearing, Job, job};
use trainyard_api::{
    AgentReport, Cause, CheckpointStatus, FailureAction, FailurePolicy, FailureRule, RestartPolicy,
    RestartScope, Resume, State,
};
use trainyard_plan::Exit;
use trainyard_progress::{Progress, Reading};

const LOST_A_PEER: &str = "RuntimeError: Connection closed by peer [10.0.0.7]:4242";

/// Rank 0 tells of progress now.
fn speaks(bert: &mut Cluster) {
    let mut progress = Progress::default();
    progress.take(Reading::default(), bert.now);
    bert.progress = Some(progress);
    bert.settle();
}

fn stalls_after(seconds: i64) -> Job {
    job("bert").workers(2).with(|spec| spec.stall_timeout_seconds = Some(seconds))
}

fn alone(job: Job) -> Job {
    job.with(|spec| {
        let policy = FailurePolicy { restart_scope: Some(RestartScope::Worker), rules: None };
        spec.failure_policy = Some(Box::new(policy));
    })
}

fn saved(epoch: i64) -> AgentReport {
    let path = format!("/checkpoints/epoch-{epoch}.pt");
    let checkpoint = CheckpointStatus { path, epoch: Some(epoch), ..Default::default() };
    AgentReport { checkpoint: Some(checkpoint), ..Default::default() }
}

#[test]
fn whoever_cannot_be_heard_has_not_stalled() {
    let mut bert = stalls_after(60).running();
    speaks(&mut bert);
    bert.hearing = Hearing::Not;
    bert.settle();
    bert.pass(600);
    assert_eq!(bert.state(), State::Running, "nobody listened");
    // It is heard again, and has a moment to tell what it said meanwhile.
    bert.hearing = Hearing::Since(bert.now);
    bert.settle();
    assert_eq!((bert.state(), bert.wakes_in()), (State::Running, Some(10)));
    speaks(&mut bert);
    bert.pass(59);
    assert_eq!(bert.state(), State::Running);
    bert.pass(2);
    assert_eq!(bert.causes(), [Cause::Stalled]);
}

#[test]
fn whoever_hangs_before_its_first_step_has_stalled_if_others_before_it_got_there() {
    let mut bert = stalls_after(60).running();
    bert.pass(600);
    assert_eq!(bert.state(), State::Running, "nobody knows that it ever tells of progress");
    speaks(&mut bert);
    let took = bert.attempts()[0].seconds.first_step.unwrap();
    assert_eq!(took, 600);
    bert.fail("workers-1", 1);
    bert.progress = None;
    bert.settle();
    bert.sleep();
    bert.run_all();
    bert.settle();
    bert.pass(took + 59);
    assert_eq!((bert.state(), bert.attempts().len()), (State::Running, 2));
    bert.pass(2);
    assert_eq!(bert.causes()[1], Cause::Stalled);
    let message = bert.attempts()[1].message.clone().unwrap();
    assert!(message.starts_with("no progress was seen for 60 s longer than earlier attempts"), "{message}");
}

#[test]
fn a_stall_is_seen_by_an_operator_that_never_heard_of_progress_itself() {
    let mut bert = stalls_after(60).running();
    bert.pass(100);
    speaks(&mut bert);
    // Another operator begins, and the end of the log has no line of progress.
    bert.progress = None;
    bert.hearing = Hearing::Anew(bert.now);
    bert.pass(100 + 59);
    assert_eq!(bert.state(), State::Running);
    bert.pass(2);
    assert_eq!(bert.causes(), [Cause::Stalled]);
    bert.suspend();
    bert.settle();
    assert_eq!((bert.state(), bert.condition("Stalled").0), (State::Suspended, "False"));
}

#[test]
fn what_is_saved_again_at_the_same_place_is_no_progress() {
    for resumes in [true, false] {
        let job = job("bert").workers(2).checkpoints().backoff_limit(9);
        let resume = Some(if resumes { Resume::Auto } else { Resume::Never });
        let mut bert = job.with(|spec| spec.checkpoint.get_or_insert_default().resume = resume).running();
        let mut waits = Vec::new();
        for size in 1..=3 {
            // The same epoch, another file.
            let mut report = saved(3);
            report.checkpoint.as_mut().unwrap().size = Some(size);
            bert.agent = Some(report);
            bert.settle();
            bert.fail("workers-1", 1);
            bert.says("workers-1", "ValueError: the evaluation is wrong");
            bert.settle();
            waits.push(bert.status().backoff_until.is_some());
            bert.pass(60);
            bert.run_all();
            bert.settle();
        }
        assert_eq!(waits, [false, true, true], "resumes: {resumes}");
        assert_eq!(bert.state(), State::Running, "the first of the three had got somewhere");
        bert.fail("workers-1", 1);
        bert.says("workers-1", "ValueError: the evaluation is wrong");
        bert.settle();
        assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "SameFailure"));
    }
}

#[test]
fn a_clock_that_is_set_back_hides_no_stall() {
    let mut bert = stalls_after(60).running();
    bert.pass(100);
    speaks(&mut bert);
    // What was heard is told in the time of the new clock; when the attempt began is not.
    let hour = SignedDuration::from_hours(1);
    bert.now -= hour;
    bert.hearing = Hearing::Since(bert.now);
    speaks(&mut bert);
    bert.pass(61);
    assert_eq!(bert.causes(), [Cause::Stalled]);
}

#[test]
fn the_exit_code_of_a_victim_decides_nothing() {
    let rule = FailureRule {
        exit_codes: Some(vec![1]),
        reasons: None,
        log_pattern: None,
        action: FailureAction::Fail,
    };
    let by_rule = job("bert").workers(2).with(|spec| {
        spec.failure_policy = Some(Box::new(FailurePolicy { rules: Some(vec![rule]), ..Default::default() }));
    });
    let by_policy = job("bert").workers(2).restart_policy(RestartPolicy::ExitCode);
    for job in [by_rule, by_policy] {
        let mut bert = job.running();
        bert.fail("workers-0", 1);
        bert.says("workers-0", LOST_A_PEER);
        bert.settle();
        bert.pass(5);
        assert_eq!(bert.state(), State::Restarting, "{}", bert.message());
        // Its own failure does.
        bert.sleep();
        bert.run_all();
        bert.settle();
        bert.fail("workers-0", 1);
        bert.says("workers-0", "KeyError: 'labels'");
        bert.settle();
        assert_eq!(bert.state(), State::Failed, "{}", bert.message());
    }
}

#[test]
fn a_log_that_cannot_be_read_makes_nobody_the_root() {
    let mut bert = job("bert").workers(3).running();
    for worker in ["workers-0", "workers-1", "workers-2"] {
        bert.fail(worker, 1);
    }
    let unread = bert.pod("workers-0").uid.clone();
    bert.tails.push(trainyard_plan::Tail { pod: unread, text: None });
    bert.says("workers-1", LOST_A_PEER);
    bert.says("workers-2", "KeyError: 'labels'");
    bert.settle();
    assert_eq!(bert.attempts()[0].pod_name.as_deref(), Some("bert-workers-2"));
}

#[test]
fn what_was_saved_last_and_told_late_is_progress() {
    let mut bert = job("bert").workers(2).checkpoints().running();
    for epoch in 1..=4 {
        // It fails right after its save, before anybody has seen that.
        bert.fail("workers-1", 1);
        bert.says("workers-1", "ValueError: the evaluation is wrong");
        bert.settle();
        assert_eq!(bert.state(), State::Restarting, "attempt {epoch}: {}", bert.message());
        assert!(bert.status().backoff_until.is_some());
        bert.agent = Some(saved(epoch));
        bert.settle();
        let last = bert.attempts().iter().rfind(|attempt| !attempt.is_open()).unwrap();
        assert_eq!(last.reached.as_ref().and_then(|reached| reached.epoch), Some(epoch));
        assert_eq!(bert.status().backoff_until, None, "and nobody waits");
        bert.run_all();
        bert.settle();
        assert_eq!(bert.state(), State::Running);
        if epoch == 3 {
            bert.edit(|spec| spec.backoff_limit = Some(10));
            bert.settle();
        }
    }
}

#[test]
fn drains_make_no_failure_wait_longer() {
    let mut bert = job("bert").workers(2).running();
    for _ in 0..6 {
        bert.evict("workers-0", "Evicted: the node was low on memory");
        bert.settle();
        bert.pass(400);
        bert.run_all();
        bert.settle();
    }
    bert.fail("workers-1", 1);
    bert.settle();
    let wait = bert.wakes_in().unwrap();
    assert!((10..=12).contains(&wait), "{wait} s: {}", bert.message());
}

#[test]
fn who_complains_of_a_lost_peer_does_not_count_beside_the_loss() {
    let mut bert = alone(job("bert").workers(4)).running();
    bert.evict("workers-3", "Evicted: the node was low on memory");
    for worker in ["workers-0", "workers-1", "workers-2"] {
        bert.fail(worker, 1);
        bert.says(worker, LOST_A_PEER);
    }
    bert.settle();
    assert_eq!(bert.restarts(), (0, 4, 0, 0), "{}", bert.message());
    // Without anybody who was lost, it is their own.
    let mut bert = alone(job("bert").workers(2)).running();
    bert.fail("workers-0", 1);
    bert.says("workers-0", LOST_A_PEER);
    bert.settle();
    bert.pass(5);
    assert_eq!(bert.restarts(), (1, 0, 0, 0));
}

#[test]
fn who_takes_the_place_of_another_has_to_start_in_time() {
    let mut bert =
        alone(job("bert").workers(3).with(|spec| spec.startup_timeout_seconds = Some(300))).running();
    bert.pass(1000);
    bert.evict("workers-1", "Evicted: the node was low on memory");
    bert.settle();
    bert.waits("workers-1", "ImagePullBackOff", "no such image");
    bert.settle();
    bert.pass(299);
    assert_eq!(bert.state(), State::Running);
    bert.pass(2);
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "StartupTimeout"));
    assert!(bert.message().contains("no such image"), "{}", bert.message());
}

#[test]
fn limits_of_the_pod_itself_and_init_containers_are_named() {
    let ends = |exit: Exit| {
        let mut bert = job("bert").workers(2).running();
        bert.fail("workers-1", exit.code);
        bert.change_pod("workers-1", |pod| pod.exit = Some(Box::new(exit)));
        bert.settle();
        assert_eq!(bert.restarts(), (1, 0, 0, 0));
        bert.attempts()[0].message.clone().unwrap()
    };
    let evicted = Exit {
        code: 137,
        reason: Some("Evicted".into()),
        of_pod: true,
        message: Some("Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ".into()),
        ..Exit::default()
    };
    assert_eq!(
        ends(evicted),
        "Worker 1 failed on node node-workers-1: Evicted: Pod ephemeral local storage usage exceeds the total limit \
         of containers 1Gi"
    );
    let init = Exit { code: 2, init: Some("fetch-data".into()), ..Exit::default() };
    assert_eq!(ends(init), "Worker 1 failed on node node-workers-1: init container fetch-data: exit code 2");
}
