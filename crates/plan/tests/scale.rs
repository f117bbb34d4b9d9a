//! Changes of the spec: another number of pods, other pods, other policies.

mod support;

use serde_json::json;
use support::{Cluster, job, role};
use trainyard_api::{Cause, Role, State, TrainingJobSpec};
use trainyard_plan::Step;

type Change = fn(&mut TrainingJobSpec);

fn running(workers: i32) -> Cluster {
    let mut cluster = job("bert").workers(workers).submitted().prompt();
    cluster.settle();
    cluster.run_all();
    cluster.settle();
    assert_eq!(cluster.state(), State::Running);
    cluster
}

#[test]
fn from_two_to_four_to_one() {
    let mut bert = running(2);
    bert.scale(4);
    bert.settle();
    assert_eq!((bert.state(), bert.restarts()), (State::Initializing, (0, 0, 1, 0)));
    assert_eq!(bert.pods(), ["workers-0", "workers-1", "workers-2", "workers-3"]);
    assert_eq!(bert.event("Rescaled"), "rescaled from workers=2 to workers=4");
    assert_eq!(
        bert.pod("workers-0").attempt,
        Some(2),
        "the old ones are replaced: their world has another size"
    );
    assert_eq!(bert.status().workers.unwrap().desired, 4);
    bert.run_all();
    bert.settle();
    assert_eq!(bert.state(), State::Running);

    bert.scale(1);
    bert.settle();
    assert_eq!((bert.pods(), bert.restarts()), (vec!["workers-0".to_owned()], (0, 0, 2, 0)));
    bert.run_all();
    bert.settle();
    bert.succeed_all();
    bert.settle();
    assert_eq!((bert.state(), bert.count("Rescaled"), bert.count("WorkerFailed")), (State::Completed, 2, 0));
    assert_eq!(bert.causes(), [Cause::Rescale, Cause::Rescale, Cause::Succeeded]);
    assert!(bert.states.windows(2).any(|pair| pair == [State::Running, State::Restarting]));
}

#[test]
fn who_was_done_before_it_was_made_larger_is_done() {
    let mut bert = running(2);
    bert.succeed_all();
    bert.scale(4);
    bert.settle();
    assert_eq!((bert.state(), bert.causes()), (State::Completed, vec![Cause::Succeeded]));

    let mut bert = running(2);
    bert.succeed("workers-0");
    bert.scale(4);
    bert.settle();
    assert_eq!((bert.pods().len(), bert.causes()), (4, vec![Cause::Rescale]), "half of it is not all");
}

#[test]
fn before_an_attempt_begins_all_pods_of_the_one_before_must_be_gone() {
    let mut bert = running(4);
    assert_eq!(bert.attempts()[0].world.as_deref(), Some("workers=4"));
    bert.pods_linger();
    bert.scale(2);
    bert.settle();
    assert!(bert.plan().gone.is_empty(), "they are still seen");
    bert.release();
    let plan = bert.plan();
    assert!(plan.steps().any(|step| matches!(step, Step::Create(_))), "the next attempt begins");
    let names: Vec<String> = (0..4).map(|index| format!("bert-workers-{index}")).collect();
    assert_eq!(plan.gone, names, "also those that there will be no more: one may only be out of sight");
    bert.settle();
    assert!(bert.plan().gone.is_empty(), "it has begun");
}

#[test]
fn the_labs_other_name_scales_too() {
    let mut bert = job("bert").with(|spec| spec.workers = Some(2)).submitted().prompt();
    bert.settle();
    bert.edit(|spec| spec.workers = Some(3));
    bert.settle();
    assert_eq!((bert.pods().len(), bert.restarts()), (3, (0, 0, 1, 0)));
}

#[test]
fn a_rescale_while_pods_go_is_not_lost() {
    let mut bert = running(2);
    bert.pods_linger();
    bert.scale(4);
    bert.settle();
    assert_eq!(bert.state(), State::Restarting);
    bert.scale(3);
    bert.settle();
    bert.release();
    bert.settle();
    assert_eq!((bert.pods().len(), bert.restarts().2), (3, 1));
}

#[test]
fn a_change_to_what_pods_are_made_of_restarts_uncounted() {
    let changes: [(&str, Change); 8] = [
        ("image", |spec| spec.image = Some("my/trainer:2".into())),
        ("command", |spec| spec.command = Some(vec!["train".into()])),
        ("args", |spec| spec.args = Some(vec!["--fast".into()])),
        ("hyperparameters", |spec| spec.hyperparameters = Some([("lr".to_owned(), 0.1.into())].into())),
        ("resources", |spec| {
            spec.resources = serde_json::from_value(serde_json::json!({"limits": {"cpu": 1}})).unwrap();
        }),
        ("template", |spec| spec.template = Some(serde_json::json!({"spec": {"priorityClassName": "high"}}))),
        ("networking", |spec| {
            spec.networking = serde_json::from_value(serde_json::json!({"masterPort": 3000})).unwrap();
        }),
        ("checkpointDir", |spec| spec.checkpoint_dir = Some("/c".into())),
    ];
    for (what, change) in changes {
        let mut bert = running(2);
        bert.edit(change);
        bert.settle();
        assert_eq!((bert.state(), bert.restarts()), (State::Initializing, (0, 0, 0, 1)), "{what}");
        assert_eq!((bert.causes(), bert.count("SpecChanged")), (vec![Cause::Update], 1), "{what}");
        assert_eq!(bert.pod("workers-0").attempt, Some(2), "{what}");
        bert.run_all();
        bert.settle();
        assert_eq!(bert.state(), State::Running, "{what}");
    }
}

#[test]
fn the_service_and_the_config_map_follow_the_spec_before_the_new_pods() {
    let mut bert = running(1);
    let (service, config) =
        (bert.services()["bert-workers"].fingerprint, bert.config_maps()["bert-config"].fingerprint);
    bert.edit(|spec| {
        spec.networking = serde_json::from_value(serde_json::json!({"masterPort": 3000})).unwrap();
    });
    bert.settle();
    assert_ne!(bert.services()["bert-workers"].fingerprint, service);
    assert_ne!(bert.config_maps()["bert-config"].fingerprint, config);
    assert_eq!(bert.tally.patches, 1 + 2, "the finalizer, and each of the two once");
}

#[test]
fn policies_change_without_a_restart() {
    let parsed = serde_json::from_value::<TrainingJobSpec>;
    let changes = [
        json!({"backoffLimit": 9}),
        json!({"restartPolicy": "Never"}),
        json!({"failurePolicy": {"restartScope": "Worker"}}),
        json!({"failurePolicy": {"rules": [{"exitCodes": [3], "action": "Ignore"}]}}),
        json!({"failurePolicy": null}),
        json!({"successPolicy": "AnyWorker"}),
        json!({"successPolicy": "Leader"}),
        json!({"cleanPodPolicy": "All"}),
        json!({"activeDeadlineSeconds": 3600}),
        json!({"startupTimeoutSeconds": 60}),
        json!({"stallTimeoutSeconds": 60}),
        json!({"ttlSecondsAfterFinished": 60}),
        json!({"stallTimeoutSeconds": null, "progress": {"source": "None"}}),
        json!({"progress": {"source": "Logs", "totalEpochs": 7}}),
        json!({"checkpoint": {"keepLast": 7}}),
        json!({"checkpoint": {"holdEvictions": true}}),
        json!({"checkpoint": {"deleteOnCompletion": true}}),
        // What the next attempt begins with.
        json!({"checkpoint": {"resume": "Never", "layout": "torch"}}),
        json!({"checkpoint": null}),
        json!({"suspend": false}),
        // The other name of the same number is no change either.
        json!({"numWorkers": null, "workers": 2}),
    ];
    let job = job("bert").workers(2).with(|spec| spec.checkpoint_dir = Some("/checkpoints".into()));
    let mut bert = job.submitted().prompt();
    bert.settle();
    bert.run_all();
    bert.settle();
    for (generation, change) in (2..).zip(changes) {
        bert.edit(|spec| {
            let mut whole = serde_json::to_value(&*spec).unwrap();
            whole.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            *spec = parsed(whole).unwrap();
        });
        bert.settle();
        assert_eq!(bert.state(), State::Running, "{change}");
        assert_eq!((bert.restarts(), bert.attempts().len()), ((0, 0, 0, 0), 1), "{change}");
        assert_eq!(bert.status().observed_generation, Some(generation), "{change}");
    }
    assert_eq!(bert.status().effective.as_ref().unwrap().backoff_limit, 9);
}

#[test]
fn the_part_of_a_role_may_change_without_a_restart_and_its_size_rescales() {
    let mut bert = job("bert").workers(1).role(role("eval", 1)).submitted().prompt();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.edit(|spec| spec.roles.as_mut().unwrap()[0].success = Some(trainyard_api::RoleSuccess::Required));
    bert.settle();
    assert_eq!((bert.state(), bert.restarts()), (State::Running, (0, 0, 0, 0)));
    bert.edit(|spec| spec.roles.as_mut().unwrap()[0].replicas = Some(2));
    bert.settle();
    assert_eq!((bert.restarts(), bert.pods().len()), ((0, 0, 1, 0), 3));
    bert.run_all();
    bert.settle();
    bert.edit(|spec| spec.roles.as_mut().unwrap().push(Role { ranked: Some(true), ..role("master", 1) }));
    bert.settle();
    assert_eq!((bert.restarts(), bert.pods().len()), ((0, 0, 1, 1), 4), "another role makes other pods");
}

#[test]
fn a_change_during_the_backoff_ends_it_and_nothing_is_restarted_for_it() {
    let mut bert = running(2);
    bert.fail("workers-0", 1);
    bert.settle();
    bert.edit(|spec| {
        spec.num_workers = Some(3);
        spec.image = Some("my/trainer:2".into());
    });
    bert.settle();
    assert_eq!((bert.state(), bert.pods().len()), (State::Initializing, 3));
    assert_eq!(bert.restarts(), (1, 0, 0, 0), "nothing had to be restarted for it");
}

#[test]
fn a_change_while_the_pods_are_created_replaces_them() {
    let mut bert = job("bert").workers(2).submitted().prompt();
    bert.round().unwrap();
    bert.edit(|spec| spec.image = Some("my/trainer:2".into()));
    bert.settle();
    assert_eq!((bert.restarts(), bert.attempts().len()), ((0, 0, 0, 1), 2));
    assert_eq!(bert.pods().len(), 2);
}

#[test]
fn a_claim_for_one_pod_that_several_must_share_is_told() {
    let mut bert =
        job("bert").workers(1).with(|spec| spec.checkpoint_dir = Some("/c".into())).submitted().prompt();
    bert.settle();
    bert.run_all();
    bert.settle();
    let told = |cluster: &Cluster| cluster.status().condition("ResourcesCreated").unwrap().message.clone();
    assert_eq!(told(&bert), "Created 1 worker pod");
    bert.scale(3);
    bert.settle();
    assert!(told(&bert).contains("claim bert-checkpoints is not ReadWriteMany"), "{}", told(&bert));
}
