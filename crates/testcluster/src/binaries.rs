//! The Kubernetes binaries: where they are cached, and how they are built the first time.
//!
//! They come from Go modules. Kubernetes' own module cannot be installed by version, because it
//! points at directories beside it; a small module made here requires it and names the published
//! module for each of those directories.

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::Error;
use crate::nodes::requirements;

/// The Kubernetes release that tests run against.
pub const KUBERNETES_VERSION: &str = "v1.36.3";
/// The etcd release below it: one whose requirements change none of Kubernetes' own.
pub const ETCD_VERSION: &str = "v3.6.8";
/// The CoreDNS release of clusters with real nodes, chosen like etcd's.
pub const COREDNS_VERSION: &str = "v1.14.1";

const KUBERNETES_MODULE: &str = "k8s.io/kubernetes";
const ETCD_MODULE: &str = "go.etcd.io/etcd/server/v3";
const COREDNS_MODULE: &str = "github.com/coredns/coredns";
const CONTROL_PLANE: [&str; 5] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
const NODE: [&str; 4] = ["kubelet", "kube-proxy", "name-server", "pause"];

/// Programs whose `main` is ours.
const NAME_SERVER: &str = include_str!("../go/name-server/main.go");
const PAUSE: &str = include_str!("../go/pause/main.go");

/// The binaries of the control plane, and kubectl; those of real nodes too, if they were asked for.
#[derive(Debug, Clone)]
pub struct Binaries {
    dir: PathBuf,
}

impl Binaries {
    /// Builds what is missing for a control plane. `progress` gets a line per step, none when
    /// everything is there.
    ///
    /// The cache is `$TRAINYARD_CACHE`, else `trainyard` in `$XDG_CACHE_HOME` or `~/.cache`.
    pub fn ensure(progress: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        Self::ensure_all(&CONTROL_PLANE, "all of a control plane: 7 to 10 minutes on two cores", progress)
    }

    /// The same, and what real nodes run. Debian packages that they need are installed if they are
    /// missing, which takes root, as real nodes do.
    pub fn ensure_for_nodes(progress: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        requirements::ensure(progress)?;
        let all = [CONTROL_PLANE.as_slice(), &NODE].concat();
        Self::ensure_all(&all, "all of a control plane and a node: 10 to 16 minutes on two cores", progress)
    }

    fn ensure_all(
        names: &[&'static str],
        how_long: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, Error> {
        let dir = cache()?.join(format!("kubernetes-{KUBERNETES_VERSION}"));
        let binaries = Self { dir };
        if binaries.missing(names).is_empty() {
            return Ok(binaries);
        }
        std::fs::create_dir_all(&binaries.dir).map_err(Error::io("create", &binaries.dir))?;
        let _lock = lock(&binaries.dir.join("lock"), "builds the Kubernetes binaries", progress)?;
        // Whoever held the lock before may have built them.
        let missing = binaries.missing(names);
        if !missing.is_empty() {
            go(&binaries.dir, &["version"])?;
            progress(&format!(
                "building {} into {} (once; {how_long})",
                missing.join(", "),
                binaries.dir.display()
            ));
            for name in missing {
                let start = Instant::now();
                let module = binaries.prepare_module(name)?;
                binaries.build(&module, name)?;
                progress(&format!("{name} {}: {} s", version(name), start.elapsed().as_secs()));
            }
            // Six gigabytes that nobody needs again.
            let objects = build_cache()?;
            std::fs::remove_dir_all(&objects).map_err(Error::io("remove", &objects))?;
        }
        Ok(binaries)
    }

    /// Where a binary is: `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or
    /// `kubectl`; for nodes `kubelet`, `kube-proxy`, `name-server` or `pause`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn missing(&self, names: &[&'static str]) -> Vec<&'static str> {
        let built = |name: &str| {
            self.path(name).is_file()
                && std::fs::read_to_string(self.recipe_file(name)).is_ok_and(|text| text == recipe(name))
        };
        names.iter().copied().filter(|name| !built(name)).collect()
    }

    /// Next to each binary: what it was built from. A change there builds it again.
    fn recipe_file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.recipe"))
    }

    /// A directory with the module that this binary is built in.
    fn prepare_module(&self, name: &str) -> Result<PathBuf, Error> {
        let own = own_source(name);
        let dir = self.dir.join(if own.is_some() { format!("module-{name}") } else { "module".to_owned() });
        std::fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
        let write = |file: &str, text: &str| {
            let file = dir.join(file);
            std::fs::write(&file, text).map_err(Error::io("write", &file))
        };
        if let Some(source) = own {
            write("main.go", source)?;
        }
        let found =
            go(&dir, &["mod", "download", "-json", &format!("{KUBERNETES_MODULE}@{KUBERNETES_VERSION}")])?;
        let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap_or_default();
        let upstream = PathBuf::from(found["GoMod"].as_str().unwrap_or_default());
        let text = std::fs::read_to_string(&upstream).map_err(Error::io("read", &upstream))?;
        // Only the name server's module knows CoreDNS, so that nothing else can change with it.
        let more: &[(&str, &str)] =
            if name == "name-server" { &[(COREDNS_MODULE, COREDNS_VERSION)] } else { &[] };
        write("go.mod", &go_mod(&text, more))?;
        Ok(dir)
    }

    fn build(&self, module: &Path, name: &str) -> Result<(), Error> {
        // The final name appears only when the binary is whole.
        let unfinished = self.dir.join(format!("{name}.new"));
        let output = unfinished.to_string_lossy();
        go(module, &["build", "-trimpath", "-o", &output, "-ldflags", &linker_flags(), &package(name)])?;
        std::fs::rename(&unfinished, self.path(name)).map_err(Error::io("rename", &unfinished))?;
        let file = self.recipe_file(name);
        std::fs::write(&file, recipe(name)).map_err(Error::io("write", &file))
    }
}

pub(crate) fn cache() -> Result<PathBuf, Error> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = var("TRAINYARD_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|dir| dir.join("trainyard")))
        .or_else(|| var("HOME").map(|dir| dir.join(".cache").join("trainyard")))
        .ok_or(Error::NoCacheDirectory)?;
    // The components start in another directory than ours.
    std::path::absolute(&dir).map_err(Error::io("find", &dir))
}

/// Where Go keeps what it compiles, while it does.
fn build_cache() -> Result<PathBuf, Error> {
    Ok(cache()?.join("go-build"))
}

/// Two processes that both find nothing must not both spend minutes on it.
pub(crate) fn lock(path: &Path, who: &str, progress: &mut dyn FnMut(&str)) -> Result<File, Error> {
    let file = File::create(path).map_err(Error::io("create", path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress(&format!("waiting for another process that {who}"));
            file.lock().map_err(Error::io("lock", path))?;
        }
        Err(TryLockError::Error(source)) => return Err(Error::io("lock", path)(source)),
    }
    Ok(file)
}

fn version(name: &str) -> &'static str {
    match name {
        "etcd" => ETCD_VERSION,
        "name-server" => COREDNS_VERSION,
        _ => KUBERNETES_VERSION,
    }
}

fn own_source(name: &str) -> Option<&'static str> {
    match name {
        "name-server" => Some(NAME_SERVER),
        "pause" => Some(PAUSE),
        _ => None,
    }
}

fn package(name: &str) -> String {
    match name {
        "etcd" => ETCD_MODULE.to_owned(),
        _ if own_source(name).is_some() => ".".to_owned(),
        _ => format!("{KUBERNETES_MODULE}/cmd/{name}"),
    }
}

fn recipe(name: &str) -> String {
    let source = own_source(name).unwrap_or_default();
    format!("{} {} {}\n{source}", package(name), version(name), linker_flags())
}

/// Without these the binaries call themselves v0.0.0, and clients that look at versions are misled.
fn linker_flags() -> String {
    let minor = KUBERNETES_VERSION.split('.').nth(1).unwrap_or_default();
    let set = |key: &str, value: &str| format!(" -X k8s.io/component-base/version.{key}={value}");
    ["-s -w".to_owned()]
        .into_iter()
        .chain([
            set("gitVersion", KUBERNETES_VERSION),
            set("gitMajor", "1"),
            set("gitMinor", minor),
            set("gitTreeState", "clean"),
        ])
        .collect()
}

/// Our module: upstream's replacements by directory become replacements by version.
fn go_mod(upstream: &str, more: &[(&str, &str)]) -> String {
    let published = KUBERNETES_VERSION.replacen("v1", "v0", 1);
    let mut text = format!(
        "module trainyard.test/cluster\n\ngo 1.26.0\n\n\
         require (\n\t{KUBERNETES_MODULE} {KUBERNETES_VERSION}\n\t{ETCD_MODULE} {ETCD_VERSION}\n"
    );
    for (module, version) in more {
        let _ = writeln!(text, "\t{module} {version}");
    }
    text.push_str(")\n\nreplace (\n");
    for line in upstream.lines() {
        if let Some((module, to)) = line.trim().split_once(" => ")
            && to.starts_with("./staging/")
        {
            let _ = writeln!(text, "\t{module} => {module} {published}");
        }
    }
    text.push_str(")\n");
    text
}

fn go(dir: &Path, args: &[&str]) -> Result<Output, Error> {
    let output = Command::new("go")
        .args(args)
        .current_dir(dir)
        // Settings for the developer's own Go work do not apply to this module.
        .env("CGO_ENABLED", "0")
        .env("GOCACHE", build_cache()?)
        .env("GOFLAGS", "-mod=mod")
        .env("GOWORK", "off")
        .env_remove("GOOS")
        .env_remove("GOARCH")
        .output()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::GoMissing,
            _ => Error::io("run", "go")(error),
        })?;
    if output.status.success() {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    Err(Error::Go {
        command: format!("go {}", args.join(" ")),
        status: output.status.to_string(),
        output: lines[lines.len().saturating_sub(20)..].join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_directories_become_published_modules() {
        let text = go_mod(
            "module k8s.io/kubernetes\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\
             \tk8s.io/other => k8s.io/other v1.2.3\n)\n",
            &[("example.com/dns", "v1.0.0")],
        );
        assert!(text.contains("\texample.com/dns v1.0.0\n)\n"), "{text}");
        assert!(text.contains("\tk8s.io/api => k8s.io/api v0.36.3\n"), "{text}");
        assert!(!text.contains("other"), "{text}");
    }

    #[test]
    fn linker_flags_carry_the_version() {
        assert_eq!(
            linker_flags(),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
             -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 \
             -X k8s.io/component-base/version.gitTreeState=clean"
        );
    }
}
