//! Waiting for what becomes of a job.

use std::time::{Duration, Instant};

use kube::Api;
use trainyard_api::{State, TrainingJob, TrainingJobStatus};

/// Far longer than anything takes: reaching it is a failure, not a delay.
pub const LIMIT: Duration = Duration::from_mins(2);

/// The status that is as wanted. If none ever is, the last one, for whoever says so.
pub async fn until(
    jobs: &Api<TrainingJob>,
    job: &str,
    wanted: impl Fn(&TrainingJobStatus) -> bool,
) -> Result<TrainingJobStatus, Box<TrainingJobStatus>> {
    let start = Instant::now();
    loop {
        // While the API server is away, nobody knows.
        let status = jobs.get(job).await.ok().and_then(|job| job.status).unwrap_or_default();
        if wanted(&status) {
            return Ok(status);
        }
        // Nothing comes after an end.
        if start.elapsed() > LIMIT || status.state.is_some_and(State::is_terminal) {
            return Err(Box::new(status));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
