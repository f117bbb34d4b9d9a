//! Where the controller manager's host-path provisioner puts volumes.
//!
//! It hard-codes a directory in `/tmp`. Where the system permits it, the controller manager gets a
//! mount namespace in which `/tmp` is a directory of its cluster, so volumes go with the cluster.
//! Elsewhere they land in the real `/tmp`, empty (hollow nodes mount nothing), and are swept.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use crate::Error;

const SHARED_TMP: &str = "/tmp";
const PROVISIONED: &str = "/tmp/hostpath_pv";

/// `$1` becomes `/tmp`. Then come pairs: a directory, and where below `$1` it stays visible under
/// its own path; then `--` and the command.
const PRIVATE: &str = r#"
tmp=$1
shift
while [ "$1" != -- ]; do
    mount --bind "$1" "$2" || exit
    shift 2
done
shift
mount --rbind "$tmp" /tmp || exit
exec "$@"
"#;

/// How to start the controller manager.
#[derive(Debug)]
pub(crate) enum Volumes {
    /// Prefix its command line with this.
    Private(Vec<OsString>),
    /// Nothing to prefix; held until the cluster ends.
    Shared { _sweep: Sweep },
}

/// Removes the empty volumes that appeared since it was made.
#[derive(Debug)]
pub(crate) struct Sweep(SystemTime);

impl Volumes {
    /// `binaries` is where the controller manager itself is.
    pub(crate) fn new(cluster: &Path, binaries: &Path) -> Result<Self, Error> {
        let prefix = private(cluster, binaries)?;
        let permitted = prefix.iter().map(OsString::as_os_str).collect::<Vec<_>>().split_first().is_some_and(
            |(program, args)| {
                Command::new(program)
                    .args(args)
                    .arg("true")
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .is_ok_and(|status| status.success())
            },
        );
        Ok(if permitted { Self::Private(prefix) } else { Self::Shared { _sweep: Sweep(SystemTime::now()) } })
    }

    pub(crate) fn wrap(&self, command: Vec<OsString>) -> Vec<OsString> {
        match self {
            Self::Private(prefix) => prefix.iter().cloned().chain(command).collect(),
            Self::Shared { .. } => command,
        }
    }
}

fn private(cluster: &Path, binaries: &Path) -> Result<Vec<OsString>, Error> {
    let tmp = cluster.join("tmp");
    std::fs::create_dir_all(&tmp).map_err(Error::io("create", &tmp))?;
    // What is needed inside is often below /tmp itself.
    let mut visible = Vec::new();
    for dir in [cluster, binaries] {
        let dir = dir.canonicalize().map_err(Error::io("find", dir))?;
        if let Ok(rest) = dir.strip_prefix(SHARED_TMP) {
            let inside = tmp.join(rest);
            std::fs::create_dir_all(&inside).map_err(Error::io("create", &inside))?;
            visible.extend([dir.into_os_string(), inside.into_os_string()]);
        }
    }
    // Inside a user namespace anybody may mount; where we are root already, that one may be
    // forbidden while a plain mount namespace is not.
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    let user: &[&str] = if root { &[] } else { &["--user", "--map-root-user"] };
    let mut prefix: Vec<OsString> =
        ["unshare", "--mount", "--propagation", "private"].map(OsString::from).into();
    prefix.extend(user.iter().map(OsString::from));
    prefix.extend(["sh", "-c", PRIVATE, "sh"].map(OsString::from));
    prefix.push(tmp.into_os_string());
    prefix.extend(visible);
    prefix.push("--".into());
    Ok(prefix)
}

impl Drop for Sweep {
    fn drop(&mut self) {
        let Ok(entries) = std::fs::read_dir(PROVISIONED) else { return };
        for entry in entries.flatten() {
            let ours = entry.metadata().and_then(|meta| meta.modified()).is_ok_and(|time| time >= self.0);
            if ours {
                // Only ever an empty directory: this fails for everything else.
                let _ = std::fs::remove_dir(entry.path());
            }
        }
        let _ = std::fs::remove_dir(PROVISIONED);
    }
}
