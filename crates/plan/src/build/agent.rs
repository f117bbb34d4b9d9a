//! The agent beside the program of rank 0: a native sidecar that watches the checkpoints.
//!
//! It starts before the program and lets it start once it has seen that what the program was told to go on from is what the
//! storage has.

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, ExecAction, Probe, ResourceRequirements, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use trainyard_api::checkpoint::{AGENT_CONTAINER, AGENT_READY_FILE};

use super::pod::{Order, checkpoint_mount, restricted};
use crate::world::{Member, Rank};

const VOLUME: &str = "agent";

impl Order<'_> {
    /// Whether this member has an agent beside it.
    pub(super) fn has_agent(&self, member: &Member<'_, '_>) -> bool {
        self.settings.agent_image.is_some() && self.job.spec.checkpoints_on() && member.rank == Some(Rank(0))
    }

    pub(super) fn agent(&self, member: &Member<'_, '_>) -> Option<Container> {
        let image = self.settings.agent_image.clone().filter(|_| self.has_agent(member))?;
        let spec = &self.job.spec;
        let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        let resumed = self.resume.map(|checkpoint| checkpoint.path.as_str()).unwrap_or_default();
        let amounts = |amounts: &[(&str, &str)]| {
            Some(
                amounts
                    .iter()
                    .map(|(name, text)| ((*name).to_owned(), Quantity((*text).to_owned())))
                    .collect(),
            )
        };
        let ready = format!("--ready-file={AGENT_READY_FILE}");
        let (directory, _) = AGENT_READY_FILE.rsplit_once('/').unwrap_or_default();
        Some(Container {
            name: AGENT_CONTAINER.to_owned(),
            image: Some(image),
            // A sidecar: it starts before the program and ends after it.
            restart_policy: Some("Always".to_owned()),
            command: words(&["trainyard", "agent"]),
            args: words(&[
                &format!("--directory={}", spec.checkpoint_directory()),
                &format!("--layout={}", spec.checkpoint_layout().as_str()),
                &format!("--keep-last={}", spec.keep_last()),
                &format!("--resume={}", if spec.resumes() { "auto" } else { "never" }),
                &format!("--resumed-from={resumed}"),
                &format!(
                    "--attempt={}/{}",
                    self.job.metadata.uid.as_deref().unwrap_or_default(),
                    self.attempt
                ),
                &ready,
            ]),
            startup_probe: Some(Probe {
                exec: Some(ExecAction { command: words(&["trainyard", "agent", "--is-ready", &ready]) }),
                period_seconds: Some(1),
                // The program waits until the operator has seen to it: an hour, then the kubelet tries again.
                failure_threshold: Some(3600),
                ..Default::default()
            }),
            resources: Some(ResourceRequirements {
                requests: amounts(&[("cpu", "10m"), ("memory", "32Mi")]),
                limits: amounts(&[("memory", "256Mi")]),
                ..Default::default()
            }),
            volume_mounts: Some(vec![
                checkpoint_mount(self.job),
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
}

pub(super) fn volume() -> Volume {
    Volume { name: VOLUME.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Default::default() }
}
