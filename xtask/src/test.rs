//! `cargo xtask test`: the fast checks first, so that a mistake is told early.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use crate::{licences, manifests};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also run the tests on a real Kubernetes (the first time, its parts are built from Go modules: some minutes)
    #[arg(long)]
    cluster: bool,
    /// Only the tests: no formatting, lints, licences or generated files. With --cluster, only those that need one
    #[arg(long)]
    only_tests: bool,
}

/// The test programs that do more when there is a real Kubernetes.
const CLUSTER_TESTS: [(&str, &[&str]); 4] = [
    ("trainyard", &["cluster", "local", "nodes"]),
    ("trainyard-apiserver", &["kubectl"]),
    ("trainyard-conformance", &["real", "differential"]),
    ("trainyard-testcluster", &["control_plane", "hollow", "nodes"]),
];

const NEEDS_TORCH: &str = "import torch";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if !args.only_tests {
        step("formatting", &mut cargo(&["fmt", "--all", "--check"]))?;
        step(
            "lints",
            &mut cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"]),
        )?;
        println!("== generated manifests");
        manifests::run(&manifests::Args::check())?;
        licences::check()?;
    }
    if args.cluster {
        println!("== a real Kubernetes");
        let progress = &mut |line: &str| println!("   {line}");
        if nix::unistd::geteuid().is_root() {
            trainyard_testcluster::Binaries::ensure_for_nodes(progress)?;
        } else {
            trainyard_testcluster::Binaries::ensure(progress)?;
            println!("== skipped: tests on real nodes (they take root)");
        }
    } else {
        println!("== skipped: tests on a real Kubernetes (cargo xtask test --cluster runs them)");
    }
    // The tests that use it pass without it, and what they say about that is not shown.
    if python(NEEDS_TORCH).is_none() {
        println!(
            "== skipped: tests with PyTorch and torchrun (no python3 here has torch; Debian: python3-torch)"
        );
    }
    let mut tests = cargo(&["test", "--quiet"]);
    if args.cluster {
        tests.env(trainyard_testcluster::ENABLE, "1");
    }
    if args.cluster && args.only_tests {
        for (package, programs) in CLUSTER_TESTS {
            tests.args(["--package", package]);
            tests.args(programs.iter().flat_map(|program| ["--test", program]));
        }
        return step("tests on a real Kubernetes", &mut tests);
    }
    step("tests", tests.arg("--workspace"))?;
    simulate()?;
    examples()
}

/// Known stories disturbed at every place, and a hundred thousand random ones.
fn simulate() -> anyhow::Result<()> {
    let sim = ["run", "--quiet", "--profile", "sim", "--package", "trainyard-sim", "--"];
    step("simulator: scenarios", cargo(&sim).arg("--scenarios"))?;
    step("simulator: histories", cargo(&sim).args(["--histories", "100000"]))
}

/// The Pythons of this machine: the first one in PATH, and Debian's, to which Debian's torch belongs.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

/// The first of them that can run this.
fn python(program: &str) -> Option<&'static str> {
    PYTHONS.into_iter().find(|python| {
        let asked = Command::new(python).args(["-c", program]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    })
}

/// The examples have tests of their own.
fn examples() -> anyhow::Result<()> {
    let tests =
        [("digits/test_train.py", "pass", "python3"), ("pytorch-ddp/test_ddp.py", NEEDS_TORCH, "torch")];
    for (test, needs, missing) in tests {
        match python(needs) {
            Some(python) => {
                let file = manifests::root().join("examples").join(test);
                step(&format!("examples/{test}"), Command::new(python).arg(file))?;
            }
            None => println!("== skipped: examples/{test} (there is no {missing} here)"),
        }
    }
    Ok(())
}

fn step(what: &str, command: &mut Command) -> anyhow::Result<()> {
    println!("== {what}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("{what}: cannot be started"))?;
    if !status.success() {
        bail!("{what}: failed ({status})");
    }
    println!("== {what}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(manifests::root());
    command
}
