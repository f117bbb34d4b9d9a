//! kubectl, the way a user runs it, against the test cluster.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;

use crate::Error;

/// A kubectl that is about to run: `cluster.kubectl().stdin(yaml).run(&["apply", "-f", "-"]).await`.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    stdin: Option<Vec<u8>>,
}

/// What kubectl said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubectlOutput {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Kubectl {
    pub(crate) fn new(program: PathBuf, kubeconfig: PathBuf, cache: PathBuf) -> Self {
        Self { program, kubeconfig, cache, stdin: None }
    }

    /// Runs as somebody else; see [`TestCluster::kubeconfig_for`](crate::TestCluster::kubeconfig_for).
    #[must_use]
    pub fn kubeconfig(mut self, path: impl AsRef<Path>) -> Self {
        path.as_ref().clone_into(&mut self.kubeconfig);
        self
    }

    /// What kubectl reads from its standard input, for `-f -`.
    #[must_use]
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Runs it to its end. An error means that kubectl could not be run at all.
    ///
    /// It is async because the hollow nodes that `kubectl wait` waits for may live on the same thread.
    pub async fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<KubectlOutput, Error> {
        let failed = || Error::io("run", &self.program);
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", &self.cache)
            // A developer's own kubectl preferences must not change what tests see.
            .env("KUBECTL_KUBERC", "false")
            .stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed())?;
        let input = child.stdin.take();
        let feed = async {
            if let (Some(mut pipe), Some(text)) = (input, &self.stdin) {
                // It may end without reading everything; its own message says why.
                let _ = pipe.write_all(text).await;
            }
        };
        let ((), output) = tokio::join!(feed, child.wait_with_output());
        let output = output.map_err(failed())?;
        Ok(KubectlOutput {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

impl KubectlOutput {
    /// The standard output; panics with everything that was said when kubectl failed. For tests.
    #[track_caller]
    pub fn expect(self, what: &str) -> String {
        assert!(self.success, "{what}: {self}");
        self.stdout
    }
}

impl fmt::Display for KubectlOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = if self.success { "kubectl succeeded" } else { "kubectl failed" };
        write!(f, "{said}\n{}{}", self.stdout, self.stderr)
    }
}
