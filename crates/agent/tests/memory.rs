//! How much memory a first look takes. The agent's container has 256 MiB, and one that is killed over it never lets the
//! program go.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use trainyard_agent::scan::Moment;
use trainyard_agent::store::Directory;
use trainyard_agent::{Agent, Layout, Options, Resume};

/// Half of what there is: the allocator gives back late.
const MOST: u64 = 128 << 20;

/// What is read as a whole is not larger.
const SIZE: usize = 16 << 20;

/// Not a test but the process of the others: it runs only when it is told where.
#[test]
fn agent_process() {
    let Ok(directory) = std::env::var("AGENT_PROCESS_DIRECTORY") else { return };
    let options = Options {
        layouts: Layout::ALL.to_vec(),
        keep_last: 0,
        resumed_from: None,
        resume: Resume::Auto,
        ready_file: None,
        attempt: None,
    };
    let now = Moment { wall: Timestamp::now(), elapsed: Duration::ZERO };
    let report = Agent::new(Box::new(Directory::new(&directory)), options).begin(now);
    println!("found: {}", report.checkpoint.and_then(|checkpoint| checkpoint.step).unwrap_or_default());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM:")).unwrap());
}

/// The most that the process had at any time.
#[track_caller]
fn assert_modest(name: &str, content: &[u8]) {
    assert!(content.len() <= SIZE, "{name}");
    let disk = tempfile::tempdir().unwrap();
    std::fs::write(disk.path().join(name), content).unwrap();
    let output = look_at(disk.path());
    assert_eq!(number_after(&output, "found:"), 7, "{name}: {output}");
    let peak = number_after(&output, "VmHWM:") << 10;
    assert!(peak < MOST, "{name}: {} MiB", peak >> 20);
}

fn number_after(output: &str, start: &str) -> u64 {
    let rest = &output[output.find(start).unwrap() + start.len()..];
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

fn look_at(directory: &Path) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "agent_process", "--nocapture"])
        .env("AGENT_PROCESS_DIRECTORY", directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `{"step": 7, "all": [item, item, …]}`, with what each is noted by.
fn pickled(item: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut all = b"\x80\x04}\x94(\x8c\x04step\x94K\x07\x8c\x03all\x94]\x94(".to_vec();
    for number in 0.. {
        let item = item(number);
        if all.len() + item.len() + 3 > SIZE {
            break;
        }
        all.extend(item);
    }
    all.extend(b"eu.");
    all
}

#[test]
fn a_pickle_of_millions_of_texts_fits() {
    let text =
        |number: usize| [&b"\x8c\x04"[..], format!("{:04x}", number % 65536).as_bytes(), b"\x94"].concat();
    assert_modest("epoch-1.pkl", &pickled(text));
    let shortest = |_| b"\x8c\x00\x94".to_vec();
    assert_modest("epoch-1.pkl", &pickled(shortest));
}

#[test]
fn a_pickle_of_millions_of_other_things_fits() {
    assert_modest("epoch-1.pkl", &pickled(|_| b"K\x01\x85\x94".to_vec()));
}

#[test]
fn an_object_of_millions_of_keys_fits() {
    for nan in ["1", "NaN"] {
        let mut text = format!(r#"{{"step": 7, "other": {nan}"#);
        for number in 0.. {
            let item = format!(",\"{number:x}\":1");
            if text.len() + item.len() + 1 > SIZE {
                break;
            }
            text.push_str(&item);
        }
        text.push('}');
        assert_modest("epoch-1.json", text.as_bytes());
    }
}

#[test]
fn many_long_paths_fit() {
    let disk = tempfile::tempdir().unwrap();
    let run = disk.path().join("long-name-of-a-run".repeat(12)).join("long-name-of-what-it-does".repeat(9));
    for step in 0..24 {
        let directory = run.join(format!("step-{step}"));
        std::fs::create_dir_all(&directory).unwrap();
        for number in 0..2000 {
            std::fs::write(directory.join(format!("{}-{number}.json", "long".repeat(50))), "{}").unwrap();
        }
    }
    let peak = number_after(&look_at(disk.path()), "VmHWM:") << 10;
    assert!(peak < MOST, "{} MiB", peak >> 20);
}
