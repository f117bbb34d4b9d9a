//! `trainyard`: one binary for everything. Each subcommand has a file of its own.

mod agent;
mod crds;
mod heap;
mod local;
mod logging;
mod manifest;
mod mistakes;
mod operator;
mod restarts;
mod validate;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs machine-learning training jobs, on this machine or on Kubernetes.
///
/// A user writes one TrainingJob; Trainyard starts the workers, wires them together, restarts them when something
/// breaks, and cleans up.
#[derive(Parser)]
#[command(name = "trainyard", version, max_term_width = 110, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  trainyard run job.yaml                   run a job on this machine, to the end
  trainyard up                             a control plane on this machine, for kubectl
  trainyard crds | kubectl apply -f -      install the TrainingJob resource
  trainyard operator                       run the operator against the current kubeconfig
  trainyard validate job.yaml              check a manifest without a cluster";

#[derive(Subcommand)]
enum Command {
    Run(Box<local::run::Options>),
    Up(Box<local::up::Options>),
    Down(local::down::Options),
    Operator(Box<operator::Options>),
    Agent(Box<agent::Options>),
    Crds(crds::Options),
    Validate(validate::Options),
}

fn main() -> ExitCode {
    // Containers are started by this binary, as a process of its own that must not have a second thread.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "shim") {
        return trainyard_node::shim::main(words.collect());
    }
    let result = match Arguments::parse().command {
        Command::Run(options) => local::run::run(*options),
        Command::Up(options) => local::up::run(*options),
        Command::Down(options) => local::down::run(&options),
        Command::Operator(options) => operator::run(*options),
        Command::Agent(options) => agent::run(*options),
        Command::Crds(options) => crds::run(&options),
        Command::Validate(options) => validate::run(&options),
    };
    result.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
        ExitCode::from(2)
    })
}
