//! The operator's port to the model. Every call waits at a gate until whoever runs the simulation lets it through, and says how it
//! fares; so there is something between any two writes, and an operator can die there.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use trainyard_operator::{JobRef, NewEvent, Port, Refusal, StatusChange, Written};
use trainyard_plan::{NewObject, NodeState, Target, TargetKind};

use crate::server::{Actor, Deed, Server};

/// How a call fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// As the API server answers it.
    Served,
    /// 409, without effect.
    Conflict,
    /// 429, without effect.
    TooMany,
    /// 500, without effect.
    Broken,
    /// It takes effect, but the answer is lost.
    AnswerLost,
}

impl Fate {
    pub const FAULTS: [Fate; 4] = [Fate::Conflict, Fate::TooMany, Fate::Broken, Fate::AnswerLost];

    fn refusal(self) -> Option<Refusal> {
        match self {
            Fate::Served => None,
            Fate::Conflict => Some(Refusal::Conflict),
            Fate::TooMany => Some(Refusal::Passing("too many requests, please try again later".to_owned())),
            Fate::Broken => Some(Refusal::Passing("Internal Server Error".to_owned())),
            Fate::AnswerLost => Some(Refusal::Passing("no answer within 30 s".to_owned())),
        }
    }
}

/// What the API server did wrong in a way that only the port can know.
pub type Twist = fn(&Server, &Target) -> Target;

/// What waits at the gate.
#[derive(Default)]
pub(crate) struct Gate {
    next: u64,
    /// Tickets of the calls that wait, oldest first, and what they want.
    pub(crate) waiting: Vec<(u64, String)>,
    open: Option<(u64, Fate)>,
}

impl Gate {
    /// Lets the `index`th of those who wait through.
    pub(crate) fn open(&mut self, index: usize, fate: Fate) -> String {
        let (ticket, what) = self.waiting.remove(index);
        self.open = Some((ticket, fate));
        what
    }
}

/// One operator's way to the model.
#[derive(Clone)]
pub(crate) struct SimPort {
    pub(crate) server: Arc<Mutex<Server>>,
    pub(crate) gate: Arc<Mutex<Gate>>,
    pub(crate) actor: Actor,
    /// Somebody wants to read what was asked for.
    pub(crate) traced: bool,
    /// Off, unless a test wants to see a port that deletes the wrong thing noticed.
    pub(crate) twist: Option<Twist>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimPort {
    async fn call<T>(
        &self,
        what: impl FnOnce() -> String,
        act: impl FnOnce(&mut Server, Actor) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let ticket = {
            let mut gate = lock(&self.gate);
            gate.next += 1;
            let ticket = gate.next;
            gate.waiting.push((ticket, if self.traced { what() } else { String::new() }));
            ticket
        };
        let fate = poll_fn(|context| {
            let open = &mut lock(&self.gate).open;
            match *open {
                Some((let_through, fate)) if let_through == ticket => {
                    *open = None;
                    Poll::Ready(fate)
                }
                _ => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        })
        .await;
        let act = || act(&mut lock(&self.server), self.actor);
        match fate.refusal() {
            None => act(),
            Some(refusal) if fate == Fate::AnswerLost => act().and(Err(refusal)),
            Some(refusal) => Err(refusal),
        }
    }
}

impl Port for SimPort {
    async fn stacks(&self, _: &JobRef, _: &Target) -> Option<String> {
        // Nothing depends on the answer.
        None
    }

    async fn create(&self, _: &JobRef, object: &NewObject) -> Result<Written, Refusal> {
        let what = || format!("create {} {}", object.kind().as_str(), object.name());
        self.call(what, |server, by| {
            let answer = server.create(by, object);
            let child = server.all(object.kind()).get(object.name());
            let uid = child.map(|child| child.uid.clone()).unwrap_or_default();
            server.logs(|| Deed::Create(Box::new(object.clone()), uid, answer.clone()));
            answer
        })
        .await
    }

    async fn delete(&self, _: &JobRef, target: &Target, grace: Option<u32>) -> Result<(), Refusal> {
        let what = || format!("delete {} {}", target.kind.as_str(), target.name);
        self.call(what, |server, by| {
            let twisted = self.twist.map(|twist| twist(server, target));
            let answer = server.delete(by, twisted.as_ref().unwrap_or(target), grace);
            server.logs(|| Deed::Delete(target.clone(), grace, answer.clone()));
            answer
        })
        .await
    }

    async fn patch(&self, _: &JobRef, target: &Target, patch: &Value) -> Result<Written, Refusal> {
        let what = || format!("patch {} {}", target.kind.as_str(), target.name);
        self.call(what, |server, by| {
            let answer = server.patch(by, target, patch);
            server.logs(|| Deed::Patch(target.clone(), patch.clone(), answer.clone()));
            answer
        })
        .await
    }

    async fn patch_job(&self, job: &JobRef, patch: &Value) -> Result<Written, Refusal> {
        let what = || format!("patch job {}: {}", job.name, patch["metadata"]["finalizers"]);
        self.call(what, |server, by| {
            let answer = server.patch_job(by, &job.name, patch);
            server.logs(|| Deed::PatchJob(job.clone(), patch.clone(), answer.clone()));
            answer
        })
        .await
    }

    async fn patch_status(&self, job: &JobRef, patch: &Value) -> Result<Written, Refusal> {
        let what = || {
            let state = patch["status"]["state"].as_str().unwrap_or("details");
            format!("status of {}: {state}", job.name)
        };
        self.call(what, |server, by| {
            let answer = server.patch_status(by, &job.name, patch);
            server.logs(|| Deed::PatchStatus(job.clone(), patch.clone(), answer.clone()));
            answer
        })
        .await
    }

    async fn write_status(&self, job: &JobRef, change: &StatusChange<'_>) -> Result<Written, Refusal> {
        let what = || {
            let state =
                change.after.state.filter(|state| change.before.and_then(|old| old.state) != Some(*state));
            format!("status of {}: {}", job.name, state.map_or("details", |state| state.as_str()))
        };
        self.call(what, |server, by| {
            if !server.speaks_json {
                return server.put_status(by, &job.name, change);
            }
            let patch = change.patch();
            let answer = server.patch_status(by, &job.name, &patch);
            if answer.is_ok() {
                let read = server.job(&job.name).and_then(|job| job.status.as_ref());
                assert_eq!(read, Some(change.after), "what is read back is not what was written");
            }
            server.logs(|| Deed::PatchStatus(job.clone(), patch, answer.clone()));
            answer
        })
        .await
    }

    async fn delete_job(&self, job: &JobRef) -> Result<(), Refusal> {
        let what = || format!("delete job {}", job.name);
        self.call(what, |server, by| {
            let answer = server.delete_job(by, &job.name, Some(&job.uid));
            server.logs(|| Deed::DeleteJob(job.clone(), answer.clone()));
            answer
        })
        .await
    }

    async fn set_budget(&self, job: &JobRef, budget: &PodDisruptionBudget) -> Result<(), Refusal> {
        let kept = budget.spec.as_ref().and_then(|spec| spec.min_available.clone());
        let what = || format!("budget of {}: {kept:?}", job.name);
        self.call(what, |server, by| {
            let answer = server.set_budget(by, job, budget);
            server.logs(|| Deed::Budget(job.clone(), Box::new(budget.clone()), answer.clone()));
            answer
        })
        .await
    }

    async fn remove_budget(&self, job: &JobRef, name: &str) -> Result<(), Refusal> {
        let what = || format!("remove budget {name}");
        self.call(what, |server, by| {
            let answer = server.remove_budget(by, job, name);
            server.logs(|| Deed::RemoveBudget(job.clone(), name.to_owned(), answer.clone()));
            answer
        })
        .await
    }

    async fn record_event(&self, event: &NewEvent) -> Result<(), Refusal> {
        let what = || format!("event {}: {}", event.reason, event.message);
        self.call(what, |server, by| {
            let answer = server.record(by, event);
            server.logs(|| Deed::Record(event.clone(), answer.clone()));
            answer
        })
        .await
    }

    async fn node(&self, name: &str) -> Result<Option<NodeState>, Refusal> {
        self.call(|| format!("get node {name}"), |server, _| Ok(Some(server.node(name)))).await
    }

    async fn pods_beside(
        &self,
        _: &JobRef,
        _: Option<u64>,
        most: usize,
    ) -> Result<Option<Vec<ObjectMeta>>, Refusal> {
        let list = |server: &mut Server, _| {
            let names: Vec<String> = server.all(TargetKind::Pod).keys().cloned().collect();
            if names.len() > most {
                return Ok(None);
            }
            let metadata = names.iter().map(|name| server.metadata(TargetKind::Pod, name));
            metadata.collect::<Result<Vec<_>, _>>().map(Some)
        };
        self.call(|| "list pods".to_owned(), list).await
    }

    async fn metadata(
        &self,
        _: &JobRef,
        kind: TargetKind,
        name: &str,
        _: Option<u64>,
    ) -> Result<ObjectMeta, Refusal> {
        let what = || format!("get {} {name}", kind.as_str());
        self.call(what, |server, _| server.metadata(kind, name)).await
    }
}
