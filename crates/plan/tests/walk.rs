//! Random lives: anything may happen to a job at any moment. What must always be true is checked after each step, and when
//! the world becomes kind again, every job ends.

mod support;

use proptest::prelude::*;
use proptest::sample::select;
use support::{Cluster, Job, cases, job};
use trainyard_api::{Attempt, CleanPodPolicy, RestartPolicy, Role, RoleOrder, State};
use trainyard_plan::PodPhase;

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

fn with(pod: Option<&String>, act: impl FnOnce(&str)) {
    if let Some(pod) = pod {
        act(pod);
    }
}

fn apply(cluster: &mut Cluster, happening: &Happening) {
    let pods = cluster.pods();
    let pick = |index: usize| pods.get(index % pods.len().max(1));
    // What has ended has ended.
    let alive = |cluster: &Cluster, index: usize| pick(index).filter(|pod| !cluster.pod(pod).is_finished());
    match happening {
        Happening::Run(index) => with(alive(cluster, *index), |pod| cluster.run(pod)),
        Happening::RunAll => {
            for pod in &pods {
                if !cluster.pod(pod).is_finished() {
                    cluster.run(pod);
                }
            }
        }
        Happening::Succeed(index) => with(alive(cluster, *index), |pod| cluster.succeed(pod)),
        Happening::Fail(index, code) => with(alive(cluster, *index), |pod| cluster.fail(pod, *code)),
        Happening::Evict(index) => with(alive(cluster, *index), |pod| cluster.evict(pod, "Evicted")),
        Happening::DeletePod(index) => with(pick(*index), |pod| cluster.delete_pod(pod)),
        Happening::LosePod(index) => with(pick(*index), |pod| cluster.remove_pod(pod)),
        Happening::Wait(index) => {
            let pending = pick(*index).filter(|pod| cluster.pod(pod).phase == PodPhase::Pending);
            with(pending, |pod| cluster.waits(pod, "Unschedulable", "no room"));
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
            assert!(open && status.attempts.last().is_some_and(|attempt| attempt.running_time.is_some()));
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
    #![proptest_config(cases(384))]

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
