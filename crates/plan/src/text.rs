//! Words for people: durations, counts, exit codes.

use jiff::SignedDuration;

/// "2h 15m", "45s": the two largest units.
pub(crate) fn duration(span: SignedDuration) -> String {
    let seconds = span.as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

/// At most so many characters.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// How people call a checkpoint: by its epoch and step, else by its path.
pub(crate) fn checkpoint(checkpoint: &trainyard_api::CheckpointStatus) -> String {
    match (checkpoint.epoch, checkpoint.step) {
        (Some(epoch), Some(step)) => format!("checkpoint epoch {epoch}, step {step}"),
        (Some(epoch), None) => format!("checkpoint epoch {epoch}"),
        (None, Some(step)) => format!("checkpoint step {step}"),
        (None, None) => format!("checkpoint {}", checkpoint.path),
    }
}

/// "1 pod", "4 pods".
pub(crate) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// What an exit code means, where it has a meaning of its own.
pub(crate) fn exit_code(code: i32) -> String {
    let signal = match code {
        126 => " (the command cannot be executed)",
        127 => " (command not found)",
        129 => " (SIGHUP)",
        130 => " (SIGINT)",
        132 => " (SIGILL)",
        134 => " (SIGABRT)",
        135 => " (SIGBUS: is /dev/shm large enough?)",
        136 => " (SIGFPE)",
        137 => " (SIGKILL)",
        139 => " (SIGSEGV)",
        143 => " (SIGTERM)",
        _ => "",
    };
    format!("exit code {code}{signal}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (61, "1m 1s"), (8100, "2h 15m"), (90_000, "1d 1h"), (-5, "0s")]
        {
            assert_eq!(duration(SignedDuration::from_secs(seconds)), text);
        }
    }
}
