//! Buckets over HTTP, on a real server that speaks as each of the vendors does.

mod support {
    pub(crate) mod files;
    pub(crate) mod world;
}

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use support::files::{self, file};
use support::world::{World, at, options, variables_of_this_process};
use trainyard_agent::scan::{Scanner, Writers};
use trainyard_agent::store::{Bucket, Directory, Store};
use trainyard_agent::{Agent, Layout, Options, Start, mirror};
use trainyard_api::checkpoint::AgentReport;
use trainyard_testbucket::Parts;

/// More than two parts of an upload.
const LARGE: usize = 20 << 20;

fn large_checkpoint() -> Vec<u8> {
    files::zip(&[("archive/data.pkl", &files::pickle(&[("epoch", 1)])), ("archive/data/0", &vec![5; LARGE])])
}

#[test]
fn every_layout_is_found_in_a_bucket() {
    for world in World::of_every_vendor() {
        let bucket = world.bucket();
        let mut all = vec![
            file("one/epoch-3.pt", files::torch(&[("epoch", 3)])),
            file("two/model_5.ubj", files::ubjson()),
        ];
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
        all.push(file("nine/step-2.safetensors", files::safetensors(4)));
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
}

#[test]
fn a_bucket_is_kept_in_order() {
    for world in World::of_every_vendor() {
        let bucket = world.bucket();
        let whole = files::torch(&[]);
        for step in 1..=4 {
            bucket.write(&format!("step-{step}.pt"), &whole).unwrap();
        }
        bucket.write("step-5.pt", &whole[..50]).unwrap();
        bucket.write("notes.txt", b"mine").unwrap();
        let options =
            Options { keep_last: 2, resumed_from: Some(format!("{}/step-4.pt", world.place)), ..options() };
        let mut agent = Agent::new(Box::new(world.bucket()), options);
        let report = agent.begin(at(0));
        assert_eq!(agent.start(), Start::Ready, "{report:?}");
        assert_eq!(report.problem, None);
        agent.look(at(10));
        let mut left: Vec<String> =
            bucket.list().unwrap().entries.into_iter().map(|entry| entry.path).collect();
        left.sort();
        assert_eq!(left, ["notes.txt", "step-3.pt", "step-4.pt"]);
        assert!(bucket.exists(".trainyard/quarantine/step-5.pt").unwrap());
        assert_eq!(bucket.read(".trainyard/quarantine/step-5.pt", 0..1000).unwrap(), &whole[..50]);
    }
}

#[test]
fn what_is_wrong_with_a_bucket_is_told_and_training_starts() {
    for world in World::of_every_vendor() {
        let server = &world.server;
        let elsewhere =
            |(key, value): (String, String)| (key, value.replace(&server.endpoint, "http://127.0.0.1:1"));
        let nobody = server.variables("secret").into_iter().map(elsewhere).collect();
        let (place, nowhere) = (&world.place, world.place.replace("bucket", "nowhere"));
        for (url, variables, words) in [
            (place, server.variables("wrong"), format!("the credentials for {place} were refused")),
            (&nowhere, server.variables("secret"), "the bucket nowhere does not exist".to_owned()),
            (
                place,
                nobody,
                format!("{place} cannot be reached: check the endpoint, the region and the network policy ("),
            ),
        ] {
            let ready_file = world.disk.path().join("ready");
            let bucket = Bucket::open(url, variables).unwrap();
            let options = Options { ready_file: Some(ready_file.clone()), ..options() };
            let report = Agent::new(Box::new(bucket), options).begin(at(0));
            let problem = report.problem.unwrap();
            assert!(problem.starts_with(&words), "{problem}");
            assert!(!problem.contains("Generic") && !problem.contains("retries"), "{problem}");
            assert!(ready_file.exists());
            std::fs::remove_file(ready_file).unwrap();
        }
        for url in ["s3://", "s3:///a", "gs://", "gs:///a", "ftp://a/b"] {
            assert!(Bucket::open(url, []).is_err(), "{url}");
        }
    }
}

#[test]
fn a_copy_is_restored_as_it_was() {
    for world in World::of_every_vendor() {
        world.save("work", &files::huggingface("checkpoint-500", 500));
        world.save("work", &vec![file("checkpoint-500/optimizer.bin", large_checkpoint())]);
        let mut agent = world.agent("work", world.told_in("work", "checkpoint-500"));
        assert_eq!(agent.begin(at(0)).checkpoint, None, "it is not safe yet");
        let report = agent.finish(at(10));
        assert_eq!(report.checkpoint.unwrap().step, Some(500), "{:?}", report.problem);

        let mut elsewhere = world.agent("elsewhere", options());
        let report = elsewhere.begin(at(0));
        assert_eq!(elsewhere.start(), Start::Differs);
        let restored = format!("{}/checkpoint-500", world.place);
        assert_eq!(report.checkpoint.unwrap().path, restored);
        for name in ["optimizer.bin", "trainer_state.json", "model-00001-of-00002.safetensors"] {
            let read = |place: &str| {
                std::fs::read(world.disk.path().join(place).join("checkpoint-500").join(name)).unwrap()
            };
            assert!(read("work") == read("elsewhere"), "{name}");
        }

        // The next attempt is told the right path, and has nothing to send.
        let mut next = world.agent("elsewhere", Options { resumed_from: Some(restored), ..options() });
        let report = next.begin(at(0));
        assert_eq!(next.start(), Start::Ready);
        assert_eq!(report.checkpoint.unwrap().step, Some(500));
        assert_eq!(report.problem, None);
    }
}

#[test]
fn a_newer_checkpoint_of_the_directory_is_not_replaced() {
    for world in World::of_every_vendor() {
        world.save("work", &vec![file("step-5.pt", files::torch(&[]))]);
        world.agent("work", world.told_in("work", "step-5.pt")).finish(at(0));
        assert_eq!(mirror::markers(&world.bucket()).unwrap().len(), 1);
        world.save("elsewhere", &vec![file("step-6.pt", files::torch(&[]))]);
        let mut agent = world.agent("elsewhere", world.told_in("elsewhere", "step-6.pt"));
        agent.begin(at(0));
        assert_eq!(agent.start(), Start::Ready);
        assert!(!world.pod("elsewhere").join("step-5.pt").exists());
    }
}

#[test]
fn the_copy_keeps_as_many_as_it_is_told() {
    for world in World::of_every_vendor() {
        let mut agent = world.agent("work", Options { keep_last: 2, ..options() });
        agent.begin(at(0));
        for step in 1..=4 {
            world.save("work", &vec![file(format!("step-{step}.pt"), files::torch(&[]))]);
            agent.finish(at(step * 10));
        }
        let kept: Vec<_> =
            mirror::markers(&world.bucket()).unwrap().into_iter().map(|marker| marker.path).collect();
        assert_eq!(kept, ["step-4.pt", "step-3.pt"]);
        assert!(!world.bucket().exists("step-1.pt").unwrap());
    }
}

#[test]
fn the_copy_keeps_all_files_of_a_step() {
    for world in World::of_every_vendor() {
        let mut agent = world.agent("work", Options { keep_last: 1, ..options() });
        agent.begin(at(0));
        for step in 1..=2 {
            let name = |rank| file(format!("step-{step}-rank-{rank}.pt"), files::torch(&[]));
            world.save("work", &(0..3).map(name).collect());
            agent.finish(at(step * 10));
        }
        let kept = mirror::markers(&world.bucket()).unwrap();
        assert_eq!(kept.len(), 1, "they are one checkpoint: {kept:?}");
        assert_eq!(kept[0].path, "step-2-rank-0.pt");
        let files: Vec<_> = kept[0].files.iter().map(|part| part.path.as_str()).collect();
        assert_eq!(files, ["step-2-rank-0.pt", "step-2-rank-1.pt", "step-2-rank-2.pt"]);
        assert!(!world.bucket().exists("step-1-rank-1.pt").unwrap());
    }
}

#[test]
fn a_file_that_gets_another_in_its_place_is_sent_and_one_that_changes_is_not() {
    for world in World::of_every_vendor() {
        let bucket = world.bucket();
        let path = world.pod("work").join("last.ckpt");
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
}

#[test]
fn an_upload_that_breaks_is_told_and_repeated() {
    for world in World::of_every_vendor() {
        world.save("work", &vec![file("step-1.pt", files::torch(&[]))]);
        let mut agent = world.agent("work", world.told_in("work", "step-1.pt"));
        agent.begin(at(0));
        agent.finish(at(1));
        world.save("work", &vec![file("step-2.pt", large_checkpoint())]);
        world.server.parts_are(Parts::Dropped);
        let report = agent.finish(at(100));
        assert_eq!(
            report.checkpoint.unwrap().path,
            format!("{}/step-1.pt", world.place),
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
}

/// The agent as a process, for the test below: a part of this program that runs only when it is told where.
#[test]
fn agent_process() {
    let Ok(directory) = std::env::var("AGENT_PROCESS_DIRECTORY") else { return };
    let place = std::env::var("AGENT_PROCESS_PLACE").unwrap();
    let agent = Agent::new(Box::new(Directory::new(&directory)), options());
    let agent = agent.with_copy_in(&place, variables_of_this_process(), true);
    trainyard_agent::run::run(agent, Duration::from_millis(50), &mut std::io::stdout()).unwrap();
}

#[test]
fn an_upload_whose_agent_is_killed_is_never_restored() {
    for world in World::of_every_vendor() {
        world.server.parts_are(Parts::Held);
        // Small files arrive, and then the agent is killed over the large one.
        let mut files = files::huggingface("checkpoint-2", 2);
        files.push(file("checkpoint-2/optimizer.bin", large_checkpoint()));
        let directory = world.pod("work");
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "agent_process", "--nocapture"])
            .env("AGENT_PROCESS_DIRECTORY", &directory)
            .env("AGENT_PROCESS_PLACE", &world.place)
            .envs(world.server.variables("secret"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        lines.find(|line| AgentReport::of_line(line.as_ref().unwrap()).is_some()).unwrap().unwrap();
        // As programs do that want to be sure: under another name first.
        world.save("unfinished", &files);
        std::fs::rename(world.disk.path().join("unfinished/checkpoint-2"), directory.join("checkpoint-2"))
            .unwrap();
        world.server.wait_until_held();
        process.kill().unwrap();
        process.wait().unwrap();
        world.server.parts_are(Parts::Served);

        assert!(world.bucket().exists("checkpoint-2/config.json").unwrap());
        let mut agent = world.agent("elsewhere", options());
        let report = agent.begin(at(0));
        assert_eq!((agent.start(), report.checkpoint), (Start::Ready, None));
        assert!(std::fs::read_dir(world.pod("elsewhere")).unwrap().next().is_none());

        // The agent that comes after it sends it again.
        let mut agent = world.agent("work", world.told_in("work", "checkpoint-2"));
        agent.begin(at(0));
        assert_eq!(agent.finish(at(10)).checkpoint.unwrap().step, Some(2));
        assert_eq!(mirror::markers(&world.bucket()).unwrap().len(), 1);
    }
}
