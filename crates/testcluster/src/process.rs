//! Child processes that cannot outlive this one.
//!
//! Destructors do not run on `kill -9`, nor for statics, and a parent-death signal belongs to the
//! thread that spawned, which a test harness ends early. So every component has a watcher: a shell
//! that waits on a pipe whose other end only this process holds. However this process ends, the
//! kernel closes the pipe, and the watcher kills its component.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::net::TcpSocket;

use crate::Error;

/// Forks the watcher, then becomes the component, so that the child's process id is the
/// component's. A line on the pipe means that the component was dealt with; an end of file without
/// one means that we are gone.
const WATCHED: &str = r#"
exec 3<&0 </dev/null
pid=$$
( read -r _ <&3 || kill -9 "$pid" ) >/dev/null 2>&1 &
exec 3<&- "$@"
"#;

/// The same for a component that is started again whenever it ends, as long as the file `$1` is there. Here, the child is the shell;
/// what it starts is in its process group.
const KEPT: &str = r#"
exec 3<&0 </dev/null
pid=$$
( read -r _ <&3 || kill -9 "-$pid" ) >/dev/null 2>&1 &
exec 3<&-
up=$1
shift
while :; do
    "$@"
    code=$?
    [ -e "$up" ] || exit "$code"
    echo "it has ended with code $code, and is started again" >&2
    sleep 1
done
"#;

/// Waits like a watcher, then removes a directory. The components die at the same moment, so one
/// may still write while its directory goes: try for a while.
const JANITOR: &str = r#"
read -r _ && exit
for _ in $(seq 50); do
    sleep 0.2
    rm -rf -- "$1" && [ ! -e "$1" ] && exit
done
"#;

/// A running process on a leash: a part of the control plane, or a program under test.
#[derive(Debug)]
pub struct Component {
    name: &'static str,
    child: Child,
    leash: Option<ChildStdin>,
    log: PathBuf,
}

impl Component {
    /// Starts `argv` with its output appended to `log`.
    pub fn start(name: &'static str, argv: &[OsString], log: PathBuf) -> Result<Self, Error> {
        Self::start_by(shell(WATCHED), name, argv, log)
    }

    /// The same, and from the moment on at which there is a file `up`, it is started again whenever it ends by itself: the kubelet of
    /// a real control plane does that, and some components rely on it.
    pub(crate) fn keep_up(
        up: &Path,
        name: &'static str,
        argv: &[OsString],
        log: PathBuf,
    ) -> Result<Self, Error> {
        let mut keeper = shell(KEPT);
        keeper.arg(up);
        Self::start_by(keeper, name, argv, log)
    }

    fn start_by(
        mut command: Command,
        name: &'static str,
        argv: &[OsString],
        log: PathBuf,
    ) -> Result<Self, Error> {
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(Error::io("open the log", &log))?;
        let errors = output.try_clone().map_err(Error::io("open the log", &log))?;
        command.args(argv).stdout(output).stderr(errors);
        // etcd takes every flag from its environment too; a developer's own must not reach it.
        for (key, _) in std::env::vars_os().filter(|(key, _)| key.as_encoded_bytes().starts_with(b"ETCD_")) {
            command.env_remove(key);
        }
        let mut child = command.spawn().map_err(Error::io("start", "sh"))?;
        let leash = child.stdin.take();
        Ok(Self { name, child, leash, log })
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An error with the end of the log when the component is no longer there.
    pub fn check(&mut self) -> Result<(), Error> {
        let status = self.child.try_wait().map_err(Error::io("wait for", self.name))?;
        let Some(status) = status else { return Ok(()) };
        self.release();
        Err(Error::Ended {
            name: self.name,
            status: status.to_string(),
            log: self.log.clone(),
            tail: self.tail(),
        })
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of the log, shortened to what fits a terminal.
    pub fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(12)..];
        last.iter().map(|line| line.chars().take(400).chain(['\n']).collect::<String>()).collect()
    }

    /// Ends the component at once: nothing that it holds is kept, so it is not asked politely.
    pub fn kill(&mut self) {
        // With everything that it has started. Failing means that it has ended already.
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.kill();
        // Before the wait: until then no other process can get this id, so a watcher that sees
        // the end of the pipe first cannot hit a stranger.
        self.release();
        let _ = self.child.wait();
    }

    fn release(&mut self) {
        if let Some(mut leash) = self.leash.take() {
            let _ = leash.write_all(b"done\n");
        }
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A directory that goes when this value or this process does.
#[derive(Debug)]
pub(crate) struct Workspace {
    dir: PathBuf,
    janitor: Option<Child>,
}

impl Workspace {
    /// `dir` must be absolute: it is removed with everything in it.
    pub(crate) fn new(dir: PathBuf) -> Result<Self, Error> {
        let mut command = shell(JANITOR);
        command.arg(&dir).stdout(Stdio::null()).stderr(Stdio::null());
        let janitor = Some(command.spawn().map_err(Error::io("start", "sh"))?);
        Ok(Self { dir, janitor })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Keeps the directory, because somebody is going to read the logs in it.
    pub(crate) fn keep(mut self) {
        self.dismiss();
    }

    fn dismiss(&mut self) -> bool {
        let Some(mut janitor) = self.janitor.take() else { return false };
        if let Some(mut leash) = janitor.stdin.take() {
            let _ = leash.write_all(b"done\n");
        }
        let _ = janitor.wait();
        true
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if self.dismiss() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

pub(crate) fn shell(script: &str) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new("sh");
    // A group of its own keeps a terminal's Ctrl-C away from it: we decide the order of things.
    command.args(["-c", script, "sh"]).stdin(Stdio::piped()).current_dir("/").process_group(0);
    command
}

/// A port of one of our addresses that stays ours for as long as this value lives.
///
/// The socket is bound but never listens, and lets sockets of the same user bind beside it; the
/// component does so with its own port-sharing flag. Nobody else can take the port in between, not
/// even while the component is down.
#[derive(Debug)]
pub(crate) struct Port {
    _socket: TcpSocket,
    number: u16,
}

impl Port {
    pub(crate) fn reserve(address: Ipv4Addr) -> Result<Self, Error> {
        let reserve = || -> std::io::Result<Self> {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseport(true)?;
            socket.bind(SocketAddr::from((address, 0)))?;
            let number = socket.local_addr()?.port();
            Ok(Self { _socket: socket, number })
        };
        reserve().map_err(Error::Port)
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// A command line out of text and paths.
pub(crate) fn argv<I>(program: &Path, args: I) -> Vec<OsString>
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    std::iter::once(program.as_os_str().to_owned())
        .chain(args.into_iter().map(|arg| arg.as_ref().to_owned()))
        .collect()
}

/// Writes a file that only this user can read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let write = || -> std::io::Result<()> {
        let mut file: File =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())
    };
    write().map_err(Error::io("write", path))
}
