//! Real nodes: what a test may rely on, with real containers. They take root.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{apply, get, processes_of, see};
use tokio::sync::{Mutex, OnceCell};
use trainyard_testcluster::{Error, RootFs, TestCluster, enabled, nodes_enabled};

const IMAGE: &str = "test/python:1";
const LIMIT: Duration = Duration::from_mins(1);

/// Clusters that a test has for itself come one after the other: two cores do not carry many.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Two nodes for all tests that do not break them.
async fn shared() -> &'static TestCluster {
    static SHARED: OnceCell<TestCluster> = OnceCell::const_new();
    SHARED.get_or_init(|| start(2)).await
}

async fn start(nodes: usize) -> TestCluster {
    let started = Instant::now();
    let cluster = TestCluster::builder()
        .real_nodes(nodes)
        .apiserver_arg("--default-unreachable-toleration-seconds=3")
        .start()
        .await
        .unwrap();
    println!("{nodes} nodes: {:?}", started.elapsed());
    let started = Instant::now();
    cluster.image(IMAGE, &RootFs::python()).await.unwrap();
    println!("image on all nodes: {:?}", started.elapsed());
    cluster
}

/// A pod on one node that runs a shell script. `more` is indented like `spec`'s fields, in flow style.
fn pod(name: &str, node: usize, script: &str, more: &str) -> String {
    let script = serde_json::to_string(script).unwrap();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  nodeName: node-{node}\n  \
         restartPolicy: Never\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {IMAGE}\n    \
         command: [sh, -c, {script}]\n{more}"
    )
}

async fn ready(cluster: &TestCluster, pods: &[&str]) {
    let mut args = vec!["wait".to_owned(), "--for=condition=Ready".into(), "--timeout=60s".into()];
    args.extend(pods.iter().map(|pod| format!("pod/{pod}")));
    let waited = cluster.kubectl().run(&args).await.unwrap();
    if !waited.success {
        let describe = cluster.kubectl().run(&["describe", "pods"]).await.unwrap();
        panic!("{waited}\n{describe}");
    }
}

async fn exec(cluster: &TestCluster, pod: &str, command: &[&str]) -> String {
    let args = [&["exec", pod, "--"], command].concat();
    cluster.kubectl().run(&args).await.unwrap().expect("exec")
}

/// Asks until a command in a pod says what is wanted: names and rules take a moment to arrive.
async fn hear(cluster: &TestCluster, pod: &str, command: &[&str], wanted: &str) {
    let args = [&["exec", pod, "--"], command].concat();
    let start = Instant::now();
    loop {
        let heard = cluster.kubectl().run(&args).await.unwrap();
        if heard.stdout.contains(wanted) {
            return;
        }
        assert!(start.elapsed() < LIMIT, "{pod}: {command:?}: wanted {wanted:?}, heard {heard}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn pods_find_each_other_by_name_across_nodes() {
    if !nodes_enabled() {
        return;
    }
    let cluster = shared().await;
    apply(
        cluster,
        "apiVersion: v1\nkind: Service\nmetadata: {name: workers}\nspec: {clusterIP: None, selector: {job: pair}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: pair-1}, ports: [{port: 80, targetPort: 8000}]}\n",
    )
    .await;
    for number in [0, 1] {
        let serve =
            format!("mkdir /w; echo worker {number} >/w/index.html; exec python3 -m http.server -d /w 8000");
        let more = format!("  hostname: pair-{number}\n  subdomain: workers\n");
        let name = format!("pair-{number}");
        let manifest = pod(&name, number, &serve, &more).replace("labels: {", "labels: {job: pair, ");
        apply(cluster, &manifest).await;
    }
    ready(cluster, &["pair-0", "pair-1"]).await;
    let wget = async |pod, url: &str, wanted| {
        hear(cluster, pod, &["timeout", "5", "wget", "-qO-", url], wanted).await;
    };
    wget("pair-0", "http://pair-1.workers:8000/", "worker 1").await;
    wget("pair-1", "http://pair-0.workers:8000/", "worker 0").await;
    wget("pair-0", "http://web/", "worker 1").await;
    // The pod behind the service, by the service.
    wget("pair-1", "http://web.default.svc.cluster.local/", "worker 1").await;

    // Nothing leads out of the machine.
    let look_up =
        "import socket\ntry: socket.gethostbyname('example.com')\nexcept OSError as e: print('refused:', e)";
    hear(cluster, "pair-0", &["python3", "-c", look_up], "refused:").await;
    let connect = "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 5)\nexcept OSError as e: print('refused:', e)";
    hear(cluster, "pair-0", &["python3", "-c", connect], "refused: [Errno 101]").await;
}

#[tokio::test]
async fn logs_exec_and_the_api_from_inside() {
    if !nodes_enabled() {
        return;
    }
    let cluster = shared().await;
    apply(cluster, &pod("talker", 1, "echo begun; exec sleep 9999", "")).await;
    ready(cluster, &["talker"]).await;
    assert_eq!(cluster.kubectl().run(&["logs", "talker"]).await.unwrap().expect("logs"), "begun\n");
    assert_eq!(exec(cluster, "talker", &["python3", "-c", "print(6 * 7)"]).await, "42\n");
    let ask = r#"
import ssl, urllib.request
d = "/var/run/secrets/kubernetes.io/serviceaccount/"
request = urllib.request.Request("https://kubernetes.default.svc/version", headers={"Authorization": "Bearer " + open(d + "token").read()})
print(urllib.request.urlopen(request, context=ssl.create_default_context(cafile=d + "ca.crt"), timeout=5).read().decode())
"#;
    hear(cluster, "talker", &["python3", "-c", ask], "v1.36.3").await;
}

#[tokio::test]
async fn a_claim_is_shared_by_pods_of_both_nodes() {
    if !nodes_enabled() {
        return;
    }
    let cluster = shared().await;
    apply(
        cluster,
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: both}\n\
         spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}\n",
    )
    .await;
    see(cluster, "pvc both", "{.status.phase}", "Bound").await;
    let volume = "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, persistentVolumeClaim: {claimName: both}}]\n";
    for number in [0, 1] {
        let write = format!("echo from {number} >/v/{number}; exec sleep 9999");
        apply(cluster, &pod(&format!("sharer-{number}"), number, &write, volume)).await;
    }
    ready(cluster, &["sharer-0", "sharer-1"]).await;
    hear(cluster, "sharer-0", &["cat", "/v/1"], "from 1").await;
    hear(cluster, "sharer-1", &["cat", "/v/0"], "from 0").await;
    // It is the cluster's, and nobody else's.
    let path = get(cluster, "pv", "{.items[?(@.spec.claimRef.name=='both')].spec.hostPath.path}").await;
    let inside = cluster.dir().join("tmp").join(path.strip_prefix("/tmp/").unwrap());
    assert_eq!(std::fs::read_to_string(inside.join("0")).unwrap(), "from 0\n");
}

#[tokio::test]
async fn ends_of_containers_are_told() {
    if !nodes_enabled() {
        return;
    }
    let cluster = shared().await;
    apply(cluster, &pod("killed", 0, "exec sleep 9999", "")).await;
    apply(cluster, &pod("failed", 1, "echo why >/dev/termination-log; exit 3", "")).await;
    let hungry = "exec python3 -c 'x = bytearray(200 << 20)'";
    apply(cluster, &pod("hungry", 1, hungry, "    resources: {limits: {memory: 64Mi}}\n")).await;
    ready(cluster, &["killed"]).await;
    cluster.kill_container("default", "killed", "main").await.unwrap();
    let terminated = "{.status.containerStatuses[0].state.terminated";
    let told = format!("{terminated}.exitCode}} {terminated}.reason}} {terminated}.message}}");
    see(cluster, "pod killed", &told, "137 Error ").await;
    see(cluster, "pod failed", &told, "3 Error why\n").await;
    see(cluster, "pod hungry", &told, "137 OOMKilled ").await;
    let again = cluster.kill_container("default", "killed", "main").await;
    assert!(matches!(again, Err(Error::NoSuchContainer { .. })), "{again:?}");
}

#[tokio::test]
async fn images_carry_files_of_this_machine() {
    if !nodes_enabled() {
        return;
    }
    let cluster = shared().await;
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    std::fs::write(&program, "#!/bin/sh\necho from this machine as $(id -u)\nexec sleep 9999\n").unwrap();
    Command::new("chmod").arg("755").arg(&program).status().unwrap();
    let root = RootFs::python().file(&program, "/usr/local/bin/program");
    cluster.image("carrier:1", &root).await.unwrap();
    let user = "  securityContext: {runAsUser: 1000, runAsGroup: 1000}\n";
    apply(cluster, &pod("carrier", 0, "exec program", user).replace(IMAGE, "carrier:1")).await;
    ready(cluster, &["carrier"]).await;
    let said = cluster.kubectl().run(&["logs", "carrier"]).await.unwrap().expect("logs");
    assert_eq!(said, "from this machine as 1000\n");
    let refused = cluster.image("carrier:latest", &root).await;
    assert!(matches!(refused, Err(Error::Image { .. })), "{refused:?}");
}

/// One sum over both nodes, with the real thing.
#[tokio::test]
#[ignore = "makes an image of more than 1 GB the first time, which takes minutes"]
async fn torch_adds_up_across_nodes() {
    if !nodes_enabled() {
        return;
    }
    let cluster = shared().await;
    let started = Instant::now();
    cluster.image("test/torch:1", &RootFs::torch()).await.unwrap();
    println!("image with torch on all nodes: {:?}", started.elapsed());
    apply(
        cluster,
        "apiVersion: v1\nkind: Service\nmetadata: {name: sum}\n\
         spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {job: sum}}\n",
    )
    .await;
    let program = "import torch, torch.distributed as d; d.init_process_group('gloo'); \
                   x = torch.tensor([d.get_rank() + 1.0]); d.all_reduce(x); print('sum', x.item())";
    for rank in [0, 1] {
        let script = format!(
            "export MASTER_ADDR=sum-0.sum MASTER_PORT=29500 WORLD_SIZE=2 RANK={rank}\n\
             until python3 -c 'import socket; socket.gethostbyname(\"sum-0.sum\")'; do :; done\nexec python3 -c \"{program}\""
        );
        let more = format!("  hostname: sum-{rank}\n  subdomain: sum\n");
        let manifest = pod(&format!("sum-{rank}"), rank, &script, &more).replace(IMAGE, "test/torch:1");
        apply(cluster, &manifest.replace("labels: {", "labels: {job: sum, ")).await;
    }
    for rank in [0, 1] {
        see(cluster, &format!("pod sum-{rank}"), "{.status.phase}", "Succeeded").await;
        let log = cluster.kubectl().run(&["logs", &format!("sum-{rank}")]).await.unwrap().expect("logs");
        assert!(log.contains("sum 3.0"), "{log}");
    }
}

#[tokio::test]
async fn nodes_can_be_lost_and_come_back_and_nothing_is_left() {
    if !nodes_enabled() {
        return;
    }
    let _alone = ALONE.lock().await;
    let cluster = start(2).await;
    let remains = Remains::of(&cluster);
    let is_ready = "{.status.conditions[?(@.type=='Ready')].status}";
    apply(&cluster, &pod("stays", 0, "exec sleep 9999", "")).await;
    apply(&cluster, &pod("lost", 1, "exec sleep 9999", "")).await;
    ready(&cluster, &["stays", "lost"]).await;

    // A kubelet that is gone is a node that is silent; its containers do not notice. One node at a
    // time: when all are silent, the controller manager suspects itself and evicts nothing.
    cluster.node(0).stop_kubelet();
    assert_eq!(cluster.node(0).kubelet_pid(), None);
    see(&cluster, "node node-0", is_ready, "Unknown").await;
    cluster.node(0).start().await.unwrap();
    assert_eq!(get(&cluster, "node node-0", is_ready).await, "True");

    // A power cut.
    let cut = Instant::now();
    cluster.node(1).kill();
    println!("power cut: {:?}", cut.elapsed());
    assert_eq!(cluster.node(1).pid(), None);
    see(&cluster, "node node-1", is_ready, "Unknown").await;
    println!("not ready after: {:?}", cut.elapsed());
    let reason = "{.status.conditions[?(@.type=='DisruptionTarget')].reason}";
    see(&cluster, "pod lost", reason, "DeletionByTaintManager").await;
    println!("evicted after: {:?}", cut.elapsed());
    let started = Instant::now();
    cluster.node(1).start().await.unwrap();
    println!("power back: {:?}", started.elapsed());
    assert_eq!(get(&cluster, "node node-1", is_ready).await, "True");
    see(&cluster, "pod lost", "{.metadata.name}", "").await;
    let restarts =
        get(&cluster, "pod stays", "{.status.phase} {.status.containerStatuses[0].restartCount}").await;
    assert_eq!(restarts, "Running 0");
    // Images outlive a power cut.
    apply(&cluster, &pod("later", 1, "exec sleep 9999", "")).await;
    ready(&cluster, &["later"]).await;

    let both = remains.and(Remains::of(&cluster));
    assert!(!both.found().is_empty(), "this test looks at nothing");
    let started = Instant::now();
    cluster.stop().await;
    println!("drop: {:?}", started.elapsed());
    both.are_gone();
}

/// Not a test: what the next one kills. Says where its cluster is, then does nothing.
#[tokio::test]
async fn hold_nodes() {
    if std::env::var_os("HOLD_NODES").is_none() {
        return;
    }
    let cluster = start(1).await;
    apply(&cluster, &pod("p", 0, "exec sleep 9999", "")).await;
    ready(&cluster, &["p"]).await;
    let node = cluster.node(0);
    println!(
        "cluster in {} at {} by {}",
        cluster.dir().display(),
        node.address().octets()[1],
        node.pid().unwrap()
    );
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn nothing_outlives_a_killed_process() {
    if !nodes_enabled() {
        return;
    }
    let _alone = ALONE.lock().await;
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold_nodes", "--nocapture"])
        .env("HOLD_NODES", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = holder.stdout.take().unwrap();
    let read = move || {
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.find_map(|line| Some(line.split_once("cluster in ")?.1.to_owned()))
    };
    let line = tokio::task::spawn_blocking(read).await.unwrap().expect("the other process holds a cluster");
    let (dir, rest) = line.split_once(" at ").unwrap();
    let (network, pid) = rest.split_once(" by ").unwrap();
    let remains = Remains::new(Path::new(dir), network.parse().unwrap(), &[pid.parse().unwrap()]);
    assert!(!remains.found().is_empty(), "this test looks at nothing");

    // SIGKILL: no destructor runs.
    holder.kill().unwrap();
    let started = Instant::now();
    while !remains.found().is_empty() {
        assert!(started.elapsed() < LIMIT, "left: {:#?}", remains.found());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("gone after: {:?}", started.elapsed());
    holder.wait().unwrap();
}

/// Everything outside its directory that a cluster with nodes leaves a trace in.
struct Remains {
    dir: PathBuf,
    bridge: String,
    namespaces: HashSet<PathBuf>,
}

impl Remains {
    fn of(cluster: &TestCluster) -> Self {
        let nodes = cluster.nodes();
        let pids: Vec<u32> = nodes.iter().filter_map(trainyard_testcluster::Node::pid).collect();
        Self::new(cluster.dir(), nodes[0].address().octets()[1], &pids)
    }

    fn new(dir: &Path, network: u8, nodes: &[u32]) -> Self {
        let kinds = ["pid", "mnt", "net"];
        let namespaces = nodes.iter().flat_map(|pid| kinds.map(|kind| format!("/proc/{pid}/ns/{kind}")));
        Self {
            dir: dir.to_owned(),
            bridge: format!("yard{network}"),
            namespaces: namespaces.map(|link| std::fs::read_link(link).unwrap()).collect(),
        }
    }

    fn and(mut self, other: Self) -> Self {
        self.namespaces.extend(other.namespaces);
        self
    }

    fn found(&self) -> Vec<String> {
        let mut found = processes_of(self.dir.to_str().unwrap());
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let inside = ["pid", "mnt", "net"].into_iter().any(|kind| {
                let link = std::fs::read_link(process.path().join("ns").join(kind));
                link.is_ok_and(|link| self.namespaces.contains(&link))
            });
            if inside {
                found.push(format!("{} in a node", process.path().display()));
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        found.extend(
            mounts.lines().filter(|line| line.contains(self.dir.to_str().unwrap())).map(str::to_owned),
        );
        let links = std::fs::read_dir("/sys/class/net").unwrap().flatten();
        let links = links.map(|entry| entry.file_name().into_string().unwrap());
        found.extend(
            links.filter(|name| *name == self.bridge || name.starts_with(&format!("{}-", self.bridge))),
        );
        for mount in mounts.lines().filter(|line| line.contains(" cgroup")) {
            let group = Path::new(mount.split(' ').nth(1).unwrap()).join(&self.bridge);
            found.extend(group.exists().then(|| group.display().to_string()));
        }
        found.extend(self.dir.exists().then(|| self.dir.display().to_string()));
        found
    }

    fn are_gone(&self) {
        let found = self.found();
        assert!(found.is_empty(), "left: {found:#?}");
    }
}

/// Not a test of its own: the next one runs it as somebody who is not root.
#[tokio::test]
async fn ask_for_a_node() {
    if std::env::var_os("ASK_FOR_A_NODE").is_some() {
        println!("{:?}", TestCluster::builder().real_nodes(1).start().await);
    }
}

#[test]
fn without_root_the_reason_is_told() {
    if !enabled() {
        return;
    }
    // A user namespace without a mapping: nobody in it, whoever we are.
    let output = Command::new("unshare")
        .arg("--user")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "ask_for_a_node", "--nocapture"])
        .env("ASK_FOR_A_NODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("real nodes need root"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
