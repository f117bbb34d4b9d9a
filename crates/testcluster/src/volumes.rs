//! Where the controller manager's host-path provisioner puts volumes.
//!
//! It hard-codes a directory in `/tmp`. Where the system permits it, the controller manager gets a
//! mount namespace in which `/tmp` is a directory of its cluster, so volumes go with the cluster.
//! Elsewhere they land in the real `/tmp`, empty (hollow nodes mount nothing), and are swept.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use crate::Error;

const SHARED_TMP: &str = "/tmp";
const PROVISIONED: &str = "/tmp/hostpath_pv";

/// `$1` becomes `/tmp`; `$2` inside it, if any, is where `$3` stays visible under its own path.
const PRIVATE: &str = r#"
if [ -n "$2" ]; then mount --bind "$3" "$2" || exit; fi
mount --rbind "$1" /tmp || exit
shift 3
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
    pub(crate) fn new(cluster: &Path) -> Result<Self, Error> {
        let prefix = private(cluster)?;
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

fn private(cluster: &Path) -> Result<Vec<OsString>, Error> {
    let tmp = cluster.join("tmp");
    // The cluster's own files are usually below /tmp, and are needed inside too.
    let inside: PathBuf = cluster.strip_prefix(SHARED_TMP).map(|rest| tmp.join(rest)).unwrap_or_default();
    for dir in [&tmp, &inside].into_iter().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
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
    prefix.extend([tmp.into_os_string(), inside.into_os_string(), cluster.as_os_str().to_owned()]);
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
