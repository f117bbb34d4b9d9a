//! `trainyard`: one binary for everything. Each subcommand has a file of its own.

mod crds;
mod logging;
mod manifest;
mod operator;
mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs machine-learning training jobs on Kubernetes.
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
  trainyard crds | kubectl apply -f -      install the TrainingJob resource
  trainyard operator                       run the operator against the current kubeconfig
  trainyard validate job.yaml              check a manifest without a cluster";

#[derive(Subcommand)]
enum Command {
    Operator(Box<operator::Options>),
    Crds(crds::Options),
    Validate(validate::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Operator(options) => operator::run(*options),
        Command::Crds(options) => crds::run(&options),
        Command::Validate(options) => validate::run(&options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
