//! Which groups, versions and resources there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::{Builtin, Kind, Registry, Version};

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Kinds that can only be asked: group, plural, kind.
const REVIEWS: [(&str, &str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
];

/// `/version`. The Kubernetes whose behaviour this follows.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": format!("v1.36.0+trainyard.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/api`.
pub(crate) fn core() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// Groups with their versions, the preferred one first; the core group is the empty one.
fn by_group(kinds: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in kinds.all() {
        let versions = groups.entry(kind.group.clone()).or_default();
        for version in kind.versions.iter().filter(|version| version.served) {
            if !versions.contains(&version.name) {
                versions.push(version.name.clone());
            }
        }
    }
    for (group, _, _) in REVIEWS {
        groups.insert(group.to_owned(), vec!["v1".to_owned()]);
    }
    groups.retain(|_, versions| !versions.is_empty());
    for versions in groups.values_mut() {
        versions.sort_by(|one, other| rank(other).cmp(&rank(one)).then(one.cmp(other)));
    }
    groups
}

/// Stable before beta before alpha, newer before older; anything else last.
fn rank(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..end].parse().ok()?;
        match &rest[end..] {
            "" => Some((3, major, 0)),
            stage => {
                let (level, number) = match (stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
                    (Some(number), _) => (2, number),
                    (_, Some(number)) => (1, number),
                    _ => return None,
                };
                Some((level, major, number.parse().ok()?))
            }
        }
    };
    parse().unwrap_or((0, 0, 0))
}

fn group_object(group: &str, versions: &[String]) -> Value {
    let all: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "versions": all, "preferredVersion": all[0]})
}

/// `/apis`.
pub(crate) fn groups(kinds: &Registry) -> Value {
    let groups: Vec<Value> = by_group(kinds)
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| group_object(group, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/group`.
pub(crate) fn group(kinds: &Registry, group: &str) -> Option<Value> {
    let groups = by_group(kinds);
    let versions = groups.get(group).filter(|_| !group.is_empty())?;
    let mut found = group_object(group, versions);
    found["kind"] = "APIGroup".into();
    found["apiVersion"] = "v1".into();
    Some(found)
}

/// One subresource of a kind.
struct Subresource {
    name: &'static str,
    /// What it speaks.
    kind: String,
    group: String,
    version: String,
    verbs: &'static [&'static str],
}

fn subresources(kind: &Kind, version: &Version) -> Vec<Subresource> {
    let own = |name, speaks: &str, verbs| Subresource {
        name,
        kind: speaks.to_owned(),
        group: kind.group.clone(),
        version: version.name.clone(),
        verbs,
    };
    let foreign = |name, speaks: &str, group: &str, verbs| Subresource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        ..own(name, speaks, verbs)
    };
    let mut all = Vec::new();
    if version.has_status {
        all.push(own("status", &kind.kind, &["get", "patch", "update"]));
    }
    if version.scale.is_some() {
        all.push(foreign("scale", "Scale", "autoscaling", &["get", "patch", "update"]));
    }
    if kind.is(Builtin::Pod) {
        all.push(own("binding", "Binding", &["create"]));
        all.push(foreign("eviction", "Eviction", "policy", &["create"]));
        all.push(own("exec", "PodExecOptions", &["create", "get"]));
        all.push(own("log", "Pod", &["get"]));
    }
    if kind.is(Builtin::Namespace) {
        all.push(own("finalize", "Namespace", &["update"]));
    }
    all
}

fn of_version<'a>(
    kinds: &'a Registry,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = (&'a Arc<Kind>, &'a Version)> {
    kinds
        .all()
        .filter(move |kind| kind.group == group)
        .filter_map(move |kind| Some((kind, kind.version(version)?)))
}

/// `/api/v1` and `/apis/group/version`.
pub(crate) fn resources(kinds: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut all = Vec::new();
    for (kind, found) in of_version(kinds, group, version) {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": VERBS,
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = kind.short_names.clone().into();
        }
        if !kind.categories.is_empty() {
            entry["categories"] = kind.categories.clone().into();
        }
        all.push(entry);
        for part in subresources(kind, found) {
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, part.name), "singularName": "", "namespaced": kind.namespaced,
                "kind": part.kind, "verbs": part.verbs,
            });
            if part.group != kind.group {
                entry["group"] = part.group.into();
                entry["version"] = part.version.into();
            }
            all.push(entry);
        }
    }
    if version == "v1" {
        for (_, plural, kind) in REVIEWS.iter().filter(|(of, _, _)| *of == group) {
            all.push(json!({
                "name": plural, "singularName": kind.to_lowercase(), "namespaced": false, "kind": kind, "verbs": ["create"],
            }));
        }
    }
    if all.is_empty() {
        return None;
    }
    let whole = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": whole, "resources": all}))
}

/// Everything at once, for `/api` (the core group) or `/apis` (the others).
pub(crate) fn aggregated(kinds: &Registry, core: bool, discovery_version: &str) -> Value {
    let items: Vec<Value> = by_group(kinds)
        .iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    json!({"version": version, "resources": aggregated_resources(kinds, group, version), "freshness": "Current"})
                })
                .collect();
            let metadata = if core { json!({"creationTimestamp": null}) } else { json!({"name": group, "creationTimestamp": null}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{discovery_version}"),
        "metadata": {}, "items": items,
    })
}

fn aggregated_resources(kinds: &Registry, group: &str, version: &str) -> Vec<Value> {
    let scope = |namespaced: bool| if namespaced { "Namespaced" } else { "Cluster" };
    let mut all: Vec<Value> = of_version(kinds, group, version)
        .map(|(kind, found)| {
            let parts: Vec<Value> = subresources(kind, found)
                .into_iter()
                .map(|part| {
                    json!({
                        "subresource": part.name, "verbs": part.verbs,
                        "responseKind": {"group": part.group, "version": part.version, "kind": part.kind},
                    })
                })
                .collect();
            let mut entry = json!({
                "resource": kind.plural, "singularResource": kind.singular, "scope": scope(kind.namespaced),
                "responseKind": {"group": group, "version": version, "kind": kind.kind},
                "verbs": VERBS,
            });
            for (key, names) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
                if !names.is_empty() {
                    entry[key] = names.clone().into();
                }
            }
            if !parts.is_empty() {
                entry["subresources"] = parts.into();
            }
            entry
        })
        .collect();
    if version == "v1" {
        all.extend(REVIEWS.iter().filter(|(of, _, _)| *of == group).map(|(_, plural, kind)| {
            json!({
                "resource": plural, "singularResource": kind.to_lowercase(), "scope": "Cluster",
                "responseKind": {"group": group, "version": version, "kind": kind}, "verbs": ["create"],
            })
        }));
    }
    all
}

/// All served versions of all groups, as their paths say them: `api/v1`, `apis/group/version`.
pub(crate) fn paths(kinds: &Registry) -> Vec<(String, String, String)> {
    by_group(kinds)
        .into_iter()
        .flat_map(|(group, versions)| {
            versions.into_iter().map(move |version| {
                let path = if group.is_empty() {
                    format!("api/{version}")
                } else {
                    format!("apis/{group}/{version}")
                };
                (path, group.clone(), version)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut versions = ["foo1", "v1alpha1", "v1", "v2beta1", "v10", "v1beta2", "v2"];
        versions.sort_by(|one, other| rank(other).cmp(&rank(one)).then(one.cmp(other)));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo1"]);
    }
}
