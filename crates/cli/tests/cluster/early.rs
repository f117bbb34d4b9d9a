//! An operator that is started before its CRD and its role are there: it says what is missing, and goes on by itself.

use trainyard_api::State;
use trainyard_testcluster::{Component, TestCluster, enabled};

use super::http::{free_address, get};
use super::support::{account, follow_scripts, install_crd, install_role, job, trainyard};

#[tokio::test]
async fn started_before_crd_and_role() {
    if !enabled() {
        return;
    }
    let cluster = TestCluster::builder().start().await.expect("a cluster of its own");
    let _nodes = cluster.hollow_nodes(1, &[], follow_scripts).await.expect("nodes");
    let log = cluster.dir().join("operator.log");
    let address = free_address();
    let command = [
        trainyard().into(),
        "operator".into(),
        format!("--kubeconfig={}", account(&cluster)).into(),
        format!("--metrics-address={address}").into(),
    ];
    let mut operator = Component::start("operator", &command, log.clone()).expect("the operator");
    let until = async |what: &str, wanted: &dyn Fn() -> bool| {
        let limit = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while !wanted() {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(std::time::Instant::now() < limit, "never happened: {what}\n{text}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let logged = |words: &str| std::fs::read_to_string(&log).unwrap_or_default().contains(words);
    until("it names the right it lacks", &|| logged("needs get, list and watch on pods")).await;
    let (code, answer) = get(&address, "/readyz");
    assert_eq!(code, 503);
    assert!(answer.contains("waiting for the first list of trainingjobs"), "{answer}");

    install_role(&cluster).await;
    until("it names the CRD", &|| logged("apply the CRD first")).await;
    install_crd(&cluster).await;
    until("it is ready", &|| get(&address, "/readyz").0 == 200).await;
    cluster.kubectl().stdin(job("bert", 1)).run(&["apply", "-f", "-"]).await.unwrap().expect("apply");
    let wait = format!("--for=jsonpath={{.status.state}}={}", State::Running.as_str());
    cluster.kubectl().run(&["wait", &wait, "tj/bert", "--timeout=60s"]).await.unwrap().expect("it runs");
    operator.check().expect("the operator never ended");
}
