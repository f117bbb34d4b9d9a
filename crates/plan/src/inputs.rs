//! What the pods of a job are made of, as a hash.
//!
//! Pods carry it. When the spec says something else, they are replaced. It covers what the user wrote, not what
//! we build from it: an upgrade of the operator, or a changed setting, restarts nobody's training.

use serde::Serialize;
use serde_json::Value;
use trainyard_api::{
    CheckpointStorage, DataVolume, Framework, Networking, Resources, Role, TrainingJobSpec, hash,
};

/// The part of a spec that pods are made of. New fields must be left out when empty, or an upgrade changes the hash.
#[derive(Serialize)]
struct Inputs<'a> {
    framework: Framework,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'a Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dataset: Option<&'a String>,
    gpus: i32,
    procs: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<&'a Resources>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hyperparameters: Option<&'a trainyard_api::Entries<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<&'a Vec<k8s_openapi::api::core::v1::EnvVar>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    env_from: Option<&'a Vec<k8s_openapi::api::core::v1::EnvFromSource>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<(&'a DataVolume, &'a str)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<(&'a str, i32, Option<&'a CheckpointStorage>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    networking: Option<&'a Networking>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<&'a Value>,
}

/// The hash of what this spec's pods are made of.
pub fn hash_of(spec: &TrainingJobSpec) -> String {
    // Without `..`, so that a new field has to find its place here.
    let TrainingJobSpec {
        framework: _,
        image,
        command,
        args,
        model,
        dataset,
        // The number of pods is in the shape of the world, not in here.
        num_workers: _,
        workers: _,
        gpus_per_worker: _,
        gpu_per_worker: _,
        procs_per_worker: _,
        resources,
        hyperparameters,
        env,
        env_from,
        data_volume,
        data_mount_path: _,
        checkpoint: _,
        checkpoint_dir: _,
        checkpoint_interval: _,
        networking,
        // Policies take effect at once, without a restart.
        backoff_limit: _,
        restart_policy: _,
        failure_policy: _,
        success_policy: _,
        suspend: _,
        active_deadline_seconds: _,
        startup_timeout_seconds: _,
        stall_timeout_seconds: _,
        ttl_seconds_after_finished: _,
        clean_pod_policy: _,
        progress: _,
        roles: _,
        template,
        managed_by: _,
    } = spec;
    let inputs = Inputs {
        framework: spec.framework(),
        image: image.as_ref(),
        command: command.as_ref(),
        args: args.as_ref(),
        model: model.as_ref(),
        dataset: dataset.as_ref(),
        gpus: spec.gpus_per_worker(),
        procs: spec.procs_per_worker(),
        resources: resources.as_ref(),
        hyperparameters: hyperparameters.as_ref(),
        env: env.as_ref(),
        env_from: env_from.as_ref(),
        data: data_volume.as_ref().map(|volume| (volume, spec.data_mount_path())),
        checkpoint: spec
            .checkpoints_on()
            .then(|| (spec.checkpoint_directory(), spec.checkpoint_frequency(), spec.checkpoint_storage())),
        networking: networking.as_deref(),
        roles: spec.roles().iter().map(pod_part).collect(),
        template: template.as_ref(),
    };
    hash::hex(hash::of_json(&inputs))
}

fn pod_part(role: &Role) -> Role {
    Role { replicas: None, order: None, success: None, ..role.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> TrainingJobSpec {
        TrainingJobSpec { image: Some("x:1".into()), checkpoint_dir: Some("/c".into()), ..Default::default() }
    }

    #[test]
    fn policies_do_not_count_and_pods_do() {
        let before = hash_of(&spec());
        let same =
            TrainingJobSpec { backoff_limit: Some(9), suspend: Some(true), num_workers: Some(7), ..spec() };
        assert_eq!(hash_of(&same), before);
        let other = TrainingJobSpec { args: Some(vec!["--fast".into()]), ..spec() };
        assert_ne!(hash_of(&other), before);
    }

    #[test]
    fn the_other_name_of_a_field_is_no_change() {
        let renamed = TrainingJobSpec {
            checkpoint_dir: None,
            checkpoint: Some(Box::new(trainyard_api::Checkpoint {
                directory: Some("/c".into()),
                ..Default::default()
            })),
            ..spec()
        };
        assert_eq!(hash_of(&renamed), hash_of(&spec()));
    }

    #[test]
    fn an_upgrade_does_not_change_it() {
        // Golden: if this fails, running jobs would be restarted by an upgrade. Leave empty new fields out instead.
        assert_eq!(hash_of(&spec()), "c4f8521e1bc9c4c0");
    }
}
