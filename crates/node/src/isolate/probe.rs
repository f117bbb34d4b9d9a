//! `shim probe`: tries out whether this machine lets us build a container's walls, by building them once.
//!
//! Trying is the only reliable answer: kernel settings, container runtimes, seccomp and security modules all have a say.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use tokio::process::Command;

use super::orders::Walls;
use super::root::{self, Root};
use super::run;
use super::spawner;

/// Which walls can be had here, and if none, why not.
pub(crate) async fn walls(shim: &[String], scratch: PathBuf) -> (Walls, Option<String>) {
    let wanted = if nix::unistd::geteuid().is_root() {
        [Walls::Privileged, Walls::User].as_slice()
    } else {
        [Walls::User].as_slice()
    };
    let mut why = String::new();
    for walls in wanted {
        match attempt(shim, *walls, &scratch).await {
            Ok(()) => return (*walls, None),
            Err(error) => why = error,
        }
    }
    (Walls::None, Some(why))
}

async fn attempt(shim: &[String], walls: Walls, scratch: &PathBuf) -> Result<(), String> {
    let (program, arguments) = shim.split_first().ok_or("no shim is configured")?;
    let mut command = Command::new(program);
    command.args(arguments).args(["probe", walls.word()]).arg(scratch);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = spawner::spawn(command).await.map_err(|error| format!("{program}: {error}"))?;
    let output = child.wait_with_output().await.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.trim().trim_start_matches("trainyard shim: ").to_owned())
}

pub(super) fn main(mode: &str, arguments: &[OsString]) -> Result<ExitCode, String> {
    let scratch = arguments.first().map(PathBuf::from).ok_or("the probe needs a directory")?;
    run::leave(Walls::from_word(mode)?)?;
    run::in_child(|| {
        root::enter(&Root { scratch, mounts: Vec::new() })?;
        nix::unistd::sethostname("probe").map_err(|error| format!("setting the host name: {error}"))?;
        Ok(ExitCode::SUCCESS)
    })
}
