//! The agent as a process: signals, other users, full disks.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support {
    pub(crate) mod files;
}

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use support::files;
use trainyard_agent::store::Directory;
use trainyard_agent::{Agent, Layout, Options, Resume};
use trainyard_api::checkpoint::AgentReport;

/// Not a test but the process of the others: it runs only when it is told where.
#[test]
fn agent_process() {
    let Ok(directory) = std::env::var("AGENT_PROCESS_DIRECTORY") else { return };
    let keep_last = std::env::var("AGENT_PROCESS_KEEP_LAST").ok().and_then(|text| text.parse().ok());
    let options = Options {
        layouts: Layout::ALL.to_vec(),
        keep_last: keep_last.unwrap_or_default(),
        resumed_from: std::env::var("AGENT_PROCESS_RESUMED_FROM").ok(),
        resume: Resume::Auto,
        ready_file: None,
        attempt: None,
    };
    let agent = Agent::new(Box::new(Directory::new(&directory)), options);
    // So long that only the first look and the last happen.
    trainyard_agent::run::run(agent, Duration::from_hours(1), &mut std::io::stdout()).unwrap();
}

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// `before` is a command that runs the rest, such as setpriv.
    fn start(directory: &Path, before: &[&str]) -> Self {
        let this = std::env::current_exe().unwrap();
        let mut words: Vec<&str> = before.to_vec();
        words.extend([this.to_str().unwrap(), "--exact", "agent_process", "--nocapture"]);
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .env("AGENT_PROCESS_DIRECTORY", directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next report. What the test program itself prints is passed over, even on the same line.
    fn report(&mut self) -> Option<AgentReport> {
        self.lines.find_map(|line| {
            let line = line.unwrap();
            line.find('{').and_then(|at| AgentReport::of_line(&line[at..]))
        })
    }

    fn terminate(&self) {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

#[test]
fn what_is_saved_in_the_last_moment_is_reported() {
    let disk = tempfile::tempdir().unwrap();
    let mut process = Process::start(disk.path(), &["env"]);
    assert_eq!(process.report(), Some(AgentReport::default()));
    fs::write(disk.path().join("step-1.pt"), files::torch(&[])).unwrap();
    process.terminate();
    let report = process.report().unwrap();
    assert_eq!(report.checkpoint.unwrap().step, Some(1));
    assert!(process.child.wait().unwrap().success());
}

/// Whether a command works here at all; says so if not.
fn works(words: &[&str]) -> bool {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let is_fine = output.is_ok_and(|output| output.status.success());
    if !is_fine {
        println!("skipped: `{}` does not work here", words.join(" "));
    }
    is_fine
}

#[test]
fn another_users_files_are_told() {
    let this = std::env::current_exe().unwrap();
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    if !works(&[&nobody[..], &[this.to_str().unwrap(), "--list"]].concat()) {
        return;
    }
    let disk = tempfile::tempdir().unwrap();
    fs::set_permissions(disk.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(disk.path().join("step-1.pt"), files::torch(&[])).unwrap();
    fs::set_permissions(disk.path().join("step-1.pt"), fs::Permissions::from_mode(0o600)).unwrap();
    // Partial, but in a directory in which this user may change nothing.
    fs::write(disk.path().join("step-2.pt"), "PK").unwrap();
    let words = ["step-1.pt", "step-2.pt is partial", "cannot be moved aside", "securityContext.fsGroup"];
    assert_told(disk.path(), &nobody, &words);
    // Nothing is moved at all where something cannot be looked into.
    fs::create_dir(disk.path().join("checkpoint-5")).unwrap();
    fs::set_permissions(disk.path().join("checkpoint-5"), fs::Permissions::from_mode(0o700)).unwrap();
    let words = ["step-1.pt", "checkpoint-5", "cannot be listed as a whole", "securityContext.fsGroup"];
    assert_told(disk.path(), &nobody, &words);
    assert!(disk.path().join("step-2.pt").exists());
}

#[track_caller]
fn assert_told(directory: &Path, before: &[&str], words: &[&str]) {
    let mut process = Process::start(directory, before);
    let report = process.report().unwrap();
    process.terminate();
    assert!(process.child.wait().unwrap().success());
    let problem = report.problem.unwrap();
    for words in words {
        assert!(problem.contains(words), "{words}: {problem}");
    }
}

/// What an agent reports that is started by these words, where they work.
fn report_after(directory: &Path, before: &[&str]) -> Option<AgentReport> {
    if !works(&[before, &["true"]].concat()) {
        return None;
    }
    let mut process = Process::start(directory, before);
    let report = process.report().unwrap();
    process.terminate();
    assert!(process.child.wait().unwrap().success());
    Some(report)
}

#[test]
fn a_full_disk_is_told() {
    let disk = tempfile::tempdir().unwrap();
    let namespace = ["unshare", "--user", "--map-root-user", "--mount"];
    let path = disk.path().to_str().unwrap();
    // Full of files: there is none left for a directory.
    let script = "mount -t tmpfs -o nr_inodes=3 tmpfs \"$0\" && printf PK > \"$0/step-1.pt\" && touch \"$0/notes\" && exec \"$@\"";
    let before = [&namespace[..], &["sh", "-c", script, path]].concat();
    let Some(report) = report_after(disk.path(), &before) else { return };
    let problem = report.problem.unwrap();
    assert!(problem.contains("no space left") && problem.contains("checkpoint.keepLast"), "{problem}");
}

#[test]
fn a_disk_that_a_checkpoint_has_filled_is_told() {
    let disk = tempfile::tempdir().unwrap();
    let path = disk.path().to_str().unwrap();
    let whole = tempfile::NamedTempFile::new().unwrap();
    fs::write(whole.path(), files::torch(&[])).unwrap();
    // The second one does not fit any more, as torch.save leaves it; a few bytes of the agent's own do.
    let script = "mount -t tmpfs -o size=512k tmpfs \"$0\" && cp \"$1\" \"$0/step-1.pt\" && mkdir \"$0/.trainyard\" && \
                  head -c 100 \"$1\" > \"$0/step-2.pt\" && head -c 470k /dev/zero >> \"$0/step-2.pt\" && \
                  shift && export AGENT_PROCESS_RESUMED_FROM=\"$0/step-1.pt\" && exec \"$@\"";
    let namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, path];
    let before = [&namespace[..], &[whole.path().to_str().unwrap()]].concat();
    let Some(report) = report_after(disk.path(), &before) else { return };
    assert!(report.checkpoint.unwrap().path.ends_with("step-1.pt"));
    let problem = report.problem.unwrap();
    let words = "is full: less than 64 KiB of 512 KiB is left; make the volume larger, empty .trainyard/quarantine in it, or \
                 keep fewer checkpoints (checkpoint.keepLast)";
    assert!(problem.contains(words), "{problem}");
}

#[test]
fn a_full_disk_is_freed_of_old_checkpoints() {
    let disk = tempfile::tempdir().unwrap();
    let path = disk.path().to_str().unwrap();
    let whole = tempfile::NamedTempFile::new().unwrap();
    fs::write(whole.path(), files::torch(&[])).unwrap();
    // Full of files and directories: there is none left for the trash. What is left is listed in the end.
    let script = "mount -t tmpfs -o nr_inodes=8 tmpfs \"$0\" && mkdir \"$0/step-1\" && cp \"$1\" \"$0/step-1/model.pt\" && \
                  cp -r \"$0/step-1\" \"$0/step-2\" && cp -r \"$0/step-1\" \"$0/step-3\" && touch \"$0/notes\" && \
                  touch -d '1 hour ago' \"$0\"/step-*/model.pt && shift && \
                  export AGENT_PROCESS_KEEP_LAST=1 AGENT_PROCESS_RESUMED_FROM=\"$0/step-3\" && \
                  \"$@\"; echo left: $(ls \"$0\")";
    let namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, path];
    let before = [&namespace[..], &[whole.path().to_str().unwrap()]].concat();
    if !works(&[&before[..], &["true"]].concat()) {
        return;
    }
    // The agent itself is asked to end, since the shell is not; its second look is right after the first.
    let timeout = ["timeout", "--signal=TERM", "3"];
    let mut process = Process::start(disk.path(), &[&before[..], &timeout[..]].concat());
    let left = process.lines.find_map(|line| line.unwrap().strip_prefix("left: ").map(str::to_owned));
    process.child.wait().unwrap();
    assert_eq!(left.as_deref(), Some("notes step-3"));
}

#[test]
fn a_pipe_does_not_stop_the_agent() {
    let disk = tempfile::tempdir().unwrap();
    if !works(&["mkfifo", disk.path().join("step-1.pt").to_str().unwrap()]) {
        return;
    }
    let mut process = Process::start(disk.path(), &["env"]);
    assert_eq!(process.report(), Some(AgentReport::default()));
    process.terminate();
    assert!(process.child.wait().unwrap().success());
}
