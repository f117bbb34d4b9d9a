//! Container images without a registry and without a container engine: a root file system out of
//! Debian packages, packed the way `docker save` does it, and imported into every node.
//!
//! The packages are one layer, kept in the user's cache; files that a test adds are a second one,
//! made anew each time. There is nowhere to pull from, so no image may be called `:latest`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::nodes::requirements;
use crate::{Error, binaries, command};

/// What every image gets, in the directory `$1`: the usual tools, a user who is not root, names by DNS.
const FINISH: &str = r#"
set -e
cd "$1"
for tool in $(bin/busybox --list); do
    [ -e "bin/$tool" ] || [ -e "usr/bin/$tool" ] || [ -e "sbin/$tool" ] || [ -e "usr/sbin/$tool" ] || ln -sf busybox "bin/$tool"
done
mkdir -p etc tmp root proc sys dev run var/tmp
chmod 1777 tmp var/tmp
[ -s etc/passwd ] || echo 'root:x:0:0:root:/root:/bin/sh' >etc/passwd
[ -s etc/group ] || echo 'root:x:0:' >etc/group
echo 'worker:x:1000:1000:worker:/tmp:/bin/sh' >>etc/passwd
echo 'worker:x:1000:' >>etc/group
echo 'hosts: files dns' >etc/nsswitch.conf
rm -rf var/cache/apt/* var/lib/apt/lists/*
"#;

/// Documentation and translations, which no test reads.
const LEFT_OUT: [&str; 4] = ["doc", "man", "locale", "info"];

/// What is in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootFs {
    packages: Vec<String>,
    installed: bool,
    files: Vec<(PathBuf, PathBuf)>,
}

impl RootFs {
    /// The packages of this machine's own Debian release with all that they need, and busybox.
    /// They are only unpacked, which takes seconds and is enough for most.
    pub fn debian(packages: &[&str]) -> Self {
        Self {
            packages: packages.iter().map(|name| (*name).to_owned()).collect(),
            installed: false,
            files: vec![],
        }
    }

    /// Python and the usual tools of a shell: 60 MB.
    pub fn python() -> Self {
        Self::debian(&["python3"])
    }

    /// Python with PyTorch: more than 1 GB, and minutes the first time.
    pub fn torch() -> Self {
        Self::debian(&["python3", "python3-torch"]).installed()
    }

    /// Installs the packages properly, for those that need their own scripts to run.
    #[must_use]
    pub fn installed(mut self) -> Self {
        self.installed = true;
        self
    }

    /// Adds a file of this machine, at an absolute path in the image.
    #[must_use]
    pub fn file(mut self, from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Self {
        self.files.push((from.into(), to.into()));
        self
    }

    /// Makes the layer of packages unless the cache has it. `progress` gets a line when it takes time.
    pub fn ensure(&self, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.packages(progress).map(drop)
    }

    fn packages(&self, progress: &mut dyn FnMut(&str)) -> Result<Layer, Error> {
        let cache = binaries::cache()?.join("images");
        std::fs::create_dir_all(&cache).map_err(Error::io("create", &cache))?;
        let release = release()?;
        let how = if self.installed { "installed" } else { "unpacked" };
        let stem = cache.join(format!("{release}-{how}-{}", self.packages.join("+")));
        let file = |ending: &str| PathBuf::from(format!("{}.{ending}", stem.display()));
        // What it is made by. A change there makes it again.
        let mut bootstrap = self.bootstrap(&release);
        let recipe = bootstrap.get_args().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join("\n");
        let cached = || -> Option<Layer> {
            let made_from = std::fs::read_to_string(file("recipe")).ok()?;
            let digest = std::fs::read_to_string(file("sha256")).ok()?;
            (made_from == recipe && file("tar").is_file()).then(|| Layer { file: file("tar"), digest })
        };
        if let Some(layer) = cached() {
            return Ok(layer);
        }
        requirements::ensure(progress)?;
        let _lock = binaries::lock(&file("lock"), "makes the same image", progress)?;
        if let Some(layer) = cached() {
            return Ok(layer);
        }
        progress(&format!("making an image of {} in {} (once)", self.packages.join(", "), cache.display()));
        let start = Instant::now();
        // The recipe is written last: a layer without one is not whole.
        let _ = std::fs::remove_file(file("recipe"));
        command::run(bootstrap.arg(file("tar")))?;
        let layer = Layer::new(file("tar"))?;
        write(&file("sha256"), &layer.digest)?;
        write(&file("recipe"), &recipe)?;
        progress(&format!("image made: {} s", start.elapsed().as_secs()));
        Ok(layer)
    }

    /// The command that makes the layer; the file that it goes to comes last.
    fn bootstrap(&self, release: &str) -> Command {
        let mut command = Command::new("mmdebstrap");
        let (variant, hook) =
            if self.installed { ("essential", "customize") } else { ("extract", "extract") };
        command
            .args(["--quiet", "--format=tar"])
            .arg(format!("--variant={variant}"))
            .arg(format!("--include=busybox-static,{}", self.packages.join(",")))
            .args(LEFT_OUT.map(|part| format!("--dpkgopt=path-exclude=/usr/share/{part}/*")))
            .arg(format!("--{hook}-hook={FINISH}"))
            .arg(release);
        command
    }
}

/// This machine's Debian release, such as `bookworm`.
fn release() -> Result<String, Error> {
    let file = "/etc/os-release";
    let text = std::fs::read_to_string(file).map_err(Error::io("read", file))?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.unwrap_or("stable").trim_matches('"').to_owned())
}

/// One layer of an image: a tar archive, and the digest of it.
#[derive(Debug)]
struct Layer {
    file: PathBuf,
    digest: String,
}

impl Layer {
    fn new(file: PathBuf) -> Result<Self, Error> {
        let sum = command::run(Command::new("sha256sum").arg(&file))?;
        Ok(Self { digest: sum.split_whitespace().next().unwrap_or_default().to_owned(), file })
    }

    /// A layer with these files, made in `work`. Directories are left out, so that those of the
    /// layer below stay what they are.
    fn of_files(work: &Path, files: &[(PathBuf, PathBuf)]) -> Result<Self, Error> {
        let root = work.join("root");
        let mut names = Vec::new();
        for (from, to) in files {
            let name = to.strip_prefix("/").unwrap_or(to).to_owned();
            let place = root.join(&name);
            if let Some(parent) = place.parent() {
                std::fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
            }
            std::fs::copy(from, &place).map_err(Error::io("copy", from))?;
            names.push(name);
        }
        let file = work.join("files.tar");
        let mut tar = Command::new("tar");
        tar.args(["--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "-C"])
            .arg(&root)
            .arg("-cf")
            .arg(&file);
        command::run(tar.arg("--").args(names))?;
        Self::new(file)
    }
}

/// An image that can be imported.
#[derive(Debug)]
pub(crate) struct Archive {
    work: TempDir,
    parts: Vec<String>,
}

impl Archive {
    pub(crate) fn make(name: &str, root: &RootFs, progress: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        let name = full_name(name)?;
        let work = workshop()?;
        let mut layers = vec![root.packages(progress)?];
        if !root.files.is_empty() {
            layers.push(Layer::of_files(work.path(), &root.files)?);
        }
        let environment =
            ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONUNBUFFERED=1", "LANG=C.UTF-8"];
        Self::describe(
            work,
            &name,
            &layers,
            json!({"Env": environment, "Cmd": ["/bin/sh"], "WorkingDir": "/"}),
        )
    }

    /// The image of pod sandboxes.
    pub(crate) fn pause(name: &str, program: &Path) -> Result<Self, Error> {
        let work = workshop()?;
        let layer = Layer::of_files(work.path(), &[(program.to_owned(), "/pause".into())])?;
        Self::describe(work, &full_name(name)?, &[layer], json!({"Entrypoint": ["/pause"]}))
    }

    fn describe(work: TempDir, name: &str, layers: &[Layer], config: Value) -> Result<Self, Error> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let names: Vec<String> = (0..layers.len()).map(|number| format!("layer-{number}.tar")).collect();
        for (layer, name) in layers.iter().zip(&names) {
            let link = work.path().join(name);
            symlink(&layer.file, &link).map_err(Error::io("create", &link))?;
        }
        let digests: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect();
        let image = json!({
            "architecture": architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": digests},
        });
        let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": names}]);
        write(&work.path().join("config.json"), &image.to_string())?;
        write(&work.path().join("manifest.json"), &manifest.to_string())?;
        let parts = ["manifest.json", "config.json"].into_iter().map(String::from).chain(names).collect();
        Ok(Self { work, parts })
    }

    /// Writes the archive to its standard output.
    pub(crate) fn pack(&self) -> Command {
        let mut tar = Command::new("tar");
        // Layers are links to where they are kept: follow them.
        tar.args(["--dereference", "-cf", "-", "-C"]).arg(self.work.path()).args(&self.parts);
        tar.stdin(Stdio::null()).stdout(Stdio::piped());
        tar
    }
}

fn workshop() -> Result<TempDir, Error> {
    tempfile::Builder::new()
        .prefix("trainyard-image-")
        .tempdir()
        .map_err(Error::io("create a directory in", std::env::temp_dir()))
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(file, text).map_err(Error::io("write", file))
}

/// The name under which a node looks for what a pod calls `image: NAME`.
fn full_name(name: &str) -> Result<String, Error> {
    let refused = |problem: &str| Error::Image { name: name.to_owned(), problem: problem.to_owned() };
    match name.rsplit('/').next().and_then(|last| last.split_once(':')) {
        None | Some((_, "")) => return Err(refused("needs a tag, such as :1")),
        Some((_, "latest")) => {
            return Err(refused("`latest` means pulling, and there is nowhere to pull from"));
        }
        Some(_) => {}
    }
    Ok(match name.split_once('/') {
        None => format!("docker.io/library/{name}"),
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_a_node_looks_for() {
        assert_eq!(full_name("train:1").unwrap(), "docker.io/library/train:1");
        assert_eq!(full_name("test/train:1").unwrap(), "docker.io/test/train:1");
        assert_eq!(full_name("example.com/train:1").unwrap(), "example.com/train:1");
        assert_eq!(full_name("localhost/train:1").unwrap(), "localhost/train:1");
        for refused in ["train", "train:latest", "test/train", "example.com:5000/train", "train:"] {
            full_name(refused).unwrap_err();
        }
    }
}
