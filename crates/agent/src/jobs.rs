//! Which job an agent belongs to, as far as it is told, and whether another one uses the same place.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::store::{Store, StoreError};

/// Which jobs have agents at work here, and when they were heard of last.
const RUNNING: &str = ".trainyard/running";

/// How often an agent lets itself be heard.
pub(crate) const BEAT: Duration = Duration::from_mins(1);

/// One that has not been heard of for so long is gone. Clocks differ.
const SILENCE: Duration = Duration::from_mins(5);

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// What is before the slash in the name of the attempt; empty if nothing is.
    uid: String,
    /// The name of its leading pod, which begins with that of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
}

impl Job {
    pub(crate) fn of_attempt(attempt: Option<&str>) -> Self {
        let uid = attempt.and_then(|attempt| attempt.rsplit_once('/')).map(|(uid, _)| uid);
        Self { uid: uid.unwrap_or_default().to_owned(), pod: None }
    }

    pub(crate) fn in_pod(self, name: String) -> Self {
        Self { pod: Some(name).filter(|name| !name.is_empty()), ..self }
    }

    /// Nobody has told which job this is.
    pub(crate) fn is_unknown(&self) -> bool {
        self.uid.is_empty()
    }

    fn label(&self) -> &str {
        self.pod.as_deref().unwrap_or(&self.uid)
    }

    /// A job that was deleted and made again under the same name is the same: it goes on from its checkpoints.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid || (self.pod.is_some() && self.pod == other.pod)
    }
}

#[derive(Serialize, Deserialize)]
struct Beat {
    job: Job,
    time: Timestamp,
}

/// Names another job that is at work here, by its leading pod. Notes that this one is, too, when that is `due`, or when another that
/// wrote at the same time has overwritten it.
pub(crate) fn hear(
    store: &dyn Store,
    job: &Job,
    now: Timestamp,
    due: bool,
) -> Result<Option<String>, StoreError> {
    let (own, mut others): (Vec<Beat>, Vec<Beat>) =
        all(store)?.into_iter().partition(|beat| beat.job.is_same(job));
    others.retain(|beat| beat.time.duration_since(now).unsigned_abs() < SILENCE);
    let other = others.first().map(|beat| beat.job.label().to_owned());
    if due || own.is_empty() {
        others.push(Beat { job: job.clone(), time: now });
        // Where nothing can be written, that is told elsewhere.
        let _ = note(store, &others);
    }
    Ok(other)
}

/// This job is at work here no more.
pub(crate) fn end(store: &dyn Store, job: &Job) -> Result<(), StoreError> {
    let mut beats = all(store)?;
    beats.retain(|beat| !beat.job.is_same(job));
    note(store, &beats)
}

fn all(store: &dyn Store) -> Result<Vec<Beat>, StoreError> {
    let content = match store.read(RUNNING, 0..1 << 20) {
        Ok(content) => content,
        Err(StoreError::Vanished(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(serde_json::from_slice(&content).unwrap_or_default())
}

fn note(store: &dyn Store, beats: &[Beat]) -> Result<(), StoreError> {
    let content = serde_json::to_vec(beats)
        .map_err(|error| StoreError::Other { place: RUNNING.to_owned(), reason: error.to_string() })?;
    store.write(RUNNING, &content)
}
