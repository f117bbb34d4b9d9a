//! What stays in a bucket, what goes from it, and what is sent first.

mod support {
    pub(crate) mod files;
    pub(crate) mod world;
}

use std::sync::mpsc::{TryRecvError, channel};

use support::files::{self, file};
use support::world::{PLACE, World, at, options, told};
use trainyard_agent::store::Store;
use trainyard_agent::{Options, Start};

#[test]
fn a_checkpoint_whose_files_come_one_after_another_keeps_all_of_them() {
    let world = World::new();
    let mut agent = world.agent("pod", Options { keep_last: 1, ..options() });
    agent.begin(at(0));
    world.save("pod", &vec![file("samples-epoch-3.pt", files::torch(&[]))]);
    agent.finish(at(10));
    assert_eq!(world.kept(), ["samples-epoch-3.pt"]);
    world.save("pod", &vec![file("model-epoch-3.pt", files::torch(&[("global_step", 30)]))]);
    let report = agent.finish(at(20));
    assert_eq!(report.checkpoint.unwrap().path, format!("{PLACE}/model-epoch-3.pt"));
    assert_eq!(world.kept(), ["model-epoch-3.pt"], "all of it, and nothing that is only a part of it");
    for object in ["samples-epoch-3.pt", "model-epoch-3.pt"] {
        assert!(world.bucket().exists(object).unwrap(), "{object}");
    }
    assert!(!world.bucket().exists("samples-epoch-3.pt.complete").unwrap());
    // It goes as a whole when it is old.
    for (name, seconds) in [("samples-epoch-4.pt", 30), ("model-epoch-4.pt", 40)] {
        world.save("pod", &vec![file(name, files::torch(&[("global_step", 40)]))]);
        agent.finish(at(seconds));
    }
    assert_eq!(world.kept(), ["model-epoch-4.pt"]);
    assert!(!world.bucket().exists("samples-epoch-3.pt").unwrap());
}

#[test]
fn a_file_that_changes_all_the_time_keeps_no_other_from_the_bucket() {
    let world = World::new();
    let mut agent = world.agent("pod", options());
    agent.begin(at(0));
    world.save("pod", &vec![file("last.pt", files::torch(&[("global_step", 99)]))]);
    let path = world.pod("pod").join("last.pt");
    let (stop, stopped) = channel::<()>();
    let writing = std::thread::spawn(move || {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            file.set_modified(std::time::SystemTime::now()).unwrap();
        }
    });
    for epoch in 1..=3 {
        let name = format!("epoch-{epoch}.pt");
        world.save("pod", &vec![file(name.as_str(), files::torch(&[("global_step", epoch)]))]);
        // One look for the file that changes, if that is first, and one for this.
        for second in 0..6 {
            agent.finish(at(u64::from(epoch) * 10 + second));
        }
        assert!(world.kept().contains(&name), "{:?}", world.kept());
    }
    stop.send(()).unwrap();
    writing.join().unwrap();
    agent.finish(at(60));
    assert!(world.kept().contains(&"last.pt".to_owned()), "its turn comes");
}

#[test]
fn the_best_stays_in_the_bucket_also_after_a_restart() {
    let world = World::new();
    let save = |pod: &str, step: u32| {
        let name = format!("checkpoint-{step}");
        let mut files = files::huggingface(&name, step);
        let state =
            format!(r#"{{"global_step": {step}, "best_model_checkpoint": "/checkpoints/checkpoint-100"}}"#);
        files.retain(|(path, _)| !path.ends_with("trainer_state.json"));
        files.push(file(format!("{name}/trainer_state.json"), state));
        world.save(pod, &files);
    };
    let mut agent = world.agent("pod", Options { keep_last: 2, ..options() });
    agent.begin(at(0));
    for step in [100, 200, 300] {
        save("pod", step);
        agent.finish(at(u64::from(step)));
    }
    assert_eq!(world.kept(), ["checkpoint-300", "checkpoint-200", "checkpoint-100"]);
    let mut agent = world.agent("again", Options { keep_last: 2, ..told("checkpoint-300") });
    agent.begin(at(0));
    assert!(!world.has("again", "checkpoint-100"), "it is in the bucket only");
    for step in [400, 500] {
        save("again", step);
        agent.finish(at(u64::from(step)));
    }
    assert!(world.kept().contains(&"checkpoint-100".to_owned()), "{:?}", world.kept());
    assert!(!world.kept().contains(&"checkpoint-200".to_owned()), "{:?}", world.kept());
}

#[test]
fn a_name_that_is_no_path_holds_nothing_up_and_is_told() {
    for world in World::of_every_vendor() {
        world.server.lists("ml/bert/x//foo");
        let mut agent = world.agent("pod", options());
        let report = agent.begin(at(0));
        assert_eq!(agent.start(), Start::Ready);
        let problem = report.problem.unwrap();
        assert!(problem.contains("such as ml/bert/x//foo") && problem.contains("remove them"), "{problem}");
        world.save("pod", &vec![file("step-1.pt", files::torch(&[]))]);
        assert_eq!(agent.finish(at(10)).checkpoint.unwrap().step, Some(1));
        assert_eq!(world.kept(), ["step-1.pt"]);
    }
}

#[test]
fn a_marker_that_arrived_unheard_is_neither_sent_again_nor_removed() {
    let world = World::new();
    let mut agent = world.agent("pod", options());
    agent.begin(at(0));
    world.save("pod", &files::huggingface("checkpoint-7", 7));
    world.server.hides(Some("checkpoint-7.complete"));
    agent.finish(at(10));
    assert!(agent.is_owing(), "nobody has heard that it arrived");
    // No file of it can be sent any more.
    world.server.refuses(Some("trainer_state.json"));
    let report = agent.finish(at(30));
    assert_eq!((report.checkpoint.unwrap().step, report.problem, agent.is_owing()), (Some(7), None, false));
    assert_eq!(world.kept(), ["checkpoint-7"]);
    // Another agent finds it as well.
    let mut next = world.agent("pod", told("checkpoint-7"));
    next.begin(at(0));
    assert_eq!((next.finish(at(10)).problem, next.is_owing()), (None, false));
}
