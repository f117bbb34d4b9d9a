//! A cluster with real nodes, and the real operator beside it under its shipped role.

#![expect(unreachable_pub, reason = "a test program exports nothing")]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use trainyard_api::{State, TrainingJob, TrainingJobStatus};
use trainyard_testcluster::{Component, RootFs, TestCluster};

use crate::common::example::Example;
use crate::common::status::{self, LIMIT};

/// Python, the digits example in /app, and the trainyard binary for the agent.
pub const IMAGE: &str = "test/digits:1";

pub struct Yard {
    // Dropped first: nobody misses the cluster.
    operator: Option<Component>,
    pub cluster: TestCluster,
    pub client: Client,
    begun: Instant,
    starts: u32,
    /// How many operators had been started when the API server was killed last.
    before_outage: u32,
}

impl Yard {
    pub async fn new(nodes: usize) -> Self {
        let begun = Instant::now();
        let cluster = TestCluster::builder().real_nodes(nodes).start().await.unwrap();
        let client = cluster.client().await.unwrap();
        let yard = Self { operator: None, cluster, client, begun, starts: 0, before_outage: 0 };
        yard.tell(&format!("{nodes} nodes are there"));
        let root = RootFs::python().file(trainyard(), "/usr/local/bin/trainyard");
        yard.image(IMAGE, root, Example::DIGITS).await;
        yard.install().await;
        yard
    }

    /// Gives all nodes an image with an example in /app.
    pub async fn image(&self, name: &str, mut root: RootFs, example: Example) {
        for (from, to) in example.files() {
            root = root.file(from, Path::new("/app").join(to));
        }
        self.cluster.image(name, &root).await.unwrap();
        self.tell(&format!("they have {name}"));
    }

    /// The CRD, and the operator's account with what it may do, as shipped.
    async fn install(&self) {
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kubernetes/base");
        let file = |name: &str| base.join(name).display().to_string();
        self.kubectl(&["apply", "-f", &file("trainingjob-crd.yaml")]).await;
        self.cluster.await_kind("trainingjobs.ml.example.com").await.unwrap();
        self.kubectl(&["create", "namespace", "trainingjob-system"]).await;
        self.kubectl(&["apply", "-n", "trainingjob-system", "-f", &file("rbac.yaml")]).await;
        self.kubectl(&["apply", "-n", "trainingjob-system", "-f", &file("stacks-rbac.yaml")]).await;
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

    /// As `kill -9`.
    pub fn kill_apiserver(&mut self) {
        self.before_outage = self.starts;
        self.cluster.stop_apiserver();
        self.tell("killed: the API server");
    }

    pub async fn start_apiserver(&mut self) {
        self.cluster.start_apiserver().await.unwrap();
        self.tell("the API server is back");
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

    fn jobs(&self) -> Api<TrainingJob> {
        Api::default_namespaced(self.client.clone())
    }

    /// The job's status; nothing while the API server is away.
    pub async fn status(&self, job: &str) -> Option<TrainingJobStatus> {
        self.jobs().get_opt(job).await.ok().flatten().and_then(|job| job.status)
    }

    pub async fn pods(&self, job: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let selector = ListParams::default().labels(&format!("trainingjob={job}"));
        let mut pods = pods.list(&selector).await.unwrap().items;
        pods.sort_by_key(ResourceExt::name_any);
        pods
    }

    /// Makes a claim that all pods can share, and says where its files are on this machine.
    pub async fn claim(&self, claim: &str) -> PathBuf {
        self.apply(&format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {claim}}}\n\
             spec: {{accessModes: [ReadWriteMany], resources: {{requests: {{storage: 16Mi}}}}}}\n"
        ))
        .await;
        self.bound(claim).await
    }

    /// Waits until a claim has its volume, and says where that is on this machine.
    ///
    /// The volumes of this cluster are directories that belong to root, and kubelets give those to nobody else: `fsGroup` means
    /// nothing to them. So that the workers can write there, as on real storage, everybody may.
    pub async fn bound(&self, claim: &str) -> PathBuf {
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
        match status::until(&self.jobs(), job, wanted).await {
            Ok(status) => status,
            Err(status) => {
                let status = serde_json::to_string(&status).unwrap();
                self.give_up(&format!("{job} never came to: {what}\nstatus: {status}")).await
            }
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
    /// refuses everything for a moment, so only operators that have not seen that are asked.
    pub fn the_role_sufficed(&self) {
        for start in self.before_outage + 1..=self.starts {
            let log = std::fs::read_to_string(self.log_path(start)).unwrap_or_default();
            let refused = log.lines().find(|line| line.contains("cannot") && line.contains("resource"));
            assert_eq!(refused, None, "the shipped role lacks something");
        }
    }

    /// Ends the test with what one has to know to find out why, the shortest first: whoever reads it may see only the beginning.
    async fn give_up(&self, why: &str) -> ! {
        let asked: [&[&str]; 4] = [
            &["get", "nodes,pods", "-o", "wide"],
            &["get", "events", "--sort-by=.metadata.creationTimestamp"],
            &["describe", "pods"],
            &["logs", "--selector=app=trainingjob", "--all-containers", "--prefix", "--tail=20"],
        ];
        let mut story = format!("{why}\n");
        for arguments in asked {
            let answer = self.cluster.kubectl().run(arguments).await.unwrap();
            let _ = writeln!(
                story,
                "\n$ kubectl {}\n{}",
                arguments.join(" "),
                last_lines(&answer.to_string(), 30)
            );
        }
        panic!("{story}\noperator's log:\n{}", last_lines(&self.log(), 60));
    }
}

fn last_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

fn trainyard() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_trainyard"))
}
