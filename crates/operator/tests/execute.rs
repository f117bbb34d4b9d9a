//! Carrying out plans through a port that says what the test wants: order, refusals, and stopping after any write.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use trainyard_api::{State, TrainingJob, TrainingJobStatus};
use trainyard_operator::{Echo, JobRef, NewEvent, Outcome, Port, Refusal, Written, execute, record};
use trainyard_plan::{
    Importance, NewObject, NodeState, Notice, ObstacleKind, Patch, Plan, Settings, Snapshot, StatusWrite,
    Step, Target, TargetKind, plan,
};

/// Records every call; answers as told, else with success and ever newer versions.
#[derive(Default)]
struct Script {
    calls: Mutex<Vec<String>>,
    answers: BTreeMap<&'static str, Refusal>,
    found: ObjectMeta,
}

impl Script {
    fn refusing(call: &'static str, refusal: Refusal) -> Self {
        Self { answers: BTreeMap::from([(call, refusal)]), ..Self::default() }
    }

    fn call(&self, call: String) -> Result<Written, Refusal> {
        let mut calls = self.calls.lock().unwrap();
        let refusal = self
            .answers
            .iter()
            .find(|(prefix, _)| call.starts_with(**prefix))
            .map(|(_, refusal)| refusal.clone());
        calls.push(call);
        let version = 100 + calls.len() as u64;
        refusal.map_or(Ok(Written { version, resource_version: version.to_string() }), Err)
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl Port for Script {
    async fn stacks(&self, _: &JobRef, pod: &Target) -> Option<String> {
        self.call(format!("ask {}", pod.name)).ok()?;
        Some("Current thread 1:\n  File \"train.py\", line 1 in step".to_owned())
    }

    async fn create(&self, _: &JobRef, object: &NewObject) -> Result<Written, Refusal> {
        self.call(format!("create {} {}", object.kind().as_str(), object.name()))
    }
    async fn delete(&self, _: &JobRef, target: &Target, _: Option<u32>) -> Result<(), Refusal> {
        self.call(format!("delete {} {}", target.kind.as_str(), target.name)).map(drop)
    }
    async fn patch(&self, _: &JobRef, target: &Target, patch: &Value) -> Result<Written, Refusal> {
        self.call(format!("patch {} {} {patch}", target.kind.as_str(), target.name))
    }
    async fn patch_job(&self, _: &JobRef, patch: &Value) -> Result<Written, Refusal> {
        self.call(format!("job {patch}"))
    }
    async fn patch_status(&self, _: &JobRef, patch: &Value) -> Result<Written, Refusal> {
        self.call(format!("status {patch}"))
    }
    async fn delete_job(&self, _: &JobRef) -> Result<(), Refusal> {
        self.call("delete job".to_owned()).map(drop)
    }
    async fn set_budget(&self, _: &JobRef, budget: &PodDisruptionBudget) -> Result<(), Refusal> {
        self.call(format!("budget {}", budget.metadata.name.as_deref().unwrap())).map(drop)
    }
    async fn remove_budget(&self, _: &JobRef, name: &str) -> Result<(), Refusal> {
        self.call(format!("remove budget {name}")).map(drop)
    }
    async fn record_event(&self, event: &NewEvent) -> Result<(), Refusal> {
        self.call(format!("event {}", event.reason)).map(drop)
    }
    async fn job(&self, job: &JobRef) -> Result<ObjectMeta, Refusal> {
        self.call(format!("get job {}", job.name)).map(|_| self.found.clone())
    }
    async fn metadata(
        &self,
        _: &JobRef,
        kind: TargetKind,
        name: &str,
        _: Option<u64>,
    ) -> Result<ObjectMeta, Refusal> {
        self.call(format!("metadata {} {name}", kind.as_str())).map(|_| self.found.clone())
    }
    async fn pods_beside(
        &self,
        _: &JobRef,
        _: Option<u64>,
        _: usize,
    ) -> Result<Option<Vec<ObjectMeta>>, Refusal> {
        self.call("list pods".to_owned()).map(|_| None)
    }
    async fn node(&self, name: &str) -> Result<NodeState, Refusal> {
        self.call(format!("node {name}")).map(|_| NodeState::Hidden)
    }
}

fn job() -> TrainingJob {
    serde_json::from_value(json!({
        "apiVersion": "ml.example.com/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "bert", "namespace": "ml", "uid": "u-1", "resourceVersion": "7", "generation": 1},
        "spec": {"image": "train:1", "numWorkers": 2},
    }))
    .unwrap()
}

/// The plan of a job that has just been created.
fn first_plan(job: &TrainingJob) -> Plan {
    plan(&Snapshot::of(job.clone()), &Settings::default(), Timestamp::UNIX_EPOCH)
}

/// A decision with one delete and one event behind it.
fn decision() -> Plan {
    Plan {
        status: TrainingJobStatus { state: Some(State::Restarting), ..Default::default() },
        write: StatusWrite::BeforeSteps,
        gone: Vec::new(),
        hanging: Vec::new(),
        stages: vec![vec![Step::Delete {
            target: Target { kind: TargetKind::Pod, name: "bert-workers-0".into(), uid: "p".into() },
            grace: None,
        }]],
        chores: Vec::new(),
        notices: vec![Notice {
            importance: Importance::Warning,
            reason: "Restarting",
            message: "Worker 0 failed".into(),
            occurrence: "1".into(),
        }],
        wake_at: None,
    }
}

async fn run(port: &Script, plan: &Plan) -> Outcome {
    let mut outcome = execute(port, &job(), plan, true, Timestamp::UNIX_EPOCH).await;
    record(port, std::mem::take(&mut outcome.events)).await;
    outcome
}

#[tokio::test]
async fn the_pods_of_a_new_job_come_first_and_its_finalizer_with_the_report() {
    let port = Script::default();
    let outcome = run(&port, &first_plan(&job())).await;
    let calls = port.calls();
    assert_eq!(calls[0..2], ["create service bert-workers", "create config map bert-config"]);
    assert_eq!(calls[2..4], ["create pod bert-workers-0", "create pod bert-workers-1"]);
    assert!(
        calls[4].starts_with("job ") && calls[4].contains("trainingjob.ml.example.com/finalizer"),
        "{calls:#?}"
    );
    assert!(calls[4].contains(r#""resourceVersion":"7""#), "from the version that was planned from");
    assert!(
        calls[5].starts_with("status ") && calls[5].contains(r#""resourceVersion":"105""#),
        "on top of our own write: {calls:#?}"
    );
    assert_eq!(calls.len(), 6);
    assert_eq!(outcome.echoes.len(), 6, "the cache has to see every write");
}

#[tokio::test]
async fn a_decision_is_durable_before_its_effects() {
    let port = Script::default();
    run(&port, &decision()).await;
    let calls = port.calls();
    assert!(calls[0].starts_with("status "), "{calls:?}");
    assert_eq!(calls[1..], ["delete pod bert-workers-0", "event Restarting"]);
}

#[tokio::test]
async fn who_hangs_is_asked_where_after_the_decision_and_before_the_end() {
    let hanging = Target { kind: TargetKind::Pod, name: "bert-workers-1".into(), uid: "q".into() };
    let plan = Plan { hanging: vec![hanging], ..decision() };
    let port = Script::default();
    let outcome = run(&port, &plan).await;
    let calls = port.calls();
    assert!(calls[0].starts_with("status "), "to answer may end the program: {calls:?}");
    assert_eq!(calls[1..], ["ask bert-workers-1", "delete pod bert-workers-0", "event Restarting"]);
    assert_eq!(outcome.stacks.len(), 1);
    let mute = Script::refusing("ask", Refusal::Forbidden("no".into()));
    assert!(run(&mute, &plan).await.stacks.is_empty());
    assert_eq!(mute.calls().len(), 4, "nothing depends on the answer");
    let undecided = Script::refusing("status", Refusal::Conflict);
    run(&undecided, &plan).await;
    assert_eq!(undecided.calls().len(), 1);
}

#[tokio::test]
async fn without_the_decision_there_are_no_effects() {
    for refusal in [
        Refusal::Conflict,
        Refusal::NotFound,
        Refusal::Passing("no answer".into()),
        Refusal::Forbidden("no".into()),
    ] {
        let port = Script::refusing("status", refusal.clone());
        let outcome = run(&port, &decision()).await;
        assert_eq!(port.calls().len(), 1, "{refusal:?}: nothing follows");
        assert!(!outcome.status_written);
        assert_eq!(outcome.outdated, matches!(refusal, Refusal::Conflict | Refusal::NotFound));
        assert_eq!(outcome.fault.is_some(), matches!(refusal, Refusal::Passing(_)));
    }
}

#[tokio::test]
async fn what_is_gone_already_counts_as_deleted() {
    // A conflict may mean that another has its name by now, or nothing at all: that is looked at again.
    for (refusal, again) in [(Refusal::NotFound, false), (Refusal::Conflict, true)] {
        let port = Script::refusing("delete", refusal);
        let outcome = run(&port, &decision()).await;
        assert!(outcome.outdated == again && outcome.fault.is_none() && outcome.obstacles.is_empty());
        assert!(port.calls().contains(&"event Restarting".to_owned()));
    }
}

#[tokio::test]
async fn what_could_not_be_put_back_is_looked_at_again() {
    let target = Target { kind: TargetKind::ConfigMap, name: "bert-config".into(), uid: "c".into() };
    let restore = Step::Restore(Patch { target, patch: json!([]) });
    let plan = Plan { stages: vec![vec![restore]], write: StatusWrite::Not, ..decision() };
    // One that is gone is told of by its watch. A conflict may mean nothing, and then nobody tells.
    for (refusal, again) in [(Refusal::NotFound, false), (Refusal::Conflict, true)] {
        let port = Script::refusing("patch", refusal);
        let outcome = run(&port, &plan).await;
        assert!(outcome.outdated == again && outcome.fault.is_none() && outcome.obstacles.is_empty());
    }
}

#[tokio::test]
async fn nothing_depends_on_a_nudge() {
    let target = Target { kind: TargetKind::Pod, name: "bert-workers-0".into(), uid: "p".into() };
    let nudge = Step::Nudge(Patch { target, patch: json!([]) });
    let plan = Plan { stages: vec![vec![nudge]], write: StatusWrite::Report, ..decision() };
    let refusals = [
        Refusal::NotFound,
        Refusal::Conflict,
        Refusal::Forbidden("no".into()),
        Refusal::Invalid("no".into()),
    ];
    for refusal in refusals {
        let port = Script::refusing("patch", refusal);
        let outcome = run(&port, &plan).await;
        assert!(!outcome.outdated && outcome.fault.is_none() && outcome.obstacles.is_empty());
        assert!(port.calls().iter().any(|call| call.starts_with("status")), "{:?}", port.calls());
    }
    let busy = run(&Script::refusing("patch", Refusal::Passing("slow".into())), &plan).await;
    assert!(busy.fault.is_some(), "it is tried again");
}

#[tokio::test]
async fn a_refused_stage_ends_the_plan() {
    let port = Script::refusing("create service", Refusal::Quota("exceeded quota: small".into()));
    let outcome = run(&port, &first_plan(&job())).await;
    assert_eq!(
        outcome.obstacles,
        [(ObstacleKind::Quota, "service bert-workers".to_owned(), "exceeded quota: small".to_owned())]
    );
    assert!(port.calls().iter().all(|call| !call.starts_with("create pod") && !call.starts_with("status")));
}

fn owned_by(uid: &str) -> ObjectMeta {
    let owner = OwnerReference {
        kind: "TrainingJob".into(),
        name: "other".into(),
        uid: uid.into(),
        controller: Some(true),
        ..Default::default()
    };
    ObjectMeta {
        owner_references: Some(vec![owner]),
        resource_version: Some("55".into()),
        ..Default::default()
    }
}

#[tokio::test]
async fn an_object_in_the_way_is_ours_or_an_obstacle() {
    let in_the_way = |found: ObjectMeta| Script {
        found,
        ..Script::refusing("create pod bert-workers-1", Refusal::AlreadyExists)
    };
    // Somebody else's: never touched.
    let port = in_the_way(owned_by("u-2"));
    let outcome = run(&port, &first_plan(&job())).await;
    assert_eq!(outcome.obstacles[0].0, ObstacleKind::NameConflict);
    assert!(outcome.obstacles[0].2.contains("it belongs to TrainingJob other"), "{:?}", outcome.obstacles);
    assert!(port.calls().iter().all(|call| !call.starts_with("patch") && !call.starts_with("delete")));

    // Ours, created by a process that died before it saw the answer: done.
    let labels = [("app.kubernetes.io/managed-by", "trainyard"), ("trainingjob", "bert")];
    let labels: BTreeMap<String, String> = labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    let port = in_the_way(ObjectMeta { labels: Some(labels), ..owned_by("u-1") });
    let outcome = run(&port, &first_plan(&job())).await;
    assert!(outcome.obstacles.is_empty() && !outcome.outdated);
    assert!(outcome.echoes.contains(&Echo::Reached {
        kind: TargetKind::Pod,
        name: "bert-workers-1".into(),
        version: 55
    }));

    // Ours, but somebody took its labels, so that the cache cannot see it: they are put back.
    let port = in_the_way(owned_by("u-1"));
    run(&port, &first_plan(&job())).await;
    let patch =
        port.calls().into_iter().find(|call| call.starts_with("patch pod bert-workers-1")).expect("a patch");
    assert!(
        patch.contains(r#""app.kubernetes.io/managed-by":"trainyard""#)
            && patch.contains(r#""trainingjob":"bert""#)
    );
}

#[tokio::test]
async fn a_report_can_wait_and_its_events_with_it() {
    let port = Script::default();
    let mut plan = decision();
    plan.write = StatusWrite::Report;
    let outcome = execute(&port, &job(), &plan, false, Timestamp::UNIX_EPOCH).await;
    assert!(outcome.report_due && outcome.events.is_empty());
    assert_eq!(port.calls(), ["delete pod bert-workers-0"]);
}

#[tokio::test]
async fn an_event_that_was_recorded_before_is_no_fault() {
    let port = Script::refusing("event", Refusal::AlreadyExists);
    let outcome = run(&port, &decision()).await;
    assert!(outcome.fault.is_none() && outcome.obstacles.is_empty() && outcome.status_written);
}

/// A budget, and a status that tells of it.
fn budgeting(step: Step) -> Plan {
    Plan { write: StatusWrite::Report, stages: vec![vec![step]], notices: Vec::new(), ..decision() }
}

#[tokio::test]
async fn a_budget_is_there_before_the_status_says_so() {
    let budget = || {
        let named = json!({"metadata": {"name": "bert"}});
        Step::Budget(Box::new(serde_json::from_value(named).unwrap()))
    };
    let port = Script::default();
    run(&port, &budgeting(budget())).await;
    assert_eq!(port.calls()[0], "budget bert");
    assert!(port.calls()[1].starts_with("status "), "{:?}", port.calls());

    // Whatever is wrong with it is told, and ends nothing.
    let refusals = [
        (Refusal::AlreadyExists, Some(ObstacleKind::Unguarded { taken: true }), false),
        (Refusal::Forbidden("no".into()), Some(ObstacleKind::Unguarded { taken: false }), false),
        (Refusal::Invalid("no".into()), Some(ObstacleKind::Unguarded { taken: false }), false),
        (Refusal::Conflict, None, true),
        (Refusal::Passing("later".into()), None, true),
    ];
    for (refusal, obstacle, is_tried_again) in refusals {
        let port = Script { answers: [("budget", refusal.clone())].into(), ..Default::default() };
        let outcome = run(&port, &budgeting(budget())).await;
        let found = outcome.obstacles.first().map(|(kind, ..)| *kind);
        assert_eq!((found, outcome.fault.is_some()), (obstacle, is_tried_again), "{refusal:?}");
        assert!(!outcome.status_written, "{refusal:?}");
    }
}

#[tokio::test]
async fn a_budget_is_gone_before_the_status_says_so() {
    let answers = [
        (None, true),
        (Some(Refusal::NotFound), true),
        (Some(Refusal::Forbidden("no".into())), true),
        (Some(Refusal::Conflict), false),
        (Some(Refusal::Passing("later".into())), false),
    ];
    for (answer, is_said) in answers {
        let refusals = answer.clone().map(|refusal| ("remove budget", refusal));
        let port = Script { answers: refusals.into_iter().collect(), ..Default::default() };
        let outcome = run(&port, &budgeting(Step::RemoveBudget("bert".into()))).await;
        assert_eq!(outcome.status_written, is_said, "{answer:?}");
        assert_eq!(outcome.fault.is_some(), !is_said, "{answer:?}");
    }
}
