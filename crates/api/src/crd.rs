//! The CustomResourceDefinition: one schema, served as v1 and as v1alpha1.
//!
//! The versions differ only in printer columns and in the path of `scale`, so any client reads and writes any
//! job without loss and no conversion webhook is needed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion,
    CustomResourceSubresourceScale, CustomResourceSubresourceStatus, CustomResourceSubresources,
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::names::{LAB_VERSION, MANAGED_BY, MANAGED_BY_LABEL, STORAGE_VERSION};
use crate::rules;
use crate::spec::TrainingJob;

/// The CRD of `TrainingJob`, ready to be applied.
pub fn training_job() -> CustomResourceDefinition {
    let mut crd = TrainingJob::crd();
    crd.metadata.labels.get_or_insert_default().extend([
        ("app.kubernetes.io/name".to_owned(), "trainingjob-operator".to_owned()),
        (MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned()),
    ]);
    let Some(mut v1) = crd.spec.versions.pop() else { return crd };
    if let Some(root) = v1.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
        without_nulls(root);
        rules::attach(root);
    }
    let v1alpha1 = CustomResourceDefinitionVersion {
        name: LAB_VERSION.to_owned(),
        storage: false,
        additional_printer_columns: Some(lab_columns()),
        subresources: Some(subresources(".spec.workers")),
        ..v1.clone()
    };
    let v1 = CustomResourceDefinitionVersion {
        name: STORAGE_VERSION.to_owned(),
        storage: true,
        additional_printer_columns: Some(columns()),
        subresources: Some(subresources(".spec.numWorkers")),
        ..v1
    };
    crd.spec.versions = vec![v1, v1alpha1];
    crd
}

/// The schema of a whole `TrainingJob` object.
pub fn schema() -> JSONSchemaProps {
    training_job()
        .spec
        .versions
        .into_iter()
        .next()
        .and_then(|version| version.schema)
        .and_then(|schema| schema.open_api_v3_schema)
        .unwrap_or_default()
}

/// An optional field is left out, not null: with `nullable`, CEL's `has()` would be true for a null.
fn without_nulls(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(allowed) = &mut schema.enum_ {
        allowed.retain(|value| !value.0.is_null());
    }
    schema.properties.iter_mut().flatten().for_each(|(_, property)| without_nulls(property));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        without_nulls(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        without_nulls(values);
    }
}

fn subresources(replicas_path: &str) -> CustomResourceSubresources {
    CustomResourceSubresources {
        // Its default is null, which the API server takes for "none".
        status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
        scale: Some(CustomResourceSubresourceScale {
            spec_replicas_path: replicas_path.to_owned(),
            status_replicas_path: ".status.replicas".to_owned(),
            label_selector_path: Some(".status.selector".to_owned()),
        }),
    }
}

fn columns() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("State", "string", ".status.state", 0),
        column("Progress", "string", ".status.progress", 0),
        column("Epoch", "integer", ".status.currentEpoch", 0),
        column("Workers", "integer", ".status.workers.desired", 0),
        column("Age", "date", ".metadata.creationTimestamp", 0),
        column("Loss", "number", ".status.metrics.loss", 1),
        // Whatever their cause, and whether of all workers or of one.
        column("Restarts", "integer", ".status.restarts.total", 1),
        // No date: kubectl shows dates as ages, and this one is ahead.
        column("ETA", "string", ".status.estimatedCompletion", 1),
        column("Framework", "string", ".status.effective.framework", 1),
        column("Message", "string", ".status.message", 1),
    ]
}

fn lab_columns() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("Framework", "string", ".status.effective.framework", 0),
        column("Workers", "integer", ".status.workers.desired", 0),
        column("Phase", "string", ".status.phase", 0),
        column("Age", "date", ".metadata.creationTimestamp", 0),
    ]
}

fn column(name: &str, kind: &str, json_path: &str, priority: i32) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: kind.to_owned(),
        json_path: json_path.to_owned(),
        priority: (priority > 0).then_some(priority),
        ..Default::default()
    }
}
