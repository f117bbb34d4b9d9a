//! A job whose checkpoints are kept in a bucket: what starts, what waits, what is fetched, and what is saved in the end.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support {
    pub(crate) mod files;
    pub(crate) mod world;
}

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use support::files::{self, file};
use support::world::{PLACE, World, at, options, told, variables_of_this_process};
use trainyard_agent::store::{Bucket, Directory, Entry, Store};
use trainyard_agent::{Agent, Layout, Options, Resume, Start, mirror};
use trainyard_api::checkpoint::AgentReport;

fn path(report: &AgentReport) -> Option<&str> {
    report.checkpoint.as_ref().map(|checkpoint| checkpoint.path.as_str())
}

#[test]
fn a_bad_hour_of_the_bucket_holds_the_start_and_is_no_fresh_start() {
    let world = World::new().with_saved(&["step-5.pt"]);
    world.server.is_down(true);
    let ready_file = Some(world.ready_file());
    let mut agent = world.agent("pod", Options { ready_file, ..told("step-5.pt") });
    let report = agent.begin(at(0));
    assert_eq!(agent.start(), Start::Held);
    assert!(report.unread && report.checkpoint.is_none() && !report.resume_differs, "{report:?}");
    let problem = report.problem.clone().unwrap();
    for words in [
        "the program is not started",
        "s3://bucket/ml/bert cannot be reached: check the endpoint",
        "503 Service Unavailable)",
        "checkpoint.resume: Never",
    ] {
        assert!(problem.contains(words), "{words}: {problem}");
    }
    assert!(!world.ready_file().exists());
    world.server.is_down(false);
    assert_eq!(agent.look(at(1)), report, "it is too early to ask again");
    let report = agent.look(at(10));
    assert_eq!((agent.start(), path(&report)), (Start::Ready, Some("s3://bucket/ml/bert/step-5.pt")));
    assert_eq!((report.problem, report.unread), (None, false));
    assert!(world.ready_file().exists() && world.has("pod", "step-5.pt"));
}

#[test]
fn wrong_credentials_hold_the_start_unless_nothing_is_to_be_read() {
    let world = World::new().with_saved(&["step-5.pt"]);
    let mut agent = world.agent_with("pod", PLACE, "wrong", options());
    let problem = agent.begin(at(0)).problem.unwrap();
    assert_eq!(agent.start(), Start::Held);
    assert!(
        problem.contains("the credentials for s3://bucket/ml/bert were refused: check the secret"),
        "{problem}"
    );

    // A Secret that is corrected reaches the environment with a start of the container: after a while it is worth one.
    for (seconds, is_worth_it) in [(10, false), (30, false), (70, true)] {
        assert!(agent.look(at(seconds)).problem.is_some());
        assert_eq!(agent.needs_a_restart(at(seconds)), is_worth_it, "{seconds}");
    }
    // That is no help against anything else.
    world.server.is_down(true);
    let mut agent = world.agent("away", options());
    agent.begin(at(0));
    agent.look(at(70));
    assert_eq!((agent.start(), agent.needs_a_restart(at(70))), (Start::Held, false));
    world.server.is_down(false);

    let afresh = Options { resume: Resume::Never, ..options() };
    let mut agent = world.agent_with("afresh", PLACE, "wrong", afresh);
    let report = agent.begin(at(0));
    assert_eq!(agent.start(), Start::Ready);
    assert!(report.problem.unwrap().contains("were refused"));
}

#[test]
fn a_bucket_that_does_not_exist_stops_nobody_who_knows_of_nothing_in_it() {
    let world = World::new();
    let elsewhere = "s3://nowhere/ml/bert";
    let mut agent = world.agent_with("pod", elsewhere, "secret", options());
    let report = agent.begin(at(0));
    assert_eq!(agent.start(), Start::Ready);
    assert!(report.problem.unwrap().starts_with("the bucket nowhere does not exist: create it"));
    world.save("pod", &vec![file("step-1.pt", files::torch(&[]))]);
    assert_eq!(agent.look(at(20)).checkpoint, None, "it is not safe");
    // Somebody creates it, and what has been saved meanwhile is copied.
    std::fs::create_dir(world.disk.path().join("buckets/nowhere")).unwrap();
    let report = agent.finish(at(40));
    assert_eq!((path(&report), &report.problem), (Some("s3://nowhere/ml/bert/step-1.pt"), &None));

    // Who was told of something holds on: it may be in a bucket of a similar name.
    let resumed_from = Some("s3://missing/ml/bert/step-9.pt".to_owned());
    let mut agent =
        world.agent_with("other", "s3://missing/ml/bert", "secret", Options { resumed_from, ..options() });
    assert!(agent.begin(at(0)).problem.unwrap().contains("the bucket missing does not exist"));
    assert_eq!(agent.start(), Start::Held);
}

#[test]
fn what_is_in_the_bucket_decides_and_not_what_the_attempt_was_told() {
    let world = World::new().with_saved(&["step-5.pt", "step-6.pt"]);
    for (pod, options) in [("afresh", options()), ("older", told("step-5.pt"))] {
        let mut agent = world.agent(pod, options);
        let report = agent.begin(at(0));
        assert_eq!((agent.start(), path(&report)), (Start::Differs, Some("s3://bucket/ml/bert/step-6.pt")));
        assert!(report.resume_differs);
    }
    let mut agent = world.agent("right", told("step-6.pt"));
    agent.begin(at(0));
    assert_eq!(agent.start(), Start::Ready);
}

#[test]
fn a_pod_that_takes_the_place_of_another_goes_on_from_what_that_one_did() {
    let world = World::new().with_saved(&["step-5.pt"]);
    let same = || Options { attempt: Some("uid/2".to_owned()), ..told("step-5.pt") };
    let mut agent = world.agent("pod", same());
    agent.begin(at(0));
    assert_eq!(agent.start(), Start::Ready);
    world.save("pod", &vec![file("step-6.pt", files::torch(&[]))]);
    agent.finish(at(10));
    assert_eq!(world.kept(), ["step-6.pt", "step-5.pt"]);

    let mut agent = world.agent("replacement", same());
    let report = agent.begin(at(0));
    assert_eq!((agent.start(), report.resume_differs), (Start::Ready, false));
    assert!(world.has("replacement", "step-5.pt") && !world.has("replacement", "step-6.pt"));

    // The next attempt is another matter.
    let mut agent = world.agent("next", Options { attempt: Some("uid/3".to_owned()), ..told("step-5.pt") });
    agent.begin(at(0));
    assert_eq!(agent.start(), Start::Differs);
    // And an agent of it that is started again has not let it go either.
    let mut agent = world.agent("next", Options { attempt: Some("uid/3".to_owned()), ..told("step-5.pt") });
    agent.begin(at(0));
    assert_eq!(agent.start(), Start::Differs);
}

#[test]
fn a_start_afresh_removes_nothing_of_what_was_there() {
    let world = World::new().with_saved(&["step-900.pt"]);
    let options = Options { resume: Resume::Never, keep_last: 1, ..options() };
    let mut agent = world.agent("pod", options);
    agent.begin(at(0));
    for step in 1..=2 {
        world.save("pod", &vec![file(format!("step-{step}.pt"), files::torch(&[]))]);
        let report = agent.finish(at(step * 10));
        assert_eq!(path(&report), Some(format!("{PLACE}/step-{step}.pt").as_str()), "{report:?}");
    }
    assert_eq!(world.kept(), ["step-900.pt", "step-2.pt"]);
}

#[test]
fn a_start_afresh_is_not_forgotten_by_the_pods_that_come_after() {
    let world = World::new().with_saved(&["step-900.pt"]);
    let attempt = |number: u32| Some(format!("uid/{number}"));
    let afresh = || Options { resume: Resume::Never, keep_last: 1, attempt: attempt(1), ..options() };
    world.agent("pod", afresh()).begin(at(0));
    for step in 1..=3 {
        // Each by another agent of the same attempt.
        world.save("pod", &vec![file(format!("step-{step}.pt"), files::torch(&[]))]);
        let mut agent = world.agent("pod", afresh());
        agent.begin(at(0));
        assert_eq!(path(&agent.finish(at(1))), Some(format!("{PLACE}/step-{step}.pt").as_str()));
        assert_eq!(world.kept(), ["step-900.pt".to_owned(), format!("step-{step}.pt")]);
    }
    let mut agent = world.agent("later", Options { attempt: attempt(2), ..told("step-3.pt") });
    let report = agent.begin(at(0));
    assert_eq!((agent.start(), path(&report)), (Start::Ready, Some("s3://bucket/ml/bert/step-3.pt")));
    assert!(world.has("later", "step-3.pt") && !world.has("later", "step-900.pt"));
}

#[test]
fn what_earlier_versions_copied_and_is_no_checkpoint_is_passed_over() {
    let world = World::new();
    let mut agent = world.agent("before", options());
    agent.begin(at(0));
    world.save("before", &vec![file("step-3.pt", files::torch(&[]))]);
    agent.finish(at(10));
    // What had not been finished, and what a program had written beside its checkpoints.
    for (name, layout, content) in [
        ("step-9.tmp/model.pt", "torch", files::torch(&[])),
        ("gallery/step-9.json", "files", b"{}".to_vec()),
    ] {
        let marker = format!(
            r#"{{"path": "{name}", "step": 9, "layout": "{layout}", "roots": ["{name}"],
                "files": [{{"path": "{name}", "size": {}}}]}}"#,
            content.len()
        );
        world.bucket().write(name, &content).unwrap();
        world.bucket().write(&format!("{name}.complete"), marker.as_bytes()).unwrap();
    }
    let next = Options { attempt: Some("uid/2".to_owned()), ..told("step-3.pt") };
    let mut agent = world.agent("after", next);
    let report = agent.begin(at(0));
    assert_eq!((agent.start(), path(&report)), (Start::Ready, Some("s3://bucket/ml/bert/step-3.pt")));
}

#[test]
fn what_does_not_look_like_a_checkpoint_when_it_is_back_is_passed_over() {
    let world = World::new();
    let mut agent = world.agent("before", options());
    agent.begin(at(0));
    for (name, content) in
        [("step-5.pt", files::torch(&[])), ("checkpoint-step-9.pkl", files::pickle(&[("a", 1)]))]
    {
        world.save("before", &vec![file(name, content)]);
        agent.finish(at(10));
    }
    assert_eq!(world.kept(), ["checkpoint-step-9.pkl", "step-5.pt"]);
    let mut agent = world.agent("pod", Options { layouts: vec![Layout::Torch], ..told("step-5.pt") });
    let report = agent.begin(at(0));
    assert_eq!((agent.start(), path(&report)), (Start::Ready, Some("s3://bucket/ml/bert/step-5.pt")));
    let problem = report.problem.unwrap();
    assert!(
        problem.contains("checkpoint-step-9.pkl was fetched") && problem.contains("checkpoint.layout"),
        "{problem}"
    );
}

#[test]
fn what_was_written_last_is_copied_although_nothing_proves_that_it_is_whole() {
    let world = World::new();
    let mut agent = world.agent("pod", options());
    agent.begin(at(0));
    world.save("pod", &vec![file("step-3.msgpack", vec![1, 2, 3])]);
    assert_eq!(agent.look(at(1)).checkpoint, None, "it may still be being written");
    assert_eq!(agent.finish(at(2)).checkpoint.unwrap().step, Some(3), "but not by a program that has ended");
    assert_eq!(world.kept(), ["step-3.msgpack"]);
}

#[test]
fn what_is_of_its_own_reaches_the_bucket_and_stays() {
    let world = World::new();
    let mut agent = world.agent("pod", Options { keep_last: 2, ..options() });
    agent.begin(at(0));
    world.save("pod", &vec![file("best.pt", files::torch(&[]))]);
    for step in 1..=4 {
        world.save("pod", &vec![file(format!("step-{step}.pt"), files::torch(&[]))]);
        agent.finish(at(step * 10));
    }
    world.save("pod", &vec![file("final.pt", files::torch(&[]))]);
    let report = agent.finish(at(50));
    assert_eq!((path(&report), &report.problem), (Some("s3://bucket/ml/bert/step-4.pt"), &None));
    assert_eq!(world.kept(), ["step-4.pt", "step-3.pt", "final.pt", "best.pt"]);
}

#[test]
fn what_is_reported_is_in_the_bucket_even_if_that_has_higher_steps() {
    let world = World::new().with_saved(&["step-5.pt", "step-500.pt", "step-600.pt"]);
    let same = || Options { attempt: Some("uid/2".to_owned()), keep_last: 2, ..told("step-5.pt") };
    world.bucket().write(".trainyard/attempt", b"uid/2").unwrap();
    let mut agent = world.agent("pod", same());
    agent.begin(at(0));
    assert_eq!(agent.start(), Start::Ready);
    for step in [10, 11, 12] {
        let name = format!("step-{step}.pt");
        world.save("pod", &vec![file(name.as_str(), files::torch(&[]))]);
        let report = agent.finish(at(step));
        assert_eq!(path(&report), Some(format!("{PLACE}/{name}").as_str()), "{report:?}");
        assert!(world.kept().contains(&name), "{:?}", world.kept());
    }
    assert_eq!(world.kept(), ["step-600.pt", "step-500.pt", "step-12.pt", "step-11.pt", "step-5.pt"]);
}

#[test]
fn a_clean_up_that_fails_is_told_and_what_was_sent_counts() {
    let world = World::new();
    let mut agent = world.agent("pod", Options { keep_last: 1, ..options() });
    agent.begin(at(0));
    for step in 1..=2 {
        world.server.refuses((step == 2).then_some("step-1.pt.complete"));
        world.save("pod", &vec![file(format!("step-{step}.pt"), files::torch(&[]))]);
        let report = agent.finish(at(step * 10));
        assert_eq!(path(&report), Some(format!("{PLACE}/step-{step}.pt").as_str()), "{report:?}");
        let problem = report.problem.unwrap_or_default();
        assert_eq!(problem.starts_with("old checkpoints could not be removed"), step == 2, "{problem}");
    }
    assert!(!agent.is_owing());
    world.server.refuses(None);
    assert_eq!(world.kept(), ["step-2.pt", "step-1.pt"]);
}

#[test]
fn a_bad_hour_of_the_bucket_takes_back_nothing_that_was_reported() {
    let world = World::new();
    let mut agent = world.agent("pod", Options { keep_last: 1, ..options() });
    agent.begin(at(0));
    world.save("pod", &vec![file("step-1.pt", files::torch(&[]))]);
    let before = agent.finish(at(1)).checkpoint;
    assert_eq!(before.as_ref().and_then(|checkpoint| checkpoint.step), Some(1));
    world.server.is_down(true);
    world.save("pod", &vec![file("step-2.pt", files::torch(&[]))]);
    std::fs::remove_file(world.pod("pod").join("step-1.pt")).unwrap();
    agent.finish(at(20));
    let report = agent.finish(at(40));
    assert_eq!((report.checkpoint, report.unread), (before, false));
    assert!(agent.is_owing());
}

#[test]
fn a_file_that_is_saved_again_is_there_and_reported_until_the_new_one_is() {
    let world = World::new();
    let mut agent = world.agent("pod", options());
    agent.begin(at(0));
    world.save("pod", &vec![file("epoch-1.pt", files::torch(&[("global_step", 1)]))]);
    world.save("pod", &vec![file("last.ckpt", files::torch(&[("epoch", 1), ("global_step", 5)]))]);
    assert_eq!(agent.finish(at(1)).checkpoint.unwrap().step, Some(5));
    // Neither the object nor the marker arrives; then the marker alone does not.
    for (seconds, refused) in [(20, "last.ckpt"), (40, "last.ckpt.complete")] {
        world.server.refuses(Some(refused));
        let later = files::torch(&[("epoch", 1), ("global_step", 9), ("more", 1)]);
        world.save("pod", &vec![file("last.ckpt", later)]);
        let checkpoint = agent.finish(at(seconds)).checkpoint.unwrap();
        assert_eq!((checkpoint.path.as_str(), checkpoint.step), ("s3://bucket/ml/bert/last.ckpt", Some(5)));
        assert!(agent.is_owing());
        world.server.refuses(None);
        assert!(world.kept().contains(&"last.ckpt".to_owned()), "{refused}: {:?}", world.kept());
        let pod = format!("new-{seconds}");
        let report = world.agent(&pod, options()).begin(at(0));
        assert_eq!(path(&report), Some("s3://bucket/ml/bert/last.ckpt"));
        // What was fetched is the one save or the other, never a mix.
        assert_eq!(report.checkpoint.unwrap().step, Some(if refused == "last.ckpt" { 5 } else { 9 }));
    }
    assert_eq!(agent.finish(at(60)).checkpoint.unwrap().step, Some(9));
    assert!(!agent.is_owing());
}

#[test]
fn a_marker_that_arrived_unheard_is_believed_and_what_it_names_is_not_written_over() {
    let world = World::new();
    let mut agent = world.agent("pod", options());
    agent.begin(at(0));
    let save = |step: u32| {
        let _ = std::fs::remove_dir_all(world.pod("pod").join("checkpoint-7"));
        world.save("pod", &files::huggingface("checkpoint-7", step));
    };
    save(1);
    assert_eq!(agent.finish(at(1)).checkpoint.unwrap().step, Some(1));
    save(2);
    world.server.hides(Some("checkpoint-7.complete"));
    agent.finish(at(20));
    assert!(agent.is_owing(), "nobody has heard that it arrived");
    // The next save must not begin where that one is: it may come to nothing.
    save(3);
    world.server.refuses(Some("trainer_state.json"));
    agent.finish(at(40));
    world.server.refuses(None);
    let report = world.agent("new", options()).begin(at(0));
    assert_eq!(report.checkpoint.unwrap().step, Some(2), "whole, and of one save");
    let state = std::fs::read_to_string(world.pod("new").join("checkpoint-7/trainer_state.json")).unwrap();
    assert!(state.contains(r#""global_step": 2"#), "{state}");
    assert_eq!(agent.finish(at(60)).checkpoint.unwrap().step, Some(3));
}

#[test]
fn a_directory_that_is_saved_again_is_there_and_reported_until_the_new_one_is() {
    let world = World::new();
    let mut agent = world.agent("pod", options());
    agent.begin(at(0));
    let save = |step: u32| {
        let mut files = files::huggingface("checkpoint-7", step);
        files
            .push(file("checkpoint-7/optimizer.bin", files::torch(&[("step", u8::try_from(step).unwrap())])));
        files.push(file(format!("checkpoint-7/only-in-{step}.json"), "{}"));
        world.save("pod", &files);
    };
    // What a new pod fetches, and finds in it: of one save, never of two.
    let fetched = |pod: &str| {
        let report = world.agent(pod, options()).begin(at(0));
        assert_eq!(path(&report), Some("s3://bucket/ml/bert/checkpoint-7"), "{report:?}");
        let step = report.checkpoint.unwrap().step.unwrap();
        let content = std::fs::read(world.pod(pod).join("checkpoint-7/optimizer.bin")).unwrap();
        assert_eq!(content, files::torch(&[("step", u8::try_from(step).unwrap())]));
        assert!(world.has(pod, &format!("checkpoint-7/only-in-{step}.json")));
        step
    };
    let objects = || -> Vec<String> {
        let entries = world.bucket().list().unwrap().entries;
        entries.into_iter().filter(Entry::is_file).map(|entry| entry.path).collect()
    };
    save(1);
    assert_eq!(agent.finish(at(1)).checkpoint.unwrap().step, Some(1));
    let count = objects().len();
    for (step, place, seconds) in [(2, "checkpoint-7.again/", 100), (3, "checkpoint-7/", 200)] {
        std::fs::remove_dir_all(world.pod("pod").join("checkpoint-7")).unwrap();
        save(step);
        let earlier = i64::from(step) - 1;
        let marker = "checkpoint-7.complete".to_owned();
        for (index, refused) in [format!("{place}trainer_state.json"), marker].into_iter().enumerate() {
            world.server.refuses(Some(&refused));
            let report = agent.finish(at(seconds + 20 * index as u64));
            assert_eq!(report.checkpoint.unwrap().step, Some(earlier), "{refused}");
            assert!(agent.is_owing());
            world.server.refuses(None);
            assert_eq!(fetched(&format!("new-{step}-{index}")), earlier);
        }
        let report = agent.finish(at(seconds + 60));
        assert_eq!((report.checkpoint.unwrap().step, report.problem), (Some(i64::from(step)), None));
        assert!(!agent.is_owing());
        assert_eq!(fetched(&format!("new-{step}")), i64::from(step));
        // Nothing is left of the earlier one.
        assert_eq!(objects().len(), count, "{:?}", objects());
        assert!(
            objects().iter().all(|object| object == "checkpoint-7.complete" || object.starts_with(place))
        );
        // An agent that comes after it knows where it is, and has nothing to send.
        let mut next = world.agent("pod", told("checkpoint-7"));
        next.begin(at(0));
        world.server.refuses(Some("trainer_state.json"));
        assert_eq!(next.finish(at(10)).problem, None);
        world.server.refuses(None);
    }
}

#[test]
fn saves_that_are_faster_than_the_bucket_are_told() {
    let world = World::new();
    let mut agent = world.agent("pod", options());
    agent.begin(at(0));
    world.save("pod", &vec![file("last.ckpt", files::torch(&[]))]);
    agent.finish(at(1));
    let path = world.pod("pod").join("last.ckpt");
    let (stop, stopped) = channel::<()>();
    let writing = std::thread::spawn(move || {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            file.set_modified(std::time::SystemTime::now()).unwrap();
        }
    });
    let words = "last.ckpt is saved again before it has been copied";
    let is_told = |report: &AgentReport| report.problem.as_ref().is_some_and(|text| text.contains(words));
    // One that happens to get through in between does not count.
    let start = std::time::Instant::now();
    let in_time = |_: &u64| start.elapsed() < Duration::from_mins(1);
    let mut reports = (2..).take_while(in_time).map(|time| agent.finish(at(time)));
    let report = reports.find(is_told).unwrap();
    assert!(report.checkpoint.is_some(), "the one before stays");
    stop.send(()).unwrap();
    writing.join().unwrap();
    assert!(!is_told(&agent.finish(at(20))));
}

#[test]
fn a_save_takes_nothing_back_of_those_before_it() {
    for (earlier, later, names, pointer) in [
        (files::deepspeed(30), files::deepspeed(40), ["global_step40", "global_step30"], "latest"),
        (
            files::megatron(30),
            files::megatron(40),
            ["iter_0000040", "iter_0000030"],
            "latest_checkpointed_iteration.txt",
        ),
    ] {
        let world = World::new();
        let mut agent = world.agent("pod", options());
        agent.begin(at(0));
        world.save("pod", &earlier);
        agent.finish(at(1));
        world.save("pod", &later);
        // Only what is new is sent.
        let marker = format!("{}.complete", names[1]);
        world.server.refuses(Some(&marker));
        let report = agent.finish(at(20));
        assert_eq!(path(&report), Some(format!("{PLACE}/{}", names[0]).as_str()), "{report:?}");
        assert!(!agent.is_owing(), "{report:?}");
        world.server.refuses(None);
        assert_eq!(world.kept(), names);
        // The pointer in the bucket is of one moment: it may be cut off, and does not matter.
        world.bucket().write(pointer, b"").unwrap();
        assert_eq!(world.kept(), names);
        let report = world.agent("new", told(names[0])).begin(at(0));
        assert_eq!(path(&report), Some(format!("{PLACE}/{}", names[0]).as_str()), "{report:?}");
        let read = |pod: &str| std::fs::read_to_string(world.pod(pod).join(pointer)).unwrap();
        assert_eq!(read("new").trim(), read("pod").trim());
        // A worker that is told an older one finds that as the newest.
        let (markers, bucket) = (mirror::markers(&world.bucket()).unwrap(), world.bucket());
        mirror::fetch(&bucket, &Directory::new(world.pod("old").to_str().unwrap()), &markers[1]).unwrap();
        assert!(read("old").ends_with("30"), "{}", read("old"));
    }
}

/// Tells of every line that is written.
struct Lines(Sender<AgentReport>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for report in String::from_utf8_lossy(bytes).lines().filter_map(AgentReport::of_line) {
            self.0.send(report).unwrap();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_other_workers_fetch_the_one_that_they_are_told_and_wait_for_it() {
    let world = World::new().with_saved(&["step-5.pt", "step-6.pt"]);
    world.server.is_down(true);
    let (tell, told) = channel();
    let variables = world.server.variables("secret");
    let pod = world.pod("pod");
    let fetching = std::thread::spawn(move || {
        let open = move || Bucket::open(PLACE, variables.clone());
        let directory = Directory::new(pod.to_str().unwrap());
        let checkpoint = format!("{PLACE}/step-5.pt");
        // A line may be written in pieces.
        let mut output = std::io::LineWriter::new(Lines(tell));
        trainyard_agent::run::fetch((PLACE, &open), &directory, &checkpoint, &mut output).unwrap();
    });
    let report = told.recv().unwrap();
    assert!(report.unread);
    assert!(report.problem.unwrap().starts_with("s3://bucket/ml/bert/step-5.pt cannot be fetched yet"));
    assert!(!world.has("pod", "step-5.pt"));
    world.server.is_down(false);
    fetching.join().unwrap();
    assert_eq!(told.recv().unwrap(), AgentReport::default());
    assert!(world.has("pod", "step-5.pt") && !world.has("pod", "step-6.pt"));
    let read = |pod: &str| std::fs::read(world.pod(pod).join("step-5.pt")).unwrap();
    assert_eq!(read("pod"), read("before"));
}

/// Not a test but the process of the others: it runs only when it is told where.
#[test]
fn agent_process() {
    let Ok(directory) = std::env::var("AGENT_PROCESS_DIRECTORY") else { return };
    let options = Options { attempt: Some("uid/1".to_owned()), ..options() };
    let agent = Agent::new(Box::new(Directory::new(&directory)), options);
    let agent = agent.with_copy_in(PLACE, variables_of_this_process(), true);
    // So long that only the first looks and the last happen, and those that something has asked for.
    trainyard_agent::run::run(agent, Duration::from_hours(1), &mut std::io::stdout()).unwrap();
}

fn process(world: &World, directory: &Path) -> (Child, impl Iterator<Item = AgentReport> + use<>) {
    process_with(directory, world.server.variables("secret"))
}

fn process_with(
    directory: &Path,
    variables: Vec<(String, String)>,
) -> (Child, impl Iterator<Item = AgentReport> + use<>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "agent_process", "--nocapture"])
        .env("AGENT_PROCESS_DIRECTORY", directory)
        .envs(variables)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reports = lines.filter_map(|line| {
        let line = line.unwrap();
        line.find('{').and_then(|at| AgentReport::of_line(&line[at..]))
    });
    (child, reports)
}

fn terminate(child: &Child) {
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn what_was_saved_last_is_copied_before_the_agent_ends() {
    let world = World::new();
    let (mut child, mut reports) = process(&world, &world.pod("pod"));
    assert_eq!(reports.next(), Some(AgentReport::default()));
    world.save("pod", &vec![file("step-7.pt", files::torch(&[]))]);
    terminate(&child);
    let last = reports.last().unwrap();
    assert_eq!(path(&last), Some("s3://bucket/ml/bert/step-7.pt"));
    assert!(child.wait().unwrap().success());
    assert_eq!(world.kept(), ["step-7.pt"]);
    assert!(world.bucket().exists("step-7.pt").unwrap());
}

#[test]
fn an_agent_that_is_started_again_and_told_to_end_in_its_first_look_copies_what_was_saved() {
    let world = World::new();
    let pod = world.pod("pod");
    // Its program runs already.
    std::fs::create_dir_all(pod.join(".trainyard")).unwrap();
    std::fs::write(pod.join(".trainyard/attempt"), "uid/1").unwrap();
    world.save("pod", &vec![file("final.pt", files::torch(&[]))]);
    world.server.is_slow(true);
    let (mut child, _reports) = process(&world, &pod);
    world.server.wait_until_held();
    terminate(&child);
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it has something to save");
    world.server.is_slow(false);
    assert!(child.wait().unwrap().success());
    assert_eq!(world.kept(), ["final.pt"]);
}

#[test]
fn a_bucket_that_is_away_at_the_end_is_waited_for() {
    // It does not answer; or it was never read.
    for is_missing in [false, true] {
        let world = World::new();
        let bucket = world.disk.path().join("buckets/bucket");
        if is_missing {
            std::fs::remove_dir(&bucket).unwrap();
        }
        let (mut child, mut reports) = process(&world, &world.pod("pod"));
        reports.next().unwrap();
        world.server.is_down(!is_missing);
        world.save("pod", &vec![file("step-7.pt", files::torch(&[]))]);
        terminate(&child);
        let words = "the program has ended, but step-7.pt is not in s3://bucket/ml/bert yet";
        let is_told =
            |report: &AgentReport| report.problem.as_ref().is_some_and(|text| text.starts_with(words));
        let report = reports.find(is_told).unwrap();
        assert_eq!(report.checkpoint, None);
        if is_missing {
            std::fs::create_dir(&bucket).unwrap();
        }
        world.server.is_down(false);
        let last = reports.last().unwrap();
        assert_eq!((path(&last), &last.problem), (Some("s3://bucket/ml/bert/step-7.pt"), &None));
        assert!(child.wait().unwrap().success());
        assert_eq!(world.kept(), ["step-7.pt"]);
    }
}

#[test]
fn what_has_arrived_is_told_when_it_has_and_not_at_the_next_look() {
    let world = World::new();
    // It is there before the second look, which begins to send it, and the third is in an hour.
    world.save("pod", &vec![file("step-7.pt", files::torch(&[]))]);
    std::fs::create_dir_all(world.pod("pod").join(".trainyard")).unwrap();
    std::fs::write(world.pod("pod").join(".trainyard/attempt"), "uid/1").unwrap();
    let (mut child, mut reports) = process(&world, &world.pod("pod"));
    let arrived = reports.find(|report| report.checkpoint.is_some()).unwrap();
    assert_eq!(path(&arrived), Some("s3://bucket/ml/bert/step-7.pt"));
    terminate(&child);
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_agent_that_holds_the_start_ends_at_once() {
    let world = World::new();
    world.server.is_down(true);
    let (mut child, mut reports) = process(&world, &world.pod("pod"));
    assert!(reports.next().unwrap().unread);
    terminate(&child);
    assert_eq!(reports.next(), None);
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_image_without_certificates_is_enough_for_a_bucket_without_tls() {
    let world = World::new().with_saved(&["step-5.pt"]);
    let mut variables = world.server.variables("secret");
    variables.extend(["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| (name.to_owned(), "/nowhere".to_owned())));
    let (child, mut reports) = process_with(&world.pod("plain"), variables.clone());
    let found = reports.next().unwrap();
    assert_eq!(path(&found), Some("s3://bucket/ml/bert/step-5.pt"), "{found:?}");
    terminate(&child);
    assert_eq!(reports.last(), None, "nothing else is told");

    let (_, endpoint) = variables.iter_mut().find(|(name, _)| name == "AWS_ENDPOINT_URL").unwrap();
    *endpoint = endpoint.replace("http:", "https:");
    let (child, mut reports) = process_with(&world.pod("with-tls"), variables);
    let held = reports.next().unwrap();
    assert!(held.unread, "{held:?}");
    let words = "s3://bucket/ml/bert cannot be reached by https: where the agent runs are no certificates";
    assert!(held.problem.as_ref().is_some_and(|problem| problem.contains(words)), "{held:?}");
    terminate(&child);
    assert_eq!(reports.last(), None);
}
