//! What goes wrong on one machine: each gets a clear message, and nothing is lost or left behind.

use crate::support::{Bench, job, until};

#[test]
fn an_interrupted_run_goes_on_from_its_checkpoints() {
    let bench = Bench::new();
    let script = r"
n=$(cat $CHECKPOINT_DIR/n 2>/dev/null || echo 0)
trap 'echo saved at $n; exit 143' TERM
echo MARK starts at $n
while test $n -lt 40; do
  n=$((n + 1)); echo $n > $CHECKPOINT_DIR/n.new && mv $CHECKPOINT_DIR/n.new $CHECKPOINT_DIR/n
  test -e $CHECKPOINT_DIR/quick || { sleep 0.1; }
done
echo done at $n";
    let text = job("bert", 1, script) + "  checkpoint: {storage: {size: 1Mi}}\n";
    bench.write("job.yaml", &text);
    let first = bench.start(&["run", "job.yaml"]);
    first.until_it_says("starts at 0");
    let checkpoints = bench.path().join(".trainyard/job.yaml/node/claims/default/bert-checkpoints");
    let count = || std::fs::read_to_string(checkpoints.join("n")).ok()?.trim().parse::<u32>().ok();
    until("some work", || count() >= Some(3));
    first.signal("-INT");
    let ended = first.wait();
    assert_eq!(ended.code, Some(130), "{ended}");
    assert!(ended.stdout.contains("stopping the workers"), "{ended}");
    assert!(ended.stdout.contains("bert: stopping: 1 worker has 30 s left to save"), "{ended}");
    assert!(ended.stdout.contains("[0] saved at "), "what the worker said when it was asked to end: {ended}");
    assert!(ended.stdout.contains("bert: stopped"), "{ended}");
    bench.nobody_is_left();
    let saved = count().unwrap();

    std::fs::write(checkpoints.join("quick"), "").unwrap();
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout.contains(&format!("starts at {saved}")), "it went on from {saved}: {ended}");
    assert!(ended.stdout.contains("done at 40"), "{ended}");
}

#[test]
fn a_second_interrupt_stops_a_worker_that_ignores_the_first() {
    let bench = Bench::new();
    bench.write(
        "job.yaml",
        &job("bert", 2, "trap '' TERM INT\necho MARK is stubborn\nwhile :; do sleep 1; done"),
    );
    let run = bench.start(&["run", "job.yaml"]);
    run.until_it_says("is stubborn");
    run.signal("-INT");
    run.until_it_says("once more to stop them at once");
    run.signal("-INT");
    let ended = run.wait();
    assert_eq!(ended.code, Some(130), "{ended}");
    bench.nobody_is_left();
}

const SAVES: &str = "trap 'echo saved > saved; echo saved; exit 143' TERM\necho MARK runs\nwhile test ! -e go; do sleep 0.05; done";

#[test]
fn a_hang_up_stops_the_workers_in_order() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 1, SAVES));
    // Whoever runs the tests may be under nohup.
    let run = bench.start_by(&["env", "--default-signal=HUP"], &["run", "job.yaml"]);
    run.until_it_says("runs");
    run.signal("-HUP");
    let ended = run.wait();
    assert_eq!(ended.code, Some(129), "{ended}");
    assert!(ended.stdout.contains("[0] saved") && ended.stdout.contains("bert: stopped"), "{ended}");
    bench.nobody_is_left();
}

#[test]
fn a_terminal_that_goes_away_leaves_time_to_save() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 1, SAVES));
    // The terminal is this program's, and goes away while the job runs.
    bench.write(
        "terminal.py",
        "import os, pty, sys\npid, terminal = pty.fork()\nif pid == 0:\n    os.execv(sys.argv[1], sys.argv[1:])\n\
         seen = b''\nwhile b' runs' not in seen:\n    seen += os.read(terminal, 4096)\nos.close(terminal)\n\
         sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n",
    );
    let ended = bench.run_by(
        &["env", "--default-signal=HUP", "python3", "terminal.py"],
        &["run", "job.yaml", "--log-level", "debug"],
    );
    assert_eq!(ended.code, Some(129), "{ended}");
    assert!(bench.path().join("saved").exists(), "{ended}");
    bench.nobody_is_left();
}

#[test]
fn a_problem_with_checkpoints_is_told_while_the_job_goes_on() {
    let bench = Bench::new();
    let script = "echo runs\nyes garbage | head -c 999 > $CHECKPOINT_DIR/step-1.pt\nwhile test ! -e go; do sleep 0.05; done";
    bench.write("job.yaml", &(job("bert", 1, script) + "  checkpoint: {storage: {size: 1Mi}}\n"));
    let run = bench.start(&["run", "job.yaml"]);
    run.until_it_says("bert: checkpoints: ");
    std::fs::write(bench.path().join("go"), "").unwrap();
    let ended = run.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(ended.stdout.matches("bert: checkpoints: ").count(), 1, "{ended}");
}

#[test]
fn nohup_lets_a_job_go_on() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 1, SAVES));
    let run = bench.start_by(&["nohup"], &["run", "job.yaml"]);
    run.until_it_says("runs");
    run.signal("-HUP");
    std::fs::write(bench.path().join("go"), "").unwrap();
    let ended = run.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(!bench.path().join("saved").exists(), "{ended}");
}

#[test]
fn nothing_survives_when_trainyard_is_killed() {
    let bench = Bench::new();
    // Children in sessions of their own, too.
    bench.write(
        "job.yaml",
        &job("bert", 2, "setsid sh -c 'sleep 999; echo MARK' &\necho MARK runs\nsleep 1000"),
    );
    let run = bench.start(&["run", "job.yaml"]);
    run.until_it_says("runs");
    assert!(!bench.processes().is_empty());
    run.signal("-KILL");
    run.wait();
    bench.nobody_is_left();
    // And the next start is not disturbed by what the last one left on disk.
    bench.write("job.yaml", &job("bert", 1, "echo fine"));
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
}

#[test]
fn a_job_that_cannot_start_says_why_and_ends() {
    let bench = Bench::new();
    for (more, words) in [
        ("  resources: {requests: {cpu: 9999}}\n", "Insufficient cpu"),
        ("  gpusPerWorker: 8\n", "Insufficient nvidia.com/gpu"),
        ("  dataVolume: {claimName: nowhere}\n", "persistentvolumeclaim \"nowhere\" not found"),
    ] {
        bench.write("job.yaml", &(job("bert", 1, "echo MARK") + more));
        let ended = bench.run(&["run", "job.yaml"]);
        assert_eq!(ended.code, Some(3), "{more}{ended}");
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let bench = Bench::new();
    let text = job("bert", 1, "").replace("    - sh\n    - -c\n    - |\n", "    - no-such-program\n");
    bench.write("job.yaml", &(text + "  backoffLimit: 0\n"));
    let ended = bench.run(&["run", "job.yaml"]);
    assert!(ended.code == Some(1) || ended.code == Some(3), "{ended}");
    assert!(ended.stdout.contains("no-such-program"), "{ended}");

    let without = job("bert", 1, "").replace("  command:\n    - sh\n    - -c\n    - |\n", "");
    bench.write("job.yaml", &without);
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(3), "{ended}");
    assert!(ended.stdout.contains("command"), "it says what is missing: {ended}");
}

#[test]
fn a_bad_file_is_told_with_its_line() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 1, "echo MARK").replace("  image: none\n", "  imag: none\n"));
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(2), "{ended}");
    assert!(ended.stderr.contains("job.yaml:6: spec.imag: unknown field; did you mean image?"), "{ended}");
    bench.write("job.yaml", "a: [1\n");
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(2), "{ended}");
    assert!(ended.stderr.contains("this is not YAML"), "{ended}");
    assert_eq!(bench.run(&["run", "nowhere.yaml"]).code, Some(2));
    assert!(!bench.path().join(".trainyard").exists(), "nothing was started");
}

#[test]
fn other_objects_that_are_wrong_are_told_with_their_lines() {
    let bench = Bench::new();
    let text = job("bert", 1, "echo MARK")
        + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\ndata: {a: 5}\n\
           ---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: e}\nspec: {accessModes: []}\n";
    bench.write("job.yaml", &text);
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(2), "{ended}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "one line each: {ended}");
    assert!(lines[0].starts_with("job.yaml:14: ConfigMap d: "), "{ended}");
    assert!(lines[1].starts_with("job.yaml:22: PersistentVolumeClaim e: "), "{ended}");
    assert_eq!(lines[2], "error: job.yaml: 2 errors; nothing was started");
    assert!(!ended.stderr.contains("Status {"), "{ended}");
}

#[test]
fn two_runs_of_one_file_do_not_disturb_each_other() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 1, "echo MARK runs; while test ! -e go; do sleep 0.05; done"));
    let first = bench.start(&["run", "job.yaml"]);
    first.until_it_says("runs");
    let second = bench.run(&["run", "job.yaml"]);
    assert_eq!(second.code, Some(2), "{second}");
    assert!(second.stderr.contains("in use by another trainyard"), "{second}");
    std::fs::write(bench.path().join("go"), "").unwrap();
    let ended = first.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
}

#[test]
fn a_flood_of_lines_from_eight_workers_does_no_harm() {
    let bench = Bench::new();
    bench.write("flood.py", "import os, sys\nline = 'x' * 80 + '\\n'\nfor _ in range(200):\n    sys.stdout.write(line * 250)\nprint('last word of', os.environ['RANK'])\n");
    let text = job("bert", 8, "").replace("    - sh\n    - -c\n    - |\n", "    - python3\n    - flood.py\n");
    bench.write("job.yaml", &text);
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("[0] last word of 0"));
    let all = bench.run(&["run", "job.yaml", "--logs=all"]);
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    let (lines, words) = (all.stdout.matches("xxxxx\n").count(), all.stdout.matches("last word of").count());
    assert_eq!((lines, words), (8 * 50_000, 8), "every line of every worker");
}

#[test]
fn a_long_line_is_shown_in_parts() {
    let bench = Bench::new();
    let text = job("bert", 1, "")
        .replace("    - sh\n    - -c\n    - |\n", "    - python3\n    - -c\n    - print('y' * 300000)\n");
    bench.write("job.yaml", &text);
    let ended = bench.run(&["run", "job.yaml"]);
    assert!(ended.stdout.matches('y').count() >= 300_000, "{}", ended.stderr);
}

#[test]
fn what_a_failed_worker_said_last_is_shown() {
    let bench = Bench::new();
    let text = job("bert", 2, "test $RANK = 0 && exec sleep 60; echo something MARK broke >&2; exit 3");
    bench.write("job.yaml", &(text + "  backoffLimit: 0\n"));
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended}");
    assert!(ended.stdout.contains("the last lines of bert-workers-1:"), "{ended}");
    assert!(ended.stdout.contains(&format!("something {} broke", bench.mark)), "{ended}");
}

#[test]
fn a_reader_that_goes_away_changes_nothing() {
    let bench = Bench::new();
    bench.write(
        "job.yaml",
        &job("bert", 1, "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.1; done; exit 0"),
    );
    let mut command = bench.command(&["run", "job.yaml"]);
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn two_jobs_of_one_name_are_told() {
    let bench = Bench::new();
    bench.write("job.yaml", &format!("{}---\n{}", job("bert", 1, "true"), job("bert", 1, "true")));
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(2), "{ended}");
    assert!(ended.stderr.contains("a second job called bert (the first is in line 1)"), "{ended}");
}

#[test]
fn a_state_directory_from_a_newer_version_is_left_alone() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 1, "true"));
    std::fs::create_dir(bench.path().join("state")).unwrap();
    bench.write("state/format", "9\n");
    for command in [&["run", "job.yaml", "--state", "state"][..], &["up", "--state", "state"][..]] {
        let ended = bench.run(command);
        assert_eq!(ended.code, Some(2), "{ended}");
        assert!(ended.stderr.contains("was used by a newer trainyard (format 9"), "{ended}");
    }
}

#[test]
fn a_run_and_a_control_plane_do_not_share_a_directory() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 1, "echo MARK runs; while test ! -e go; do sleep 0.05; done"));
    let run = bench.start(&["run", "job.yaml", "--state", "state"]);
    run.until_it_says("runs");
    let up = bench.run(&["up", "--state", "state", "--address", "127.0.0.1:0"]);
    assert_eq!(up.code, Some(2), "{up}");
    assert!(up.stderr.contains("in use by another trainyard"), "{up}");
    std::fs::write(bench.path().join("go"), "").unwrap();
    assert_eq!(run.wait().code, Some(0));
}

#[test]
fn a_rule_about_words_decides_however_many_fail_at_once() {
    let bench = Bench::new();
    // Before the status of their first attempt is written.
    let one = |number: usize| {
        job(&format!("job-{number}"), 1, "echo 'fatal: licence gone' >&2; exit 1")
            + "  failurePolicy: {rules: [{logPattern: licence gone, action: Fail}]}\n"
    };
    let all: Vec<String> = (0..12).map(one).collect();
    bench.write("job.yaml", &all.join("---\n"));
    let ended = bench.run(&["run", "job.yaml", "-o", "json"]);
    let told: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"));
    for job in told["jobs"].as_array().unwrap() {
        let status = (&job["state"], job["message"].as_str().unwrap_or_default());
        assert_eq!(status.0, "Failed", "{job:#}");
        assert!(status.1.contains("fatal: licence gone"), "{job:#}");
        assert_eq!(job["restarts"], 0, "{job:#}");
    }
}
