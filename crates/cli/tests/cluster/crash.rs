//! The operator dies, again and again, and the job ends as if it had not.

use std::time::Duration;

use kube::ResourceExt;
use trainyard_api::{Cause, State};
use trainyard_testcluster::{Script, enabled};

use super::support::{Yard, job};

#[tokio::test]
async fn killed_at_ten_moments_and_the_same_end() {
    if !enabled() {
        return;
    }
    let mut yard = Yard::new("crashes").await;
    yard.script(|pod| {
        let first =
            pod.labels().get("trainingjob.ml.example.com/attempt").is_some_and(|attempt| attempt == "1");
        let fails = first && pod.name_any() == "bert-workers-2";
        Script::exit(Duration::from_millis(if fails { 900 } else { 1800 }), i32::from(fails))
    });
    yard.apply(&job("bert", 3)).await.expect("apply");
    // A fixed seed: the moments are random, but the same in every run.
    let mut seed: u64 = 0x5eed;
    for _ in 0..10 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tokio::time::sleep(Duration::from_millis((seed >> 33) % 400)).await;
        yard.kill_operator();
        yard.launch_operator(&[]);
    }
    let status = yard.until_state("bert", State::Completed).await;
    assert_eq!(status.restarts.unwrap().application, 1, "the one failure was counted once");
    assert_eq!(status.restarts.unwrap().total(), 1, "and nothing else happened");
    let causes: Vec<_> = status.attempts.iter().map(|attempt| (attempt.number, attempt.cause)).collect();
    assert_eq!(causes, [(1, Some(Cause::Application)), (2, Some(Cause::Succeeded))]);
    assert_eq!(yard.pod_names("bert").await.len(), 3);
}

#[tokio::test]
async fn told_to_stop_it_stops_and_the_next_one_goes_on() {
    if !enabled() {
        return;
    }
    let mut yard = Yard::new("stopping").await;
    yard.apply(&job("bert", 2)).await.expect("apply");
    yard.until_state("bert", State::Running).await;
    let pid = yard.operator().pid().to_string();
    let before = std::time::Instant::now();
    std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    let ended = loop {
        if let Err(ended) = yard.operator().check() {
            break ended.to_string();
        }
        assert!(before.elapsed() < Duration::from_mins(1), "it does not stop\n{}", yard.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    println!("stopped after {:?}", before.elapsed());
    assert!(ended.contains("exit status: 0"), "{ended}");
    assert!(yard.log().contains("stopping: finishing what is under way"));
    yard.end_all("bert", 0).await;
    yard.start_operator(&[]).await;
    yard.until_state("bert", State::Completed).await;
}
