//! The last words of a program that failed: what its log says about why.
//!
//! Of several workers that fail together, most only complain that a peer is gone. The one that does not is the root.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_lite::{Captures, Regex};
use trainyard_progress::Lines;

use crate::text;

/// The longest error line that is kept.
const LINE_MAX: usize = 300;

/// What the end of a log tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// The last line that tells of an error.
    pub(crate) error: Option<String>,
    /// What it said last, if no line tells of an error: `sys.exit("give me data")` prints just that.
    pub(crate) last: Option<String>,
    /// The exit code of the child that failed, when a launcher (torchrun) tells of it: its own is always 1.
    pub(crate) child_code: Option<i32>,
    /// The program failed because another one was gone.
    pub(crate) blames_a_peer: bool,
    /// That is what a collective says. Otherwise it may have lost something else: a database, for example.
    pub(crate) is_of_collective: bool,
}

impl Words {
    /// The code of the program; of a launcher that only passes on that a child failed, the child's.
    pub(crate) fn code(&self, code: i32) -> i32 {
        self.child_code.filter(|_| code == 1).unwrap_or(code)
    }
}

/// What a collective says when a peer is gone, whatever took the peer away.
const PEER_IS_GONE: &[&str] = &[
    "connection closed by peer",
    "connection closed by remote peer",
    "connection reset by peer",
    "connection was likely closed",
    "failed to recv, got 0 bytes",
    "client socket has timed out",
    "the client socket has failed to connect",
    "failed to connect to all addresses",
    "heartbeat timeout",
    "barrier timed out",
    "collective ops is aborted",
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
    "lost communication with a remote daemon",
    "coordination service",
    "signals.sigterm",
    "received 15 death signal",
    "closed the connection",
];

/// Of these, some are about services, which nobody in the job is.
const OF_SERVICES: [&str; 2] = ["connection refused", "timed out waiting"];

/// Unless a collective, or a peer, is named.
const COLLECTIVES: [&str; 19] = [
    "jax",
    "grpc",
    "failed to connect to all addresses",
    "gloo",
    "nccl",
    "c10d",
    "torch",
    "tcpstore",
    "rendezvous",
    "barrier",
    "collective",
    "coordination",
    "rabit",
    "horovod",
    "xla",
    "worker",
    "rank",
    "master",
    "peer",
];

/// Above errors that do not end a Python program: those of its threads, of objects that go, of what is done at its exit.
const BESIDE: [&str; 3] = ["Exception in thread ", "Exception ignored in", "Error in atexit._run_exitfuncs"];

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

static METRIC: LazyLock<Option<Regex>> = LazyLock::new(|| {
    // XGBoost: `train-error:0.04`, LightGBM: `train's binary_error: 0.2`, Keras: `mean_absolute_error: 1.2e-3`, `errors: 0`.
    Regex::new(
        r#"([a-z0-9_'-]*error)(s?)["']?\s*[:=]\s*["']?([-+]?\d[\d.]*(?:e[-+]?\d+)?)(?:[\s,;|)\]}"']|$)"#,
    )
    .ok()
});

/// Reads the end of a log.
pub(crate) fn read(tail: &str) -> Words {
    let tail = plain(tail);
    let lines: Vec<&str> = tail.lines().map(|line| without_rank(line.trim_end())).collect();
    let main = without_asides(&lines);
    let words = understood(&main);
    if words.error.is_some() || main.len() == lines.len() { words } else { understood(&lines) }
}

/// Without what is said of errors that do not end the program.
fn without_asides<'l>(lines: &[&'l str]) -> Vec<&'l str> {
    let goes_on = ["During handling of the above exception", "The above exception was the direct cause"];
    let (mut kept, mut aside, mut ended) = (Vec::with_capacity(lines.len()), false, false);
    for line in lines {
        let begins = |starts: &[&str]| starts.iter().any(|start| line.starts_with(start));
        let is_empty = line.trim().is_empty();
        if begins(&BESIDE) {
            (aside, ended) = (true, false);
        } else if aside && ended {
            // Another one that it led to belongs to it.
            aside = is_empty || begins(&goes_on);
            ended = is_empty;
        } else if aside {
            ended = !is_empty && !line.starts_with(' ') && !line.starts_with("Traceback ");
        }
        // Weights & Biases tells of itself when its program has failed.
        if !aside && !line.starts_with("wandb: ") {
            kept.push(*line);
        }
    }
    kept
}

fn understood(lines: &[&str]) -> Words {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    let child_code = child_code(&lines);
    // Below its own report, torchrun repeats what it was told; above it is what its children said.
    let report = lines.iter().position(|line| line.contains("ChildFailedError"));
    let said = report.map_or(&lines[..], |at| &lines[..at]);
    let last = |tells: fn(&str) -> bool| said.iter().rev().find(|line| tells(line)).copied();
    let own = |line: &str| is_exception(line) && !blames(line);
    // Nobody who only lost a peer ends like this: it was another process of the same log that complained.
    let is_root = report.is_some() && child_code.is_some_and(|code| ![1, 134, 143].contains(&code));
    let error = match error_line(said) {
        // Several processes speak in one log: those that lost the one which failed complain after it.
        Some(complaint) if report.is_some() && blames(complaint) => {
            last(own).or(Some(complaint).filter(|_| !is_root))
        }
        error => error.or_else(|| error_line(&lines)),
    };
    // Programs that say it in words of their own only say that a peer is gone.
    let error = error.or_else(|| last(blames).filter(|_| !is_root)).or_else(|| last(is_aftermath));
    let blames_a_peer = error.is_some_and(blames);
    // How far it was is told elsewhere.
    let last = said.last().filter(|line| error.is_none() && !line.starts_with('{') && !line.contains("%|"));
    Words {
        error: error.map(|line| text::shortened(line, LINE_MAX)),
        last: last.map(|line| text::shortened(line, LINE_MAX)),
        child_code,
        blames_a_peer,
        is_of_collective: blames_a_peer && error.is_some_and(is_of_collective),
    }
}

/// As lines that end as such, without what is meant for terminals.
fn plain(tail: &str) -> Cow<'_, str> {
    if !tail.contains(|letter: char| letter.is_control() && !matches!(letter, '\n' | '\t')) {
        return Cow::Borrowed(tail);
    }
    let mut text = String::with_capacity(tail.len());
    let mut add = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    let mut lines = Lines::default();
    lines.push(tail.as_bytes(), &mut add);
    lines.finish(&mut add);
    Cow::Owned(text)
}

/// PyTorch and torchrun put the rank that speaks before its lines: `[rank1]: ValueError`, `[default0]:ValueError`.
fn without_rank(line: &str) -> &str {
    let inside = ["[rank", "[default"].into_iter().find_map(|start| line.strip_prefix(start));
    let rest = inside.map(|inside| inside.trim_start_matches(|digit: char| digit.is_ascii_digit()));
    let said = rest.and_then(|rest| rest.strip_prefix("]:"));
    // What is indented stays so.
    said.map_or(line, |said| said.strip_prefix(' ').unwrap_or(said))
}

/// The last line of a Python traceback: `ValueError: bad batch`, `torch.OutOfMemoryError: CUDA out of memory`.
fn is_exception(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.');
    name.chars().all(is_name) && ["Error", "Exception", "Interrupt"].iter().any(|end| name.ends_with(end))
}

/// The root is told last in torchrun's report ("Root Cause (first observed failure)"); the first code is that of a log line.
fn child_code(lines: &[&str]) -> Option<i32> {
    let pattern = CHILD_CODE.as_ref()?;
    let code = |line: &&str| {
        // Nearly every line is no such line, and that is seen sooner without the pattern.
        let code =
            line.contains("exitcode").then(|| pattern.captures(line))??.get(1)?.as_str().parse::<i32>().ok();
        // Whoever ended well is not why this one failed.
        code.filter(|code| *code != 0)
    };
    let root = lines.iter().position(|line| line.contains("Root Cause"));
    let in_root = root.and_then(|at| lines[at..].iter().find_map(code));
    in_root.or_else(|| lines.iter().find_map(code)).map(|code| if code < 0 { 128 - code } else { code })
}

/// The last line that looks like an error; a traceback's last line is one by its form (`ValueError: …`).
fn error_line<'l>(lines: &[&'l str]) -> Option<&'l str> {
    let tells = |at: &usize| {
        let line = lines[*at];
        // NCCL gives its reason in a line of its own.
        let is_reason = *at > 0 && lines[*at - 1].ends_with(NCCL_REASON);
        let told = without_metrics(line).to_ascii_lowercase();
        let is_error = is_reason || ERRORS.iter().any(|word| told.contains(word));
        is_error && !is_frame(line) && !is_aftermath(line)
    };
    (0..lines.len()).rev().find(tells).map(|at| lines[at])
}

/// What is above NCCL's reason for an error.
const NCCL_REASON: &str = "Last error:";

/// What a program is evaluated by may be called an error, too, and is none.
fn without_metrics(line: &str) -> Cow<'_, str> {
    let Some(pattern) = METRIC.as_ref().filter(|_| line.contains("error")) else {
        return Cow::Borrowed(line);
    };
    pattern.replace_all(line, |found: &Captures<'_>| {
        let part = |group: usize| found.get(group).map(|part| part.as_str()).unwrap_or_default();
        let (name, many, value) = (part(1), part(2), part(3));
        let is_metric = !many.is_empty() || name != "error" || value.contains(['.', 'e']);
        if is_metric { String::new() } else { part(0).to_owned() }
    })
}

/// A line of a traceback or a report that names an error without being it.
fn is_frame(line: &str) -> bool {
    let starts = [
        "File \"",
        "raise ",
        "at ",
        "error_file",
        "traceback :",
        "{",
        // The stack of an exception in C++, above and below its frames.
        "Exception raised from ",
        "frame #",
        "Extension modules:",
    ];
    starts.iter().any(|start| line.starts_with(start))
        || line.contains("torch.distributed.elastic")
        // What NCCL tells of itself, up to its farewell ("Abort COMPLETE"), is no error. Its warnings may be.
        || line.contains("NCCL INFO")
}

/// What follows from an error that was told before it, and is said of every program that ends so.
fn is_aftermath(line: &str) -> bool {
    line.ends_with(NCCL_REASON)
        || line.starts_with("Fatal Python error: Aborted")
        || line.starts_with("Aborted")
        || line.starts_with("terminate called without an active exception")
        || line.contains("we are taking the entire process down")
}

/// Whether the end of this log only says that another program was gone.
pub fn blames_a_peer(tail: &str) -> bool {
    read(tail).blames_a_peer
}

fn blames(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    PEER_IS_GONE.iter().any(|words| lower.contains(words))
}

fn is_of_collective(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|words| lower.contains(words));
    !has(&OF_SERVICES) || has(&COLLECTIVES)
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
        let loader = read("loader 2 ended, exitcode: 0\nValueError: bad batch");
        assert_eq!(loader.child_code, None, "who ended well is not why this failed");
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
        let nothing = Words { last: Some("all is well".into()), ..Words::default() };
        assert_eq!(read("{\"loss\": 0.1}\nall is well\n"), nothing);
        assert_eq!(read("all is well\n{\"loss\": 0.1}\n"), Words::default(), "how far it is says nothing");
    }

    #[test]
    fn the_many_lines_of_nccl_are_one_error() {
        let lost = read(
            "[rank1]: Traceback (most recent call last):\n\
             [rank1]:   File \"/app/train.py\", line 40, in <module>\n\
             [rank1]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2251, unhandled system error, NCCL version 2.19.3\n\
             [rank1]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n\
             [rank1]: Last error:\n\
             [rank1]: socketProgressOpt: Call to recv from 10.0.0.7<42345> failed : Connection reset by peer\n",
        );
        assert!(lost.blames_a_peer, "{lost:?}");
        let alone = read(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled system error, NCCL version 2.19.3\n\
             ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n\
             Last error:\nError while creating shared memory segment /dev/shm/nccl-OiQTc0 (size 9637888)\n",
        );
        let reason = "Error while creating shared memory segment /dev/shm/nccl-OiQTc0 (size 9637888)";
        assert_eq!(alone.error.as_deref(), Some(reason), "{alone:?}");
        assert!(!alone.blames_a_peer);
    }

    #[test]
    fn what_aborts_says_why_above_its_stack() {
        let watchdog = "[E ProcessGroupNCCL.cpp:523] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2) ran for 600123 milliseconds before timing out.\n\
             [E ProcessGroupNCCL.cpp:543] To avoid data inconsistency, we are taking the entire process down.\n\
             terminate called after throwing an instance of 'c10::DistBackendError'\n\
             \x20 what():  [Rank 0] NCCL watchdog thread terminated with exception: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2)\n\
             Exception raised from checkTimeout at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:525 (most recent call first):\n\
             frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f)\n\
             frame #1: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x18f (0x7f)\n\n\
             Fatal Python error: Aborted\n\nThread 0x00007f (most recent call first):\n  File \"a.py\", line 3 in wait\n\
             Extension modules: numpy.core._multiarray_umath, torch._C, torch._C._error (total: 2)\n";
        assert!(read(watchdog).blames_a_peer, "{:?}", read(watchdog));
        let alone =
            read("epoch 3\nFatal Python error: Aborted\n\nThread 0x00007f (most recent call first):\n");
        assert_eq!(alone.error.as_deref(), Some("Fatal Python error: Aborted"), "better than nothing");
        let first = read("KeyError: 'labels'\nFatal Python error: Aborted\nAborted (core dumped)\n");
        assert_eq!(first.error.as_deref(), Some("KeyError: 'labels'"));
    }

    #[test]
    fn what_a_model_is_evaluated_by_is_no_error() {
        for line in [
            "[1]\ttrain's binary_logloss: 0.659898\ttrain's binary_error: 0.2255",
            "[19:33:19] [0]\ttrain-error:0.04\teval-error:0.05",
            "90/90 - 1s - 17ms/step - mean_absolute_error: 1.2e-3 - val_mean_absolute_error: 0.4",
            "epoch 3 error=0.25, lr=0.1",
            "12 files read, errors: 0",
        ] {
            assert_eq!(read(line).error, None, "{line}");
        }
        for line in
            ["CUDA error: 2", "ValueError: 0.5", "error: 3 files are missing", "train_error: no labels"]
        {
            assert_eq!(read(line).error.as_deref(), Some(line));
        }
    }

    #[test]
    fn of_several_processes_in_one_log_the_one_that_failed_is_heard() {
        let words = read(
            "[rank0]: KeyError: 'labels'\n\
             [rank1]: RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:44412\n\
             ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 17) of binary: python\n\
             torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n\
             Failures:\n[1]:\n  exitcode  : 1 (pid: 18)\nRoot Cause (first observed failure):\n[0]:\n  exitcode  : 1 (pid: 17)\n",
        );
        assert_eq!(words.error.as_deref(), Some("KeyError: 'labels'"));
        assert!(!words.blames_a_peer);
    }

    #[test]
    fn a_child_that_died_without_a_word_is_not_taken_for_a_victim() {
        let log = |code: i32| {
            format!(
                "[rank3]: RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:44412\n\
                 ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: {code}) local_rank: 0 (pid: 17) of binary: python\n\
                 torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n\
                 Failures:\n[1]:\n  exitcode  : 1 (pid: 18)\nRoot Cause (first observed failure):\n[0]:\n  exitcode  : {code} (pid: 17)\n"
            )
        };
        for (code, told) in [(17, 17), (-9, 137), (-11, 139)] {
            let words = read(&log(code));
            assert_eq!((words.child_code, words.blames_a_peer), (Some(told), false), "{words:?}");
            assert!(words.error.is_none_or(|error| !blames(&error)), "{code}");
        }
        for code in [1, -6, -15] {
            assert!(read(&log(code)).blames_a_peer, "{code}: so ends who only lost a peer, too");
        }
    }

    #[test]
    fn what_is_said_beside_the_end_of_a_program_is_not_why_it_ended() {
        let end = "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n    step()\nValueError: bad batch\n";
        for noise in [
            "Exception in thread Thread-3 (_pin_memory_loop):\nTraceback (most recent call last):\n  File \"t.py\", line 3, in run\n    \
             fd = df.detach()\nConnectionResetError: [Errno 104] Connection reset by peer\n",
            "Exception ignored in: <function Loader.__del__ at 0x7f>\nTraceback (most recent call last):\n  File \"l.py\", line 4, in __del__\n\
             BrokenPipeError: [Errno 32] Broken pipe\n",
            "Error in atexit._run_exitfuncs:\nTraceback (most recent call last):\n  File \"a.py\", line 1, in close\nOSError: gone\n\n\
             During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  \
             File \"a.py\", line 9, in close\nRuntimeError: cannot close\n",
            "terminate called without an active exception\nAborted (core dumped)\n",
            "wandb: ERROR The run could not be finished\n",
        ] {
            let words = read(&format!("{end}{noise}"));
            assert_eq!(
                (words.error.as_deref(), words.blames_a_peer),
                (Some("ValueError: bad batch"), false),
                "{noise}"
            );
            let lines: Vec<String> =
                format!("{end}{noise}").lines().map(|line| format!("[rank1]: {line}")).collect();
            let of_rank = lines.join("\n");
            assert_eq!(read(&of_rank).error.as_deref(), Some("ValueError: bad batch"), "{of_rank}");
            let before = read(&format!("{noise}{end}"));
            assert_eq!(before.error.as_deref(), Some("ValueError: bad batch"), "{noise}");
            assert!(read(noise).error.is_some(), "better than nothing: {noise}");
        }
    }

    #[test]
    fn what_was_lost_may_be_something_else_than_a_peer() {
        let service =
            read("RuntimeError: mlflow server 10.0.0.7 cannot be reached: [Errno 111] Connection refused");
        assert!(service.blames_a_peer && !service.is_of_collective);
        let peer = read(
            "RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection reset by peer [127.0.0.1]:44412",
        );
        assert!(peer.blames_a_peer && peer.is_of_collective);
    }

    #[test]
    fn a_progress_bar_hides_no_error() {
        let words = read(
            " 13%|#  | 13/100\r 14%|#  | 14/100\r\u{1b}[31mValueError: bad batch\u{1b}[0m\r 14%|#  | 14/100",
        );
        assert_eq!(words.error.as_deref(), Some("ValueError: bad batch"));
    }

    #[test]
    fn numbers_do_not_make_another_cause() {
        let one = "CUDA error at step 17: out of memory (tried to allocate 20.5 GiB)";
        let two = "CUDA error at step 99: out of memory (tried to allocate 21.0 GiB)";
        assert_eq!(signature(one), signature(two));
        assert_ne!(signature(one), signature("KeyError: 'labels'"));
    }
}
