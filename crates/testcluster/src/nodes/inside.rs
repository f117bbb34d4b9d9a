//! Processes inside a node.
//!
//! A node is a process namespace, a mount namespace and a network namespace around one idle
//! process. The kernel ends everything in a process namespace with its first process, so
//! nothing in a node needs a watcher of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::{Component, argv};
use crate::{Error, command};

const POLL: Duration = Duration::from_millis(2);
/// Far longer than the kernel takes to start or to end a process.
const PATIENCE: Duration = Duration::from_secs(30);

/// The idle process of a node; the node dies with this value.
#[derive(Debug)]
pub(super) struct Init {
    unshared: Component,
    pid: u32,
}

impl Init {
    pub(super) fn start(pause: &Path, log: PathBuf) -> Result<Self, Error> {
        let pause = pause.canonicalize().map_err(Error::io("find", pause))?;
        let flags =
            ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=slave"];
        let mut line = argv(Path::new("unshare"), flags);
        line.push(pause.clone().into_os_string());
        let mut unshared = Component::start("node", &line, log)?;
        let started = Instant::now();
        loop {
            // Before it is the idle program, its mounts are still being made.
            let ready =
                |child: &u32| std::fs::read_link(format!("/proc/{child}/exe")).is_ok_and(|exe| exe == pause);
            if let Some(pid) = children(unshared.pid()).find(ready) {
                return Ok(Self { unshared, pid });
            }
            wait_a_moment(&mut unshared, "its namespaces", started)?;
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.unshared.check()
    }

    /// A command that will run inside.
    pub(super) fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid.to_string(), "--mount", "--net", "--pid", "--"]).current_dir("/");
        command
    }

    /// Runs a shell script inside, to its end.
    pub(super) fn script(&self, script: &str, args: &[&Path]) -> Result<(), Error> {
        let mut shell = self.enter();
        shell.args(["sh", "-euc", script, "sh"]).args(args);
        command::run(&mut shell).map(drop)
    }
}

impl Init {
    /// Ends everything in the node, and returns when it has ended.
    pub(super) fn kill(&mut self) {
        let Some(started) = start_time(self.pid) else { return };
        self.unshared.kill();
        // The kernel lets it go when everything in its namespace has ended.
        let asked = Instant::now();
        while start_time(self.pid).as_ref() == Some(&started) && asked.elapsed() < PATIENCE {
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A daemon inside a node.
#[derive(Debug)]
pub(super) struct Inside {
    entered: Component,
    pid: u32,
}

impl Inside {
    pub(super) fn start(name: &'static str, init: &Init, line: &[&str], log: PathBuf) -> Result<Self, Error> {
        let enter = init.enter();
        let line: Vec<OsString> = std::iter::once(enter.get_program())
            .chain(enter.get_args())
            .map(OsString::from)
            .chain(line.iter().map(OsString::from))
            .collect();
        let mut entered = Component::start(name, &line, log)?;
        let started = Instant::now();
        let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let node = namespace(init.pid());
        loop {
            // Entering a process namespace takes a fork, and the other child is the watcher.
            if let Some(pid) = children(entered.pid()).find(|child| namespace(*child) == node) {
                return Ok(Self { entered, pid });
            }
            wait_a_moment(&mut entered, "its process", started)?;
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn component(&mut self) -> &mut Component {
        &mut self.entered
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.entered.check().is_ok()
            && let Ok(pid) = i32::try_from(self.pid)
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            // The process that entered waits for it, and ends when it has ended.
            let asked = Instant::now();
            while self.entered.check().is_ok() && asked.elapsed() < PATIENCE {
                std::thread::sleep(POLL);
            }
        }
    }
}

fn wait_a_moment(component: &mut Component, what: &'static str, since: Instant) -> Result<(), Error> {
    component.check()?;
    if since.elapsed() > PATIENCE {
        let (name, log, tail) = (component.name(), component.log().to_owned(), component.tail());
        return Err(Error::Timeout { name, what, after: PATIENCE, last: None, log, tail });
    }
    std::thread::sleep(POLL);
    Ok(())
}

fn children(pid: u32) -> impl Iterator<Item = u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let pids: Vec<u32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    pids.into_iter()
}

/// The kernel's start time of a process, so that a later one with the same id is not taken for it.
fn start_time(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, so count from behind it.
    stat.rsplit_once(") ")?.1.split(' ').nth(19).map(str::to_owned)
}
