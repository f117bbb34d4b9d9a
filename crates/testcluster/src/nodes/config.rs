//! The configuration files of what runs in a node. Paths in them are those that the node sees:
//! its own directory at `/run/node`, certificates at `/run/pki`, binaries at `/run/bin`.

use std::time::Duration;

use serde_json::{Value, json};

use super::Site;

/// How long a node may be silent before it counts as lost.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// What the kubelet insists on. It would set these for the whole machine, so every node finds
/// files with the wanted values in their place.
pub(super) const KERNEL_SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// The sandbox image, which is loaded into every node before its kubelet starts.
pub(super) const PAUSE_IMAGE: &str = "trainyard.test/pause:1";

pub(super) fn containerd(plugins: &str, restrict_oom: bool) -> String {
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = {restrict_oom}
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "/run/node/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"#
    )
}

impl Site {
    pub(super) fn pod_network(&self, node: u8) -> Value {
        json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [
            {"type": "bridge", "bridge": "pods", "isDefaultGateway": true, "hairpinMode": true,
             "ipam": {"type": "host-local", "dataDir": "/run/node/addresses",
                      "ranges": [[{"subnet": self.addresses.pods_of(node)}]]}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ]})
    }

    pub(super) fn kubelet(&self, node: u8) -> Value {
        let gates: serde_json::Map<String, Value> = self
            .feature_gates
            .iter()
            .filter_map(|gate| gate.split_once('='))
            .map(|(name, on)| (name.to_owned(), Value::Bool(on == "true")))
            .collect();
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.addresses.node(node),
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": "/run/pki/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": format!("/run/pki/node-{node}.crt"),
            "tlsPrivateKeyFile": format!("/run/pki/node-{node}.key"),
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.group(node)),
            "failCgroupV1": false,
            "failSwapOn": false,
            "clusterDNS": [self.addresses.machine()],
            "clusterDomain": "cluster.local",
            "resolvConf": "/run/node/resolv.conf",
            "nodeStatusUpdateFrequency": format!("{}s", GRACE.as_secs() / 5),
            "nodeLeaseDurationSeconds": GRACE.as_secs() * 2 / 5,
            "syncFrequency": "10s",
            // A developer's full disk is not what tests are about.
            "evictionHard": {
                "memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%",
            },
            // An image that is gone cannot be pulled again.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "kubeAPIQPS": 500,
            "kubeAPIBurst": 1000,
            "maxPods": 200,
            "featureGates": gates,
        })
    }

    /// Without conntrack limits: those are the machine's.
    pub(super) fn proxy(&self, node: u8) -> Value {
        let address = self.addresses.node(node);
        json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clientConnection": {"kubeconfig": "/run/pki/kube-proxy.kubeconfig"},
            "bindAddress": address,
            "healthzBindAddress": format!("{address}:10256"),
            "metricsBindAddress": "127.0.0.1:10249",
            "iptables": {"masqueradeAll": true, "minSyncPeriod": "0s"},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        })
    }

    /// Names outside the cluster do not exist. That is a block of its own, because within one
    /// block the template would answer before the cluster's names are looked up.
    pub(crate) fn name_server(&self, kubeconfig: &str) -> String {
        let address = self.addresses.machine();
        format!(
            "cluster.local in-addr.arpa ip6.arpa {{
  bind {address}
  errors
  ready {address}:{port}
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 1
  }}
}}
. {{
  bind {address}
  template ANY ANY . {{
    rcode NXDOMAIN
  }}
}}
",
            port = super::NAME_SERVER_READY
        )
    }
}
