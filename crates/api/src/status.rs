//! The status of a `TrainingJob`: what is observed, and the record of what was decided.
//!
//! The part that cannot be computed again from the cluster (attempts, counts, deadlines) is the operator's
//! memory: it is written here before anything is done about it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoint::CheckpointStatus;
use crate::entries::Entries;
use crate::policy::{CleanPodPolicy, RestartPolicy};
use crate::spec::{Backend, Framework, TrainingJob};

/// Types of conditions.
pub mod condition {
    pub const RESOURCES_CREATED: &str = "ResourcesCreated";
    pub const RUNNING: &str = "Running";
    pub const RESTARTING: &str = "Restarting";
    pub const SUSPENDED: &str = "Suspended";
    pub const STALLED: &str = "Stalled";
    /// True: something is wrong with the storage of the checkpoints. Training goes on.
    pub const CHECKPOINT_PROBLEM: &str = "CheckpointProblem";
    pub const COMPLETED: &str = "Completed";
    pub const FAILED: &str = "Failed";
}

/// What Trainyard sees of the job, and what it has decided about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrainingJobStatus {
    /// Where the job is in its life. Pending: accepted, waiting for a start. Initializing: pods exist or are being
    /// created, not all of them run yet. Running: every required pod runs. Restarting: an attempt ended early, the
    /// next one is being prepared. Suspended: no pods, at the user's wish. Completed and Failed are final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The state in the four words of v1alpha1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// One sentence about what happens now, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The values in effect: what the spec says, completed by the defaults of its form and of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<Box<Effective>>,
    /// When the pods of the first attempt were started. A restart does not move it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Since when activeDeadlineSeconds counts: the start, or the last time the job was resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_since: Option<Time>,
    /// When the job completed or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// How long the job has taken since its start, such as "2h 15m".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// How much of the training is done, such as "45%".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The epoch that is being trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_epoch: Option<i64>,
    /// When the training will be done if it goes on as it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_completion: Option<Time>,
    /// What the program reported last: loss, accuracy and whatever else it measures.
    #[serde(default, skip_serializing_if = "Entries::is_empty")]
    pub metrics: Entries<f64>,
    /// Epochs to train: what the program says, or progress.totalEpochs, or hyperparameters.epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_epochs: Option<i64>,
    /// How many workers there are, by what they do. Pods of ranked roles count as workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkerCounts>,
    /// Worker pods that exist, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Label selector of the worker pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Every pod of the current attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_statuses: Vec<WorkerStatus>,
    /// What the running pods hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<AllocatedResources>,
    /// The newest complete checkpoint: where the next attempt goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointStatus>,
    /// Restarts so far, by cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
    /// Nodes on which this job failed again and again: its next pods go elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoided_nodes: Vec<String>,
    /// What the job's PodDisruptionBudget allows, if it has one or is to get one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_budget: Option<Box<DisruptionBudget>>,
    /// When the next attempt may start, while the job waits after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_until: Option<Time>,
    /// The last ten attempts, the newest last. An attempt without an end is the current one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// The job's conditions: ResourcesCreated, Running, Restarting, Suspended, Stalled, CheckpointProblem, Completed, Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What a job's PodDisruptionBudget allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionBudget {
    /// Pods that must stay: an eviction that would leave fewer is refused. Not there before the budget is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i32>,
    /// Since when a checkpoint is being written, for a job that holds back evictions meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writing_since: Option<Time>,
}

/// Where the job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum State {
    // Accepted, waiting for a start.
    Pending,
    // The pods exist or are being created; not all of them run yet.
    Initializing,
    // Every required worker runs.
    Running,
    // An attempt ended early; the next one is being prepared.
    Restarting,
    // Suspended by the user: no pods.
    Suspended,
    // The training succeeded.
    Completed,
    // The job ended without success.
    Failed,
}

impl State {
    pub const ALL: [State; 7] = [
        State::Pending,
        State::Initializing,
        State::Running,
        State::Restarting,
        State::Suspended,
        State::Completed,
        State::Failed,
    ];

    pub fn is_terminal(self) -> bool {
        matches!(self, State::Completed | State::Failed)
    }

    pub fn phase(self) -> Phase {
        match self {
            State::Pending | State::Initializing | State::Restarting | State::Suspended => Phase::Pending,
            State::Running => Phase::Running,
            State::Completed => Phase::Succeeded,
            State::Failed => Phase::Failed,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            State::Pending => "Pending",
            State::Initializing => "Initializing",
            State::Running => "Running",
            State::Restarting => "Restarting",
            State::Suspended => "Suspended",
            State::Completed => "Completed",
            State::Failed => "Failed",
        }
    }
}

/// The state in the four words of v1alpha1; also the phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// The values in effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Effective {
    /// Framework whose launch contract the workers get.
    pub framework: Framework,
    /// Image of the workers.
    pub image: String,
    /// Worker pods.
    pub num_workers: i32,
    /// Ranked pods, which is WORLD_SIZE.
    pub world_size: i32,
    /// GPUs of each worker.
    pub gpus_per_worker: i32,
    /// Processes of each worker.
    pub procs_per_worker: i32,
    /// Collective backend.
    pub backend: Backend,
    /// Port of rank 0.
    pub master_port: i32,
    /// Restarts allowed after failures.
    pub backoff_limit: i32,
    /// What happens when a worker fails.
    pub restart_policy: RestartPolicy,
    /// Which pods are removed at the end.
    pub clean_pod_policy: CleanPodPolicy,
    /// Checkpoints, when they are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointDefaults>,
}

/// Checkpoint settings in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointDefaults {
    /// Directory in the containers.
    pub directory: String,
    /// Epochs between checkpoints.
    pub frequency: i32,
    /// The claim behind the directory, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// The job's place in a bucket, if its checkpoints are kept in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Workers by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerCounts {
    /// How many there should be.
    pub desired: i32,
    /// Running.
    pub active: i32,
    /// Ended with success.
    pub succeeded: i32,
    /// Ended with an error.
    pub failed: i32,
    /// Not running yet, or not created yet.
    pub pending: i32,
}

impl WorkerCounts {
    /// One more in this phase.
    pub fn add(&mut self, phase: Phase) {
        *match phase {
            Phase::Pending => &mut self.pending,
            Phase::Running => &mut self.active,
            Phase::Succeeded => &mut self.succeeded,
            Phase::Failed => &mut self.failed,
        } += 1;
    }
}

/// One pod of the current attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerStatus {
    /// Index within its role.
    pub worker_id: i32,
    /// Name of the pod.
    pub pod_name: String,
    /// Its role: workers, or one of spec.roles.
    pub role: String,
    /// Node on which it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Phase of the pod.
    pub phase: Phase,
    /// The same as phase.
    pub status: Phase,
    /// How often Trainyard has restarted this worker.
    pub restart_count: i32,
    /// With restartScope Worker: the pod (its uid) whose failure was counted last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_uid: Option<String>,
    /// It failed, and a rule of failurePolicy says that this does not matter: it counts as done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// Why it does not run, in the scheduler's or kubelet's words, or how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What the running pods hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocatedResources {
    /// GPUs of the pods that are on a node and have not ended.
    #[serde(rename = "allocatedGPUs")]
    pub allocated_gpus: i32,
    /// Nodes on which these pods are.
    pub allocated_nodes: i32,
}

/// Restarts so far, by cause. Only those of the application use up backoffLimit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restarts {
    /// The program failed.
    pub application: i32,
    /// Pods were deleted, evicted or lost.
    pub disruption: i32,
    /// No progress was seen for too long.
    #[serde(default)]
    pub stall: i32,
    /// The number of pods changed.
    pub rescale: i32,
    /// What the pods are made of changed.
    pub update: i32,
    /// All of them together.
    #[serde(default)]
    pub total: i32,
}

impl Restarts {
    pub fn total(&self) -> i32 {
        [self.disruption, self.stall, self.rescale, self.update]
            .into_iter()
            .fold(self.application, i32::saturating_add)
    }
}

/// Why an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Cause {
    // It did what it should.
    Succeeded,
    // The program exited with an error. Counts against backoffLimit.
    Application,
    // A container used more memory than its limit. Counts against backoffLimit.
    OutOfMemory,
    // A pod was deleted, evicted, preempted or lost with its node.
    Disruption,
    // No progress was seen for stallTimeoutSeconds.
    Stalled,
    // The storage has another checkpoint than the attempt was told of.
    Resume,
    // The number of pods changed.
    Rescale,
    // What the pods are made of changed.
    Update,
    // The user suspended the job.
    Suspend,
    // activeDeadlineSeconds passed.
    Deadline,
    // startupTimeoutSeconds passed.
    StartupTimeout,
    // The spec became invalid.
    InvalidSpec,
    // Not known: the record of it was removed from the status.
    Unknown,
}

impl Cause {
    /// Why an attempt fails although nobody asked for its end.
    pub const FAILURES: [Self; 4] = [Self::Application, Self::OutOfMemory, Self::Disruption, Self::Stalled];

    /// Whether it uses up `backoffLimit`.
    pub fn counts(self) -> bool {
        matches!(self, Cause::Application | Cause::OutOfMemory)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Succeeded => "Succeeded",
            Cause::Application => "Application",
            Cause::OutOfMemory => "OutOfMemory",
            Cause::Disruption => "Disruption",
            Cause::Stalled => "Stalled",
            Cause::Resume => "Resume",
            Cause::Rescale => "Rescale",
            Cause::Update => "Update",
            Cause::Suspend => "Suspend",
            Cause::Deadline => "Deadline",
            Cause::StartupTimeout => "StartupTimeout",
            Cause::InvalidSpec => "InvalidSpec",
            Cause::Unknown => "Unknown",
        }
    }
}

/// One try at running all pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// 1 for the first; its pods carry it as a label.
    pub number: i32,
    /// How many pods of each role it has: `workers=4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<String>,
    /// What its pods are made of, as a hash: another one in the next attempt means that the spec was changed in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// When its pods were started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When all of its pods existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_time: Option<Time>,
    /// When all of its pods ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_time: Option<Time>,
    /// When it ended. Without it, this is the current attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The pod that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// Exit code of that pod's training container; for torchrun, of the child that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The last line of that pod's log that tells of an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The checkpoint that it was told to go on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<Box<CheckpointStatus>>,
    /// What looked like a checkpoint, but was not complete, and was moved to .trainyard/quarantine beside the checkpoints before
    /// it began; with the reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_aside: Option<String>,
    /// The newest complete checkpoint when it ended, if it got past the one that it began with; of an attempt that began afresh, past
    /// those of earlier ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Box<CheckpointStatus>>,
    /// How long its parts took, in seconds.
    #[serde(default, skip_serializing_if = "AttemptSeconds::is_empty")]
    pub seconds: AttemptSeconds,
    /// Node on which that pod was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// What happened, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How long the parts of an attempt took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptSeconds {
    /// From the creation of its pods until all of them were on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<i64>,
    /// From then until all of them ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<i64>,
    /// From then until the first progress was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_step: Option<i64>,
    /// From its failure until that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<i64>,
    /// From its end until its pods were gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torn_down: Option<i64>,
}

impl AttemptSeconds {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Attempt {
    pub fn begun(number: i32, world: String, inputs: Option<String>, at: Time) -> Self {
        Self {
            number,
            world: Some(world),
            inputs,
            start_time: Some(at),
            created_time: None,
            running_time: None,
            end_time: None,
            cause: None,
            pod_name: None,
            exit_code: None,
            error: None,
            resumed_from: None,
            moved_aside: None,
            reached: None,
            seconds: AttemptSeconds::default(),
            node_name: None,
            message: None,
        }
    }

    pub fn is_open(&self) -> bool {
        self.end_time.is_none()
    }

    /// It got past the checkpoint that it began with.
    pub fn made_progress(&self) -> bool {
        self.reached.is_some()
    }
}

impl TrainingJobStatus {
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == kind)
    }

    pub fn is_terminal(&self) -> bool {
        self.state.is_some_and(State::is_terminal)
    }
}

impl TrainingJob {
    /// It has ended, or is about to be gone: nothing more is expected of it.
    pub fn is_over(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
            || self.status.as_ref().is_some_and(TrainingJobStatus::is_terminal)
    }
}
