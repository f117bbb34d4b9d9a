//! Everything that can be wrong with a job, told at once.
//!
//! A pure function over the typed job: what the CRD's rules say (for objects that no API server has checked),
//! and what rules cannot say. It never judges a change, only one object.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_lite::Regex;

use crate::names::{JOB_NAME_MAX, REPLICAS_MAX, is_dns_label, role_name_max};
use crate::policy::{RestartPolicy, RestartScope};
use crate::problem::{At, Problem};
use crate::quantity::{Quantity, Resources};
use crate::rules;
use crate::spec::{
    CheckpointStorage, ProgressSource, Role, RoleSuccess, StorageType, TrainingJob, TrainingJobSpec,
};
use crate::spelling::upper_snake;
use crate::template::{Training, template_problems};

/// Variables that make up the world of ranks: a value from the user would only break it.
pub(crate) const OURS: [&str; 12] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "POD_NAME",
    "TRAINYARD_ATTEMPT",
];

/// Reasons that Kubernetes gives for the end of a pod, as it writes them. There may be others.
const REASONS: [&str; 12] = [
    "OOMKilled",
    "Error",
    "ContainerCannotRun",
    "StartError",
    "Evicted",
    "DeletionByPodGC",
    "DeletionByTaintManager",
    "EvictionByEvictionAPI",
    "PreemptionByScheduler",
    "TerminationByKubelet",
    "NodeShutdown",
    "UnexpectedAdmissionError",
];

/// Every problem of this job. `gpu_resource` is the resource that `gpusPerWorker` asks for.
pub fn validate(job: &TrainingJob, gpu_resource: &str) -> Vec<Problem> {
    let mut problems = Problems::default();
    let name = job.metadata.name.as_deref().unwrap_or_default();
    // A name is missing only in a file that uses generateName.
    if !name.is_empty() && (name.len() > JOB_NAME_MAX || !is_dns_label(name)) {
        problems.error(At::Key("metadata").key("name"), rules::name_message());
    }
    let spec = At::Key("spec");
    program(&job.spec, &spec, &mut problems);
    two_names(&job.spec, &spec, &mut problems);
    numbers(&job.spec, &spec, &mut problems);
    storage(&job.spec, &spec, &mut problems);
    resources(
        job.spec.resources.as_ref(),
        (job.spec.gpu_count_field(), job.spec.gpus_per_worker()),
        gpu_resource,
        &spec.key("resources"),
        &mut problems,
    );
    policies(&job.spec, &spec, &mut problems);
    hyperparameters(&job.spec, &spec.key("hyperparameters"), &mut problems);
    environment(job.spec.env.as_deref().unwrap_or_default(), &spec.key("env"), &mut problems);
    if let Some(template) = &job.spec.template {
        let training = Training {
            gpu_resource,
            gpus: job.spec.gpus_per_worker(),
            gpus_field: job.spec.gpu_count_field(),
        };
        problems.0.extend(template_problems(template, &training, &spec.key("template").path()));
    }
    for (index, role) in job.spec.roles().iter().enumerate() {
        let roles = spec.key("roles");
        let path = roles.index(index);
        one_role(name, role, gpu_resource, &path, &mut problems);
        if job.spec.roles()[..index].iter().any(|earlier| earlier.name == role.name) {
            problems.error(path.key("name"), format!("there are two roles called {}: rename one", role.name));
        }
    }
    problems.0
}

#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn error(&mut self, at: At<'_>, message: impl Into<String>) {
        self.0.push(Problem::error(at.path(), message));
    }

    fn warning(&mut self, at: At<'_>, message: impl Into<String>) {
        self.0.push(Problem::warning(at.path(), message));
    }

    fn range(&mut self, at: At<'_>, value: Option<impl Into<i64>>, range: std::ops::RangeInclusive<i64>) {
        if let Some(value) = value.map(Into::into)
            && !range.contains(&value)
        {
            self.error(at, format!("{value} is out of bounds: {} to {}", range.start(), range.end()));
        }
    }
}

fn program(spec: &TrainingJobSpec, path: &At<'_>, problems: &mut Problems) {
    let empty = |text: &Option<String>| text.as_ref().is_some_and(String::is_empty);
    if spec.image.is_none() && !(spec.model.is_some() && spec.dataset.is_some()) {
        problems.error(*path, rules::PROGRAM);
    }
    for (field, value) in [("image", &spec.image), ("model", &spec.model), ("dataset", &spec.dataset)] {
        if empty(value) {
            problems.error(path.key(field), "must not be empty: give a value or remove the field");
        }
    }
    if spec.command.as_ref().is_some_and(Vec::is_empty) {
        problems.error(
            path.key("command"),
            "must have at least one word: without it, the image's entry point runs",
        );
    }
    let ranked = spec.roles().iter().any(Role::ranked);
    let decided =
        spec.worker_count() > 0 || spec.roles().iter().any(|role| role.success() != RoleSuccess::Ignored);
    if spec.worker_count() <= 0 && !ranked {
        problems.error(path.key(spec.worker_count_field()), rules::NO_WORKERS);
    } else if !decided {
        problems.error(
            path.key("roles"),
            "nothing decides when this job has succeeded: give one role success: Required or Decides",
        );
    }
}

fn two_names(spec: &TrainingJobSpec, path: &At<'_>, problems: &mut Problems) {
    let checkpoint = spec.checkpoint.as_ref();
    let pairs = [
        ("numWorkers", spec.num_workers.is_some(), "workers", spec.workers.is_some()),
        ("gpusPerWorker", spec.gpus_per_worker.is_some(), "gpuPerWorker", spec.gpu_per_worker.is_some()),
        (
            "checkpoint.directory",
            checkpoint.is_some_and(|checkpoint| checkpoint.directory.is_some()),
            "checkpointDir",
            spec.checkpoint_dir.is_some(),
        ),
        (
            "checkpoint.frequency",
            checkpoint.is_some_and(|checkpoint| checkpoint.frequency.is_some()),
            "checkpointInterval",
            spec.checkpoint_interval.is_some(),
        ),
    ];
    for (first, has_first, second, has_second) in pairs {
        if has_first && has_second {
            problems.error(path.key(second), rules::two_names_message(first, second));
        }
    }
}

fn numbers(spec: &TrainingJobSpec, path: &At<'_>, problems: &mut Problems) {
    const SECONDS: i64 = 315_360_000;
    let replicas = 0..=i64::from(REPLICAS_MAX);
    problems.range(path.key("numWorkers"), spec.num_workers, replicas.clone());
    problems.range(path.key("workers"), spec.workers, replicas);
    problems.range(path.key("gpusPerWorker"), spec.gpus_per_worker, 0..=8);
    problems.range(path.key("gpuPerWorker"), spec.gpu_per_worker, 0..=8);
    problems.range(path.key("procsPerWorker"), spec.procs_per_worker, 1..=1024);
    problems.range(path.key("checkpointInterval"), spec.checkpoint_interval, 1..=1_000_000);
    problems.range(
        path.key("checkpoint").key("frequency"),
        spec.checkpoint.as_ref().and_then(|checkpoint| checkpoint.frequency),
        1..=1_000_000,
    );
    problems.range(path.key("backoffLimit"), spec.backoff_limit, 0..=100);
    problems.range(path.key("activeDeadlineSeconds"), spec.active_deadline_seconds, 1..=SECONDS);
    problems.range(path.key("startupTimeoutSeconds"), spec.startup_timeout_seconds, 1..=SECONDS);
    problems.range(path.key("stallTimeoutSeconds"), spec.stall_timeout_seconds, 1..=SECONDS);
    problems.range(path.key("ttlSecondsAfterFinished"), spec.ttl_seconds_after_finished, 0..=SECONDS);
    problems.range(
        path.key("checkpoint").key("keepLast"),
        spec.checkpoint.as_ref().and_then(|checkpoint| checkpoint.keep_last),
        0..=1000,
    );
    problems.range(
        path.key("progress").key("totalEpochs"),
        spec.progress.as_ref().and_then(|progress| progress.total_epochs),
        1..=1_000_000_000,
    );
    problems.range(
        path.key("networking").key("masterPort"),
        spec.networking.as_ref().and_then(|networking| networking.master_port),
        1..=65535,
    );
}

fn storage(spec: &TrainingJobSpec, path: &At<'_>, problems: &mut Problems) {
    if spec.data_mount_path.is_some() && spec.data_volume.is_none() {
        problems.error(path.key("dataMountPath"), rules::DATA_MOUNT);
    }
    if spec.data_volume.as_ref().is_some_and(|volume| volume.claim_name.is_empty()) {
        problems.error(
            path.key("dataVolume").key("claimName"),
            "must not be empty: name the claim with the data",
        );
    }
    for (field, directory) in [
        ("dataMountPath", spec.data_mount_path.as_deref()),
        ("checkpointDir", spec.checkpoint_dir.as_deref()),
    ] {
        if directory.is_some_and(|directory| !directory.starts_with('/')) {
            problems.error(path.key(field), "must be an absolute path, starting with /");
        }
    }
    if spec.data_volume.is_some()
        && spec.checkpoints_on()
        && spec.data_mount_path() == spec.checkpoint_directory()
    {
        problems.error(
            path.key(if spec.data_mount_path.is_some() { "dataMountPath" } else { "dataVolume" }),
            format!(
                "the data and the checkpoints would both be mounted at {}: change one of the two paths",
                spec.data_mount_path()
            ),
        );
    }
    let checkpoint = path.key("checkpoint");
    let is_system = |directory: &str| matches(&SYSTEM_FORM, directory);
    let directory = spec.checkpoint.as_ref().and_then(|checkpoint| checkpoint.directory.as_deref());
    let fields = [
        (path.key("checkpointDir"), spec.checkpoint_dir.as_deref()),
        (checkpoint.key("directory"), directory),
    ];
    for (field, _) in fields.into_iter().filter(|(_, directory)| directory.is_some_and(is_system)) {
        problems.error(field, rules::SYSTEM_DIRECTORY);
    }
    if spec.checkpoint.as_ref().and_then(|c| c.directory.as_deref()).is_some_and(|d| !d.starts_with('/')) {
        problems.error(checkpoint.key("directory"), "must be an absolute path, starting with /");
    }
    if spec.checkpoint.as_ref().is_some_and(|c| c.hold_evictions == Some(true)) && !spec.checkpoints_on() {
        problems.error(checkpoint.key("holdEvictions"), rules::HOLDS_NOTHING);
    }
    let is_bucket =
        spec.checkpoint_storage().is_some_and(|it| it.kind.unwrap_or_default().scheme().is_some());
    if is_bucket && spec.delete_checkpoints_with_job() {
        problems.error(checkpoint.key("deleteOnCompletion"), rules::BUCKET_STAYS);
    }
    let has_own_claim = spec.checkpoint_storage().is_some_and(|it| it.claim_name.is_some());
    if has_own_claim && spec.delete_checkpoints_with_job() {
        problems.warning(
            checkpoint.key("deleteOnCompletion"),
            "has no effect: the claim that claimName names is yours, and stays; leave it out",
        );
    }
    let path = checkpoint.key("storage");
    if let Some(storage) = spec.checkpoint_storage() {
        if storage.claim_name.is_some()
            && (storage.size.is_some() || storage.storage_class.is_some() || storage.access_mode.is_some())
        {
            problems.error(path, rules::OTHERS_CLAIM);
        }
        if storage.path.as_deref().is_some_and(|path| path.contains("..")) {
            problems.error(path.key("path"), rules::DOTS);
        }
        bucket(storage, &path, problems);
        if let Some(size) = &storage.size
            && size.millis().is_none_or(|millis| millis <= 0)
        {
            problems.error(path.key("size"), not_a_quantity(size));
        }
    }
}

/// A form that texts have, read once: every plan begins with a validation.
type Form = LazyLock<Option<Regex>>;

static SYSTEM_FORM: Form = LazyLock::new(|| Regex::new(rules::SYSTEM).ok());
static S3_FORM: Form = LazyLock::new(|| bucket_form(rules::S3_BUCKET));
static GCS_FORM: Form = LazyLock::new(|| bucket_form(rules::GCS_BUCKET));

fn bucket_form(bucket: &str) -> Option<Regex> {
    Regex::new(&format!("^{bucket}{}", rules::PREFIX)).ok()
}

fn matches(form: &Form, text: &str) -> bool {
    form.as_ref().is_some_and(|form| form.is_match(text))
}

fn bucket(storage: &CheckpointStorage, path: &At<'_>, problems: &mut Problems) {
    let kind = storage.kind.unwrap_or_default();
    let (message, form) = match kind {
        StorageType::Pvc if storage.path.as_deref().is_some_and(|path| path.contains("://")) => {
            return problems.error(path.key("path"), rules::PVC_PATH);
        }
        StorageType::Pvc => return,
        StorageType::S3 => (rules::S3_PATH, &S3_FORM),
        StorageType::Gcs => (rules::GCS_PATH, &GCS_FORM),
    };
    if !storage.path.as_deref().is_some_and(|path| matches(form, path)) {
        problems.error(path.key("path"), message);
    }
    if storage.size.is_some()
        || storage.storage_class.is_some()
        || storage.claim_name.is_some()
        || storage.access_mode.is_some()
    {
        problems.error(*path, rules::NO_CLAIM);
    }
}

fn resources(
    resources: Option<&Resources>,
    (gpus_field, gpus): (&str, i32),
    gpu_resource: &str,
    path: &At<'_>,
    problems: &mut Problems,
) {
    let Some(resources) = resources else { return };
    let lists = [("requests", &resources.requests), ("limits", &resources.limits)];
    for (list, amounts) in lists {
        for (name, amount) in amounts.iter().flatten() {
            let list = path.key(list);
            let path = list.key(name);
            let Some(millis) = amount.millis().filter(|millis| *millis >= 0) else {
                problems.error(path, not_a_quantity(amount));
                continue;
            };
            // Also against the default: what is written here would be lost otherwise, or be without a toleration.
            if name == gpu_resource && millis != i128::from(gpus) * 1000 {
                problems.error(
                    path,
                    format!(
                        "says {} GPUs, {gpus_field} is {gpus}: make them agree, or remove this",
                        amount.text()
                    ),
                );
            }
        }
    }
    for (name, request) in resources.requests.iter().flatten() {
        let limit = resources.limits.as_ref().and_then(|limits| limits.get(name));
        if let Some(limit) = limit
            && let (Some(request_millis), Some(limit_millis)) = (request.millis(), limit.millis())
            && request_millis > limit_millis
        {
            problems.error(
                path.key("requests").key(name),
                format!(
                    "{} is more than the limit of {}: lower it or raise the limit",
                    request.text(),
                    limit.text()
                ),
            );
        }
    }
}

fn not_a_quantity(amount: &Quantity) -> String {
    format!("\"{}\" is not an amount: write it as 2, 500m, 16Gi", amount.text())
}

fn policies(spec: &TrainingJobSpec, path: &At<'_>, problems: &mut Problems) {
    let policy = path.key("failurePolicy");
    let rules = policy.key("rules");
    for (index, rule) in spec.failure_rules().iter().enumerate() {
        let path = rules.index(index);
        if rule.exit_codes.is_none() && rule.reasons.is_none() && rule.log_pattern.is_none() {
            problems.error(path, rules::EMPTY_RULE);
        }
        for (at, code) in rule.exit_codes.iter().flatten().enumerate() {
            problems.range(path.key("exitCodes").index(at), Some(*code), 1..=255);
        }
        for (at, reason) in rule.reasons.iter().flatten().enumerate() {
            let mut known = REASONS.into_iter();
            if let Some(known) = known.find(|known| known != reason && known.eq_ignore_ascii_case(reason)) {
                problems.warning(
                    path.key("reasons").index(at),
                    format!("{reason} is never told, {known} is: reasons are compared letter by letter"),
                );
            }
        }
        if let Some(pattern) = &rule.log_pattern
            && let Err(error) = Regex::new(pattern)
        {
            problems.error(path.key("logPattern"), format!("is no regular expression: {error}"));
        }
    }
    let source = spec.progress.as_ref().and_then(|progress| progress.source);
    if spec.stall_timeout_seconds.is_some() && source == Some(ProgressSource::None) {
        problems.error(path.key("stallTimeoutSeconds"), rules::UNHEARD);
    }
    if spec.restart_policy() == RestartPolicy::Never && spec.restart_scope() == RestartScope::Worker {
        problems.warning(
            path.key("failurePolicy").key("restartScope"),
            "restartPolicy Never restarts nobody: remove one of the two",
        );
    }
    let argument = spec.checkpoint.as_ref().and_then(|checkpoint| checkpoint.resume_arg.as_deref());
    if argument.is_some_and(|argument| !argument.contains("{path}")) {
        problems.error(path.key("checkpoint").key("resumeArg"), rules::RESUME_ARG);
    } else if argument.is_some() && spec.image.is_some() && spec.command.is_none() && spec.args.is_none() {
        problems.error(
            path.key("checkpoint").key("resumeArg"),
            "needs command or args, or it would take the place of the image's own arguments: give them, too",
        );
    }
}

fn hyperparameters(spec: &TrainingJobSpec, path: &At<'_>, problems: &mut Problems) {
    let mut variables: BTreeMap<String, &str> = BTreeMap::new();
    for (name, value) in spec.hyperparameters.iter().flatten() {
        let variable = upper_snake(name);
        if let Some(other) = variables.insert(variable.clone(), name) {
            problems.error(
                path.key(name),
                format!("{other} and {name} both become HYPERPARAM_{variable}: rename one of them"),
            );
        }
        if !(value.is_string() || value.is_number() || value.is_boolean()) {
            problems.error(
                path.key(name),
                "must be a string, a number or a boolean: flatten it, or pass it as a string",
            );
        }
        if name.is_empty() || !name.chars().any(|c| c.is_ascii_alphanumeric()) {
            problems.error(path.key(name), "needs a letter or a digit: it becomes an environment variable");
        }
    }
}

fn environment(env: &[k8s_openapi::api::core::v1::EnvVar], path: &At<'_>, problems: &mut Problems) {
    for (index, variable) in env.iter().enumerate() {
        let path = path.index(index);
        if variable.name.is_empty() || variable.name.contains('=') {
            problems.error(path.key("name"), "must not be empty or contain '='");
        }
        if variable.value.is_some() && variable.value_from.is_some() {
            problems.error(path, format!("{} has value and valueFrom: keep one of them", variable.name));
        }
        if OURS.contains(&variable.name.as_str()) {
            problems.warning(
                path,
                format!(
                    "{} is set by Trainyard for each pod; this value is not used: remove it",
                    variable.name
                ),
            );
        }
    }
}

fn one_role(job: &str, role: &Role, gpu_resource: &str, path: &At<'_>, problems: &mut Problems) {
    if role.name == crate::names::WORKERS {
        problems.error(path.key("name"), rules::RESERVED_ROLE);
    } else if !is_dns_label(&role.name) {
        problems.error(
            path.key("name"),
            format!(
                "\"{}\" cannot be part of a pod's name: use a-z, 0-9 and '-', starting with a letter",
                role.name
            ),
        );
    }
    if role.name.len() > role_name_max(job) {
        problems.error(path.key("name"), rules::role_name_message());
    }
    problems.range(path.key("replicas"), role.replicas, 1..=i64::from(REPLICAS_MAX));
    problems.range(path.key("gpusPerReplica"), role.gpus_per_replica, 0..=8);
    if role.command.as_ref().is_some_and(Vec::is_empty) {
        problems.error(path.key("command"), "must have at least one word");
    }
    resources(
        role.resources.as_ref(),
        ("gpusPerReplica", role.gpus_per_replica.unwrap_or(0)),
        gpu_resource,
        &path.key("resources"),
        problems,
    );
    environment(role.env.as_deref().unwrap_or_default(), &path.key("env"), problems);
    if let Some(template) = &role.template {
        let gpus = role.gpus_per_replica.unwrap_or(0);
        let training = Training { gpu_resource, gpus, gpus_field: "gpusPerReplica" };
        problems.0.extend(template_problems(template, &training, &path.key("template").path()));
    }
}
