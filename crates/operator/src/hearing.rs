//! What is heard of a job beside what the watches tell: its program, its agent, the last lines of pods that failed.
//!
//! The driver hears it from logs; whoever drives the core by hand says it here.

use std::time::Instant;

use trainyard_plan::{AgentView, Tail};
use trainyard_progress::Progress;

use crate::cache::JobKey;
use crate::core::Core;
use crate::memory::Ear;

impl Core {
    /// How far the program in this pod of a job says it is; nothing, as long as a new one has not said anything.
    pub fn hear_progress(&mut self, key: &JobKey, pod: &str, progress: Option<Progress>, at: Instant) {
        let memory = self.remember(key);
        if memory.ear.as_ref().is_none_or(|ear| ear.pod != pod) {
            memory.ear = Some(Box::new(Ear { pod: pod.to_owned(), began: at, since: Some(at), again: true }));
        }
        memory.heard = progress.is_some().then_some(at);
        memory.progress = progress.map(Box::new);
    }

    /// What the agent of a job says about its checkpoints.
    pub fn hear_agent(&mut self, key: &JobKey, said: AgentView) {
        self.remember(key).report = Some(Box::new(said));
    }

    /// The end of a failed pod's log.
    pub fn hear_tail(&mut self, key: &JobKey, tail: Tail) {
        self.remember(key).tails.push(tail);
    }
}
