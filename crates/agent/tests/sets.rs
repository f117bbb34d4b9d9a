//! Checkpoints of several files that only their names hold together: whole when all have saved theirs.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support {
    pub(crate) mod files;
}

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use support::files;
use tempfile::TempDir;
use trainyard_agent::crew::Workers;
use trainyard_agent::scan::{Moment, Scanner, Survey, Writers};
use trainyard_agent::store::Directory;
use trainyard_agent::{Agent, Layout, Options, Resume, Start};

/// A directory with files of torch that were saved a while ago.
struct Place(TempDir);

impl Place {
    fn with<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for name in names {
            place.save(name, files::torch(&[]));
        }
        place
    }

    fn save(&self, name: &str, content: impl AsRef<[u8]>) {
        self.save_at(name, content, SystemTime::now() - Duration::from_secs(30));
    }

    fn save_at(&self, name: &str, content: impl AsRef<[u8]>, time: SystemTime) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    fn store(&self) -> Directory {
        Directory::new(self.0.path().to_str().unwrap())
    }

    fn look(&self, writers: Writers) -> Survey {
        Scanner::new(Layout::ALL.to_vec()).look(&self.store(), at(0), writers).unwrap()
    }

    /// The complete ones, newest first, and the partial ones, when nobody writes.
    fn sorted(&self) -> (Vec<String>, Vec<String>) {
        let survey = self.look(Writers::None);
        (complete(&survey), survey.partial.iter().map(|(candidate, _)| candidate.path.clone()).collect())
    }

    fn agent(&self, resumed_from: Option<&str>, keep_last: usize, attempt: u32) -> Agent {
        self.agent_that(Resume::Auto, resumed_from, keep_last, attempt)
    }

    fn agent_that(
        &self,
        resume: Resume,
        resumed_from: Option<&str>,
        keep_last: usize,
        attempt: u32,
    ) -> Agent {
        let options = Options {
            layouts: Layout::ALL.to_vec(),
            keep_last,
            resumed_from: resumed_from.map(|name| format!("{}/{name}", self.0.path().display())),
            resume,
            ready_file: None,
            attempt: Some(format!("uid/{attempt}")),
        };
        Agent::new(Box::new(self.store()), options)
    }
}

fn at(seconds: u64) -> Moment {
    Moment { wall: Timestamp::now(), elapsed: Duration::from_secs(seconds) }
}

fn complete(survey: &Survey) -> Vec<String> {
    survey.complete.iter().map(|checkpoint| checkpoint.candidate.path.clone()).collect()
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().unwrap().to_str().unwrap()
}

#[test]
fn the_files_of_all_ranks_are_one_checkpoint() {
    let names = ["step-1-rank-0.pt", "step-1-rank-1.pt", "step-2-rank-0.pt", "step-2-rank-1.pt"];
    let place = Place::with(names);
    assert_eq!(place.sorted(), (vec!["step-2-rank-0.pt".to_owned(), "step-1-rank-0.pt".to_owned()], vec![]));
    let survey = place.look(Writers::None);
    assert_eq!(survey.complete[0].candidate.files, ["step-2-rank-0.pt", "step-2-rank-1.pt"]);
    let one = u64::try_from(files::torch(&[]).len()).unwrap();
    assert_eq!(survey.complete[0].size, 2 * one);
}

#[test]
fn a_rank_that_is_missing_or_cut_off_makes_the_step_partial() {
    let whole = files::torch(&[]);
    for rank_1 in [None, Some(&whole[..whole.len() - 1]), Some(&[][..])] {
        for [old, new] in [
            ["step-2-rank-{}.pt", "step-3-rank-{}.pt"],
            ["rank-{}/step-2.pt", "rank-{}/step-3.pt"],
            ["rank{}_step_2.pth", "rank{}_step_3.pth"],
            ["epoch-2/rank-{}.pt", "epoch-3/rank-{}.pt"],
            ["worker-{}-epoch-2.ckpt", "worker-{}-epoch-3.ckpt"],
            ["rank-{}/epoch-2/model.pt", "rank-{}/epoch-3/model.pt"],
            ["step-2-rank-{}/model.pt", "step-3-rank-{}/model.pt"],
        ] {
            let place = Place::with([]);
            let name = |text: &str, rank: u32| text.replace("{}", &rank.to_string());
            for rank in 0..2 {
                place.save(&name(old, rank), &whole);
            }
            place.save(&name(new, 0), &whole);
            if let Some(content) = rank_1 {
                place.save(&name(new, 1), content);
            }
            // A directory that is numbered is named itself.
            let lead = |text: &str| {
                let is_file = text.starts_with("rank-{}/step");
                let lead = if is_file {
                    text
                } else {
                    text.rsplit_once('/').map_or(text, |(directory, _)| directory)
                };
                name(lead, 0)
            };
            assert_eq!(place.sorted(), (vec![lead(old)], vec![lead(new)]), "{new}, {rank_1:?}");
            // As long as there are writers, the others may still come.
            let survey = place.look(Writers::Some);
            assert_eq!(complete(&survey), [lead(old)]);
            assert!(!survey.is_writing, "nothing has changed for a while");
        }
    }
}

#[test]
fn those_after_one_that_lacks_a_rank_lack_it_too() {
    let place = Place::with(["step-3-rank-0.pt", "step-3-rank-1.pt"]);
    let mut agent = place.agent(Some("step-3-rank-0.pt"), 1, 1);
    agent.begin(at(0));
    let names: Vec<String> = (4..=8).map(|step| format!("step-{step}-rank-0.pt")).collect();
    for name in &names[..4] {
        place.save(name, files::torch(&[]));
        agent.look(at(10));
        let report = agent.look(at(20));
        assert_eq!(file_name(&report.checkpoint.unwrap().path), "step-3-rank-0.pt", "{name}");
    }
    assert_eq!(place.sorted(), (vec!["step-3-rank-0.pt".to_owned()], names[..4].to_vec()));
    // In the end, the program saves otherwise. But the last that had more stays.
    place.save(&names[4], files::torch(&[]));
    agent.look(at(30));
    let report = agent.look(at(40));
    assert_eq!(file_name(&report.checkpoint.unwrap().path), "step-8-rank-0.pt");
    assert!(place.0.path().join("step-3-rank-1.pt").exists());
    // Unless there is such a one again.
    for name in ["step-9-rank-0.pt", "step-9-rank-1.pt"] {
        place.save(name, files::torch(&[]));
    }
    agent.look(at(50));
    agent.look(at(60));
    assert_eq!(place.sorted().0, ["step-9-rank-0.pt", "step-3-rank-0.pt"], "what was resumed from stays");
}

#[test]
fn one_that_was_missing_on_the_way_spares_nobody_for_ever() {
    let place = Place::with([]);
    let mut agent = place.agent(None, 1, 1);
    agent.begin(at(0));
    let all =
        ["step-1-rank-0.pt", "step-1-rank-1.pt", "step-2-rank-0.pt", "step-3-rank-0.pt", "step-3-rank-1.pt"];
    for name in all {
        place.save(name, files::torch(&[]));
    }
    agent.look(at(10));
    agent.look(at(20));
    assert!(!place.0.path().join("step-1-rank-1.pt").exists(), "it is not needed any more");
}

#[test]
fn what_takes_the_place_of_another_lacks_nothing() {
    for names in [
        ["part-1-step-100.pt", "part-2-step-200.pt"],
        ["node-7/epoch-5.pt", "node-9/epoch-6.pt"],
        // All of it is beside something, by the name of the directory.
        ["sched-sweep/model-epoch-1.pt", "sched-sweep/model-epoch-2.pt"],
    ] {
        let place = Place::with(names);
        place.save("sched-sweep/ema-epoch-1.pt", files::torch(&[]));
        assert_eq!(place.sorted().1, Vec::<String>::new(), "{names:?}");
    }
}

#[test]
fn a_better_result_may_not_come() {
    let names = ["model-epoch-1.pt", "model-epoch-2.pt", "model-epoch-3.pt", "model-epoch-4.pt"];
    let place = Place::with(names);
    for epoch in 1..=3 {
        place.save(&format!("improved-epoch-{epoch}.pt"), files::torch(&[]));
    }
    let (complete, partial) = place.sorted();
    assert_eq!((complete[0].as_str(), partial), ("model-epoch-4.pt", vec![]));
}

#[test]
fn of_two_saves_of_the_same_the_last_is_named() {
    let place = Place::with([]);
    let ago = |seconds| SystemTime::now() - Duration::from_secs(seconds);
    place.save_at("epoch=3-step=610.ckpt", files::torch(&[]), ago(50));
    place.save_at("epoch=3-step=610-v2.ckpt", files::torch(&[]), ago(30));
    place.save_at("epoch=3-step=610-v1.ckpt", files::torch(&[]), ago(40));
    assert_eq!(place.sorted().0[0], "epoch=3-step=610-v2.ckpt");
}

#[test]
fn what_the_job_was_told_of_lacks_nothing_and_without_knowledge_of_the_workers_nothing_does() {
    let names = ["step-1-rank-0.pt", "step-1-rank-1.pt", "step-2-rank-0.pt"];
    let place = Place::with(names);
    let report = place.agent(Some("step-2-rank-0.pt"), 0, 1).begin(at(0));
    assert_eq!((file_name(&report.checkpoint.unwrap().path), report.moved_aside), ("step-2-rank-0.pt", None));
    // Who had saved is noted where nobody can read it.
    let place = Place::with(names);
    fs::create_dir_all(place.0.path().join(".trainyard/crew")).unwrap();
    let report = place.agent(Some("step-1-rank-0.pt"), 0, 1).begin(at(0));
    assert_eq!((file_name(&report.checkpoint.unwrap().path), report.moved_aside), ("step-2-rank-0.pt", None));
}

#[test]
fn a_start_afresh_mixes_no_ranks_of_two_runs() {
    let place = Place::with(["step-1-rank-0.pt", "step-1-rank-1.pt", "step-2-rank-0.pt", "step-2-rank-1.pt"]);
    let mut agent = place.agent_that(Resume::Never, None, 1, 1);
    assert_eq!(agent.begin(at(0)).checkpoint, None);
    let ago = SystemTime::now() - Duration::from_secs(10);
    place.save_at("step-1-rank-0.pt", files::torch(&[]), ago);
    agent.look(at(10));
    // The other rank's is still of the run before.
    let survey = agent.look(at(20));
    assert_eq!(survey.checkpoint.unwrap().size, Some(i64::try_from(files::torch(&[]).len()).unwrap()));
    place.save_at("step-1-rank-1.pt", files::torch(&[]), ago);
    agent.look(at(20));
    let report = agent.look(at(30));
    assert_eq!(file_name(&report.checkpoint.unwrap().path), "step-1-rank-0.pt");
    for name in ["step-2-rank-0.pt", "step-2-rank-1.pt"] {
        assert!(place.0.path().join(name).exists(), "{name} is not ours to remove");
    }
}

#[test]
fn a_partial_step_is_moved_aside_as_a_whole() {
    let place = Place::with(["step-2-rank-0.pt", "step-2-rank-1.pt", "step-3-rank-0.pt"]);
    let mut agent = place.agent(Some("step-2-rank-0.pt"), 0, 1);
    let report = agent.begin(at(0));
    assert_eq!(agent.start(), Start::Ready);
    assert_eq!(file_name(&report.checkpoint.unwrap().path), "step-2-rank-0.pt");
    let told = "step-3-rank-0.pt (it lacks step-#-rank-#.pt of rank 1, which the one before has)";
    assert_eq!(report.moved_aside.as_deref(), Some(told));
    assert_eq!(agent.look(at(10)).moved_aside.as_deref(), Some(told), "as long as the agent runs");
    assert!(place.0.path().join(".trainyard/quarantine/step-3-rank-0.pt").exists());
    assert!(!place.0.path().join("step-3-rank-0.pt").exists());
}

#[test]
fn names_may_say_of_how_many_parts() {
    let names = ["step-3-00001-of-00003.pt", "step-3-00003-of-00003.pt"];
    let place = Place::with(names);
    assert_eq!(place.sorted(), (vec![], vec!["step-3-00001-of-00003.pt".to_owned()]));
    place.save("step-3-00002-of-00003.pt", files::torch(&[]));
    assert_eq!(place.sorted(), (vec!["step-3-00001-of-00003.pt".to_owned()], vec![]));
}

#[test]
fn what_has_no_rank_may_come_or_not() {
    let names = [
        "model-epoch-1.pt",
        "model-epoch-2.pt",
        "ema-epoch-2.pt",
        "model-epoch-3.pt",
        "ema-epoch-3.pt",
        "model-epoch-4.pt",
    ];
    assert_eq!(Place::with(names).sorted().1, Vec::<String>::new());
    // Two callbacks of Lightning, of which one keeps the best only.
    let names = [
        "epoch=5-step=50.ckpt",
        "epoch=5-step=50-val_loss=0.35.ckpt",
        "epoch=6-step=60.ckpt",
        "epoch=6-step=60-val_loss=0.31.ckpt",
        "epoch=7-step=70.ckpt",
    ];
    let (complete, partial) = Place::with(names).sorted();
    assert_eq!((complete[0].as_str(), partial), ("epoch=7-step=70.ckpt", vec![]));
    // Twice in a row is a habit, unless it is broken again with the next.
    let pair = |epoch: u32| [format!("model-epoch-{epoch}.pt"), format!("optim-epoch-{epoch}.pt")];
    let pairs = [pair(1), pair(2)].concat();
    let place = Place::with(texts(&pairs));
    place.save("model-epoch-3.pt", files::torch(&[]));
    assert_eq!(place.sorted().1, ["model-epoch-3.pt"]);
    place.save("model-epoch-4.pt", files::torch(&[]));
    assert_eq!(place.sorted().1, Vec::<String>::new());
    // Once may be enough: it is not gone on from, but nobody can be sure.
    for half in ["model-epoch-2.pt", "optim-epoch-2.pt"] {
        let place = Place::with(texts(&pair(1)));
        place.save(half, files::torch(&[]));
        assert_eq!(place.sorted(), (vec!["model-epoch-1.pt".to_owned()], vec![]), "{half}");
    }
    // But what has been begun belongs to it.
    let names = ["model-epoch-1.pt", "optim-epoch-1.pt", "model-epoch-2.pt"];
    let place = Place::with(names);
    place.save("optim-epoch-2.pt", &files::torch(&[])[..20]);
    assert_eq!(place.sorted(), (vec!["model-epoch-1.pt".to_owned()], vec!["model-epoch-2.pt".to_owned()]));
}

#[test]
fn the_one_before_stays_while_the_newest_has_fewer_files() {
    let place = Place::with([]);
    let mut agent = place.agent(None, 1, 1);
    agent.begin(at(0));
    for name in ["model-epoch-1.pt", "optim-epoch-1.pt", "model-epoch-2.pt"] {
        place.save(name, files::torch(&[]));
    }
    agent.look(at(10));
    agent.look(at(20));
    assert!(place.0.path().join("optim-epoch-1.pt").exists(), "that of epoch 2 may be still to come");
    place.save("optim-epoch-2.pt", files::torch(&[]));
    agent.look(at(30));
    agent.look(at(40));
    assert!(!place.0.path().join("optim-epoch-1.pt").exists());
}

#[test]
fn a_row_of_what_nobody_understands_is_left_alone() {
    let place = Place::with([]);
    for epoch in 1..=5 {
        place.save(&format!("checkpoint-epoch-{epoch}"), (0..=255).cycle().take(5000).collect::<Vec<u8>>());
        place.save(&format!("epoch-{epoch}.npz"), vec![7; 5000]);
    }
    assert_eq!(place.sorted(), (vec![], vec![]));
    place.save("epoch-1.pt", files::torch(&[]));
    place.save("epoch-2.pt", &files::torch(&[])[..50]);
    let survey = place.look(Writers::None);
    assert_eq!(complete(&survey), ["epoch-1.pt"]);
    assert_eq!(survey.partial.len(), 1);
    let (candidate, why) = &survey.partial[0];
    assert_eq!(
        (why.as_str(), candidate.roots.as_slice()),
        ("epoch-2.pt: its end is missing", &["epoch-2.pt".to_owned()][..])
    );
}

#[test]
fn a_set_that_has_what_the_one_before_has_counts_at_once() {
    let place = Place::with([]);
    let mut agent = place.agent(None, 0, 1);
    agent.begin(at(0));
    for name in ["step-1-rank-0.pt", "step-1-rank-1.pt"] {
        place.save(name, files::torch(&[]));
    }
    assert_eq!(agent.look(at(1)).checkpoint, None, "of the first, more may be to come");
    for name in ["step-2-rank-0.pt", "step-2-rank-1.pt"] {
        place.save_at(name, files::torch(&[]), SystemTime::now());
    }
    let report = agent.look(at(2));
    assert_eq!(file_name(&report.checkpoint.unwrap().path), "step-2-rank-0.pt");
}

#[test]
fn what_cannot_be_read_is_neither_used_nor_moved() {
    let place = Place::with(["step-2-rank-0.pt", "step-2-rank-1.pt", "step-3-rank-0.pt"]);
    // Something that is no file of torch at all.
    place.save("step-3-rank-1.pt", vec![7; 5000]);
    let survey = place.look(Writers::None);
    assert_eq!((complete(&survey), survey.partial.len()), (vec!["step-2-rank-0.pt".to_owned()], 0));
    assert!(survey.problems[0].contains("step-3-rank-1.pt"), "{:?}", survey.problems);
}

#[test]
fn a_model_is_named_and_not_its_optimizer() {
    let place = Place::with([]);
    place.save("epoch-1-optimizer.npz", files::zip(&[("a.npy", &[1; 4096])]));
    place.save("epoch-1-weights.npz", files::zip(&[("a.npy", &[1; 64])]));
    assert_eq!(place.sorted().0, ["epoch-1-weights.npz"]);
}

#[test]
fn other_series_say_nothing_about_each_other() {
    let names =
        ["epoch-1-rank-0.pt", "epoch-1-rank-1.pt", "step-50.pt", "last.pt", "best-epoch-1.pt", "epoch-2.pt"];
    assert_eq!(Place::with(names).sorted().1, Vec::<String>::new());
}

#[test]
fn what_is_missing_for_long_is_told_and_nothing_is_removed_for_it() {
    let place = Place::with([]);
    let mut agent = place.agent(None, 1, 1);
    agent.begin(at(0));
    for name in ["step-2-rank-0.pt", "step-2-rank-1.pt", "step-3-rank-0.pt"] {
        place.save(name, files::torch(&[]));
    }
    agent.look(at(0));
    let report = agent.look(at(10));
    assert_eq!(report.problem, None, "it may be on its way");
    assert_eq!(file_name(&report.checkpoint.unwrap().path), "step-2-rank-0.pt");
    place.save_at("step-3-rank-0.pt", files::torch(&[]), SystemTime::now() - Duration::from_mins(2));
    let problem = agent.look(at(130)).problem.unwrap();
    let words = "step-3-rank-0.pt is not taken for a checkpoint: it lacks step-#-rank-#.pt of rank 1, which the one before has";
    assert!(problem.contains(words), "{problem}");
    place.save("step-3-rank-1.pt", files::torch(&[]));
    agent.look(at(140));
    let report = agent.look(at(150));
    assert_eq!((file_name(&report.checkpoint.unwrap().path), report.problem), ("step-3-rank-0.pt", None));
    assert!(!place.0.path().join("step-2-rank-0.pt").exists(), "only now the one before may go");
}

/// Lets an attempt go, which saves these a moment later, and is looked at for a while.
fn attempt(place: &Place, resumed_from: Option<&str>, (number, pods): (u32, u64), saves: &[&str]) {
    let mut agent = place.agent(resumed_from, 0, number).with_workers(Workers { pods, processes: 1 });
    agent.begin(at(0));
    assert_eq!(agent.start(), Start::Ready);
    for name in saves {
        place.save_at(name, files::torch(&[]), SystemTime::now());
    }
    agent.look(at(10));
}

/// What the attempt after that is to go on from.
fn next(place: &Place, number: u32, pods: u64) -> Option<String> {
    let mut agent = place.agent(None, 0, number).with_workers(Workers { pods, processes: 1 });
    agent.begin(at(0)).checkpoint.map(|checkpoint| file_name(&checkpoint.path).to_owned())
}

fn ranks(step: u32, ranks: u32) -> Vec<String> {
    (0..ranks).map(|rank| format!("step-{step}-rank-{rank}.pt")).collect()
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

#[test]
fn fewer_workers_save_fewer_files() {
    let place = Place::with([]);
    let lead = |step| format!("step-{step}-rank-0.pt");
    attempt(&place, None, (1, 4), &texts(&ranks(1, 4)));
    attempt(&place, Some(&lead(1)), (2, 2), &texts(&ranks(2, 2)));
    // As long as they are there, and whoever comes after them.
    attempt(&place, Some(&lead(2)), (3, 2), &[]);
    attempt(&place, Some(&lead(2)), (4, 4), &[]);
    assert_eq!(next(&place, 5, 4), Some(lead(2)));
    attempt(&place, Some(&lead(2)), (6, 4), &texts(&ranks(3, 4)));
    assert_eq!(next(&place, 7, 4), Some(lead(3)));

    // But what four had begun is not whole because two of them go on.
    let place = Place::with([]);
    attempt(&place, None, (1, 4), &texts(&[ranks(1, 4), ranks(2, 2)].concat()));
    assert_eq!(next(&place, 2, 2), Some(lead(1)));
    assert!(place.0.path().join(".trainyard/quarantine/step-2-rank-1.pt").exists());
}

#[test]
fn the_clock_of_the_storage_may_be_behind() {
    let place = Place::with([]);
    let lead = |step| format!("step-{step}-rank-0.pt");
    let mut agent = place.agent(None, 0, 1).with_workers(Workers { pods: 3, processes: 1 });
    let ahead = Moment { wall: Timestamp::now() + SignedDuration::from_mins(1), elapsed: Duration::ZERO };
    agent.begin(ahead);
    for name in ranks(1, 3) {
        place.save_at(&name, files::torch(&[]), SystemTime::now());
    }
    let mut agent = place.agent(Some(&lead(1)), 0, 2).with_workers(Workers { pods: 2, processes: 1 });
    agent.begin(ahead);
    assert_eq!(agent.start(), Start::Ready);
    for name in ranks(2, 2) {
        place.save_at(&name, files::torch(&[]), SystemTime::now());
    }
    assert_eq!(next(&place, 3, 2), Some(lead(2)));
}

#[test]
fn parts_that_are_counted_speak_for_themselves() {
    let place = Place::with([]);
    let parts = |step: u32, of: u32| -> Vec<String> {
        (1..=of).map(|part| format!("step-{step}-{part:05}-of-{of:05}.pt")).collect()
    };
    attempt(&place, None, (1, 4), &texts(&parts(1, 4)));
    attempt(&place, Some(&parts(1, 4)[0]), (2, 4), &texts(&parts(2, 2)));
    assert_eq!(next(&place, 3, 4).as_deref(), Some("step-2-00001-of-00002.pt"));
}

#[test]
fn a_program_may_save_in_one_rank_only() {
    let place = Place::with([]);
    attempt(&place, None, (1, 4), &["rank-0-step-1.pt"]);
    assert_eq!(next(&place, 2, 4).as_deref(), Some("rank-0-step-1.pt"));
}

/// As `save_pretrained` and others save: parts in a directory that says how far it is.
#[test]
fn parts_in_a_numbered_directory_are_one_checkpoint() {
    for parts in [
        &["model-00001-of-00002.pt", "model-00002-of-00002.pt", "model.pt.index.json"][..],
        &["ft-model-00001-of-00002.pt", "ft-model-00002-of-00002.pt"],
        &["model_0.pt", "model_1.pt"],
        &["model.pt", "model_1.pt", "optimizer.pt"],
        &["rank-0/model.pt", "rank-1/model.pt"],
        &["mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt"],
    ] {
        let place = Place::with([]);
        let save = |directory: &str, part: &str| {
            let content = if part.ends_with("json") { b"{}".to_vec() } else { files::torch(&[]) };
            place.save(&format!("{directory}/{part}"), content);
        };
        for directory in ["step-100", "step-200", "step-300"] {
            for part in parts {
                save(directory, part);
            }
        }
        let steps = |steps: &[u32]| steps.iter().map(|step| format!("step-{step}")).collect::<Vec<_>>();
        assert_eq!(place.sorted(), (steps(&[300, 200, 100]), vec![]), "{parts:?}");
        // None is taken out of the newest, and a part that is missing is missed.
        let resumed = format!("{}/step-300", place.0.path().display());
        let mut agent = place.agent(Some("step-300"), 1, 1);
        assert_eq!(agent.begin(at(0)).checkpoint.unwrap().path, resumed, "{parts:?}");
        agent.look(at(10));
        assert_eq!(place.sorted(), (steps(&[300]), vec![]), "{parts:?}");
        save("step-400", parts[0]);
        if parts[0].contains("rank") || parts[0].contains("-of-") {
            assert_eq!(place.sorted(), (steps(&[300]), steps(&[400])), "{parts:?}");
        }
    }
}

#[test]
fn an_optimizer_that_is_saved_less_often_is_kept() {
    let place = Place::with([]);
    let mut agent = place.agent(None, 3, 1);
    agent.begin(at(0));
    for step in 1..=18 {
        place.save(&format!("model-step-{step}.pt"), files::torch(&[]));
        if step % 10 == 0 {
            place.save(&format!("optimizer-step-{step}.pt"), files::torch(&[]));
        }
        agent.look(at(step * 10));
        agent.look(at(step * 10 + 5));
    }
    let (complete, partial) = place.sorted();
    let kept = ["model-step-18.pt", "model-step-17.pt", "model-step-16.pt", "model-step-10.pt"];
    assert_eq!((complete, partial), (kept.map(str::to_owned).to_vec(), vec![]));
    assert!(place.0.path().join("optimizer-step-10.pt").exists());
}

#[test]
fn what_is_beside_a_model_is_never_named() {
    for names in [
        &["step-4-rank-0.pt", "step-4-rank-1.pt", "scheduler-step-4.pt"][..],
        &["net-step-2.pt", "opt-step-2.pt"],
    ] {
        assert_eq!(Place::with(names.iter().copied()).sorted().0, [names[0]], "{names:?}");
    }
    let place = Place::with(["optimizer-step-1.pt"]);
    place.save("model-step-1.npz", files::zip(&[("a.npy", &[1; 64])]));
    assert_eq!(place.sorted().0, ["model-step-1.npz"]);
}

#[test]
fn what_was_begun_belongs_to_it_from_the_first_on() {
    let cut = &files::torch(&[])[..50];
    for [whole, other] in [["model-step-1.pt", "optimizer-step-1.pt"], ["G_epoch_1.pth", "D_epoch_1.pth"]] {
        let place = Place::with([whole]);
        place.save(other, cut);
        assert_eq!(place.sorted().0, Vec::<String>::new(), "{whole}");
    }
    // Saved seldom, and cut off.
    let place = Place::with(["optimizer-step-10.pt"]);
    for step in [10, 18, 19, 20] {
        place.save(&format!("model-step-{step}.pt"), files::torch(&[]));
    }
    place.save("optimizer-step-20.pt", cut);
    assert_eq!(place.sorted().0[0], "model-step-19.pt");
    // Something else altogether is not touched, and not gone on from.
    let place = Place::with(["model-step-8.pt", "optimizer-step-8.pt", "model-step-9.pt"]);
    place.save("optimizer-step-9.pt", vec![7; 5000]);
    assert_eq!(place.sorted(), (vec!["model-step-8.pt".to_owned()], vec![]));
}

#[test]
fn the_last_of_several_saves_in_one_epoch_is_the_newest() {
    let place = Place::with([]);
    for (age, name) in [(50, "epoch-3-1000.pt"), (30, "epoch-3-3000.pt"), (40, "epoch-3-2000.pt")] {
        place.save_at(name, files::torch(&[]), SystemTime::now() - Duration::from_secs(age));
    }
    assert_eq!(place.sorted().0[0], "epoch-3-3000.pt");
    let place = Place::with(["bert_batch32_step1000.pt", "bert_batch32_step2000.pt"]);
    assert_eq!(place.sorted().0[0], "bert_batch32_step2000.pt");
}

/// A look, and a run of an agent that keeps only the newest: what is reported, what was moved aside, and which files are left.
fn kept_of(names: &[&str], cut: &[&str]) -> (Option<String>, Vec<String>) {
    let place = Place::with(names.iter().copied());
    for name in cut {
        place.save(name, &files::torch(&[])[..50]);
    }
    let newest = place.sorted().0.into_iter().next();
    let mut agent = place.agent(newest.as_deref(), 1, 1);
    agent.begin(at(0));
    assert_eq!(agent.start(), Start::Ready);
    agent.look(at(10));
    let left = names.iter().filter(|name| place.0.path().join(name).exists());
    (newest, left.map(|name| (*name).to_owned()).collect())
}

#[test]
fn a_number_alone_makes_no_checkpoint_of_a_directory() {
    for (directory, word, all) in [
        ("482913", "model", [100, 200, 300]),
        ("3", "model", [4999, 9999, 14999]),
        ("epoch_1", "batch", [5, 10, 15]),
    ] {
        let names = all.map(|number| format!("{directory}/{word}_{number}.pt"));
        let (newest, left) = kept_of(&[&names[0], &names[1]], &[&names[2]]);
        assert_eq!(newest.as_ref(), Some(&names[1]), "{directory}");
        assert!(left.contains(&names[1]), "{left:?}");
    }
    // What is in one says nothing about what is in another.
    let names = ["482913/model_100.pt", "482913/model_200.pt", "482999/model_100.pt"];
    assert!(kept_of(&names, &[]).1.contains(&names[1].to_owned()));
}

#[test]
fn nothing_is_taken_out_of_a_directory_that_says_how_far_it_is() {
    let names = ["epoch-2/model_0.pt", "epoch-2/model_1.pt", "epoch-3/model_0.pt", "epoch-3/model_1.pt"];
    for note in [None, Some("metrics_epoch_{}.json"), Some("sample_epoch_{}.png")] {
        let place = Place::with(names);
        for epoch in [2, 3] {
            if let Some(note) = note {
                place.save(&format!("epoch-{epoch}/{}", note.replace("{}", &epoch.to_string())), "{}");
            }
        }
        let mut agent = place.agent(Some("epoch-3"), 1, 1);
        let report = agent.begin(at(0));
        assert_eq!(file_name(&report.checkpoint.unwrap().path), "epoch-3", "{note:?}");
        agent.look(at(10));
        assert!(names[2..].iter().all(|name| place.0.path().join(name).exists()), "{note:?}");
        assert!(!place.0.path().join(names[0]).exists(), "{note:?}");
    }
    // Nobody knows what these are.
    for part in ["0.pt", "checkpoint_0.pt"] {
        let names = ["step-100/", "step-200/"].map(|directory| format!("{directory}{part}"));
        let others = names.clone().map(|name| name.replace('0', "1"));
        let all: Vec<&str> = names.iter().chain(&others).map(String::as_str).collect();
        assert_eq!(kept_of(&all, &[]).1.len(), all.len(), "{all:?}");
    }
}

#[test]
fn other_saves_of_one_epoch_are_others() {
    // As fairseq names them.
    let names = ["checkpoint1.pt", "checkpoint2.pt", "checkpoint3.pt"];
    let place = Place::with(names);
    place.save("checkpoint_3_1500.pt", &files::torch(&[])[..50]);
    let (complete, partial) = place.sorted();
    assert_eq!((complete[0].as_str(), partial), ("checkpoint3.pt", vec!["checkpoint_3_1500.pt".to_owned()]));
    // What an earlier one has is not what this one has.
    let place = Place::with([
        "checkpoint_1_500-shard0.pt",
        "checkpoint_1_500-shard1.pt",
        "checkpoint_1_1000-shard0.pt",
    ]);
    assert_eq!(place.sorted().0, ["checkpoint_1_500-shard0.pt"]);
    let place = Place::with([
        "model_epoch1_batch500.pt",
        "optimizer_epoch1_batch500.pt",
        "model_epoch1_batch1000.pt",
    ]);
    place.save("optimizer_epoch1_batch1000.pt", &files::torch(&[])[..50]);
    assert_eq!(place.sorted().0, ["model_epoch1_batch500.pt"]);
    // One after the other, and not parts.
    let names = ["fold-1-of-5-epoch-1.pt", "fold-1-of-5-epoch-2.pt"];
    assert_eq!(Place::with(names).sorted(), (vec![names[1].to_owned(), names[0].to_owned()], vec![]));
}

#[test]
fn a_checkpoint_in_json_is_not_made_up_for_by_its_metrics() {
    let place = Place::with([]);
    for name in ["checkpoint-epoch-2.json", "metrics-epoch-2.json", "metrics-epoch-3.json"] {
        place.save(name, r#"{"epoch": 1, "weights": [1, 2, 3]}"#);
    }
    place.save("checkpoint-epoch-3.json", r#"{"epoch": 1, "wei"#);
    assert!(place.sorted().0.iter().all(|path| path.contains("epoch-2")), "{:?}", place.sorted());
}

#[test]
fn what_is_being_written_says_nothing_later() {
    let place = Place::with([]);
    let mut scanner = Scanner::new(Layout::ALL.to_vec());
    let mut look =
        |place: &Place, seconds| complete(&scanner.look(&place.store(), at(seconds), Writers::Some).unwrap());
    place.save("step-9.json", r#"{"weights": [1, 2, 3]}"#);
    assert_eq!(look(&place, 0), ["step-9.json"]);
    // As long as this may become a checkpoint of torch, the other may be what was measured beside it.
    place.save_at("step-8.pt", "neither torch nor anything", SystemTime::now());
    assert_eq!(look(&place, 1), [""; 0]);
    place.save("step-8.pt", "neither torch nor anything");
    assert_eq!(look(&place, 2), [""; 0]);
    assert_eq!(look(&place, 60), ["step-9.json"]);
    place.save("step-10.pt", files::torch(&[]));
    assert_eq!(look(&place, 61), ["step-10.pt"]);
}

#[test]
fn averages_and_names_of_models() {
    let place = Place::with(["ema_step_100.pt"]);
    place.save("opt-125m_step_100.pt", files::torch(&[("step", 100)]));
    assert_eq!(place.sorted().0, ["opt-125m_step_100.pt"]);
    assert_eq!(Place::with(["model-step-2.pt", "ema-step-2.pt"]).sorted().0, ["model-step-2.pt"]);
}

#[test]
fn a_model_may_be_saved_more_often_than_its_optimizer() {
    let model = |epoch: u32| format!("model-epoch-{epoch}.pt");
    let optimizer = |epoch: u32| format!("optimizer-epoch-{epoch}.pt");
    // As all are there, and as keepLast: 2 leaves them.
    for (models, optimizers) in [(vec![1, 2, 3, 4, 5], vec![2, 4]), (vec![2, 4, 5], vec![2, 4])] {
        let names: Vec<String> =
            models.into_iter().map(model).chain(optimizers.into_iter().map(optimizer)).collect();
        let (complete, partial) = Place::with(texts(&names)).sorted();
        assert_eq!(partial, Vec::<String>::new(), "{names:?}");
        assert!(complete.contains(&model(4)), "{complete:?}");
    }
    let names: Vec<String> = (1..=5).map(model).chain([2, 4].map(optimizer)).collect();
    assert_eq!(Place::with(texts(&names)).sorted().0[0], model(5), "that is how it is done here");
}

#[test]
fn what_was_only_beside_a_model_is_not_gone_on_from() {
    let pair = |epoch: u32| [format!("samples-epoch-{epoch}.pt"), format!("model-epoch-{epoch}.pt")];
    let place = Place::with(texts(&[pair(2), pair(3)].concat()));
    place.save("samples-epoch-4.pt", files::torch(&[]));
    assert_eq!(place.sorted(), (vec!["model-epoch-3.pt".to_owned(), "model-epoch-2.pt".to_owned()], vec![]));
    // As often as they like.
    place.save("samples-epoch-5.pt", files::torch(&[]));
    assert_eq!(place.sorted().0[0], "model-epoch-3.pt");
    place.save("model-epoch-6.pt", files::torch(&[]));
    assert_eq!(place.sorted().0[0], "model-epoch-6.pt");
    let place = Place::with(["model-epoch-10.pt", "preds-epoch-10.pt"]);
    for epoch in 11..=14 {
        place.save(&format!("preds-epoch-{epoch}.pt"), files::torch(&[]));
    }
    assert_eq!(place.sorted().0[0], "model-epoch-10.pt");
    let place = Place::with(["model-step-100.pt", "ema-step-100.pt"]);
    for step in 101..=120 {
        place.save(&format!("ema-step-{step}.pt"), files::torch(&[]));
    }
    assert_eq!(place.sorted().0[0], "model-step-100.pt");
    // Unless the program has changed.
    let place = Place::with(["model-epoch-1.pt", "generator-epoch-1.pt"]);
    for epoch in 2..=6 {
        place.save(&format!("generator-epoch-{epoch}.pt"), files::torch(&[]));
    }
    assert_eq!(place.sorted().0[0], "generator-epoch-6.pt");
}

#[test]
fn a_directory_is_waited_for_as_long_as_it_lacks_what_the_one_before_has() {
    let place = Place::with(["step-50/model.pt", "step-50/client_state.pt"]);
    let mut agent = place.agent(Some("step-50"), 1, 1);
    agent.begin(at(0));
    let save = |name: &str, seconds| {
        place.save_at(name, files::torch(&[]), SystemTime::now() - Duration::from_secs(seconds));
    };
    save("step-100/model.pt", 20);
    agent.look(at(10));
    let report = agent.look(at(20));
    assert_eq!(file_name(&report.checkpoint.unwrap().path), "step-50");
    assert!(place.0.path().join("step-50/client_state.pt").exists());
    // It has come.
    save("step-100/client_state.pt", 20);
    agent.look(at(30));
    assert_eq!(file_name(&agent.look(at(40)).checkpoint.unwrap().path), "step-100");
    // It does not come.
    save("step-150/model.pt", 70);
    agent.look(at(50));
    assert_eq!(file_name(&agent.look(at(60)).checkpoint.unwrap().path), "step-150");
    assert!(place.0.path().join("step-100").exists(), "the newest has fewer files");
    // Whoever was killed in the middle of it leaves it so.
    let place = Place::with([]);
    for directory in ["step-50", "step-100", "step-150"] {
        place.save(&format!("{directory}/model.pt"), files::torch(&[]));
        if directory != "step-150" {
            place.save(&format!("{directory}/client_state.pt"), files::torch(&[]));
        }
    }
    assert_eq!(place.sorted(), (vec!["step-100".to_owned(), "step-50".to_owned()], vec![]));
}

#[test]
fn a_program_that_saves_in_fewer_ranks_gets_on() {
    let place = Place::with([]);
    let lead = |step: u32| format!("step-{step}-rank-0.pt");
    attempt(&place, None, (1, 2), &texts(&ranks(1, 2)));
    // From now on, only the first rank saves, and the attempts are short.
    let saves: Vec<String> = (2..=4).map(lead).collect();
    attempt(&place, Some(&lead(1)), (2, 2), &texts(&saves));
    assert_eq!(next(&place, 3, 2), Some(lead(1)), "three might have been cut off");
    attempt(&place, Some(&lead(1)), (4, 2), &texts(&saves));
    assert_eq!(next(&place, 5, 2), Some(lead(4)), "six are how it saves");
    assert_eq!(next(&place, 6, 2), Some(lead(4)));
    // One that has all again is what the next are held to.
    attempt(&place, Some(&lead(4)), (7, 2), &texts(&[ranks(5, 2), vec![lead(6)]].concat()));
    assert_eq!(next(&place, 8, 2), Some(lead(5)));
}

#[test]
fn another_program_saves_as_it_likes() {
    let place = Place::with([]);
    let agent = |number: u32, resumed_from: Option<&str>, inputs: &str| {
        let workers = Workers { pods: 2, processes: 1 };
        place.agent(resumed_from, 0, number).with_workers(workers).with_inputs(inputs.to_owned())
    };
    agent(1, None, "old").begin(at(0));
    for name in ranks(1, 2) {
        place.save_at(&name, files::torch(&[]), SystemTime::now());
    }
    agent(2, Some("step-1-rank-0.pt"), "new").begin(at(0));
    place.save_at("step-2-rank-0.pt", files::torch(&[]), SystemTime::now());
    let report = agent(3, Some("step-2-rank-0.pt"), "new").begin(at(0));
    assert_eq!((file_name(&report.checkpoint.unwrap().path), report.moved_aside), ("step-2-rank-0.pt", None));
}

#[test]
fn a_damaged_note_of_the_workers_is_made_anew() {
    let place = Place::with([]);
    let lead = |step: u32| format!("step-{step}-rank-0.pt");
    attempt(&place, None, (1, 2), &texts(&[ranks(1, 2), vec![lead(2)]].concat()));
    fs::write(place.0.path().join(".trainyard/crew"), "[{").unwrap();
    // Nobody knows who has saved the second.
    attempt(&place, Some(&lead(2)), (2, 2), &texts(&[ranks(3, 2), vec![lead(4)]].concat()));
    assert!(place.0.path().join(lead(2)).exists());
    // But from then on.
    assert_eq!(next(&place, 3, 2), Some(lead(3)));
    assert!(place.0.path().join(lead(2)).exists(), "of that, still nobody knows");
}
