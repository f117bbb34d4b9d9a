//! The simulator can fail: classic bugs of controllers, put in on purpose, are noticed.

use std::panic::catch_unwind;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use trainyard_api::State;
use trainyard_operator::Watched;
use trainyard_plan::{Plan, Settings, Snapshot, StatusWrite, TargetKind, plan};
use trainyard_sim::scenario::{Disturbance, compare, disturbances, library, spec, tell};
use trainyard_sim::{Delivery, Make, Twist, World, history};

/// More histories than any of these bugs needs to be noticed.
const ENOUGH: u64 = 2000;

/// What the first history says that breaks a rule.
fn noticed(make: Make) -> Option<String> {
    std::panic::set_hook(Box::new(|_| {}));
    (1..ENOUGH).find_map(|seed| {
        let told = catch_unwind(|| drop(history::tell(seed, make, false))).err()?;
        Some(told.downcast_ref::<String>().cloned().unwrap_or_default())
    })
}

/// The effects of a decision come before the decision is durable.
fn hasty(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    if plan.write == StatusWrite::BeforeSteps {
        plan.write = StatusWrite::Report;
    }
    plan
}

/// Whatever carries the label is ours.
fn adopting(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let uid = snapshot.uid().to_owned();
    for pod in &mut snapshot.pods {
        pod.owner = Some(uid.as_str().into());
    }
    plan(&snapshot, settings, now)
}

/// The attempt is the one that the pods are of.
fn forgetful(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let seen = snapshot.pods.iter().filter_map(|pod| pod.attempt).max().unwrap_or(0);
    let mut job = (*snapshot.job).clone();
    if let Some(status) = &mut job.status {
        status.attempts.retain(|attempt| attempt.number <= seen);
    }
    snapshot.job = Arc::new(job);
    plan(&snapshot, settings, now)
}

/// Whoever has only just started takes everything for changed, and restarts it.
fn restless(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let runs = snapshot.job.status.as_ref().is_some_and(|status| status.state == Some(State::Running));
    if runs && snapshot.last_status_write.is_none() {
        for pod in &mut snapshot.pods {
            pod.inputs = Some("something else".into());
        }
    }
    plan(&snapshot, settings, now)
}

/// What the comparison of this scenario, disturbed in every way, finds first; and that no rule of a single step would have.
fn compared(name: &str, make: Make) -> Option<String> {
    std::panic::set_hook(Box::new(|_| {}));
    let library = library();
    let scenario = library.iter().find(|scenario| scenario.name == name)?;
    let calm = tell(scenario, Disturbance::None, make, false);
    disturbances(&calm).into_iter().find_map(|disturbance| {
        let why = compare(scenario, &calm, disturbance, make).err()?;
        assert!(catch_unwind(|| drop(tell(scenario, disturbance, make, false))).is_ok(), "{why}");
        Some(why)
    })
}

#[test]
fn effects_before_their_decision_are_noticed() {
    let why = noticed(Make { planner: hasty, ..Make::default() });
    assert!(why.is_some_and(|why| why.contains("although the status says that its attempt goes on")));
}

#[test]
fn a_stranger_that_is_adopted_by_its_label_is_noticed() {
    let why = noticed(Make { planner: adopting, ..Make::default() });
    assert!(why.is_some_and(|why| why.contains("is not ours")));
}

#[test]
fn an_attempt_that_is_recomputed_from_pods_is_noticed() {
    let why = noticed(Make { planner: forgetful, ..Make::default() }).unwrap_or_default();
    assert!(why.contains("had ended with") && why.contains("now it is None"), "{why}");
}

/// A pod is replaced by somebody else's of the same name, and the operator, which has not seen that yet, removes its pods.
fn replaced(make: Make) {
    let mut world = World::new(make, false);
    world.submit("bert", spec());
    world.settle();
    let late =
        Delivery::Late { from: world.delivered() + 2, depth: usize::MAX / 2, kind: Some(Watched::Pods) };
    world.set_delivery(late);
    world.lose_pod("bert-workers-1");
    world.plant(TargetKind::Pod, "bert-workers-1", json!({"metadata": {}}));
    world.edit("bert", |spec| spec.suspend = Some(true));
    world.settle();
}

#[test]
fn a_deletion_by_name_alone_is_noticed() {
    replaced(Make::default());
    let told = catch_unwind(|| replaced(Make { twist: Some(Twist::DeletesByName), ..Make::default() }));
    let why = told.err().and_then(|why| why.downcast_ref::<String>().cloned());
    assert!(why.is_some_and(|why| why.contains("is not ours")));
}

/// A job is deleted and made anew while the operator, after so many calls, still writes about the first.
fn made_anew(make: Make, calls: usize) {
    let mut world = World::new(make, false);
    world.submit("bert", spec());
    world.stop_after(calls);
    world.delete_job("bert");
    if !world.exists("bert") {
        world.submit("bert", spec());
    }
    world.settle();
}

#[test]
fn a_write_for_a_job_that_was_made_anew_is_noticed() {
    std::panic::set_hook(Box::new(|_| {}));
    let blind = Make { twist: Some(Twist::WritesByName), ..Make::default() };
    let noticed = (1..12).find_map(|calls| {
        made_anew(Make::default(), calls);
        catch_unwind(|| made_anew(blind, calls)).err()?.downcast_ref::<String>().cloned()
    });
    assert!(noticed.is_some_and(|why| why.contains("a write for another job")));
}

#[test]
fn a_restart_for_nothing_is_noticed_by_what_was_made() {
    let why = compared("create and complete", Make { planner: restless, ..Make::default() });
    assert!(why.is_some_and(|why| why.contains("the status is")));
}

#[test]
fn a_call_that_is_repeated_for_nothing_is_noticed() {
    let why = compared("create and complete", Make { twist: Some(Twist::Insists), ..Make::default() });
    assert!(why.is_some_and(|why| why.contains("was asked for")));
}
