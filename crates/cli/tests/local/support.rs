//! A directory for each test, with a job file in it, and the binary that runs it.

#![expect(unreachable_pub, reason = "a test program exports nothing")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::example::Example;
use crate::common::status::LIMIT;

/// What a command left behind.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {:?}\nstdout:\n{}\nstderr:\n{}", self.code, self.stdout, self.stderr)
    }
}

/// A directory of a test's own.
pub struct Bench {
    directory: tempfile::TempDir,
    /// In the command line of every program of this test, so that it can be found among all processes.
    pub mark: String,
}

/// A job whose workers run a shell script.
pub fn job(name: &str, workers: i32, script: &str) -> String {
    let script: Vec<String> = script.lines().map(|line| format!("      {line}\n")).collect();
    let script = script.concat();
    format!(
        "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {{name: {name}}}\nspec:\n  framework: custom\n  image: none\n  numWorkers: {workers}\n  command:\n    - sh\n    - -c\n    - |\n{script}"
    )
}

impl Bench {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mark =
            format!("mark-{}", directory.path().file_name().unwrap().to_string_lossy().trim_matches('.'));
        Self { directory, mark }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file. `MARK` in it stands for this test's mark.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text.replace("MARK", &self.mark)).unwrap();
        path
    }

    /// The program of an example, below this directory as it is below `examples`.
    pub fn copy(&self, example: Example) {
        for (from, to) in example.files() {
            let to = self.path().join(to);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(from, to).unwrap();
        }
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_by(&[], arguments)
    }

    /// The command as another one starts it: `nohup trainyard run job.yaml`.
    fn command_by(&self, starter: &[&str], arguments: &[&str]) -> Command {
        let words = [starter, &[env!("CARGO_BIN_EXE_trainyard")], arguments].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(self.path()).env("HOME", self.path());
        command.env_remove("TRAINYARD_STATE").env_remove("KUBECONFIG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn start(&self, arguments: &[&str]) -> Running {
        self.start_by(&[], arguments)
    }

    pub fn run_by(&self, starter: &[&str], arguments: &[&str]) -> Ended {
        self.start_by(starter, arguments).wait()
    }

    pub fn start_by(&self, starter: &[&str], arguments: &[&str]) -> Running {
        let mut child = self.command_by(starter, arguments).spawn().unwrap();
        let out = copy(child.stdout.take().unwrap());
        let err = copy(child.stderr.take().unwrap());
        Running { child, out, err }
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).wait()
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let out = copy(child.stdout.take().unwrap());
        let err = copy(child.stderr.take().unwrap());
        Running { child, out, err }.wait()
    }

    /// Processes of this test's programs that are there now.
    pub fn processes(&self) -> Vec<i32> {
        alive().into_iter().filter(|pid| about(*pid, "cmdline").contains(&self.mark)).collect()
    }

    /// The program that has these variables, if it runs. Whoever started it has the same words; the program is the newest.
    pub fn program(&self, variables: &[&str]) -> Option<i32> {
        self.processes().into_iter().filter(|pid| has(*pid, variables)).max()
    }

    /// The program of that rank, once it runs.
    pub fn worker(&self, rank: i32) -> i32 {
        let variable = format!("RANK={rank}");
        until_there_is("a worker that runs", || self.program(&[&variable]))
    }

    /// The agent of that attempt, if it runs.
    pub fn agent(&self, attempt: i32) -> Option<i32> {
        let home = format!("HOME={}", self.path().display());
        let ending = format!("/{attempt}");
        let is_agent = |pid: &i32| {
            let words = about(*pid, "cmdline");
            let mut words = words.split('\0');
            words.any(|word| word == "agent")
                && words.any(|word| word.starts_with("--attempt=") && word.ends_with(&ending))
                && has(*pid, &[&home])
        };
        alive().into_iter().filter(is_agent).max()
    }

    pub fn nobody_is_left(&self) {
        until("all processes have ended", || self.processes().is_empty());
    }
}

/// What the system tells about a process; nothing if it is gone.
fn about(pid: i32, file: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn has(pid: i32, variables: &[&str]) -> bool {
    let environment = about(pid, "environ");
    variables.iter().all(|variable| environment.split('\0').any(|it| it == *variable))
}

/// All processes that have not ended.
fn alive() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| !about(*pid, "stat").rsplit(") ").next().is_some_and(|it| it.starts_with('Z')))
        .collect()
}

/// Sends a signal to that process alone; whether it was there.
fn signal(pid: i32, signal: &str) -> bool {
    // Anything else means a group, or everybody.
    assert!(pid > 1, "{pid} is no process of a test");
    Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success()
}

/// Kills a process that is there: a test whose victim has ended by itself tests nothing.
pub fn kill(pid: i32) {
    assert!(signal(pid, "-9"), "process {pid} had ended before it was killed");
}

/// A process that does nothing for as long as this lives.
pub struct Held(i32);

impl Held {
    pub fn new(pid: i32) -> Self {
        assert!(signal(pid, "-STOP"), "process {pid} had ended before it was held");
        Self(pid)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        signal(self.0, "-CONT");
    }
}

pub fn until(what: &str, wanted: impl Fn() -> bool) {
    until_there_is(what, || wanted().then_some(()));
}

/// What is asked for, as soon as there is one. It is not asked for twice: the second answer may be another.
pub fn until_there_is<T>(what: &str, wanted: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = wanted() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a command has written so far.
struct Copy {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Copy {
    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// All of it, once nobody can write any more.
    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.text()
    }
}

fn copy(mut from: impl Read + Send + 'static) -> Copy {
    let text = Arc::new(Mutex::new(String::new()));
    let copy = text.clone();
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            copy.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..length]));
        }
    });
    Copy { text, reader: Some(reader) }
}

/// A command that runs.
pub struct Running {
    child: Child,
    out: Copy,
    err: Copy,
}

impl Running {
    pub fn stdout(&self) -> String {
        self.out.text()
    }

    pub fn signal(&self, signal: &str) {
        let pid = i32::try_from(self.child.id()).unwrap();
        assert!(self::signal(pid, signal), "process {pid} had ended before it got {signal}");
    }

    /// Waits for a word in the output.
    pub fn until_it_says(&self, words: &str) {
        let start = Instant::now();
        while !self.stdout().contains(words) {
            let (out, err) = (self.stdout(), self.err.text());
            assert!(start.elapsed() < LIMIT, "it never said {words:?}:\n{out}\n{err}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn wait(mut self) -> Ended {
        let start = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            if start.elapsed() > LIMIT {
                let _ = self.child.kill();
                panic!("it never ended:\n{}\n{}", self.stdout(), self.err.text());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Ended { code, stdout: self.out.whole(), stderr: self.err.whole() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
