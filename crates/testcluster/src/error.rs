//! Everything that can go wrong here, said so that the reader knows what to do next: which binary,
//! which log, and the last lines of that log.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "`go` is not on the PATH: the test cluster is built from source once. Install Go 1.26 or newer \
         (an older one since 1.21 fetches the right toolchain itself), then try again"
    )]
    GoMissing,

    #[error("`{command}` failed ({status}){output}", output = Indented(.output))]
    Go { command: String, status: String, output: String },

    #[error("`{command}` failed ({status}){output}", output = Indented(.output))]
    Command { command: String, status: String, output: String },

    #[error(
        "real nodes need root: they are made of namespaces, a bridge and control groups. \
         Run this as root, or use hollow nodes"
    )]
    NeedsRoot,

    #[error("real nodes need programs that are not here; install these packages: {0}")]
    MissingPackages(String),

    #[error("a cluster can have 100 real nodes at most")]
    TooManyNodes,

    #[error(
        "no network is free for real nodes: each 10.X.0.0/16 has a route or a bridge on this machine already"
    )]
    NoNetwork,

    #[error("{0} is off")]
    NodeOff(String),

    #[error("the image {name}: {problem}")]
    Image { name: String, problem: String },

    #[error("no container {container} of the pod {namespace}/{pod} runs on a real node")]
    NoSuchContainer { namespace: String, pod: String, container: String },

    #[error(
        "cannot tell where to cache the Kubernetes binaries: set TRAINYARD_CACHE, XDG_CACHE_HOME or HOME"
    )]
    NoCacheDirectory,

    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },

    #[error("{} is not empty: a test cluster needs a directory of its own", .0.display())]
    DirectoryInUse(PathBuf),

    #[error("cannot reserve a port: {0}")]
    Port(#[source] std::io::Error),

    #[error("cannot make certificates: {0}")]
    Certificate(#[from] rcgen::Error),

    #[error("{user} is in more than two groups: certificates made here have room for two")]
    TooManyGroups { user: String },

    #[error("{name} ended ({status}); its log is {}{tail}", log.display(), tail = Indented(.tail))]
    Ended { name: &'static str, status: String, log: PathBuf, tail: String },

    #[error("{name}: {what} not seen after {} s{last}; its log is {}{tail}",
        after.as_secs(), log.display(),
        last = last.as_ref().map(|e| format!(" (last answer: {e})")).unwrap_or_default(),
        tail = Indented(.tail))]
    Timeout {
        name: &'static str,
        what: &'static str,
        after: Duration,
        last: Option<String>,
        log: PathBuf,
        tail: String,
    },

    #[error("{0} does not run")]
    NotRunning(&'static str),

    #[error("cannot use the kubeconfig of the test cluster: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),

    #[error("the API server of the test cluster: {0}")]
    Kube(#[from] kube::Error),

    #[error("no pod {namespace}/{name} runs on a hollow node")]
    NoSuchPod { namespace: String, name: String },

    #[error("the hollow nodes have stopped")]
    HollowStopped,
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { doing, path, source }
    }
}

/// The same text as for people: what `unwrap` in a test prints has log lines in it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text below a message, two spaces in; nothing when there is none.
struct Indented<'a>(&'a str);

impl fmt::Display for Indented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.0.trim_end().lines().peekable();
        if lines.peek().is_some() {
            f.write_str(":")?;
        }
        lines.try_for_each(|line| write!(f, "\n  {line}"))
    }
}
