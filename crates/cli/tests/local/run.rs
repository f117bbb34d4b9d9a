//! `trainyard run`: from a file to the end of its jobs.

use crate::support::{Bench, job};

#[test]
fn a_job_to_its_end() {
    let bench = Bench::new();
    let script = r#"
echo "rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"
echo '{"epoch": 1, "epochs": 2, "loss": 0.5}'
echo '{"epoch": 2, "epochs": 2, "loss": 0.25}'"#;
    bench.write("job.yaml", &job("bert", 2, script));
    let ended = bench.run(&["run", "job.yaml", "--logs", "all"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    for line in [
        // The port is 29500, unless somebody else on this machine has it.
        "[0] rank 0 of 2 at bert-workers-0.bert-workers:",
        "[1] rank 1 of 2 at bert-workers-0.bert-workers:",
        "bert: Completed",
        "loss 0.25",
    ] {
        assert!(ended.stdout.contains(line), "{line}\n{ended}");
    }
    assert_eq!(ended.stderr, "", "nothing to complain about");
}

#[test]
fn the_last_words_of_a_program_are_not_lost() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 1, r#"printf '{"epoch": 7, "epochs": 7, "loss": 0.125}'"#));
    let ended = bench.run(&["run", "job.yaml", "-o", "json"]);
    let told: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"));
    assert_eq!((&told["exitCode"], &told["jobs"][0]["state"]), (&0.into(), &"Completed".into()), "{ended}");
    assert_eq!(told["jobs"][0]["progress"], "100%");
}

#[test]
fn only_the_leader_is_shown_unless_told_otherwise() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 2, "echo I am $RANK"));
    let leader = bench.run(&["run", "job.yaml"]);
    assert!(leader.stdout.contains("[0] I am 0") && !leader.stdout.contains("I am 1"), "{leader}");
    let nobody = bench.run(&["run", "job.yaml", "--logs=none"]);
    assert!(!nobody.stdout.contains("I am"), "{nobody}");
}

#[test]
fn a_failure_has_its_own_exit_code_and_says_why() {
    let bench = Bench::new();
    let text = job("bert", 2, "test $RANK = 0 && exec sleep 60; exit 3") + "  backoffLimit: 1\n";
    bench.write("job.yaml", &text);
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended}");
    assert!(ended.stdout.contains("Restarting: Worker 1 failed"), "{ended}");
    assert!(ended.stdout.contains("exit code 3") && ended.stdout.contains("1 restart"), "{ended}");
}

#[test]
fn how_restarts_go_can_be_said_here_too() {
    let bench = Bench::new();
    let script = "echo 'ValueError: no such data set' >&2; exit 1";
    bench.write("job.yaml", &(job("bert", 1, script) + "  backoffLimit: 9\n"));
    for limit in ["2", "4"] {
        let flags = ["--same-failure-limit", limit, "--backoff-seconds", "0"];
        let ended = bench.run(&[&["run", "job.yaml", "-o", "json"][..], &flags].concat());
        let told: serde_json::Value =
            serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"));
        let restarts = limit.parse::<i64>().unwrap() - 1;
        assert_eq!(told["jobs"][0]["restarts"], restarts, "{ended}");
    }
}

#[test]
fn names_mount_paths_and_files_are_as_in_a_cluster() {
    let bench = Bench::new();
    let script = r#"
getent hosts $(hostname).bert-workers > /dev/null || { echo no name; exit 1; }
getent hosts bert-workers-0.bert-workers.default.svc.cluster.local > /dev/null || { echo no long name; exit 1; }
test "$(hostname)" = "$POD_NAME" || { echo "hostname $(hostname)"; exit 1; }
test -w /checkpoints/here || { echo no checkpoints; exit 1; }
grep -q 0.5 /etc/trainingjob/hyperparameters.json || { echo no hyperparameters; exit 1; }
test -w /dev/shm || { echo no shared memory; exit 1; }
test "$HYPERPARAM_DROP_OUT" = 0.5 || exit 1
pwd"#;
    let text = job("bert", 2, script)
        + "  hyperparameters: {dropOut: 0.5}\n  checkpoint: {directory: /checkpoints/here}\n";
    bench.write("job.yaml", &text);
    let ended = bench.run(&["run", "job.yaml", "--logs=all"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    let here = bench.path().canonicalize().unwrap();
    assert!(ended.stdout.contains(&format!("[0] {}", here.display())), "the file's directory: {ended}");
    assert!(bench.path().join(".trainyard/job.yaml/node/claims/default/bert-checkpoints").is_dir());
}

#[test]
fn two_jobs_that_want_one_port_run_side_by_side() {
    let bench = Bench::new();
    bench.write(
        "meet.py",
        r#"
import os, socket, time
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    server = socket.socket()
    server.bind(("", address[1]))
    server.listen()
    peer, _ = server.accept()
    print("met", peer.recv(100).decode(), flush=True)
    # Long enough for the other job to want the port, too.
    time.sleep(1)
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.05)
    peer.sendall(os.environ["POD_NAME"].encode())
"#,
    );
    let one = |name: &str| {
        job(name, 2, "").replace("    - sh\n    - -c\n    - |\n", "    - python3\n    - meet.py\n")
    };
    bench.write("job.yaml", &format!("{}---\n{}", one("a"), one("b")));
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    for line in ["[a 0] met a-workers-1", "[b 0] met b-workers-1"] {
        assert!(ended.stdout.contains(line), "{line}: {ended}");
    }
}

#[test]
fn the_command_line_wins_over_the_file() {
    let bench = Bench::new();
    let script = "echo $WORLD_SIZE workers, $HYPERPARAM_EPOCHS epochs";
    let lab = job("bert", 2, script).replace("ml.example.com/v1", "ml.example.com/v1alpha1");
    let lab = lab.replace("numWorkers", "workers");
    let flags = ["--workers", "3", "--set", "spec.hyperparameters.epochs=7", "-"];
    let ended = bench.run_with_input(&[&["run"][..], &flags[..]].concat(), &lab);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout.contains("[0] 3 workers, 7 epochs"), "{ended}");
}

#[test]
fn a_dry_run_shows_the_objects_and_makes_nothing() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 2, "echo MARK"));
    let ended = bench.run(&["run", "job.yaml", "--dry-run"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    for part in ["kind: Service", "kind: ConfigMap", "name: bert-workers-0", "name: bert-workers-1"] {
        assert!(ended.stdout.contains(part), "{part}: {ended}");
    }
    assert!(
        !ended.stdout.contains("ownerReferences"),
        "nobody can own them before the job is there: {ended}"
    );
    assert!(!bench.path().join(".trainyard").exists());
}

#[test]
fn a_result_that_cannot_be_written_is_no_success() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 1, "true"));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = bench.command(&["run", "job.yaml", "-o", "json"]).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("writing to standard output: No space left on device"), "{said}");
}

#[test]
fn less_than_nothing_is_refused_in_words() {
    let bench = Bench::new();
    for (flag, words) in [
        ("--gpus", "-1 is not in 0.."),
        ("--workers", "-1 is not in 0..=1024"),
        ("--cpu", "an amount is needed"),
        ("--backoff-seconds", "seconds from 0 to 31536000 are needed"),
        ("--survivor-grace-seconds", "-1 is not in 1..=3600"),
    ] {
        let ended = bench.run(&["run", "job.yaml", flag, "-1"]);
        assert_eq!(ended.code, Some(2), "{ended}");
        assert!(ended.stderr.contains(words), "{flag}: {ended}");
    }
}

#[test]
fn companions_of_a_job_are_made_first() {
    let bench = Bench::new();
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {greeting: hello}\n---\n\
                apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {TOKEN: s3cret}\n---\n\
                apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n---\n"
        .to_owned()
        + &job("bert", 1, "echo $GREETING $TOKEN")
        + "  envFrom: [{secretRef: {name: key}}]\n  env: [{name: GREETING, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}]\n";
    bench.write("job.yaml", &text);
    let ended = bench.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout.contains("[0] hello s3cret"), "{ended}");
    assert!(ended.stdout.contains("apps/v1 Deployment has no meaning here"), "{ended}");
}
