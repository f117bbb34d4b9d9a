//! What a person sees while jobs run: a line with a bar for each job at a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use console::Term;
use jiff::Timestamp;
use trainyard_api::{Cause, State, TrainingJob, TrainingJobStatus, condition};

use super::jobs::title;
use super::line::{Line, summary};
use super::screen::{Screen, Size};

/// How often plain lines tell of progress.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);
/// How often a terminal is drawn at most.
pub(crate) const FRAME: Duration = Duration::from_millis(100);

/// Shows jobs and the output of their programs.
pub(crate) struct View {
    form: Form,
    jobs: BTreeMap<String, Shown>,
}

enum Form {
    Screen(Screen<File>),
    Lines,
    /// Output is for programs, or nobody is there any more: nothing is shown.
    Quiet,
}

/// What was last shown of a job.
#[derive(Default)]
struct Shown {
    status: TrainingJobStatus,
    /// The progress that plain lines have told, and when.
    progress: Option<String>,
    at: Option<Instant>,
    /// The last attempt of which it was told where it hung.
    hung: i32,
    /// The last attempt of which it was told what it does not go on from.
    moved_aside: i32,
    /// What is left to say of a job whose workers have been asked to end.
    stopping: Option<String>,
}

/// What is wrong with the checkpoints of a job that runs all the same.
fn trouble(status: &TrainingJobStatus) -> Option<&str> {
    let problem =
        status.condition(condition::CHECKPOINT_PROBLEM).filter(|problem| problem.status == "True")?;
    Some(&problem.message)
}

impl View {
    pub(crate) fn new(quiet: bool) -> Self {
        let stdout = std::io::stdout();
        // A file of our own: standard output would divide what is written into lines.
        let can_draw = stdout.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let terminal = can_draw.then(|| stdout.as_fd().try_clone_to_owned());
        let form = match terminal {
            _ if quiet => Form::Quiet,
            Some(Ok(terminal)) => Form::Screen(Screen::new(terminal.into())),
            _ => Form::Lines,
        };
        Self { form, jobs: BTreeMap::new() }
    }

    /// A line of a program's output, or of ours.
    pub(crate) fn line(&mut self, text: &str) {
        match &mut self.form {
            Form::Screen(screen) => screen.line(text, size),
            Form::Lines => _ = writeln!(std::io::stdout(), "{text}"),
            Form::Quiet => {}
        }
    }

    /// A job as it is now.
    pub(crate) fn job(&mut self, job: &TrainingJob) {
        let Some(status) = &job.status else { return };
        let title = title(job);
        let at_terminal = matches!(self.form, Form::Screen(_));
        let shown = self.jobs.entry(title.clone()).or_default();
        let news = shown.status.state != status.state;
        let told = if at_terminal {
            // Bars say how it goes; what went wrong stays on the screen.
            news && matches!(status.state, Some(State::Restarting | State::Failed))
        } else {
            let waits = matches!(status.state, Some(State::Pending | State::Initializing));
            news || (waits && shown.status.message != status.message)
        };
        let line = told.then(|| {
            // Workers that are told of a checkpoint that was there before them have not failed.
            let ended = status.attempts.iter().rfind(|attempt| !attempt.is_open());
            let resumes = ended.is_some_and(|attempt| attempt.cause == Some(Cause::Resume));
            let state = match status.state {
                Some(State::Restarting) if resumes && status.checkpoint.is_some() => "Resuming",
                state => state.map_or("", State::as_str),
            };
            format!("{title}: {state}: {}", status.message.as_deref().unwrap_or_default())
        });
        let moved = !at_terminal
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
        let moved_aside = status.attempts.iter().rev().find_map(|attempt| {
            let what = attempt.moved_aside.as_ref().filter(|_| attempt.number > shown.moved_aside)?;
            Some((attempt.number, what))
        });
        let moved_aside = moved_aside.map(|(number, what)| {
            shown.moved_aside = number;
            format!(
                "{title}: not complete, and moved to .trainyard/quarantine beside the checkpoints: {what}"
            )
        });
        let trouble = trouble(status).filter(|trouble| self::trouble(&shown.status) != Some(*trouble));
        let trouble = trouble.map(|trouble| format!("{title}: checkpoints: {trouble}"));
        shown.status.clone_from(status);
        for line in line
            .into_iter()
            .chain(hung)
            .chain(moved_aside)
            .chain(trouble)
            .chain(progress.filter(|_| status.progress.is_some()))
        {
            self.line(&line);
        }
    }

    /// The workers of a job have been asked to end.
    pub(crate) fn stopping(&mut self, title: &str, workers: usize, left: Duration) {
        let shown = self.jobs.entry(title.to_owned()).or_default();
        let text = time_left(workers, left);
        let first = shown.stopping.is_none();
        let due = first || shown.at.is_none_or(|at| at.elapsed() >= PLAIN_INTERVAL);
        shown.stopping = Some(text.clone());
        if due && workers > 0 && matches!(self.form, Form::Lines) {
            shown.at = Some(Instant::now());
            self.line(&format!("{title}: {text}"));
        }
    }

    /// The terminal has gone away: nothing is written to it any more. A file that is written instead is still there.
    pub(crate) fn hang_up(&mut self) {
        if matches!(self.form, Form::Screen(_)) {
            self.form = Form::Quiet;
        }
    }

    /// A terminal shows what has happened since the last frame.
    pub(crate) fn draw(&mut self) {
        let size = size();
        let lines = self.lines(size);
        if let Form::Screen(screen) = &mut self.form {
            screen.draw(lines, size);
        }
    }

    /// Leaves the last state of the jobs on the screen.
    pub(crate) fn end(&mut self) {
        let size = size();
        let lines = self.lines(size);
        if let Form::Screen(screen) = &mut self.form {
            screen.end(lines, size);
        }
        self.form = Form::Quiet;
    }

    fn lines(&self, size: Size) -> Vec<Line> {
        if !matches!(self.form, Form::Screen(_)) {
            return Vec::new();
        }
        let now = Timestamp::now();
        // A cursor behind the last column is in the next row, for some terminals.
        let width = size.columns.saturating_sub(1);
        let line = |(title, shown): (&String, &Shown)| match &shown.stopping {
            Some(text) => Line::stopping(title, &shown.status, text.clone(), width),
            None => Line::of(title, &shown.status, now, width),
        };
        self.jobs.iter().map(line).collect()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.end();
    }
}

fn time_left(workers: usize, left: Duration) -> String {
    let seconds = left.as_millis().div_ceil(1000);
    match (workers, seconds) {
        (0, _) => "stopped".to_owned(),
        (_, 0) => "stopping: the time to save is up".to_owned(),
        (1, _) => format!("stopping: 1 worker has {seconds} s left to save"),
        _ => format!("stopping: {workers} workers have {seconds} s left to save"),
    }
}

fn size() -> Size {
    let (rows, columns) = Term::stdout().size();
    Size { rows: rows.into(), columns: columns.into() }
}
