//! Metrics and probes, as Prometheus and a kubelet ask for them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use trainyard_api::State;
use trainyard_testcluster::enabled;

use super::support::{Yard, job};

pub(crate) fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the operator serves");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

#[tokio::test]
async fn metrics_and_probes() {
    if !enabled() {
        return;
    }
    let mut yard = Yard::without_operator("metrics").await;
    let address = free_address();
    yard.start_operator(&[&format!("--metrics-address={address}")]).await;
    assert_eq!(get(&address, "/healthz").0, 200);
    yard.wait_for("readiness", async || get(&address, "/readyz").0 == 200).await;
    assert_eq!(get(&address, "/nothing").0, 404);

    let (_, before) = get(&address, "/metrics");
    for family in [
        "trainingjob_created_total",
        "trainingjob_completed_total",
        "trainingjob_failed_total",
        "trainingjob_deleted_total",
        "trainingjob_restarts_total",
        "trainingjob_operator_errors_total",
        "trainingjob_operator_starts_total",
        "training_jobs_created_total",
        "training_job_duration_seconds",
    ] {
        assert!(
            before.lines().any(|line| line.starts_with(family)),
            "{family} is not there before the first job"
        );
    }

    let page = include_str!("../../../../docs/metrics.md");
    for family in before.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(page.contains(&format!("`{family}")), "docs/metrics.md does not name {family}");
    }

    yard.apply(&(job("bert", 2) + "  gpusPerWorker: 1\n")).await.expect("apply");
    yard.until_state("bert", State::Running).await;
    let holds = |line: &str| get(&address, "/metrics").1.lines().any(|it| it == line);
    yard.wait_for("the gauges", async || {
        holds(r#"trainingjob_active_workers{namespace="metrics",trainingjob="bert"} 2"#)
    })
    .await;
    for line in [
        r#"trainingjob_created_total{namespace="metrics"} 1"#,
        r#"trainingjob_state{namespace="metrics",name="bert",state="Running"} 1"#,
        r#"trainingjob_allocated_gpus{namespace="metrics",trainingjob="bert"} 2"#,
        r#"trainingjob_allocated_workers{namespace="metrics",trainingjob="bert"} 2"#,
        "training_jobs_created_total 1",
    ] {
        assert!(holds(line), "{line} is not in\n{}", get(&address, "/metrics").1);
    }
    yard.end("bert-workers-1", 1).await;
    yard.until("bert", "runs again", |status| {
        status.state == Some(State::Running) && status.attempts.len() == 2
    })
    .await;
    for line in [
        r#"trainingjob_restarts_total{namespace="metrics",cause="Application"} 1"#,
        r#"trainingjob_recovery_seconds_count{namespace="metrics"} 1"#,
    ] {
        yard.wait_for(line, async || holds(line)).await;
    }
    yard.end_all("bert", 0).await;
    yard.until_state("bert", State::Completed).await;
    yard.wait_for("the counter", async || holds(r#"trainingjob_completed_total{namespace="metrics"} 1"#))
        .await;
    yard.kubectl(&["delete", "tj", "bert"]).await;
    yard.wait_for("its series are gone", async || {
        !get(&address, "/metrics").1.contains("trainingjob=\"bert\"")
    })
    .await;

    // Every line of the log is JSON with the four fields that everybody expects.
    for line in yard.log().lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        for field in ["timestamp", "level", "logger", "message"] {
            assert!(line[field].is_string(), "{field} is missing in {line}");
        }
    }
}
