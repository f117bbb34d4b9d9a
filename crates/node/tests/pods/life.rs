//! From the object to the process and back: phases, exit codes, signals, deletion.

use serde_json::json;
use trainyard_node::Isolation;

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

#[tokio::test(flavor = "multi_thread")]
async fn last_words_are_left_in_a_file_of_the_container() {
    let world = World::new().await;
    let message = |pod: &k8s_openapi::api::core::v1::Pod| {
        let state = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].state.clone();
        let ended = state.unwrap().terminated.unwrap();
        assert!(ended.started_at.is_some(), "{ended:?}");
        ended.message
    };
    let of_the_machine = || std::fs::read_to_string("/dev/termination-log").ok();
    let before = of_the_machine();
    let (pod, text) = world
        .run(script("default", "echo farewell > /dev/termination-log; echo x > /dev/null; exit 3"))
        .await;
    assert_eq!((message(&pod).as_deref(), text.as_str()), (Some("farewell\n"), ""));
    assert_eq!(of_the_machine(), before, "the machine's /dev stays as it is");
    // Of much, the end is kept: that is where programs say why.
    let mut pod = script("elsewhere", "(head -c 5000 /dev/zero | tr '\\0' x; echo why) > /last/words");
    pod["spec"]["containers"][0]["terminationMessagePath"] = json!("/last/words");
    assert_eq!(message(&world.run(pod).await.0), Some("x".repeat(4092) + "why\n"));
    let mut pod =
        script("talker", "echo said; test -n \"$Q\" || echo written > /dev/termination-log; exit 1");
    pod["spec"]["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    let mut quiet = pod.clone();
    quiet["metadata"]["name"] = json!("quiet");
    quiet["spec"]["containers"][0]["env"] = json!([{"name": "Q", "value": "1"}]);
    assert_eq!(message(&world.run(pod).await.0).as_deref(), Some("written\n"));
    assert_eq!(message(&world.run(quiet).await.0).as_deref(), Some("said\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_runs_after_the_start_and_its_failure_ends_the_container() {
    let world = World::new().await;
    let hooked = |name: &str, hook: &str| {
        let mut pod = script(name, "while test ! -e /work/hook; do sleep 0.05; done; echo greeted");
        pod["spec"]["volumes"] = json!([{"name": "work", "emptyDir": {}}]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "work", "mountPath": "/work"}]);
        pod["spec"]["containers"][0]["lifecycle"] =
            json!({"postStart": {"exec": {"command": ["sh", "-c", hook]}}});
        pod
    };
    let (_, text) = world.run(hooked("fine", "touch /work/hook")).await;
    assert_eq!(text, "greeted\n");
    world.create(hooked("bad", "echo no; exit 4")).await;
    let message = world.event("bad", "FailedPostStartHook").await;
    assert!(message.starts_with("PostStartHook failed: ") && message.ends_with("no"), "{message}");
    let pod = world.wait_phase("bad", "Failed").await;
    assert_eq!(end(&pod, "main").0, 143);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_working_directory_inside_a_volume_is_made() {
    for isolation in [Isolation::WherePossible, Isolation::Off] {
        let world = World::with(|config| config.isolation = isolation).await;
        let mut pod = script("inside", "pwd > here; basename $(pwd)");
        pod["spec"]["volumes"] = json!([{"name": "work", "emptyDir": {}}]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "work", "mountPath": "/work"}]);
        pod["spec"]["containers"][0]["workingDir"] = json!("/work/a/sub");
        let (pod, text) = world.run(pod).await;
        assert_eq!((end(&pod, "main").0, text.as_str()), (0, "sub\n"));
    }
}
