//! The operator runs jobs against the server in memory: a node of a few lines walks the pods.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the answer")]

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use trainyard_api::{State, TrainingJob, crd};
use trainyard_apiserver::ApiServer;
use trainyard_operator::{Config, Operator};

/// Binds pods and walks them to their end; a pod that is deleted goes at once.
async fn node(client: Client) {
    let all: Api<Pod> = Api::all(client.clone());
    let mut events = watcher::watcher(all, watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event else { continue };
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            let _ = pods
                .delete(&name, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
                .await;
            continue;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let status = match (pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()), phase) {
            (None, _) => {
                let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": "here"}});
                let bound: Result<serde_json::Value, _> =
                    pods.create_subresource("binding", &name, &PostParams::default(), &body).await;
                bound.unwrap();
                continue;
            }
            (Some(_), "Pending") => json!({"phase": "Running", "podIP": "127.0.0.2",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "trainer", "image": "x", "imageID": "", "ready": true, "restartCount": 0,
                    "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}),
            (Some(_), "Running") => json!({"phase": "Succeeded",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [{"name": "trainer", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}),
            _ => continue,
        };
        let patch = Patch::Merge(json!({"status": status}));
        // The operator may have removed it meanwhile.
        let _ = pods.patch_status(&name, &PatchParams::default(), &patch).await;
    }
}

fn job(name: &str, workers: u32) -> TrainingJob {
    serde_json::from_value(json!({
        "apiVersion": "ml.example.com/v1", "kind": "TrainingJob", "metadata": {"name": name},
        "spec": {"image": "trainer:1", "command": ["train"], "numWorkers": workers},
    }))
    .unwrap()
}

#[tokio::test]
async fn a_job_runs_to_completion_and_leaves_nothing_when_it_is_deleted() {
    let server = ApiServer::builder().seed(1).build().unwrap();
    let client = server.client("default");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &crd::training_job()).await.unwrap();
    let operator = Operator::bind(client.clone(), Config::default()).await.unwrap();
    let running = tokio::spawn(operator.run(std::future::pending()));
    let walking = tokio::spawn(node(client.clone()));

    let jobs: Api<TrainingJob> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &job("mnist", 3)).await.unwrap();
    let completed = async {
        let mut events = watcher::watch_object(jobs.clone(), "mnist").boxed();
        while let Some(event) = events.next().await {
            let state = event.unwrap().and_then(|job| job.status).and_then(|status| status.state);
            if matches!(state, Some(State::Completed | State::Failed)) {
                return state;
            }
        }
        None
    };
    let state = tokio::time::timeout(Duration::from_secs(30), completed).await.expect("the job ends");
    assert_eq!(state, Some(State::Completed));

    jobs.delete("mnist", &DeleteParams::background()).await.unwrap();
    let gone = async {
        let everything = ListParams::default();
        loop {
            let pods: Api<Pod> = Api::default_namespaced(client.clone());
            let services: Api<Service> = Api::default_namespaced(client.clone());
            let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
            let left = pods.list(&everything).await.unwrap().items.len()
                + services.list(&everything).await.unwrap().items.len()
                + maps.list(&everything).await.unwrap().items.len();
            if left == 0 && jobs.get_opt("mnist").await.unwrap().is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("nothing is left");
    running.abort();
    walking.abort();
}
