//! The nodes themselves: registering them, and the signs of life that keep the controller manager
//! from marking them lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference, Time};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{PARALLEL_REQUESTS, Yard};
use crate::{Error, KUBERNETES_VERSION};

/// How nodes made here are told from others.
const LABEL: &str = "trainyard.test/hollow";
const LEASES: &str = "kube-node-lease";
/// As a kubelet does by default.
const LEASE_SECONDS: i32 = 40;
/// On the loopback interface and closed: asking for logs is refused at once instead of hanging.
pub(super) const ADDRESS: &str = "127.0.0.1";
const CLOSED_PORT: u16 = 1;

/// Registers `count` nodes under names that are free, and returns the names.
pub(super) async fn register(
    client: &Client,
    count: usize,
    capacity: &[(&str, &str)],
) -> Result<Vec<String>, Error> {
    let mut amounts: BTreeMap<&str, &str> =
        [("cpu", "64"), ("memory", "256Gi"), ("ephemeral-storage", "1Ti"), ("pods", "1000")].into();
    amounts.extend(capacity.iter().copied());
    let nodes: Api<Node> = Api::all(client.clone());
    let taken: BTreeSet<String> =
        nodes.list_metadata(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
    let mut free = (0..).map(|number| format!("hollow-{number}")).filter(|name| !taken.contains(name));
    let mut registered = Vec::new();
    while registered.len() < count {
        let names: Vec<String> = free.by_ref().take(count - registered.len()).collect();
        let more: Vec<Option<String>> = futures::stream::iter(names)
            .map(|name| register_one(client, name, &amounts))
            .buffered(PARALLEL_REQUESTS)
            .try_collect()
            .await?;
        registered.extend(more.into_iter().flatten());
    }
    Ok(registered)
}

/// `None` when somebody else took the name meanwhile.
async fn register_one(
    client: &Client,
    name: String,
    amounts: &BTreeMap<&str, &str>,
) -> Result<Option<String>, Error> {
    let mut status = json!({
        "capacity": amounts,
        "allocatable": amounts,
        "addresses": [
            {"type": "InternalIP", "address": ADDRESS},
            {"type": "Hostname", "address": name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": CLOSED_PORT}},
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "hollow", "kernelVersion": "hollow",
            "bootID": "", "machineID": "", "systemUUID": "", "kubeProxyVersion": "",
            "kubeletVersion": KUBERNETES_VERSION, "containerRuntimeVersion": "hollow://1",
        },
    });
    status["conditions"] = conditions();
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            LABEL: "true",
        }},
        "status": status,
    });
    let node: Node = serde_json::from_value(node).map_err(kube::Error::SerdeError)?;
    let node = match Api::all(client.clone()).create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(None),
        other => other?,
    };
    // A node without a lease counts as alive from its creation on; the first renewal makes it.
    renew(client, &node).await?;
    Ok(Some(name))
}

fn conditions() -> Value {
    let now = Time(Timestamp::now());
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    json!([
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        condition(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available"
        ),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ])
}

/// Renews the lease that says that the node lives, or makes it.
async fn renew(client: &Client, node: &Node) -> Result<(), kube::Error> {
    let name = node.name_any();
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let now = MicroTime(Timestamp::now());
    let patch = Patch::Merge(json!({"spec": {"renewTime": now}}));
    match leases.patch(&name, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => return other.map(drop),
    }
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.clone(),
        uid: node.uid().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    match leases.create(&PostParams::default(), &lease).await {
        // A fresh cluster makes the namespace a moment after it is ready; the next round will do.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// Renews leases for ever, and takes back what the controller manager concluded while it could not
/// see them (an API server that was away, a node that was silent).
pub(super) async fn keep_ready(yard: Arc<Yard>) {
    let nodes: Api<Node> = Api::all(yard.client.clone());
    let ours = ListParams::default().labels(LABEL);
    // A kubelet's every ten seconds for a hundred nodes; oftener for a few, so that tests can use
    // a short grace period.
    let count = u32::try_from(yard.nodes.len()).unwrap_or(u32::MAX);
    let pause = Duration::from_millis(100).saturating_mul(count);
    let mut round = tokio::time::interval(pause.clamp(Duration::from_secs(1), Duration::from_secs(10)));
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        round.tick().await;
        let found = loop {
            match nodes.list(&ours).await {
                Ok(found) => break found,
                Err(error) => {
                    tracing::debug!(%error, "hollow nodes cannot see their cluster");
                    tokio::time::sleep(super::RETRY.1).await;
                }
            }
        };
        let silent = yard.silent.borrow().clone();
        let alive = found
            .items
            .iter()
            .filter(|node| yard.nodes.contains(&node.name_any()) && !silent.contains(&node.name_any()));
        futures::stream::iter(alive)
            .for_each_concurrent(PARALLEL_REQUESTS, |node| async {
                let result = async {
                    renew(&yard.client, node).await?;
                    if is_ready(node) { Ok(()) } else { report_ready(&yard, &node.name_any()).await }
                };
                if let Err(error) = result.await {
                    tracing::debug!(%error, node = node.name_any(), "a sign of life was lost");
                }
            })
            .await;
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(super) async fn report_ready(yard: &Yard, name: &str) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(yard.client.clone());
    let patch = Patch::Strategic(json!({"status": {"conditions": conditions()}}));
    let node = nodes.patch_status(name, &PatchParams::default(), &patch).await?;
    renew(&yard.client, &node).await
}

pub(super) async fn remove(yard: &Yard) -> Result<(), Error> {
    let nodes: Api<Node> = Api::all(yard.client.clone());
    let how = DeleteParams::default();
    futures::stream::iter(&yard.nodes)
        .map(|name| nodes.delete(name, &how))
        .buffer_unordered(PARALLEL_REQUESTS)
        .map(|result| match result {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map(drop),
        })
        .try_collect::<()>()
        .await?;
    Ok(())
}
