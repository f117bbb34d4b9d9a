//! One run of one container: starts it through the shim, passes signals on, and tells how it ended.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::isolate::orders::{Order, Orders, Report, Walls};
use crate::isolate::spawner;
use crate::logs::{self, Log};

/// How long the end of the output is waited for after the program has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a container did not start.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    #[error("starting the shim {program}: {source}")]
    Shim { program: String, source: io::Error },
    #[error("telling the shim what to start: {0}")]
    Socket(#[from] io::Error),
    /// In the words of a container runtime.
    #[error("{0}")]
    Program(String),
    #[error("the shim ended before it had started the program")]
    Silent,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// The exit code as container runtimes report it.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// A program that runs.
pub(crate) struct Process {
    child: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    capture: JoinHandle<()>,
    log: Arc<Log>,
    control: Control,
}

/// The way to a program's shim.
pub(crate) struct Control {
    socket: OwnedWriteHalf,
    /// PID 1 of the container, where there is one.
    pub(crate) init: Option<i32>,
    /// The program itself, where there is no PID namespace.
    pub(crate) program: Option<i32>,
}

impl Control {
    /// Sends a signal to the program. If it has ended already, nothing happens.
    pub(crate) async fn signal(&mut self, signal: i32) {
        if let Ok(mut line) = serde_json::to_vec(&Order::Signal(signal)) {
            line.push(b'\n');
            let _ = self.socket.write_all(&line).await;
        }
    }
}

/// Starts a program; its output goes to the log from the first byte on.
pub(crate) async fn start(
    shim: &[String],
    walls: Walls,
    orders: &Orders,
    log: Arc<Log>,
) -> Result<Process, StartError> {
    let (program, arguments) = shim.split_first().ok_or(StartError::Silent)?;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut command = Command::new(program);
    command.args(arguments).args(["run", walls.word()]).env_clear();
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawner::spawn(command)
        .await
        .map_err(|source| StartError::Shim { program: program.clone(), source })?;
    let capture = tokio::spawn(logs::capture(child.stdout.take(), child.stderr.take(), log.clone()));
    let (reader, mut socket) = UnixStream::from_std(ours)?.into_split();
    let mut line = serde_json::to_vec(orders).map_err(io::Error::other)?;
    line.push(b'\n');
    // A shim that ended at once has said why on its standard error, which is in the log.
    let written = socket.write_all(&line).await;
    let mut process = Process {
        child,
        reports: BufReader::new(reader).lines(),
        capture,
        log,
        control: Control { socket, init: None, program: None },
    };
    let failure = loop {
        match process.report().await {
            Some(Report::Started { init, program }) => {
                if walls == Walls::None {
                    process.control.program = Some(program);
                } else {
                    process.control.init = Some(init);
                }
                return Ok(process);
            }
            Some(Report::NotStarted { message }) => break StartError::Program(message),
            Some(Report::Exited { .. } | Report::Signaled { .. }) => {}
            None => break written.err().map_or(StartError::Silent, StartError::Socket),
        }
    };
    process.finish().await;
    Err(failure)
}

impl Process {
    /// The way to send signals, and the future of the end.
    pub(crate) fn split(self) -> (Control, impl Future<Output = Exit> + Send) {
        let Self { child, reports, capture, log, control } = self;
        let program = control.program;
        (control, Ending { child, reports, capture, log, program }.wait())
    }

    async fn report(&mut self) -> Option<Report> {
        next_report(&mut self.reports).await
    }

    async fn finish(self) {
        let Self { child, reports, capture, log, control } = self;
        drop(control);
        Ending { child, reports, capture, log, program: None }.wait().await;
    }
}

struct Ending {
    child: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    capture: JoinHandle<()>,
    log: Arc<Log>,
    program: Option<i32>,
}

impl Ending {
    async fn wait(mut self) -> Exit {
        let mut exit = None;
        while let Some(report) = next_report(&mut self.reports).await {
            match report {
                Report::Exited { code } => exit = Some(Exit::Code(code)),
                Report::Signaled { signal } => exit = Some(Exit::Signal(signal)),
                Report::Started { .. } | Report::NotStarted { .. } => {}
            }
        }
        let _ = self.child.wait().await;
        if exit.is_none()
            && let Some(program) = self.program
        {
            // The shim was killed itself (by hand, or by the kernel for want of memory). In a PID namespace the program
            // was killed with it.
            let _ = killpg(Pid::from_raw(program), Signal::SIGKILL);
        }
        if tokio::time::timeout(LAST_WORDS, &mut self.capture).await.is_err() {
            self.capture.abort();
            self.log.end();
        }
        exit.unwrap_or(Exit::Signal(9))
    }
}

async fn next_report(lines: &mut Lines<BufReader<OwnedReadHalf>>) -> Option<Report> {
    loop {
        let line = lines.next_line().await.ok().flatten()?;
        if let Ok(report) = serde_json::from_str(&line) {
            return Some(report);
        }
    }
}
