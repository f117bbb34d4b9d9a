//! The volumes of a pod as directories of this machine, and where its containers see them.
//!
//! What goes into a volume that is made of objects is decided by `contents`, which is PURE.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Secret, Volume,
};

use crate::env::{self, Surroundings};
use crate::isolate::root::{Mount, Source};
use crate::quantity;

/// Where a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Path {
        path: PathBuf,
        read_only: bool,
    },
    /// Memory of one container alone.
    Memory {
        bytes: Option<u64>,
    },
}

/// The directories that volumes are made in.
#[derive(Clone, Debug)]
pub(crate) struct Rooms<'a> {
    /// Of this pod; removed with it.
    pub(crate) pod: &'a Path,
    /// Of this pod, in memory; removed with it.
    pub(crate) memory: &'a Path,
    /// The directories of the pod's claims, by claim.
    pub(crate) claims: &'a BTreeMap<String, PathBuf>,
    /// Whether containers can have mounts of their own.
    pub(crate) can_mount: bool,
}

/// A file that a volume contains.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    path: String,
    bytes: Vec<u8>,
    mode: u32,
}

/// Makes the volumes of a pod. An error is in the kubelet's words.
pub(crate) fn prepare(
    pod: &Pod,
    rooms: &Rooms<'_>,
    around: Surroundings<'_>,
) -> Result<BTreeMap<String, Place>, String> {
    let mut places = BTreeMap::new();
    for volume in volumes(pod) {
        let place = place(pod, volume, rooms, around)
            .map_err(|why| format!("MountVolume.SetUp failed for volume {:?} : {why}", volume.name))?;
        places.insert(volume.name.clone(), place);
    }
    Ok(places)
}

fn own_directory(pod: &Path, volume: &Volume) -> PathBuf {
    pod.join("volumes").join(&volume.name)
}

/// Whether a pod has files that are made of this config map.
pub(crate) fn are_made_of(pod: &Pod, config_map: &str) -> bool {
    volumes(pod).any(|volume| is_made_of(volume, config_map))
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
}

fn is_made_of(volume: &Volume, config_map: &str) -> bool {
    let parts = volume.projected.iter().flat_map(|source| source.sources.iter().flatten());
    let mut named = parts.filter_map(|part| part.config_map.as_ref()).map(|source| &source.name);
    volume.config_map.as_ref().is_some_and(|source| source.name == config_map)
        || named.any(|name| name == config_map)
}

/// Makes the files anew that are made of this config map, in the pod's own directory. Whoever reads one reads the old one or the new
/// one, never a part.
pub(crate) fn refresh(
    pod: &Pod,
    config_map: &str,
    directory: &Path,
    around: Surroundings<'_>,
) -> Result<(), String> {
    for volume in volumes(pod).filter(|volume| is_made_of(volume, config_map)) {
        let own = own_directory(directory, volume);
        let contents = contents(pod, volume, around)?;
        remove_others(&own, Path::new(""), &contents)
            .map_err(|error| format!("{}: {error}", own.display()))?;
        fill(&own, &contents)?;
    }
    Ok(())
}

/// Removes the files that are not among the contents.
fn remove_others(directory: &Path, inside: &Path, contents: &[Content]) -> std::io::Result<()> {
    for entry in fs::read_dir(directory.join(inside))? {
        let entry = entry?;
        let path = inside.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(directory, &path, contents)?;
        } else if !contents.iter().any(|content| Path::new(&content.path) == path) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn place(pod: &Pod, volume: &Volume, rooms: &Rooms<'_>, around: Surroundings<'_>) -> Result<Place, String> {
    let own = own_directory(rooms.pod, volume);
    if let Some(empty) = &volume.empty_dir {
        let in_memory = empty.medium.as_deref().is_some_and(|medium| medium.starts_with("Memory"));
        if in_memory && rooms.can_mount && belongs_to_one_run(pod, &volume.name) {
            let bytes = empty.size_limit.as_ref().and_then(quantity::units);
            return Ok(Place::Memory { bytes: bytes.and_then(|bytes| u64::try_from(bytes).ok()) });
        }
        let path = if in_memory { rooms.memory.join(&volume.name) } else { own };
        make_directory(&path)?;
        return Ok(Place::Path { path, read_only: false });
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        let path = rooms.claims.get(&claim.claim_name);
        let path = path.ok_or_else(|| format!("persistentvolumeclaim {:?} not found", claim.claim_name))?;
        return Ok(Place::Path { path: path.clone(), read_only: claim.read_only == Some(true) });
    }
    if let Some(host) = &volume.host_path {
        let path = PathBuf::from(&host.path);
        check_host_path(&path, host.type_.as_deref().unwrap_or_default())?;
        return Ok(Place::Path { path, read_only: false });
    }
    let contents = contents(pod, volume, around)?;
    fill(&own, &contents)?;
    Ok(Place::Path { path: own, read_only: true })
}

/// Whether memory can be given to a container itself: nobody else sees it, and nothing comes after it.
fn belongs_to_one_run(pod: &Pod, volume: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let uses = |container: &&Container| {
        container.volume_mounts.iter().flatten().any(|mount| mount.name == volume && mount.sub_path.is_none())
    };
    spec.restart_policy.as_deref() == Some("Never") && containers.filter(uses).count() <= 1
}

fn make_directory(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn check_host_path(path: &Path, kind: &str) -> Result<(), String> {
    let exists = path.exists();
    let shown = path.display();
    match kind {
        "DirectoryOrCreate" if !exists => make_directory(path),
        "FileOrCreate" if !exists => fs::write(path, "").map_err(|error| format!("{shown}: {error}")),
        _ if !exists => {
            let advice = if kind.is_empty() { " (type: DirectoryOrCreate would make it)" } else { "" };
            Err(format!("hostPath type check failed: {shown} does not exist{advice}"))
        }
        "Directory" | "DirectoryOrCreate" if !path.is_dir() => {
            Err(format!("hostPath type check failed: {shown} is not a directory"))
        }
        "File" | "FileOrCreate" if !path.is_file() => {
            Err(format!("hostPath type check failed: {shown} is not a file"))
        }
        _ => Ok(()),
    }
}

/// The files of a volume that is made of objects.
fn contents(pod: &Pod, volume: &Volume, around: Surroundings<'_>) -> Result<Vec<Content>, String> {
    if let Some(source) = &volume.config_map {
        let mode = mode(source.default_mode);
        let map = around.sources.config_maps.get(&source.name);
        let optional = source.optional == Some(true);
        return config_map(map, &source.name, source.items.as_deref(), mode, optional);
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let optional = source.optional == Some(true);
        let items = source.items.as_deref();
        return secret(around.sources.secrets.get(name), name, items, mode(source.default_mode), optional);
    }
    if let Some(source) = &volume.downward_api {
        return downward(pod, source.items.as_deref(), mode(source.default_mode), around);
    }
    if let Some(source) = &volume.projected {
        return projected(pod, source, around);
    }
    Err("this kind of volume is not supported on this machine: use hostPath, emptyDir or a claim".to_owned())
}

fn mode(mode: Option<i32>) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644)
}

fn config_map(
    map: Option<&ConfigMap>,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<Vec<Content>, String> {
    let Some(map) = map else {
        return if optional { Ok(Vec::new()) } else { Err(format!("configmap {name:?} not found")) };
    };
    let text = map.data.iter().flatten().map(|(key, value)| (key.as_str(), value.as_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice()));
    chosen(text.chain(binary).collect(), items, mode, optional)
}

fn secret(
    secret: Option<&Secret>,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<Vec<Content>, String> {
    let Some(secret) = secret else {
        return if optional { Ok(Vec::new()) } else { Err(format!("secret {name:?} not found")) };
    };
    let data = secret.data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice()));
    let mut contents = chosen(data.collect(), items, mode, optional)?;
    // Programs run as the user who started trainyard: nobody else has to read it.
    for content in &mut contents {
        content.mode &= 0o700;
    }
    Ok(contents)
}

fn chosen(
    data: BTreeMap<&str, &[u8]>,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<Vec<Content>, String> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        let all = data.iter();
        return Ok(all
            .map(|(key, bytes)| Content { path: (*key).to_owned(), bytes: bytes.to_vec(), mode })
            .collect());
    };
    let mut contents = Vec::new();
    for item in items {
        match data.get(item.key.as_str()) {
            Some(bytes) => contents.push(Content {
                path: item.path.clone(),
                bytes: bytes.to_vec(),
                mode: item.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(mode),
            }),
            None if optional => {}
            None => return Err(format!("references non-existent config key: {}", item.key)),
        }
    }
    Ok(contents)
}

fn downward(
    pod: &Pod,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: u32,
    around: Surroundings<'_>,
) -> Result<Vec<Content>, String> {
    let content = |item: &DownwardAPIVolumeFile| {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => env::pod_field(pod, &field.field_path, around)?,
            (None, Some(resource)) => env::resource_field(pod, None, resource, around.allocatable)?,
            (None, None) => String::new(),
        };
        let mode = item.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(mode);
        Ok(Content { path: item.path.clone(), bytes: text.into_bytes(), mode })
    };
    items.unwrap_or_default().iter().map(content).collect()
}

fn projected(
    pod: &Pod,
    source: &ProjectedVolumeSource,
    around: Surroundings<'_>,
) -> Result<Vec<Content>, String> {
    let mode = mode(source.default_mode);
    let mut all = Vec::new();
    for part in source.sources.iter().flatten() {
        if let Some(map) = &part.config_map {
            let found = around.sources.config_maps.get(&map.name);
            all.extend(config_map(found, &map.name, map.items.as_deref(), mode, map.optional == Some(true))?);
        }
        if let Some(wanted) = &part.secret {
            let found = around.sources.secrets.get(&wanted.name);
            let optional = wanted.optional == Some(true);
            all.extend(secret(found, &wanted.name, wanted.items.as_deref(), mode, optional)?);
        }
        if let Some(wanted) = &part.downward_api {
            all.extend(downward(pod, wanted.items.as_deref(), mode, around)?);
        }
        // There are no service accounts to have a token of.
    }
    Ok(all)
}

fn fill(directory: &Path, contents: &[Content]) -> Result<(), String> {
    make_directory(directory)?;
    for Content { path, bytes, mode } in contents {
        let inside = inside(path).ok_or_else(|| format!("path {path:?} leaves the volume"))?;
        let target = directory.join(inside);
        if let Some(parent) = target.parent() {
            make_directory(parent)?;
        }
        if fs::read(&target).is_ok_and(|there| there == *bytes) {
            continue;
        }
        // Beside it first: a file that is there may be being read, or be read-only.
        let mut beside = target.clone().into_os_string();
        beside.push(".new~");
        let _ = fs::remove_file(&beside);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(*mode)
            .open(&beside)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                file.set_permissions(fs::Permissions::from_mode(*mode))?;
                fs::rename(&beside, &target)
            })
            .map_err(|error| format!("writing {}: {error}", target.display()))?;
    }
    Ok(())
}

/// A relative path that does not leave where it is.
fn inside(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    let fine = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    path.components().all(fine).then_some(path)
}

/// What a container mounts. Directories of a `subPath` are made if they are missing.
pub(crate) fn mounts(
    container: &Container,
    places: &BTreeMap<String, Place>,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let place = places.get(&mount.name).ok_or_else(|| format!("volume {:?} not found", mount.name))?;
        let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(path)) => Some(env::expand(path, variables)),
            (None, None) => None,
        };
        let asked = mount.read_only == Some(true);
        let (source, read_only) = match place {
            Place::Memory { bytes } => (Source::Memory { bytes: *bytes }, asked),
            Place::Path { path, read_only } => {
                let path = match sub_path.filter(|path| !path.is_empty()) {
                    Some(sub_path) => sub_directory(path, &sub_path, &mount.name)?,
                    None => path.clone(),
                };
                (Source::Bind(path), asked || *read_only)
            }
        };
        mounts.push(Mount { target: absolute(&mount.mount_path), source, read_only });
    }
    Ok(mounts)
}

fn sub_directory(volume: &Path, sub_path: &str, name: &str) -> Result<PathBuf, String> {
    let inner = inside(sub_path).ok_or_else(|| {
        format!("failed to prepare subPath for volumeMount {name:?}: {sub_path:?} leaves the volume")
    })?;
    let path = volume.join(inner);
    if !path.exists() {
        make_directory(&path)?;
    }
    Ok(path)
}

fn absolute(path: &str) -> PathBuf {
    Path::new("/").join(path)
}

/// Makes mount points for real that lie in a directory of the user's: hiding the directory behind a read-only view of it
/// would take away where the program wants to write.
pub(crate) fn make_mount_points(mounts: &[Mount], own: &[PathBuf]) {
    for mount in mounts {
        let nearest = mount.target.ancestors().find(|path| path.exists());
        let ours = nearest.is_some_and(|nearest| own.iter().any(|own| nearest.starts_with(own)));
        if !ours || mount.target.exists() {
            continue;
        }
        match &mount.source {
            Source::Bind(source) if source.is_file() => {
                if let Some(parent) = mount.target.parent() {
                    let _ = fs::create_dir_all(parent);
                }
                let _ = fs::write(&mount.target, "");
            }
            Source::Bind(_) | Source::Memory { .. } => {
                let _ = fs::create_dir_all(&mount.target);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::env::Sources;

    fn contents_of(volume: serde_json::Value) -> Result<Vec<String>, String> {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "labels": {"a": "b"}}})).unwrap();
        let volume: Volume = serde_json::from_value(volume).unwrap();
        let map: ConfigMap =
            serde_json::from_value(json!({"data": {"k": "v", "l": "w"}, "binaryData": {"z": "AA=="}}))
                .unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"s": "aHVzaA=="}})).unwrap();
        let sources = Sources {
            config_maps: [("cm".to_owned(), map)].into(),
            secrets: [("sec".to_owned(), secret)].into(),
        };
        let allocatable = BTreeMap::new();
        let around =
            Surroundings { sources: &sources, pod_ip: "", host_ip: "", node: "", allocatable: &allocatable };
        let contents = contents(&pod, &volume, around)?;
        let shown = |content: Content| {
            format!("{} {:o} {}", content.path, content.mode, String::from_utf8_lossy(&content.bytes))
        };
        Ok(contents.into_iter().map(shown).collect())
    }

    #[test]
    fn what_volumes_contain() {
        let table = [
            (json!({"name": "v", "configMap": {"name": "cm"}}), Ok(vec!["k 644 v", "l 644 w", "z 644 \0"])),
            (
                json!({"name": "v", "configMap": {"name": "cm", "defaultMode": 256, "items": [{"key": "k", "path": "a/b"}]}}),
                Ok(vec!["a/b 400 v"]),
            ),
            (json!({"name": "v", "configMap": {"name": "no"}}), Err("configmap \"no\" not found")),
            (json!({"name": "v", "configMap": {"name": "no", "optional": true}}), Ok(vec![])),
            (
                json!({"name": "v", "configMap": {"name": "cm", "items": [{"key": "x", "path": "x"}]}}),
                Err("references non-existent config key: x"),
            ),
            (json!({"name": "v", "secret": {"secretName": "sec"}}), Ok(vec!["s 600 hush"])),
            (
                json!({"name": "v", "projected": {"sources": [
                    {"secret": {"name": "sec"}}, {"configMap": {"name": "cm", "items": [{"key": "l", "path": "l"}]}},
                    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}}),
                Ok(vec!["s 600 hush", "l 644 w", "labels 644 a=\"b\""]),
            ),
            (
                json!({"name": "v", "nfs": {"server": "x", "path": "/"}}),
                Err(
                    "this kind of volume is not supported on this machine: use hostPath, emptyDir or a claim",
                ),
            ),
        ];
        for (volume, wanted) in table {
            let wanted =
                wanted.map(|all| all.into_iter().map(str::to_owned).collect()).map_err(str::to_owned);
            assert_eq!(contents_of(volume.clone()), wanted, "{volume}");
        }
    }

    #[test]
    fn files_follow_their_config_map() {
        let place = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": [
            {"name": "v", "configMap": {"name": "cm"}},
            {"name": "w", "projected": {"sources": [{"configMap": {"name": "cm", "items": [{"key": "a", "path": "deep/a"}]}}]}},
            {"name": "other", "configMap": {"name": "other"}}]}}))
        .unwrap();
        assert!(are_made_of(&pod, "cm") && are_made_of(&pod, "other") && !are_made_of(&pod, "none"));
        let allocatable = BTreeMap::new();
        let shown = |path: &str| fs::read_to_string(place.path().join("volumes").join(path)).ok();
        for (data, files) in [
            (json!({"a": "1", "b": "1"}), [("v/a", Some("1")), ("v/b", Some("1")), ("w/deep/a", Some("1"))]),
            (json!({"a": "2", "c": "2"}), [("v/a", Some("2")), ("v/b", None), ("w/deep/a", Some("2"))]),
        ] {
            let map: ConfigMap = serde_json::from_value(json!({"data": data})).unwrap();
            let sources = Sources { config_maps: [("cm".to_owned(), map)].into(), ..Sources::default() };
            let around = Surroundings {
                sources: &sources,
                pod_ip: "",
                host_ip: "",
                node: "",
                allocatable: &allocatable,
            };
            for name in ["v", "w"] {
                fs::create_dir_all(place.path().join("volumes").join(name)).unwrap();
            }
            refresh(&pod, "cm", place.path(), around).unwrap();
            for (path, wanted) in files {
                assert_eq!(shown(path).as_deref(), wanted, "{path}");
            }
        }
        assert_eq!(
            fs::read_dir(place.path().join("volumes/v")).unwrap().count(),
            2,
            "and nothing beside them"
        );
    }

    #[test]
    fn paths_do_not_leave_their_volume() {
        assert!(inside("a/b").is_some() && inside("./a").is_some());
        assert!(inside("../a").is_none() && inside("/a").is_none() && inside("a/../b").is_none());
    }
}
