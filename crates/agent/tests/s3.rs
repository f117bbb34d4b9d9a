//! Buckets, on a real S3 server over HTTP.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support {
    pub(crate) mod files;
}

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use support::files::{self, Files, file};
use tempfile::TempDir;
use trainyard_agent::scan::{Moment, Scanner, Writers};
use trainyard_agent::store::{Bucket, Directory, Store};
use trainyard_agent::{Agent, Layout, Options, Resume, Start, mirror};
use trainyard_api::checkpoint::AgentReport;
use trainyard_testbucket::{Parts, Server};

/// More than two parts of an upload.
const LARGE: usize = 20 << 20;

const PLACE: &str = "s3://bucket/jobs/a";

struct World {
    disk: TempDir,
    server: Server,
}

impl World {
    fn new() -> Self {
        let disk = tempfile::tempdir().unwrap();
        for directory in ["buckets/bucket", "work"] {
            std::fs::create_dir_all(disk.path().join(directory)).unwrap();
        }
        let server = Server::start(&disk.path().join("buckets"));
        Self { disk, server }
    }

    fn directory(&self, name: &str) -> String {
        let path = self.disk.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, files: &Files) {
        files::write(Path::new(&self.directory(name)), files);
    }

    fn bucket(&self) -> Bucket {
        Bucket::open("s3://bucket/jobs/a", self.server.variables("secret")).unwrap()
    }

    /// An agent with a directory and a copy of it in the bucket.
    fn mirroring(&self, directory: &str, options: Options) -> Agent {
        let store = Box::new(Directory::new(&self.directory(directory)));
        let variables = self.server.variables("secret");
        Agent::new(store, options).with_copy_in(PLACE, variables, true)
    }
}

fn options() -> Options {
    Options {
        layouts: Layout::ALL.to_vec(),
        keep_last: 0,
        resumed_from: None,
        resume: Resume::Auto,
        ready_file: None,
        attempt: None,
    }
}

fn at(seconds: u64) -> Moment {
    Moment { wall: Timestamp::now(), elapsed: Duration::from_secs(seconds) }
}

fn large_checkpoint() -> Vec<u8> {
    files::zip(&[("archive/data.pkl", &files::pickle(&[("epoch", 1)])), ("archive/data/0", &vec![5; LARGE])])
}

#[test]
fn every_layout_is_found_in_a_bucket() {
    let world = World::new();
    let bucket = world.bucket();
    let mut all =
        vec![file("one/epoch-3.pt", files::torch(&[("epoch", 3)])), file("two/model_5.ubj", files::ubjson())];
    for (name, files) in [
        ("three", files::huggingface("checkpoint-500", 500)),
        ("four", files::dcp("step_40")),
        ("five", files::tensorflow("ckpt-5")),
        ("six", files::orbax("100")),
        ("seven", files::megatron(100)),
        ("eight", files::deepspeed(30)),
    ] {
        all.extend(files.into_iter().map(|(path, content)| (format!("{name}/{path}"), content)));
    }
    all.push(file("nine/checkpoint-epoch-2.json", files::digits(2, 4)));
    for (path, content) in &all {
        bucket.write(path, content).unwrap();
    }
    let survey = Scanner::new(Layout::ALL.to_vec()).look(&bucket, at(0), Writers::None).unwrap();
    let mut found: Vec<Layout> =
        survey.complete.iter().map(|checkpoint| checkpoint.candidate.layout).collect();
    found.sort();
    let mut every = Layout::ALL.to_vec();
    every.sort();
    assert_eq!(found, every, "{survey:?}");
    assert!(survey.partial.is_empty() && survey.problems.is_empty(), "{survey:?}");
}

#[test]
fn a_bucket_is_kept_in_order() {
    let world = World::new();
    let bucket = world.bucket();
    let whole = files::torch(&[]);
    for step in 1..=4 {
        bucket.write(&format!("step-{step}.pt"), &whole).unwrap();
    }
    bucket.write("step-5.pt", &whole[..50]).unwrap();
    bucket.write("notes.txt", b"mine").unwrap();
    let options =
        Options { keep_last: 2, resumed_from: Some("s3://bucket/jobs/a/step-4.pt".to_owned()), ..options() };
    let mut agent = Agent::new(Box::new(world.bucket()), options);
    let report = agent.begin(at(0));
    assert_eq!(agent.start(), Start::Ready, "{report:?}");
    assert_eq!(report.problem, None);
    agent.look(at(10));
    let mut left: Vec<String> = bucket.list().unwrap().entries.into_iter().map(|entry| entry.path).collect();
    left.sort();
    assert_eq!(left, ["notes.txt", "step-3.pt", "step-4.pt"]);
    assert!(bucket.exists(".trainyard/quarantine/step-5.pt").unwrap());
    assert_eq!(bucket.read(".trainyard/quarantine/step-5.pt", 0..1000).unwrap(), &whole[..50]);
}

#[test]
fn what_is_wrong_with_a_bucket_is_told_and_training_starts() {
    let world = World::new();
    let server = &world.server;
    let nobody = vec![("AWS_ENDPOINT_URL".to_owned(), "http://127.0.0.1:1".to_owned())];
    let nobody = server.variables("secret").into_iter().take(3).chain(nobody).collect();
    for (url, variables, words) in [
        (
            "s3://bucket/jobs/a",
            server.variables("wrong"),
            "the credentials for s3://bucket/jobs/a were refused",
        ),
        ("s3://nowhere/jobs/a", server.variables("secret"), "the bucket nowhere does not exist"),
        (
            "s3://bucket/jobs/a",
            nobody,
            "s3://bucket/jobs/a cannot be reached: check the endpoint, the region and the network policy (",
        ),
    ] {
        let ready_file = world.disk.path().join("ready");
        let bucket = Bucket::open(url, variables).unwrap();
        let options = Options { ready_file: Some(ready_file.clone()), ..options() };
        let report = Agent::new(Box::new(bucket), options).begin(at(0));
        let problem = report.problem.unwrap();
        assert!(problem.starts_with(words), "{problem}");
        assert!(!problem.contains("Generic") && !problem.contains("retries"), "{problem}");
        assert!(ready_file.exists());
        std::fs::remove_file(ready_file).unwrap();
    }
    for url in ["s3://", "s3:///a", "ftp://a/b"] {
        assert!(Bucket::open(url, []).is_err(), "{url}");
    }
}

#[test]
fn a_copy_is_restored_as_it_was() {
    let world = World::new();
    world.write("work", &files::huggingface("checkpoint-500", 500));
    world.write("work", &vec![file("checkpoint-500/optimizer.bin", large_checkpoint())]);
    let mut agent = world.mirroring(
        "work",
        Options { resumed_from: Some(format!("{}/checkpoint-500", world.directory("work"))), ..options() },
    );
    assert_eq!(agent.begin(at(0)).checkpoint, None, "it is not safe yet");
    let report = agent.finish(at(10));
    assert_eq!(report.checkpoint.unwrap().step, Some(500), "{:?}", report.problem);

    let mut elsewhere = world.mirroring("elsewhere", options());
    let report = elsewhere.begin(at(0));
    assert_eq!(elsewhere.start(), Start::Differs);
    let restored = format!("{PLACE}/checkpoint-500");
    assert_eq!(report.checkpoint.unwrap().path, restored);
    for name in ["optimizer.bin", "trainer_state.json", "model-00001-of-00002.safetensors"] {
        let read = |place: &str| {
            std::fs::read(world.disk.path().join(place).join("checkpoint-500").join(name)).unwrap()
        };
        assert!(read("work") == read("elsewhere"), "{name}");
    }

    // The next attempt is told the right path, and has nothing to send.
    let mut next = world.mirroring("elsewhere", Options { resumed_from: Some(restored), ..options() });
    let report = next.begin(at(0));
    assert_eq!(next.start(), Start::Ready);
    assert_eq!(report.checkpoint.unwrap().step, Some(500));
    assert_eq!(report.problem, None);
}

#[test]
fn a_newer_checkpoint_of_the_directory_is_not_replaced() {
    let world = World::new();
    world.write("work", &vec![file("step-5.pt", files::torch(&[]))]);
    let five = format!("{}/step-5.pt", world.directory("work"));
    world.mirroring("work", Options { resumed_from: Some(five), ..options() }).finish(at(0));
    assert_eq!(mirror::markers(&world.bucket()).unwrap().len(), 1);
    world.write("elsewhere", &vec![file("step-6.pt", files::torch(&[]))]);
    let six = format!("{}/step-6.pt", world.directory("elsewhere"));
    let mut agent = world.mirroring("elsewhere", Options { resumed_from: Some(six), ..options() });
    agent.begin(at(0));
    assert_eq!(agent.start(), Start::Ready);
    assert!(!Path::new(&world.directory("elsewhere")).join("step-5.pt").exists());
}

#[test]
fn the_copy_keeps_as_many_as_it_is_told() {
    let world = World::new();
    let mut agent = world.mirroring("work", Options { keep_last: 2, ..options() });
    agent.begin(at(0));
    for step in 1..=4 {
        world.write("work", &vec![file(format!("step-{step}.pt"), files::torch(&[]))]);
        agent.finish(at(step * 10));
    }
    let kept: Vec<_> =
        mirror::markers(&world.bucket()).unwrap().into_iter().map(|marker| marker.path).collect();
    assert_eq!(kept, ["step-4.pt", "step-3.pt"]);
    assert!(!world.bucket().exists("step-1.pt").unwrap());
}

#[test]
fn the_copy_keeps_all_files_of_a_step() {
    let world = World::new();
    let mut agent = world.mirroring("work", Options { keep_last: 1, ..options() });
    agent.begin(at(0));
    for step in 1..=2 {
        let name = |rank| file(format!("step-{step}-rank-{rank}.pt"), files::torch(&[]));
        world.write("work", &(0..3).map(name).collect());
        agent.finish(at(step * 10));
    }
    let mut kept: Vec<_> =
        mirror::markers(&world.bucket()).unwrap().into_iter().map(|marker| marker.path).collect();
    kept.sort();
    assert_eq!(kept, ["step-2-rank-0.pt", "step-2-rank-1.pt", "step-2-rank-2.pt"]);
}

#[test]
fn a_file_that_gets_another_in_its_place_is_sent_and_one_that_changes_is_not() {
    let world = World::new();
    let bucket = world.bucket();
    let path = Path::new(&world.directory("work")).join("last.ckpt");
    for size in [100, LARGE] {
        std::fs::write(&path, vec![1; size]).unwrap();
        let before = std::fs::metadata(&path).unwrap();
        let is_same = |metadata: &std::fs::Metadata| {
            (metadata.len(), metadata.modified().unwrap()) == (before.len(), before.modified().unwrap())
        };
        let replaced = |metadata: &std::fs::Metadata| {
            let other = path.with_extension("tmp");
            std::fs::write(&other, vec![2; size]).unwrap();
            std::fs::rename(&other, &path).unwrap();
            is_same(metadata)
        };
        assert!(bucket.upload(&path, "last.ckpt", &replaced).unwrap());
        let size = size as u64;
        assert_eq!(bucket.read("last.ckpt", size - 1..size).unwrap(), [1], "all of what was opened");

        let opened = std::cell::Cell::new(None);
        let written_over = |metadata: &std::fs::Metadata| {
            let first = opened.take().unwrap_or_else(|| metadata.modified().unwrap());
            opened.set(Some(first));
            let is_same = first == metadata.modified().unwrap();
            let long_ago = std::time::SystemTime::UNIX_EPOCH;
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
            is_same
        };
        assert!(!bucket.upload(&path, "last.ckpt", &written_over).unwrap());
        assert_eq!(bucket.read("last.ckpt", 0..1).unwrap(), [1], "the object is the one that was there");
    }
}

#[test]
fn an_upload_that_breaks_is_told_and_repeated() {
    let world = World::new();
    world.write("work", &vec![file("step-1.pt", files::torch(&[]))]);
    let first = format!("{}/step-1.pt", world.directory("work"));
    let mut agent = world.mirroring("work", Options { resumed_from: Some(first), ..options() });
    agent.begin(at(0));
    agent.finish(at(1));
    world.write("work", &vec![file("step-2.pt", large_checkpoint())]);
    world.server.parts_are(Parts::Dropped);
    let report = agent.finish(at(100));
    assert_eq!(
        report.checkpoint.unwrap().path,
        format!("{PLACE}/step-1.pt"),
        "what is not safe is not reported"
    );
    let problem = report.problem.unwrap();
    assert!(problem.starts_with("the program has ended, but step-2.pt is not in"), "{problem}");
    assert!(problem.contains("a checkpoint could not be copied"), "{problem}");
    assert_eq!(mirror::markers(&world.bucket()).unwrap().len(), 1);

    world.server.parts_are(Parts::Served);
    let report = agent.finish(at(200));
    assert_eq!(report.checkpoint.unwrap().step, Some(2));
    assert_eq!(report.problem, None);
    assert_eq!(mirror::markers(&world.bucket()).unwrap()[0].path, "step-2.pt");
}

/// The agent as a process, for the test below: a part of this program that runs only when it is told where.
#[test]
fn agent_process() {
    let Ok(directory) = std::env::var("AGENT_PROCESS_DIRECTORY") else { return };
    let variables = std::env::vars().filter(|(key, _)| key.starts_with("AWS_")).collect();
    let agent = Agent::new(Box::new(Directory::new(&directory)), options());
    let agent = agent.with_copy_in(PLACE, variables, true);
    trainyard_agent::run::run(agent, Duration::from_millis(50), &mut std::io::stdout()).unwrap();
}

#[test]
fn an_upload_whose_agent_is_killed_is_never_restored() {
    let world = World::new();
    world.server.parts_are(Parts::Held);
    // Small files arrive, and then the agent is killed over the large one.
    let mut files = files::huggingface("checkpoint-2", 2);
    files.push(file("checkpoint-2/optimizer.bin", large_checkpoint()));
    let directory = world.directory("work");
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "agent_process", "--nocapture"])
        .env("AGENT_PROCESS_DIRECTORY", &directory)
        .envs(world.server.variables("secret"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    lines.find(|line| AgentReport::of_line(line.as_ref().unwrap()).is_some()).unwrap().unwrap();
    // As programs do that want to be sure: under another name first.
    world.write("unfinished", &files);
    std::fs::rename(
        world.disk.path().join("unfinished/checkpoint-2"),
        Path::new(&directory).join("checkpoint-2"),
    )
    .unwrap();
    world.server.wait_until_held();
    process.kill().unwrap();
    process.wait().unwrap();
    world.server.parts_are(Parts::Served);

    assert!(world.bucket().exists("checkpoint-2/config.json").unwrap());
    let mut agent = world.mirroring("elsewhere", options());
    let report = agent.begin(at(0));
    assert_eq!((agent.start(), report.checkpoint), (Start::Ready, None));
    assert!(std::fs::read_dir(world.directory("elsewhere")).unwrap().next().is_none());

    // The agent that comes after it sends it again.
    let resumed_from = Some(format!("{directory}/checkpoint-2"));
    let mut agent = world.mirroring("work", Options { resumed_from, ..options() });
    agent.begin(at(0));
    assert_eq!(agent.finish(at(10)).checkpoint.unwrap().step, Some(2));
    assert_eq!(mirror::markers(&world.bucket()).unwrap().len(), 1);
}
