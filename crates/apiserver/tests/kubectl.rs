//! The real kubectl against the server over TLS. Runs with the tests against a real Kubernetes
//! (TRAINYARD_CLUSTER_TESTS=1), because those bring kubectl; otherwise it passes without having looked.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the answer")]

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::json;
use tokio::io::{AsyncWriteExt as _, duplex};
use tokio::process::Command;
use tokio::sync::oneshot;
use trainyard_apiserver::{
    ApiServer, ExecExit, ExecOptions, ExecSession, Kubelet, KubeletError, LogOptions, LogStream, PodId, Tls,
    kubeconfig,
};

/// A node that says what it was asked.
struct Parrot;

impl Kubelet for Parrot {
    fn logs(
        &self,
        pod: &PodId,
        container: &str,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<LogStream, KubeletError>> {
        let text = format!("{} {container} {:?} {}\n", pod.name, options.tail_lines, options.previous);
        async move { Ok(stream::iter([Ok(text.into())]).boxed()) }.boxed()
    }

    fn exec(
        &self,
        _: &PodId,
        _: &str,
        options: ExecOptions,
    ) -> BoxFuture<'static, Result<ExecSession, KubeletError>> {
        async move {
            let (stdin, mut from_client) = duplex(64);
            let (mut to_client, stdout) = duplex(64);
            let code = if options.command[0] == "fail" { 7 } else { 0 };
            let echoes = options.stdin;
            tokio::spawn(async move {
                let _ = to_client.write_all(options.command.join(" ").as_bytes()).await;
                if echoes {
                    let _ = tokio::io::copy(&mut from_client, &mut to_client).await;
                }
            });
            Ok(ExecSession {
                stdin: echoes.then(|| Box::new(stdin) as _),
                stdout: Some(Box::new(stdout)),
                stderr: None,
                resize: None,
                exit: async move { ExecExit::Code(code) }.boxed(),
            })
        }
        .boxed()
    }
}

/// A served control plane and the kubectl that talks to it.
struct Session {
    server: ApiServer,
    kubectl: PathBuf,
    dir: tempfile::TempDir,
    _stop: oneshot::Sender<()>,
}

impl Session {
    async fn start() -> Option<Self> {
        if !trainyard_testcluster::enabled() {
            return None;
        }
        let binaries = trainyard_testcluster::Binaries::ensure(&mut |_| {}).unwrap();
        let server = ApiServer::builder().token("secret").build().unwrap();
        server.set_kubelet(Arc::new(Parrot));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let tls = Tls::generate(&[]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let config = kubeconfig(&url, Some(&tls), Some("secret"), "default");
        std::fs::write(dir.path().join("config"), config).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let same = server.clone();
        tokio::spawn(async move {
            same.serve(listener, Some(tls), async { drop(stopped.await) }).await.unwrap();
        });
        let crd = serde_json::to_string(&trainyard_api::crd::training_job()).unwrap();
        std::fs::write(dir.path().join("crd.json"), crd).unwrap();
        Some(Self { server, kubectl: binaries.path("kubectl"), dir, _stop: stop })
    }

    /// Runs a command line; what it printed, and whether it went well.
    async fn run(&self, line: &str, input: &str) -> (bool, String) {
        let mut child = Command::new(&self.kubectl)
            .arg("--kubeconfig")
            .arg(self.dir.path().join("config"))
            .arg("--cache-dir")
            .arg(self.dir.path().join("cache"))
            .args(line.split(' '))
            .env("EDITOR", "sed -i s/numWorkers:.2/numWorkers:\\ 3/")
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that reads nothing may be gone already.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.success(), text)
    }

    async fn says(&self, line: &str, expected: &str) {
        self.says_to(line, "", expected).await;
    }

    async fn says_to(&self, line: &str, input: &str, expected: &str) {
        let (success, text) = self.run(line, input).await;
        assert!(success && text.contains(expected), "kubectl {line}\nexpected: {expected}\nactual: {text}");
    }

    async fn refuses(&self, line: &str, expected: &str) {
        self.refuses_to(line, "", expected).await;
    }

    async fn refuses_to(&self, line: &str, input: &str, expected: &str) {
        let (success, text) = self.run(line, input).await;
        assert!(!success && text.contains(expected), "kubectl {line}\nexpected: {expected}\nactual: {text}");
    }
}

fn job() -> String {
    json!({"apiVersion": "ml.example.com/v1", "kind": "TrainingJob", "metadata": {"name": "bert"},
        "spec": {"image": "t:1", "command": ["train"], "numWorkers": 2}})
    .to_string()
}

#[tokio::test]
async fn a_session_with_a_custom_kind() {
    let Some(session) = Session::start().await else { return };
    session.says("apply -f crd.json", "trainingjobs.ml.example.com created").await;
    session.says("wait --for=condition=Established crd/trainingjobs.ml.example.com", "condition met").await;
    session.says("explain trainingjob.spec.numWorkers", "How many worker pods").await;
    session.says_to("apply -f - --dry-run=server", &job(), "bert created (server dry run)").await;
    session.says("get tj", "No resources found").await;
    session.says_to("apply -f -", &job(), "bert created").await;
    session.says_to("apply -f -", &job(), "bert unchanged").await;
    session.says("get tj", "NAME   STATE   PROGRESS   EPOCH   WORKERS   AGE").await;
    session.says("get tj -o wide", "FRAMEWORK").await;
    session.says("get trainingjobs.v1alpha1.ml.example.com", "PHASE").await;
    session.says("edit tj bert", "bert edited").await;
    session.says("get tj bert -o jsonpath={.spec.numWorkers}:{.metadata.generation}", "3:2").await;
    session.says("scale tj bert --replicas=4", "scaled").await;
    session.says("patch tj bert --type=merge -p {\"spec\":{\"numWorkers\":5}}", "patched").await;
    let (_, text) = session.run("apply --server-side -f -", &job()).await;
    assert!(text.contains("Apply failed with"), "{text}");
    session.says_to("apply --server-side --force-conflicts -f -", &job(), "serverside-applied").await;
    session
        .says(
            "patch tj bert --subresource=status --type=merge -p {\"status\":{\"state\":\"Running\"}}",
            "patched",
        )
        .await;
    session.says("wait --for=jsonpath={.status.state}=Running tj/bert --timeout=10s", "condition met").await;
    session.says("describe tj bert", "Events:").await;
    session
        .refuses("patch tj bert --type=merge -p {\"spec\":{\"numWorkers\":-1}}", "greater than or equal to 0")
        .await;
    session.says("delete tj bert", "deleted").await;
    session.says("delete crd trainingjobs.ml.example.com", "deleted").await;
    session.refuses("get tj", "NotFound").await;
}

#[tokio::test]
async fn a_session_with_pods_and_what_they_need() {
    let Some(session) = Session::start().await else { return };
    session.says("create namespace team", "created").await;
    session.says("create quota q --hard=count/configmaps=1 -n team", "created").await;
    session.says("create configmap a --from-literal=k=v -n team", "created").await;
    session.refuses("create configmap b -n team", "exceeded quota: q, requested: count/configmaps=1").await;
    session.says("create secret generic s --from-literal=p=q", "created").await;
    session.says("get secret s -o jsonpath={.data.p}", "cQ==").await;
    session.says("run p --image=image:1 --labels=app=x", "pod/p created").await;
    session.says("get pods", "Pending").await;
    let bound = session
        .server
        .client("default")
        .request::<serde_json::Value>(
            http::Request::post("/api/v1/namespaces/default/pods/p/binding")
                .header("content-type", "application/json")
                .body(
                    json!({"apiVersion": "v1", "kind": "Binding", "target": {"name": "here"}})
                        .to_string()
                        .into(),
                )
                .unwrap(),
        )
        .await
        .unwrap();
    assert_eq!(bound["status"], "Success");
    session.says("logs p --tail=5", "p p Some(5) false").await;
    session.says("logs -l app=x --previous", "p p Some(10) true").await;
    session.says("exec p -- ls -l", "ls -l").await;
    session.says_to("exec -i p -- cat", " and back", "cat and back").await;
    session.refuses("exec p -- fail", "exit code 7").await;
    session.refuses("attach p", "attach is not supported").await;
    session.says("describe pod p", "Node:             here/").await;
    session.says("label pod p zone=a", "labeled").await;
    session.says("get pods -l zone=a -o name", "pod/p").await;
    session.says("auth can-i create pods", "yes").await;
    session.says("api-resources", "persistentvolumeclaims").await;
    session.says("events", "No events found").await;
    session.says("delete pod p --wait=false", "deleted").await;
    session.says("get pods", "Terminating").await;
    session.says("delete pod p --grace-period=0 --force", "force deleted").await;
    session.says("delete namespace team", "deleted").await;
    session.refuses("create deployment d --image=x", "Trainyard's embedded control plane").await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
    let expected = "no matches for kind \"Deployment\" in version \"apps/v1\"";
    session.refuses_to("apply -f -", &deployment.to_string(), expected).await;
    let number =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": 5}});
    let expected = "cannot unmarshal number into Go struct field ConfigMap.data";
    session.refuses_to("apply -f -", &number.to_string(), expected).await;
    session.refuses("--token=wrong get pods", "Unauthorized").await;
}
