//! DELETE: preconditions, finalizers, grace, owners and their dependents, collections.

use serde_json::{Value, json};

use super::cases;
use crate::answer::Answer;
use crate::fixtures::{WIDGETS, allow_pods, config_map, labelled, pod, widget};
use crate::sandbox::Sandbox;

cases! { "delete":
    "the answer is a Status that names the object" => answers_status,
    "what is not there is NotFound" => missing,
    "another uid is a Conflict" => other_uid,
    "another resourceVersion is a Conflict" => other_version,
    "preconditions that hold let it pass" => preconditions_hold,
    "a finalizer keeps the object, with a deletionTimestamp" => finalizer,
    "deleting again changes nothing" => again,
    "the object goes with its last finalizer" => last_finalizer,
    "finalizers can be removed by PUT and by JSON patch" => finalizer_put,
    "a finalizer cannot be added while deleting" => no_new_finalizer,
    "an object that is being deleted can still be changed" => changes_while_deleting,
    "deletion counts in generation" => generation,
    "a name that is being deleted is AlreadyExists" => create_while_deleting,
    "a deletionTimestamp cannot be removed" => deletion_timestamp_stays,
    "dry run keeps the object" => dry_run,
    "propagation background: the owner goes first, dependents follow" => background,
    "propagation foreground: dependents that block go first" => foreground,
    "propagation orphan: dependents stay, without the reference" => orphan,
    "dependents of two owners stay with the other" => two_owners,
    "an owner that does not exist collects its dependents" => absent_owner,
    "owners of other kinds collect their dependents" => custom_owner,
    "options in the query work as in the body" => query_options,
    "a propagation policy that does not exist is refused" => bad_propagation,
    "both ways to orphan are refused together" => both_orphan,
    "a body that is not DeleteOptions is refused" => bad_body,
    "a collection is deleted, and the answer says so" => collection,
    "a collection with a label selector" => collection_labels,
    "a collection with a field selector" => collection_fields,
    "a collection with finalizers stays until they go" => collection_finalizers,
    "a collection of custom resources" => collection_custom,
    "a dry run of a collection keeps it" => collection_dry_run,
    "a pod that runs nowhere goes at once" => pod_unscheduled,
    "a pod on a node waits for its grace period" => pod_grace,
    "a grace period of its own" => pod_own_grace,
    "a grace period of 0 removes the pod at once" => pod_no_grace,
    "a shorter grace period replaces a longer one" => pod_shorter_grace,
    "a negative grace period means one second" => pod_negative_grace,
    "a pod that has ended goes at once" => pod_ended,
    "a namespace cannot be deleted twice at once" => namespace_twice,
}

async fn answers_status(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    s.delete("configmaps/a").await.is(200).has(json!({
        "kind": "Status", "apiVersion": "v1", "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made.uid()},
    }));
    s.get("configmaps/a").await.is(404);
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.delete(&format!("{WIDGETS}/a")).await.is(200).has(json!({
        "kind": "Status", "status": "Success",
        "details": {"name": "a", "group": "conformance.example.com", "kind": "widgets", "uid": made.uid()},
    }));
}

async fn missing(s: Sandbox) {
    s.delete("configmaps/a").await.refused(404, "NotFound", "configmaps \"a\" not found");
    s.delete(&format!("{WIDGETS}/a")).await.refused(
        404,
        "NotFound",
        "widgets.conformance.example.com \"a\" not found",
    );
}

async fn other_uid(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let uid = "11111111-1111-1111-1111-111111111111";
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition ({uid}) does not match the UID in record ({}). \
         The object might have been deleted and then recreated",
        made.uid()
    );
    s.delete_with("configmaps/a", json!({"preconditions": {"uid": uid}}))
        .await
        .refused(409, "Conflict", &message);
    s.get("configmaps/a").await.is(200);
}

async fn other_version(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let changed = s.merge("configmaps/a", json!({"data": {"a": "2"}})).await.is(200);
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({}). \
         The object might have been modified",
        made.version(),
        changed.version()
    );
    s.delete_with("configmaps/a", json!({"preconditions": {"resourceVersion": made.version()}}))
        .await
        .refused(409, "Conflict", &message);
}

async fn preconditions_hold(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let preconditions = json!({"uid": made.uid(), "resourceVersion": made.version()});
    s.delete_with("configmaps/a", json!({"preconditions": preconditions})).await.is(200);
    s.get("configmaps/a").await.is(404);
}

fn held(name: &str) -> Value {
    let mut object = config_map(name);
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object
}

async fn finalizer(s: Sandbox) {
    s.post("configmaps", held("a")).await.is(201);
    let deleted = s
        .delete("configmaps/a")
        .await
        .is(200)
        .has(json!({"kind": "ConfigMap", "metadata": {"deletionGracePeriodSeconds": 0}}));
    deleted.present("/metadata/deletionTimestamp");
    assert_eq!(s.get("configmaps/a").await.is(200).body(), deleted.body());
}

async fn again(s: Sandbox) {
    s.post("configmaps", held("a")).await.is(201);
    let first = s.delete("configmaps/a").await.is(200);
    let second = s.delete("configmaps/a").await.is(200);
    assert_eq!(first.body()["metadata"], second.body()["metadata"]);
    assert_eq!(s.get("configmaps/a").await.is(200).version(), first.version());
}

async fn last_finalizer(s: Sandbox) {
    let mut object = held("a");
    object["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    s.post("configmaps", object).await.is(201);
    s.delete("configmaps/a").await.is(200);
    s.merge("configmaps/a", json!({"metadata": {"finalizers": ["example.com/two"]}})).await.is(200);
    s.get("configmaps/a").await.is(200);
    s.merge("configmaps/a", json!({"metadata": {"finalizers": []}}))
        .await
        .is(200)
        .has(json!({"kind": "ConfigMap"}));
    s.get("configmaps/a").await.is(404);
}

async fn finalizer_put(s: Sandbox) {
    s.post("configmaps", held("a")).await.is(201);
    let mut object = s.delete("configmaps/a").await.is(200).body().clone();
    object["metadata"].as_object_mut().expect("metadata").remove("finalizers");
    s.put("configmaps/a", object).await.is(200);
    s.get("configmaps/a").await.is(404);
    s.post("configmaps", held("b")).await.is(201);
    s.delete("configmaps/b").await.is(200);
    s.json_patch("configmaps/b", json!([{"op": "remove", "path": "/metadata/finalizers"}])).await.is(200);
    s.get("configmaps/b").await.is(404);
}

async fn no_new_finalizer(s: Sandbox) {
    s.post("configmaps", held("a")).await.is(201);
    s.delete("configmaps/a").await.is(200);
    s.merge("configmaps/a", json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}))
        .await
        .refused(422, "Invalid", "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/more\"}");
}

async fn changes_while_deleting(s: Sandbox) {
    s.post("configmaps", held("a")).await.is(201);
    s.delete("configmaps/a").await.is(200);
    s.merge("configmaps/a", json!({"data": {"a": "2"}})).await.is(200).has(json!({"data": {"a": "2"}}));
}

async fn generation(s: Sandbox) {
    let mut object = widget("a", json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post(WIDGETS, object).await.is(201).has(json!({"metadata": {"generation": 1}}));
    s.delete(&format!("{WIDGETS}/a")).await.is(200).has(json!({"metadata": {"generation": 2}}));
}

async fn create_while_deleting(s: Sandbox) {
    s.post("configmaps", held("a")).await.is(201);
    s.delete("configmaps/a").await.is(200);
    s.post("configmaps", config_map("a")).await.refused(
        409,
        "AlreadyExists",
        "object is being deleted: configmaps \"a\" already exists",
    );
}

async fn deletion_timestamp_stays(s: Sandbox) {
    s.post("configmaps", held("a")).await.is(201);
    let deleted = s.delete("configmaps/a").await.is(200);
    let patched =
        s.merge("configmaps/a", json!({"metadata": {"deletionTimestamp": null, "labels": {"x": "1"}}})).await;
    // Refused or ignored: never undone.
    assert!([200, 422].contains(&patched.status()), "{}", patched.text());
    let read = s.get("configmaps/a").await.is(200);
    assert_eq!(read.at("/metadata/deletionTimestamp"), deleted.at("/metadata/deletionTimestamp"));
}

async fn dry_run(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    s.delete("configmaps/a?dryRun=All").await.is(200);
    assert_eq!(s.get("configmaps/a").await.is(200).body(), made.body());
    s.delete_with("configmaps/a", json!({"dryRun": ["All"]})).await.is(200);
    assert_eq!(s.get("configmaps/a").await.is(200).body(), made.body());
}

fn owned(name: &str, owner: &Answer, block: bool) -> Value {
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner.at("/apiVersion"), "kind": owner.at("/kind"), "name": owner.name(), "uid": owner.uid(),
        "blockOwnerDeletion": block,
    }]);
    object
}

async fn background(s: Sandbox) {
    let owner = s.post("configmaps", config_map("owner")).await.is(201);
    s.post("configmaps", owned("child", &owner, true)).await.is(201);
    s.delete_with("configmaps/owner", json!({"propagationPolicy": "Background"}))
        .await
        .is(200)
        .has(json!({"kind": "Status"}));
    s.get("configmaps/owner").await.is(404);
    s.until_gone("configmaps/child").await;
}

async fn foreground(s: Sandbox) {
    let owner = s.post("configmaps", config_map("owner")).await.is(201);
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post("configmaps", child).await.is(201);
    s.post("configmaps", owned("free", &owner, false)).await.is(201);
    let deleted = s.delete_with("configmaps/owner", json!({"propagationPolicy": "Foreground"})).await.is(200);
    deleted.present("/metadata/deletionTimestamp");
    deleted.has(json!({"kind": "ConfigMap", "metadata": {"finalizers": ["foregroundDeletion"]}}));
    s.until("configmaps/child", "a child that is being deleted", |answer| {
        !answer.at("/metadata/deletionTimestamp").is_empty()
    })
    .await;
    s.until_gone("configmaps/free").await;
    s.get("configmaps/owner").await.is(200);
    s.merge("configmaps/child", json!({"metadata": {"finalizers": null}})).await.is(200);
    s.until_gone("configmaps/child").await;
    s.until_gone("configmaps/owner").await;
}

async fn orphan(s: Sandbox) {
    let owner = s.post("configmaps", config_map("owner")).await.is(201);
    s.post("configmaps", owned("child", &owner, true)).await.is(201);
    s.delete_with("configmaps/owner", json!({"propagationPolicy": "Orphan"})).await.is(200);
    s.until_gone("configmaps/owner").await;
    s.get("configmaps/child")
        .await
        .is(200)
        .lacks("/metadata/ownerReferences")
        .lacks("/metadata/deletionTimestamp");
}

async fn two_owners(s: Sandbox) {
    let first = s.post("configmaps", config_map("first")).await.is(201);
    let second = s.post("configmaps", config_map("second")).await.is(201);
    let mut child = owned("child", &first, false);
    let other = owned("child", &second, false)["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"].as_array_mut().expect("owners").push(other);
    s.post("configmaps", child).await.is(201);
    s.delete("configmaps/first").await.is(200);
    let kept = s
        .until("configmaps/child", "one owner left", |answer| {
            answer.body()["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1)
        })
        .await;
    kept.has(json!({"metadata": {"ownerReferences": [{"name": "second"}], "deletionTimestamp": null}}));
}

async fn absent_owner(s: Sandbox) {
    let owner = s.post("configmaps", config_map("owner")).await.is(201);
    s.delete("configmaps/owner").await.is(200);
    s.post("configmaps", owned("child", &owner, false)).await.is(201);
    s.until_gone("configmaps/child").await;
}

async fn custom_owner(s: Sandbox) {
    let owner = s.post(WIDGETS, widget("owner", json!({}))).await.is(201);
    s.post("configmaps", owned("child", &owner, true)).await.is(201);
    s.delete(&format!("{WIDGETS}/owner")).await.is(200);
    s.until_gone("configmaps/child").await;
}

async fn query_options(s: Sandbox) {
    let owner = s.post("configmaps", config_map("owner")).await.is(201);
    s.post("configmaps", owned("child", &owner, true)).await.is(201);
    s.delete("configmaps/owner?propagationPolicy=Orphan").await.is(200);
    s.until_gone("configmaps/owner").await;
    s.get("configmaps/child").await.is(200).lacks("/metadata/ownerReferences");
}

async fn bad_propagation(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.delete("configmaps/a?propagationPolicy=Sideways").await.refused(422, "Invalid", "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"");
}

async fn both_orphan(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.delete_with("configmaps/a", json!({"propagationPolicy": "Orphan", "orphanDependents": true}))
        .await
        .refused(422, "Invalid", "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set");
}

async fn bad_body(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let with = crate::sandbox::With::content("application/json");
    s.ask(http::Method::DELETE, "configmaps/a", "{\"kind\": \"Pod\", \"apiVersion\": \"v1\"}".into(), with)
        .await
        .refused_about(400, "BadRequest", "");
    s.get("configmaps/a").await.is(200);
}

async fn collection(s: Sandbox) {
    for name in ["a", "b"] {
        s.post("secrets", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}))
            .await
            .is(201);
    }
    s.delete("secrets").await.is(200).has(json!({"kind": "SecretList", "apiVersion": "v1"}));
    s.get("secrets").await.is(200).lists(&[]);
    // Nothing to delete is no error.
    s.delete("secrets").await.is(200);
}

async fn collection_labels(s: Sandbox) {
    s.post("configmaps", labelled("a", json!({"x": "1"}))).await.is(201);
    s.post("configmaps", labelled("b", json!({"x": "2"}))).await.is(201);
    s.delete("configmaps?labelSelector=x=1").await.is(200);
    s.get("configmaps?labelSelector=x").await.is(200).lists(&["b"]);
}

async fn collection_fields(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.post(WIDGETS, widget("b", json!({}))).await.is(201);
    s.delete(&format!("{WIDGETS}?fieldSelector=metadata.name!=a")).await.is(200);
    s.get(WIDGETS).await.is(200).lists(&["a"]);
}

async fn collection_finalizers(s: Sandbox) {
    s.post("configmaps", held("a")).await.is(201);
    s.post("configmaps", config_map("b")).await.is(201);
    s.delete("configmaps?fieldSelector=metadata.name!=kube-root-ca.crt").await.is(200);
    s.get("configmaps/b").await.is(404);
    s.get("configmaps/a").await.is(200).present("/metadata/deletionTimestamp");
}

async fn collection_custom(s: Sandbox) {
    for name in ["a", "b", "c"] {
        s.post(WIDGETS, widget(name, json!({}))).await.is(201);
    }
    s.delete(WIDGETS).await.is(200);
    s.get(WIDGETS).await.is(200).lists(&[]);
}

async fn collection_dry_run(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.delete(&format!("{WIDGETS}?dryRun=All")).await.is(200);
    s.get(WIDGETS).await.is(200).lists(&["a"]);
}

async fn pod_unscheduled(s: Sandbox) {
    allow_pods(&s).await;
    s.post("pods", pod("a")).await.is(201).has(json!({"spec": {"terminationGracePeriodSeconds": 30}}));
    s.delete("pods/a").await.is(200);
    s.get("pods/a").await.is(404);
}

/// A pod that a node would have to end. The node does not exist, so nobody does.
async fn running(s: &Sandbox, name: &str) {
    allow_pods(s).await;
    let mut object = pod(name);
    object["spec"]["nodeName"] = "some-node".into();
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.post("pods", object).await.is(201);
    s.merge(&format!("pods/{name}/status"), json!({"status": {"phase": "Running"}})).await.is(200);
}

async fn pod_grace(s: Sandbox) {
    running(&s, "a").await;
    let deleted = s
        .delete("pods/a")
        .await
        .is(200)
        .has(json!({"kind": "Pod", "metadata": {"deletionGracePeriodSeconds": 30}}));
    deleted.present("/metadata/deletionTimestamp");
}

async fn pod_own_grace(s: Sandbox) {
    running(&s, "a").await;
    s.delete_with("pods/a", json!({"gracePeriodSeconds": 7}))
        .await
        .is(200)
        .has(json!({"metadata": {"deletionGracePeriodSeconds": 7}}));
}

async fn pod_no_grace(s: Sandbox) {
    running(&s, "a").await;
    s.delete("pods/a").await.is(200);
    s.delete("pods/a?gracePeriodSeconds=0")
        .await
        .is(200)
        .has(json!({"metadata": {"deletionGracePeriodSeconds": 0}}));
    s.merge("pods/a", json!({"metadata": {"finalizers": null}})).await.is(200);
    s.get("pods/a").await.is(404);
}

async fn pod_shorter_grace(s: Sandbox) {
    running(&s, "a").await;
    s.delete("pods/a").await.is(200);
    s.delete("pods/a?gracePeriodSeconds=9")
        .await
        .is(200)
        .has(json!({"metadata": {"deletionGracePeriodSeconds": 9}}));
    s.delete("pods/a?gracePeriodSeconds=20")
        .await
        .is(200)
        .has(json!({"metadata": {"deletionGracePeriodSeconds": 9}}));
}

async fn pod_negative_grace(s: Sandbox) {
    running(&s, "a").await;
    s.delete("pods/a?gracePeriodSeconds=-1")
        .await
        .is(200)
        .has(json!({"metadata": {"deletionGracePeriodSeconds": 1}}));
}

async fn pod_ended(s: Sandbox) {
    allow_pods(&s).await;
    let mut object = pod("a");
    object["spec"]["nodeName"] = "some-node".into();
    s.post("pods", object).await.is(201);
    s.merge("pods/a/status", json!({"status": {"phase": "Succeeded"}})).await.is(200);
    s.delete("pods/a").await.is(200);
    s.get("pods/a").await.is(404);
}

async fn namespace_twice(s: Sandbox) {
    s.post("configmaps", held("a")).await.is(201);
    let path = format!("/api/v1/namespaces/{}", s.namespace);
    s.delete(&path).await.is(200).has(json!({"kind": "Namespace", "status": {"phase": "Terminating"}}));
    let answer = s.delete(&path).await;
    assert!([200, 409].contains(&answer.status()), "{} {}", answer.status(), answer.text());
    s.get(&path).await.is(200).has(json!({"status": {"phase": "Terminating"}}));
    s.merge("configmaps/a", json!({"metadata": {"finalizers": null}})).await.is(200);
    s.until_gone(&path).await;
}
