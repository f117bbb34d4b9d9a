//! PID 1 of a container. It builds the container's view of the machine, starts the program, passes
//! signals on, reaps orphans, and reports how the program ended.
//!
//! When it ends, the kernel ends everything else in its PID namespace. Where there are no namespaces, it does that
//! itself, as far as a process can: it adopts orphans and kills them.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::{fs, io};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::orders::{Order, Orders, Report, Walls};
use super::{root, run};

pub(super) fn main(mode: &str) -> Result<ExitCode, String> {
    let walls = Walls::from_word(mode)?;
    if walls == Walls::None {
        // With no namespace that ends with us, being killed would leave the program behind: the end of the socket
        // tells us that the node is gone, and we clean up.
        nix::sys::prctl::set_child_subreaper(true).map_err(|error| format!("subreaper: {error}"))?;
    } else {
        run::die_with_parent()?;
    }
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    let children = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(|error| format!("signalfd: {error}"))?;
    let mut line = Line { socket: socket()?, rest: Vec::new() };
    let Some(orders) = line.next().map_err(|error| format!("reading orders: {error}"))? else {
        return Ok(ExitCode::SUCCESS);
    };
    let orders: Orders =
        serde_json::from_slice(&orders).map_err(|error| format!("reading orders: {error}"))?;
    // As the machine's /proc says, not the container's: this is for the node.
    let init =
        fs::read_link("/proc/self").ok().and_then(|pid| pid.to_str()?.parse().ok()).unwrap_or_default();
    let program = match start(walls, &orders) {
        Ok(program) => program,
        Err(message) => {
            line.report(&Report::NotStarted { message });
            return Ok(ExitCode::SUCCESS);
        }
    };
    drop(orders);
    line.report(&Report::Started { init, program: program.as_raw() });
    let report = watch_over(program, &mut line, &children);
    if walls == Walls::None {
        end_all(program);
    }
    if let Some(report) = report {
        line.report(&report);
    }
    Ok(ExitCode::SUCCESS)
}

/// The socket to the node.
pub(super) fn socket() -> Result<UnixStream, String> {
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    stdin.map(UnixStream::from).map_err(|error| format!("standard input is no socket: {error}"))
}

/// Lines over the socket. Reading blocks only where the caller has polled, or wants to wait.
struct Line {
    socket: UnixStream,
    rest: Vec<u8>,
}

impl Line {
    /// The next line; none at the end.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let tail = self.rest.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.rest, tail)));
            }
            let mut buffer = [0; 16 * 1024];
            match self.socket.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => self.rest.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn report(&mut self, report: &Report) {
        if let Ok(mut text) = serde_json::to_vec(report) {
            text.push(b'\n');
            // If the node is gone, nobody wants to know.
            let _ = self.socket.write_all(&text);
        }
    }
}

fn start(walls: Walls, orders: &Orders) -> Result<Pid, String> {
    for procs in &orders.cgroups {
        fs::write(procs, "0").map_err(|error| format!("entering the cgroup {}: {error}", procs.display()))?;
    }
    if walls != Walls::None {
        if let Some(root) = &orders.root {
            root::enter(root)?;
        }
        nix::unistd::sethostname(&orders.hostname)
            .map_err(|error| format!("setting the host name: {error}"))?;
    }
    if walls == Walls::User {
        drop_capabilities()?;
    }
    if orders.make_directory {
        // That it cannot be made is told by what comes next.
        let _ = fs::create_dir_all(&orders.directory);
    }
    std::env::set_current_dir(&orders.directory).map_err(|error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let advice = if missing { " (on this machine, workingDir is made only inside a volume)" } else { "" };
        let shown = orders.directory.display().to_string();
        format!("chdir to cwd ({shown:?}) failed: {}{advice}", words(&error))
    })?;
    let Some((program, arguments)) = orders.command.split_first() else {
        return Err("no command specified".to_owned());
    };
    // The program inherits what is blocked. What arrives meanwhile is not for PID 1, but for a child that ends: whoever
    // calls this reaps once before waiting.
    let blocked = SigSet::thread_get_mask().map_err(|error| format!("signals: {error}"))?;
    let _ = SigSet::empty().thread_set_mask();
    // An error of exec comes back from spawn.
    let child = Command::new(file_of(program.as_ref()))
        .args(arguments)
        .env_clear()
        .envs(orders.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    let _ = blocked.thread_set_mask();
    let child = child.map_err(|error| exec_failed(program, &error))?;
    i32::try_from(child.id()).map(Pid::from_raw).map_err(|error| error.to_string())
}

/// In an image, `trainyard` is in the path. Here it is this very program, wherever its file is.
pub(super) fn file_of(program: &OsStr) -> &OsStr {
    if program == "trainyard" { OsStr::new("/proc/self/exe") } else { program }
}

/// In the words of the container runtimes, which people search the web for.
pub(super) fn exec_failed(program: &str, error: &io::Error) -> String {
    let why = if error.kind() == io::ErrorKind::NotFound && !program.contains('/') {
        "executable file not found in $PATH".to_owned()
    } else {
        words(error)
    };
    format!("exec: {program:?}: {why}")
}

fn words(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |code| Errno::from_raw(code).desc().to_lowercase())
}

/// The program gets no right that the user does not have.
pub(super) fn drop_capabilities() -> Result<(), String> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(|error| format!("capabilities: {error}"))
}

/// Until the program ends: passes signals on, reaps. None if the node is gone.
fn watch_over(program: Pid, line: &mut Line, children: &SignalFd) -> Option<Report> {
    if let Some(report) = reap(program) {
        return Some(report);
    }
    loop {
        let (news, died) = {
            let mut fds = [
                PollFd::new(line.socket.as_fd(), PollFlags::POLLIN),
                PollFd::new(children.as_fd(), PollFlags::POLLIN),
            ];
            if poll(&mut fds, PollTimeout::NONE).is_err() {
                continue;
            }
            (fds[0].any().unwrap_or(false), fds[1].any().unwrap_or(false))
        };
        if died {
            while let Ok(Some(_)) = children.read_signal() {}
            if let Some(report) = reap(program) {
                return Some(report);
            }
        }
        if news {
            match line.next() {
                Ok(Some(text)) => obey(program, &text),
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

fn obey(program: Pid, text: &[u8]) {
    let Ok(Order::Signal(signal)) = serde_json::from_slice(text) else { return };
    if let Ok(signal) = Signal::try_from(signal) {
        let _ = kill(program, signal);
    }
}

/// Reaps all that have ended; what became of the program, if it is among them.
fn reap(program: Pid) -> Option<Report> {
    let mut report = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == program => report = Some(Report::Exited { code }),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => {
                report = Some(Report::Signaled { signal: signal as i32 });
            }
            Ok(WaitStatus::StillAlive) | Err(_) => return report,
            Ok(_) => {}
        }
    }
}

/// Kills the program's group and whatever has become our child since, until no child is left.
fn end_all(program: Pid) {
    let _ = killpg(program, Signal::SIGKILL);
    loop {
        for pid in children_of(getpid()) {
            let _ = kill(pid, Signal::SIGKILL);
        }
        if waitpid(None, None) == Err(Errno::ECHILD) {
            return;
        }
    }
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent.as_raw())).map(Pid::from_raw).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}
