//! Pods whose nodes make nothing of them.

mod support;

use support::{Cluster, job};
use trainyard_api::State;
use trainyard_plan::{Plan, Step};

/// Workers that are on their nodes since now, of which the nodes have made nothing yet.
fn scheduled(workers: i32) -> Cluster {
    let mut bert = job("bert").workers(workers).submitted().prompt();
    bert.settle();
    let now = bert.now;
    for rank in 0..workers {
        bert.change_pod(&format!("workers-{rank}"), |pod| {
            pod.node = Some(format!("node-{rank}"));
            pod.untouched_since = Some(now);
        });
    }
    bert
}

fn starts(bert: &mut Cluster, short: &str) {
    bert.change_pod(short, |pod| pod.untouched_since = None);
    bert.run(short);
}

fn nudged(plan: &Plan) -> Vec<&str> {
    fn target(step: &Step) -> Option<&str> {
        let Step::Nudge(nudge) = step else { return None };
        Some(&nudge.target.name)
    }
    plan.steps().filter_map(target).collect()
}

#[test]
fn who_is_late_is_nudged_on_time_and_once() {
    let mut bert = scheduled(4);
    for short in ["workers-0", "workers-1", "workers-3"] {
        starts(&mut bert, short);
    }
    bert.settle();
    assert_eq!(bert.wakes_in(), Some(3), "a deadline of its own");
    bert.pass(2);
    assert!(nudged(&bert.plan()).is_empty());
    bert.now += jiff::SignedDuration::from_secs(1);
    assert_eq!(nudged(&bert.plan()), ["bert-workers-2"]);
    let patches = bert.tally.patches;
    bert.settle();
    bert.pass(600);
    assert_eq!(bert.tally.patches - patches, 1, "its kubelet was asked");
    assert_eq!((bert.state(), bert.attempts().len()), (State::Initializing, 1));
    starts(&mut bert, "workers-2");
    bert.settle();
    assert_eq!(bert.state(), State::Running);
}

#[test]
fn all_may_be_late() {
    let mut bert = scheduled(3);
    bert.change_pod("workers-1", |pod| pod.untouched_since = None);
    bert.now += jiff::SignedDuration::from_secs(3);
    assert_eq!(
        nudged(&bert.plan()),
        ["bert-workers-0", "bert-workers-2"],
        "worker 1 is not on a node, or pulls an image"
    );
}

#[test]
fn whoever_is_told_to_go_is_left_alone() {
    let mut bert = scheduled(2);
    starts(&mut bert, "workers-0");
    bert.settle();
    bert.now += jiff::SignedDuration::from_secs(5);
    assert_eq!(nudged(&bert.plan()), ["bert-workers-1"]);
    bert.suspend();
    assert!(nudged(&bert.plan()).is_empty());
}

#[test]
fn it_can_be_turned_off() {
    let mut bert = scheduled(1);
    bert.settings.nudge_after = jiff::SignedDuration::ZERO;
    bert.pass(10);
    assert!(nudged(&bert.plan()).is_empty());
    assert_eq!(bert.wakes_in(), None);
}
