//! What the node of this machine does for `trainyard run`: volumes, ports, disks, who may read what.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Bench, job};

/// A job with a volume at `/m`.
fn with_volume(volume: &str, script: &str) -> String {
    job("bert", 1, script)
        + &format!(
            "  template:\n    spec:\n      volumes: [{{name: m, {volume}}}]\n      containers:\n      \
             - name: training-worker\n        volumeMounts: [{{name: m, mountPath: /m}}]\n"
        )
}

#[test]
fn a_volume_that_cannot_be_mounted_is_told_and_ends_the_run() {
    let bench = Bench::new();
    for (volume, words) in [
        ("configMap: {name: nope}", "configmap \"nope\" not found"),
        ("secret: {secretName: nope}", "secret \"nope\" not found"),
        ("projected: {sources: [{configMap: {name: nope}}]}", "configmap \"nope\" not found"),
        ("hostPath: {path: /nope/x, type: Directory}", "/nope/x does not exist"),
        ("hostPath: {path: /nope/x}", "/nope/x does not exist (type: DirectoryOrCreate would make it)"),
        ("nfs: {server: a, path: /b}", "this kind of volume is not supported on this machine"),
    ] {
        bench.write("job.yaml", &with_volume(volume, "echo MARK"));
        let ended = bench.run(&["run", "job.yaml"]);
        assert_eq!(ended.code, Some(3), "{volume} {ended}");
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
}

#[test]
fn two_runs_side_by_side_do_not_get_one_port() {
    let (first, second) = (Bench::new(), Bench::new());
    // Nobody listens yet: the programs of a framework take seconds until they do.
    let script = "echo MARK has port $MASTER_PORT; while test ! -e go; do sleep 0.05; done";
    // A port that no other test asks for.
    let of_both = "  networking: {masterPort: 29417}\n";
    first.write("job.yaml", &(job("bert", 1, script) + of_both));
    let script = script.replace("while test ! -e go; do sleep 0.05; done", "true");
    second.write("job.yaml", &(job("bert", 1, &script) + of_both));
    let running = first.start(&["run", "job.yaml"]);
    running.until_it_says("has port");
    let ended = second.run(&["run", "job.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout.contains("bert: port 29417 is taken on this machine: "), "{ended}");
    std::fs::write(first.path().join("go"), "").unwrap();
    let before = running.wait();
    let port = |text: &str| text.lines().find_map(|line| Some(line.split_once("has port ")?.1.to_owned()));
    assert_ne!(port(&before.stdout).unwrap(), port(&ended.stdout).unwrap());
}

#[test]
fn the_state_directory_is_for_nobody_else_to_read() {
    let bench = Bench::new();
    bench.write("job.yaml", &job("bert", 1, "true"));
    let mode = |path: &str| std::fs::metadata(bench.path().join(path)).unwrap().permissions().mode() & 0o777;
    for round in 0..2 {
        assert_eq!(bench.run(&["run", "job.yaml"]).code, Some(0));
        assert_eq!(mode(".trainyard/job.yaml"), 0o700, "round {round}");
        // As a version before this one has left it.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(bench.path().join(".trainyard/job.yaml"), open).unwrap();
    }
    // A directory that was there, and is not ours.
    std::fs::create_dir(bench.path().join("shared")).unwrap();
    std::fs::set_permissions(bench.path().join("shared"), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(bench.run(&["run", "job.yaml", "--state", "shared"]).code, Some(0));
    assert_eq!((mode("shared"), mode("shared/node")), (0o755, 0o700));
}

#[test]
fn a_full_disk_swallows_nothing() {
    let bench = Bench::new();
    let state = bench.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let mount = |arguments: &[&str]| {
        let done = std::process::Command::new(arguments[0]).args(&arguments[1..]).arg(&state).status();
        done.is_ok_and(|status| status.success())
    };
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=1m", "none"]) {
        eprintln!("not run: no file system can be mounted here");
        return;
    }
    let text = "head -c 4M /dev/zero > $CHECKPOINT_DIR/fill; seq 1 20000; echo MARK broke; exit 1";
    let text = job("bert", 1, text) + "  backoffLimit: 0\n  checkpoint: {storage: {size: 1Mi}}\n";
    bench.write("job.yaml", &text);
    let ended = std::panic::catch_unwind(|| bench.run(&["run", "job.yaml", "--state", "state"]));
    assert!(mount(&["umount"]));
    let ended = ended.unwrap();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let numbers = ended.stdout.lines().filter_map(|line| line.strip_prefix("[0] ")?.parse::<u32>().ok());
    assert!(numbers.eq(1..=20_000), "every line is shown, once");
    assert!(ended.stdout.contains(&format!("[0] {} broke", bench.mark)));
    assert!(
        ended.stdout.contains("are not in its log: ") && ended.stdout.contains("No space left on device")
    );
}
