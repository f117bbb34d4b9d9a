//! The command as a user meets it: help, the CRD, and `validate` with file and line.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn trainyard(arguments: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_trainyard"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("KUBECONFIG")
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_teaches() {
    let help = text(&trainyard(&["--help"], "").stdout);
    for word in ["operator", "crds", "validate", "Examples:"] {
        assert!(help.contains(word), "{word} is missing:\n{help}");
    }
    let operator = text(&trainyard(&["operator", "--help"], "").stdout);
    for word in
        ["KUBECONFIG", "--metrics-address", "TRAINYARD_METRICS_ADDRESS", "--log-format", "--namespace"]
    {
        assert!(operator.contains(word), "{word} is missing:\n{operator}");
    }
}

#[test]
fn every_setting_of_the_operator_has_an_environment_variable() {
    let help = text(&trainyard(&["operator", "--help"], "").stdout);
    let flags = help.lines().filter(|line| line.trim_start().starts_with("--")).count();
    let variables = help.matches("[env: TRAINYARD_").count();
    // --kubeconfig has KUBECONFIG, which the client reads itself, and OPERATOR_NAMESPACE is a name that others use too.
    assert_eq!(flags, variables + 2, "{help}");
    assert!(help.contains("$KUBECONFIG") && help.contains("[env: OPERATOR_NAMESPACE"), "{help}");
}

#[test]
fn the_committed_crd_is_the_generated_one() {
    let generated = text(&trainyard(&["crds"], "").stdout);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in ["kubernetes/base/trainingjob-crd.yaml", "config/crd/bases/ml.example.com_trainingjobs.yaml"]
    {
        let committed = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(committed == generated, "{file} is out of date: run `make manifests`");
    }
}

#[test]
fn shipped_manifests_are_valid() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    let mut directories =
        vec![root.join("examples"), root.join("config/samples"), root.join("crates/plan/tests/manifests")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if path.is_dir() && !hidden {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                files.push(path.display().to_string());
            }
        }
    }
    assert!(files.len() >= 11, "{files:?}");
    let mut arguments = vec!["validate"];
    arguments.extend(files.iter().map(String::as_str));
    let output = trainyard(&arguments, "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

#[test]
fn validate_names_file_line_field_and_what_to_do() {
    let manifest = "\
apiVersion: ml.example.com/v1
kind: TrainingJob
metadata:
  name: bert
spec:
  image: train:1
  numWorkers: 2
  workers: 3
  restartPolicy: Always
  numWorker: 4
  resources:
    requests: {cpu: 8}
    limits: {cpu: 4}
  hyperparameters:
    layers: [1, 2]
  env:
  - name: RANK
    value: '7'
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
";
    let output = trainyard(&["validate", "-"], manifest);
    let said = text(&output.stdout);
    for line in [
        "<stdin>:8: spec.workers: numWorkers and workers are two names of one field",
        "<stdin>:9: spec.restartPolicy: \"Always\" is not one of OnFailure, Never, ExitCode",
        "<stdin>:10: spec.numWorker: unknown field; did you mean numWorkers?",
        "<stdin>:12: spec.resources.requests.cpu: 8 is more than the limit of 4",
        "<stdin>:15: spec.hyperparameters.layers: must be a string, a number or a boolean",
        "<stdin>:17: warning: spec.env[0]: RANK is set by Trainyard",
        "passed over: v1 ConfigMap is no TrainingJob",
    ] {
        assert!(said.contains(line), "no \"{line}\" in\n{said}");
    }
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("1 TrainingJob: 5 errors, 1 warning"), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_be_read_is_told() {
    let output = trainyard(&["validate", "-"], "spec: [1,\n  : }");
    assert!(text(&output.stdout).contains("this is not YAML"), "{}", text(&output.stdout));
    assert_eq!(output.status.code(), Some(1));
    let misnamed =
        "apiVersion: ml.example.com/v1\nkind: Trainingjob\nmetadata: {name: a}\nspec: {image: x}\n";
    let output = trainyard(&["validate", "-"], misnamed);
    let said = text(&output.stdout);
    assert!(said.contains("<stdin>:2: kind: Trainingjob is not known; did you mean TrainingJob?"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    let output = trainyard(&["validate", "no-such-file.yaml"], "");
    assert!(text(&output.stderr).contains("reading no-such-file.yaml"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(2));
    let output = trainyard(&["operator", "--kubeconfig", "no-such-file"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("reading no-such-file"), "{}", text(&output.stderr));
}
