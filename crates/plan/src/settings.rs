//! What the operator's administrator decides for all jobs.

use std::collections::BTreeMap;

use jiff::SignedDuration;

/// Settings that planning depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Image of jobs that name a model and a dataset instead; `{model}` stands for the model.
    pub default_image: String,
    /// Requests of such jobs, where they give none.
    pub default_requests: BTreeMap<String, String>,
    /// Limits of such jobs, where they give none.
    pub default_limits: BTreeMap<String, String>,
    /// The resource that `gpusPerWorker` asks for.
    pub gpu_resource: String,
    /// Node selector of pods with GPUs.
    pub gpu_node_selector: BTreeMap<String, String>,
    /// Delay before the first restart after a failure; it doubles with each further one.
    pub backoff_base: SignedDuration,
    /// The longest such delay.
    pub backoff_max: SignedDuration,
    /// How often a status may be written when nothing but details changed.
    pub status_interval: SignedDuration,
    /// Seconds that the survivors of a broken collective get to end: they cannot save anything useful.
    pub survivor_grace: u32,
    /// How long a worker that only complains of a lost peer waits for the one that really failed to be seen.
    pub root_patience: SignedDuration,
    /// How long a pod on a dead node may stay after its time before it is removed by force.
    pub force_after: SignedDuration,
    /// Seconds that a pod stays on a node that does not answer, before the cluster gives it up.
    pub unreachable_seconds: i64,
    /// So many failures of a job on one node make it avoid that node; 0: never.
    pub node_failures: u32,
    /// The same failure so many times without progress in between ends the job; 0: never.
    pub same_failures: u32,
    /// Whether the programs of an attempt that stalled are asked where they hang before they are removed.
    pub ask_for_stacks: bool,
    /// A pod of which its node has made nothing for so long is nudged; zero: never.
    pub nudge_after: SignedDuration,
    /// The image of the agent that watches checkpoints; without one, nobody does.
    pub agent_image: Option<String>,
    /// A checkpoint that takes longer than this to be written no longer holds back evictions.
    pub hold_evictions: SignedDuration,
    /// How long the deletion of a job waits for its pods to be gone.
    pub deletion_patience: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        let amounts = |cpu: &str, memory: &str| {
            BTreeMap::from([("cpu".to_owned(), cpu.to_owned()), ("memory".to_owned(), memory.to_owned())])
        };
        Self {
            default_image: "training-image:{model}".to_owned(),
            default_requests: amounts("4", "16Gi"),
            default_limits: amounts("8", "32Gi"),
            gpu_resource: "nvidia.com/gpu".to_owned(),
            gpu_node_selector: BTreeMap::new(),
            backoff_base: SignedDuration::from_secs(10),
            backoff_max: SignedDuration::from_mins(6),
            status_interval: SignedDuration::from_secs(5),
            survivor_grace: 2,
            root_patience: SignedDuration::from_secs(3),
            force_after: SignedDuration::from_secs(10),
            unreachable_seconds: 30,
            node_failures: 2,
            same_failures: 3,
            ask_for_stacks: true,
            nudge_after: SignedDuration::from_secs(3),
            agent_image: None,
            hold_evictions: SignedDuration::from_mins(15),
            deletion_patience: SignedDuration::from_mins(5),
        }
    }
}
