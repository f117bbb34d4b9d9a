//! How fast the server is: creates per second through `kube::Client`, with no socket in between.
//!
//! `cargo run --release -p trainyard-apiserver --example rate -- [OBJECTS] [CONNECTIONS]`

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trainyard_api::{TrainingJob, crd};
use trainyard_apiserver::ApiServer;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let (objects, connections) = (numbers.next().unwrap_or(20_000), numbers.next().unwrap_or(16));
    let started = Instant::now();
    let server = ApiServer::builder().build()?;
    writeln!(std::io::stdout(), "started in {:.1} ms", started.elapsed().as_secs_f64() * 1e3)?;
    let client = server.client("default");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &crd::training_job()).await?;
    measure::<ConfigMap>(
        &client,
        "config maps",
        objects,
        connections,
        |name| json!({"metadata": {"name": name}, "data": {"a": "1"}}),
    )
    .await?;
    measure::<Pod>(&client, "pods", objects, connections, |name| {
        json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {
            "containers": [{"name": "main", "image": "image:1", "command": ["train"], "env": [
                {"name": "RANK", "value": "0"}, {"name": "WORLD_SIZE", "value": "4"},
                {"name": "MASTER_ADDR", "value": "a-workers-0.a-workers"}, {"name": "MASTER_PORT", "value": "29500"}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
            "restartPolicy": "Never"}})
    })
    .await?;
    measure::<TrainingJob>(&client, "training jobs", objects, connections, |name| {
        json!({"apiVersion": "ml.example.com/v1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"image": "image:1", "command": ["train"], "numWorkers": 4}})
    })
    .await?;
    Ok(())
}

async fn measure<K>(
    client: &Client,
    what: &str,
    objects: usize,
    connections: usize,
    object: fn(String) -> Value,
) -> Result<(), Box<dyn std::error::Error>>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    // The first one of a kind pays for the compilation of its schema.
    let first: K = serde_json::from_value(object("first".to_owned()))?;
    let started = Instant::now();
    Api::<K>::default_namespaced(client.clone()).create(&PostParams::default(), &first).await?;
    let first = started.elapsed().as_secs_f64() * 1e3;
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let workers: Vec<_> = (0..connections)
        .map(|_| {
            let (api, next): (Api<K>, _) = (Api::default_namespaced(client.clone()), next.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= objects {
                        return Ok::<(), kube::Error>(());
                    }
                    let object: K = serde_json::from_value(object(format!("object-{number}")))
                        .map_err(kube::Error::SerdeError)?;
                    api.create(&PostParams::default(), &object).await?;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    let seconds = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = objects as f64 / seconds;
    writeln!(std::io::stdout(), "{what}: {rate:.0} creates/s, the first in {first:.1} ms")?;
    Ok(())
}
