//! A namespace of its own for each test, on one shared cluster, with an operator that watches it.

#![expect(unreachable_pub, reason = "a test program exports nothing")]

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use tokio::sync::OnceCell;
use trainyard_api::{State, TrainingJob, TrainingJobStatus};
use trainyard_testcluster::{Component, HollowNodes, KubectlOutput, Script, TestCluster, shared};

/// Far longer than anything takes: reaching it is a failure, not a delay.
const LIMIT: Duration = Duration::from_mins(1);

type Walk = Arc<dyn Fn(&Pod) -> Script + Send + Sync>;

/// What pods do, by namespace.
fn scripts() -> &'static Mutex<HashMap<String, Walk>> {
    static SCRIPTS: OnceLock<Mutex<HashMap<String, Walk>>> = OnceLock::new();
    SCRIPTS.get_or_init(Mutex::default)
}

pub fn follow_scripts(pod: &Pod) -> Script {
    let script = scripts().lock().unwrap().get(&pod.namespace().unwrap_or_default()).cloned();
    script.map_or_else(Script::run_forever, |script| script(pod))
}

pub async fn nodes(cluster: &TestCluster) -> HollowNodes {
    cluster.hollow_nodes(4, &[("nvidia.com/gpu", "8")], follow_scripts).await.expect("hollow nodes")
}

pub async fn install_crd(cluster: &TestCluster) {
    let crd = std::process::Command::new(trainyard()).arg("crds").output().expect("trainyard crds");
    assert!(crd.status.success());
    let kubectl = cluster.kubectl().stdin(crd.stdout);
    kubectl.run(&["apply", "-f", "-"]).await.unwrap().expect("apply the CRD");
    cluster.await_kind("trainingjobs.ml.example.com").await.unwrap();
}

/// The operator's account and what it may do, as shipped. Every test's operator runs under it.
pub async fn install_role(cluster: &TestCluster) {
    let base = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kubernetes/base");
    let namespace = ["create", "namespace", "trainingjob-system"];
    cluster.kubectl().run(&namespace).await.unwrap().expect("a namespace");
    let rbac = base.join("rbac.yaml");
    let apply = ["apply", "-n", "trainingjob-system", "-f", rbac.to_str().unwrap()];
    cluster.kubectl().run(&apply).await.unwrap().expect("rbac");
}

/// A kubeconfig of the operator's account.
pub fn account(cluster: &TestCluster) -> String {
    let file = cluster.kubeconfig_for_service_account("trainingjob-system", "trainingjob-operator");
    file.expect("a kubeconfig").display().to_string()
}

async fn shared_nodes() -> &'static HollowNodes {
    static NODES: OnceCell<HollowNodes> = OnceCell::const_new();
    NODES
        .get_or_init(|| async {
            let cluster = shared().await;
            install_crd(cluster).await;
            install_role(cluster).await;
            nodes(cluster).await
        })
        .await
}

pub fn trainyard() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_trainyard"))
}

/// One test's place in the cluster.
pub struct Yard {
    pub cluster: &'static TestCluster,
    pub nodes: &'static HollowNodes,
    pub client: Client,
    pub namespace: String,
    operator: Option<Component>,
    starts: u32,
}

impl Yard {
    /// A namespace and an operator for it. Pods run until a test ends them, unless it gives a script.
    pub async fn new(namespace: &str) -> Self {
        let mut yard = Self::without_operator(namespace).await;
        yard.start_operator(&[]).await;
        yard
    }

    pub async fn without_operator(namespace: &str) -> Self {
        let cluster = shared().await;
        let nodes = shared_nodes().await;
        let client = cluster.client().await.expect("a client");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let mut object = Namespace::default();
        object.metadata.name = Some(namespace.to_owned());
        match namespaces.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            other => drop(other.expect("a namespace")),
        }
        let yard =
            Self { cluster, nodes, client, namespace: namespace.to_owned(), operator: None, starts: 0 };
        yard.wait_for("the default service account", async || {
            yard.kubectl_in(&["get", "serviceaccount", "default"]).await.success
        })
        .await;
        yard
    }

    pub fn script(&self, script: impl Fn(&Pod) -> Script + Send + Sync + 'static) {
        scripts().lock().unwrap().insert(self.namespace.clone(), Arc::new(script));
    }

    /// Starts the real binary, without a backoff between attempts unless the test asks for one.
    pub async fn start_operator(&mut self, more: &[&str]) {
        self.launch_operator(more);
        let log = self.log_path();
        self.wait_for("the operator's start", async || {
            std::fs::read_to_string(&log).unwrap_or_default().contains("Starting workers")
        })
        .await;
    }

    pub fn launch_operator(&mut self, more: &[&str]) {
        self.starts += 1;
        let mut argv: Vec<OsString> = vec![trainyard().into(), "operator".into()];
        let kubeconfig = account(self.cluster);
        let fixed = ["--kubeconfig", &kubeconfig, "--namespace", &self.namespace, "--log-format=json"];
        argv.extend(fixed.iter().map(OsString::from));
        if !more.iter().any(|flag| flag.starts_with("--metrics-address")) {
            argv.push("--no-metrics".into());
        }
        if !more.iter().any(|flag| flag.starts_with("--backoff-seconds")) {
            argv.push("--backoff-seconds=0".into());
        }
        argv.extend(more.iter().map(OsString::from));
        self.operator = Some(Component::start("operator", &argv, self.log_path()).expect("the operator"));
    }

    /// As `kill -9`.
    pub fn kill_operator(&mut self) {
        self.operator = None;
    }

    pub fn operator(&mut self) -> &mut Component {
        self.operator.as_mut().expect("a running operator")
    }

    pub fn log_path(&self) -> PathBuf {
        self.cluster.dir().join(format!("operator-{}-{}.log", self.namespace, self.starts))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// kubectl, in this test's namespace.
    pub async fn kubectl_in(&self, arguments: &[&str]) -> KubectlOutput {
        let mut all = vec!["--namespace", &self.namespace];
        all.extend(arguments);
        self.cluster.kubectl().run(&all).await.expect("kubectl")
    }

    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_in(arguments).await.expect(&arguments.join(" "))
    }

    pub async fn apply(&self, manifest: &str) -> KubectlOutput {
        let arguments = ["--namespace", &self.namespace, "apply", "-f", "-"];
        self.cluster.kubectl().stdin(manifest).run(&arguments).await.expect("kubectl")
    }

    pub fn jobs(&self) -> Api<TrainingJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn job(&self, name: &str) -> TrainingJob {
        self.jobs().get(name).await.unwrap_or_else(|error| panic!("job {name}: {error}"))
    }

    pub async fn status(&self, name: &str) -> TrainingJobStatus {
        self.job(name).await.status.unwrap_or_default()
    }

    /// Names of the job's pods, sorted.
    pub async fn pods(&self, job: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let selector = ListParams::default().labels(&format!("trainingjob={job}"));
        let mut pods = pods.list(&selector).await.expect("pods").items;
        pods.sort_by_key(ResourceExt::name_any);
        pods
    }

    pub async fn pod_names(&self, job: &str) -> Vec<String> {
        self.pods(job).await.iter().map(ResourceExt::name_any).collect()
    }

    /// Ends a running pod.
    pub async fn end(&self, pod: &str, code: i32) {
        self.nodes
            .end_pod(&self.namespace, pod, code, None)
            .await
            .unwrap_or_else(|error| panic!("{pod}: {error}"));
    }

    pub async fn end_all(&self, job: &str, code: i32) {
        for pod in self.pod_names(job).await {
            self.end(&pod, code).await;
        }
    }

    pub async fn until_state(&self, name: &str, state: State) -> TrainingJobStatus {
        self.until(name, &format!("{state:?}"), |status| status.state == Some(state)).await
    }

    /// Waits until the status is as wanted, and returns it.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&TrainingJobStatus) -> bool,
    ) -> TrainingJobStatus {
        let start = Instant::now();
        loop {
            let status =
                self.jobs().get_opt(name).await.ok().flatten().and_then(|job| job.status).unwrap_or_default();
            if wanted(&status) {
                return status;
            }
            assert!(
                start.elapsed() < LIMIT,
                "{name} never came to: {what}\nstatus: {status:#?}\noperator's log:\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn wait_for(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let start = Instant::now();
        while !condition().await {
            assert!(start.elapsed() < LIMIT, "never happened: {what}\noperator's log:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Reasons of the job's events, sorted, one per event object.
    pub async fn events(&self, job: &str) -> Vec<String> {
        let field = format!("--field-selector=involvedObject.name={job}");
        let reasons = self.kubectl(&["get", "events", &field, "-o", "jsonpath={.items[*].reason}"]).await;
        let mut reasons: Vec<String> = reasons.split_whitespace().map(str::to_owned).collect();
        reasons.sort();
        reasons
    }
}

impl Drop for Yard {
    /// Whatever a test does, the operator never asks for something that its role does not allow.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for start in 1..=self.starts {
            self.starts = start;
            let log = self.log();
            let refused = log.lines().find(|line| line.contains("cannot") && line.contains("resource"));
            assert_eq!(refused, None, "the shipped role lacks something");
        }
    }
}

/// A small job of the user's own program.
pub fn job(name: &str, workers: i32) -> String {
    format!(
        "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {{name: {name}}}\nspec:\n  image: train:1\n  numWorkers: {workers}\n"
    )
}
