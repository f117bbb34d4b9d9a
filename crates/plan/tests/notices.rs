//! Nodes that are about to be taken away: whoever is there saves its work and goes on elsewhere.

mod support;

use support::{Cluster, job};
use trainyard_api::{Cause, FailurePolicy, RestartScope, State};
use trainyard_plan::{NewObject, NodeNotice};

const SPOT: &str = "aws-node-termination-handler/spot-itn";

/// The node of this pod will be taken away.
fn announce(cluster: &mut Cluster, short: &str) -> String {
    let node = cluster.pod(short).node.clone().expect("it has been scheduled");
    cluster.notices = vec![NodeNotice { node: node.clone(), why: SPOT.to_owned() }];
    node
}

/// The nodes that the pod that was created last is to be kept away from.
fn kept_away_from(cluster: &Cluster) -> Vec<String> {
    let last = cluster.created.iter().rev().find_map(|object| match object {
        NewObject::Pod(pod) => pod.spec.as_ref(),
        _ => None,
    });
    let affinity = last.and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let terms = affinity.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let fields = terms.into_iter().flatten().flat_map(|term| term.preference.match_fields.iter().flatten());
    fields.flat_map(|field| field.values.clone().unwrap_or_default()).collect()
}

#[test]
fn all_are_stopped_with_their_grace_before_the_node_is_gone() {
    let mut bert = job("bert").workers(3).checkpoints().running();
    let node = announce(&mut bert, "workers-1");
    bert.settle();
    assert_eq!((bert.causes()[0], bert.restarts()), (Cause::Disruption, (0, 1, 0, 0)));
    assert!(bert.graces.iter().all(Option::is_none), "everybody has time to save: {:?}", bert.graces);
    let message = bert.attempts()[0].message.clone().expect("why");
    assert_eq!(
        message,
        format!("Worker 1 has to leave node {node}, which is about to be taken away ({SPOT})")
    );
    assert!(bert.event("WorkerDisrupted").contains("which does not count as a failure"));
    assert_eq!(bert.attempts()[0].node_name.as_deref(), Some(node.as_str()));
    assert_eq!(kept_away_from(&bert), [node]);
    bert.run_all();
    bert.settle();
    assert_eq!(bert.state(), State::Running);
}

#[test]
fn who_is_put_there_later_stays() {
    // Whoever tolerates everything, or where there is no other node, must not be restarted again and again.
    let mut bert = job("bert").workers(2).running();
    let node = announce(&mut bert, "workers-0");
    bert.settle();
    bert.run_all();
    for short in ["workers-0", "workers-1"] {
        bert.change_pod(short, |pod| pod.node = Some(node.clone()));
    }
    bert.settle();
    bert.pass(600);
    assert_eq!((bert.state(), bert.attempts().len()), (State::Running, 2));
    // An operator that has only just started, and hears of the announcement anew.
    let notices = std::mem::take(&mut bert.notices);
    bert.settle();
    bert.notices = notices;
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().len()), (State::Running, 2));
    // Others that are announced later are another matter.
    bert.change_pod("workers-1", |pod| pod.node = Some("other".to_owned()));
    bert.notices.push(NodeNotice { node: "other".to_owned(), why: SPOT.to_owned() });
    bert.settle();
    assert_eq!(bert.attempts().len(), 3);
    // Whoever is on either stays from now on.
    bert.run_all();
    bert.change_pod("workers-0", |pod| pod.node = Some("other".to_owned()));
    bert.change_pod("workers-1", |pod| pod.node = Some(node.clone()));
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().len()), (State::Running, 3));
}

#[test]
fn when_all_nodes_are_to_go_all_stay_where_they_are_put() {
    let mut bert = job("bert").workers(2).running();
    let names = (0..1000).map(|number| format!("node-{number}"));
    let here = bert.pod("workers-0").node.clone();
    bert.notices = names.chain(here).map(|node| NodeNotice { node, why: SPOT.to_owned() }).collect();
    bert.settle();
    bert.run_all();
    bert.change_pod("workers-0", |pod| pod.node = Some("node-999".to_owned()));
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().len()), (State::Running, 2));
    assert!(kept_away_from(&bert).len() <= 20);
}

#[test]
fn other_nodes_and_what_is_done_do_not_matter() {
    let mut bert = job("bert").workers(2).running();
    bert.notices = vec![NodeNotice { node: "elsewhere".to_owned(), why: SPOT.to_owned() }];
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().len()), (State::Running, 1));
    bert.succeed("workers-0");
    announce(&mut bert, "workers-0");
    bert.settle();
    assert_eq!((bert.state(), bert.attempts().len()), (State::Running, 1));
}

#[test]
fn a_failure_is_told_and_not_the_notice() {
    let mut bert = job("bert").workers(2).running();
    announce(&mut bert, "workers-0");
    bert.fail("workers-1", 3);
    bert.settle();
    assert_eq!((bert.causes()[0], bert.restarts()), (Cause::Application, (1, 0, 0, 0)));
}

#[test]
fn one_that_is_replaced_alone_leaves_alone() {
    let worker = FailurePolicy { restart_scope: Some(RestartScope::Worker), rules: None };
    let mut bert = job("bert").workers(3).with(|spec| spec.failure_policy = Some(worker.into())).running();
    let before = bert.pod("workers-1").uid.clone();
    let others = [bert.pod("workers-0").uid.clone(), bert.pod("workers-2").uid.clone()];
    let node = announce(&mut bert, "workers-1");
    bert.settle();
    bert.run_all();
    // There is no other node.
    bert.change_pod("workers-1", |pod| pod.node = Some(node.clone()));
    bert.settle();
    bert.settle();
    assert_ne!(bert.pod("workers-1").uid, before);
    assert_eq!([bert.pod("workers-0").uid.clone(), bert.pod("workers-2").uid.clone()], others);
    assert_eq!((bert.state(), bert.attempts().len(), bert.restarts()), (State::Running, 1, (0, 1, 0, 0)));
}
