//! The simulator can fail: classic bugs of controllers, put in on purpose, are noticed.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{Cause, CleanPodPolicy, State, TrainingJobSpec, TrainingJobStatus, condition};
use trainyard_plan::{
    NewObject, NodeState, Plan, PodPhase, PodView, Settings, Snapshot, StatusWrite, Step, plan,
};
use trainyard_sim::scenario::{Disturbance, compare, disturbances, library, replay, spec, tell};
use trainyard_sim::{Make, Twist, World, history};

/// More histories than any of these bugs needs to be noticed.
const ENOUGH: u64 = 2000;

/// What the first history says that breaks a rule, and how the same history is told without the bug.
fn noticed(make: Make) -> Option<String> {
    std::panic::set_hook(Box::new(|_| {}));
    (1..ENOUGH).find_map(|seed| {
        let told = catch_unwind(|| drop(history::tell(seed, make, false))).err()?;
        let why = told.downcast_ref::<String>().cloned().unwrap_or_default();
        Some(format!("{why}\nhistory {seed}; without the bug: {}", history::replay(seed)))
    })
}

/// The bug is noticed, and for that reason.
fn assert_noticed(why: Option<String>, reason: &str) {
    let why = why.unwrap_or_else(|| format!("not noticed in histories 1 to {ENOUGH}"));
    println!("{why}");
    assert!(why.contains(reason), "wanted: {reason}; got: {why}");
}

/// The effects of a decision come before the decision is durable.
fn hasty(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    if plan.write == StatusWrite::BeforeSteps {
        plan.write = StatusWrite::Report;
    }
    plan
}

/// Whatever carries the label is ours.
fn adopting(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let uid = snapshot.uid().to_owned();
    for pod in &mut snapshot.pods {
        pod.owner = Some(uid.as_str().into());
    }
    plan(&snapshot, settings, now)
}

/// The attempt is the one that the pods are of.
fn forgetful(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let seen = snapshot.pods.iter().filter_map(|pod| pod.attempt).max().unwrap_or(0);
    let mut job = (*snapshot.job).clone();
    if let Some(status) = &mut job.status {
        status.attempts.retain(|attempt| attempt.number <= seen);
    }
    snapshot.job = Arc::new(job);
    plan(&snapshot, settings, now)
}

/// Whoever has only just started takes everything for changed, and restarts it.
fn restless(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let runs = snapshot.job.status.as_ref().is_some_and(|status| status.state == Some(State::Running));
    if runs && snapshot.last_status_write.is_none() {
        for pod in &mut snapshot.pods {
            pod.inputs = Some("something else".into());
        }
    }
    plan(&snapshot, settings, now)
}

/// Every failure counts twice.
fn doubling(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let counted = |status: Option<&TrainingJobStatus>| {
        status.and_then(|status| status.restarts).unwrap_or_default().application
    };
    let mut plan = plan(snapshot, settings, now);
    let before = counted(snapshot.job.status.as_ref());
    if let Some(restarts) = plan.status.restarts.as_mut()
        && restarts.application > before
    {
        restarts.application += 1;
    }
    plan
}

/// A failure is told as a change of the spec, and is not counted.
fn hiding(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    let before = snapshot.job.status.as_ref().and_then(|status| status.restarts).unwrap_or_default();
    if let (Some(last), Some(restarts)) = (plan.status.attempts.last_mut(), plan.status.restarts.as_mut())
        && last.cause == Some(Cause::Application)
        && restarts.application > before.application
    {
        last.cause = Some(Cause::Update);
        restarts.application -= 1;
        restarts.update += 1;
    }
    plan
}

/// One restart less than the job allows.
fn impatient(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let mut job = (*snapshot.job).clone();
    job.spec.backoff_limit = Some((job.spec.backoff_limit() - 1).max(0));
    snapshot.job = Arc::new(job);
    plan(&snapshot, settings, now)
}

/// The same failure twice is enough.
fn suspicious(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    plan(snapshot, &Settings { same_failures: 2, ..settings.clone() }, now)
}

/// A second on its node is too long for a pod.
fn pushy(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    plan(snapshot, &Settings { nudge_after: SignedDuration::from_secs(1), ..settings.clone() }, now)
}

/// Whoever was nudged and still does not run is nudged again, with every look.
fn nagging(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    for pod in &mut snapshot.pods {
        if pod.phase == PodPhase::Pending && pod.node.is_some() && pod.untouched_since.is_none() {
            pod.untouched_since = Some(Timestamp::UNIX_EPOCH);
        }
    }
    plan(&snapshot, settings, now)
}

/// Whoever was put on a node that is to go, because there is no other, has to leave again.
fn chasing(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    for pod in &mut snapshot.pods {
        pod.announced = None;
    }
    plan(&snapshot, settings, now)
}

/// The count of failures is kept in mind, and written with the next status. A process that has only just started has nothing in mind.
fn absent_minded(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    thread_local! {
        static OWED: Cell<i32> = const { Cell::new(0) };
    }
    if snapshot.last_status_write.is_none() {
        OWED.set(0);
    }
    let counted =
        |status: Option<&TrainingJobStatus>| status.and_then(|status| status.restarts).unwrap_or_default();
    let mut plan = plan(snapshot, settings, now);
    let before = counted(snapshot.job.status.as_ref());
    let new = counted(Some(&plan.status)).application - before.application;
    if new > 0 {
        OWED.set(OWED.get() + new);
        plan.status.restarts = Some(before);
    } else if OWED.get() > 0 && plan.status != TrainingJobStatus::default() {
        let restarts = plan.status.restarts.get_or_insert_default();
        restarts.application += OWED.take();
        plan.write = StatusWrite::BeforeSteps;
    }
    plan
}

/// The number of the last attempt is the one that the pods carry.
fn numbering(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let seen = snapshot.pods.iter().filter_map(|pod| pod.attempt).max();
    let mut job = (*snapshot.job).clone();
    let last = job.status.as_mut().and_then(|status| status.attempts.last_mut());
    if let Some((last, seen)) = last.zip(seen) {
        last.number = seen;
    }
    snapshot.job = Arc::new(job);
    plan(&snapshot, settings, now)
}

/// Whoever is stopped has as little time as what is left of a broken gang.
fn ruthless(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    for step in plan.stages.iter_mut().flatten() {
        if let Step::Delete { grace, .. } = step {
            grace.get_or_insert(settings.survivor_grace);
        }
    }
    plan
}

/// A node that nobody may look at is taken for dead.
fn presuming(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    for node in snapshot.nodes.iter_mut().filter(|node| node.state == NodeState::Hidden) {
        node.state = NodeState::Gone;
    }
    plan(&snapshot, settings, now)
}

/// Nobody on a dead node has any time.
fn forceful(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    plan(snapshot, &Settings { force_after: SignedDuration::from_secs(-5), ..settings.clone() }, now)
}

/// Half of the wait is enough.
fn hurried(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    plan(snapshot, &Settings { backoff_base: settings.backoff_base / 2, ..settings.clone() }, now)
}

/// Every wait is as long as the first.
fn steady(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    plan(snapshot, &Settings { backoff_max: settings.backoff_base, ..settings.clone() }, now)
}

/// Whoever is taken and ends badly has failed by itself.
fn blaming(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let failed = |pod: &PodView| pod.exit.as_ref().is_some_and(|exit| exit.code != 0);
    for pod in snapshot.pods.iter_mut().filter(|pod| failed(pod)) {
        (pod.disruption, pod.deleting) = (None, false);
    }
    plan(&snapshot, settings, now)
}

/// A job that does not say when it is to go goes after a day.
fn tidying(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let mut job = (*snapshot.job).clone();
    job.spec.ttl_seconds_after_finished.get_or_insert(86_400);
    snapshot.job = Arc::new(job);
    plan(&snapshot, settings, now)
}

/// Nodes that are avoided are told and not avoided.
fn careless(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    for step in plan.stages.iter_mut().flatten() {
        if let Step::Create(NewObject::Pod(pod)) = step
            && let Some(spec) = &mut pod.spec
        {
            spec.affinity = None;
        }
    }
    plan
}

/// The finalizer can always wait.
fn unprepared(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    for stage in &mut plan.stages {
        let is_finalizer = |step: &Step| matches!(step, Step::AddFinalizer);
        if stage.iter().any(is_finalizer) {
            stage.retain(|step| !is_finalizer(step));
            plan.chores.push(Step::AddFinalizer);
        }
    }
    plan
}

/// Pods that a job wants to keep are removed.
fn sweeping(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let mut job = (*snapshot.job).clone();
    job.spec.clean_pod_policy = Some(CleanPodPolicy::All);
    snapshot.job = Arc::new(job);
    plan(&snapshot, settings, now)
}

/// Who has ended has done it all.
fn boasting(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    if plan.status.is_terminal()
        && let Some(progress) = &mut plan.status.progress
    {
        "100%".clone_into(progress);
    }
    plan
}

/// What a job was once, it stays.
fn insisting(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    let ran = plan.status.conditions.iter_mut().find(|condition| condition.type_ == condition::RUNNING);
    if let Some(ran) = ran.filter(|_| plan.status.state == Some(State::Suspended)) {
        "True".clone_into(&mut ran.status);
    }
    plan
}

/// The time in which a job was held counts.
fn relentless(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    let before = snapshot.job.status.as_ref().and_then(|status| status.active_since.clone());
    if before.is_some() {
        plan.status.active_since = before;
    }
    plan
}

/// A job has ended when it began.
fn backdating(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    if plan.status.completion_time.is_some() {
        plan.status.completion_time = plan.status.start_time.clone();
    }
    plan
}

/// All restarts are one and the same occurrence.
fn terse(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    for notice in plan.notices.iter_mut().filter(|notice| notice.reason == "Restarting") {
        "again".clone_into(&mut notice.occurrence);
    }
    plan
}

/// Nobody counts the workers that are there.
fn uncounted(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    plan.status.replicas = Some(0);
    plan
}

/// Who is being started is looked at when something happens to it.
fn sleepy(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    if plan.status.state == Some(State::Initializing) {
        plan.wake_at = None;
    }
    plan
}

/// Everything is restarted, whatever its policy.
fn lenient(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut snapshot = snapshot.clone();
    let mut job = (*snapshot.job).clone();
    job.spec.restart_policy = None;
    snapshot.job = Arc::new(job);
    plan(&snapshot, settings, now)
}

/// Who is replaced alone is replaced for the first time, every time.
fn innocent(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = plan(snapshot, settings, now);
    for worker in plan.status.worker_statuses.iter_mut().filter(|worker| worker.failed_uid.is_some()) {
        worker.restart_count = 1;
    }
    plan
}

/// What goes wrong first in this scenario, undisturbed or disturbed in any way.
fn told(name: &str, make: Make) -> Option<String> {
    std::panic::set_hook(Box::new(|_| {}));
    let library = library();
    let scenario = library.iter().find(|scenario| scenario.name == name)?;
    // What the world does without the bug tells where there is something to disturb.
    let calm = tell(scenario, Disturbance::None, Make::default(), false);
    let all = std::iter::once(Disturbance::None).chain(disturbances(&calm));
    all.into_iter().find_map(|disturbance| compare(scenario, &calm, disturbance, make).err())
}

/// What the comparison of this scenario, disturbed in every way, finds first; and that no rule of a single step would have.
fn compared(name: &str, make: Make) -> Option<String> {
    std::panic::set_hook(Box::new(|_| {}));
    let library = library();
    let scenario = library.iter().find(|scenario| scenario.name == name)?;
    let calm = tell(scenario, Disturbance::None, make, false);
    disturbances(&calm).into_iter().enumerate().find_map(|(number, disturbance)| {
        let why = compare(scenario, &calm, disturbance, make).err()?;
        let why = format!("{why}\nwithout the bug: {}", replay(name, number));
        assert!(catch_unwind(|| drop(tell(scenario, disturbance, make, false))).is_ok(), "{why}");
        Some(why)
    })
}

#[test]
fn effects_before_their_decision_are_noticed() {
    let why = noticed(Make { planner: hasty, ..Make::default() });
    assert_noticed(why, "although the status says that its attempt goes on");
}

#[test]
fn a_stranger_that_is_adopted_by_its_label_is_noticed() {
    // What is not ours was not made as ours are.
    let why = noticed(Make { planner: adopting, ..Make::default() });
    assert_noticed(why, "is said to have ended with Update, which is not so");
}

#[test]
fn an_attempt_that_is_recomputed_from_pods_is_noticed() {
    let why = noticed(Make { planner: forgetful, ..Make::default() });
    assert_noticed(why.clone(), "had ended with");
    assert_noticed(why, "now it is None");
}

#[test]
fn a_failure_that_counts_twice_is_noticed() {
    let why = noticed(Make { planner: doubling, ..Make::default() });
    assert_noticed(why, "2 were counted, and it should be 1 to 1");
}

#[test]
fn a_failure_that_is_told_as_something_else_is_noticed() {
    let why = noticed(Make { planner: hiding, ..Make::default() });
    assert_noticed(why, "is said to have ended with Update");
}

#[test]
fn giving_up_too_early_is_noticed() {
    let why = noticed(Make { planner: impatient, ..Make::default() });
    assert_noticed(why, "are allowed");
}

#[test]
fn giving_up_for_too_little_is_noticed() {
    let why = told("the same failure twice", Make { planner: suspicious, ..Make::default() });
    assert_noticed(why, "given up because of SameFailure, which is not so");
}

#[test]
fn a_pod_that_is_nudged_too_early_is_noticed() {
    let why = noticed(Make { planner: pushy, ..Make::default() });
    assert_noticed(why, "is nudged, and on its node since");
}

#[test]
fn a_pod_that_is_nudged_again_and_again_is_noticed() {
    let why = told("a node makes nothing of a pod", Make { planner: nagging, ..Make::default() });
    assert_noticed(why, "is nudged again, which was known");
}

#[test]
fn who_is_chased_from_node_to_node_is_noticed() {
    let why = noticed(Make { planner: chasing, ..Make::default() });
    assert_noticed(why, "was disrupted, and nobody was taken");
}

#[test]
fn a_deletion_by_name_alone_is_noticed() {
    let twisted = Make { twist: Some(Twist::DeletesByName), ..Make::default() };
    assert_noticed(told("suspended, and a stranger has the name of a pod", twisted), "is not ours");
}

#[test]
fn a_write_for_a_job_that_was_made_anew_is_noticed() {
    // What it writes there tells other times, too.
    let forgiven = Some("; the clock was");
    let twisted = Make { twist: Some(Twist::WritesByName), forgiven, ..Make::default() };
    assert_noticed(told("another job had saved something", twisted), "a write for another job");
}

#[test]
fn planning_without_having_seen_ones_own_writes_is_noticed() {
    let twisted = Make { twist: Some(Twist::NoEcho), ..Make::default() };
    assert_noticed(told("create and complete", twisted), "was asked for");
}

#[test]
fn absence_that_is_believed_without_asking_is_noticed() {
    let why = noticed(Make { twist: Some(Twist::BelievesAbsence), ..Make::default() });
    assert_noticed(why, "was disrupted, and nobody was taken");
}

#[test]
fn a_count_that_is_written_apart_from_its_decision_is_noticed() {
    let why = told("fail, restart, complete", Make { planner: absent_minded, ..Make::default() });
    assert_noticed(why, "0 were counted, and it should be 1 to 1");
}

#[test]
fn an_attempt_that_is_numbered_by_its_pods_is_noticed() {
    let why = noticed(Make { planner: numbering, ..Make::default() });
    assert_noticed(why, "is forgotten");
}

/// How many failures are counted in the end of a story with one, if the operator dies after each of its calls in turn.
fn counted_after_crashes(make: Make) -> BTreeSet<i32> {
    let library = library();
    let scenario = library.iter().find(|scenario| scenario.name == "fail, restart, complete").unwrap();
    let calls = tell(scenario, Disturbance::None, Make::default(), false).calls();
    let counted = (0..calls).map(|call| {
        let world = tell(scenario, Disturbance::Crash(call), make, false);
        world.status("bert").and_then(|status| status.restarts).unwrap_or_default().application
    });
    counted.collect()
}

/// What the rule against effects before their decision is for: who dies in between has forgotten why the pods are gone.
#[test]
fn a_failure_that_is_not_durable_before_its_effects_is_lost_in_a_crash() {
    assert_eq!(counted_after_crashes(Make::default()), BTreeSet::from([1]));
    let forgiven = Some("although the status says that its attempt goes on");
    let lost = counted_after_crashes(Make { planner: hasty, forgiven, ..Make::default() });
    assert!(lost.contains(&0), "{lost:?}");
}

#[test]
fn a_restart_for_nothing_is_noticed() {
    let why = noticed(Make { planner: restless, ..Make::default() });
    assert_noticed(why, "is said to have ended with Update, which is not so");
}

#[test]
fn a_call_that_is_repeated_for_nothing_is_noticed() {
    let why = compared("create and complete", Make { twist: Some(Twist::Insists), ..Make::default() });
    assert_noticed(why, "was asked for");
}

#[test]
fn who_is_stopped_on_purpose_without_its_grace_is_noticed() {
    assert_noticed(noticed(Make { planner: ruthless, ..Make::default() }), "of its own");
}

#[test]
fn force_against_a_node_that_may_live_is_noticed() {
    let why = told("a dead node that nobody may look at", Make { planner: presuming, ..Make::default() });
    assert_noticed(why, "s to go");
    let why = noticed(Make { planner: presuming, ..Make::default() });
    assert!(why.is_some(), "not noticed in histories 1 to {ENOUGH}");
}

#[test]
fn force_before_its_time_is_noticed() {
    assert_noticed(told("node loss", Make { planner: forceful, ..Make::default() }), "removed by force");
}

#[test]
fn a_wait_that_is_too_short_is_noticed() {
    assert_noticed(noticed(Make { planner: hurried, ..Make::default() }), "waits until");
    assert_noticed(
        told("one by one, one fails twice", Make { planner: steady, ..Make::default() }),
        "number 2 in a row",
    );
    assert_noticed(
        told("the same failure twice", Make { planner: steady, ..Make::default() }),
        "number 2 in a row",
    );
}

#[test]
fn a_drain_that_is_told_as_a_failure_is_noticed() {
    let blaming = Make { planner: blaming, ..Make::default() };
    assert_noticed(told("evicted by its kubelet", blaming), "ended with Application, which is not so");
    assert_noticed(told("drained, and the program fails", blaming), "and it should be");
    assert_noticed(
        told("one by one, one is drained and fails", blaming),
        "1 were counted, and it should be 0 to 0",
    );
}

#[test]
fn a_job_that_is_deleted_without_having_asked_for_it_is_noticed() {
    assert_noticed(noticed(Make { planner: tidying, ..Make::default() }), "was deleted; it ended at");
}

#[test]
fn a_node_that_is_not_avoided_is_noticed() {
    assert_noticed(noticed(Make { planner: careless, ..Make::default() }), "which is avoided");
}

#[test]
fn pods_that_should_have_stayed_are_noticed() {
    assert_noticed(
        told("pods stay", Make { planner: sweeping, ..Make::default() }),
        "cleanPodPolicy is None",
    );
}

#[test]
fn a_status_that_tells_too_much_is_noticed() {
    assert_noticed(noticed(Make { planner: boasting, ..Make::default() }), "100% is told in Some(Failed)");
    assert_noticed(
        noticed(Make { planner: insisting, ..Make::default() }),
        "condition Running holds in state",
    );
    assert_noticed(noticed(Make { planner: relentless, ..Make::default() }), "it was active since");
}

/// A job whose claim is to go with it is deleted after each of the first calls in turn.
fn deleted_at_once(make: Make) -> Option<String> {
    std::panic::set_hook(Box::new(|_| {}));
    (0..8).find_map(|calls| {
        let told = catch_unwind(|| {
            let mut world = World::new(make, false);
            let checkpoint = serde_json::from_str(r#"{"deleteOnCompletion": true}"#).ok();
            world.submit("bert", TrainingJobSpec { checkpoint, ..spec() });
            world.stop_after(calls);
            world.delete_job("bert");
            world.run_out();
        });
        told.err()?.downcast_ref::<String>().cloned()
    })
}

#[test]
fn a_claim_that_comes_before_the_finalizer_is_noticed() {
    assert_eq!(deleted_at_once(Make::default()), None);
    let why = deleted_at_once(Make { planner: unprepared, ..Make::default() });
    assert_noticed(why, "the job is gone, and its claim bert-checkpoints is not");
}

#[test]
fn an_end_that_is_told_with_another_time_is_noticed() {
    assert_noticed(noticed(Make { planner: backdating, ..Make::default() }), "it ended at");
}

#[test]
fn a_restart_that_nobody_is_told_of_is_noticed() {
    assert_noticed(noticed(Make { planner: terse, ..Make::default() }), "nobody was told");
}

#[test]
fn a_status_that_does_not_tell_what_is_there_is_noticed() {
    assert_noticed(noticed(Make { planner: uncounted, ..Make::default() }), "replicas are told");
}

#[test]
fn a_deadline_that_nobody_wakes_for_is_noticed() {
    let why = noticed(Make { planner: sleepy, ..Make::default() });
    // A look in between would have noticed, too.
    assert_noticed(why, "is being started for longer than its startupTimeoutSeconds");
}

#[test]
fn a_restart_against_the_policy_is_noticed() {
    assert_noticed(noticed(Make { planner: lenient, ..Make::default() }), "restartPolicy");
}

#[test]
fn a_replacement_that_is_not_counted_is_noticed() {
    assert_noticed(noticed(Make { planner: innocent, ..Make::default() }), "that is told as 1");
}
