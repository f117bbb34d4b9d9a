//! The life of a job that nothing bad happens to, and what one reads of it on the way.

mod support;

use support::{Job, job, role};
use trainyard_api::{
    Cause, CleanPodPolicy, FailureAction, FailurePolicy, FailureRule, Phase, ProgressSpec, Role, RoleOrder,
    RoleSuccess, State, SuccessPolicy, TrainingJobSpec, WorkerCounts,
};
use trainyard_plan::StatusWrite;

#[expect(clippy::unnecessary_wraps, reason = "as it stands in the status")]
fn counts(desired: i32, active: i32, succeeded: i32, failed: i32, pending: i32) -> Option<WorkerCounts> {
    Some(WorkerCounts { desired, active, succeeded, failed, pending })
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told from its beginning to its end")]
fn from_pending_to_completed_with_every_field() {
    let mut bert = job("bert")
        .workers(2)
        .with(|spec| {
            spec.gpus_per_worker = Some(2);
            spec.hyperparameters = Some([("epochs".to_owned(), 20.into())].into());
        })
        .submitted();

    // First look: everything is created, and the status says what is going on.
    assert!(bert.round().unwrap());
    let start = bert.now;
    assert_eq!(bert.state(), State::Pending);
    assert_eq!(bert.status().phase, Some(Phase::Pending));
    assert_eq!(bert.message(), "creating 2 pods");
    assert_eq!(bert.status().observed_generation, Some(1));
    assert_eq!(bert.status().start_time.as_ref().unwrap().0, start);
    assert_eq!(bert.status().active_since.as_ref().unwrap().0, start);
    assert_eq!(bert.status().workers, counts(2, 0, 0, 0, 2));
    assert_eq!(bert.status().total_epochs, Some(20));
    assert_eq!(
        bert.status().selector.as_deref(),
        Some("app=trainingjob,trainingjob=bert,trainingjob.ml.example.com/role=workers")
    );
    assert_eq!(bert.attempts().len(), 1);
    assert_eq!((bert.attempts()[0].number, bert.attempts()[0].is_open()), (1, true));
    let effective = bert.status().effective.clone().unwrap();
    assert_eq!(
        (effective.num_workers, effective.world_size, effective.gpus_per_worker, effective.procs_per_worker),
        (2, 2, 2, 2)
    );
    assert_eq!((effective.backoff_limit, effective.master_port), (3, 29500));
    assert_eq!((effective.backend.as_str(), effective.framework.as_str()), ("nccl", "pytorch"));
    assert_eq!((effective.image.as_str(), effective.checkpoint), ("my/trainer:1", None));
    assert_eq!(bert.reasons(), Vec::<&str>::new());
    assert_eq!(bert.pods(), ["workers-0", "workers-1"]);
    assert_eq!(bert.services().keys().collect::<Vec<_>>(), ["bert-workers"]);
    assert_eq!(bert.config_maps().keys().collect::<Vec<_>>(), ["bert-config"]);
    assert!(bert.claims().is_empty());

    // The pods are there.
    bert.settle();
    assert_eq!(bert.state(), State::Initializing);
    assert_eq!(bert.message(), "0 of 2 pods running");
    assert_eq!(bert.condition("ResourcesCreated"), ("True", "WorkersCreated", "Created 2 worker pods"));
    assert_eq!(bert.condition("Running"), ("False", "WaitingForPods", "0 of 2 pods running"));
    assert_eq!(bert.attempts()[0].created_time.as_ref().unwrap().0, start);
    assert_eq!(bert.status().replicas, Some(2));

    // The first one runs: a detail, and it can wait.
    bert.pass(60);
    bert.run("workers-0");
    bert.settle();
    assert_eq!(bert.state(), State::Initializing);
    assert_eq!(bert.status().workers, counts(2, 1, 0, 0, 1));
    let resources = bert.status().resources.unwrap();
    assert_eq!((resources.allocated_gpus, resources.allocated_nodes), (2, 1));

    // All run.
    bert.pass(2);
    bert.run("workers-1");
    bert.settle();
    assert_eq!((bert.state(), bert.status().phase), (State::Running, Some(Phase::Running)));
    assert_eq!(bert.condition("Running"), ("True", "TrainingStarted", "All workers active"));
    assert_eq!(bert.message(), "2 workers running");
    assert_eq!(bert.status().workers, counts(2, 2, 0, 0, 0));
    let resources = bert.status().resources.unwrap();
    assert_eq!((resources.allocated_gpus, resources.allocated_nodes), (4, 2));
    assert_eq!(bert.attempts()[0].running_time.as_ref().unwrap().0, bert.now);
    assert_eq!(bert.status().start_time.as_ref().unwrap().0, start);
    let second = &bert.status().worker_statuses[1];
    assert_eq!(
        (second.worker_id, second.pod_name.as_str(), second.role.as_str(), second.restart_count),
        (1, "bert-workers-1", "workers", 0)
    );
    assert_eq!(
        (second.node_name.as_deref(), second.phase, second.status),
        (Some("node-workers-1"), Phase::Running, Phase::Running)
    );

    // One is done.
    bert.pass(8_000);
    bert.succeed("workers-1");
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    assert_eq!(bert.status().workers, counts(2, 1, 1, 0, 0));
    assert_eq!(bert.message(), "1 worker running, 1 done");

    // All are done.
    bert.pass(38);
    bert.succeed("workers-0");
    bert.settle();
    assert_eq!((bert.state(), bert.status().phase), (State::Completed, Some(Phase::Succeeded)));
    assert_eq!(
        bert.condition("Completed"),
        ("True", "TrainingCompleted", "Training job completed successfully")
    );
    assert_eq!(
        bert.condition("Running"),
        ("False", "TrainingCompleted", "Training job completed successfully")
    );
    assert_eq!(bert.status().completion_time.as_ref().unwrap().0, bert.now);
    assert_eq!(bert.status().duration.as_deref(), Some("2h 15m"));
    assert_eq!(bert.status().workers, counts(2, 0, 2, 0, 0));
    let resources = bert.status().resources.unwrap();
    assert_eq!((resources.allocated_gpus, resources.allocated_nodes), (0, 0));
    assert_eq!((bert.causes(), bert.restarts()), (vec![Cause::Succeeded], (0, 0, 0, 0)));
    assert_eq!(bert.pods(), ["workers-0", "workers-1"], "finished pods stay, so that their logs can be read");

    assert_eq!(bert.states, [State::Pending, State::Initializing, State::Running, State::Completed]);
    assert_eq!(bert.reasons(), ["Created", "WorkersCreated", "TrainingStarted", "TrainingCompleted"]);
    assert_eq!(bert.event("Created"), "TrainingJob resources created successfully");
    assert_eq!(bert.event("WorkersCreated"), "Created 2 worker pods");
    assert_eq!(bert.event("TrainingCompleted"), "Training job completed successfully");
    assert_eq!((bert.tally.repeated_events, bert.tally.refused), (0, 0));
    assert_eq!(bert.wake_at(), None, "a finished job needs nobody to look");
}

#[test]
fn a_whole_life_of_four_workers_takes_at_most_twenty_writes() {
    let mut bert = job("bert").workers(4).submitted();
    bert.settle();
    for worker in 0..4 {
        bert.run(&format!("workers-{worker}"));
        bert.settle();
    }
    for worker in 0..4 {
        bert.succeed(&format!("workers-{worker}"));
        bert.settle();
    }
    assert_eq!(bert.state(), State::Completed);
    bert.delete_job();
    bert.settle();
    assert!(!bert.exists());
    assert!(bert.tally.writes() <= 20, "{} writes: {:?}", bert.tally.writes(), bert.tally);
    assert_eq!((bert.tally.repeated_events, bert.tally.refused), (0, 0));
}

/// The budget of twenty holds for pods that change together. Counts that change long after the last write are
/// written at once: each such moment costs one status more.
#[test]
fn a_long_training_costs_one_status_more_for_each_moment_in_which_only_counts_change() {
    let mut bert = job("bert").workers(4).submitted();
    bert.settle();
    for worker in 0..4 {
        bert.pass(1);
        bert.run(&format!("workers-{worker}"));
        bert.settle();
    }
    assert_eq!(bert.state(), State::Running);
    bert.pass(3600);
    for worker in 0..4 {
        bert.pass(1);
        bert.succeed(&format!("workers-{worker}"));
        bert.settle();
    }
    bert.delete_job();
    bert.settle();
    assert!(bert.tally.writes() <= 20 + 1, "{} writes: {:?}", bert.tally.writes(), bert.tally);
}

#[test]
fn details_are_written_at_most_every_five_seconds() {
    let mut bert = job("bert").workers(4).submitted();
    bert.settle();
    let written = bert.tally.statuses;
    bert.pass(2);
    bert.run("workers-0");
    bert.settle();
    assert_eq!(bert.plan().write, StatusWrite::Not);
    assert_eq!(
        (bert.tally.statuses, bert.wakes_in()),
        (written, Some(3)),
        "two seconds after the last write"
    );
    bert.pass(2);
    bert.run("workers-1");
    bert.settle();
    assert_eq!((bert.tally.statuses, bert.wakes_in()), (written, Some(1)));
    bert.sleep();
    assert_eq!(bert.tally.statuses, written + 1);
    assert_eq!(bert.status().workers, counts(4, 2, 0, 0, 2));
    assert_eq!(bert.wake_at(), None);

    // What people wait for does not wait: why it does not run,
    bert.waits("workers-2", "Unschedulable", "0/3 nodes are available");
    bert.settle();
    assert_eq!((bert.condition("Running").1, bert.tally.statuses), ("Unschedulable", written + 2));
    bert.waits("workers-2", "Unschedulable", "0/4 nodes are available");
    bert.settle();
    assert_eq!(bert.tally.statuses, written + 2, "other words for the same reason are a detail");
    // and that it does.
    bert.run_all();
    bert.settle();
    assert_eq!((bert.state(), bert.tally.statuses), (State::Running, written + 3));
    // Nor does a change of the spec, even one that changes nothing else.
    bert.edit(|spec| spec.ttl_seconds_after_finished = Some(60));
    bert.settle();
    assert_eq!((bert.status().observed_generation, bert.tally.statuses), (Some(2), written + 4));
}

#[test]
fn a_quiet_job_causes_no_calls_at_all() {
    let mut bert = job("bert").workers(4).checkpoints().submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.pass(10);
    let before = bert.tally;
    bert.pass(24 * 3600);
    bert.settle();
    assert_eq!((bert.tally, bert.wake_at()), (before, None));
}

#[test]
fn a_job_that_is_done_before_anybody_looks_still_tells_its_story() {
    let mut bert = job("bert").workers(2).submitted();
    bert.round().unwrap();
    bert.succeed_all();
    bert.settle();
    assert_eq!(bert.states, [State::Pending, State::Completed]);
    assert_eq!(bert.reasons(), ["Created", "WorkersCreated", "TrainingCompleted"]);
    assert_eq!(bert.condition("ResourcesCreated").0, "True");
}

#[test]
fn what_holds_pods_up_is_said_in_the_clusters_own_words() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settle();
    bert.waits("workers-0", "ContainerCreating", "");
    bert.waits("workers-1", "Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.");
    bert.pass(10);
    bert.settle();
    assert_eq!(bert.state(), State::Initializing);
    let (status, reason, message) = bert.condition("Running");
    assert_eq!((status, reason), ("False", "Unschedulable"));
    assert!(message.contains("bert-workers-1: Unschedulable: 0/3 nodes are available"), "{message}");
    assert!(bert.message().contains("0 of 2 pods running; bert-workers-1"), "{}", bert.message());
    let told = bert.status().worker_statuses[1].message.as_deref().unwrap();
    assert!(told.starts_with("Unschedulable: 0/3 nodes"), "{told}");
}

#[test]
fn a_container_that_is_being_created_for_a_reason_holds_its_job_up() {
    let mut bert = job("bert").workers(1).submitted();
    bert.settle();
    let why = "MountVolume.SetUp failed for volume \"m\" : configmap \"nope\" not found";
    bert.waits("workers-0", "ContainerCreating", why);
    bert.pass(10);
    bert.settle();
    let (status, reason, message) = bert.condition("Running");
    assert_eq!((status, reason), ("False", "ContainerCreating"));
    assert!(message.contains(why), "{message}");
    assert!(bert.message().contains(why), "{}", bert.message());
}

#[test]
fn terminal_states_are_final() {
    for failed in [false, true] {
        let mut bert = job("bert").workers(2).backoff_limit(0).submitted();
        bert.settle();
        bert.run_all();
        bert.settle();
        if failed {
            bert.fail("workers-0", 1);
        } else {
            bert.succeed_all();
        }
        bert.settle();
        let end = bert.status().clone();
        assert!(end.is_terminal());
        let (events, creates) = (bert.events.len(), bert.tally.creates);
        let happenings: [support::Happening; 6] = [
            |bert| bert.suspend(),
            |bert| bert.resume(),
            |bert| bert.scale(5),
            |bert| bert.edit(|spec| spec.image = Some("my/trainer:2".into())),
            |bert| bert.delete_service(),
            |bert| bert.remove_pod("workers-0"),
        ];
        for happening in happenings {
            happening(&mut bert);
            bert.pass(3600);
            bert.settle();
            assert_eq!(bert.state(), end.state.unwrap());
        }
        let now = bert.status();
        assert_eq!(
            (&now.completion_time, &now.attempts, &now.conditions),
            (&end.completion_time, &end.attempts, &end.conditions)
        );
        assert_eq!(bert.tally.creates, creates);
        // Each change of the spec is answered, since it has no effect.
        let told: Vec<_> = bert.events[events..].iter().map(|event| event.reason).collect();
        assert_eq!(told, ["SpecChanged"; 4]);
        assert!(bert.events[events].message.contains("delete the job and apply it again"));
    }
}

#[test]
fn clean_pod_policy_decides_what_stays() {
    // One worker succeeded, one failed or the role decided, one still runs.
    let left = |policy, completes: bool| {
        let decider = Role { success: Some(RoleSuccess::Decides), ..role("judge", 1) };
        let mut bert = job("bert").workers(2).role(decider).backoff_limit(0).clean_pods(policy).submitted();
        bert.settle();
        bert.run_all();
        bert.settle();
        bert.succeed("workers-0");
        bert.settle();
        if completes {
            bert.succeed("judge-0");
        } else {
            bert.fail("judge-0", 1);
        }
        bert.settle();
        assert_eq!(bert.state(), if completes { State::Completed } else { State::Failed });
        bert.pods().join(" ")
    };
    for completes in [true, false] {
        assert_eq!(left(CleanPodPolicy::Running, completes), "judge-0 workers-0");
        assert_eq!(left(CleanPodPolicy::All, completes), "");
        assert_eq!(left(CleanPodPolicy::None, completes), "judge-0 workers-0 workers-1");
    }
}

#[test]
fn a_finished_job_holds_nothing_and_says_so() {
    let mut bert =
        job("bert").workers(3).backoff_limit(0).with(|spec| spec.gpus_per_worker = Some(1)).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    assert_eq!(bert.status().resources.unwrap().allocated_gpus, 3);
    bert.fail("workers-1", 1);
    bert.settle();
    assert_eq!((bert.state(), bert.pods()), (State::Failed, vec!["workers-1".to_owned()]));
    let resources = bert.status().resources.unwrap();
    assert_eq!((resources.allocated_gpus, resources.allocated_nodes), (0, 0), "no GPU is held after the end");
    assert_eq!(bert.status().workers, counts(3, 0, 0, 1, 0), "nobody is active any more");
    let phases: Vec<Phase> = bert.status().worker_statuses.iter().map(|worker| worker.phase).collect();
    assert_eq!(phases, [Phase::Failed], "only those that ended by themselves are left to tell of");

    // Pods that may go on are still told of, until they end.
    let mut free = job("free")
        .workers(2)
        .backoff_limit(0)
        .with(|spec| spec.gpus_per_worker = Some(1))
        .clean_pods(CleanPodPolicy::None)
        .submitted();
    free.settle();
    free.run_all();
    free.settle();
    free.fail("workers-0", 1);
    free.settle();
    assert_eq!(free.status().workers, counts(2, 1, 0, 1, 0));
    assert_eq!(free.status().resources.unwrap().allocated_gpus, 1);
    free.pass(60);
    free.succeed("workers-1");
    free.settle();
    assert_eq!(free.status().workers, counts(2, 0, 1, 1, 0));
    assert_eq!((free.state(), free.status().resources.unwrap().allocated_gpus), (State::Failed, 0));
}

#[test]
fn a_succeeded_pod_that_somebody_cleaned_away_has_still_succeeded() {
    let mut bert = job("bert").workers(3).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.pass(60);
    bert.succeed("workers-2");
    bert.settle();
    bert.remove_pod("workers-2");
    bert.settle();
    assert_eq!((bert.state(), bert.restarts()), (State::Running, (0, 0, 0, 0)));
    assert_eq!(bert.status().workers, counts(3, 2, 1, 0, 0));
    assert_eq!(bert.pods(), ["workers-0", "workers-1"]);
    bert.pass(60);
    bert.succeed_all();
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
    assert_eq!(bert.status().workers, counts(3, 0, 3, 0, 0));
}

#[test]
fn a_job_of_somebody_elses_controller_is_left_alone() {
    let mut kueue =
        job("bert").with(|spec| spec.managed_by = Some("kueue.x-k8s.io/multikueue".into())).submitted();
    kueue.settle();
    assert_eq!((kueue.tally.writes(), kueue.job().status.clone(), kueue.wake_at()), (0, None, None));
    kueue.delete_job();
    kueue.settle();
    assert_eq!(kueue.tally.writes(), 0);

    let mut ours = job("bert")
        .with(|spec| spec.managed_by = Some("trainingjob.ml.example.com/trainyard".into()))
        .submitted();
    ours.settle();
    assert_eq!(ours.state(), State::Initializing);
}

#[test]
fn a_status_that_somebody_removed_comes_back() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    // Two attempts, so that there is a number to find again.
    bert.delete_pod("workers-0");
    bert.settle();
    bert.run_all();
    bert.settle();
    let before = bert.status().clone();
    assert_eq!((before.attempts.len(), bert.state()), (2, State::Running));

    bert.remove_status();
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    assert_eq!(bert.attempts().len(), 1);
    assert_eq!(bert.attempts()[0].number, 2, "the pods know which attempt they are of");
    assert_eq!(bert.status().workers, before.workers);
    assert_eq!(bert.status().effective, before.effective);
    assert_eq!(bert.condition("Running").0, "True");
    assert_eq!(
        bert.tally.creates,
        2 + 2 + 2,
        "nothing is created anew: service, config map, and twice two pods"
    );
    bert.succeed_all();
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
}

#[test]
fn what_somebody_edits_or_deletes_is_put_back_without_a_restart() {
    let mut bert = job("bert").workers(2).checkpoints().submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    let service = bert.services()["bert-workers"].fingerprint;
    let config = bert.config_maps()["bert-config"].fingerprint;
    bert.change_service(|view| view.fingerprint = 1);
    bert.change_config_map(|view| view.fingerprint = 2);
    bert.settle();
    assert_eq!(bert.services()["bert-workers"].fingerprint, service);
    assert_eq!(bert.config_maps()["bert-config"].fingerprint, config);

    bert.delete_service();
    bert.delete_config_map();
    bert.remove_claim();
    bert.settle();
    assert_eq!(bert.services()["bert-workers"].fingerprint, service);
    assert_eq!(bert.config_maps()["bert-config"].fingerprint, config);
    assert!(bert.claims().contains_key("bert-checkpoints"));

    // One that is on its way out is waited for.
    bert.change_service(|view| view.deleting = true);
    bert.settle();
    assert!(bert.services()["bert-workers"].deleting);
    bert.delete_service();
    bert.settle();
    assert!(!bert.services()["bert-workers"].deleting);
    assert_eq!((bert.state(), bert.restarts(), bert.pods().len()), (State::Running, (0, 0, 0, 0), 2));
}

#[test]
fn an_invalid_spec_fails_and_is_looked_at_again_when_it_changes() {
    let mut bert = job("bert").with(|spec| spec.image = None).submitted();
    bert.settle();
    assert_eq!((bert.state(), bert.status().phase), (State::Failed, Some(Phase::Failed)));
    let (status, reason, message) = bert.condition("Failed");
    assert_eq!((status, reason), ("True", "InvalidSpec"));
    assert_eq!(message, "spec: give image, or both model and dataset");
    assert_eq!((bert.reasons(), bert.tally.creates), (vec!["InvalidSpec"], 0));
    assert_eq!(bert.wake_at(), None);

    // Still wrong, in another way: said again.
    bert.edit(|spec| {
        spec.image = Some("x".into());
        spec.command = Some(Vec::new());
    });
    bert.settle();
    assert!(bert.condition("Failed").2.contains("spec.command"), "{}", bert.condition("Failed").2);
    assert_eq!((bert.count("InvalidSpec"), bert.status().observed_generation), (2, Some(2)));

    bert.edit(|spec| spec.command = None);
    bert.settle();
    assert_eq!(bert.state(), State::Initializing);
    assert_eq!(bert.condition("Failed"), ("False", "SpecChanged", "The spec is valid now"));
    assert_eq!((bert.status().completion_time.clone(), bert.status().duration.clone()), (None, None));
    bert.run_all();
    bert.settle();
    assert_eq!(bert.states, [State::Failed, State::Pending, State::Initializing, State::Running]);
}

#[test]
fn a_running_job_whose_spec_becomes_invalid_stops_and_starts_again_when_mended() {
    let mut bert = job("bert").workers(2).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    bert.edit(|spec| spec.backoff_limit = Some(-1));
    bert.settle();
    assert_eq!((bert.state(), bert.causes()), (State::Failed, vec![Cause::InvalidSpec]));
    assert_eq!(bert.pods(), Vec::<String>::new());
    bert.edit(|spec| spec.backoff_limit = Some(1));
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().last().unwrap().number), (State::Initializing, 2));
    assert_eq!(bert.restarts(), (0, 0, 0, 0), "that was no failure of the program");
}

#[test]
fn two_jobs_of_one_shape_get_the_same_names() {
    let names = || {
        let mut bert = job("bert").workers(3).role(role("eval", 2)).checkpoints().submitted();
        bert.settle();
        bert.created.iter().map(|object| object.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(), names());
}

#[test]
fn the_pages_manifests_run_to_completion() {
    for manifest in [
        include_str!("manifests/lab-pytorch-mnist.yaml"),
        include_str!("manifests/lecture-mnist-training.yaml"),
        include_str!("manifests/guide-test-job.yaml"),
    ] {
        let mut cluster = Job::manifest(manifest).submitted();
        cluster.settle();
        cluster.run_all();
        cluster.settle();
        cluster.succeed_all();
        cluster.settle();
        assert_eq!(cluster.states, [State::Pending, State::Initializing, State::Running, State::Completed]);
    }
}

#[test]
fn roles_start_in_their_order() {
    let before = Role { order: Some(RoleOrder::BeforeWorkers), ..role("store", 2) };
    let after = Role { order: Some(RoleOrder::AfterWorkers), ..role("eval", 1) };
    let mut bert = job("bert").workers(2).role(after).role(before).submitted();
    bert.settle();
    assert_eq!(bert.pods(), ["store-0", "store-1"]);
    assert_eq!(bert.state(), State::Initializing);
    bert.run("store-0");
    bert.settle();
    assert_eq!(bert.pods(), ["store-0", "store-1"], "all of them must run");
    bert.run("store-1");
    bert.settle();
    assert_eq!(bert.pods(), ["store-0", "store-1", "workers-0", "workers-1"]);
    bert.run("workers-0");
    bert.settle();
    assert_eq!(bert.pods().len(), 4);
    bert.run("workers-1");
    bert.settle();
    assert_eq!(bert.pods(), ["eval-0", "store-0", "store-1", "workers-0", "workers-1"]);
    // Nobody waits for a role that is ignored.
    assert_eq!(bert.state(), State::Running);
    assert_eq!(bert.status().workers, counts(2, 2, 0, 0, 0), "only pods with a rank are workers");
    assert_eq!(bert.status().worker_statuses.len(), 5);
    bert.succeed("workers-0");
    bert.succeed("workers-1");
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
    assert_eq!(bert.pods(), ["workers-0", "workers-1"], "those that still ran are removed");
    assert_eq!((bert.count("WorkersCreated"), bert.count("TrainingStarted")), (1, 1));
}

#[test]
fn a_role_that_prepares_and_ends_lets_the_workers_begin() {
    let before = Role { order: Some(RoleOrder::BeforeWorkers), ..role("prepare", 1) };
    let mut bert = job("bert").workers(1).role(before).submitted();
    bert.settle();
    bert.succeed("prepare-0");
    bert.settle();
    assert_eq!(bert.pods(), ["prepare-0", "workers-0"]);
    bert.remove_pod("prepare-0");
    bert.run("workers-0");
    bert.settle();
    bert.succeed("workers-0");
    bert.settle();
    assert_eq!((bert.state(), bert.restarts()), (State::Completed, (0, 0, 0, 0)));
}

#[test]
fn success_is_what_the_roles_say() {
    // (success of the role, who succeeds, what becomes of the job)
    let table = [
        (RoleSuccess::Ignored, "workers-0 workers-1", State::Completed),
        (RoleSuccess::Ignored, "eval-0", State::Running),
        (RoleSuccess::Required, "workers-0 workers-1", State::Running),
        (RoleSuccess::Required, "workers-0 workers-1 eval-0", State::Completed),
        (RoleSuccess::Decides, "workers-0 workers-1", State::Running),
        (RoleSuccess::Decides, "eval-0", State::Completed),
    ];
    for (success, succeed, state) in table {
        let mut bert =
            job("bert").workers(2).role(Role { success: Some(success), ..role("eval", 1) }).submitted();
        bert.settle();
        bert.run_all();
        bert.settle();
        for pod in succeed.split(' ') {
            bert.succeed(pod);
            bert.settle();
        }
        assert_eq!(bert.state(), state, "{success:?}, when {succeed} succeed");
    }
}

#[test]
fn a_ranked_role_leads_and_counts_as_a_worker() {
    let master = Role { ranked: Some(true), ..role("master", 1) };
    let mut bert = job("bert").workers(2).role(master).submitted();
    bert.settle();
    assert_eq!(bert.event("WorkersCreated"), "Created 3 worker pods");
    bert.run_all();
    bert.settle();
    assert_eq!(bert.status().workers, counts(3, 3, 0, 0, 0));
    assert_eq!(bert.status().replicas, Some(2), "scale sets the workers only");
    bert.succeed("workers-0");
    bert.succeed("workers-1");
    bert.settle();
    assert_eq!(bert.state(), State::Running, "a ranked role is required");
    bert.succeed("master-0");
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
}

#[test]
fn progress_is_told_every_five_seconds_and_ends_at_all() {
    use trainyard_progress::Progress;
    let reading = |text: &str| trainyard_progress::read(text).unwrap();
    let mut bert = job("bert").workers(2).submitted();
    bert.settle();
    bert.run_all();
    bert.settle();
    let mut progress = Progress::default();
    progress.take(reading(r#"{"epoch": 1, "epochs": 4, "loss": 0.9}"#), bert.now);
    bert.progress = Some(progress.clone());
    let before = bert.tally.statuses;
    bert.pass(10);
    bert.settle();
    assert_eq!(bert.tally.statuses, before + 1);
    let status = bert.status().clone();
    assert_eq!((status.progress.as_deref(), status.current_epoch), (Some("25%"), Some(1)));
    assert_eq!((status.total_epochs, status.estimated_completion), (Some(4), None));
    assert_eq!(status.metrics.get("loss"), Some(&0.9));

    // Two readings within five seconds make one status.
    for (second, epoch) in [(1, 2), (1, 3)] {
        bert.pass(second);
        progress.take(reading(&format!(r#"{{"epoch": {epoch}, "loss": 0.5}}"#)), bert.now);
        bert.progress = Some(progress.clone());
        bert.settle();
    }
    assert_eq!(bert.tally.statuses, before + 1, "too early");
    bert.sleep();
    assert_eq!(bert.tally.statuses, before + 2);
    let status = bert.status().clone();
    assert_eq!((status.progress.as_deref(), status.current_epoch), (Some("75%"), Some(3)));
    assert!(status.estimated_completion.is_some() && status.duration.is_some());

    // A restart keeps the last word until there is news; nobody can say when it ends.
    bert.progress = None;
    bert.fail("workers-1", 1);
    bert.settle();
    let status = bert.status().clone();
    assert_eq!((status.progress.as_deref(), status.estimated_completion), (Some("75%"), None));
    while bert.state() == State::Restarting {
        bert.sleep();
    }
    bert.run_all();
    bert.settle();
    bert.succeed_all();
    bert.settle();
    let status = bert.status();
    assert_eq!((status.state, status.progress.as_deref()), (Some(State::Completed), Some("100%")));
    assert_eq!(status.metrics.get("loss"), Some(&0.5));
}

#[test]
fn how_far_it_was_at_the_end_is_what_it_said_or_what_its_policy_tells() {
    let ended = |epoch: i32, policy: Option<SuccessPolicy>, ignores: bool| {
        let rule = FailureRule {
            exit_codes: Some(vec![3]),
            reasons: None,
            log_pattern: None,
            action: FailureAction::Ignore,
        };
        let mut bert = job("bert")
            .workers(2)
            .with(|spec| {
                spec.success_policy = policy;
                spec.failure_policy =
                    Some(Box::new(FailurePolicy { restart_scope: None, rules: Some(vec![rule]) }));
            })
            .running();
        let mut progress = trainyard_progress::Progress::default();
        let said = format!(r#"{{"epoch": {epoch}, "epochs": 4}}"#);
        progress.take(trainyard_progress::read(&said).unwrap(), bert.now);
        bert.progress = Some(progress);
        bert.settle();
        if ignores {
            bert.fail("workers-1", 3);
            bert.settle();
        }
        bert.succeed("workers-0");
        bert.settle();
        if !ignores && policy.is_none() {
            bert.succeed("workers-1");
            bert.settle();
        }
        assert_eq!(bert.state(), State::Completed);
        bert.status().progress.clone().unwrap_or_default()
    };
    assert_eq!(ended(3, None, false), "100%", "all have succeeded");
    assert_eq!(ended(4, None, true), "100%", "it says so");
    assert_eq!(ended(3, None, true), "75%");
    assert_eq!(ended(1, Some(SuccessPolicy::AnyWorker), false), "25%", "one was enough");
    assert_eq!(ended(3, Some(SuccessPolicy::Leader), false), "100%");
}

#[test]
fn a_number_of_epochs_that_is_taken_out_of_the_spec_is_not_told_any_more() {
    let number = |total| {
        move |spec: &mut TrainingJobSpec| {
            spec.progress = Some(Box::new(ProgressSpec { total_epochs: total, ..Default::default() }));
        }
    };
    let mut bert = job("bert").with(number(Some(12))).submitted();
    bert.settle();
    assert_eq!(bert.status().total_epochs, Some(12));
    bert.edit(number(None));
    bert.settle();
    assert_eq!(bert.status().total_epochs, None);

    // What the program itself told is kept, whoever looks next.
    bert.run_all();
    bert.settle();
    let mut progress = trainyard_progress::Progress::default();
    progress.take(trainyard_progress::read(r#"{"epoch": 1, "epochs": 4}"#).unwrap(), bert.now);
    bert.progress = Some(progress);
    bert.pass(10);
    bert.settle();
    bert.progress = None;
    bert.edit(|spec| spec.backoff_limit = Some(9));
    bert.settle();
    assert_eq!(bert.status().total_epochs, Some(4));
}
