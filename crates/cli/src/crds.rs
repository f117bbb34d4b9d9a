//! `trainyard crds`: the CustomResourceDefinition as YAML.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use trainyard_api::crd;

/// Print the CustomResourceDefinition of TrainingJob as YAML.
///
/// It is generated from the types that the operator itself uses. Apply it before the operator starts:
///
///   trainyard crds | kubectl apply -f -
#[derive(clap::Args)]
pub(crate) struct Options {}

pub(crate) fn run(_: &Options) -> anyhow::Result<ExitCode> {
    let yaml = serde_saphyr::to_string(&crd::training_job()).context("the CRD cannot be written as YAML")?;
    let header = "# Generated from crates/api by `make manifests`; do not edit.\n";
    let mut out = std::io::stdout().lock();
    match out
        .write_all(header.as_bytes())
        .and_then(|()| out.write_all(yaml.as_bytes()))
        .and_then(|()| out.flush())
    {
        // `trainyard crds | head` is no error.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
