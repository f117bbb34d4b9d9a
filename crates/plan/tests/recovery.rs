//! Causes told apart, and what follows from each: rules, scopes, checkpoints, stalls, dead nodes.

mod support;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use support::{Cluster, Job, job};
use trainyard_api::{
    AgentReport, Cause, CheckpointStatus, FailureAction, FailurePolicy, FailureRule, RestartScope, State,
    SuccessPolicy,
};
use trainyard_plan::{Company, NewObject, NodeState, NodeView, Stacks, Step};

fn rule(action: FailureAction) -> FailureRule {
    FailureRule { exit_codes: None, reasons: None, log_pattern: None, action }
}

fn ruled(rules: Vec<FailureRule>) -> Job {
    job("bert").workers(2).with(|spec| {
        spec.failure_policy = Some(Box::new(FailurePolicy { rules: Some(rules), ..Default::default() }));
    })
}

fn alone(job: Job) -> Job {
    job.with(|spec| {
        let policy = FailurePolicy { restart_scope: Some(RestartScope::Worker), rules: None };
        spec.failure_policy = Some(Box::new(policy));
    })
}

fn saved(path: &str, epoch: i64) -> AgentReport {
    let checkpoint = CheckpointStatus { path: path.into(), epoch: Some(epoch), ..Default::default() };
    AgentReport { checkpoint: Some(checkpoint), ..Default::default() }
}

/// The newest pod of that name that was created.
fn newest(cluster: &Cluster, name: &str) -> Pod {
    let pods = cluster.created.iter().rev().filter_map(|object| match object {
        NewObject::Pod(pod) => Some(pod),
        _ => None,
    });
    let mut pods = pods.filter(|pod| pod.metadata.name.as_deref() == Some(name));
    (**pods.next().expect("such a pod was created")).clone()
}

fn variable(pod: &Pod, name: &str) -> Option<String> {
    let container = &pod.spec.as_ref()?.containers[0];
    container.env.iter().flatten().find(|variable| variable.name == name)?.value.clone()
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = vec![
        FailureRule { exit_codes: Some(vec![42]), ..rule(FailureAction::Fail) },
        FailureRule { exit_codes: Some(vec![7]), ..rule(FailureAction::RestartWithoutCounting) },
        FailureRule { reasons: Some(vec!["OOMKilled".into()]), ..rule(FailureAction::Fail) },
        FailureRule { log_pattern: Some("NaN (loss|grad)".into()), ..rule(FailureAction::Fail) },
    ];
    let mut bert = ruled(rules.clone()).running();
    bert.fail("workers-0", 7);
    bert.settle();
    assert_eq!((bert.state(), bert.restarts()), (State::Restarting, (0, 1, 0, 0)));

    let mut bert = ruled(rules.clone()).running();
    bert.fail("workers-0", 42);
    bert.settle();
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "FailurePolicy"));

    let mut bert = ruled(rules.clone()).running();
    bert.fail_because("workers-0", 137, "OOMKilled");
    bert.settle();
    assert_eq!(bert.state(), State::Failed);

    let mut bert = ruled(rules.clone()).running();
    bert.fail("workers-0", 1);
    bert.says("workers-0", "step 3\nstopping: NaN loss\n");
    bert.settle();
    assert_eq!(bert.state(), State::Failed);

    let mut bert = ruled(rules).running();
    bert.fail("workers-0", 1);
    bert.settle();
    assert_eq!((bert.state(), bert.restarts()), (State::Restarting, (1, 0, 0, 0)), "no rule matches");
}

#[test]
fn an_ignored_failure_counts_as_done() {
    let rules = vec![FailureRule { exit_codes: Some(vec![3]), ..rule(FailureAction::Ignore) }];
    let mut bert = ruled(rules).running();
    bert.fail("workers-1", 3);
    bert.settle();
    assert_eq!((bert.state(), bert.restarts()), (State::Running, (0, 0, 0, 0)));
    assert_eq!(
        bert.event("WorkerFailed"),
        "Worker 1 failed on node node-workers-1: exit code 3; ignored by a rule of failurePolicy"
    );
    let mut progress = trainyard_progress::Progress::default();
    progress.take(
        trainyard_progress::Reading { epoch: Some(3.0), epochs: Some(10.0), ..Default::default() },
        bert.now,
    );
    bert.progress = Some(progress);
    bert.settle();
    let before = bert.status().progress.clone();
    bert.succeed("workers-0");
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
    assert_eq!(bert.message(), "Training job completed; 1 worker failed and was ignored");
    assert!(before.is_some());
    assert_eq!(bert.status().progress, before, "nobody knows that all was done");
    assert_eq!((bert.count("WorkerFailed"), bert.tally.repeated_events), (1, 0), "told once");
}

#[test]
fn success_as_the_policy_has_it() {
    let with = |policy| job("bert").workers(3).with(|spec| spec.success_policy = Some(policy));
    let mut bert = with(SuccessPolicy::Leader).running();
    bert.succeed("workers-1");
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    bert.succeed("workers-0");
    bert.settle();
    assert_eq!((bert.state(), bert.pods().len()), (State::Completed, 2), "who still ran is stopped");

    let mut bert = with(SuccessPolicy::AnyWorker).running();
    bert.succeed("workers-2");
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
}

#[test]
fn who_misses_a_peer_is_not_the_root() {
    let mut bert = job("bert").workers(3).running();
    bert.fail("workers-0", 1);
    bert.says("workers-0", "RuntimeError: gloo: Connection closed by peer [10.0.0.3]:29500");
    bert.settle();
    assert_eq!(bert.state(), State::Running, "somebody else must have failed: that is waited for");
    bert.pass(1);
    bert.fail("workers-2", 1);
    bert.says("workers-2", "Traceback\nValueError: bad batch 17");
    bert.settle();
    let attempt = &bert.attempts()[0];
    assert_eq!(attempt.pod_name.as_deref(), Some("bert-workers-2"));
    assert_eq!(attempt.error.as_deref(), Some("ValueError: bad batch 17"));
    assert!(attempt.message.as_deref().unwrap().contains("exit code 1: ValueError: bad batch 17"));

    // If nobody else fails, the attempt ends all the same, but nobody is blamed for it.
    let mut bert = job("bert").workers(2).running();
    bert.fail("workers-0", 1);
    bert.says("workers-0", "BrokenPipeError: [Errno 32] Broken pipe");
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    bert.sleep();
    assert_eq!((bert.state(), bert.restarts().0), (State::Restarting, 1));
    let attempt = &bert.attempts()[0];
    assert_eq!((&attempt.pod_name, &attempt.node_name, &attempt.error), (&None, &None, &None));
    assert_eq!(attempt.exit_code, Some(1));
    let words =
        "exit code 1: it lost a peer (BrokenPipeError: [Errno 32] Broken pipe), and no worker says why";
    assert!(bert.message().contains(words), "{}", bert.message());
}

#[test]
fn who_is_alone_has_no_peer_to_lose() {
    let mut bert = job("bert").workers(1).backoff_limit(50).running();
    for round in 1..=3 {
        bert.fail("workers-0", 1);
        bert.says("workers-0", "ConnectionError: mlflow: Connection refused");
        bert.settle();
        if round < 3 {
            bert.sleep();
            bert.run_all();
            bert.settle();
        }
    }
    let attempt = &bert.attempts()[0];
    assert_eq!(attempt.pod_name.as_deref(), Some("bert-workers-0"));
    assert_eq!(attempt.error.as_deref(), Some("ConnectionError: mlflow: Connection refused"));
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "SameFailure"));
}

#[test]
fn a_service_that_refuses_everybody_is_named_and_not_asked_for_ever() {
    let mut bert = job("bert").workers(2).backoff_limit(50).running();
    for round in 1..=3 {
        for worker in ["workers-0", "workers-1"] {
            bert.fail(worker, 1);
            bert.says(worker, "RuntimeError: mlflow cannot be reached: [Errno 111] Connection refused");
        }
        bert.settle();
        if round < 3 {
            let words = "it lost a connection (RuntimeError: mlflow cannot be reached";
            assert!(bert.message().contains(words), "{}", bert.message());
            bert.sleep();
            bert.run_all();
            bert.settle();
        }
    }
    let attempt = &bert.attempts()[0];
    assert_eq!((&attempt.pod_name, &attempt.node_name), (&None, &None), "nobody here is to blame");
    assert!(attempt.error.as_deref().unwrap().contains("mlflow cannot be reached"));
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "SameFailure"));
}

#[test]
fn lost_peers_are_not_the_same_failure() {
    // A network that is bad for a while: the limit of the job decides, not the words.
    let mut bert = job("bert").workers(2).backoff_limit(4).running();
    for _ in 1..=4 {
        bert.fail("workers-0", 1);
        bert.says("workers-0", "RuntimeError: Connection reset by peer");
        bert.fail("workers-1", 1);
        bert.says("workers-1", "RuntimeError: Connection reset by peer");
        bert.settle();
        assert_eq!(bert.state(), State::Restarting);
        bert.sleep();
        bert.run_all();
        bert.settle();
    }
    assert_eq!((bert.restarts().0, bert.status().avoided_nodes.len()), (4, 0));
    bert.fail("workers-0", 1);
    bert.says("workers-0", "RuntimeError: Connection reset by peer");
    bert.settle();
    bert.sleep();
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "BackoffLimitExceeded"));
}

#[test]
fn too_little_memory_three_times_is_final() {
    let mut bert = job("bert").workers(2).backoff_limit(50).running();
    for round in 1..=3 {
        bert.fail_because("workers-1", 137, "OOMKilled");
        bert.says("workers-1", &format!("step {round}: loss 0.{round}"));
        bert.settle();
        if round < 3 {
            bert.sleep();
            bert.run_all();
            bert.settle();
            assert_eq!(bert.state(), State::Running);
        }
    }
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "SameFailure"));
}

#[test]
fn the_code_of_torchruns_child() {
    let mut bert = job("bert").workers(1).running();
    bert.fail("workers-0", 1);
    bert.says("workers-0", "failed (exitcode: 17) local_rank: 0 (pid: 9) of binary: python");
    bert.settle();
    assert_eq!(bert.attempts()[0].exit_code, Some(17));
}

#[test]
fn the_same_failure_three_times_without_progress_is_final() {
    let mut bert = job("bert").workers(1).backoff_limit(50).running();
    for round in 1..=3 {
        bert.fail("workers-0", 1);
        bert.says("workers-0", &format!("KeyError at step {round}0: 'labels'"));
        bert.settle();
        if round < 3 {
            assert_eq!(bert.state(), State::Restarting, "round {round}");
            bert.sleep();
            bert.run_all();
            bert.settle();
        }
    }
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "SameFailure"));
    assert!(bert.status().message.as_deref().unwrap().contains("3 times without progress"));

    // Progress in between makes it another story.
    let mut bert = job("bert").workers(1).backoff_limit(50).checkpoints().running();
    for round in 1..=5 {
        bert.agent = Some(saved(&format!("/checkpoints/epoch-{round}.pt"), round));
        bert.settle();
        bert.fail("workers-0", 1);
        bert.says("workers-0", "KeyError: 'labels'");
        bert.settle();
        bert.run_all();
        bert.settle();
        assert_eq!(bert.state(), State::Running, "round {round}");
    }
}

#[test]
fn who_changes_the_spec_meanwhile_does_not_wait_and_begins_anew() {
    let mut bert = job("bert").workers(1).backoff_limit(50).running();
    let fails = |bert: &mut Cluster| {
        bert.fail("workers-0", 1);
        bert.says("workers-0", "KeyError: 'labels'");
        bert.settle();
    };
    for _ in 0..2 {
        fails(&mut bert);
        bert.sleep();
        bert.run_all();
        bert.settle();
    }
    // The third would be final.
    bert.edit(|spec| spec.image = Some("registry/bert:2".into()));
    bert.settle();
    bert.run_all();
    bert.settle();
    for _ in 0..2 {
        fails(&mut bert);
        assert_eq!(bert.state(), State::Restarting, "{}", bert.message());
        bert.sleep();
        bert.run_all();
        bert.settle();
    }
    fails(&mut bert);
    assert_eq!(bert.condition("Failed").1, "SameFailure");

    let waits = || {
        let mut bert = job("bert").workers(1).running();
        bert.fail("workers-0", 1);
        bert.settle();
        assert!(bert.status().backoff_until.is_some());
        let told = bert.message();
        assert!(
            told.contains("exit code 1; restart 1 of 3 in 1") && told.contains("; that is at "),
            "{told}"
        );
        bert
    };
    let mut bert = waits();
    bert.edit(|spec| spec.image = Some("registry/bert:2".into()));
    bert.settle();
    assert_eq!((bert.status().backoff_until.clone(), bert.pods()), (None, vec!["workers-0".into()]));
    assert!(bert.event("SpecChanged").contains("does not wait"));
    assert_eq!(bert.status().restarts.unwrap().update, 0, "nobody was restarted for that");

    let mut bert = waits();
    bert.edit(|spec| spec.num_workers = Some(2));
    bert.settle();
    assert_eq!(bert.pods(), ["workers-0", "workers-1"]);
    assert!(bert.event("Rescaled").contains("from workers=1 to workers=2"));

    let mut bert = waits();
    bert.edit(|spec| spec.backoff_limit = Some(7));
    bert.settle();
    assert!(bert.status().backoff_until.is_some() && bert.pods().is_empty(), "that is no reason to hurry");
}

#[test]
fn an_attempt_that_got_further_is_followed_at_once() {
    let mut bert = job("bert").workers(2).checkpoints().running();
    bert.fail("workers-0", 1);
    bert.settle();
    assert!(bert.status().backoff_until.is_some());
    bert.sleep();
    bert.run_all();
    bert.agent = Some(saved("/checkpoints/epoch-3.pt", 3));
    bert.settle();
    assert_eq!(bert.status().checkpoint.as_ref().unwrap().epoch, Some(3));
    assert!(bert.event("CheckpointSaved").contains("epoch 3"));
    bert.fail("workers-1", 1);
    bert.settle();
    assert_eq!(bert.status().backoff_until, None);
    assert!(bert.event("Restarting").contains("restart 2 of 3 now, from checkpoint epoch 3"));
    let attempts = bert.attempts();
    assert_eq!(attempts.last().unwrap().resumed_from.as_ref().unwrap().path, "/checkpoints/epoch-3.pt");
    for name in ["bert-workers-0", "bert-workers-1"] {
        let resume = variable(&newest(&bert, name), "RESUME_FROM_CHECKPOINT");
        assert_eq!(resume.as_deref(), Some("/checkpoints/epoch-3.pt"));
    }
}

#[test]
fn all_ranks_go_on_from_one_checkpoint_whatever_is_saved_meanwhile() {
    let mut bert =
        job("bert").workers(2).checkpoints().with(|spec| spec.args = Some(vec!["train".into()])).running();
    bert.edit(|spec| {
        let checkpoint = spec.checkpoint.get_or_insert_default();
        checkpoint.resume_arg = Some("--resume={path}".into());
    });
    bert.agent = Some(saved("/checkpoints/a", 1));
    bert.settle();
    bert.fail("workers-0", 1);
    bert.settle();
    let number = bert.attempts().last().unwrap().number;
    let pod = newest(&bert, "bert-workers-1");
    assert_eq!(
        pod.spec.as_ref().unwrap().containers[0].args,
        Some(vec!["train".into(), "--resume=/checkpoints/a".into()])
    );
    // The agent's last words come late: the attempt that has begun keeps what it was told.
    bert.agent = Some(saved("/checkpoints/b", 2));
    bert.settle();
    let attempt = bert.attempts().last().unwrap().clone();
    assert_eq!((attempt.number, attempt.resumed_from.unwrap().path.as_str()), (number, "/checkpoints/a"));
}

#[test]
fn a_job_that_never_resumes_starts_afresh() {
    let mut bert = job("bert")
        .workers(1)
        .checkpoints()
        .with(|spec| {
            spec.checkpoint.get_or_insert_default().resume = Some(trainyard_api::Resume::Never);
        })
        .running();
    bert.agent = Some(saved("/checkpoints/a", 1));
    bert.settle();
    bert.agent = None;
    bert.fail("workers-0", 1);
    bert.settle();
    assert_eq!(variable(&newest(&bert, "bert-workers-0"), "RESUME_FROM_CHECKPOINT"), None);
    assert_eq!(bert.status().checkpoint, None);
}

#[test]
fn a_checkpoint_in_the_storage_that_the_job_did_not_know_of() {
    let mut bert = job("bert").workers(2).checkpoints().submitted().prompt();
    bert.settle();
    bert.run("workers-1");
    bert.agent = Some(AgentReport { resume_differs: true, ..saved("/checkpoints/old", 9) });
    bert.settle();
    bert.agent = None;
    bert.settle();
    let attempts = bert.attempts();
    assert_eq!((attempts[0].cause, attempts.len()), (Some(Cause::Resume), 2));
    assert_eq!(bert.restarts(), (0, 0, 0, 0), "nothing had begun");
    let resume = variable(&newest(&bert, "bert-workers-0"), "RESUME_FROM_CHECKPOINT");
    assert_eq!(resume.as_deref(), Some("/checkpoints/old"));
}

#[test]
fn what_was_moved_aside_is_told_once_and_kept_with_the_attempt() {
    let mut bert = job("bert").workers(1).checkpoints().running();
    let moved = "step-3.pt (it ends in the middle)";
    let report = AgentReport { moved_aside: Some(moved.to_owned()), ..AgentReport::default() };
    bert.agent = Some(report);
    bert.settle();
    bert.pass(60);
    assert_eq!(bert.attempts()[0].moved_aside.as_deref(), Some(moved));
    assert_eq!(bert.count("CheckpointMovedAside"), 1);
    assert!(bert.event("CheckpointMovedAside").contains(moved));
    bert.fail("workers-0", 1);
    bert.agent = None;
    bert.settle();
    bert.sleep();
    let told: Vec<_> = bert.attempts().iter().map(|attempt| attempt.moved_aside.is_some()).collect();
    assert_eq!(told, [true, false]);
}

#[test]
fn checkpoints_that_nobody_looks_after_are_told() {
    let bert = job("bert").workers(2).checkpoints().running();
    let (status, reason, message) = bert.condition("CheckpointProblem");
    assert_eq!((status, reason), ("True", "Unwatched"));
    assert!(message.contains("--agent-image"), "{message}");
    assert_eq!(bert.message(), "2 workers running", "the program may find them by itself");
    let mut bert = job("bert").workers(2).checkpoints().submitted();
    bert.settings.agent_image = Some("trainyard".to_owned());
    bert.settle();
    assert!(bert.status().condition("CheckpointProblem").is_none());
}

#[test]
fn what_is_wrong_with_the_storage_is_told_and_stops_nobody() {
    let mut bert = job("bert").workers(1).checkpoints().running();
    let problem = "no space left in /checkpoints: enlarge the claim or lower keepLast";
    bert.agent = Some(AgentReport { problem: Some(problem.into()), ..saved("/checkpoints/a", 1) });
    bert.settle();
    assert_eq!(bert.condition("CheckpointProblem"), ("True", "Storage", problem));
    assert_eq!(bert.state(), State::Running);
    assert_eq!(bert.message(), format!("1 worker running; checkpoints: {problem}"));
    assert_eq!((bert.event("CheckpointProblem"), bert.count("CheckpointProblem")), (problem, 1));
    bert.pass(60);
    bert.agent = Some(saved("/checkpoints/a", 1));
    bert.settle();
    assert_eq!(bert.condition("CheckpointProblem").0, "False");
    assert_eq!((bert.message(), bert.count("CheckpointProblem")), ("1 worker running", 1));
    bert.pass(60);
    bert.agent = Some(AgentReport { problem: Some(problem.into()), ..saved("/checkpoints/a", 1) });
    bert.settle();
    assert_eq!((bert.count("CheckpointProblem"), bert.tally.repeated_events), (2, 0), "another time");
}

#[test]
fn survivors_get_a_short_grace_and_whoever_is_stopped_on_purpose_their_own() {
    let mut bert = job("bert").workers(2).running();
    bert.fail("workers-0", 1);
    bert.settle();
    assert_eq!(bert.graces, [Some(2), Some(2)]);

    for stop in [|c: &mut Cluster| c.suspend(), |c: &mut Cluster| c.scale(3)] {
        let mut bert = job("bert").workers(2).running();
        stop(&mut bert);
        bert.settle();
        assert_eq!(bert.graces, [None, None]);
    }
    // A drain: the pod that is taken still runs, and so the others can save their work with it.
    let mut bert = job("bert").workers(2).running();
    bert.pods_linger();
    bert.delete_pod("workers-0");
    bert.settle();
    assert_eq!(bert.graces, [None]);
}

#[test]
fn no_progress_for_too_long_is_a_stall() {
    let mut bert = job("bert").workers(2).with(|spec| spec.stall_timeout_seconds = Some(60)).running();
    bert.pass(1000);
    assert_eq!(bert.state(), State::Running, "a program that never tells is left alone");
    let mut progress = trainyard_progress::Progress::default();
    progress.take(trainyard_progress::Reading::default(), bert.now);
    bert.progress = Some(progress);
    bert.settle();
    bert.pass(59);
    assert_eq!(bert.state(), State::Running);
    bert.now += SignedDuration::from_secs(2);
    let asked: Vec<String> = bert.plan().hanging.into_iter().map(|pod| pod.name).collect();
    assert_eq!(asked, ["bert-workers-0", "bert-workers-1"], "before they go, they are asked where they hang");
    bert.settle();
    assert_eq!(bert.condition("Stalled").0, "True");
    assert!(bert.plan().hanging.is_empty(), "once");
    let said = [
        ("bert-workers-0", "Current thread 1:\n  File \"/app/train.py\", line 12 in all_reduce"),
        ("bert-workers-1", "Thread 7 (idle): \"MainThread\"\n    read (data.py:3)\n    main (train.py:9)"),
    ];
    let said = said.map(|(pod, text)| (pod.to_owned(), text.to_owned())).to_vec();
    bert.stacks = Some(Stacks { attempt: 1, said });
    bert.settle();
    let error = bert.attempts()[0].error.clone().unwrap();
    assert_eq!(
        error,
        "Worker 0 in all_reduce (train.py:12); Worker 1 in read (data.py:3), called from main (train.py:9)"
    );
    let told = bert.events.iter().any(|event| event.message.starts_with("It hung: Worker 0 in all_reduce"));
    assert!(told, "{:?}", bert.events);
    assert_eq!(bert.attempts()[0].cause, Some(Cause::Stalled));
    assert_eq!(bert.status().restarts.unwrap().stall, 1);
    bert.progress = None;
    bert.run_all();
    bert.settle();
    assert_eq!((bert.state(), bert.condition("Stalled").0), (State::Running, "False"));
}

#[test]
fn who_hangs_when_the_leader_is_done_has_stalled() {
    let spoke = |bert: &mut Cluster| {
        let mut progress = trainyard_progress::Progress::default();
        progress.take(trainyard_progress::Reading::default(), bert.now);
        bert.progress = Some(progress);
        bert.settle();
    };
    let with = || job("bert").workers(2).with(|spec| spec.stall_timeout_seconds = Some(60));
    let mut bert = with().running();
    spoke(&mut bert);
    bert.pass(30);
    bert.succeed("workers-0");
    bert.settle();
    assert_eq!(bert.wakes_in(), Some(60), "counted from the end of the leader");
    bert.sleep();
    assert_eq!(bert.causes(), [Cause::Stalled]);
    let message = bert.attempts()[0].message.as_deref();
    assert_eq!(message, Some("Worker 0 is done, and others still run 60 s later (stallTimeoutSeconds)"));

    // A program that never told of progress is left alone, and so is a copy to a bucket.
    let mut bert = with().running();
    bert.succeed("workers-0");
    bert.settle();
    assert_eq!(bert.wakes_in(), None);
    let bucket = || trainyard_api::CheckpointStorage {
        kind: Some(trainyard_api::StorageType::S3),
        path: Some("s3://models/runs".into()),
        ..Default::default()
    };
    let mut bert = with()
        .checkpoints()
        .with(|spec| spec.checkpoint.get_or_insert_default().storage = Some(bucket()))
        .running();
    spoke(&mut bert);
    bert.succeed("workers-0");
    bert.change_pod("workers-0", |pod| pod.lingers = Some(Company::Sidecars));
    bert.settle();
    bert.pass(1000);
    assert_eq!(bert.state(), State::Running);
}

#[test]
fn a_dead_node_does_not_hang_the_job() {
    let mut bert = job("bert").workers(2).running();
    bert.pods_linger();
    bert.fail("workers-1", 1);
    bert.settle();
    let leaves_by = bert.now + SignedDuration::from_secs(30);
    for pod in bert.pods() {
        bert.change_pod(&pod, |pod| pod.leaves_by = Some(leaves_by));
    }
    bert.settle();
    bert.pass(39);
    assert_eq!(bert.pods().len(), 2, "they have their time");
    bert.pass(5);
    assert_eq!(bert.pods().len(), 2, "a node that may answer is waited for");
    let dead = |name: &str, state| NodeView { name: name.into(), state };
    bert.nodes =
        vec![dead("node-workers-0", NodeState::Unreachable), dead("node-workers-1", NodeState::Ready)];
    bert.settle();
    assert_eq!(bert.pods(), ["workers-1"]);
    let message = bert.message();
    assert!(message.starts_with("Worker 1 failed on node node-workers-1: exit code 1; "), "{message}");
    let waits = "waiting for 1 pod of the last attempt to go; bert-workers-1 does not go although its time is over, and";
    let waits = format!("{waits} its node node-workers-1 answers: see kubectl describe pod bert-workers-1");
    assert!(message.ends_with(&waits), "{message}");
    bert.nodes[1].state = NodeState::Hidden;
    bert.settle();
    assert_eq!(bert.pods(), ["workers-1"], "what cannot be seen is not taken for dead");
    assert!(bert.message().contains("the operator needs the right to get nodes"), "{}", bert.message());
    bert.nodes[1].state = NodeState::Gone;
    bert.settle();
    assert_eq!(bert.graces[2..], [Some(0), Some(0)]);
    assert_eq!((bert.state(), bert.attempts().len()), (State::Initializing, 2));
}

#[test]
fn nobody_waits_for_a_grace_that_a_dead_node_does_not_use() {
    // The node, what the survivors get, and when the lost pod is removed by force: 2 s, and 10 s more.
    for (state, grace, hastened) in [
        (Some(NodeState::Unreachable), Some(2), true),
        (Some(NodeState::Gone), Some(2), true),
        // It answers, or nobody can tell: it may save its work, and the others with it.
        (Some(NodeState::Ready), None, false),
        (None, None, false),
    ] {
        let mut bert = job("bert").workers(3).running();
        bert.pods_linger();
        let leaves_by = bert.now + SignedDuration::from_secs(30);
        bert.change_pod("workers-1", |pod| {
            pod.deleting = true;
            pod.leaves_by = Some(leaves_by);
        });
        bert.disrupt("workers-1", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
        assert!(bert.pod("workers-1").may_be_lost(), "its node is asked for");
        bert.nodes =
            state.map(|state| NodeView { name: "node-workers-1".into(), state }).into_iter().collect();
        bert.settle();
        let mut graces = vec![grace, grace];
        graces.extend(hastened.then_some(Some(2)));
        assert_eq!(bert.graces, graces, "{state:?}");
        assert_eq!(bert.attempts()[0].cause, Some(Cause::Disruption));
    }
}

#[test]
fn a_node_on_which_it_fails_again_and_again_is_avoided() {
    let mut bert = job("bert").workers(2).backoff_limit(9).running();
    for _ in 0..2 {
        bert.change_pod("workers-0", |pod| pod.node = Some("bad".into()));
        bert.fail("workers-0", 1);
        bert.settle();
        bert.sleep();
        bert.run_all();
        bert.settle();
    }
    assert_eq!(bert.status().avoided_nodes, ["bad"]);
    let pod = newest(&bert, "bert-workers-1");
    let affinity = pod.spec.unwrap().affinity.unwrap().node_affinity.unwrap();
    assert_eq!(
        affinity.required_during_scheduling_ignored_during_execution, None,
        "it must not hang for that"
    );
    let terms = affinity.preferred_during_scheduling_ignored_during_execution.unwrap();
    let field = &terms[0].preference.match_fields.as_ref().unwrap()[0];
    assert_eq!((field.operator.as_str(), field.values.clone()), ("NotIn", Some(vec!["bad".into()])));
}

#[test]
fn nodes_are_avoided_together_and_beside_what_the_template_prefers() {
    let theirs = serde_json::json!({"spec": {"affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}},
        ],
    }}}});
    let job = job("bert").workers(1).backoff_limit(9).with(|spec| spec.template = Some(theirs));
    let mut bert = job.running();
    for node in ["bad", "worse", "bad", "worse"] {
        bert.change_pod("workers-0", |pod| pod.node = Some(node.into()));
        bert.fail("workers-0", 1);
        bert.settle();
        bert.sleep();
        bert.run_all();
        bert.settle();
    }
    let affinity = newest(&bert, "bert-workers-0").spec.unwrap().affinity.unwrap().node_affinity.unwrap();
    let terms = affinity.preferred_during_scheduling_ignored_during_execution.unwrap();
    assert_eq!(terms.iter().map(|term| term.weight).collect::<Vec<_>>(), [5, 100]);
    let fields = terms[1].preference.match_fields.as_ref().unwrap();
    let nodes: Vec<_> = fields.iter().flat_map(|field| field.values.clone().unwrap()).collect();
    assert_eq!(nodes, ["bad", "worse"]);
}

#[test]
fn whoever_is_deleted_by_somebody_is_not_its_nodes_doing() {
    let mut bert = job("bert").workers(2).running();
    for _ in 0..3 {
        bert.pods_linger();
        bert.change_pod("workers-0", |pod| pod.node = Some("good".into()));
        bert.change_pod("workers-0", |pod| pod.deleting = true);
        bert.settle();
        bert.pods_go_at_once();
        bert.release();
        bert.settle();
        bert.pass(100);
        bert.run_all();
        bert.settle();
    }
    assert_eq!((bert.restarts().1, bert.status().avoided_nodes.len()), (3, 0));
}

#[test]
fn whoever_fails_alone_is_replaced_alone() {
    let mut bert = alone(job("bert").workers(3)).running();
    let before: Vec<String> = ["workers-0", "workers-2"].map(|pod| bert.pod(pod).uid.clone()).into();
    bert.fail("workers-1", 1);
    bert.settle();
    assert_eq!((bert.restarts(), bert.pods().len()), ((1, 0, 0, 0), 2));
    bert.sleep();
    assert_eq!((bert.pods().len(), bert.attempts().len()), (3, 1), "the attempt goes on");
    bert.run("workers-1");
    bert.settle();
    assert_eq!((bert.state(), bert.condition("Restarting").0), (State::Running, "False"));
    let after: Vec<String> = ["workers-0", "workers-2"].map(|pod| bert.pod(pod).uid.clone()).into();
    assert_eq!(before, after);
    let counts: Vec<i32> = bert.status().worker_statuses.iter().map(|worker| worker.restart_count).collect();
    assert_eq!(counts, [0, 1, 0]);

    // One that is deleted comes back, too, and is not counted; what is left of backoffLimit is for failures.
    bert.delete_pod("workers-2");
    bert.settle();
    assert_eq!((bert.restarts(), bert.pods().len()), ((1, 1, 0, 0), 3));
    bert.run_all();
    bert.settle();
    for failure in 2..=4 {
        bert.fail("workers-0", 1);
        bert.settle();
        if failure < 4 {
            assert_eq!(bert.restarts().0, failure);
            bert.sleep();
            bert.run_all();
            bert.settle();
        }
    }
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "BackoffLimitExceeded"));
}

#[test]
fn a_loss_does_not_shorten_the_delay_of_another_worker() {
    let mut bert = alone(job("bert").workers(3)).running();
    bert.fail("workers-1", 1);
    bert.settle();
    let until = bert.status().backoff_until.clone().unwrap();
    bert.pass(2);
    bert.evict("workers-2", "Evicted: the node was low on memory");
    bert.settle();
    assert_eq!(bert.restarts(), (1, 1, 0, 0));
    assert_eq!(bert.status().backoff_until.as_ref(), Some(&until), "as it was");
    assert_eq!((bert.wake_at(), bert.pods()), (Some(until.0), vec!["workers-0".to_owned()]));
    // A longer one takes the place of a shorter one.
    bert.fail("workers-0", 1);
    bert.settle();
    assert!(bert.status().backoff_until.as_ref().unwrap().0 > until.0);
    bert.sleep();
    assert_eq!(bert.pods().len(), 3);
}

#[test]
fn every_loss_of_one_worker_is_written_down_and_told() {
    let mut bert = alone(job("bert").workers(2)).running();
    for failure in 1..=3 {
        bert.fail("workers-1", 1);
        bert.settle();
        assert_eq!((bert.restarts().0, bert.count("WorkerFailed")), (failure, failure.try_into().unwrap()));
        bert.sleep();
        bert.run_all();
        bert.settle();
    }
    bert.remove_pod("workers-1");
    bert.settle();
    assert_eq!(bert.restarts(), (3, 1, 0, 0), "it ran after the failure that was written down");
    assert_eq!(bert.status().worker_statuses[1].restart_count, 4);
    assert_eq!(bert.status().restarts.unwrap().total, 4, "the column counts all");
}

#[test]
fn a_lone_failure_is_counted_once_wherever_the_operator_dies() {
    for writes in 1..20 {
        let mut bert = alone(job("bert").workers(2)).running();
        bert.fail("workers-1", 1);
        bert.crash_after(writes);
        bert.settle();
        bert.sleep();
        bert.run_all();
        bert.settle();
        assert_eq!((bert.restarts(), bert.state()), ((1, 0, 0, 0), State::Running), "after {writes} writes");
        bert.succeed_all();
        bert.settle();
        assert_eq!(bert.state(), State::Completed);
    }
}

#[test]
fn how_long_it_took() {
    let mut bert = job("bert").workers(1).submitted().prompt();
    bert.settle();
    bert.pass(3);
    bert.change_pod("workers-0", |pod| pod.node = Some("a".into()));
    bert.settle();
    bert.pass(4);
    bert.run_all();
    bert.settle();
    bert.pass(2);
    let mut progress = trainyard_progress::Progress::default();
    progress.take(trainyard_progress::Reading::default(), bert.now);
    bert.progress = Some(progress);
    bert.settle();
    bert.fail("workers-0", 1);
    bert.progress = None;
    // Nobody looks for a while.
    bert.now += jiff::SignedDuration::from_secs(3);
    bert.settle();
    bert.sleep();
    bert.settle();
    let seconds = bert.attempts()[0].seconds;
    assert_eq!((seconds.scheduled, seconds.started, seconds.first_step), (Some(3), Some(4), Some(2)));
    assert_eq!(seconds.seen, Some(3));
    assert_eq!(seconds.torn_down, Some(0), "the backoff is no part of it");
}

#[test]
fn even_the_shortest_grace_leaves_a_pod_until_its_program_is_gone() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settings.survivor_grace = 0;
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.fail("workers-1", 1);
    let graces: Vec<Option<u32>> = bert
        .plan()
        .steps()
        .filter_map(|step| match step {
            Step::Delete { grace, .. } => Some(*grace),
            _ => None,
        })
        .collect();
    assert_eq!(graces, [Some(1), Some(1)]);
}
