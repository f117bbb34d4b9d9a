//! What holds for a job that does not say: the defaults that depend on nothing but the spec.
//!
//! They depend on the form of the job, so they are methods, never written into the spec. What the operator's settings
//! decide is not here.

use super::{
    Backend, CheckpointLayout, CheckpointStorage, Framework, ProgressSource, Resume, Role, TrainingJobSpec,
};
use crate::policy::{CleanPodPolicy, FailureRule, RestartPolicy, RestartScope, SuccessPolicy};

/// Which of the two ways of writing a job this is: it decides the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `image` is given: the user's own program. Nothing is assumed about it.
    OwnProgram,
    /// `model` and `dataset` without an image: a recipe of the platform, with a full set of defaults.
    Recipe,
}

/// Default values that do not depend on the operator's settings.
impl TrainingJobSpec {
    pub fn form(&self) -> Form {
        if self.image.is_some() { Form::OwnProgram } else { Form::Recipe }
    }

    pub fn framework(&self) -> Framework {
        self.framework.unwrap_or_default()
    }

    pub fn worker_count(&self) -> i32 {
        self.num_workers.or(self.workers).unwrap_or(1)
    }

    /// What the user calls the number of workers in this job.
    pub fn worker_count_field(&self) -> &'static str {
        if self.workers.is_some() { "workers" } else { "numWorkers" }
    }

    pub fn gpus_per_worker(&self) -> i32 {
        self.gpus_per_worker.or(self.gpu_per_worker).unwrap_or(match self.form() {
            Form::OwnProgram => 0,
            Form::Recipe => 1,
        })
    }

    /// What the user calls the GPUs of a worker in this job.
    pub fn gpu_count_field(&self) -> &'static str {
        if self.gpu_per_worker.is_some() { "gpuPerWorker" } else { "gpusPerWorker" }
    }

    pub fn procs_per_worker(&self) -> i32 {
        self.procs_per_worker.unwrap_or_else(|| self.gpus_per_worker().max(1))
    }

    pub fn backoff_limit(&self) -> i32 {
        self.backoff_limit.unwrap_or(3)
    }

    pub fn restart_policy(&self) -> RestartPolicy {
        self.restart_policy.unwrap_or_default()
    }

    pub fn clean_pod_policy(&self) -> CleanPodPolicy {
        self.clean_pod_policy.unwrap_or_default()
    }

    pub fn suspended(&self) -> bool {
        self.suspend.unwrap_or(false)
    }

    pub fn data_mount_path(&self) -> &str {
        self.data_mount_path.as_deref().unwrap_or("/data")
    }

    pub fn roles(&self) -> &[Role] {
        self.roles.as_deref().unwrap_or_default()
    }

    pub fn checkpoints_on(&self) -> bool {
        match self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.enabled) {
            Some(enabled) => enabled,
            None => self.checkpoint.is_some() || self.checkpoint_dir.is_some() || self.form() == Form::Recipe,
        }
    }

    pub fn checkpoint_directory(&self) -> &str {
        let directory = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.directory.as_deref());
        directory.or(self.checkpoint_dir.as_deref()).unwrap_or("/checkpoints")
    }

    pub fn checkpoint_frequency(&self) -> i32 {
        let frequency = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.frequency);
        frequency.or(self.checkpoint_interval).unwrap_or(1)
    }

    pub fn checkpoint_storage(&self) -> Option<&CheckpointStorage> {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.storage.as_ref())
    }

    /// The bucket that the checkpoints are kept in, as it was written, if they are on and it is one.
    pub fn checkpoint_bucket(&self) -> Option<&str> {
        let storage = self.checkpoint_storage().filter(|_| self.checkpoints_on())?;
        storage.kind.unwrap_or_default().scheme()?;
        storage.path.as_deref()
    }

    pub fn delete_checkpoints_with_job(&self) -> bool {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.delete_on_completion).unwrap_or(false)
    }

    pub fn keep_last(&self) -> i32 {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.keep_last).unwrap_or(3)
    }

    /// Whether evictions are held back while a checkpoint is being written.
    pub fn holds_evictions(&self) -> bool {
        let asked = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.hold_evictions);
        self.checkpoints_on() && asked == Some(true)
    }

    /// Whether attempts go on from checkpoints.
    pub fn resumes(&self) -> bool {
        let resume = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.resume).unwrap_or_default();
        self.checkpoints_on() && resume == Resume::Auto
    }

    pub fn checkpoint_layout(&self) -> CheckpointLayout {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.layout).unwrap_or_default()
    }

    pub fn restart_scope(&self) -> RestartScope {
        self.failure_policy.as_ref().and_then(|policy| policy.restart_scope).unwrap_or_default()
    }

    pub fn failure_rules(&self) -> &[FailureRule] {
        self.failure_policy.as_ref().and_then(|policy| policy.rules.as_deref()).unwrap_or_default()
    }

    pub fn success_policy(&self) -> SuccessPolicy {
        self.success_policy.unwrap_or_default()
    }

    pub fn host_network(&self) -> bool {
        self.networking.as_ref().and_then(|networking| networking.host_network).unwrap_or(false)
    }

    pub fn backend(&self) -> Backend {
        self.networking
            .as_ref()
            .and_then(|networking| networking.backend)
            .unwrap_or(if self.gpus_per_worker() > 0 { Backend::Nccl } else { Backend::Gloo })
    }

    /// Whether the log of the pod of rank 0 is read for progress.
    pub fn reads_logs(&self) -> bool {
        let source = self.progress.as_ref().and_then(|progress| progress.source).unwrap_or_default();
        source != ProgressSource::None
    }

    /// `progress.totalEpochs`, or `hyperparameters.epochs` when it is a whole number.
    pub fn total_epochs(&self) -> Option<i64> {
        if let Some(total) = self.progress.as_ref().and_then(|progress| progress.total_epochs) {
            return Some(total);
        }
        let epochs = self.hyperparameters.as_ref()?.get("epochs")?;
        epochs.as_i64().or_else(|| epochs.as_str()?.parse().ok()).filter(|epochs| *epochs > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_follow_the_form() {
        let own = TrainingJobSpec { image: Some("x".into()), ..Default::default() };
        assert_eq!((own.gpus_per_worker(), own.checkpoints_on(), own.backend()), (0, false, Backend::Gloo));
        let recipe =
            TrainingJobSpec { model: Some("m".into()), dataset: Some("d".into()), ..Default::default() };
        assert_eq!(
            (recipe.gpus_per_worker(), recipe.checkpoints_on(), recipe.backend()),
            (1, true, Backend::Nccl)
        );
        let lab = TrainingJobSpec { checkpoint_dir: Some("/c".into()), ..own };
        assert!(lab.checkpoints_on());
        assert_eq!(lab.checkpoint_directory(), "/c");
    }
}
