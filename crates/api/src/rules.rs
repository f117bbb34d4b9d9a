//! The rules that the API server itself enforces, as CEL in the CRD.
//!
//! They stand in one table, so that they can be read together. `validate` says the same things in Rust for
//! objects that no API server has checked (files, older CRDs); a test holds the two together.
//! Only transition rules (`oldSelf`) exist here alone: a single object cannot break them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, ValidationRule,
};

use crate::names::{DNS_LABEL_MAX, JOB_NAME_MAX};

/// A pair of names for one thing: (path of the first, CEL of its presence, the same for the second).
const TWO_NAMES: [(&str, &str, &str, &str); 4] = [
    ("numWorkers", "has(self.numWorkers)", "workers", "has(self.workers)"),
    ("gpusPerWorker", "has(self.gpusPerWorker)", "gpuPerWorker", "has(self.gpuPerWorker)"),
    (
        "checkpoint.directory",
        "has(self.checkpoint) && has(self.checkpoint.directory)",
        "checkpointDir",
        "has(self.checkpointDir)",
    ),
    (
        "checkpoint.frequency",
        "has(self.checkpoint) && has(self.checkpoint.frequency)",
        "checkpointInterval",
        "has(self.checkpointInterval)",
    ),
];

/// What `validate` and the CRD both say about two names of one thing.
pub(crate) fn two_names_message(first: &str, second: &str) -> String {
    let scale = match first {
        "numWorkers" => {
            "; to scale a job with numWorkers: kubectl scale tj/NAME --replicas=N; a job with workers: \
             kubectl scale trainingjobs.v1alpha1.ml.example.com/NAME --replicas=N"
        }
        _ => "",
    };
    format!("{first} and {second} are two names of one field: keep one of them{scale}")
}

pub(crate) const PROGRAM: &str = "give image, or both model and dataset";
pub(crate) const NO_WORKERS: &str = "at least one worker is needed (0 is allowed only beside a ranked role)";
pub(crate) const RESERVED_ROLE: &str = "workers is the role that numWorkers makes: choose another name";
pub(crate) const DATA_MOUNT: &str = "dataMountPath needs dataVolume: give the claim to mount there";
pub(crate) const OTHERS_CLAIM: &str = "claimName names a claim that exists already; size, storageClass and accessMode are for one \
     that is made: remove them, or claimName";
pub(crate) const DOTS: &str = "path must stay inside the claim or the bucket: remove '..'";
pub(crate) const S3_PATH: &str =
    "type s3 needs the bucket in path: write s3://bucket/prefix, with a bucket of a-z, 0-9, '.' and '-'";
pub(crate) const GCS_PATH: &str = "type gcs needs the bucket in path: write gs://bucket/prefix, with a bucket of a-z, 0-9, '.', '-' and '_'";
pub(crate) const PVC_PATH: &str = "path names a bucket, and the storage is a claim: give type: s3 or type: gcs with it, or a \
     directory inside the claim";
pub(crate) const NO_CLAIM: &str =
    "size, storageClass, claimName and accessMode are for a claim, and this is a bucket: remove them";
pub(crate) const BUCKET_STAYS: &str = "deleteOnCompletion removes a claim; what is in a bucket stays: leave it out, and empty the \
     bucket yourself or by a lifecycle rule";

pub(crate) const UNHEARD: &str =
    "stallTimeoutSeconds needs progress to be heard, but progress.source is None: remove one of the two";
pub(crate) const SYSTEM_DIRECTORY: &str = "checkpoints need a directory of their own, because old ones are removed from it: not / or a \
     directory of the system itself (/etc, /usr, /var, /home, /tmp, …), and no '.' or '..'; write /checkpoints";

/// Directories that belong to a machine, and ways to get to them by dots. What is below them is nobody's in particular.
pub(crate) const SYSTEM: &str =
    r"^/+((bin|boot|dev|etc|home|lib|lib64|opt|proc|root|run|sbin|sys|tmp|usr|var)/*)?$|/\.\.?(/|$)";

pub(crate) const EMPTY_RULE: &str = "a rule must say what it matches: give exitCodes, reasons or logPattern";
pub(crate) const RESUME_ARG: &str =
    "must have {path} in it, which stands for the checkpoint: --resume={path}";

pub(crate) const HOLDS_NOTHING: &str =
    "holdEvictions needs checkpoints, but checkpoint.enabled is false: remove one of the two";

/// The names that a bucket can have, behind each scheme.
pub(crate) const S3_BUCKET: &str = "s3://[a-z0-9][a-z0-9.-]*";
pub(crate) const GCS_BUCKET: &str = "gs://[a-z0-9][a-z0-9._-]*";

/// A prefix in a bucket. No part of it is empty or made of dots, which no bucket could keep.
pub(crate) const PREFIX: &str = r"(/[^/ \t\r\n]*[^/. \t\r\n][^/ \t\r\n]*)*/?$";

pub(crate) fn name_message() -> String {
    format!(
        "metadata.name must be at most {JOB_NAME_MAX} characters of a-z, 0-9 and '-', starting with a letter and not \
         ending with '-', so that the pod name {{name}}-workers-1023 is a DNS label"
    )
}

pub(crate) fn role_name_message() -> String {
    format!(
        "the names of the job and of a role must have at most {} characters together, so that the pod name \
         {{name}}-{{role}}-1023 is a DNS label of at most {DNS_LABEL_MAX}",
        DNS_LABEL_MAX - 6
    )
}

const WORKERS: &str = "(has(self.numWorkers) ? self.numWorkers : has(self.workers) ? self.workers : 1)";

/// Puts the rules into the schema that was generated from the types.
pub(crate) fn attach(root: &mut JSONSchemaProps) {
    // A bound on the name, which Kubernetes has anyway, makes the cost of the rule on it known.
    let name = JSONSchemaProps { type_: Some("string".into()), max_length: Some(253), ..Default::default() };
    let metadata = JSONSchemaProps {
        type_: Some("object".into()),
        properties: Some([("name".to_owned(), name)].into()),
        ..Default::default()
    };
    root.properties.get_or_insert_default().insert("metadata".into(), metadata);
    root.x_kubernetes_validations = Some(vec![
        rule(
            &format!(
                "size(self.metadata.name) <= {JOB_NAME_MAX} && \
                 self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
            ),
            name_message(),
        ),
        rule(
            &format!(
                "!has(self.spec.roles) || self.spec.roles.all(r, size(self.metadata.name) + size(r.name) <= {})",
                DNS_LABEL_MAX - 6
            ),
            role_name_message(),
        ),
    ]);
    let Some(spec) = property(root, "spec") else { return };
    spec.x_kubernetes_validations = Some(spec_rules());
    if let Some(checkpoint) = property(spec, "checkpoint") {
        checkpoint.x_kubernetes_validations = Some(vec![
            ValidationRule {
                field_path: Some(".resumeArg".into()),
                ..rule("!has(self.resumeArg) || self.resumeArg.contains('{path}')", RESUME_ARG)
            },
            ValidationRule {
                field_path: Some(".holdEvictions".into()),
                ..rule(
                    "!has(self.holdEvictions) || !self.holdEvictions || !has(self.enabled) || self.enabled",
                    HOLDS_NOTHING,
                )
            },
            ValidationRule {
                field_path: Some(".deleteOnCompletion".into()),
                ..rule(
                    "!(has(self.deleteOnCompletion) && self.deleteOnCompletion && has(self.storage) && \
                     has(self.storage.type) && self.storage.type != 'pvc')",
                    BUCKET_STAYS,
                )
            },
            no_system_directory("directory"),
        ]);
    }
    let rules = property(spec, "failurePolicy").and_then(|policy| property(policy, "rules"));
    if let Some(JSONSchemaPropsOrArray::Schema(one)) = rules.and_then(|rules| rules.items.as_mut()) {
        one.x_kubernetes_validations =
            Some(vec![rule("has(self.exitCodes) || has(self.reasons) || has(self.logPattern)", EMPTY_RULE)]);
    }
    if let Some(storage) = property(spec, "checkpoint").and_then(|checkpoint| property(checkpoint, "storage"))
    {
        storage.x_kubernetes_validations = Some(vec![
            rule(
                "!has(self.claimName) || !(has(self.size) || has(self.storageClass) || has(self.accessMode))",
                OTHERS_CLAIM,
            ),
            ValidationRule {
                field_path: Some(".path".into()),
                ..rule("!has(self.path) || !self.path.contains('..')", DOTS)
            },
            needs_bucket("s3", S3_BUCKET, S3_PATH),
            needs_bucket("gcs", GCS_BUCKET, GCS_PATH),
            ValidationRule {
                field_path: Some(".path".into()),
                ..rule(
                    "(has(self.type) && self.type != 'pvc') || !has(self.path) || !self.path.contains('://')",
                    PVC_PATH,
                )
            },
            rule(
                "!(has(self.type) && self.type != 'pvc') || \
                 !(has(self.size) || has(self.storageClass) || has(self.claimName) || has(self.accessMode))",
                NO_CLAIM,
            ),
        ]);
    }
}

/// A storage of this type is the bucket that its path names. The rule has no field: the path may be missing.
fn needs_bucket(kind: &str, bucket: &str, message: &str) -> ValidationRule {
    // In CEL, a raw string keeps its backslashes.
    rule(
        &format!(
            "!has(self.type) || self.type != '{kind}' || (has(self.path) && self.path.matches(r'^{bucket}{PREFIX}'))"
        ),
        message,
    )
}

/// The directory of the checkpoints is nobody else's.
fn no_system_directory(field: &str) -> ValidationRule {
    ValidationRule {
        field_path: Some(format!(".{field}")),
        ..rule(&format!("!has(self.{field}) || !self.{field}.matches(r'{SYSTEM}')"), SYSTEM_DIRECTORY)
    }
}

fn spec_rules() -> Vec<ValidationRule> {
    let mut rules = vec![
        rule("has(self.image) || (has(self.model) && has(self.dataset))", PROGRAM),
        rule(
            &format!("{WORKERS} > 0 || (has(self.roles) && self.roles.exists(r, has(r.ranked) && r.ranked))"),
            NO_WORKERS,
        ),
        rule("!has(self.roles) || self.roles.all(r, r.name != 'workers')", RESERVED_ROLE),
        rule("!has(self.dataMountPath) || has(self.dataVolume)", DATA_MOUNT),
        no_system_directory("checkpointDir"),
        ValidationRule {
            field_path: Some(".stallTimeoutSeconds".into()),
            ..rule(
                "!has(self.stallTimeoutSeconds) || !has(self.progress) || !has(self.progress.source) || \
                 self.progress.source != 'None'",
                UNHEARD,
            )
        },
    ];
    for (first, has_first, second, has_second) in TWO_NAMES {
        rules.push(rule(&format!("!({has_first} && {has_second})"), two_names_message(first, second)));
    }
    rules.extend(immutable_rules());
    rules
}

fn immutable_rules() -> Vec<ValidationRule> {
    const GPUS: &str = "(has(SELF.gpusPerWorker) ? SELF.gpusPerWorker : has(SELF.gpuPerWorker) ? SELF.gpuPerWorker \
                        : has(SELF.image) ? 0 : 1)";
    const STORAGE: &str = "(has(SELF.checkpoint) && has(SELF.checkpoint.storage))";
    let text = |field: &str| format!("(has(SELF.{field}) ? SELF.{field} : '')");
    let both = |expression: &str| (expression.replace("SELF", "self"), expression.replace("SELF", "oldSelf"));
    let unchanged = |field: &str, expression: &str, was: &str, advice: &str| {
        let (new, old) = both(expression);
        ValidationRule {
            message_expression: Some(format!(
                "\"{field} is immutable (it is \" + {} + \"): {advice}\"",
                was.replace("SELF", "oldSelf")
            )),
            field_path: Some(format!(".{field}")),
            ..rule(&format!("{new} == {old}"), format!("{field} is immutable: {advice}"))
        }
    };
    let anew = |what: &str| format!("create another job for another {what}");

    let framework = "(has(SELF.framework) ? SELF.framework : 'pytorch')";
    let set = |field: &str| format!("(has(SELF.{field}) ? SELF.{field} : 'not set')");
    let (storage, old_storage) = both(STORAGE);
    vec![
        unchanged("framework", framework, framework, &anew("framework")),
        unchanged("model", &text("model"), &set("model"), &anew("model")),
        unchanged("dataset", &text("dataset"), &set("dataset"), &anew("dataset")),
        // No value in this message: the API server cannot bound the cost of string(int).
        ValidationRule {
            message_expression: None,
            ..unchanged("gpusPerWorker", GPUS, "", &anew("number of GPUs per worker"))
        },
        unchanged(
            "managedBy",
            &text("managedBy"),
            &set("managedBy"),
            "create another job for another controller",
        ),
        rule(
            &format!(
                "{storage} == {old_storage} && (!{storage} || self.checkpoint.storage == oldSelf.checkpoint.storage)"
            ),
            "checkpoint.storage is immutable: the checkpoints are there; create another job for other storage",
        ),
    ]
}

fn rule(expression: &str, message: impl Into<String>) -> ValidationRule {
    ValidationRule { rule: expression.to_owned(), message: Some(message.into()), ..Default::default() }
}

fn property<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    schema.properties.as_mut()?.get_mut(name)
}
