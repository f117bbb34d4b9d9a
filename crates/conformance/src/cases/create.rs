//! POST: what the server sets, keeps, drops and refuses.

use serde_json::json;

use super::cases;
use crate::fixtures::{WIDGETS, allow_pods, config_map, pod, widget};
use crate::sandbox::Sandbox;

cases! { "create":
    "the server sets uid, resourceVersion, creationTimestamp and namespace" => server_sets_metadata,
    "generateName becomes a name with five characters more" => generate_name,
    "a name wins over generateName" => name_wins,
    "a second object of the same name is AlreadyExists" => already_exists,
    "a namespace that does not exist is NotFound" => missing_namespace,
    "an object without a name is refused" => no_name,
    "the namespace in the body must be that of the path" => other_namespace,
    "a name that is not a DNS subdomain is refused" => bad_name,
    "every problem of the metadata is told at once" => several_problems,
    "a body that is not JSON is refused" => not_json,
    "an empty body is refused" => empty_body,
    "the kind of another resource is refused" => wrong_kind,
    "the apiVersion of another group is refused" => wrong_version,
    "kind and apiVersion may be left out for built-in kinds" => no_kind,
    "kind must be there for custom resources" => no_kind_custom,
    "resourceVersion must not be set" => version_on_create,
    "uid, creationTimestamp and generation of the body are replaced" => own_uid,
    "deletionTimestamp of the body is dropped" => own_deletion,
    "a spec makes generation 1, and a config map has none" => generation,
    "dry run answers as if, and keeps nothing" => dry_run,
    "dry run of a name that exists is AlreadyExists" => dry_run_exists,
    "dry run of generateName gives a name" => dry_run_generate_name,
    "a dry run that is not All is refused" => dry_run_value,
    "the status is dropped when there is a status subresource" => status_dropped,
    "a pod starts Pending whatever its status says" => pod_status_dropped,
    "strict field validation refuses unknown fields" => strict,
    "strict field validation refuses unknown fields of custom resources" => strict_custom,
    "strict field validation refuses duplicate fields" => strict_duplicates,
    "field validation warns by default, and drops the field" => warn,
    "field validation that is Ignore says nothing" => ignore,
    "a field validation that does not exist is refused" => field_validation_value,
    "YAML is taken as well as JSON" => yaml,
    "a content type that nobody knows is 415" => content_type,
    "managedFields name the manager of the query" => managed_by_query,
    "managedFields name the user agent without a manager" => managed_by_agent,
    "a field manager that is too long is refused" => long_manager,
    "a Location is not needed, and the answer is JSON" => answer_is_json,
    "POST to an object is not allowed" => post_to_object,
    "a resource that does not exist is 404" => unknown_resource,
    "finalizers and owner references are kept" => keeps_metadata,
    "an owner reference without uid is refused" => bad_owner,
    "labels must be valid" => bad_labels,
    "annotation keys must be valid" => bad_annotations,
    "finalizers must be qualified names" => bad_finalizer,
}

async fn server_sets_metadata(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    made.version();
    made.present("/metadata/creationTimestamp");
    assert_eq!(made.uid().len(), 36, "a uid is an UUID: {}", made.uid());
    let read = s.get("configmaps/a").await.is(200);
    assert_eq!(read.body(), made.body());
    read.has(json!({
        "kind": "ConfigMap", "apiVersion": "v1", "data": {"a": "1"},
        "metadata": {"name": "a", "namespace": s.namespace, "generateName": null, "deletionTimestamp": null},
    }));
}

async fn generate_name(s: Sandbox) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "some-"}});
    let first = s
        .post("configmaps", object.clone())
        .await
        .is(201)
        .has(json!({"metadata": {"generateName": "some-"}}));
    let second = s.post("configmaps", object).await.is(201);
    assert_ne!(first.name(), second.name());
    for name in [first.name(), second.name()] {
        assert!(name.starts_with("some-") && name.len() == 10, "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{name}");
        s.get(&format!("configmaps/{name}")).await.is(200);
    }
}

async fn name_wins(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["generateName"] = "some-".into();
    s.post("configmaps", object)
        .await
        .is(201)
        .has(json!({"metadata": {"name": "a", "generateName": "some-"}}));
}

async fn already_exists(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.post("configmaps", config_map("a"))
        .await
        .refused(409, "AlreadyExists", "configmaps \"a\" already exists")
        .has(json!({"details": {"name": "a", "kind": "configmaps", "group": null}}));
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.post(WIDGETS, widget("a", json!({})))
        .await
        .refused(409, "AlreadyExists", "widgets.conformance.example.com \"a\" already exists")
        .has(json!({"details": {"name": "a", "kind": "widgets", "group": "conformance.example.com"}}));
}

async fn missing_namespace(s: Sandbox) {
    s.post("/api/v1/namespaces/nowhere/configmaps", config_map("a"))
        .await
        .refused(404, "NotFound", "namespaces \"nowhere\" not found")
        .has(json!({"details": {"name": "nowhere", "kind": "namespaces"}}));
    s.post("/apis/conformance.example.com/v1/namespaces/nowhere/widgets", widget("a", json!({})))
        .await
        .refused(404, "NotFound", "namespaces \"nowhere\" not found");
}

async fn no_name(s: Sandbox) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    s.post("configmaps", object)
        .await
        .refused(
            422,
            "Invalid",
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        )
        .causes(&[(
            "FieldValueRequired",
            "metadata.name",
            "Required value: name or generateName is required",
        )]);
}

async fn other_namespace(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["namespace"] = "default".into();
    s.post("configmaps", object).await.refused(
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    );
}

async fn bad_name(s: Sandbox) {
    let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    s.post("configmaps", config_map("Not_A_Name"))
        .await
        .refused(
            422,
            "Invalid",
            &format!(
                "ConfigMap \"Not_A_Name\" is invalid: metadata.name: Invalid value: \"Not_A_Name\": {rule}"
            ),
        )
        .causes(&[("FieldValueInvalid", "metadata.name", &format!("Invalid value: \"Not_A_Name\": {rule}"))])
        .has(json!({"details": {"name": "Not_A_Name", "kind": "ConfigMap"}}));
    s.post(WIDGETS, widget("Not_A_Name", json!({}))).await.refused(
        422,
        "Invalid",
        &format!("Widget.conformance.example.com \"Not_A_Name\" is invalid: metadata.name: Invalid value: \"Not_A_Name\": {rule}"),
    );
}

async fn several_problems(s: Sandbox) {
    let mut object = config_map("Bad");
    object["metadata"]["labels"] = json!({"bad key": "x"});
    let answer = s.post("configmaps", object).await.is(422);
    let causes = answer.body()["details"]["causes"].as_array().cloned().unwrap_or_default();
    let fields: Vec<_> = causes.iter().map(|cause| cause["field"].clone()).collect();
    assert_eq!(fields, ["metadata.name", "metadata.labels"], "{}", answer.text());
    assert!(
        answer.at("/message").starts_with("ConfigMap \"Bad\" is invalid: [metadata.name: "),
        "{}",
        answer.text()
    );
}

async fn not_json(s: Sandbox) {
    s.post_text("configmaps", "application/json", "{\"kind\": ").await.refused_about(400, "BadRequest", "");
}

async fn empty_body(s: Sandbox) {
    s.post_text("configmaps", "application/json", "").await.refused_about(400, "BadRequest", "");
}

async fn wrong_kind(s: Sandbox) {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    let part = "Secret in version \"v1\" cannot be handled as a ConfigMap: ";
    s.post("configmaps", object).await.refused_about(400, "BadRequest", part);
}

async fn wrong_version(s: Sandbox) {
    let object = json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let part = "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\"";
    s.post("configmaps", object).await.refused_about(400, "BadRequest", part);
}

async fn no_kind(s: Sandbox) {
    s.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"b": "2"}}))
        .await
        .is(201)
        .has(json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"b": "2"}}));
}

async fn no_kind_custom(s: Sandbox) {
    let part = "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in ";
    s.post(WIDGETS, json!({"metadata": {"name": "a"}, "spec": {"size": 1}})).await.refused_about(
        400,
        "BadRequest",
        part,
    );
}

async fn version_on_create(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["resourceVersion"] = "12".into();
    let answer = s.post("configmaps", object).await;
    // A kube-apiserver takes the blame (500, without a reason), although the request is bad.
    assert!([400, 500].contains(&answer.status()), "{} {}", answer.status(), answer.text());
    assert_eq!(answer.at("/message"), "resourceVersion should not be set on objects to be created");
    assert_eq!(answer.at("/kind"), "Status");
}

async fn own_uid(s: Sandbox) {
    let mut object = widget("a", json!({}));
    object["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111".into();
    object["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    object["metadata"]["generation"] = 7.into();
    let made = s.post(WIDGETS, object).await.is(201).has(json!({"metadata": {"generation": 1}}));
    assert_ne!(made.uid(), "11111111-1111-1111-1111-111111111111");
    assert_ne!(made.at("/metadata/creationTimestamp"), "2001-01-01T00:00:00Z");
}

async fn own_deletion(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
    object["metadata"]["deletionGracePeriodSeconds"] = 5.into();
    s.post("configmaps", object)
        .await
        .is(201)
        .lacks("/metadata/deletionTimestamp")
        .lacks("/metadata/deletionGracePeriodSeconds");
}

async fn generation(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201).has(json!({"metadata": {"generation": 1}}));
    s.post("configmaps", config_map("a")).await.is(201).lacks("/metadata/generation");
    allow_pods(&s).await;
    s.post("pods", pod("a")).await.is(201).has(json!({"metadata": {"generation": 1}}));
}

async fn dry_run(s: Sandbox) {
    let answer =
        s.post("configmaps?dryRun=All", config_map("a")).await.is(201).lacks("/metadata/resourceVersion");
    answer.uid();
    answer.present("/metadata/creationTimestamp");
    s.get("configmaps/a").await.is(404);
    s.post("configmaps", config_map("a")).await.is(201);
}

async fn dry_run_exists(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.post("configmaps?dryRun=All", config_map("a")).await.refused(
        409,
        "AlreadyExists",
        "configmaps \"a\" already exists",
    );
}

async fn dry_run_generate_name(s: Sandbox) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "some-"}});
    let name = s.post("configmaps?dryRun=All", object).await.is(201).name();
    assert!(name.starts_with("some-") && name.len() == 10, "{name}");
}

async fn dry_run_value(s: Sandbox) {
    s.post("configmaps?dryRun=Some", config_map("a")).await.refused(
        422,
        "Invalid",
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
    );
}

async fn status_dropped(s: Sandbox) {
    let mut object = widget("a", json!({}));
    object["status"] = json!({"phase": "Done"});
    s.post(WIDGETS, object).await.is(201).lacks("/status");
}

async fn pod_status_dropped(s: Sandbox) {
    allow_pods(&s).await;
    let mut object = pod("a");
    object["status"] = json!({"phase": "Running", "message": "so they say"});
    s.post("pods", object)
        .await
        .is(201)
        .has(json!({"status": {"phase": "Pending", "qosClass": "BestEffort", "message": null}}));
}

async fn strict(s: Sandbox) {
    let mut object = config_map("a");
    object["datum"] = json!({"a": "b"});
    object["metadata"]["label"] = json!({});
    s.post("configmaps?fieldValidation=Strict", object).await.refused(
        400,
        "BadRequest",
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"datum\", unknown field \"metadata.label\"",
    );
    s.get("configmaps/a").await.is(404);
}

async fn strict_custom(s: Sandbox) {
    let mut object = widget("a", json!({"shape": "round"}));
    object["metadata"]["label"] = json!({});
    s.post(&format!("{WIDGETS}?fieldValidation=Strict"), object).await.refused(
        400,
        "BadRequest",
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"metadata.label\", unknown field \"spec.shape\"",
    );
}

async fn strict_duplicates(s: Sandbox) {
    let text = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1","a":"2"}}"#;
    s.post_text("configmaps?fieldValidation=Strict", "application/json", text).await.refused(
        400,
        "BadRequest",
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \"data.a\"",
    );
}

async fn warn(s: Sandbox) {
    let mut object = config_map("a");
    object["datum"] = "b".into();
    let answer = s.post("configmaps?fieldValidation=Warn", object.clone()).await.is(201).lacks("/datum");
    assert_eq!(answer.warnings(), ["299 - \"unknown field \\\"datum\\\"\""]);
    object["metadata"]["name"] = "b".into();
    let answer = s.post("configmaps", object).await.is(201).lacks("/datum");
    assert_eq!(answer.warnings(), ["299 - \"unknown field \\\"datum\\\"\""]);
    let answer = s.post(WIDGETS, widget("a", json!({"shape": "round"}))).await.is(201).lacks("/spec/shape");
    assert_eq!(answer.warnings(), ["299 - \"unknown field \\\"spec.shape\\\"\""]);
}

async fn ignore(s: Sandbox) {
    let mut object = config_map("a");
    object["datum"] = "b".into();
    let answer = s.post("configmaps?fieldValidation=Ignore", object).await.is(201).lacks("/datum");
    assert!(answer.warnings().is_empty(), "{:?}", answer.warnings());
    let answer =
        s.post(&format!("{WIDGETS}?fieldValidation=Ignore"), widget("a", json!({"shape": 1}))).await.is(201);
    assert!(answer.lacks("/spec/shape").warnings().is_empty());
}

async fn field_validation_value(s: Sandbox) {
    s.post("configmaps?fieldValidation=Maybe", config_map("a")).await.refused(
        422,
        "Invalid",
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Maybe\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
    );
}

async fn yaml(s: Sandbox) {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: \"y\"\n";
    s.post_text("configmaps", "application/yaml", text).await.is(201).has(json!({"data": {"x": "y"}}));
    let text =
        "apiVersion: conformance.example.com/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  size: 3\n";
    s.post_text(WIDGETS, "application/yaml", text).await.is(201).has(json!({"spec": {"size": 3}}));
}

async fn content_type(s: Sandbox) {
    s.post_text("configmaps", "text/plain", "hello").await.refused_about(415, "UnsupportedMediaType", "");
}

async fn managed_by_query(s: Sandbox) {
    s.post("configmaps?fieldManager=me", config_map("a")).await.is(201).has(json!({"metadata": {"managedFields": [{
        "manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "subresource": null,
        "fieldsV1": {"f:data": {".": {}, "f:a": {}}},
    }]}}));
}

async fn managed_by_agent(s: Sandbox) {
    s.post("configmaps", config_map("a"))
        .await
        .is(201)
        .has(json!({"metadata": {"managedFields": [{"manager": "conformance"}]}}));
}

async fn long_manager(s: Sandbox) {
    let manager = "m".repeat(129);
    s.post(&format!("configmaps?fieldManager={manager}"), config_map("a")).await.refused(
        422,
        "Invalid",
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes",
    );
}

async fn answer_is_json(s: Sandbox) {
    let answer = s.post("configmaps", config_map("a")).await.is(201);
    assert_eq!(answer.header("content-type"), "application/json");
}

async fn post_to_object(s: Sandbox) {
    s.post("configmaps/a", config_map("a")).await.refused(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
}

async fn unknown_resource(s: Sandbox) {
    let answer = s.post("gizmos", json!({})).await.is(404);
    assert!(
        answer.text().starts_with("404 page not found") || answer.at("/reason") == "NotFound",
        "{}",
        answer.text()
    );
    let answer = s.get("conformance.example.com/v1/gizmos").await.is(404);
    assert!(
        answer.text().starts_with("404 page not found") || answer.at("/reason") == "NotFound",
        "{}",
        answer.text()
    );
}

async fn keeps_metadata(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["labels"] = json!({"app": "x", "example.com/y": "z"});
    object["metadata"]["annotations"] = json!({"example.com/note": "any text, of any kind: {}"});
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "b",
        "uid": "11111111-1111-1111-1111-111111111111", "controller": true, "blockOwnerDeletion": true,
    }]);
    let metadata = object["metadata"].clone();
    s.post("configmaps?dryRun=All", object).await.is(201).has(json!({"metadata": metadata}));
}

async fn bad_owner(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": ""}]);
    s.post("configmaps", object).await.refused(
        422,
        "Invalid",
        "ConfigMap \"a\" is invalid: metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
    );
}

async fn bad_labels(s: Sandbox) {
    let object = crate::fixtures::labelled("a", json!({"app": "not ok"}));
    s.post("configmaps", object).await.refused(422, "Invalid", "ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"not ok\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')");
}

async fn bad_annotations(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["annotations"] = json!({"a/b/c": "x"});
    s.post("configmaps", object).await.refused(422, "Invalid", "ConfigMap \"a\" is invalid: metadata.annotations: Invalid value: \"a/b/c\": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')");
}

async fn bad_finalizer(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["hold"]);
    s.post("configmaps", object).await.refused(422, "Invalid", "ConfigMap \"a\" is invalid: metadata.finalizers[0]: Invalid value: \"hold\": name is neither a standard finalizer name nor is it fully qualified");
}
