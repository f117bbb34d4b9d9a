//! Resource quotas: what a namespace may hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use trainyard_objects::At as _;

use crate::error::{ApiError, Result};
use crate::kinds::quantity::Amount;
use crate::kinds::{Builtin, Kind};
use crate::state::State;
use crate::store::Object;

type Usage = BTreeMap<String, Amount>;

impl State {
    /// Refuses what would exceed a quota of its namespace.
    pub(super) fn admit_quota(&self, kind: &Kind, value: &Value, old: Option<&Value>) -> Result<()> {
        let namespace = value.text_at("/metadata/namespace");
        if namespace.is_empty() || self.store.count("resourcequotas") == 0 {
            return Ok(());
        }
        let added = usage(kind, value);
        let before = old.map(|old| usage(kind, old)).unwrap_or_default();
        let name = value.text_at("/metadata/name");
        for quota in self.store.list("resourcequotas", namespace) {
            let quota_value = quota.value();
            if !applies(&quota_value, kind, value) {
                continue;
            }
            let hard = limits(&quota_value);
            if let Some(missing) = missing(kind, value, &hard) {
                let why = format!("failed quota: {}: must specify {missing}", quota.facts.name);
                return Err(ApiError::forbidden(&kind.group, &kind.plural, name, &why));
            }
            let used = self.used(namespace, &quota_value, &hard);
            let (mut requested, mut in_use, mut limited) = (Vec::new(), Vec::new(), Vec::new());
            for (resource, limit) in &hard {
                let Some(more) = added.get(resource) else { continue };
                let less = before.get(resource).copied().unwrap_or(Amount::ZERO);
                if *more <= less {
                    continue;
                }
                let now = used.get(resource).copied().unwrap_or(Amount::ZERO);
                let Some(most) = Amount::parse(limit) else { continue };
                if now.plus(*more) > most.plus(less) {
                    requested.push(format!("{resource}={}", more.shown_like(limit)));
                    in_use.push(format!("{resource}={}", now.shown_like(limit)));
                    limited.push(format!("{resource}={limit}"));
                }
            }
            if !requested.is_empty() {
                let why = format!(
                    "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                    quota.facts.name,
                    requested.join(","),
                    in_use.join(","),
                    limited.join(",")
                );
                return Err(ApiError::forbidden(&kind.group, &kind.plural, name, &why));
            }
        }
        Ok(())
    }

    /// Brings the status of a namespace's quotas up to date.
    pub(crate) fn count_quotas(&mut self, resource: &str, namespace: &str) -> Result<()> {
        if namespace.is_empty() || resource == "events" || self.store.count("resourcequotas") == 0 {
            return Ok(());
        }
        let quotas: Vec<Arc<Object>> = self.store.list("resourcequotas", namespace).cloned().collect();
        let Some(kind) = self.kinds.find("", "resourcequotas").cloned() else { return Ok(()) };
        for quota in quotas {
            let mut value = quota.value();
            let hard = limits(&value);
            let used = self.used(namespace, &value, &hard);
            let shown: Map<String, Value> = hard
                .iter()
                .map(|(name, limit)| {
                    let amount = used.get(name).copied().unwrap_or(Amount::ZERO);
                    (name.clone(), amount.shown_like(limit).into())
                })
                .collect();
            let status = json!({"hard": hard, "used": shown});
            if value.get("status") != Some(&status) {
                value["status"] = status;
                self.put(&kind, value)?;
            }
        }
        Ok(())
    }

    /// What a namespace holds of the things that a quota limits.
    fn used(&self, namespace: &str, quota: &Value, hard: &BTreeMap<String, String>) -> Usage {
        let mut total = Usage::new();
        for kind in self.kinds.all() {
            if !kind.namespaced || kind.is(Builtin::NewEvent) || !concerns(kind, hard) {
                continue;
            }
            for object in self.store.list(&kind.resource, namespace) {
                let value = object.value();
                if !applies(quota, kind, &value) {
                    continue;
                }
                for (name, amount) in usage(kind, &value) {
                    let sum = total.entry(name).or_insert(Amount::ZERO);
                    *sum = sum.plus(amount);
                }
            }
        }
        total
    }
}

fn limits(quota: &Value) -> BTreeMap<String, String> {
    quota
        .at("/spec/hard")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, limit)| {
            let limit = limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
            (name.clone(), limit)
        })
        .collect()
}

fn counted(kind: &Kind) -> String {
    format!("count/{}", crate::error::qualified(&kind.group, &kind.plural))
}

fn concerns(kind: &Kind, hard: &BTreeMap<String, String>) -> bool {
    let count = counted(kind);
    hard.keys().any(|name| match kind.builtin() {
        _ if *name == count => true,
        Some(Builtin::Pod) => {
            name == "pods"
                || name.starts_with("requests.") && !name.ends_with("storage")
                || name == "requests.ephemeral-storage"
                || name.starts_with("limits.")
                || ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str())
        }
        Some(Builtin::Claim) => {
            name.ends_with("persistentvolumeclaims") || name.ends_with("requests.storage")
        }
        Some(_) => *name == kind.plural || name.starts_with(&format!("{}.", kind.plural)),
        None => false,
    })
}

/// What one object takes.
fn usage(kind: &Kind, value: &Value) -> Usage {
    let one = Amount::whole(1);
    let mut usage = Usage::from([(counted(kind), one)]);
    match kind.builtin() {
        Some(Builtin::Pod) if is_over(value) => {}
        Some(Builtin::Pod) => {
            usage.insert("pods".to_owned(), one);
            for (what, resource, amount) in pod_amounts(value) {
                if what == "requests" && ["cpu", "memory", "ephemeral-storage"].contains(&resource.as_str()) {
                    usage.insert(resource.clone(), amount);
                }
                usage.insert(format!("{what}.{resource}"), amount);
            }
        }
        Some(Builtin::Claim) => {
            usage.insert("persistentvolumeclaims".to_owned(), one);
            let storage = value.at("/spec/resources/requests/storage").and_then(amount);
            let class = value.text_at("/spec/storageClassName");
            if let Some(storage) = storage {
                usage.insert("requests.storage".to_owned(), storage);
                usage.insert(format!("{class}.storageclass.storage.k8s.io/requests.storage"), storage);
            }
            usage.insert(format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), one);
        }
        Some(Builtin::Service) => {
            usage.insert("services".to_owned(), one);
            match value.text_at("/spec/type") {
                "NodePort" => {
                    usage.insert("services.nodeports".to_owned(), one);
                }
                "LoadBalancer" => {
                    usage.insert("services.loadbalancers".to_owned(), one);
                }
                _ => {}
            }
        }
        Some(_) => {
            usage.insert(kind.plural.clone(), one);
        }
        None => {}
    }
    usage
}

fn is_over(pod: &Value) -> bool {
    matches!(pod.text_at("/status/phase"), "Succeeded" | "Failed")
}

fn amount(value: &Value) -> Option<Amount> {
    match value {
        Value::String(text) => Amount::parse(text),
        Value::Number(number) => Amount::parse(&number.to_string()),
        _ => None,
    }
}

/// Requests and limits of a pod: its containers together, or its largest init container if that is more.
fn pod_amounts(pod: &Value) -> Vec<(&'static str, String, Amount)> {
    let mut all = Vec::new();
    for what in ["requests", "limits"] {
        let mut sums: BTreeMap<String, Amount> = BTreeMap::new();
        let of = |container: &Value| -> Vec<(String, Amount)> {
            container["resources"][what]
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(name, value)| Some((name.clone(), amount(value)?)))
                .collect()
        };
        let list = |key: &str| pod["spec"][key].as_array().cloned().unwrap_or_default();
        let inits = list("initContainers");
        for container in
            list("containers").iter().chain(inits.iter().filter(|one| one["restartPolicy"] == "Always"))
        {
            for (name, amount) in of(container) {
                let sum = sums.entry(name).or_insert(Amount::ZERO);
                *sum = sum.plus(amount);
            }
        }
        for container in &inits {
            for (name, amount) in of(container) {
                let sum = sums.entry(name).or_insert(Amount::ZERO);
                *sum = (*sum).max(amount);
            }
        }
        all.extend(sums.into_iter().map(|(name, amount)| (what, name, amount)));
    }
    all
}

/// Whether a quota's scopes include an object.
fn applies(quota: &Value, kind: &Kind, value: &Value) -> bool {
    let scopes = quota.at("/spec/scopes").and_then(Value::as_array);
    let Some(scopes) = scopes.filter(|scopes| !scopes.is_empty()) else { return true };
    if !kind.is(Builtin::Pod) {
        return false;
    }
    let terminating = value.at("/spec/activeDeadlineSeconds").is_some();
    let best_effort = pod_amounts(value).is_empty();
    scopes.iter().all(|scope| match scope.as_str().unwrap_or_default() {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        _ => false,
    })
}

/// Amounts that a quota limits and a pod's containers do not give.
fn missing(kind: &Kind, value: &Value, hard: &BTreeMap<String, String>) -> Option<String> {
    if !kind.is(Builtin::Pod) {
        return None;
    }
    let mut lines = Vec::new();
    for name in hard.keys() {
        let (what, resource) = match name.as_str() {
            "cpu" | "memory" | "ephemeral-storage" => ("requests", name.as_str()),
            other => match other.split_once('.') {
                Some((
                    what @ ("requests" | "limits"),
                    resource @ ("cpu" | "memory" | "ephemeral-storage"),
                )) => (what, resource),
                _ => continue,
            },
        };
        let containers = ["containers", "initContainers"]
            .iter()
            .flat_map(|key| value["spec"][*key].as_array().into_iter().flatten());
        let without: Vec<&str> = containers
            .filter(|container| container["resources"][what].get(resource).is_none())
            .filter_map(|container| container["name"].as_str())
            .collect();
        if !without.is_empty() {
            lines.push(format!("{name} for: {}", without.join(",")));
        }
    }
    (!lines.is_empty()).then(|| lines.join("; "))
}
