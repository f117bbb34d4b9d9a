//! The planner against everything that could be there: it never panics, never breaks a rule of the house, and always
//! comes to rest when the world obeys it.

mod support;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::prelude::*;
use proptest::sample::select;
use support::{Cluster, cases, job};
use trainyard_api::{
    Attempt, Cause, Checkpoint, CleanPodPolicy, Phase, RestartPolicy, Restarts, Role, RoleOrder, RoleSuccess,
    State, TrainingJobSpec, TrainingJobStatus, WorkerStatus, names,
};
use trainyard_plan::{
    ClaimView, Company, Disruption, Exit, NewObject, ObjectView, Obstacle, ObstacleKind, PodPhase, PodView,
    Settings, Snapshot, Waiting,
};

const UID: &str = "uid-of-bert";

fn dawn() -> Timestamp {
    "2026-03-01T09:00:00Z".parse().expect("a time")
}

/// Mostly near the beginning of the story, sometimes at the ends of time. In whole seconds, as statuses have them.
fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        20 => (-2000i64..2000).prop_map(|seconds| dawn() + SignedDuration::from_secs(seconds)),
        // Go's zero time is the earliest that Kubernetes writes.
        1 => Just("0001-01-01T00:00:00Z".parse().expect("a time")),
        1 => Just(Timestamp::from_second(Timestamp::MAX.as_second()).expect("a time")),
    ]
}

fn moment() -> impl Strategy<Value = Option<Time>> {
    proptest::option::of(time().prop_map(Time))
}

fn small_or_any() -> impl Strategy<Value = i32> {
    prop_oneof![12 => 0i32..5, 1 => any::<i32>(), 1 => Just(i32::MAX)]
}

fn seconds() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![3 => Just(None), 3 => (0i64..300).prop_map(Some), 1 => any::<i64>().prop_map(Some)]
}

fn role() -> impl Strategy<Value = Role> {
    (
        select(vec!["master", "ps", "eval", "workers", "Bad Name", ""]),
        proptest::option::of(small_or_any()),
        proptest::option::of(any::<bool>()),
        proptest::option::of(select(vec![
            RoleOrder::BeforeWorkers,
            RoleOrder::WithWorkers,
            RoleOrder::AfterWorkers,
        ])),
        proptest::option::of(select(vec![RoleSuccess::Ignored, RoleSuccess::Required, RoleSuccess::Decides])),
        proptest::option::of(0..3),
    )
        .prop_map(|(name, replicas, ranked, order, success, gpus_per_replica)| Role {
            name: name.into(),
            replicas,
            ranked,
            order,
            success,
            gpus_per_replica,
            ..Default::default()
        })
}

fn spec() -> impl Strategy<Value = TrainingJobSpec> {
    let numbers = (
        proptest::option::of(small_or_any()),
        prop_oneof![9 => Just(None), 1 => small_or_any().prop_map(Some)],
        proptest::option::of(small_or_any()),
        seconds(),
        seconds(),
        seconds(),
    );
    let words = (
        prop_oneof![8 => Just(Some("my/trainer:1".to_owned())), 1 => Just(None), 1 => Just(Some(String::new()))],
        proptest::option::of(select(vec![
            RestartPolicy::OnFailure,
            RestartPolicy::Never,
            RestartPolicy::ExitCode,
        ])),
        proptest::option::of(select(vec![
            CleanPodPolicy::Running,
            CleanPodPolicy::All,
            CleanPodPolicy::None,
        ])),
        proptest::option::of(any::<bool>()),
        prop_oneof![20 => Just(None), 1 => Just(Some("somebody".to_owned()))],
        proptest::option::of((any::<Option<bool>>(), any::<Option<bool>>())),
    );
    (numbers, words, proptest::collection::vec(role(), 0..3)).prop_map(|(numbers, words, roles)| {
        let (num_workers, workers, backoff_limit, active, startup, ttl) = numbers;
        let (image, restart_policy, clean_pod_policy, suspend, managed_by, checkpoint) = words;
        TrainingJobSpec {
            num_workers,
            workers,
            backoff_limit,
            active_deadline_seconds: active,
            startup_timeout_seconds: startup,
            ttl_seconds_after_finished: ttl,
            image,
            restart_policy,
            clean_pod_policy,
            suspend,
            managed_by,
            checkpoint: checkpoint.map(|(enabled, delete_on_completion)| {
                Box::new(Checkpoint { enabled, delete_on_completion, ..Default::default() })
            }),
            roles: (!roles.is_empty()).then_some(roles),
            ..Default::default()
        }
    })
}

const CAUSES: [Cause; 11] = [
    Cause::Succeeded,
    Cause::Application,
    Cause::OutOfMemory,
    Cause::Disruption,
    Cause::Rescale,
    Cause::Update,
    Cause::Suspend,
    Cause::Deadline,
    Cause::StartupTimeout,
    Cause::InvalidSpec,
    Cause::Unknown,
];

fn attempt() -> impl Strategy<Value = Attempt> {
    (small_or_any(), moment(), moment(), moment(), moment(), proptest::option::of(select(CAUSES.to_vec())))
        .prop_map(|(number, start_time, created_time, running_time, end_time, cause)| Attempt {
            created_time,
            running_time,
            end_time,
            cause,
            start_time,
            ..Attempt::begun(number, "workers=2".into(), None, Time(dawn()))
        })
}

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    let kinds = vec!["ResourcesCreated", "Running", "Restarting", "Suspended", "Completed", "Failed"];
    let reasons = vec!["InvalidSpec", "QuotaExceeded", "NameConflict", "WorkersCreated", "Whatever"];
    proptest::sample::subsequence(kinds, 0..6).prop_flat_map(move |kinds| {
        let count = kinds.len();
        let parts = (any::<bool>(), select(reasons.clone()), time());
        proptest::collection::vec(parts, count..=count).prop_map(move |parts| {
            let one = |(kind, (holds, reason, at)): (&&str, &(bool, &str, Timestamp))| Condition {
                type_: (*kind).into(),
                status: if *holds { "True" } else { "False" }.into(),
                reason: (*reason).into(),
                message: String::new(),
                last_transition_time: Time(*at),
                observed_generation: Some(1),
            };
            kinds.iter().zip(&parts).map(one).collect()
        })
    })
}

fn worker() -> impl Strategy<Value = WorkerStatus> {
    (pod_name(), select(vec![Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed])).prop_map(
        |(pod_name, phase)| WorkerStatus {
            ignored: phase == Phase::Failed && pod_name.len() % 2 == 0,
            worker_id: 0,
            pod_name,
            role: "workers".into(),
            node_name: None,
            phase,
            status: phase,
            restart_count: 0,
            failed_uid: None,
            message: None,
        },
    )
}

fn status() -> impl Strategy<Value = TrainingJobStatus> {
    let times = (moment(), moment(), moment(), moment());
    let restarts = (small_or_any(), small_or_any(), small_or_any(), small_or_any());
    (
        proptest::option::of(select(State::ALL.to_vec())),
        times,
        proptest::option::of(restarts),
        proptest::collection::vec(attempt(), 0..4),
        conditions(),
        proptest::collection::vec(worker(), 0..4),
        proptest::option::of(select(vec![0i64, 1, 2, 9])),
    )
        .prop_map(
            |(state, times, restarts, attempts, conditions, worker_statuses, observed_generation)| {
                let (start_time, active_since, completion_time, backoff_until) = times;
                TrainingJobStatus {
                    state,
                    phase: state.map(State::phase),
                    observed_generation,
                    start_time,
                    active_since,
                    completion_time,
                    backoff_until,
                    restarts: restarts.map(|(application, disruption, rescale, update)| Restarts {
                        application,
                        disruption,
                        stall: rescale,
                        rescale,
                        update,
                        ..Restarts::default()
                    }),
                    attempts,
                    conditions,
                    worker_statuses,
                    ..Default::default()
                }
            },
        )
}

fn pod_name() -> impl Strategy<Value = String> {
    select(vec!["workers-0", "workers-1", "workers-2", "workers-7", "master-0", "ps-0", "eval-1", "notebook"])
        .prop_map(|name| format!("bert-{name}"))
}

fn owner() -> impl Strategy<Value = Option<String>> {
    prop_oneof![6 => Just(Some(UID.to_owned())), 1 => Just(Some("somebody".to_owned())), 1 => Just(None)]
}

/// A pod; with `right`, its annotations are to be made those that the spec asks for.
fn pod() -> impl Strategy<Value = (PodView, bool)> {
    let what = (
        pod_name(),
        owner(),
        proptest::option::of(prop_oneof![10 => 0i32..4, 1 => any::<i32>(), 1 => Just(i32::MAX)]),
        any::<bool>(),
        select(vec![PodPhase::Pending, PodPhase::Running, PodPhase::Succeeded, PodPhase::Failed]),
    );
    let how = (
        proptest::option::of((
            any::<i32>(),
            select(vec!["Error", "OOMKilled"]),
            proptest::option::of(time()),
        )),
        proptest::option::of(select(vec!["Unschedulable", "ContainerCreating", "ImagePullBackOff"])),
        prop_oneof![4 => Just(None), 1 => Just(Some(Box::new(evicted())))],
        proptest::option::of(select(vec!["node-1", "node-2"])),
        prop_oneof![3 => Just(true), 1 => Just(false)],
        any::<u16>(),
    );
    (what, how).prop_map(
        |((name, owner, attempt, deleting, phase), (exit, waiting, disruption, node, right, uid))| {
            let pod = PodView {
                created: None,
                untouched_since: None,
                name,
                uid: format!("pod-{uid}"),
                owner: owner.map(Into::into),
                attempt,
                inputs: None,
                shape: None,
                announced: None,
                deleting: deleting && uid % 3 == 0,
                leaves_by: None,
                phase,
                lingers: match uid % 10 {
                    0 if matches!(phase, PodPhase::Succeeded | PodPhase::Failed) => Some(Company::Others),
                    5 if matches!(phase, PodPhase::Succeeded | PodPhase::Failed) => Some(Company::Sidecars),
                    _ => None,
                },
                agent_started: false,
                node: node.map(Into::into),
                exit: exit.map(|(code, reason, at)| {
                    Box::new(Exit { code, reason: Some(reason.into()), at, ..Exit::default() })
                }),
                waiting: waiting.map(|reason| Box::new(Waiting { reason: reason.into(), message: None })),
                disruption,
            };
            (pod, right)
        },
    )
}

fn evicted() -> Disruption {
    Disruption { reasons: vec!["Evicted".to_owned()], message: "The node was low on memory".to_owned() }
}

fn object(name: &'static str) -> impl Strategy<Value = Vec<ObjectView>> {
    let object = (owner(), any::<u64>(), any::<bool>(), any::<u16>()).prop_map(
        move |(owner, fingerprint, deleting, uid)| ObjectView {
            name: name.into(),
            uid: format!("object-{uid}"),
            owner,
            fingerprint,
            deleting: deleting && uid % 3 == 0,
        },
    );
    proptest::collection::vec(object, 0..=1)
}

fn obstacle() -> impl Strategy<Value = Obstacle> {
    let kinds = vec![
        ObstacleKind::NameConflict,
        ObstacleKind::Quota,
        ObstacleKind::Forbidden,
        ObstacleKind::Invalid,
        ObstacleKind::Unguarded { taken: true },
    ];
    (select(kinds), 0i64..3, time()).prop_map(|(kind, generation, retry_at)| Obstacle {
        kind,
        object: "pod bert-workers-0".into(),
        message: "no".into(),
        generation,
        retry_at,
    })
}

#[derive(Clone, Debug)]
struct Found {
    snapshot: Snapshot,
    now: Timestamp,
}

/// Anything at all.
fn found() -> impl Strategy<Value = Found> {
    let claim = (any::<bool>(), any::<bool>()).prop_map(|(deleting, shared)| ClaimView {
        name: "bert-checkpoints".into(),
        uid: "claim".into(),
        deleting,
        shared,
    });
    let about = (
        spec(),
        proptest::option::of(status()),
        any::<bool>(),
        prop_oneof![4 => Just(None), 1 => time().prop_map(Some)],
    );
    let world = (
        proptest::collection::vec(pod(), 0..6),
        object("bert-workers"),
        object("bert-config"),
        proptest::collection::vec(claim, 0..=1),
        proptest::collection::vec(obstacle(), 0..3),
        proptest::option::of(time()),
    );
    // Now may be between two seconds, but it is never the end of time: there nothing can be put off.
    let now = time().prop_map(|at| at.min("9000-01-01T00:00:00Z".parse().expect("a time")));
    (about, world, now, 0u32..1_000_000_000).prop_map(|(job_parts, world, now, nanos)| {
        let (spec, status, finalizer, deleted) = job_parts;
        let (pods, services, config_maps, claims, obstacles, last_status_write) = world;
        let mut job = job("bert").with(|given| *given = spec).0;
        job.status = status;
        if finalizer || deleted.is_some() {
            job.metadata.finalizers = Some(vec![names::FINALIZER.into()]);
        }
        job.metadata.deletion_timestamp = deleted.map(Time);
        let right = annotations(&job.spec);
        let mut pods: Vec<PodView> = pods
            .into_iter()
            .map(|(pod, is_right)| {
                let (inputs, shape) = right.clone().filter(|_| is_right).unzip();
                PodView { inputs: inputs.map(Into::into), shape: shape.map(Into::into), ..pod }
            })
            .collect();
        pods.sort_by(|left, right| left.name.cmp(&right.name));
        pods.dedup_by(|left, right| left.name == right.name);
        let snapshot = Snapshot {
            job: job.into(),
            pods,
            services,
            config_maps,
            claims,
            vanished: Vec::new(),
            obstacles,
            last_status_write,
            progress: None,
            listening: None,
            agent: None,
            tails: Vec::new(),
            stacks: None,
            nodes: Vec::new(),
            notices: std::sync::Arc::default(),
        };
        let now = now.checked_add(SignedDuration::from_nanos(nanos.into())).unwrap_or(now);
        Found { snapshot, now }
    })
}

/// Inputs and shape of the pods that this spec asks for, if it asks for any.
fn annotations(spec: &TrainingJobSpec) -> Option<(String, String)> {
    let mut fresh =
        job("bert").with(|given| *given = TrainingJobSpec { suspend: None, ..spec.clone() }).submitted();
    fresh.round().expect("no crash");
    let pod = fresh.created.iter().find_map(|object| match object {
        NewObject::Pod(pod) => Some(pod),
        _ => None,
    })?;
    let notes = pod.metadata.annotations.as_ref()?;
    Some((notes.get(names::INPUTS_ANNOTATION)?.clone(), notes.get(names::SHAPE_ANNOTATION)?.clone()))
}

proptest! {
    #![proptest_config(cases(512))]

    /// `Cluster::plan` checks the rules of the house, and that the same snapshot gives the same plan.
    #[test]
    fn any_plan_keeps_the_rules(found in found()) {
        Cluster::found_as(found.snapshot, Settings::default(), found.now).plan();
    }

    #[test]
    fn an_obedient_world_always_comes_to_rest(found in found()) {
        let mut cluster = Cluster::found_as(found.snapshot, Settings::default(), found.now);
        cluster.run_out();
        if cluster.exists() {
            let plan = cluster.plan();
            prop_assert!(plan.is_idle() && plan.wake_at.is_none(), "{plan:#?}");
        }
    }
}
