//! Directories full of nonsense: nothing breaks, and nothing is lost.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support {
    pub(crate) mod files;
}

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use support::files;
use trainyard_agent::scan::{Moment, Scanner, Writers};
use trainyard_agent::store::Directory;
use trainyard_agent::{Agent, Layout, Options, Resume};

const NAMES: [&str; 30] = [
    "step-1.pt",
    "step-2.pt",
    "epoch=1-step=5.ckpt",
    "last.ckpt",
    "model.bin",
    "model_3.ubj",
    "model_4.json",
    "checkpoint",
    "latest",
    "latest_checkpointed_iteration.txt",
    "ckpt-5.index",
    "ckpt-5.data-00000-of-00002",
    "ckpt-5.data-00001-of-00002",
    "trainer_state.json",
    "model.safetensors",
    "model.safetensors.index.json",
    ".metadata",
    "__0_0.distcp",
    "mp_rank_00_model_states.pt",
    "_CHECKPOINT_METADATA",
    "commit_success.txt",
    "random_states_0.pkl",
    "step-7.npz",
    "step-7.npy",
    "step-7.h5",
    "step-7.keras",
    "epoch-2.json",
    ".checkpoint.tmp",
    "notes",
    "checkpoint-is-incomplete.txt",
];

const DIRECTORIES: [&str; 10] = [
    "",
    "checkpoint-5",
    "checkpoint-6",
    "iter_0000100",
    "global_step30",
    "100",
    "200.orbax-checkpoint-tmp-7",
    "step-9",
    "deep/er/step-3",
    "ckpt-5_temp",
];

#[derive(Clone, Debug)]
enum Content {
    Random(Vec<u8>),
    /// One of the real formats, and how much of it.
    Cut(usize, prop::sample::Index),
    Whole(usize),
    Link(usize, usize),
}

fn formats() -> Vec<Vec<u8>> {
    let mut all = vec![
        files::torch(&[("epoch", 3)]),
        files::safetensors(3),
        files::ubjson(),
        files::digits(1, 2),
        files::pickle(&[("step", 4)]),
        b"100".to_vec(),
        b"global_step30".to_vec(),
        br#"{"global_step": 5, "weight_map": {"a": "../../etc/passwd"}}"#.to_vec(),
        b"model_checkpoint_path: \"../../ckpt-5\"".to_vec(),
    ];
    all.extend(files::dcp("a").into_iter().chain(files::tensorflow("b")).map(|(_, content)| content));
    all
}

fn content() -> impl Strategy<Value = Content> {
    let count = formats().len();
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200).prop_map(Content::Random),
        (0..count, any::<prop::sample::Index>()).prop_map(|(format, length)| Content::Cut(format, length)),
        (0..count).prop_map(Content::Whole),
        (0..DIRECTORIES.len(), 0..NAMES.len()).prop_map(|(directory, name)| Content::Link(directory, name)),
    ]
}

fn write(root: &Path, entries: &[(usize, usize, Content)]) {
    let formats = formats();
    for (directory, name, content) in entries {
        let directory = root.join(DIRECTORIES[*directory]);
        let path = directory.join(NAMES[*name]);
        fs::create_dir_all(&directory).unwrap();
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match content {
            Content::Random(bytes) => fs::write(path, bytes).unwrap(),
            Content::Cut(format, length) => {
                fs::write(path, &formats[*format][..length.index(formats[*format].len())]).unwrap();
            }
            Content::Whole(format) => fs::write(path, &formats[*format]).unwrap(),
            Content::Link(directory, name) => {
                symlink(root.join(DIRECTORIES[*directory]).join(NAMES[*name]), path).unwrap();
            }
        }
    }
}

/// The contents of all files, wherever they are now. What the agent writes for itself is not among them.
fn contents(root: &Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                all.push(fs::read(entry.path()).unwrap());
            }
        }
    }
    all.sort();
    all
}

fn agent(root: &Path, keep_last: usize) -> Agent {
    let options = Options {
        layouts: Layout::ALL.to_vec(),
        keep_last,
        resumed_from: None,
        resume: Resume::Auto,
        ready_file: None,
        attempt: None,
    };
    Agent::new(Box::new(Directory::new(root.to_str().unwrap())), options)
}

fn at(seconds: u64) -> Moment {
    Moment { wall: Timestamp::now(), elapsed: Duration::from_secs(seconds) }
}

proptest! {
    #[test]
    fn nothing_is_lost(entries in prop::collection::vec((0..DIRECTORIES.len(), 0..NAMES.len(), content()), 0..25)) {
        let disk = tempfile::tempdir().unwrap();
        write(disk.path(), &entries);
        let before = contents(disk.path());
        let mut agent = agent(disk.path(), 0);
        agent.begin(at(0));
        agent.look(at(10));
        prop_assert_eq!(contents(disk.path()), before);
    }

    #[test]
    fn only_old_complete_checkpoints_are_removed(
        entries in prop::collection::vec((0..DIRECTORIES.len(), 0..NAMES.len(), content()), 0..25),
    ) {
        let disk = tempfile::tempdir().unwrap();
        write(disk.path(), &entries);
        let store = Directory::new(disk.path().to_str().unwrap());
        let survey = Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::None).unwrap();
        let newest = survey.complete.first().map(|checkpoint| checkpoint.candidate.files.clone()).unwrap_or_default();
        let old: Vec<String> =
            survey.complete.iter().skip(1).flat_map(|checkpoint| checkpoint.candidate.files.clone()).collect();
        let mut must_stay: Vec<Vec<u8>> = Vec::new();
        for entry in survey.tree.entries().filter(|entry| entry.is_file() && !old.contains(&entry.path)) {
            must_stay.push(fs::read(disk.path().join(&entry.path)).unwrap());
        }
        // Asked for as the newest, so that the agent lets the program go and tidies up.
        let path = survey.complete.first().map(|checkpoint| disk.path().join(&checkpoint.candidate.path));
        let options = Options {
            layouts: Layout::ALL.to_vec(),
            keep_last: 1,
            resumed_from: path.map(|path| path.to_str().unwrap().to_owned()),
            resume: Resume::Auto,
            ready_file: None,
            attempt: None,
        };
        let mut agent = Agent::new(Box::new(store), options);
        agent.begin(at(0));
        agent.look(at(10));
        for path in newest {
            prop_assert!(disk.path().join(&path).exists(), "{path}");
        }
        let mut left = contents(disk.path());
        for content in must_stay {
            let found = left.iter().position(|other| *other == content);
            prop_assert!(found.is_some());
            left.remove(found.unwrap());
        }
    }
}
