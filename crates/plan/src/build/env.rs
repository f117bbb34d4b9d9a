//! The environment of a pod: what every training program is told, in an order that lets the user's own
//! variables refer to ours.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};
use serde_json::Value;
use trainyard_api::spelling::{upper, upper_snake};
use trainyard_api::{TrainingJob, names};

use super::pod::Order;
use super::{master_port, path_in_pods};
use crate::frameworks;
use crate::world::{Member, World};

/// Where a pod stands in its world: what a launch contract is made from.
pub(crate) struct Place<'a> {
    pub(crate) world_size: u32,
    /// None for a pod without a rank.
    pub(crate) rank: Option<u32>,
    pub(crate) master_address: String,
    pub(crate) master_port: i32,
    /// Processes that a launcher starts in this pod.
    pub(crate) procs: i32,
    pub(crate) job: &'a TrainingJob,
}

impl<'a> Place<'a> {
    pub(crate) fn of(job: &'a TrainingJob, world: &World<'_>, member: &Member<'_, '_>) -> Self {
        Self {
            world_size: world.size(),
            rank: member.rank.map(|rank| rank.0),
            master_address: format!("{}.{}", world.leader(), names::service(world.job)),
            master_port: master_port(job),
            procs: job.spec.procs_per_worker.unwrap_or_else(|| member.role.gpus.max(1)),
            job,
        }
    }
}

/// Variables that the user cannot change: ranks and addresses. They are put back after templates, too.
pub(super) fn fixed(place: &Place<'_>, attempt: i32) -> Vec<EnvVar> {
    let mut env = vec![
        from_field("POD_NAME", "metadata.name"),
        value("MASTER_ADDR", &place.master_address),
        value("MASTER_PORT", place.master_port),
        value("WORLD_SIZE", place.world_size),
        value("TRAINYARD_ATTEMPT", attempt),
    ];
    if let Some(rank) = place.rank {
        env.extend([value("RANK", rank), value("LOCAL_RANK", 0), value("NODE_RANK", rank)]);
    }
    env.extend(frameworks::contract(place.job.spec.framework()).rendezvous(place));
    env
}

/// The whole environment of a member's training container.
pub(super) fn all(order: &Order<'_>, member: &Member<'_, '_>) -> Vec<EnvVar> {
    let Order { job, world, attempt, .. } = *order;
    let spec = &job.spec;
    let place = Place::of(job, world, member);
    let mut env = fixed(&place, attempt);
    let ours = env.len();
    env.extend([
        from_field("POD_IP", "status.podIP"),
        from_field("POD_NAMESPACE", "metadata.namespace"),
        from_field("POD_UID", "metadata.uid"),
        value("NUM_WORKERS", world.size()),
        value("GPUS_PER_WORKER", spec.gpus_per_worker()),
        value("TRAINYARD_BACKEND", spec.backend().as_str()),
        value("NCCL_DEBUG", "INFO"),
        value("PYTHONUNBUFFERED", 1),
        // A Python program that crashes says where, and one that hangs can be asked.
        value("PYTHONFAULTHANDLER", 1),
    ]);
    env.extend(spec.model.as_ref().map(|model| value("MODEL", model)));
    env.extend(spec.dataset.as_ref().map(|dataset| value("DATASET", dataset)));
    if spec.checkpoints_on() {
        env.push(value("CHECKPOINT_DIR", spec.checkpoint_directory()));
        env.push(value("CHECKPOINT_FREQUENCY", spec.checkpoint_frequency()));
        let resume = order.resume.map(|checkpoint| path_in_pods(job, checkpoint));
        env.extend(resume.map(|path| value("RESUME_FROM_CHECKPOINT", path)));
    }
    if let Some(interface) = spec.networking.as_ref().and_then(|networking| networking.interface.as_ref()) {
        env.push(value("NCCL_SOCKET_IFNAME", interface));
        env.push(value("GLOO_SOCKET_IFNAME", interface));
    }
    env.extend(frameworks::contract(spec.framework()).launch(&place));
    for (key, hyperparameter) in spec.hyperparameters.iter().flatten() {
        let text = scalar(hyperparameter);
        for name in [upper_snake(key), upper(key)] {
            set(&mut env, value(&format!("HYPERPARAM_{name}"), &text));
        }
    }
    let own = spec.env.iter().flatten();
    let of_role = member.role.spec.iter().flat_map(|role| role.env.iter().flatten());
    for variable in own.chain(of_role) {
        // The user's variables win, except over ranks and addresses.
        if !env[..ours].iter().any(|fixed| fixed.name == variable.name) {
            set(&mut env, variable.clone());
        }
    }
    env
}

/// Replaces the variable of that name, or adds it.
pub(super) fn set(env: &mut Vec<EnvVar>, variable: EnvVar) {
    match env.iter_mut().find(|existing| existing.name == variable.name) {
        Some(existing) => *existing = variable,
        None => env.push(variable),
    }
}

pub(crate) fn value(name: &str, value: impl ToString) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_string()), value_from: None }
}

fn from_field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path.to_owned(), ..Default::default() }),
            ..Default::default()
        }),
    }
}

/// A hyperparameter as it was written: 0.001, 10, adam, true.
pub(crate) fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
