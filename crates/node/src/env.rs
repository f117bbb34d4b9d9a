//! The environment of a container: PURE. References are looked up in what has been fetched before.
//!
//! Errors are in the kubelet's words, because they end up where the kubelet's would: in the container's waiting message.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, ResourceFieldSelector, Secret};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;

/// Config maps and secrets that a pod refers to, as they are; those that do not exist are not there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    pub(crate) config_maps: BTreeMap<String, ConfigMap>,
    pub(crate) secrets: BTreeMap<String, Secret>,
}

/// What a pod's variables may refer to besides the pod itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) pod_ip: &'a str,
    pub(crate) host_ip: &'a str,
    pub(crate) node: &'a str,
    /// What a container without limits could use at most.
    pub(crate) allocatable: &'a BTreeMap<String, Quantity>,
}

/// The variables of a container, in order, each once.
pub(crate) fn variables(
    pod: &Pod,
    container: &Container,
    around: Surroundings<'_>,
) -> Result<Vec<(String, String)>, String> {
    let mut variables = Variables::default();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            match around.sources.config_maps.get(&reference.name) {
                Some(map) => {
                    for (key, value) in map.data.iter().flatten() {
                        variables.set(format!("{prefix}{key}"), value.clone());
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("configmap {:?} not found", reference.name)),
            }
        }
        if let Some(reference) = &source.secret_ref {
            match around.sources.secrets.get(&reference.name) {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        let value = String::from_utf8_lossy(&value.0).into_owned();
                        variables.set(format!("{prefix}{key}"), value);
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("secret {:?} not found", reference.name)),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(expand(value, &variables.index)),
            (None, Some(source)) => referred(pod, container, source, around)?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            variables.set(variable.name.clone(), value);
        }
    }
    Ok(variables.in_order)
}

/// Command and arguments of a container with its variables filled in.
pub(crate) fn command(container: &Container, variables: &[(String, String)]) -> Vec<String> {
    let index = variables.iter().cloned().collect();
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    words.map(|word| expand(word, &index)).collect()
}

#[derive(Default)]
struct Variables {
    in_order: Vec<(String, String)>,
    index: BTreeMap<String, String>,
}

impl Variables {
    fn set(&mut self, name: String, value: String) {
        if self.index.insert(name.clone(), value.clone()).is_some() {
            self.in_order.retain(|(existing, _)| *existing != name);
        }
        self.in_order.push((name, value));
    }
}

/// `$(NAME)` becomes the variable's value, `$$` becomes `$`; what is not known stays as it is.
pub(crate) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        result.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        if let Some(escaped) = after.strip_prefix('$') {
            result.push('$');
            rest = escaped;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            if let Some(value) = variables.get(name) {
                result.push_str(value);
            } else {
                result.push_str("$(");
                result.push_str(name);
                result.push(')');
            }
            rest = tail;
        } else {
            result.push('$');
            rest = after;
        }
    }
    result.push_str(rest);
    result
}

fn referred(
    pod: &Pod,
    container: &Container,
    source: &EnvVarSource,
    around: Surroundings<'_>,
) -> Result<Option<String>, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(field) = &source.field_ref {
        return pod_field(pod, &field.field_path, around).map(Some);
    }
    if let Some(resource) = &source.resource_field_ref {
        return resource_field(pod, Some(container), resource, around.allocatable).map(Some);
    }
    if let Some(key) = &source.config_map_key_ref {
        let optional = key.optional == Some(true);
        let Some(map) = around.sources.config_maps.get(&key.name) else {
            return absent(optional, format!("configmap {:?} not found", key.name));
        };
        return match map.data.as_ref().and_then(|data| data.get(&key.key)) {
            Some(value) => Ok(Some(value.clone())),
            None => absent(
                optional,
                format!("couldn't find key {} in ConfigMap {namespace}/{}", key.key, key.name),
            ),
        };
    }
    if let Some(key) = &source.secret_key_ref {
        let optional = key.optional == Some(true);
        let Some(secret) = around.sources.secrets.get(&key.name) else {
            return absent(optional, format!("secret {:?} not found", key.name));
        };
        return match secret.data.as_ref().and_then(|data| data.get(&key.key)) {
            Some(value) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            None => {
                absent(optional, format!("couldn't find key {} in Secret {namespace}/{}", key.key, key.name))
            }
        };
    }
    Err("a variable's valueFrom names no source that is supported on this machine".to_owned())
}

fn absent(optional: bool, message: String) -> Result<Option<String>, String> {
    if optional { Ok(None) } else { Err(message) }
}

/// A field of the pod, for variables and for downward API volumes.
pub(crate) fn pod_field(pod: &Pod, path: &str, around: Surroundings<'_>) -> Result<String, String> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return Err(format!("unsupported fieldPath: {path}")),
        };
        return Ok(text(map.as_ref().and_then(|map| map.get(key))));
    }
    let all = |map: &Option<BTreeMap<String, String>>| {
        let lines: Vec<String> =
            map.iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
        lines.join("\n")
    };
    match path {
        "metadata.name" => Ok(text(metadata.name.as_ref())),
        "metadata.namespace" => Ok(text(metadata.namespace.as_ref())),
        "metadata.uid" => Ok(text(metadata.uid.as_ref())),
        "metadata.labels" => Ok(all(&metadata.labels)),
        "metadata.annotations" => Ok(all(&metadata.annotations)),
        "spec.nodeName" => Ok(around.node.to_owned()),
        "spec.serviceAccountName" => {
            let name = spec.and_then(|spec| spec.service_account_name.clone());
            Ok(name.unwrap_or_else(|| "default".to_owned()))
        }
        "status.hostIP" | "status.hostIPs" => Ok(around.host_ip.to_owned()),
        "status.podIP" | "status.podIPs" => Ok(around.pod_ip.to_owned()),
        _ => Err(format!("unsupported fieldPath: {path}")),
    }
}

/// A container's limit or request, divided and rounded up; without a limit, what the node has.
pub(crate) fn resource_field(
    pod: &Pod,
    own: Option<&Container>,
    field: &ResourceFieldSelector,
    allocatable: &BTreeMap<String, Quantity>,
) -> Result<String, String> {
    let named = field.container_name.as_ref().filter(|name| !name.is_empty());
    let spec = pod.spec.as_ref();
    let container = match named {
        Some(name) => spec
            .and_then(|spec| {
                let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
                all.find(|container| container.name == *name)
            })
            .ok_or_else(|| format!("container {name} not found"))?,
        None => own.ok_or("containerName is required")?,
    };
    let resources = container.resources.as_ref();
    let unsupported = || format!("unsupported container resource : {}", field.resource);
    let (kind, name) = field.resource.split_once('.').ok_or_else(unsupported)?;
    let limit = resources.and_then(|resources| resources.limits.as_ref()?.get(name));
    let amount = match kind {
        "limits" => limit.or_else(|| allocatable.get(name)),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()?.get(name)).or(limit),
        _ => return Err(unsupported()),
    };
    let millis = amount.and_then(quantity::millis).unwrap_or_default();
    let divisor =
        field.divisor.as_ref().and_then(quantity::millis).filter(|divisor| *divisor > 0).unwrap_or(1000);
    Ok(((millis + divisor - 1) / divisor).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(container: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "w-0", "namespace": "ml", "labels": {"a": "b"}},
            "spec": {"containers": [container]},
        }))
        .unwrap()
    }

    fn sources() -> Sources {
        let map: ConfigMap = serde_json::from_value(json!({"data": {"k": "v", "n": "1"}})).unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"s": "aHVzaA=="}})).unwrap();
        Sources { config_maps: [("cm".to_owned(), map)].into(), secrets: [("sec".to_owned(), secret)].into() }
    }

    fn resolve(container: serde_json::Value) -> Result<Vec<String>, String> {
        let pod = pod(container);
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let sources = sources();
        let allocatable = [("cpu".to_owned(), Quantity("8".to_owned()))].into();
        let around = Surroundings {
            sources: &sources,
            pod_ip: "127.77.0.1",
            host_ip: "127.0.0.1",
            node: "box",
            allocatable: &allocatable,
        };
        let variables = variables(&pod, container, around)?;
        Ok(variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
    }

    #[test]
    fn expansion() {
        let variables = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), String::new())].into();
        for (text, wanted) in [
            ("$(A)", "1"),
            ("x$(A)y$(B)z", "x1yz"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(NO)", "$(NO)"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
            ("cost: 5$$", "cost: 5$"),
        ] {
            assert_eq!(expand(text, &variables), wanted, "{text}");
        }
    }

    #[test]
    fn all_sources_in_order_and_later_ones_win() {
        let got = resolve(json!({"name": "c", "resources": {"limits": {"memory": "1Gi"}},
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "sec"}},
                        {"configMapRef": {"name": "none", "optional": true}}],
            "env": [
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
                {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
                {"name": "NOT", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "x", "optional": true}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "s"}}},
                {"name": "URL", "value": "$(NAME):$(LATER)$(P_k)"},
                {"name": "LATER", "value": "x"},
                {"name": "P_k", "value": "mine"},
                {"name": "EMPTY"}]}))
        .unwrap();
        let wanted = [
            "P_n=1",
            "s=hush",
            "NAME=w-0",
            "IP=127.77.0.1",
            "LABEL=b",
            "MEM=1024",
            "CPU=8",
            "K=v",
            "S=hush",
            "URL=w-0:$(LATER)v",
            "LATER=x",
            "P_k=mine",
            "EMPTY=",
        ];
        assert_eq!(got, wanted);
    }

    #[test]
    fn what_is_missing_is_said_as_the_kubelet_says_it() {
        for (env, wanted) in [
            (
                json!({"name": "X", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k"}}}),
                "configmap \"no\" not found",
            ),
            (
                json!({"name": "X", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "no"}}}),
                "couldn't find key no in ConfigMap ml/cm",
            ),
            (
                json!({"name": "X", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "no"}}}),
                "couldn't find key no in Secret ml/sec",
            ),
            (
                json!({"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.dnsPolicy"}}}),
                "unsupported fieldPath: spec.dnsPolicy",
            ),
        ] {
            assert_eq!(resolve(json!({"name": "c", "env": [env]})).unwrap_err(), wanted);
        }
    }

    #[test]
    fn commands_are_expanded_too() {
        let pod = pod(json!({"name": "c", "command": ["run", "$(A)"], "args": ["--x=$(A)", "$$(A)"]}));
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let words = command(container, &[("A".to_owned(), "1".to_owned())]);
        assert_eq!(words, ["run", "1", "--x=1", "$(A)"]);
    }
}
