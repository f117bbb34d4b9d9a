//! Room in quotas: which jobs wait for it, and who may try again when a pod beside them goes.

use std::collections::BTreeSet;

use trainyard_plan::ObstacleKind;

use crate::cache::JobKey;
use crate::core::Core;

/// The jobs that a quota holds back. Sorted, so that they get their turns in the same order every time.
#[derive(Debug, Default)]
pub(crate) struct Room {
    cramped: BTreeSet<JobKey>,
}

impl Room {
    /// This job was refused for a quota.
    pub(crate) fn is_missed_by(&mut self, key: &JobKey) {
        self.cramped.insert(key.clone());
    }

    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.cramped.remove(key);
    }
}

impl Core {
    /// A pod of this job ended or went: gives the jobs beside it that a quota holds back and may try again now. What a job that is
    /// held back itself gives back is no room: it has only just tried.
    pub(crate) fn room_beside(&mut self, key: &JobKey) -> Vec<JobKey> {
        let cramped = &mut self.room.cramped;
        if cramped.is_empty() || cramped.contains(key) {
            return Vec::new();
        }
        let freed: Vec<JobKey> = cramped.extract_if(.., |other| other.namespace == key.namespace).collect();
        for key in &freed {
            if let Some(memory) = self.memory(key) {
                memory.obstacles.retain(|(obstacle, _)| obstacle.kind != ObstacleKind::Quota);
            }
        }
        freed
    }
}
