//! Short-lived tools of the system, run to their end.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::Error;

/// The last lines of what a tool said: enough to see why it failed.
const SHOWN: usize = 20;

/// Runs a tool; its standard output when it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    command.stdin(Stdio::null());
    let program = command.get_program().to_owned();
    let output = command.output().map_err(Error::io("run", &program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(command, output.status.to_string(), &output.stderr))
}

/// Runs a tool that reads `input`.
pub(crate) fn feed(command: &mut Command, input: &str) -> Result<(), Error> {
    let program = command.get_program().to_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Error::io("run", &program))?;
    if let Some(mut pipe) = child.stdin.take() {
        // It may end without reading everything; its own message says why.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(Error::io("run", &program))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(command, output.status.to_string(), &output.stderr))
}

pub(crate) fn failed(command: &Command, status: String, stderr: &[u8]) -> Error {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().collect();
    Error::Command {
        command: words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
        status,
        output: lines[lines.len().saturating_sub(SHOWN)..].join("\n"),
    }
}
