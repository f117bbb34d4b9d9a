//! From the object to the process and back: phases, exit codes, signals, deletion.

use serde_json::json;

use crate::support::{World, end, script};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_and_succeeds() {
    let world = World::new().await;
    let (pod, text) = world.run(script("hello", "echo out; echo err >&2; hostname")).await;
    assert_eq!(end(&pod, "main"), (0, "Completed".to_owned()));
    assert_eq!(pod.status.unwrap().phase.unwrap(), "Succeeded");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "hello", "out"]);
    assert_eq!(pod.spec.unwrap().node_name.unwrap(), "box");
    assert_eq!(world.log_by_api("hello").await, text);
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_and_signals() {
    let world = World::new().await;
    for (name, text, wanted) in [
        ("three", "exit 3", (3, "Error")),
        ("killed", "kill -9 $$$$", (137, "Error")),
        ("aborted", "kill -6 $$$$", (134, "Error")),
    ] {
        let (pod, _) = world.run(script(name, text)).await;
        assert_eq!(end(&pod, "main"), (wanted.0, wanted.1.to_owned()), "{name}");
        assert_eq!(pod.status.unwrap().phase.unwrap(), "Failed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_exist_and_one_that_may_not_run() {
    let world = World::new().await;
    let mut pod = script("missing", "");
    pod["spec"]["containers"][0]["command"] = json!(["no-such-program-anywhere"]);
    let (pod, _) = world.run(pod).await;
    assert_eq!(end(&pod, "main"), (128, "StartError".to_owned()));
    let state = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap();
    let message = state.terminated.unwrap().message.unwrap();
    assert!(
        message.ends_with("exec: \"no-such-program-anywhere\": executable file not found in $PATH"),
        "{message}"
    );
    let mut pod = script("forbidden", "");
    pod["spec"]["containers"][0]["command"] = json!(["/etc/passwd"]);
    let (pod, _) = world.run(pod).await;
    let state = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap();
    assert!(state.terminated.unwrap().message.unwrap().ends_with("exec: \"/etc/passwd\": permission denied"));
    let mut pod = script("nowhere", "true");
    pod["spec"]["containers"][0]["workingDir"] = json!("/no/such/directory");
    let (pod, _) = world.run(pod).await;
    let state = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap();
    let message = state.terminated.unwrap().message.unwrap();
    assert!(
        message.contains("chdir to cwd (\"/no/such/directory\") failed: no such file or directory"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_command_says_what_to_do() {
    let world = World::new().await;
    let mut pod = script("bare", "");
    pod["spec"]["containers"][0].as_object_mut().unwrap().remove("command");
    world.create(pod).await;
    let pod = world
        .wait("bare", "explained", |pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            let waiting = statuses.and_then(|statuses| statuses[0].state.as_ref()?.waiting.as_ref());
            waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("ErrImagePull"))
        })
        .await;
    let state = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap();
    assert!(state.waiting.unwrap().message.unwrap().contains("give spec.command"));
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_asks_first() {
    let world = World::new().await;
    let pod = world
        .create(script("polite", "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done"))
        .await;
    world.wait_phase("polite", "Running").await;
    world.wait_output(&pod, "main", "ready").await;
    let options = trainyard_apiserver::LogOptions { follow: true, ..Default::default() };
    let following = world.log(&pod, "main", options);
    let (text, ()) = tokio::join!(following, world.delete("polite", 30));
    assert_eq!(text, "ready\nbye\n");
    world.wait_gone("polite").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_the_request_is_killed() {
    let world = World::new().await;
    let pod =
        world.create(script("stubborn", "trap '' TERM; echo ready; while :; do sleep 0.05; done")).await;
    world.wait_phase("stubborn", "Running").await;
    world.wait_output(&pod, "main", "ready").await;
    world.delete("stubborn", 1).await;
    world.wait_gone("stubborn").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_program_leaves_behind_ends_with_it() {
    let world = World::new().await;
    let marker = format!("10{}", std::process::id());
    let text = format!("setsid sleep {marker} & sleep {marker} & wait_for=1; sleep 0.1; exit 0");
    world.run(script("parent", &text)).await;
    let left = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.ends_with(format!("sleep\0{marker}\0").as_bytes())
    });
    assert!(!left, "a process outlived its container");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_runs_before_the_request() {
    let world = World::new().await;
    let mut pod =
        script("hooked", "trap 'cat /work/hook; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
    pod["spec"]["volumes"] = json!([{"name": "work", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "work", "mountPath": "/work"}]);
    pod["spec"]["containers"][0]["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sh", "-c", "sleep 0.2; echo hook > /work/hook"]}}});
    let pod = world.create(pod).await;
    world.wait_phase("hooked", "Running").await;
    world.wait_output(&pod, "main", "ready").await;
    let options = trainyard_apiserver::LogOptions { follow: true, ..Default::default() };
    let (text, ()) = tokio::join!(world.log(&pod, "main", options), world.delete("hooked", 30));
    assert_eq!(text, "ready\nhook\n");
    world.wait_gone("hooked").await;
}
