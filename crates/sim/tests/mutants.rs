//! The simulator can fail: classic bugs of controllers, put in on purpose, are noticed.

use std::panic::catch_unwind;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use trainyard_operator::Watched;
use trainyard_plan::{Plan, Settings, Snapshot, StatusWrite, Target, TargetKind, plan};
use trainyard_sim::scenario::spec;
use trainyard_sim::{Delivery, Make, Server, World, history};

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

/// Deletes whatever has the name now.
fn by_name(server: &Server, target: &Target) -> Target {
    let uid = server.all(target.kind).get(&target.name).map(|child| child.uid.clone());
    Target { uid: uid.unwrap_or_default(), ..target.clone() }
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
    let why = noticed(Make { planner: forgetful, ..Make::default() });
    assert!(why.is_some());
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
    let told = catch_unwind(|| replaced(Make { twist: Some(by_name), ..Make::default() }));
    let why = told.err().and_then(|why| why.downcast_ref::<String>().cloned());
    assert!(why.is_some_and(|why| why.contains("is not ours")));
}
