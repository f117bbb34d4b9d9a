//! What a program finds around it: environment, volumes, names, ports. With namespaces and without.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use trainyard_node::Isolation;

use crate::support::{World, script};

async fn objects(world: &World) {
    world
        .create_any::<ConfigMap>(
            json!({"metadata": {"name": "settings"}, "data": {"a.txt": "alpha", "B": "beta"}}),
        )
        .await;
    world
        .create_any::<Secret>(
            json!({"metadata": {"name": "hush"}, "stringData": {"token": "t0p"}, "type": "Opaque"}),
        )
        .await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    world.create_any::<PersistentVolumeClaim>(claim).await;
}

fn pod(name: &str, text: &str) -> Value {
    let mut pod = script(name, text);
    pod["metadata"]["labels"] = json!({"job": "bert"});
    pod["spec"]["hostname"] = json!(name);
    pod["spec"]["subdomain"] = json!("bert-workers");
    pod["spec"]["volumes"] = json!([
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        {"name": "work", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "config", "mountPath": "/etc/trainingjob", "readOnly": true},
        {"name": "data", "mountPath": "/checkpoints/mnist", "subPath": "run/1"},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "work", "mountPath": "/somewhere/new"}]);
    pod["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "settings"}, "prefix": "CM_"}]);
    pod["spec"]["containers"][0]["env"] = json!([
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hush", "key": "token"}}},
        {"name": "PEER", "value": "bert-1.bert-workers"},
        {"name": "DIR", "value": "/checkpoints/mnist"}]);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_and_names_are_as_written() {
    let world = World::new().await;
    assert_eq!(world.node.without_namespaces(), None);
    objects(&world).await;
    let service = json!({"metadata": {"name": "bert-workers"}, "spec": {"clusterIP": "None", "selector": {"job": "bert"}}});
    world.create_any::<Service>(service).await;
    world.create(pod("bert-1", "sleep 600")).await;
    let peer = world.wait_phase("bert-1", "Running").await;
    let (pod, text) = world
        .run(pod(
            "bert-0",
            "hostname; cat /etc/hostname; cat /etc/trainingjob/a.txt; echo; echo $CM_B $TOKEN $DIR; \
             echo x > /checkpoints/mnist/c.pt; echo y > /somewhere/new/f; cat /somewhere/new/f; \
             df --output=size /dev/shm | tail -1 | tr -d ' '; \
             getent hosts $PEER | cut -d' ' -f1; getent hosts bert-0.bert-workers.default.svc.cluster.local | cut -d' ' -f1; \
             getent ahostsv4 bert-workers | grep STREAM | wc -l; echo $IP; \
             touch /etc/trainingjob/no 2>/dev/null || echo read-only; touch /new 2>/dev/null || echo kept; ls /proc | grep -c '^[0-9]'",
        ))
        .await;
    let address =
        |pod: &k8s_openapi::api::core::v1::Pod| pod.status.as_ref().unwrap().pod_ip.clone().unwrap();
    let (own, peer) = (address(&pod), address(&peer));
    let wanted = format!(
        "bert-0\nbert-0\nalpha\nbeta t0p /checkpoints/mnist\ny\n8192\n{peer}\n{own}\n2\n{own}\nread-only\nkept\n"
    );
    assert!(text.starts_with(&wanted), "{text}\n(wanted)\n{wanted}");
    let processes: u32 = text.lines().last().unwrap().parse().unwrap();
    assert!(processes < 10, "the container sees {processes} processes");
    let kept = world.state.path().join("node/claims/default/data/run/1/c.pt");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "x\n");
    assert!(
        !std::path::Path::new("/checkpoints/mnist").exists()
            && !std::path::Path::new("/somewhere/new").exists()
    );
    world.node.stop(std::time::Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_claim_leaves_its_files_aside_and_the_next_starts_empty() {
    let world = World::new().await;
    objects(&world).await;
    world.run(pod("bert-0", "echo x > /checkpoints/mnist/c.pt")).await;
    world.create(pod("bert-1", "sleep 600")).await;
    world.wait_phase("bert-1", "Running").await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), "default");
    let uid = claims.get("data").await.unwrap().metadata.uid.unwrap();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    // Whoever has it keeps it.
    let directory = world.state.path().join("node/claims/default");
    let (own, aside) = (directory.join("data"), directory.join(format!("data.deleted-{uid}")));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(own.exists() && !aside.exists());
    world.delete("bert-1", 0).await;
    world.wait_gone("bert-1").await;
    for _ in 0..600 {
        if aside.exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(std::fs::read_to_string(aside.join("run/1/c.pt")).unwrap(), "x\n");
    assert!(!own.exists());
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    world.create_any::<PersistentVolumeClaim>(claim).await;
    let (_, text) = world.run(pod("bert-2", "ls /checkpoints/mnist | wc -l")).await;
    assert_eq!(text, "0\n");
    world.node.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_namespaces_they_are_rewritten() {
    let world = World::with(|config| config.isolation = Isolation::Off).await;
    assert!(world.node.without_namespaces().is_some());
    objects(&world).await;
    world.create(pod("bert-1", "sleep 600")).await;
    let peer = world.wait_phase("bert-1", "Running").await;
    let mut own = pod("bert-0", "cat $CONFIG/a.txt; echo; echo $PEER; echo x > $DIR/c.pt; echo \"$0\"");
    own["spec"]["containers"][0]["env"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "CONFIG", "value": "/etc/trainingjob"}));
    own["spec"]["containers"][0]["args"] = json!(["--to=bert-1.bert-workers:80"]);
    let (_, text) = world.run(own).await;
    let address = peer.status.unwrap().pod_ip.unwrap();
    assert_eq!(text, format!("alpha\n{address}\n--to={address}:80\n"));
    let kept = world.state.path().join("node/claims/default/data/run/1/c.pt");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "x\n");
    let message = world.event("bert-0", "PathsRewritten").await;
    assert!(message.contains("/checkpoints/mnist is "), "{message}");
    world.node.stop(std::time::Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_that_want_the_same_port() {
    let world = World::new().await;
    // Somebody else on this machine has it already.
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut jobs = Vec::new();
    for job in ["a", "b"] {
        let mut pods = Vec::new();
        for rank in 0..2 {
            let name = format!("{job}-workers-{rank}");
            let mut pod = script(&name, "echo $MASTER_PORT $URL; sleep 600");
            pod["metadata"]["labels"] =
                json!({"trainingjob": job, "trainingjob.ml.example.com/attempt": "1"});
            pod["metadata"]["annotations"] = json!({"trainingjob.ml.example.com/shape": "workers=2"});
            pod["spec"]["subdomain"] = json!(format!("{job}-workers"));
            if rank == 0 {
                pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": port}]);
            }
            pod["spec"]["containers"][0]["env"] = json!([
                {"name": "MASTER_PORT", "value": port.to_string()},
                {"name": "URL", "value": format!("tcp://{job}-workers-0.{job}-workers:{port}")}]);
            pods.push(world.create(pod).await);
        }
        jobs.push(pods);
    }
    let mut chosen = Vec::new();
    for (pods, job) in jobs.iter().zip(["a", "b"]) {
        let mut told = Vec::new();
        for pod in pods {
            world.wait_phase(pod.metadata.name.as_ref().unwrap(), "Running").await;
            let options =
                trainyard_apiserver::LogOptions { follow: true, limit_bytes: Some(8), ..Default::default() };
            let start = world.log(pod, "main", options).await;
            let number: u16 = start.split_whitespace().next().unwrap().parse().unwrap();
            world
                .wait_output(pod, "main", &format!("{number} tcp://{job}-workers-0.{job}-workers:{number}"))
                .await;
            told.push(number);
        }
        assert_eq!(told[0], told[1], "the pods of a job agree");
        assert_ne!(told[0], port);
        chosen.push(told[0]);
    }
    assert_ne!(chosen[0], chosen[1]);
    let message = world.event("a-workers-0", "PortReplaced").await;
    assert_eq!(message, format!("Port {port} is taken on this machine: this job uses {} instead", chosen[0]));
    world.node.stop(std::time::Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_said_and_waited_for() {
    let world = World::new().await;
    let mut pod = script("early", "echo $K");
    pod["spec"]["containers"][0]["env"] =
        json!([{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}}]);
    world.create(pod).await;
    let pod = world
        .wait("early", "explained", |pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            let waiting = statuses.and_then(|statuses| statuses[0].state.as_ref()?.waiting.as_ref());
            waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CreateContainerConfigError"))
        })
        .await;
    let state = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap();
    assert_eq!(state.waiting.unwrap().message.unwrap(), "configmap \"late\" not found");
    world.create_any::<ConfigMap>(json!({"metadata": {"name": "late"}, "data": {"k": "v"}})).await;
    world.wait_phase("early", "Succeeded").await;
    assert_eq!(world.log_by_api("early").await, "v\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_mounted_is_said_in_the_status_and_waited_for() {
    let world = World::new().await;
    let mut pod = script("early", "cat /m/k");
    pod["spec"]["initContainers"] = json!([{"name": "first", "image": "i", "command": ["sleep", "0.3"]}]);
    pod["spec"]["volumes"] = json!([{"name": "m", "configMap": {"name": "late"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "m", "mountPath": "/m"}]);
    let message = |pod: &k8s_openapi::api::core::v1::Pod| {
        let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
        status.state.as_ref()?.waiting.as_ref()?.message.clone()
    };
    world.create(pod).await;
    let waiting = world.wait("early", "explained", |pod| message(pod).is_some()).await;
    assert_eq!(
        message(&waiting).unwrap(),
        "MountVolume.SetUp failed for volume \"m\" : configmap \"late\" not found"
    );
    world.create_any::<ConfigMap>(json!({"metadata": {"name": "late"}, "data": {"k": "v"}})).await;
    world.wait("early", "no longer explained", |pod| message(pod).is_none()).await;
    let pod = world.wait_phase("early", "Succeeded").await;
    assert_eq!(world.log(&pod, "main", trainyard_apiserver::LogOptions::default()).await, "v");
}

#[tokio::test(flavor = "multi_thread")]
async fn mount_points_in_directories_that_exist() {
    // A comma is nothing an overlay can be told about: this one is opened entry by entry.
    let foreign = tempfile::Builder::new().prefix("a,b").tempdir_in("/tmp").unwrap();
    let own = tempfile::tempdir_in("/tmp").unwrap();
    for directory in [foreign.path(), own.path()] {
        std::fs::write(directory.join("there"), "there\n").unwrap();
    }
    let world = World::with(|config| config.working_dir = own.path().to_owned()).await;
    let target = |directory: &tempfile::TempDir| directory.path().join("new").to_str().unwrap().to_owned();
    let mut pod = script(
        "mounts",
        "cat $A/../there $B/../there; echo x > $A/f; echo y > $B/f; echo z > result; touch $A/../no 2>&-",
    );
    pod["spec"]["volumes"] = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "a", "mountPath": target(&foreign)}, {"name": "b", "mountPath": target(&own)}]);
    pod["spec"]["containers"][0]["env"] =
        json!([{"name": "A", "value": target(&foreign)}, {"name": "B", "value": target(&own)}]);
    let (_, text) = world.run(pod).await;
    assert_eq!(text, "there\nthere\n");
    let names = |directory: &tempfile::TempDir| {
        let mut names: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&foreign), ["there"], "nothing is made in somebody else's directory");
    assert_eq!(names(&own), ["new", "result", "there"], "the working directory is written to for real");
}
