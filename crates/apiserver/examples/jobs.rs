//! How fast the operator is on this server: jobs of four pods that end at once, from the first create to the last
//! completion, all in one process.
//!
//! `cargo run --release -p trainyard-apiserver --example jobs -- [JOBS]`

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Instant;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trainyard_api::{State, TrainingJob, crd};
use trainyard_apiserver::ApiServer;
use trainyard_operator::{Config, Operator};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let jobs: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    let server = ApiServer::builder().build()?;
    let client = server.client("default");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &crd::training_job()).await?;
    let operator = Operator::bind(client.clone(), Config::default()).await?;
    tokio::spawn(operator.run(std::future::pending()));
    tokio::spawn(node(client.clone()));

    let api: Api<TrainingJob> = Api::default_namespaced(client.clone());
    let mut changes = watcher::watcher(api.clone(), watcher::Config::default()).boxed();
    let started = Instant::now();
    let creating = tokio::spawn(create(api, jobs));
    let mut completed = BTreeSet::new();
    while completed.len() < jobs {
        if let Some(Ok(Event::Apply(job) | Event::InitApply(job))) = changes.next().await
            && job.status.as_ref().and_then(|status| status.state) == Some(State::Completed)
        {
            completed.insert(job.name_any());
        }
    }
    creating.await??;
    let seconds = started.elapsed().as_secs_f64();
    writeln!(std::io::stdout(), "{jobs} jobs of 4 pods in {seconds:.2} s")?;
    Ok(())
}

async fn create(api: Api<TrainingJob>, jobs: usize) -> Result<(), kube::Error> {
    for number in 0..jobs {
        let job = json!({"apiVersion": "ml.example.com/v1", "kind": "TrainingJob",
            "metadata": {"name": format!("job-{number}")},
            "spec": {"image": "image:1", "command": ["train"], "numWorkers": 4}});
        let job: TrainingJob = serde_json::from_value(job).map_err(kube::Error::SerdeError)?;
        api.create(&PostParams::default(), &job).await?;
    }
    Ok(())
}

/// Binds every pod and lets it succeed at once.
async fn node(client: Client) {
    let all: Api<Pod> = Api::all(client.clone());
    let mut events = watcher::watcher(all, watcher::Config::default()).boxed();
    let mut steps = JoinSet::new();
    while let Some(event) = events.next().await {
        while steps.try_join_next().is_some() {}
        let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event else { continue };
        let (name, placed) = (pod.name_any(), pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(client.clone(), pod.namespace().as_deref().unwrap_or("default"));
        let deleting = pod.metadata.deletion_timestamp.is_some();
        steps.spawn(async move {
            if deleting {
                let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                let _ = pods.delete(&name, &now).await;
            } else if !placed {
                let binding = json!({"apiVersion": "v1", "kind": "Binding", "target": {"name": "here"}});
                let _: Result<Value, _> =
                    pods.create_subresource("binding", &name, &PostParams::default(), &binding).await;
            } else if phase == "Pending" {
                let status = json!({"status": {"phase": "Succeeded", "containerStatuses": [{"name": "trainer",
                    "image": "image:1", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}});
                let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
            }
        });
    }
}
