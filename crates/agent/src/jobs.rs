//! Which job an agent belongs to, as far as it is told.

use serde::{Deserialize, Serialize};

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// From the name of the attempt; empty if there is none.
    uid: String,
    /// The name of its leading pod, which begins with that of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
}

impl Job {
    pub(crate) fn of_attempt(attempt: Option<&str>) -> Self {
        let attempt = attempt.unwrap_or_default();
        Self { uid: attempt.rsplit_once('/').map_or(attempt, |(uid, _)| uid).to_owned(), pod: None }
    }

    pub(crate) fn in_pod(self, name: String) -> Self {
        Self { pod: Some(name).filter(|name| !name.is_empty()), ..self }
    }

    /// A job that was deleted and made again under the same name is the same: it goes on from its checkpoints.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid || (self.pod.is_some() && self.pod == other.pod)
    }
}
