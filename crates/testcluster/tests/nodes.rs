//! Real nodes: what a test may rely on, with real containers. They take root.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Instant;

use trainyard_testcluster::{RootFs, TestCluster, enabled};

const IMAGE: &str = "test/python:1";

#[tokio::test]
async fn first() {
    if !enabled() {
        return;
    }
    let start = Instant::now();
    let cluster = TestCluster::builder().real_nodes(2).start().await.unwrap();
    println!("start-up: {:?}", start.elapsed());
    let start = Instant::now();
    cluster.image(IMAGE, &RootFs::python()).await.unwrap();
    println!("image: {:?}", start.elapsed());
    println!("{}", cluster.kubectl().run(&["get", "nodes", "-o", "wide"]).await.unwrap());
}
