//! What the node of this machine does for `trainyard run`: volumes, ports, disks, who may read what.

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
