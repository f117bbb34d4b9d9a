//! Commands run inside containers, for `kubectl exec` and for probes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use trainyard_apiserver::{ExecExit, ExecOptions, ExecSession, KubeletError};

use crate::isolate::spawner;
use crate::shared::Door;

/// Starts a command in a container.
pub(crate) async fn session(
    shim: &[String],
    door: &Door,
    options: &ExecOptions,
) -> Result<ExecSession, KubeletError> {
    let failed = |error: io::Error| KubeletError::Internal(format!("starting the command: {error}"));
    if options.tty { in_terminal(shim, door, options).await.map_err(failed) } else { piped(shim, door, options).await.map_err(failed) }
}

/// Runs a command to its end; an error has what it said.
pub(crate) async fn succeeds(shim: &[String], door: &Door, words: &[String]) -> Result<(), String> {
    let mut command = command(shim, door, words, false);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = spawner::spawn(command).await.map_err(|error| error.to_string())?;
    let output = child.wait_with_output().await.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("command {words:?} failed: {}", String::from_utf8_lossy(&text).trim()))
}

fn command(shim: &[String], door: &Door, words: &[String], terminal: bool) -> Command {
    let mut parts = shim.iter();
    let mut command = Command::new(parts.next().map(String::as_str).unwrap_or_default());
    command.args(parts).arg("exec");
    command.arg(door.init.map_or_else(|| "-".to_owned(), |pid| pid.to_string()));
    command.arg(&door.directory).arg(if terminal { "tty" } else { "-" }).args(words);
    command.env_clear().envs(door.env.iter().map(|(name, value)| (name, value)));
    command
}

async fn piped(shim: &[String], door: &Door, options: &ExecOptions) -> io::Result<ExecSession> {
    let mut command = command(shim, door, &options.command, false);
    let stream = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
    command.stdin(stream(options.stdin)).stdout(stream(options.stdout)).stderr(stream(options.stderr));
    command.kill_on_drop(true);
    let mut child = spawner::spawn(command).await?;
    Ok(ExecSession {
        stdin: child.stdin.take().map(|stream| Box::new(stream) as Box<_>),
        stdout: child.stdout.take().map(|stream| Box::new(stream) as Box<_>),
        stderr: child.stderr.take().map(|stream| Box::new(stream) as Box<_>),
        resize: None,
        exit: exit(child).boxed(),
    })
}

async fn in_terminal(shim: &[String], door: &Door, options: &ExecOptions) -> io::Result<ExecSession> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let path = ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(path.as_c_str(), flags, Mode::empty())?;
    let mut command = command(shim, door, &options.command, true);
    if !door.env.iter().any(|(name, _)| name == "TERM") {
        command.env("TERM", "xterm");
    }
    command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs).kill_on_drop(true);
    let child = spawner::spawn(command).await?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let terminal = Arc::new(AsyncFd::new(ours)?);
    let (resize, mut sizes) = mpsc::channel::<(u16, u16)>(4);
    let screen = terminal.clone();
    tokio::spawn(async move {
        while let Some((columns, rows)) = sizes.recv().await {
            let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            let _ = tcsetwinsize(screen.get_ref().as_fd(), size);
        }
    });
    Ok(ExecSession {
        stdin: options.stdin.then(|| Box::new(Terminal(terminal.clone())) as Box<_>),
        stdout: Some(Box::new(Terminal(terminal))),
        stderr: None,
        resize: Some(resize),
        exit: exit(child).boxed(),
    })
}

async fn exit(mut child: Child) -> ExecExit {
    use std::os::unix::process::ExitStatusExt;
    match child.wait().await {
        Ok(status) => {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            code.map_or_else(|| ExecExit::Error("nobody knows how it ended".to_owned()), ExecExit::Code)
        }
        Err(error) => ExecExit::Error(error.to_string()),
    }
}

/// Our end of a terminal.
struct Terminal(Arc<AsyncFd<OwnedFd>>);

impl AsyncRead for Terminal {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let mut bytes = [0; 4096];
            let wanted = bytes.len().min(buffer.remaining());
            let read = guard.try_io(|fd| rustix::io::read(fd.get_ref(), &mut bytes[..wanted]).map_err(io::Error::from));
            match read {
                Ok(Ok(length)) => {
                    buffer.put_slice(&bytes[..length]);
                    return Poll::Ready(Ok(()));
                }
                // The last process has closed the other end.
                Ok(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            let written = guard.try_io(|fd| rustix::io::write(fd.get_ref(), bytes).map_err(io::Error::from));
            if let Ok(written) = written {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The end of the input, as a terminal says it: Ctrl-D.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = rustix::io::write(self.0.get_ref(), &[4]);
        Poll::Ready(Ok(()))
    }
}
