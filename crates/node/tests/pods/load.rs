//! A lot at once.

use std::time::Instant;

use serde_json::json;
use trainyard_apiserver::LogOptions;
use trainyard_node::LogLimits;

use crate::support::{World, script};

const LINES: usize = 30_000;

#[tokio::test(flavor = "multi_thread")]
async fn eight_workers_that_talk_as_fast_as_they_can() {
    let world =
        World::with(|config| config.log_limits = LogLimits { max_bytes: 1 << 20, max_files: 1000 }).await;
    let begun = Instant::now();
    let mut pods = Vec::new();
    for number in 0..8 {
        pods.push(world.create(script(&format!("talker-{number}"), &format!("seq 1 {LINES}"))).await);
    }
    for pod in &pods {
        let name = pod.metadata.name.as_deref().unwrap();
        world.wait_phase(name, "Succeeded").await;
        let text = world.log(pod, "main", LogOptions::default()).await;
        let mut lines = text.lines();
        for number in 1..=LINES {
            assert_eq!(lines.next(), Some(number.to_string().as_str()), "{name}");
        }
        assert_eq!(lines.next(), None);
        let tail = world.log(pod, "main", LogOptions { tail_lines: Some(2), ..LogOptions::default() }).await;
        assert_eq!(tail, format!("{}\n{LINES}\n", LINES - 1));
    }
    println!("{} lines in {:?}", 8 * LINES, begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_pods() {
    let world = World::with(|config| config.max_pods = 40).await;
    let begun = Instant::now();
    for number in 0..200 {
        world.create(script(&format!("short-{number}"), "true")).await;
    }
    for number in 0..200 {
        world.wait_phase(&format!("short-{number}"), "Succeeded").await;
    }
    println!("200 pods in {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gangs_that_do_not_fit_together_run_one_after_the_other() {
    let world = World::with(|config| config.cpu = Some("3".to_owned())).await;
    let gang = |job: &str, rank: usize| {
        let name = format!("{job}-workers-{rank}");
        let mut pod = script(&name, "sleep 0.2");
        pod["metadata"]["labels"] = json!({"trainingjob": job, "trainingjob.ml.example.com/attempt": "1"});
        pod["metadata"]["annotations"] = json!({"trainingjob.ml.example.com/shape": "workers=2"});
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
        pod
    };
    // Interleaved, so that each could get half of what it needs.
    for rank in 0..2 {
        for job in ["one", "two"] {
            world.create(gang(job, rank)).await;
        }
    }
    for job in ["one", "two"] {
        for rank in 0..2 {
            world.wait_phase(&format!("{job}-workers-{rank}"), "Succeeded").await;
        }
    }
}
