//! `trainyard run FILE`: the jobs of a file, here, to the end.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{AsyncReadExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use trainyard_api::{State, TrainingJob, condition, names};
use trainyard_apiserver::ApiServer;
use trainyard_plan::{NewObject, Settings, Snapshot, Step, World, plan};
use trainyard_progress::Lines;

use super::jobs::{self, Change, Objects, title};
use super::outcome::{self, Code};
use super::state;
use super::view::View;
use super::yard::{Machine, Yard};
use crate::logging;

/// How long workers have to save and end after Ctrl-C.
const GRACE: Duration = Duration::from_secs(30);
/// How long nothing may have moved before a job that cannot start is given up.
const STUCK: Duration = Duration::from_secs(2);
/// How long the end waits for the last lines of the logs.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Run the jobs of a file on this machine, to the end. No cluster is needed.
///
/// Starts a control plane, the operator and a node inside this process, runs every TrainingJob in FILE as processes of
/// this machine, and shows their progress. Images are not pulled: commands run with what this machine has, in the
/// directory of FILE. Checkpoints are kept in .trainyard beside FILE, and the next run goes on from them. Ctrl-C ends
/// the workers in order, a second one at once.
///
/// Exits with 0 when all jobs completed, 1 when one failed, 2 when the command or the file is wrong, 3 when a job cannot
/// start on this machine, 130 after Ctrl-C, 143 after SIGTERM.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The file; - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Number of workers, whatever the file says.
    #[arg(long, short = 'w', value_name = "N", value_parser = clap::value_parser!(i32).range(0..=1024))]
    workers: Option<i32>,

    /// Change a field of the jobs, such as spec.hyperparameters.epochs=3; may be given more than once.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    changes: Vec<Change>,

    #[command(flatten)]
    machine: Machine,

    /// Whose output is shown.
    #[arg(long, value_name = "WHOSE", value_enum, default_value = "leader")]
    logs: Logs,

    /// Print the objects that would be made, and do nothing.
    #[arg(long)]
    dry_run: bool,

    /// What is printed at the end; json prints nothing else.
    #[arg(long, short = 'o', value_name = "FORMAT", value_enum, default_value = "text")]
    output: Output,

    /// Where checkpoints, logs and volumes are kept [default: .trainyard beside FILE].
    #[arg(long, value_name = "DIR", env = "TRAINYARD_STATE")]
    state: Option<PathBuf>,

    /// What is logged about the run itself: error, warn, info, debug, trace.
    #[arg(long, value_name = "LEVEL", env = "TRAINYARD_LOG_LEVEL", default_value = "error")]
    log_level: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Logs {
    /// Of every worker.
    All,
    /// Of the worker of rank 0.
    Leader,
    /// Of nobody.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

pub(crate) fn run(options: Options) -> anyhow::Result<ExitCode> {
    logging::start(logging::Format::Auto, &options.log_level)?;
    let (name, text) = read(&options.file)?;
    let objects = jobs::read(&name, &text, &options.changes, options.workers)?;
    if options.dry_run {
        return dry_run(&objects);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(serve(options, &objects))?;
    runtime.shutdown_background();
    Ok(ExitCode::from(code as u8))
}

fn read(file: &Path) -> anyhow::Result<(String, String)> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("reading standard input")?;
        return Ok(("<stdin>".to_owned(), text));
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    Ok((file.display().to_string(), text))
}

/// Prints what the operator would make of each job.
fn dry_run(objects: &Objects) -> anyhow::Result<ExitCode> {
    for job in &objects.jobs {
        let plan = plan(&Snapshot::of(job.clone()), &Settings::default(), jiff::Timestamp::now());
        for step in plan.steps() {
            let Step::Create(object) = step else { continue };
            let text = match object {
                NewObject::Pod(pod) => serde_saphyr::to_string(pod),
                NewObject::Service(service) => serde_saphyr::to_string(service),
                NewObject::ConfigMap(map) => serde_saphyr::to_string(map),
                NewObject::Claim(claim) => serde_saphyr::to_string(claim),
            };
            println!("---\n{}", text?.trim_end());
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn serve(options: Options, objects: &Objects) -> anyhow::Result<Code> {
    let state_dir = match &options.state {
        Some(given) => state::prepared(given)?,
        None => state::of_file(&options.file)?,
    };
    let directory = options.file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let working_dir =
        directory.unwrap_or(Path::new(".")).canonicalize().context("the directory of the file")?;
    let server = ApiServer::builder().build()?;
    let yard = Yard::start(&server, &options.machine, state_dir.clone(), working_dir).await?;
    let mut run = Run {
        client: yard.client.clone(),
        view: View::new(options.output == Output::Json),
        logs: options.logs,
        several: objects.jobs.len() > 1,
        jobs: objects.jobs.iter().map(|job| (title(job), job.clone())).collect(),
        followed: HashSet::new(),
        followers: JoinSet::new(),
        stuck_since: None,
    };
    for line in &objects.passed_over {
        run.view.line(line);
    }
    if let Some(why) = yard.node.without_namespaces() {
        run.view.line(&format!(
            "no namespaces on this machine ({why}): mount paths and names in environment and arguments are rewritten"
        ));
    }
    let created = objects.create(&yard.client).await;
    let mut signals = Signals::new()?;
    let interrupted = match created {
        Ok(()) => run.follow(&mut signals).await?,
        Err(error) => {
            yard.stop(Duration::ZERO, std::future::pending()).await;
            return Err(error);
        }
    };
    if interrupted.is_some() {
        run.view.line("stopping the workers; once more to stop them at once");
    }
    yard.stop(GRACE, async { _ = signals.next().await }).await;
    run.view.end();
    let worst = run.jobs.values().map(|job| outcome::code(&job.status.clone().unwrap_or_default())).max();
    let code = interrupted.or(worst).unwrap_or(Code::Completed);
    match options.output {
        Output::Json => {
            let jobs: Vec<_> = run.jobs.values().map(|job| outcome::as_json(job, &state_dir)).collect();
            println!("{:#}", serde_json::json!({"jobs": jobs, "exitCode": code as u8}));
        }
        Output::Text => {
            for job in run.jobs.values() {
                println!("{}", outcome::told(job, &state_dir));
            }
        }
    }
    Ok(code)
}

/// A run that is under way.
struct Run {
    client: Client,
    view: View,
    logs: Logs,
    several: bool,
    jobs: BTreeMap<String, TrainingJob>,
    /// Pods whose logs are shown.
    followed: HashSet<String>,
    followers: JoinSet<()>,
    stuck_since: Option<Instant>,
}

impl Run {
    /// Shows what happens until all jobs have ended, cannot start, or somebody interrupts.
    async fn follow(&mut self, signals: &mut Signals) -> anyhow::Result<Option<Code>> {
        let jobs: Api<TrainingJob> = Api::all(self.client.clone());
        let mut jobs = watcher::watcher(jobs, watcher::Config::default()).boxed();
        let pods: Api<Pod> = Api::all(self.client.clone());
        let ours = format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY);
        let mut pods = watcher::watcher(pods, watcher::Config::default().labels(&ours)).boxed();
        let (line, mut lines) = mpsc::channel::<String>(1024);
        let mut tick = tokio::time::interval(Duration::from_millis(500));
        loop {
            tokio::select! {
                code = signals.next() => return Ok(Some(code)),
                Some(event) = jobs.next() => {
                    if let Ok(Event::Apply(job) | Event::InitApply(job)) = event {
                        self.view.job(&job);
                        self.jobs.insert(title(&job), job);
                    }
                }
                Some(event) = pods.next() => {
                    if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event {
                        self.show_log(&pod, &line);
                    }
                }
                Some(text) = lines.recv() => self.view.line(&text),
                _ = tick.tick() => {}
            }
            if self.is_over() || self.is_stuck() {
                break;
            }
        }
        drop(line);
        let rest = async {
            while let Some(text) = lines.recv().await {
                self.view.line(&text);
            }
        };
        let _ = tokio::time::timeout(LAST_LINES, rest).await;
        Ok(None)
    }

    fn is_over(&self) -> bool {
        self.jobs
            .values()
            .all(|job| job.status.as_ref().is_some_and(trainyard_api::TrainingJobStatus::is_terminal))
    }

    /// Nothing runs, and what does not run cannot start: on this machine, nobody will change that.
    fn is_stuck(&mut self) -> bool {
        let waits = |job: &TrainingJob| {
            let Some(status) = &job.status else { return false };
            let held_up = |kind: &str| {
                status.condition(kind).is_some_and(|condition| {
                    condition.status == "False" && condition.reason != "WaitingForPods"
                })
            };
            status.is_terminal()
                || match status.state {
                    Some(State::Initializing) => held_up(condition::RUNNING),
                    Some(State::Pending) => held_up(condition::RESOURCES_CREATED),
                    Some(State::Suspended) => true,
                    _ => false,
                }
        };
        if !self.jobs.values().all(waits) {
            self.stuck_since = None;
            return false;
        }
        self.stuck_since.get_or_insert_with(Instant::now).elapsed() >= STUCK
    }

    /// Shows the log of a pod that has begun, once.
    fn show_log(&mut self, pod: &Pod, line: &mpsc::Sender<String>) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        let job = pod.labels().get(names::JOB_LABEL).cloned().unwrap_or_default();
        let Some(job) =
            self.jobs.values().find(|it| it.name_any() == job && it.namespace() == pod.namespace())
        else {
            return;
        };
        let wanted = match self.logs {
            Logs::All => true,
            Logs::Leader => World::of(job).leader() == name,
            Logs::None => false,
        };
        let begun = matches!(phase, "Running" | "Succeeded" | "Failed");
        if !wanted || !begun || !self.followed.insert(pod.uid().unwrap_or_default()) {
            return;
        }
        let place = name.strip_prefix(&format!("{}-", job.name_any())).unwrap_or(&name);
        let place = place.strip_prefix("workers-").unwrap_or(place);
        let prefix = if self.several { format!("[{} {place}] ", title(job)) } else { format!("[{place}] ") };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        self.followers.spawn(copy_log(pods, name, prefix, line.clone()));
    }
}

async fn copy_log(pods: Api<Pod>, name: String, prefix: String, line: mpsc::Sender<String>) {
    let parameters =
        LogParams { follow: true, container: Some(names::CONTAINER.to_owned()), ..LogParams::default() };
    let Ok(log) = pods.log_stream(&name, &parameters).await else { return };
    let mut log = std::pin::pin!(log);
    let mut lines = Lines::default();
    let mut piece = vec![0; 16 << 10];
    while let Ok(length @ 1..) = log.read(&mut piece).await {
        let mut complete = Vec::new();
        lines.push(&piece[..length], |text| complete.push(format!("{prefix}{text}")));
        for text in complete {
            if line.send(text).await.is_err() {
                return;
            }
        }
    }
    let mut last = None;
    lines.finish(|text| last = Some(format!("{prefix}{text}")));
    if let Some(text) = last {
        let _ = line.send(text).await;
    }
}

/// Ctrl-C and SIGTERM.
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    pub(super) fn new() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(super) async fn next(&mut self) -> Code {
        tokio::select! {
            _ = self.interrupt.recv() => Code::Interrupted,
            _ = self.terminate.recv() => Code::Terminated,
        }
    }
}
