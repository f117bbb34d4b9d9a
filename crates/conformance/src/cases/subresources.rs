//! The subresources `status` and `scale`: GET, PUT, PATCH.

use serde_json::json;

use super::cases;
use crate::fixtures::{JOBS, OLD_JOBS, WIDGETS, allow_pods, config_map, pod, training_job, widget, with};
use crate::sandbox::Sandbox;

cases! { "subresources":
    "GET of status is the whole object" => status_get,
    "PUT of status changes the status and nothing else" => status_put,
    "PUT of status with an old resourceVersion is a Conflict" => status_conflict,
    "PUT of status validates the status" => status_invalid,
    "PUT of an equal status keeps the resourceVersion" => status_no_change,
    "PATCH of status changes the status and nothing else" => status_patch,
    "metadata through status: labels stay as they were" => status_labels,
    "status of what is not there is NotFound" => status_missing,
    "status has a managedFields entry of its own" => status_managed,
    "a pod's status is set through its subresource only" => pod_status,
    "GET of scale shows the replicas of spec and status" => scale_get,
    "PUT of scale changes the spec" => scale_put,
    "PATCH of scale changes the spec" => scale_patch,
    "a scale that the schema forbids is refused" => scale_invalid,
    "a negative scale is refused" => scale_negative,
    "an old resourceVersion in a scale is a Conflict" => scale_conflict,
    "scale of what is not there is NotFound" => scale_missing,
    "scale dry run changes nothing" => scale_dry_run,
    "scale of a TrainingJob in v1 is numWorkers" => scale_job,
    "scale of a TrainingJob in v1alpha1 is workers" => scale_old_job,
    "DELETE and POST of a subresource are not allowed" => wrong_methods,
}

async fn status_get(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    assert_eq!(s.get(&format!("{WIDGETS}/a/status")).await.is(200).body(), made.body());
}

async fn status_put(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut object = made.body().clone();
    object["status"] = json!({"phase": "Done", "unknown": 1});
    object["spec"]["size"] = 9.into();
    let put = s.put(&format!("{WIDGETS}/a/status"), object).await.is(200).has(json!({
        "spec": {"size": 1}, "status": {"phase": "Done", "unknown": null}, "metadata": {"generation": 1},
    }));
    assert_ne!(put.version(), made.version());
    // And the object's own PUT keeps that status.
    let mut object = put.body().clone();
    object["spec"]["size"] = 2.into();
    object["status"] = json!({});
    s.put(&format!("{WIDGETS}/a"), object).await.is(200).has(json!({
        "spec": {"size": 2}, "status": {"phase": "Done"}, "metadata": {"generation": 2},
    }));
}

async fn status_conflict(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.merge(&format!("{WIDGETS}/a"), json!({"spec": {"size": 2}})).await.is(200);
    let mut object = made.body().clone();
    object["status"] = json!({"phase": "Done"});
    s.put(&format!("{WIDGETS}/a/status"), object).await.refused_about(
        409,
        "Conflict",
        "the object has been modified",
    );
}

async fn status_invalid(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut object = made.body().clone();
    object["status"] = json!({"replicas": -1, "phase": 3});
    s.put(&format!("{WIDGETS}/a/status"), object)
        .await
        .refused_about(422, "Invalid", "Widget.conformance.example.com \"a\" is invalid: [")
        .blames(&[("FieldValueInvalid", "status.replicas"), ("FieldValueTypeInvalid", "status.phase")]);
}

async fn status_no_change(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let path = format!("{WIDGETS}/a/status");
    let first = s.merge(&path, json!({"status": {"phase": "Done"}})).await.is(200);
    assert_eq!(s.put(&path, first.body().clone()).await.is(200).body(), first.body());
    assert_eq!(s.merge(&path, json!({"status": {"phase": "Done"}})).await.is(200).body(), first.body());
}

async fn status_patch(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let path = format!("{WIDGETS}/a/status");
    s.merge(&path, json!({"spec": {"size": 5}, "status": {"phase": "One"}})).await.is(200).has(json!({
        "spec": {"size": 1}, "status": {"phase": "One"}, "metadata": {"generation": 1},
    }));
    let two = json!([{"op": "replace", "path": "/status/phase", "value": "Two"}]);
    s.json_patch(&path, two).await.is(200).has(json!({"status": {"phase": "Two"}}));
}

async fn status_labels(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let metadata =
        json!({"labels": {"x": "1"}, "annotations": {"y": "2"}, "finalizers": ["example.com/hold"]});
    let path = format!("{WIDGETS}/a/status");
    s.merge(&path, json!({"metadata": metadata, "status": {"phase": "One"}}))
        .await
        .is(200)
        .lacks("/metadata/labels")
        .lacks("/metadata/annotations")
        .lacks("/metadata/finalizers");
}

async fn status_missing(s: Sandbox) {
    s.get(&format!("{WIDGETS}/a/status")).await.refused(
        404,
        "NotFound",
        "widgets.conformance.example.com \"a\" not found",
    );
    s.merge(&format!("{WIDGETS}/a/status"), json!({"status": {}})).await.refused(
        404,
        "NotFound",
        "widgets.conformance.example.com \"a\" not found",
    );
}

async fn status_managed(s: Sandbox) {
    s.post(&format!("{WIDGETS}?fieldManager=maker"), widget("a", json!({}))).await.is(201);
    s.merge(&format!("{WIDGETS}/a/status?fieldManager=teller"), json!({"status": {"phase": "One"}})).await.is(200).has(json!({
        "metadata": {"managedFields": [
            {"manager": "maker", "operation": "Update", "subresource": null},
            {"manager": "teller", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {".": {}, "f:phase": {}}}},
        ]},
    }));
}

async fn pod_status(s: Sandbox) {
    allow_pods(&s).await;
    let made = s.post("pods", pod("a")).await.is(201);
    let mut object = made.body().clone();
    object["status"]["phase"] = "Running".into();
    object["spec"]["containers"][0]["image"] = "other".into();
    let put = s
        .put("pods/a/status", object)
        .await
        .is(200)
        .has(json!({"status": {"phase": "Running"}, "metadata": {"generation": 1}}));
    assert_eq!(put.body()["spec"]["containers"][0]["image"], "example.com/train:1");
    let condition = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    s.strategic("pods/a/status", condition)
        .await
        .is(200)
        .has(json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}));
    s.merge("pods/a", json!({"status": {"phase": "Failed"}}))
        .await
        .is(200)
        .has(json!({"status": {"phase": "Running"}}));
}

async fn scale_get(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({"size": 3}))).await.is(201);
    let status = s
        .merge(&format!("{WIDGETS}/a/status"), json!({"status": {"replicas": 2, "selector": "app=x"}}))
        .await
        .is(200);
    s.get(&format!("{WIDGETS}/a/scale")).await.is(200).has(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": "a", "namespace": s.namespace, "uid": made.uid(), "resourceVersion": status.version()},
        "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "app=x"},
    }));
}

async fn scale_put(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({"size": 3}))).await.is(201);
    let path = format!("{WIDGETS}/a/scale");
    let scale = s.get(&path).await.is(200);
    let object = with(scale.body().clone(), "/spec/replicas", json!(5));
    let put = s.put(&path, object).await.is(200).has(json!({"kind": "Scale", "spec": {"replicas": 5}}));
    let read = s
        .get(&format!("{WIDGETS}/a"))
        .await
        .is(200)
        .has(json!({"spec": {"size": 5, "color": "red"}, "metadata": {"generation": 2}}));
    assert_eq!(read.version(), put.version());
}

async fn scale_patch(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({"size": 3}))).await.is(201);
    let path = format!("{WIDGETS}/a/scale");
    s.merge(&path, json!({"spec": {"replicas": 4}}))
        .await
        .is(200)
        .has(json!({"kind": "Scale", "spec": {"replicas": 4}}));
    let five = json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]);
    s.json_patch(&path, five).await.is(200).has(json!({"spec": {"replicas": 5}}));
    s.get(&format!("{WIDGETS}/a"))
        .await
        .is(200)
        .has(json!({"spec": {"size": 5}, "metadata": {"generation": 3}}));
}

async fn scale_invalid(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({"size": 3}))).await.is(201);
    s.merge(&format!("{WIDGETS}/a/scale"), json!({"spec": {"replicas": 11}})).await.refused(
        422,
        "Invalid",
        "Widget.conformance.example.com \"a\" is invalid: spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
    );
}

async fn scale_negative(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({"size": 3}))).await.is(201);
    s.merge(&format!("{WIDGETS}/a/scale"), json!({"spec": {"replicas": -1}}))
        .await
        .refused(422, "Invalid", "Widget.conformance.example.com \"a\" is invalid: [spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 1, .spec.size: Invalid value: -1: should be a non-negative integer]");
}

async fn scale_conflict(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({"size": 3}))).await.is(201);
    let path = format!("{WIDGETS}/a/scale");
    let scale = s.get(&path).await.is(200);
    s.merge(&path, json!({"spec": {"replicas": 4}})).await.is(200);
    let object = with(scale.body().clone(), "/spec/replicas", json!(5));
    s.put(&path, object).await.refused_about(409, "Conflict", "the object has been modified");
}

async fn scale_missing(s: Sandbox) {
    s.get(&format!("{WIDGETS}/a/scale")).await.refused(
        404,
        "NotFound",
        "widgets.conformance.example.com \"a\" not found",
    );
    s.merge(&format!("{WIDGETS}/a/scale"), json!({"spec": {"replicas": 1}})).await.refused(
        404,
        "NotFound",
        "widgets.conformance.example.com \"a\" not found",
    );
    s.post("configmaps", config_map("a")).await.is(201);
    s.get("configmaps/a/scale").await.is(404);
}

async fn scale_dry_run(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({"size": 3}))).await.is(201);
    s.merge(&format!("{WIDGETS}/a/scale?dryRun=All"), json!({"spec": {"replicas": 4}}))
        .await
        .is(200)
        .has(json!({"spec": {"replicas": 4}}));
    assert_eq!(s.get(&format!("{WIDGETS}/a")).await.is(200).body(), made.body());
}

async fn scale_job(s: Sandbox) {
    s.post(JOBS, training_job("a")).await.is(201);
    s.get(&format!("{JOBS}/a/scale"))
        .await
        .is(200)
        .has(json!({"spec": {"replicas": 2}, "status": {"replicas": 0}}));
    s.merge(&format!("{JOBS}/a/scale"), json!({"spec": {"replicas": 3}})).await.is(200);
    s.get(&format!("{JOBS}/a"))
        .await
        .is(200)
        .has(json!({"spec": {"numWorkers": 3, "workers": null}, "metadata": {"generation": 2}}));
}

async fn scale_old_job(s: Sandbox) {
    let mut job = training_job("a");
    job["apiVersion"] = "ml.example.com/v1alpha1".into();
    job["spec"] = json!({"image": "example.com/train:1", "workers": 2});
    s.post(OLD_JOBS, job).await.is(201).has(json!({"apiVersion": "ml.example.com/v1alpha1"}));
    s.get(&format!("{OLD_JOBS}/a/scale")).await.is(200).has(json!({"spec": {"replicas": 2}}));
    s.merge(&format!("{OLD_JOBS}/a/scale"), json!({"spec": {"replicas": 4}})).await.is(200);
    s.get(&format!("{JOBS}/a"))
        .await
        .is(200)
        .has(json!({"apiVersion": "ml.example.com/v1", "spec": {"workers": 4, "numWorkers": null}}));
}

async fn wrong_methods(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.delete(&format!("{WIDGETS}/a/status")).await.refused_about(405, "MethodNotAllowed", "");
    s.post(&format!("{WIDGETS}/a/scale"), json!({})).await.refused_about(405, "MethodNotAllowed", "");
}
