//! `shim run`: leaves the machine's namespaces and starts PID 1 of the container in new ones.
//!
//! It stays as PID 1's parent, because a process cannot enter a PID namespace itself, and ends with it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getgid, getuid, setsid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities,
};

use super::init;
use super::orders::Walls;

pub(super) fn main(mode: &str, arguments: &[OsString]) -> Result<ExitCode, String> {
    let walls = Walls::from_word(mode)?;
    SigSet::all().thread_block().map_err(|error| format!("blocking signals: {error}"))?;
    // No terminal: Ctrl-C is trainyard's, and what becomes of the containers is for it to decide.
    let _ = setsid();
    if walls == Walls::None {
        return init::main(mode);
    }
    leave(walls)?;
    die_with_parent()?;
    let mut init = next_stage(arguments, &["init", mode])
        .spawn()
        .map_err(|error| format!("starting the container's first process: {error}"))?;
    let status =
        init.wait().map_err(|error| format!("waiting for the container's first process: {error}"))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(125);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(125)))
}

/// Moves this process (for what the kernel lets a process move) and its future children into new namespaces.
pub(super) fn leave(walls: Walls) -> Result<(), String> {
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWUTS;
    let (user, group) = (getuid(), getgid());
    if walls == Walls::User {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).map_err(|error| format!("new namespaces: {}", error.desc()))?;
    if walls == Walls::User {
        let map = |file: &str, text: String| {
            fs::write(format!("/proc/self/{file}"), text).map_err(|error| format!("{file}: {error}"))
        };
        map("setgroups", "deny".to_owned())?;
        map("uid_map", format!("{user} {user} 1"))?;
        map("gid_map", format!("{group} {group} 1"))?;
        keep_mounting()?;
    }
    Ok(())
}

/// Lets PID 1 keep the right to mount in the new user namespace: a user who is not root there loses it otherwise
/// when the next program starts.
fn keep_mounting() -> Result<(), String> {
    let error = |error: rustix::io::Errno| format!("capabilities in the user namespace: {error}");
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None).map_err(error)?;
    let inheritable = inheritable | CapabilitySet::SYS_ADMIN;
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable }).map_err(error)?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true).map_err(error)
}

/// Asks to be killed with the parent, and makes sure that it is not dead already.
pub(super) fn die_with_parent() -> Result<(), String> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| format!("parent-death signal: {}", error.desc()))?;
    let stdin = std::io::stdin();
    let mut socket = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    let _ = poll(&mut socket, PollTimeout::ZERO);
    match socket[0].revents() {
        Some(events) if events.contains(PollFlags::POLLHUP) => Err("trainyard is gone".to_owned()),
        _ => Ok(()),
    }
}

/// This binary again, with what came before the shim's own arguments, and these instead of them.
pub(super) fn next_stage(arguments: &[OsString], words: &[&str]) -> Command {
    let all: Vec<OsString> = std::env::args_os().collect();
    let prefix = all.len().saturating_sub(arguments.len());
    let mut command = Command::new("/proc/self/exe");
    command.args(&all[1.min(prefix)..prefix]).args(words.iter().map(OsStr::new));
    command
}
