//! The planner against everything that could be there: it never panics, never breaks a rule of the house, and always
//! comes to rest when the world obeys it.

mod support;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::prelude::*;
use proptest::sample::select;
use support::{Cluster, Job, job};
use trainyard_api::{
    Attempt, Cause, Checkpoint, CleanPodPolicy, Phase, RestartPolicy, Restarts, Role, RoleOrder, RoleSuccess,
    State, TrainingJobSpec, TrainingJobStatus, WorkerStatus, names,
};
use trainyard_plan::{
    ClaimView, Exit, NewObject, ObjectView, Obstacle, ObstacleKind, PodPhase, PodView, Settings, Snapshot,
    Waiting,
};

const UID: &str = "uid-of-bert";

fn dawn() -> Timestamp {
    "2026-03-01T09:00:00Z".parse().unwrap()
}

/// Mostly near the beginning of the story, sometimes at the ends of time. In whole seconds, as statuses have them.
fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        20 => (-2000i64..2000).prop_map(|seconds| dawn() + SignedDuration::from_secs(seconds)),
        // Go's zero time is the earliest that Kubernetes writes.
        1 => Just("0001-01-01T00:00:00Z".parse().unwrap()),
        1 => Just(Timestamp::from_second(Timestamp::MAX.as_second()).unwrap()),
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
            checkpoint: checkpoint.map(|(enabled, delete_on_completion)| Checkpoint {
                enabled,
                delete_on_completion,
                ..Default::default()
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
            ..Attempt::begun(number, Time(dawn()))
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
            worker_id: 0,
            pod_name,
            role: "workers".into(),
            node_name: None,
            phase,
            status: phase,
            restart_count: 0,
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
                        rescale,
                        update,
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
        prop_oneof![4 => Just(None), 1 => Just(Some("Evicted".to_owned()))],
        proptest::option::of(select(vec!["node-1", "node-2"])),
        prop_oneof![3 => Just(true), 1 => Just(false)],
        any::<u16>(),
    );
    (what, how).prop_map(
        |((name, owner, attempt, deleting, phase), (exit, waiting, disruption, node, right, uid))| {
            let pod = PodView {
                name,
                uid: format!("pod-{uid}"),
                owner,
                attempt,
                inputs: None,
                shape: None,
                deleting: deleting && uid % 3 == 0,
                phase,
                node: node.map(Into::into),
                exit: exit.map(|(code, reason, at)| Exit {
                    code,
                    reason: Some(reason.into()),
                    message: None,
                    at,
                }),
                waiting: waiting.map(|reason| Waiting { reason: reason.into(), message: None }),
                disruption,
            };
            (pod, right)
        },
    )
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
    let kinds =
        vec![ObstacleKind::NameConflict, ObstacleKind::Quota, ObstacleKind::Forbidden, ObstacleKind::Invalid];
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
        bound: true,
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
    let now = time().prop_map(|at| at.min("9000-01-01T00:00:00Z".parse().unwrap()));
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
                PodView { inputs, shape, ..pod }
            })
            .collect();
        pods.sort_by(|left, right| left.name.cmp(&right.name));
        pods.dedup_by(|left, right| left.name == right.name);
        let snapshot =
            Snapshot { job: job.into(), pods, services, config_maps, claims, obstacles, last_status_write };
        let now = now.checked_add(SignedDuration::from_nanos(nanos.into())).unwrap_or(now);
        Found { snapshot, now }
    })
}

/// Inputs and shape of the pods that this spec asks for, if it asks for any.
fn annotations(spec: &TrainingJobSpec) -> Option<(String, String)> {
    let mut fresh =
        job("bert").with(|given| *given = TrainingJobSpec { suspend: None, ..spec.clone() }).submitted();
    fresh.round().unwrap();
    let pod = fresh.created.iter().find_map(|object| match object {
        NewObject::Pod(pod) => Some(pod),
        _ => None,
    })?;
    let notes = pod.metadata.annotations.as_ref()?;
    Some((notes.get(names::INPUTS_ANNOTATION)?.clone(), notes.get(names::SHAPE_ANNOTATION)?.clone()))
}

/// Few cases for every day, so that the tests stay quick; `PROPTEST_CASES=50000` for a long night.
fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(cases), failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(config(512))]

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

/// What may happen to a job while it lives.
#[derive(Clone, Debug)]
enum Happening {
    Run(usize),
    RunAll,
    Succeed(usize),
    Fail(usize, i32),
    Evict(usize),
    DeletePod(usize),
    LosePod(usize),
    Wait(usize),
    Suspend(bool),
    Scale(i32),
    Image(u8),
    BackoffLimit(i32),
    Break(bool),
    Pass(i64),
    LoseService,
    EditConfig,
    Quota(Option<usize>),
    Linger(bool),
    Release,
    Restart,
    CrashAfter(usize),
    RemoveStatus,
    /// The operator gets only one round before the next thing happens.
    Hurry,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::{
        BackoffLimit, Break, CrashAfter, DeletePod, EditConfig, Evict, Fail, Hurry, Image, Linger, LosePod,
        LoseService, Pass, Quota, Release, RemoveStatus, Restart, Run, RunAll, Scale, Succeed, Suspend, Wait,
    };
    prop_oneof![
        4 => (0usize..4).prop_map(Run),
        5 => Just(RunAll),
        4 => (0usize..4).prop_map(Succeed),
        3 => (0usize..4, select(vec![1, 2, 127, 137, 143])).prop_map(|(pod, code)| Fail(pod, code)),
        1 => (0usize..4).prop_map(Evict),
        1 => (0usize..4).prop_map(DeletePod),
        1 => (0usize..4).prop_map(LosePod),
        1 => (0usize..4).prop_map(Wait),
        2 => any::<bool>().prop_map(Suspend),
        2 => (1i32..4).prop_map(Scale),
        1 => (0u8..3).prop_map(Image),
        1 => (0i32..4).prop_map(BackoffLimit),
        1 => any::<bool>().prop_map(Break),
        5 => (0i64..100).prop_map(Pass),
        1 => Just(LoseService),
        1 => Just(EditConfig),
        1 => proptest::option::of(0usize..4).prop_map(Quota),
        1 => any::<bool>().prop_map(Linger),
        2 => Just(Release),
        1 => Just(Restart),
        1 => (1usize..8).prop_map(CrashAfter),
        1 => Just(RemoveStatus),
        4 => Just(Hurry),
    ]
}

fn apply(cluster: &mut Cluster, happening: &Happening) {
    let pods = cluster.pods();
    let pick = |index: &usize| pods.get(index % pods.len().max(1)).cloned();
    // What has ended has ended.
    let alive = |cluster: &Cluster, index: &usize| pick(index).filter(|pod| !cluster.pod(pod).is_finished());
    match happening {
        Happening::Run(index) => alive(cluster, index).into_iter().for_each(|pod| cluster.run(&pod)),
        Happening::RunAll => {
            for pod in &pods {
                if !cluster.pod(pod).is_finished() {
                    cluster.run(pod);
                }
            }
        }
        Happening::Succeed(index) => alive(cluster, index).into_iter().for_each(|pod| cluster.succeed(&pod)),
        Happening::Fail(index, code) => {
            alive(cluster, index).into_iter().for_each(|pod| cluster.fail(&pod, *code))
        }
        Happening::Evict(index) => {
            alive(cluster, index).into_iter().for_each(|pod| cluster.evict(&pod, "Evicted"))
        }
        Happening::DeletePod(index) => pick(index).into_iter().for_each(|pod| cluster.delete_pod(&pod)),
        Happening::LosePod(index) => pick(index).into_iter().for_each(|pod| cluster.remove_pod(&pod)),
        Happening::Wait(index) => {
            let pod = pick(index).filter(|pod| cluster.pod(pod).phase == PodPhase::Pending);
            pod.into_iter().for_each(|pod| cluster.waits(&pod, "Unschedulable", "no room"));
        }
        Happening::Suspend(suspend) => cluster.edit(|spec| spec.suspend = Some(*suspend)),
        Happening::Scale(workers) => cluster.scale(*workers),
        Happening::Image(version) => cluster.edit(|spec| spec.image = Some(format!("my/trainer:{version}"))),
        Happening::BackoffLimit(limit) => cluster.edit(|spec| spec.backoff_limit = Some(*limit)),
        Happening::Break(broken) => cluster.edit(|spec| spec.command = broken.then(Vec::new)),
        Happening::Pass(seconds) => cluster.pass(*seconds),
        Happening::LoseService => cluster.delete_service(),
        Happening::EditConfig => {
            if !cluster.config_maps().is_empty() {
                cluster.change_config_map(|view| view.fingerprint ^= 1);
            }
        }
        Happening::Quota(quota) => cluster.quota(*quota),
        Happening::Linger(true) => cluster.pods_linger(),
        Happening::Linger(false) => cluster.pods_go_at_once(),
        Happening::Release => cluster.release(),
        Happening::Restart => cluster.operator_restarts(),
        Happening::CrashAfter(writes) => cluster.crash_after(*writes),
        Happening::RemoveStatus => cluster.remove_status(),
        Happening::Hurry => {}
    }
}

/// What is true of a job at any moment.
fn invariants(cluster: &Cluster, failures: i32) {
    let Some(status) = &cluster.job().status else { return };
    let numbers: Vec<i32> = status.attempts.iter().map(|attempt| attempt.number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "attempts out of order: {numbers:?}");
    let restarts = status.restarts.unwrap_or_default();
    assert!(restarts.application <= failures, "{failures} failures, {} counted", restarts.application);
    let terminal = status.is_terminal();
    assert_eq!(status.completion_time.is_some(), terminal, "{status:#?}");
    assert!(!terminal || status.backoff_until.is_none());
    if let Some(workers) = status.workers.filter(|_| !terminal) {
        let sum = workers.active + workers.succeeded + workers.failed + workers.pending;
        assert_eq!(sum, workers.desired, "{workers:?}");
    }
    let open = status.attempts.last().is_some_and(Attempt::is_open);
    match status.state {
        Some(State::Running) => {
            assert!(open && status.attempts.last().unwrap().running_time.is_some());
            assert_eq!(cluster.condition("Running").0, "True");
        }
        Some(State::Initializing) => assert!(open, "{status:#?}"),
        Some(State::Suspended | State::Completed | State::Failed) => assert!(!open, "{status:#?}"),
        _ => {}
    }
    for (state, condition) in
        [(State::Completed, "Completed"), (State::Failed, "Failed"), (State::Suspended, "Suspended")]
    {
        let holds = status.condition(condition).is_some_and(|condition| condition.status == "True");
        assert_eq!(holds, status.state == Some(state), "condition {condition} in state {:?}", status.state);
    }
}

proptest! {
    #![proptest_config(config(384))]

    /// The cluster itself watches names, attempts, owners and transitions of states.
    #[test]
    fn a_random_life(
        workers in 1i32..4,
        policy in select(vec![CleanPodPolicy::Running, CleanPodPolicy::All, CleanPodPolicy::None]),
        restart in select(vec![RestartPolicy::OnFailure, RestartPolicy::OnFailure, RestartPolicy::ExitCode]),
        eval in proptest::option::of(select(vec![RoleOrder::BeforeWorkers, RoleOrder::WithWorkers, RoleOrder::AfterWorkers])),
        backwards in any::<bool>(),
        happenings in proptest::collection::vec(happening(), 0..30),
    ) {
        let mut bert: Job = job("bert").workers(workers).clean_pods(policy).restart_policy(restart).checkpoints();
        if let Some(order) = eval {
            bert = bert.role(Role { order: Some(order), ..support::role("eval", 1) });
        }
        let mut cluster = bert.submitted();
        cluster.backwards = backwards;
        let (mut failures, mut disorder, mut end) = (0, false, None);
        for happening in &happenings {
            apply(&mut cluster, happening);
            match happening {
                Happening::Fail(..) => failures += 1,
                Happening::RemoveStatus => {
                    (disorder, end) = (true, None);
                }
                Happening::CrashAfter(_) | Happening::Restart => disorder = true,
                _ => {}
            }
            if matches!(happening, Happening::Hurry) {
                if cluster.round().is_err() {
                    cluster.operator_restarts();
                }
            } else {
                cluster.settle();
                prop_assert!(cluster.plan().is_idle());
            }
            invariants(&cluster, failures);
            // Once it is over, it is over; only an invalid spec can be mended.
            if let Some(end) = &end {
                prop_assert_eq!(end, &(cluster.state(), cluster.status().completion_time.clone()));
            }
            let status = cluster.job().status.clone().unwrap_or_default();
            let invalid = status.condition("Failed").is_some_and(|failed| failed.reason == "InvalidSpec");
            if status.is_terminal() && !invalid {
                end = Some((cluster.state(), status.completion_time));
            }
        }
        prop_assert!(disorder || cluster.tally.repeated_events == 0, "an event twice");

        // When the world becomes kind again, every job ends.
        cluster.quota(None);
        cluster.pods_go_at_once();
        cluster.edit(|spec| {
            spec.suspend = None;
            spec.command = None;
        });
        for _ in 0..12 {
            cluster.run_out();
            if cluster.status().is_terminal() {
                break;
            }
            for pod in cluster.pods() {
                let ended = cluster.pod(&pod).is_finished();
                if !ended {
                    cluster.run(&pod);
                }
            }
            cluster.run_out();
            for pod in cluster.pods() {
                let ended = cluster.pod(&pod).is_finished();
                if !ended {
                    cluster.succeed(&pod);
                }
            }
        }
        cluster.run_out();
        prop_assert!(cluster.status().is_terminal(), "never ends: {:#?}", cluster.status());
        invariants(&cluster, failures);
        cluster.delete_job();
        cluster.run_out();
        prop_assert!(!cluster.exists());
        prop_assert_eq!(cluster.pods().len(), 0);
    }
}
