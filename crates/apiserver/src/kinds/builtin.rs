//! The built-in kinds: names, scope, and what is peculiar to each.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::events::v1::Event as NewEvent;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value};

use super::columns;
use super::definitions::{definitions_of, schema_of};
use super::{Checks, Kind, Source, Version};

/// The kinds that come with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Builtin {
    Namespace,
    Pod,
    Service,
    ConfigMap,
    Secret,
    ServiceAccount,
    Claim,
    Volume,
    Node,
    Event,
    /// The same events under `events.k8s.io`, where fields have other names.
    NewEvent,
    Quota,
    Lease,
    Budget,
    Definition,
    PriorityClass,
    StorageClass,
}

struct Row {
    builtin: Builtin,
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    schema: fn() -> Value,
    definitions: fn() -> (Value, Map<String, Value>),
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { builtin: Builtin::Namespace, group: "", kind: "Namespace", plural: "namespaces", singular: "namespace", short: &["ns"], categories: &[], namespaced: false, status: true, schema: schema_of::<core::Namespace>, definitions: definitions_of::<core::Namespace> },
    Row { builtin: Builtin::Pod, group: "", kind: "Pod", plural: "pods", singular: "pod", short: &["po"], categories: &["all"], namespaced: true, status: true, schema: schema_of::<core::Pod>, definitions: definitions_of::<core::Pod> },
    Row { builtin: Builtin::Service, group: "", kind: "Service", plural: "services", singular: "service", short: &["svc"], categories: &["all"], namespaced: true, status: true, schema: schema_of::<core::Service>, definitions: definitions_of::<core::Service> },
    Row { builtin: Builtin::ConfigMap, group: "", kind: "ConfigMap", plural: "configmaps", singular: "configmap", short: &["cm"], categories: &[], namespaced: true, status: false, schema: schema_of::<core::ConfigMap>, definitions: definitions_of::<core::ConfigMap> },
    Row { builtin: Builtin::Secret, group: "", kind: "Secret", plural: "secrets", singular: "secret", short: &[], categories: &[], namespaced: true, status: false, schema: schema_of::<core::Secret>, definitions: definitions_of::<core::Secret> },
    Row { builtin: Builtin::ServiceAccount, group: "", kind: "ServiceAccount", plural: "serviceaccounts", singular: "serviceaccount", short: &["sa"], categories: &[], namespaced: true, status: false, schema: schema_of::<core::ServiceAccount>, definitions: definitions_of::<core::ServiceAccount> },
    Row { builtin: Builtin::Claim, group: "", kind: "PersistentVolumeClaim", plural: "persistentvolumeclaims", singular: "persistentvolumeclaim", short: &["pvc"], categories: &[], namespaced: true, status: true, schema: schema_of::<core::PersistentVolumeClaim>, definitions: definitions_of::<core::PersistentVolumeClaim> },
    Row { builtin: Builtin::Volume, group: "", kind: "PersistentVolume", plural: "persistentvolumes", singular: "persistentvolume", short: &["pv"], categories: &[], namespaced: false, status: true, schema: schema_of::<core::PersistentVolume>, definitions: definitions_of::<core::PersistentVolume> },
    Row { builtin: Builtin::Node, group: "", kind: "Node", plural: "nodes", singular: "node", short: &["no"], categories: &[], namespaced: false, status: true, schema: schema_of::<core::Node>, definitions: definitions_of::<core::Node> },
    Row { builtin: Builtin::Event, group: "", kind: "Event", plural: "events", singular: "event", short: &["ev"], categories: &[], namespaced: true, status: false, schema: schema_of::<core::Event>, definitions: definitions_of::<core::Event> },
    Row { builtin: Builtin::NewEvent, group: "events.k8s.io", kind: "Event", plural: "events", singular: "event", short: &["ev"], categories: &[], namespaced: true, status: false, schema: schema_of::<NewEvent>, definitions: definitions_of::<NewEvent> },
    Row { builtin: Builtin::Quota, group: "", kind: "ResourceQuota", plural: "resourcequotas", singular: "resourcequota", short: &["quota"], categories: &[], namespaced: true, status: true, schema: schema_of::<core::ResourceQuota>, definitions: definitions_of::<core::ResourceQuota> },
    Row { builtin: Builtin::Lease, group: "coordination.k8s.io", kind: "Lease", plural: "leases", singular: "lease", short: &[], categories: &[], namespaced: true, status: false, schema: schema_of::<Lease>, definitions: definitions_of::<Lease> },
    Row { builtin: Builtin::Budget, group: "policy", kind: "PodDisruptionBudget", plural: "poddisruptionbudgets", singular: "poddisruptionbudget", short: &["pdb"], categories: &[], namespaced: true, status: true, schema: schema_of::<PodDisruptionBudget>, definitions: definitions_of::<PodDisruptionBudget> },
    Row { builtin: Builtin::Definition, group: "apiextensions.k8s.io", kind: "CustomResourceDefinition", plural: "customresourcedefinitions", singular: "customresourcedefinition", short: &["crd", "crds"], categories: &["api-extensions"], namespaced: false, status: true, schema: schema_of::<CustomResourceDefinition>, definitions: definitions_of::<CustomResourceDefinition> },
    Row { builtin: Builtin::PriorityClass, group: "scheduling.k8s.io", kind: "PriorityClass", plural: "priorityclasses", singular: "priorityclass", short: &["pc"], categories: &[], namespaced: false, status: false, schema: schema_of::<PriorityClass>, definitions: definitions_of::<PriorityClass> },
    Row { builtin: Builtin::StorageClass, group: "storage.k8s.io", kind: "StorageClass", plural: "storageclasses", singular: "storageclass", short: &["sc"], categories: &[], namespaced: false, status: false, schema: schema_of::<StorageClass>, definitions: definitions_of::<StorageClass> },
];

/// All built-in kinds.
pub(crate) fn all() -> impl Iterator<Item = Kind> {
    ROWS.iter().map(|row| {
        let api_version = if row.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", row.group) };
        let resource = match row.builtin {
            Builtin::NewEvent => "events".to_owned(),
            _ => crate::error::qualified(row.group, row.plural),
        };
        Kind {
            resource: Arc::from(resource),
            group: row.group.to_owned(),
            kind: row.kind.to_owned(),
            list_kind: format!("{}List", row.kind),
            plural: row.plural.to_owned(),
            singular: row.singular.to_owned(),
            short_names: row.short.iter().map(|&name| name.to_owned()).collect(),
            categories: row.categories.iter().map(|&name| name.to_owned()).collect(),
            namespaced: row.namespaced,
            versions: vec![Version {
                name: "v1".to_owned(),
                api_version,
                served: true,
                storage: true,
                warning: None,
                columns: columns::builtin(row.builtin),
                has_status: row.status,
                scale: None,
                selectable: selectable(row.builtin).iter().map(|&path| path.to_owned()).collect(),
                checks: Checks::builtin(row.group, row.kind, row.schema),
            }],
            source: Source::Builtin(row.builtin),
        }
    })
}

/// The schema of a built-in kind and all that it refers to, with descriptions.
pub(crate) fn definitions(builtin: Builtin) -> (Value, Map<String, Value>) {
    let row = ROWS.iter().find(|row| row.builtin == builtin);
    row.map_or_else(|| (Value::Null, Map::new()), |row| (row.definitions)())
}

/// The fields that a field selector may name, besides those of the metadata.
fn selectable(builtin: Builtin) -> &'static [&'static str] {
    match builtin {
        Builtin::Pod => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        Builtin::Event => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        Builtin::NewEvent => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        Builtin::Namespace => &["status.phase"],
        Builtin::Secret => &["type"],
        Builtin::Node => &["spec.unschedulable"],
        Builtin::Service => &["spec.clusterIP", "spec.type"],
        _ => &[],
    }
}
