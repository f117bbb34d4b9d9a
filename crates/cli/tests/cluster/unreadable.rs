//! An object that does not parse: its owner is told, the others go on, and it can be deleted.

use trainyard_api::State;
use trainyard_testcluster::{TestCluster, enabled};

use super::support::{follow_scripts, install_crd, job, trainyard};

#[tokio::test]
async fn one_bad_object_does_not_stop_the_others() {
    if !enabled() {
        return;
    }
    let cluster = TestCluster::builder().start().await.expect("a cluster of its own");
    install_crd(&cluster).await;
    let _nodes = cluster.hollow_nodes(1, &[], follow_scripts).await.expect("nodes");
    // A CRD of a newer version knows a framework that this operator does not.
    for version in [0, 1] {
        let field = format!(
            "/spec/versions/{version}/schema/openAPIV3Schema/properties/spec/properties/framework/enum/-"
        );
        let patch = format!(r#"[{{"op":"add","path":"{field}","value":"jax"}}]"#);
        let patch = ["patch", "crd", "trainingjobs.ml.example.com", "--type=json", "-p", &patch];
        cluster.kubectl().run(&patch).await.unwrap().expect("a newer CRD");
    }
    let log = cluster.dir().join("operator.log");
    let command = [
        trainyard().into(),
        "operator".into(),
        format!("--kubeconfig={}", cluster.kubeconfig().display()).into(),
        "--no-metrics".into(),
    ];
    let mut operator =
        trainyard_testcluster::Component::start("operator", &command, log).expect("the operator");

    let strange = job("strange", 1)
        .replace("  image", "  framework: jax\n  image")
        .replace("{name: strange}", "{name: strange, finalizers: [trainingjob.ml.example.com/finalizer]}");
    let applied = async {
        // The API server takes a moment to serve the changed schema.
        loop {
            let answer = cluster.kubectl().stdin(strange.clone()).run(&["apply", "-f", "-"]).await.unwrap();
            if answer.success {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), applied).await.expect("the job is accepted");
    cluster.kubectl().stdin(job("good", 1)).run(&["apply", "-f", "-"]).await.unwrap().expect("a good one");
    let state = |name: &'static str, state: State| {
        let wait = [
            "wait".to_owned(),
            format!("--for=jsonpath={{.status.state}}={}", state.as_str()),
            format!("tj/{name}"),
            "--timeout=30s".to_owned(),
        ];
        let kubectl = cluster.kubectl();
        async move { kubectl.run(&wait).await.unwrap().expect(name) }
    };
    state("good", State::Running).await;
    state("strange", State::Failed).await;
    let message =
        cluster.kubectl().run(&["get", "tj", "strange", "-o", "jsonpath={.status.message}"]).await.unwrap();
    assert!(message.expect("a message").contains("jax"));
    cluster
        .kubectl()
        .run(&["delete", "tj", "strange", "--timeout=20s"])
        .await
        .unwrap()
        .expect("it can be deleted");
    operator.check().expect("the operator lives");
}
