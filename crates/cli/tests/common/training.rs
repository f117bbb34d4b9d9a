//! An example that trains: how much it has to do, and what it has saved.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use trainyard_api::Attempt;

use super::example::{Example, Saved};

/// How much there is to do, and how often it may fail.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub epochs: i64,
    pub samples: u32,
    pub batch_size: u32,
    pub backoff_limit: i32,
}

impl Work {
    /// So many epochs, each of about half a second.
    pub fn short(example: Example, epochs: i64) -> Self {
        Self { epochs, samples: 1200, batch_size: example.batch_size, backoff_limit: 20 }
    }

    /// One epoch, and a long one: whatever is saved before its end was saved because the program was asked to end.
    pub fn long() -> Self {
        Self { epochs: 1, samples: 6000, batch_size: 2, backoff_limit: 20 }
    }

    /// A job of two workers that does it. `place` is what depends on where it runs: further fields of the spec.
    pub fn manifest(self, job: &str, example: Example, place: &str) -> String {
        let (Example { framework, .. }, Self { epochs, samples, batch_size, backoff_limit }) =
            (example, self);
        format!(
            "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {{name: {job}}}\nspec:\n  \
             framework: {framework}\n  numWorkers: 2\n  backoffLimit: {backoff_limit}\n  \
             hyperparameters: {{epochs: {epochs}, samples: {samples}, seed: 1, batchSize: {batch_size}}}\n{place}"
        )
    }
}

/// What a training saves, in a directory of this machine.
pub struct Checkpoints {
    pub directory: PathBuf,
    pub example: Example,
    pub work: Work,
}

impl Checkpoints {
    /// The newest that is saved as a whole.
    pub fn newest(&self) -> Saved {
        self.example.newest(&self.directory)
    }

    /// The weights at the end, and all that is saved with them.
    pub fn last(&self) -> Vec<u8> {
        self.example.content(&self.directory, self.work.epochs)
    }

    /// How long the last epoch took.
    pub fn took(&self) -> Duration {
        self.example.took(&self.directory, self.work.epochs)
    }

    /// What an attempt was told to go on from.
    pub fn begun_with(&self, attempt: &Attempt) -> Saved {
        let from = attempt.resumed_from.as_ref();
        from.map_or_else(Saved::default, |checkpoint| self.example.at(&checkpoint.path).unwrap())
    }

    /// Lets some time pass, but not so much that the training could end: the pace of the machine may have changed.
    pub async fn wait(&self, time: Duration) {
        let (start, before) = (Instant::now(), self.newest());
        while start.elapsed() < time && self.newest().epoch < before.epoch + 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
