//! Nothing is lost: a real training that is killed again and again ends as one that nobody disturbed, bit for bit.

use std::path::{Path, PathBuf};

use crate::support::{Bench, Running, kill, until};

const EPOCHS: i64 = 6;

/// The digits example, small, in the directory of this test.
fn digits(bench: &Bench) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
    for entry in std::fs::read_dir(example).unwrap().flatten() {
        if entry.path().extension().is_some_and(|it| it == "py") {
            std::fs::copy(entry.path(), bench.path().join(entry.file_name())).unwrap();
        }
    }
    bench.write(
        "job.yaml",
        &format!(
            "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {{name: digits}}\nspec:\n  framework: custom\n  \
             image: none\n  numWorkers: 2\n  command: [python3, train.py, --model, MARK]\n  backoffLimit: 20\n  \
             hyperparameters: {{epochs: {EPOCHS}, samples: 1200, seed: 1}}\n  \
             checkpoint: {{keepLast: 2, storage: {{size: 16Mi}}}}\n"
        ),
    );
}

fn checkpoints(bench: &Bench) -> PathBuf {
    bench.path().join(".trainyard/job.yaml/node/claims/default/digits-checkpoints")
}

/// The weights at the end.
fn last(bench: &Bench) -> Vec<u8> {
    std::fs::read(checkpoints(bench).join(format!("checkpoint-epoch-{EPOCHS}.json"))).unwrap()
}

/// The newest epoch that was saved.
fn saved(bench: &Bench) -> i64 {
    let names = std::fs::read_dir(checkpoints(bench)).into_iter().flatten().flatten();
    let epoch = |name: String| name.strip_prefix("checkpoint-epoch-")?.strip_suffix(".json")?.parse().ok();
    names.filter_map(|entry| epoch(entry.file_name().into_string().ok()?)).max().unwrap_or(0)
}

/// The worker of that rank, once it is there. Its shell has the same words; the program is the newest.
fn worker(bench: &Bench, rank: i32) -> i32 {
    let variable = format!("RANK={rank}");
    until("the worker runs", || !bench.processes_with(&variable).is_empty());
    bench.processes_with(&variable).into_iter().max().unwrap_or_default()
}

fn until_further(bench: &Bench, run: &Running) -> i64 {
    let before = saved(bench);
    until("another epoch is saved", || saved(bench) > before || run.stdout().contains("digits: Completed"));
    saved(bench)
}

#[test]
fn a_training_that_is_killed_again_and_again_ends_as_one_that_nobody_disturbed() {
    let calm = Bench::new();
    digits(&calm);
    let ended = calm.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    let expected = last(&calm);

    let bench = Bench::new();
    digits(&bench);
    let run = bench.start(&["run", "job.yaml"]);
    // A worker, the leading worker, the agent: each after some more work was saved.
    until_further(&bench, &run);
    kill(worker(&bench, 1));
    until_further(&bench, &run);
    kill(worker(&bench, 0));
    until_further(&bench, &run);
    until("an agent runs", || !bench.agents().is_empty());
    bench.agents().into_iter().for_each(kill);
    let kept = until_further(&bench, &run);
    // The operator, the API server and the node are one process here.
    run.signal("-9");
    run.wait();
    bench.nobody_is_left();
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(last(&bench) == expected, "the weights differ from those of the undisturbed run");

    // No more than one interval is done again: the second run does not begin before what was kept.
    let first = ended.stdout.lines().find_map(|line| {
        let line = &line[line.find('{')?..];
        serde_json::from_str::<serde_json::Value>(line).ok()?["epoch"].as_i64()
    });
    assert!(first >= Some(kept), "it had kept epoch {kept}: {ended}");
    assert!(std::fs::read_dir(checkpoints(&bench)).unwrap().count() <= 4, "old ones are removed");
}
