//! An object that is not a job: a pod, a service, a config map or a claim.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trainyard_api::names;
use trainyard_plan::NewObject;

use super::{Actor, Body};

/// Anything but a job.
#[derive(Clone, Debug)]
pub struct Child {
    pub uid: String,
    pub version: u64,
    pub value: Body,
    /// An operator made it.
    pub ours: bool,
    pub maker: Actor,
    /// The version at which it was made.
    pub born: u64,
    /// What it was made of, if that is kept.
    pub made: Option<Arc<NewObject>>,
    /// Where in the journal its watch was last told of it.
    pub(crate) told: usize,
    /// Where in the journal its watch was first told of it.
    pub(crate) first_told: usize,
    /// The image of its program.
    pub image: Option<String>,
    /// The checkpoint that its program was told to go on from.
    pub resume: Option<String>,
    /// Its place in the world of ranks.
    pub rank: Option<String>,
    /// The nodes that it is to be kept away from.
    pub avoids: Vec<String>,
}

impl Child {
    fn metadata(&self) -> &ObjectMeta {
        self.value.metadata()
    }

    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// Its maker did not wait for it any more.
    pub fn is_late(&self) -> bool {
        matches!(self.maker, Actor::Late(_))
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    pub fn phase(&self) -> &str {
        self.value["status"]["phase"].as_str().unwrap_or_default()
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    pub fn node(&self) -> Option<&str> {
        self.value["spec"].get("nodeName")?.as_str()
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.metadata().labels.as_ref()?.get(name).map(String::as_str)
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata().annotations.as_ref()?.get(name).map(String::as_str)
    }

    pub(super) fn owners(&self) -> &[OwnerReference] {
        self.metadata().owner_references.as_deref().unwrap_or_default()
    }

    /// The uid of the controlling owner.
    pub fn controller(&self) -> Option<&str> {
        let mut owners = self.owners().iter();
        owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
    }

    pub fn attempt(&self) -> Option<i32> {
        self.label(names::ATTEMPT_LABEL)?.parse().ok()
    }

    pub(crate) fn is_selected(&self) -> bool {
        self.label(names::MANAGED_BY_LABEL) == Some(names::MANAGED_BY)
    }

    pub(super) fn is_owned_by(&self, uid: &str) -> bool {
        self.owners().iter().any(|owner| owner.uid == uid)
    }
}
