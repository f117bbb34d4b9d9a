//! Claims: each is bound to a directory under the state directory, named after it.
//!
//! The directory is never deleted by us: it has the checkpoints in it, and a claim of the same name finds them again.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

/// The directory of a claim.
pub(crate) fn directory(state_dir: &Path, namespace: &str, name: &str) -> PathBuf {
    state_dir.join("claims").join(namespace).join(name)
}

/// The name of the volume that we make for a claim.
pub(crate) fn volume_name(namespace: &str, name: &str) -> String {
    format!("{namespace}.{name}")
}

/// Makes the directory of a claim. None if the claim wants a volume that somebody else has made.
pub(crate) fn make(state_dir: &Path, claim: &PersistentVolumeClaim) -> Option<std::io::Result<PathBuf>> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
    if wanted.is_some_and(|wanted| wanted != volume_name(namespace, name)) {
        return None;
    }
    let path = directory(state_dir, namespace, name);
    Some(fs::create_dir_all(&path).map(|()| path))
}

/// The directory of a volume that somebody else has made, if it is one of this machine.
pub(crate) async fn find(client: &kube::Client, claim: &PersistentVolumeClaim) -> Option<PathBuf> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    let volume = Api::<PersistentVolume>::all(client.clone()).get_opt(name).await.ok()??.spec?;
    let host = volume.host_path.map(|source| source.path);
    host.or_else(|| volume.local.map(|source| source.path)).map(PathBuf::from)
}

/// Says in the API that the claim is bound.
pub(crate) async fn bind(client: &kube::Client, claim: &PersistentVolumeClaim, path: &Path) -> kube::Result<()> {
    let (Some(namespace), Some(name)) = (&claim.metadata.namespace, &claim.metadata.name) else { return Ok(()) };
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.clone());
    let modes = spec.access_modes.clone().unwrap_or_else(|| vec!["ReadWriteOnce".to_owned()]);
    let given = spec.volume_name.clone().filter(|name| !name.is_empty());
    let volume_name = match given {
        Some(given) => given,
        None => {
            let volume = PersistentVolume {
                metadata: ObjectMeta { name: Some(volume_name(namespace, name)), ..ObjectMeta::default() },
                spec: Some(PersistentVolumeSpec {
                    access_modes: Some(modes.clone()),
                    capacity: requests.clone(),
                    claim_ref: Some(ObjectReference {
                        api_version: Some("v1".to_owned()),
                        kind: Some("PersistentVolumeClaim".to_owned()),
                        name: Some(name.clone()),
                        namespace: Some(namespace.clone()),
                        uid: claim.metadata.uid.clone(),
                        ..ObjectReference::default()
                    }),
                    host_path: Some(HostPathVolumeSource {
                        path: path.to_string_lossy().into_owned(),
                        type_: None,
                    }),
                    persistent_volume_reclaim_policy: Some("Retain".to_owned()),
                    storage_class_name: spec.storage_class_name.clone(),
                    ..PersistentVolumeSpec::default()
                }),
                status: None,
            };
            let volumes: Api<PersistentVolume> = Api::all(client.clone());
            let made = volumes.create(&PostParams::default(), &volume).await;
            let own = volume.metadata.name.clone().unwrap_or_default();
            match made {
                Ok(_) => {}
                // Of an earlier claim of this name: it is for this one now.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let patch = json!({"spec": {"claimRef": volume.spec.and_then(|spec| spec.claim_ref)}});
                    volumes.patch(&own, &PatchParams::default(), &Patch::Merge(patch)).await?;
                }
                Err(error) => return Err(error),
            }
            let patch = json!({"status": {"phase": "Bound"}});
            volumes.patch_status(&own, &PatchParams::default(), &Patch::Merge(patch)).await?;
            own
        }
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    if spec.volume_name.as_deref() != Some(&volume_name) {
        let patch = json!({"metadata": {"uid": claim.metadata.uid}, "spec": {"volumeName": volume_name}});
        claims.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    let patch = json!({"status": {"phase": "Bound", "accessModes": modes, "capacity": requests}});
    claims.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

pub(crate) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}
