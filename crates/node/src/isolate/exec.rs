//! `shim exec`: runs a command inside a container that runs already.
//!
//! `shim exec <pid of its PID 1, or "-"> <directory> <"tty" or "-"> <command> <arguments…>`. Environment and standard
//! streams are the command's.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::setsid;

use super::init::{drop_capabilities, exec_failed, file_of};

pub(super) fn main(arguments: &[OsString]) -> Result<ExitCode, String> {
    let [init, directory, terminal, program, rest @ ..] = arguments else {
        return Err("exec needs a process, a directory, a terminal and a command".to_owned());
    };
    let _ = setsid();
    if terminal == "tty" {
        rustix::process::ioctl_tiocsctty(io::stdin().as_fd())
            .map_err(|error| format!("controlling terminal: {error}"))?;
    }
    if init != "-" {
        enter(&init.to_string_lossy())?;
    }
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| format!("parent-death signal: {error}"))?;
    std::env::set_current_dir(directory)
        .map_err(|error| format!("chdir to cwd ({:?}) failed: {error}", directory.to_string_lossy()))?;
    let name = program.to_string_lossy();
    let mut child = match Command::new(file_of(program)).args(rest).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("{}", exec_failed(&name, &error));
            let missing = error.kind() == io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if missing { 127 } else { 126 }));
        }
    };
    // Ctrl-C in the terminal is for the command. Not earlier: the command would not get it either.
    SigSet::all().thread_block().map_err(|error| format!("blocking signals: {error}"))?;
    let status = child.wait().map_err(|error| format!("waiting for the command: {error}"))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(125);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(125)))
}

/// Enters the namespaces of a process; the PID namespace holds for the command, which is a child.
fn enter(pid: &str) -> Result<(), String> {
    let open = |name: &str| {
        File::open(format!("/proc/{pid}/ns/{name}"))
            .map_err(|error| format!("the container is not running any more ({error})"))
    };
    let same_user = std::fs::read_link(format!("/proc/{pid}/ns/user")).ok()
        == std::fs::read_link("/proc/self/ns/user").ok();
    let user = open("user")?;
    let others = [
        (open("pid")?, CloneFlags::CLONE_NEWPID),
        (open("uts")?, CloneFlags::CLONE_NEWUTS),
        (open("mnt")?, CloneFlags::CLONE_NEWNS),
    ];
    let failed = |error: nix::Error| format!("entering the container: {}", error.desc());
    if !same_user {
        setns(&user, CloneFlags::CLONE_NEWUSER).map_err(failed)?;
    }
    for (file, kind) in &others {
        setns(file, *kind).map_err(failed)?;
    }
    if same_user { Ok(()) } else { drop_capabilities() }
}
