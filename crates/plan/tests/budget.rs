//! The budget that evictions have to keep to: when there is one, and what it allows.

mod support;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use support::{Cluster, Job, job};
use trainyard_api::{
    AgentReport, CleanPodPolicy, FailureAction, FailurePolicy, FailureRule, RestartScope, State,
};

fn one_by_one(job: Job) -> Job {
    let policy = FailurePolicy { restart_scope: Some(RestartScope::Worker), ..Default::default() };
    job.with(|spec| spec.failure_policy = Some(Box::new(policy)))
}

fn holding(job: Job) -> Job {
    job.with(|spec| spec.checkpoint.get_or_insert_default().hold_evictions = Some(true))
}

fn running(job: Job) -> Cluster {
    let mut cluster = job.submitted();
    cluster.settle();
    cluster.run_all();
    cluster.settle();
    assert_eq!(cluster.state(), State::Running);
    cluster
}

/// What the cluster has been told, which must be what the status says.
fn kept(cluster: &Cluster) -> Option<i32> {
    let number = |budget: &k8s_openapi::api::policy::v1::PodDisruptionBudget| match budget
        .spec
        .as_ref()?
        .min_available
        .as_ref()?
    {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(_) => None,
    };
    let kept = cluster.budget.as_ref().and_then(number);
    let said = cluster.status().disruption_budget.as_ref().and_then(|budget| budget.min_available);
    assert_eq!(kept, said, "the status says something else than the cluster");
    kept
}

fn says_writing(cluster: &mut Cluster, writing: bool) {
    cluster.agent = Some(AgentReport { writing, ..Default::default() });
    cluster.settle();
}

#[test]
fn who_gets_one() {
    let table: [(Job, Option<i32>); 6] = [
        (job("gang").workers(4), None),
        (job("saving").workers(4).checkpoints(), None),
        (one_by_one(job("alone")), None),
        (one_by_one(job("crowd").workers(4)), Some(3)),
        (holding(job("careful").workers(4)), Some(0)),
        (one_by_one(holding(job("both").workers(4))), Some(3)),
    ];
    for (job, wanted) in table {
        let cluster = running(job);
        assert_eq!(kept(&cluster), wanted, "{}", cluster.status().message.as_deref().unwrap());
        let before = cluster.tally;
        assert!(cluster.plan().is_idle(), "{:?}", cluster.plan());
        assert_eq!(cluster.tally, before);
    }
}

#[test]
fn nobody_is_evicted_while_a_checkpoint_is_being_written() {
    for (job, otherwise) in
        [(holding(job("bert").workers(4)), 0), (one_by_one(holding(job("bert").workers(4))), 3)]
    {
        let mut bert = running(job);
        for _ in 0..2 {
            says_writing(&mut bert, true);
            assert_eq!(kept(&bert), Some(4));
            let since = bert.status().disruption_budget.as_ref().unwrap().writing_since.clone().unwrap();
            assert_eq!(since.0.as_second(), bert.now.as_second());
            bert.pass(60);
            assert_eq!(kept(&bert), Some(4));
            says_writing(&mut bert, false);
            assert_eq!(kept(&bert), Some(otherwise));
        }
    }
    // Who did not ask for it is not held.
    let mut bert = running(job("bert").workers(2).checkpoints());
    says_writing(&mut bert, true);
    assert_eq!(kept(&bert), None);
}

#[test]
fn a_write_without_an_end_holds_nobody_for_ever() {
    let mut bert = running(holding(job("bert").workers(2)));
    says_writing(&mut bert, true);
    bert.pass(14 * 60);
    assert_eq!(kept(&bert), Some(2));
    bert.pass(60);
    assert_eq!(kept(&bert), Some(0));
    // The next one holds again.
    says_writing(&mut bert, false);
    says_writing(&mut bert, true);
    assert_eq!(kept(&bert), Some(2));
}

#[test]
fn an_operator_that_starts_anew_holds_on_until_the_agent_is_heard() {
    let mut bert = running(holding(job("bert").workers(2)));
    says_writing(&mut bert, true);
    bert.operator_restarts();
    bert.agent = None;
    bert.settle();
    assert_eq!(kept(&bert), Some(2));
    bert.pass(15 * 60);
    assert_eq!(kept(&bert), Some(0), "an agent that is never heard again holds nobody for ever");
}

#[test]
fn an_attempt_that_ends_writes_nothing_any_more() {
    let mut bert = running(holding(job("bert").workers(2)).backoff_limit(5));
    says_writing(&mut bert, true);
    bert.fail("workers-1", 1);
    bert.agent = None;
    bert.settle();
    bert.sleep();
    bert.run_all();
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    assert_eq!(kept(&bert), Some(0));
}

#[test]
fn workers_that_are_done_need_not_stay() {
    let mut bert = running(one_by_one(job("bert").workers(3)));
    bert.succeed("workers-2");
    bert.settle();
    assert_eq!(kept(&bert), Some(1));
    bert.succeed("workers-1");
    bert.settle();
    assert_eq!(kept(&bert), Some(0));
}

#[test]
fn whose_failure_is_ignored_need_not_stay() {
    let mut bert = running(one_by_one(job("bert").workers(4)).with(|spec| {
        let rule = FailureRule {
            exit_codes: Some(vec![42]),
            reasons: None,
            log_pattern: None,
            action: FailureAction::Ignore,
        };
        spec.failure_policy.as_mut().unwrap().rules = Some(vec![rule]);
    }));
    bert.fail("workers-3", 42);
    bert.settle();
    assert_eq!((bert.state(), kept(&bert)), (State::Running, Some(2)), "one of the three may go");
}

#[test]
fn it_goes_with_the_end_a_suspension_and_a_change_of_mind() {
    let mut bert = running(one_by_one(job("bert").workers(2)).clean_pods(CleanPodPolicy::None));
    bert.succeed_all();
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
    assert_eq!(kept(&bert), None);
    assert_eq!(bert.status().disruption_budget, None);
    assert!(bert.plan().is_idle());

    let mut bert = running(one_by_one(job("bert").workers(2)));
    bert.edit(|spec| spec.suspend = Some(true));
    bert.settle();
    assert_eq!((bert.state(), kept(&bert)), (State::Suspended, None));
    bert.edit(|spec| spec.suspend = None);
    bert.settle();
    bert.run_all();
    bert.settle();
    assert_eq!((bert.state(), kept(&bert)), (State::Running, Some(1)));
    bert.edit(|spec| spec.failure_policy = None);
    bert.settle();
    assert_eq!((bert.state(), kept(&bert)), (State::Running, None));
    assert_eq!(bert.status().disruption_budget, None);
}

#[test]
fn somebody_elses_is_left_alone_and_told_of() {
    let mut bert = one_by_one(job("bert").workers(2)).submitted();
    bert.strange_budget();
    bert.settle();
    bert.run_all();
    bert.settle();
    assert_eq!(bert.state(), State::Running, "nobody waits for a budget");
    let told = "pod disruption budget bert exists already: it was not made by Trainyard";
    assert!(bert.message().ends_with(told), "{}", bert.message());
    let condition = bert.status().condition("ResourcesCreated").unwrap().clone();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "NameConflict"));
    assert_eq!(bert.event("NameConflict"), told);
    // Whoever looks again finds nothing new to tell.
    let statuses = bert.tally.statuses;
    bert.now += jiff::SignedDuration::from_secs(3);
    bert.settle();
    assert_eq!(bert.tally.statuses, statuses);
    assert_eq!(bert.status().condition("ResourcesCreated"), Some(&condition));
    // A restart does not wait for it, either.
    bert.fail("workers-1", 1);
    bert.settle();
    bert.pass(20);
    bert.run_all();
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    bert.stranger_leaves();
    bert.pass(60);
    assert_eq!(kept(&bert), Some(1));
    assert_eq!(bert.status().condition("ResourcesCreated").unwrap().status, "True");
    // It is told of once.
    assert_eq!(bert.events.iter().filter(|event| event.reason == "NameConflict").count(), 1);
}

#[test]
fn a_crash_after_any_write_leaves_neither_too_little_nor_too_much() {
    for writes in 1.. {
        let mut bert = one_by_one(holding(job("bert").workers(2))).submitted();
        bert.crash_after(writes);
        bert.settle();
        bert.run_all();
        bert.settle();
        says_writing(&mut bert, true);
        assert_eq!(kept(&bert), Some(2), "crashed after {writes}");
        says_writing(&mut bert, false);
        assert_eq!(kept(&bert), Some(1), "crashed after {writes}");
        bert.succeed_all();
        bert.settle();
        assert_eq!(kept(&bert), None, "crashed after {writes}");
        assert_eq!(bert.state(), State::Completed);
        if bert.will_crash() {
            break;
        }
    }
}

#[test]
fn what_it_looks_like() {
    let mut bert = running(one_by_one(holding(job("bert").workers(4))));
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_yaml_snapshot!("budget", &bert.budget);
    });
    says_writing(&mut bert, true);
    let spec = bert.budget.as_ref().unwrap().spec.as_ref().unwrap();
    assert_eq!(spec.unhealthy_pod_eviction_policy.as_deref(), Some("IfHealthyBudget"));
}
