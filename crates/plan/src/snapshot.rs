//! Everything that belongs to one job at one moment, as plain data.
//!
//! Views hold only what planning reads: of four thousand pods in a cache, every field counts.

use std::sync::Arc;

use jiff::Timestamp;
use trainyard_api::{AgentReport, TrainingJob};
use trainyard_progress::Progress;

/// One job and all that carries its label, sorted by name.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub job: Arc<TrainingJob>,
    pub pods: Vec<PodView>,
    pub services: Vec<ObjectView>,
    pub config_maps: Vec<ObjectView>,
    pub claims: Vec<ClaimView>,
    /// Pods that existed and are gone although nobody here asked for it, as far as this process has seen it.
    pub vanished: Vec<Vanished>,
    /// What the cluster refused when the last plans were carried out.
    pub obstacles: Vec<Obstacle>,
    /// How far the program of the pod of rank 0 says it is.
    pub progress: Option<Progress>,
    /// Whose words these are. Who is not listened to cannot be blamed for its silence.
    pub listening: Option<Listening>,
    /// What the agent beside the leader's program said last.
    pub agent: Option<AgentView>,
    /// The ends of the logs of pods that failed.
    pub tails: Vec<Tail>,
    /// What the programs of an attempt that stalled said about where they hang.
    pub stacks: Option<Stacks>,
    /// What is known of nodes whose pods do not go when they should.
    pub nodes: Vec<NodeView>,
    /// Nodes that are about to be taken away, also those without pods of this job.
    pub notices: Arc<[NodeNotice]>,
    /// When this job's status was last written, as far as this process knows.
    pub last_status_write: Option<Timestamp>,
}

impl Snapshot {
    /// A job of which nothing exists yet.
    pub fn of(job: TrainingJob) -> Self {
        Self {
            job: Arc::new(job),
            pods: Vec::new(),
            services: Vec::new(),
            config_maps: Vec::new(),
            claims: Vec::new(),
            vanished: Vec::new(),
            obstacles: Vec::new(),
            progress: None,
            listening: None,
            agent: None,
            tails: Vec::new(),
            stacks: None,
            nodes: Vec::new(),
            notices: Arc::default(),
            last_status_write: None,
        }
    }
}

/// What planning reads of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    pub name: String,
    pub uid: String,
    /// The uid of the controlling owner. This and what it was made of are the same for all pods of a job, most of the time.
    pub owner: Option<Arc<str>>,
    /// The attempt it belongs to; none when the label is missing or not a number.
    pub attempt: Option<i32>,
    /// What it was made of, and for which world (annotations).
    pub inputs: Option<Arc<str>>,
    pub shape: Option<Arc<str>>,
    /// The nodes of which it was known when it was made that they will be taken away (an annotation).
    pub announced: Option<Arc<str>>,
    pub created: Option<Timestamp>,
    /// Since when it has been on its node without anything having been made of it there, not even a place for containers. None once it
    /// has been nudged for that.
    pub untouched_since: Option<Timestamp>,
    /// Marked for deletion.
    pub deleting: bool,
    /// When it should be gone, if it is marked for deletion.
    pub leaves_by: Option<Timestamp>,
    pub phase: PodPhase,
    /// What still runs beside its training container, which has ended.
    pub lingers: Option<Company>,
    /// The agent in it has been started, so that there is something to hear.
    pub agent_started: bool,
    pub node: Option<String>,
    /// How its training container ended.
    pub exit: Option<Box<Exit>>,
    /// Why it does not run yet.
    pub waiting: Option<Box<Waiting>>,
    /// Why the cluster ended it, or will, if it is the cluster (eviction, preemption, shutdown).
    pub disruption: Option<Box<Disruption>>,
}

/// The cluster takes a pod away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disruption {
    /// Kubernetes' own words for it: the condition's and the pod's, such as `TerminationByKubelet` and `Evicted`.
    pub reasons: Vec<String>,
    /// In a sentence.
    pub message: String,
}

/// What an agent said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentView {
    /// The uid of the pod that it is in.
    pub pod: String,
    /// The attempt of that pod, if it is known.
    pub attempt: Option<i32>,
    pub report: AgentReport,
}

/// The end of a failed pod's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The pod's uid.
    pub pod: String,
    /// None: it was asked for and could not be had.
    pub text: Option<String>,
}

/// A pod whose log is listened to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Its uid.
    pub pod: String,
    /// When that began.
    pub began: Timestamp,
    /// Since when there was no break; if there never was one, since it began. What was said during a break is told at once after it.
    pub since: Timestamp,
}

/// What may run beside a program that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// Sidecars as Kubernetes knows them, which it ends then.
    Sidecars,
    /// Another container of the template's, which ends when it likes.
    Others,
}

/// What the pods of an attempt that stalled were heard to say about where they hang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacks {
    pub attempt: i32,
    /// The name of each pod that was asked, and its text; none of who did not answer.
    pub said: Vec<(String, String)>,
}

/// What planning reads of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub name: String,
    pub state: NodeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    Ready,
    /// It does not answer: nothing on it can be waited for.
    Unreachable,
    /// It does not exist any more.
    Gone,
    /// The operator may not look at it.
    Hidden,
}

/// Somebody has announced that a node will be taken away: a spot market, or whoever maintains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNotice {
    pub node: String,
    /// The taint or condition that says so.
    pub why: String,
}

/// A pod that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vanished {
    pub name: String,
    pub attempt: Option<i32>,
}

/// The phase of a pod. `Unknown` (a silent node) counts as running until the cluster says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    /// The init container that it was, if it was not the training itself.
    pub init: Option<String>,
    /// The kubelet's word for it: Error, OOMKilled; or for the end of the whole pod: Evicted, DeadlineExceeded.
    pub reason: Option<String>,
    /// That word is for the whole pod, which went past a limit of its own: of its storage, or of its time.
    pub of_pod: bool,
    pub message: Option<String>,
    pub at: Option<Timestamp>,
}

/// Why a pod does not run yet, in the scheduler's or kubelet's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: String,
    pub message: Option<String>,
}

/// What planning reads of a service or a config map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectView {
    pub name: String,
    pub uid: String,
    pub owner: Option<String>,
    /// Hash of the parts that Trainyard sets (see `fingerprint`).
    pub fingerprint: u64,
    pub deleting: bool,
}

/// What planning reads of a claim. It has no owner on purpose: its labels say whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    pub name: String,
    pub uid: String,
    pub deleting: bool,
    /// Pods on different nodes can use it.
    pub shared: bool,
}

/// Something that the cluster refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    pub kind: ObstacleKind,
    /// What was refused: "pod bert-workers-0".
    pub object: String,
    /// Why, in the API server's words.
    pub message: String,
    /// The generation of the job that it was refused for.
    pub generation: i64,
    /// When to try again.
    pub retry_at: Timestamp,
}

/// Why the cluster refused something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObstacleKind {
    /// The name belongs to an object that is not ours.
    NameConflict,
    /// A quota has no room.
    Quota,
    /// The operator may not do it, or an admission controller said no.
    Forbidden,
    /// The API server says that the object is invalid: only another spec can help.
    Invalid,
    /// The budget that guards the pods against evictions cannot be had, because its name is `taken` or for another reason.
    /// Training goes on without it.
    Unguarded { taken: bool },
}

impl Snapshot {
    pub fn name(&self) -> &str {
        self.job.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.job.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn generation(&self) -> i64 {
        self.job.metadata.generation.unwrap_or_default()
    }

    /// The end of this pod's log, if it was read.
    pub fn tail(&self, pod: &PodView) -> Option<&str> {
        self.tails.iter().find(|tail| tail.pod == pod.uid)?.text.as_deref()
    }

    /// Whether this pod's log was asked for, whatever came of it.
    pub fn was_asked(&self, pod: &PodView) -> bool {
        self.tails.iter().any(|tail| tail.pod == pod.uid)
    }

    /// Whether this pod's node is known to be gone or silent: nobody there ends the pod, or lets it save anything.
    pub fn is_on_dead_node(&self, pod: &PodView) -> bool {
        matches!(self.node_of(pod), Some(NodeState::Unreachable | NodeState::Gone))
    }

    /// What is known of this pod's node.
    pub fn node_of(&self, pod: &PodView) -> Option<NodeState> {
        self.nodes.iter().find(|node| Some(&node.name) == pod.node.as_ref()).map(|node| node.state)
    }

    /// What has been announced about this pod's node, if it has to leave it.
    pub fn leaves(&self, pod: &PodView) -> Option<&NodeNotice> {
        let is_meant =
            |notice: &&NodeNotice| Some(&notice.node) == pod.node.as_ref() && !pod.was_told_of(&notice.node);
        self.notices.iter().find(is_meant).filter(|_| !pod.deleting && !pod.is_finished())
    }

    /// Pods that this very job controls. A pod of an earlier job of the same name is not one of them.
    pub fn own_pods(&self) -> impl Iterator<Item = &PodView> {
        self.pods.iter().filter(|pod| pod.owner.as_deref() == Some(self.uid()))
    }
}

impl PodView {
    /// Was it known when it was made that this node will be taken away?
    fn was_told_of(&self, node: &str) -> bool {
        let told = self.announced.as_deref().unwrap_or_default();
        told == trainyard_api::names::ALL_NODES || told.split(',').any(|told| told == node)
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// It is taken away because of its node, which may be dead.
    pub fn may_be_lost(&self) -> bool {
        let by_taint = |why: &Disruption| {
            let mut words = why.reasons.iter().chain([&why.message]);
            words.any(|word| word.to_ascii_lowercase().contains("taint"))
        };
        self.deleting && !self.is_finished() && self.disruption.as_deref().is_some_and(by_taint)
    }

    /// It does not run, and what its status says is only that it takes a moment. A kubelet does not explain these two; the node of one
    /// machine does, when it cannot go on.
    pub fn waits_without_a_word(&self) -> bool {
        let says_nothing = |waiting: &Waiting| {
            waiting.message.as_ref().is_none_or(String::is_empty)
                && matches!(waiting.reason.as_str(), "ContainerCreating" | "PodInitializing")
        };
        self.phase == PodPhase::Pending && self.waiting.as_deref().is_none_or(says_nothing)
    }

    /// Running, or done with success: what a started world consists of.
    pub fn has_started(&self) -> bool {
        matches!(self.phase, PodPhase::Running | PodPhase::Succeeded)
    }
}
