//! What a job's own policies say about failures, with real processes: who is replaced, who does not matter, and when all is done.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use trainyard_api::{State, TrainingJobStatus, names};

use crate::plane::Plane;
use crate::support::{Bench, job, until};

/// Each notes that it runs, and waits for a word of the test.
const WAITS: &str = "echo MARK >&2\necho >> runs-$RANK\nwhile test ! -e go-$RANK; do sleep 0.05; done\ncode=$(cat go-$RANK)\nrm go-$RANK\nexit $code";

/// How often the program of that rank has been started.
fn starts(bench: &Bench, rank: i32) -> usize {
    std::fs::read_to_string(bench.path().join(format!("runs-{rank}"))).map_or(0, |it| it.lines().count())
}

fn ends(bench: &Bench, rank: i32, code: i32) {
    // It is there with what is in it.
    let new = bench.write("new", &code.to_string());
    std::fs::rename(new, bench.path().join(format!("go-{rank}"))).unwrap();
}

async fn start(bench: &Bench, workers: i32, policies: &str) -> Plane {
    let plane = Plane::start(bench).await;
    plane.jobs.create(&(job("bert", workers, &WAITS.replace("MARK", &bench.mark)) + policies)).await;
    plane.jobs.until_state("bert", State::Running).await;
    until("all programs run", || (0..workers).all(|rank| starts(bench, rank) == 1));
    plane
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_fails_is_replaced() {
    let bench = Bench::new();
    let plane = start(&bench, 3, "  failurePolicy: {restartScope: Worker}\n").await;
    ends(&bench, 1, 1);
    until("its program runs again", || starts(&bench, 1) == 2);
    let again = |status: &TrainingJobStatus| {
        let worker = status.worker_statuses.iter().find(|worker| worker.pod_name == "bert-workers-1");
        worker.is_some_and(|worker| worker.restart_count == 1)
            && status.workers.is_some_and(|workers| workers.active == 3)
    };
    plane.jobs.until("bert", "all run again", again).await;
    for rank in 0..3 {
        ends(&bench, rank, 0);
    }
    let status = plane.jobs.until_state("bert", State::Completed).await;
    let restarts = status.restarts.unwrap();
    assert_eq!((restarts.application, restarts.total()), (1, 1), "{restarts:?}");
    assert_eq!(status.attempts.len(), 1, "all in one attempt: {:#?}", status.attempts);
    assert_eq!([0, 1, 2].map(|rank| starts(&bench, rank)), [1, 2, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_decides_and_who_is_ignored_does_not() {
    let bench = Bench::new();
    let policies = "  successPolicy: Leader\n  failurePolicy: {rules: [{exitCodes: [3], action: Ignore}]}\n";
    let plane = start(&bench, 3, policies).await;
    ends(&bench, 1, 3);
    let is_ignored = |status: &TrainingJobStatus| {
        status.worker_statuses.iter().any(|worker| worker.worker_id == 1 && worker.ignored)
    };
    let status = plane.jobs.until("bert", "worker 1 is ignored", is_ignored).await;
    assert_eq!(status.state, Some(State::Running), "{status:#?}");
    ends(&bench, 0, 0);
    let status = plane.jobs.until_state("bert", State::Completed).await;
    assert_eq!(status.restarts.unwrap_or_default().total(), 0);
    let message = status.message.unwrap();
    assert_eq!(message, "Training job completed; 1 worker failed and was ignored");
    // Worker 2 was not asked.
    bench.nobody_is_left();
    assert_eq!([0, 1, 2].map(|rank| starts(&bench, rank)), [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_worker_is_enough() {
    let bench = Bench::new();
    let plane = start(&bench, 2, "  successPolicy: AnyWorker\n").await;
    ends(&bench, 1, 0);
    let status = plane.jobs.until_state("bert", State::Completed).await;
    bench.nobody_is_left();
    let names: BTreeSet<_> = status.worker_statuses.iter().map(|worker| worker.pod_name.as_str()).collect();
    assert!(names.contains("bert-workers-1"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_decides_before_the_limit_does() {
    let bench = Bench::new();
    let policies = "  backoffLimit: 0\n  failurePolicy:\n    rules:\n    - {exitCodes: [7], action: RestartWithoutCounting}\n    - {exitCodes: [9], action: Fail}\n";
    let plane = start(&bench, 2, policies).await;
    ends(&bench, 0, 7);
    until("all are started again", || (0..2).all(|rank| starts(&bench, rank) == 2));
    let status = plane.jobs.status("bert").await;
    assert_eq!(status.restarts.unwrap().application, 0, "{status:#?}");
    ends(&bench, 0, 9);
    let status = plane.jobs.until_state("bert", State::Failed).await;
    let message = status.message.unwrap();
    assert!(message.contains("exit code 9") && message.contains("a rule of failurePolicy"), "{message}");
    bench.nobody_is_left();
}

#[test]
fn roles_that_start_one_after_another_all_start() {
    let bench = Bench::new();
    let role = |name: &str, order: &str| {
        format!(
            "  - {{name: {name}, replicas: 2, order: {order}, command: [sh, -c, \"echo {name} >> order; test {name} = after || sleep 1000 # MARK\"]}}\n"
        )
    };
    let roles = role("before", "BeforeWorkers") + &role("after", "AfterWorkers");
    let script = "echo workers >> order; while test $(grep -c after order) -lt 2; do sleep 0.05; done # MARK";
    bench.write("job.yaml", &(job("bert", 2, script) + "  roles:\n" + &roles));
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    let order = std::fs::read_to_string(bench.path().join("order")).unwrap();
    // A pod has started when its program runs; what that does first comes whenever it does.
    let count = |name| order.lines().filter(|line| *line == name).count();
    assert_eq!(["before", "workers", "after"].map(count), [2, 2, 2], "{order}");
    bench.nobody_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_failed_for_good_can_still_be_read() {
    let bench = Bench::new();
    let plane = start(&bench, 2, "  backoffLimit: 0\n  checkpoint: {storage: {size: 1Mi}}\n").await;
    ends(&bench, 0, 3);
    plane.jobs.until_state("bert", State::Failed).await;
    bench.nobody_is_left();
    let pods: Api<Pod> = Api::namespaced(plane.client.clone(), "default");
    let training = LogParams { container: Some(names::CONTAINER.to_owned()), ..LogParams::default() };
    let log = pods.logs("bert-workers-0", &training).await.unwrap();
    assert!(log.contains(&bench.mark), "{log}");
}
