//! The yard: control plane, operator and node, wired together as they would be in a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::SignedDuration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use trainyard_api::crd;
use trainyard_apiserver::ApiServer;
use trainyard_node::Node;
use trainyard_operator::{Config, Operator};
use trainyard_plan::Settings;

use crate::restarts::Restarts;

/// How long an operator without metrics takes at most to finish what is under way.
const OPERATOR_PATIENCE: Duration = Duration::from_secs(5);

/// What this machine gives to pods, where it is not all that it has.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Machine {
    /// GPUs to give to workers [default: those that are found].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    gpus: Option<u32>,

    /// CPUs to give to workers, such as 4 or 2500m [default: all].
    #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true, value_parser = amount)]
    cpu: Option<String>,

    /// Memory to give to workers, such as 8Gi [default: all].
    #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true, value_parser = amount)]
    memory: Option<String>,

    /// Do without namespaces: mount paths and names in environment and arguments are rewritten instead.
    #[arg(long)]
    no_isolation: bool,
}

fn amount(text: &str) -> Result<String, String> {
    match trainyard_api::Quantity::Text(text.to_owned()).millis() {
        Some(millis) if millis >= 0 => Ok(text.to_owned()),
        _ => Err("an amount is needed, such as 2, 500m or 16Gi".to_owned()),
    }
}

/// What runs inside this process.
pub(crate) struct Yard {
    pub(crate) client: kube::Client,
    pub(crate) node: Arc<Node>,
    operator: JoinHandle<()>,
    stop_operator: oneshot::Sender<()>,
}

impl Yard {
    /// Starts everything. Programs run in `working_dir`; what is kept is kept in `state`.
    pub(crate) async fn start(
        server: &ApiServer,
        machine: &Machine,
        restarts: &Restarts,
        state: PathBuf,
        working_dir: PathBuf,
    ) -> anyhow::Result<Self> {
        let client = server.client("default");
        install_crd(&client).await.context("installing the TrainingJob resource")?;
        let operator = Operator::bind(client.clone(), operator_config(restarts)).await?;
        let (stop_operator, stopped) = oneshot::channel();
        let operator = tokio::spawn(operator.run(async {
            let _ = stopped.await;
        }));

        let mut config = trainyard_node::Config::new(state.join("node"));
        config.working_dir = working_dir;
        config.gpus = machine.gpus;
        config.cpu.clone_from(&machine.cpu);
        config.memory.clone_from(&machine.memory);
        if machine.no_isolation {
            config.isolation = trainyard_node::Isolation::Off;
        }
        let node = Arc::new(Node::start(client.clone(), config).await?);
        server.set_kubelet(node.clone());
        Ok(Self { client, node, operator, stop_operator })
    }

    /// Ends everything in order: first the operator, so that it restarts nobody; then the workers.
    pub(crate) async fn stop(self, grace: Duration, hurry: impl Future<Output = ()>) {
        let _ = self.stop_operator.send(());
        let _ = tokio::time::timeout(OPERATOR_PATIENCE, self.operator).await;
        let hurried = async {
            hurry.await;
            self.node.stop(Duration::ZERO).await;
        };
        tokio::select! {
            () = self.node.stop(grace) => {}
            () = hurried => {}
        }
    }
}

/// Settings for one machine: people sit in front of it, so a status is written more often; and a job without requests
/// asks for nothing, since nobody else is there to share with.
fn operator_config(restarts: &Restarts) -> Config {
    Config {
        settings: restarts.over(Settings {
            default_requests: BTreeMap::default(),
            default_limits: BTreeMap::default(),
            backoff_base: SignedDuration::from_secs(1),
            status_interval: SignedDuration::from_millis(500),
            // The node of this machine looks again by itself.
            nudge_after: SignedDuration::ZERO,
            // The node knows that this program is meant by that name.
            agent_image: Some("trainyard".to_owned()),
            ..Settings::default()
        }),
        // The logs are this machine's: who is late with them is busy, never away.
        log_patience: Duration::from_secs(30),
        ..Config::default()
    }
}

async fn install_crd(client: &kube::Client) -> Result<(), kube::Error> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = crd::training_job();
    let name = crd.metadata.name.clone().unwrap_or_default();
    let params = PatchParams::apply("trainyard").force();
    crds.patch(&name, &params, &Patch::Apply(&crd)).await.map(drop)
}
