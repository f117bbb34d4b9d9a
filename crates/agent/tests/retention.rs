//! Which checkpoints go when there are more than `keepLast`, and which never do.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support {
    pub(crate) mod files;
}

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use support::files;
use tempfile::TempDir;
use trainyard_agent::scan::{Moment, Scanner, Writers};
use trainyard_agent::store::Directory;
use trainyard_agent::{Agent, Layout, Options, Resume, Start};

/// A directory with files that were saved one after the other, a while ago.
struct Place(TempDir);

impl Place {
    fn with<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let begun = SystemTime::now() - Duration::from_hours(2);
        for (seconds, name) in (0..).zip(names) {
            place.save_at(name, begun + Duration::from_secs(seconds));
        }
        place
    }

    fn save_at(&self, name: &str, time: SystemTime) {
        let ending = Path::new(name).extension().unwrap_or_default();
        let content = match ending.to_str().unwrap() {
            "npz" => files::zip(&[("a.npy", &[1; 64])]),
            "npy" => npy(),
            "json" => b"{}".to_vec(),
            "pkl" => files::pickle(&[("a", 1)]),
            "log" => b"all is well".to_vec(),
            _ => files::torch(&[]),
        };
        self.write_at(name, &content, time);
    }

    fn write_at(&self, name: &str, content: &[u8], time: SystemTime) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    fn has(&self, name: &str) -> bool {
        self.0.path().join(name).exists()
    }

    fn newest(&self) -> Option<String> {
        let store = Directory::new(self.0.path().to_str().unwrap());
        let survey = Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::None).unwrap();
        survey.complete.first().map(|checkpoint| checkpoint.candidate.path.clone())
    }

    fn agent(&self, keep_last: usize, resumed_from: Option<&str>) -> Agent {
        let options = Options {
            layouts: Layout::ALL.to_vec(),
            keep_last,
            resumed_from: resumed_from.map(|name| format!("{}/{name}", self.0.path().display())),
            resume: Resume::Auto,
            ready_file: None,
            attempt: Some("uid/1".to_owned()),
        };
        Agent::new(Box::new(Directory::new(self.0.path().to_str().unwrap())), options)
    }

    /// Lets an attempt run that goes on from the newest and saves nothing.
    fn kept(&self, keep_last: usize) -> &Self {
        let newest = self.newest();
        let mut agent = self.agent(keep_last, newest.as_deref());
        agent.begin(at(0));
        assert_eq!(agent.start(), Start::Ready);
        agent.look(at(10));
        agent.look(at(20));
        self
    }
}

fn npy() -> Vec<u8> {
    let mut npy =
        b"\x93NUMPY\x01\x00\x3b\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }".to_vec();
    npy[8] = u8::try_from(npy.len() - 10).unwrap();
    npy.extend([0; 24]);
    npy
}

fn at(seconds: u64) -> Moment {
    Moment { wall: Timestamp::now(), elapsed: Duration::from_secs(seconds) }
}

/// `{}` filled with each of these.
fn all(name: &str, numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers.into_iter().map(|number| name.replace("{}", &number.to_string())).collect()
}

fn place_of(rows: &[Vec<String>]) -> Place {
    Place::with(rows.iter().flatten().map(String::as_str))
}

#[test]
fn what_is_saved_more_often_makes_nothing_else_old() {
    for (only, others) in [
        ("model-epoch-10.pt", all("preds-epoch-{}.npy", 1..=14)),
        ("models/epoch-10.pt", all("metrics/epoch-{}.json", 1..=14)),
        ("model-step-100.pt", all("ema-step-{}.pt", [100, 110, 120, 130, 140])),
        ("exp-a/epoch-10.pt", all("exp-b/epoch-{}.pt", 11..=13)),
        ("resnet50-epoch-10.pt", all("resnet101-epoch-{}.pt", 11..=14)),
        ("fold-1-epoch-3.pt", all("fold-2-epoch-{}.pt", 4..=8)),
        ("lr1e-4/epoch-10.pt", all("lr1e-5/epoch-{}.pt", 11..=14)),
    ] {
        let place = place_of(&[vec![only.to_owned()], others.clone()]);
        assert!(place.kept(3).has(only), "{only}");
        assert!(place.has(others.last().unwrap()), "{others:?}");
    }
}

#[test]
fn what_a_program_began_with_is_not_what_it_saves() {
    for (origin, own) in [
        ("base/model.pt", all("step-{}.npz", 3..=4)),
        ("base/model.pt", all("step-{}/params.npz", 3..=4)),
        ("net.pt", all("step-{}.npz", 3..=4)),
        ("last_scaler.pt", all("step-{}.npz", 3..=4)),
        ("tokenizer.pt", all("pretrained/step-{}.pt", 900..=901)),
        ("vocab.pt", all("pretrained_step_{}.pt", 900..=901)),
        ("pretrained_step_900.pt", all("epoch-{}.pt", 1..=2)),
    ] {
        let place = place_of(&[vec![origin.to_owned()], own.clone()]);
        let last = own.last().unwrap();
        let newest = place.newest().unwrap();
        assert!(last.starts_with(&newest), "{origin}: {newest} instead of {last}");
    }
}

#[test]
fn epochs_that_begin_anew_make_nothing_old() {
    // The program goes on counting steps, and begins with the first epoch when it is started again.
    let saved = ["epoch_1_step_1000.pt", "epoch_2_step_2000.pt", "epoch_3_step_3000.pt"];
    let again = ["epoch_0_step_4000.pt", "epoch_1_step_5000.pt"];
    let place = Place::with(saved.into_iter().chain(again));
    assert_eq!(place.newest().as_deref(), Some(again[1]));
    place.kept(2);
    assert!(again.iter().all(|name| place.has(name)));
    // Others begin with the first step in every epoch.
    let saved = ["epoch-0-step-400.pt", "epoch-0-step-500.pt", "epoch-1-step-100.pt", "epoch-1-step-200.pt"];
    let place = Place::with(saved);
    assert_eq!(place.newest().as_deref(), Some(saved[3]));
    place.kept(2);
    assert!(place.has(saved[2]) && place.has(saved[3]) && !place.has(saved[0]));
}

#[test]
fn what_a_program_writes_beside_its_checkpoints_is_none() {
    for (newest, states, outputs) in [
        ("step-400.pt", vec![], all("samples/step-{}.json", (1..=7).map(|hundred| hundred * 100))),
        ("step-400.pt", vec![], all("gallery/step-{}.json", (1..=7).map(|hundred| hundred * 100))),
        ("checkpoint.pt", vec![], all("metrics-epoch-{}.json", 1..=7)),
        ("checkpoints/last.ckpt", vec![], all("predictions/epoch-{}.json", 1..=5)),
        ("last.pt", vec![], all("eval/epoch_{}/predictions.json", 1..=6)),
        ("model.pt", vec![], all("embeddings_epoch_{}.npy", 1..=6)),
        (
            "step-1500.pt",
            all("step-{}.pt", [500, 1000]),
            all("maps/step-{}.npy", [200, 1800, 2000, 2200, 2400]),
        ),
    ] {
        // Some of it was there when the checkpoint was saved last.
        let (before, after) = outputs.split_at(2);
        let place = place_of(&[states, before.to_vec(), vec![newest.to_owned()], after.to_vec()]);
        assert_eq!(place.newest().as_deref(), Some(newest));
        place.kept(1);
        let gone: Vec<&String> = outputs.iter().filter(|name| !place.has(name)).collect();
        assert!(gone.is_empty() && place.has(newest), "{gone:?}");
    }
    // Nor is it when what is beside it was moved aside.
    let outputs = all("gallery/step-{}.json", 1..=5);
    let place = place_of(std::slice::from_ref(&outputs));
    place.write_at("step-4.pt", &files::torch(&[])[..60], SystemTime::now() - Duration::from_hours(1));
    place.kept(1);
    assert!(!place.has("step-4.pt") && outputs.iter().all(|name| place.has(name)));
    // Nor before there is a checkpoint, if its name says so.
    let outputs = all("samples/step-{}.json", 1..=5);
    let place = place_of(std::slice::from_ref(&outputs));
    assert_eq!(place.newest(), None);
    place.kept(1);
    assert!(outputs.iter().all(|name| place.has(name)));
    // A program that saves nothing else is one that does it so.
    let states = all("checkpoint-epoch-{}.json", 1..=5);
    let place = place_of(std::slice::from_ref(&states));
    assert_eq!(place.newest().as_ref(), states.last());
    place.kept(2);
    assert!(!place.has(&states[2]) && place.has(&states[3]) && place.has(&states[4]));
}

#[test]
fn steps_may_begin_anew_with_every_epoch() {
    for name in [
        "epoch-{e}-step-{s}.pt",
        "model_epoch{e}_batch{s}.pt",
        "checkpoint_epoch_{e}_step_{s}/model.pt",
        "epoch_{e}/step_{s}.pt",
        "epoch_{e}/step_{s}/model.pt",
    ] {
        let of = |epoch: u32| {
            all(&name.replace("{e}", &epoch.to_string()).replace("{s}", "{}"), [500, 1000, 1500])
        };
        let mut names = [of(0), of(1), of(2)].concat();
        names.pop();
        let place = place_of(std::slice::from_ref(&names));
        let newest = place.newest().unwrap();
        assert!(names[7].starts_with(&newest), "{newest}");
        place.kept(2);
        assert!(names[6..].iter().all(|name| place.has(name)), "{name}");
        let is_one_row = !name.starts_with("epoch_");
        assert_eq!(place.has(&names[2]), !is_one_row, "{name}");
    }
    // Global steps are in the same order either way.
    let names = ["epoch-0-step-900.pt", "epoch-1-step-1000.pt", "epoch-1-step-1100.pt"];
    assert_eq!(Place::with(names).newest().as_deref(), Some(names[2]));
    // Where names tell steps only, epochs inside may begin anew with every attempt.
    let place = Place::with([]);
    for (name, epoch) in [("step-100.pt", 5), ("step-200.pt", 0)] {
        place.write_at(name, &files::torch(&[("epoch", epoch)]), SystemTime::now() - Duration::from_hours(1));
    }
    assert_eq!(place.newest().as_deref(), Some("step-200.pt"));
}

#[test]
fn what_a_training_began_with_is_not_its_newest() {
    for origin in ["pretrained.pth", "resnet50_pretrained.pth", "init-epoch-299.pt", "pretrained/model.pt"] {
        let place = Place::with(["epoch-1.pt", "epoch-2.pt"]);
        place.write_at(origin, &files::torch(&[("epoch", 99)]), SystemTime::now() - Duration::from_hours(1));
        assert_eq!(place.newest().as_deref(), Some("epoch-2.pt"), "{origin}");
        assert!(place.kept(1).has(origin));
        let alone = Place::with([origin]);
        assert_eq!(alone.newest().as_deref(), Some(origin));
    }
    let place = Place::with(["vit-pretrained-epoch-9.pt", "epoch-1.pt"]);
    assert_eq!(place.newest().as_deref(), Some("vit-pretrained-epoch-9.pt"));
    // Thousands and millions.
    let names = ["step_2M.pt", "step_900k.pt", "step_1M.pt", "step_800k.pt"];
    let place = Place::with(names);
    assert_eq!(place.newest().as_deref(), Some("step_2M.pt"));
    place.kept(1);
    assert_eq!(names.map(|name| place.has(name)), [true, false, false, true], "and what was written last");
}

#[test]
fn of_every_row_the_last_ones_stay() {
    let place = place_of(&[all("exp-a/epoch-{}.pt", 1..=10), all("exp-b/epoch-{}.pt", 11..=20)]);
    place.kept(3);
    for (name, numbers) in [("exp-a/epoch-{}.pt", 1..=10), ("exp-b/epoch-{}.pt", 11..=20)] {
        let left: Vec<String> =
            all(name, numbers.clone()).into_iter().filter(|name| place.has(name)).collect();
        assert_eq!(left, all(name, numbers).split_off(7));
    }
}

#[test]
fn what_a_number_alone_names_stays() {
    for names in [
        // Folds, years, and an ensemble.
        [all("{}/model.pt", 0..5), all("{}/best.pt", 0..5), all("{}/train.log", 0..5)].concat(),
        [all("{}/model.pt", 2021..=2024), all("{}/scaler.pkl", 2021..=2024)].concat(),
        all("model_{}.pt", 0..5),
        all("model_{}.pt", 1..=12),
        all("{}.pt", 0..5),
        all("model_{}/weights.pt", 0..5),
        // One of the ensemble was moved aside.
        all("model_{}.pt", [0, 1, 2, 4, 5]),
        all("batch{}/weights.pt", [16, 32, 64, 128]),
    ] {
        let place = place_of(std::slice::from_ref(&names));
        place.kept(1);
        let gone: Vec<&String> = names.iter().filter(|name| !place.has(name)).collect();
        assert!(gone.is_empty(), "{gone:?}");
    }
    // But of what goes on, the old ones go.
    for names in [all("model_{}.pt", [100, 200, 300]), all("{}.pt", [500, 1000, 1500])] {
        let place = place_of(std::slice::from_ref(&names));
        assert!(!place.kept(1).has(&names[0]) && place.has(&names[2]), "{names:?}");
    }
    // As the file itself says.
    let place = Place::with([]);
    let names = all("model_{}.pt", 1..=4);
    for (epoch, name) in (1..).zip(&names) {
        place.write_at(name, &files::torch(&[("epoch", epoch)]), SystemTime::now() - Duration::from_hours(1));
    }
    assert!(!place.kept(1).has(&names[0]) && place.has(&names[3]));
}

#[test]
fn models_of_xgboost_go_only_where_each_has_a_round_more() {
    let json = |trees: u32, classes: u32| {
        format!(
            r#"{{"learner": {{"gradient_booster": {{"model": {{"gbtree_model_param": {{"num_parallel_tree": "1", "num_trees": "{trees}"}},
                "trees": []}}}}, "learner_model_param": {{"num_class": "{classes}"}}}}, "version": [3, 2, 0]}}"#
        )
        .into_bytes()
    };
    let ubjson = |trees: u32, _: u32| {
        let mut out = b"{L\0\0\0\0\0\0\0\x07learner{L\0\0\0\0\0\0\0\x09num_treesSL\0\0\0\0\0\0\0".to_vec();
        let digits = trees.to_string();
        out.push(u8::try_from(digits.len()).unwrap());
        out.extend(digits.as_bytes());
        out.extend(b"}}");
        out
    };
    let place_with = |name: &str, content: &dyn Fn(u32) -> Vec<u8>| {
        let place = Place::with([]);
        for (number, name) in (0..).zip(all(name, 0..5)) {
            place.write_at(&name, &content(number), SystemTime::now() - Duration::from_hours(1));
        }
        place
    };
    // Folds, with as many rounds or as each stopped at.
    for (name, content) in [
        ("model_{}.json", &(|_| json(100, 0)) as &dyn Fn(u32) -> Vec<u8>),
        ("model_{}.json", &|number| json([1, 17, 3, 40, 9][number as usize], 0)),
        ("model_{}.ubj", &|_| ubjson(100, 0)),
        ("model_{}.ubj", &|_| files::ubjson()),
    ] {
        let place = place_with(name, content);
        place.kept(1);
        assert!(all(name, 0..5).iter().all(|name| place.has(name)), "{name}");
    }
    // The rounds of one.
    for (name, content) in [
        ("model_{}.json", &(|number: u32| json(number + 1, 0)) as &dyn Fn(u32) -> Vec<u8>),
        ("model_{}.json", &|number| json((number + 1) * 3, 3)),
        ("model_{}.ubj", &|number| ubjson(number + 1, 0)),
    ] {
        let place = place_with(name, content);
        place.kept(2);
        let left: Vec<String> = all(name, 0..5).into_iter().filter(|name| place.has(name)).collect();
        assert_eq!(left, all(name, 3..5));
    }
}

#[test]
fn what_lightning_saves_with_deepspeed_goes_as_a_whole() {
    let names = all("epoch={}-step={}00.ckpt", 1..=4);
    let place = Place::with([]);
    let time = SystemTime::now() - Duration::from_hours(1);
    for name in &names {
        place.save_at(&format!("{name}/checkpoint/mp_rank_00_model_states.pt"), time);
        place.write_at(&format!("{name}/latest"), b"checkpoint", time);
    }
    assert_eq!(place.newest().as_ref(), names.last());
    place.kept(2);
    assert_eq!(names.iter().map(|name| place.has(name)).collect::<Vec<_>>(), [false, false, true, true]);
}

#[test]
fn a_directory_that_holds_the_best_stays() {
    let rows = [all("epoch-{}/model.pt", 1..=5), vec!["epoch-2/best.pt".to_owned()]];
    let place = place_of(&rows);
    place.kept(1);
    assert!(place.has("epoch-2/best.pt") && place.has("epoch-2/model.pt"));
    assert!(!place.has("epoch-1") && !place.has("epoch-3"));
}

#[test]
fn settings_in_the_name_of_a_directory_change_nothing() {
    for name in ["lr1e-4/ckpt-{}.pkl", "batch32/checkpoint-{}.pt", "resnet50-epochs100-bs32/step-{}.pt"] {
        let names = all(name, 1..=5);
        let place = place_of(std::slice::from_ref(&names));
        place.kept(2);
        let left: Vec<&String> = names.iter().filter(|name| place.has(name)).collect();
        assert_eq!(left, names[3..].iter().collect::<Vec<_>>());
    }
    let names = all("batch32/checkpoint-{}/weights.pt", [500, 1000, 1500]);
    let place = place_of(std::slice::from_ref(&names));
    assert!(!place.kept(1).has(&names[0]) && place.has(&names[2]));
    // Where the directory says how far it is, that alone is in doubt.
    let names = all("run-epochs100/checkpoint-{}.pt", [500, 1000, 1500]);
    let place = place_of(std::slice::from_ref(&names));
    assert!(!place.kept(1).has(&names[0]) && place.has(&names[2]));
}

#[test]
fn one_that_is_cut_off_takes_no_others_with_it() {
    for directory in ["lr1e-4", "resnet50-epochs100-batch32", "e5-large", "run-epochs100", "epoch-3"] {
        let names = all(&format!("{directory}/model_{{}}.pkl"), 1..=4);
        let place = place_of(std::slice::from_ref(&names));
        place.write_at(
            &names[3],
            &files::pickle(&[("a", 1)])[..9],
            SystemTime::now() - Duration::from_mins(5),
        );
        place.kept(0);
        assert!(names[..3].iter().all(|name| place.has(name)), "{directory}");
    }
    // Of parts of a whole, nobody knows whether they are that.
    let rows = [all("epoch-{}/model_1.pt", 1..=3), all("epoch-{}/model_2.pt", 1..=3)];
    let place = place_of(&rows);
    place.write_at(
        "epoch-3/model_2.pt",
        &files::torch(&[])[..50],
        SystemTime::now() - Duration::from_mins(5),
    );
    assert_eq!(place.newest().as_deref(), Some("epoch-2"));
    assert!(place.kept(0).has("epoch-3/model_1.pt") && place.has("epoch-3/model_2.pt"));
}

#[test]
fn an_odd_number_changes_no_order() {
    // Copied here the wrong way round, so that times say nothing.
    let names = all("step-{}.pt", (1..=12).rev().map(|hundred| hundred * 100));
    let place = place_of(&[names.clone(), vec!["eval-epoch-1.npz".to_owned()]]);
    assert_eq!(place.newest().as_deref(), Some("step-1200.pt"));
    place.kept(2);
    assert!(place.has("step-1200.pt") && place.has("step-1100.pt") && place.has("eval-epoch-1.npz"));
    assert!(!place.has("step-1000.pt") && !place.has("step-200.pt"));
    assert!(place.has("step-100.pt"), "what was written last stays");
    // Where both are what torch saves, the kind that was saved last is the newer one, and each is in its own order.
    let place = place_of(&[names, all("epoch-{}.pt", [9, 10])]);
    assert_eq!(place.newest().as_deref(), Some("epoch-10.pt"));
    place.kept(1);
    assert!(place.has("step-1200.pt") && place.has("epoch-10.pt"));
}
