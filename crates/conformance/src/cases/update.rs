//! PUT of whole objects.

use serde_json::json;

use super::cases;
use crate::fixtures::{WIDGETS, allow_pods, config_map, pod, widget, with};
use crate::sandbox::Sandbox;

cases! { "update":
    "a PUT replaces the object and gives it a new resourceVersion" => replaces,
    "an old resourceVersion is a Conflict" => conflict,
    "a PUT without resourceVersion wins for kinds that allow it" => unconditional,
    "a custom resource needs a resourceVersion" => custom_needs_version,
    "a PUT of what is not there is NotFound" => missing,
    "a PUT of what is not there creates a Lease" => creates_lease,
    "the name must be that of the path" => other_name,
    "another uid is a Conflict" => other_uid,
    "a PUT that changes nothing keeps the resourceVersion" => no_change,
    "generation counts changes of the spec" => generation,
    "labels do not count as a change of the spec" => generation_labels,
    "uid and creationTimestamp stay when they are left out" => keeps_metadata,
    "creationTimestamp cannot be changed" => creation_timestamp,
    "the status of a PUT to the object is ignored" => status_ignored,
    "dry run changes nothing" => dry_run,
    "an immutable config map cannot be changed" => immutable_config_map,
    "the type of a secret cannot be changed" => secret_type,
    "most of a pod's spec cannot be changed" => pod_spec,
    "the spec of a claim cannot be changed" => claim_spec,
}

async fn replaces(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let object = with(made.body().clone(), "/data", json!({"b": "2"}));
    let put = s.put("configmaps/a", object).await.is(200);
    assert_ne!(put.version(), made.version());
    assert_eq!(put.uid(), made.uid());
    let read = s.get("configmaps/a").await.is(200);
    assert_eq!(read.body(), put.body());
    assert_eq!(read.body()["data"], json!({"b": "2"}));
}

async fn conflict(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let object = with(made.body().clone(), "/data", json!({"b": "2"}));
    s.put("configmaps/a", object.clone()).await.is(200);
    s.put("configmaps/a", object)
        .await
        .refused(
            409,
            "Conflict",
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
             please apply your changes to the latest version and try again",
        )
        .has(json!({"details": {"name": "a", "kind": "configmaps"}}));
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let object = with(made.body().clone(), "/spec/size", json!(2));
    s.put(&format!("{WIDGETS}/a"), object.clone()).await.is(200);
    s.put(&format!("{WIDGETS}/a"), object).await.refused(
        409,
        "Conflict",
        "Operation cannot be fulfilled on widgets.conformance.example.com \"a\": the object has been modified; \
         please apply your changes to the latest version and try again",
    );
}

async fn unconditional(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.put("configmaps/a", with(config_map("a"), "/data", json!({"b": "2"})))
        .await
        .is(200)
        .has(json!({"data": {"a": null, "b": "2"}}));
}

async fn custom_needs_version(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.put(&format!("{WIDGETS}/a"), widget("a", json!({"size": 2}))).await.refused(422, "Invalid", "widgets.conformance.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update");
}

async fn missing(s: Sandbox) {
    s.put("configmaps/a", config_map("a")).await.refused(404, "NotFound", "configmaps \"a\" not found");
    let path = format!("{WIDGETS}/a");
    s.put(&path, widget("a", json!({}))).await.refused_about(404, "NotFound", "not found");
}

async fn creates_lease(s: Sandbox) {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}});
    let path = "coordination.k8s.io/v1/leases/a";
    s.put(path, lease.clone()).await.is(201).version();
    s.put(path, lease).await.refused(422, "Invalid", "leases.coordination.k8s.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update");
}

async fn other_name(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.put("configmaps/a", config_map("b")).await.refused(
        400,
        "BadRequest",
        "the name of the object (b) does not match the name on the URL (a)",
    );
}

async fn other_uid(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let object = with(made.body().clone(), "/metadata/uid", json!("11111111-1111-1111-1111-111111111111"));
    let message = format!(
        "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, \
         Key: /registry/configmaps/{}/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         UID in precondition: 11111111-1111-1111-1111-111111111111, UID in object meta: {}",
        s.namespace,
        made.uid()
    );
    let answer = s.put("configmaps/a", object).await;
    // The storage path in the message is the server's own business.
    let part =
        message.split_once("AdditionalErrorMsg: ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    answer.refused_about(409, "Conflict", &part);
}

async fn no_change(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let put = s.put("configmaps/a", made.body().clone()).await.is(200);
    assert_eq!(put.body(), made.body());
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let put = s.put(&format!("{WIDGETS}/a"), made.body().clone()).await.is(200);
    assert_eq!(put.body(), made.body());
}

async fn generation(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let path = format!("{WIDGETS}/a");
    let put = s
        .put(&path, with(made.body().clone(), "/spec/size", json!(2)))
        .await
        .is(200)
        .has(json!({"metadata": {"generation": 2}}));
    // A generation of one's own is not taken.
    let mut object = with(put.body().clone(), "/spec/size", json!(3));
    object["metadata"]["generation"] = 40.into();
    s.put(&path, object).await.is(200).has(json!({"metadata": {"generation": 3}}));
}

async fn generation_labels(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut object = made.body().clone();
    object["metadata"]["labels"] = json!({"x": "1"});
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let put = s
        .put(&format!("{WIDGETS}/a"), object)
        .await
        .is(200)
        .has(json!({"metadata": {"generation": 1, "labels": {"x": "1"}}}));
    assert_ne!(put.version(), made.version());
    s.merge(&format!("{WIDGETS}/a"), json!({"metadata": {"finalizers": null}})).await.is(200);
}

async fn keeps_metadata(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let put = s.put("configmaps/a", with(config_map("a"), "/data", json!({"b": "2"}))).await.is(200);
    assert_eq!(put.uid(), made.uid());
    assert_eq!(put.at("/metadata/creationTimestamp"), made.at("/metadata/creationTimestamp"));
}

async fn creation_timestamp(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let object = with(made.body().clone(), "/metadata/creationTimestamp", json!("2001-01-01T00:00:00Z"));
    let put = s.put("configmaps/a", object).await.is(200);
    assert_eq!(put.at("/metadata/creationTimestamp"), made.at("/metadata/creationTimestamp"));
}

async fn status_ignored(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut object = made.body().clone();
    object["status"] = json!({"phase": "Done"});
    let put = s.put(&format!("{WIDGETS}/a"), object).await.is(200).lacks("/status");
    assert_eq!(put.version(), made.version());
}

async fn dry_run(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let object = with(made.body().clone(), "/data", json!({"b": "2"}));
    s.put("configmaps/a?dryRun=All", object).await.is(200).has(json!({"data": {"b": "2"}}));
    assert_eq!(s.get("configmaps/a").await.is(200).body(), made.body());
}

async fn immutable_config_map(s: Sandbox) {
    let mut object = config_map("a");
    object["immutable"] = true.into();
    s.post("configmaps", object.clone()).await.is(201);
    object["data"] = json!({"a": "2"});
    s.put("configmaps/a", object.clone()).await.refused(
        422,
        "Invalid",
        "ConfigMap \"a\" is invalid: data: Forbidden: field is immutable when `immutable` is set",
    );
    object["immutable"] = false.into();
    s.put("configmaps/a", object).await.refused_about(
        422,
        "Invalid",
        "field is immutable when `immutable` is set",
    );
}

async fn secret_type(s: Sandbox) {
    let mut object =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "Opaque"});
    s.post("secrets", object.clone()).await.is(201);
    object["type"] = "example.com/other".into();
    s.put("secrets/a", object).await.refused(
        422,
        "Invalid",
        "Secret \"a\" is invalid: type: Invalid value: \"example.com/other\": field is immutable",
    );
}

async fn pod_spec(s: Sandbox) {
    allow_pods(&s).await;
    let made = s.post("pods", pod("a")).await.is(201);
    let image = with(made.body().clone(), "/spec/containers/0/image", json!("example.com/train:2"));
    let put = s.put("pods/a", image).await.is(200).has(json!({"metadata": {"generation": 2}}));
    let restart = with(put.body().clone(), "/spec/restartPolicy", json!("Never"));
    s.put("pods/a", restart).await.refused_about(
        422,
        "Invalid",
        "Pod \"a\" is invalid: spec: Forbidden: pod updates may not change fields other than \
         `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
         `spec.tolerations` (only additions to existing tolerations)",
    );
}

async fn claim_spec(s: Sandbox) {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
        "spec": {"storageClassName": "none-such", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let made = s
        .post("persistentvolumeclaims", claim)
        .await
        .is(201)
        .has(json!({"status": {"phase": "Pending"}, "spec": {"volumeMode": "Filesystem"}}));
    let modes = json!([{"op": "replace", "path": "/spec/accessModes", "value": ["ReadWriteMany"]}]);
    s.json_patch("persistentvolumeclaims/a", modes).await.refused_about(
        422,
        "Invalid",
        "spec: Forbidden: spec is immutable after creation",
    );
    let _ = made;
}
