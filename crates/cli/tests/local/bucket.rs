//! Checkpoints in a bucket: when nothing of this machine is left, the bucket is enough to go on, bit for bit.

use std::path::PathBuf;

use trainyard_testbucket::Server;

use crate::common::example::Example;
use crate::common::training::Work;
use crate::support::{Bench, Held, Running, kill, until};

/// Few, where nothing is killed.
const SHORT: i64 = 2;
/// Two for every time that something is killed, and as many again: there must be something left to kill.
const LONG: i64 = 14;

/// A small run of the digits example, with a bucket of its own.
struct Training {
    bench: Bench,
    server: Server,
    epochs: i64,
}

impl Training {
    /// `more` is more of what is said about checkpoints.
    fn new(epochs: i64, secret: &str, more: &str) -> Self {
        let bench = Bench::new();
        std::fs::create_dir_all(bench.path().join("buckets/models")).unwrap();
        let server = Server::start(&bench.path().join("buckets"));
        bench.copy(Example::DIGITS);
        let variables: Vec<String> = server
            .variables(secret)
            .into_iter()
            .map(|(name, value)| format!("    - {{name: {name}, value: '{value}'}}\n"))
            .collect();
        let place = format!(
            "  image: none\n  command: [python3, digits/train.py, --model, MARK]\n  \
             checkpoint: {{keepLast: 2, {more}storage: {{type: s3, path: 's3://models/runs'}}}}\n  env:\n{}",
            variables.concat()
        );
        let example = Example::DIGITS;
        bench.write("job.yaml", &Work::short(example, epochs).manifest("digits", example, &place));
        Self { bench, server, epochs }
    }

    fn place(&self) -> PathBuf {
        self.bench.path().join("buckets/models/runs/default/digits")
    }

    /// The newest epoch whose copy is complete.
    fn kept(&self) -> i64 {
        let names = std::fs::read_dir(self.place()).into_iter().flatten().flatten();
        let epoch = |name: String| {
            name.strip_prefix("checkpoint-epoch-")?.strip_suffix(".json.complete")?.parse().ok()
        };
        names.filter_map(|entry| epoch(entry.file_name().into_string().ok()?)).max().unwrap_or(0)
    }

    /// Waits for another epoch in the bucket, and holds the leader meanwhile: a training that went on would come to its end before
    /// the copy arrives, where the machine has a lot to do. Says which epoch that is.
    fn until_further(&self, run: &Running) -> (i64, Held) {
        let (before, said) = (self.kept(), run.stdout().len());
        // Who tells of an epoch has saved the one before.
        until("another epoch is saved", || epochs_told(&run.stdout()[said..]).max() >= Some(before + 2));
        let held = Held::new(self.bench.worker(0));
        until("it has arrived in the bucket", || self.kept() > before);
        (self.kept(), held)
    }

    /// The weights at the end, and all that is saved with them.
    fn last(&self) -> Vec<u8> {
        std::fs::read(self.place().join(format!("checkpoint-epoch-{}.json", self.epochs))).unwrap()
    }
}

/// The epochs that a run tells of.
fn epochs_told(stdout: &str) -> impl Iterator<Item = i64> {
    stdout.lines().filter_map(|line| {
        let line = &line[line.find('{')?..];
        serde_json::from_str::<serde_json::Value>(line).ok()?["epoch"].as_i64()
    })
}

#[test]
fn with_nothing_left_but_the_bucket_a_training_ends_as_one_that_nobody_disturbed() {
    let calm = Training::new(LONG, "secret", "");
    let ended = calm.bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout.contains("checkpoints: s3://models/runs/default/digits"), "{ended}");
    let expected = calm.last();

    let training = Training::new(LONG, "secret", "");
    let bench = &training.bench;
    let run = bench.start(&["run", "job.yaml"]);
    let (_, held) = training.until_further(&run);
    let leader = bench.worker(0);
    kill(bench.worker(1));
    drop(held);
    // Those of the attempt that this has ended are no victims any more.
    until("another leader runs", || bench.worker(0) != leader);
    let (_, held) = training.until_further(&run);
    kill(bench.worker(0));
    drop(held);
    let (kept, held) = training.until_further(&run);
    // The operator, the API server and the node are one process here; and then the disk is lost, too.
    run.signal("-9");
    run.wait();
    drop(held);
    bench.nobody_is_left();
    std::fs::remove_dir_all(bench.path().join(".trainyard")).unwrap();

    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(training.last() == expected, "the weights differ from those of the undisturbed run");
    assert!(epochs_told(&ended.stdout).next() >= Some(kept), "epoch {kept} was in the bucket: {ended}");
    let copies = std::fs::read_dir(training.place()).unwrap().flatten();
    let copies = copies.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let copies: Vec<String> = copies.filter(|name| name.ends_with(".complete")).collect();
    // Two, the one that was gone on from, and one more that was saved in the last moment: at the end nothing is removed.
    assert!(copies.len() <= 4, "old ones are removed: {copies:?}: {ended}");
}

#[test]
fn the_same_without_namespaces_where_every_pod_has_a_directory_of_another_name() {
    let training = Training::new(LONG, "secret", "");
    let bench = &training.bench;
    let run = bench.start(&["run", "job.yaml", "--no-isolation"]);
    let (kept, held) = training.until_further(&run);
    kill(training.bench.worker(1));
    drop(held);
    let ended = run.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(kept >= 1 && training.kept() == LONG, "{ended}");
    assert!(ended.stdout.contains("resuming from epoch"), "it began afresh: {ended}");
}

#[test]
fn a_bucket_that_cannot_be_read_is_waited_for() {
    let training = Training::new(SHORT, "secret", "");
    training.server.is_down(true);
    let run = training.bench.start(&["run", "job.yaml"]);
    run.until_it_says("cannot be reached");
    assert_eq!(training.kept(), 0);
    training.server.is_down(false);
    let ended = run.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(training.kept(), SHORT);
}

#[test]
fn who_starts_afresh_is_not_held_by_wrong_credentials() {
    let training = Training::new(SHORT, "wrong", "resume: Never, ");
    let ended = training.bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(training.kept(), 0);
}
