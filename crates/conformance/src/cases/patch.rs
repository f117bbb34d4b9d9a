//! PATCH: JSON patches, merge patches, and strategic merge patches of built-in kinds.

use serde_json::json;

use super::cases;
use crate::fixtures::{WIDGETS, allow_pods, config_map, pod, widget};
use crate::sandbox::Sandbox;

cases! { "patch":
    "merge: fields are added, replaced and removed" => merge,
    "merge: lists are replaced" => merge_lists,
    "merge: a null that names nothing is no change" => merge_null,
    "merge: a patch that changes nothing keeps the resourceVersion" => merge_no_change,
    "merge: an old resourceVersion is a Conflict" => merge_version,
    "merge: the uid cannot be changed" => merge_uid,
    "merge: the name cannot be changed" => merge_name,
    "merge: what is not an object is refused" => merge_not_object,
    "merge: a change of the spec counts in generation" => merge_generation,
    "json: add, replace, remove, move, copy and test" => json_operations,
    "json: appending and inserting in lists" => json_lists,
    "json: escapes in paths" => json_escapes,
    "json: a test that fails refuses the patch" => json_test,
    "json: a path that is not there is refused" => json_missing_path,
    "json: an operation that does not exist is refused" => json_unknown_operation,
    "json: what is not a list is refused" => json_not_list,
    "json: more than 10,000 operations are refused" => json_too_many,
    "json: nothing of a patch that fails is kept" => json_atomic,
    "json: a list where a text or a map belongs is refused" => json_wrong_type,
    "json: a null where a text belongs is an empty text" => json_null,
    "strategic: containers are merged by name" => strategic_containers,
    "strategic: ports of a service are merged by number" => strategic_ports,
    "strategic: $patch: delete removes an element" => strategic_delete,
    "strategic: $patch: replace replaces a list" => strategic_replace,
    "strategic: $deleteFromPrimitiveList removes from a set" => strategic_delete_primitive,
    "strategic: $setElementOrder orders a merged list" => strategic_order,
    "strategic: $retainKeys removes the other keys" => strategic_retain_keys,
    "strategic: null removes a key" => strategic_null,
    "strategic: finalizers are merged" => strategic_finalizers,
    "strategic: owner references are merged by uid" => strategic_owners,
    "strategic: an unknown directive is refused" => strategic_unknown_directive,
    "strategic: custom resources refuse it" => strategic_custom,
    "a content type that is no patch is 415" => content_type,
    "a patch of what is not there is NotFound" => missing,
    "dry run changes nothing" => dry_run,
    "a patch of a patched object is validated" => validated,
    "strict field validation refuses unknown fields of the patched object" => strict,
    "a patch by the query's manager owns what it changed" => manager,
    "force is for apply only" => force_without_apply,
    "a patch that is not JSON is refused" => not_json,
}

async fn merge(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let patch = json!({"data": {"a": null, "b": "2"}, "metadata": {"labels": {"x": "1"}}});
    let patched =
        s.merge("configmaps/a", patch).await.is(200).has(json!({"metadata": {"labels": {"x": "1"}}}));
    assert_eq!(patched.body()["data"], json!({"b": "2"}));
    assert_ne!(patched.version(), made.version());
    assert_eq!(s.get("configmaps/a").await.is(200).body(), patched.body());
}

async fn merge_lists(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    s.post(WIDGETS, widget("a", json!({"parts": [{"name": "x"}, {"name": "y"}]}))).await.is(201);
    let patched = s.merge(&path, json!({"spec": {"parts": [{"name": "z", "count": 1}]}})).await.is(200);
    assert_eq!(patched.body()["spec"]["parts"], json!([{"name": "z", "count": 1}]));
}

async fn merge_null(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let patch = json!({"spec": {"labels": null}, "metadata": {"labels": {"x": null}}});
    let patched = s.merge(&format!("{WIDGETS}/a"), patch).await.is(200);
    assert_eq!(patched.at("/spec"), made.at("/spec"));
}

async fn merge_no_change(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    assert_eq!(s.merge("configmaps/a", json!({"data": {"a": "1"}})).await.is(200).body(), made.body());
    assert_eq!(s.merge("configmaps/a", json!({})).await.is(200).body(), made.body());
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let path = format!("{WIDGETS}/a");
    assert_eq!(s.merge(&path, json!({"spec": {"size": 1, "unknown": 1}})).await.is(200).body(), made.body());
}

async fn merge_version(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let patch =
        |version: &str, value: &str| json!({"metadata": {"resourceVersion": version}, "data": {"a": value}});
    let second = s.merge("configmaps/a", patch(&made.version(), "2")).await.is(200);
    s.merge("configmaps/a", patch(&made.version(), "3")).await.refused(
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
         please apply your changes to the latest version and try again",
    );
    assert_eq!(s.get("configmaps/a").await.is(200).body(), second.body());
}

async fn merge_uid(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let uid = "11111111-1111-1111-1111-111111111111";
    s.merge("configmaps/a", json!({"metadata": {"uid": uid}, "data": {"a": "2"}})).await.refused(
        422,
        "Invalid",
        &format!("ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"{uid}\": field is immutable"),
    );
}

async fn merge_name(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.merge("configmaps/a", json!({"metadata": {"name": "b"}})).await.refused(
        400,
        "BadRequest",
        "the name of the object (b) does not match the name on the URL (a)",
    );
}

async fn merge_not_object(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let answer = s.merge("configmaps/a", json!([1])).await;
    assert!(answer.status() == 400 || answer.status() == 422, "{} {}", answer.status(), answer.text());
}

async fn merge_generation(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.merge(&path, json!({"spec": {"size": 2}})).await.is(200).has(json!({"metadata": {"generation": 2}}));
    s.merge(&path, json!({"metadata": {"labels": {"x": "1"}}}))
        .await
        .is(200)
        .has(json!({"metadata": {"generation": 2}}));
}

async fn json_operations(s: Sandbox) {
    let mut object = config_map("a");
    object["data"] = json!({"a": "1", "b": "2", "c": "3"});
    s.post("configmaps", object).await.is(201);
    let operations = json!([
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/data/d", "value": "4"},
        {"op": "replace", "path": "/data/a", "value": "one"},
        {"op": "remove", "path": "/data/b"},
        {"op": "move", "from": "/data/c", "path": "/data/e"},
        {"op": "copy", "from": "/data/d", "path": "/data/f"},
    ]);
    let patched = s.json_patch("configmaps/a", operations).await.is(200);
    assert_eq!(patched.body()["data"], json!({"a": "one", "d": "4", "e": "3", "f": "4"}));
}

async fn json_lists(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    s.post(WIDGETS, widget("a", json!({"tags": ["b"]}))).await.is(201);
    let operations = json!([
        {"op": "add", "path": "/spec/tags/-", "value": "c"},
        {"op": "add", "path": "/spec/tags/0", "value": "a"},
    ]);
    let patched = s.json_patch(&path, operations).await.is(200);
    assert_eq!(patched.body()["spec"]["tags"], json!(["a", "b", "c"]));
}

async fn json_escapes(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let operations = json!([
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/example.com~1note", "value": "x"},
    ]);
    s.json_patch("configmaps/a", operations)
        .await
        .is(200)
        .has(json!({"metadata": {"annotations": {"example.com/note": "x"}}}));
}

async fn json_test(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let operations =
        json!([{"op": "test", "path": "/data/a", "value": "2"}, {"op": "remove", "path": "/data/a"}]);
    s.json_patch("configmaps/a", operations).await.refused_about(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    );
    assert_eq!(s.get("configmaps/a").await.is(200).body(), made.body());
}

async fn json_missing_path(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.json_patch("configmaps/a", json!([{"op": "remove", "path": "/data/zzz"}])).await.refused(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    );
    s.json_patch("configmaps/a", json!([{"op": "replace", "path": "/x/y", "value": 1}])).await.refused_about(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    );
}

async fn json_unknown_operation(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let answer = s.json_patch("configmaps/a", json!([{"op": "increment", "path": "/data/a"}])).await;
    assert!(answer.status() == 400 || answer.status() == 422, "{} {}", answer.status(), answer.text());
}

async fn json_not_list(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.json_patch("configmaps/a", json!({"op": "remove"})).await.refused_about(400, "BadRequest", "");
}

async fn json_too_many(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let one = json!({"op": "test", "path": "/data/a", "value": "1"});
    let operations = serde_json::Value::Array(vec![one; 10_001]);
    s.json_patch("configmaps/a", operations).await.refused(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
    );
}

async fn json_atomic(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let operations =
        json!([{"op": "add", "path": "/data/b", "value": "2"}, {"op": "remove", "path": "/data/zzz"}]);
    s.json_patch("configmaps/a", operations).await.is(422);
    assert_eq!(s.get("configmaps/a").await.is(200).body(), made.body());
}

async fn json_wrong_type(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    for (path, value) in [
        ("/data", json!([])),
        ("/data/b", json!([])),
        ("/data/b", json!({})),
        ("/metadata/labels", json!("x")),
    ] {
        let operations = json!([{"op": "add", "path": path, "value": value}]);
        s.json_patch("configmaps/a", operations).await.refused_about(
            422,
            "Invalid",
            "patch: Invalid value: ",
        );
    }
    assert_eq!(s.get("configmaps/a").await.is(200).body(), made.body());
}

async fn json_null(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let operations = json!([{"op": "replace", "path": "/data/a", "value": null}]);
    let patched = s.json_patch("configmaps/a", operations).await.is(200);
    assert_eq!(patched.body()["data"], json!({"a": ""}), "{}", patched.text());
}

/// A pod of two containers, of which an update may change the images.
async fn two_containers(s: &Sandbox) {
    allow_pods(s).await;
    let mut object = pod("a");
    object["spec"]["containers"] = json!([{"name": "one", "image": "i:1"}, {"name": "two", "image": "i:1"}]);
    s.post("pods", object).await.is(201);
}

async fn strategic_containers(s: Sandbox) {
    two_containers(&s).await;
    let patch = json!({"spec": {"containers": [{"name": "two", "image": "i:2"}]}});
    s.strategic("pods/a", patch).await.is(200).has(json!({
        "spec": {"containers": [{"name": "one", "image": "i:1"}, {"name": "two", "image": "i:2"}]},
    }));
}

/// A service, whose ports are a list that is merged by `port` and may be changed in any way.
async fn ports(s: &Sandbox) {
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "p", "labels": {"a": "1", "b": "2"}},
        "spec": {
            "selector": {"a": "1", "b": "2"},
            "ports": [{"name": "one", "port": 81, "targetPort": 8081}, {"name": "two", "port": 82, "targetPort": 8082}],
        },
    });
    s.post("services", object).await.is(201);
}

async fn strategic_ports(s: Sandbox) {
    ports(&s).await;
    let changed = json!([{"port": 82, "targetPort": 9000}, {"name": "three", "port": 83}]);
    let patched = s.strategic("services/p", json!({"spec": {"ports": changed}})).await.is(200);
    let mut ports = patched.body()["spec"]["ports"].as_array().cloned().unwrap_or_default();
    ports.sort_by_key(|port| port["port"].as_i64());
    let expected = [
        json!({"name": "one", "port": 81, "targetPort": 8081, "protocol": "TCP"}),
        json!({"name": "two", "port": 82, "targetPort": 9000, "protocol": "TCP"}),
        json!({"name": "three", "port": 83, "targetPort": 83, "protocol": "TCP"}),
    ];
    assert_eq!(ports, expected, "{}", patched.text());
}

async fn strategic_delete(s: Sandbox) {
    ports(&s).await;
    let patch = json!({"spec": {"ports": [{"port": 81, "$patch": "delete"}]}});
    s.strategic("services/p", patch)
        .await
        .is(200)
        .has(json!({"spec": {"ports": [{"name": "two", "port": 82}]}}));
}

async fn strategic_replace(s: Sandbox) {
    ports(&s).await;
    let patch = json!({"spec": {"ports": [{"$patch": "replace"}, {"port": 90}]}});
    s.strategic("services/p", patch)
        .await
        .is(200)
        .has(json!({"spec": {"ports": [{"port": 90, "name": null}]}}));
    let patch = json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}});
    let patched = s.strategic("services/p", patch).await.is(200);
    assert_eq!(patched.body()["metadata"]["labels"], json!({"c": "3"}));
}

async fn strategic_delete_primitive(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    s.post("configmaps", object).await.is(201);
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/one"]}});
    s.strategic("configmaps/a", patch)
        .await
        .is(200)
        .has(json!({"metadata": {"finalizers": ["example.com/two"]}}));
}

async fn strategic_order(s: Sandbox) {
    ports(&s).await;
    let patch = json!({"spec": {
        "$setElementOrder/ports": [{"port": 82}, {"port": 83}, {"port": 81}],
        "ports": [{"name": "three", "port": 83}],
    }});
    s.strategic("services/p", patch).await.is(200).has(json!({
        "spec": {"ports": [{"name": "two"}, {"name": "three"}, {"name": "one"}]},
    }));
}

async fn strategic_retain_keys(s: Sandbox) {
    ports(&s).await;
    let patch = json!({"spec": {"selector": {"$retainKeys": ["b", "c"], "c": "3"}}});
    let patched = s.strategic("services/p", patch).await.is(200);
    assert_eq!(patched.body()["spec"]["selector"], json!({"b": "2", "c": "3"}), "{}", patched.text());
}

async fn strategic_null(s: Sandbox) {
    ports(&s).await;
    let patch = json!({"metadata": {"labels": {"a": null}}, "spec": {"selector": null}});
    let patched = s.strategic("services/p", patch).await.is(200).lacks("/spec/selector");
    assert_eq!(patched.body()["metadata"]["labels"], json!({"b": "2"}));
}

async fn strategic_finalizers(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/one"]);
    s.post("configmaps", object).await.is(201);
    let patched =
        s.strategic("configmaps/a", json!({"metadata": {"finalizers": ["example.com/two"]}})).await.is(200);
    let mut finalizers = patched.body()["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.sort_by_key(ToString::to_string);
    assert_eq!(finalizers, ["example.com/one", "example.com/two"]);
}

async fn strategic_owners(s: Sandbox) {
    let owner = |uid: char, name: &str| {
        let uid = format!("{}-1111-1111-1111-111111111111", uid.to_string().repeat(8));
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    };
    let mut object = config_map("a");
    object["metadata"]["ownerReferences"] = json!([owner('1', "x"), owner('2', "y")]);
    let mut watched = object.clone();
    watched["metadata"]["finalizers"] = json!(["example.com/hold"]);
    // The owners do not exist, so a collector may come: the finalizer keeps the object for the case.
    s.post("configmaps", watched).await.is(201);
    let patch =
        json!({"metadata": {"ownerReferences": [{"uid": owner('1', "x")["uid"], "$patch": "delete"}]}});
    let patched = s.strategic("configmaps/a", patch).await.is(200);
    assert_eq!(patched.body()["metadata"]["ownerReferences"], json!([owner('2', "y")]));
}

async fn strategic_unknown_directive(s: Sandbox) {
    ports(&s).await;
    let answer =
        s.strategic("services/p", json!({"spec": {"ports": [{"port": 81, "$patch": "forget"}]}})).await;
    assert!([400, 422, 500].contains(&answer.status()), "{} {}", answer.status(), answer.text());
}

async fn strategic_custom(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.strategic(&format!("{WIDGETS}/a"), json!({"spec": {"size": 2}})).await.refused(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    );
}

async fn content_type(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.patch("configmaps/a", "application/json", "{}").await.refused_about(415, "UnsupportedMediaType", "");
    let message = "the body of the request was in an unknown format - accepted media types include: \
                   application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.patch(&format!("{WIDGETS}/a"), "application/json", "{}").await.refused(
        415,
        "UnsupportedMediaType",
        message,
    );
}

async fn missing(s: Sandbox) {
    s.merge("configmaps/a", json!({})).await.refused(404, "NotFound", "configmaps \"a\" not found");
    s.json_patch(&format!("{WIDGETS}/a"), json!([])).await.refused(
        404,
        "NotFound",
        "widgets.conformance.example.com \"a\" not found",
    );
    s.strategic("pods/a", json!({})).await.refused(404, "NotFound", "pods \"a\" not found");
}

async fn dry_run(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    s.merge("configmaps/a?dryRun=All", json!({"data": {"b": "2"}}))
        .await
        .is(200)
        .has(json!({"data": {"a": "1", "b": "2"}}));
    assert_eq!(s.get("configmaps/a").await.is(200).body(), made.body());
}

async fn validated(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.merge(&format!("{WIDGETS}/a"), json!({"spec": {"size": 11}})).await.refused(
        422,
        "Invalid",
        "Widget.conformance.example.com \"a\" is invalid: spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
    );
    s.merge(&format!("{WIDGETS}/a"), json!({"spec": {"size": null}}))
        .await
        .refused_about(422, "Invalid", "spec.size: Required value")
        .blames(&[("FieldValueRequired", "spec.size")]);
}

async fn strict(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.merge(&format!("{WIDGETS}/a?fieldValidation=Strict"), json!({"spec": {"shape": "round"}}))
        .await
        .refused_about(422, "Invalid", "strict decoding error: unknown field \"spec.shape\"");
    let answer = s.merge(&format!("{WIDGETS}/a"), json!({"spec": {"shape": "round"}})).await.is(200);
    assert_eq!(answer.warnings(), ["299 - \"unknown field \\\"spec.shape\\\"\""]);
    s.post("configmaps", config_map("a")).await.is(201);
    s.merge("configmaps/a?fieldValidation=Strict", json!({"datum": 1})).await.refused_about(
        422,
        "Invalid",
        "strict decoding error: unknown field \"datum\"",
    );
}

async fn manager(s: Sandbox) {
    let mut object = config_map("a");
    object["data"]["b"] = "2".into();
    s.post("configmaps?fieldManager=maker", object).await.is(201);
    let patched = s.merge("configmaps/a?fieldManager=patcher", json!({"data": {"a": "2"}})).await.is(200);
    assert_eq!(patched.managers(), ["maker Update", "patcher Update"]);
    assert_eq!(patched.fields_of("maker", "Update"), json!({"f:data": {".": {}, "f:b": {}}}));
    assert_eq!(patched.fields_of("patcher", "Update"), json!({"f:data": {"f:a": {}}}));
}

async fn force_without_apply(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.merge("configmaps/a?force=true", json!({})).await.refused(422, "Invalid", "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch");
}

async fn not_json(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.patch("configmaps/a", "application/merge-patch+json", "{").await.refused_about(400, "BadRequest", "");
    s.patch("configmaps/a", "application/strategic-merge-patch+json", "{").await.refused_about(
        400,
        "BadRequest",
        "",
    );
}
