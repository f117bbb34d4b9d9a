//! A node with an API server of its own, and pods to run on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{DeleteParams, LogParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tempfile::TempDir;
use trainyard_apiserver::{ApiServer, Kubelet, LogOptions, PodId};
use trainyard_node::{Config, Node};

/// What a test waits for at most: long enough for a busy machine, short enough to see that something hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where the shim is, if not where this build has put it.
pub(crate) const SHIM: &str = "TRAINYARD_TEST_SHIM";

pub(crate) struct World {
    pub(crate) client: kube::Client,
    pub(crate) api: ApiServer,
    pub(crate) node: Arc<Node>,
    pub(crate) state: TempDir,
}

pub(crate) fn config(state: &TempDir) -> Config {
    let mut config = Config::new(state.path().join("node"));
    // Another user may not be allowed to read this build: see `unprivileged`.
    let shim = std::env::var(SHIM).unwrap_or_else(|_| env!("CARGO_BIN_EXE_trainyard-shim").to_owned());
    config.shim = vec![shim];
    "box".clone_into(&mut config.name);
    config.cpu = Some("4".to_owned());
    config.working_dir = PathBuf::from("/tmp");
    config
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let api = ApiServer::builder().build().unwrap();
        let state = tempfile::tempdir().unwrap();
        let mut config = config(&state);
        change(&mut config);
        Self::of(api, state, config).await
    }

    pub(crate) async fn of(api: ApiServer, state: TempDir, config: Config) -> Self {
        let client = api.client("default");
        let node = Arc::new(Node::start(client.clone(), config).await.unwrap());
        api.set_kubelet(node.clone());
        Self { client, api, node, state }
    }

    /// Whether this machine lets the tests make control groups.
    pub(crate) fn enforces_memory(&self) -> bool {
        self.node.without_limits().is_none()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn create(&self, pod: Value) -> Pod {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap()
    }

    pub(crate) async fn create_any<K>(&self, object: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        Api::<K>::namespaced(self.client.clone(), "default")
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    /// Waits until a pod is as wanted.
    pub(crate) async fn wait(&self, name: &str, what: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let condition = |pod: Option<&Pod>| pod.is_some_and(&wanted);
        let outcome = tokio::time::timeout(PATIENCE, await_condition(self.pods(), name, condition)).await;
        match outcome {
            Ok(Ok(Some(pod))) => pod,
            other => {
                let pod = self.pods().get_opt(name).await;
                panic!(
                    "{name} was never {what}: {other:?}; it is {}",
                    serde_json::to_string_pretty(&pod.unwrap()).unwrap()
                );
            }
        }
    }

    pub(crate) async fn wait_phase(&self, name: &str, phase: &str) -> Pod {
        self.wait(name, phase, |pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
        })
        .await
    }

    pub(crate) async fn wait_gone(&self, name: &str) {
        let condition = |pod: Option<&Pod>| pod.is_none();
        let outcome = tokio::time::timeout(PATIENCE, await_condition(self.pods(), name, condition)).await;
        outcome.unwrap_or_else(|_| panic!("{name} was never gone")).unwrap();
    }

    /// Runs a pod to its end and returns it with its output.
    pub(crate) async fn run(&self, pod: Value) -> (Pod, String) {
        let name = self.create(pod).await.metadata.name.unwrap();
        let pod = self
            .wait(&name, "ended", |pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                matches!(phase, Some("Succeeded" | "Failed"))
            })
            .await;
        let container = pod.spec.as_ref().unwrap().containers[0].name.clone();
        let text = self.log(&pod, &container, LogOptions::default()).await;
        (pod, text)
    }

    pub(crate) async fn log(&self, pod: &Pod, container: &str, options: LogOptions) -> String {
        let stream = self.node.logs(&id(pod), container, options).await.unwrap();
        let pieces: Vec<_> = stream.try_collect().await.unwrap();
        String::from_utf8(pieces.concat()).unwrap()
    }

    /// The log through the API, as `kubectl logs` gets it.
    pub(crate) async fn log_by_api(&self, name: &str) -> String {
        self.pods().logs(name, &LogParams::default()).await.unwrap()
    }

    /// Waits until the output of a running container has this line.
    pub(crate) async fn wait_output(&self, pod: &Pod, container: &str, line: &str) {
        let options = LogOptions { follow: true, ..LogOptions::default() };
        let mut stream = self.node.logs(&id(pod), container, options).await.unwrap();
        let mut text = String::new();
        let found = async {
            while let Some(piece) = stream.next().await {
                text.push_str(&String::from_utf8_lossy(&piece.unwrap()));
                if text.lines().any(|seen| seen == line) {
                    return;
                }
            }
            panic!("the log ended without {line:?}: {text}");
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str, grace: u32) {
        self.pods().delete(name, &DeleteParams::default().grace_period(grace)).await.unwrap();
    }

    /// Waits for an event with this reason; its message.
    pub(crate) async fn event(&self, pod: &str, reason: &str) -> String {
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let found = async {
            let mut stream =
                kube::runtime::watcher::watcher(api, kube::runtime::watcher::Config::default()).boxed();
            while let Some(event) = stream.try_next().await.unwrap() {
                if let kube::runtime::watcher::Event::Apply(event)
                | kube::runtime::watcher::Event::InitApply(event) = event
                    && event.reason.as_deref() == Some(reason)
                    && event.involved_object.name.as_deref() == Some(pod)
                {
                    return event.message.unwrap_or_default();
                }
            }
            String::new()
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no event {reason} on {pod}"))
    }
}

pub(crate) fn id(pod: &Pod) -> PodId {
    PodId {
        namespace: pod.metadata.namespace.clone().unwrap(),
        name: pod.metadata.name.clone().unwrap(),
        uid: pod.metadata.uid.clone().unwrap(),
    }
}

/// A pod that runs a shell script once.
pub(crate) fn script(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "some/image:1", "command": ["sh", "-c", script]}]},
    })
}

/// Exit code and reason of a pod's container.
pub(crate) fn end(pod: &Pod, container: &str) -> (i32, String) {
    let status = pod.status.as_ref().unwrap();
    let all =
        status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    let state = all.clone().find(|status| status.name == container).unwrap().state.clone().unwrap();
    let ended = state.terminated.unwrap_or_else(|| panic!("{container} has not ended"));
    (ended.exit_code, ended.reason.unwrap_or_default())
}
