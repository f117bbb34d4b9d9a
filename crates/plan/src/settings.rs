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
            deletion_patience: SignedDuration::from_mins(5),
        }
    }
}
