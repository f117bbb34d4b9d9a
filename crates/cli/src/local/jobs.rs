//! The objects of a file, as `trainyard run` takes them: jobs, and what they need beside them.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;
use trainyard_api::{FieldPath, TrainingJob, names};

use crate::manifest::{self, Document};

/// What a file may have beside jobs: kind, plural, and whether it has a namespace.
const COMPANIONS: [(&str, &str, &str, bool); 8] = [
    ("v1", "Namespace", "namespaces", false),
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("v1", "PersistentVolume", "persistentvolumes", false),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("v1", "ResourceQuota", "resourcequotas", true),
    ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false),
];

/// The objects of a file, in its order.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    file: String,
    pub(crate) jobs: Vec<TrainingJob>,
    /// The line of each job.
    lines: Vec<usize>,
    companions: Vec<Document>,
    /// What cannot be used here.
    pub(crate) passed_over: Vec<String>,
}

/// A change that the command line asks for: `spec.path=value`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    path: Vec<String>,
    value: Value,
}

impl std::str::FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write it as spec.path=value, such as spec.hyperparameters.epochs=3";
        let (path, value) = text.split_once('=').ok_or(example)?;
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        let begins = path.first().is_some_and(|first| matches!(first.as_str(), "spec" | "metadata"));
        if !begins || path.len() < 2 || path.iter().any(String::is_empty) {
            return Err(example.to_owned());
        }
        let read = manifest::documents(value).map_err(|error| error.message)?;
        let value = read.into_iter().next().map_or(Value::Null, |document| document.value);
        Ok(Self { path, value })
    }
}

/// Reads the objects of a file. Everything that is wrong with its jobs has been told when this fails.
pub(crate) fn read(
    file: &str,
    text: &str,
    changes: &[Change],
    workers: Option<i32>,
) -> anyhow::Result<Objects> {
    let documents = manifest::documents(text).map_err(|error| anyhow::anyhow!("{}", error.told(file)))?;
    let mut objects = Objects { file: file.to_owned(), ..Objects::default() };
    let mut errors = 0;
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    for mut document in documents {
        if let Some(problem) = document.nearly_a_job().filter(|_| !document.is_job()) {
            eprintln!("{file}:{}: {problem}", document.line_of(&problem.path));
            errors += 1;
            continue;
        }
        if !document.is_job() {
            objects.take_companion(file, document);
            continue;
        }
        for change in changes {
            change.apply(&mut document.value)?;
        }
        if let Some(workers) = workers {
            set_workers(&mut document.value, workers);
        }
        let text = |path: &str| document.value.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let name = (text("/metadata/namespace").to_owned(), text("/metadata/name").to_owned());
        if !name.1.is_empty()
            && let Some(line) = seen.insert(name.clone(), document.line)
        {
            eprintln!(
                "{file}:{}: a second job called {} (the first is in line {line}): rename one",
                document.line, name.1
            );
            errors += 1;
        }
        let problems = crate::validate::problems(&document, "nvidia.com/gpu");
        for problem in &problems {
            eprintln!("{file}:{}: {problem}", document.line_of(&problem.path));
        }
        errors += problems.iter().filter(|problem| problem.is_error()).count();
        if errors == 0 {
            objects.lines.push(document.line);
            objects.jobs.push(serde_json::from_value(document.value).with_context(|| file.to_owned())?);
        }
    }
    if errors > 0 {
        return Err(nothing_was_started(file, errors));
    }
    if objects.jobs.is_empty() {
        bail!("{file}: there is no TrainingJob in it");
    }
    for (index, job) in objects.jobs.iter_mut().enumerate() {
        job.metadata.namespace.get_or_insert_with(|| "default".to_owned());
        if job.metadata.name.is_none() {
            // Names are part of directories that the next run looks for: they must not be made up anew each time.
            let base = job.metadata.generate_name.take().unwrap_or_else(|| "job-".to_owned());
            job.metadata.name = Some(format!("{base}{index}"));
        }
    }
    Ok(objects)
}

fn nothing_was_started(file: &str, errors: usize) -> anyhow::Error {
    anyhow::anyhow!("{file}: {errors} error{}; nothing was started", if errors == 1 { "" } else { "s" })
}

impl Objects {
    fn take_companion(&mut self, file: &str, document: Document) {
        let (version, kind) = document.kind();
        if COMPANIONS.iter().any(|(v, k, ..)| *v == version && *k == kind) {
            self.companions.push(document);
        } else {
            self.passed_over
                .push(format!("{file}:{}: passed over: {version} {kind} has no meaning here", document.line));
        }
    }

    /// Creates everything, jobs last. What is refused has been told, with its line, when this fails.
    pub(crate) async fn create(&self, client: &Client) -> anyhow::Result<()> {
        for job in &self.jobs {
            let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": job.metadata.namespace,
            }});
            // A name that is no good is told with the job.
            let _ = create(client, &namespace).await;
        }
        let mut errors = 0;
        let refused = |line: usize, kind: &str, name: &str, refusal: Refusal| {
            eprintln!("{}:{line}: {kind} {name}: {}", self.file, refusal.message);
        };
        for companion in &self.companions {
            if let Err(refusal) = create(client, &companion.value).await {
                let name = companion.value.pointer("/metadata/name").and_then(Value::as_str);
                let line = companion.line_of(&refusal.field);
                refused(line, &companion.kind().1, name.unwrap_or_default(), refusal);
                errors += 1;
            }
        }
        if errors > 0 {
            return Err(nothing_was_started(&self.file, errors));
        }
        for (job, line) in self.jobs.iter().zip(&self.lines) {
            let api: Api<TrainingJob> =
                Api::namespaced(client.clone(), job.metadata.namespace.as_deref().unwrap_or_default());
            if let Err(error) = api.create(&PostParams::default(), job).await {
                refused(*line, names::KIND, &title(job), error.into());
                return Err(nothing_was_started(&self.file, 1));
            }
        }
        Ok(())
    }
}

/// Why an object was not created.
struct Refusal {
    message: String,
    /// The first field that is wrong, as far as the API server has told.
    field: FieldPath,
}

impl From<kube::Error> for Refusal {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self { message: format!("{:#}", anyhow::Error::from(error)), field: FieldPath::root() };
        };
        let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
        let field = causes.iter().map(|cause| cause.field.as_str()).find(|field| !field.is_empty());
        Self { field: path(field.unwrap_or_default()), message: status.message.clone() }
    }
}

/// A field as the API server writes it: `spec.accessModes[0]`.
fn path(field: &str) -> FieldPath {
    let steps = field.split(['.', '[', ']']).filter(|step| !step.is_empty());
    steps.fold(FieldPath::root(), |path, step| match step.parse() {
        Ok(index) => path.index(index),
        Err(_) => path.key(step),
    })
}

/// Creates an object, unless it is there.
async fn create(client: &Client, object: &Value) -> Result<(), Refusal> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let Some((.., plural, namespaced)) = COMPANIONS.iter().find(|(v, k, ..)| *v == version && *k == kind)
    else {
        return Ok(());
    };
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let object: DynamicObject = serde_json::from_value(object.clone()).map_err(|error| Refusal {
        message: format!("its metadata cannot be read: {error}"),
        field: FieldPath::of(&["metadata"]),
    })?;
    let api: Api<DynamicObject> = if *namespaced {
        let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop).map_err(Refusal::from),
    }
}

impl Change {
    fn apply(&self, object: &mut Value) -> anyhow::Result<()> {
        let mut place = object;
        for (depth, step) in self.path.iter().enumerate() {
            let so_far = || self.path[..=depth].join(".");
            place = match place {
                Value::Array(items) => {
                    let index: usize = step
                        .parse()
                        .with_context(|| format!("--set {}: a list takes a number here", so_far()))?;
                    let length = items.len();
                    items
                        .get_mut(index)
                        .with_context(|| format!("--set {}: the list has {length} items", so_far()))?
                }
                other => {
                    if other.is_null() {
                        *other = Value::Object(serde_json::Map::new());
                    }
                    let Value::Object(fields) = other else {
                        bail!("--set {}: its parent is a single value", so_far());
                    };
                    fields.entry(step.clone()).or_insert(Value::Null)
                }
            };
        }
        *place = self.value.clone();
        Ok(())
    }
}

/// Under the name that the job uses.
fn set_workers(job: &mut Value, workers: i32) {
    if let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) {
        let field = if spec.contains_key("workers") { "workers" } else { "numWorkers" };
        spec.insert(field.to_owned(), workers.into());
    }
}

/// `namespace/name`, or the name alone in the namespace `default`.
pub(crate) fn title(job: &TrainingJob) -> String {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    match job.metadata.namespace.as_deref() {
        None | Some("default") => name.to_owned(),
        Some(namespace) => format!("{namespace}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "apiVersion: ml.example.com/v1\nkind: TrainingJob\nmetadata: {name: a}\nspec:\n  image: i\n  command: [python3, x.py]\n  workers: 1\n";

    fn change(text: &str) -> Change {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_command_line_changes_what_the_file_says() {
        let changes = [
            change("spec.hyperparameters.epochs=3"),
            change("spec.command.1=y.py"),
            change("spec.checkpoint.directory=/c"),
        ];
        let objects = read("f", JOB, &changes, Some(4)).unwrap_or_else(|error| panic!("{error:#}"));
        let spec = &objects.jobs[0].spec;
        assert_eq!((spec.worker_count(), spec.total_epochs()), (4, Some(3)));
        assert_eq!(spec.command.as_deref().unwrap_or_default()[1], "y.py");
        assert_eq!(objects.jobs[0].metadata.namespace.as_deref(), Some("default"));
    }

    #[test]
    fn what_cannot_be_changed_says_why() {
        for (text, message) in [
            ("spec.command.9=x", "the list has 2 items"),
            ("spec.command.x=x", "a list takes a number"),
            ("spec.image.tag=1", "a single value"),
        ] {
            let error = read("f", JOB, &[change(text)], None).err().map(|error| format!("{error:#}"));
            assert!(error.as_ref().is_some_and(|error| error.contains(message)), "{text}: {error:?}");
        }
        for text in ["epochs=3", "spec=1", "spec..x=1", "spec.x"] {
            assert!(text.parse::<Change>().is_err(), "{text}");
        }
        assert!(read("f", &JOB.replace("image", "imag"), &[], None).is_err());
        for (right, wrong) in [("TrainingJob", "Trainingjob"), ("ml.example.com/v1", "ml.exampel.com/v1")] {
            let error = read("f", &JOB.replace(right, wrong), &[], None).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains("1 error")), "{wrong}: {error:?}");
        }
        assert!(read("f", "kind: ConfigMap\napiVersion: v1\n", &[], None).is_err(), "no job at all");
    }
}
