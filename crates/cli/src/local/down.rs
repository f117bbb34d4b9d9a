//! `trainyard down`: ends the control plane of `trainyard up`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::state;
use super::up::PID_FILE;

/// Longer than workers have to end.
const PATIENCE: Duration = Duration::from_secs(45);

/// End the control plane that `trainyard up` started. Jobs and checkpoints are kept.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The state directory that it was started with [default: ~/.local/state/trainyard].
    #[arg(long, value_name = "DIR", env = "TRAINYARD_STATE")]
    state: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let directory = match &options.state {
        Some(given) => given.clone(),
        None => state::of_machine()?,
    };
    let file = directory.join(PID_FILE);
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!("No control plane runs in {}.", directory.display());
        return Ok(ExitCode::SUCCESS);
    };
    let pid: i32 =
        text.trim().parse().with_context(|| format!("{} has no process number", file.display()))?;
    if !is_trainyard(pid) {
        // It was killed, and its number may be somebody else's by now.
        std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        println!("No control plane runs in {}; the last one was killed.", directory.display());
        return Ok(ExitCode::SUCCESS);
    }
    let process = Pid::from_raw(pid);
    match kill(process, Signal::SIGTERM) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => bail!("process {pid} cannot be ended: {error}"),
    }
    let start = Instant::now();
    while is_trainyard(pid) {
        if start.elapsed() > PATIENCE {
            bail!("process {pid} has not ended after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("The control plane has ended.");
    Ok(ExitCode::SUCCESS)
}

/// Whether that process exists and is one of ours.
fn is_trainyard(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_dead = state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    !is_dead && command.split(|byte| *byte == 0).nth(1) == Some(b"up")
}
