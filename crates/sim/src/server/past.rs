//! What was there at an earlier version. Whoever asks for "this version or a newer one" may be told of any state from that one on; the
//! oldest of them is what a watch cache that lags behind tells.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trainyard_operator::Refusal;
use trainyard_plan::TargetKind;

use super::Server;

/// The metadata of an object from one version until, but not at, another.
pub(super) struct Past {
    pub(super) kind: TargetKind,
    pub(super) name: String,
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) metadata: Arc<ObjectMeta>,
}

impl Server {
    /// The metadata of an object: as it is now, or, if old reads are wanted, as it was at that version.
    pub fn metadata(&self, kind: TargetKind, name: &str, at: Option<u64>) -> Result<ObjectMeta, Refusal> {
        self.found(kind, name, at).map(|metadata| (**metadata).clone()).ok_or(Refusal::NotFound)
    }

    /// The metadata of all pods, likewise. None, if there are more than so many.
    pub fn metadata_of_pods(&self, at: Option<u64>, most: usize) -> Result<Option<Vec<ObjectMeta>>, Refusal> {
        let kind = TargetKind::Pod;
        let past = self.past.iter().filter(|past| past.kind == kind).map(|past| past.name.as_str());
        let mut names: Vec<&str> = self.all(kind).keys().map(String::as_str).chain(past).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| self.found(kind, name, at).is_some());
        if names.len() > most {
            return Ok(None);
        }
        names.into_iter().map(|name| self.metadata(kind, name, at)).collect::<Result<_, _>>().map(Some)
    }

    fn found(&self, kind: TargetKind, name: &str, at: Option<u64>) -> Option<&Arc<ObjectMeta>> {
        let child = self.all(kind).get(name);
        let at = at.filter(|_| self.reads_old).unwrap_or(u64::MAX);
        if let Some(child) = child.filter(|child| child.version <= at) {
            return Some(child.value.metadata());
        }
        let is_it =
            |past: &&Past| past.kind == kind && past.from <= at && at < past.until && past.name == name;
        self.past.iter().find(is_it).map(|past| &past.metadata)
    }
}
