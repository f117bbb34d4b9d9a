//! `shim run`: leaves the machine's namespaces and starts PID 1 of the container in new ones.
//!
//! It stays as PID 1's parent, because a process cannot enter a PID namespace itself, and ends with it.

use std::fs;
use std::os::fd::AsFd;
use std::process::ExitCode;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getgid, getuid, setsid};

use super::init;
use super::orders::Walls;

pub(super) fn main(mode: &str) -> Result<ExitCode, String> {
    let walls = Walls::from_word(mode)?;
    SigSet::all().thread_block().map_err(|error| format!("blocking signals: {error}"))?;
    // No terminal: Ctrl-C is trainyard's, and what becomes of the containers is for it to decide.
    let _ = setsid();
    if walls == Walls::None {
        return init::main(mode);
    }
    leave(walls)?;
    die_with_parent()?;
    in_child(|| init::main(mode))
}

/// Runs this in a child process, which is the first of a new PID namespace, and ends like it.
///
/// A fork without another program: that is sound only in a process with one thread, which is made sure of.
pub(super) fn in_child(child: impl FnOnce() -> Result<ExitCode, String>) -> Result<ExitCode, String> {
    let threads = fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        return Err(format!("the shim must have one thread, but has {threads}"));
    }
    let pid =
        match fork::fork().map_err(|error| format!("starting the container's first process: {error}"))? {
            fork::Fork::Child => return child(),
            fork::Fork::Parent(pid) => Pid::from_raw(pid),
        };
    let code = loop {
        match waitpid(pid, None) {
            Ok(WaitStatus::Exited(_, code)) => break code,
            Ok(WaitStatus::Signaled(_, signal, _)) => break 128 + signal as i32,
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(format!("waiting for the container's first process: {}", error.desc())),
        }
    };
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
    }
    Ok(())
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
