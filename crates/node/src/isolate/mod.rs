//! The walls around a container: a helper process (the shim) that starts the program in namespaces of its own.
//!
//! ```text
//! node ── shim ── init (PID 1 of the container) ── program
//! ```
//!
//! Code of ours contains no `unsafe`, so nothing can be done between fork and exec: what the program must be surrounded
//! with is done by a process that is this binary again. `orders` is what node and shim tell each other.

pub(crate) mod exec;
pub(crate) mod init;
pub(crate) mod orders;
pub(crate) mod probe;
pub(crate) mod root;
pub(crate) mod run;
pub(crate) mod spawner;

use std::ffi::OsString;
use std::process::ExitCode;

/// What the hidden subcommand `shim` of the `trainyard` binary does: `arguments` are those after `shim`.
///
/// It must be called before any thread is started, because a user namespace can be entered only by a process
/// with one thread.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let stage = words.next();
    let outcome = match (stage, words.next()) {
        (Some("run"), Some(mode)) => run::main(mode),
        (Some("exec"), Some(_)) => exec::main(&arguments[1..]),
        (Some("probe"), Some(mode)) => probe::main(mode, &arguments[2..]),
        _ => Err("the shim is started by trainyard itself, for each container".to_owned()),
    };
    match outcome {
        Ok(code) => code,
        Err(message) => {
            eprintln!("trainyard shim: {message}");
            ExitCode::from(125)
        }
    }
}
