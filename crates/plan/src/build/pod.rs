//! The pod of one member of a job's world.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource,
    NodeSelectorRequirement, NodeSelectorTerm, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext,
    PodSpec, PreferredSchedulingTerm, SeccompProfile, SecurityContext, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use trainyard_api::{CheckpointStatus, TrainingJob, names};

use super::env::{self, Place};
use super::{agent, claim_name, master_port, metadata, path_in_pods, resources};
use crate::frameworks;
use crate::settings::Settings;
use crate::strategic;
use crate::world::{Member, World};

/// Where the config map is mounted.
pub(super) const CONFIG_DIRECTORY: &str = "/etc/trainingjob";

/// Images of ours run as this user; claims are made writable for it.
const USER: i64 = 1000;

/// So many nodes are noted in a pod by name: the operator keeps this of every pod.
const MOST_ANNOUNCED: usize = 20;

/// What the pods of an attempt are made for.
pub(crate) struct Order<'o> {
    pub(crate) job: &'o TrainingJob,
    pub(crate) world: &'o World<'o>,
    pub(crate) attempt: i32,
    /// Hash of what they are made of.
    pub(crate) inputs: &'o str,
    /// The checkpoint that they go on from.
    pub(crate) resume: Option<&'o CheckpointStatus>,
    /// Nodes that they should not be on, if there are others.
    pub(crate) avoided: &'o [&'o str],
    /// All nodes of which it is known that they will be taken away.
    pub(crate) announced: &'o [&'o str],
    pub(crate) settings: &'o Settings,
}

impl Order<'_> {
    /// Builds the pod of a member.
    pub(crate) fn pod(&self, member: &Member<'_, '_>) -> Pod {
        let mut pod = Pod { metadata: self.metadata(member), spec: Some(self.spec(member)), status: None };
        let of_job = self.job.spec.template.as_ref();
        let of_role = member.role.spec.and_then(|role| role.template.as_ref());
        for overlay in of_job.into_iter().chain(of_role) {
            pod = overlaid(pod, overlay);
        }
        if of_job.or(of_role).is_some() {
            self.enforce(&mut pod, member);
        }
        self.keep_away(&mut pod);
        if self.job.spec.checkpoint_bucket().is_some()
            && let Some(spec) = &mut pod.spec
        {
            agent::share_credentials(spec);
        }
        pod
    }

    fn metadata(&self, member: &Member<'_, '_>) -> ObjectMeta {
        let mut ours = metadata(self.job, member.pod_name(self.world.job), member.role.component());
        let labels = ours.labels.get_or_insert_default();
        labels.insert(names::ROLE_LABEL.to_owned(), member.role.name.to_owned());
        labels.insert(names::ATTEMPT_LABEL.to_owned(), self.attempt.to_string());
        if member.role.is_workers() {
            labels.insert(names::WORKER_LABEL.to_owned(), member.index.to_string());
        }
        ours.annotations = Some(BTreeMap::from([
            ("kubectl.kubernetes.io/default-container".to_owned(), names::CONTAINER.to_owned()),
            (names::INPUTS_ANNOTATION.to_owned(), self.inputs.to_owned()),
            (names::SHAPE_ANNOTATION.to_owned(), self.world.shape()),
        ]));
        if let Some(together) = self.world.made_with(member.role.order) {
            let annotations = ours.annotations.get_or_insert_default();
            annotations.insert(names::TOGETHER_ANNOTATION.to_owned(), together);
        }
        if !self.announced.is_empty() {
            let few = self.announced.len() <= MOST_ANNOUNCED;
            let names = if few { self.announced.join(",") } else { names::ALL_NODES.to_owned() };
            let annotations = ours.annotations.get_or_insert_default();
            annotations.insert(names::ANNOUNCED_ANNOTATION.to_owned(), names);
        }
        ours
    }

    fn spec(&self, member: &Member<'_, '_>) -> PodSpec {
        let (job, settings) = (self.job, self.settings);
        let host_network = job.spec.host_network();
        let gpus = member.role.gpus > 0;
        let selector = settings.gpu_node_selector.clone();
        PodSpec {
            containers: vec![self.container(member)],
            init_containers: self.agent(member).or_else(|| self.fetch(member)).map(|ours| vec![ours]),
            termination_grace_period_seconds: self.grace(member),
            volumes: Some(volumes(job, self.has_agent(member))),
            automount_service_account_token: Some(false),
            restart_policy: Some("Never".to_owned()),
            hostname: Some(member.pod_name(self.world.job)),
            subdomain: Some(names::service(self.world.job)),
            enable_service_links: Some(false),
            host_network: host_network.then_some(true),
            dns_policy: host_network.then(|| "ClusterFirstWithHostNet".to_owned()),
            node_selector: (gpus && !selector.is_empty()).then_some(selector),
            tolerations: Some(tolerations(gpus, settings)),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                fs_group: Some(USER),
                // A large volume is not walked through again at every start.
                fs_group_change_policy: Some("OnRootMismatch".to_owned()),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn container(&self, member: &Member<'_, '_>) -> Container {
        let (job, settings) = (self.job, self.settings);
        let (command, args) = program(job, member, self.resume);
        let leads = member.rank.is_some_and(|rank| rank.0 == 0);
        Container {
            name: names::CONTAINER.to_owned(),
            image: Some(image(job, member.role.spec, settings)),
            command,
            args,
            env: Some(env::all(self, member)),
            env_from: job.spec.env_from.clone(),
            ports: leads.then(|| {
                vec![ContainerPort {
                    name: Some("master".to_owned()),
                    container_port: master_port(job),
                    protocol: Some("TCP".to_owned()),
                    ..Default::default()
                }]
            }),
            resources: resources::requirements(job, member.role, settings),
            volume_mounts: Some(mounts(job)),
            security_context: Some(restricted()),
            ..Default::default()
        }
    }

    /// Away from nodes on which this job failed again and again, and from those that are about to go, if there are others. All in one
    /// term, beside what a template prefers: of several, a node that only one of them means would still get most of their weight.
    fn keep_away(&self, pod: &mut Pod) {
        let not = |node: &&str| NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec![(*node).to_owned()]),
        };
        let fields: Vec<NodeSelectorRequirement> = self.avoided.iter().map(not).collect();
        let Some(spec) = pod.spec.as_mut().filter(|_| !fields.is_empty()) else { return };
        let preference = NodeSelectorTerm { match_fields: Some(fields), match_expressions: None };
        let nodes = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
        let preferred = &mut nodes.preferred_during_scheduling_ignored_during_execution;
        preferred.get_or_insert_default().push(PreferredSchedulingTerm { weight: 100, preference });
    }

    /// Puts back what no template may change: identity, labels that selectors rest on, ranks and addresses.
    fn enforce(&self, pod: &mut Pod, member: &Member<'_, '_>) {
        let ours = self.metadata(member);
        let name = ours.name.clone();
        pod.metadata.name = ours.name;
        pod.metadata.namespace = ours.namespace;
        pod.metadata.owner_references = ours.owner_references;
        pod.metadata.labels.get_or_insert_default().extend(ours.labels.unwrap_or_default());
        pod.metadata.annotations.get_or_insert_default().extend(ours.annotations.unwrap_or_default());
        let Some(spec) = &mut pod.spec else { return };
        spec.restart_policy = Some("Never".to_owned());
        prefer_theirs(spec.tolerations.as_mut());
        spec.hostname = name;
        spec.subdomain = Some(names::service(self.world.job));
        if let Some(container) =
            spec.containers.iter_mut().find(|container| container.name == names::CONTAINER)
        {
            let variables = container.env.get_or_insert_default();
            for variable in env::fixed(&Place::of(self.job, self.world, member), self.attempt) {
                env::set(variables, variable);
            }
        }
    }
}

/// Of several tolerations of an unwell node, the cluster takes the shortest: if the user gave one, ours goes.
fn prefer_theirs(tolerations: Option<&mut Vec<Toleration>>) {
    let Some(tolerations) = tolerations else { return };
    for key in UNWELL {
        let is_it = |toleration: &Toleration| toleration.key.as_deref() == Some(key);
        let surplus = tolerations.iter().filter(|toleration| is_it(toleration)).count().saturating_sub(1);
        if let Some(ours) = tolerations.iter().position(is_it).filter(|_| surplus > 0) {
            tolerations.remove(ours);
        }
    }
}

/// Taints of a node that does not answer, or says that it is not well.
const UNWELL: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// What the `restricted` Pod Security Standard asks of a container.
pub(super) fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        ..Default::default()
    }
}

/// A node that does not answer is given up soon: the job goes on elsewhere. GPUs are often behind a taint.
fn tolerations(gpus: bool, settings: &Settings) -> Vec<Toleration> {
    let unwell = |key: &str| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        toleration_seconds: Some(settings.unreachable_seconds),
        value: None,
    };
    let mut tolerations: Vec<Toleration> = UNWELL.into_iter().map(unwell).collect();
    if gpus {
        tolerations.push(Toleration {
            key: Some(settings.gpu_resource.clone()),
            operator: Some("Exists".to_owned()),
            effect: Some("NoSchedule".to_owned()),
            ..Default::default()
        });
    }
    tolerations
}

/// The image of a member: its role's, the job's, or the operator's default for the model.
pub(crate) fn image(job: &TrainingJob, role: Option<&trainyard_api::Role>, settings: &Settings) -> String {
    let own = role.and_then(|role| role.image.clone()).or_else(|| job.spec.image.clone());
    own.unwrap_or_else(|| {
        let model = job.spec.model.as_deref().unwrap_or("latest");
        settings.default_image.replace("{model}", model)
    })
}

/// Command and arguments. A ranked role that has none is part of the same program as the workers.
fn program(
    job: &TrainingJob,
    member: &Member<'_, '_>,
    resume: Option<&CheckpointStatus>,
) -> (Option<Vec<String>>, Option<Vec<String>>) {
    let spec = &job.spec;
    let template = spec.checkpoint.as_ref().and_then(|checkpoint| checkpoint.resume_arg.as_ref());
    let template = template.filter(|_| member.rank.is_some());
    let resume =
        template.zip(resume).map(|(template, from)| template.replace("{path}", &path_in_pods(job, from)));
    let (command, mut args) = written(job, member);
    if let Some(resume) = resume {
        args.get_or_insert_default().push(resume);
    }
    (command, args)
}

/// The same without what is added for this attempt.
fn written(job: &TrainingJob, member: &Member<'_, '_>) -> (Option<Vec<String>>, Option<Vec<String>>) {
    let spec = &job.spec;
    if let Some(role) = member.role.spec
        && (role.command.is_some() || role.args.is_some() || !role.ranked())
    {
        return (role.command.clone(), role.args.clone());
    }
    if spec.image.is_some() || spec.command.is_some() {
        return (spec.command.clone(), spec.args.clone());
    }
    let mut recipe = recipe_arguments(job);
    recipe.extend(spec.args.iter().flatten().cloned());
    (Some(frameworks::contract(spec.framework()).recipe_command()), Some(recipe))
}

/// The flags of a recipe's program: model, dataset and what hyperparameters are given.
fn recipe_arguments(job: &TrainingJob) -> Vec<String> {
    let spec = &job.spec;
    let mut arguments = vec!["/app/train.py".to_owned()];
    arguments.extend(spec.model.iter().map(|model| format!("--model={model}")));
    arguments.extend(spec.dataset.iter().map(|dataset| format!("--dataset={dataset}")));
    for (key, value) in spec.hyperparameters.iter().flatten() {
        arguments.push(format!("--{}={}", trainyard_api::spelling::kebab(key), env::scalar(value)));
    }
    if spec.checkpoints_on() {
        arguments.push(format!("--checkpoint-dir={}", spec.checkpoint_directory()));
    }
    arguments
}

fn volumes(job: &TrainingJob, agent: bool) -> Vec<Volume> {
    let claim = |name: &str, claim_name: String, read_only: Option<bool>| Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name, read_only }),
        ..Default::default()
    };
    let mut volumes = vec![
        Volume {
            name: "config".to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: names::config_map(job.metadata.name.as_deref().unwrap_or_default()),
                ..Default::default()
            }),
            ..Default::default()
        },
        Volume {
            name: "dshm".to_owned(),
            empty_dir: Some(EmptyDirVolumeSource {
                medium: Some("Memory".to_owned()),
                size_limit: Some(Quantity("2Gi".to_owned())),
            }),
            ..Default::default()
        },
    ];
    if let Some(data) = &job.spec.data_volume {
        volumes.push(claim("data", data.claim_name.clone(), data.read_only.filter(|read_only| *read_only)));
    }
    volumes.extend(claim_name(job).map(|name| claim("checkpoints", name, None)));
    if job.spec.checkpoint_bucket().is_some() {
        volumes.push(agent::directory());
    }
    if agent {
        volumes.push(agent::volume());
    }
    volumes
}

fn mounts(job: &TrainingJob) -> Vec<VolumeMount> {
    let mount = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..Default::default()
    };
    let spec = &job.spec;
    let mut mounts = vec![config_mount(), mount("dshm", "/dev/shm", false)];
    if let Some(data) = &spec.data_volume {
        mounts.push(mount("data", spec.data_mount_path(), data.read_only.unwrap_or(false)));
    }
    if spec.checkpoints_on() {
        mounts.push(checkpoint_mount(job));
    }
    mounts
}

/// The files of the config map.
pub(super) fn config_mount() -> VolumeMount {
    VolumeMount {
        name: "config".to_owned(),
        mount_path: CONFIG_DIRECTORY.to_owned(),
        read_only: Some(true),
        ..Default::default()
    }
}

pub(super) fn checkpoint_mount(job: &TrainingJob) -> VolumeMount {
    let storage = job.spec.checkpoint_storage().filter(|_| job.spec.checkpoint_bucket().is_none());
    let path = storage.and_then(|storage| storage.path.as_deref());
    VolumeMount {
        name: "checkpoints".to_owned(),
        mount_path: job.spec.checkpoint_directory().to_owned(),
        sub_path: path.map(|path| path.trim_matches('/').to_owned()).filter(|path| !path.is_empty()),
        ..Default::default()
    }
}

fn overlaid(pod: Pod, overlay: &Value) -> Pod {
    let Ok(mut value) = serde_json::to_value(&pod) else { return pod };
    strategic::merge(&mut value, overlay);
    // Validation has refused overlays that are no pod templates; one that slipped through changes nothing.
    serde_json::from_value(value).unwrap_or(pod)
}
