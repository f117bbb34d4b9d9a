//! The service, the config map and the checkpoint claim of a job.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, PersistentVolumeClaimSpec, Service, ServicePort, ServiceSpec,
    VolumeResourceRequirements,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_api::{CheckpointStatus, ClaimAccessMode, TrainingJob, hash, names};

use super::{master_port, metadata};
use crate::world::World;

/// The file by which the agent of a running attempt hears that another number of checkpoints is to be kept.
pub(super) const KEEP_LAST: &str = "keep_last";

/// Labels that select all pods of a job.
fn all_pods(job: &str) -> BTreeMap<&str, &str> {
    BTreeMap::from([(names::APP_LABEL, names::APP), (names::JOB_LABEL, job)])
}

fn owned(map: BTreeMap<&str, impl ToString>) -> BTreeMap<String, String> {
    map.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect()
}

/// The headless service that gives every pod of the job its DNS name, also before it is ready.
pub(crate) fn service(job: &TrainingJob) -> Service {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    Service {
        metadata: metadata(job, names::service(name), "workers"),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(owned(all_pods(name))),
            ports: Some(vec![ServicePort {
                name: Some("master".to_owned()),
                port: master_port(job),
                target_port: Some(IntOrString::Int(master_port(job))),
                protocol: Some("TCP".to_owned()),
                ..Default::default()
            }]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Hash of what we set in a service: selector, ports, and that it publishes addresses early.
pub fn service_fingerprint<T: Serialize>(
    selector: &BTreeMap<T, T>,
    ports: &[i32],
    publishes_early: bool,
) -> u64 {
    hash::of_json(&(selector, ports, publishes_early))
}

/// What mends the service of a job, if it is not as it should be. Nearly always it is, so that is found out before one is built.
pub(crate) fn restore_service(job: &TrainingJob, seen: u64) -> Option<Value> {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    if service_fingerprint(&all_pods(name), &[master_port(job)], true) == seen {
        return None;
    }
    let spec = service(job).spec?;
    Some(json!([
        {"op": "add", "path": "/spec/selector", "value": spec.selector},
        {"op": "add", "path": "/spec/ports", "value": spec.ports},
        {"op": "add", "path": "/spec/publishNotReadyAddresses", "value": true},
    ]))
}

/// The job's settings as files, mounted at /etc/trainingjob.
pub(crate) fn config_map(job: &TrainingJob) -> ConfigMap {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    ConfigMap {
        metadata: metadata(job, names::config_map(name), "config"),
        data: Some(owned(config_files(job))),
        ..Default::default()
    }
}

fn config_files(job: &TrainingJob) -> BTreeMap<&'static str, Cow<'_, str>> {
    let spec = &job.spec;
    let hyperparameters = spec.hyperparameters.as_ref();
    let hyperparameters = hyperparameters.map_or_else(|| "{}".to_owned(), |all| json!(all).to_string());
    let mut data = BTreeMap::from([
        ("framework", spec.framework().as_str().into()),
        ("backend", spec.backend().as_str().into()),
        ("master_port", master_port(job).to_string().into()),
        ("hyperparameters.json", hyperparameters.into()),
    ]);
    data.extend(spec.model.as_deref().map(|model| ("model", model.into())));
    data.extend(spec.dataset.as_deref().map(|dataset| ("dataset", dataset.into())));
    if spec.checkpoints_on() {
        data.insert(KEEP_LAST, spec.keep_last().to_string().into());
    }
    data
}

/// Hash of a config map's data.
pub fn config_map_fingerprint<K: Serialize, V: Serialize>(data: &BTreeMap<K, V>) -> u64 {
    hash::of_json(data)
}

pub(crate) fn restore_config_map(job: &TrainingJob, seen: u64) -> Option<Value> {
    let data = config_files(job);
    (config_map_fingerprint(&data) != seen).then(|| json!([{"op": "add", "path": "/data", "value": data}]))
}

/// The budget that evictions of this job's pods have to keep to.
///
/// With a number of pods that must stay, and not of those that may be missing: to know the latter, Kubernetes asks for the scale of
/// the job, which counts neither other roles nor workers that are done.
pub(crate) fn budget(job: &TrainingJob, min_available: i32, holds: bool) -> PodDisruptionBudget {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    // A pod that is not ready may always be evicted: it must not keep a node from being drained. But a program that saves may not
    // have the time to answer a probe.
    let unready = if holds { "IfHealthyBudget" } else { "AlwaysAllow" };
    PodDisruptionBudget {
        metadata: metadata(job, names::budget(name), "budget"),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(min_available)),
            selector: Some(LabelSelector { match_labels: Some(owned(all_pods(name))), ..Default::default() }),
            unhealthy_pod_eviction_policy: Some(unready.to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Where the job keeps its checkpoints in a bucket, if it does.
pub(crate) fn place_in_bucket(job: &TrainingJob) -> Option<String> {
    let url = job.spec.checkpoint_bucket()?;
    let (namespace, name) = (job.metadata.namespace.as_deref(), job.metadata.name.as_deref());
    Some(names::place_in_bucket(url, namespace.unwrap_or_default(), name.unwrap_or_default()))
}

/// Where the pods find a checkpoint: one that is kept in a bucket has been fetched to their directory.
pub(crate) fn path_in_pods(job: &TrainingJob, checkpoint: &CheckpointStatus) -> String {
    let path = &checkpoint.path;
    let inside = place_in_bucket(job).and_then(|place| path.strip_prefix(&place).map(str::to_owned));
    match inside.as_deref().map(|inside| (inside, inside.trim_start_matches('/'))) {
        Some((inside, name)) if inside != name => {
            format!("{}/{name}", job.spec.checkpoint_directory().trim_end_matches('/'))
        }
        _ => path.clone(),
    }
}

/// The claim behind the checkpoint directory: the user's, or one that we make. A bucket needs none.
pub(crate) fn claim_name(job: &TrainingJob) -> Option<String> {
    let spec = &job.spec;
    if spec.checkpoint_bucket().is_some() {
        return None;
    }
    let given = spec.checkpoint_storage().and_then(|storage| storage.claim_name.clone());
    spec.checkpoints_on()
        .then(|| given.unwrap_or_else(|| names::claim(job.metadata.name.as_deref().unwrap_or_default())))
}

/// Whether the job keeps its checkpoints on a claim of its own.
pub(crate) fn makes_claim(job: &TrainingJob) -> bool {
    let given = job.spec.checkpoint_storage().is_some_and(|storage| storage.claim_name.is_some());
    job.spec.checkpoints_on() && !given && job.spec.checkpoint_bucket().is_none()
}

/// The claim to make, if it is ours to make. It has no owner: it outlives the job.
pub(crate) fn claim(job: &TrainingJob, world: &World<'_>) -> Option<PersistentVolumeClaim> {
    if !makes_claim(job) {
        return None;
    }
    let storage = job.spec.checkpoint_storage().cloned().unwrap_or_default();
    let mode = storage.access_mode.unwrap_or(if world.members().count() > 1 {
        ClaimAccessMode::ReadWriteMany
    } else {
        ClaimAccessMode::ReadWriteOnce
    });
    let size = storage.size.map_or_else(|| "100Gi".to_owned(), |size| size.text().into_owned());
    let mut metadata =
        metadata(job, names::claim(job.metadata.name.as_deref().unwrap_or_default()), "checkpoint");
    metadata.owner_references = None;
    Some(PersistentVolumeClaim {
        metadata,
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![mode.as_str().to_owned()]),
            storage_class_name: storage.storage_class,
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), Quantity(size))].into()),
                limits: None,
            }),
            ..Default::default()
        }),
        ..Default::default()
    })
}
