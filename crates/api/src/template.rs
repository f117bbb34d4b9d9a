//! Checks of the pod template overlay, which the CRD takes without a schema.
//!
//! It must be a pod template as Kubernetes knows it (a misspelt field would otherwise be dropped in
//! silence), and it may not change what Trainyard's own bookkeeping rests on.

use std::cell::RefCell;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Deserialize;
use serde_json::Value;

use crate::fields::Checked;
use crate::names::{
    APP_LABEL, ATTEMPT_LABEL, CONTAINER, JOB_LABEL, MANAGED_BY_LABEL, ROLE_LABEL, WORKER_LABEL,
};
use crate::problem::{At, FieldPath, Problem};
use crate::validate::OURS;

/// Lists whose items are known by a key, so that an overlay can say which one it means.
const KEYED_LISTS: [(&str, &str); 4] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("ephemeralContainers", "name"),
];

/// Labels that selectors rest on.
const OUR_LABELS: [&str; 6] =
    [MANAGED_BY_LABEL, APP_LABEL, JOB_LABEL, WORKER_LABEL, ROLE_LABEL, ATTEMPT_LABEL];

/// What the job says elsewhere about the container that trains.
pub struct Training<'a> {
    pub gpu_resource: &'a str,
    pub gpus: i32,
    /// The field that says so.
    pub gpus_field: &'a str,
}

/// What is wrong with an overlay.
pub fn template_problems(template: &Value, training: &Training<'_>, path: &FieldPath) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some(fields) = template.as_object() else {
        return vec![Problem::error(path.clone(), "must be a pod template: metadata and spec")];
    };
    let mut plain = template.clone();
    strip_directives(&mut plain);
    // Keys are completed, so that an overlay may leave out what Kubernetes requires of a whole pod.
    complete(&mut plain);
    let unknown = RefCell::default();
    let read = PodTemplateSpec::deserialize(Checked { value: &plain, at: At::Root(path), unknown: &unknown });
    problems.extend(unknown.into_inner());
    if let Err(error) = read {
        problems.push(Problem::error(path.clone(), format!("is not a pod template: {error}")));
    }
    let spec = fields.get("spec");
    let field = |name: &str| spec.and_then(|spec| spec.get(name));
    if field("restartPolicy").is_some_and(|policy| policy != "Never") {
        problems.push(Problem::error(
            path.key("spec").key("restartPolicy"),
            "must be Never: Trainyard restarts the workers itself (see spec.restartPolicy)",
        ));
    }
    for name in ["hostname", "subdomain", "nodeName", "setHostnameAsFQDN"] {
        if field(name).is_some() {
            problems.push(Problem::error(
                path.key("spec").key(name),
                "is set by Trainyard or by the scheduler: remove it (use nodeSelector or affinity to choose a node)",
            ));
        }
    }
    if field("ephemeralContainers").is_some() {
        problems.push(Problem::error(
            path.key("spec").key("ephemeralContainers"),
            "cannot be part of a template: use kubectl debug on a running pod",
        ));
    }
    if loses_training_container(template) {
        problems.push(Problem::error(
            path.key("spec").key("containers"),
            format!("must keep the training container: change {CONTAINER} by its name, do not remove it"),
        ));
    }
    for (list, key) in KEYED_LISTS {
        for (index, item) in field(list).and_then(Value::as_array).into_iter().flatten().enumerate() {
            let directive = item.get("$patch").is_some();
            if !directive && item.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
                problems.push(Problem::error(
                    path.key("spec").key(list).index(index).key(key),
                    format!("is required: the overlay is merged into the pod by {key}"),
                ));
            }
        }
    }
    training_container(template, training, path, &mut problems);
    for label in template.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        if OUR_LABELS.contains(&label.0.as_str()) {
            problems.push(Problem::warning(
                path.key("metadata").key("labels").key(label.0),
                "is set by Trainyard for each pod; this value is not used: remove it",
            ));
        }
    }
    problems
}

/// What is said elsewhere about the training container cannot be said differently here.
fn training_container(
    template: &Value,
    training: &Training<'_>,
    path: &FieldPath,
    problems: &mut Vec<Problem>,
) {
    let containers = template.pointer("/spec/containers").and_then(Value::as_array);
    for (index, container) in containers.into_iter().flatten().enumerate() {
        if container.get("name").and_then(Value::as_str) != Some(CONTAINER) {
            continue;
        }
        let path = path.key("spec").key("containers").index(index);
        if container.get("image").is_some() {
            problems.push(Problem::error(
                path.key("image"),
                "the training container's image is given by `image`, outside of the template: move it there",
            ));
        }
        for list in ["requests", "limits"] {
            let amounts = container.get("resources").and_then(|resources| resources.get(list));
            let Some(amount) = amounts.and_then(|amounts| amounts.get(training.gpu_resource)) else {
                continue;
            };
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            if text != training.gpus.to_string() {
                problems.push(Problem::error(
                    path.key("resources").key(list).key(training.gpu_resource),
                    format!(
                        "says {text} GPUs, {} is {}: set {} and remove this",
                        training.gpus_field, training.gpus, training.gpus_field
                    ),
                ));
            }
        }
        for (position, variable) in
            container.get("env").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let name = variable.get("name").and_then(Value::as_str).unwrap_or_default();
            if OURS.contains(&name) {
                problems.push(Problem::warning(
                    path.key("env").index(position),
                    format!("{name} is set by Trainyard for each pod; this value is not used: remove it"),
                ));
            }
        }
    }
}

/// Whether a directive or a null takes the training container, or all that holds it, out of the pod.
fn loses_training_container(template: &Value) -> bool {
    let replaced = |value: &Value| value.get("$patch").is_some_and(|patch| patch != "merge");
    let is_training = |item: &&Value| item.get("name").is_some_and(|name| name == CONTAINER);
    let spec = template.get("spec");
    let containers = spec.and_then(|spec| spec.get("containers"));
    let items = containers.and_then(Value::as_array);
    replaced(template)
        || spec.is_some_and(|spec| spec.is_null() || replaced(spec))
        || containers.is_some_and(Value::is_null)
        || items.into_iter().flatten().any(|item| {
            let named = item.get("name").is_some();
            replaced(item) && (is_training(&item) || !named)
        })
}

/// Removes `$patch`, which steers the merge and is no field. Other directives are not known here, and are
/// reported as the unknown fields that they are.
fn strip_directives(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("$patch");
            fields.values_mut().for_each(strip_directives);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_directives),
        _ => {}
    }
}

fn complete(template: &mut Value) {
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("containers").or_insert_with(|| Value::Array(Vec::new()));
    for (list, key) in KEYED_LISTS {
        for item in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(item) = item.as_object_mut() {
                item.entry(key).or_insert_with(|| Value::String(String::new()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(template: &Value) -> Vec<String> {
        let training = Training { gpu_resource: "nvidia.com/gpu", gpus: 1, gpus_field: "gpusPerWorker" };
        template_problems(template, &training, &FieldPath::of(&["spec", "template"]))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_people_write_is_accepted() {
        let template = json!({
            "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}},
            "spec": {
                "nodeSelector": {"pool": "gpu"},
                "priorityClassName": "high",
                "tolerations": [{"key": "spot", "operator": "Exists"}],
                "containers": [
                    {"name": "training-worker", "securityContext": {"readOnlyRootFilesystem": true}},
                    {"name": "sidecar", "image": "busybox", "env": [{"name": "A", "value": "1"}]},
                    {"name": "gone", "$patch": "delete"},
                ],
                "volumes": [{"name": "scratch", "emptyDir": {}}],
            },
        });
        assert_eq!(problems(&template), Vec::<String>::new());
    }

    #[test]
    fn the_training_container_stays() {
        for template in [
            json!({"spec": {"containers": [{"name": "training-worker", "$patch": "delete"}, {"name": "b", "image": "i"}]}}),
            json!({"spec": {"containers": [{"name": "training-worker", "$patch": "replace", "image": "i"}]}}),
            json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "b", "image": "i"}]}}),
            json!({"spec": {"containers": null}}),
            json!({"spec": {"$patch": "replace", "containers": [{"name": "b", "image": "i"}]}}),
            json!({"$patch": "delete"}),
        ] {
            let problems = problems(&template).join("\n");
            assert!(problems.contains("must keep the training container"), "{template}: {problems}");
        }
    }

    #[test]
    fn what_would_be_lost_or_would_break_is_refused() {
        let template = json!({
            "spec": {
                "nodeSelecter": {"pool": "gpu"},
                "restartPolicy": "Always",
                "hostname": "x",
                "containers": [{"image": "busybox"}],
            },
        });
        let problems = problems(&template).join("\n");
        for expected in [
            "spec.template.spec.nodeSelecter: unknown field; did you mean nodeSelector?",
            "spec.template.spec.restartPolicy: must be Never",
            "spec.template.spec.hostname: is set by Trainyard",
            "spec.template.spec.containers[0].name: is required",
        ] {
            assert!(problems.contains(expected), "{expected} not in:\n{problems}");
        }
        let wrong = self::problems(&json!({"spec": {"nodeSelector": [1]}}));
        assert!(wrong[0].contains("is not a pod template"), "{wrong:?}");
    }

    #[test]
    fn misspelt_fields_are_found_at_every_depth_even_if_they_are_empty() {
        let container = "spec.template.spec.containers[0]";
        for (field, expected) in [
            (json!({"volumeMount": []}), ".volumeMount: unknown field; did you mean volumeMounts?"),
            (json!({"envfrom": null}), ".envfrom: unknown field; did you mean envFrom?"),
            (json!({"env": [{"nam": ""}]}), ".env[0].nam: unknown field; did you mean name?"),
            (json!({"resources": {"limit": {}}}), ".resources.limit: unknown field; did you mean limits?"),
            (
                json!({"volumeMounts": [{"name": "a", "mountpath": "/a", "mountPath": "/a"}]}),
                ".volumeMounts[0].mountpath: unknown field; did you mean mountPath?",
            ),
        ] {
            let mut item = field.clone();
            item["name"] = "training-worker".into();
            let problems = problems(&json!({"spec": {"containers": [item]}}));
            assert!(problems.contains(&format!("{container}{expected}")), "{field}: {problems:?}");
        }
        // Names of resources, labels and selectors are anybody's.
        let free = json!({
            "metadata": {"labels": {"anything": ""}},
            "spec": {
                "nodeSelector": {"any/thing": ""},
                "containers": [{
                    "name": "training-worker", "args": [], "env": null, "securityContext": {},
                    "resources": {"limits": {"any.thing/else": 1}}, "livenessProbe": {"httpGet": {"port": "http"}},
                }],
                "volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}],
            },
        });
        assert_eq!(problems(&free), Vec::<String>::new());
    }

    #[test]
    fn what_the_job_says_elsewhere_is_not_said_differently() {
        let template = json!({
            "metadata": {"labels": {"app": "mine", "team": "a"}},
            "spec": {"containers": [{
                "name": "training-worker",
                "image": "other:2",
                "resources": {"limits": {"nvidia.com/gpu": "4", "cpu": 2}, "requests": {"nvidia.com/gpu": 1}},
                "env": [{"name": "A", "value": "1"}, {"name": "RANK", "value": "7"}],
            }]},
        });
        let container = "spec.template.spec.containers[0]";
        assert_eq!(
            problems(&template),
            [
                format!(
                    "{container}.image: the training container's image is given by `image`, outside of the \
                     template: move it there"
                ),
                format!(
                    "{container}.resources.limits[nvidia.com/gpu]: says 4 GPUs, gpusPerWorker is 1: set \
                     gpusPerWorker and remove this"
                ),
                format!(
                    "{container}.env[1]: RANK is set by Trainyard for each pod; this value is not used: \
                     remove it"
                ),
                "spec.template.metadata.labels.app: is set by Trainyard for each pod; this value is not used: \
                 remove it"
                    .to_owned(),
            ]
        );
    }
}
