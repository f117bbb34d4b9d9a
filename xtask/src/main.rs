//! Chores of this repository: `cargo xtask --help`.

mod bench;
mod cluster;
mod demo;
mod licences;
mod local;
mod manifests;
mod recovery;
mod simulator;
mod test;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", about = "Chores of this repository")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Run a job on a Kubernetes of its own, and show what happens
    Demo(demo::Args),
    /// Run the tests: hermetic ones by default, with --cluster also those on a real Kubernetes
    Test(test::Args),
    /// Write the generated manifests (the CRD) into the tree
    Manifests(manifests::Args),
    /// Measure speed and memory against a real API server, next to a bare client
    Bench(bench::Args),
    /// A Kubernetes cluster on this machine, to play with
    Cluster(cluster::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::Demo(args) => demo::run(&args),
        Chore::Test(args) => test::run(&args),
        Chore::Manifests(args) => manifests::run(&args),
        Chore::Bench(args) => bench::run(&args),
        Chore::Cluster(args) => cluster::run(&args),
    }
}
