//! `trainyard run FILE`: the jobs of a file, here, to the end.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::stream::BoxStream;
use futures::{AsyncReadExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use trainyard_api::{Cause, State, TrainingJob, condition, names};
use trainyard_apiserver::ApiServer;
use trainyard_plan::{NewObject, Settings, Snapshot, Step, World, plan};

use super::jobs::{self, Change, Objects, title};
use super::outcome::{self, Code};
use super::signals::Signals;
use super::state;
use super::view::{FRAME, View};
use super::yard::{Machine, Yard};
use crate::restarts::Restarts;
use crate::{logging, manifest};

/// How long workers have to save and end after Ctrl-C.
const GRACE: Duration = Duration::from_secs(30);
/// How long nothing may have moved before a job that cannot start is given up.
const STUCK: Duration = Duration::from_secs(2);
/// How long the end waits for the next line of a log, and how long in all.
const NEXT_LINE: Duration = Duration::from_secs(2);
const ALL_LINES: Duration = Duration::from_mins(1);
/// A longer line is shown in parts.
const LINE_MAX: usize = 16 << 10;
/// How many lines of output may wait to be shown, and are shown between two looks at anything else.
const LINES_AT_ONCE: usize = 1024;
/// How many lines are shown of a worker that failed and whose output is not shown otherwise.
const TAIL: usize = 10;

/// Run the jobs of a file on this machine, to the end. No cluster is needed.
///
/// Starts a control plane, the operator and a node inside this process, runs every TrainingJob in FILE as processes of
/// this machine, and shows their progress. Images are not pulled: commands run with what this machine has, in the
/// directory of FILE. Checkpoints are kept in .trainyard beside FILE, and the next run goes on from them. Ctrl-C ends
/// the workers in order, a second one at once; a terminal that goes away ends them in order, unless nohup is used.
///
/// Exits with 0 when all jobs completed, 1 when one failed, 2 when the command or the file is wrong, 3 when a job cannot
/// start on this machine, 129 after the terminal has gone away, 130 after Ctrl-C, 143 after SIGTERM.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The file; - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Number of workers, whatever the file says.
    #[arg(long, short = 'w', value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(0..=1024))]
    workers: Option<i32>,

    /// Change a field of the jobs, such as spec.hyperparameters.epochs=3; may be given more than once.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    changes: Vec<Change>,

    #[command(flatten)]
    machine: Machine,

    #[command(flatten)]
    restarts: Restarts,

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
    let (name, text) = manifest::text_of(&options.file)?;
    let objects = jobs::read(&name, &text, &options.changes, options.workers)?;
    if options.dry_run {
        return dry_run(&objects, options.output);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(serve(options, &objects))?;
    runtime.shutdown_background();
    Ok(ExitCode::from(code as u8))
}

/// Prints what the operator would make of each job.
fn dry_run(objects: &Objects, output: Output) -> anyhow::Result<ExitCode> {
    let mut made = Vec::new();
    for job in &objects.jobs {
        let plan = plan(&Snapshot::of(job.clone()), &Settings::default(), Timestamp::now());
        for step in plan.steps() {
            let Step::Create(object) = step else { continue };
            let mut object = match object {
                NewObject::Pod(pod) => serde_json::to_value(pod)?,
                NewObject::Service(service) => serde_json::to_value(service)?,
                NewObject::ConfigMap(map) => serde_json::to_value(map)?,
                NewObject::Claim(claim) => serde_json::to_value(claim)?,
            };
            // The job that they will belong to is not there, and has no uid yet: no API server takes such owners.
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("ownerReferences");
            }
            made.push(object);
        }
    }
    match output {
        Output::Json => {
            say(&format!("{:#}", serde_json::json!({"apiVersion": "v1", "kind": "List", "items": made})))?;
        }
        Output::Text => {
            for object in made {
                say(&format!("---\n{}", serde_saphyr::to_string(&object)?.trim_end()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what was asked for. That nobody reads it any more is no reason to end otherwise; that there is no room for it
/// is one.
fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        // The terminal has gone away.
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EIO as i32) => Ok(()),
        other => other.context("writing to standard output"),
    }
}

async fn serve(options: Options, objects: &Objects) -> anyhow::Result<Code> {
    let state_dir = match &options.state {
        Some(given) => state::prepared(given)?,
        None => state::of_file(&options.file)?,
    };
    let directory = options.file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let working_dir =
        directory.unwrap_or(Path::new(".")).canonicalize().context("the directory of the file")?;
    let mut signals = Signals::new()?;
    let server = ApiServer::builder().build()?;
    let yard =
        Yard::start(&server, &options.machine, &options.restarts, state_dir.clone(), working_dir).await?;
    let (line, lines) = mpsc::channel(LINES_AT_ONCE);
    let mut run = Run {
        client: yard.client.clone(),
        view: View::new(options.output == Output::Json),
        logs: options.logs,
        several: objects.jobs.len() > 1,
        order: objects.jobs.iter().map(title).collect(),
        jobs: objects.jobs.iter().map(|job| (title(job), job.clone())).collect(),
        pods: pods(&yard.client),
        at_work: HashMap::new(),
        line: Some(line),
        lines,
        remarks: yard.node.remarks(),
        followed: HashSet::new(),
        followers: JoinSet::new(),
        tails: Tails::default(),
        shown: HashSet::new(),
        failures: Vec::new(),
        stuck_since: None,
    };
    run.view.line("images are not pulled: commands run with what this machine has");
    for line in &objects.passed_over {
        run.view.line(line);
    }
    if let Some(why) = yard.node.without_namespaces() {
        run.view.line(&format!(
            "no namespaces on this machine ({why}): mount paths and names in environment and arguments are rewritten"
        ));
    }
    let limited = |job: &TrainingJob| {
        job.spec.resources.as_ref().and_then(|resources| resources.limits.as_ref()).is_some()
    };
    if let Some(why) = yard.node.without_limits().filter(|_| objects.jobs.iter().any(limited)) {
        run.view.line(&format!("limits on memory and CPU are not enforced: {why}"));
    }
    run.view.draw();
    if let Err(error) = objects.create(&yard.client).await {
        yard.stop(Duration::ZERO, std::future::pending()).await;
        return Err(error);
    }
    let interrupted = run.follow(&mut signals).await;
    match interrupted {
        None => {}
        Some(Code::HungUp) => run.view.hang_up(),
        Some(_) => run.view.line("stopping the workers; once more to stop them at once"),
    }
    run.last_words(yard.stop(GRACE, signals.hurry(interrupted)), interrupted.is_some()).await;
    run.rest_of_the_output(&mut signals).await;
    run.view.end();
    let worst = run.jobs.values().map(|job| outcome::code(&job.status.clone().unwrap_or_default())).max();
    let code = interrupted.or(worst).unwrap_or(Code::Completed);
    let stopped = interrupted.is_some();
    let jobs = run.order.iter().filter_map(|title| run.jobs.get(title));
    let now = Timestamp::now();
    let told = match options.output {
        Output::Json => {
            let jobs: Vec<_> = jobs.map(|job| outcome::as_json(job, stopped, now, &state_dir)).collect();
            say(&format!("{:#}", serde_json::json!({"jobs": jobs, "exitCode": code as u8})))
        }
        Output::Text => {
            let mut jobs = jobs.map(|job| outcome::told(job, stopped, now, &state_dir));
            jobs.try_for_each(|text| say(&text))
        }
    };
    match told {
        Err(error) if code == Code::Completed => Err(error),
        _ => Ok(code),
    }
}

/// A run that is under way.
struct Run {
    client: Client,
    view: View,
    logs: Logs,
    several: bool,
    /// The jobs in the order of the file.
    order: Vec<String>,
    jobs: BTreeMap<String, TrainingJob>,
    pods: BoxStream<'static, watcher::Result<Event<Pod>>>,
    /// Pods that run now, by uid.
    at_work: HashMap<String, AtWork>,
    /// Lines to show, from everybody who follows a log. There is no sender once nobody else is going to be followed.
    line: Option<mpsc::Sender<String>>,
    lines: mpsc::Receiver<String>,
    /// What the node has to say.
    remarks: broadcast::Receiver<String>,
    /// Pods whose logs are shown.
    followed: HashSet<String>,
    followers: JoinSet<()>,
    /// The last lines of pods whose output is not shown, by pod.
    tails: Tails,
    /// Pods whose output is shown.
    shown: HashSet<String>,
    /// Pods that failed, by namespace and name, whose last lines are to be shown.
    failures: Vec<(String, String)>,
    stuck_since: Option<Instant>,
}

/// A pod that runs.
struct AtWork {
    job: String,
    /// How long it may take to end.
    grace: Duration,
}

type Tails = Arc<Mutex<HashMap<String, VecDeque<String>>>>;

impl Run {
    /// Shows what happens until all jobs have ended, cannot start, or somebody interrupts.
    async fn follow(&mut self, signals: &mut Signals) -> Option<Code> {
        let jobs: Api<TrainingJob> = Api::all(self.client.clone());
        let mut jobs = watcher::watcher(jobs, watcher::Config::default()).boxed();
        let mut tick = tokio::time::interval(Duration::from_millis(500));
        let mut frame = frames();
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                code = signals.next() => return Some(code),
                Some(event) = jobs.next() => {
                    if let Ok(Event::Apply(job) | Event::InitApply(job)) = event {
                        self.view.job(&job);
                        self.note_failure(&job);
                        self.jobs.insert(title(&job), job);
                    }
                }
                Some(event) = self.pods.next() => self.take_pod(event),
                _ = self.lines.recv_many(&mut batch, LINES_AT_ONCE) => self.show(&mut batch),
                Ok(text) = self.remarks.recv() => self.view.line(&text),
                _ = frame.tick() => self.view.draw(),
                _ = tick.tick() => self.show_failures().await,
            }
            if self.is_over() || self.is_stuck() {
                break;
            }
        }
        self.show_failures().await;
        None
    }

    /// Shows what the workers say while they are ended: whether a checkpoint was saved, for one.
    async fn last_words(&mut self, stop: impl Future<Output = ()>, interrupted: bool) {
        let mut stop = std::pin::pin!(stop);
        let mut frame = frames();
        let mut batch = Vec::new();
        let began = Instant::now();
        if interrupted {
            self.tell_time_left(Duration::ZERO);
        }
        loop {
            tokio::select! {
                () = &mut stop => break,
                Ok(text) = self.remarks.recv() => self.view.line(&text),
                Some(event) = self.pods.next() => self.take_pod(event),
                _ = self.lines.recv_many(&mut batch, LINES_AT_ONCE) => self.show(&mut batch),
                _ = frame.tick() => {
                    if interrupted {
                        self.tell_time_left(began.elapsed());
                    }
                    self.view.draw();
                }
            }
        }
        self.at_work.clear();
        if interrupted {
            self.tell_time_left(Duration::ZERO);
        }
        while let Ok(text) = self.remarks.try_recv() {
            self.view.line(&text);
        }
    }

    /// Nobody runs any more; what is still on its way is shown.
    async fn rest_of_the_output(&mut self, signals: &mut Signals) {
        self.line = None;
        let limit = Instant::now() + ALL_LINES;
        let mut frame = frames();
        let mut batch = Vec::new();
        let mut next_line = Instant::now() + NEXT_LINE;
        loop {
            let in_time = tokio::select! {
                count = self.lines.recv_many(&mut batch, LINES_AT_ONCE) => {
                    self.show(&mut batch);
                    if count == 0 {
                        return;
                    }
                    next_line = Instant::now() + NEXT_LINE;
                    Instant::now() < limit
                }
                () = tokio::time::sleep_until(next_line.into()) => false,
                _ = signals.next() => false,
                _ = frame.tick() => {
                    self.view.draw();
                    true
                }
            };
            if !in_time {
                let words =
                    "some output of the workers is not shown; it is in the logs of the state directory";
                return self.view.line(words);
            }
        }
    }

    fn show(&mut self, batch: &mut Vec<String>) {
        batch.drain(..).for_each(|text| self.view.line(&text));
    }

    /// Says of each job that has not ended how many of its workers run, and for how long they may.
    fn tell_time_left(&mut self, gone: Duration) {
        for (title, job) in &self.jobs {
            if job.status.as_ref().is_some_and(trainyard_api::TrainingJobStatus::is_terminal) {
                continue;
            }
            let of_job = || self.at_work.values().filter(|pod| pod.job == *title);
            let longest = of_job().map(|pod| pod.grace).max().unwrap_or_default();
            self.view.stopping(title, of_job().count(), longest.saturating_sub(gone));
        }
    }

    fn take_pod(&mut self, event: watcher::Result<Event<Pod>>) {
        let pod = match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => pod,
            Ok(Event::Delete(pod)) => {
                self.at_work.remove(&pod.uid().unwrap_or_default());
                return;
            }
            _ => return,
        };
        let uid = pod.uid().unwrap_or_default();
        match self.job_of(&pod) {
            Some(job) if phase(&pod) == "Running" => {
                let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
                let own = own.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
                let grace = own.map_or(GRACE, |own| own.min(GRACE));
                self.at_work.insert(uid, AtWork { job: title(job), grace });
            }
            _ => _ = self.at_work.remove(&uid),
        }
        self.show_log(&pod);
    }

    fn job_of(&self, pod: &Pod) -> Option<&TrainingJob> {
        let name = pod.labels().get(names::JOB_LABEL)?;
        self.jobs.values().find(|job| job.name_any() == *name && job.namespace() == pod.namespace())
    }

    /// An attempt has ended because of a pod: what that pod said last is worth showing.
    fn note_failure(&mut self, job: &TrainingJob) {
        let ended = |job: &TrainingJob| {
            let attempts = job.status.as_ref().map(|status| status.attempts.clone()).unwrap_or_default();
            attempts.into_iter().rfind(|attempt| !attempt.is_open())
        };
        let Some(attempt) = ended(job) else { return };
        let known =
            self.jobs.get(&title(job)).and_then(ended).is_some_and(|known| known.number == attempt.number);
        let Some(pod) = attempt.pod_name.filter(|_| !known && attempt.cause.is_some_and(Cause::counts))
        else {
            return;
        };
        self.failures.push((job.namespace().unwrap_or_default(), pod));
    }

    async fn show_failures(&mut self) {
        for (namespace, pod) in std::mem::take(&mut self.failures) {
            let key = format!("{namespace}/{pod}");
            let kept = self.tails.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            let mut tail: Vec<String> = kept.into_iter().flatten().collect();
            if tail.is_empty() && self.logs == Logs::Leader && !self.shown.contains(&key) {
                // It was gone before anybody could follow it.
                let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
                let lines = i64::try_from(TAIL).ok();
                let parameters = LogParams { tail_lines: lines, ..LogParams::default() };
                let log = pods.logs(&pod, &parameters).await.unwrap_or_default();
                tail = log.lines().map(str::to_owned).collect();
            }
            if tail.is_empty() {
                continue;
            }
            self.view.line(&format!("the last lines of {pod}:"));
            for text in tail {
                self.view.line(&format!("  {text}"));
            }
        }
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
            // A bucket that cannot be reached is asked again, and its server may only be slow.
            let passing = ["WaitingForPods", condition::CHECKPOINT_PROBLEM];
            let held_up = |kind: &str| {
                status.condition(kind).is_some_and(|condition| {
                    condition.status == "False" && !passing.contains(&condition.reason.as_str())
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
    fn show_log(&mut self, pod: &Pod) {
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        let (Some(line), Some(job)) = (&self.line, self.job_of(pod)) else { return };
        let prefix = self.prefix(job, &name);
        let wanted = match self.logs {
            Logs::All => true,
            Logs::Leader => World::of(job).leader() == name,
            Logs::None => false,
        };
        let begun = matches!(phase(pod), "Running" | "Succeeded" | "Failed");
        let line = line.clone();
        if self.logs == Logs::None || !begun || !self.followed.insert(pod.uid().unwrap_or_default()) {
            return;
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let target = if wanted {
            self.shown.insert(format!("{namespace}/{name}"));
            Target::Shown(prefix, line)
        } else {
            let key = format!("{namespace}/{name}");
            self.tails.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            Target::Kept(key, self.tails.clone())
        };
        self.followers.spawn(copy_log(pods, name, target));
    }

    /// What stands in front of a pod's lines: its rank, or its place in its role.
    fn prefix(&self, job: &TrainingJob, pod: &str) -> String {
        let place = pod.strip_prefix(&format!("{}-", job.name_any())).unwrap_or(pod);
        let place = place.strip_prefix("workers-").unwrap_or(place);
        if self.several { format!("[{} {place}] ", title(job)) } else { format!("[{place}] ") }
    }
}

/// All pods of jobs, as they change.
fn pods(client: &Client) -> BoxStream<'static, watcher::Result<Event<Pod>>> {
    let ours = format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY);
    watcher::watcher(Api::all(client.clone()), watcher::Config::default().labels(&ours)).boxed()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// When a terminal is drawn. One that is slow is not drawn more often later.
fn frames() -> tokio::time::Interval {
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    frames
}

/// Where the lines of a log go.
enum Target {
    /// To the screen, with something in front.
    Shown(String, mpsc::Sender<String>),
    /// Nowhere, but the last ones are kept.
    Kept(String, Tails),
}

impl Target {
    /// False when nobody wants more.
    async fn take(&self, text: &str) -> bool {
        match self {
            Target::Shown(prefix, line) => line.send(format!("{prefix}{text}")).await.is_ok(),
            Target::Kept(key, tails) => {
                let mut tails = tails.lock().unwrap_or_else(PoisonError::into_inner);
                let tail = tails.entry(key.clone()).or_default();
                tail.push_back(text.to_owned());
                if tail.len() > TAIL {
                    tail.pop_front();
                }
                true
            }
        }
    }
}

async fn copy_log(pods: Api<Pod>, name: String, target: Target) {
    let parameters =
        LogParams { follow: true, container: Some(names::CONTAINER.to_owned()), ..LogParams::default() };
    let Ok(log) = pods.log_stream(&name, &parameters).await else { return };
    let mut log = std::pin::pin!(log);
    let mut rest: Vec<u8> = Vec::new();
    let mut piece = vec![0; LINE_MAX];
    while let Ok(length @ 1..) = log.read(&mut piece).await {
        rest.extend_from_slice(&piece[..length]);
        // A line ends where it says so; one that never does is shown in parts.
        while let Some(end) = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .or_else(|| (rest.len() > LINE_MAX).then_some(LINE_MAX))
        {
            let text = String::from_utf8_lossy(&rest[..end]).into_owned();
            let ends = usize::from(rest.get(end) == Some(&b'\n'));
            rest.drain(..end + ends);
            // Of a progress bar that draws over itself, the last state counts.
            let text = text.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
            if !target.take(text).await {
                return;
            }
        }
    }
    if !rest.is_empty() {
        target.take(&String::from_utf8_lossy(&rest)).await;
    }
}
