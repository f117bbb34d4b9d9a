//! `cargo xtask cluster`: a test cluster with hollow or real nodes that stays until it is told to end.
//!
//! `up` starts this program again in the background (`serve`), which owns the cluster; everything
//! in it ends with that process. `target/cluster/state` names the processes with their start times,
//! so that `down` cannot hit a stranger who got the same id later.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use trainyard_testcluster::{Binaries, RootFs, Script, TestCluster};

use crate::test::cargo;

/// How long a pod runs unless it says otherwise.
const RUN_FOR: Duration = Duration::from_secs(20);
const RUN_FOR_ANNOTATION: &str = "trainyard.test/run-for";
const EXIT_CODE_ANNOTATION: &str = "trainyard.test/exit-code";

/// The images that real nodes have.
const PYTHON_IMAGE: &str = "trainyard.test/python:1";
const TORCH_IMAGE: &str = "trainyard.test/torch:1";

const POLL: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_mins(3);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start a cluster whose pods run for 20 s and succeed, without running anything
    ///
    /// Pods may say otherwise with the annotations `trainyard.test/run-for: 5s` and
    /// `trainyard.test/exit-code: "1"`. With `--nodes`, pods run real containers instead. The first time this
    /// builds Kubernetes, which takes minutes.
    Up(Size),
    /// End the cluster that `up` started
    Down,
    /// What `up` runs in the background
    #[command(hide = true)]
    Serve(Size),
}

#[derive(Debug, clap::Args)]
struct Size {
    /// How many real nodes, which run containers: as root, on Debian
    ///
    /// They have the image `trainyard.test/python:1`: Python 3 and the `trainyard` binary.
    #[arg(long, default_value_t = 0)]
    nodes: usize,
    /// Give real nodes the image `trainyard.test/torch:1` too, with PyTorch: minutes the first time
    #[arg(long, requires = "nodes")]
    torch: bool,
    /// How many hollow nodes (default: 4, or none beside real ones)
    #[arg(long)]
    hollow: Option<usize>,
    /// How many GPUs each hollow node claims to have
    #[arg(long, default_value_t = 8)]
    gpus: usize,
}

impl Size {
    fn hollow(&self) -> usize {
        self.hollow.unwrap_or(if self.nodes == 0 { 4 } else { 0 })
    }

    /// The same on a command line.
    fn flags(&self) -> Vec<String> {
        let Self { nodes, torch, hollow: _, gpus } = self;
        let hollow = self.hollow();
        let mut flags =
            vec![format!("--nodes={nodes}"), format!("--hollow={hollow}"), format!("--gpus={gpus}")];
        flags.extend(torch.then(|| "--torch".to_owned()));
        flags
    }

    /// Such as `2 real nodes and 4 hollow nodes of 8 GPUs`.
    fn describe(&self) -> String {
        let nodes = |count: usize| if count == 1 { "node" } else { "nodes" };
        let hollow = format!("{0} hollow {1} of {2} GPUs", self.hollow(), nodes(self.hollow()), self.gpus);
        let real = format!("{} real {}", self.nodes, nodes(self.nodes));
        match (self.nodes, self.hollow()) {
            (0, _) => hollow,
            (_, 0) => real,
            (_, _) => format!("{real} and {hollow}"),
        }
    }

    /// The images of real nodes, by name. `trainyard` is the binary.
    fn images(&self, trainyard: &Path) -> Vec<(&'static str, RootFs)> {
        let mut images = Vec::new();
        if self.nodes > 0 {
            images.push((PYTHON_IMAGE, RootFs::python()));
        }
        if self.torch {
            images.push((TORCH_IMAGE, RootFs::torch()));
        }
        images
            .into_iter()
            .map(|(name, root)| (name, root.file(trainyard, "/usr/local/bin/trainyard")))
            .collect()
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let place = Place::new();
    match &args.action {
        Action::Up(size) => up(&place, size),
        Action::Down => down(&place),
        Action::Serve(size) => serve(&place, size),
    }
}

/// Where the cluster is: a directory in Cargo's target directory.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(|root| root.join("target"));
        Self(target.or_else(usual).unwrap_or_default().join("cluster"))
    }

    /// The cluster's own directory, which comes and goes with it.
    fn cluster(&self) -> PathBuf {
        self.0.join("run")
    }

    fn trainyard(&self) -> PathBuf {
        self.0.with_file_name("debug").join("trainyard")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.cluster().join("kubeconfig")
    }

    fn log(&self) -> PathBuf {
        self.0.join("serve.log")
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn read(&self) -> Option<State> {
        State::parse(&std::fs::read_to_string(self.state()).ok()?)
    }

    /// Replaces the state in one step: `up` reads it at any time.
    fn write(&self, state: &State) -> anyhow::Result<()> {
        let new = self.0.join("state.new");
        std::fs::write(&new, state.to_text()).with_context(|| format!("cannot write {}", new.display()))?;
        std::fs::rename(&new, self.state())
            .with_context(|| format!("cannot write {}", self.state().display()))
    }

    /// One `up` or `down` at a time.
    fn lock(&self) -> anyhow::Result<File> {
        std::fs::create_dir_all(&self.0).with_context(|| format!("cannot create {}", self.0.display()))?;
        let file = File::create(self.0.join("lock")).context("cannot create the lock")?;
        file.lock().context("cannot lock")?;
        Ok(file)
    }
}

/// The processes of a cluster: the one that serves it first.
#[derive(Debug, PartialEq, Eq)]
struct State {
    ready: bool,
    processes: Vec<Process>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    name: String,
    pid: i32,
    started: u64,
}

impl State {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let ready = lines.next()? == "ready";
        let processes = lines
            .map(|line| {
                let mut words = line.split(' ');
                let (name, pid, started) = (words.next()?, words.next()?, words.next()?);
                Some(Process {
                    name: name.to_owned(),
                    pid: pid.parse().ok()?,
                    started: started.parse().ok()?,
                })
            })
            .collect::<Option<Vec<_>>>()?;
        (!processes.is_empty()).then_some(Self { ready, processes })
    }

    fn to_text(&self) -> String {
        let mut text = String::from(if self.ready { "ready\n" } else { "starting\n" });
        for Process { name, pid, started } in &self.processes {
            let _ = writeln!(text, "{name} {pid} {started}");
        }
        text
    }

    fn server(&self) -> Option<&Process> {
        self.processes.first().filter(|process| process.alive())
    }
}

impl Process {
    fn new(name: &str, pid: u32) -> anyhow::Result<Self> {
        let pid = i32::try_from(pid)?;
        let started = start_time(pid).with_context(|| format!("{name} has ended"))?;
        Ok(Self { name: name.to_owned(), pid, started })
    }

    fn alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    fn signal(&self, signal: Signal) {
        if self.alive() {
            // It may end in this very moment, which is what we want.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

/// The kernel's start time of a process, unless it has ended and only waits to be reaped.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, so count from behind it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn up(place: &Place, size: &Size) -> anyhow::Result<()> {
    let _lock = place.lock()?;
    if place.read().is_some_and(|state| state.ready && state.server().is_some()) {
        eprintln!("a cluster is up already; `cargo xtask cluster down` ends it");
        announce(place);
        return Ok(());
    }
    // One that was interrupted while it came up, or files of one that was killed.
    end(place)?;

    let binaries = prepare(place, size)?;
    let log =
        File::create(place.log()).with_context(|| format!("cannot create {}", place.log().display()))?;
    let start = Instant::now();
    let mut server = Command::new(std::env::current_exe()?)
        .args(["cluster", "serve"])
        .args(size.flags())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start the cluster's process")?;
    while !place.read().is_some_and(|state| state.ready) {
        if let Some(status) = server.try_wait()? {
            let log = std::fs::read_to_string(place.log()).unwrap_or_default();
            bail!("the cluster did not start ({status}):\n{log}");
        }
        if start.elapsed() > PATIENCE {
            end(place)?;
            bail!("the cluster is not ready after {} s; see {}", PATIENCE.as_secs(), place.log().display());
        }
        std::thread::sleep(POLL);
    }
    eprintln!(
        "a cluster with {} is up after {:.1} s; `cargo xtask cluster down` ends it",
        size.describe(),
        start.elapsed().as_secs_f32()
    );
    eprintln!("its kubectl is {}", binaries.path("kubectl").display());
    for (name, _) in size.images(&place.trainyard()) {
        eprintln!("its nodes have the image {name}");
    }
    announce(place);
    Ok(())
}

/// Makes what takes long the first time, where its progress can be seen.
fn prepare(place: &Place, size: &Size) -> anyhow::Result<Binaries> {
    let progress = &mut |line: &str| eprintln!("{line}");
    if size.nodes == 0 {
        return Ok(Binaries::ensure(progress)?);
    }
    let binaries = Binaries::ensure_for_nodes(progress)?;
    let status =
        cargo(&["build", "--quiet", "--package", "trainyard"]).status().context("cannot run cargo")?;
    if !status.success() {
        bail!("trainyard could not be built ({status})");
    }
    for (_, root) in size.images(&place.trainyard()) {
        root.ensure(progress)?;
    }
    Ok(binaries)
}

/// For `eval "$(cargo xtask cluster up)"`.
fn announce(place: &Place) {
    println!("export KUBECONFIG='{}'", place.kubeconfig().display());
}

fn down(place: &Place) -> anyhow::Result<()> {
    let _lock = place.lock()?;
    if end(place)? {
        eprintln!("the cluster has ended");
    } else {
        eprintln!("no cluster is up");
    }
    Ok(())
}

/// Ends what the state names, and removes its files. Whether there was anything to end.
fn end(place: &Place) -> anyhow::Result<bool> {
    let processes = place.read().map(|state| state.processes).unwrap_or_default();
    let alive = || processes.iter().filter(|process| process.alive());
    let was_up = alive().next().is_some();
    // Politely, then not; killing the server ends the components too, so the last step is for
    // the case that something is badly wrong.
    let server = processes.first();
    server.inspect(|server| server.signal(Signal::SIGTERM));
    // Real nodes write their containers' files to the disk before they are gone.
    if !within(Duration::from_mins(1), || alive().next().is_none()) {
        server.inspect(|server| server.signal(Signal::SIGKILL));
    }
    if !within(Duration::from_secs(5), || alive().next().is_none()) {
        alive().for_each(|process| process.signal(Signal::SIGKILL));
    }
    if !within(Duration::from_secs(5), || alive().next().is_none()) {
        let left: Vec<String> =
            alive().map(|process| format!("{} ({})", process.name, process.pid)).collect();
        bail!("these processes do not end: {}", left.join(", "));
    }
    for leftover in [place.cluster(), place.state()] {
        let removed =
            if leftover.is_dir() { std::fs::remove_dir_all(&leftover) } else { remove_file(&leftover) };
        removed.with_context(|| format!("cannot remove {}", leftover.display()))?;
    }
    Ok(was_up)
}

fn remove_file(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn within(limit: Duration, done: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

fn serve(place: &Place, size: &Size) -> anyhow::Result<()> {
    // Away from the terminal, whose closing must not end the cluster.
    nix::unistd::setsid().context("`serve` is what `up` runs; it cannot be run by hand")?;
    let me = Process::new("serve", std::process::id())?;
    place.write(&State { ready: false, processes: vec![me.clone()] })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve_until_told(place, size, me))
}

async fn serve_until_told(place: &Place, size: &Size, me: Process) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let start = async {
        let cluster = TestCluster::builder().dir(place.cluster()).real_nodes(size.nodes).start().await?;
        for (name, root) in size.images(&place.trainyard()) {
            cluster.image(name, &root).await?;
        }
        let gpus = size.gpus.to_string();
        let capacity: &[(&str, &str)] = if size.gpus == 0 { &[] } else { &[("nvidia.com/gpu", &gpus)] };
        let nodes = cluster
            .hollow_nodes(size.hollow(), capacity, |pod| {
                let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
                script(pod.metadata.annotations.as_ref(), policy)
            })
            .await?;
        anyhow::Ok((cluster, nodes))
    };
    // Dropping either half ends what was started.
    let (cluster, nodes) = tokio::select! {
        started = start => started?,
        _ = terminate.recv() => return Ok(()),
    };
    let components = cluster.processes().into_iter().map(|(name, pid)| Process::new(name, pid));
    let state = State {
        ready: true,
        processes: std::iter::once(Ok(me)).chain(components).collect::<anyhow::Result<_>>()?,
    };
    place.write(&state)?;

    // `cargo clean` takes the state away, and nobody could end us any more: end by ourselves.
    let disowned = async {
        while place.read().as_ref() == Some(&state) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        () = disowned => {}
    }
    drop(nodes);
    cluster.stop().await;
    Ok(())
}

/// What a pod does, by its annotations. Without any, one that is restarted for ever runs for ever:
/// a deployment would only crash in a loop.
fn script(annotations: Option<&BTreeMap<String, String>>, restart_policy: Option<&str>) -> Script {
    let annotation = |name| annotations.and_then(|all| all.get(name));
    let run_for = annotation(RUN_FOR_ANNOTATION).and_then(|text| duration(text));
    let exit_code = annotation(EXIT_CODE_ANNOTATION).and_then(|text| text.parse().ok());
    if run_for.is_none() && exit_code.is_none() && restart_policy == Some("Always") {
        return Script::run_forever();
    }
    Script::exit(run_for.unwrap_or(RUN_FOR), exit_code.unwrap_or(0))
}

/// `300ms`, `5s`, `2m` or `1h`.
fn duration(text: &str) -> Option<Duration> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    units.iter().find_map(|(unit, millis)| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(*millis).map(Duration::from_millis)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_say_what_a_pod_does() {
        let annotations = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(script(None, Some("Never")), Script::exit(RUN_FOR, 0));
        assert_eq!(script(None, Some("Always")), Script::run_forever());
        let short = annotations(&[(RUN_FOR_ANNOTATION, "5s"), (EXIT_CODE_ANNOTATION, "3")]);
        assert_eq!(script(Some(&short), Some("Always")), Script::exit(Duration::from_secs(5), 3));
        let wrong = annotations(&[(RUN_FOR_ANNOTATION, "a while")]);
        assert_eq!(script(Some(&wrong), Some("Never")), Script::exit(RUN_FOR, 0));
    }

    #[test]
    fn hollow_nodes_are_for_those_who_ask_for_no_real_ones() {
        let size = |nodes, hollow| Size { nodes, torch: false, hollow, gpus: 8 };
        assert_eq!(size(0, None).describe(), "4 hollow nodes of 8 GPUs");
        assert_eq!(size(2, None).describe(), "2 real nodes");
        assert_eq!(size(2, Some(1)).describe(), "2 real nodes and 1 hollow node of 8 GPUs");
        assert_eq!(size(2, None).flags(), ["--nodes=2", "--hollow=0", "--gpus=8"]);
        assert_eq!(size(2, None).images(Path::new("/t")).len(), 1);
        assert!(size(0, None).images(Path::new("/t")).is_empty());
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("300ms"), Some(Duration::from_millis(300)));
        assert_eq!(duration("2m"), Some(Duration::from_mins(2)));
        assert_eq!(duration("5"), None);
        assert_eq!(duration("99999999999999999h"), None);
    }

    #[test]
    fn the_state_survives_a_file() {
        let me = Process::new("serve", std::process::id()).unwrap();
        assert!(me.alive());
        let state =
            State { ready: true, processes: vec![me.clone(), Process { started: me.started + 1, ..me }] };
        assert_eq!(State::parse(&state.to_text()).as_ref(), Some(&state));
        // The same id with another start time is somebody else.
        assert!(!state.processes[1].alive());
        assert_eq!(State::parse("ready\n"), None);
        assert_eq!(State::parse("ready\nserve x 1\n"), None);
    }
}
