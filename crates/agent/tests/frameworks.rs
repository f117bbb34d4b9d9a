//! What the frameworks themselves save, and whether they go on from what the agent reports.
//!
//! Each runs where a Python has it, and says that it was skipped where none has. `TRAINYARD_PYTHONS` names interpreters of
//! virtual environments, with colons between them. What they save is kept as lists of names in `layouts.rs`, for everywhere.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use tempfile::TempDir;
use trainyard_agent::scan::{Moment, Scanner, Survey, Writers};
use trainyard_agent::store::Directory;
use trainyard_agent::{Agent, Layout, Options, Resume, Start};

struct Framework {
    /// What has to be there.
    module: &'static str,
    script: &'static str,
    /// Between the script's command and the directory.
    kind: Option<&'static str>,
    variables: &'static [(&'static str, &'static str)],
    layout: Layout,
    /// Path, step and epoch, newest first.
    saves: [(&'static str, Option<i64>, Option<i64>); 3],
    /// What the script is told of the second of them, to check that it is there.
    counts: [i64; 2],
    /// Complete beside those.
    others: &'static [&'static str],
    /// Parts of names of files whose loss cannot be seen, or does no harm.
    believed: &'static [&'static str],
}

const PLAIN: Framework = Framework {
    module: "",
    script: "",
    kind: None,
    variables: &[],
    layout: Layout::Files,
    saves: [("", None, None); 3],
    counts: [0; 2],
    others: &[],
    believed: &[],
};

fn interpreters() -> Vec<String> {
    let named = std::env::var("TRAINYARD_PYTHONS").unwrap_or_default();
    let named = named.split(':').filter(|path| !path.is_empty()).map(str::to_owned);
    named.chain(["python3".to_owned(), "/usr/bin/python3".to_owned()]).collect()
}

impl Framework {
    fn python(&self) -> Option<String> {
        let import = format!("import {}", self.module);
        let has = |interpreter: &String| {
            let output = Command::new(interpreter).args(["-c", &import]).output();
            output.is_ok_and(|output| output.status.success())
        };
        interpreters().into_iter().find(has)
    }

    fn run(&self, python: &str, command: &str, arguments: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frameworks").join(self.script);
        let output = Command::new(python)
            .arg(script)
            .arg(command)
            .args(self.kind)
            .args(arguments)
            .envs(self.variables.iter().copied())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(arguments[0])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {command} {arguments:?}: {errors}", self.script);
        String::from_utf8_lossy(&output.stdout).trim().lines().last().unwrap_or_default().to_owned()
    }

    fn check(&self) {
        let Some(python) = self.python() else {
            return println!("skipped: no Python here has {}", self.module);
        };
        let disk = tempfile::tempdir().unwrap();
        let saved = disk.path().join("saved");
        fs::create_dir(&saved).unwrap();
        let versions = self.run(&python, "save", &[saved.to_str().unwrap()]);
        println!("{}: versions {versions}", self.script);
        for file in files_below(&saved) {
            println!("    {file}");
        }
        self.all_is_recognised(&saved);
        self.losses_are_seen(&saved);
        self.goes_on_from_the_newest(&python, &disk, &saved);
        self.goes_on_from_the_one_before(&python, &disk, &saved);
    }

    fn all_is_recognised(&self, saved: &Path) {
        let survey = look(saved);
        assert!(survey.partial.is_empty() && survey.problems.is_empty(), "{survey:#?}");
        let found = survey.complete.iter().filter(|it| !self.others.contains(&it.candidate.path.as_str()));
        let found: Vec<_> = found
            .map(|it| (it.candidate.path.as_str(), it.numbers.step, it.numbers.epoch, it.candidate.layout))
            .collect();
        let expected = self.saves.map(|(path, step, epoch)| (path, step, epoch, self.layout));
        assert_eq!(found, expected);
        assert_eq!(survey.complete.len(), 3 + self.others.len(), "{survey:#?}");
        // Nothing that belongs to it is left behind, and nothing is counted twice.
        let newest = survey.complete.iter().find(|it| it.candidate.path == self.saves[0].0).unwrap();
        let own = files_below(saved).into_iter().filter(|file| {
            file.strip_prefix(self.saves[0].0)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
        });
        let size: u64 = own.map(|file| fs::metadata(saved.join(file)).unwrap().len()).sum();
        assert_eq!(newest.size, size);
    }

    /// Takes away, and cuts off, one file of the newest at a time. A last end of a line is no loss.
    fn losses_are_seen(&self, saved: &Path) {
        let survey = look(saved);
        let newest = survey.complete.iter().find(|it| it.candidate.path == self.saves[0].0).unwrap();
        let mut unseen = BTreeSet::new();
        for file in &newest.candidate.files {
            let path = saved.join(file);
            let content = fs::read(&path).unwrap();
            let is_seen = || {
                let survey = look(saved);
                !survey.complete.iter().any(|it| it.candidate.path == self.saves[0].0)
            };
            fs::remove_file(&path).unwrap();
            if !is_seen() {
                unseen.insert(format!("{file} is gone"));
            }
            for length in [0, content.len() / 2, content.len().saturating_sub(2)] {
                fs::write(&path, &content[..length]).unwrap();
                if length < content.len() && !is_seen() {
                    unseen.insert(format!("{file} is cut off"));
                }
            }
            fs::write(&path, content).unwrap();
        }
        unseen.retain(|loss| !self.believed.iter().any(|part| loss.contains(part)));
        assert!(unseen.is_empty(), "{unseen:#?}");
    }

    fn goes_on_from_the_newest(&self, python: &str, disk: &TempDir, saved: &Path) {
        let place = copied(saved, &disk.path().join("whole"));
        let (newest, step) = (self.saves[0].0, self.counts[0]);
        self.goes_on(python, &place, newest, step);
        let left = look(&place).complete;
        assert!(left.iter().all(|it| it.candidate.path != self.saves[2].0), "{left:#?}");
    }

    fn goes_on_from_the_one_before(&self, python: &str, disk: &TempDir, saved: &Path) {
        let place = copied(saved, &disk.path().join("cut"));
        let survey = look(&place);
        let newest = survey.complete.iter().find(|it| it.candidate.path == self.saves[0].0).unwrap();
        let is_believed = |file: &&String| self.believed.iter().any(|part| file.contains(part));
        let file = newest.candidate.files.iter().find(|file| !is_believed(file)).unwrap();
        let content = fs::read(place.join(file)).unwrap();
        fs::write(place.join(file), &content[..content.len() / 2]).unwrap();
        if look(&place).complete.iter().any(|it| it.candidate.path == self.saves[0].0) {
            fs::write(place.join(file), "").unwrap();
        }
        for other in self.others {
            // They are of the same moment.
            if look(&place).complete.first().is_some_and(|it| it.candidate.path == *other) {
                fs::remove_file(place.join(other)).unwrap();
            }
        }
        self.goes_on(python, &place, self.saves[1].0, self.counts[1]);
        let left = look(&place);
        assert!(left.partial.is_empty(), "{left:#?}");
    }

    /// The agent reports it, and the framework goes on from there.
    fn goes_on(&self, python: &str, place: &Path, from: &str, step: i64) {
        let place = place.to_str().unwrap();
        let path = format!("{place}/{from}");
        let options = Options {
            layouts: Layout::ALL.to_vec(),
            keep_last: 2,
            resumed_from: Some(path.clone()),
            resume: Resume::Auto,
            ready_file: None,
            attempt: None,
        };
        let mut agent = Agent::new(Box::new(Directory::new(place)), options);
        let report = agent.begin(at(0));
        assert_eq!(agent.start(), Start::Ready, "{report:?}");
        assert_eq!((report.checkpoint.unwrap().path, report.problem), (path.clone(), None));
        assert_eq!(agent.look(at(10)).problem, None);
        self.run(python, "resume", &[place, &path, &step.to_string()]);
        let report = agent.look(at(20));
        assert_eq!(report.problem, None, "{report:?}");
    }
}

fn at(seconds: u64) -> Moment {
    Moment { wall: Timestamp::now(), elapsed: Duration::from_secs(seconds) }
}

fn look(directory: &Path) -> Survey {
    let store = Directory::new(directory.to_str().unwrap());
    Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::None).unwrap()
}

fn files_below(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                directories.push(path);
            } else {
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// As if it had been saved a minute earlier: what has just been written may still be being written.
fn copied(from: &Path, to: &Path) -> PathBuf {
    let places = [from.to_str().unwrap(), to.to_str().unwrap()];
    assert!(Command::new("cp").arg("-a").args(places).status().unwrap().success());
    for path in files_below(to).into_iter().map(|path| to.join(path)).filter(|path| !path.is_symlink()) {
        let file = fs::File::options().write(true).open(path).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        file.set_modified(time - Duration::from_mins(1)).unwrap();
    }
    to.to_owned()
}

#[test]
fn transformers() {
    Framework {
        module: "transformers, accelerate",
        script: "with_huggingface.py",
        layout: Layout::HuggingFace,
        saves: [
            ("checkpoint-6", Some(6), Some(1)),
            ("checkpoint-4", Some(4), Some(1)),
            ("checkpoint-2", Some(2), Some(0)),
        ],
        counts: [6, 4],
        believed: &[
            "config.json is gone",
            "optimizer.pt is gone",
            "scheduler.pt is gone",
            "rng_state.pth is gone",
            "training_args.bin is gone",
            "index.json is gone",
        ],
        ..PLAIN
    }
    .check();
}

#[test]
fn accelerate() {
    Framework {
        module: "accelerate",
        script: "with_accelerate.py",
        layout: Layout::HuggingFace,
        saves: [
            ("checkpoints/checkpoint_2", Some(2), None),
            ("checkpoints/checkpoint_1", Some(1), None),
            ("checkpoints/checkpoint_0", Some(0), None),
        ],
        counts: [2, 1],
        believed: &["model.safetensors is gone", "optimizer.bin is gone", "scheduler.bin is gone"],
        ..PLAIN
    }
    .check();
}

#[test]
fn lightning() {
    Framework {
        module: "lightning",
        script: "with_lightning.py",
        layout: Layout::Torch,
        saves: [
            ("epoch=1-step=6.ckpt", Some(6), Some(1)),
            ("epoch=0-step=4.ckpt", Some(4), Some(0)),
            ("epoch=0-step=2.ckpt", Some(2), Some(0)),
        ],
        counts: [6, 4],
        others: &["last.ckpt"],
        ..PLAIN
    }
    .check();
}

#[test]
fn lightning_with_a_link() {
    Framework {
        module: "lightning",
        script: "with_lightning.py",
        variables: &[("SAVE_LAST", "link")],
        layout: Layout::Torch,
        saves: [
            ("epoch=1-step=6.ckpt", Some(6), Some(1)),
            ("epoch=0-step=4.ckpt", Some(4), Some(0)),
            ("epoch=0-step=2.ckpt", Some(2), Some(0)),
        ],
        counts: [6, 4],
        ..PLAIN
    }
    .check();
}

#[test]
fn distributed_checkpoints_of_torch() {
    Framework {
        module: "torch.distributed.tensor",
        script: "with_dcp.py",
        layout: Layout::Dcp,
        saves: [("step_3", Some(3), None), ("step_2", Some(2), None), ("step_1", Some(1), None)],
        counts: [3, 2],
        ..PLAIN
    }
    .check();
}

#[test]
fn deepspeed() {
    Framework {
        module: "deepspeed",
        script: "with_deepspeed.py",
        layout: Layout::DeepSpeed,
        saves: [
            ("global_step3", Some(3), None),
            ("global_step2", Some(2), None),
            ("global_step1", Some(1), None),
        ],
        counts: [3, 2],
        believed: &["is gone"],
        ..PLAIN
    }
    .check();
}

#[test]
fn tensorflow() {
    Framework {
        module: "tensorflow",
        script: "with_tensorflow.py",
        layout: Layout::TensorFlow,
        saves: [("ckpt-3", Some(3), None), ("ckpt-2", Some(2), None), ("ckpt-1", Some(1), None)],
        counts: [3, 2],
        ..PLAIN
    }
    .check();
}

#[test]
fn keras() {
    Framework {
        module: "tensorflow",
        script: "with_keras.py",
        kind: Some("keras"),
        layout: Layout::Files,
        saves: [
            ("epoch-3.keras", None, Some(3)),
            ("epoch-2.keras", None, Some(2)),
            ("epoch-1.keras", None, Some(1)),
        ],
        counts: [3, 2],
        ..PLAIN
    }
    .check();
}

#[test]
fn weights_of_keras() {
    Framework {
        module: "tensorflow",
        script: "with_keras.py",
        kind: Some("h5"),
        layout: Layout::Files,
        saves: [
            ("epoch-3.weights.h5", None, Some(3)),
            ("epoch-2.weights.h5", None, Some(2)),
            ("epoch-1.weights.h5", None, Some(1)),
        ],
        counts: [3, 2],
        ..PLAIN
    }
    .check();
}

#[test]
fn saved_models() {
    Framework {
        module: "tensorflow",
        script: "with_keras.py",
        kind: Some("savedmodel"),
        layout: Layout::TensorFlow,
        saves: [("epoch-3", None, Some(3)), ("epoch-2", None, Some(2)), ("epoch-1", None, Some(1))],
        counts: [3, 2],
        believed: &["fingerprint.pb"],
        ..PLAIN
    }
    .check();
}

#[test]
fn xgboost() {
    Framework {
        module: "xgboost",
        script: "with_xgboost.py",
        layout: Layout::XgBoost,
        saves: [
            ("model_6.ubj", Some(7), Some(6)),
            ("model_4.ubj", Some(5), Some(4)),
            ("model_2.ubj", Some(3), Some(2)),
        ],
        counts: [7, 5],
        ..PLAIN
    }
    .check();
}

#[test]
fn lightgbm() {
    Framework {
        module: "lightgbm",
        script: "with_lightgbm.py",
        layout: Layout::Files,
        saves: [
            ("model_6.txt", Some(6), None),
            ("model_4.txt", Some(4), None),
            ("model_2.txt", Some(2), None),
        ],
        counts: [6, 4],
        ..PLAIN
    }
    .check();
}

/// What tells nothing about itself, or is not needed.
const OF_ORBAX: &[&str] =
    &["/d/", "array_metadatas", "commit_success.txt", "_METADATA is gone", "_sharding is gone", "extra/"];

#[test]
fn orbax() {
    for variables in [&[][..], &[("COMPOSITE", "1")]] {
        Framework {
            module: "orbax.checkpoint",
            script: "with_orbax.py",
            variables,
            layout: Layout::Orbax,
            saves: [("3", Some(3), None), ("2", Some(2), None), ("1", Some(1), None)],
            counts: [3, 2],
            believed: OF_ORBAX,
            ..PLAIN
        }
        .check();
    }
}

#[test]
fn flax() {
    let by_itself = (&[("LEGACY", "1")][..], Layout::Files, &["cut off"][..]);
    for (variables, layout, believed) in [(&[][..], Layout::Orbax, OF_ORBAX), by_itself] {
        Framework {
            module: "flax.training.checkpoints",
            script: "with_flax.py",
            variables,
            layout,
            saves: [
                ("checkpoint_3", Some(3), None),
                ("checkpoint_2", Some(2), None),
                ("checkpoint_1", Some(1), None),
            ],
            counts: [3, 2],
            believed,
            ..PLAIN
        }
        .check();
    }
}
