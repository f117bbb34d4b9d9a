//! Limits of time: each is enforced by a wake-up, exactly on time.
//! (`Cluster::sleep` checks that nothing happens a nanosecond before.)

mod support;

use support::{Cluster, job, role};
use trainyard_api::{Cause, Role, RoleOrder, State};

fn started(change: impl FnOnce(&mut trainyard_api::TrainingJobSpec)) -> Cluster {
    let mut cluster = job("bert").workers(2).with(change).submitted().prompt();
    cluster.settle();
    cluster
}

fn running(change: impl FnOnce(&mut trainyard_api::TrainingJobSpec)) -> Cluster {
    let mut cluster = started(change);
    cluster.run_all();
    cluster.settle();
    cluster
}

#[test]
fn the_active_deadline() {
    let mut bert = running(|spec| spec.active_deadline_seconds = Some(3600));
    assert_eq!(bert.wakes_in(), Some(3600));
    bert.sleep();
    assert_eq!((bert.state(), bert.causes()), (State::Failed, vec![Cause::Deadline]));
    assert_eq!((bert.condition("Failed").0, bert.condition("Failed").1), ("True", "DeadlineExceeded"));
    assert!(bert.message().contains("activeDeadlineSeconds (3600 s)"), "{}", bert.message());
    assert_eq!(bert.pods(), Vec::<String>::new());
    assert_eq!((bert.count("TrainingFailed"), bert.restarts()), (1, (0, 0, 0, 0)));
    assert_eq!(bert.status().duration.as_deref(), Some("1h 0m"));
}

#[test]
fn the_active_deadline_counts_over_restarts_and_in_the_backoff() {
    let mut bert = running(|spec| spec.active_deadline_seconds = Some(5));
    bert.pass(3);
    bert.fail("workers-0", 1);
    bert.settle();
    assert_eq!((bert.state(), bert.wakes_in()), (State::Restarting, Some(2)), "sooner than the backoff ends");
    bert.sleep();
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "DeadlineExceeded"));
    assert_eq!(bert.causes(), [Cause::Application], "that attempt had ended before");
}

#[test]
fn suspended_time_does_not_count() {
    let mut bert = running(|spec| spec.active_deadline_seconds = Some(100));
    bert.pass(90);
    bert.suspend();
    bert.settle();
    bert.pass(1000);
    assert_eq!(bert.state(), State::Suspended);
    bert.resume();
    bert.settle();
    assert_eq!((bert.state(), bert.wakes_in()), (State::Initializing, Some(100)), "counted from the resume");
    assert_eq!(bert.status().active_since.as_ref().unwrap().0, bert.now);
    bert.run_all();
    bert.settle();
    bert.sleep();
    assert_eq!(bert.state(), State::Failed);
}

#[test]
fn neither_does_the_time_in_which_the_spec_was_invalid() {
    let mut bert = running(|spec| spec.active_deadline_seconds = Some(100));
    bert.edit(|spec| spec.command = Some(Vec::new()));
    bert.settle();
    assert_eq!(bert.state(), State::Failed);
    bert.pass(1000);
    bert.edit(|spec| spec.command = None);
    bert.settle();
    assert_eq!((bert.state(), bert.wakes_in()), (State::Initializing, Some(100)));
}

#[test]
fn a_deadline_that_is_set_or_moved_later_holds_at_once() {
    let mut bert = running(|_| {});
    assert_eq!(bert.wake_at(), None);
    bert.pass(50);
    bert.edit(|spec| spec.active_deadline_seconds = Some(80));
    bert.settle();
    assert_eq!((bert.state(), bert.wakes_in()), (State::Running, Some(30)));
    bert.edit(|spec| spec.active_deadline_seconds = Some(200));
    bert.settle();
    assert_eq!(bert.wakes_in(), Some(150));
    bert.edit(|spec| spec.active_deadline_seconds = Some(10));
    bert.settle();
    assert_eq!(bert.state(), State::Failed, "it has passed already");
}

#[test]
fn a_job_that_is_done_at_its_deadline_is_done() {
    let mut bert = running(|spec| spec.active_deadline_seconds = Some(60));
    bert.succeed_all();
    bert.now = bert.wake_at().unwrap();
    bert.settle();
    assert_eq!(bert.state(), State::Completed);
}

#[test]
fn the_startup_timeout() {
    let mut bert = started(|spec| spec.startup_timeout_seconds = Some(300));
    bert.run("workers-0");
    bert.waits("workers-1", "ImagePullBackOff", "Back-off pulling image \"my/trainer:1\"");
    bert.settle();
    bert.pass(10);
    assert_eq!(bert.wakes_in(), Some(290));
    bert.sleep();
    assert_eq!((bert.state(), bert.causes()), (State::Failed, vec![Cause::StartupTimeout]));
    let (_, reason, message) = bert.condition("Failed");
    assert_eq!(reason, "StartupTimeout");
    assert!(message.contains("startupTimeoutSeconds (300 s)"), "{message}");
    assert!(message.contains("bert-workers-1: ImagePullBackOff: Back-off pulling image"), "{message}");
}

#[test]
fn the_startup_timeout_is_over_once_all_run_and_begins_anew_with_each_attempt() {
    let mut bert = running(|spec| spec.startup_timeout_seconds = Some(300));
    assert_eq!(bert.wake_at(), None);
    bert.pass(1000);
    bert.fail("workers-0", 1);
    bert.settle();
    bert.sleep();
    assert_eq!(
        (bert.state(), bert.wakes_in()),
        (State::Initializing, Some(300)),
        "from the start of this attempt"
    );
    bert.sleep();
    assert_eq!(bert.state(), State::Failed);
}

#[test]
fn waiting_for_a_quota_is_not_starting_up() {
    let mut bert = started(|spec| spec.startup_timeout_seconds = Some(300));
    bert.run_all();
    bert.settle();
    bert.quota(Some(1));
    bert.fail("workers-0", 1);
    bert.settle();
    for _ in 0..60 {
        bert.sleep();
    }
    assert_eq!(bert.condition("ResourcesCreated").1, "QuotaExceeded");
    assert_eq!(bert.state(), State::Restarting, "half an hour later it still waits");
    bert.quota(None);
    bert.sleep();
    assert_eq!((bert.state(), bert.wakes_in()), (State::Initializing, Some(300)));
    bert.sleep();
    assert_eq!(bert.state(), State::Failed, "the pods are there and do not start");
}

#[test]
fn who_is_let_in_while_others_wait_for_it_has_to_start_up() {
    let before = Role { order: Some(RoleOrder::BeforeWorkers), ..role("store", 1) };
    let with = |spec: &mut trainyard_api::TrainingJobSpec| spec.startup_timeout_seconds = Some(300);
    let mut bert = job("bert").workers(1).role(before).with(with).submitted().prompt();
    bert.quota(Some(0));
    bert.settle();
    for _ in 0..60 {
        bert.sleep();
    }
    assert_eq!(bert.condition("ResourcesCreated").1, "QuotaExceeded");
    bert.quota(None);
    bert.sleep();
    assert_eq!((bert.pods(), bert.wakes_in()), (vec!["store-0".to_owned()], Some(300)));
    bert.sleep();
    assert_eq!((bert.state(), bert.condition("Failed").1), (State::Failed, "StartupTimeout"));
}

#[test]
fn the_time_to_live_after_the_end() {
    for failed in [false, true] {
        let mut bert = running(|spec| {
            spec.ttl_seconds_after_finished = Some(600);
            spec.backoff_limit = Some(0);
        });
        assert_eq!(bert.wake_at(), None, "only the end starts it");
        if failed {
            bert.fail("workers-0", 1);
        } else {
            bert.succeed_all();
        }
        bert.settle();
        assert_eq!(bert.wakes_in(), Some(600));
        bert.sleep();
        assert!(!bert.exists());
        assert_eq!((bert.pods().len(), bert.services().len(), bert.config_maps().len()), (0, 0, 0));
    }
}

#[test]
fn a_time_to_live_of_zero_is_at_once() {
    let mut bert = running(|spec| spec.ttl_seconds_after_finished = Some(0));
    bert.succeed_all();
    bert.settle();
    assert!(!bert.exists());
    assert_eq!(bert.count("TrainingCompleted"), 1);
}

#[test]
fn a_time_to_live_may_be_given_to_a_finished_job() {
    let mut bert = running(|_| {});
    bert.succeed_all();
    bert.settle();
    bert.pass(100);
    bert.edit(|spec| spec.ttl_seconds_after_finished = Some(130));
    bert.settle();
    assert_eq!(bert.wakes_in(), Some(30));
    bert.sleep();
    assert!(!bert.exists());
}

#[test]
fn an_invalid_job_has_a_time_to_live_too() {
    let mut bert = started(|spec| {
        spec.command = Some(Vec::new());
        spec.ttl_seconds_after_finished = Some(60);
    });
    assert_eq!((bert.state(), bert.wakes_in()), (State::Failed, Some(60)));
    bert.sleep();
    assert!(!bert.exists());

    // Nonsense deletes nothing.
    let bert = started(|spec| spec.ttl_seconds_after_finished = Some(-5));
    assert_eq!((bert.exists(), bert.state(), bert.wake_at()), (true, State::Failed, None));
}

#[test]
fn all_limits_together_and_the_earliest_wakes() {
    let mut bert = started(|spec| {
        spec.active_deadline_seconds = Some(1000);
        spec.startup_timeout_seconds = Some(50);
        spec.ttl_seconds_after_finished = Some(7);
    });
    assert_eq!(bert.wakes_in(), Some(50));
    bert.run_all();
    bert.settle();
    assert_eq!(bert.wakes_in(), Some(1000));
    bert.fail("workers-0", 1);
    bert.settle();
    assert!((10..=12).contains(&bert.wakes_in().unwrap()), "the backoff");
    bert.sleep();
    assert_eq!(bert.wakes_in(), Some(50));
    bert.pass(2000);
    assert!(!bert.exists(), "start-up failed, and seven seconds later it is gone");
}

#[test]
fn absurd_limits_and_times_do_no_harm() {
    use jiff::Timestamp;
    let mut bert = running(|_| {});
    bert.succeed_all();
    bert.settle();
    bert.edit(|spec| spec.ttl_seconds_after_finished = Some(i64::MAX));
    bert.settle();
    assert_eq!((bert.exists(), bert.state()), (true, State::Completed));
    bert.now = Timestamp::MAX;
    bert.settle();
    bert.delete_job();
    bert.settle();
    assert!(!bert.exists());
}
