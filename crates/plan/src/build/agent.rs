//! The agent beside the program of rank 0: a native sidecar that watches the checkpoints.
//!
//! It starts before the program and lets it start once it has seen that what the program was told to go on from is what the
//! storage has. Where the storage is a bucket, each pod has a directory of its own: the agent copies what is saved in the
//! leading one, and the others fetch what they go on from before their program starts.

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, ExecAction, PodSpec, Probe, ResourceRequirements, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use trainyard_api::checkpoint::{AGENT_CONTAINER, AGENT_READY_FILE, FETCH_CONTAINER};
use trainyard_api::names;

use super::objects::KEEP_LAST;
use super::pod::{CONFIG_DIRECTORY, Order, checkpoint_mount, config_mount, restricted};
use super::{env, place_in_bucket};
use crate::world::{Member, Rank};

const VOLUME: &str = "agent";
const DIRECTORY: &str = "checkpoints";

/// The names of variables by which credentials, endpoints and certificates for buckets are given begin with these.
const CREDENTIALS: [&str; 3] = ["AWS_", "GOOGLE_", "SSL_CERT_"];

/// Seconds that the leading pod of a job with a bucket gets to end, unless its template says otherwise: the last checkpoint
/// is copied in them.
const COPY_GRACE: i64 = 120;

impl Order<'_> {
    /// Whether this member has an agent beside it.
    pub(super) fn has_agent(&self, member: &Member<'_, '_>) -> bool {
        self.settings.agent_image.is_some() && self.job.spec.checkpoints_on() && member.rank == Some(Rank(0))
    }

    pub(super) fn agent(&self, member: &Member<'_, '_>) -> Option<Container> {
        let image = self.settings.agent_image.clone().filter(|_| self.has_agent(member))?;
        let spec = &self.job.spec;
        let bucket = place_in_bucket(self.job);
        let ready = format!("--ready-file={AGENT_READY_FILE}");
        let (directory, _) = AGENT_READY_FILE.rsplit_once('/').unwrap_or_default();
        let mut args = vec![
            format!("--directory={}", spec.checkpoint_directory()),
            format!("--layout={}", spec.checkpoint_layout().as_str()),
            format!("--keep-last={}", spec.keep_last()),
            format!("--keep-last-file={CONFIG_DIRECTORY}/{KEEP_LAST}"),
            format!("--resume={}", if spec.resumes() { "auto" } else { "never" }),
            format!("--resumed-from={}", self.resumed_from()),
            format!("--attempt={}/{}", self.job.metadata.uid.as_deref().unwrap_or_default(), self.attempt),
            format!("--workers={}", self.world.size()),
            format!("--processes={}", spec.procs_per_worker()),
            format!("--inputs={}", self.inputs),
            ready.clone(),
        ];
        // Parts of uploads are in memory until they have arrived.
        let memory = if bucket.is_some() { "512Mi" } else { "256Mi" };
        if let Some(url) = bucket {
            args.extend([format!("--mirror={url}"), "--restore".to_owned()]);
        }
        Some(Container {
            name: AGENT_CONTAINER.to_owned(),
            image: Some(image),
            // A sidecar: it starts before the program and ends after it.
            restart_policy: Some("Always".to_owned()),
            command: Some(words(&["trainyard", "agent"])),
            args: Some(args),
            // On the network of the host, the name of the host is that of the node.
            env: Some(vec![env::value("POD_NAME", member.pod_name(self.world.job))]),
            startup_probe: Some(Probe {
                exec: Some(ExecAction {
                    command: Some(words(&["trainyard", "agent", "--is-ready", &ready])),
                }),
                period_seconds: Some(1),
                // The program waits until the operator has seen to it: an hour, then the kubelet tries again.
                failure_threshold: Some(3600),
                ..Default::default()
            }),
            resources: Some(modest(memory)),
            volume_mounts: Some(vec![
                checkpoint_mount(self.job),
                config_mount(),
                VolumeMount {
                    name: VOLUME.to_owned(),
                    mount_path: directory.to_owned(),
                    ..Default::default()
                },
            ]),
            security_context: Some(restricted()),
            ..Default::default()
        })
    }

    /// Fetches what a pod other than the leading one goes on from, if that is in a bucket.
    pub(super) fn fetch(&self, member: &Member<'_, '_>) -> Option<Container> {
        let image = self.settings.agent_image.clone().filter(|_| !self.has_agent(member))?;
        let url = place_in_bucket(self.job).filter(|_| self.resume.is_some())?;
        Some(Container {
            name: FETCH_CONTAINER.to_owned(),
            image: Some(image),
            command: Some(words(&["trainyard", "agent"])),
            args: Some(vec![
                "--fetch".to_owned(),
                format!("--directory={}", self.job.spec.checkpoint_directory()),
                format!("--resumed-from={}", self.resumed_from()),
                format!("--mirror={url}"),
            ]),
            resources: Some(modest("256Mi")),
            volume_mounts: Some(vec![checkpoint_mount(self.job)]),
            security_context: Some(restricted()),
            ..Default::default()
        })
    }

    /// How long a pod gets to end, if that is not the cluster's default.
    pub(super) fn grace(&self, member: &Member<'_, '_>) -> Option<i64> {
        let copies = self.has_agent(member) && self.job.spec.checkpoint_bucket().is_some();
        copies.then_some(COPY_GRACE)
    }

    fn resumed_from(&self) -> &str {
        self.resume.map(|checkpoint| checkpoint.path.as_str()).unwrap_or_default()
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn modest(memory: &str) -> ResourceRequirements {
    let amounts = |amounts: &[(&str, &str)]| {
        let amount = |(name, text): &(&str, &str)| ((*name).to_owned(), Quantity((*text).to_owned()));
        Some(amounts.iter().map(amount).collect())
    };
    ResourceRequirements {
        requests: amounts(&[("cpu", "10m"), ("memory", "32Mi")]),
        limits: amounts(&[("memory", memory)]),
        ..Default::default()
    }
}

/// Gives our containers what the program has to reach the bucket: `envFrom`, variables with telling names, and files
/// that the template mounts. What the template says about our containers themselves stays.
pub(super) fn share_credentials(spec: &mut PodSpec) {
    let Some(program) = spec.containers.iter().find(|container| container.name == names::CONTAINER) else {
        return;
    };
    let (env, env_from) = (program.env.clone(), program.env_from.clone());
    let is_ours = |mount: &&VolumeMount| ["config", "dshm", "data", DIRECTORY].contains(&mount.name.as_str());
    let mounts: Vec<VolumeMount> =
        program.volume_mounts.iter().flatten().filter(|mount| !is_ours(mount)).cloned().collect();
    for container in spec.init_containers.iter_mut().flatten() {
        if ![AGENT_CONTAINER, FETCH_CONTAINER].contains(&container.name.as_str()) {
            continue;
        }
        let is_telling = |name: &str| CREDENTIALS.iter().any(|start| name.starts_with(start));
        let mut variables: Vec<_> =
            env.iter().flatten().filter(|variable| is_telling(&variable.name)).cloned().collect();
        for own in container.env.take().into_iter().flatten() {
            env::set(&mut variables, own);
        }
        container.env = Some(variables).filter(|variables| !variables.is_empty());
        if container.env_from.is_none() {
            container.env_from.clone_from(&env_from);
        }
        let own = container.volume_mounts.get_or_insert_default();
        for mount in &mounts {
            if !own.iter().any(|other| other.mount_path == mount.mount_path) {
                own.push(VolumeMount { read_only: Some(true), ..mount.clone() });
            }
        }
    }
}

pub(super) fn volume() -> Volume {
    Volume { name: VOLUME.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Default::default() }
}

/// The directory of the checkpoints in a pod whose job keeps them in a bucket.
pub(super) fn directory() -> Volume {
    Volume {
        name: DIRECTORY.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Default::default()
    }
}
