//! Deleting a job: its pods first, then its claim if it asked for that, then the finalizer.

mod support;

use support::{Cluster, Happening, Job, job};
use trainyard_api::State;
use trainyard_plan::ClaimView;

fn running(job: Job) -> Cluster {
    let mut cluster = job.workers(2).submitted();
    cluster.settle();
    cluster.run_all();
    cluster.settle();
    cluster
}

#[test]
fn nothing_is_left_but_the_checkpoints() {
    let mut bert = running(job("bert").checkpoints());
    bert.delete_job();
    bert.settle();
    assert!(!bert.exists());
    assert_eq!((bert.pods().len(), bert.services().len(), bert.config_maps().len()), (0, 0, 0));
    assert!(bert.claims().contains_key("bert-checkpoints"), "they outlive the job");
}

#[test]
fn a_job_of_the_same_name_finds_its_claim_again() {
    let mut bert = running(job("bert").checkpoints());
    bert.delete_job();
    bert.settle();
    let claim = bert.claims()["bert-checkpoints"].clone();

    let mut again = job("bert").workers(2).checkpoints().submitted();
    again.add_claim(claim.clone());
    again.settle();
    assert_eq!(again.state(), State::Initializing);
    assert_eq!(again.claims()["bert-checkpoints"], claim);
}

#[test]
fn delete_on_completion_takes_the_claim_when_the_job_is_deleted_and_never_before() {
    let asked = |spec: &mut trainyard_api::TrainingJobSpec| {
        spec.checkpoint = serde_json::from_value(serde_json::json!({"deleteOnCompletion": true})).unwrap();
    };
    let mut bert = running(job("bert").with(asked));
    bert.succeed_all();
    bert.settle();
    bert.pass(3600);
    assert_eq!(
        (bert.state(), bert.claims().len()),
        (State::Completed, 1),
        "not on completion, in spite of its name"
    );
    bert.delete_job();
    bert.settle();
    assert_eq!((bert.exists(), bert.claims().len()), (false, 0));
}

#[test]
fn a_claim_that_this_job_does_not_use_is_never_deleted_with_it() {
    let others =
        ["{claimName: shared, deleteOnCompletion: true}", "{enabled: false, deleteOnCompletion: true}"];
    let specs = [
        serde_json::json!({"deleteOnCompletion": true, "storage": {"claimName": "shared"}}),
        serde_json::json!({"deleteOnCompletion": true, "enabled": false}),
    ];
    for (told, checkpoint) in others.iter().zip(specs) {
        let mut bert = job("bert")
            .with(|spec| spec.checkpoint = serde_json::from_value(checkpoint).unwrap())
            .submitted();
        // From an earlier job of this name, with its checkpoints.
        bert.add_claim(ClaimView {
            name: "bert-checkpoints".into(),
            uid: "old".into(),
            deleting: false,
            shared: true,
        });
        bert.settle();
        bert.delete_job();
        bert.settle();
        assert!(!bert.exists(), "{told}");
        assert_eq!(bert.claims().len(), 1, "{told}");
    }
}

#[test]
fn the_finalizer_waits_for_the_pods() {
    let mut bert = running(job("bert"));
    bert.pods_linger();
    bert.delete_job();
    bert.settle();
    assert_eq!((bert.exists(), bert.wakes_in()), (true, Some(300)));
    assert!(bert.pod("workers-0").deleting && bert.pod("workers-1").deleting);
    let deletes = bert.tally.deletes;
    bert.settle();
    assert_eq!(bert.tally.deletes, deletes, "asked once");
    bert.release();
    bert.settle();
    assert_eq!((bert.exists(), bert.reasons().contains(&"ReconcileFailed")), (false, false));
}

#[test]
fn pods_that_never_go_do_not_hold_the_job_for_ever() {
    let mut bert = running(job("bert"));
    bert.pods_linger();
    bert.pass(1000);
    bert.delete_job();
    bert.settle();
    assert_eq!(bert.wakes_in(), Some(300), "counted from the deletion");
    bert.sleep();
    assert!(!bert.exists());
    assert!(
        bert.event("ReconcileFailed").contains("2 pods are still there"),
        "{}",
        bert.event("ReconcileFailed")
    );
}

#[test]
fn in_every_state() {
    let stories: [(&str, Happening); 7] = [
        ("before anybody looked", |_| {}),
        ("after the first round", |bert| {
            bert.round().unwrap();
        }),
        ("initializing", Cluster::settle),
        ("restarting", |bert| {
            bert.settle();
            bert.fail("workers-0", 1);
            bert.settle();
        }),
        ("suspended", |bert| {
            bert.settle();
            bert.suspend();
            bert.settle();
        }),
        ("completed", |bert| {
            bert.settle();
            bert.succeed_all();
            bert.settle();
        }),
        ("invalid", |bert| {
            bert.edit(|spec| spec.command = Some(Vec::new()));
            bert.settle();
        }),
    ];
    for (told, story) in stories {
        let mut bert = job("bert").workers(2).submitted();
        story(&mut bert);
        let creates = bert.tally.creates;
        bert.delete_job();
        bert.settle();
        assert!(!bert.exists(), "{told}");
        assert_eq!((bert.pods().len(), bert.tally.creates), (0, creates), "{told}");
        assert_eq!(bert.tally.refused, 0, "{told}");
    }
}

#[test]
fn a_job_that_is_deleted_creates_nothing_even_without_our_finalizer() {
    let mut bert = running(job("bert"));
    let (creates, others) = (bert.tally.creates, "example.com/other".to_owned());
    bert.delete_job();
    // Somebody else's finalizer still holds it.
    bert.hold_by(&others);
    bert.settle();
    bert.pass(3600);
    bert.settle();
    assert!(bert.exists());
    assert_eq!((bert.tally.creates, bert.pods().len(), bert.wake_at()), (creates, 0, None));
}
