//! `cargo xtask test`: the fast checks first, so that a mistake is told early.

use std::process::Command;
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

/// The example that needs nothing but Python has tests of its own.
fn examples() -> anyhow::Result<()> {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        println!("== skipped: the tests of examples/digits (there is no python3)");
        return Ok(());
    }
    let test = manifests::root().join("examples/digits/test_train.py");
    step("examples", Command::new("python3").arg(test))
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
