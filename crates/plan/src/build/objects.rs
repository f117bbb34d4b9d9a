//! The service, the config map and the checkpoint claim of a job.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, PersistentVolumeClaimSpec, Service, ServicePort, ServiceSpec,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use trainyard_api::{ClaimAccessMode, TrainingJob, hash, names};

use super::{master_port, metadata};
use crate::world::World;

/// The headless service that gives every pod of the job its DNS name, also before it is ready.
pub(crate) fn service(job: &TrainingJob) -> Service {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let selector = [(names::APP_LABEL, names::APP), (names::JOB_LABEL, name)];
    Service {
        metadata: metadata(job, names::service(name), "workers"),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(selector.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()),
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
pub fn service_fingerprint(selector: &BTreeMap<String, String>, ports: &[i32], publishes_early: bool) -> u64 {
    hash::of_json(&(selector, ports, publishes_early))
}

pub(crate) fn fingerprint_of_service(service: &Service) -> u64 {
    let spec = service.spec.clone().unwrap_or_default();
    let ports: Vec<i32> = spec.ports.iter().flatten().map(|port| port.port).collect();
    service_fingerprint(
        &spec.selector.unwrap_or_default(),
        &ports,
        spec.publish_not_ready_addresses.unwrap_or_default(),
    )
}

pub(crate) fn restore_service(wanted: &Service, seen: u64) -> Option<Value> {
    if fingerprint_of_service(wanted) == seen {
        return None;
    }
    let spec = wanted.spec.as_ref()?;
    Some(json!([
        {"op": "add", "path": "/spec/selector", "value": spec.selector},
        {"op": "add", "path": "/spec/ports", "value": spec.ports},
        {"op": "add", "path": "/spec/publishNotReadyAddresses", "value": true},
    ]))
}

/// The job's settings as files, mounted at /etc/trainingjob.
pub(crate) fn config_map(job: &TrainingJob) -> ConfigMap {
    let spec = &job.spec;
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let hyperparameters = spec.hyperparameters.clone().unwrap_or_default();
    let mut data = BTreeMap::from([
        ("framework".to_owned(), spec.framework().as_str().to_owned()),
        ("backend".to_owned(), spec.backend().as_str().to_owned()),
        ("master_port".to_owned(), master_port(job).to_string()),
        ("hyperparameters.json".to_owned(), json!(hyperparameters).to_string()),
    ]);
    data.extend(spec.model.clone().map(|model| ("model".to_owned(), model)));
    data.extend(spec.dataset.clone().map(|dataset| ("dataset".to_owned(), dataset)));
    ConfigMap {
        metadata: metadata(job, names::config_map(name), "config"),
        data: Some(data),
        ..Default::default()
    }
}

/// Hash of a config map's data.
pub fn config_map_fingerprint(data: &BTreeMap<String, String>) -> u64 {
    hash::of_json(data)
}

pub(crate) fn restore_config_map(wanted: &ConfigMap, seen: u64) -> Option<Value> {
    let data = wanted.data.as_ref()?;
    (config_map_fingerprint(data) != seen).then(|| json!([{"op": "add", "path": "/data", "value": data}]))
}

/// The claim behind the checkpoint directory: the user's, or one that we make.
pub(crate) fn claim_name(job: &TrainingJob) -> Option<String> {
    let spec = &job.spec;
    let given = spec.checkpoint_storage().and_then(|storage| storage.claim_name.clone());
    spec.checkpoints_on()
        .then(|| given.unwrap_or_else(|| names::claim(job.metadata.name.as_deref().unwrap_or_default())))
}

/// Whether the job keeps its checkpoints on a claim of its own.
pub(crate) fn makes_claim(job: &TrainingJob) -> bool {
    let given = job.spec.checkpoint_storage().is_some_and(|storage| storage.claim_name.is_some());
    job.spec.checkpoints_on() && !given
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
