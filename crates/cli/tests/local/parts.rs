//! The operator, the API server and the node of one machine, each killed alone while the other two go on.
//!
//! The operator is a process of its own here. The other two are in this process, but each on a runtime of its own, and talk over
//! sockets: a runtime that is dropped takes all that it does with it at once, and nobody gets to say anything.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use tokio::runtime::Runtime;
use trainyard_api::{Cause, State, crd};
use trainyard_apiserver::{
    ApiServer, ExecOptions, ExecSession, Kubelet, KubeletError, LogOptions, LogStream, PodId, StartError,
    Trouble, kubeconfig,
};
use trainyard_node::Node;

use crate::common::example::Example;
use crate::common::moments::Moments;
use crate::common::training::Work;
use crate::plane::{Jobs, client};
use crate::support::{Bench, Running};
use crate::training::{Training, calm};

/// A kill comes when three more were saved at the latest, one more is saved without those that the programs do not need, and something
/// must be left for the last one.
const EPOCHS: i64 = 16;

/// The way from the API server to the node, which either may have lost.
#[derive(Clone, Default)]
struct Line(Arc<Mutex<Option<Arc<Node>>>>);

impl Line {
    fn node(&self) -> Result<Arc<Node>, KubeletError> {
        let refused = || KubeletError::Internal("connection refused".to_owned());
        self.0.lock().unwrap().clone().ok_or_else(refused)
    }
}

impl Kubelet for Line {
    fn logs(
        &self,
        pod: &PodId,
        container: &str,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<LogStream, KubeletError>> {
        match self.node() {
            Ok(node) => node.logs(pod, container, options),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn exec(
        &self,
        pod: &PodId,
        container: &str,
        options: ExecOptions,
    ) -> BoxFuture<'static, Result<ExecSession, KubeletError>> {
        match self.node() {
            Ok(node) => node.exec(pod, container, options),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Operator,
    Server,
    Node,
}

/// What runs. A part that is absent was killed.
struct Parts<'b> {
    bench: &'b Bench,
    address: SocketAddr,
    line: Line,
    server: Option<Runtime>,
    node: Option<Runtime>,
    operator: Option<Running>,
}

impl<'b> Parts<'b> {
    async fn start(bench: &'b Bench) -> Self {
        // An address that nobody calls from: the port is free again after a kill.
        let address = std::net::TcpListener::bind("127.77.0.1:0").unwrap().local_addr().unwrap();
        std::fs::create_dir_all(bench.path().join("state")).unwrap();
        bench.write("state/kubeconfig", &kubeconfig(&format!("http://{address}"), None, None, "default"));
        let (line, server, node, operator) = (Line::default(), None, None, None);
        let mut parts = Self { bench, address, line, server, node, operator };
        parts.run(Part::Server).await;
        let crds: Api<CustomResourceDefinition> = Api::all(client(bench).await);
        crds.create(&PostParams::default(), &crd::training_job()).await.unwrap();
        parts.run(Part::Node).await;
        parts.run(Part::Operator).await;
        parts
    }

    async fn run(&mut self, part: Part) {
        match part {
            Part::Server => self.server = Some(self.start_server().await),
            Part::Node => self.node = Some(self.start_node().await),
            Part::Operator => {
                let flags =
                    ["--namespace=default", "--no-metrics", "--agent-image=trainyard", "--backoff-seconds=1"];
                let words = [&["operator", "--kubeconfig=state/kubeconfig"], &flags[..]].concat();
                self.operator = Some(self.bench.start(&words));
            }
        }
    }

    fn kill(&mut self, part: Part) {
        match part {
            Part::Server => self.server.take().unwrap().shutdown_background(),
            Part::Node => {
                // First all that it does, so that it cannot tell anybody.
                self.node.take().unwrap().shutdown_background();
                *self.line.0.lock().unwrap() = None;
            }
            Part::Operator => self.operator.take().unwrap().signal("-9"),
        }
    }

    async fn start_server(&self) -> Runtime {
        let (directory, address, line) =
            (self.bench.path().join("state/api"), self.address, self.line.clone());
        on_its_own(async move {
            let server = loop {
                match ApiServer::builder().state_dir(&directory).build() {
                    Ok(server) => break server,
                    // What the one before was just doing on other threads comes to its end.
                    Err(StartError::State(Trouble::InUse { .. })) => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            };
            server.set_kubelet(Arc::new(line));
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            tokio::spawn(async move { server.serve(listener, None, std::future::pending()).await });
        })
        .await
    }

    async fn start_node(&self) -> Runtime {
        let mut config = trainyard_node::Config::new(self.bench.path().join("state/node"));
        config.working_dir = self.bench.path().to_owned();
        config.shim = vec![env!("CARGO_BIN_EXE_trainyard").to_owned(), "shim".to_owned()];
        config.environment.retain(|(name, _)| name != "HOME");
        config.environment.push(("HOME".to_owned(), self.bench.path().display().to_string()));
        let (kubeconfig, line) = (self.bench.path().to_owned(), self.line.clone());
        on_its_own(async move {
            let client = crate::plane::client_of(&kubeconfig).await;
            let node = Node::start(client, config).await.unwrap();
            *line.0.lock().unwrap() = Some(Arc::new(node));
        })
        .await
    }
}

impl Drop for Parts<'_> {
    /// A runtime that is simply dropped waits, which nobody may do here.
    fn drop(&mut self) {
        for runtime in [self.node.take(), self.server.take()].into_iter().flatten() {
            runtime.shutdown_background();
        }
    }
}

/// A runtime on which this was done, and on which all that it has begun goes on.
async fn on_its_own(work: impl Future<Output = ()> + Send + 'static) -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.spawn(work).await.unwrap();
    runtime
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_part_is_killed_alone_a_training_ends_as_one_that_nobody_disturbed() {
    survives(Example::DIGITS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_with_pytorch() {
    let Some(example) = Example::ddp() else { return };
    survives(example).await;
}

async fn survives(example: Example) {
    let work = Work::short(example, EPOCHS);
    let (expected, epoch) = calm(example, work);

    let bench = Bench::new();
    let mut parts = Parts::start(&bench).await;
    let jobs = Jobs::of(&client(&bench).await);
    let training = Training::start(&bench, &jobs, example, work).await;
    let mut moments = Moments::new();
    let mut victims = [Part::Operator, Part::Server, Part::Node];
    moments.0.shuffle(&mut victims);
    for victim in victims {
        let attempt = training.attempt(&jobs).await;
        let saved = training.moment(&mut moments, epoch.mul_f64(1.5)).await;
        println!("{victim:?} is killed in attempt {attempt}, with {saved:?}");
        parts.kill(victim);
        if victim == Part::Node {
            bench.nobody_is_left();
            parts.run(victim).await;
            let ended = training.end_of(&jobs, attempt).await;
            assert_eq!((ended.cause, ended.exit_code), (Some(Cause::Disruption), Some(137)), "{ended:#?}");
            training.goes_on_from(&jobs, attempt, saved).await;
        } else {
            // The programs need neither of these two.
            training.further();
            let held = training.hold(attempt);
            parts.run(victim).await;
            assert_eq!(training.attempt(&jobs).await, attempt, "nothing was started anew");
            drop(held);
        }
    }

    let status = jobs.until_state(training.job, State::Completed).await;
    let restarts = status.restarts.unwrap();
    assert_eq!((restarts.disruption, restarts.total()), (1, 1), "{restarts:?}");
    assert!(training.checkpoints.last() == expected, "the weights differ from those of the undisturbed run");
}
