//! What the agent decides and does, look by look, in a directory.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support {
    pub(crate) mod files;
    pub(crate) mod odd;
}

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use support::files::{self, file};
use support::odd::Odd;
use tempfile::TempDir;
use trainyard_agent::crew::Workers;
use trainyard_agent::room::Room;
use trainyard_agent::scan::Moment;
use trainyard_agent::store::Directory;
use trainyard_agent::{Agent, Layout, Options, Resume, Start};
use trainyard_api::checkpoint::AgentReport;

struct Place {
    disk: TempDir,
}

impl Place {
    fn new() -> Self {
        let disk = tempfile::tempdir().unwrap();
        fs::create_dir(disk.path().join("checkpoints")).unwrap();
        Self { disk }
    }

    fn root(&self) -> PathBuf {
        self.disk.path().join("checkpoints")
    }

    fn path(&self, name: &str) -> String {
        self.root().join(name).to_str().unwrap().to_owned()
    }

    fn with(self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        files::write(&self.root(), &vec![file(name, content)]);
        self
    }

    fn add(&self, name: &str, content: impl Into<Vec<u8>>) {
        files::write(&self.root(), &vec![file(name, content)]);
    }

    /// As if it had been written long ago, or in the future.
    fn date(&self, name: &str, time: SystemTime) {
        fs::File::options().write(true).open(self.root().join(name)).unwrap().set_modified(time).unwrap();
    }

    fn agent(&self, options: Options) -> Agent {
        Agent::new(Box::new(Directory::new(self.root().to_str().unwrap())), options)
    }

    fn ready_file(&self) -> PathBuf {
        self.disk.path().join("run/ready")
    }

    fn options(&self) -> Options {
        Options {
            layouts: Layout::ALL.to_vec(),
            keep_last: 0,
            resumed_from: Some(String::new()),
            resume: Resume::Auto,
            ready_file: Some(self.ready_file()),
            attempt: None,
        }
    }

    fn resumed_from(&self, name: &str) -> Options {
        Options { resumed_from: Some(self.path(name)), ..self.options() }
    }

    fn names(&self) -> Vec<String> {
        names_in(&self.root())
    }
}

fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| name != ".trainyard");
    names.sort();
    names
}

fn at(seconds: u64) -> Moment {
    Moment { wall: Timestamp::now(), elapsed: Duration::from_secs(seconds) }
}

fn path_of(report: &AgentReport) -> Option<&str> {
    report.checkpoint.as_ref().map(|checkpoint| checkpoint.path.as_str())
}

#[test]
fn an_empty_directory_lets_the_program_go() {
    let place = Place::new();
    let mut agent = place.agent(place.options());
    assert_eq!(agent.begin(at(0)), AgentReport::default());
    assert!(place.ready_file().exists());
}

#[test]
fn the_right_checkpoint_lets_the_program_go_and_another_does_not() {
    let place = Place::new().with("step-1.pt", files::torch(&[])).with("step-2.pt", files::torch(&[]));
    let second = place.path("step-2.pt");
    for given in ["step-1.pt", "gone.pt", ""] {
        let given = if given.is_empty() { String::new() } else { place.path(given) };
        let mut agent = place.agent(Options { resumed_from: Some(given), ..place.options() });
        let report = agent.begin(at(0));
        assert!(report.resume_differs);
        assert_eq!(path_of(&report), Some(second.as_str()), "what should have been given");
        assert!(agent.look(at(2)).resume_differs, "until the attempt is started anew");
        assert!(!place.ready_file().exists());
    }
    let report = place.agent(place.resumed_from("step-2.pt")).begin(at(0));
    assert!(!report.resume_differs);
    assert!(place.ready_file().exists());
}

#[test]
fn a_checkpoint_that_is_gone_is_not_resumed_from() {
    let place = Place::new();
    let report = place.agent(place.resumed_from("step-2.pt")).begin(at(0));
    assert_eq!((report.resume_differs, report.checkpoint), (true, None));
    assert!(!place.ready_file().exists());
}

#[test]
fn a_job_that_never_resumes_ignores_and_keeps_what_is_there() {
    let place = Place::new().with("step-8.pt", files::torch(&[])).with("step-9.pt", files::torch(&[]));
    let mut agent = place.agent(Options { resume: Resume::Never, keep_last: 1, ..place.options() });
    assert_eq!(agent.begin(at(0)), AgentReport::default());
    assert!(place.ready_file().exists());
    for step in 1..=2 {
        place.add(&format!("step-{step}.pt"), files::torch(&[]));
        let report = agent.look(at(step * 10));
        assert_eq!(path_of(&report), Some(place.path(&format!("step-{step}.pt")).as_str()));
    }
    assert_eq!(place.names(), ["step-2.pt", "step-8.pt", "step-9.pt"]);
}

#[test]
fn a_start_afresh_is_not_forgotten() {
    let place = Place::new();
    files::write(&place.root(), &files::deepspeed(900));
    place.add("step-800.pt", files::torch(&[]));
    let attempt = |number: u32| Some(format!("uid/{number}"));
    let afresh = || Options { resume: Resume::Never, keep_last: 1, attempt: attempt(1), ..place.options() };
    place.agent(afresh()).begin(at(0));
    files::write(&place.root(), &files::deepspeed(10));
    // Started again in the same attempt, in which the program runs.
    for step in [10, 20] {
        files::write(&place.root(), &files::deepspeed(step));
        let report = place.agent(afresh()).begin(at(10));
        assert_eq!(path_of(&report), Some(place.path(&format!("global_step{step}")).as_str()));
    }
    assert_eq!(place.names(), ["global_step20", "global_step900", "latest", "step-800.pt"]);
    // The user lets the same job resume again, or makes it again.
    let later =
        |attempt: &str| Options { attempt: Some(attempt.to_owned()), ..place.resumed_from("global_step20") };
    let mut agent = place.agent(later("uid/2"));
    assert_eq!((agent.begin(at(0)).problem, agent.start()), (None, Start::Ready));
    assert!(
        place.names().contains(&"global_step900".to_owned()),
        "it was complete, whatever `latest` says now"
    );
    // Another job knows nothing of that.
    let mut agent = place.agent(later("other/1"));
    agent.begin(at(0));
    assert_eq!(agent.start(), Start::Differs);
}

#[test]
fn without_a_note_of_a_start_afresh_nothing_is_removed() {
    let place = Place::new();
    let options = || Options {
        resume: Resume::Never,
        keep_last: 1,
        attempt: Some("uid/1".to_owned()),
        ..place.options()
    };
    place.agent(options()).begin(at(0));
    fs::remove_file(place.root().join(".trainyard/ignored")).unwrap();
    for step in 7..=9 {
        place.add(&format!("step-{step}.pt"), files::torch(&[]));
    }
    let mut agent = place.agent(options());
    assert_eq!(agent.begin(at(0)), AgentReport::default());
    place.add("step-1.pt", files::torch(&[]));
    assert_eq!(path_of(&agent.look(at(10))), Some(place.path("step-1.pt").as_str()));
    assert_eq!(place.names(), ["step-1.pt", "step-7.pt", "step-8.pt", "step-9.pt"]);
}

#[test]
fn a_file_that_names_what_is_moved_aside_names_the_one_before() {
    let cut = |files: &files::Files, ending: &str| {
        let mut files = files.clone();
        files
            .iter_mut()
            .filter(|(path, _)| path.ends_with(ending))
            .for_each(|(_, content)| content.truncate(20));
        files
    };
    let mut tensorflow = files::tensorflow("ckpt-2");
    tensorflow.push(files::tensorflows_list(&[1, 2]));
    let list = String::from_utf8(files::tensorflows_list(&[1]).1).unwrap();
    let cases = [
        (
            files::deepspeed(10),
            cut(&files::deepspeed(20), "states.pt"),
            "global_step10",
            "latest",
            "global_step10",
        ),
        (
            files::megatron(10),
            cut(&files::megatron(20), "rng.pt"),
            "iter_0000010",
            "latest_checkpointed_iteration.txt",
            "10",
        ),
        (files::tensorflow("ckpt-1"), cut(&tensorflow, ".index"), "ckpt-1", "checkpoint", list.as_str()),
        (
            // Newer, but of another series.
            [files::tensorflow("ckpt-1"), files::saved_model("export-5")].concat(),
            cut(&tensorflow, ".index"),
            "ckpt-1",
            "checkpoint",
            list.as_str(),
        ),
        (
            vec![file("model_1.pth", files::torch(&[]))],
            vec![file("model_2.pth", "PK"), file("last_checkpoint", "model_2.pth")],
            "model_1.pth",
            "last_checkpoint",
            "model_1.pth",
        ),
    ];
    for (before, partial, newest, pointer, content) in cases {
        let place = Place::new();
        files::write(&place.root(), &before);
        files::write(&place.root(), &partial);
        let mut agent = place.agent(place.resumed_from(newest));
        assert_eq!((agent.begin(at(0)).problem, agent.start()), (None, Start::Ready), "{pointer}");
        assert_eq!(fs::read_to_string(place.root().join(pointer)).unwrap(), content);

        // Where there is none before it, nothing is named.
        let place = Place::new();
        files::write(&place.root(), &partial);
        assert_eq!(place.agent(place.options()).begin(at(0)).problem, None);
        assert_eq!(place.names(), Vec::<String>::new());
        assert!(place.root().join(".trainyard/quarantine").join(pointer).exists());
    }
}

#[test]
fn what_the_newest_names_as_the_best_is_not_removed() {
    let place = Place::new();
    for step in 1..=4 {
        let mut files = files::transformers(&format!("checkpoint-{step}"), step);
        let state = format!(r#"{{"global_step": {step}, "best_model_checkpoint": "out/checkpoint-2"}}"#);
        files.push(file(format!("checkpoint-{step}/trainer_state.json"), state));
        files::write(&place.root(), &files);
    }
    let mut agent = place.agent(Options { keep_last: 1, ..place.resumed_from("checkpoint-4") });
    agent.begin(at(0));
    agent.look(at(10));
    assert_eq!(place.names(), ["checkpoint-2", "checkpoint-4"]);

    let place = Place::new();
    for epoch in 1..=5 {
        // With `save_top_k=2`.
        let best = ["/elsewhere/epoch=1-step=10.ckpt", "/elsewhere/epoch=3-step=30.ckpt"];
        place.add(&format!("epoch={epoch}-step={epoch}0.ckpt"), files::lightning(epoch, &best));
    }
    let mut agent = place.agent(Options { keep_last: 1, ..place.resumed_from("epoch=5-step=50.ckpt") });
    agent.begin(at(0));
    agent.look(at(10));
    assert_eq!(place.names(), ["epoch=1-step=10.ckpt", "epoch=3-step=30.ckpt", "epoch=5-step=50.ckpt"]);
}

#[test]
fn too_little_room_for_another_checkpoint_is_told_until_there_is_more() {
    let place = Place::new().with("step-1.pt", files::torch(&[]));
    let size = i64::try_from(files::torch(&[]).len()).unwrap();
    let left = Arc::new(AtomicUsize::new(1 << 20));
    let mut store = Odd::over(Directory::new(place.root().to_str().unwrap()));
    let told = left.clone();
    store.room = Box::new(move || {
        let files = told.load(Ordering::SeqCst) as u64;
        Some(Room { bytes: 1 << 30, all_bytes: 1 << 30, files, all_files: 1 << 20 })
    });
    let mut agent = Agent::new(Box::new(store), place.resumed_from("step-1.pt"));
    assert_eq!(agent.begin(at(0)).problem, None);
    left.store(0, Ordering::SeqCst);
    let report = agent.look(at(10));
    assert_eq!(report.checkpoint.unwrap().size, Some(size), "what is there still counts");
    let problem = report.problem.unwrap();
    assert!(problem.contains("checkpoints is full: no more files can be made"), "{problem}");
    left.store(1, Ordering::SeqCst);
    assert_eq!(agent.look(at(20)).problem, None, "one file is what a checkpoint takes");
    files::write(&place.root(), &files::transformers("checkpoint-2", 2));
    let problem = agent.look(at(30)).problem.unwrap();
    assert!(problem.contains("is nearly full: fewer than 2 more files can be made"), "{problem}");
    // Nobody saves any more.
    assert_eq!(agent.finish(at(40)).problem, None);
}

#[test]
fn what_was_cut_off_before_is_moved_aside_with_its_link() {
    let whole = files::torch(&[]);
    let place = Place::new().with("step-1.pt", whole.clone()).with("step-2.pt", &whole[..60]);
    symlink("step-2.pt", place.root().join("latest.pt")).unwrap();
    // A second one of the same name, in another attempt, does not replace the first.
    place.agent(place.resumed_from("step-1.pt")).begin(at(0));
    fs::remove_file(place.ready_file()).unwrap();
    place.add("step-2.pt", &whole[..70]);
    let report = place.agent(place.resumed_from("step-1.pt")).begin(at(0));
    assert_eq!((report.resume_differs, report.problem), (false, None));
    assert_eq!(place.names(), ["step-1.pt"]);
    let quarantine = place.root().join(".trainyard/quarantine");
    assert_eq!(names_in(&quarantine), ["latest.pt", "step-2.pt", "step-2.pt.2"]);
    assert_eq!(fs::read(quarantine.join("step-2.pt")).unwrap(), &whole[..60]);
}

#[test]
fn an_agent_that_is_started_again_does_not_touch_what_is_being_written() {
    let whole = files::torch(&[]);
    for keeps_ready_file in [true, false] {
        let place = Place::new();
        let first = Options { attempt: Some("uid-1".to_owned()), ..place.options() };
        place.agent(first.clone()).begin(at(0));
        place.add("step-1.pt", whole.clone());
        place.add("step-2.pt", &whole[..60]);
        if !keeps_ready_file {
            fs::remove_file(place.ready_file()).unwrap();
        }
        let report = place.agent(first).begin(at(0));
        assert_eq!(path_of(&report), Some(place.path("step-1.pt").as_str()));
        assert_eq!((report.resume_differs, report.writing), (false, true));
        assert!(place.ready_file().exists());
        assert_eq!(place.names(), ["step-1.pt", "step-2.pt"]);
        // In the next attempt its writer is dead.
        let next = Options { attempt: Some("uid-2".to_owned()), ..place.resumed_from("step-1.pt") };
        let report = place.agent(next).begin(at(0));
        assert_eq!((report.resume_differs, report.writing), (false, false));
        assert_eq!(place.names(), ["step-1.pt"]);
    }
}

#[test]
fn what_is_being_written_is_neither_complete_nor_partial() {
    let whole = files::torch(&[]);
    let place = Place::new();
    let mut agent = place.agent(place.options());
    agent.begin(at(0));
    place.add("step-1.pt", &whole[..60]);
    let report = agent.look(at(2));
    assert_eq!((report.writing, &report.checkpoint), (true, &None));
    // An archive proves itself. Other files have to stay as they are for a while.
    place.add("step-1.pt", whole);
    let report = agent.look(at(4));
    assert_eq!(path_of(&report), Some(place.path("step-1.pt").as_str()));
    assert!(!report.writing);
    let long_ago = SystemTime::now() - Duration::from_hours(1);
    for (time, length, is_complete) in [(6, 10, false), (8, 20, false), (12, 20, false), (14, 20, true)] {
        // Clocks differ: the storage says that it is old.
        if length != fs::metadata(place.root().join("step-2.msgpack")).map_or(0, |metadata| metadata.len()) {
            place.add("step-2.msgpack", vec![1; usize::try_from(length).unwrap()]);
            place.date("step-2.msgpack", long_ago);
        }
        let report = agent.look(at(time));
        assert_eq!(report.checkpoint.unwrap().step, Some(if is_complete { 2 } else { 1 }), "at {time}");
        assert_eq!(report.writing, !is_complete, "at {time}");
    }
    // Nothing is moved aside in the middle of an attempt, however old it is.
    place.add("step-3.pt", "PK\x03");
    place.date("step-3.pt", long_ago);
    agent.look(at(100));
    agent.look(at(1000));
    assert_eq!(place.names(), ["step-1.pt", "step-2.msgpack", "step-3.pt"]);
}

#[test]
fn nobody_writes_before_a_program_starts_and_after_it_has_ended() {
    let place = Place::new();
    let mut agent = place.agent(place.options()).with_workers(Workers { pods: 1, processes: 1 });
    agent.begin(at(0));
    place.add("step-3.msgpack", vec![1, 2, 3]);
    assert_eq!(agent.look(at(1)).checkpoint, None, "it may still be being written");
    let report = agent.finish(at(2));
    assert_eq!((path_of(&report), report.writing), (Some(place.path("step-3.msgpack").as_str()), false));

    fs::remove_file(place.ready_file()).unwrap();
    let mut agent = place.agent(place.options());
    let report = agent.begin(at(0));
    assert_eq!(agent.start(), Start::Differs);
    assert_eq!(agent.look(at(1)), report);
    assert_eq!(path_of(&report), Some(place.path("step-3.msgpack").as_str()));
}

#[test]
fn workers_in_other_pods_may_go_on_writing_when_the_agent_is_told_to_end() {
    for workers in [Some(Workers { pods: 2, processes: 1 }), None] {
        let place = Place::new();
        let mut agent = place.agent(Options { keep_last: 1, ..place.options() });
        if let Some(workers) = workers {
            agent = agent.with_workers(workers);
        }
        agent.begin(at(0));
        place.add("step-1.pt", files::torch(&[]));
        place.add("step-2.msgpack", vec![1, 2, 3]);
        agent.look(at(1));
        let report = agent.finish(at(2));
        assert_eq!(path_of(&report), Some(place.path("step-1.pt").as_str()), "{workers:?}");
        assert_eq!(place.names(), ["step-1.pt", "step-2.msgpack"]);
    }
}

#[test]
fn nothing_is_removed_for_what_only_the_end_of_its_writer_makes_complete() {
    let place = Place::new();
    let mut agent = place.agent(Options { keep_last: 1, ..place.options() });
    agent = agent.with_workers(Workers { pods: 1, processes: 1 });
    agent.begin(at(0));
    place.add("step-1.pt", files::torch(&[]));
    place.add("step-2.msgpack", vec![1, 2, 3]);
    let report = agent.finish(at(2));
    assert_eq!(path_of(&report), Some(place.path("step-2.msgpack").as_str()));
    assert_eq!(place.names(), ["step-1.pt", "step-2.msgpack"]);
}

#[test]
fn nothing_is_moved_or_removed_through_a_link() {
    for ours in [".trainyard", ".trainyard/trash", ".trainyard/quarantine"] {
        let place = Place::new().with("step-1.pt", files::torch(&[])).with("step-2.pt", files::torch(&[]));
        place.add("step-3.pt", &files::torch(&[])[..60]);
        let elsewhere = place.disk.path().join("elsewhere");
        fs::create_dir_all(elsewhere.join("trash")).unwrap();
        fs::write(elsewhere.join("trash/precious"), "1").unwrap();
        fs::create_dir_all(place.root().join(ours).parent().unwrap()).unwrap();
        symlink(&elsewhere, place.root().join(ours)).unwrap();
        let mut agent = place.agent(Options { keep_last: 1, ..place.resumed_from("step-2.pt") });
        let problems = [agent.begin(at(0)).problem, agent.look(at(10)).problem];
        assert_eq!(agent.start(), Start::Ready, "{ours}");
        let words = format!("checkpoints/{ours} is a link: nothing is moved or removed there");
        assert!(problems.iter().flatten().any(|problem| problem.contains(&words)), "{ours}: {problems:?}");
        assert!(elsewhere.join("trash/precious").exists(), "{ours}");
        let names = ["step-1.pt", "step-2.pt", "step-3.pt"].map(|name| place.root().join(name).exists());
        let is_trash = ours == ".trainyard/trash";
        let is_quarantine = ours == ".trainyard/quarantine";
        assert_eq!(names, [!is_quarantine, true, !is_trash], "{ours}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1, "{ours}");
    }
}

#[test]
fn an_unfinished_name_says_that_something_is_being_written() {
    let place = Place::new();
    let mut agent = place.agent(place.options());
    agent.begin(at(0));
    place.add(".checkpoint.tmp", "half");
    assert!(agent.look(at(2)).writing);
    place.date(".checkpoint.tmp", SystemTime::now() - Duration::from_mins(1));
    assert!(!agent.look(at(60)).writing);
    // And so does what is in a directory that is called so.
    place.add("step-3.tmp/model.pt", files::torch(&[]));
    let report = agent.look(at(62));
    assert!(report.writing && report.checkpoint.is_none());
}

#[test]
fn what_may_be_another_jobs_is_neither_moved_nor_removed() {
    let whole = files::torch(&[]);
    let place = Place::new();
    let agent = |uid: &str, pod: &str, options: Options| {
        let attempt = Some(format!("{uid}/1"));
        place.agent(Options { attempt, ready_file: None, keep_last: 1, ..options }).in_pod(pod.to_owned())
    };
    let mut first = agent("a", "a-worker-0", place.options());
    assert_eq!(first.begin(at(0)).problem, None);
    place.add("step-1.pt", whole.clone());
    place.add("step-2.pt", whole.clone());
    place.add("step-3.pt", &whole[..60]);
    let mut second = agent("b", "b-worker-0", place.resumed_from("step-2.pt"));
    // The first hears of it before it removes anything.
    for report in [second.begin(at(0)), second.look(at(2)), first.look(at(4))] {
        let problem = report.problem.unwrap();
        assert!(problem.contains("-worker-0") && problem.contains("checkpoint.storage.path"), "{problem}");
    }
    assert_eq!(place.names(), ["step-1.pt", "step-2.pt", "step-3.pt"]);
    // The first is killed and made again under its name: it goes on from its checkpoints, as ever.
    second.finish(at(80));
    let mut again = agent("c", "a-worker-0", place.resumed_from("step-2.pt"));
    assert_eq!((again.begin(at(0)).problem, again.start()), (None, Start::Ready));
    again.look(at(2));
    assert_eq!(place.names(), ["step-2.pt"]);
    // One that was killed is not waited for.
    let later = Moment { wall: Timestamp::now() + Duration::from_mins(6), elapsed: Duration::ZERO };
    let mut third = agent("d", "d-worker-0", place.resumed_from("step-2.pt"));
    assert_eq!(third.begin(later).problem, None);
}

#[test]
fn old_checkpoints_go_and_nothing_else() {
    let whole = files::torch(&[]);
    let mut place = Place::new();
    for step in 1..=8 {
        place = place.with(&format!("step-{step}.pt"), whole.clone());
    }
    for name in ["best-step-1.pt", "resnet-50.pt", "final.pt", "notes.txt"] {
        place = place.with(name, whole.clone());
    }
    symlink("step-2.pt", place.root().join("latest")).unwrap();
    // Whoever writes step 3 after step 8 went back by hand.
    for step in [1, 2, 4, 5, 6, 7, 8] {
        place.date(&format!("step-{step}.pt"), SystemTime::now() - Duration::from_mins(10));
    }
    place.date("step-3.pt", SystemTime::now() + Duration::from_mins(1));
    place.agent(place.resumed_from("step-8.pt")).begin(at(0));
    // Started again in the same attempt, which had resumed from an older one.
    let report = place.agent(Options { keep_last: 2, ..place.resumed_from("step-5.pt") }).begin(at(10));
    assert_eq!(report.problem, None);
    let left = ["best-step-1.pt", "final.pt", "latest", "notes.txt", "resnet-50.pt"];
    let kept = ["step-2.pt", "step-3.pt", "step-5.pt", "step-7.pt", "step-8.pt"];
    assert_eq!(place.names(), [&left[..], &kept[..]].concat());
}

#[test]
fn files_of_one_step_stay_and_go_together() {
    let place = Place::new();
    let names = |step: u32| (0..4).map(move |rank| format!("checkpoint-step-{step}-rank-{rank}.pt"));
    for name in [100, 200, 300, 400].into_iter().flat_map(names) {
        place.add(&name, files::torch(&[]));
        place.date(&name, SystemTime::UNIX_EPOCH + Duration::from_hours(480_000));
    }
    let resumed_from = place.resumed_from("checkpoint-step-400-rank-3.pt");
    place.agent(resumed_from).begin(at(0));
    // Started again in the same attempt, which had resumed from an older one.
    let older = place.resumed_from("checkpoint-step-100-rank-2.pt");
    place.agent(Options { keep_last: 2, ..older }).begin(at(10));
    assert_eq!(place.names(), [100, 300, 400].into_iter().flat_map(names).collect::<Vec<_>>());
}

#[test]
fn the_step_before_stays_until_all_ranks_have_saved_the_new_one() {
    let place = Place::new();
    let name = |step: u32, rank: u32| format!("step-{step}-rank-{rank}.pt");
    let save = |step, rank| {
        place.add(&name(step, rank), files::torch(&[]));
        place.date(&name(step, rank), SystemTime::UNIX_EPOCH + Duration::from_hours(480_000));
    };
    let mut agent = place.agent(Options { keep_last: 1, ..place.options() });
    agent.begin(at(0));
    for (step, rank) in [(100, 0), (100, 1), (200, 0), (200, 1), (300, 0)] {
        save(step, rank);
    }
    agent.look(at(10));
    agent.look(at(20));
    assert_eq!(place.names(), [name(200, 0), name(200, 1), name(300, 0)]);
    save(300, 1);
    agent.look(at(30));
    assert_eq!(place.names(), [name(300, 0), name(300, 1)]);
}

#[test]
fn another_number_to_keep_takes_effect_at_the_next_look() {
    let place = Place::new();
    for step in 1..=6 {
        place.add(&format!("step-{step}.pt"), files::torch(&[]));
        // Clocks of files go in steps: small ones often have the same time.
        place.date(&format!("step-{step}.pt"), SystemTime::UNIX_EPOCH + Duration::from_hours(480_000));
    }
    let file = place.disk.path().join("keep_last");
    let options = Options { keep_last: 4, ..place.resumed_from("step-6.pt") };
    let mut agent = place.agent(options).with_keep_last_in(file.clone());
    agent.begin(at(0));
    agent.look(at(10));
    assert_eq!(
        place.names(),
        ["step-3.pt", "step-4.pt", "step-5.pt", "step-6.pt"],
        "no file yet: as it was told"
    );
    fs::write(&file, "2\n").unwrap();
    agent.look(at(20));
    assert_eq!(place.names(), ["step-5.pt", "step-6.pt"]);
    fs::write(&file, "one").unwrap();
    agent.look(at(30));
    assert_eq!(place.names(), ["step-5.pt", "step-6.pt"], "what cannot be read changes nothing");
    fs::write(&file, "1").unwrap();
    agent.look(at(40));
    assert_eq!(place.names(), ["step-6.pt"]);
}

#[test]
fn the_newest_is_decided_by_step_then_epoch_then_time() {
    let place = Place::new()
        .with("checkpoint-epoch-3.msgpack", "x")
        .with("checkpoint-epoch-3-step-610.msgpack", "x")
        .with("checkpoint-epoch-2.msgpack", "x")
        .with("model.pt", files::torch(&[]));
    let report = place.agent(place.options()).begin(at(0));
    assert_eq!(path_of(&report), Some(place.path("checkpoint-epoch-3-step-610.msgpack").as_str()));
    let checkpoint = report.checkpoint.unwrap();
    assert_eq!((checkpoint.step, checkpoint.epoch, checkpoint.size), (Some(610), Some(3), Some(1)));
}

#[test]
fn a_clock_that_is_ahead_is_told_and_does_not_decide() {
    let place = Place::new().with("step-1.pt", files::torch(&[])).with("step-2.pt", files::torch(&[]));
    place.date("step-1.pt", SystemTime::now() + Duration::from_hours(24));
    let report = place.agent(place.resumed_from("step-2.pt")).begin(at(0));
    assert!(!report.resume_differs);
    assert!(report.problem.unwrap().contains("is in the future: set the clocks"));
    // A clock that jumps back between two looks.
    let mut agent = place.agent(place.resumed_from("step-2.pt"));
    agent.begin(at(0));
    let past = Moment { wall: Timestamp::UNIX_EPOCH, elapsed: Duration::from_secs(2) };
    assert_eq!(path_of(&agent.look(past)), Some(place.path("step-2.pt").as_str()));
}

#[test]
fn a_directory_that_is_not_there_is_told_and_training_starts() {
    let place = Place::new();
    fs::remove_dir(place.root()).unwrap();
    let attempt = Some("uid/1".to_owned());
    let mut agent =
        place.agent(Options { attempt, ..place.options() }).with_workers(Workers { pods: 1, processes: 1 });
    for problem in [agent.begin(at(0)).problem, agent.look(at(2)).problem] {
        let problem = problem.unwrap();
        assert!(problem.contains("is not there: check checkpoint.directory"), "{problem}");
    }
    // Were it made by a note, nobody would be told any more.
    assert!(!place.root().exists());
    fs::create_dir(place.root()).unwrap();
    assert_eq!(agent.look(at(4)).problem, None);
    fs::remove_dir_all(place.root()).unwrap();
    fs::remove_file(place.ready_file()).unwrap();
    let mut agent = place.agent(place.options());
    let problem = agent.begin(at(0)).problem.unwrap();
    assert!(problem.contains("is not there: check checkpoint.directory"), "{problem}");
    assert!(place.ready_file().exists());
    fs::write(place.root(), "a file").unwrap();
    assert!(agent.look(at(2)).problem.unwrap().contains("is not a directory"));
    fs::remove_file(place.root()).unwrap();
    fs::create_dir(place.root()).unwrap();
    assert_eq!(agent.look(at(4)), AgentReport::default());
}

#[test]
fn links_lead_nowhere_else() {
    let place = Place::new().with("step-1.pt", files::torch(&[]));
    let outside = place.disk.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("step-9.pt"), files::torch(&[])).unwrap();
    symlink(&outside, place.root().join("checkpoint-9")).unwrap();
    symlink(outside.join("step-9.pt"), place.root().join("step-9.pt")).unwrap();
    symlink("loop-b", place.root().join("loop-a")).unwrap();
    symlink("loop-a", place.root().join("loop-b")).unwrap();
    symlink(".", place.root().join("itself")).unwrap();
    symlink("..", place.root().join("above")).unwrap();
    let mut agent = place.agent(Options { keep_last: 1, ..place.resumed_from("step-1.pt") });
    let problem = agent.begin(at(0)).problem.unwrap();
    assert_eq!(agent.start(), Start::Ready);
    for name in ["checkpoint-9", "step-9.pt"] {
        assert!(problem.contains(&format!("{name} looks like a checkpoint, but it is a link")), "{problem}");
    }
    assert!(!problem.contains("loop") && !problem.contains("itself"), "{problem}");
    agent.look(at(10));
    assert_eq!(names_in(&outside), ["step-9.pt"]);
}

#[test]
fn files_that_vanish_while_they_are_read_are_no_problem() {
    let place = Place::new()
        .with("step-1.pt", files::torch(&[]))
        .with("checkpoint-epoch-2.json", files::digits(2, 4));
    files::write(&place.root(), &files::huggingface("checkpoint-500", 500));
    files::write(&place.root(), &files::dcp("step_40"));
    files::write(&place.root(), &files::tensorflow("ckpt-5"));
    let mut store = Odd::over(Directory::new(place.root().to_str().unwrap()));
    let root = place.root();
    // Each goes in the moment in which it is to be read.
    store.before_read = Box::new(move |path| _ = fs::remove_file(root.join(path)));
    let report = Agent::new(Box::new(store), place.options()).begin(at(0));
    assert_eq!(report, AgentReport::default());
}

#[test]
fn what_could_not_be_listed_as_a_whole_is_not_taken_for_all() {
    let place = Place::new();
    files::write(&place.root(), &files::megatron(100));
    files::write(&place.root(), &files::megatron(200));
    for step in 1..=3 {
        place.add(&format!("step-{step}.pt"), files::torch(&[]));
    }
    let listings = Arc::new(AtomicUsize::new(0));
    let agent = |options: Options, times: usize| {
        listings.store(times, Ordering::SeqCst);
        let mut store = Odd::over(Directory::new(place.root().to_str().unwrap()));
        let listings = listings.clone();
        // For so many listings it is as on a network file system with a problem.
        store.listed = Box::new(move |listing| {
            let left = listings.load(Ordering::SeqCst);
            if left > 0 {
                listings.store(left - 1, Ordering::SeqCst);
                listing.is_incomplete = true;
                listing.entries.retain(|entry| entry.path != "latest_checkpointed_iteration.txt");
            }
        });
        Agent::new(Box::new(store), Options { keep_last: 1, ..options })
    };
    let told = || place.resumed_from("iter_0000200");
    let all = place.names();
    // A bad moment passes.
    let report = agent(Options { keep_last: 0, ..told() }, 1).begin(at(0));
    assert_eq!((report.unread, report.resume_differs, report.problem), (false, false, None));
    fs::remove_file(place.ready_file()).unwrap();
    // A bad hour does not: the program starts as it was told, and nothing is touched.
    let mut agent = agent(told(), 100);
    let report = agent.begin(at(0));
    assert_eq!((agent.start(), report.unread), (Start::Ready, true));
    assert!(report.problem.unwrap().contains("cannot be listed as a whole"));
    agent.look(at(10));
    assert_eq!(place.names(), all);
    // Later it is as ever.
    listings.store(0, Ordering::SeqCst);
    let whole = agent.look(at(20));
    assert_eq!((path_of(&whole), whole.unread), (Some(place.path("iter_0000200").as_str()), false));
    let left = place.names();
    assert!(left.len() < all.len());
    // And what was seen then is not taken back.
    listings.store(100, Ordering::SeqCst);
    let report = agent.look(at(30));
    assert_eq!((report.checkpoint, report.unread), (whole.checkpoint, true));
    assert_eq!(place.names(), left);
}

#[test]
fn what_has_not_changed_is_not_read_again() {
    let place = Place::new().with("step-1.pt", files::torch(&[])).with("step-2.pt", files::torch(&[]));
    let mut agent = place.agent(place.resumed_from("step-2.pt"));
    let first = agent.begin(at(0));
    // Were it read now, it would not be complete: it is another file with the same size, time and inode.
    for name in ["step-1.pt", "step-2.pt"] {
        let path = place.root().join(name);
        let metadata = fs::metadata(&path).unwrap();
        let zeros = vec![0; usize::try_from(metadata.len()).unwrap()];
        fs::write(&path, zeros).unwrap();
        place.date(name, metadata.modified().unwrap());
    }
    assert_eq!(agent.look(at(10)), first);
}
