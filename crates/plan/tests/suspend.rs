//! `spec.suspend`, in every state of a job.

mod support;

use support::{Happening, job};
use trainyard_api::{Cause, FailurePolicy, Phase, RestartScope, State};

#[test]
fn suspending_removes_the_pods_and_keeps_the_rest() {
    let mut bert = job("bert").workers(2).checkpoints().submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.suspend();
    bert.settle();
    assert_eq!((bert.state(), bert.status().phase), (State::Suspended, Some(Phase::Pending)));
    assert_eq!(bert.pods(), Vec::<String>::new());
    assert_eq!((bert.services().len(), bert.config_maps().len(), bert.claims().len()), (1, 1, 1));
    assert_eq!(bert.condition("Suspended").0, "True");
    assert_eq!(bert.condition("Running").0, "False");
    assert_eq!(bert.causes(), [Cause::Suspend]);
    assert_eq!(bert.count("Suspended"), 1);
    assert_eq!(bert.status().resources.unwrap().allocated_nodes, 0);
    bert.pass(10);
    assert_eq!(bert.message(), "Suspended: no pods; set suspend to false to go on");
    assert_eq!(bert.wake_at(), None);

    bert.resume();
    bert.settle();
    assert_eq!(
        (bert.state(), bert.attempts().len(), bert.restarts()),
        (State::Initializing, 2, (0, 0, 0, 0))
    );
    assert_eq!(bert.condition("Suspended").0, "False");
    assert_eq!(bert.count("Resumed"), 1);
    bert.run_all();
    bert.settle();
    bert.succeed_all();
    bert.settle();
    assert_eq!(
        bert.states,
        [
            State::Pending,
            State::Initializing,
            State::Running,
            State::Suspended,
            State::Pending,
            State::Initializing,
            State::Running,
            State::Completed
        ],
        "a resumed job waits for a start: it is not being restarted"
    );
}

#[test]
fn while_suspended_nothing_is_estimated_and_only_the_end_of_the_pods_is_timed() {
    let mut bert = job("bert").workers(2).submitted().prompt();
    bert.settle();
    bert.run_all();
    bert.settle();
    let mut progress = trainyard_progress::Progress::default();
    for epoch in 1..=2 {
        let epoch = Some(f64::from(epoch));
        let reading = trainyard_progress::Reading { epoch, epochs: Some(10.0), ..Default::default() };
        bert.pass(60);
        progress.take(reading, bert.now);
        bert.progress = Some(progress.clone());
        bert.settle();
    }
    assert!(bert.status().estimated_completion.is_some());
    bert.pods_linger();
    bert.suspend();
    bert.settle();
    bert.pass(7);
    assert_eq!(
        (bert.status().estimated_completion.as_ref(), bert.attempts()[0].seconds.torn_down),
        (None, None)
    );
    bert.release();
    bert.settle();
    bert.pass(500);
    assert_eq!(bert.attempts()[0].seconds.torn_down, Some(7));
    bert.resume();
    bert.settle();
    assert_eq!(bert.attempts()[0].seconds.torn_down, Some(7));
}

#[test]
fn a_job_may_be_born_suspended() {
    let mut bert = job("bert").workers(2).suspended().submitted();
    bert.settle();
    assert_eq!((bert.state(), bert.tally.creates), (State::Suspended, 0));
    assert_eq!((bert.status().start_time.clone(), bert.attempts().len()), (None, 0));
    bert.pass(3600);
    bert.resume();
    bert.settle();
    assert_eq!(bert.state(), State::Initializing);
    assert_eq!(bert.attempts()[0].number, 1);
    assert_eq!(bert.status().start_time.as_ref().unwrap().0, bert.now);
    assert_eq!(bert.states, [State::Suspended, State::Pending, State::Initializing]);
}

#[test]
fn in_each_state() {
    let stories: [(State, Happening); 4] = [
        (State::Pending, |bert| {
            bert.round().unwrap();
        }),
        (State::Initializing, |bert| {
            bert.settle();
            bert.run("workers-0");
            bert.settle();
        }),
        (State::Running, |bert| {
            bert.settle();
            bert.run_all();
            bert.settle();
        }),
        (State::Restarting, |bert| {
            bert.settle();
            bert.fail("workers-0", 1);
            bert.settle();
        }),
    ];
    for (state, story) in stories {
        let mut bert = job("bert").workers(2).submitted();
        story(&mut bert);
        assert_eq!(bert.state(), state);
        let restarts = bert.restarts();
        bert.suspend();
        bert.settle();
        assert_eq!((bert.state(), bert.pods().len()), (State::Suspended, 0), "from {state:?}");
        assert_eq!(bert.status().backoff_until, None);
        bert.pass(24 * 3600);
        assert_eq!(bert.state(), State::Suspended);
        bert.resume();
        bert.settle();
        assert_eq!(bert.state(), State::Initializing, "from {state:?}");
        assert_eq!(bert.restarts(), restarts, "suspending is no failure");
        assert_eq!(bert.attempts().last().unwrap().number, 2);
    }
}

#[test]
fn resumed_before_the_pods_are_gone() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.pods_linger();
    bert.suspend();
    bert.settle();
    assert_eq!(bert.message(), "Suspended: 2 pods to be removed");
    bert.resume();
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().len()), (State::Pending, 1));
    // They end as pods do that are deleted.
    bert.fail("workers-0", 143);
    bert.fail("workers-1", 143);
    bert.settle();
    bert.release();
    bert.settle();
    assert_eq!(
        (bert.state(), bert.restarts(), bert.attempts().len()),
        (State::Initializing, (0, 0, 0, 0), 2)
    );
}

#[test]
fn changes_made_while_suspended_take_effect_at_the_resume_without_a_restart() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settle();
    bert.suspend();
    bert.settle();
    bert.edit(|spec| {
        spec.num_workers = Some(3);
        spec.image = Some("my/trainer:2".into());
    });
    bert.settle();
    bert.resume();
    bert.settle();
    assert_eq!((bert.pods().len(), bert.restarts()), (3, (0, 0, 0, 0)));
}

#[test]
fn twice_suspended_is_told_twice() {
    let mut bert = job("bert").submitted();
    for _ in 0..2 {
        bert.settle();
        bert.suspend();
        bert.settle();
        bert.resume();
        bert.settle();
    }
    assert_eq!((bert.count("Suspended"), bert.count("Resumed"), bert.tally.repeated_events), (2, 2, 0));
}

#[test]
fn a_worker_that_succeeded_before_the_suspension_starts_anew() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.succeed("workers-0");
    bert.settle();
    bert.pass(10);
    bert.suspend();
    bert.settle();
    assert_eq!(
        bert.status().workers.unwrap().succeeded,
        0,
        "a suspended job has no pods, and nobody has succeeded"
    );
    bert.resume();
    bert.settle();
    assert_eq!(bert.pods(), ["workers-0", "workers-1"]);
    bert.run_all();
    bert.settle();
    bert.succeed("workers-1");
    bert.settle();
    assert_eq!(bert.state(), State::Running);
}

#[test]
fn resumed_while_the_operator_was_dead_in_the_middle_of_the_suspension() {
    let mut bert = job("bert").workers(3).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.suspend();
    // It dies after its second write: the status, and one pod.
    bert.crash_after(2);
    assert!(bert.try_settle().is_err());
    bert.operator_restarts();
    bert.resume();
    bert.settle();
    assert_eq!(
        (bert.causes(), bert.restarts()),
        (vec![Cause::Suspend], (0, 0, 0, 0)),
        "it was suspended, not disrupted"
    );
    assert_eq!((bert.state(), bert.pods().len()), (State::Initializing, 3));
}

#[test]
fn a_training_that_was_done_when_it_was_suspended_is_completed() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.succeed_all();
    bert.suspend();
    bert.settle();
    assert_eq!((bert.state(), bert.causes()), (State::Completed, vec![Cause::Succeeded]));
    bert.resume();
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().len()), (State::Completed, 1), "it is not done again");
}

#[test]
fn a_failure_that_is_seen_together_with_the_suspension_counts() {
    for scope in [RestartScope::Gang, RestartScope::Worker] {
        let policy = FailurePolicy { restart_scope: Some(scope), rules: None };
        let bert = job("bert").workers(2).backoff_limit(1);
        let mut bert = bert.with(|spec| spec.failure_policy = Some(Box::new(policy))).submitted();
        for round in 1..=2 {
            bert.settle();
            bert.run_all();
            bert.settle();
            bert.fail("workers-1", 1);
            bert.suspend();
            bert.settle();
            if round == 1 {
                assert_eq!((bert.state(), bert.restarts().0), (State::Suspended, 1), "{scope:?}");
                assert_eq!(bert.condition("Restarting").0, "False", "{scope:?}");
                bert.resume();
            }
        }
        assert_eq!(
            bert.state(),
            State::Failed,
            "{scope:?}: nobody is kept alive beyond the limit by suspending"
        );
        assert_eq!(bert.condition("Failed").1, "BackoffLimitExceeded", "{scope:?}");
    }
}

#[test]
fn a_disruption_is_no_reason_to_start_anything_before_it_is_suspended() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.delete_pod("workers-0");
    bert.suspend();
    bert.settle();
    assert_eq!((bert.state(), bert.causes()), (State::Suspended, vec![Cause::Suspend]));
    assert_eq!(bert.restarts(), (0, 0, 0, 0));
}

#[test]
fn what_is_seen_together_with_a_spec_that_cannot_run_counts_too() {
    let break_it = |bert: &mut support::Cluster| bert.edit(|spec| spec.command = Some(Vec::new()));
    let mut bert = job("bert").workers(2).running();
    bert.succeed_all();
    break_it(&mut bert);
    bert.settle();
    assert_eq!((bert.state(), bert.causes()), (State::Completed, vec![Cause::Succeeded]));

    let mut bert = job("bert").workers(2).running();
    bert.fail("workers-1", 1);
    break_it(&mut bert);
    bert.settle();
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "InvalidSpec"));
    assert_eq!((bert.restarts().0, bert.causes()), (1, vec![Cause::Application]));
    bert.edit(|spec| spec.command = None);
    bert.settle();
    assert_eq!((bert.state(), bert.restarts().0), (State::Initializing, 1));
}
