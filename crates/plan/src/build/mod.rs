//! Builders: the objects that a job makes, exactly as the API contract names and labels them.
//!
//! They need no client and decide nothing; golden files show what comes out.

mod agent;
mod env;
mod objects;
mod pod;
mod resources;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trainyard_api::{TrainingJob, names};

pub(crate) use env::{Place, value};
pub(crate) use objects::{
    budget, claim, claim_name, config_map, makes_claim, path_in_pods, place_in_bucket, restore_config_map,
    restore_service, service,
};
pub(crate) use pod::{Order, image};

pub mod fingerprint {
    //! Hashes of the parts of an object that we set, so that the cache need not keep the parts themselves.

    pub use super::objects::{config_map_fingerprint as config_map, service_fingerprint as service};
}

/// Port of rank 0. In the node's network, jobs share ports, so each gets one of its own.
pub(crate) fn master_port(job: &TrainingJob) -> i32 {
    let given = job.spec.networking.as_ref().and_then(|networking| networking.master_port);
    given.unwrap_or_else(|| {
        if job.spec.host_network() {
            let hash = trainyard_api::hash::of_parts(&[job.metadata.uid.as_deref().unwrap_or_default()]);
            // Below the ephemeral range of Linux (32768) and of node ports (30000).
            20_000 + i32::try_from(hash % 9_000).unwrap_or(0)
        } else {
            29_500
        }
    })
}

/// Labels of every object of this job.
fn labels(job: &TrainingJob, component: &str) -> BTreeMap<String, String> {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    [
        (names::APP_LABEL, names::APP),
        (names::JOB_LABEL, name),
        (names::COMPONENT_LABEL, component),
        ("app.kubernetes.io/name", names::APP),
        ("app.kubernetes.io/instance", name),
        ("app.kubernetes.io/component", component),
        (names::MANAGED_BY_LABEL, names::MANAGED_BY),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

fn owned_by(job: &TrainingJob) -> OwnerReference {
    OwnerReference {
        api_version: names::API_VERSION.to_owned(),
        kind: names::KIND.to_owned(),
        name: job.metadata.name.clone().unwrap_or_default(),
        uid: job.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn metadata(job: &TrainingJob, name: String, component: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: job.metadata.namespace.clone(),
        labels: Some(labels(job, component)),
        owner_references: Some(vec![owned_by(job)]),
        ..Default::default()
    }
}
