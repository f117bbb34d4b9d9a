//! The suite on a real Kubernetes (TRAINYARD_CLUSTER_TESTS=1), which is the oracle.

use trainyard_conformance::Target;

fn main() {
    let start = || async {
        let cluster = trainyard_testcluster::shared().await;
        match cluster.client().await {
            Ok(client) => Target::new(client),
            Err(error) => panic!("no client: {error}"),
        }
    };
    trainyard_conformance::run(start, trainyard_testcluster::enabled())
}
