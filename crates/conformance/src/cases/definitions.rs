//! Definitions of custom resources: what they bring, what is refused, how they change and go.

use serde_json::{Value, json};

use super::cases;
use crate::fixtures::{JOBS, OLD_JOBS, install_definition, training_job, with};
use crate::sandbox::Sandbox;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

cases! { "definitions":
    "a definition is established, with its names accepted" => established,
    "the names of a definition are filled in" => names_filled_in,
    "the definition of a TrainingJob serves both versions" => both_versions,
    "an unchanged invalid field does not block an update" => ratcheting,
    "columns of both versions of a TrainingJob" => job_columns,
    "a definition without a schema is refused" => definition_without_schema,
    "a definition that is not structural is refused" => definition_not_structural,
    "a definition with the wrong name is refused" => definition_name,
    "a definition with two storage versions is refused" => definition_two_storage,
    "a definition with a rule that cannot be parsed is refused" => definition_unreadable_rule,
    "a definition with a rule about a field that is not there is refused" => definition_bad_rule,
    "a definition with a default that is invalid is refused" => definition_bad_default,
    "a definition of a list-map without keys is refused" => definition_list_map,
    "a definition whose scope is unknown is refused" => definition_scope,
    "a definition that exists is AlreadyExists" => definition_exists,
    "names that another definition has are not accepted" => definition_names_taken,
    "a new version of a schema is used at once" => definition_update,
    "deleting a definition removes its objects" => definition_delete,
    "a definition of the whole cluster has objects without a namespace" => cluster_scoped,
}

async fn established(s: Sandbox) {
    let answer = s.get(&format!("{DEFINITIONS}/widgets.conformance.example.com")).await.is(200);
    let conditions = answer.body()["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for (kind, reason) in [("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted")] {
        let condition =
            conditions.iter().find(|condition| condition["type"] == kind).cloned().unwrap_or_default();
        assert_eq!(
            (condition["status"].as_str(), condition["reason"].as_str()),
            (Some("True"), Some(reason)),
            "{}",
            answer.text()
        );
        assert!(condition["lastTransitionTime"].is_string(), "{condition}");
    }
    answer.has(json!({"status": {
        "storedVersions": ["v1"],
        "acceptedNames": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget", "shortNames": ["wd"], "categories": ["gadgets"]},
    }}));
}

/// A small definition, in a group of the case's own.
fn definition(s: &Sandbox, schema: Value) -> Value {
    let group = format!("{}.example.com", s.namespace);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn spec_of(properties: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})
}

async fn names_filled_in(s: Sandbox) {
    let made = s.post(&format!("{DEFINITIONS}?dryRun=All"), definition(&s, spec_of(json!({})))).await.is(201);
    made.has(json!({"spec": {
        "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
        "conversion": {"strategy": "None"},
    }}));
}

async fn both_versions(s: Sandbox) {
    s.get(JOBS).await.is(200).has(json!({"kind": "TrainingJobList", "apiVersion": "ml.example.com/v1"}));
    s.get(OLD_JOBS)
        .await
        .is(200)
        .has(json!({"kind": "TrainingJobList", "apiVersion": "ml.example.com/v1alpha1"}));
    s.get("ml.example.com/v2/trainingjobs").await.is(404);
}

async fn ratcheting(s: Sandbox) {
    let group = format!("{}.example.com", s.namespace);
    let open = definition(&s, spec_of(json!({"size": {"type": "integer"}, "note": {"type": "string"}})));
    install_definition(&s, open).await;
    let things = format!("{group}/v1/things");
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 100}});
    s.post(&things, object).await.is(201);
    let patch = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum", "value": 10}]);
    s.json_patch(&format!("{DEFINITIONS}/things.{group}"), patch).await.is(200);
    let other = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "b"}, "spec": {"size": 100}});
    until_refused(&s, &things, &other).await;
    s.merge(&format!("{things}/a"), json!({"spec": {"note": "unchanged size"}})).await.is(200);
    s.merge(&format!("{things}/a"), json!({"spec": {"size": 101}})).await.refused_about(
        422,
        "Invalid",
        "less than or equal to 10",
    );
}

/// A changed definition takes a moment to be used.
async fn until_refused(s: &Sandbox, things: &str, object: &Value) {
    let start = std::time::Instant::now();
    loop {
        let answer = s.post(&format!("{things}?dryRun=All"), object.clone()).await;
        if answer.status() == 422 {
            return;
        }
        if start.elapsed() > crate::target::LIMIT {
            answer.fail("a refusal by the new schema");
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn job_columns(s: Sandbox) {
    s.post(JOBS, training_job("a")).await.is(201);
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let names = |columns: &Value| {
        let columns = columns.as_array().cloned().unwrap_or_default();
        columns
            .iter()
            .map(|column| column["name"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let definition = s.get(&format!("{DEFINITIONS}/trainingjobs.ml.example.com")).await.is(200);
    for version in definition.body()["spec"]["versions"].as_array().cloned().unwrap_or_default() {
        let path = format!("ml.example.com/{}/trainingjobs", version["name"].as_str().unwrap_or_default());
        let table = s.get_as(&path, accept).await.is(200);
        let mut expected = vec!["Name".to_owned()];
        expected.extend(names(&version["additionalPrinterColumns"]));
        assert!(expected.contains(&"Age".to_owned()), "{expected:?}");
        assert_eq!(names(&table.body()["columnDefinitions"]), expected, "{path}");
    }
}

async fn definition_without_schema(s: Sandbox) {
    let mut object = definition(&s, json!({}));
    object["spec"]["versions"][0].as_object_mut().expect("a version").remove("schema");
    s.post(DEFINITIONS, object)
        .await
        .refused_about(422, "Invalid", "spec.versions[0].schema.openAPIV3Schema: Required value")
        .blames(&[("FieldValueRequired", "spec.versions[0].schema.openAPIV3Schema")]);
}

async fn definition_not_structural(s: Sandbox) {
    let object = definition(&s, spec_of(json!({"x": {"description": "no type"}})));
    s.post(DEFINITIONS, object).await.refused_about(422, "Invalid", "").blames(&[(
        "FieldValueRequired",
        "spec.validation.openAPIV3Schema.properties[spec].properties[x].type",
    )]);
}

async fn definition_name(s: Sandbox) {
    let object = with(definition(&s, spec_of(json!({}))), "/metadata/name", json!("wrong.example.com"));
    s.post(DEFINITIONS, object).await.refused_about(
        422,
        "Invalid",
        "metadata.name: Invalid value: \"wrong.example.com\": must be spec.names.plural+\".\"+spec.group",
    );
}

async fn definition_two_storage(s: Sandbox) {
    let mut object = definition(&s, spec_of(json!({})));
    let mut second = object["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    object["spec"]["versions"].as_array_mut().expect("versions").push(second);
    s.post(DEFINITIONS, object).await.refused_about(
        422,
        "Invalid",
        "must have exactly one version marked as storage version",
    );
}

async fn definition_unreadable_rule(s: Sandbox) {
    let rule = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > "}]});
    let object = definition(&s, spec_of(json!({"x": rule})));
    s.post(DEFINITIONS, object).await.refused_about(422, "Invalid", "compilation failed").blames(&[(
        "FieldValueInvalid",
        "spec.validation.openAPIV3Schema.properties[spec].properties[x].x-kubernetes-validations[0].rule",
    )]);
}

async fn definition_bad_rule(s: Sandbox) {
    let rule = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self.nothing > 1"}]});
    let object = definition(&s, spec_of(json!({"x": rule})));
    s.post(DEFINITIONS, object).await.refused_about(422, "Invalid", "compilation failed").blames(&[(
        "FieldValueInvalid",
        "spec.validation.openAPIV3Schema.properties[spec].properties[x].x-kubernetes-validations[0].rule",
    )]);
}

async fn definition_bad_default(s: Sandbox) {
    let object = definition(&s, spec_of(json!({"x": {"type": "integer", "default": "one"}})));
    let answer = s.post(DEFINITIONS, object).await.refused_about(422, "Invalid", ".default");
    assert!(answer.text().contains("properties[x].default"), "{}", answer.text());
}

async fn definition_list_map(s: Sandbox) {
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object", "properties": {"a": {"type": "string"}}}});
    let object = definition(&s, spec_of(json!({"x": list})));
    s.post(DEFINITIONS, object).await.refused_about(422, "Invalid", "x-kubernetes-list-map-keys");
}

async fn definition_scope(s: Sandbox) {
    let object = with(definition(&s, spec_of(json!({}))), "/spec/scope", json!("Galaxy"));
    s.post(DEFINITIONS, object).await.refused_about(
        422,
        "Invalid",
        "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"",
    );
}

async fn definition_exists(s: Sandbox) {
    let mut object =
        s.get(&format!("{DEFINITIONS}/widgets.conformance.example.com")).await.is(200).body().clone();
    object["metadata"] = json!({"name": "widgets.conformance.example.com"});
    s.post(DEFINITIONS, object).await.refused(
        409,
        "AlreadyExists",
        "customresourcedefinitions.apiextensions.k8s.io \"widgets.conformance.example.com\" already exists",
    );
}

async fn definition_names_taken(s: Sandbox) {
    let group = format!("{}.example.com", s.namespace);
    install_definition(&s, definition(&s, spec_of(json!({})))).await;
    let mut second = definition(&s, spec_of(json!({})));
    second["metadata"]["name"] = format!("objects.{group}").into();
    second["spec"]["names"] =
        json!({"kind": "Thing", "plural": "objects", "singular": "object", "listKind": "ObjectList"});
    s.post(DEFINITIONS, second).await.is(201);
    let told = s
        .until(&format!("{DEFINITIONS}/objects.{group}"), "conditions", |answer| {
            answer.body()["status"]["conditions"].is_array()
        })
        .await;
    let conditions = told.body()["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let accepted =
        conditions.iter().find(|condition| condition["type"] == "NamesAccepted").cloned().unwrap_or_default();
    assert_eq!(
        (accepted["status"].as_str(), accepted["reason"].as_str()),
        (Some("False"), Some("KindConflict")),
        "{}",
        told.text()
    );
    let established =
        conditions.iter().find(|condition| condition["type"] == "Established").cloned().unwrap_or_default();
    assert_eq!(established["status"], "False", "{}", told.text());
}

async fn definition_update(s: Sandbox) {
    let group = format!("{}.example.com", s.namespace);
    install_definition(&s, definition(&s, spec_of(json!({"x": {"type": "integer"}})))).await;
    let things = format!("{group}/v1/things");
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": 5}});
    s.post(&things, object.clone()).await.is(201);
    let patch = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/x/type", "value": "string"}]);
    s.json_patch(&format!("{DEFINITIONS}/things.{group}"), patch)
        .await
        .is(200)
        .has(json!({"metadata": {"generation": 2}}));
    until_refused(&s, &things, &with(object, "/metadata/name", json!("b"))).await;
    s.get(&format!("{things}/a")).await.is(200).has(json!({"spec": {"x": 5}}));
}

async fn definition_delete(s: Sandbox) {
    let group = format!("{}.example.com", s.namespace);
    install_definition(&s, definition(&s, spec_of(json!({})))).await;
    let things = format!("{group}/v1/things");
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    s.post(&things, object).await.is(201);
    let path = format!("{DEFINITIONS}/things.{group}");
    s.delete(&path).await.is(200);
    // The object holds the definition until its finalizer goes.
    s.until(&format!("{things}/a"), "a thing that is being deleted", |answer| {
        !answer.at("/metadata/deletionTimestamp").is_empty()
    })
    .await;
    s.get(&path)
        .await
        .is(200)
        .has(json!({"metadata": {"finalizers": ["customresourcecleanup.apiextensions.k8s.io"]}}));
    s.merge(&format!("{things}/a"), json!({"metadata": {"finalizers": null}})).await.is(200);
    s.until_gone(&path).await;
    s.until_gone(&things).await;
}

async fn cluster_scoped(s: Sandbox) {
    let group = format!("{}.example.com", s.namespace);
    let mut object = definition(&s, spec_of(json!({})));
    object["spec"]["scope"] = "Cluster".into();
    install_definition(&s, object).await;
    let things = format!("/apis/{group}/v1/things");
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "a"}});
    s.post(&things, object.clone()).await.is(201).lacks("/metadata/namespace");
    s.get(&format!("{things}/a")).await.is(200);
    s.post(&format!("{group}/v1/things"), object).await.is(404);
}
