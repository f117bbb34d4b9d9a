//! The suite on a real Kubernetes (TRAINYARD_CLUSTER_TESTS=1), which is the oracle.

use trainyard_conformance::Target;

fn main() {
    let start = || async {
        let cluster = trainyard_testcluster::shared().await;
        let mut config = match cluster.config().await {
            Ok(config) => config,
            Err(error) => panic!("no configuration: {error}"),
        };
        // Every answer is to be seen, also one that says "later".
        config.default_retry = false;
        match kube::Client::try_from(config) {
            Ok(client) => Target::new(client),
            Err(error) => panic!("no client: {error}"),
        }
    };
    trainyard_conformance::run(start, trainyard_testcluster::enabled())
}
