//! A node that is about to be taken away, on a real API server with the shipped role: the workers leave it in time.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt as _;
use kube::ResourceExt;
use trainyard_api::{Cause, State};
use trainyard_testcluster::enabled;

use super::support::{Yard, job};

/// The operators of the other tests on this cluster do not know it.
const SIGN: &str = "test.example.com/about-to-go";

#[tokio::test]
async fn workers_leave_a_node_that_is_about_to_be_taken_away() {
    if !enabled() {
        return;
    }
    let mut yard = Yard::without_operator("notices").await;
    yard.start_operator(&[&format!("--node-notices={SIGN}")]).await;
    yard.apply(&job("bert", 2)).await.expect("apply");
    yard.until_state("bert", State::Running).await;
    let node = yard.pods("bert").await[1].spec.as_ref().unwrap().node_name.clone().unwrap();
    let (status, pods) = while_it_has_the_sign(&yard, &node, async {
        let status = yard
            .until("bert", "the next attempt", |status| {
                status.state == Some(State::Running) && status.attempts.len() == 2
            })
            .await;
        (status, yard.pods("bert").await)
    })
    .await;
    assert_eq!((status.attempts[0].cause, status.attempts[0].exit_code), (Some(Cause::Disruption), None));
    let why = status.attempts[0].message.clone().unwrap();
    assert!(why.contains(&format!("has to leave node {node}")) && why.contains(SIGN), "{why}");
    for pod in &pods {
        assert_ne!(pod.spec.as_ref().unwrap().node_name.as_ref(), Some(&node), "{}", pod.name_any());
    }
    assert_eq!(status.restarts.unwrap().total(), status.restarts.unwrap().disruption);
}

/// Sees what happens while a node is marked. All tests share it, so the mark goes even if this one fails: they would lose its room.
async fn while_it_has_the_sign<T>(yard: &Yard, node: &str, seen: impl Future<Output = T>) -> T {
    yard.kubectl(&["taint", "node", node, &format!("{SIGN}=:NoSchedule")]).await;
    let seen = AssertUnwindSafe(seen).catch_unwind().await;
    yard.kubectl(&["taint", "node", node, &format!("{SIGN}-")]).await;
    seen.unwrap_or_else(|failure| resume_unwind(failure))
}
