//! `trainyard up`: a control plane on this machine that kubectl talks to.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use trainyard_apiserver::{ApiServer, Tls, kubeconfig};

use super::signals::Signals;
use super::state;
use super::yard::{Machine, Yard};
use crate::logging;
use crate::restarts::Restarts;

/// How long workers have to end when the control plane does.
const GRACE: Duration = Duration::from_secs(30);
/// How long a control plane in the background may take until it answers.
const START: Duration = Duration::from_secs(30);

pub(super) const PID_FILE: &str = "trainyard.pid";
const KUBECONFIG: &str = "kubeconfig";
const LOG_FILE: &str = "trainyard.log";

/// Start a control plane on this machine for kubectl.
///
/// The same as `trainyard run`, but it stays: an API server, the operator and a node that runs pods as processes of this
/// machine. Prints the path of its kubeconfig. Ends with Ctrl-C, or with `trainyard down`; jobs and checkpoints are kept
/// and go on at the next start. It is not for production clusters: one user, one machine, no roles.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where everything is kept [default: ~/.local/state/trainyard].
    #[arg(long, value_name = "DIR", env = "TRAINYARD_STATE")]
    state: Option<PathBuf>,

    /// Address of the API server. Other machines can reach it, and run programs here, if it is not a loopback address.
    #[arg(long, value_name = "ADDRESS", env = "TRAINYARD_ADDRESS", default_value = "127.0.0.1:7443")]
    address: SocketAddr,

    /// Serve plain HTTP and ask for no token. On loopback addresses only.
    #[arg(long)]
    insecure: bool,

    /// Go on in the background, once it answers.
    #[arg(long, short = 'd')]
    detach: bool,

    #[command(flatten)]
    machine: Machine,

    #[command(flatten)]
    restarts: Restarts,

    /// Where programs run whose pods say nothing about it [default: this directory].
    #[arg(long, value_name = "DIR")]
    working_dir: Option<PathBuf>,

    /// How log lines look: text at a terminal and JSON otherwise, unless told.
    #[arg(long, value_name = "FORMAT", env = "TRAINYARD_LOG_FORMAT", default_value = "auto")]
    log_format: logging::Format,

    /// What is logged: error, warn, info, debug, trace.
    #[arg(long, value_name = "LEVEL", env = "TRAINYARD_LOG_LEVEL", default_value = "info")]
    log_level: String,
}

pub(crate) fn run(options: Options) -> anyhow::Result<ExitCode> {
    let directory = match &options.state {
        Some(given) => given.clone(),
        None => state::of_machine()?,
    };
    let directory = state::prepared(&directory)?;
    if options.insecure && !options.address.ip().is_loopback() {
        bail!("--insecure on {}: anybody could run programs here; use a loopback address", options.address);
    }
    if options.detach {
        return detach(&directory);
    }
    logging::start(options.log_format, &options.log_level)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(options, &directory))?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn serve(options: Options, directory: &Path) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let listener = TcpListener::bind(options.address)
        .await
        .with_context(|| format!("cannot listen on {} (choose another with --address)", options.address))?;
    let address = listener.local_addr()?;
    let mut builder = ApiServer::builder().state_dir(&directory.join("api"));
    let (tls, token) = if options.insecure {
        (None, None)
    } else {
        (Some(certificates(directory, address)?), Some(token(directory)?))
    };
    if let Some(token) = &token {
        builder = builder.token(token.clone());
    }
    let server = builder.build()?;
    let working_dir = match &options.working_dir {
        Some(given) => given.canonicalize().with_context(|| format!("{}", given.display()))?,
        None => std::env::current_dir()?,
    };
    let yard =
        Yard::start(&server, &options.machine, &options.restarts, directory.to_owned(), working_dir).await?;

    let scheme = if tls.is_some() { "https" } else { "http" };
    let host = if address.ip().is_unspecified() {
        format!("localhost:{}", address.port())
    } else {
        address.to_string()
    };
    let config = directory.join(KUBECONFIG);
    let text = kubeconfig(&format!("{scheme}://{host}"), tls.as_ref(), token.as_deref(), "default");
    private(&config, &text)?;
    let pid = directory.join(PID_FILE);
    private(&pid, &format!("{}\n", std::process::id()))?;
    say(std::io::stdout(), &format!("export KUBECONFIG={}", config.display()));
    let where_it_is =
        format!("The control plane answers at {scheme}://{host}; Ctrl-C or `trainyard down` ends it.");
    say(std::io::stderr(), &where_it_is);

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let answering = {
        let server = server.clone();
        tokio::spawn(async move {
            server
                .serve(listener, tls, async {
                    let _ = stopped.await;
                })
                .await
        })
    };
    let first = signals.next().await;
    say(std::io::stderr(), "stopping; once more to stop at once");
    yard.stop(GRACE, signals.hurry(Some(first))).await;
    let _ = stop.send(());
    let _ = answering.await;
    let _ = std::fs::remove_file(pid);
    Ok(())
}

/// Starts the same command in the background and waits until it has said where it is.
fn detach(directory: &Path) -> anyhow::Result<ExitCode> {
    let log_path = directory.join(LOG_FILE);
    let log = std::fs::File::create(&log_path).with_context(|| format!("{}", log_path.display()))?;
    let arguments = std::env::args_os().skip(1).filter(|word| word != "-d" && word != "--detach");
    let config = directory.join(KUBECONFIG);
    let before = std::fs::metadata(&config).and_then(|data| data.modified()).ok();
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("starting in the background")?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let log = std::fs::read_to_string(&log_path).unwrap_or_default();
            if log.trim().is_empty() {
                bail!(
                    "it ended at once ({status}) and could not say why: is there room left in {}?",
                    directory.display()
                );
            }
            bail!("it ended at once ({status}):\n{}", log.trim_end());
        }
        let now = std::fs::metadata(&config).and_then(|data| data.modified()).ok();
        let written = std::fs::read_to_string(directory.join(PID_FILE))
            .is_ok_and(|pid| pid.trim() == child.id().to_string());
        if written && now.is_some() && (now != before || before.is_none() || start.elapsed() > START) {
            say(std::io::stdout(), &format!("export KUBECONFIG={}", config.display()));
            let log = log_path.display();
            say(std::io::stderr(), &format!("The control plane runs in the background; its log is {log}."));
            return Ok(ExitCode::SUCCESS);
        }
        if start.elapsed() > START {
            bail!("it does not answer after {} s; see {}", START.as_secs(), log_path.display());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The certificates of this state directory, made at the first start.
fn certificates(directory: &Path, address: SocketAddr) -> anyhow::Result<Tls> {
    let directory = directory.join("tls");
    std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let file = |name: &str| directory.join(name);
    let names = file("names");
    let wanted = address.ip().to_string();
    let read = |name: &str| std::fs::read_to_string(file(name));
    if let (Ok(authority), Ok(certificate), Ok(key), Ok(known)) =
        (read("ca.crt"), read("tls.crt"), read("tls.key"), std::fs::read_to_string(&names))
        && known.lines().any(|name| name == wanted)
    {
        return Ok(Tls { authority, certificate, key });
    }
    let tls = Tls::generate(std::slice::from_ref(&wanted)).context("making certificates")?;
    private(&file("ca.crt"), &tls.authority)?;
    private(&file("tls.crt"), &tls.certificate)?;
    private(&file("tls.key"), &tls.key)?;
    private(&names, &format!("{wanted}\n"))?;
    Ok(tls)
}

/// The token of this state directory, made at the first start.
fn token(directory: &Path) -> anyhow::Result<String> {
    let file = directory.join("token");
    if let Ok(token) = std::fs::read_to_string(&file)
        && token.trim().len() >= 32
    {
        return Ok(token.trim().to_owned());
    }
    let mut bytes = [0; 24];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    let token = bytes.map(|byte| format!("{byte:02x}")).concat();
    private(&file, &token)?;
    Ok(token)
}

/// Prints a line. That it cannot be written is no reason to end.
fn say(mut to: impl Write, text: &str) {
    let _ = writeln!(to, "{text}");
}

/// Writes a file that nobody else may read, whole or not at all.
fn private(file: &Path, text: &str) -> anyhow::Result<()> {
    let temporary = file.with_extension("new");
    let write = || -> std::io::Result<()> {
        let _ = std::fs::remove_file(&temporary);
        let mut open =
            std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary)?;
        open.write_all(text.as_bytes())?;
        open.sync_all()?;
        std::fs::rename(&temporary, file)
    };
    write().with_context(|| format!("writing {}", file.display()))
}
