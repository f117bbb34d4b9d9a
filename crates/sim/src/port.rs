//! The operator's port to the model. Every call waits at a gate until whoever runs the simulation lets it through, and says how it
//! fares; so there is something between any two writes, and an operator can die there.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Status;
use serde_json::Value;
use trainyard_operator::{JobRef, NewEvent, Port, Refusal, StatusChange, Written};
use trainyard_plan::{NewObject, NodeState, Target, TargetKind};

use crate::server::{Actor, Asked, Deed, Server};
use crate::wire::Landing;

/// How a call fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The answer is lost, and it takes effect later (a read: never).
    LandsLate,
}

impl Fate {
    pub const FAULTS: [Fate; 5] =
        [Fate::Conflict, Fate::TooMany, Fate::Broken, Fate::AnswerLost, Fate::LandsLate];

    fn refusal(self) -> Option<Refusal> {
        match self {
            Fate::Served => None,
            Fate::Conflict => Some(answer(409, "Conflict", "the object has been modified")),
            Fate::TooMany => Some(answer(429, "TooManyRequests", "please try again later")),
            Fate::Broken => Some(answer(500, "InternalError", "Internal Server Error")),
            Fate::AnswerLost | Fate::LandsLate => Some(no_answer()),
        }
    }
}

/// What the operator makes of this answer.
fn answer(code: u16, reason: &str, message: &str) -> Refusal {
    Refusal::from(kube::Error::Api(Status::failure(message, reason).with_code(code).boxed()))
}

/// As if the write had been seen already.
fn unheard(written: Written) -> Written {
    Written { version: 0, ..written }
}

fn no_answer() -> Refusal {
    Refusal::Passing("no answer within 30 s".to_owned())
}

/// What is wrong with a port, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twist {
    /// It deletes whatever has the name now.
    DeletesByName,
    /// It writes to whatever job has the name now, and to whatever version of it.
    WritesByName,
    /// It does not tell which version a write had, so that nobody can wait for it to be seen.
    NoEcho,
    /// It takes a pod for gone that is asked for by name, without asking.
    BelievesAbsence,
    /// It asks for an object once more when there was no answer, without looking whether it is there.
    Insists,
}

/// A call that waits.
struct Call {
    ticket: u64,
    /// What it wants, if somebody wants to read it.
    what: String,
}

/// What waits at the gate.
#[derive(Default)]
pub(crate) struct Gate {
    next: u64,
    /// Oldest first.
    waiting: Vec<Call>,
    open: Option<(u64, Fate)>,
    /// Its operator dies, and these are on their way already.
    adrift: Vec<u64>,
}

impl Gate {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Lets the `index`th of those who wait through.
    pub(crate) fn open(&mut self, index: usize, fate: Fate) -> String {
        let Call { ticket, what } = self.waiting.remove(index);
        self.open = Some((ticket, fate));
        what
    }

    /// Nobody will wait any more for those of the calls that are told.
    pub(crate) fn break_down(&mut self, on_their_way: &mut dyn FnMut() -> bool) {
        let tickets = self.waiting.iter().map(|call| call.ticket);
        self.adrift = tickets.filter(|_| on_their_way()).collect();
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
    /// None, unless a test wants to see a port that is wrong noticed.
    pub(crate) twist: Option<Twist>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A write: what it is in words, the verb of the server, and what it is given. The same is done with copies if it lands late.
macro_rules! write {
    ($port:ident, $what:expr, $verb:ident($($given:ident),*)) => { write!($port, $what, None, $verb($($given),*)) };
    ($port:ident, $what:expr, $asked:expr, $verb:ident($($given:ident),*)) => {{
        let landing = || -> Landing {
            $(let $given = $given.to_owned();)*
            Box::new(move |server, by| drop($verb(server, by, $(&$given),*)))
        };
        $port.call($what, $asked, Some(&landing), |server, by| $verb(server, by, $($given),*)).await
    }};
}

impl SimPort {
    async fn call<T>(
        &self,
        what: impl Fn() -> String,
        asked: Option<(Asked, TargetKind, &str)>,
        landing: Option<&(dyn Fn() -> Landing + Sync)>,
        act: impl FnOnce(&mut Server, Actor) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let told = || if self.traced { what() } else { String::new() };
        let ticket = {
            let mut gate = lock(&self.gate);
            gate.next += 1;
            let ticket = gate.next;
            gate.waiting.push(Call { ticket, what: told() });
            ticket
        };
        let count = || {
            if let Some((asked, kind, name)) = asked {
                lock(&self.server).count(asked, kind, name);
            }
        };
        let adrift = |died: bool| {
            if let Some(landing) = landing {
                lock(&self.server).set_adrift(self.actor, told(), died, landing());
            }
        };
        let fate = poll_fn(|context| {
            let mut gate = lock(&self.gate);
            match gate.open {
                Some((let_through, fate)) if let_through == ticket => {
                    gate.open = None;
                    Poll::Ready(fate)
                }
                _ => {
                    if gate.adrift.contains(&ticket) {
                        count();
                        adrift(true);
                    }
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        })
        .await;
        count();
        let act = || act(&mut lock(&self.server), self.actor);
        match fate.refusal() {
            None => act(),
            Some(refusal) => {
                match fate {
                    // Whatever it was.
                    Fate::AnswerLost => drop(act()),
                    Fate::LandsLate => adrift(false),
                    _ => {}
                }
                Err(refusal)
            }
        }
    }

    async fn create_once(&self, job: &JobRef, object: &NewObject) -> Result<Written, Refusal> {
        let asked = Some((Asked::Create, object.kind(), object.name()));
        let what = || format!("create {} {}", object.kind().as_str(), object.name());
        let answer = write!(self, what, asked, create(job, object));
        self.heard(answer)
    }

    fn heard(&self, answer: Result<Written, Refusal>) -> Result<Written, Refusal> {
        if self.twist == Some(Twist::NoEcho) { answer.map(unheard) } else { answer }
    }
}

// What is done to the server, and noted.

fn create(server: &mut Server, by: Actor, job: &JobRef, object: &NewObject) -> Result<Written, Refusal> {
    let answer = server.create(by, job, object);
    let child = server.all(object.kind()).get(object.name());
    let uid = child.map(|child| child.uid.clone()).unwrap_or_default();
    server.logs(|| Deed::Create(Box::new(object.clone()), uid, answer.clone()));
    answer
}

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as `write!` gives it")]
fn delete(
    server: &mut Server,
    by: Actor,
    job: &JobRef,
    target: &Target,
    grace: &Option<u32>,
) -> Result<(), Refusal> {
    let answer = server.delete(by, job, target, *grace);
    server.logs(|| Deed::Delete(target.clone(), *grace, answer.clone()));
    answer
}

fn patch(
    server: &mut Server,
    by: Actor,
    job: &JobRef,
    target: &Target,
    patch: &Value,
) -> Result<Written, Refusal> {
    let answer = server.patch(by, job, target, patch);
    server.logs(|| Deed::Patch(target.clone(), patch.clone(), answer.clone()));
    answer
}

fn patch_job(server: &mut Server, by: Actor, job: &JobRef, patch: &Value) -> Result<Written, Refusal> {
    let answer = server.patch_job(by, job, patch);
    server.logs(|| Deed::PatchJob(job.clone(), patch.clone(), answer.clone()));
    answer
}

fn patch_status(server: &mut Server, by: Actor, job: &JobRef, patch: &Value) -> Result<Written, Refusal> {
    let answer = server.patch_status(by, job, patch);
    server.logs(|| Deed::PatchStatus(job.clone(), patch.clone(), answer.clone()));
    answer
}

fn write_status(
    server: &mut Server,
    by: Actor,
    job: &JobRef,
    change: &StatusChange<'_>,
) -> Result<Written, Refusal> {
    if !server.speaks_json {
        return server.put_status(by, job, change);
    }
    let answer = patch_status(server, by, job, &change.patch());
    if answer.is_ok() {
        let read = server.job(&job.name).and_then(|job| job.status.as_ref());
        assert_eq!(read, Some(change.after), "what is read back is not what was written");
    }
    answer
}

fn delete_job(server: &mut Server, by: Actor, job: &JobRef) -> Result<(), Refusal> {
    let answer = server.delete_job(by, &job.name, Some(&job.uid));
    server.logs(|| Deed::DeleteJob(job.clone(), answer.clone()));
    answer
}

fn set_budget(
    server: &mut Server,
    by: Actor,
    job: &JobRef,
    budget: &PodDisruptionBudget,
) -> Result<(), Refusal> {
    let answer = server.set_budget(by, job, budget);
    server.logs(|| Deed::Budget(job.clone(), Box::new(budget.clone()), answer.clone()));
    answer
}

fn remove_budget(server: &mut Server, by: Actor, job: &JobRef, name: &str) -> Result<(), Refusal> {
    let answer = server.remove_budget(by, job, name);
    server.logs(|| Deed::RemoveBudget(job.clone(), name.to_owned(), answer.clone()));
    answer
}

fn record(server: &mut Server, by: Actor, event: &NewEvent) -> Result<(), Refusal> {
    let answer = server.record(by, event);
    server.logs(|| Deed::Record(event.clone(), answer.clone()));
    answer
}

impl Port for SimPort {
    async fn stacks(&self, _: &JobRef, pod: &Target) -> Option<String> {
        let what = || format!("ask {} where it hangs", pod.name);
        self.call(what, None, None, |server, _| Ok(server.stacks(pod))).await.ok()?
    }

    async fn create(&self, job: &JobRef, object: &NewObject) -> Result<Written, Refusal> {
        let answer = self.create_once(job, object).await;
        if self.twist == Some(Twist::Insists) && answer == Err(no_answer()) {
            // As if the first answer had come.
            return match self.create_once(job, object).await {
                Err(Refusal::AlreadyExists) => Err(no_answer()),
                answer => answer,
            };
        }
        answer
    }

    async fn delete(&self, job: &JobRef, target: &Target, grace: Option<u32>) -> Result<(), Refusal> {
        let asked = Some((Asked::Delete, target.kind, target.name.as_str()));
        let what = || format!("delete {} {}", target.kind.as_str(), target.name);
        let twisted = (self.twist == Some(Twist::DeletesByName)).then(|| {
            let uid = lock(&self.server).all(target.kind).get(&target.name).map(|child| child.uid.clone());
            Target { uid: uid.unwrap_or_default(), ..target.clone() }
        });
        let (target, grace) = (twisted.as_ref().unwrap_or(target), &grace);
        write!(self, what, asked, delete(job, target, grace))
    }

    async fn patch(&self, job: &JobRef, target: &Target, patched: &Value) -> Result<Written, Refusal> {
        let what = || format!("patch {} {}", target.kind.as_str(), target.name);
        let answer = write!(self, what, patch(job, target, patched));
        self.heard(answer)
    }

    async fn patch_job(&self, job: &JobRef, patch: &Value) -> Result<Written, Refusal> {
        let what = || format!("patch job {}: {}", job.name, patch["metadata"]["finalizers"]);
        let twisted = (self.twist == Some(Twist::WritesByName)).then(|| {
            let mut patch = patch.clone();
            patch["metadata"]["resourceVersion"].take();
            patch
        });
        let patch = twisted.as_ref().unwrap_or(patch);
        let answer = write!(self, what, patch_job(job, patch));
        self.heard(answer)
    }

    async fn patch_status(&self, job: &JobRef, patch: &Value) -> Result<Written, Refusal> {
        let what = || {
            let state = patch["status"]["state"].as_str().unwrap_or("details");
            format!("status of {}: {state}", job.name)
        };
        write!(self, what, patch_status(job, patch))
    }

    async fn write_status(&self, job: &JobRef, change: &StatusChange<'_>) -> Result<Written, Refusal> {
        let what = || {
            let state =
                change.after.state.filter(|state| change.before.and_then(|old| old.state) != Some(*state));
            format!("status of {}: {}", job.name, state.map_or("details", |state| state.as_str()))
        };
        let landing = || -> Landing {
            let (job, version) = (job.clone(), change.version.to_owned());
            let (before, after) = (change.before.cloned(), change.after.clone());
            Box::new(move |server, by| {
                let change = StatusChange { version: &version, before: before.as_ref(), after: &after };
                drop(write_status(server, by, &job, &change));
            })
        };
        let act = |server: &mut Server, by| {
            let newest = server.job(&job.name).and_then(|job| job.metadata.resource_version.clone());
            match newest.filter(|_| self.twist == Some(Twist::WritesByName)) {
                Some(version) => {
                    let blind =
                        StatusChange { version: &version, before: change.before, after: change.after };
                    server.put_status(by, job, &blind)
                }
                None => write_status(server, by, job, change),
            }
        };
        let answer = self.call(what, None, Some(&landing), act).await;
        self.heard(answer)
    }

    async fn delete_job(&self, job: &JobRef) -> Result<(), Refusal> {
        let what = || format!("delete job {}", job.name);
        write!(self, what, delete_job(job))
    }

    async fn set_budget(&self, job: &JobRef, budget: &PodDisruptionBudget) -> Result<(), Refusal> {
        let what = || {
            let kept = budget.spec.as_ref().and_then(|spec| spec.min_available.clone());
            format!("budget of {}: {kept:?}", job.name)
        };
        write!(self, what, set_budget(job, budget))
    }

    async fn remove_budget(&self, job: &JobRef, name: &str) -> Result<(), Refusal> {
        let what = || format!("remove budget {name}");
        write!(self, what, remove_budget(job, name))
    }

    async fn record_event(&self, event: &NewEvent) -> Result<(), Refusal> {
        let what = || format!("event {}: {}", event.reason, event.message);
        write!(self, what, record(event))
    }

    async fn node(&self, name: &str) -> Result<NodeState, Refusal> {
        let what = || format!("get node {name}");
        let answer = self.call(what, None, None, |server, _| Ok(server.node(name))).await;
        if let (Ok(state), Some(process)) = (&answer, self.actor.process()) {
            lock(&self.server).answers.insert((process, name.to_owned()), *state);
        }
        answer
    }

    async fn pods_beside(
        &self,
        _: &JobRef,
        at: Option<u64>,
        most: usize,
    ) -> Result<Option<Vec<ObjectMeta>>, Refusal> {
        let what = || at.map_or_else(|| "list pods".to_owned(), |at| format!("list pods at {at}"));
        let act = |server: &mut Server, _| {
            let answer = server.metadata_of_pods(at, most);
            server.logs(|| Deed::ReadPods(at, most, answer.clone()));
            answer
        };
        self.call(what, None, None, act).await
    }

    async fn job(&self, job: &JobRef) -> Result<ObjectMeta, Refusal> {
        let act = |server: &mut Server, _| {
            let found = server.job(&job.name).map(|job| job.metadata.clone());
            let answer = found.ok_or(Refusal::NotFound);
            server.logs(|| Deed::ReadJob(job.clone(), Box::new(answer.clone())));
            answer
        };
        self.call(|| format!("get job {}", job.name), None, None, act).await
    }

    async fn metadata(
        &self,
        _: &JobRef,
        kind: TargetKind,
        name: &str,
        at: Option<u64>,
    ) -> Result<ObjectMeta, Refusal> {
        if self.twist == Some(Twist::BelievesAbsence) && kind == TargetKind::Pod && at.is_none() {
            return Err(Refusal::NotFound);
        }
        let what = || {
            let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
            format!("get {} {name}{at}", kind.as_str())
        };
        let act = |server: &mut Server, _| {
            let answer = server.metadata(kind, name, at);
            server.logs(|| Deed::Read(kind, name.to_owned(), at, Box::new(answer.clone())));
            answer
        };
        self.call(what, None, None, act).await
    }
}
