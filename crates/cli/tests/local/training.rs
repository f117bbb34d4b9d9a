//! An example that trains on a control plane of this machine, seen through its job, its processes and its checkpoints.

#![expect(unreachable_pub, reason = "a test program exports nothing")]

use std::time::Duration;

use trainyard_api::{Attempt, Cause, TrainingJobStatus};

use crate::common::example::{Example, Saved};
use crate::common::moments::Moments;
use crate::common::training::{Checkpoints, Work};
use crate::plane::Jobs;
use crate::support::{Bench, Held, until};

const NAME: &str = "digits";

pub struct Training<'b> {
    pub bench: &'b Bench,
    pub job: &'static str,
    pub checkpoints: Checkpoints,
}

/// The job. Its programs are below the working directory.
fn manifest(bench: &Bench, example: Example, work: Work) -> String {
    let (python, program, mark) = (example.python, example.program(), &bench.mark);
    let place = format!(
        "  image: none\n  command: [{python}, {program}, --model, {mark}]\n  \
         checkpoint: {{keepLast: 2, storage: {{size: 16Mi}}}}\n"
    );
    work.manifest(NAME, example, &place)
}

/// A run that nobody disturbs: what it comes to, and how long its last epoch took.
pub fn calm(example: Example, work: Work) -> (Vec<u8>, Duration) {
    let bench = Bench::new();
    let training = Training::in_a_file(&bench, example, work);
    let ended = bench.run(&RUN);
    assert_eq!(ended.code, Some(0), "{ended}");
    (training.checkpoints.last(), training.checkpoints.took())
}

/// Runs the job that is in a file.
pub const RUN: [&str; 4] = ["run", "job.yaml", "--state", "state"];

fn under_way(status: &TrainingJobStatus) -> Option<&Attempt> {
    status.attempts.last().filter(|attempt| attempt.is_open())
}

impl<'b> Training<'b> {
    fn new(bench: &'b Bench, example: Example, work: Work) -> Self {
        bench.copy(example);
        let directory = bench.path().join(format!("state/node/claims/default/{NAME}-checkpoints"));
        Self { bench, job: NAME, checkpoints: Checkpoints { directory, example, work } }
    }

    /// One that a control plane is told of.
    pub async fn start(bench: &'b Bench, jobs: &Jobs, example: Example, work: Work) -> Self {
        let training = Self::new(bench, example, work);
        jobs.create(&manifest(bench, example, work)).await;
        training
    }

    /// One that waits in a file for [`RUN`].
    pub fn in_a_file(bench: &'b Bench, example: Example, work: Work) -> Self {
        bench.write("job.yaml", &manifest(bench, example, work));
        Self::new(bench, example, work)
    }

    /// The newest that is saved as a whole.
    pub fn saved(&self) -> Saved {
        self.checkpoints.newest()
    }

    /// The program of a worker in that attempt, if it runs.
    pub fn program(&self, rank: i32, attempt: i32) -> Option<i32> {
        self.bench.program(&[&format!("RANK={rank}"), &format!("TRAINYARD_ATTEMPT={attempt}")])
    }

    /// Holds the leading program, and so all of them, which wait for each other in every step. While a test waits for something that takes
    /// its time, a training that goes on would do more or less of what is left for later, by the pace of the machine.
    pub fn hold(&self, attempt: i32) -> Held {
        Held::new(self.program(0, attempt).expect("the program that is to be held runs"))
    }

    /// The number of the attempt that is under way, as soon as all programs run. The leading one only does when its agent has found
    /// that it was told of the right checkpoint, so this attempt does not end for another reason.
    pub async fn attempt(&self, jobs: &Jobs) -> i32 {
        let runs = |status: &TrainingJobStatus| {
            let (Some(effective), Some(attempt)) = (&status.effective, under_way(status)) else {
                return false;
            };
            (0..effective.num_workers).all(|rank| self.program(rank, attempt.number).is_some())
        };
        let status = jobs.until(self.job, "an attempt runs", runs).await;
        under_way(&status).unwrap().number
    }

    /// The number of the attempt that is under way, when it has told of its first progress.
    pub async fn first_progress(&self, jobs: &Jobs) -> i32 {
        let attempt = self.attempt(jobs).await;
        let told = |status: &TrainingJobStatus| {
            under_way(status).is_some_and(|it| it.number == attempt && it.seconds.first_step.is_some())
        };
        jobs.until(self.job, "progress", told).await;
        attempt
    }

    /// How that attempt ended, once it has.
    pub async fn end_of(&self, jobs: &Jobs, number: i32) -> Attempt {
        let find = |attempts: &[Attempt]| {
            attempts.iter().find(|attempt| attempt.number == number && !attempt.is_open()).cloned()
        };
        let ended = jobs.until(self.job, "the attempt ends", |status| find(&status.attempts).is_some());
        find(&ended.await.attempts).unwrap()
    }

    /// The attempt after that one began with what had been saved, or with something newer: no more than one interval is done again.
    pub async fn goes_on_from(&self, jobs: &Jobs, number: i32, saved: Saved) -> Saved {
        let next = self.attempt(jobs).await;
        let status = jobs.status(self.job).await;
        let after = status.attempts.iter().filter(|attempt| attempt.number > number);
        // One that was told of an older checkpoint than there is ends before it has begun.
        let real: Vec<_> = after.filter(|attempt| attempt.cause != Some(Cause::Resume)).collect();
        assert_eq!(real.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [next], "{status:#?}");
        let from = self.checkpoints.begun_with(real[0]);
        assert!(from >= saved, "{saved:?} was there, and attempt {next} began with {from:?}");
        from
    }

    /// Lets some time pass: mostly since the next checkpoint, else since now. Says what is saved then, and need not be done again.
    pub async fn moment(&self, moments: &mut Moments, longest: Duration) -> Saved {
        if moments.mostly() {
            self.further();
        }
        self.checkpoints.wait(moments.within(longest)).await;
        self.saved()
    }

    /// Waits until more is saved. Without that, a kill meets a program that starts.
    pub fn further(&self) {
        let before = self.saved();
        until("more is saved", || self.saved() > before);
    }
}
