//! How real clients speak: kubectl, the Python client, kube-rs, curl; and how much they may say.

use serde_json::json;

use super::cases;
use crate::fixtures::{JOBS, WIDGETS, config_map, training_job, widget};
use crate::sandbox::{Sandbox, With};

cases! { "clients":
    "kubectl's Accept header for tables" => kubectl_table,
    "kubectl's Accept header for discovery" => kubectl_discovery,
    "kubectl's client-side apply of a custom resource" => kubectl_apply,
    "kubectl's access review in protobuf" => kubectl_can_i,
    "OpenAPI in protobuf is protobuf, or refused" => openapi_protobuf,
    "Python's trailing slashes" => python_slashes,
    "Python's DeleteOptions without a kind" => python_delete,
    "Python's patch of a custom resource by a JSON patch" => python_json_patch,
    "kube-rs' Accept header for metadata" => kube_rs_metadata,
    "a body without a content type is JSON" => no_content_type,
    "a content type with a charset" => charset,
    "parameters that nobody knows are ignored" => unknown_parameters,
    "the answer to ?pretty=true is the same JSON" => pretty,
    "text of any language comes back as it was" => unicode,
    "large numbers come back as they were" => large_numbers,
    "fractions come back as they were" => fractions,
    "empty values come back as they were" => empty_values,
    "an object of a megabyte is kept" => one_megabyte,
    "a config map of more than a megabyte is refused" => more_than_a_megabyte,
    "a body of more than three megabytes is 413" => too_large_body,
    "annotations of more than 256 KiB are refused" => large_annotations,
    "a list of many objects in pages of 500" => many_pages,
    "escaped characters in a path" => escaped_path,
    "comments and dates in YAML" => yaml_details,
}

async fn kubectl_table(s: Sandbox) {
    s.post(JOBS, training_job("a")).await.is(201);
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    s.get_as(&format!("{JOBS}?limit=500"), accept)
        .await
        .is(200)
        .has(json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1"}));
    // Where there is no table, there is plain JSON.
    s.get_as("/api/v1", accept).await.is(200).has(json!({"kind": "APIResourceList"}));
    s.get_as(&format!("{JOBS}/nobody"), accept).await.refused(
        404,
        "NotFound",
        "trainingjobs.ml.example.com \"nobody\" not found",
    );
}

async fn kubectl_discovery(s: Sandbox) {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                  application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    s.get_as("/api", accept)
        .await
        .is(200)
        .has(json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}));
    s.get_as("/apis", accept)
        .await
        .is(200)
        .has(json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}));
}

async fn kubectl_apply(s: Sandbox) {
    let mut job = training_job("a");
    job["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}\n"});
    let query = "fieldManager=kubectl-client-side-apply&fieldValidation=Strict";
    s.post(&format!("{JOBS}?{query}"), job).await.is(201);
    let patch = json!({
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"x\":1}\n"}},
        "spec": {"numWorkers": 3},
    });
    let patched =
        s.merge(&format!("{JOBS}/a?{query}"), patch).await.is(200).has(json!({"spec": {"numWorkers": 3}}));
    assert_eq!(patched.managers(), ["kubectl-client-side-apply Update"]);
}

/// A protobuf field of bytes.
fn field(number: u8, content: &str) -> String {
    assert!(content.len() < 128, "the length is one byte here");
    format!(
        "{}{}{content}",
        char::from(number << 3 | 2),
        char::from(u8::try_from(content.len()).unwrap_or_default())
    )
}

async fn kubectl_can_i(s: Sandbox) {
    let attributes =
        field(1, "default") + &field(2, "create") + &field(3, "ml.example.com") + &field(5, "trainingjobs");
    let review = field(1, "") + &field(2, &field(1, &attributes));
    let type_meta = field(1, "authorization.k8s.io/v1") + &field(2, "SelfSubjectAccessReview");
    let body = format!("k8s\0{}{}", field(1, &type_meta), field(2, &review));
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let with = With::content("application/vnd.kubernetes.protobuf");
    s.ask(http::Method::POST, path, body, with).await.is(201).has(json!({
        "kind": "SelfSubjectAccessReview", "status": {"allowed": true},
        "spec": {"resourceAttributes": {"verb": "create", "group": "ml.example.com", "resource": "trainingjobs"}},
    }));
}

async fn openapi_protobuf(s: Sandbox) {
    let accept = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
    let answer = s.get_as("/openapi/v3/apis/coordination.k8s.io/v1", accept).await;
    let protobuf = answer.status() == 200 && answer.header("content-type").contains("protobuf");
    assert!(protobuf || answer.status() == 406, "{} {}", answer.status(), answer.header("content-type"));
}

async fn python_slashes(s: Sandbox) {
    s.get("/api/").await.is(200).has(json!({"kind": "APIVersions"}));
    s.get("/apis/").await.is(200).has(json!({"kind": "APIGroupList"}));
    s.get("/api/v1/").await.is(200).has(json!({"kind": "APIResourceList"}));
    s.get("/apis/ml.example.com/").await.is(200).has(json!({"kind": "APIGroup"}));
    s.get("/apis/ml.example.com/v1/").await.is(200).has(json!({"kind": "APIResourceList"}));
    s.get("/version/").await.is(200).has(json!({"major": "1"}));
}

async fn python_delete(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let body = |text: &str| {
        s.ask(http::Method::DELETE, "configmaps/a", text.to_owned(), With::content("application/json"))
    };
    body("{}").await.is(200);
    s.post("configmaps", config_map("a")).await.is(201);
    body("{\"propagationPolicy\": \"Background\", \"gracePeriodSeconds\": 0}").await.is(200);
    s.get("configmaps/a").await.is(404);
}

async fn python_json_patch(s: Sandbox) {
    s.post(JOBS, training_job("a")).await.is(201);
    let operations = json!([{"op": "replace", "path": "/spec/numWorkers", "value": 3}]);
    s.json_patch(&format!("{JOBS}/a"), operations).await.is(200).has(json!({"spec": {"numWorkers": 3}}));
}

async fn kube_rs_metadata(s: Sandbox) {
    s.post(JOBS, training_job("a")).await.is(201);
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    s.get_as(JOBS, accept).await.is(200).has(json!({"kind": "PartialObjectMetadataList"})).lists(&["a"]);
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    s.get_as(&format!("{JOBS}/a"), accept)
        .await
        .is(200)
        .has(json!({"kind": "PartialObjectMetadata", "spec": null}));
}

async fn no_content_type(s: Sandbox) {
    let body = config_map("a").to_string();
    s.ask(http::Method::POST, "configmaps", body, With::default()).await.is(201);
}

async fn charset(s: Sandbox) {
    s.post_text("configmaps", "application/json; charset=utf-8", &config_map("a").to_string()).await.is(201);
    s.post_text(WIDGETS, "application/json;charset=UTF-8", &widget("a", json!({})).to_string()).await.is(201);
}

async fn unknown_parameters(s: Sandbox) {
    s.post("configmaps?whatever=1", config_map("a")).await.is(201);
    s.get("configmaps/a?x=y").await.is(200);
    s.get("configmaps?whatever=1&includeUninitialized=true").await.is(200);
}

async fn pretty(s: Sandbox) {
    let made = s.post("configmaps?pretty=true", config_map("a")).await.is(201);
    assert_eq!(s.get("configmaps/a?pretty=true").await.is(200).body(), made.body());
}

async fn unicode(s: Sandbox) {
    let data = json!({"a": "Grüße, 世界 🚂 \u{202e}\u{0}", "b": "line\nline\ttab \"quoted\" \\ </script>", "c": "\u{2028}"});
    let mut object = config_map("a");
    object["data"] = data.clone();
    s.post("configmaps", object).await.is(201);
    assert_eq!(s.get("configmaps/a").await.is(200).body()["data"], data);
    let mut object = widget("a", json!({"free": data}));
    object["metadata"]["annotations"] = json!({"note": data["a"]});
    s.post(WIDGETS, object).await.is(201);
    let read = s.get(&format!("{WIDGETS}/a")).await.is(200);
    assert_eq!(read.body()["spec"]["free"], data);
    assert_eq!(read.body()["metadata"]["annotations"]["note"], data["a"]);
}

async fn large_numbers(s: Sandbox) {
    let free = json!({"max": i64::MAX, "min": i64::MIN, "big": 9_007_199_254_740_993_i64, "zero": 0});
    s.post(WIDGETS, widget("a", json!({"free": free}))).await.is(201);
    assert_eq!(s.get(&format!("{WIDGETS}/a")).await.is(200).body()["spec"]["free"], free);
    s.merge(&format!("{WIDGETS}/a"), json!({"spec": {"free": {"more": 1}}}))
        .await
        .is(200)
        .has(json!({"spec": {"free": free}}));
}

async fn fractions(s: Sandbox) {
    let free = json!({"tenth": 0.1, "small": 1e-7, "negative": -2.5, "learningRate": 3e-4});
    s.post(WIDGETS, widget("a", json!({"free": free}))).await.is(201);
    assert_eq!(s.get(&format!("{WIDGETS}/a")).await.is(200).body()["spec"]["free"], free);
}

async fn empty_values(s: Sandbox) {
    let free = json!({"list": [], "map": {}, "text": "", "nothing": null, "no": false, "inList": [null, {}, [], ""]});
    let made = s.post(WIDGETS, widget("a", json!({"free": free, "labels": {}, "tags": []}))).await.is(201);
    assert_eq!(made.body()["spec"]["free"], free);
    assert_eq!(made.body()["spec"]["labels"], json!({}));
    assert_eq!(made.body()["spec"]["tags"], json!([]));
    // Built-in kinds leave out what is empty.
    s.post("configmaps", json!({"metadata": {"name": "a", "labels": {}, "finalizers": []}, "data": {}}))
        .await
        .is(201)
        .lacks("/data")
        .lacks("/metadata/labels")
        .lacks("/metadata/finalizers");
}

async fn one_megabyte(s: Sandbox) {
    let mut object = config_map("a");
    object["data"]["a"] = "x".repeat(1_000_000).into();
    s.post("configmaps", object).await.is(201);
    assert_eq!(
        s.get("configmaps/a").await.is(200).body()["data"]["a"].as_str().map(str::len),
        Some(1_000_000)
    );
}

async fn more_than_a_megabyte(s: Sandbox) {
    let mut object = config_map("a");
    object["data"]["a"] = "x".repeat(1_048_577).into();
    s.post("configmaps", object).await.refused(
        422,
        "Invalid",
        "ConfigMap \"a\" is invalid: []: Too long: may not be more than 1048576 bytes",
    );
}

async fn too_large_body(s: Sandbox) {
    let body = widget("a", json!({"free": {"x": "x".repeat(3 * 1024 * 1024 + 1)}}));
    s.post(WIDGETS, body).await.refused(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    );
}

async fn large_annotations(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["annotations"] = json!({"a": "x".repeat(256 * 1024)});
    s.post("configmaps", object).await.refused(
        422,
        "Invalid",
        "ConfigMap \"a\" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes",
    );
}

async fn many_pages(s: Sandbox) {
    let secret = |number: usize| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s-{number:03}")}});
    for start in (0..600).step_by(20) {
        let made =
            futures::future::join_all((start..start + 20).map(|number| s.post("secrets", secret(number))))
                .await;
        for answer in made {
            answer.is(201);
        }
    }
    let first =
        s.get("secrets?limit=500").await.is(200).has(json!({"metadata": {"remainingItemCount": 100}}));
    let rest =
        s.get(&format!("secrets?limit=500&continue={}", first.present("/metadata/continue"))).await.is(200);
    let mut names = first.names();
    names.extend(rest.names());
    assert_eq!(names, (0..600).map(|number| format!("s-{number:03}")).collect::<Vec<_>>());
}

async fn escaped_path(s: Sandbox) {
    s.post("configmaps", config_map("a.b")).await.is(201);
    s.get("configmaps/a%2Eb").await.is(200).has(json!({"metadata": {"name": "a.b"}}));
}

async fn yaml_details(s: Sandbox) {
    let text = "# a comment\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  date: \"2020-01-01\"\n  text: |\n    one\n    two\n";
    let made = s.post_text("configmaps", "application/yaml", text).await.is(201);
    assert_eq!(made.body()["data"], json!({"date": "2020-01-01", "text": "one\ntwo\n"}));
}
