//! The command lines of the components.

use super::{Builder, TestCluster};
use crate::Error;
use crate::nodes::{GRACE, Network};
use crate::process::write_private;

/// The endpoint of the `kubernetes` service must not be a loopback address, or the API server
/// refuses its own object. Without real nodes nothing ever connects to it: this one is out of a
/// range kept for examples.
const ADVERTISED: &str = "203.0.113.1";
const SERVICES: &str = "10.96.0.0/16";

/// Requests per second that the controller manager and the scheduler allow themselves. With the
/// upstream defaults (20 and 50) they would be what a load test measures.
const CLIENT_QPS: u32 = 1000;

impl TestCluster {
    pub(super) fn etcd_flags(&self) -> Vec<String> {
        let clients = format!("http://127.0.0.1:{}", self.etcd_port.number());
        vec![
            format!("--data-dir={}", self.dir().join("etcd").display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            "--socket-reuse-port=true".into(),
            // It is alone: any port will do for peers that never come.
            "--listen-peer-urls=http://127.0.0.1:0".into(),
            "--unsafe-no-fsync".into(),
            "--quota-backend-bytes=8589934592".into(),
            "--log-level=warn".into(),
        ]
    }

    pub(super) fn api_server_flags(&self) -> Vec<String> {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.pki.path(name).display());
        let addresses = self.network.as_ref().map(Network::addresses);
        let advertised = addresses.map_or_else(|| ADVERTISED.into(), |all| all.machine().to_string());
        let services = addresses.map_or_else(|| SERVICES.into(), crate::nodes::Addresses::services);
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port.number()),
            format!("--bind-address={}", self.address()),
            format!("--secure-port={}", self.api_port.number()),
            "--permit-port-sharing=true".into(),
            format!("--advertise-address={advertised}"),
            file("tls-cert-file", "apiserver.crt"),
            file("tls-private-key-file", "apiserver.key"),
            file("client-ca-file", "ca.crt"),
            "--authorization-mode=Node,RBAC".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            file("service-account-key-file", "service-accounts.pub"),
            file("service-account-signing-key-file", "service-accounts.key"),
            format!("--service-cluster-ip-range={services}"),
            "--allow-privileged=true".into(),
            "--profiling=false".into(),
        ];
        if !self.options.controllers {
            flags.push("--disable-admission-plugins=ServiceAccount".into());
        }
        if addresses.is_some() {
            flags.extend([
                "--enable-admission-plugins=NodeRestriction".into(),
                file("kubelet-client-certificate", "kubelet-client.crt"),
                file("kubelet-client-key", "kubelet-client.key"),
                file("kubelet-certificate-authority", "ca.crt"),
                // Names of nodes mean nothing to this machine.
                "--kubelet-preferred-address-types=InternalIP".into(),
            ]);
        }
        flags.extend(self.options.gates());
        flags.extend(self.options.api_server_args.iter().cloned());
        flags
    }

    pub(super) fn manager_flags(&self) -> Vec<String> {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.pki.path(name).display());
        let mut flags = vec![
            file("kubeconfig", "manager.kubeconfig"),
            // Nobody asks it anything.
            "--secure-port=0".into(),
            "--leader-elect=false".into(),
            "--use-service-account-credentials=true".into(),
            file("service-account-private-key-file", "service-accounts.key"),
            file("root-ca-file", "ca.crt"),
            format!("--kube-api-qps={CLIENT_QPS}"),
            format!("--kube-api-burst={}", 2 * CLIENT_QPS),
            "--enable-hostpath-provisioner=true".into(),
            "--node-monitor-period=1s".into(),
        ];
        if self.network.is_some() {
            flags.push(format!("--node-monitor-grace-period={}s", GRACE.as_secs()));
        }
        flags.extend(self.options.gates());
        flags.extend(self.options.manager_args.iter().cloned());
        flags
    }

    pub(super) fn name_server_flags(&self) -> Vec<String> {
        ["-conf", &self.name_server_config().to_string_lossy(), "-dns.port", "53"].map(String::from).into()
    }

    pub(super) fn scheduler_flags(&self) -> Result<Vec<String>, Error> {
        let config = serde_json::json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {
                "kubeconfig": self.pki.path("scheduler.kubeconfig"),
                "qps": CLIENT_QPS,
                "burst": 2 * CLIENT_QPS,
            },
        });
        let file = self.dir().join("scheduler.json");
        write_private(&file, &config.to_string())?;
        let mut flags = vec![format!("--config={}", file.display()), "--secure-port=0".into()];
        flags.extend(self.options.gates());
        Ok(flags)
    }
}

impl Builder {
    fn gates(&self) -> Option<String> {
        (!self.feature_gates.is_empty()).then(|| format!("--feature-gates={}", self.feature_gates.join(",")))
    }
}
