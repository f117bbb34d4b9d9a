//! What a person sees while jobs run: a line with a bar for each job at a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use trainyard_api::{Cause, State, TrainingJob, TrainingJobStatus};

use super::jobs::title;

/// How often plain lines tell of progress.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Shows jobs and the output of their programs.
pub(crate) struct View {
    form: Form,
    jobs: BTreeMap<String, Shown>,
}

enum Form {
    Bars(MultiProgress),
    Lines,
    /// Output is for programs: nothing is shown before the end.
    Quiet,
}

/// What was last shown of a job.
struct Shown {
    state: Option<State>,
    message: Option<String>,
    progress: Option<String>,
    /// The last attempt of which it was told where it hung.
    hung: i32,
    at: Option<Instant>,
    bar: Option<ProgressBar>,
}

impl View {
    pub(crate) fn new(quiet: bool) -> Self {
        let form = if quiet {
            Form::Quiet
        } else if std::io::stdout().is_terminal() {
            Form::Bars(MultiProgress::with_draw_target(ProgressDrawTarget::stdout_with_hz(10)))
        } else {
            Form::Lines
        };
        Self { form, jobs: BTreeMap::new() }
    }

    /// A line of a program's output, or of ours.
    pub(crate) fn line(&self, text: &str) {
        match &self.form {
            // A tab moves the cursor without clearing what was there.
            Form::Bars(bars) => _ = bars.println(text.replace('\t', "    ")),
            Form::Lines => _ = writeln!(std::io::stdout(), "{text}"),
            Form::Quiet => {}
        }
    }

    /// A job as it is now.
    pub(crate) fn job(&mut self, job: &TrainingJob) {
        let Some(status) = &job.status else { return };
        let title = title(job);
        let shown = self.jobs.entry(title.clone()).or_insert_with(|| Shown {
            state: None,
            message: None,
            progress: None,
            hung: 0,
            at: None,
            bar: match &self.form {
                Form::Bars(bars) => Some(bars.add(bar(&title))),
                _ => None,
            },
        });
        let news = shown.state != status.state;
        let told = if let Some(bar) = &shown.bar {
            bar.set_position(percent(status));
            bar.set_message(summary(status, Timestamp::now()));
            // Bars say how it goes; what went wrong stays on the screen.
            news && matches!(status.state, Some(State::Restarting | State::Failed))
        } else {
            let waits = matches!(status.state, Some(State::Pending | State::Initializing));
            news || (waits && shown.message != status.message)
        };
        let line = told.then(|| {
            let state = status.state.map_or("", State::as_str);
            format!("{title}: {state}: {}", status.message.as_deref().unwrap_or_default())
        });
        let moved = shown.bar.is_none()
            && shown.progress != status.progress
            && shown.at.is_none_or(|at| at.elapsed() >= PLAIN_INTERVAL);
        let progress = moved.then(|| format!("{title}: {}", summary(status, Timestamp::now())));
        if moved {
            shown.at = Some(Instant::now());
            shown.progress.clone_from(&status.progress);
        }
        let hung = status.attempts.iter().rev().find(|attempt| {
            attempt.cause == Some(Cause::Stalled) && attempt.error.is_some() && attempt.number > shown.hung
        });
        let hung = hung.map(|attempt| {
            shown.hung = attempt.number;
            format!("{title}: It hung: {}", attempt.error.as_deref().unwrap_or_default())
        });
        shown.state = status.state;
        shown.message.clone_from(&status.message);
        for line in line.into_iter().chain(hung).chain(progress.filter(|_| status.progress.is_some())) {
            self.line(&line);
        }
    }

    /// Leaves the last state of the bars on the screen.
    pub(crate) fn end(&self) {
        for shown in self.jobs.values() {
            if let Some(bar) = &shown.bar {
                bar.abandon();
            }
        }
    }
}

fn bar(title: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:.bold} {bar:20.green/dim} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━━╌");
    ProgressBar::new(100).with_style(style).with_prefix(title.to_owned())
}

fn percent(status: &TrainingJobStatus) -> u64 {
    let percent = status.progress.as_ref().and_then(|progress| progress.strip_suffix('%')?.parse().ok());
    percent.unwrap_or(0)
}

/// "Running  45%  epoch 5/10  loss 0.23  12s left  2/2 workers".
fn summary(status: &TrainingJobStatus, now: Timestamp) -> String {
    let mut parts = vec![status.state.map_or("", State::as_str).to_owned()];
    parts.extend(status.progress.clone());
    if let Some(epoch) = status.current_epoch {
        let total = status.total_epochs.map(|total| format!("/{total}")).unwrap_or_default();
        parts.push(format!("epoch {epoch}{total}"));
    }
    for name in ["loss", "accuracy"] {
        parts.extend(status.metrics.get(name).map(|value| format!("{name} {value:.4}")));
    }
    if let Some(end) = &status.estimated_completion {
        parts.push(format!("{} left", left(end.0.duration_since(now).as_secs())));
    }
    if matches!(status.state, Some(State::Pending | State::Initializing)) {
        parts.extend(status.message.clone());
    } else if let Some(workers) = status.workers {
        let at_work = workers.active + workers.succeeded;
        parts.push(format!("{at_work}/{} workers", workers.desired));
    }
    parts.join("  ")
}

fn left(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_how_it_goes() {
        let status: TrainingJobStatus = serde_json::from_value(serde_json::json!({
            "state": "Running", "progress": "45%", "currentEpoch": 5, "totalEpochs": 10,
            "metrics": {"loss": 0.23456}, "estimatedCompletion": "1970-01-01T00:01:30Z",
            "workers": {"desired": 2, "active": 2, "succeeded": 0, "failed": 0, "pending": 0},
        }))
        .unwrap_or_default();
        assert_eq!(
            summary(&status, Timestamp::UNIX_EPOCH),
            "Running  45%  epoch 5/10  loss 0.2346  1m 30s left  2/2 workers"
        );
        assert_eq!(percent(&status), 45);
    }
}
