//! Asks the programs of an attempt that stalled where they hang, before they are removed: through `pods/exec`, with `py-spy` if the image
//! has it, else with a signal for which the program is known to print its stacks (`SIGUSR1`, or `SIGABRT` that Python's fault
//! handler catches). Nothing depends on the answer.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use tokio::io::AsyncReadExt;
use trainyard_api::names;

use crate::tails::end_of_log;

/// What is run in the container. An image without a shell cannot be asked.
const SCRIPT: &str = include_str!("stacks.sh");
/// So long a restart waits for the answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// As much of the log, from its end.
const LINES: i64 = 200;
/// As much of an answer.
const BYTES: usize = 32 << 10;

/// What the program in this pod says about where it hangs.
pub(crate) async fn ask(client: &kube::Client, namespace: &str, pod: &str) -> Option<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match tokio::time::timeout(PATIENCE, answer(&pods, pod)).await {
        Ok(Ok(text)) => Some(text),
        Ok(Err(error)) => {
            tracing::info!(namespace, pod, "it cannot be asked where it hangs: {error}");
            None
        }
        Err(_) => {
            tracing::info!(namespace, pod, "it was asked where it hangs, and did not answer");
            None
        }
    }
}

async fn answer(pods: &Api<Pod>, pod: &str) -> Result<String, kube::Error> {
    let parameters = AttachParams::default().container(names::CONTAINER).stdin(false).stderr(false);
    let mut process = pods.exec(pod, ["sh", "-c", SCRIPT], &parameters).await?;
    let mut text = Vec::new();
    if let Some(stdout) = process.stdout() {
        // What was said until a connection broke is better than nothing.
        let _ = stdout.take(BYTES as u64).read_to_end(&mut text).await;
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    text.push('\n');
    text.push_str(&end_of_log(pods, pod, names::CONTAINER, LINES, BYTES).await?);
    Ok(text)
}
