//! An example that trains on real nodes, seen through its job, its pods and its checkpoints.

#![expect(unreachable_pub, reason = "a test program exports nothing")]

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use trainyard_api::checkpoint::AGENT_CONTAINER;
use trainyard_api::{Attempt, TrainingJobStatus};

use super::support::Yard;
use crate::common::example::{Example, Saved};
use crate::common::training::{Checkpoints, Work};

/// A job under way, and where its checkpoints are on this machine.
pub struct Training {
    pub job: String,
    pub checkpoints: Checkpoints,
}

impl Training {
    pub async fn start(yard: &Yard, job: String, example: Example, image: &str, work: Work) -> Self {
        let directory = yard.claim(&format!("{job}-saved")).await;
        let program = example.program();
        let place = format!(
            "  image: {image}\n  command: [python3, /app/{program}]\n  \
             resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}\n  \
             checkpoint: {{keepLast: 2, storage: {{claimName: {job}-saved}}}}\n"
        );
        yard.apply(&work.manifest(&job, example, &place)).await;
        Self { job, checkpoints: Checkpoints { directory, example, work } }
    }

    /// The newest that is saved as a whole.
    pub fn saved(&self) -> Saved {
        self.checkpoints.newest()
    }

    pub fn pod(&self, rank: i32) -> String {
        format!("{}-workers-{rank}", self.job)
    }

    /// Waits until more is saved.
    pub async fn further(&self, yard: &Yard) {
        let before = self.saved();
        yard.wait_for("more is saved", async || self.saved() > before).await;
    }

    pub async fn kill(&self, yard: &Yard, rank: i32, container: &str) {
        yard.cluster.kill_container("default", &self.pod(rank), container).await.unwrap();
        yard.tell(&format!("killed: {container} of {}", self.pod(rank)));
    }

    /// The number of the node on which the worker is.
    pub async fn node_of(&self, yard: &Yard, rank: i32) -> usize {
        let name = self.pod(rank);
        let pods = yard.pods(&self.job).await;
        node_of(pods.iter().find(|pod| pod.name_any() == name).unwrap())
    }

    /// How often the agent was started in the pod that is there now; nothing while it does not run.
    pub async fn agent_starts(&self, yard: &Yard) -> i32 {
        let pods = yard.pods(&self.job).await;
        let leader = pods.into_iter().find(|pod| pod.name_any() == self.pod(0));
        let statuses = leader.and_then(|pod| pod.status?.init_container_statuses).unwrap_or_default();
        let agent = statuses.into_iter().find(|status| status.name == AGENT_CONTAINER);
        agent.filter(|agent| agent.started == Some(true)).map_or(0, |agent| agent.restart_count + 1)
    }

    /// Waits until the last epoch is saved.
    pub async fn ended(&self, yard: &Yard) {
        let all = self.checkpoints.work.epochs;
        yard.wait_for("the last epoch is saved", async || self.saved().epoch == all).await;
        yard.tell("the last epoch is saved");
    }

    /// Waits until an attempt after this one runs, and returns its number. The leading program runs when its agent has found that the
    /// attempt was told of the right checkpoint, so this one does not end for another reason.
    pub async fn next(&self, yard: &Yard, number: i32) -> i32 {
        let status = yard.until(&self.job, "the next attempt runs", |status| goes_on(status, number)).await;
        for attempt in status.attempts.iter().filter(|attempt| attempt.number >= number) {
            tell(yard, attempt);
        }
        status.attempts.last().unwrap().number
    }
}

fn goes_on(status: &TrainingJobStatus, after: i32) -> bool {
    let last = status.attempts.last();
    last.is_some_and(|last| last.number > after && last.running_time.is_some() && last.is_open())
}

pub fn tell(yard: &Yard, attempt: &Attempt) {
    let path = attempt.resumed_from.as_ref().map_or("nothing", |checkpoint| checkpoint.path.as_str());
    let end = match attempt.cause {
        Some(cause) => format!("{}: {}", cause.as_str(), attempt.message.as_deref().unwrap_or_default()),
        None => "goes on".to_owned(),
    };
    yard.tell(&format!("   attempt {}, from {path}: {end} ({:?})", attempt.number, attempt.seconds));
}

pub fn node_of(pod: &Pod) -> usize {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap();
    name.strip_prefix("node-").unwrap().parse().unwrap()
}
