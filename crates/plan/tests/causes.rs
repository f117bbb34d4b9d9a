//! What is told apart although it looks alike: who is to blame, who is done, and who is only missing.

mod support;

use jiff::SignedDuration;
use support::{Cluster, Job, job};
use trainyard_api::{
    Cause, CheckpointStatus, FailureAction, FailurePolicy, FailureRule, RestartPolicy, RestartScope, State,
    SuccessPolicy,
};

fn with_policy(job: Job, scope: RestartScope, rules: Vec<FailureRule>) -> Job {
    let policy = FailurePolicy { restart_scope: Some(scope), rules: Some(rules) };
    job.with(|spec| spec.failure_policy = Some(Box::new(policy)))
}

/// Exit code 3 does not matter.
fn lenient(scope: RestartScope) -> Job {
    let action = FailureAction::Ignore;
    let rule = FailureRule { exit_codes: Some(vec![3]), reasons: None, log_pattern: None, action };
    with_policy(job("bert").workers(3), scope, vec![rule])
}

#[test]
fn whose_failure_is_ignored_may_go() {
    for scope in [RestartScope::Gang, RestartScope::Worker] {
        let mut bert = lenient(scope).running();
        bert.fail("workers-2", 3);
        bert.settle();
        assert!(bert.status().worker_statuses[2].ignored);
        // Somebody drains its node: the pod is on its way, and then gone.
        bert.pods_linger();
        bert.delete_pod("workers-2");
        bert.settle();
        assert_eq!((bert.state(), bert.restarts()), (State::Running, (0, 0, 0, 0)), "{scope:?}");
        bert.release();
        bert.settle();
        bert.operator_restarts();
        bert.settle();
        assert_eq!((bert.state(), bert.restarts()), (State::Running, (0, 0, 0, 0)), "{scope:?}");
        assert_eq!(bert.pods().len(), 2, "{scope:?}");
        assert_eq!(bert.message(), "2 workers running, 1 done", "{scope:?}");
        bert.succeed("workers-0");
        bert.succeed("workers-1");
        bert.settle();
        assert_eq!(bert.state(), State::Completed, "{scope:?}");
        assert_eq!(bert.message(), "Training job completed; 1 worker failed and was ignored");
    }
}

#[test]
fn a_failure_that_is_ignored_is_no_success() {
    for policy in [SuccessPolicy::AnyWorker, SuccessPolicy::Leader] {
        let policy = |job: Job| job.with(|spec| spec.success_policy = Some(policy));
        let mut bert = policy(lenient(RestartScope::Gang)).running();
        bert.fail("workers-0", 3);
        bert.settle();
        assert_eq!(bert.state(), State::Running);
        bert.fail("workers-1", 3);
        bert.settle();
        assert_eq!(bert.state(), State::Running);
        // Nobody is left who could do better.
        bert.fail("workers-2", 3);
        bert.settle();
        assert_eq!(bert.state(), State::Completed);
    }
    let any =
        |spec: &mut trainyard_api::TrainingJobSpec| spec.success_policy = Some(SuccessPolicy::AnyWorker);
    let mut bert = lenient(RestartScope::Gang).with(any).running();
    bert.fail("workers-0", 3);
    bert.succeed("workers-1");
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
}

#[test]
fn after_an_ignored_failure_a_notice_alone_still_ends_nothing() {
    let mut bert = lenient(RestartScope::Gang).running();
    bert.fail("workers-2", 3);
    bert.settle();
    bert.disrupt("workers-1", "EvictionByEvictionAPI", "Eviction API: evicting");
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().len()), (State::Running, 1));
}

#[test]
fn rules_name_disruptions_as_kubernetes_does() {
    let rules = || {
        let reasons = Some(vec!["TerminationByKubelet".to_owned()]);
        vec![FailureRule { exit_codes: None, reasons, log_pattern: None, action: FailureAction::Fail }]
    };
    for (reason, ends) in
        [("TerminationByKubelet", State::Failed), ("PreemptionByScheduler", State::Restarting)]
    {
        let mut bert = with_policy(job("bert").workers(2), RestartScope::Gang, rules()).running();
        bert.pods_linger();
        bert.fail("workers-1", 137);
        bert.disrupt("workers-1", reason, "The node was low on resource: memory");
        bert.settle();
        assert_eq!(bert.state(), ends, "{reason}");
    }
}

#[test]
fn who_was_not_heard_is_not_blamed_before_those_who_were() {
    let mut bert = job("bert").workers(4).running();
    // Too many failed in one second to read all of them.
    for pod in ["workers-0", "workers-1", "workers-2", "workers-3"] {
        bert.fail(pod, 1);
    }
    bert.says("workers-0", "RuntimeError: Connection closed by peer");
    bert.says("workers-3", "ValueError: bad batch 17");
    bert.settle();
    let attempt = &bert.attempts()[0];
    assert_eq!(attempt.pod_name.as_deref(), Some("bert-workers-3"));
    assert_eq!(attempt.error.as_deref(), Some("ValueError: bad batch 17"));
}

#[test]
fn a_node_whose_clock_is_ahead_holds_nothing_back() {
    let mut bert = job("bert").workers(2).running();
    bert.fail("workers-0", 1);
    let ahead = bert.now + SignedDuration::from_mins(10);
    bert.change_pod("workers-0", |pod| pod.exit.as_mut().unwrap().at = Some(ahead));
    bert.says("workers-0", "RuntimeError: Connection closed by peer");
    bert.settle();
    assert_eq!((bert.state(), bert.restarts().0), (State::Restarting, 1));
}

#[test]
fn a_start_that_took_too_long_says_what_it_waited_for() {
    let mut bert = job("bert").workers(2).with(|spec| spec.startup_timeout_seconds = Some(60)).submitted();
    bert.settle();
    bert.waits("workers-0", "ContainerCreating", "");
    bert.waits("workers-1", "Unschedulable", "0/4 nodes are available: 4 Insufficient cpu");
    bert.settle();
    bert.pass(61);
    assert_eq!(bert.state(), State::Failed);
    assert!(bert.message().contains("4 Insufficient cpu"), "{}", bert.message());
}

#[test]
fn a_disruption_in_between_is_no_progress() {
    let mut bert = job("bert").workers(1).backoff_limit(50).running();
    for round in 1..=3 {
        if round == 3 {
            // The first of its kind: it does not wait.
            bert.evict("workers-0", "Eviction API: evicting");
            bert.settle();
            bert.run_all();
            bert.settle();
        }
        bert.fail("workers-0", 1);
        bert.says("workers-0", "KeyError: 'labels'");
        bert.settle();
        if round < 3 {
            bert.sleep();
            bert.run_all();
            bert.settle();
        }
    }
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "SameFailure"));
    assert_eq!(
        bert.causes(),
        [Cause::Application, Cause::Application, Cause::Disruption, Cause::Application]
    );
}

#[test]
fn as_long_as_one_is_replaced_not_all_are_said_to_run() {
    let mut bert = with_policy(job("bert").workers(3), RestartScope::Worker, Vec::new()).running();
    bert.fail("workers-1", 1);
    bert.settle();
    assert_eq!((bert.state(), bert.condition("Restarting").0), (State::Running, "True"));
    let message = bert.message();
    assert!(message.starts_with("2 of 3 workers running; Worker 1 failed"), "{message}");
    assert!(message.contains("restart 1 of 3"), "{message}");
    bert.sleep();
    bert.waits("workers-1", "Unschedulable", "0/4 nodes are available: 4 Insufficient cpu");
    bert.settle();
    assert_eq!((bert.condition("Restarting").0, bert.condition("Running").1), ("True", "WorkersMissing"));
    assert!(bert.message().contains("4 Insufficient cpu"), "{}", bert.message());
    bert.run("workers-1");
    bert.settle();
    assert_eq!((bert.condition("Restarting").0, bert.message()), ("False", "3 workers running"));
}

#[test]
fn what_failed_alone_is_counted_although_the_spec_changes_in_the_same_moment() {
    let mut bert = with_policy(job("bert").workers(3), RestartScope::Worker, Vec::new()).running();
    bert.fail("workers-1", 1);
    bert.edit(|spec| spec.image = Some("my/trainer:2".into()));
    bert.settle();
    assert_eq!(bert.restarts(), (1, 0, 0, 1), "one failure, one update");
    assert_eq!((bert.causes(), bert.count("WorkerFailed")), (vec![Cause::Update], 1));
    // A worker that is to come is none that was lost: who complains of a peer is counted.
    let mut bert = with_policy(job("bert").workers(2), RestartScope::Worker, Vec::new()).running();
    bert.fail("workers-1", 1);
    bert.says("workers-1", "RuntimeError: Connection closed by peer");
    bert.edit(|spec| spec.num_workers = Some(3));
    bert.settle();
    assert_eq!(bert.restarts(), (0, 0, 0, 0), "who was lost may be seen soon");
    bert.pass(5);
    assert_eq!(bert.restarts(), (1, 0, 1, 0), "one failure, one rescale");
    // Whose failure was ignored has none to be counted, whatever the rules say by now.
    let mut bert = lenient(RestartScope::Worker).running();
    bert.fail("workers-1", 3);
    bert.settle();
    bert.edit(|spec| spec.failure_policy.as_mut().unwrap().rules = None);
    bert.settle();
    bert.edit(|spec| spec.image = Some("my/trainer:2".into()));
    bert.settle();
    assert_eq!(bert.restarts(), (0, 0, 0, 1), "one update");
    // What has no restart left does not get one by a change.
    let job = job("bert").workers(2).backoff_limit(0);
    let mut bert = with_policy(job, RestartScope::Worker, Vec::new()).running();
    bert.fail("workers-1", 1);
    bert.edit(|spec| spec.image = Some("my/trainer:2".into()));
    bert.settle();
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "BackoffLimitExceeded"));
}

#[test]
fn who_was_drained_often_does_not_wait_longer_when_it_fails() {
    let mut bert = with_policy(job("bert").workers(2), RestartScope::Worker, Vec::new()).running();
    let wait = |bert: &mut Cluster| {
        bert.fail("workers-1", 1);
        bert.settle();
        let until = bert.status().backoff_until.clone().unwrap();
        let wait = until.0.duration_since(bert.now).as_secs();
        bert.sleep();
        bert.run_all();
        bert.settle();
        wait
    };
    for _ in 0..6 {
        bert.delete_pod("workers-1");
        bert.settle();
        bert.pass(400);
        bert.run_all();
        bert.settle();
    }
    let (first, second) = (wait(&mut bert), wait(&mut bert));
    assert!(second > first, "{first} s, then {second} s");
    // What has saved something since begins a new row.
    let time =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(bert.now + SignedDuration::from_secs(5)));
    let checkpoint = CheckpointStatus { path: "/checkpoints/epoch-1.pt".into(), time, ..Default::default() };
    bert.agent = Some(trainyard_api::AgentReport { checkpoint: Some(checkpoint), ..Default::default() });
    bert.pass(10);
    assert!(wait(&mut bert) <= first + 1);
}

#[test]
fn who_complains_of_a_peer_before_that_one_is_seen_is_not_counted() {
    let job = job("bert").workers(3).backoff_limit(1);
    let mut bert = with_policy(job, RestartScope::Worker, Vec::new()).running();
    bert.fail("workers-0", 1);
    bert.says("workers-0", "RuntimeError: Connection reset by peer");
    bert.settle();
    assert_eq!(bert.restarts(), (0, 0, 0, 0));
    bert.pass(1);
    bert.fail("workers-1", 1);
    bert.says("workers-1", "KeyError: 'labels'");
    bert.settle();
    assert_eq!(bert.restarts(), (1, 1, 0, 0), "one failure; the other one was lost with it");
    assert_eq!(bert.state(), State::Running);
}

#[test]
fn who_is_replaced_alone_again_and_again_waits_longer_each_time() {
    let rule = FailureRule {
        exit_codes: Some(vec![7]),
        reasons: None,
        log_pattern: None,
        action: FailureAction::RestartWithoutCounting,
    };
    let mut bert = with_policy(job("bert").workers(2), RestartScope::Worker, vec![rule]).running();
    let mut waits = Vec::new();
    for _ in 0..4 {
        bert.fail("workers-1", 7);
        bert.settle();
        let until = bert.status().backoff_until.clone();
        waits.push(until.map_or(0, |until| until.0.duration_since(bert.now).as_secs()));
        bert.pass(100);
        bert.run_all();
        bert.settle();
    }
    assert_eq!(waits[0], 0, "the first does not wait");
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
    assert_eq!(bert.restarts(), (0, 4, 0, 0));
}

#[test]
fn what_a_rule_does_not_count_is_restarted_however_often_it_is_the_same() {
    let rule = FailureRule {
        exit_codes: None,
        reasons: None,
        log_pattern: Some("quota of the day".into()),
        action: FailureAction::RestartWithoutCounting,
    };
    let mut bert = with_policy(job("bert").workers(2), RestartScope::Gang, vec![rule]).running();
    for _ in 0..5 {
        bert.fail("workers-1", 1);
        bert.says("workers-1", "RuntimeError: the quota of the day is used up");
        bert.settle();
        bert.sleep();
        bert.run_all();
        bert.settle();
    }
    assert_eq!((bert.state(), bert.restarts()), (State::Running, (0, 5, 0, 0)));
}

#[test]
fn what_a_rule_wants_to_be_restarted_ends_by_the_limit_and_says_so() {
    let rule = FailureRule {
        exit_codes: Some(vec![3]),
        reasons: None,
        log_pattern: None,
        action: FailureAction::Restart,
    };
    let job = job("bert").workers(1).restart_policy(RestartPolicy::Never).backoff_limit(1);
    let mut bert = with_policy(job, RestartScope::Gang, vec![rule]).running();
    bert.fail("workers-0", 3);
    bert.settle();
    bert.sleep();
    bert.run_all();
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    bert.fail("workers-0", 3);
    bert.settle();
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "BackoffLimitExceeded"));
}
