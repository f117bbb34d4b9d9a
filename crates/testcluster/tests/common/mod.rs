//! What the tests of this crate share.
#![allow(dead_code)] // every test binary uses its own part

use std::time::{Duration, Instant};

use trainyard_testcluster::TestCluster;

/// Applies a manifest as the administrator.
pub(crate) async fn apply(cluster: &TestCluster, yaml: &str) {
    cluster.kubectl().stdin(yaml).run(&["apply", "-f", "-"]).await.unwrap().expect("apply");
}

/// `kubectl get … -o jsonpath=…`; nothing when the object is not there.
pub(crate) async fn get(cluster: &TestCluster, what: &str, path: &str) -> String {
    let mut args: Vec<String> = vec!["get".into()];
    args.extend(what.split_whitespace().map(String::from));
    args.extend(["--ignore-not-found".into(), "-o".into(), format!("jsonpath={path}")]);
    cluster.kubectl().run(&args).await.unwrap().expect("get")
}

/// Asks until the answer is the wanted one.
pub(crate) async fn see(cluster: &TestCluster, what: &str, path: &str, wanted: &str) {
    let start = Instant::now();
    loop {
        let seen = get(cluster, what, path).await;
        if seen == wanted {
            return;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "{what} {path}: wanted {wanted:?}, saw {seen:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The processes whose command line mentions this text.
pub(crate) fn processes_of(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(text)).collect()
}
