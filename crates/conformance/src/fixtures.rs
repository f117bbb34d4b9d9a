//! The custom resources that cases work with, and objects in short.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::target::Target;

/// Group and version of [`widget`].
pub(crate) const WIDGETS: &str = "conformance.example.com/v1/widgets";
/// Group and version of [`training_job`].
pub(crate) const JOBS: &str = "ml.example.com/v1/trainingjobs";
/// The other version of it, of which `scale` works on another field.
pub(crate) const OLD_JOBS: &str = "ml.example.com/v1alpha1/trainingjobs";

/// Installs the definitions, once for all cases.
pub(crate) async fn install(target: &Target) {
    let sandbox = Sandbox::create(target, "conformance-fixtures").await;
    let job = serde_json::to_value(trainyard_api::crd::training_job()).expect("our own CRD is JSON");
    for definition in [job, widgets()] {
        install_definition(&sandbox, definition).await;
    }
}

/// Creates a definition and waits until its resource is served.
pub(crate) async fn install_definition(sandbox: &Sandbox, definition: Value) {
    let text =
        |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, group) = (text("/metadata/name"), text("/spec/group"));
    let (version, plural) = (text("/spec/versions/0/name"), text("/spec/names/plural"));
    sandbox.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition.clone()).await.is(201);
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    sandbox
        .until(&path, "an established definition", |answer| {
            let conditions = answer.body()["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True")
        })
        .await;
    let resource = format!("/apis/{group}/{version}/{plural}");
    sandbox.until(&resource, "a served resource", |answer| answer.status() == 200).await;
    let list = format!("/apis/{group}/{version}");
    sandbox
        .until(&list, "a discovered resource", |answer| answer.text().contains(&format!("{plural:?}")))
        .await;
}

/// A definition that uses what structural schemas can say.
fn widgets() -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": widget_schema()},
            "subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.size",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                },
            },
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big it is"},
                {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                {"name": "Note", "type": "string", "jsonPath": ".spec.labels.note", "priority": 1},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.conformance.example.com"},
        "spec": {
            "group": "conformance.example.com",
            "scope": "Namespaced",
            "names": {
                "kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget",
                "shortNames": ["wd"], "categories": ["gadgets"],
            },
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    })
}

fn widget_schema() -> Value {
    json!({
        "type": "object",
        "description": "A widget, for tests.",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "description": "What the widget should be.",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10, "description": "How big it is."},
                    "color": {"type": "string", "enum": ["red", "green", "blue"], "default": "red"},
                    "code": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
                    "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "multipleOf": 0.5},
                    "enabled": {"type": "boolean"},
                    "port": {"x-kubernetes-int-or-string": true},
                    "until": {"type": "string", "format": "date-time"},
                    "nested": {
                        "type": "object",
                        "properties": {
                            "level": {"type": "integer", "default": 3},
                            "deep": {"type": "object", "default": {}, "properties": {"on": {"type": "boolean", "default": true}}},
                        },
                    },
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "partly": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"strict": {"type": "object", "properties": {"known": {"type": "string"}}}},
                    },
                    "tags": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 20}},
                    "parts": {
                        "type": "array", "maxItems": 5,
                        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object", "required": ["name"],
                            "properties": {
                                "name": {"type": "string", "maxLength": 20},
                                "count": {"type": "integer"},
                                "note": {"type": "string", "maxLength": 20},
                            },
                        },
                    },
                    "atoms": {
                        "type": "array", "maxItems": 5, "x-kubernetes-list-type": "atomic",
                        "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}},
                    },
                    "labels": {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "string", "maxLength": 20}},
                    "atomicMap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
                    "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
                    "maybe": {"type": "string", "nullable": true},
                    "fixed": {
                        "type": "string", "maxLength": 20,
                        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed cannot be changed"}],
                    },
                    "window": {
                        "type": "object", "required": ["low", "high"],
                        "properties": {"low": {"type": "string", "maxLength": 5}, "high": {"type": "string", "maxLength": 5}},
                        "x-kubernetes-validations": [{
                            "rule": "self.low <= self.high",
                            "messageExpression": "'low ' + self.low + ' is above high ' + self.high",
                            "fieldPath": ".low",
                            "reason": "FieldValueForbidden",
                        }],
                    },
                    "choice": {
                        "type": "object",
                        "properties": {"left": {"type": "string"}, "right": {"type": "string"}},
                        "oneOf": [{"required": ["left"]}, {"required": ["right"]}],
                    },
                },
                "x-kubernetes-validations": [
                    {"rule": "!has(self.tags) || !('forbidden' in self.tags)", "message": "the tag 'forbidden' is not allowed"},
                    {"rule": "!has(oldSelf.fixed) || has(self.fixed)", "message": "fixed cannot be removed"},
                ],
            },
            "status": {
                "type": "object",
                "properties": {
                    "phase": {"type": "string"},
                    "replicas": {"type": "integer", "minimum": 0},
                    "selector": {"type": "string"},
                    "conditions": {
                        "type": "array",
                        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                        "items": {
                            "type": "object", "required": ["type", "status"],
                            "properties": {"type": {"type": "string"}, "status": {"type": "string"}, "message": {"type": "string"}},
                        },
                    },
                },
            },
        },
    })
}

/// A config map with one entry.
pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

/// A config map with labels.
pub(crate) fn labelled(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// A widget of size 1, with more in its spec.
pub(crate) fn widget(name: &str, more: Value) -> Value {
    let mut object = json!({
        "apiVersion": "conformance.example.com/v1", "kind": "Widget",
        "metadata": {"name": name}, "spec": {"size": 1},
    });
    if let (Some(spec), Value::Object(more)) = (object["spec"].as_object_mut(), more) {
        spec.extend(more);
    }
    object
}

/// A training job of two workers, in the words of v1.
pub(crate) fn training_job(name: &str) -> Value {
    json!({
        "apiVersion": "ml.example.com/v1", "kind": "TrainingJob",
        "metadata": {"name": name}, "spec": {"image": "example.com/train:1", "numWorkers": 2},
    })
}

/// A pod that no scheduler looks at, so that nobody but the case changes it.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "example.com/train:1"}]},
    })
}

/// The account that pods run as; a controller makes it too, so it may be there already.
pub(crate) async fn allow_pods(sandbox: &Sandbox) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let answer = sandbox.post("serviceaccounts", account).await;
    if answer.status() != 201 && answer.at("/reason") != "AlreadyExists" {
        answer.fail("a service account");
    }
}

/// The object with another value at a JSON pointer.
pub(crate) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).expect("a pointer to something") = value;
    object
}
