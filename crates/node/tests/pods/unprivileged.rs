//! The same without root: when the tests are run by root, those that matter are run once more by nobody.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::support::SHIM;

const NOBODY: u32 = 65_534;

const TESTS: [&str; 7] = [
    "place::paths_and_names_are_as_written",
    "place::without_namespaces_they_are_rewritten",
    "exec::in_its_namespaces_with_its_environment",
    "exec::in_a_terminal",
    "life::what_the_program_leaves_behind_ends_with_it",
    "life::last_words_are_left_in_a_file_of_the_container",
    "life::a_program_that_ignores_the_request_is_killed",
];

#[test]
fn as_nobody() {
    let root =
        fs::metadata("/proc/self").map(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata)).unwrap()
            == 0;
    if !root {
        return;
    }
    let directory =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o777)).tempdir().unwrap();
    let copy = |from: &std::path::Path, name: &str| {
        let to = directory.path().join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        to
    };
    let tests = copy(&std::env::current_exe().unwrap(), "tests");
    let shim = copy(env!("CARGO_BIN_EXE_trainyard-shim").as_ref(), "shim");
    let output = Command::new(tests)
        .args(TESTS)
        .arg("--exact")
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", directory.path())
        .env(SHIM, shim)
        .current_dir("/tmp")
        // The standard library drops the other groups of root then.
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("{} passed", TESTS.len())), "{text}");
}
