//! A cluster with real nodes, and the real operator beside it under its shipped role.

#![expect(unreachable_pub, reason = "a test program exports nothing")]

use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use trainyard_api::{State, TrainingJob, TrainingJobStatus};
use trainyard_testcluster::{Component, RootFs, TestCluster};

/// Far longer than anything takes: reaching it is a failure, not a delay.
const LIMIT: Duration = Duration::from_mins(2);
/// Python, the example in /app, and the trainyard binary for the agent.
pub const IMAGE: &str = "test/digits:1";

pub struct Yard {
    // Dropped first: nobody misses the cluster.
    operator: Option<Component>,
    pub cluster: TestCluster,
    pub client: Client,
    begun: Instant,
    starts: u32,
}

impl Yard {
    pub async fn new(nodes: usize) -> Self {
        let begun = Instant::now();
        let cluster = TestCluster::builder().real_nodes(nodes).start().await.unwrap();
        let client = cluster.client().await.unwrap();
        let yard = Self { operator: None, cluster, client, begun, starts: 0 };
        yard.tell(&format!("{nodes} nodes are there"));
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
        let mut root = RootFs::python().file(trainyard(), "/usr/local/bin/trainyard");
        for entry in std::fs::read_dir(example).unwrap().flatten() {
            if entry.path().extension().is_some_and(|it| it == "py") {
                root = root.file(entry.path(), Path::new("/app").join(entry.file_name()));
            }
        }
        yard.cluster.image(IMAGE, &root).await.unwrap();
        yard.tell("they have the image");
        yard.install().await;
        yard
    }

    /// The CRD, and the operator's account with what it may do, as shipped.
    async fn install(&self) {
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kubernetes/base");
        let file = |name: &str| base.join(name).display().to_string();
        self.kubectl(&["apply", "-f", &file("trainingjob-crd.yaml")]).await;
        self.cluster.await_kind("trainingjobs.ml.example.com").await.unwrap();
        self.kubectl(&["create", "namespace", "trainingjob-system"]).await;
        self.kubectl(&["apply", "-n", "trainingjob-system", "-f", &file("rbac.yaml")]).await;
    }

    /// Says what has happened, and when: what a person wants to read when a step fails.
    pub fn tell(&self, what: &str) {
        println!("{:6.1} s  {what}", self.begun.elapsed().as_secs_f64());
    }

    pub async fn start_operator(&mut self) {
        self.starts += 1;
        let account = self
            .cluster
            .kubeconfig_for_service_account("trainingjob-system", "trainingjob-operator")
            .unwrap()
            .display()
            .to_string();
        let mut argv: Vec<OsString> = vec![trainyard().into(), "operator".into()];
        let flags = [
            "--kubeconfig",
            &account,
            "--namespace=default",
            "--no-metrics",
            "--log-format=json",
            "--backoff-seconds=0",
            "--unreachable-seconds=5",
            "--force-delete-seconds=2",
            "--agent-image",
            IMAGE,
        ];
        argv.extend(flags.iter().map(OsString::from));
        self.operator = Some(Component::start("operator", &argv, self.log_path(self.starts)).unwrap());
        self.wait_for("the operator's start", async || self.log().contains("Starting workers")).await;
    }

    /// As `kill -9`.
    pub fn kill_operator(&mut self) {
        self.operator = None;
    }

    fn log_path(&self, start: u32) -> PathBuf {
        self.cluster.dir().join(format!("operator-{start}.log"))
    }

    /// What the newest operator has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path(self.starts)).unwrap_or_default()
    }

    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl().run(arguments).await.unwrap().expect(&arguments.join(" "))
    }

    pub async fn apply(&self, manifest: &str) {
        self.cluster.kubectl().stdin(manifest).run(&["apply", "-f", "-"]).await.unwrap().expect("apply");
    }

    /// The job's status; nothing while the API server is away.
    pub async fn status(&self, job: &str) -> Option<TrainingJobStatus> {
        let jobs: Api<TrainingJob> = Api::default_namespaced(self.client.clone());
        jobs.get_opt(job).await.ok().flatten().and_then(|job| job.status)
    }

    pub async fn pods(&self, job: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let selector = ListParams::default().labels(&format!("trainingjob={job}"));
        let mut pods = pods.list(&selector).await.unwrap().items;
        pods.sort_by_key(ResourceExt::name_any);
        pods
    }

    /// Makes a claim that all pods can share, and says where its files are on this machine.
    ///
    /// The volumes of this cluster are directories that belong to root, and kubelets give those to nobody else: `fsGroup` means
    /// nothing to them. So that the workers can write there, as on real storage, everybody may.
    pub async fn claim(&self, claim: &str) -> PathBuf {
        self.apply(&format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {claim}}}\n\
             spec: {{accessModes: [ReadWriteMany], resources: {{requests: {{storage: 16Mi}}}}}}\n"
        ))
        .await;
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(self.client.clone());
        let start = Instant::now();
        let volume = loop {
            let found = claims.get_opt(claim).await.unwrap();
            if let Some(volume) = found.and_then(|claim| claim.spec?.volume_name) {
                break volume;
            }
            assert!(start.elapsed() < LIMIT, "{claim} is never bound");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let path = self.kubectl(&["get", "pv", &volume, "-o", "jsonpath={.spec.hostPath.path}"]).await;
        let directory = self.cluster.dir().join("tmp").join(path.strip_prefix("/tmp/").unwrap());
        std::fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        directory
    }

    pub async fn until_state(&self, job: &str, state: State) -> TrainingJobStatus {
        self.until(job, &format!("{state:?}"), |status| status.state == Some(state)).await
    }

    /// Waits until the status is as wanted, and returns it.
    pub async fn until(
        &self,
        job: &str,
        what: &str,
        wanted: impl Fn(&TrainingJobStatus) -> bool,
    ) -> TrainingJobStatus {
        let start = Instant::now();
        loop {
            let status = self.status(job).await.unwrap_or_default();
            if wanted(&status) {
                return status;
            }
            // Nothing comes after an end.
            if start.elapsed() > LIMIT || status.state.is_some_and(State::is_terminal) {
                self.give_up(&format!("{job} never came to: {what}\nstatus: {status:#?}")).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn wait_for(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let start = Instant::now();
        while !condition().await {
            if start.elapsed() > LIMIT {
                self.give_up(&format!("never happened: {what}")).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The operator has never asked for something that its role does not allow. An API server that has just been started
    /// refuses everything for a moment, so this is asked before that.
    pub fn the_role_sufficed(&self) {
        for start in 1..=self.starts {
            let log = std::fs::read_to_string(self.log_path(start)).unwrap_or_default();
            let refused = log.lines().find(|line| line.contains("cannot") && line.contains("resource"));
            assert_eq!(refused, None, "the shipped role lacks something");
        }
    }

    /// Ends the test with what one has to know to find out why.
    async fn give_up(&self, why: &str) -> ! {
        let pods = self.cluster.kubectl().run(&["describe", "pods"]).await.unwrap();
        let logs = ["logs", "--selector=app=trainingjob", "--all-containers", "--prefix", "--tail=20"];
        let logs = self.cluster.kubectl().run(&logs).await.unwrap();
        panic!("{why}\noperator's log:\n{}\n{pods}\n{logs}", self.log());
    }
}

fn trainyard() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_trainyard"))
}
