//! The ways in which a person, or the system, says that it is time to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::outcome::Code;

/// Ctrl-C, SIGTERM, and a terminal that goes away.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where SIGHUP was ignored from the start, as `nohup` has it.
    hang_up: Option<Signal>,
}

impl Signals {
    pub(super) fn new() -> anyhow::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hang_up = if ignores_hang_up(&status) { None } else { Some(signal(SignalKind::hangup())?) };
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())?, hang_up })
    }

    pub(super) async fn next(&mut self) -> Code {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Code::Interrupted,
            _ = self.terminate.recv() => Code::Terminated,
            _ = hang_up => Code::HungUp,
        }
    }
}

impl Signals {
    /// Somebody cannot wait for the workers. That a terminal goes away says no such thing, however often it is said
    /// (the kernel tells everybody, and a shell tells its jobs), and a system that ends a session may send SIGTERM,
    /// too: after SIGHUP, it takes two to hurry.
    pub(super) async fn hurry(&mut self, first: Option<Code>) {
        let mut needed = if first == Some(Code::HungUp) { 2 } else { 1 };
        while needed > 0 {
            if self.next().await != Code::HungUp {
                needed -= 1;
            }
        }
    }
}

/// Whether a process of this status (as in proc(5)) was told to ignore SIGHUP, which is the lowest bit of the mask.
fn ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_has_set_is_seen() {
        assert!(ignores_hang_up("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hang_up("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hang_up(""));
    }
}
