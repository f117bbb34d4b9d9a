//! What this machine has, and the Node object that says so.

use std::collections::BTreeMap;
use std::fs;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::config::Config;

/// The machine as pods may use it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) allocatable: BTreeMap<String, Quantity>,
    pub(crate) gpus: u32,
    /// Whether the GPUs are there or only claimed to be.
    pub(crate) real_gpus: bool,
    pub(crate) labels: BTreeMap<String, String>,
}

/// The address of the machine: pods have others on the same loopback network.
pub(crate) const HOST_ADDRESS: &str = "127.0.0.1";

impl Machine {
    /// Looks at the machine; what the configuration says comes before what is found.
    pub(crate) fn look(config: &Config) -> Self {
        let found_gpus = gpus();
        let gpus = config.gpus.unwrap_or(found_gpus);
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from).to_string();
        let mut allocatable = BTreeMap::from([
            ("cpu".to_owned(), Quantity(config.cpu.clone().unwrap_or_else(cpus))),
            (
                "memory".to_owned(),
                Quantity(config.memory.clone().unwrap_or_else(|| format!("{}Ki", memory_kib()))),
            ),
            ("pods".to_owned(), Quantity(config.max_pods.to_string())),
        ]);
        if gpus > 0 {
            allocatable.insert(config.gpu_resource.clone(), Quantity(gpus.to_string()));
        }
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), config.name.clone()),
            ("kubernetes.io/os".to_owned(), std::env::consts::OS.to_owned()),
            ("kubernetes.io/arch".to_owned(), architecture().to_owned()),
        ]);
        labels.extend(config.labels.clone());
        Self { allocatable, gpus, real_gpus: found_gpus > 0, labels }
    }

    pub(crate) fn node(&self, name: &str, now: Timestamp) -> Node {
        let condition = |kind: &str, holds: bool, reason: &str, message: &str| NodeCondition {
            type_: kind.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(Time(now)),
        };
        let address =
            |kind: &str, address: &str| NodeAddress { type_: kind.to_owned(), address: address.to_owned() };
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(self.labels.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec::default()),
            status: Some(NodeStatus {
                allocatable: Some(self.allocatable.clone()),
                capacity: Some(self.allocatable.clone()),
                addresses: Some(vec![address("InternalIP", HOST_ADDRESS), address("Hostname", name)]),
                conditions: Some(vec![
                    condition(
                        "MemoryPressure",
                        false,
                        "KubeletHasSufficientMemory",
                        "kubelet has sufficient memory available",
                    ),
                    condition(
                        "DiskPressure",
                        false,
                        "KubeletHasNoDiskPressure",
                        "kubelet has no disk pressure",
                    ),
                    condition(
                        "PIDPressure",
                        false,
                        "KubeletHasSufficientPID",
                        "kubelet has sufficient PID available",
                    ),
                    condition(
                        "Ready",
                        true,
                        "KubeletReady",
                        "trainyard runs pods as processes on this machine",
                    ),
                ]),
                node_info: Some(NodeSystemInfo {
                    architecture: architecture().to_owned(),
                    boot_id: read("/proc/sys/kernel/random/boot_id"),
                    container_runtime_version: format!("process://{}", env!("CARGO_PKG_VERSION")),
                    kernel_version: read("/proc/sys/kernel/osrelease"),
                    kubelet_version: format!("trainyard-{}", env!("CARGO_PKG_VERSION")),
                    machine_id: read("/etc/machine-id"),
                    operating_system: std::env::consts::OS.to_owned(),
                    os_image: os_name(&read("/etc/os-release")),
                    ..NodeSystemInfo::default()
                }),
                ..NodeStatus::default()
            }),
        }
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn os_name(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map(|name| name.trim_matches('"').to_owned()).unwrap_or_default()
}

/// Memory of the machine, or less where this process lives in a container that has less.
fn memory_kib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    total.unwrap_or(1 << 20).min(limit.map_or(u64::MAX, |bytes| bytes / 1024))
}

/// NVIDIA's driver lists its devices here, without any program having to be run.
fn gpus() -> u32 {
    let devices = fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count);
    u32::try_from(devices).unwrap_or_default()
}
