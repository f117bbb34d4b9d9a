//! What the cluster refuses, and what is in the way.

mod support;

use support::{Cluster, job, role};
use trainyard_api::{Role, RoleOrder, State};
use trainyard_plan::{ClaimView, ObjectView, ObstacleKind, PodPhase, PodView};

fn pod_of(owner: Option<&str>, name: &str) -> PodView {
    PodView {
        created: None,
        untouched_since: None,
        name: name.into(),
        uid: "old".into(),
        owner: owner.map(Into::into),
        attempt: Some(4),
        inputs: None,
        shape: None,
        announced: None,
        deleting: false,
        leaves_by: None,
        phase: PodPhase::Running,
        lingers: None,
        agent_started: false,
        node: None,
        exit: None,
        waiting: None,
        disruption: None,
    }
}

#[test]
fn somebody_elses_object_under_our_name_is_told_of_and_waited_for() {
    for (name, object) in [
        ("workers-1", "pod bert-workers-1"),
        ("workers", "service bert-workers"),
        ("config", "config map bert-config"),
    ] {
        let mut bert = job("bert").workers(2).submitted().prompt();
        bert.stranger(name);
        bert.settle();
        assert_eq!(bert.state(), State::Pending, "{object}");
        let (status, reason, message) = bert.condition("ResourcesCreated");
        assert_eq!((status, reason), ("False", "NameConflict"), "{object}");
        assert!(message.contains(object) && message.contains("not made by Trainyard"), "{message}");
        assert_eq!((bert.pods().len(), bert.count("NameConflict")), (0, 1), "{object}");
        assert_eq!(bert.wakes_in(), Some(30));

        // Asked again, told once.
        bert.pass(100);
        assert_eq!(
            (bert.state(), bert.count("NameConflict"), bert.tally.repeated_events),
            (State::Pending, 1, 0)
        );
        bert.stranger_leaves();
        bert.pass(60);
        assert_eq!(
            (bert.state(), bert.condition("ResourcesCreated").0),
            (State::Initializing, "True"),
            "{object}"
        );
        assert_eq!(bert.restarts(), (0, 0, 0, 0), "{object}");
    }
}

#[test]
fn a_quota_is_no_failure_and_never_leaves_half_a_gang() {
    let mut bert = job("bert").workers(4).backoff_limit(0).submitted().prompt();
    bert.quota(Some(3));
    bert.settle();
    assert_eq!((bert.state(), bert.pods().len()), (State::Pending, 0), "the half gang is removed");
    let (status, reason, message) = bert.condition("ResourcesCreated");
    assert_eq!((status, reason), ("False", "QuotaExceeded"));
    assert!(message.contains("pod bert-workers-3 was refused: exceeded quota: team-a"), "{message}");
    assert_eq!((bert.count("QuotaExceeded"), bert.wakes_in()), (1, Some(30)));

    bert.pass(300);
    assert_eq!((bert.state(), bert.pods().len(), bert.count("QuotaExceeded")), (State::Pending, 0, 1));
    bert.quota(None);
    bert.pass(30);
    assert_eq!((bert.state(), bert.pods().len()), (State::Initializing, 4));
    bert.run_all();
    bert.settle();
    assert_eq!((bert.state(), bert.restarts(), bert.attempts().len()), (State::Running, (0, 0, 0, 0), 1));
    assert_eq!(bert.pod_attempts(), [Some(1)].into());
}

#[test]
fn the_removed_half_of_a_gang_may_die_slowly_and_loudly() {
    let mut bert = job("bert").workers(4).backoff_limit(0).submitted().prompt();
    bert.quota(Some(3));
    bert.pods_linger();
    bert.round().unwrap();
    bert.run_all();
    bert.settle();
    assert!(bert.pod("workers-0").deleting);
    bert.fail("workers-0", 143);
    bert.fail("workers-1", 1);
    bert.settle();
    assert_eq!(
        (bert.state(), bert.restarts()),
        (State::Pending, (0, 0, 0, 0)),
        "we removed them: no failure"
    );
    // The quota has room now, but the old ones are still there: nothing is created beside them.
    bert.quota(None);
    bert.pass(30);
    assert_eq!(bert.pods(), ["workers-0", "workers-1", "workers-2"]);
    bert.release();
    bert.settle();
    assert_eq!((bert.state(), bert.pods().len()), (State::Initializing, 4));
    bert.run_all();
    bert.settle();
    assert_eq!((bert.state(), bert.restarts()), (State::Running, (0, 0, 0, 0)));
}

#[test]
fn a_quota_in_the_way_of_a_restart() {
    let mut bert = job("bert").workers(2).submitted().prompt();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.quota(Some(1));
    bert.fail("workers-0", 1);
    bert.settle();
    bert.sleep();
    assert_eq!((bert.state(), bert.pods().len(), bert.restarts().0), (State::Restarting, 0, 1));
    assert_eq!(bert.condition("ResourcesCreated").1, "QuotaExceeded");
    bert.quota(None);
    bert.pass(60);
    assert_eq!((bert.state(), bert.pods().len(), bert.restarts()), (State::Initializing, 2, (1, 0, 0, 0)));

    // Refused again at the next restart: that is another occurrence.
    bert.run_all();
    bert.settle();
    bert.quota(Some(1));
    bert.delete_pod("workers-0");
    bert.settle();
    bert.sleep();
    assert_eq!((bert.count("QuotaExceeded"), bert.tally.repeated_events), (2, 0));
}

#[test]
fn an_object_that_the_api_server_calls_invalid_fails_the_job_until_its_spec_changes() {
    let mut bert = job("bert").workers(2).submitted().prompt();
    bert.refuse(ObstacleKind::Invalid, "workers-");
    bert.settle();
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "InvalidSpec"));
    assert!(
        bert.message().contains("pod bert-workers-0 was refused: the API server says no"),
        "{}",
        bert.message()
    );
    assert_eq!(bert.count("InvalidSpec"), 1);
    let refused = bert.tally.refused;
    bert.pass(3600);
    bert.settle();
    bert.operator_restarts();
    bert.settle();
    assert_eq!((bert.state(), bert.tally.refused), (State::Failed, refused), "it is not tried again");

    bert.refuse_nothing();
    bert.edit(|spec| spec.image = Some("my/trainer:2".into()));
    bert.settle();
    assert_eq!((bert.state(), bert.pods().len()), (State::Initializing, 2));
}

#[test]
fn what_is_forbidden_is_told_in_the_servers_words_and_tried_again() {
    let mut bert = job("bert").workers(2).submitted().prompt();
    bert.refuse(ObstacleKind::Forbidden, "config");
    bert.settle();
    assert_eq!((bert.state(), bert.condition("ResourcesCreated").1), (State::Pending, "Forbidden"));
    assert_eq!(bert.event("ReconcileFailed"), "config map bert-config was refused: the API server says no");
    bert.refuse_nothing();
    bert.pass(60);
    assert_eq!((bert.state(), bert.condition("ResourcesCreated").0), (State::Initializing, "True"));
}

#[test]
fn a_refusal_is_about_the_spec_that_was_refused() {
    let mut bert = job("bert").workers(4).submitted().prompt();
    bert.quota(Some(2));
    bert.settle();
    assert_eq!((bert.state(), bert.wakes_in()), (State::Pending, Some(30)));
    bert.scale(2);
    bert.settle();
    assert_eq!((bert.state(), bert.pods().len()), (State::Initializing, 2), "tried at once, and it fits");
}

#[test]
fn a_refusal_beside_a_complete_gang_does_not_stop_it() {
    let mut bert =
        job("bert").workers(2).with(|spec| spec.startup_timeout_seconds = Some(20)).submitted().prompt();
    bert.settle();
    bert.refuse(ObstacleKind::Forbidden, "config");
    bert.delete_config_map();
    bert.settle();
    assert_eq!((bert.state(), bert.condition("ResourcesCreated").1), (State::Initializing, "Forbidden"));
    assert_eq!(bert.pods().len(), 2);
    bert.run_all();
    bert.settle();
    assert_eq!(bert.state(), State::Running, "all of its pods run, so it runs");
    assert_eq!(bert.condition("ResourcesCreated").0, "False", "what is missing is still told");
    let before = bert.condition("ResourcesCreated").2.to_owned();
    assert!(bert.message().contains(&before), "{}", bert.message());
    bert.pass(200);
    assert_eq!(
        (bert.state(), bert.count("ReconcileFailed"), bert.tally.repeated_events),
        (State::Running, 1, 0)
    );
    bert.refuse_nothing();
    bert.pass(60);
    assert_eq!((bert.condition("ResourcesCreated").0, bert.config_maps().len()), ("True", 1));
    bert.succeed_all();
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
}

#[test]
fn pods_of_an_earlier_job_of_the_same_name_are_waited_for() {
    for owner in [Some("uid-of-the-earlier-bert"), None] {
        let mut bert = job("bert").workers(2).submitted().prompt();
        bert.add_pod(pod_of(owner, "bert-workers-1"));
        bert.settle();
        assert_eq!(
            (bert.state(), bert.pods()),
            (State::Pending, vec!["workers-1".to_owned()]),
            "never half of a gang"
        );
        assert_eq!(bert.condition("ResourcesCreated").1, "NameConflict");
        assert!(bert.message().contains("waiting for pod bert-workers-1"), "{}", bert.message());
        assert_eq!((bert.tally.deletes, bert.attempts().len()), (0, 0));
        bert.remove_pod("workers-1");
        bert.settle();
        assert_eq!((bert.state(), bert.pods().len(), bert.attempts()[0].number), (State::Initializing, 2, 1));
    }
}

#[test]
fn other_pods_with_our_label_are_no_business_of_ours() {
    let mut bert = job("bert").workers(1).submitted().prompt();
    bert.add_pod(pod_of(Some("somebody"), "bert-notebook"));
    bert.add_pod(pod_of(Some("somebody"), "bert-workers-7"));
    bert.settle();
    bert.run("workers-0");
    bert.settle();
    assert_eq!((bert.state(), bert.pods().len()), (State::Running, 3));
    bert.succeed("workers-0");
    bert.settle();
    bert.delete_job();
    bert.settle();
    assert_eq!((bert.exists(), bert.pods().len()), (false, 2));
}

#[test]
fn a_service_of_an_earlier_job_is_waited_for_and_not_touched() {
    for (owner, deleting) in [(Some("earlier"), true), (Some("earlier"), false), (None, false)] {
        let mut bert = job("bert").submitted().prompt();
        let view = ObjectView {
            name: "bert-workers".into(),
            uid: "old".into(),
            owner: owner.map(Into::into),
            fingerprint: 0,
            deleting,
        };
        bert.add_service(view.clone());
        bert.settle();
        assert_eq!((bert.state(), bert.pods().len()), (State::Pending, 0));
        assert_eq!(bert.services()["bert-workers"], view);
        assert!(bert.message().contains("waiting for service bert-workers"), "{}", bert.message());
        bert.delete_service();
        bert.settle();
        assert_eq!(bert.state(), State::Initializing);
    }
}

#[test]
fn a_claim_that_is_going_holds_only_jobs_that_want_it() {
    let going =
        ClaimView { name: "bert-checkpoints".into(), uid: "old".into(), deleting: true, shared: true };
    let mut without = job("bert").submitted().prompt();
    without.add_claim(going.clone());
    without.settle();
    assert_eq!(without.state(), State::Initializing, "it has no checkpoints");
    without.run_all();
    without.settle();
    assert_eq!(without.state(), State::Running);

    let mut with = job("bert").checkpoints().submitted().prompt();
    with.add_claim(going);
    with.settle();
    assert_eq!((with.state(), with.pods().len()), (State::Pending, 0));
    assert!(with.message().contains("waiting for claim bert-checkpoints"), "{}", with.message());
    with.remove_claim();
    with.settle();
    assert_eq!((with.state(), with.claims().len()), (State::Initializing, 1));
}

#[test]
fn what_blocks_a_later_role_is_told_although_others_run() {
    let before = Role { order: Some(RoleOrder::BeforeWorkers), ..role("store", 1) };
    let mut bert = job("bert").workers(1).role(before).submitted().prompt();
    bert.settle();
    bert.add_pod(pod_of(Some("somebody"), "bert-workers-0"));
    bert.run("store-0");
    bert.settle();
    assert_eq!(bert.state(), State::Initializing);
    assert_eq!(bert.condition("ResourcesCreated").1, "NameConflict");
    assert!(bert.message().contains("waiting for pod bert-workers-0"), "{}", bert.message());
    bert.remove_pod("workers-0");
    bert.settle();
    assert_eq!(bert.pod("workers-0").attempt, Some(1));
}

#[test]
fn stray_pods_of_ours_are_removed() {
    let ours = |attempt: Option<i32>, name: &str| PodView { attempt, ..pod_of(Some("uid-of-bert"), name) };
    let mut bert: Cluster = job("bert").workers(2).submitted().prompt();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.add_pod(ours(None, "bert-workers-8"));
    bert.add_pod(ours(Some(0), "bert-workers-9"));
    bert.add_pod(ours(Some(-7), "bert-stray"));
    bert.settle();
    assert_eq!(
        (bert.pods(), bert.state()),
        (vec!["workers-0".to_owned(), "workers-1".to_owned()], State::Running)
    );
    assert_eq!(bert.restarts(), (0, 0, 0, 0));
}
