//! Jobs, written as one would say them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{CleanPodPolicy, RestartPolicy, Role, State, TrainingJob, TrainingJobSpec};

use super::cluster::Cluster;

/// When all stories begin.
pub(crate) fn dawn() -> Timestamp {
    "2026-03-01T09:00:00Z".parse().expect("a time")
}

#[derive(Clone)]
pub(crate) struct Job(pub(crate) TrainingJob);

/// A job of the user's own program, with one worker.
pub(crate) fn job(name: &str) -> Job {
    let spec = TrainingJobSpec { image: Some("my/trainer:1".into()), ..Default::default() };
    let mut job = TrainingJob::new(name, spec);
    job.metadata.namespace = Some("ml".into());
    Job(job).accepted()
}

/// A role with that many pods.
pub(crate) fn role(name: &str, replicas: i32) -> Role {
    Role { name: name.into(), replicas: Some(replicas), ..Default::default() }
}

impl Job {
    /// From a manifest, as the API server would hold it.
    pub(crate) fn manifest(yaml: &str) -> Self {
        Self(serde_saphyr::from_str(yaml).expect("a TrainingJob")).accepted()
    }

    /// What the API server adds.
    fn accepted(mut self) -> Self {
        let metadata = &mut self.0.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        metadata.uid = Some(format!("uid-of-{name}"));
        metadata.generation = Some(1);
        metadata.creation_timestamp = Some(Time(dawn()));
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut TrainingJobSpec)) -> Self {
        change(&mut self.0.spec);
        self
    }

    pub(crate) fn workers(self, workers: i32) -> Self {
        self.with(|spec| spec.num_workers = Some(workers))
    }

    pub(crate) fn recipe(self, model: &str, dataset: &str) -> Self {
        self.with(|spec| {
            spec.image = None;
            spec.model = Some(model.into());
            spec.dataset = Some(dataset.into());
        })
    }

    pub(crate) fn backoff_limit(self, limit: i32) -> Self {
        self.with(|spec| spec.backoff_limit = Some(limit))
    }

    pub(crate) fn restart_policy(self, policy: RestartPolicy) -> Self {
        self.with(|spec| spec.restart_policy = Some(policy))
    }

    pub(crate) fn clean_pods(self, policy: CleanPodPolicy) -> Self {
        self.with(|spec| spec.clean_pod_policy = Some(policy))
    }

    pub(crate) fn checkpoints(self) -> Self {
        self.with(|spec| spec.checkpoint_dir = Some("/checkpoints".into()))
    }

    pub(crate) fn suspended(self) -> Self {
        self.with(|spec| spec.suspend = Some(true))
    }

    pub(crate) fn role(self, role: Role) -> Self {
        self.with(|spec| spec.roles.get_or_insert_default().push(role))
    }

    /// Applied to a cluster of its own; nobody has looked at it yet.
    pub(crate) fn submitted(self) -> Cluster {
        Cluster::with_job(self.0)
    }

    /// Applied, and all of its pods run.
    pub(crate) fn running(self) -> Cluster {
        let mut cluster = self.submitted().prompt();
        cluster.settle();
        cluster.run_all();
        cluster.settle();
        assert_eq!(cluster.state(), State::Running);
        cluster
    }
}
