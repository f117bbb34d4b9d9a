//! Nothing is lost: a real training that is killed again and again ends as one that nobody disturbed, bit for bit.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Bench, Running, kill, until};

const EPOCHS: i64 = 6;

/// An example that trains.
#[derive(Clone, Copy)]
struct Example {
    /// Its directories: the last one has the program.
    directories: &'static [&'static str],
    framework: &'static str,
    python: &'static str,
    /// How its checkpoints end.
    suffix: &'static str,
}

/// Prints everything in a checkpoint of torch, bit for bit.
const SHOW_TENSORS: &str = r"
import sys, torch
def shown(it):
    if isinstance(it, torch.Tensor):
        return it.numpy().tobytes().hex()
    if isinstance(it, dict):
        return {str(key): shown(value) for key, value in sorted(it.items(), key=str)}
    if isinstance(it, (list, tuple)):
        return [shown(one) for one in it]
    return repr(it)
print(shown(torch.load(sys.argv[1], map_location='cpu')))
";

const DIGITS: Example =
    Example { directories: &["digits"], framework: "custom", python: "python3", suffix: ".json" };

impl Example {
    /// A small run of it, in the directory of this test.
    fn set_up(self, bench: &Bench) {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        for directory in self.directories {
            let into = bench.path().join(directory);
            std::fs::create_dir(&into).unwrap();
            for entry in std::fs::read_dir(examples.join(directory)).unwrap().flatten() {
                if entry.path().extension().is_some_and(|it| it == "py") {
                    std::fs::copy(entry.path(), into.join(entry.file_name())).unwrap();
                }
            }
        }
        let (framework, python) = (self.framework, self.python);
        let program = format!("{}/train.py", self.directories.last().unwrap());
        bench.write(
            "job.yaml",
            &format!(
                "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {{name: digits}}\nspec:\n  framework: \
                 {framework}\n  image: none\n  numWorkers: 2\n  command: [{python}, {program}, --model, MARK]\n  \
                 backoffLimit: 20\n  hyperparameters: {{epochs: {EPOCHS}, samples: 1200, seed: 1}}\n  \
                 checkpoint: {{keepLast: 2, storage: {{size: 16Mi}}}}\n"
            ),
        );
    }

    /// The weights at the end, and all that is saved with them.
    fn last(self, bench: &Bench) -> Vec<u8> {
        let file = checkpoints(bench).join(format!("checkpoint-epoch-{EPOCHS}{}", self.suffix));
        if self.suffix != ".pt" {
            return std::fs::read(file).unwrap();
        }
        // Equal tensors may be packed in different ways.
        let shown = Command::new(self.python).args(["-c", SHOW_TENSORS]).arg(file).output().unwrap();
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        shown.stdout
    }

    /// The newest epoch that was saved.
    fn saved(self, bench: &Bench) -> i64 {
        let names = std::fs::read_dir(checkpoints(bench)).into_iter().flatten().flatten();
        let epoch =
            |name: String| name.strip_prefix("checkpoint-epoch-")?.strip_suffix(self.suffix)?.parse().ok();
        names.filter_map(|entry| epoch(entry.file_name().into_string().ok()?)).max().unwrap_or(0)
    }

    fn until_further(self, bench: &Bench, run: &Running) -> i64 {
        let before = self.saved(bench);
        let done = || self.saved(bench) > before || run.stdout().contains("digits: Completed");
        until("another epoch is saved", done);
        self.saved(bench)
    }
}

fn checkpoints(bench: &Bench) -> PathBuf {
    bench.path().join(".trainyard/job.yaml/node/claims/default/digits-checkpoints")
}

/// The worker of that rank, once it is there. Its shell has the same words; the program is the newest.
fn worker(bench: &Bench, rank: i32) -> i32 {
    let variable = format!("RANK={rank}");
    until("the worker runs", || !bench.processes_with(&variable).is_empty());
    bench.processes_with(&variable).into_iter().max().unwrap_or_default()
}

#[test]
fn a_training_that_is_killed_again_and_again_ends_as_one_that_nobody_disturbed() {
    survives(DIGITS);
}

#[test]
fn the_same_with_pytorch() {
    // Debian's torch belongs to Debian's Python, which may not be the first one in PATH.
    let has_torch = |python: &&str| {
        let asked = Command::new(python).args(["-c", "import torch"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has_torch) else {
        println!("skipped: no python3 here has torch");
        return;
    };
    let directories = &["digits", "pytorch-ddp"];
    survives(Example { directories, framework: "pytorch", python, suffix: ".pt" });
}

fn survives(example: Example) {
    let calm = Bench::new();
    example.set_up(&calm);
    let ended = calm.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    let expected = example.last(&calm);

    let bench = Bench::new();
    example.set_up(&bench);
    let run = bench.start(&["run", "job.yaml"]);
    // A worker, the leading worker, the agent: each after some more work was saved.
    example.until_further(&bench, &run);
    kill(worker(&bench, 1));
    example.until_further(&bench, &run);
    kill(worker(&bench, 0));
    example.until_further(&bench, &run);
    until("an agent runs", || !bench.agents().is_empty());
    bench.agents().into_iter().for_each(kill);
    let kept = example.until_further(&bench, &run);
    // The operator, the API server and the node are one process here.
    run.signal("-9");
    run.wait();
    bench.nobody_is_left();
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(example.last(&bench) == expected, "the weights differ from those of the undisturbed run");

    // No more than one interval is done again: the second run does not begin before what was kept.
    let first = ended.stdout.lines().find_map(|line| {
        let line = &line[line.find('{')?..];
        serde_json::from_str::<serde_json::Value>(line).ok()?["epoch"].as_i64()
    });
    assert!(first >= Some(kept), "it had kept epoch {kept}: {ended}");
    assert!(std::fs::read_dir(checkpoints(&bench)).unwrap().count() <= 5, "old ones are removed");
}
