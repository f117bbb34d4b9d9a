//! What is refused, by whom, and in which words.
//!
//! Three lines of defence: the schema, the CEL rules (both in the API server), and `validate` (in the operator and in
//! `trainyard validate`). `validate` says all that the rules say, so that a file can be checked without a cluster: the
//! tests hold the two together.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};
use trainyard_api::{Problem, Severity, TrainingJob, crd, schema, validate};

const GPU: &str = "nvidia.com/gpu";

/// Who refuses it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The structural schema: types, enums, bounds, unknown fields.
    Schema,
    /// A CEL rule, and `validate` in the same words.
    Rule,
    /// `validate` alone: what rules cannot say.
    Operator,
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn named(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "ml.example.com/v1", "kind": "TrainingJob", "metadata": {"name": name, "namespace": "ml"}, "spec": spec})
}

/// A manifest from its spec, or from its name and its spec.
fn manifest(text: &str) -> Value {
    let value = yaml(text);
    if value.get("metadata").is_some() { value } else { named("bert", value) }
}

thread_local! {
    static SCHEMA: JSONSchemaProps = crd::schema();
    static RULES: CompiledSchema = SCHEMA.with(|schema| compile_schema(&serde_json::to_value(schema).expect("JSON")));
}

fn by_schema(object: &Value) -> Vec<String> {
    SCHEMA.with(|schema| schema::check(schema, object)).iter().map(ToString::to_string).collect()
}

fn by_rules(object: &Value, old: Option<&Value>) -> Vec<String> {
    RULES.with(|rules| {
        assert!(!rules.has_errors(), "{:?}", rules.compilation_errors());
        match Validator::new().validate_compiled(rules, object, old) {
            Ok(()) => Vec::new(),
            Err(errors) => errors.into_vec().into_iter().map(|error| error.message).collect(),
        }
    })
}

fn problems(object: &Value) -> Vec<Problem> {
    let job: TrainingJob =
        serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"));
    validate(&job, GPU)
}

fn by_operator(object: &Value) -> Vec<String> {
    problems(object)
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(ToString::to_string)
        .collect()
}

fn says(problems: &[String], fragment: &str) -> bool {
    problems.iter().any(|problem| problem.contains(fragment))
}

/// (spec, who refuses it, what it says)
const BAD: &[(&str, By, &str)] = &[
    // Types and unknown fields.
    ("{image: x, numWorkers: two}", By::Schema, "spec.numWorkers: must be a whole number, not \"two\""),
    ("{image: x, numWorkers: 1.5}", By::Schema, "spec.numWorkers: must be a whole number, not 1.5"),
    ("{image: [x]}", By::Schema, "spec.image: must be a string, not a list"),
    ("{image: x, suspend: 'yes'}", By::Schema, "spec.suspend: must be true or false"),
    ("{image: x, command: python train.py}", By::Schema, "spec.command: must be a list"),
    ("{image: x, args: [1]}", By::Schema, "spec.args[0]: must be a string, not 1"),
    ("{image: null, model: m, dataset: d}", By::Schema, "spec.image: must be a string, not null"),
    ("{image: x, numWorker: 2}", By::Schema, "spec.numWorker: unknown field; did you mean numWorkers?"),
    ("{image: x, checkpoint: {keepFirst: 3}}", By::Schema, "spec.checkpoint.keepFirst: unknown field"),
    ("{image: x, checkpoint: {keepLast: -1}}", By::Schema, "spec.checkpoint.keepLast"),
    ("{image: x, stallTimeoutSeconds: 0}", By::Schema, "spec.stallTimeoutSeconds"),
    ("{image: x, successPolicy: Most}", By::Schema, "spec.successPolicy"),
    (
        "{image: x, failurePolicy: {rules: [{exitCodes: [3]}]}}",
        By::Schema,
        "spec.failurePolicy.rules[0].action: is required",
    ),
    ("{image: x, elastic: {minWorkers: 1}}", By::Schema, "spec.elastic: unknown field"),
    ("{image: x, dataVolume: {readOnly: true}}", By::Schema, "spec.dataVolume.claimName: is required"),
    ("{image: x, roles: [{replicas: 1}]}", By::Schema, "spec.roles[0].name: is required"),
    ("{metadata: {name: bert}}", By::Schema, "spec: is required"),
    // Enums.
    ("{image: x, framework: caffe}", By::Schema, "spec.framework: \"caffe\" is not one of pytorch, custom"),
    (
        "{image: x, restartPolicy: Always}",
        By::Schema,
        "spec.restartPolicy: \"Always\" is not one of OnFailure, Never, ExitCode",
    ),
    (
        "{image: x, cleanPodPolicy: Some}",
        By::Schema,
        "spec.cleanPodPolicy: \"Some\" is not one of Running, All, None",
    ),
    (
        "{image: x, networking: {backend: tcp}}",
        By::Schema,
        "spec.networking.backend: \"tcp\" is not one of nccl, gloo, mpi",
    ),
    (
        "{image: x, checkpoint: {storage: {type: tape}}}",
        By::Schema,
        "spec.checkpoint.storage.type: \"tape\" is not one of pvc, s3, gcs",
    ),
    (
        "{image: x, roles: [{name: a, order: First}]}",
        By::Schema,
        "spec.roles[0].order: \"First\" is not one of",
    ),
    (
        "{image: x, roles: [{name: a, success: Maybe}]}",
        By::Schema,
        "spec.roles[0].success: \"Maybe\" is not one of",
    ),
    // Bounds.
    ("{image: x, numWorkers: 1025}", By::Schema, "spec.numWorkers: 1025 is too large: at most 1024"),
    ("{image: x, workers: -1}", By::Schema, "spec.workers: -1 is too small: at least 0"),
    ("{image: x, gpusPerWorker: 9}", By::Schema, "spec.gpusPerWorker: 9 is too large: at most 8"),
    ("{image: x, gpuPerWorker: -1}", By::Schema, "spec.gpuPerWorker: -1 is too small: at least 0"),
    ("{image: x, procsPerWorker: 0}", By::Schema, "spec.procsPerWorker: 0 is too small: at least 1"),
    ("{image: x, backoffLimit: 101}", By::Schema, "spec.backoffLimit: 101 is too large: at most 100"),
    ("{image: x, backoffLimit: -1}", By::Schema, "spec.backoffLimit: -1 is too small"),
    ("{image: x, checkpointInterval: 0}", By::Schema, "spec.checkpointInterval: 0 is too small: at least 1"),
    (
        "{image: x, activeDeadlineSeconds: 0}",
        By::Schema,
        "spec.activeDeadlineSeconds: 0 is too small: at least 1",
    ),
    ("{image: x, startupTimeoutSeconds: -5}", By::Schema, "spec.startupTimeoutSeconds: -5 is too small"),
    (
        "{image: x, ttlSecondsAfterFinished: -1}",
        By::Schema,
        "spec.ttlSecondsAfterFinished: -1 is too small: at least 0",
    ),
    (
        "{image: x, networking: {masterPort: 70000}}",
        By::Schema,
        "spec.networking.masterPort: 70000 is too large: at most 65535",
    ),
    (
        "{image: x, roles: [{name: a, replicas: 0}]}",
        By::Schema,
        "spec.roles[0].replicas: 0 is too small: at least 1",
    ),
    (
        "{image: x, roles: [{name: a, gpusPerReplica: 9}]}",
        By::Schema,
        "spec.roles[0].gpusPerReplica: 9 is too large",
    ),
    ("{image: '', model: m}", By::Schema, "spec.image: must not be empty"),
    ("{image: x, command: []}", By::Schema, "spec.command: must have at least 1 item(s)"),
    ("{image: x, managedBy: ''}", By::Schema, "spec.managedBy: must not be empty"),
    (
        "{image: x, checkpointDir: checkpoints}",
        By::Schema,
        "spec.checkpointDir: \"checkpoints\" does not match ^/",
    ),
    ("{image: x, roles: [{name: Big_Name}]}", By::Schema, "spec.roles[0].name: \"Big_Name\" does not match"),
    ("{image: x, roles: [{name: a}, {name: a}]}", By::Schema, "spec.roles[1]: is there twice"),
    (
        "{image: x, resources: {limits: {cpu: 1.5}}}",
        By::Schema,
        "spec.resources.limits.cpu: must be a whole number or a string",
    ),
    // Rules.
    (
        "{image: x, failurePolicy: {rules: [{action: Fail}]}}",
        By::Rule,
        "a rule must say what it matches: give exitCodes, reasons or logPattern",
    ),
    (
        "{image: x, checkpoint: {enabled: false, holdEvictions: true}}",
        By::Rule,
        "holdEvictions needs checkpoints",
    ),
    ("{image: x, args: [a], checkpoint: {resumeArg: --resume}}", By::Rule, "must have {path} in it"),
    // What only the operator can tell.
    (
        "{image: x, failurePolicy: {rules: [{logPattern: '(', action: Fail}]}}",
        By::Operator,
        "spec.failurePolicy.rules[0].logPattern: is no regular expression",
    ),
    (
        "{image: x, checkpoint: {resumeArg: '--resume={path}'}}",
        By::Operator,
        "spec.checkpoint.resumeArg: needs command or args",
    ),
    ("{numWorkers: 2}", By::Rule, "give image, or both model and dataset"),
    ("{model: resnet50}", By::Rule, "give image, or both model and dataset"),
    ("{framework: pytorch, workers: 2}", By::Rule, "give image, or both model and dataset"),
    ("{image: x, numWorkers: 0}", By::Rule, "at least one worker is needed"),
    (
        "{image: x, workers: 0, roles: [{name: eval}]}",
        By::Rule,
        "at least one worker is needed (0 is allowed only beside a ranked role)",
    ),
    (
        "{image: x, numWorkers: 2, workers: 2}",
        By::Rule,
        "numWorkers and workers are two names of one field: keep one of them; to scale",
    ),
    (
        "{image: x, gpusPerWorker: 0, gpuPerWorker: 0}",
        By::Rule,
        "gpusPerWorker and gpuPerWorker are two names of one field: keep one",
    ),
    (
        "{image: x, checkpointDir: /a, checkpoint: {directory: /a}}",
        By::Rule,
        "checkpoint.directory and checkpointDir are two names",
    ),
    (
        "{image: x, checkpointInterval: 1, checkpoint: {frequency: 1}}",
        By::Rule,
        "checkpoint.frequency and checkpointInterval are two names",
    ),
    (
        "{image: x, roles: [{name: workers}]}",
        By::Rule,
        "workers is the role that numWorkers makes: choose another name",
    ),
    ("{image: x, checkpoint: {directory: /}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: //}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /etc}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /usr/}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /bin}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /sbin}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /lib}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /lib64}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /proc}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /dev/}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /sys}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /boot}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /run}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /var}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /home}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /root}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /opt}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /tmp/}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /c/..}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpoint: {directory: /./}}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpointDir: /}", By::Rule, "need a directory of their own"),
    ("{image: x, checkpointDir: /var/}", By::Rule, "need a directory of their own"),
    (
        "{image: x, stallTimeoutSeconds: 60, progress: {source: None}}",
        By::Rule,
        "stallTimeoutSeconds needs progress to be heard",
    ),
    (
        "{image: x, checkpoint: {storage: {type: s3, path: 's3://My_Bucket/runs'}}}",
        By::Rule,
        "with a bucket of a-z, 0-9, '.' and '-'",
    ),
    (
        "{image: x, checkpoint: {storage: {type: gcs, path: 'gs://Bucket'}}}",
        By::Rule,
        "with a bucket of a-z, 0-9, '.', '-' and '_'",
    ),
    ("{image: x, dataMountPath: /data}", By::Rule, "dataMountPath needs dataVolume"),
    (
        "{image: x, checkpoint: {storage: {claimName: c, size: 1Gi}}}",
        By::Rule,
        "claimName names a claim that exists already",
    ),
    (
        "{image: x, checkpoint: {storage: {claimName: c, storageClass: s}}}",
        By::Rule,
        "claimName names a claim that exists already",
    ),
    ("{image: x, checkpoint: {storage: {path: ../other}}}", By::Rule, "path must stay inside the claim"),
    (
        "{image: x, checkpoint: {storage: {type: s3}}}",
        By::Rule,
        "type s3 needs the bucket in path: write s3://bucket/prefix",
    ),
    (
        "{image: x, checkpoint: {storage: {type: s3, path: 'gs://bucket/runs'}}}",
        By::Rule,
        "type s3 needs the bucket in path: write s3://bucket/prefix",
    ),
    (
        "{image: x, checkpoint: {storage: {type: gcs, path: 's3://bucket/runs'}}}",
        By::Rule,
        "type gcs needs the bucket in path: write gs://bucket/prefix",
    ),
    ("{image: x, checkpoint: {storage: {type: gcs}}}", By::Rule, "type gcs needs the bucket in path"),
    ("{image: x, checkpoint: {storage: {type: s3, path: 's3://'}}}", By::Rule, "type s3 needs the bucket"),
    (
        "{image: x, checkpoint: {storage: {type: s3, path: 's3:///runs'}}}",
        By::Rule,
        "type s3 needs the bucket",
    ),
    (
        "{image: x, checkpoint: {storage: {type: s3, path: 's3://a//b'}}}",
        By::Rule,
        "type s3 needs the bucket",
    ),
    (
        "{image: x, checkpoint: {storage: {type: s3, path: 's3://a/./b'}}}",
        By::Rule,
        "type s3 needs the bucket",
    ),
    (
        "{image: x, checkpoint: {storage: {type: s3, path: 's3://a/b c'}}}",
        By::Rule,
        "type s3 needs the bucket",
    ),
    (
        "{image: x, checkpoint: {storage: {path: 's3://bucket/runs'}}}",
        By::Rule,
        "path names a bucket, and the storage is a claim: give type: s3 or type: gcs with it",
    ),
    (
        "{image: x, checkpoint: {storage: {type: pvc, path: 'gs://bucket/runs'}}}",
        By::Rule,
        "path names a bucket, and the storage is a claim",
    ),
    (
        "{image: x, checkpoint: {storage: {type: s3, path: 's3://bucket', size: 1Gi}}}",
        By::Rule,
        "size, storageClass, claimName and accessMode are for a claim, and this is a bucket: remove them",
    ),
    (
        "{image: x, checkpoint: {storage: {type: gcs, path: 'gs://bucket', claimName: c}}}",
        By::Rule,
        "are for a claim, and this is a bucket",
    ),
    (
        "{image: x, checkpoint: {storage: {type: s3, path: 's3://bucket', accessMode: ReadWriteMany}}}",
        By::Rule,
        "are for a claim, and this is a bucket",
    ),
    (
        "{image: x, checkpoint: {storage: {type: s3, path: 's3://bucket', storageClass: fast}}}",
        By::Rule,
        "are for a claim, and this is a bucket",
    ),
    (
        "{image: x, checkpoint: {deleteOnCompletion: true, storage: {type: s3, path: 's3://bucket'}}}",
        By::Rule,
        "deleteOnCompletion removes a claim; what is in a bucket stays",
    ),
    (
        "{metadata: {name: a123456789-123456789-123456789-123456789-123456789x}, spec: {image: x}}",
        By::Rule,
        "metadata.name must be at most 50 characters",
    ),
    ("{metadata: {name: 1bert}, spec: {image: x}}", By::Rule, "starting with a letter"),
    (
        "{metadata: {name: bert.large}, spec: {image: x}}",
        By::Rule,
        "metadata.name must be at most 50 characters of a-z, 0-9 and '-'",
    ),
    (
        "{metadata: {name: a123456789-123456789-12345}, spec: {image: x, roles: [{name: b123456789-123456789-123456789-1}]}}",
        By::Rule,
        "must have at most 57 characters together",
    ),
    // Beyond rules.
    (
        "{image: x, resources: {requests: {memory: 4 GB}}}",
        By::Operator,
        "spec.resources.requests.memory: \"4 GB\" is not an amount: write it as 2, 500m, 16Gi",
    ),
    (
        "{image: x, resources: {limits: {cpu: -1}}}",
        By::Operator,
        "spec.resources.limits.cpu: \"-1\" is not an amount",
    ),
    (
        "{image: x, resources: {requests: {cpu: 4}, limits: {cpu: 2}}}",
        By::Operator,
        "spec.resources.requests.cpu: 4 is more than the limit of 2",
    ),
    (
        "{image: x, gpusPerWorker: 2, resources: {limits: {nvidia.com/gpu: 1}}}",
        By::Operator,
        "spec.resources.limits[nvidia.com/gpu]: says 1 GPUs, gpusPerWorker is 2",
    ),
    (
        "{image: x, gpuPerWorker: 2, resources: {limits: {nvidia.com/gpu: 1}}}",
        By::Operator,
        "says 1 GPUs, gpuPerWorker is 2",
    ),
    // Against the default, too: 0 with an image, 1 without.
    ("{image: x, resources: {limits: {nvidia.com/gpu: 1}}}", By::Operator, "says 1 GPUs, gpusPerWorker is 0"),
    (
        "{model: m, dataset: d, resources: {limits: {nvidia.com/gpu: 4}}}",
        By::Operator,
        "says 4 GPUs, gpusPerWorker is 1",
    ),
    (
        "{image: x, roles: [{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]}",
        By::Operator,
        "spec.roles[0].resources.limits[nvidia.com/gpu]: says 1 GPUs, gpusPerReplica is 0",
    ),
    (
        "{image: x, checkpoint: {storage: {size: huge}}}",
        By::Operator,
        "spec.checkpoint.storage.size: \"huge\" is not an amount",
    ),
    (
        "{image: x, checkpoint: {storage: {size: 0}}}",
        By::Operator,
        "spec.checkpoint.storage.size: \"0\" is not an amount",
    ),
    (
        "{image: x, hyperparameters: {lr: [0.1, 0.2]}}",
        By::Operator,
        "spec.hyperparameters.lr: must be a string, a number or a boolean",
    ),
    ("{image: x, hyperparameters: {'--': 1}}", By::Operator, "needs a letter or a digit"),
    (
        "{image: x, env: [{name: 'A=B', value: c}]}",
        By::Operator,
        "spec.env[0].name: must not be empty or contain '='",
    ),
    (
        "{image: x, env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}",
        By::Operator,
        "A has value and valueFrom: keep one",
    ),
    (
        "{image: x, checkpointDir: /data, dataVolume: {claimName: d}}",
        By::Operator,
        "the data and the checkpoints would both be mounted at /data",
    ),
    (
        "{image: x, numWorkers: 0, roles: [{name: m, ranked: true, success: Ignored}]}",
        By::Operator,
        "nothing decides when this job has succeeded",
    ),
    (
        "{image: x, template: {spec: {nodeSelecter: {a: b}}}}",
        By::Operator,
        "spec.template.spec.nodeSelecter: unknown field",
    ),
    (
        "{image: x, template: {spec: {restartPolicy: Always}}}",
        By::Operator,
        "spec.template.spec.restartPolicy: must be Never",
    ),
    (
        "{image: x, template: {spec: {hostname: h}}}",
        By::Operator,
        "spec.template.spec.hostname: is set by Trainyard",
    ),
    (
        "{image: x, template: {spec: {containers: [{image: b}]}}}",
        By::Operator,
        "spec.template.spec.containers[0].name: is required",
    ),
    (
        "{image: x, template: {spec: {containers: [{name: training-worker, $patch: delete}]}}}",
        By::Operator,
        "must keep the training container",
    ),
    (
        "{image: x, roles: [{name: a, template: {spec: {nodeName: n}}}]}",
        By::Operator,
        "spec.roles[0].template.spec.nodeName: is set by Trainyard",
    ),
];

#[test]
fn bad_manifests_are_refused_with_these_words() {
    let mut wrong = Vec::new();
    for (text, by, fragment) in BAD {
        let object = manifest(text);
        let in_schema = by_schema(&object);
        let expected = match by {
            By::Schema => says(&in_schema, fragment),
            By::Rule => {
                in_schema.is_empty()
                    && says(&by_rules(&object, None), fragment)
                    && says(&by_operator(&object), fragment)
            }
            By::Operator => {
                in_schema.is_empty()
                    && by_rules(&object, None).is_empty()
                    && says(&by_operator(&object), fragment)
            }
        };
        if !expected {
            let typed = serde_json::from_value::<TrainingJob>(object.clone()).is_ok();
            let (rules, operator) = if typed {
                (by_rules(&object, None), by_operator(&object))
            } else {
                (Vec::new(), Vec::new())
            };
            wrong.push(format!("{text}\n  {by:?}: {fragment}\n  schema: {in_schema:?}\n  rules: {rules:?}\n  validate: {operator:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(BAD.len() >= 30);
}

/// Values that the schema bounds are bounded in `validate`, too: an object may have got past an older CRD.
#[test]
fn numbers_out_of_bounds_are_also_seen_without_the_schema() {
    for (text, by, _) in BAD {
        let object = manifest(text);
        let bounds = ["too large", "too small"];
        let numeric =
            by_schema(&object).iter().any(|problem| bounds.iter().any(|bound| problem.contains(bound)));
        if *by == By::Schema && numeric {
            assert!(!by_operator(&object).is_empty(), "{text}");
        }
    }
}

#[test]
fn every_problem_is_told_at_once() {
    let object = manifest(
        "{numWorkers: 0, workers: 0, dataMountPath: /x, resources: {limits: {cpu: x}}, roles: [{name: workers}]}",
    );
    let told = by_operator(&object);
    for fragment in [
        "give image",
        "at least one worker",
        "two names",
        "dataMountPath needs",
        "not an amount",
        "choose another name",
    ] {
        assert!(says(&told, fragment), "{fragment}: {told:?}");
    }
}

const GOOD: &[&str] = &[
    "{image: x}",
    "{model: m, dataset: d}",
    "{image: x, model: m}",
    "{image: x, numWorkers: 1024, gpusPerWorker: 8, backoffLimit: 0, ttlSecondsAfterFinished: 0}",
    "{image: x, workers: 4, gpuPerWorker: 1, checkpointDir: /c, checkpointInterval: 5}",
    "{image: x, numWorkers: 0, roles: [{name: master, ranked: true}]}",
    "{image: x, roles: [{name: ps, replicas: 2, order: BeforeWorkers, success: Required}, {name: eval}]}",
    "{image: x, hyperparameters: {lr: 0.001, optimizer: adam, momentum: 0.9, epochs: 10, bf16: true}}",
    "{image: x, gpusPerWorker: 1, resources: {requests: {cpu: 500m, nvidia.com/gpu: 1}, limits: {cpu: 2, memory: 16Gi, nvidia.com/gpu: '1'}}}",
    "{image: x, checkpoint: {storage: {claimName: mine, path: a/b}}}",
    "{image: x, checkpoint: {storage: {type: s3, path: 's3://bucket'}}}",
    "{image: x, checkpoint: {storage: {type: s3, path: 's3://my-bucket.eu/runs/2026/'}}}",
    "{image: x, checkpoint: {deleteOnCompletion: false, storage: {type: gcs, path: 'gs://bucket/a=b/v1.2'}}}",
    "{image: x, checkpoint: {storage: {type: gcs, path: 'gs://my_bucket/runs'}}}",
    "{image: x, checkpoint: {directory: /tmp/checkpoints/}}",
    "{image: x, checkpoint: {directory: /var/lib/.hidden}}",
    "{image: x, checkpointDir: /tmpfs}",
    "{image: x, stallTimeoutSeconds: 60, progress: {source: Logs}}",
    "{image: x, progress: {source: None}}",
    "{image: x, checkpoint: {deleteOnCompletion: false, storage: {claimName: mine}}}",
    "{image: x, checkpoint: {enabled: false, storage: {size: 10Gi, storageClass: fast, accessMode: ReadWriteOnce}}}",
    "{image: x, dataVolume: {claimName: d, readOnly: true}, dataMountPath: /in}",
    "{image: x, template: {metadata: {labels: {team: a}}, spec: {nodeSelector: {gpu: a100}, tolerations: [{operator: Exists}]}}}",
    "{image: x, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}], envFrom: [{secretRef: {name: s}}]}",
    "{image: x, managedBy: kueue.x-k8s.io/multikueue}",
    // The guide's best practice, in the form that the guide has its jobs.
    "{model: m, dataset: d, resources: {requests: {cpu: '4', memory: 16Gi, nvidia.com/gpu: '1'}, limits: {cpu: '8', memory: 32Gi, nvidia.com/gpu: '1'}}}",
    "{metadata: {name: a123456789-123456789-123456789-123456789-123456789}, spec: {image: x}}",
];

/// The manifests of the pages, unchanged.
const PAGES: &[&str] = &[
    include_str!("../../plan/tests/manifests/lab-pytorch-mnist.yaml"),
    include_str!("../../plan/tests/manifests/lecture-mnist-training.yaml"),
    include_str!("../../plan/tests/manifests/guide-test-job.yaml"),
];

#[test]
fn good_manifests_are_accepted_by_all() {
    for text in GOOD.iter().chain(PAGES) {
        let object = manifest(text);
        assert_eq!(by_schema(&object), Vec::<String>::new(), "{text}");
        assert_eq!(by_rules(&object, None), Vec::<String>::new(), "{text}");
        assert_eq!(by_operator(&object), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn a_variable_of_ours_is_a_warning() {
    let object = manifest("{image: x, env: [{name: RANK, value: '1'}]}");
    let problems = problems(&object);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].severity, Severity::Warning);
    assert_eq!(
        problems[0].to_string(),
        "spec.env[0]: RANK is set by Trainyard for each pod; this value is not used: remove it"
    );
}

#[test]
fn an_unknown_field_of_a_template_is_an_error_unless_it_is_empty() {
    let with = |mounts: &str| {
        let container = format!("{{name: training-worker, volumeMount: {mounts}}}");
        let text = format!("{{image: x, template: {{spec: {{containers: [{container}]}}}}}}");
        problems(&manifest(&text)).iter().map(|it| (it.severity, it.to_string())).collect::<Vec<_>>()
    };
    let told = "spec.template.spec.containers[0].volumeMount: unknown field; did you mean volumeMounts?";
    assert_eq!(with("[{name: a, mountPath: /a}]"), [(Severity::Error, told.to_owned())]);
    assert_eq!(with("[]"), [(Severity::Warning, told.to_owned())]);
}

/// All combinations of what the rules look at: the API server and `validate` say the same, word for word.
#[test]
fn a_reason_that_is_spelt_otherwise_is_a_warning() {
    let with = |reason: &str| {
        let text = format!("{{image: x, failurePolicy: {{rules: [{{reasons: [{reason}], action: Fail}}]}}}}");
        problems(&manifest(&text)).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let told = with("OOMkilled");
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("reasons[0]") && told[0].contains("OOMKilled is"), "{told:?}");
    for good in ["OOMKilled", "Evicted", "SomethingNew"] {
        assert_eq!(with(good), Vec::<String>::new());
    }
}

#[test]
fn deleting_a_claim_of_your_own_is_a_warning() {
    for (storage, warnings) in [("{claimName: mine}", 1), ("{size: 1Gi}", 0)] {
        let text = format!("{{image: x, checkpoint: {{deleteOnCompletion: true, storage: {storage}}}}}");
        let problems = problems(&manifest(&text));
        let found = problems.iter().filter(|problem| problem.severity == Severity::Warning).count();
        assert_eq!((problems.len(), found), (warnings, warnings), "{problems:?}");
    }
}

#[test]
fn rules_and_validate_agree() {
    let programs =
        ["{}", "{image: x}", "{model: m}", "{dataset: d}", "{model: m, dataset: d}", "{image: x, model: m}"];
    let counts = [
        "{}",
        "{numWorkers: 0}",
        "{numWorkers: 2}",
        "{workers: 0}",
        "{workers: 1}",
        "{numWorkers: 0, workers: 3}",
        "{numWorkers: 1, workers: 0}",
    ];
    let roles = [
        "{}",
        "{roles: []}",
        "{roles: [{name: eval}]}",
        "{roles: [{name: master, ranked: true}]}",
        "{roles: [{name: workers}]}",
        "{roles: [{name: workers, ranked: true}, {name: eval}]}",
        "{roles: [{name: b123456789-123456789-123456789-123456789}]}",
    ];
    let gpus = ["{}", "{gpusPerWorker: 1}", "{gpuPerWorker: 1}", "{gpusPerWorker: 1, gpuPerWorker: 1}"];
    let storage = [
        "{}",
        "{checkpointDir: /c}",
        "{checkpoint: {directory: /c}}",
        "{checkpointDir: /c, checkpoint: {directory: /c}}",
        "{checkpointDir: /c, checkpoint: {enabled: true}}",
        "{checkpointInterval: 2, checkpoint: {frequency: 2}}",
        "{checkpoint: {storage: {claimName: c}}}",
        "{checkpoint: {storage: {claimName: c, accessMode: ReadWriteMany, path: a..b}}}",
        "{checkpoint: {storage: {size: 1Gi, path: a/../b}}}",
        "{checkpoint: {storage: {type: s3, path: 's3://b/../a', claimName: c, size: 1Gi}}}",
        "{checkpoint: {deleteOnCompletion: true, storage: {type: gcs, path: 'gs://b/a/...'}}}",
        "{checkpoint: {deleteOnCompletion: true, storage: {type: pvc, path: 'gs://b'}}}",
        "{checkpoint: {storage: {type: s3, path: a/b}}}",
    ];
    let data = [
        "{}",
        "{dataMountPath: /d}",
        "{dataVolume: {claimName: d}}",
        "{dataVolume: {claimName: d}, dataMountPath: /d}",
    ];
    let names = [
        "bert",
        "a123456789-123456789-1234",
        "a123456789-123456789-123456789-123456789-123456789",
        &"a".repeat(51),
        "Bert",
        "bert-",
    ];

    let one: Vec<[&str; 3]> = product(&programs, &counts, &roles);
    let two: Vec<[&str; 3]> = product(&gpus, &storage, &data);
    let base = "{image: x}";
    let mut specs: Vec<Vec<&str>> = one.iter().map(|parts| parts.to_vec()).collect();
    specs.extend(two.iter().map(|parts| [&[base], &parts[..]].concat()));
    let mut compared = 0;
    for parts in &specs {
        let mut spec = serde_json::Map::new();
        for part in parts {
            spec.extend(yaml(part).as_object().unwrap().clone());
        }
        let with_roles = spec.contains_key("roles");
        for name in names.iter().take(if with_roles { names.len() } else { 1 }) {
            let object = named(name, spec.clone().into());
            assert_eq!(by_schema(&object), Vec::<String>::new(), "{object}");
            let said: BTreeSet<String> = by_rules(&object, None).into_iter().collect();
            let told: BTreeSet<String> =
                problems(&object).into_iter().map(|problem| problem.message).collect();
            assert_eq!(said, told, "{object}");
            compared += 1;
        }
    }
    assert!(compared > 1000, "{compared}");
}

fn product<'a>(first: &[&'a str], second: &[&'a str], third: &[&'a str]) -> Vec<[&'a str; 3]> {
    let pairs = first.iter().flat_map(|a| second.iter().map(move |b| (a, b)));
    pairs.flat_map(|(a, b)| third.iter().map(move |c| [*a, *b, *c])).collect()
}

/// (before, after, what is said; nothing when it is allowed)
const CHANGES: &[(&str, &str, Option<&str>)] = &[
    ("{image: x}", "{image: y}", None),
    ("{image: x, numWorkers: 2}", "{image: x, numWorkers: 4}", None),
    ("{image: x, workers: 2}", "{image: x, workers: 4}", None),
    ("{image: x, numWorkers: 2}", "{image: x, workers: 2}", None),
    ("{image: x}", "{image: x, suspend: true, backoffLimit: 9, ttlSecondsAfterFinished: 1}", None),
    ("{image: x}", "{image: x, framework: pytorch}", None),
    ("{image: x, framework: pytorch}", "{image: x}", None),
    (
        "{image: x}",
        "{image: x, framework: custom}",
        Some("framework is immutable (it is pytorch): create another job for another framework"),
    ),
    ("{image: x, framework: custom}", "{image: x}", Some("framework is immutable (it is custom)")),
    (
        "{model: a, dataset: d}",
        "{model: b, dataset: d}",
        Some("model is immutable (it is a): create another job for another model"),
    ),
    ("{image: x}", "{image: x, model: b}", Some("model is immutable (it is not set)")),
    ("{image: x, model: b}", "{image: x}", Some("model is immutable (it is b)")),
    (
        "{model: a, dataset: d}",
        "{model: a, dataset: e}",
        Some("dataset is immutable (it is d): create another job for another dataset"),
    ),
    (
        "{image: x, gpusPerWorker: 1}",
        "{image: x, gpusPerWorker: 2}",
        Some("gpusPerWorker is immutable: create another job for another number of GPUs per worker"),
    ),
    ("{image: x, gpusPerWorker: 1}", "{image: x, gpuPerWorker: 1}", None),
    ("{image: x, gpusPerWorker: 0}", "{image: x}", None),
    ("{image: x, gpuPerWorker: 1}", "{image: x}", Some("gpusPerWorker is immutable")),
    ("{model: a, dataset: d}", "{model: a, dataset: d, gpusPerWorker: 1}", None),
    ("{model: a, dataset: d}", "{image: x, model: a, dataset: d}", Some("gpusPerWorker is immutable")),
    ("{image: x}", "{image: x, managedBy: me}", Some("managedBy is immutable (it is not set)")),
    ("{image: x, managedBy: me}", "{image: x}", Some("managedBy is immutable (it is me)")),
    ("{image: x, managedBy: me}", "{image: x, managedBy: you}", Some("managedBy is immutable (it is me)")),
    (
        "{image: x, checkpoint: {storage: {size: 1Gi}}}",
        "{image: x, checkpoint: {storage: {size: 2Gi}}}",
        Some("checkpoint.storage is immutable"),
    ),
    (
        "{image: x, checkpoint: {}}",
        "{image: x, checkpoint: {storage: {size: 2Gi}}}",
        Some("checkpoint.storage is immutable"),
    ),
    ("{image: x, checkpoint: {storage: {size: 1Gi}}}", "{image: x}", Some("checkpoint.storage is immutable")),
    (
        "{image: x, checkpoint: {storage: {type: s3, path: 's3://a/b'}}}",
        "{image: x, checkpoint: {storage: {type: s3, path: 's3://a/c'}}}",
        Some("checkpoint.storage is immutable"),
    ),
    (
        "{image: x, checkpoint: {frequency: 1, storage: {size: 1Gi}}}",
        "{image: x, checkpoint: {frequency: 9, storage: {size: 1Gi}}}",
        None,
    ),
    ("{image: x, checkpoint: {}}", "{image: x, checkpoint: {enabled: false}}", None),
    // Both names of one thing through the wrong `scale`: told how to scale.
    (
        "{image: x, workers: 2}",
        "{image: x, workers: 2, numWorkers: 4}",
        Some("kubectl scale trainingjobs.v1alpha1.ml.example.com/NAME"),
    ),
];

#[test]
fn what_may_change_and_what_may_not() {
    let mut wrong = Vec::new();
    for (before, after, expected) in CHANGES {
        let said = by_rules(&manifest(after), Some(&manifest(before)));
        let right = match expected {
            None => said.is_empty(),
            Some(fragment) => says(&said, fragment),
        };
        if !right {
            wrong.push(format!("{before} -> {after}: expected {expected:?}, said {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A job with a name that only generateName will complete.
#[test]
fn a_file_without_a_name_is_no_problem() {
    let job: TrainingJob = serde_json::from_value(json!({
        "apiVersion": "ml.example.com/v1", "kind": "TrainingJob", "metadata": {"generateName": "bert-"}, "spec": {"image": "x"},
    }))
    .unwrap();
    assert_eq!(validate(&job, GPU), Vec::new());
}
