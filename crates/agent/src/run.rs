//! The agent as a process: looks at intervals until it is told to end, and prints what has changed.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use trainyard_api::checkpoint::AgentReport;

use crate::agent::{self, Agent, Start};
use crate::mirror::{self, Open};
use crate::scan::Moment;
use crate::store::{Store, StoreError};

/// A look may take at most this part of the time, however slow the storage is.
const SHARE: u32 = 10;

/// What could not be copied at the end is tried again after the first of these, and then ever more rarely.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Runs until SIGTERM or SIGINT, then looks once more: programs save in the time that they are given to end.
///
/// If checkpoints are copied to a bucket, what was saved has to arrive there first, however often that takes, unless it is
/// refused.
///
/// Ends at once as long as the program has not been let go: then there is nothing to save. Ends by itself when it holds the
/// program back because of its credentials: a change of a Secret reaches the environment only with a start.
pub fn run(mut agent: Agent, interval: Duration, output: &mut dyn Write) -> std::io::Result<End> {
    let ends = Ends::listen(0)?;
    let pod = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME"));
    agent = agent.in_pod(pod.unwrap_or_default());
    let bell = ends.tell.clone();
    agent.rings(Box::new(move || _ = bell.send(Woken::Arrival)));
    // Before anybody can know that the program goes on: from now on there may be something to save.
    let may_wait = ends.may_wait.clone();
    agent = agent.before_letting_go(Box::new(move || may_wait.store(true, Ordering::SeqCst)));
    let clock = Clock { start: Instant::now() };
    let mut last = agent.begin(clock.now());
    ends.may_wait(agent.start() != Start::Held);
    say(output, &last);
    loop {
        let was_held = agent.start() == Start::Held;
        ends.may_wait(!was_held);
        let began = Instant::now();
        let report = agent.look(clock.now());
        ends.may_wait(agent.start() != Start::Held);
        if report != last {
            say(output, &report);
            last = report;
        }
        if agent.needs_a_restart(clock.now()) {
            return Ok(End::Refused);
        }
        // What was fetched took its time, but was no look.
        let pause = if was_held { interval } else { interval.max(began.elapsed() * SHARE) };
        if ends.within(pause) == Woken::Signal {
            break;
        }
    }
    let mut tell = |report: AgentReport| {
        if report != last {
            say(output, &report);
            last = report;
        }
    };
    tell(agent.look(clock.now()));
    tell(agent.finish(clock.now()));
    // Whoever ends the pod sets the limit to this.
    let mut pause = FIRST_PAUSE;
    // What is refused will hardly be allowed while we wait, so that is tried a few times only.
    while agent.is_owing() && !(agent.is_refused() && pause == LONGEST_PAUSE) {
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
        tell(agent.finish(clock.now()));
    }
    Ok(End::Told)
}

/// Why the agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to.
    Told,
    /// To be started again, with the credentials that there are then.
    Refused,
}

/// What an end by a signal is called by those who look at exit codes.
const TERMINATED: i32 = 143;

/// Fetches one checkpoint from a bucket into a directory, for a program that is not the leading one. Waits as long as it
/// takes, since the program must not start without; says why.
pub fn fetch(
    (place, open): (&str, &Open),
    directory: &dyn Store,
    checkpoint: &str,
    output: &mut dyn Write,
) -> std::io::Result<()> {
    let _ends = Ends::listen(TERMINATED)?;
    let mut pause = agent::FIRST_BREAK;
    let mut last = None;
    while let Err(error) = try_to_fetch((place, open), directory, checkpoint) {
        let problem =
            format!("{checkpoint} cannot be fetched yet: {error}; this is tried again until it works");
        let report = AgentReport { unread: true, problem: Some(problem), ..AgentReport::default() };
        if last.as_ref() != Some(&report) {
            say(output, &report);
            last = Some(report);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(agent::LONGEST_BREAK);
    }
    say(output, &AgentReport::default());
    Ok(())
}

fn try_to_fetch(
    (place, open): (&str, &Open),
    directory: &dyn Store,
    checkpoint: &str,
) -> Result<(), StoreError> {
    let bucket = open()?;
    let path = agent::inside(place.trim_end_matches('/'), checkpoint.trim_end_matches('/'));
    let markers = mirror::markers(&bucket)?;
    // The leading worker's agent sees that, too, and has everybody started anew with what there is.
    let Some(marker) = markers.iter().find(|marker| Some(marker.path.as_str()) == path) else {
        return Err(StoreError::Vanished(checkpoint.to_owned()));
    };
    mirror::fetch(&bucket, directory, marker)
}

/// SIGTERM and SIGINT, heard in a thread of their own: what this one does may take long.
struct Ends {
    tell: Sender<Woken>,
    told: Receiver<Woken>,
    may_wait: Arc<AtomicBool>,
}

/// What ended a pause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    Time,
    Signal,
    Arrival,
}

impl Ends {
    /// Until it may wait, the process ends at once, with this code.
    fn listen(code: i32) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut terminated, mut interrupted) = runtime.block_on(async {
            Ok::<_, std::io::Error>((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
        })?;
        let (tell, told) = channel();
        let may_wait = Arc::new(AtomicBool::new(false));
        let (patience, ending) = (may_wait.clone(), tell.clone());
        std::thread::spawn(move || {
            loop {
                runtime.block_on(async {
                    tokio::select! {
                        _ = terminated.recv() => {}
                        _ = interrupted.recv() => {}
                    }
                });
                if !patience.load(Ordering::SeqCst) {
                    std::process::exit(code);
                }
                if ending.send(Woken::Signal).is_err() {
                    return;
                }
            }
        });
        Ok(Self { tell, told, may_wait })
    }

    fn may_wait(&self, may: bool) {
        self.may_wait.store(may, Ordering::SeqCst);
    }

    /// Waits for so long at most.
    fn within(&self, pause: Duration) -> Woken {
        self.told.recv_timeout(pause).unwrap_or(Woken::Time)
    }
}

/// A reader that has gone away is no reason to stop looking after checkpoints.
fn say(output: &mut dyn Write, report: &AgentReport) {
    let _ = writeln!(output, "{}", report.to_line());
    let _ = output.flush();
}

struct Clock {
    start: Instant,
}

impl Clock {
    fn now(&self) -> Moment {
        Moment { wall: Timestamp::now(), elapsed: self.start.elapsed() }
    }
}
