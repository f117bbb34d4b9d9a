//! Several containers, restarts, limits.

use serde_json::json;
use trainyard_apiserver::LogOptions;

use crate::support::{World, end, script};

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_first_sidecars_beside_and_gone_at_the_end() {
    let world = World::new().await;
    let mut pod = script("several", "cat /work/log; test -e /work/side && echo side runs");
    let mount = json!([{"name": "work", "mountPath": "/work"}]);
    pod["spec"]["volumes"] = json!([{"name": "work", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = mount.clone();
    let container = |name: &str, text: &str| json!({"name": name, "image": "i", "command": ["sh", "-c", text], "volumeMounts": mount});
    let mut side = container("side", "trap 'exit 0' TERM; touch /work/side; while :; do sleep 0.02; done");
    side["restartPolicy"] = json!("Always");
    side["startupProbe"] = json!({"exec": {"command": ["test", "-e", "/work/side"]}, "periodSeconds": 1});
    pod["spec"]["initContainers"] =
        json!([container("one", "echo one >> /work/log"), side, container("two", "echo two >> /work/log")]);
    let (pod, text) = world.run(pod).await;
    assert_eq!(text, "one\ntwo\nside runs\n");
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Succeeded"));
    for name in ["one", "two", "side"] {
        assert_eq!(end(&pod, name), (0, "Completed".to_owned()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_init_container_fails_the_pod() {
    let world = World::new().await;
    let mut pod = script("unlucky", "echo never");
    pod["spec"]["initContainers"] = json!([{"name": "first", "image": "i", "command": ["false"]}]);
    world.create(pod).await;
    let pod = world.wait_phase("unlucky", "Failed").await;
    assert_eq!(end(&pod, "first"), (1, "Error".to_owned()));
    let main = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap();
    assert_eq!(main.waiting.unwrap().reason.unwrap(), "PodInitializing");
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_and_the_log_before() {
    let world = World::new().await;
    let mut pod = script("again", "echo run; test -e /work/second && sleep 600; touch /work/second; exit 4");
    pod["spec"]["restartPolicy"] = json!("OnFailure");
    pod["spec"]["volumes"] = json!([{"name": "work", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "work", "mountPath": "/work"}]);
    world.create(pod).await;
    let pod = world
        .wait("again", "running again", |pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            statuses.is_some_and(|all| {
                all[0].restart_count == 1
                    && all[0].state.as_ref().is_some_and(|state| state.running.is_some())
            })
        })
        .await;
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    let last = status.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (4, Some("Error")));
    let before = world.log(&pod, "main", LogOptions { previous: true, ..LogOptions::default() }).await;
    assert_eq!(before, "run\n");
    world.node.stop(std::time::Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_keeps_failing_waits_between() {
    let world = World::new().await;
    let mut pod = script("loop", "exit 1");
    pod["spec"]["restartPolicy"] = json!("Always");
    world.create(pod).await;
    let pod = world
        .wait("loop", "backing off", |pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            let waiting = statuses.and_then(|statuses| statuses[0].state.as_ref()?.waiting.as_ref());
            waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
        })
        .await;
    assert_eq!(pod.status.unwrap().phase.unwrap(), "Running");
    world.delete("loop", 0).await;
    world.wait_gone("loop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_memory() {
    let world = World::new().await;
    if !world.enforces_memory() {
        eprintln!("not run: no control groups here");
        return;
    }
    let mut pod = script("greedy", "head -c 100M /dev/zero | tail -c 100M | wc -c");
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "20Mi"}});
    pod["spec"]["containers"][0]["command"] =
        json!(["python3", "-c", "x = bytearray(200 << 20); print(len(x))"]);
    let (pod, _) = world.run(pod).await;
    assert_eq!(end(&pod, "main"), (137, "OOMKilled".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_the_pod() {
    let world = World::new().await;
    let mut pod = script("late", "sleep 600");
    pod["spec"]["activeDeadlineSeconds"] = json!(1);
    world.create(pod).await;
    let pod = world.wait_phase("late", "Failed").await;
    assert_eq!(pod.status.unwrap().reason.unwrap(), "DeadlineExceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes() {
    let world = World::new().await;
    let mut pod = script("probed", "echo up; sleep 600");
    pod["spec"]["restartPolicy"] = json!("Always");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(1);
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    pod["spec"]["containers"][0]["livenessProbe"] = json!({"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 1});
    world.create(pod).await;
    world
        .wait("probed", "ready", |pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
        })
        .await;
    world
        .wait("probed", "restarted", |pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            statuses.is_some_and(|all| all[0].restart_count > 0)
        })
        .await;
    assert!(world.event("probed", "Unhealthy").await.starts_with("Liveness probe failed: dial tcp"));
    world.node.stop(std::time::Duration::ZERO).await;
}
