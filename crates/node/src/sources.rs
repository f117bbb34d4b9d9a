//! Fetches the config maps and secrets that a pod refers to.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;

use crate::env::Sources;

/// The names that a pod refers to.
#[derive(Debug, Default, PartialEq, Eq)]
struct References {
    config_maps: BTreeSet<String>,
    secrets: BTreeSet<String>,
}

pub(crate) async fn fetch(client: &kube::Client, pod: &Pod) -> kube::Result<Sources> {
    let References { config_maps, secrets } = references(pod);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut sources = Sources::default();
    for name in config_maps {
        if let Some(map) = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(&name).await? {
            sources.config_maps.insert(name, map);
        }
    }
    for name in secrets {
        if let Some(secret) = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(&name).await? {
            sources.secrets.insert(name, secret);
        }
    }
    Ok(sources)
}

fn references(pod: &Pod) -> References {
    let mut all = References::default();
    let Some(spec) = &pod.spec else { return all };
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        for source in container.env_from.iter().flatten() {
            all.config_maps.extend(source.config_map_ref.iter().map(|reference| reference.name.clone()));
            all.secrets.extend(source.secret_ref.iter().map(|reference| reference.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            all.config_maps.extend(source.config_map_key_ref.iter().map(|key| key.name.clone()));
            all.secrets.extend(source.secret_key_ref.iter().map(|key| key.name.clone()));
        }
    }
    for volume in spec.volumes.iter().flatten() {
        all.config_maps.extend(volume.config_map.iter().map(|source| source.name.clone()));
        all.secrets.extend(volume.secret.iter().filter_map(|source| source.secret_name.clone()));
        for part in volume.projected.iter().flat_map(|source| source.sources.iter().flatten()) {
            all.config_maps.extend(part.config_map.iter().map(|source| source.name.clone()));
            all.secrets.extend(part.secret.iter().map(|source| source.name.clone()));
        }
    }
    all
}
