//! What a machine needs before it can have real nodes. This is the only place that installs
//! anything, and it does so as root, on Debian, and only what is missing.

use std::path::Path;
use std::process::Command;

use crate::{Error, binaries, command};

/// A program (or a file) that is used, and the Debian package that has it.
const NEEDED: [(&str, &str); 8] = [
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("nsenter", "util-linux"),
    ("mmdebstrap", "mmdebstrap"),
    ("sha256sum", "coreutils"),
    ("tar", "tar"),
];
const PLUGINS_PACKAGE: &str = "containernetworking-plugins";
/// Where distributions put the CNI plugins.
const PLUGIN_DIRS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// An error that says what is missing, unless it could be installed.
pub(crate) fn ensure(progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NeedsRoot);
    }
    if missing().is_empty() {
        return Ok(());
    }
    let cache = binaries::cache()?;
    std::fs::create_dir_all(&cache).map_err(Error::io("create", &cache))?;
    let _lock = binaries::lock(&cache.join("packages.lock"), "installs Debian packages", progress)?;
    // Whoever held the lock before may have installed them.
    let missing_before = missing();
    if !missing_before.is_empty() && find("apt-get").is_some() {
        install(&missing_before, progress)?;
    }
    match missing() {
        still if still.is_empty() => Ok(()),
        still => Err(Error::MissingPackages(still.join(" "))),
    }
}

fn install(packages: &[&str], progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
    progress(&format!("installing the Debian packages {}", packages.join(", ")));
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        // Somebody else may be installing, too.
        apt.env("DEBIAN_FRONTEND", "noninteractive").args(["--quiet", "--option=DPkg::Lock::Timeout=300"]);
        command::run(apt.args(args)).map(drop)
    };
    apt(&["update"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], packages].concat())
}

/// The directory with the CNI plugins.
pub(crate) fn plugins() -> Result<&'static str, Error> {
    let found = PLUGIN_DIRS.into_iter().find(|dir| Path::new(dir).join("bridge").is_file());
    found.ok_or_else(|| Error::MissingPackages(PLUGINS_PACKAGE.into()))
}

fn missing() -> Vec<&'static str> {
    let mut missing: Vec<&str> = NEEDED
        .into_iter()
        .filter(|(program, _)| find(program).is_none())
        .map(|(_, package)| package)
        .collect();
    if plugins().is_err() {
        missing.push(PLUGINS_PACKAGE);
    }
    missing
}

fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
