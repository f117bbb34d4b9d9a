//! Commands run inside containers, for `kubectl exec` and for probes.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
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
    if options.tty {
        in_terminal(shim, door, options).await.map_err(failed)
    } else {
        piped(shim, door, options).await.map_err(failed)
    }
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
    // A terminal is read and written like a pipe.
    let screen = Screen(pipe::Receiver::from_owned_fd_unchecked(ours.try_clone()?)?);
    let keyboard = Keyboard(pipe::Sender::from_owned_fd_unchecked(ours.try_clone()?)?);
    let resize = Box::new(move |columns, rows| {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = tcsetwinsize(ours.as_fd(), size);
    });
    Ok(ExecSession {
        stdin: if options.stdin { Some(Box::new(keyboard)) } else { None },
        stdout: Some(Box::new(screen)),
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

/// What a terminal shows.
struct Screen(pipe::Receiver);

impl AsyncRead for Screen {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.0).poll_read(context, buffer)) {
            // The last process has closed the other end.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                Poll::Ready(Ok(()))
            }
            other => Poll::Ready(other),
        }
    }
}

/// What is typed into a terminal.
struct Keyboard(pipe::Sender);

impl AsyncWrite for Keyboard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    /// The end of the input, as a terminal says it: Ctrl-D.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = ready!(Pin::new(&mut self.0).poll_write(context, &[4]));
        Poll::Ready(Ok(()))
    }
}
