//! Checkpoints that were really written by the programs that write them, where Python has them.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use trainyard_agent::Layout;
use trainyard_agent::scan::{Moment, Scanner, Survey, Writers};
use trainyard_agent::store::Directory;

/// Runs a script in a directory, with the first Python that has the module. Says so if there is none.
fn python(module: &str, directory: &Path, script: &str) -> bool {
    for interpreter in ["python3", "/usr/bin/python3"] {
        let has = Command::new(interpreter).args(["-c", &format!("import {module}")]).output();
        if has.is_ok_and(|output| output.status.success()) {
            let output =
                Command::new(interpreter).args(["-c", script]).current_dir(directory).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return true;
        }
    }
    println!("skipped: no Python here has {module}");
    false
}

fn look(directory: &Path) -> Survey {
    let store = Directory::new(directory.to_str().unwrap());
    let now = Moment { wall: Timestamp::now(), elapsed: Duration::ZERO };
    Scanner::new(Layout::ALL.to_vec()).look(&store, now, Writers::None).unwrap()
}

#[test]
fn torch_saves() {
    let disk = tempfile::tempdir().unwrap();
    let script = "
import torch
model = torch.nn.Linear(30, 40)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(30)).sum().backward(); optimizer.step()
content = {'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'epoch': 7, 'global_step': 70000}
torch.save(content, 'last.ckpt')
torch.save(content, 'old.pth', _use_new_zipfile_serialization=False)
torch.save(model, 'whole.pt', pickle_protocol=4)
";
    if !python("torch", disk.path(), script) {
        return;
    }
    let survey = look(disk.path());
    assert!(survey.partial.is_empty() && survey.problems.is_empty(), "{survey:?}");
    assert_eq!(survey.complete.len(), 3);
    let last = survey.complete.iter().find(|checkpoint| checkpoint.candidate.path == "last.ckpt").unwrap();
    assert_eq!((last.numbers.step, last.numbers.epoch), (Some(70_000), Some(7)));

    // Cut off anywhere, it is partial.
    let whole = std::fs::read(disk.path().join("last.ckpt")).unwrap();
    let cut = tempfile::tempdir().unwrap();
    for length in (0..whole.len()).step_by(97).chain(whole.len() - 100..whole.len()) {
        std::fs::write(cut.path().join("last.ckpt"), &whole[..length]).unwrap();
        let survey = look(cut.path());
        assert_eq!(
            (survey.complete.len(), survey.partial.len()),
            (0, 1),
            "{length} of {} bytes",
            whole.len()
        );
    }
}

#[test]
fn numpy_saves() {
    let disk = tempfile::tempdir().unwrap();
    let script = "
import numpy
numpy.save('step-1.npy', numpy.ones((3, 4)))
numpy.savez('step-2.npz', a=numpy.ones(3), b=numpy.ones(5))
numpy.savez_compressed('step-3.npz', a=numpy.ones(3))
";
    if !python("numpy", disk.path(), script) {
        return;
    }
    let survey = look(disk.path());
    assert!(survey.partial.is_empty() && survey.problems.is_empty(), "{survey:?}");
    assert_eq!(survey.complete.len(), 3);
}

#[test]
fn pickles_of_every_protocol() {
    let disk = tempfile::tempdir().unwrap();
    let script = "
import collections, datetime, pickle
content = {'epoch': 3, 'step': 99, 'weights': [0.5] * 3000, 'when': datetime.datetime.now(), 'set': {1, 2}, 'bytes': b'x' * 300,
           'ordered': collections.OrderedDict(a=1, b=(1, 2, 3, 4)), 'large': 2 ** 100, 'none': None, 'text': 'y' * 300}
for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
    with open(f'state-{protocol}.pkl', 'wb') as file:
        pickle.dump(content, file, protocol=protocol)
";
    if !python("pickle", disk.path(), script) {
        return;
    }
    let survey = look(disk.path());
    assert!(survey.partial.is_empty() && survey.problems.is_empty(), "{survey:?}");
    assert_eq!(survey.complete.len(), 4);
    assert!(survey.complete.iter().all(|checkpoint| checkpoint.numbers.epoch == Some(3)));
}

#[test]
fn compressed_pickles() {
    let disk = tempfile::tempdir().unwrap();
    let script = "
import bz2, gzip, lzma, pickle, random, zlib
random.seed(1)
for number, size in enumerate((1, 30, 3000, 40000), 1):
    content = pickle.dumps({'texts': [random.choice('abcdefgh') * random.randint(1, 9) for _ in range(size)],
                            'bytes': random.randbytes(size), 'zeros': bytes(size * 9)})
    packed = {'a.joblib': zlib.compress(content, 3), 'b.joblib': zlib.compress(content, 0), 'c.joblib': zlib.compress(content, 9),
              'd.pkl': gzip.compress(content), 'e.pkl': gzip.compress(content[:9]) + gzip.compress(content[9:]),
              'f.pickle': bz2.compress(content), 'g.pkl': lzma.compress(content)}
    for name, content in packed.items():
        open(name.replace('.', f'-step-{number}.'), 'wb').write(content)
with gzip.open('h-step-1.pkl', 'wb') as file:
    pickle.dump([1] * 999, file)
";
    if !python("pickle", disk.path(), script) {
        return;
    }
    let mut count = 0;
    for entry in std::fs::read_dir(disk.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        let content = std::fs::read(&path).unwrap();
        let alone = tempfile::tempdir().unwrap();
        std::fs::write(alone.path().join(name), &content).unwrap();
        let survey = look(alone.path());
        assert!(survey.complete.len() == 1 && survey.problems.is_empty(), "{name:?}: {survey:?}");
        for length in [content.len() / 2, content.len() - content.len() / 9 - 1, content.len() - 1] {
            std::fs::write(alone.path().join(name), &content[..length]).unwrap();
            let survey = look(alone.path());
            assert_eq!(survey.partial.len(), 1, "{name:?}, {length} bytes: {survey:?}");
        }
        count += 1;
    }
    assert_eq!(count, 4 * 7 + 1);
}

#[test]
fn the_digits_example_saves() {
    let disk = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/train.py");
    let run = Command::new("python3")
        .arg(program)
        .args(["--epochs", "2", "--samples", "64", "--hidden", "4"])
        .env("CHECKPOINT_DIR", disk.path())
        .output();
    let Ok(output) = run else { return println!("skipped: there is no python3") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let survey = look(disk.path());
    let found: Vec<_> = survey
        .complete
        .iter()
        .map(|checkpoint| (checkpoint.candidate.path.as_str(), checkpoint.numbers))
        .collect();
    assert_eq!(found.len(), 2, "{survey:?}");
    assert_eq!(found[0].0, "checkpoint-epoch-2.json");
    assert_eq!((found[0].1.step, found[0].1.epoch), (Some(4), Some(2)));
    assert!(survey.partial.is_empty() && survey.problems.is_empty(), "{survey:?}");
}
