//! Claims: each is bound to a directory under the state directory, named after it.
//!
//! The directory is never deleted by us: it has the checkpoints in it, and a claim of the same name finds them again, in the
//! next run with a new control plane. Only when somebody deletes the claim itself, its directory gets another name, so that
//! a new claim starts empty.

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
pub fn directory(state_dir: &Path, namespace: &str, name: &str) -> PathBuf {
    state_dir.join("claims").join(namespace).join(name)
}

/// The name of the volume that we make for a claim.
pub(crate) fn volume_name(namespace: &str, name: &str) -> String {
    format!("{namespace}.{name}")
}

/// The directory that is ours to give to a claim. None if the claim wants a volume that somebody else has made.
fn own_directory(state_dir: &Path, claim: &PersistentVolumeClaim) -> Option<PathBuf> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let wanted =
        claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
    if wanted.is_some_and(|wanted| wanted != volume_name(namespace, name)) {
        return None;
    }
    Some(directory(state_dir, namespace, name))
}

/// Makes the directory of a claim. None if the claim wants a volume that somebody else has made.
pub(crate) fn make(state_dir: &Path, claim: &PersistentVolumeClaim) -> Option<std::io::Result<PathBuf>> {
    let path = own_directory(state_dir, claim)?;
    Some(fs::create_dir_all(&path).map(|()| path))
}

/// Takes the directory of a claim that was deleted out of the way. What is in it is left to the user.
pub(crate) fn put_aside(state_dir: &Path, claim: &PersistentVolumeClaim) -> std::io::Result<()> {
    let (Some(path), Some(uid)) = (own_directory(state_dir, claim), &claim.metadata.uid) else {
        return Ok(());
    };
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    match fs::rename(&path, path.with_file_name(format!("{name}.deleted-{uid}"))) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The directory of a volume that somebody else has made, if it is one of this machine.
pub(crate) async fn find(client: &kube::Client, claim: &PersistentVolumeClaim) -> Option<PathBuf> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    let volume = Api::<PersistentVolume>::all(client.clone()).get_opt(name).await.ok()??.spec?;
    let host = volume.host_path.map(|source| source.path);
    host.or_else(|| volume.local.map(|source| source.path)).map(PathBuf::from)
}

/// Says in the API that the claim is bound.
pub(crate) async fn bind(
    client: &kube::Client,
    claim: &PersistentVolumeClaim,
    directory: &Path,
) -> kube::Result<()> {
    let (Some(namespace), Some(name)) = (&claim.metadata.namespace, &claim.metadata.name) else {
        return Ok(());
    };
    let spec = claim.spec.clone().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    if spec.volume_name.as_deref().unwrap_or_default().is_empty() {
        let volume = make_volume(client, &volume(claim, namespace, name, directory)).await?;
        let patch = json!({"metadata": {"uid": claim.metadata.uid}, "spec": {"volumeName": volume}});
        claims.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    let capacity = spec.resources.and_then(|resources| resources.requests);
    let patch = json!({"status": {"phase": "Bound", "accessModes": spec.access_modes, "capacity": capacity}});
    claims.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// The volume of a claim.
fn volume(claim: &PersistentVolumeClaim, namespace: &str, name: &str, directory: &Path) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    PersistentVolume {
        metadata: ObjectMeta { name: Some(volume_name(namespace, name)), ..ObjectMeta::default() },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|resources| resources.requests),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                uid: claim.metadata.uid.clone(),
                ..ObjectReference::default()
            }),
            host_path: Some(HostPathVolumeSource {
                path: directory.to_string_lossy().into_owned(),
                type_: None,
            }),
            persistent_volume_reclaim_policy: Some("Retain".to_owned()),
            storage_class_name: spec.storage_class_name,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// Creates a volume, or gives an old one of that name to its new claim.
async fn make_volume(client: &kube::Client, volume: &PersistentVolume) -> kube::Result<String> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let name = volume.metadata.name.clone().unwrap_or_default();
    match volumes.create(&PostParams::default(), volume).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            let patch = json!({"spec": {"claimRef": owner}});
            volumes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Err(error) => return Err(error),
    }
    let patch = json!({"status": {"phase": "Bound"}});
    volumes.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(name)
}

pub(crate) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}
