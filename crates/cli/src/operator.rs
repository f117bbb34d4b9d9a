//! `trainyard operator`: the operator in a cluster, or against one from outside.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use trainyard_operator::{Config, Operator};
use trainyard_plan::Settings;

use crate::restarts::{Restarts, seconds};
use crate::{heap, logging};

/// Watch TrainingJobs and run them.
///
/// Finds its cluster as every Kubernetes tool does: inside a pod through its service account, elsewhere through
/// KUBECONFIG or ~/.kube/config. Needs the TrainingJob CRD (trainyard crds) and the rights in kubernetes/base/rbac.yaml.
/// Every flag has an environment variable of its own, which the flag wins over.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Kubeconfig file to use [default: as kubectl does, that is $KUBECONFIG or ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<std::path::PathBuf>,

    /// Context of the kubeconfig to use [default: its current one].
    #[arg(long, value_name = "NAME", env = "TRAINYARD_CONTEXT")]
    context: Option<String>,

    /// Watch only this namespace [default: all].
    #[arg(long, value_name = "NAMESPACE", env = "TRAINYARD_NAMESPACE", value_parser = namespace)]
    namespace: Option<String>,

    /// The namespace that the operator itself is in, for its own metrics [default: that of its account or context].
    #[arg(long, value_name = "NAMESPACE", env = "OPERATOR_NAMESPACE", value_parser = namespace)]
    operator_namespace: Option<String>,

    /// Address of /metrics, /healthz and /readyz; may be given more than once.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TRAINYARD_METRICS_ADDRESS",
        default_value = "0.0.0.0:8080",
        value_delimiter = ',',
        value_parser = address
    )]
    metrics_address: Vec<SocketAddr>,

    /// Do not serve metrics and probes at all.
    #[arg(long, env = "TRAINYARD_NO_METRICS", conflicts_with = "metrics_address")]
    no_metrics: bool,

    /// How log lines look: text at a terminal and JSON otherwise, unless told.
    #[arg(long, value_name = "FORMAT", env = "TRAINYARD_LOG_FORMAT", default_value = "auto")]
    log_format: logging::Format,

    /// What is logged: error, warn, info, debug, trace, or a filter such as "info,kube=debug".
    #[arg(long, value_name = "LEVEL", env = "TRAINYARD_LOG_LEVEL", default_value = "info")]
    log_level: String,

    /// Jobs that are worked on at the same time.
    #[arg(long, value_name = "N", env = "TRAINYARD_WORKERS", default_value_t = Config::default().workers, value_parser = positive)]
    workers: usize,

    /// Requests to the API server that are under way at the same time. There is no other rate limit.
    #[arg(long, value_name = "N", env = "TRAINYARD_MAX_IN_FLIGHT", default_value_t = Config::default().max_in_flight, value_parser = positive)]
    max_in_flight: usize,

    /// Image of jobs that give a model and a dataset instead of an image; {model} stands for the model.
    #[arg(long, value_name = "IMAGE", env = "TRAINYARD_DEFAULT_IMAGE", default_value_t = Settings::default().default_image, value_parser = image)]
    default_image: String,

    /// Requests of such jobs, where they give none.
    #[arg(long, value_name = "NAME=AMOUNT,…", env = "TRAINYARD_DEFAULT_REQUESTS", default_value = "cpu=4,memory=16Gi", value_delimiter = ',', value_parser = amount)]
    default_requests: Vec<(String, String)>,

    /// Limits of such jobs, where they give none.
    #[arg(long, value_name = "NAME=AMOUNT,…", env = "TRAINYARD_DEFAULT_LIMITS", default_value = "cpu=8,memory=32Gi", value_delimiter = ',', value_parser = amount)]
    default_limits: Vec<(String, String)>,

    /// The resource that gpusPerWorker asks for.
    #[arg(long, value_name = "RESOURCE", env = "TRAINYARD_GPU_RESOURCE", default_value_t = Settings::default().gpu_resource, value_parser = resource)]
    gpu_resource: String,

    /// Node selector of pods with GPUs, such as accelerator=nvidia-gpu [default: none].
    #[arg(long, value_name = "LABEL=VALUE,…", env = "TRAINYARD_GPU_NODE_SELECTOR", value_delimiter = ',', value_parser = pair)]
    gpu_node_selector: Vec<(String, String)>,

    /// How often a status may be written when only details changed.
    #[arg(long, value_name = "SECONDS", env = "TRAINYARD_STATUS_INTERVAL_SECONDS", default_value_t = 5.0, value_parser = seconds)]
    status_interval_seconds: f64,

    /// Seconds that a decision waits for the logs of those that failed, in which the root and the words of a rule are looked for.
    #[arg(long, value_name = "SECONDS", env = "TRAINYARD_LOG_PATIENCE_SECONDS", default_value_t = 2.0, value_parser = seconds)]
    log_patience_seconds: f64,

    /// A checkpoint that takes longer than so many seconds to be written no longer holds back evictions (checkpoint.holdEvictions).
    #[arg(long, value_name = "SECONDS", env = "TRAINYARD_HOLD_EVICTIONS_SECONDS", default_value_t = 900.0, value_parser = seconds)]
    hold_evictions_seconds: f64,

    /// Seconds that a pod may stay after its time on a node that does not answer, before it is removed by force.
    #[arg(long, value_name = "SECONDS", env = "TRAINYARD_FORCE_DELETE_SECONDS", default_value_t = 10.0, value_parser = seconds)]
    force_delete_seconds: f64,

    /// Seconds that pods stay on a node that does not answer, before they are started elsewhere (their toleration).
    #[arg(long, value_name = "SECONDS", env = "TRAINYARD_UNREACHABLE_SECONDS", default_value_t = 30)]
    unreachable_seconds: u32,

    /// Taints and conditions by which a node announces that it will be taken away (a spot notice): workers there are stopped in time to
    /// save their work, and go on elsewhere. none: wait until their pods are evicted.
    #[arg(long, value_name = "NAME,…", env = "TRAINYARD_NODE_NOTICES", default_values_t = Config::default().node_notices, value_delimiter = ',')]
    node_notices: Vec<String>,

    /// A job avoids a node on which it has failed so many times (of its last ten attempts); 0: never.
    #[arg(long, value_name = "N", env = "TRAINYARD_AVOID_NODE_AFTER", default_value_t = Settings::default().node_failures, value_parser = clap::value_parser!(u32).range(0..=10))]
    avoid_node_after: u32,

    /// Image of the agent that watches the checkpoints beside rank 0, or none [default: the operator's own image].
    #[arg(long, value_name = "IMAGE", env = "TRAINYARD_AGENT_IMAGE", value_parser = image)]
    agent_image: Option<String>,

    /// A pod of which its node has made nothing for so many seconds is changed so that the kubelet looks again at once: after an
    /// error, it would wait 10 to 15 s, and the gang with it; 0: never.
    #[arg(long, value_name = "SECONDS", env = "TRAINYARD_NUDGE_SECONDS", default_value_t = 3.0, value_parser = seconds)]
    nudge_seconds: f64,

    /// How long the deletion of a job waits for its pods to be gone.
    #[arg(long, value_name = "SECONDS", env = "TRAINYARD_DELETION_PATIENCE_SECONDS", default_value_t = 300.0, value_parser = seconds)]
    deletion_patience_seconds: f64,

    #[command(flatten)]
    restarts: Restarts,
}

pub(crate) fn run(options: Options) -> anyhow::Result<ExitCode> {
    logging::start(options.log_format, &options.log_level)?;
    // One thread: planning takes microseconds and the API server sets the pace; every further thread would have a heap
    // of its own.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(serve(options))?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn serve(options: Options) -> anyhow::Result<()> {
    let client = client(&options).await?;
    let mut config = config(options);
    match config.settings.agent_image.as_deref() {
        Some("none") => config.settings.agent_image = None,
        Some(_) => {}
        None => config.settings.agent_image = own_image(&client, config.own_namespace.as_deref()).await,
    }
    if config.settings.agent_image.is_none() {
        tracing::info!("no agent: nobody watches checkpoints (--agent-image gives one outside of a cluster)");
    }
    match client.apiserver_version().await {
        Ok(version) => {
            tracing::info!(version = env!("CARGO_PKG_VERSION"), kubernetes = %version.git_version, "trainyard operator");
            let minor: u32 = version.minor.trim_end_matches('+').parse().unwrap_or(u32::MAX);
            if version.major == "1" && minor < 29 {
                tracing::warn!("Kubernetes {} is too old: 1.29 or newer is needed", version.git_version);
            }
        }
        Err(error) => tracing::warn!("the API server does not answer yet: {error}"),
    }
    let operator = Operator::bind(client, config).await?;
    for address in operator.addresses() {
        tracing::info!(%address, "serving /metrics, /healthz and /readyz");
    }
    operator.run(stopped()).await;
    Ok(())
}

/// The image that this process runs from, if it is a pod: the agent is a mode of the same program.
async fn own_image(client: &kube::Client, namespace: Option<&str>) -> Option<String> {
    let namespace = namespace.filter(|_| std::env::var_os("KUBERNETES_SERVICE_HOST").is_some())?;
    let name = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME")).ok()?;
    let pods: kube::Api<Pod> = kube::Api::namespaced(client.clone(), namespace);
    match pods.get(&name).await {
        Ok(pod) => pod.spec?.containers.into_iter().next()?.image,
        Err(error) => {
            tracing::warn!("which image is this? pod {name}: {error}");
            None
        }
    }
}

async fn client(options: &Options) -> anyhow::Result<kube::Client> {
    let help = "no cluster found: run inside one, or set KUBECONFIG or --kubeconfig";
    let choice = kube::config::KubeConfigOptions { context: options.context.clone(), ..Default::default() };
    let config = if let Some(file) = &options.kubeconfig {
        let kubeconfig = kube::config::Kubeconfig::read_from(file)
            .with_context(|| format!("reading {}", file.display()))?;
        kube::Config::from_custom_kubeconfig(kubeconfig, &choice)
            .await
            .with_context(|| format!("{}", file.display()))?
    } else if options.context.is_some() {
        kube::Config::from_kubeconfig(&choice).await.context(help)?
    } else {
        kube::Config::infer().await.context(help)?
    };
    trainyard_operator::connect(config).context("the client cannot be built from this configuration")
}

fn config(options: Options) -> Config {
    let map = |pairs: Vec<(String, String)>| pairs.into_iter().collect::<BTreeMap<_, _>>();
    Config {
        settings: options.restarts.over(Settings {
            default_image: options.default_image,
            default_requests: map(options.default_requests),
            default_limits: map(options.default_limits),
            gpu_resource: options.gpu_resource,
            gpu_node_selector: map(options.gpu_node_selector),
            status_interval: SignedDuration::from_secs_f64(options.status_interval_seconds),
            hold_evictions: SignedDuration::from_secs_f64(options.hold_evictions_seconds),
            force_after: SignedDuration::from_secs_f64(options.force_delete_seconds),
            unreachable_seconds: options.unreachable_seconds.into(),
            node_failures: options.avoid_node_after,
            nudge_after: SignedDuration::from_secs_f64(options.nudge_seconds),
            agent_image: options.agent_image,
            deletion_patience: SignedDuration::from_secs_f64(options.deletion_patience_seconds),
            ..Settings::default()
        }),
        node_notices: options
            .node_notices
            .into_iter()
            .filter(|sign| !sign.is_empty() && sign != "none")
            .collect(),
        at_rest: heap::give_back,
        namespace: options.namespace,
        own_namespace: options.operator_namespace,
        workers: options.workers,
        max_in_flight: options.max_in_flight,
        log_patience: Duration::from_secs_f64(options.log_patience_seconds),
        http: if options.no_metrics { Vec::new() } else { options.metrics_address },
        instance: std::env::var("POD_NAME")
            .or_else(|_| std::env::var("HOSTNAME"))
            .unwrap_or_else(|_| "trainyard".to_owned()),
    }
}

/// SIGTERM or Ctrl-C. A second one ends the process at once.
async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        // Without signal handlers the default applies: the process ends at once, which is safe at any moment.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(130);
    });
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address and a port are needed, such as 0.0.0.0:8080 or [::]:8080".to_owned())
}

fn namespace(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = bytes.len() <= trainyard_api::names::DNS_LABEL_MAX
        && bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-');
    if is_label { Ok(text.to_owned()) } else { Err("a namespace has only a-z, 0-9 and '-'".to_owned()) }
}

fn image(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err("an image is needed, such as training-image:{model}".to_owned());
    }
    Ok(text.to_owned())
}

/// The name of a resource: `name`, or `domain/name`.
fn resource(text: &str) -> Result<String, String> {
    let plain = |part: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        edge(part.chars().next())
            && edge(part.chars().next_back())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    if text.split('/').count() <= 2 && text.split('/').all(plain) {
        Ok(text.to_owned())
    } else {
        Err("a resource is needed, such as nvidia.com/gpu".to_owned())
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("a whole number of at least 1 is needed".to_owned()),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((resource(name)?, value.to_owned())),
        None => Err(format!("\"{text}\" is not NAME=VALUE")),
    }
}

fn amount(text: &str) -> Result<(String, String), String> {
    let (name, value) = pair(text)?;
    match trainyard_api::Quantity::Text(value.clone()).millis() {
        Some(millis) if millis >= 0 => Ok((name, value)),
        _ => Err(format!("\"{value}\" is not an amount: write it as 2, 500m, 16Gi")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    /// What a flag sets, in words.
    type Told = fn(&Config) -> String;

    fn configured(flags: &[&str]) -> Config {
        config(Command::parse_from(std::iter::once(&"operator").chain(flags)).options)
    }

    #[test]
    fn every_flag_reaches_what_it_sets() {
        let table: [(&str, Told, &str); 28] = [
            ("--namespace=team", |it| format!("{:?}", it.namespace), "Some(\"team\")"),
            ("--operator-namespace=ops", |it| format!("{:?}", it.own_namespace), "Some(\"ops\")"),
            (
                "--metrics-address=127.0.0.1:1,[::1]:2",
                |it| format!("{:?}", it.http),
                "[127.0.0.1:1, [::1]:2]",
            ),
            ("--no-metrics", |it| it.http.len().to_string(), "0"),
            ("--workers=3", |it| it.workers.to_string(), "3"),
            ("--max-in-flight=5", |it| it.max_in_flight.to_string(), "5"),
            ("--log-patience-seconds=0.5", |it| format!("{:?}", it.log_patience), "500ms"),
            ("--node-notices=a,b", |it| it.node_notices.join(" "), "a b"),
            ("--node-notices=none", |it| it.node_notices.join(" "), ""),
            ("--default-image=x:{model}", |it| it.settings.default_image.clone(), "x:{model}"),
            (
                "--default-requests=cpu=1",
                |it| format!("{:?}", it.settings.default_requests),
                "{\"cpu\": \"1\"}",
            ),
            ("--default-limits=cpu=2", |it| format!("{:?}", it.settings.default_limits), "{\"cpu\": \"2\"}"),
            ("--gpu-resource=amd.com/gpu", |it| it.settings.gpu_resource.clone(), "amd.com/gpu"),
            (
                "--gpu-node-selector=a=b",
                |it| format!("{:?}", it.settings.gpu_node_selector),
                "{\"a\": \"b\"}",
            ),
            ("--backoff-seconds=1.5", |it| it.settings.backoff_base.as_secs_f64().to_string(), "1.5"),
            ("--max-backoff-seconds=7", |it| it.settings.backoff_max.as_secs().to_string(), "7"),
            ("--status-interval-seconds=8", |it| it.settings.status_interval.as_secs().to_string(), "8"),
            ("--survivor-grace-seconds=9", |it| it.settings.survivor_grace.to_string(), "9"),
            ("--hold-evictions-seconds=11", |it| it.settings.hold_evictions.as_secs().to_string(), "11"),
            ("--force-delete-seconds=12", |it| it.settings.force_after.as_secs().to_string(), "12"),
            ("--unreachable-seconds=13", |it| it.settings.unreachable_seconds.to_string(), "13"),
            ("--stall-stacks=false", |it| it.settings.ask_for_stacks.to_string(), "false"),
            ("--avoid-node-after=4", |it| it.settings.node_failures.to_string(), "4"),
            ("--same-failure-limit=6", |it| it.settings.same_failures.to_string(), "6"),
            ("--agent-image=agent:1", |it| format!("{:?}", it.settings.agent_image), "Some(\"agent:1\")"),
            ("--nudge-seconds=15", |it| it.settings.nudge_after.as_secs().to_string(), "15"),
            (
                "--deletion-patience-seconds=14",
                |it| it.settings.deletion_patience.as_secs().to_string(),
                "14",
            ),
            ("--max-backoff-seconds=0.25", |it| it.settings.backoff_max.as_millis().to_string(), "250"),
        ];
        let untold = configured(&[]);
        for (flag, of, expected) in table {
            assert_eq!(of(&configured(&[flag])), expected, "{flag}");
            assert_ne!(of(&untold), expected, "{flag}: that is what it is without the flag");
        }
    }

    #[test]
    fn what_no_flag_says_is_the_default() {
        let Config { settings, node_notices, workers, max_in_flight, log_patience, .. } = configured(&[]);
        let usual = Config::default();
        assert_eq!(settings, usual.settings);
        assert_eq!(
            (node_notices, workers, max_in_flight, log_patience),
            (usual.node_notices, usual.workers, usual.max_in_flight, usual.log_patience)
        );
    }
}
