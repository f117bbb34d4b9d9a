//! Chores of this repository: `cargo xtask --help`.

mod cluster;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", about = "Chores of this repository")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// A Kubernetes cluster on this machine, to play with
    Cluster(cluster::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::Cluster(args) => cluster::run(&args),
    }
}
