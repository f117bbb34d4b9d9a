//! Random requests to both servers at once (TRAINYARD_CLUSTER_TESTS=1).
//!
//! `TRAINYARD_SEEDS=10..40` chooses the runs; the default is small and always the same.

use std::fmt::Write as _;

use trainyard_apiserver::ApiServer;
use trainyard_conformance::{Target, differential};

const STEPS: usize = 60;

fn seeds() -> std::ops::Range<u64> {
    let wanted = std::env::var("TRAINYARD_SEEDS").unwrap_or_else(|_| "0..20".into());
    let (from, to) = wanted.split_once("..").expect("TRAINYARD_SEEDS=from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_servers_answer_random_requests_alike() {
    if !trainyard_testcluster::enabled() {
        return;
    }
    let cluster = trainyard_testcluster::shared().await;
    let oracle = Target::new(cluster.client().await.expect("a client"));
    let embedded = ApiServer::builder().build().expect("the embedded server");
    let embedded = Target::new(embedded.client("default"));
    differential::prepare(&oracle).await;
    differential::prepare(&embedded).await;
    let mut found = String::new();
    for seed in seeds() {
        if let Some(difference) = differential::difference(&oracle, &embedded, seed, STEPS).await {
            let _ = writeln!(found, "{difference}");
        }
    }
    assert!(found.is_empty(), "{found}");
}
