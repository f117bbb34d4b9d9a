//! No framework: the ranks and addresses that every pod gets, and nothing else.

use k8s_openapi::api::core::v1::EnvVar;

use super::{Contract, words};
use crate::build::Place;

pub(super) struct Custom;

impl Contract for Custom {
    fn rendezvous(&self, _: &Place<'_>) -> Vec<EnvVar> {
        Vec::new()
    }

    fn launch(&self, _: &Place<'_>) -> Vec<EnvVar> {
        Vec::new()
    }

    fn recipe_command(&self) -> Vec<String> {
        words(&["python"])
    }
}
