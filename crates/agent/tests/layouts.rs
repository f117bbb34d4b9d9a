//! Every layout: whole, and with something missing.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support {
    pub(crate) mod files;
    pub(crate) mod odd;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use object_store::memory::InMemory;
use support::files as fixtures;
use support::files::{Files, file};
use support::odd::Odd;
use trainyard_agent::Layout;
use trainyard_agent::scan::{Moment, Scanner, Survey, Writers};
use trainyard_agent::store::{Bucket, Directory, Store};

fn at(seconds: u64) -> Moment {
    Moment { wall: Timestamp::now(), elapsed: Duration::from_secs(seconds) }
}

/// Puts the files into a new place of each kind, and looks.
fn on_every_store(files: &Files, check: impl Fn(&Survey, &dyn Store)) {
    let directory = tempfile::tempdir().unwrap();
    fixtures::write(directory.path(), files);
    let store = Directory::new(directory.path().to_str().unwrap());
    check(&Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::None).unwrap(), &store);

    let store = Bucket::over("s3://bucket/a", "bucket", "a", Arc::new(InMemory::new())).unwrap();
    for (path, content) in files {
        store.write(path, content).unwrap();
    }
    check(&Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::None).unwrap(), &store);
}

fn names(survey: &Survey) -> (Vec<String>, Vec<String>) {
    let complete = survey.complete.iter().map(|checkpoint| checkpoint.candidate.path.clone()).collect();
    (complete, survey.partial.iter().map(|(candidate, _)| candidate.path.clone()).collect())
}

#[track_caller]
fn assert_complete(files: &Files, layout: Layout, path: &str, step: Option<i64>, epoch: Option<i64>) {
    on_every_store(files, |survey, _| {
        assert_eq!(names(survey), (vec![path.to_owned()], vec![]), "{survey:?}");
        let checkpoint = &survey.complete[0];
        assert_eq!(checkpoint.candidate.layout, layout);
        assert_eq!((checkpoint.numbers.step, checkpoint.numbers.epoch), (step, epoch));
        assert_eq!(survey.problems, Vec::<String>::new());
    });
}

#[track_caller]
fn assert_partial(files: &Files, path: &str) {
    on_every_store(files, |survey, _| {
        assert_eq!(names(survey), (vec![], vec![path.to_owned()]), "{survey:?}");
    });
}

/// Each file missing in turn, but for those that may be missing.
fn without_each(files: &Files, optional: &[&str]) -> Vec<Files> {
    let needed = |path: &String| !optional.iter().any(|name| path.ends_with(name));
    let without = |left_out: &String| files.iter().filter(|(path, _)| path != left_out).cloned().collect();
    files.iter().filter(|(path, _)| needed(path)).map(|(path, _)| without(path)).collect()
}

/// Each file cut off by a byte in turn.
fn cut_each(files: &Files, endings: &[&str]) -> Vec<Files> {
    let mut all = Vec::new();
    for (index, (path, _)) in files.iter().enumerate() {
        if endings.iter().any(|ending| path.ends_with(ending)) {
            let mut cut = files.clone();
            cut[index].1.pop();
            all.push(cut);
        }
    }
    assert!(!all.is_empty());
    all
}

#[test]
fn torch_files_tell_their_step_by_name_or_content() {
    let content = fixtures::torch(&[("epoch", 3), ("global_step", 61)]);
    assert_complete(
        &vec![file("epoch=4-step=70.ckpt", content.clone())],
        Layout::Torch,
        "epoch=4-step=70.ckpt",
        Some(70),
        Some(4),
    );
    assert_complete(&vec![file("last.ckpt", content.clone())], Layout::Torch, "last.ckpt", Some(61), Some(3));
    assert_complete(&vec![file("a/b/model.pth", content)], Layout::Torch, "a/b/model.pth", Some(61), Some(3));
}

#[test]
fn a_note_beside_checkpoints_hides_none() {
    for note in ["report-epoch-3.txt", "epoch-3", "log-step-3.txt"] {
        let files = vec![
            file("checkpoint-epoch-2.json", "{}"),
            file("checkpoint-epoch-3.json", "{}"),
            file(note, "3 epochs\n"),
        ];
        on_every_store(&files, |survey, _| {
            let complete = vec!["checkpoint-epoch-3.json".to_owned(), "checkpoint-epoch-2.json".to_owned()];
            assert_eq!(names(survey), (complete, vec![]), "{note}");
        });
    }
    // What nothing says to be a checkpoint is none that was cut off.
    for name in ["dataset.tar", "dataset.bin"] {
        for content in [Vec::new(), vec![0; 4096]] {
            on_every_store(&vec![file(name, content)], |survey, _| {
                assert_eq!(names(survey), (vec![], vec![]));
            });
        }
    }
}

#[test]
fn a_torch_file_is_complete_only_as_a_whole() {
    let content = fixtures::torch(&[("epoch", 3)]);
    let directory = tempfile::tempdir().unwrap();
    let store = Directory::new(directory.path().to_str().unwrap());
    for length in 0..content.len() {
        std::fs::write(directory.path().join("epoch-3.pt"), &content[..length]).unwrap();
        let survey = Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::None).unwrap();
        assert_eq!(names(&survey), (vec![], vec!["epoch-3.pt".to_owned()]), "{length} bytes");
    }
}

#[test]
fn files_of_zeros_are_partial() {
    assert_partial(&vec![file("epoch-3.pt", vec![0; 10_000])], "epoch-3.pt");
    assert_partial(&vec![file("epoch-3.pt", Vec::new())], "epoch-3.pt");
    for ending in ["json", "npy", "h5", "ubj", "safetensors", "npz", "pkl", "msgpack", "params", "model"] {
        let name = format!("step-9.{ending}");
        // Data beside what a framework saves is no checkpoint.
        let is_data = ["json", "npy", "npz"].contains(&ending);
        let whole = if is_data { file("step-3.json", "{}") } else { file("step-3.pt", fixtures::torch(&[])) };
        let files = vec![whole.clone(), file(name.as_str(), vec![0; 4096])];
        on_every_store(&files, |survey, _| {
            assert_eq!(names(survey), (vec![whole.0.clone()], vec![name.clone()]));
        });
    }
    assert_partial(&vec![file("model_9.ubj", vec![0; 4096])], "model_9.ubj");
    let mut holed = fixtures::torch(&[("epoch", 3)]);
    holed[..40].fill(0);
    // Not an archive any more at its beginning, but nothing that could be called cut off either.
    on_every_store(&vec![file("epoch-3.pt", holed)], |survey, _| {
        assert_eq!(names(survey), (vec![], vec![]));
        assert_eq!(survey.problems.len(), 1, "{survey:?}");
    });
}

#[test]
fn json_that_is_not_closed_is_partial_wherever_it_was_cut() {
    for cut in ["{", "{\"st", "{\"st\n", "{\"loss\": Na", "[1, -Infin", "{\"a\": [1, 2],\n"] {
        assert_partial(&vec![file("step-9.json", cut)], "step-9.json");
    }
    // Lines of JSON are no document, but nothing is missing.
    assert_complete(
        &vec![file("step-9.json", "{\"a\": 1}\n{\"a\": 2}\n")],
        Layout::Files,
        "step-9.json",
        Some(9),
        None,
    );
}

#[test]
fn other_peoples_files_are_left_alone() {
    let files = vec![
        file("tokens.bin", vec![5; 1000]),
        file("README.md", "hello"),
        file("failed-once", ""),
        file("metrics.json", "{"),
        file("e2e-example-config.json", "{}"),
        file("model-7b-config.json", "{}"),
        file(".checkpoint.tmp", "half"),
        file("events.out.tfevents.17", "x"),
        file("data.zip", fixtures::zip(&[("a", b"b")])),
        file("pretrained.bin", fixtures::zip(&[("a", b"b")])),
    ];
    on_every_store(&files, |survey, _| {
        assert_eq!(names(survey), (vec![], vec![]), "{survey:?}");
        assert_eq!(survey.problems, Vec::<String>::new());
    });
}

#[test]
fn notes_beside_a_checkpoint_are_none() {
    let files = vec![
        file("epoch-2.pt", fixtures::torch(&[])),
        file("epoch-3.pt", fixtures::torch(&[])),
        file("metrics-epoch-3.json", r#"{"epoch": 3, "step": 900, "loss": 0.1}"#),
        // Its checkpoint is to come, or was removed.
        file("metrics-epoch-4.json", "{}"),
        file("metrics-epoch-1.json", "{}"),
        // Nor are others of the same kind elsewhere.
        file("a/metrics-epoch-9.json", "{}"),
        file("b/step-30/model.safetensors", fixtures::safetensors(3)),
        file("b/step-30.json", "{}"),
    ];
    on_every_store(&files, |survey, _| {
        let (mut complete, partial) = names(survey);
        complete.sort();
        assert_eq!(complete, ["b/step-30", "epoch-2.pt", "epoch-3.pt"]);
        assert_eq!(partial, Vec::<String>::new());
    });
}

#[test]
fn of_what_has_come_equally_far_the_more_specific_and_the_larger_is_the_newest() {
    let directory = tempfile::tempdir().unwrap();
    let store = Directory::new(directory.path().to_str().unwrap());
    let files = [
        ("epoch-3.pt", fixtures::torch(&[])),
        ("ema/epoch-3.safetensors", fixtures::safetensors(5000)),
        ("small/epoch-3.safetensors", fixtures::safetensors(50)),
    ];
    for directory in ["ema", "small"].map(|name| directory.path().join(name)) {
        std::fs::create_dir(directory).unwrap();
    }
    for (index, (name, content)) in (0..).zip(&files) {
        std::fs::write(directory.path().join(name), content).unwrap();
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_hours(480_000 + index);
        std::fs::File::options()
            .write(true)
            .open(directory.path().join(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
    let survey = Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::None).unwrap();
    assert_eq!(names(&survey).0, ["epoch-3.pt", "ema/epoch-3.safetensors", "small/epoch-3.safetensors"]);
}

#[test]
fn what_torch_saves_may_have_another_ending_or_none() {
    let content = fixtures::torch(&[("epoch", 3)]);
    for name in ["checkpoint_0003.pth.tar", "epoch-3.tar", "checkpoint-epoch-3", "epoch_3", "3.pth.tar"] {
        let files = vec![file(name, content.clone())];
        on_every_store(&files, |survey, _| {
            assert_eq!(names(survey), (vec![name.to_owned()], vec![]), "{survey:?}");
            let numbers = survey.complete[0].numbers;
            assert!(
                numbers.epoch == Some(3) && numbers.step.is_none_or(|step| step == 3),
                "{name}: {numbers:?}"
            );
            assert_eq!(survey.problems, Vec::<String>::new());
        });
    }
    let unnumbered =
        vec![file("checkpoint.pth.tar", content.clone()), file("model_best.pth.tar", content.clone())];
    on_every_store(&unnumbered, |survey, _| assert_eq!(survey.complete.len(), 2, "{survey:?}"));
    for name in ["checkpoint_0003.pth.tar", "checkpoint-epoch-3", "epoch-3.tar"] {
        assert_partial(&vec![file(name, content[..content.len() - 1].to_vec())], name);
    }
}

#[test]
fn a_name_without_an_ending_may_be_anybodys() {
    let binary: Vec<u8> = (0..=255).cycle().skip(7).take(5000).collect();
    // An archive of data, a mark, a note.
    let none = vec![
        file("train-0001.tar", binary.clone()),
        file("model-0001.tar", binary.clone()),
        file("epoch-3", ""),
        file("step-7", "done at noon\n"),
        file("checkpoints", binary.clone()),
    ];
    on_every_store(&none, |survey, _| {
        assert_eq!(names(survey), (vec![], vec![]));
        assert_eq!(survey.problems, Vec::<String>::new());
    });
    on_every_store(&vec![file("step-7", binary.clone())], |survey, _| {
        assert_eq!(names(survey), (vec![], vec![]));
        let words = "step-7 looks like a checkpoint, but its name does not say of what kind";
        assert!(survey.problems[0].contains(words) && survey.problems[0].contains("checkpoint.layout"));
    });
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("step-7"), &binary).unwrap();
    let store = Directory::new(directory.path().to_str().unwrap());
    let survey = Scanner::new(vec![Layout::Files]).look(&store, at(0), Writers::None).unwrap();
    assert_eq!(names(&survey).0, ["step-7"], "somebody has said what it is");
}

#[test]
fn what_is_not_what_its_ending_promises_is_no_checkpoint() {
    let garbage: Vec<u8> = (0..=255).cycle().skip(7).take(5000).collect();
    for ending in ["safetensors", "npz", "npy", "h5", "hdf5", "keras", "json", "pkl", "pickle"] {
        for name in [format!("step-9.{ending}"), format!("step-9/weights.{ending}")] {
            let files = vec![file("step-3.pt", fixtures::torch(&[])), file(name.as_str(), garbage.clone())];
            on_every_store(&files, |survey, _| {
                assert_eq!(names(survey), (vec!["step-3.pt".to_owned()], vec![]), "{name}");
                let problem = survey.problems.first().unwrap();
                assert!(
                    problem.contains("looks like a checkpoint, but") && problem.contains("left alone"),
                    "{problem}"
                );
            });
        }
    }
    // What is packed so, or in the first form of pickles, cannot be looked into.
    for packed in [&b"\x28\xb5\x2f\xfd and so on"[..], b"\x04\x22\x4d\x18 and so on", b"(dp0\nS'a'\np1\n"] {
        assert_complete(&vec![file("step-9.pkl", packed)], Layout::Files, "step-9.pkl", Some(9), None);
    }
    // Others have an end.
    for packed in [&b"\x1f\x8b\x08 and so on"[..], b"\xfd7zXZ\x00 and so on", b"BZh9 and so on"] {
        assert_partial(&vec![file("step-9.pkl", packed)], "step-9.pkl");
    }
}

#[test]
fn the_files_of_the_examples() {
    let files = vec![
        file("checkpoint-epoch-2.json", fixtures::digits(2, 40)),
        file("checkpoint-epoch-2-step-51.json", fixtures::digits(2, 51)),
        file("checkpoint-epoch-1.json", fixtures::digits(1, 20)),
        file("failed-once", ""),
    ];
    on_every_store(&files, |survey, _| {
        let (complete, _) = names(survey);
        assert_eq!(
            complete,
            ["checkpoint-epoch-2-step-51.json", "checkpoint-epoch-2.json", "checkpoint-epoch-1.json"]
        );
        assert_eq!(survey.complete[1].numbers.step, Some(40));
    });
    let whole = fixtures::digits(2, 40);
    assert_partial(
        &vec![file("checkpoint-epoch-2.json", &whole[..whole.len() - 1])],
        "checkpoint-epoch-2.json",
    );
}

#[test]
fn hugging_face() {
    let files = fixtures::huggingface("checkpoint-500", 500);
    assert_complete(&files, Layout::HuggingFace, "checkpoint-500", Some(500), Some(1));
    for lacking in without_each(&files, &["config.json", "training_args.bin", "optimizer.pt", ".index.json"])
    {
        assert_partial(&lacking, "checkpoint-500");
    }
    for cut in cut_each(&files, &[".safetensors", ".pt", ".bin", ".json"]) {
        if cut[0].1.len() == 2 {
            assert_partial(&cut, "checkpoint-500");
        }
    }
    let mut marked = files;
    marked.push(file("checkpoint-500/checkpoint-is-incomplete.txt", ""));
    assert_partial(&marked, "checkpoint-500");
}

#[test]
fn a_hugging_face_directory_is_known_by_its_neighbours() {
    let mut files = fixtures::huggingface("checkpoint-500", 500);
    files.push(file("checkpoint-1000/model.safetensors", fixtures::safetensors(3)));
    on_every_store(&files, |survey, _| {
        assert_eq!(names(survey), (vec!["checkpoint-500".to_owned()], vec!["checkpoint-1000".to_owned()]));
    });
}

#[test]
fn accelerate() {
    let files = vec![
        file("checkpoint-20/model.safetensors", fixtures::safetensors(3)),
        file("checkpoint-20/optimizer.bin", fixtures::torch(&[])),
        file("checkpoint-20/random_states_0.pkl", fixtures::pickle(&[("step", 1)])),
    ];
    assert_complete(&files, Layout::HuggingFace, "checkpoint-20", Some(20), None);
}

#[test]
fn a_programs_own_directories() {
    let files = vec![
        file("step-30/model.safetensors", fixtures::safetensors(3)),
        file("step-30/optimizer.pt", fixtures::torch(&[("epoch", 2)])),
    ];
    assert_complete(&files, Layout::Files, "step-30", Some(30), Some(2));
    for cut in cut_each(&files, &[".safetensors", ".pt"]) {
        assert_partial(&cut, "step-30");
    }
}

#[test]
fn distributed_checkpoints() {
    let files = fixtures::dcp("step_40");
    assert_complete(&files, Layout::Dcp, "step_40", Some(40), None);
    for lacking in without_each(&files, &[]) {
        assert_partial(&lacking, "step_40");
    }
    for cut in cut_each(&files, &[".distcp", ".metadata"]) {
        assert_partial(&cut, "step_40");
    }
}

#[test]
fn tensorflow() {
    let files = fixtures::tensorflow("train/ckpt-5");
    let mut named = files.clone();
    named.push(file(
        "train/checkpoint",
        "model_checkpoint_path: \"ckpt-5\"\nall_model_checkpoint_paths: \"ckpt-5\"\n",
    ));
    assert_complete(&named, Layout::TensorFlow, "train/ckpt-5", Some(5), None);
    for lacking in without_each(&files, &[]) {
        assert_partial(&lacking, "train/ckpt-5");
    }
    for cut in cut_each(&files, &["-of-00002", ".index"]) {
        assert_partial(&cut, "train/ckpt-5");
    }
}

#[test]
fn tensorflow_has_the_step_behind_a_name() {
    for (prefix, step) in [("model.ckpt-1000", 1000), ("cp-0010.ckpt", 10), ("run/model.ckpt-5", 5)] {
        assert_complete(&fixtures::tensorflow(prefix), Layout::TensorFlow, prefix, Some(step), None);
    }
    // As numbers, and not as texts.
    let files = [900, 1000].map(|step| fixtures::tensorflow(&format!("model.ckpt-{step}"))).concat();
    on_every_store(&files, |survey, _| assert_eq!(names(survey).0, ["model.ckpt-1000", "model.ckpt-900"]));
}

#[test]
fn orbax() {
    assert_complete(&fixtures::orbax("100"), Layout::Orbax, "100", Some(100), None);
    let unfinished = fixtures::orbax("200.orbax-checkpoint-tmp-1234");
    assert_partial(&unfinished, "200.orbax-checkpoint-tmp-1234");
}

#[test]
fn an_item_of_orbax_may_have_any_name() {
    let mut files = fixtures::orbax("100");
    files.push(file("100/d/_METADATA", "{}"));
    files.push(file("100/d/manifest.ocdbt", "manifest"));
    files.push(file("100/d/empty", ""));
    assert_complete(&files, Layout::Orbax, "100", Some(100), None);
    // Without what finds its arrays, an item is damaged, whatever it is called.
    let mut files = fixtures::orbax("100");
    files.push(file("100/d/_METADATA", "{}"));
    files.push(file("100/d/d/abc", "data"));
    assert_partial(&files, "100");
}

#[test]
fn who_names_the_layout_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = fixtures::orbax("100");
    files.retain(|(path, _)| path.starts_with("100/default"));
    fixtures::write(directory.path(), &files);
    let store = Directory::new(directory.path().to_str().unwrap());
    let look = |layouts: Vec<Layout>| Scanner::new(layouts).look(&store, at(0), Writers::None).unwrap();
    let survey = look(Layout::ALL.to_vec());
    assert_eq!(names(&survey), (vec![], vec![]));
    assert!(survey.problems[0].contains("checkpoint.layout"), "{:?}", survey.problems);
    let survey = look(vec![Layout::Orbax]);
    assert_eq!((names(&survey).0, survey.problems.len()), (vec!["100".to_owned()], 0));
    // Nobody is told to do what has been done.
    std::fs::write(directory.path().join("epoch-1.pt"), "something else").unwrap();
    let survey = look(vec![Layout::Torch]);
    assert!(survey.problems[0].contains("remove it") && !survey.problems[0].contains("checkpoint.layout"));
}

#[test]
fn shards_of_two_saves_are_no_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    fixtures::write(directory.path(), &fixtures::dcp("latest"));
    let store = Directory::new(directory.path().to_str().unwrap());
    let look = || Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::None).unwrap();
    let date = |name: &str, minutes: u64| {
        let file =
            std::fs::File::options().write(true).open(directory.path().join("latest").join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_mins(minutes)).unwrap();
    };
    for (first, second, metadata, is_whole) in [
        (60, 60, 60, true),
        (60, 59, 58, true),
        // Saved again, as far as this.
        (10, 60, 59, false),
        (60, 10, 59, false),
        // Copied, or saved as a whole again.
        (10, 10, 60, true),
    ] {
        date("__0_0.distcp", first);
        date("__1_0.distcp", second);
        date(".metadata", metadata);
        let survey = look();
        assert_eq!(names(&survey).0.len() == 1, is_whole, "{first}, {second}, {metadata}");
        assert!(survey.partial.is_empty(), "it may have been copied");
        assert_eq!(survey.problems.is_empty(), is_whole, "{:?}", survey.problems);
    }
}

#[test]
fn what_is_still_to_be_renamed_is_no_checkpoint() {
    for unfinished in [
        "step-300.tmp/model.pt",
        "tmp-checkpoint-300/model.safetensors",
        "tmp_step_300.pt",
        "tmp_step_300/model.pt",
        "step_300_incomplete/model.pt",
        "step-300.partial/model.pt",
        ".step-300/model.pt",
        "step-300.tmp/nested/epoch-9.pt",
    ] {
        let content = if unfinished.ends_with("pt") {
            fixtures::torch(&[("step", 99)])
        } else {
            fixtures::safetensors(4)
        };
        let files = vec![
            file("step-200/model.pt", fixtures::torch(&[])),
            file("step-200/optimizer.pt", fixtures::torch(&[])),
            file(unfinished, content),
        ];
        on_every_store(&files, |survey, _| {
            assert_eq!(names(survey), (vec!["step-200".to_owned()], vec![]), "{unfinished}");
        });
    }
    // Whatever its layout is.
    for files in [
        fixtures::huggingface("step-3.tmp/checkpoint-500", 500),
        fixtures::dcp("step-3.tmp"),
        fixtures::tensorflow("a.tmp/ckpt-5"),
    ] {
        on_every_store(&files, |survey, _| assert_eq!(names(survey), (vec![], vec![])));
    }
}

#[test]
fn megatron() {
    let mut files = fixtures::megatron(100);
    assert_complete(&files, Layout::Megatron, "iter_0000100", Some(100), None);
    for cut in cut_each(&files, &[".pt"]) {
        assert_partial(&cut, "iter_0000100");
    }
    files.push(file("iter_0000200/mp_rank_01/model_optim_rng.pt", fixtures::torch(&[])));
    on_every_store(&files, |survey, _| {
        assert_eq!(names(survey), (vec!["iter_0000100".to_owned()], vec!["iter_0000200".to_owned()]));
    });
    let cut = fixtures::torch(&[])[..60].to_vec();
    assert_partial(&vec![file("iter_0000200/mp_rank_00/model_optim_rng.pt", cut)], "iter_0000200");
}

#[test]
fn lightning_with_deepspeed_is_named_by_its_own_directory() {
    let files = |directory: &str| {
        vec![
            file(
                format!("{directory}/checkpoint/mp_rank_00_model_states.pt"),
                fixtures::torch(&[("global_step", 9)]),
            ),
            file(
                format!("{directory}/checkpoint/zero_pp_rank_0_mp_rank_00_optim_states.pt"),
                fixtures::torch(&[]),
            ),
            file(format!("{directory}/latest"), "checkpoint"),
            file(format!("{directory}/zero_to_fp32.py"), "#"),
        ]
    };
    let path = "epoch=2-step=300.ckpt";
    assert_complete(&files(path), Layout::DeepSpeed, path, Some(300), Some(2));
    for cut in cut_each(&files(path), &[".pt"]) {
        assert_partial(&cut, path);
    }
    // Killed before it was named.
    let mut unnamed = files(path);
    unnamed.retain(|(path, _)| !path.ends_with("latest"));
    on_every_store(&unnamed, |survey, _| assert_eq!(names(survey), (vec![], vec![])));
    // In a directory without a number, the tag is all there is.
    assert_complete(&files("last.ckpt"), Layout::DeepSpeed, "last.ckpt/checkpoint", None, None);
}

#[test]
fn what_may_be_good_beyond_a_pointer_is_left_where_it_is() {
    // The pointer was set back, or did not come along.
    for (first, second, pointer) in [
        (fixtures::megatron(100), fixtures::megatron(200), "latest_checkpointed_iteration.txt"),
        (fixtures::deepspeed(100), fixtures::deepspeed(200), "latest"),
    ] {
        let name_of = |files: &Files| files[0].0.split('/').next().unwrap().to_owned();
        let mut files = second.clone();
        files.retain(|(path, _)| path != pointer);
        on_every_store(&files, |survey, _| {
            assert_eq!(names(survey), (vec![], vec![]));
            let problem = survey.problems.join(" ");
            assert!(problem.contains(&name_of(&second)) && problem.contains("is missing"), "{problem}");
        });
        files.extend(first.clone());
        on_every_store(&files, |survey, _| {
            assert_eq!(names(survey), (vec![name_of(&first)], vec![]));
            let problem = survey.problems.join(" ");
            assert!(problem.contains(&name_of(&second)) && problem.contains("left alone"), "{problem}");
            assert!(!problem.contains("checkpoint.layout"), "that would not help: {problem}");
        });
    }
}

#[test]
fn deepspeed() {
    let mut files = fixtures::deepspeed(30);
    assert_complete(&files, Layout::DeepSpeed, "global_step30", Some(30), None);
    for cut in cut_each(&files, &[".pt"]) {
        assert_partial(&cut, "global_step30");
    }
    files.push(file("global_step40/mp_rank_00_model_states.pt", fixtures::torch(&[])));
    on_every_store(&files, |survey, _| {
        assert_eq!(names(survey), (vec!["global_step30".to_owned()], vec!["global_step40".to_owned()]));
    });
    // Without `latest` nothing can be said, so nothing is done.
    files.retain(|(path, _)| path != "latest");
    on_every_store(&files, |survey, _| assert_eq!(names(survey), (vec![], vec![])));
}

#[test]
fn a_pointer_that_does_not_read_makes_nothing_partial() {
    for (first, second, third, pointer) in [
        (
            fixtures::megatron(100),
            fixtures::megatron(200),
            fixtures::megatron(300),
            "latest_checkpointed_iteration.txt",
        ),
        (fixtures::deepspeed(100), fixtures::deepspeed(200), fixtures::deepspeed(300), "latest"),
    ] {
        let names_of = |files: &Files| files[0].0.split('/').next().unwrap().to_owned();
        let (second_name, third_name) = (names_of(&second), names_of(&third));
        // A full disk, a machine that lost power, and something else altogether.
        for content in ["", "\0\0\0", "a/b/c", &"long".repeat(2000)] {
            let mut files = [first.clone(), second.clone(), third.clone()].concat();
            files.retain(|(path, _)| path != pointer);
            files.push(file(pointer, content));
            on_every_store(&files, |survey, _| {
                assert_eq!(names(survey), (vec![second_name.clone(), names_of(&first)], vec![]));
                let problem = survey.problems.join(" ");
                assert!(problem.starts_with(&third_name) && problem.contains("does not read"), "{problem}");
            });
            // What is cut off by its content still is.
            files.iter_mut().find(|(path, _)| path.starts_with(&second_name)).unwrap().1.pop();
            on_every_store(&files, |survey, _| {
                assert_eq!(names(survey), (vec![names_of(&first)], vec![second_name.clone()]));
            });
        }
    }
}

#[test]
fn xgboost() {
    let model = fixtures::ubjson();
    assert_complete(&vec![file("model_5.ubj", model.clone())], Layout::XgBoost, "model_5.ubj", Some(6), None);
    for length in 0..model.len() {
        assert_partial(&vec![file("model_5.ubj", &model[..length])], "model_5.ubj");
    }
    let json = br#"{"learner": {"a": [1, 2]}, "version": [3, 2, 0]}"#;
    assert_complete(&vec![file("model_5.json", json)], Layout::XgBoost, "model_5.json", Some(6), None);
    assert_partial(&vec![file("model_5.json", &json[..json.len() - 1])], "model_5.json");
}

#[test]
fn what_is_too_large_for_the_agents_memory_is_believed() {
    const LARGE: usize = 17 << 20;
    let mut tensorflow = fixtures::tensorflow("ckpt-5");
    let index = tensorflow.pop().unwrap().1;
    let mut large = vec![0; LARGE];
    large.extend(&index[index.len() - 48..]);
    tensorflow.push(file("ckpt-5.index", large));

    let mut dcp = fixtures::dcp("step_40");
    dcp[2].1.resize(LARGE, 0);

    let mut huggingface = fixtures::huggingface("checkpoint-500", 500);
    huggingface[3].1.resize(LARGE, b' ');
    huggingface[3].1.push(b'}');

    let mut header = br#"{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#.to_vec();
    header.resize(LARGE, b' ');
    let safetensors = [&(LARGE as u64).to_le_bytes()[..], &header, &[1; 4]].concat();

    let names_of_members: Vec<String> =
        (0..300).map(|number| format!("archive/data/{number:060000}")).collect();
    let members = names_of_members.iter().map(|name| (name.as_str(), &b"x"[..]));
    let pickle = fixtures::pickle(&[]);
    let members: Vec<_> = std::iter::once(("archive/data.pkl", &pickle[..])).chain(members).collect();
    let archive = fixtures::zip(&members);

    for (files, name) in [
        (tensorflow, "ckpt-5"),
        (dcp, "step_40"),
        (huggingface, "checkpoint-500"),
        (vec![file("step-7.safetensors", safetensors)], "step-7.safetensors"),
        (vec![file("step-7.pt", archive)], "step-7.pt"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        fixtures::write(directory.path(), &files);
        let mut store = Odd::over(Directory::new(directory.path().to_str().unwrap()));
        let most = Arc::new(AtomicUsize::new(0));
        let noted = most.clone();
        store.was_read = Box::new(move |bytes| _ = noted.fetch_max(bytes, Ordering::SeqCst));
        let survey = Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::None).unwrap();
        assert_eq!(names(&survey), (vec![name.to_owned()], vec![]), "{:?}", survey.problems);
        assert!(most.load(Ordering::SeqCst) <= 16 << 20, "{name}");
    }
}

#[test]
fn other_formats() {
    let mut npy =
        b"\x93NUMPY\x01\x00\x3b\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }".to_vec();
    npy[8] = u8::try_from(npy.len() - 10).unwrap();
    npy.extend([0; 24]);
    let mut hdf5 = b"\x89HDF\r\n\x1a\n\0".to_vec();
    hdf5.resize(40, 0);
    hdf5.extend(100_u64.to_le_bytes());
    hdf5.resize(100, 1);
    let archive = fixtures::zip(&[("a.npy", &npy)]);
    let pickle = fixtures::pickle(&[("step", 1)]);
    for (name, content) in [
        ("step-7.npy", npy),
        ("step-7.weights.h5", hdf5),
        ("step-7.npz", archive.clone()),
        ("step-7.keras", archive),
        ("step-7.safetensors", fixtures::safetensors(4)),
        ("step-7.pkl", pickle),
    ] {
        assert_complete(&vec![file(name, content.clone())], Layout::Files, name, Some(7), None);
        assert_partial(&vec![file(name, &content[..content.len() - 1])], name);
    }
}

// From here on, the names are those that the frameworks themselves have left: `frameworks.rs` has them save.

#[test]
fn as_transformers_saves() {
    let files = fixtures::transformers("checkpoint-6", 6);
    assert_complete(&files, Layout::HuggingFace, "checkpoint-6", Some(6), Some(1));
    for cut in cut_each(&files, &["json", "pt", "pth", "bin", "safetensors"]) {
        assert_partial(&cut, "checkpoint-6");
    }
}

#[test]
fn as_accelerate_saves() {
    let files = fixtures::accelerate("checkpoints/checkpoint_2");
    assert_complete(&files, Layout::HuggingFace, "checkpoints/checkpoint_2", Some(2), None);
    for cut in cut_each(&files, &["bin", "safetensors", "pkl"]) {
        assert_partial(&cut, "checkpoints/checkpoint_2");
    }
}

#[test]
fn what_accelerate_saves_is_believed_when_it_is_quiet() {
    let directory = tempfile::tempdir().unwrap();
    fixtures::write(directory.path(), &fixtures::accelerate("checkpoint_2"));
    let store = Directory::new(directory.path().to_str().unwrap());
    let survey = Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::Some).unwrap();
    assert!(survey.is_writing && survey.complete.is_empty(), "registered objects may follow: {survey:?}");
}

#[test]
fn as_orbax_saves() {
    let files = fixtures::orbax_0_12("3");
    assert_complete(&files, Layout::Orbax, "3", Some(3), None);
    for cut in cut_each(&files, &["_METADATA", "_sharding", "manifest.ocdbt"]) {
        assert_partial(&cut, "3");
    }
    let mut empty = files.clone();
    empty
        .iter_mut()
        .filter(|(path, _)| path.contains("process_0/d/"))
        .for_each(|(_, content)| content.clear());
    assert_partial(&empty, "3");
    assert_partial(&files.into_iter().filter(|(path, _)| path != "3/default/manifest.ocdbt").collect(), "3");
}

#[test]
fn orbax_without_renaming_is_complete_when_it_is_committed() {
    // As it is told to where the directory is a bucket that is mounted.
    let mut files = fixtures::orbax_0_12("3");
    files.retain(|(path, _)| path != "3/commit_success.txt");
    files[0].1 = r#"{"item_handlers": {}, "init_timestamp_nsecs": 5, "commit_timestamp_nsecs": null}"#.into();
    assert_partial(&files, "3");
}

#[test]
fn as_tensorflow_saves_models() {
    let files = fixtures::saved_model("epoch-3");
    assert_complete(&files, Layout::TensorFlow, "epoch-3", None, Some(3));
    for less in without_each(&files, &["fingerprint.pb"]).iter().chain(&cut_each(&files, &["saved_model.pb"]))
    {
        assert_partial(less, "epoch-3");
    }
}

#[test]
fn as_lightgbm_saves() {
    let files = vec![file("model_6.txt", fixtures::LIGHTGBM)];
    assert_complete(&files, Layout::Files, "model_6.txt", Some(6), None);
    for cut in cut_each(&files, &["txt"]) {
        assert_partial(&cut, "model_6.txt");
    }
    // As other languages save it.
    let (model, _) = fixtures::LIGHTGBM.split_once("\npandas_categorical").unwrap();
    assert_complete(&vec![file("model_6.txt", model)], Layout::Files, "model_6.txt", Some(6), None);
    on_every_store(&vec![file("epoch-3.txt", "loss 0.5\n")], |survey, _| {
        assert_eq!(names(survey), (vec![], vec![]), "somebody's notes");
        assert_eq!(survey.problems, Vec::<String>::new());
    });
}

#[test]
fn as_flax_saved_before_it_used_orbax() {
    let files = vec![file("checkpoint_3", vec![0x82, 1, 2, 3, 4])];
    assert_complete(&files, Layout::Files, "checkpoint_3", Some(3), None);
}

// What is not understood is not called partial.

#[test]
fn arrays_of_other_kinds() {
    let npy = |kind: &str, shape: &str, bytes: usize| {
        let header = format!("{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut npy = b"\x93NUMPY\x01\x00".to_vec();
        npy.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        npy.extend(header.as_bytes());
        npy.resize(npy.len() + bytes, 1);
        npy
    };
    let name = "step-7.npy";
    for (kind, each) in [("[('a', '<f4'), ('b', '<i8')]", 12), ("'<M8[ns]'", 8), ("'<U3'", 12), ("'|O'", 5)] {
        let whole = npy(kind, "(3,)", 3 * each);
        assert_complete(&vec![file(name, whole.clone())], Layout::Files, name, Some(7), None);
        // What is known, is.
        assert_partial(&vec![file(name, &whole[..40])], name);
        if kind.starts_with("'<") {
            assert_partial(&vec![file(name, &whole[..whole.len() - 1])], name);
        }
    }
}

#[test]
fn as_joblib_saves_arrays() {
    // The name of its wrapper, then what the array consists of, in the middle of the opcodes, then their end.
    let mut whole =
        b"\x80\x04\x8c\x13joblib.numpy_pickle\x94\x8c\x11NumpyArrayWrapper\x94\x93)\x81}b".to_vec();
    whole.extend([0xee; 64]);
    whole.extend(b"s.");
    for name in ["step-7.joblib", "step-7.pkl"] {
        assert_complete(&vec![file(name, whole.clone())], Layout::Files, name, Some(7), None);
        assert_partial(&vec![file(name, &whole[..whole.len() - 1])], name);
    }
}

#[test]
fn directories_of_others_that_are_named_as_megatron_names_them() {
    let files = vec![file("iter_0001000/model.pt", fixtures::torch(&[]))];
    assert_complete(&files, Layout::Files, "iter_0001000", Some(1000), None);
}

#[test]
fn the_first_of_several_splits_is_no_part() {
    for name in ["split-1-of-5-epoch-3.pt", "set-1-of-5-epoch-3.pt"] {
        let files = vec![file(name, fixtures::torch(&[]))];
        assert_complete(&files, Layout::Torch, name, None, Some(3));
    }
    let files = ["split-1-of-5-epoch-3.pt", "split-2-of-5-epoch-3.pt"]
        .map(|name| file(name, fixtures::torch(&[])))
        .to_vec();
    on_every_store(&files, |survey, _| assert_eq!(names(survey).1, Vec::<String>::new()));
    // But so are these.
    let files = vec![
        file("model-1-of-3-step-3.pt", fixtures::torch(&[])),
        file("model-2-of-3-step-3.pt", fixtures::torch(&[])),
    ];
    assert_partial(&files, "model-1-of-3-step-3.pt");
}

#[cfg(unix)]
#[test]
fn a_shard_that_is_a_link_is_not_missing() {
    for (files, which) in [
        (fixtures::huggingface("checkpoint-500", 500), "model-00001-of-00002.safetensors"),
        (fixtures::huggingface("checkpoint-500", 500), "trainer_state.json"),
        (fixtures::dcp("step-40"), "__1_0.distcp"),
        (fixtures::dcp("step-40"), ".metadata"),
        (fixtures::tensorflow("ckpt-5"), "ckpt-5.data-00000-of-00002"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fixtures::write(directory.path(), &files);
        let (path, _) = files.iter().find(|(path, _)| path.ends_with(which)).unwrap();
        let path = directory.path().join(path);
        std::fs::rename(&path, elsewhere.path().join("blob")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path().join("blob"), &path).unwrap();
        let store = Directory::new(directory.path().to_str().unwrap());
        let survey = Scanner::new(Layout::ALL.to_vec()).look(&store, at(0), Writers::None).unwrap();
        assert_eq!(names(&survey), (vec![], vec![]), "{which}");
        assert!(survey.problems[0].contains("is a link"), "{:?}", survey.problems);
    }
}

/// As large files have it: 64-bit numbers behind what does not fit into 32 bits, or need not.
#[test]
fn archives_with_64_bits() {
    let pickled = fixtures::pickle(&[("epoch", 3)]);
    let (name, full) = ("archive/data.pkl", [0xff; 4]);
    let mut whole = b"PK\x03\x04\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    let size = u64::try_from(pickled.len()).unwrap().to_le_bytes();
    let name_length = u16::try_from(name.len()).unwrap().to_le_bytes();
    whole.extend(
        [&full[..], &full, &name_length, &[20, 0], name.as_bytes(), &[1, 0, 16, 0], &size, &size].concat(),
    );
    whole.extend(&pickled);
    let directory_at = u64::try_from(whole.len()).unwrap();
    // Something else before the numbers that count: sizes, then where it is.
    let extra = [&[9, 9, 2, 0, 5, 5, 1, 0, 24, 0][..], &size, &size, &0_u64.to_le_bytes()].concat();
    let mut directory = b"PK\x01\x02\x2d\0\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    let extra_length = u16::try_from(extra.len()).unwrap().to_le_bytes();
    directory.extend(
        [&full[..], &full, &name_length, &extra_length, &[0; 10], &full, name.as_bytes(), &extra].concat(),
    );
    let directory_size = u64::try_from(directory.len()).unwrap();
    whole.extend(&directory);
    let record_at = u64::try_from(whole.len()).unwrap();
    whole.extend([&b"PK\x06\x06"[..], &44_u64.to_le_bytes(), &[45, 0, 45, 0], &[0; 8]].concat());
    for number in [1, 1, directory_size, directory_at] {
        whole.extend(number.to_le_bytes());
    }
    whole.extend([&b"PK\x06\x07\0\0\0\0"[..], &record_at.to_le_bytes(), &[1, 0, 0, 0]].concat());
    whole.extend([&b"PK\x05\x06\0\0\0\0"[..], &[0xff; 12], &[0, 0]].concat());
    assert_complete(&vec![file("last.pt", whole.clone())], Layout::Torch, "last.pt", None, Some(3));
    for length in [whole.len() - 1, whole.len() - 22, whole.len() - 43, whole.len() - 99] {
        assert_partial(&vec![file("last.pt", &whole[..length])], "last.pt");
    }
    // A hole where the record should be.
    let at = usize::try_from(record_at).unwrap();
    whole[at..at + 56].fill(0);
    assert_partial(&vec![file("last.pt", whole)], "last.pt");
}
