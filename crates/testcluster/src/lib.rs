//! A real Kubernetes control plane on one machine, for tests.
//!
//! [`TestCluster`] runs etcd, the API server, the controller manager and the scheduler of one
//! pinned Kubernetes release on loopback ports; [`Binaries`] builds them from Go modules the first
//! time. [`HollowNodes`] adds nodes that run nothing and walk pods through their phases as a test
//! says; [`Builder::real_nodes`] adds real ones with real containers ([`Node`], [`RootFs`]), which
//! takes root. Nothing outlives the process that started it, however that process ends.

mod binaries;
mod cluster;
mod command;
mod error;
mod hollow;
mod image;
mod kubectl;
mod nodes;
mod pki;
mod process;
mod volumes;

pub use binaries::{Binaries, COREDNS_VERSION, ETCD_VERSION, KUBERNETES_VERSION};
pub use cluster::{Builder, TestCluster};
pub use error::Error;
pub use hollow::{HollowNodes, Script, Then};
pub use image::RootFs;
pub use kubectl::{Kubectl, KubectlOutput};
pub use nodes::Node;
pub use process::Component;

/// The environment variable that turns tests against a real cluster on.
pub const ENABLE: &str = "TRAINYARD_CLUSTER_TESTS";

/// Whether tests against a real cluster are wanted; prints the reason when they are not.
///
/// They need binaries that take minutes to build once, so a plain `cargo test` leaves them out:
///
/// ```no_run
/// # fn test() {
/// if !trainyard_testcluster::enabled() {
///     return;
/// }
/// # }
/// ```
pub fn enabled() -> bool {
    let on = std::env::var_os(ENABLE).is_some_and(|value| value == "1");
    if !on {
        eprintln!("skipped: needs the test cluster (cargo xtask test --cluster)");
    }
    on
}

/// Whether tests with real nodes are wanted and possible; prints the reason when they are not.
pub fn nodes_enabled() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: real nodes need root");
    }
    root && enabled()
}

/// One cluster for all tests of this process, started by the first that asks.
///
/// It is never dropped (it is a static), and ends with the process all the same. Panics when it
/// cannot be started, since no test can go on then.
pub async fn shared() -> &'static TestCluster {
    static SHARED: tokio::sync::OnceCell<TestCluster> = tokio::sync::OnceCell::const_new();
    SHARED
        .get_or_init(|| async {
            match TestCluster::builder().start().await {
                Ok(cluster) => cluster,
                Err(error) => panic!("the shared test cluster did not start: {error}"),
            }
        })
        .await
}
