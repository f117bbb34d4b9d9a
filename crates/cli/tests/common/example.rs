//! The examples that train, as the tests use them: small, and with a way to tell whether two of their runs ended alike.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

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

/// An example that trains.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// Its directories below `examples`: the last one has the program.
    pub directories: &'static [&'static str],
    pub framework: &'static str,
    /// The Python of this machine that can run it.
    pub python: &'static str,
    /// Pictures per step. With fewer, an epoch has more steps: it should take about half a second.
    pub batch_size: u32,
    /// How its checkpoints end.
    pub suffix: &'static str,
}

/// How much was done when a checkpoint was saved: whole epochs, and the step if it was saved in the middle of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Saved {
    pub epoch: i64,
    pub step: i64,
}

impl Example {
    /// Needs nothing but Python.
    pub const DIGITS: Self = Self {
        directories: &["digits"],
        framework: "custom",
        python: "python3",
        batch_size: 32,
        suffix: ".json",
    };

    /// The same with PyTorch, where this machine has it; says so where it has not.
    pub fn ddp() -> Option<Self> {
        let directories = &["digits", "pytorch-ddp"];
        let python = python_with_torch()?;
        Some(Self { directories, framework: "pytorch", python, batch_size: 4, suffix: ".pt" })
    }

    /// The program, below `examples`.
    pub fn program(self) -> String {
        format!("{}/train.py", self.directories.last().unwrap())
    }

    /// The Python files that it consists of, each with its path below `examples`.
    pub fn files(self) -> Vec<(PathBuf, PathBuf)> {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let mut files = Vec::new();
        for directory in self.directories {
            for entry in std::fs::read_dir(examples.join(directory)).unwrap().flatten() {
                if entry.path().extension().is_some_and(|it| it == "py") {
                    files.push((entry.path(), Path::new(directory).join(entry.file_name())));
                }
            }
        }
        files
    }

    /// What a file of this name says.
    pub fn named(self, name: &str) -> Option<Saved> {
        let numbers = name.strip_prefix("checkpoint-epoch-")?.strip_suffix(self.suffix)?;
        let (epoch, step) = numbers.split_once("-step-").unwrap_or((numbers, "0"));
        Some(Saved { epoch: epoch.parse().ok()?, step: step.parse().ok()? })
    }

    /// What the checkpoint at this path says.
    pub fn at(self, path: &str) -> Option<Saved> {
        self.named(Path::new(path).file_name()?.to_str()?)
    }

    /// The newest that is in a directory. A checkpoint gets its name when it is whole.
    pub fn newest(self, directory: &Path) -> Saved {
        let names = std::fs::read_dir(directory).into_iter().flatten().flatten();
        names.filter_map(|entry| self.named(entry.file_name().to_str()?)).max().unwrap_or_default()
    }

    /// The weights after that epoch, and all that is saved with them.
    pub fn content(self, directory: &Path, epoch: i64) -> Vec<u8> {
        let file = self.file(directory, epoch);
        if self.suffix != ".pt" {
            return std::fs::read(file).unwrap();
        }
        // Equal tensors may be packed in different ways.
        let shown = Command::new(self.python).args(["-c", SHOW_TENSORS]).arg(file).output().unwrap();
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        shown.stdout
    }

    /// How long that epoch took, by when its checkpoint and the one before were written.
    pub fn took(self, directory: &Path, epoch: i64) -> Duration {
        let written = |epoch| -> SystemTime {
            std::fs::metadata(self.file(directory, epoch)).and_then(|file| file.modified()).unwrap()
        };
        written(epoch).duration_since(written(epoch - 1)).unwrap_or_default()
    }

    fn file(self, directory: &Path, epoch: i64) -> PathBuf {
        directory.join(format!("checkpoint-epoch-{epoch}{}", self.suffix))
    }
}

/// Debian's torch belongs to Debian's Python, which may not be the first one in PATH.
pub fn python_with_torch() -> Option<&'static str> {
    let has_torch = |python: &&str| {
        let asked = Command::new(python).args(["-c", "import torch"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let python = ["python3", "/usr/bin/python3"].into_iter().find(has_torch);
    if python.is_none() {
        println!("skipped: no python3 here has torch");
    }
    python
}
