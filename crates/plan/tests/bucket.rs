//! Checkpoints in a bucket: what the plan does about what is on its way there, and about what cannot be read.

mod support;

use serde_json::json;
use support::{Cluster, job};
use trainyard_api::{AgentReport, Cause, CheckpointStatus, State};
use trainyard_plan::{Company, NewObject, Tail};

const PLACE: &str = "s3://models/runs/ml/bert";

fn submitted() -> Cluster {
    let storage = json!({"storage": {"type": "s3", "path": "s3://models/runs"}});
    let checkpoint = serde_json::from_value(storage).expect("a checkpoint");
    let mut cluster =
        job("bert").workers(2).with(|spec| spec.checkpoint = Some(Box::new(checkpoint))).submitted().prompt();
    cluster.settings.agent_image = Some("trainyard:1".into());
    cluster.settle();
    cluster
}

fn running() -> Cluster {
    let mut cluster = submitted();
    cluster.run_all();
    cluster.settle();
    assert_eq!(cluster.state(), State::Running);
    cluster
}

fn saved(name: &str, epoch: i64) -> AgentReport {
    AgentReport {
        checkpoint: Some(CheckpointStatus {
            path: format!("{PLACE}/{name}"),
            epoch: Some(epoch),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// What the newest pod of that name was told: its variables, and the words of our container in it.
fn told(cluster: &Cluster, name: &str) -> (Option<String>, Option<String>) {
    let pods = cluster.created.iter().rev().filter_map(|object| match object {
        NewObject::Pod(pod) => Some(pod),
        _ => None,
    });
    let pod = pods.into_iter().find(|pod| pod.metadata.name.as_deref() == Some(name)).expect("a pod");
    let spec = pod.spec.as_ref().expect("a spec");
    let mut variables = spec.containers[0].env.iter().flatten();
    let resume = variables.find(|variable| variable.name == "RESUME_FROM_CHECKPOINT");
    let mut ours = spec.init_containers.iter().flatten();
    let words =
        ours.next().map(|container| container.args.iter().flatten().cloned().collect::<Vec<_>>().join(" "));
    (resume.and_then(|variable| variable.value.clone()), words)
}

#[test]
fn all_go_on_from_the_same_one_and_each_has_it_in_its_own_directory() {
    let mut bert = running();
    assert!(bert.claims().is_empty(), "a bucket needs no claim");
    assert_eq!(told(&bert, "bert-workers-1"), (None, None), "there is nothing to fetch");
    let effective = bert.status().effective.as_ref().and_then(|effective| effective.checkpoint.clone());
    assert_eq!(effective.and_then(|checkpoint| checkpoint.url).as_deref(), Some(PLACE));

    bert.agent = Some(saved("epoch-2.pt", 2));
    bert.settle();
    bert.fail("workers-1", 1);
    bert.settle();
    for name in ["bert-workers-0", "bert-workers-1"] {
        let (resume, words) = told(&bert, name);
        assert_eq!(resume.as_deref(), Some("/checkpoints/epoch-2.pt"));
        let words = words.expect("a container of ours");
        assert!(words.contains(&format!("--resumed-from={PLACE}/epoch-2.pt")), "{words}");
        assert!(words.contains(&format!("--mirror={PLACE}")), "{words}");
        assert_eq!(words.contains("--fetch"), name == "bert-workers-1", "{words}");
        assert_eq!(words.contains("--restore"), name == "bert-workers-0", "{words}");
    }
}

#[test]
fn a_job_that_is_created_again_goes_on_from_what_is_in_the_bucket() {
    let mut bert = submitted();
    bert.run("workers-1");
    bert.agent = Some(AgentReport { resume_differs: true, ..saved("epoch-9.pt", 9) });
    bert.settle();
    assert_eq!(bert.causes(), [Cause::Resume]);
    assert_eq!(told(&bert, "bert-workers-1").0.as_deref(), Some("/checkpoints/epoch-9.pt"));
    assert_eq!(bert.restarts(), (0, 0, 0, 0), "nothing had begun");
}

#[test]
fn what_cannot_be_read_is_told_and_not_forgotten() {
    let mut bert = running();
    bert.agent = Some(saved("epoch-2.pt", 2));
    bert.settle();
    bert.fail("workers-0", 1);
    bert.settle();
    let problem = "the credentials for s3://models/runs/ml/bert were refused";
    bert.agent =
        Some(AgentReport { unread: true, problem: Some(problem.to_owned()), ..AgentReport::default() });
    bert.run("workers-1");
    bert.settle();
    assert_eq!(bert.condition("CheckpointProblem"), ("True", "Storage", problem));
    assert_eq!(bert.state(), State::Initializing);
    assert!(bert.message().contains(problem), "{}", bert.message());
    assert_eq!(bert.status().checkpoint, saved("epoch-2.pt", 2).checkpoint, "it may still be there");
    // And when it can be read, the job goes on without anybody's doing.
    bert.agent = Some(saved("epoch-2.pt", 2));
    bert.run("workers-0");
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    assert_eq!(bert.condition("CheckpointProblem").0, "False");
    assert_eq!(bert.causes(), [Cause::Application]);
}

#[test]
fn who_waits_for_a_leader_that_the_storage_holds_back_is_not_to_blame() {
    let mut bert = running();
    bert.agent = Some(saved("epoch-2.pt", 2));
    bert.settle();
    bert.suspend();
    bert.settle();
    bert.resume();
    let problem = "the credentials for s3://models/runs/ml/bert were refused";
    for failure in 1..=4 {
        bert.agent =
            Some(AgentReport { unread: true, problem: Some(problem.to_owned()), ..AgentReport::default() });
        bert.settle();
        if bert.pods().is_empty() {
            assert!(failure > 2, "the first is followed at once, the others wait");
            bert.sleep();
        }
        bert.run("workers-1");
        bert.settle();
        bert.fail("workers-1", 1);
        let pod = bert.pod("workers-1").uid.clone();
        bert.tails.push(Tail { pod, text: Some("RuntimeError: rendezvous timed out".into()) });
        bert.settle();
        assert_eq!(bert.restarts(), (0, failure, 0, 0), "{}", bert.message());
        assert_eq!(bert.status().avoided_nodes, Vec::<String>::new());
        assert!(bert.event("WorkerDisrupted").contains(problem), "{}", bert.event("WorkerDisrupted"));
    }
    assert_eq!(bert.count("WorkerFailed"), 0);
    // What the leader does once it has started is its own doing.
    bert.agent = Some(saved("epoch-2.pt", 2));
    bert.settle();
    bert.sleep();
    bert.run_all();
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    bert.fail("workers-1", 1);
    bert.settle();
    assert_eq!(bert.restarts().0, 1);
}

#[test]
fn a_job_is_done_when_its_last_checkpoint_has_arrived() {
    let mut bert = running();
    bert.succeed_all();
    bert.change_pod("workers-0", |pod| pod.lingers = Some(Company::Sidecars));
    bert.settle();
    assert_eq!(bert.state(), State::Running);
    assert!(bert.message().contains("is being copied to the bucket"), "{}", bert.message());
    assert_eq!(bert.pods(), ["workers-0", "workers-1"], "nobody disturbs the copy");
    bert.agent = Some(saved("epoch-10.pt", 10));
    bert.change_pod("workers-0", |pod| pod.lingers = None);
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
    assert_eq!(bert.status().checkpoint, saved("epoch-10.pt", 10).checkpoint);
}

#[test]
fn a_job_whose_last_checkpoint_was_lost_says_so_at_the_end() {
    let mut bert = running();
    bert.succeed_all();
    bert.change_pod("workers-0", |pod| pod.lingers = Some(Company::Sidecars));
    bert.agent = Some(AgentReport { unsent: Some("epoch-10.pt".into()), ..saved("epoch-9.pt", 9) });
    bert.settle();
    bert.change_pod("workers-0", |pod| pod.lingers = None);
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
    let lost = "checkpoint epoch-10.pt did not arrive in s3://";
    let message = bert.message();
    assert!(
        message.starts_with("Training job completed successfully, but ") && message.contains(lost),
        "{message}"
    );
    assert!(bert.event("CheckpointProblem").starts_with(lost), "{}", bert.event("CheckpointProblem"));
    let (status, reason, message) = bert.condition("CheckpointProblem");
    assert!((status, reason) == ("True", "Lost") && message.starts_with(lost), "{message}");
}

#[test]
fn what_is_saved_in_the_time_that_is_left_is_where_the_attempt_got_to() {
    let mut bert = running();
    bert.agent = Some(saved("epoch-6.pt", 6));
    bert.settle();
    bert.pods_linger();
    bert.edit(|spec| spec.suspend = Some(true));
    bert.settle();
    bert.agent = Some(saved("epoch-7.pt", 7));
    bert.settle();
    bert.release();
    bert.edit(|spec| spec.suspend = Some(false));
    bert.settle();
    let reached = bert.attempts()[0].reached.as_ref().and_then(|reached| reached.epoch);
    assert_eq!((bert.causes()[0], reached), (Cause::Suspend, Some(7)));
}

#[test]
fn a_leader_that_is_lost_before_its_last_checkpoint_has_arrived_is_not_done() {
    let mut bert = running();
    bert.agent = Some(saved("epoch-8.pt", 8));
    bert.succeed_all();
    bert.change_pod("workers-0", |pod| pod.lingers = Some(Company::Sidecars));
    bert.settle();
    bert.operator_restarts();
    bert.remove_pod("workers-0");
    bert.settle();
    assert_eq!((bert.state(), bert.causes()), (State::Initializing, vec![Cause::Disruption]));
    let resumed = bert.attempts().last().unwrap().resumed_from.clone();
    assert_eq!(
        resumed.map(|from| *from),
        saved("epoch-8.pt", 8).checkpoint,
        "what was after it is done again"
    );
}

#[test]
fn a_copy_that_is_under_way_gets_time_when_a_collective_breaks() {
    let mut bert = running();
    bert.agent = Some(AgentReport { writing: true, ..saved("epoch-2.pt", 2) });
    bert.fail("workers-1", 1);
    bert.settle();
    assert_eq!(bert.graces, [Some(30), Some(2)]);

    let mut bert = running();
    bert.agent = Some(saved("epoch-2.pt", 2));
    bert.fail("workers-1", 1);
    bert.settle();
    assert_eq!(bert.graces, [Some(2), Some(2)], "there is nothing to wait for");

    // The leading program is gone, and its agent may be about to copy what was saved last.
    let mut bert = running();
    bert.fail("workers-0", 1);
    bert.change_pod("workers-0", |pod| pod.lingers = Some(Company::Sidecars));
    bert.settle();
    assert_eq!(bert.graces, [Some(30), Some(2)]);
}

#[test]
fn a_bucket_without_an_agent_is_told() {
    let mut bert = submitted();
    bert.settings.agent_image = None;
    bert.run_all();
    bert.settle();
    let (status, reason, message) = bert.condition("CheckpointProblem");
    assert_eq!((status, reason), ("True", "NoAgent"));
    assert!(message.contains("--agent-image"), "{message}");
    assert_eq!(bert.state(), State::Running, "training goes on");
}
