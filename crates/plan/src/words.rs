//! The last words of a program that failed: what its log says about why.
//!
//! Of several workers that fail together, most only complain that a peer is gone. The one that does not is the root.

use std::sync::LazyLock;

use regex_lite::Regex;

use crate::text;

/// The longest error line that is kept.
const LINE_MAX: usize = 300;

/// What the end of a log tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// The last line that tells of an error.
    pub(crate) error: Option<String>,
    /// The exit code of the child that failed, when a launcher (torchrun) tells of it: its own is always 1.
    pub(crate) child_code: Option<i32>,
    /// The program failed because another one was gone.
    pub(crate) blames_a_peer: bool,
}

impl Words {
    /// The code of the program; of a launcher that only passes on that a child failed, the child's.
    pub(crate) fn code(&self, code: i32) -> i32 {
        self.child_code.filter(|_| code == 1).unwrap_or(code)
    }
}

/// What a collective says when a peer is gone, whatever took the peer away.
const PEER_IS_GONE: [&str; 19] = [
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "socket timeout",
    "socket closed",
    "remote process exited or there was a network error",
    "ncclremoteerror",
    "ncclsystemerror",
    "nccl communicator was aborted",
    "watchdog caught collective operation timeout",
    "some nccl operations have failed or timed out",
    "timed out waiting",
    "rendezvousconnectionerror",
    "rendezvous timeout",
    "coordination service",
    "signals.sigterm",
    "received 15 death signal",
    "closed the connection",
];

/// Words by which a line tells of an error.
const ERRORS: [&str; 25] = [
    "error",
    "exception",
    "fatal",
    "panicked at",
    "killed",
    "core dumped",
    "assertion",
    "out of memory",
    "abort",
    // What systems and shells say, without any of these words.
    "permission denied",
    "access denied",
    "operation not permitted",
    "no space left on device",
    "disk quota exceeded",
    "read-only file system",
    "no such file or directory",
    "command not found",
    ": not found",
    "cannot allocate memory",
    "too many open files",
    "segmentation fault",
    "illegal instruction",
    "stack smashing",
    "terminate called",
    "undefined symbol",
];

static CHILD_CODE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    // torchrun: `exitcode  : 3 (pid: 17)` and `failed (exitcode: 17) local_rank: 0`.
    Regex::new(r"exitcode\s*:\s*(-?\d+)").ok()
});

/// Reads the end of a log.
pub(crate) fn read(tail: &str) -> Words {
    let lines: Vec<&str> = tail.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let child_code = child_code(&lines);
    // Below its own report, torchrun repeats what it was told; above it is what the child said.
    let report = lines.iter().position(|line| line.contains("ChildFailedError"));
    let said = report.map_or(&lines[..], |at| &lines[..at]);
    // Programs that say it in words of their own only say that a peer is gone.
    let complaint = || said.iter().rev().find(|line| blames(line)).copied();
    let error = error_line(said).or_else(|| error_line(&lines)).or_else(complaint);
    let blames_a_peer = error.is_some_and(blames);
    Words { error: error.map(|line| text::shortened(line, LINE_MAX)), child_code, blames_a_peer }
}

/// The root is told last in torchrun's report ("Root Cause (first observed failure)"); the first code is that of a log line.
fn child_code(lines: &[&str]) -> Option<i32> {
    let pattern = CHILD_CODE.as_ref()?;
    let code = |line: &&str| pattern.captures(line)?.get(1)?.as_str().parse::<i32>().ok();
    let root = lines.iter().position(|line| line.contains("Root Cause"));
    let in_root = root.and_then(|at| lines[at..].iter().find_map(code));
    in_root.or_else(|| lines.iter().find_map(code)).map(|code| if code < 0 { 128 - code } else { code })
}

/// The last line that looks like an error; a traceback's last line is one by its form (`ValueError: …`).
fn error_line<'l>(lines: &[&'l str]) -> Option<&'l str> {
    let tells = |line: &&&str| {
        let lower = line.to_ascii_lowercase();
        ERRORS.iter().any(|word| lower.contains(word)) && !is_frame(line)
    };
    lines.iter().rev().find(tells).copied()
}

/// A line of a traceback or a report that names an error without being it.
fn is_frame(line: &str) -> bool {
    line.starts_with("File \"")
        || line.starts_with("raise ")
        || line.starts_with("at ")
        || line.starts_with("error_file")
        || line.starts_with("traceback :")
        || line.starts_with('{')
        || line.contains("torch.distributed.elastic")
        // What NCCL tells of itself, up to its farewell ("Abort COMPLETE"), is no error. Its warnings may be.
        || line.contains("NCCL INFO")
}

/// Whether the end of this log only says that another program was gone.
pub fn blames_a_peer(tail: &str) -> bool {
    read(tail).blames_a_peer
}

fn blames(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    PEER_IS_GONE.iter().any(|words| lower.contains(words))
}

/// What is the same each time that the same thing goes wrong: the line without its numbers and addresses.
pub(crate) fn signature(error: &str) -> String {
    let mut signature = String::with_capacity(error.len());
    for word in error.split_whitespace() {
        if !word.contains(|letter: char| letter.is_ascii_digit()) {
            signature.push_str(word);
            signature.push(' ');
        }
    }
    signature
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_traceback() {
        let words = read(
            "epoch 3\nTraceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n    \
             raise ValueError('bad batch')\nValueError: bad batch\n",
        );
        assert_eq!(words.error.as_deref(), Some("ValueError: bad batch"));
        assert!(!words.blames_a_peer && words.child_code.is_none());
    }

    #[test]
    fn what_systems_and_shells_say_is_an_error_too() {
        for line in [
            "cp: cannot create regular file '/checkpoints/a': Permission denied",
            "An error occurred (AccessDenied) when calling the PutObject operation: Access Denied",
            "mount: Operation not permitted",
            "tee: /data/log: No space left on device",
            "write failed: Disk quota exceeded",
            "touch: cannot touch 'x': Read-only file system",
            "python: can't open file '/app/train.py': [Errno 2] No such file or directory",
            "bash: line 1: torchrun: command not found",
            "sh: 1: torchrun: not found",
            "fork: retry: Cannot allocate memory",
            "accept: Too many open files",
            "Segmentation fault",
            "Illegal instruction (core dumped)",
            "*** stack smashing detected ***: terminated",
            "terminate called after throwing an instance of 'c10::CudaMisaligned'",
            "python: symbol lookup: undefined symbol: ncclCommSplit",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
            "CUDA out of memory",
        ] {
            let words = read(&format!("epoch 3 loss 0.25\n{line}\nepoch 3 ended\n"));
            assert_eq!(words.error.as_deref(), Some(line));
            assert!(!words.blames_a_peer, "{line}");
        }
        for line in ["loading the files of the command", "3 files found, 0 not found.", "space left: 3 GB"] {
            assert_eq!(read(line).error, None, "{line}");
        }
    }

    #[test]
    fn torchrun_tells_the_real_code_and_the_child_the_real_error() {
        let words = read(
            "RuntimeError: the data is gone\n\
             ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 3) local_rank: 0 (pid: 17) of binary: python\n\
             torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n\
             ============\ntrain.py FAILED\nRoot Cause (first observed failure):\n[0]:\n  exitcode  : 3 (pid: 17)\n  error_file: <N/A>\n  traceback : To enable traceback see: errors.html\n",
        );
        assert_eq!(words.child_code, Some(3));
        assert_eq!(words.error.as_deref(), Some("RuntimeError: the data is gone"));
        let killed = read("failed (exitcode: -9) local_rank: 0 (pid: 4) of binary: python");
        assert_eq!(killed.child_code, Some(137), "a signal, as a shell tells it");
    }

    #[test]
    fn what_nccl_tells_of_itself_is_no_error() {
        let words = read(
            "node:17:17 [0] NCCL INFO NET/Plugin: dlerror=libnccl-net.so: cannot open: No such file or directory\n\
             ValueError: bad batch 17\n\
             node:17:42 [0] NCCL INFO comm 0x55d rank 0 nranks 2 cudaDev 0 busId 4b000 - Abort COMPLETE\n",
        );
        assert_eq!(words.error.as_deref(), Some("ValueError: bad batch 17"));
    }

    #[test]
    fn who_only_misses_a_peer_is_not_the_root() {
        for line in [
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:44412",
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, remote process exited or there was a network error",
            "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: coordination service agent: error",
            "BrokenPipeError: [Errno 32] Broken pipe",
            "rank 1: lost worker 0: it closed the connection; ending after step 76",
        ] {
            assert!(read(line).blames_a_peer, "{line}");
        }
        let first = read("KeyError: 'labels'\nworker 0 closed the connection\n");
        assert_eq!(first.error.as_deref(), Some("KeyError: 'labels'"), "an error comes before a complaint");
        assert!(!read("ValueError: the connection of layers is wrong").blames_a_peer);
        assert_eq!(read("{\"loss\": 0.1}\nall is well\n"), Words::default());
    }

    #[test]
    fn numbers_do_not_make_another_cause() {
        let one = "CUDA error at step 17: out of memory (tried to allocate 20.5 GiB)";
        let two = "CUDA error at step 99: out of memory (tried to allocate 21.0 GiB)";
        assert_eq!(signature(one), signature(two));
        assert_ne!(signature(one), signature("KeyError: 'labels'"));
    }
}
