//! What was there is there again after a restart, and clients that were watching are told to look anew.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the answer")]

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use trainyard_api::{TrainingJob, crd};
use trainyard_apiserver::{ApiServer, StartError, Trouble};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "1"}})).unwrap()
}

#[tokio::test]
async fn objects_kinds_and_versions_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let post = PostParams::default();
    let (uid, version) = {
        let server = ApiServer::builder().state_dir(dir.path()).build().unwrap();
        let again = ApiServer::builder().state_dir(dir.path()).build();
        assert!(matches!(again, Err(StartError::State(Trouble::InUse { .. }))), "one directory, one server");
        let client = server.client("default");
        Api::<CustomResourceDefinition>::all(client.clone())
            .create(&post, &crd::training_job())
            .await
            .unwrap();
        let jobs: Api<TrainingJob> = Api::default_namespaced(client.clone());
        let job = json!({"apiVersion": "ml.example.com/v1", "kind": "TrainingJob", "metadata": {"name": "a"},
            "spec": {"image": "i", "numWorkers": 2}});
        let job = jobs.create(&post, &serde_json::from_value(job).unwrap()).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        for name in ["gone", "kept"] {
            maps.create(&post, &map(name)).await.unwrap();
        }
        maps.delete("gone", &DeleteParams::default()).await.unwrap();
        let list = maps.list(&ListParams::default()).await.unwrap();
        (job.metadata.uid, list.metadata.resource_version.unwrap())
    };
    // The client's worker holds the server until it notices that its clients are gone.
    let server = loop {
        match ApiServer::builder().state_dir(dir.path()).build() {
            Ok(server) => break server,
            Err(StartError::State(Trouble::InUse { .. })) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let client = server.client("default");
    let jobs: Api<TrainingJob> = Api::default_namespaced(client.clone());
    assert_eq!(jobs.get("a").await.unwrap().metadata.uid, uid);
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    assert!(list.metadata.resource_version.unwrap().parse::<u64>().unwrap() >= version.parse().unwrap());
    assert!(Api::<Namespace>::all(client).list(&ListParams::default()).await.unwrap().items.len() >= 4);

    let mut events = maps.watch(&WatchParams::default(), "1").await.unwrap().boxed();
    let Some(WatchEvent::Error(status)) = events.try_next().await.unwrap() else { panic!("no refusal") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    // New changes are told as ever.
    let made = maps.create(&post, &map("new")).await.unwrap();
    let before = made.metadata.resource_version.unwrap().parse::<u64>().unwrap() - 1;
    let mut events = maps.watch(&WatchParams::default(), &before.to_string()).await.unwrap().boxed();
    let Some(WatchEvent::Added(seen)) = events.try_next().await.unwrap() else { panic!("no event") };
    assert_eq!(seen.metadata.name.as_deref(), Some("new"));
}
