//! Launch contracts: the variables from which each framework's launcher learns its world. One file each.

mod custom;
mod pytorch;

use k8s_openapi::api::core::v1::EnvVar;
use trainyard_api::Framework;

use crate::build::Place;

/// What a framework wants to be told.
pub(crate) trait Contract {
    /// Ranks and addresses, in the framework's own names: the user cannot change these.
    fn rendezvous(&self, place: &Place<'_>) -> Vec<EnvVar>;
    /// The rest: the user's own variables win over them.
    fn launch(&self, place: &Place<'_>) -> Vec<EnvVar>;
    /// The command that runs a recipe's /app/train.py in every pod.
    fn recipe_command(&self) -> Vec<String>;
}

pub(crate) fn contract(framework: Framework) -> &'static dyn Contract {
    match framework {
        Framework::Pytorch => &pytorch::Pytorch,
        Framework::Custom => &custom::Custom,
    }
}

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|word| (*word).to_owned()).collect()
}
