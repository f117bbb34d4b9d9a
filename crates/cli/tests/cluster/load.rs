//! Many jobs at once, under the rights that we ship, with an API server that goes away in between.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use kube::api::{Api, ListParams};
use trainyard_api::{State, TrainingJob};
use trainyard_testcluster::{Component, Script, TestCluster, enabled};

use super::support::{account, install_crd, install_role, job, trainyard};

const LIMIT: Duration = Duration::from_mins(2);

#[tokio::test]
async fn fifty_jobs_in_three_namespaces_and_an_outage() {
    if !enabled() {
        return;
    }
    let mut cluster = TestCluster::builder().start().await.expect("a cluster of its own");
    install_crd(&cluster).await;
    let nodes =
        cluster.hollow_nodes(4, &[], |_| Script::exit(Duration::from_secs(4), 0)).await.expect("nodes");
    install_role(&cluster).await;
    let kubectl = cluster.kubectl();
    let argv: Vec<OsString> = [
        trainyard().display().to_string(),
        "operator".to_owned(),
        format!("--kubeconfig={}", account(&cluster)),
        "--no-metrics".to_owned(),
        "--log-format=json".to_owned(),
    ]
    .map(OsString::from)
    .to_vec();
    let log = cluster.dir().join("operator.log");
    let mut operator = Component::start("operator", &argv, log.clone()).expect("the operator");

    let mut manifest = String::new();
    for index in 0..50 {
        let namespace = ["team-a", "team-b", "team-c"][index % 3];
        let one = job(&format!("job-{index}"), 2);
        manifest += &one.replace("metadata: {", &format!("metadata: {{namespace: {namespace}, "));
        manifest += "---\n";
    }
    for namespace in ["team-a", "team-b", "team-c"] {
        kubectl.run(&["create", "namespace", namespace]).await.unwrap().expect("namespace");
    }
    cluster.kubectl().stdin(manifest).run(&["create", "-f", "-"]).await.unwrap().expect("50 jobs");

    let client = cluster.client().await.unwrap();
    let jobs: Api<TrainingJob> = Api::all(client);
    let count = async |state: State| {
        let list = jobs.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        list.iter().filter(|job| job.status.as_ref().and_then(|status| status.state) == Some(state)).count()
    };
    let start = Instant::now();
    while count(State::Running).await + count(State::Completed).await < 10 {
        assert!(start.elapsed() < LIMIT, "not even ten run\n{}", operator.tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.stop_apiserver();
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.start_apiserver().await.expect("the API server again");
    while count(State::Completed).await < 50 {
        assert!(
            start.elapsed() < LIMIT,
            "only {} completed\n{}",
            count(State::Completed).await,
            std::fs::read_to_string(&log).unwrap_or_default()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for job in jobs.list(&ListParams::default()).await.unwrap() {
        let status = job.status.unwrap();
        assert_eq!(
            status.attempts.len(),
            1,
            "{:?}: nothing was done twice: {:#?}",
            job.metadata.name,
            status.attempts
        );
        assert_eq!(status.restarts.unwrap_or_default().total(), 0);
    }
    operator.check().expect("the operator has lived through it");
    println!("50 jobs and an outage: {:?}", start.elapsed());
    drop(nodes);
}
