//! Pods: the defaults that a kubelet relies on, and the rules that people most often break.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use trainyard_objects::{At as _, FieldError, names};

use super::{canonical_amounts, default, each, items, object, wrong_amounts};
use crate::error::{ApiError, Result};
use crate::kinds::quantity::Amount;
use crate::state::State;

/// A new pod: defaults, priority, and a status that says that nothing happened yet.
pub(super) fn prepare(state: &State, pod: &mut Value) -> Result<()> {
    defaults(pod);
    let class = pod.text_at("/spec/priorityClassName").to_owned();
    let mut priority = 0;
    if !class.is_empty() {
        let Some(found) = state.store.get("priorityclasses.scheduling.k8s.io", &class) else {
            let why = format!("no PriorityClass with name {class} was found");
            return Err(ApiError::forbidden("", "pods", pod.text_at("/metadata/name"), &why));
        };
        priority = found.value()["value"].as_i64().unwrap_or(0);
    }
    let qos = quality(pod);
    let spec = object(pod, "spec");
    default(spec, "priority", priority);
    default(spec, "preemptionPolicy", "PreemptLowerPriority");
    tolerations(spec);
    pod["status"] = json!({"phase": "Pending", "qosClass": qos});
    Ok(())
}

/// A changed pod: what was decided when it was made stays.
pub(super) fn prepare_change(pod: &mut Value, old: &Value) {
    defaults(pod);
    let spec = object(pod, "spec");
    for key in ["priority", "preemptionPolicy"] {
        if let Some(value) = old["spec"].get(key) {
            default(spec, key, value.clone());
        }
    }
    tolerations(spec);
}

/// A pod stays for five minutes on a node that is unwell.
fn tolerations(spec: &mut Value) {
    let tolerated = |key: &str| {
        items(spec, "tolerations").any(|toleration| {
            let tolerated = toleration.text_at("/key");
            let effect = toleration.text_at("/effect");
            (tolerated == key || tolerated.is_empty()) && (effect.is_empty() || effect == "NoExecute")
        })
    };
    let missing: Vec<Value> = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        .into_iter()
        .filter(|key| !tolerated(key))
        .map(|key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}))
        .collect();
    if !missing.is_empty() {
        if !spec["tolerations"].is_array() {
            spec["tolerations"] = json!([]);
        }
        if let Some(all) = spec["tolerations"].as_array_mut() {
            all.extend(missing);
        }
    }
}

/// Everything that a pod's spec says without having been told.
fn defaults(pod: &mut Value) {
    let spec = object(pod, "spec");
    default(spec, "restartPolicy", "Always");
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "terminationGracePeriodSeconds", 30);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = 1.into();
    }
    default(spec, "enableServiceLinks", true);
    default(spec, "securityContext", Map::new());
    let account = match (spec.text_at("/serviceAccountName"), spec.text_at("/serviceAccount")) {
        ("", "") => "default".to_owned(),
        ("", other) => other.to_owned(),
        (name, _) => name.to_owned(),
    };
    spec["serviceAccountName"] = account.as_str().into();
    spec["serviceAccount"] = account.into();
    for key in ["initContainers", "containers"] {
        each(spec, key, container);
    }
    each(spec, "volumes", volume);
    canonical_amounts(spec.get_mut("overhead"));
    each(spec, "topologySpreadConstraints", |constraint| {
        default(constraint, "whenUnsatisfiable", "DoNotSchedule");
    });
}

fn container(container: &mut Value) {
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    let image = container.text_at("/image");
    let name = image.rsplit('/').next().unwrap_or_default();
    let policy = if !image.contains('@') && (name.ends_with(":latest") || !name.contains(':')) {
        "Always"
    } else {
        "IfNotPresent"
    };
    default(container, "imagePullPolicy", policy);
    let resources = object(container, "resources");
    canonical_amounts(resources.get_mut("limits"));
    canonical_amounts(resources.get_mut("requests"));
    if let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned()
        && !limits.is_empty()
    {
        let requests = object(resources, "requests");
        for (name, limit) in limits {
            default(requests, &name, limit);
        }
    }
    each(container, "ports", |port| default(port, "protocol", "TCP"));
    each(container, "env", |variable| {
        if let Some(source) = variable.pointer_mut("/valueFrom/fieldRef") {
            default(source, "apiVersion", "v1");
        }
        if let Some(source) = variable.pointer_mut("/valueFrom/resourceFieldRef") {
            let divisor =
                source.get("divisor").and_then(Value::as_str).and_then(crate::kinds::quantity::canonical);
            source["divisor"] = divisor.unwrap_or_else(|| "0".to_owned()).into();
        }
    });
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(key).filter(|probe| probe.is_object()) {
            default(probe, "timeoutSeconds", 1);
            default(probe, "periodSeconds", 10);
            default(probe, "successThreshold", 1);
            default(probe, "failureThreshold", 3);
            if let Some(http) = probe.get_mut("httpGet") {
                default(http, "scheme", "HTTP");
                default(http, "path", "/");
            }
        }
    }
}

fn volume(volume: &mut Value) {
    let only_a_name = volume.as_object().is_some_and(|fields| fields.keys().all(|key| key == "name"));
    if only_a_name {
        volume["emptyDir"] = json!({});
    }
    if let Some(limit) = volume.pointer_mut("/emptyDir/sizeLimit") {
        let text = limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
        *limit = crate::kinds::quantity::canonical(&text).unwrap_or(text).into();
    }
    for key in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(key).filter(|source| source.is_object()) {
            default(source, "defaultMode", 420);
        }
    }
    if let Some(source) = volume.get_mut("hostPath").filter(|source| source.is_object()) {
        default(source, "type", "");
    }
    let field_references = |items: &mut Value| {
        each(items, "items", |item| {
            if let Some(field) = item.get_mut("fieldRef") {
                default(field, "apiVersion", "v1");
            }
        });
    };
    if let Some(source) = volume.get_mut("downwardAPI") {
        field_references(source);
    }
    if let Some(projected) = volume.get_mut("projected") {
        each(projected, "sources", |source| {
            if let Some(source) = source.get_mut("downwardAPI") {
                field_references(source);
            }
            if let Some(token) = source.get_mut("serviceAccountToken") {
                default(token, "expirationSeconds", 3600);
            }
        });
    }
}

/// The class that decides who is evicted first.
fn quality(pod: &Value) -> &'static str {
    let (mut any, mut all) = (false, true);
    for key in ["initContainers", "containers"] {
        for container in items(&pod["spec"], key) {
            for resource in ["cpu", "memory"] {
                let request = container["resources"]["requests"].get(resource);
                let limit = container["resources"]["limits"].get(resource);
                any |= request.is_some() || limit.is_some();
                all &= limit.is_some() && request == limit;
            }
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Everything that is wrong with a pod.
pub(super) fn validate(pod: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &pod["spec"];
    if let Some(old) = old {
        return changes(spec, &old["spec"]);
    }
    let mut errors = Vec::new();
    let volumes = volumes(spec, &mut errors);
    if items(spec, "containers").next().is_none() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    let mut taken = BTreeSet::new();
    for key in ["containers", "initContainers"] {
        for (index, container) in items(spec, key).enumerate() {
            let path = format!("spec.{key}[{index}]");
            let name = container.text_at("/name");
            if !name.is_empty() && !taken.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            wrong_with_container(&path, container, key, &volumes, &mut errors);
        }
    }
    let supported = ["Always", "OnFailure", "Never"];
    if !supported.contains(&spec.text_at("/restartPolicy")) {
        let given = spec.text_at("/restartPolicy");
        errors.push(FieldError::not_supported("spec.restartPolicy", given, &supported));
    }
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    if !policies.contains(&spec.text_at("/dnsPolicy")) {
        errors.push(FieldError::not_supported("spec.dnsPolicy", spec.text_at("/dnsPolicy"), &policies));
    }
    if let Some(seconds) = spec.get("activeDeadlineSeconds").and_then(Value::as_i64)
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid("spec.activeDeadlineSeconds", seconds, detail));
    }
    for (key, rule) in
        [("hostname", names::dns_label as fn(&str) -> Vec<String>), ("subdomain", names::dns_label)]
    {
        let given = spec.text_at(&format!("/{key}"));
        if !given.is_empty() {
            errors.extend(
                rule(given).into_iter().map(|why| FieldError::invalid(format!("spec.{key}"), given, why)),
            );
        }
    }
    for (name, value) in spec.get("nodeSelector").and_then(Value::as_object).into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        for why in names::label_key(name) {
            errors.push(FieldError::invalid("spec.nodeSelector", name.as_str(), why));
        }
        for why in names::label_value(value) {
            errors.push(FieldError::invalid("spec.nodeSelector", value, why));
        }
    }
    errors
}

const VOLUMES: [&str; 10] = [
    "emptyDir",
    "hostPath",
    "secret",
    "nfs",
    "persistentVolumeClaim",
    "downwardAPI",
    "configMap",
    "csi",
    "projected",
    "ephemeral",
];

fn volumes(spec: &Value, errors: &mut Vec<FieldError>) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (index, volume) in items(spec, "volumes").enumerate() {
        let path = format!("spec.volumes[{index}]");
        let name = volume.text_at("/name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            let wrong = names::dns_label(name);
            errors
                .extend(wrong.into_iter().map(|why| FieldError::invalid(format!("{path}.name"), name, why)));
            if !known.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
        }
        let sources =
            volume.as_object().into_iter().flatten().map(|(key, _)| key).filter(|key| *key != "name");
        let mut sources: Vec<&String> = sources.collect();
        // The first in the API server's order counts, the others are too many.
        sources.sort_by_key(|key| VOLUMES.iter().position(|known| known == key).unwrap_or(VOLUMES.len()));
        for source in sources.iter().skip(1) {
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{path}.{source}"), detail));
        }
        for (source, field) in [
            ("hostPath", "path"),
            ("configMap", "name"),
            ("secret", "secretName"),
            ("persistentVolumeClaim", "claimName"),
        ] {
            let given = volume.get(source).filter(|source| source.is_object());
            if given.is_some_and(|source| source.text_at(&format!("/{field}")).is_empty()) {
                errors.push(FieldError::required(format!("{path}.{source}.{field}"), ""));
            }
        }
    }
    known
}

fn wrong_with_container(
    path: &str,
    container: &Value,
    key: &str,
    volumes: &BTreeSet<String>,
    errors: &mut Vec<FieldError>,
) {
    let name = container.text_at("/name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        let wrong = names::dns_label(name);
        errors.extend(wrong.into_iter().map(|why| FieldError::invalid(format!("{path}.name"), name, why)));
    }
    if container.text_at("/image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    } else if container.text_at("/image").trim() != container.text_at("/image") {
        let image = container.text_at("/image");
        errors.push(FieldError::invalid(
            format!("{path}.image"),
            image,
            "must not have leading or trailing whitespace",
        ));
    }
    let pulls = ["Always", "IfNotPresent", "Never"];
    if !pulls.contains(&container.text_at("/imagePullPolicy")) {
        let given = container.text_at("/imagePullPolicy");
        errors.push(FieldError::not_supported(format!("{path}.imagePullPolicy"), given, &pulls));
    }
    let restart = container.text_at("/restartPolicy");
    if !restart.is_empty() && key == "initContainers" && restart != "Always" {
        errors.push(FieldError::not_supported(format!("{path}.restartPolicy"), restart, &["Always"]));
    }
    let mut port_names = BTreeSet::new();
    for (index, port) in items(container, "ports").enumerate() {
        let path = format!("{path}.ports[{index}]");
        match port.get("containerPort").and_then(Value::as_i64) {
            None | Some(0) => errors.push(FieldError::required(format!("{path}.containerPort"), "")),
            Some(1..=65535) => {}
            Some(number) => errors.push(FieldError::invalid(
                format!("{path}.containerPort"),
                number,
                "must be between 1 and 65535, inclusive",
            )),
        }
        let name = port.text_at("/name");
        if !name.is_empty() {
            for why in names::port_name(name) {
                errors.push(FieldError::invalid(format!("{path}.name"), name, why));
            }
            if !port_names.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        if !protocols.contains(&port.text_at("/protocol")) {
            let given = port.text_at("/protocol");
            errors.push(FieldError::not_supported(format!("{path}.protocol"), given, &protocols));
        }
    }
    for (index, variable) in items(container, "env").enumerate() {
        let path = format!("{path}.env[{index}]");
        let name = variable.text_at("/name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            for why in names::env_name(name) {
                errors.push(FieldError::invalid(format!("{path}.name"), name, why));
            }
        }
        if !variable.text_at("/value").is_empty() && variable.get("valueFrom").is_some() {
            errors.push(FieldError::invalid(
                format!("{path}.valueFrom"),
                "",
                "may not be specified when `value` is not empty",
            ));
        }
    }
    let mut mounts = BTreeSet::new();
    for (index, mount) in items(container, "volumeMounts").enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let name = mount.text_at("/name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::not_found(format!("{path}.name"), name));
        }
        let place = mount.text_at("/mountPath");
        if place.is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        } else if !mounts.insert(place.to_owned()) {
            errors.push(FieldError::invalid(format!("{path}.mountPath"), place, "must be unique"));
        }
    }
    resources(path, &container["resources"], errors);
}

fn resources(path: &str, resources: &Value, errors: &mut Vec<FieldError>) {
    for key in ["limits", "requests"] {
        errors.extend(wrong_amounts(&format!("{path}.resources.{key}"), resources.get(key)));
    }
    for (name, request) in resources.get("requests").and_then(Value::as_object).into_iter().flatten() {
        let limit = resources.get("limits").and_then(|limits| limits.get(name));
        let amount = |value: &Value| value.as_str().and_then(Amount::parse);
        let extended = name.contains('/') && !name.starts_with("kubernetes.io/");
        match limit {
            Some(limit) => {
                let (Some(asked), Some(most)) = (amount(request), amount(limit)) else { continue };
                if asked > most {
                    errors.push(FieldError::invalid(
                        format!("{path}.resources.requests"),
                        request.clone(),
                        format!(
                            "must be less than or equal to {name} limit of {}",
                            limit.as_str().unwrap_or_default()
                        ),
                    ));
                } else if extended && asked != most {
                    errors.push(FieldError::invalid(
                        format!("{path}.resources.requests"),
                        request.clone(),
                        format!("must be equal to {name} limit of {}", limit.as_str().unwrap_or_default()),
                    ));
                }
            }
            None if extended => errors.push(FieldError::required(
                format!("{path}.resources.limits"),
                "Limit must be set for non overcommitable resources",
            )),
            None => {}
        }
    }
}

const UPDATES: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Of a pod that exists, nearly nothing may change.
fn changes(spec: &Value, old: &Value) -> Vec<FieldError> {
    if spec == old {
        return Vec::new();
    }
    let mut allowed = old.clone();
    for key in ["containers", "initContainers"] {
        let images: Vec<Value> = items(spec, key).map(|container| container["image"].clone()).collect();
        if items(old, key).count() != images.len() {
            let what = if key == "containers" { "containers" } else { "initContainers" };
            return vec![FieldError::forbidden(
                format!("spec.{what}"),
                "pod updates may not add or remove containers",
            )];
        }
        let mut images = images.into_iter();
        each(&mut allowed, key, |container| {
            if let Some(image) = images.next() {
                container["image"] = image;
            }
        });
    }
    let mut errors = Vec::new();
    for key in ["activeDeadlineSeconds", "schedulingGates"] {
        match spec.get(key) {
            Some(value) => allowed[key] = value.clone(),
            None => {
                if let Some(fields) = allowed.as_object_mut() {
                    fields.remove(key);
                }
            }
        }
    }
    let tolerations: Vec<&Value> = items(spec, "tolerations").collect();
    if items(old, "tolerations").all(|toleration| tolerations.contains(&toleration))
        && let Some(all) = spec.get("tolerations")
    {
        allowed["tolerations"] = all.clone();
    }
    if allowed != *spec {
        errors.push(FieldError::forbidden("spec", UPDATES));
    }
    for key in ["containers", "initContainers"] {
        for (index, container) in items(spec, key).enumerate() {
            if container.text_at("/image").is_empty() {
                errors.push(FieldError::required(format!("spec.{key}[{index}].image"), ""));
            }
        }
    }
    errors
}

pub(super) fn validate_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // A container that ended for good does not come back.
    if old.text_at("/spec/restartPolicy") == "Never" {
        let is_terminated = |status: &Value| status.at("/state/terminated").is_some_and(Value::is_object);
        for (index, status) in items(&new["status"], "containerStatuses").enumerate() {
            let before =
                items(&old["status"], "containerStatuses").find(|before| before["name"] == status["name"]);
            if before.is_some_and(is_terminated) && !is_terminated(status) {
                errors.push(FieldError::forbidden(
                    format!("status.containerStatuses[{index}].state"),
                    "may not be transitioned to non-terminated state",
                ));
            }
        }
    }
    errors
}
