//! What an attempt consists of is made: its service, config map and claim, and its pods, in the order of their roles.

use std::collections::BTreeSet;

use serde_json::Value;
use trainyard_api::{RoleOrder, TrainingJob, names};

use super::judge::Gang;
use super::running::{begin, is_created};
use super::{backoff, has_finalizer};
use crate::build;
use crate::draft::Draft;
use crate::plan::{NewObject, Patch, Step, Target, TargetKind};
use crate::snapshot::ObjectView;
use crate::world::{self, Member, World};

/// Of the nodes that are about to be taken away, so many are named in a pod. Taints usually keep it away from all of them.
const MOST_AVOIDED: usize = 20;

/// Builds an object of a job.
type Make = fn(&TrainingJob) -> NewObject;

/// What puts an object back that has this fingerprint, if it should have another.
type Mend = fn(&TrainingJob, u64) -> Option<Value>;

/// Makes and mends the service, the config map and the claim. What is going or not ours is left alone (see `blocker`).
pub(super) fn furnish(draft: &mut Draft<'_>, world: &World<'_>) {
    let snapshot = draft.snapshot;
    let job = &*snapshot.job;
    let uid = snapshot.uid();
    let mut steps = Vec::new();

    // Made if it is not there, put back if somebody changed it.
    let mut keep =
        |kind: TargetKind, name: String, views: &[ObjectView], make: Make, restore: Mend| match views
            .iter()
            .find(|view| view.name == name)
        {
            None => steps.push(Step::Create(make(job))),
            Some(view) if view.owner.as_deref() == Some(uid) && !view.deleting => {
                if let Some(patch) = restore(job, view.fingerprint) {
                    steps.push(Step::Restore(Patch {
                        target: Target { kind, name, uid: view.uid.clone() },
                        patch,
                    }));
                }
            }
            Some(_) => {}
        };
    let service: Make = |job| NewObject::Service(Box::new(build::service(job)));
    let name = names::service(world.job);
    keep(TargetKind::Service, name, &snapshot.services, service, build::restore_service);
    let config: Make = |job| NewObject::ConfigMap(Box::new(build::config_map(job)));
    let name = names::config_map(world.job);
    keep(TargetKind::ConfigMap, name, &snapshot.config_maps, config, build::restore_config_map);
    let claim = names::claim(world.job);
    if !snapshot.claims.iter().any(|view| view.name == claim)
        && let Some(claim) = build::claim(job, world)
    {
        steps.push(Step::Create(NewObject::Claim(Box::new(claim))));
    }
    draft.stage(steps);
}

/// Whether pods may be created now: no backoff, nobody else's pods or dying objects under our names.
pub(super) fn may_start(draft: &mut Draft<'_>, world: &World<'_>) -> bool {
    if let Some(until) = backoff::pending(draft) {
        draft.wake(until.0);
        return false;
    }
    blocker(draft, world).is_none()
}

/// An object under one of our names that is on its way out, or belongs to an earlier job of the same name. The cache
/// tells when it is gone.
pub(super) fn blocker(draft: &Draft<'_>, world: &World<'_>) -> Option<String> {
    let snapshot = draft.snapshot;
    let uid = snapshot.uid();
    let foreign = |owner: Option<&str>| owner != Some(uid);
    let service = names::service(world.job);
    let config = names::config_map(world.job);
    let claim = names::claim(world.job);
    let objects = snapshot.services.iter().filter(|view| view.name == service).map(|view| ("service", view));
    let objects = objects
        .chain(snapshot.config_maps.iter().filter(|view| view.name == config).map(|v| ("config map", v)));
    let mut objects = objects.filter(|(_, view)| view.deleting || foreign(view.owner.as_deref()));
    let pod = snapshot.pods.iter().find(|pod| {
        foreign(pod.owner.as_deref()) && world.members().any(|member| member.pod_name(world.job) == pod.name)
    });
    let mut claims = snapshot.claims.iter().filter(|_| build::makes_claim(&snapshot.job));
    let claim = claims.find(|view| view.name == claim && view.deleting);
    pod.map(|pod| format!("pod {}", pod.name))
        .or_else(|| objects.next().map(|(kind, view)| format!("{kind} {}", view.name)))
        .or_else(|| claim.map(|claim| format!("claim {}", claim.name)))
}

/// Who is to be there by now and is not: whose turn it is, in the order of the roles.
pub(super) fn missing<'w>(world: &'w World<'w>, gang: &Gang<'_>, ignored: &[&str]) -> Vec<Member<'w, 'w>> {
    let started = |order: RoleOrder| {
        world.members().filter(|member| member.role.order == order && member.role.replicas > 0).all(
            |member| {
                let name = member.pod_name(world.job);
                // Whose failure does not matter is not waited for.
                let is_ignored = ignored.contains(&name.as_str());
                is_ignored || gang.get(name.as_str()).is_some_and(|pod| pod.has_started())
            },
        )
    };
    let turn = |member: &Member<'_, '_>| match member.role.order {
        RoleOrder::BeforeWorkers => true,
        RoleOrder::WithWorkers => started(RoleOrder::BeforeWorkers),
        RoleOrder::AfterWorkers => started(RoleOrder::BeforeWorkers) && started(RoleOrder::WithWorkers),
    };
    let is_there = |member: &Member<'_, '_>| gang.contains_key(member.pod_name(world.job).as_str());
    world.members().filter(|member| !is_there(member) && turn(member)).collect()
}

/// Creates the pods that are missing, in the order of their roles.
pub(super) fn staff(
    draft: &mut Draft<'_>,
    world: &World<'_>,
    gang: &Gang<'_>,
    ignored: &[&str],
    number: i32,
    inputs: &str,
) {
    if is_created(draft) {
        return;
    }
    let missing = missing(world, gang, ignored);
    if missing.is_empty() {
        return;
    }
    if draft.open_attempt().is_none() {
        draft.gone = pods_before(draft, world);
        begin(draft, world.shape(), Some(inputs.to_owned()), number);
    }
    create(draft, world, &missing, number, inputs);
}

/// The pods of the attempt that ended last. None of them is seen any more, but one may only have lost its label, or never have been
/// told of: in that case, two attempts would work on the same checkpoints.
fn pods_before(draft: &Draft<'_>, world: &World<'_>) -> Vec<String> {
    let last = draft.status.attempts.last();
    if last.is_none() && !has_finalizer(draft.snapshot) {
        // Nearly always, this is the first attempt.
        return Vec::new();
    }
    // With our finalizer and without attempts, it waited for its first start, or somebody has removed the status.
    let now: BTreeSet<String> = world.members().map(|member| member.pod_name(world.job)).collect();
    let before = last
        .and_then(|last| last.world.as_deref())
        .into_iter()
        .flat_map(|shape| world::pods_of_shape(world.job, shape));
    now.into_iter().chain(before).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Creates pods of the open attempt.
pub(super) fn create(
    draft: &mut Draft<'_>,
    world: &World<'_>,
    members: &[Member<'_, '_>],
    number: i32,
    inputs: &str,
) {
    let job = &*draft.snapshot.job;
    let resumed = draft.open_attempt().and_then(|attempt| attempt.resumed_from.clone());
    let announced: Vec<&str> = draft.snapshot.notices.iter().map(|notice| notice.node.as_str()).collect();
    let avoided = draft.status.avoided_nodes.iter().map(String::as_str);
    let avoided: BTreeSet<&str> = avoided.chain(announced.iter().copied().take(MOST_AVOIDED)).collect();
    let avoided: Vec<&str> = avoided.into_iter().collect();
    let order = build::Order {
        job,
        world,
        attempt: number,
        inputs,
        resume: resumed.as_deref(),
        avoided: &avoided,
        announced: &announced,
        settings: draft.settings,
    };
    let pod = |member: &Member<'_, '_>| Step::Create(NewObject::Pod(Box::new(order.pod(member))));
    let steps = members.iter().map(pod).collect();
    draft.stage(steps);
}
