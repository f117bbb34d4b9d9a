//! Everything that a job makes, as golden YAML: a reviewer sees a change of what is built as a change of these files.
//!
//! Of each role, the first pod is shown in full and the others by what differs from it.

mod support;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};
use support::{Cluster, Job, job};
use trainyard_api::State;
use trainyard_plan::NewObject;

/// Runs the job until everything is created.
fn made(mut cluster: Cluster) -> Vec<NewObject> {
    for _ in 0..4 {
        cluster.settle();
        cluster.run_all();
    }
    cluster.settle();
    assert_eq!(cluster.state(), State::Running, "{}", cluster.message());
    cluster.created
}

fn shown(objects: &[NewObject]) -> Value {
    let mut shown = Map::new();
    let mut first_of_role: BTreeMap<String, Value> = BTreeMap::new();
    let mut objects: Vec<&NewObject> = objects.iter().collect();
    objects.sort_by_key(|object| (object.kind(), object.name()));
    for object in objects {
        let title = format!("{} {}", object.kind().as_str(), object.name());
        let value = match object {
            NewObject::Pod(pod) => serde_json::to_value(pod),
            NewObject::Service(service) => serde_json::to_value(service),
            NewObject::ConfigMap(map) => serde_json::to_value(map),
            NewObject::Claim(claim) => serde_json::to_value(claim),
        }
        .expect("JSON");
        let NewObject::Pod(_) = object else {
            shown.insert(title, value);
            continue;
        };
        let role = value["metadata"]["labels"]["trainingjob.ml.example.com/role"]
            .as_str()
            .expect("a role")
            .to_owned();
        match first_of_role.get(&role) {
            None => {
                first_of_role.insert(role, value.clone());
                shown.insert(title, value);
            }
            Some(first) => {
                let mut differences = Map::new();
                compare("", first, &value, &mut differences);
                shown.insert(
                    format!("{title}, as {} except", first["metadata"]["name"]).replace('"', ""),
                    differences.into(),
                );
            }
        }
    }
    shown.into()
}

/// Variables by their names, so that a difference says which.
fn by_name(items: &[Value]) -> Option<Map<String, Value>> {
    items.iter().map(|item| Some((item.get("name")?.as_str()?.to_owned(), item.clone()))).collect()
}

fn compare(path: &str, first: &Value, other: &Value, differences: &mut Map<String, Value>) {
    let (first_fields, other_fields) = match (first, other) {
        (Value::Object(first), Value::Object(other)) => (first.clone(), other.clone()),
        (Value::Array(first), Value::Array(other)) => match (by_name(first), by_name(other)) {
            (Some(first), Some(other)) => (first, other),
            _ if first == other => return,
            _ => {
                differences.insert(path.to_owned(), other.clone().into());
                return;
            }
        },
        _ => {
            if first != other {
                differences.insert(path.to_owned(), other.clone());
            }
            return;
        }
    };
    for (key, value) in &other_fields {
        match first_fields.get(key) {
            Some(before) => compare(&format!("{path}/{key}"), before, value, differences),
            None => {
                differences.insert(format!("{path}/{key}"), value.clone());
            }
        }
    }
    for key in first_fields.keys().filter(|key| !other_fields.contains_key(*key)) {
        differences.insert(format!("{path}/{key}"), json!("(absent)"));
    }
}

fn spec(yaml: &str) -> Job {
    let spec = serde_saphyr::from_str(yaml).expect("a spec");
    job("bert").with(|given| *given = spec)
}

fn golden(name: &str, cluster: Cluster) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_yaml_snapshot!(name, shown(&made(cluster)));
    });
}

fn pods(objects: &[NewObject]) -> Vec<&Pod> {
    objects
        .iter()
        .filter_map(|object| match object {
            NewObject::Pod(pod) => Some(&**pod),
            _ => None,
        })
        .collect()
}

fn variable<'p>(pod: &'p Pod, name: &str) -> Option<&'p str> {
    let container = &pod.spec.as_ref()?.containers[0];
    container.env.iter().flatten().find(|variable| variable.name == name)?.value.as_deref()
}

#[test]
fn the_labs_sample() {
    golden("lab-pytorch-mnist", Job::manifest(include_str!("manifests/lab-pytorch-mnist.yaml")).submitted());
}

#[test]
fn the_lectures_manifest() {
    golden(
        "lecture-mnist-training",
        Job::manifest(include_str!("manifests/lecture-mnist-training.yaml")).submitted(),
    );
}

#[test]
fn the_guides_test_job() {
    golden("guide-test-job", Job::manifest(include_str!("manifests/guide-test-job.yaml")).submitted());
}

#[test]
fn a_ranked_master_before_the_workers() {
    golden(
        "ranked-master",
        spec(
            "image: my/trainer:1
command: [python, train.py]
args: [--fast]
numWorkers: 2
gpusPerWorker: 1
roles:
- name: master
  ranked: true
  gpusPerReplica: 1
",
        )
        .submitted(),
    );
}

#[test]
fn unranked_roles_with_images_of_their_own() {
    golden(
        "unranked-roles",
        spec(
            "image: my/trainer:1
command: [python, train.py]
env:
- {name: STAGE, value: job}
roles:
- name: store
  image: redis:7
  order: BeforeWorkers
  resources: {requests: {memory: 1Gi}}
- name: eval
  image: my/eval:1
  command: [eval]
  args: [--watch]
  replicas: 2
  order: AfterWorkers
  env:
  - {name: STAGE, value: eval}
  template:
    spec:
      priorityClassName: low
",
        )
        .submitted(),
    );
}

#[test]
fn a_template_over_everything() {
    golden(
        "template",
        spec(
            "image: my/trainer:1
gpusPerWorker: 1
template:
  metadata:
    annotations: {sidecar.istio.io/inject: 'false'}
    labels: {team: vision, trainingjob: mine, app: other}
  spec:
    nodeSelector: {pool: a100}
    serviceAccountName: trainer
    automountServiceAccountToken: true
    tolerations:
    - {key: spot, operator: Exists}
    securityContext: {runAsUser: 2000, fsGroup: null}
    containers:
    - name: training-worker
      securityContext: {readOnlyRootFilesystem: true}
      env:
      - {name: RANK, value: '7'}
      - {name: NCCL_DEBUG, value: WARN}
      - {name: TOKEN, valueFrom: {secretKeyRef: {name: secrets, key: token}}}
      - {name: TRAINYARD_BACKEND, valueFrom: {configMapKeyRef: {name: site, key: backend}}}
      volumeMounts:
      - {name: scratch, mountPath: /scratch}
    - name: sidecar
      image: my/sidecar:1
    initContainers:
    - {name: fetch, image: my/fetch:1}
    volumes:
    - {name: scratch, emptyDir: {}}
    - {name: dshm, emptyDir: {sizeLimit: 64Gi}}
",
        )
        .submitted(),
    );
}

#[test]
fn the_nodes_network() {
    golden("host-network", spec("{image: my/trainer:1, numWorkers: 2, networking: {hostNetwork: true, interface: eth1, backend: gloo}}").submitted());
}

#[test]
fn checkpoints_on_a_claim_of_the_users() {
    golden("checkpoint-claim-name", spec("{image: my/trainer:1, checkpoint: {frequency: 5, storage: {claimName: shared, path: /runs/bert/}}}").submitted());
}

#[test]
fn checkpoints_on_a_claim_that_is_made() {
    golden(
        "checkpoint-storage",
        spec("{image: my/trainer:1, numWorkers: 2, checkpoint: {directory: /ckpt, storage: {size: 20Gi, storageClass: fast, path: runs/bert}}}").submitted(),
    );
}

#[test]
fn a_recipe_without_checkpoints() {
    golden(
        "checkpoint-off",
        spec("{model: m, dataset: d, gpusPerWorker: 0, checkpoint: {enabled: false}, framework: custom}")
            .submitted(),
    );
}

#[test]
fn gpus_with_the_administrators_settings() {
    let mut cluster = spec("{image: my/trainer:1, gpusPerWorker: 2, procsPerWorker: 4}").submitted();
    cluster.settings.gpu_resource = "nvidia.com/gpu.shared".into();
    cluster.settings.gpu_node_selector = [("accelerator".to_owned(), "nvidia-gpu".to_owned())].into();
    golden("gpu-settings", cluster);
}

#[test]
fn an_agent_beside_rank_0_and_a_checkpoint_to_go_on_from() {
    let mut cluster = spec(
        "{image: my/trainer:1, args: [train], numWorkers: 2, checkpoint: {directory: /ckpt, keepLast: 5, layout: torch, \
         resumeArg: '--resume={path}', storage: {path: runs/1}}}",
    )
    .submitted();
    cluster.settings.agent_image = Some("trainyard:1".into());
    let mut job = cluster.snapshot().job.as_ref().clone();
    job.status = Some(trainyard_api::TrainingJobStatus {
        checkpoint: Some(trainyard_api::CheckpointStatus {
            path: "/ckpt/epoch-3.pt".into(),
            epoch: Some(3),
            ..Default::default()
        }),
        avoided_nodes: vec!["node-7".into()],
        ..Default::default()
    });
    let mut resumed = Cluster::with_job(job);
    resumed.settings = cluster.settings.clone();
    golden("agent-and-resume", resumed);
}

#[test]
fn a_bucket_and_a_checkpoint_in_it_to_go_on_from() {
    let mut cluster = spec(
        "image: my/trainer:1
args: [train]
numWorkers: 2
env:
- {name: AWS_REGION, value: eu-west-1}
- {name: AWS_SECRET_ACCESS_KEY, valueFrom: {secretKeyRef: {name: s3, key: secret}}}
- {name: WANDB_MODE, value: offline}
envFrom: [{secretRef: {name: keys}}]
roles: [{name: eval}]
checkpoint: {directory: /ckpt, resumeArg: '--resume={path}', storage: {type: s3, path: 's3://models/runs/'}}
template:
  spec:
    serviceAccountName: trainer
    volumes: [{name: ca, configMap: {name: ca}}]
    containers: [{name: training-worker, volumeMounts: [{name: ca, mountPath: /etc/ca}]}]
",
    )
    .submitted();
    cluster.settings.agent_image = Some("trainyard:1".into());
    let mut job = cluster.snapshot().job.as_ref().clone();
    job.status = Some(trainyard_api::TrainingJobStatus {
        checkpoint: Some(trainyard_api::CheckpointStatus {
            path: "s3://models/runs/ml/bert/epoch-3.pt".into(),
            epoch: Some(3),
            ..Default::default()
        }),
        ..Default::default()
    });
    let mut resumed = Cluster::with_job(job);
    resumed.settings = cluster.settings.clone();
    golden("bucket-and-resume", resumed);
}

#[test]
fn the_users_variables_win_except_over_ranks_and_addresses() {
    golden(
        "user-env",
        spec(
            "image: my/trainer:1
model: m
hyperparameters: {learningRate: 0.001, batch_size: 32, bf16: true, name: a b}
env:
- {name: NCCL_DEBUG, value: WARN}
- {name: MODEL, value: other}
- {name: RANK, value: '99'}
- {name: MASTER_ADDR, value: elsewhere}
- {name: HYPERPARAM_BATCH_SIZE, value: '64'}
- {name: WHERE, value: $(POD_NAME)}
envFrom:
- secretRef: {name: keys}
dataVolume: {claimName: data, readOnly: true}
dataMountPath: /input
",
        )
        .submitted(),
    );
}

#[test]
fn a_recipe_with_resources_of_its_own() {
    golden(
        "recipe-resources",
        spec("{model: m, dataset: d, args: [--verbose], resources: {requests: {memory: 64Gi}, limits: {cpu: 2}}}").submitted(),
    );
}

#[test]
fn a_service_and_a_config_map_are_restored_with_these_patches() {
    let mut cluster = job("bert").submitted();
    cluster.settle();
    cluster.change_service(|view| view.fingerprint = 0);
    cluster.change_config_map(|view| view.fingerprint = 0);
    let patches: Vec<Value> = cluster
        .plan()
        .steps()
        .map(|step| match step {
            trainyard_plan::Step::Restore(restore) => restore.patch.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_yaml_snapshot!("restore", patches);
    });
}

#[test]
fn ranks_count_through_all_ranked_roles_once() {
    let objects = made(
        spec(
            "{image: x, numWorkers: 3, roles: [{name: eval, replicas: 2}, {name: chief, replicas: 2, ranked: true}, \
             {name: aide, ranked: true}]}",
        )
        .submitted(),
    );
    let ranks: Vec<(&str, Option<&str>)> = pods(&objects)
        .into_iter()
        .map(|pod| (pod.metadata.name.as_deref().unwrap(), variable(pod, "RANK")))
        .collect();
    let expected = [
        ("bert-chief-0", Some("0")),
        ("bert-chief-1", Some("1")),
        ("bert-aide-0", Some("2")),
        ("bert-workers-0", Some("3")),
        ("bert-workers-1", Some("4")),
        ("bert-workers-2", Some("5")),
        ("bert-eval-0", None),
        ("bert-eval-1", None),
    ];
    assert_eq!(ranks, expected);
    for pod in pods(&objects) {
        assert_eq!(variable(pod, "WORLD_SIZE"), Some("6"));
        assert_eq!(variable(pod, "MASTER_ADDR"), Some("bert-chief-0.bert-workers"));
    }
}

/// CHECKLIST G85: the guide's unit test of GPUs.
#[test]
fn resnet50_with_four_workers_of_two_gpus() {
    let objects = made(
        job("test")
            .recipe("resnet50", "imagenet")
            .workers(4)
            .with(|spec| spec.gpus_per_worker = Some(2))
            .submitted(),
    );
    let pods = pods(&objects);
    assert_eq!(pods.len(), 4);
    for pod in pods {
        let resources = pod.spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap();
        for amounts in [&resources.limits, &resources.requests] {
            assert_eq!(amounts.as_ref().unwrap()["nvidia.com/gpu"].0, "2");
        }
    }
}

/// CHECKLIST G86: the guide's unit test of the environment.
#[test]
fn bert_with_eight_workers() {
    let objects = made(job("test").recipe("bert", "wikipedia").workers(8).submitted());
    for (rank, pod) in pods(&objects).into_iter().enumerate() {
        assert_eq!(pod.metadata.name.as_deref(), Some(format!("test-workers-{rank}").as_str()));
        assert_eq!(variable(pod, "WORLD_SIZE"), Some("8"));
        assert_eq!(variable(pod, "MASTER_ADDR"), Some("test-workers-0.test-workers"));
        assert_eq!(variable(pod, "MASTER_PORT"), Some("29500"));
        assert_eq!(variable(pod, "RANK"), Some(rank.to_string().as_str()));
    }
}

/// CHECKLIST E43: the lecture's unit test has no image. It must not blow up, and says what is wrong.
#[test]
fn a_test_job_without_an_image() {
    let mut cluster = Job::manifest(
        "apiVersion: ml.example.com/v1alpha1
kind: TrainingJob
metadata: {name: test-job, namespace: default}
spec: {framework: pytorch, workers: 2}
",
    )
    .submitted();
    cluster.settle();
    assert_eq!((cluster.state(), cluster.condition("Failed").1), (State::Failed, "InvalidSpec"));
    assert_eq!(cluster.condition("Failed").2, "spec: give image, or both model and dataset");
    assert!(cluster.created.is_empty());
}

#[test]
fn pods_of_the_next_attempt_differ_only_in_their_attempt() {
    let mut cluster = job("bert").workers(2).submitted();
    cluster.settle();
    cluster.run_all();
    cluster.settle();
    cluster.delete_pod("workers-1");
    cluster.settle();
    let pods = pods(&cluster.created);
    let [first, .., again] = pods[..] else { panic!("four pods") };
    let value = |pod: &Pod| serde_json::to_value(pod).unwrap();
    let mut differences = Map::new();
    compare("", &value(first), &value(pods[2]), &mut differences);
    assert_eq!(
        Value::from(differences),
        json!({
            "/metadata/labels/trainingjob.ml.example.com/attempt": "2",
            "/spec/containers/training-worker/env/TRAINYARD_ATTEMPT/value": "2",
        })
    );
    assert_eq!(again.metadata.name.as_deref(), Some("bert-workers-1"));
}

/// "The namespace may enforce the restricted Pod Security Standard" (API.md).
#[test]
fn pods_are_restricted() {
    let objects = made(job("test").recipe("bert", "wikipedia").workers(1).submitted());
    let spec = pods(&objects)[0].spec.clone().unwrap();
    let pod = spec.security_context.unwrap();
    assert_eq!((pod.run_as_non_root, pod.run_as_user, pod.fs_group), (Some(true), Some(1000), Some(1000)));
    assert_eq!(pod.seccomp_profile.unwrap().type_, "RuntimeDefault");
    let container = spec.containers[0].security_context.clone().unwrap();
    assert_eq!(container.allow_privilege_escalation, Some(false));
    assert_eq!(container.capabilities.unwrap().drop.unwrap(), ["ALL"]);
    assert_eq!(spec.automount_service_account_token, Some(false));
}
