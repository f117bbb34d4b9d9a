//! Nothing is lost: a real training that is killed again and again, at random moments, ends as one that nobody disturbed, bit for
//! bit.

use trainyard_api::{Cause, State};

use crate::common::example::Example;
use crate::common::moments::Moments;
use crate::common::training::Work;
use crate::plane::Plane;
use crate::support::{Bench, kill, until};
use crate::training::{RUN, Training, calm};

/// A kill comes when three more were saved at the latest, a killed agent has one more to find, and something must be left for the last
/// one.
const EPOCHS: i64 = 18;

/// Whom `kill -9` meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Worker,
    Leader,
    Agent,
    /// The operator, the API server and the node, which are one process here.
    Machine,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_that_is_killed_again_and_again_ends_as_one_that_nobody_disturbed() {
    survives(Example::DIGITS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_with_pytorch() {
    let Some(example) = Example::ddp() else { return };
    survives(example).await;
}

#[test]
fn a_run_that_is_killed_goes_on_when_it_is_started_again() {
    let example = Example::DIGITS;
    let work = Work::short(example, 8);
    let (expected, _) = calm(example, work);

    let bench = Bench::new();
    let training = Training::in_a_file(&bench, example, work);
    let run = bench.start(&RUN);
    training.further();
    training.further();
    run.signal("-9");
    run.wait();
    bench.nobody_is_left();
    let saved = training.saved();
    // Another program would have left one that is cut off.
    let whole = training.checkpoints.directory.join(format!("checkpoint-epoch-{}.json", saved.epoch));
    let cut = training.checkpoints.directory.join("checkpoint-epoch-7.json");
    std::fs::write(&cut, &std::fs::read(whole).unwrap()[..100]).unwrap();

    let ended = bench.run(&RUN);
    assert_eq!(ended.code, Some(0), "{ended}");
    let moved = "moved to .trainyard/quarantine beside the checkpoints: checkpoint-epoch-7.json (it ends in the middle)";
    assert!(ended.stdout.contains(moved), "{ended}");
    let resumed = ended.stdout.lines().find(|line| line.contains("Resuming: checkpoint")).unwrap();
    let from = resumed.split_whitespace().find_map(|word| example.at(word)).unwrap();
    assert_eq!(from, saved, "{ended}");
    assert!(training.checkpoints.last() == expected, "the weights differ from those of the undisturbed run");
}

async fn survives(example: Example) {
    let work = Work::short(example, EPOCHS);
    let (expected, epoch) = calm(example, work);
    let longest = epoch.mul_f64(1.5);

    let bench = Bench::new();
    let mut plane = Plane::start(&bench).await;
    let training = Training::start(&bench, &plane.jobs, example, work).await;
    let mut moments = Moments::new();
    let mut victims = [Victim::Worker, Victim::Leader, Victim::Agent, Victim::Machine];
    moments.0.shuffle(&mut victims);
    for victim in victims {
        let attempt = training.attempt(&plane.jobs).await;
        let saved = training.moment(&mut moments, longest).await;
        println!("{victim:?} is killed in attempt {attempt}, with {saved:?}");
        plane = training.strike(victim, plane, attempt).await;
        if victim != Victim::Agent {
            training.goes_on_from(&plane.jobs, attempt, saved).await;
        }
    }

    let status = plane.jobs.until_state(training.job, State::Completed).await;
    let restarts = status.restarts.unwrap();
    assert_eq!((restarts.application, restarts.disruption, restarts.total()), (2, 1, 3), "{restarts:?}");
    assert!(training.checkpoints.last() == expected, "the weights differ from those of the undisturbed run");
    assert!(std::fs::read_dir(&training.checkpoints.directory).unwrap().count() <= 6, "old ones are removed");
}

impl Training<'_> {
    /// Kills somebody in this attempt, and sees that it was noticed for what it was.
    async fn strike(&self, victim: Victim, mut plane: Plane, attempt: i32) -> Plane {
        let worker = |rank: i32| format!("{}-workers-{rank}", self.job);
        let (cause, pod) = match victim {
            Victim::Agent => {
                let agent = self.bench.agent(attempt).unwrap();
                kill(agent);
                // What is saved meanwhile is for the next one, which comes by itself; nobody else is disturbed.
                self.further();
                let held = self.hold(attempt);
                until("a new agent in the same attempt", || {
                    self.bench.agent(attempt).is_some_and(|now| now != agent)
                });
                let status = plane.jobs.status(self.job).await;
                assert_eq!(status.attempts.last().unwrap().number, attempt, "{status:#?}");
                drop(held);
                return plane;
            }
            Victim::Worker | Victim::Leader => {
                let rank = i32::from(victim == Victim::Worker);
                kill(self.program(rank, attempt).expect("the program that is to be killed runs"));
                (Cause::Application, Some(worker(rank)))
            }
            Victim::Machine => {
                plane.kill();
                self.bench.nobody_is_left();
                plane = Plane::start(self.bench).await;
                (Cause::Disruption, None)
            }
        };
        let ended = self.end_of(&plane.jobs, attempt).await;
        assert_eq!((ended.cause, ended.exit_code), (Some(cause), Some(137)), "{ended:#?}");
        assert!(pod.is_none() || pod == ended.pod_name, "{ended:#?}");
        plane
    }
}
