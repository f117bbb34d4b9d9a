//! `trainyard validate`: everything that is wrong with a manifest, with file and line, without a cluster.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;
use trainyard_api::problem::Segment;
use trainyard_api::{FieldPath, Problem, Severity, TrainingJob, crd, names, schema, validate};

use crate::manifest::{self, Document};

/// Check manifests without a cluster: schema, rules, and what rules cannot say.
///
/// Prints every problem as FILE:LINE: FIELD: MESSAGE. Documents of other kinds are passed over. Exits with 0 when
/// all is well (warnings do not count), with 1 when there are errors, with 2 when a file cannot be read.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Files to check; - for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The resource that gpusPerWorker asks for, as the operator is told.
    #[arg(long, value_name = "RESOURCE", default_value = "nvidia.com/gpu", env = "TRAINYARD_GPU_RESOURCE")]
    gpu_resource: String,
}

/// Prints a line. `trainyard validate FILE | head` is no error.
macro_rules! say {
    ($($what:tt)*) => { _ = writeln!(std::io::stdout(), $($what)*) };
}

#[derive(Default)]
struct Tally {
    jobs: usize,
    errors: usize,
    warnings: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let mut tally = Tally::default();
    for file in &options.files {
        let (name, text) = manifest::text_of(file)?;
        check(&name, &text, &options.gpu_resource, &mut tally);
    }
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    eprintln!(
        "{}: {}, {}",
        count(tally.jobs, "TrainingJob"),
        count(tally.errors, "error"),
        count(tally.warnings, "warning")
    );
    Ok(if tally.errors > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn check(file: &str, text: &str, gpu_resource: &str, tally: &mut Tally) {
    let documents = match manifest::documents(text) {
        Ok(documents) => documents,
        Err(error) => {
            say!("{}", error.told(file));
            tally.errors += 1;
            return;
        }
    };
    if documents.is_empty() {
        say!("{file}: there is nothing in this file");
        tally.errors += 1;
    }
    for document in documents {
        let (api_version, kind) = document.kind();
        if let Some(problem) = document.nearly_a_job().filter(|_| !document.is_job()) {
            say!("{file}:{}: {problem}", document.line_of(&problem.path));
            tally.errors += 1;
            continue;
        }
        if !document.is_job() {
            say!("{file}:{}: passed over: {api_version} {kind} is no TrainingJob", document.line);
            continue;
        }
        tally.jobs += 1;
        for problem in problems(&document, gpu_resource) {
            let severity = match problem.severity {
                Severity::Error => {
                    tally.errors += 1;
                    ""
                }
                Severity::Warning => {
                    tally.warnings += 1;
                    "warning: "
                }
            };
            say!("{file}:{}: {severity}{problem}", document.line_of(&problem.path));
        }
    }
}

/// Everything that is wrong with one TrainingJob, in the order of its lines.
pub(crate) fn problems(document: &Document, gpu_resource: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (api_version, _) = document.kind();
    let versions =
        [names::STORAGE_VERSION, names::LAB_VERSION].map(|version| format!("{}/{version}", names::GROUP));
    if !versions.contains(&api_version) {
        let message = format!("{api_version} is not served: use {}", versions.join(" or "));
        problems.push(Problem::error(FieldPath::of(&["apiVersion"]), message));
    }
    let metadata = document.value.get("metadata");
    let given = |field: &str| metadata.and_then(|metadata| metadata.get(field));
    match given("name").or_else(|| given("generateName")) {
        None => problems.push(Problem::error(FieldPath::of(&["metadata", "name"]), "is required")),
        Some(Value::String(_)) => {}
        Some(other) => problems.push(Problem::error(
            FieldPath::of(&["metadata", "name"]),
            format!("{other} is no text in YAML: put it in quotes"),
        )),
    }
    problems.extend(schema::check(&crd::schema(), &document.value));
    // What does not fit the schema has been told; the rest is judged without it, so that all is told at once.
    let mut readable = document.value.clone();
    for problem in &problems {
        remove(&mut readable, problem.path.segments());
    }
    match serde_json::from_value::<TrainingJob>(readable) {
        Ok(job) => {
            for problem in validate(&job, gpu_resource) {
                // What the schema has said about a field need not be said again in other words.
                if !problems.iter().any(|earlier| earlier.path == problem.path) {
                    problems.push(problem);
                }
            }
        }
        Err(error) if problems.is_empty() => {
            problems.push(Problem::error(FieldPath::root(), error.to_string()));
        }
        Err(_) => {}
    }
    problems.sort_by_key(|problem| document.line_of(&problem.path));
    problems
}

fn remove(value: &mut Value, path: &[Segment]) {
    match (path, value) {
        ([Segment::Key(last)], Value::Object(fields)) => {
            fields.remove(last);
        }
        ([Segment::Key(key), rest @ ..], Value::Object(fields)) => {
            if let Some(inner) = fields.get_mut(key) {
                remove(inner, rest);
            }
        }
        ([Segment::Index(index), rest @ ..], Value::Array(items)) => {
            if let Some(inner) = items.get_mut(*index) {
                remove(inner, rest);
            }
        }
        _ => {}
    }
}
