//! What came of a run: in words, as JSON, and as an exit code.

use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use trainyard_api::{State, TrainingJob, TrainingJobStatus};

use super::jobs::title;
use super::line;

/// Exit codes of `trainyard run`, as its help tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Code {
    Completed = 0,
    Failed = 1,
    // 2 is for whatever keeps the run from starting: a bad flag, a bad manifest, a directory in use.
    CannotStart = 3,
    HungUp = 129,
    Interrupted = 130,
    Terminated = 143,
}

/// How one job ended.
pub(crate) fn code(status: &TrainingJobStatus) -> Code {
    match status.state {
        Some(State::Completed) => Code::Completed,
        Some(State::Failed) => Code::Failed,
        _ => Code::CannotStart,
    }
}

/// What became of the job: its last state, unless it was stopped before its end.
fn end(status: &TrainingJobStatus, interrupted: bool) -> &'static str {
    match status.state {
        Some(state @ (State::Completed | State::Failed)) => state.as_str(),
        Some(State::Running | State::Restarting) => "stopped",
        _ if interrupted => "stopped",
        _ => "not started",
    }
}

/// One job in words.
pub(crate) fn told(job: &TrainingJob, interrupted: bool, now: Timestamp, state_dir: &Path) -> String {
    let status = job.status.clone().unwrap_or_default();
    let state = end(&status, interrupted);
    let after = duration(&status, now).map(|duration| format!(" after {duration}")).unwrap_or_default();
    let restarts = status.restarts.unwrap_or_default().total();
    let plural = if restarts == 1 { "" } else { "s" };
    let metrics: Vec<String> = status.metrics.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let metrics = if metrics.is_empty() { String::new() } else { format!("; {}", metrics.join(", ")) };
    let mut lines = vec![format!("{}: {state}{after}, {restarts} restart{plural}{metrics}", title(job))];
    if status.state != Some(State::Completed) && !interrupted {
        lines.extend(status.message.map(|message| format!("  {message}")));
    }
    lines.extend(checkpoints(job, state_dir).map(|directory| format!("  checkpoints: {directory}")));
    lines.join("\n")
}

/// The same for programs.
pub(crate) fn as_json(job: &TrainingJob, interrupted: bool, now: Timestamp, state_dir: &Path) -> Value {
    let status = job.status.clone().unwrap_or_default();
    json!({
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "end": end(&status, interrupted),
        "state": status.state,
        "message": status.message,
        "duration": duration(&status, now),
        "progress": status.progress,
        "restarts": status.restarts.unwrap_or_default().total(),
        "metrics": status.metrics,
        "attempts": status.attempts,
        "checkpoints": checkpoints(job, state_dir),
    })
}

/// How long it took. A job that is stopped before it has told of any progress has a start, and ends now.
fn duration(status: &TrainingJobStatus, now: Timestamp) -> Option<String> {
    let since = |start: &Time| line::span(now.duration_since(start.0).as_secs());
    status.duration.clone().or_else(|| status.start_time.as_ref().map(since))
}

/// Where the job's checkpoints are: a directory on this machine, or a bucket.
fn checkpoints(job: &TrainingJob, state_dir: &Path) -> Option<String> {
    let checkpoint = job.status.as_ref()?.effective.as_ref()?.checkpoint.as_ref()?;
    let Some(claim) = checkpoint.claim_name.clone() else { return checkpoint.url.clone() };
    let namespace = job.metadata.namespace.as_deref().unwrap_or("default");
    let directory = trainyard_node::claim_directory(&state_dir.join("node"), namespace, &claim);
    let here = std::env::current_dir().unwrap_or_default();
    Some(directory.strip_prefix(here).unwrap_or(&directory).display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_was_stopped_says_how_long_it_ran() {
        let mut job = TrainingJob::new("bert", trainyard_api::TrainingJobSpec::default());
        let status = json!({"state": "Running", "startTime": "1970-01-01T00:00:00Z"});
        job.status = serde_json::from_value(status).unwrap_or_default();
        let now = Timestamp::from_second(75).unwrap_or_default();
        assert_eq!(told(&job, true, now, Path::new("s")), "bert: stopped after 1m 15s, 0 restarts");
        assert_eq!(as_json(&job, true, now, Path::new("s"))["duration"], "1m 15s");
    }
}
