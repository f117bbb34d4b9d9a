//! `trainyard up` for a test: the control plane in a process of its own, and a client of it.

#![expect(unreachable_pub, reason = "a test program exports nothing")]

use std::path::Path;

use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use trainyard_api::{State, TrainingJob, TrainingJobStatus};

use crate::common::status;
use crate::support::{Bench, Running};

pub struct Plane {
    pub up: Running,
    pub client: Client,
    pub jobs: Jobs,
}

impl Plane {
    /// With what an earlier one of the same test has left behind.
    pub async fn start(bench: &Bench) -> Self {
        let up = bench.start(&["up", "--state", "state", "--address", "127.0.0.1:0"]);
        up.until_it_says("export KUBECONFIG=");
        let client = client(bench).await;
        Self { up, jobs: Jobs::of(&client), client }
    }

    /// As `kill -9`.
    pub fn kill(self) {
        self.up.signal("-9");
        self.up.wait();
    }
}

pub async fn client(bench: &Bench) -> Client {
    client_of(bench.path()).await
}

/// A client of the control plane of the test in this directory. It belongs to the runtime on which it is made.
pub async fn client_of(directory: &Path) -> Client {
    let config = Kubeconfig::read_from(directory.join("state/kubeconfig")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// The jobs of a control plane, and waiting for what becomes of them.
pub struct Jobs(Api<TrainingJob>);

impl Jobs {
    pub fn of(client: &Client) -> Self {
        Self(Api::namespaced(client.clone(), "default"))
    }

    pub async fn create(&self, manifest: &str) {
        let job: TrainingJob = serde_saphyr::from_str(manifest).unwrap();
        self.0.create(&PostParams::default(), &job).await.unwrap();
    }

    pub async fn change(&self, job: &str, spec: serde_json::Value) {
        let patch = Patch::Merge(serde_json::json!({ "spec": spec }));
        self.0.patch(job, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn get(&self, job: &str) -> TrainingJob {
        self.0.get(job).await.unwrap()
    }

    pub async fn status(&self, job: &str) -> TrainingJobStatus {
        self.get(job).await.status.unwrap_or_default()
    }

    pub async fn delete(&self, job: &str) {
        self.0.delete(job, &kube::api::DeleteParams::default()).await.unwrap();
    }

    /// Waits until the status is as wanted, and returns it.
    pub async fn until(
        &self,
        job: &str,
        what: &str,
        wanted: impl Fn(&TrainingJobStatus) -> bool,
    ) -> TrainingJobStatus {
        let found = status::until(&self.0, job, wanted).await;
        found.unwrap_or_else(|status| panic!("never happened: {what}: {status:#?}"))
    }

    pub async fn until_state(&self, job: &str, state: State) -> TrainingJobStatus {
        self.until(job, &format!("{state:?}"), |status| status.state == Some(state)).await
    }
}
