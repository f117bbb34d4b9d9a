//! Failures, disruptions and what follows from them.

mod support;

use jiff::SignedDuration;
use support::{Cluster, job, role};
use trainyard_api::{Cause, Phase, RestartPolicy, Role, State};
use trainyard_plan::{Company, Vanished};

/// A job with two running workers.
fn running(job: support::Job) -> Cluster {
    let mut cluster = job.workers(2).submitted().prompt();
    cluster.settle();
    cluster.run_all();
    cluster.settle();
    assert_eq!(cluster.state(), State::Running);
    cluster
}

/// Fails worker 0, waits for the next attempt and lets it run.
fn fail_and_recover(cluster: &mut Cluster) {
    cluster.fail("workers-0", 1);
    cluster.settle();
    assert_eq!(cluster.state(), State::Restarting);
    cluster.sleep();
    cluster.run_all();
    cluster.settle();
    assert_eq!(cluster.state(), State::Running);
}

#[test]
fn a_failure_is_counted_once_and_the_whole_gang_is_replaced() {
    let mut bert = running(job("bert"));
    bert.pass(100);
    let start = bert.status().start_time.clone();
    let failed_at = bert.now;
    bert.fail("workers-1", 1);
    bert.settle();

    assert_eq!((bert.state(), bert.status().phase), (State::Restarting, Some(Phase::Pending)));
    assert_eq!(bert.restarts(), (1, 0, 0, 0));
    assert_eq!(bert.pods(), Vec::<String>::new(), "the gang goes, also the worker that ran");
    let attempt = &bert.attempts()[0];
    assert_eq!((attempt.number, attempt.cause, attempt.exit_code), (1, Some(Cause::Application), Some(1)));
    assert_eq!(
        (attempt.pod_name.as_deref(), attempt.node_name.as_deref()),
        (Some("bert-workers-1"), Some("node-workers-1"))
    );
    assert_eq!(attempt.end_time.as_ref().unwrap().0, failed_at);
    assert_eq!(attempt.message.as_deref(), Some("Worker 1 failed on node node-workers-1: exit code 1"));
    assert!(bert.event("WorkerFailed").starts_with("Worker 1 failed"), "{}", bert.event("WorkerFailed"));
    assert!(bert.event("Restarting").contains("restart 1 of 3 in 1"), "{}", bert.event("Restarting"));
    assert_eq!(bert.condition("Restarting").0, "True");
    assert_eq!(bert.condition("Restarting").1, "Application");
    assert_eq!(bert.condition("Running").0, "False");
    assert_eq!(Some(bert.status().backoff_until.as_ref().unwrap().0), bert.wake_at());

    bert.sleep();
    assert_eq!(bert.state(), State::Initializing);
    assert_eq!(bert.status().backoff_until, None);
    assert_eq!((bert.attempts().len(), bert.attempts()[1].number), (2, 2));
    assert_eq!(bert.pod("workers-0").attempt, Some(2));
    bert.run_all();
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    assert_eq!(bert.condition("Restarting"), ("False", "Restarted", "All workers run again"));
    assert_eq!(bert.status().start_time, start, "a restart does not move it");
    assert_eq!(bert.status().worker_statuses[0].restart_count, 1);
    bert.succeed_all();
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
    assert_eq!(bert.restarts(), (1, 0, 0, 0));
    assert_eq!(
        bert.reasons(),
        [
            "Created",
            "WorkersCreated",
            "TrainingStarted",
            "WorkerFailed",
            "Restarting",
            "WorkersCreated",
            "TrainingStarted",
            "TrainingCompleted"
        ]
    );
    assert_eq!(bert.tally.repeated_events, 0);
}

#[test]
fn delays_double_and_the_fourth_failure_is_final() {
    let mut bert = running(job("bert"));
    for (restart, base) in [(1, 10), (2, 20), (3, 40)] {
        bert.fail("workers-0", 1);
        bert.settle();
        assert_eq!((bert.state(), bert.restarts().0), (State::Restarting, restart));
        let wait = bert.wakes_in().unwrap();
        // A tenth of jitter, and up to a second of rounding.
        assert!((base..=base + base / 10 + 1).contains(&wait), "restart {restart} after {wait} s");
        bert.sleep();
        bert.run_all();
        bert.settle();
        assert_eq!(bert.state(), State::Running);
    }
    bert.fail("workers-1", 3);
    bert.settle();
    assert_eq!((bert.state(), bert.restarts()), (State::Failed, (3, 0, 0, 0)));
    let (status, reason, message) = bert.condition("Failed");
    assert_eq!((status, reason), ("True", "BackoffLimitExceeded"));
    assert!(
        message.contains("Worker 1 failed") && message.contains("all 3 restarts of backoffLimit are used up"),
        "{message}"
    );
    assert_eq!(bert.condition("Running").0, "False");
    assert_eq!(bert.condition("Restarting").0, "False");
    assert_eq!(
        (bert.count("WorkerFailed"), bert.count("Restarting"), bert.count("TrainingFailed")),
        (4, 3, 1)
    );
    assert_eq!(bert.causes(), [Cause::Application; 4]);
    assert_eq!(bert.pods(), ["workers-1"], "the failed one stays for its log");
    assert!(bert.status().completion_time.is_some());
    assert_eq!((bert.wake_at(), bert.status().backoff_until.clone()), (None, None));
}

#[test]
fn a_limit_of_zero_allows_no_restart() {
    let mut bert = running(job("bert").backoff_limit(0));
    bert.fail("workers-0", 1);
    bert.settle();
    assert_eq!((bert.state(), bert.restarts()), (State::Failed, (0, 0, 0, 0)));
    assert_eq!(bert.condition("Failed").1, "BackoffLimitExceeded");
    assert!(bert.message().contains("backoffLimit is 0"), "{}", bert.message());
}

#[test]
fn the_backoff_has_a_maximum() {
    let mut bert = running(job("bert").backoff_limit(20));
    for _ in 0..12 {
        fail_and_recover(&mut bert);
    }
    bert.fail("workers-0", 1);
    bert.settle();
    let wait = bert.wakes_in().unwrap();
    assert!((360..=397).contains(&wait), "{wait}");
    assert_eq!(bert.attempts().len(), 10, "the last ten attempts are remembered");
    assert_eq!(bert.attempts().last().unwrap().number, 13);
    assert_eq!(bert.restarts().0, 13);
}

#[test]
fn what_each_exit_does() {
    use RestartPolicy::{ExitCode, Never, OnFailure};
    // (policy, exit code, kubelet's reason, state, reason or cause)
    let table = [
        (OnFailure, 1, "Error", State::Restarting, "Application"),
        (OnFailure, 137, "Error", State::Restarting, "Application"),
        (OnFailure, 137, "OOMKilled", State::Restarting, "OutOfMemory"),
        (Never, 1, "Error", State::Failed, "RestartPolicyNever"),
        (Never, 137, "OOMKilled", State::Failed, "RestartPolicyNever"),
        (ExitCode, 1, "Error", State::Failed, "PermanentExitCode"),
        (ExitCode, 127, "Error", State::Failed, "PermanentExitCode"),
        (ExitCode, 128, "Error", State::Restarting, "Application"),
        (ExitCode, 143, "Error", State::Restarting, "Application"),
        (ExitCode, 137, "OOMKilled", State::Restarting, "OutOfMemory"),
    ];
    for (policy, code, kubelet, state, reason) in table {
        let mut bert = running(job("bert").restart_policy(policy));
        bert.fail_because("workers-0", code, kubelet);
        bert.settle();
        let told = format!("{policy:?}, exit code {code}, {kubelet}");
        assert_eq!(bert.state(), state, "{told}");
        let condition = if state == State::Failed { "Failed" } else { "Restarting" };
        assert_eq!((bert.condition(condition).0, bert.condition(condition).1), ("True", reason), "{told}");
        assert_eq!(bert.restarts().0, i32::from(state == State::Restarting), "{told}");
    }
}

#[test]
fn exit_code_restarts_are_limited_too() {
    let mut bert = running(job("bert").restart_policy(RestartPolicy::ExitCode).backoff_limit(1));
    bert.fail("workers-0", 139);
    bert.settle();
    bert.sleep();
    bert.run_all();
    bert.settle();
    bert.fail("workers-0", 139);
    bert.settle();
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "BackoffLimitExceeded"));
}

#[test]
fn out_of_memory_is_named_with_advice() {
    let mut bert = running(job("bert"));
    bert.fail_because("workers-1", 137, "OOMKilled");
    bert.settle();
    assert_eq!(bert.causes(), [Cause::OutOfMemory]);
    assert!(
        bert.message().contains("OOMKilled") && bert.message().contains("resources.limits.memory"),
        "{}",
        bert.message()
    );
}

#[test]
fn a_disruption_is_not_counted_even_with_restart_policy_never() {
    for policy in [RestartPolicy::OnFailure, RestartPolicy::Never, RestartPolicy::ExitCode] {
        let mut bert = running(job("bert").backoff_limit(0).restart_policy(policy));
        bert.evict("workers-0", "TaintManagerEviction: node gpu-7 is unreachable");
        bert.settle();
        assert_eq!(
            (bert.state(), bert.restarts()),
            (State::Initializing, (0, 1, 0, 0)),
            "at once, and uncounted"
        );
        assert_eq!(bert.causes(), [Cause::Disruption]);
        let told = bert.event("WorkerDisrupted");
        assert!(
            told.starts_with("Worker 0 was disrupted") && told.contains("gpu-7 is unreachable"),
            "{told}"
        );
        assert_eq!(bert.count("WorkerFailed"), 0);
        assert!(bert.states.contains(&State::Restarting), "Restarting is written: {:?}", bert.states);
    }
}

#[test]
fn a_pod_that_somebody_deletes_restarts_the_gang_uncounted() {
    let mut bert = running(job("bert").backoff_limit(0));
    let before = bert.pod("workers-1").uid.clone();
    bert.delete_pod("workers-0");
    bert.settle();
    assert_eq!(
        (bert.state(), bert.restarts(), bert.causes()),
        (State::Initializing, (0, 1, 0, 0), vec![Cause::Disruption])
    );
    assert_eq!(bert.pods(), ["workers-0", "workers-1"]);
    assert_ne!(bert.pod("workers-1").uid, before, "the whole gang is replaced");
    assert!(bert.event("WorkerDisrupted").contains("Worker 0 was lost: its pod was deleted"));
}

#[test]
fn a_deleted_pod_is_a_disruption_whatever_its_last_words_are() {
    // The kubelet stops the container of a deleted pod: it ends with 143, and the pod is Failed until it is gone.
    for code in [143, 137, 1] {
        let mut bert = running(job("bert").backoff_limit(0));
        bert.pods_linger();
        bert.delete_pod("workers-0");
        bert.fail("workers-0", code);
        bert.settle();
        assert_eq!(
            (bert.state(), bert.causes()),
            (State::Restarting, vec![Cause::Disruption]),
            "exit code {code}"
        );
        bert.release();
        bert.settle();
        assert_eq!((bert.state(), bert.restarts()), (State::Initializing, (0, 1, 0, 0)));
    }
}

#[test]
fn the_next_attempt_waits_until_the_last_pod_of_the_old_one_is_gone() {
    let mut bert = running(job("bert"));
    bert.pods_linger();
    bert.fail("workers-0", 1);
    bert.settle();
    assert_eq!(bert.state(), State::Restarting);
    bert.pass(3600);
    bert.settle();
    assert_eq!(bert.state(), State::Restarting, "the backoff is over, but the names are taken");
    let message = bert.message();
    assert!(message.starts_with("Worker 0 failed"), "{message}");
    assert!(message.ends_with("; waiting for 2 pods of the last attempt to go"), "{message}");
    assert_eq!(bert.attempts().len(), 1);
    // They die as deleted pods do: that is no second failure.
    bert.fail("workers-1", 143);
    bert.settle();
    assert_eq!(bert.restarts(), (1, 0, 0, 0));
    bert.release();
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().len(), bert.pods().len()), (State::Initializing, 2, 2));
}

#[test]
fn of_several_failures_the_first_in_time_is_the_cause() {
    let mut bert = running(job("bert"));
    bert.fail("workers-1", 1);
    bert.now += SignedDuration::from_secs(2);
    bert.fail("workers-0", 134);
    bert.settle();
    assert_eq!(bert.attempts()[0].pod_name.as_deref(), Some("bert-workers-1"), "worker 0 only lost its peer");
    assert_eq!(bert.restarts().0, 1, "one attempt, one failure");

    // At the same moment: the lowest rank. A pod without an exit code says the least.
    let mut bert = running(job("bert"));
    bert.fail("workers-1", 1);
    bert.fail("workers-0", 2);
    bert.settle();
    assert_eq!(bert.attempts()[0].exit_code, Some(2));
    let mut bert = running(job("bert"));
    bert.fail("workers-1", 1);
    bert.fail("workers-0", 2);
    bert.change_pod("workers-0", |pod| pod.exit = None);
    bert.settle();
    assert_eq!(bert.attempts()[0].exit_code, Some(1));
}

#[test]
fn what_took_a_worker_away_is_the_cause_not_its_peers_that_failed_without_it() {
    // An evicted pod has often no exit code, or one that comes later than its peers'.
    let mut bert = running(job("bert").backoff_limit(0));
    bert.fail("workers-0", 1);
    bert.evict("workers-1", "Evicted: the node was low on memory");
    bert.change_pod("workers-1", |pod| pod.exit = None);
    bert.settle();
    assert_eq!((bert.causes(), bert.restarts()), (vec![Cause::Disruption], (0, 1, 0, 0)));
    // Its node may be slower to tell than theirs.
    let mut bert = running(job("bert").backoff_limit(0));
    bert.fail("workers-0", 1);
    bert.disrupt("workers-1", "PreemptionByScheduler", "Preempted by a more important pod");
    bert.settle();
    assert_eq!((bert.causes(), bert.restarts()), (vec![Cause::Disruption], (0, 1, 0, 0)));
    assert_eq!(bert.attempts()[0].pod_name.as_deref(), Some("bert-workers-1"));
    // The same for one that somebody deletes, on its way and gone.
    for lingers in [true, false] {
        let mut bert = running(job("bert").backoff_limit(0));
        if lingers {
            bert.pods_linger();
        }
        bert.delete_pod("workers-1");
        bert.fail("workers-0", 1);
        bert.settle();
        assert_eq!((bert.causes(), bert.restarts()), (vec![Cause::Disruption], (0, 1, 0, 0)));
    }
    // A condition alone ends nothing: the pod still works.
    let mut bert = running(job("bert"));
    bert.disrupt("workers-1", "PreemptionByScheduler", "Preempted by a more important pod");
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().len()), (State::Running, 1));
}

#[test]
fn success_beats_a_failure_that_no_longer_matters() {
    let mut bert = job("bert")
        .workers(1)
        .role(Role { success: Some(trainyard_api::RoleSuccess::Ignored), ..role("eval", 1) })
        .submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.succeed("workers-0");
    bert.fail("eval-0", 1);
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
}

#[test]
fn a_pod_of_any_role_that_fails_ends_the_attempt() {
    let mut bert = job("bert").workers(1).role(role("eval", 1)).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.fail("eval-0", 1);
    bert.settle();
    assert_eq!((bert.state(), bert.restarts().0), (State::Restarting, 1));
    assert!(bert.event("WorkerFailed").starts_with("eval 0 failed"), "{}", bert.event("WorkerFailed"));
}

#[test]
fn a_failure_while_starting_counts_too() {
    let mut bert = job("bert").workers(2).submitted();
    bert.round().unwrap();
    bert.fail("workers-0", 1);
    bert.settle();
    assert_eq!((bert.state(), bert.restarts().0), (State::Restarting, 1));
    assert_eq!(bert.reasons(), ["Created", "WorkersCreated", "WorkerFailed", "Restarting"]);
}

#[test]
fn workers_of_the_last_attempt_are_not_told_of_in_the_next() {
    let mut bert = running(job("bert"));
    bert.succeed("workers-0");
    bert.settle();
    bert.pass(10);
    bert.fail("workers-1", 1);
    bert.settle();
    bert.pass(6);
    let counts = bert.status().workers.unwrap();
    assert_eq!((counts.succeeded, counts.pending), (0, 2), "while waiting, nobody has succeeded");
    bert.sleep();
    let counts = bert.status().workers.unwrap();
    assert_eq!((counts.succeeded, counts.pending), (0, 2));
    bert.run_all();
    bert.settle();
    bert.succeed("workers-1");
    bert.settle();
    assert_eq!(bert.state(), State::Running, "worker 0 has to succeed in this attempt, too");
}

#[test]
fn a_higher_limit_comes_in_time_for_the_next_failure() {
    let mut bert = running(job("bert").backoff_limit(1));
    fail_and_recover(&mut bert);
    bert.edit(|spec| spec.backoff_limit = Some(2));
    bert.settle();
    fail_and_recover(&mut bert);
    bert.edit(|spec| spec.backoff_limit = Some(0));
    bert.settle();
    assert_eq!(bert.state(), State::Running, "a lower one does not end a job that runs");
    bert.fail("workers-0", 1);
    bert.settle();
    assert_eq!(bert.state(), State::Failed);
}

#[test]
fn without_a_backoff_the_replacement_comes_in_the_same_breath() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settings.backoff_base = SignedDuration::ZERO;
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.fail("workers-0", 1);
    bert.settle();
    assert_eq!((bert.state(), bert.restarts().0, bert.pods().len()), (State::Initializing, 1, 2));
}

#[test]
fn a_pod_that_vanishes_before_all_were_seen_is_not_replaced_alone() {
    let mut bert = job("bert").workers(3).submitted();
    bert.look_once();
    assert_eq!(bert.pods().len(), 3);
    bert.run("workers-0");
    bert.run("workers-1");
    // Deleted before the operator could write down that all three exist.
    bert.remove_pod("workers-2");
    bert.vanished = vec![Vanished { name: "bert-workers-2".into(), attempt: Some(1) }];
    bert.settle();
    assert_eq!(bert.causes(), [Cause::Disruption]);
    assert_eq!(bert.status().attempts.last().map(|attempt| attempt.number), Some(2));
    assert_eq!(bert.status().restarts.unwrap_or_default().application, 0);
}

#[test]
fn a_pod_whose_sidecar_lingers_is_done_and_goes_with_the_rest() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.succeed_all();
    bert.change_pod("workers-0", |pod| pod.lingers = Some(Company::Others));
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
    assert_eq!(bert.pods(), ["workers-1"], "what still runs is removed, what has ended stays");
}

#[test]
fn a_leader_whose_agent_is_about_to_end_stays_for_whoever_reads_its_log() {
    let mut bert = job("bert").workers(2).with(|spec| spec.backoff_limit = Some(0)).running();
    bert.fail("workers-0", 3);
    bert.change_pod("workers-0", |pod| pod.lingers = Some(Company::Sidecars));
    bert.settle();
    assert_eq!(bert.state(), State::Failed);
    assert_eq!(bert.pods(), ["workers-0"]);
}

#[test]
fn a_clock_that_is_set_back_does_not_make_the_delay_longer_than_any_is() {
    let mut bert = job("bert").workers(1).submitted().prompt();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.fail("workers-0", 1);
    bert.settle();
    assert!(bert.status().backoff_until.is_some());
    bert.now -= SignedDuration::from_hours(5);
    bert.settle();
    assert_eq!((bert.attempts().len(), bert.status().backoff_until.clone()), (2, None), "{}", bert.message());
}
