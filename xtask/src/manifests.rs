//! `cargo xtask manifests`: what is generated from the types, in the places where the pages look for it.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Both places of the CRD: the guide's and the lab's.
const CRD: [&str; 2] =
    ["kubernetes/base/trainingjob-crd.yaml", "config/crd/bases/ml.example.com_trainingjobs.yaml"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only say whether the files are up to date
    #[arg(long)]
    check: bool,
}

impl Args {
    pub(crate) fn check() -> Self {
        Self { check: true }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let output = crate::test::cargo(&["run", "--quiet", "--package", "trainyard", "--", "crds"]).output()?;
    if !output.status.success() {
        bail!("trainyard crds failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    for file in CRD {
        let path = root().join(file);
        let current = std::fs::read(&path).unwrap_or_default();
        if current == output.stdout {
            println!("{file}: up to date");
        } else if args.check {
            bail!("{file} is not what the types say: run `make manifests`");
        } else {
            let directory = path.parent().context("a file has a directory")?;
            std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
            std::fs::write(&path, &output.stdout).with_context(|| format!("writing {file}"))?;
            println!("{file}: written");
        }
    }
    Ok(())
}

/// The top of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
