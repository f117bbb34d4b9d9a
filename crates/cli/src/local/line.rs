//! How one job goes, on one line that fits the terminal.
//!
//! What does not fit is left out in an order of worth: the bar shrinks, further metrics go, the bar goes, the name is
//! shortened. State, percentage, epoch, loss, time left and workers stay for as long as there is any room for them.

use console::style;
use jiff::Timestamp;
use trainyard_api::{State, TrainingJobStatus};

const BAR: usize = 20;
/// A smaller bar tells nothing that the percentage does not.
const BAR_MIN: usize = 5;
/// A shorter name tells nobody which job is meant.
const NAME_MIN: usize = 8;

/// A line, laid out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    name: String,
    /// Cells of the bar that are done, and those that are not.
    bar: (usize, usize),
    text: String,
}

struct Part {
    text: String,
    worth: Worth,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Worth {
    Needed,
    /// Left out where room is short.
    Further,
    /// A sentence, of which the beginning is better than nothing.
    Sentence,
}

impl Line {
    /// The line of a job in a terminal of this width.
    pub(super) fn of(name: &str, status: &TrainingJobStatus, now: Timestamp, width: usize) -> Self {
        Self::fitted(name, percent(status), parts(status, now), width)
    }

    /// The line of a job whose workers have been asked to end.
    pub(super) fn stopping(name: &str, status: &TrainingJobStatus, text: String, width: usize) -> Self {
        Self::fitted(name, percent(status), vec![Part { text, worth: Worth::Needed }], width)
    }

    fn fitted(name: &str, percent: usize, mut parts: Vec<Part>, width: usize) -> Self {
        let name_width = name.chars().count();
        let mut text = joined(&parts);
        let room_for_bar = loop {
            // Between name and bar, and between bar and text, there is a space.
            let room = width.saturating_sub(name_width + 1 + text.chars().count() + 1);
            if room >= BAR_MIN {
                break room.min(BAR);
            }
            let Some(last) = parts.iter().rposition(|part| part.worth == Worth::Further) else { break 0 };
            parts.remove(last);
            text = joined(&parts);
        };
        let done = room_for_bar * percent.min(100) / 100;
        let mut name = name.to_owned();
        if !parts.iter().any(|part| part.worth == Worth::Sentence) {
            name = shortened(&name, width.saturating_sub(text.chars().count() + 1).max(NAME_MIN));
        }
        let name = shortened(&name, width);
        let text = shortened(&text, width.saturating_sub(name.chars().count() + 1));
        Self { name, bar: (done, room_for_bar - done), text }
    }

    /// How many columns it takes.
    pub(super) fn width(&self) -> usize {
        self.plain().chars().count()
    }

    fn plain(&self) -> String {
        let (done, rest) = self.bar;
        self.with(self.name.clone(), "━".repeat(done), "╌".repeat(rest))
    }

    /// With colours, where the terminal has some.
    pub(super) fn painted(&self) -> String {
        let (done, rest) = self.bar;
        self.with(
            style(&self.name).bold().to_string(),
            style("━".repeat(done)).green().to_string(),
            style("╌".repeat(rest)).dim().to_string(),
        )
    }

    fn with(&self, name: String, done: String, rest: String) -> String {
        let mut words = vec![name];
        if self.bar != (0, 0) {
            words.push(done + &rest);
        }
        if !self.text.is_empty() {
            words.push(self.text.clone());
        }
        words.join(" ")
    }
}

fn joined(parts: &[Part]) -> String {
    parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("  ")
}

/// At most so many characters, the last of which says that there are more.
fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain((width > 0).then_some('…')).collect()
}

fn percent(status: &TrainingJobStatus) -> usize {
    let percent = status.progress.as_ref().and_then(|progress| progress.strip_suffix('%')?.parse().ok());
    percent.unwrap_or(0)
}

/// "Running  45%  epoch 5/10  loss 0.23  12s left  2/2 workers".
pub(super) fn summary(status: &TrainingJobStatus, now: Timestamp) -> String {
    joined(&parts(status, now))
}

fn parts(status: &TrainingJobStatus, now: Timestamp) -> Vec<Part> {
    let needed = |text: String| Part { text, worth: Worth::Needed };
    let mut parts = vec![needed(status.state.map_or("", State::as_str).to_owned())];
    parts.extend(status.progress.clone().map(needed));
    if let Some(epoch) = status.current_epoch {
        let total = status.total_epochs.map(|total| format!("/{total}")).unwrap_or_default();
        parts.push(needed(format!("epoch {epoch}{total}")));
    }
    for (name, worth) in [("loss", Worth::Needed), ("accuracy", Worth::Further)] {
        let value = status.metrics.get(name);
        parts.extend(value.map(|value| Part { text: format!("{name} {value:.4}"), worth }));
    }
    if let Some(end) = &status.estimated_completion {
        parts.push(needed(format!("{} left", span(end.0.duration_since(now).as_secs()))));
    }
    if matches!(status.state, Some(State::Pending | State::Initializing)) {
        parts.extend(status.message.clone().map(|text| Part { text, worth: Worth::Sentence }));
    } else if let Some(workers) = status.workers {
        let at_work = workers.active + workers.succeeded;
        parts.push(needed(format!("{at_work}/{} workers", workers.desired)));
    }
    parts
}

/// "12s", "1m 30s", "2h 15m".
pub(super) fn span(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> TrainingJobStatus {
        serde_json::from_value(serde_json::json!({
            "state": "Running", "progress": "45%", "currentEpoch": 5, "totalEpochs": 10,
            "metrics": {"loss": 0.23456, "accuracy": 0.94}, "estimatedCompletion": "1970-01-01T00:01:30Z",
            "workers": {"desired": 2, "active": 2, "succeeded": 0, "failed": 0, "pending": 0},
        }))
        .unwrap_or_default()
    }

    fn line(name: &str, width: usize) -> String {
        let line = Line::of(name, &status(), Timestamp::UNIX_EPOCH, width);
        assert!(line.width() <= width, "{} columns in {width}: {line:?}", line.width());
        line.plain()
    }

    #[test]
    fn one_line_says_how_it_goes() {
        assert_eq!(
            summary(&status(), Timestamp::UNIX_EPOCH),
            "Running  45%  epoch 5/10  loss 0.2346  accuracy 0.9400  1m 30s left  2/2 workers"
        );
        assert_eq!(percent(&status()), 45);
    }

    #[test]
    fn what_is_worth_most_stays_when_the_terminal_is_narrow() {
        let needed = "Running  45%  epoch 5/10  loss 0.2346  1m 30s left  2/2 workers";
        let all = "Running  45%  epoch 5/10  loss 0.2346  accuracy 0.9400  1m 30s left  2/2 workers";
        assert_eq!(line("digits", 200), format!("digits ━━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌ {all}"));
        assert_eq!(line("digits", 96), format!("digits ━━━╌╌╌╌╌ {all}"), "the bar shrinks first");
        assert_eq!(line("digits", 80), format!("digits ━━━━╌╌╌╌╌ {needed}"), "then further metrics go");
        assert_eq!(line("digits-again", 80), format!("digits-again {needed}"), "then the bar");
        assert_eq!(line("digits-once-and-again", 80), format!("digits-once-and… {needed}"), "then the name");
        for width in 0..120 {
            line("digits-once-and-again", width);
        }
    }

    #[test]
    fn a_job_that_waits_says_why_for_as_long_as_there_is_room() {
        let status: TrainingJobStatus = serde_json::from_value(serde_json::json!({
            "state": "Pending", "message": "0/1 nodes are available: 1 Insufficient cpu. Nothing will change that here.",
        }))
        .unwrap_or_default();
        let line = Line::of("digits-once-and-again", &status, Timestamp::UNIX_EPOCH, 60).plain();
        assert_eq!(line, "digits-once-and-again Pending  0/1 nodes are available: 1 I…");
    }
}
