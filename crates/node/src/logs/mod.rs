//! The output of containers: captured line by line with the moment of writing, rotated, and read again.
//!
//! The format is that of the container runtimes (`2026-01-02T03:04:05.000000006Z stdout F text`; `P` where the line
//! goes on). A program is never held up or ended because its log cannot be written: what does not fit on the disk is kept in
//! memory, where readers find it, and written when there is room. What memory does not keep is lost, and the log says how much.

mod reader;
mod record;
mod tail;
#[cfg(test)]
mod told;
mod writer;

pub(crate) use reader::read;
pub(crate) use tail::last_lines;
pub(crate) use writer::Log;

use std::sync::Arc;

use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};

use record::{format_lines, stamp};

const CHUNK: usize = 64 * 1024;

/// How much of a container's output is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// A log file that is larger is put aside, and a new one is begun.
    pub max_bytes: u64,
    /// So many files are kept of one container, the newest ones.
    pub max_files: u32,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { max_bytes: 10 * 1024 * 1024, max_files: 5 }
    }
}

/// Reads both streams to their ends and writes them to the log.
pub(crate) async fn capture(stdout: Option<ChildStdout>, stderr: Option<ChildStderr>, log: Arc<Log>) {
    let out = async {
        if let Some(stdout) = stdout {
            copy(stdout, "stdout", &log).await;
        }
    };
    let err = async {
        if let Some(stderr) = stderr {
            copy(stderr, "stderr", &log).await;
        }
    };
    tokio::join!(out, err);
    log.end();
}

async fn copy(mut from: impl AsyncRead + Unpin, stream: &str, log: &Log) {
    let mut buffer = Vec::with_capacity(8 * 1024);
    let mut text = Vec::new();
    loop {
        // A container that says little costs little: the buffer grows with what is read at once.
        buffer.reserve(8 * 1024);
        let read = from.read_buf(&mut buffer).await.unwrap_or(0);
        let stamp = stamp(Timestamp::now());
        let taken = format_lines(&buffer, read == 0, &stamp, stream, &mut text);
        buffer.drain(..taken);
        if buffer.is_empty() && buffer.capacity() > CHUNK {
            buffer = Vec::with_capacity(CHUNK);
        }
        if !text.is_empty() {
            log.append(&text);
            text.clear();
            text.shrink_to(2 * CHUNK);
        }
        if read == 0 {
            return;
        }
    }
}
