//! What the server says about itself: versions, groups, resources, schemas.

use serde_json::{Value, json};

use super::cases;
use crate::sandbox::Sandbox;

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

cases! { "discovery":
    "/version tells the version" => version,
    "/api tells the versions of the core group" => api,
    "/apis tells the groups, with the preferred version" => apis,
    "/apis/{group} tells one group" => one_group,
    "/api/v1 tells the core resources" => core_resources,
    "/apis/{group}/{version} tells custom resources and their subresources" => custom_resources,
    "both versions of a TrainingJob are told, v1 preferred" => job_versions,
    "a group that does not exist is 404" => unknown_group,
    "aggregated discovery of /api" => aggregated_api,
    "aggregated discovery of /apis" => aggregated_apis,
    "aggregated discovery of custom resources" => aggregated_custom,
    "health: /healthz, /livez and /readyz are ok" => health,
    "/openapi/v3 lists a path for every group version" => openapi_paths,
    "/openapi/v3 of a custom group has the schema with its descriptions" => openapi_job,
    "/openapi/v3 of a custom group has the paths of its resources" => openapi_job_paths,
    "/openapi/v3 of the core group has pods and config maps" => openapi_core,
    "/openapi/v3 has the types of metadata" => openapi_metadata,
    "a path that does not exist is 404" => unknown_path,
}

async fn version(s: Sandbox) {
    let answer = s.get("/version").await.is(200).has(json!({"major": "1"}));
    assert!(answer.at("/gitVersion").starts_with("v1."), "{}", answer.text());
    for key in ["/minor", "/platform", "/gitCommit", "/goVersion", "/compiler", "/buildDate", "/gitTreeState"]
    {
        assert!(answer.body().pointer(key).is_some(), "{key}: {}", answer.text());
    }
}

async fn api(s: Sandbox) {
    s.get("/api").await.is(200).has(json!({"kind": "APIVersions", "versions": ["v1"]}));
}

async fn apis(s: Sandbox) {
    let answer = s.get("/apis").await.is(200).has(json!({"kind": "APIGroupList", "apiVersion": "v1"}));
    let groups = answer.body()["groups"].as_array().cloned().unwrap_or_default();
    for (name, preferred) in [
        ("coordination.k8s.io", "v1"),
        ("events.k8s.io", "v1"),
        ("apiextensions.k8s.io", "v1"),
        ("authorization.k8s.io", "v1"),
        ("conformance.example.com", "v1"),
        ("ml.example.com", "v1"),
    ] {
        let group = groups.iter().find(|group| group["name"] == name).cloned().unwrap_or_default();
        assert_eq!(group["preferredVersion"]["version"], preferred, "{name}: {group}");
        assert_eq!(
            group["preferredVersion"]["groupVersion"],
            format!("{name}/{preferred}"),
            "{name}: {group}"
        );
    }
}

async fn one_group(s: Sandbox) {
    s.get("/apis/ml.example.com").await.is(200).has(json!({
        "kind": "APIGroup", "name": "ml.example.com",
        "versions": [
            {"groupVersion": "ml.example.com/v1", "version": "v1"},
            {"groupVersion": "ml.example.com/v1alpha1", "version": "v1alpha1"},
        ],
        "preferredVersion": {"version": "v1"},
    }));
}

fn resource(list: &Value, name: &str) -> Value {
    let resources = list["resources"].as_array().cloned().unwrap_or_default();
    resources.into_iter().find(|resource| resource["name"] == name).unwrap_or_default()
}

fn has_verbs(resource: &Value, verbs: &[&str]) {
    let found = resource["verbs"].as_array().cloned().unwrap_or_default();
    for verb in verbs {
        assert!(found.contains(&json!(verb)), "{verb} is missing: {resource}");
    }
}

const ALL_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

async fn core_resources(s: Sandbox) {
    let answer = s.get("/api/v1").await.is(200).has(json!({"kind": "APIResourceList", "groupVersion": "v1"}));
    for (name, kind, short, namespaced) in [
        ("pods", "Pod", Some("po"), true),
        ("services", "Service", Some("svc"), true),
        ("configmaps", "ConfigMap", Some("cm"), true),
        ("secrets", "Secret", None, true),
        ("events", "Event", Some("ev"), true),
        ("namespaces", "Namespace", Some("ns"), false),
        ("nodes", "Node", Some("no"), false),
        ("persistentvolumeclaims", "PersistentVolumeClaim", Some("pvc"), true),
        ("serviceaccounts", "ServiceAccount", Some("sa"), true),
    ] {
        let resource = resource(answer.body(), name);
        assert_eq!(resource["kind"], kind, "{name}: {resource}");
        assert_eq!(resource["namespaced"], namespaced, "{name}: {resource}");
        assert_eq!(resource["singularName"], kind.to_lowercase(), "{name}: {resource}");
        assert_eq!(
            resource["shortNames"].as_array().and_then(|names| names[0].as_str()),
            short,
            "{name}: {resource}"
        );
        has_verbs(&resource, &["create", "delete", "get", "list", "patch", "update", "watch"]);
    }
    has_verbs(&resource(answer.body(), "pods/status"), &["get", "patch", "update"]);
    has_verbs(&resource(answer.body(), "pods/log"), &["get"]);
    has_verbs(&resource(answer.body(), "pods/exec"), &["create", "get"]);
    assert_eq!(resource(answer.body(), "pods")["categories"], json!(["all"]));
}

async fn custom_resources(s: Sandbox) {
    let answer = s.get("/apis/conformance.example.com/v1").await.is(200);
    let answer = answer.has(json!({"kind": "APIResourceList", "groupVersion": "conformance.example.com/v1"}));
    let widgets = resource(answer.body(), "widgets");
    assert_eq!(widgets["kind"], "Widget");
    assert_eq!(widgets["singularName"], "widget");
    assert_eq!(widgets["shortNames"], json!(["wd"]));
    assert_eq!(widgets["categories"], json!(["gadgets"]));
    assert_eq!(widgets["namespaced"], true);
    has_verbs(&widgets, &ALL_VERBS);
    let status = resource(answer.body(), "widgets/status");
    assert_eq!(status["kind"], "Widget");
    has_verbs(&status, &["get", "patch", "update"]);
    let scale = resource(answer.body(), "widgets/scale");
    assert_eq!(
        (scale["group"].as_str(), scale["version"].as_str(), scale["kind"].as_str()),
        (Some("autoscaling"), Some("v1"), Some("Scale"))
    );
    has_verbs(&scale, &["get", "patch", "update"]);
}

async fn job_versions(s: Sandbox) {
    for version in ["v1", "v1alpha1"] {
        let answer = s.get(&format!("/apis/ml.example.com/{version}")).await.is(200);
        let jobs = resource(answer.body(), "trainingjobs");
        assert_eq!(jobs["shortNames"], json!(["tj", "trainingjob"]), "{}", answer.text());
        has_verbs(&jobs, &ALL_VERBS);
        has_verbs(&resource(answer.body(), "trainingjobs/scale"), &["get", "patch", "update"]);
    }
}

async fn unknown_group(s: Sandbox) {
    s.get("/apis/nothing.example.com").await.is(404);
    s.get("/apis/nothing.example.com/v1").await.is(404);
    s.get("/apis/ml.example.com/v9").await.is(404);
    s.get("/api/v9").await.is(404);
}

fn discovered(list: &Value, group: &str, version: &str, name: &str) -> Value {
    let groups = list["items"].as_array().cloned().unwrap_or_default();
    let found = groups.iter().find(|item| item["metadata"]["name"].as_str().unwrap_or_default() == group);
    let versions = found.and_then(|group| group["versions"].as_array()).cloned().unwrap_or_default();
    let found = versions.iter().find(|item| item["version"] == version);
    let resources = found.and_then(|version| version["resources"].as_array()).cloned().unwrap_or_default();
    resources.into_iter().find(|resource| resource["resource"] == name).unwrap_or_default()
}

async fn aggregated_api(s: Sandbox) {
    let answer = s
        .get_as("/api", AGGREGATED)
        .await
        .is(200)
        .has(json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}));
    assert_eq!(
        answer.header("content-type"),
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let pods = discovered(answer.body(), "", "v1", "pods");
    assert_eq!(pods["responseKind"]["kind"], "Pod", "{pods}");
    assert_eq!(pods["scope"], "Namespaced");
    assert_eq!(pods["singularResource"], "pod");
    assert_eq!(pods["shortNames"], json!(["po"]));
    has_verbs(&pods, &ALL_VERBS);
    let subresources = pods["subresources"].as_array().cloned().unwrap_or_default();
    let log = subresources
        .iter()
        .find(|subresource| subresource["subresource"] == "log")
        .cloned()
        .unwrap_or_default();
    has_verbs(&log, &["get"]);
    assert_eq!(discovered(answer.body(), "", "v1", "namespaces")["scope"], "Cluster");
}

async fn aggregated_apis(s: Sandbox) {
    let answer = s.get_as("/apis", AGGREGATED).await.is(200).has(json!({"kind": "APIGroupDiscoveryList"}));
    let leases = discovered(answer.body(), "coordination.k8s.io", "v1", "leases");
    assert_eq!(leases["responseKind"]["kind"], "Lease", "{leases}");
    let definitions = discovered(answer.body(), "apiextensions.k8s.io", "v1", "customresourcedefinitions");
    assert_eq!(definitions["scope"], "Cluster", "{definitions}");
}

async fn aggregated_custom(s: Sandbox) {
    let path = "/apis";
    let start = std::time::Instant::now();
    // Aggregation follows a definition after a moment.
    let list = loop {
        let answer = s.get_as(path, AGGREGATED).await.is(200);
        if !discovered(answer.body(), "conformance.example.com", "v1", "widgets").is_null() {
            break answer;
        }
        if start.elapsed() > crate::target::LIMIT {
            answer.fail("widgets in aggregated discovery");
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    let widgets = discovered(list.body(), "conformance.example.com", "v1", "widgets");
    assert_eq!(widgets["categories"], json!(["gadgets"]), "{widgets}");
    assert_eq!(
        widgets["responseKind"],
        json!({"group": "conformance.example.com", "version": "v1", "kind": "Widget"})
    );
    let subresources = widgets["subresources"].as_array().cloned().unwrap_or_default();
    let scale = subresources
        .iter()
        .find(|subresource| subresource["subresource"] == "scale")
        .cloned()
        .unwrap_or_default();
    assert_eq!(
        scale["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}),
        "{widgets}"
    );
    let groups = list.body()["items"].as_array().cloned().unwrap_or_default();
    let group = groups
        .iter()
        .find(|item| item["metadata"]["name"] == "conformance.example.com")
        .cloned()
        .unwrap_or_default();
    let versions: Vec<_> = group["versions"]
        .as_array()
        .cloned()
        .unwrap_or_default()
        .iter()
        .map(|v| v["version"].clone())
        .collect();
    assert_eq!(versions, ["v1", "v1beta1"]);
}

async fn health(s: Sandbox) {
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(s.get_as(path, "*/*").await.is(200).text(), "ok", "{path}");
    }
}

async fn openapi_paths(s: Sandbox) {
    let answer = s
        .until("/openapi/v3", "the custom group", |answer| {
            answer.body()["paths"]["apis/conformance.example.com/v1"].is_object()
        })
        .await;
    for path in [
        "api/v1",
        "apis/coordination.k8s.io/v1",
        "apis/apiextensions.k8s.io/v1",
        "apis/ml.example.com/v1",
        "apis/ml.example.com/v1alpha1",
    ] {
        let url = answer.body()["paths"][path]["serverRelativeURL"].as_str().unwrap_or_default();
        assert!(url.starts_with(&format!("/openapi/v3/{path}")), "{path}: {url}");
        s.get(url).await.is(200);
    }
}

async fn schemas(s: &Sandbox, path: &str) -> Value {
    let answer =
        s.until(path, "schemas", |answer| answer.body()["components"]["schemas"].is_object()).await.is(200);
    assert!(answer.at("/openapi").starts_with("3."), "{path}");
    answer.body()["components"]["schemas"].clone()
}

fn of_kind(schemas: &Value, group: &str, kind: &str) -> Value {
    let all = schemas.as_object().cloned().unwrap_or_default();
    let found = all.into_iter().find(|(_, schema)| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array().cloned().unwrap_or_default();
        kinds.iter().any(|gvk| gvk["group"] == group && gvk["kind"] == kind)
    });
    found.map(|(_, schema)| schema).unwrap_or_default()
}

async fn openapi_job(s: Sandbox) {
    for version in ["v1", "v1alpha1"] {
        let schemas = schemas(&s, &format!("/openapi/v3/apis/ml.example.com/{version}")).await;
        let job = of_kind(&schemas, "ml.example.com", "TrainingJob");
        assert_eq!(
            job["x-kubernetes-group-version-kind"],
            json!([{"group": "ml.example.com", "kind": "TrainingJob", "version": version}])
        );
        let spec = &job["properties"]["spec"];
        assert!(spec["description"].as_str().is_some_and(|text| text.starts_with("What to train")), "{spec}");
        let workers = &spec["properties"]["numWorkers"];
        assert_eq!(workers["type"], "integer");
        assert!(
            workers["description"].as_str().is_some_and(|text| text.starts_with("How many worker pods")),
            "{workers}"
        );
        for field in ["apiVersion", "kind", "metadata", "status"] {
            assert!(job["properties"][field].is_object(), "{field}");
        }
        assert!(!of_kind(&schemas, "ml.example.com", "TrainingJobList").is_null());
    }
}

async fn openapi_job_paths(s: Sandbox) {
    let answer = s
        .until("/openapi/v3/apis/ml.example.com/v1", "paths", |answer| answer.body()["paths"].is_object())
        .await;
    let one = &answer.body()["paths"]["/apis/ml.example.com/v1/namespaces/{namespace}/trainingjobs/{name}"];
    for (method, action) in [("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete")] {
        assert_eq!(one[method]["x-kubernetes-action"], action, "{method}: {one}");
        assert_eq!(one[method]["x-kubernetes-group-version-kind"]["kind"], "TrainingJob", "{method}");
    }
    let all = &answer.body()["paths"]["/apis/ml.example.com/v1/namespaces/{namespace}/trainingjobs"];
    assert_eq!(all["post"]["x-kubernetes-action"], "post");
    // kubectl asks whether the server can validate fields.
    let parameters = all["post"]["parameters"].as_array().cloned().unwrap_or_default();
    assert!(parameters.iter().any(|parameter| parameter["name"] == "fieldValidation"), "{all}");
    assert!(parameters.iter().any(|parameter| parameter["name"] == "dryRun"), "{all}");
}

async fn openapi_core(s: Sandbox) {
    let schemas = schemas(&s, "/openapi/v3/api/v1").await;
    let pod = of_kind(&schemas, "", "Pod");
    assert!(pod["description"].as_str().is_some_and(|text| !text.is_empty()), "{pod}");
    assert!(pod["properties"]["spec"].is_object(), "{pod}");
    assert!(of_kind(&schemas, "", "ConfigMap")["properties"]["data"].is_object());
}

async fn openapi_metadata(s: Sandbox) {
    let schemas = schemas(&s, "/openapi/v3/apis/ml.example.com/v1").await;
    let metadata = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"];
    assert!(metadata["properties"]["labels"].is_object(), "{metadata}");
}

async fn unknown_path(s: Sandbox) {
    s.get("/nothing").await.is(404);
    s.get("/openapi/v3/apis/nothing.example.com/v1").await.is(404);
}
