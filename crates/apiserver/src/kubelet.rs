//! What a node plugs into the API server: the logs of its containers, and commands run inside them.
//!
//! A real API server forwards `pods/log` and `pods/exec` to the kubelet of the pod's node. Here the node lives in the
//! same process, so the way there is a trait.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

/// Which pod is meant. The uid tells it from an earlier one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodId {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// Which part of a container's log is asked for, as in `pods/log`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on with new lines until the container ends.
    pub follow: bool,
    /// The log of the container before its last restart.
    pub previous: bool,
    /// Only this many lines from the end.
    pub tail_lines: Option<u64>,
    /// Only lines that are at most this old.
    pub since_seconds: Option<u64>,
    /// Only lines written at or after this moment.
    pub since_time: Option<Timestamp>,
    /// Put the moment of writing (RFC 3339) before every line.
    pub timestamps: bool,
    /// Stop after this many bytes.
    pub limit_bytes: Option<u64>,
}

/// What to run in a container and which streams the caller wants, as in `pods/exec`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the API's own flags, each independent of the others")]
pub struct ExecOptions {
    pub command: Vec<String>,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// Takes columns and rows of the caller's terminal. Done when it returns: what is typed afterwards meets the new size.
pub type Resize = Box<dyn Fn(u16, u16) + Send + Sync>;

/// A command that runs in a container. Dropping the session ends the command.
pub struct ExecSession {
    /// Closed (shut down) when the caller has no more input.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Only with a terminal.
    pub resize: Option<Resize>,
    /// How it ended; done when the command has.
    pub exit: BoxFuture<'static, ExecExit>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecExit {
    /// With this exit code (128 + n for signal n).
    Code(i32),
    /// It could not be run, or nobody knows how it ended; in words.
    Error(String),
}

/// Why a node did not do what it was asked. The text reaches the user as it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KubeletError {
    /// There is no such pod or container on this node.
    #[error("{0}")]
    NotFound(String),
    /// It cannot be done in the container's present state (not started yet, ended, no earlier container …).
    #[error("{0}")]
    BadRequest(String),
    /// The node failed.
    #[error("{0}")]
    Internal(String),
}

/// The lines of a log, in pieces as they come.
pub type LogStream = BoxStream<'static, Result<Bytes, io::Error>>;

/// What the API server needs from the node that runs a pod.
pub trait Kubelet: Send + Sync + 'static {
    /// The log of a container. The stream ends at the end of the log, or with the container when following.
    fn logs(
        &self,
        pod: &PodId,
        container: &str,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<LogStream, KubeletError>>;

    /// Runs a command in a container.
    fn exec(
        &self,
        pod: &PodId,
        container: &str,
        options: ExecOptions,
    ) -> BoxFuture<'static, Result<ExecSession, KubeletError>>;
}

impl<K: Kubelet + ?Sized> Kubelet for Arc<K> {
    fn logs(
        &self,
        pod: &PodId,
        container: &str,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<LogStream, KubeletError>> {
        (**self).logs(pod, container, options)
    }

    fn exec(
        &self,
        pod: &PodId,
        container: &str,
        options: ExecOptions,
    ) -> BoxFuture<'static, Result<ExecSession, KubeletError>> {
        (**self).exec(pod, container, options)
    }
}
