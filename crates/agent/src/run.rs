//! The agent as a process: looks at intervals until it is told to end, and prints what has changed.

use std::io::Write;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use trainyard_api::checkpoint::AgentReport;

use crate::agent::Agent;
use crate::scan::Moment;

/// A look may take at most this part of the time, however slow the storage is.
const SHARE: u32 = 10;

/// Runs until SIGTERM or SIGINT, then looks once more: programs save in the time that they are given to end.
pub fn run(mut agent: Agent, interval: Duration, output: &mut dyn Write) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminated, mut interrupted) = runtime.block_on(async {
        Ok::<_, std::io::Error>((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    })?;
    let clock = Clock { start: Instant::now() };
    let mut last = agent.begin(clock.now());
    say(output, &last);
    loop {
        let began = Instant::now();
        let report = agent.look(clock.now());
        if report != last {
            say(output, &report);
            last = report;
        }
        let pause = interval.max(began.elapsed() * SHARE);
        if runtime.block_on(wait(pause, &mut terminated, &mut interrupted)) == Woken::BySignal {
            break;
        }
    }
    for look in [Agent::look, Agent::finish] {
        let report = look(&mut agent, clock.now());
        if report != last {
            say(output, &report);
            last = report;
        }
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Woken {
    ByTime,
    BySignal,
}

async fn wait(pause: Duration, terminated: &mut Signal, interrupted: &mut Signal) -> Woken {
    tokio::select! {
        () = tokio::time::sleep(pause) => Woken::ByTime,
        _ = terminated.recv() => Woken::BySignal,
        _ = interrupted.recv() => Woken::BySignal,
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
