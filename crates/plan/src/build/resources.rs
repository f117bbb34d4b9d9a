//! Requests and limits of a pod's training container.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as K8sQuantity;
use trainyard_api::{Entries, Form, Quantity, Resources, TrainingJob};

use crate::settings::Settings;
use crate::world::WorldRole;

/// What the user wrote, completed for a recipe, with the GPUs.
pub(super) fn requirements(
    job: &TrainingJob,
    role: &WorldRole<'_>,
    settings: &Settings,
) -> Option<ResourceRequirements> {
    let given = match role.spec {
        None => job.spec.resources.clone(),
        Some(role) => role.resources.clone(),
    };
    let mut resources = given.unwrap_or_default();
    if role.is_workers() && job.spec.form() == Form::Recipe {
        complete(&mut resources, settings);
    }
    let mut requests = resources.requests.unwrap_or_default();
    let mut limits = resources.limits.unwrap_or_default();
    if role.gpus > 0 {
        // Kubernetes wants requests and limits of such resources to be equal.
        let gpus = Quantity::Text(role.gpus.to_string());
        requests.insert(settings.gpu_resource.clone(), gpus.clone());
        limits.insert(settings.gpu_resource.clone(), gpus);
    }
    if requests.is_empty() && limits.is_empty() {
        return None;
    }
    let amounts = |amounts: Entries<Quantity>| {
        (!amounts.is_empty()).then(|| {
            amounts
                .into_iter()
                .map(|(name, amount)| (name, K8sQuantity(amount.text().into_owned())))
                .collect()
        })
    };
    Some(ResourceRequirements { requests: amounts(requests), limits: amounts(limits), ..Default::default() })
}

/// Fills in what the user left out, so that a request is never above its limit.
fn complete(resources: &mut Resources, settings: &Settings) {
    let requests = resources.requests.get_or_insert_default();
    let limits = resources.limits.get_or_insert_default();
    let given_limits = limits.clone();
    for (name, amount) in &settings.default_limits {
        let default = Quantity::Text(amount.clone());
        let request = requests.get(name).filter(|request| request.millis() > default.millis());
        let limit = request.cloned().unwrap_or(default);
        limits.insert_missing(name, limit);
    }
    for (name, amount) in &settings.default_requests {
        let default = Quantity::Text(amount.clone());
        let limit = given_limits.get(name).filter(|limit| limit.millis() < default.millis());
        let request = limit.cloned().unwrap_or(default);
        requests.insert_missing(name, request);
    }
}
