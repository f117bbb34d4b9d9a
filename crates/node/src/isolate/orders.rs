//! What the node and the shim tell each other: one JSON object per line, over a socket that is the shim's standard
//! input.
//!
//! The socket is also how the shim learns that the node is gone: it is closed then, and the container ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::root::Root;

/// How a container is kept apart from the rest of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Walls {
    /// Mount, PID and host name namespaces, as root.
    Privileged,
    /// The same inside a user namespace in which the user is who they are outside.
    User,
    /// The system allows no namespaces: a process group, and a shim that adopts and ends what it leaves.
    None,
}

impl Walls {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::User => "user",
            Self::None => "none",
        }
    }

    pub(crate) fn from_word(word: &str) -> Result<Self, String> {
        [Self::Privileged, Self::User, Self::None]
            .into_iter()
            .find(|walls| walls.word() == word)
            .ok_or_else(|| format!("no kind of isolation is called {word}"))
    }
}

/// The first line: what to run, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) command: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) directory: PathBuf,
    /// Whether it is made if it is not there.
    pub(crate) make_directory: bool,
    pub(crate) hostname: String,
    /// `cgroup.procs` files to enter.
    pub(crate) cgroups: Vec<PathBuf>,
    /// The container's own view of the file system; only with walls.
    pub(crate) root: Option<Root>,
}

/// Later lines from the node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Sends this signal to the program.
    Signal(i32),
}

/// Lines from the shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The program runs. `init` is PID 1 of the container as the node sees it; without a PID namespace it is the shim.
    Started {
        init: i32,
        program: i32,
    },
    /// The program could not be started; in a container runtime's words.
    NotStarted {
        message: String,
    },
    Exited {
        code: i32,
    },
    Signaled {
        signal: i32,
    },
}
