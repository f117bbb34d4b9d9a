//! What all requests share: the state behind its lock, and the signals that wake watchers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::watch;

use crate::kubelet::Kubelet;
use crate::state::State;

pub(crate) struct Shared {
    state: Mutex<State>,
    signals: Mutex<HashMap<Arc<str>, watch::Sender<u64>>>,
    kubelet: RwLock<Option<Arc<dyn Kubelet>>>,
    pub(crate) token: Option<String>,
    /// Published schemas, as long as no kind changes.
    pub(crate) documents: Mutex<(u64, HashMap<String, bytes::Bytes>)>,
}

impl Shared {
    pub(crate) fn new(state: State, token: Option<String>) -> Self {
        Self {
            state: Mutex::new(state),
            signals: Mutex::default(),
            kubelet: RwLock::default(),
            token,
            documents: Mutex::default(),
        }
    }

    /// The state, to read.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a bug of ours; what is stored is whole at any moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then tells those who watch what was touched.
    pub(crate) fn change<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let (result, touched, revision) = {
            let mut state = self.lock();
            let result = work(&mut state);
            (result, std::mem::take(&mut state.touched), state.store.revision())
        };
        if !touched.is_empty() {
            let signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
            for resource in touched {
                if let Some(signal) = signals.get(&resource) {
                    signal.send_replace(revision);
                }
            }
        }
        result
    }

    /// Is changed whenever something of this kind is.
    pub(crate) fn signal(&self, resource: &Arc<str>) -> watch::Receiver<u64> {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        signals.entry(resource.clone()).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    pub(crate) fn set_kubelet(&self, kubelet: Arc<dyn Kubelet>) {
        *self.kubelet.write().unwrap_or_else(PoisonError::into_inner) = Some(kubelet);
    }

    pub(crate) fn kubelet(&self) -> Option<Arc<dyn Kubelet>> {
        self.kubelet.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
