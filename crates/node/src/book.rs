//! The book of the desk: the pods that this node knows, and who of them waits or runs.
//!
//! Thousands of pods that have ended may still be in the API; looking for those that wait must not mean looking at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use crate::fit::{self, Amounts, Wave};
use crate::names::Host;
use crate::pod::News;

pub(crate) struct Entry {
    pub(crate) pod: Arc<Pod>,
    /// The order in which pods came.
    pub(crate) number: u64,
    pub(crate) state: State,
}

pub(crate) enum State {
    /// It waits for room; what its condition says.
    Waits {
        said: Option<String>,
    },
    Runs(Held),
    /// It has ended.
    Done,
}

/// What a running pod has.
pub(crate) struct Held {
    pub(crate) task: mpsc::UnboundedSender<News>,
    pub(crate) requests: Amounts,
    pub(crate) host: Host,
    pub(crate) address: u16,
    pub(crate) gpus: Vec<u32>,
    /// Who holds its ports: its gang, or itself.
    pub(crate) holder: String,
}

#[derive(Default)]
pub(crate) struct Book {
    entries: BTreeMap<String, Entry>,
    waiting: BTreeSet<String>,
    running: BTreeSet<String>,
    /// How many pods of a wave there are, whatever their state.
    waves: BTreeMap<Wave, usize>,
}

impl Book {
    pub(crate) fn get(&self, uid: &str) -> Option<&Entry> {
        self.entries.get(uid)
    }

    pub(crate) fn uids(&self) -> BTreeSet<String> {
        self.entries.keys().cloned().collect()
    }

    pub(crate) fn insert(&mut self, uid: String, entry: Entry) {
        if let Some(wave) = fit::wave(&entry.pod) {
            *self.waves.entry(wave).or_default() += 1;
        }
        self.index(&uid, &entry.state);
        self.entries.insert(uid, entry);
    }

    pub(crate) fn remove(&mut self, uid: &str) {
        let Some(entry) = self.entries.remove(uid) else { return };
        self.waiting.remove(uid);
        self.running.remove(uid);
        if let Some(wave) = fit::wave(&entry.pod)
            && let Some(count) = self.waves.get_mut(&wave)
        {
            *count -= 1;
            if *count == 0 {
                self.waves.remove(&wave);
            }
        }
    }

    /// A newer version of the object. What says to which wave it belongs does not change.
    pub(crate) fn set_pod(&mut self, uid: &str, pod: Arc<Pod>) {
        if let Some(entry) = self.entries.get_mut(uid)
            && fit::wave(&entry.pod) == fit::wave(&pod)
        {
            entry.pod = pod;
        }
    }

    /// The new state of a pod; the old one comes back.
    pub(crate) fn set_state(&mut self, uid: &str, state: State) -> Option<State> {
        if self.entries.contains_key(uid) {
            self.index(uid, &state);
        }
        let entry = self.entries.get_mut(uid)?;
        Some(std::mem::replace(&mut entry.state, state))
    }

    fn index(&mut self, uid: &str, state: &State) {
        self.waiting.remove(uid);
        self.running.remove(uid);
        match state {
            State::Waits { .. } => self.waiting.insert(uid.to_owned()),
            State::Runs(_) => self.running.insert(uid.to_owned()),
            State::Done => false,
        };
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.waiting.iter().filter_map(|uid| self.entries.get(uid))
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Held> {
        self.running_pods().map(|(_, held)| held)
    }

    pub(crate) fn running_pods(&self) -> impl Iterator<Item = (&Pod, &Held)> {
        self.running.iter().filter_map(|uid| {
            let entry = self.entries.get(uid)?;
            match &entry.state {
                State::Runs(held) => Some((&*entry.pod, held)),
                State::Waits { .. } | State::Done => None,
            }
        })
    }

    pub(crate) fn waves(&self) -> &BTreeMap<Wave, usize> {
        &self.waves
    }
}
