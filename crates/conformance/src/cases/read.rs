//! GET of objects and of collections: selectors, pages, versions, and other forms of the same data.

use http::Method;
use serde_json::json;

use super::cases;
use crate::fixtures::{WIDGETS, allow_pods, config_map, labelled, pod, widget};
use crate::sandbox::{Sandbox, With};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

cases! { "read":
    "an object that is not there is NotFound" => not_found,
    "a list has the kind of its items, and items have none" => list_kind,
    "a list of custom resources names the kind of every item" => custom_list_kind,
    "an empty list has an empty array" => empty_list,
    "a list is in the order of the names" => order,
    "all namespaces are listed together" => all_namespaces,
    "a namespace that does not exist has an empty list" => list_of_missing_namespace,
    "label selectors: equality" => labels_equal,
    "label selectors: sets" => labels_in,
    "label selectors: existence" => labels_exist,
    "label selectors: numbers" => labels_greater,
    "a label selector that cannot be parsed is refused" => labels_bad,
    "field selectors on name and namespace" => fields_metadata,
    "field selectors on what a pod tells" => fields_pod,
    "field selectors on the selectable fields of a custom resource" => fields_custom,
    "a field selector that the kind does not know is refused" => fields_unknown,
    "a field selector that cannot be parsed is refused" => fields_bad,
    "limit gives pages, and says how many remain" => pages,
    "pages show the collection as it was when the first was read" => pages_are_consistent,
    "pages with a selector do not say how many remain" => pages_with_selector,
    "a limit as large as the collection gives all of it" => large_limit,
    "a continue token that is garbage is refused" => bad_continue,
    "a continue token with a resourceVersion is refused" => continue_with_version,
    "a negative limit is refused or ignored, never an empty page" => negative_limit,
    "resourceVersion=0 gives any version" => version_zero,
    "a list at least as new as a version" => not_older_than,
    "a list of exactly a version" => exact_version,
    "resourceVersionMatch without resourceVersion is refused" => match_without_version,
    "resourceVersionMatch Exact of 0 is refused" => exact_zero,
    "a resourceVersionMatch that does not exist is refused" => unknown_match,
    "a resourceVersion that is not a number is refused" => bad_version,
    "an object at least as new as a version" => get_not_older_than,
    "a Table has the columns of the kind" => table,
    "a Table of custom resources has its printer columns" => table_custom,
    "a Table of one object" => table_one,
    "a Table with whole objects, or with none" => table_include_object,
    "includeObject that does not exist is refused" => table_include_object_bad,
    "a Table of pods has the columns that kubectl shows" => table_pods,
    "only the metadata of an object" => partial,
    "only the metadata of a list" => partial_list,
    "only the metadata of what was written" => partial_writes,
    "an answer as YAML, or none" => as_yaml,
    "an Accept that nobody can satisfy is 406" => not_acceptable,
    "any Accept is JSON" => accept_any,
    "a subresource that does not exist is 404" => unknown_subresource,
    "secrets come back as base64, with stringData merged" => secrets,
}

async fn not_found(s: Sandbox) {
    s.get("configmaps/a")
        .await
        .refused(404, "NotFound", "configmaps \"a\" not found")
        .has(json!({"details": {"name": "a", "kind": "configmaps", "group": null}}));
    s.get(&format!("{WIDGETS}/a"))
        .await
        .refused(404, "NotFound", "widgets.conformance.example.com \"a\" not found")
        .has(json!({"details": {"name": "a", "kind": "widgets", "group": "conformance.example.com"}}));
}

async fn list_kind(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let list = s.get("configmaps?fieldSelector=metadata.name=a").await.is(200);
    list.version();
    list.lists(&["a"]).has(json!({"kind": "ConfigMapList", "apiVersion": "v1"})).lacks("/items/0/kind");
}

async fn custom_list_kind(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.get(WIDGETS).await.is(200).lists(&["a"]).has(json!({
        "kind": "WidgetList", "apiVersion": "conformance.example.com/v1",
        "items": [{"kind": "Widget", "apiVersion": "conformance.example.com/v1"}],
    }));
}

async fn empty_list(s: Sandbox) {
    let list = s.get(WIDGETS).await.is(200);
    assert_eq!(list.body()["items"], json!([]), "{}", list.text());
    list.version();
    let list = s.get("secrets").await.is(200);
    assert_eq!(list.body()["items"], json!([]), "{}", list.text());
}

async fn order(s: Sandbox) {
    for name in ["b", "c", "a"] {
        s.post(WIDGETS, widget(name, json!({}))).await.is(201);
    }
    s.get(WIDGETS).await.is(200).lists(&["a", "b", "c"]);
}

async fn all_namespaces(s: Sandbox) {
    let other = s.other("-other").await;
    let label = json!({"case": s.namespace});
    s.post("configmaps", labelled("here", label.clone())).await.is(201);
    other.post("configmaps", labelled("there", label)).await.is(201);
    let list = s.get(&format!("/api/v1/configmaps?labelSelector=case={}", s.namespace)).await.is(200);
    let mut names = list.names();
    names.sort();
    assert_eq!(names, ["here", "there"], "{}", list.text());
    s.post(WIDGETS, widget(&s.namespace, json!({}))).await.is(201);
    other.post(WIDGETS, widget(&s.namespace, json!({}))).await.is(201);
    let path =
        format!("/apis/conformance.example.com/v1/widgets?fieldSelector=metadata.name={}", s.namespace);
    let list = s.get(&path).await.is(200);
    assert_eq!(list.names().len(), 2, "{}", list.text());
}

async fn list_of_missing_namespace(s: Sandbox) {
    s.get("/api/v1/namespaces/nowhere/configmaps").await.is(200).lists(&[]);
}

async fn three(s: &Sandbox) {
    s.post("configmaps", labelled("a", json!({"x": "1", "y": "p"}))).await.is(201);
    s.post("configmaps", labelled("b", json!({"x": "2"}))).await.is(201);
    s.post("configmaps", labelled("c", json!({"z": "3", "of": "suite"}))).await.is(201);
}

/// Only the case's own: a controller puts a config map into every namespace.
async fn select(s: &Sandbox, selector: &str) -> Vec<String> {
    let list = s.get(&format!("configmaps?labelSelector={selector}")).await.is(200);
    list.names().into_iter().filter(|name| name.len() == 1).collect()
}

async fn labels_equal(s: Sandbox) {
    three(&s).await;
    assert_eq!(select(&s, "x=1").await, ["a"]);
    assert_eq!(select(&s, "x==1,y=p").await, ["a"]);
    assert_eq!(select(&s, "x=1,y=q").await, [""; 0]);
    assert_eq!(select(&s, "x!=1").await, ["b", "c"]);
    assert_eq!(select(&s, "x%21=1,x").await, ["b"]);
}

async fn labels_in(s: Sandbox) {
    three(&s).await;
    assert_eq!(select(&s, "x in (1,2)").await, ["a", "b"]);
    assert_eq!(select(&s, "x in (1, 9),y notin (q)").await, ["a"]);
    assert_eq!(select(&s, "x notin (1)").await, ["b", "c"]);
}

async fn labels_exist(s: Sandbox) {
    three(&s).await;
    assert_eq!(select(&s, "x").await, ["a", "b"]);
    assert_eq!(select(&s, "!x").await, ["c"]);
    assert_eq!(select(&s, "").await, ["a", "b", "c"]);
}

async fn labels_greater(s: Sandbox) {
    three(&s).await;
    assert_eq!(select(&s, "x>1").await, ["b"]);
    assert_eq!(select(&s, "x<2").await, ["a"]);
}

async fn labels_bad(s: Sandbox) {
    s.get("configmaps?labelSelector=x in (").await.refused(
        400,
        "BadRequest",
        "unable to parse requirement: found '', expected: ',', ')' or identifier",
    );
    s.get("configmaps?labelSelector=a=b c").await.refused(
        400,
        "BadRequest",
        "found 'c', expected: ',' or 'end of string'",
    );
    s.get(&format!("{WIDGETS}?labelSelector==x")).await.refused_about(
        400,
        "BadRequest",
        "found '=', expected: !, identifier, or 'end of string'",
    );
}

async fn fields_metadata(s: Sandbox) {
    three(&s).await;
    s.get("configmaps?fieldSelector=metadata.name=b").await.is(200).lists(&["b"]);
    s.get("configmaps?fieldSelector=metadata.name!=b,metadata.name!=kube-root-ca.crt")
        .await
        .is(200)
        .lists(&["a", "c"]);
    let both = format!("/api/v1/configmaps?fieldSelector=metadata.name=b,metadata.namespace={}", s.namespace);
    s.get(&both).await.is(200).lists(&["b"]);
    s.get("configmaps?fieldSelector=metadata.name=b&labelSelector=x=1").await.is(200).lists(&[]);
}

async fn fields_pod(s: Sandbox) {
    allow_pods(&s).await;
    s.post("pods", pod("a")).await.is(201);
    let mut other = pod("b");
    other["spec"]["nodeName"] = "some-node".into();
    other["spec"]["restartPolicy"] = "Never".into();
    s.post("pods", other).await.is(201);
    s.get("pods?fieldSelector=spec.nodeName=some-node").await.is(200).lists(&["b"]);
    s.get("pods?fieldSelector=spec.nodeName=").await.is(200).lists(&["a"]);
    s.get("pods?fieldSelector=status.phase=Pending,spec.restartPolicy=Always").await.is(200).lists(&["a"]);
    s.get("pods?fieldSelector=status.phase!=Pending").await.is(200).lists(&[]);
}

async fn fields_custom(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.post(WIDGETS, widget("b", json!({"color": "blue"}))).await.is(201);
    s.get(&format!("{WIDGETS}?fieldSelector=spec.color=blue")).await.is(200).lists(&["b"]);
    s.get(&format!("{WIDGETS}?fieldSelector=spec.color=red")).await.is(200).lists(&["a"]);
}

async fn fields_unknown(s: Sandbox) {
    s.get("configmaps?fieldSelector=data.a=1").await.refused(
        400,
        "BadRequest",
        "\"data.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
    );
    s.get(&format!("{WIDGETS}?fieldSelector=spec.size=1")).await.refused(
        400,
        "BadRequest",
        "field label not supported: spec.size",
    );
    s.get("pods?fieldSelector=spec.volumes=1").await.refused(
        400,
        "BadRequest",
        "field label not supported: spec.volumes",
    );
}

async fn fields_bad(s: Sandbox) {
    s.get("configmaps?fieldSelector=metadata.name").await.refused(
        400,
        "BadRequest",
        "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
    );
}

async fn five(s: &Sandbox) {
    for name in ["a", "b", "c", "d", "e"] {
        s.post(WIDGETS, widget(name, json!({}))).await.is(201);
    }
}

async fn pages(s: Sandbox) {
    five(&s).await;
    let first = s.get(&format!("{WIDGETS}?limit=2")).await.is(200).lists(&["a", "b"]);
    let next = first.present("/metadata/continue");
    let first = first.has(json!({"metadata": {"remainingItemCount": 3}}));
    let second = s.get(&format!("{WIDGETS}?limit=2&continue={next}")).await.is(200).lists(&["c", "d"]);
    let next = second.present("/metadata/continue");
    let second = second.has(json!({"metadata": {"remainingItemCount": 1}}));
    let third = s.get(&format!("{WIDGETS}?limit=2&continue={next}")).await.is(200).lists(&["e"]);
    assert_eq!(first.version(), second.version());
    assert_eq!(first.version(), third.version());
    assert_eq!(third.at("/metadata/continue"), "");
    third.lacks("/metadata/remainingItemCount");
}

async fn pages_are_consistent(s: Sandbox) {
    five(&s).await;
    let first = s.get(&format!("{WIDGETS}?limit=2")).await.is(200);
    let next = first.present("/metadata/continue");
    s.delete(&format!("{WIDGETS}/d")).await.is(200);
    s.post(WIDGETS, widget("cc", json!({}))).await.is(201);
    s.merge(&format!("{WIDGETS}/c"), json!({"spec": {"size": 9}})).await.is(200);
    let rest = s.get(&format!("{WIDGETS}?limit=5&continue={next}")).await.is(200).lists(&["c", "d", "e"]);
    assert_eq!(rest.version(), first.version());
    rest.has(json!({"items": [{"spec": {"size": 1}}, {}, {}]}));
}

async fn pages_with_selector(s: Sandbox) {
    for name in ["a", "b", "c"] {
        s.post("configmaps", labelled(name, json!({"x": "1"}))).await.is(201);
    }
    let first = s
        .get("configmaps?labelSelector=x=1&limit=2")
        .await
        .is(200)
        .lists(&["a", "b"])
        .lacks("/metadata/remainingItemCount");
    let next = first.present("/metadata/continue");
    s.get(&format!("configmaps?labelSelector=x=1&limit=2&continue={next}")).await.is(200).lists(&["c"]);
}

async fn large_limit(s: Sandbox) {
    five(&s).await;
    let all = s.get(&format!("{WIDGETS}?limit=5")).await.is(200).lists(&["a", "b", "c", "d", "e"]);
    assert_eq!(all.at("/metadata/continue"), "");
    let all = s.get(&format!("{WIDGETS}?limit=0")).await.is(200);
    assert_eq!(all.names().len(), 5);
}

async fn bad_continue(s: Sandbox) {
    five(&s).await;
    let part = "invalid continue token: continue key is not valid: ";
    s.get(&format!("{WIDGETS}?limit=2&continue=garbage")).await.refused_about(400, "BadRequest", part);
    s.get("configmaps?limit=2&continue=%25%25").await.refused_about(
        400,
        "BadRequest",
        "continue key is not valid: ",
    );
}

async fn continue_with_version(s: Sandbox) {
    five(&s).await;
    let first = s.get(&format!("{WIDGETS}?limit=2")).await.is(200);
    let (next, version) = (first.present("/metadata/continue"), first.version());
    s.get(&format!("{WIDGETS}?limit=2&continue={next}&resourceVersion={version}")).await.refused(
        400,
        "BadRequest",
        "specifying resource version is not allowed when using continue",
    );
}

async fn negative_limit(s: Sandbox) {
    five(&s).await;
    let answer = s.get(&format!("{WIDGETS}?limit=-1")).await;
    assert!(
        answer.status() == 400 || answer.status() == 422 || answer.names().len() == 5,
        "{}",
        answer.text()
    );
}

async fn version_zero(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    // Any version is allowed, so the object need not be in it; but it must be a list.
    let list =
        s.get(&format!("{WIDGETS}?resourceVersion=0")).await.is(200).has(json!({"kind": "WidgetList"}));
    list.version();
    let list = s.get(&format!("{WIDGETS}?resourceVersion=0&resourceVersionMatch=NotOlderThan")).await.is(200);
    list.version();
}

async fn not_older_than(s: Sandbox) {
    let version = s.post(WIDGETS, widget("a", json!({}))).await.is(201).version();
    s.get(&format!("{WIDGETS}?resourceVersion={version}")).await.is(200).lists(&["a"]);
    s.get(&format!("{WIDGETS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan"))
        .await
        .is(200)
        .lists(&["a"]);
}

async fn exact_version(s: Sandbox) {
    let first = s.post(WIDGETS, widget("a", json!({}))).await.is(201).version();
    s.post(WIDGETS, widget("b", json!({}))).await.is(201);
    let path = format!("{WIDGETS}?resourceVersion={first}&resourceVersionMatch=Exact");
    let list = s.get(&path).await.is(200).lists(&["a"]);
    assert_eq!(list.version(), first);
}

async fn match_without_version(s: Sandbox) {
    s.get("configmaps?resourceVersionMatch=Exact").await.refused(422, "Invalid", "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided");
}

async fn exact_zero(s: Sandbox) {
    s.get("configmaps?resourceVersion=0&resourceVersionMatch=Exact").await.refused(422, "Invalid", "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
}

async fn unknown_match(s: Sandbox) {
    s.get("configmaps?resourceVersion=1&resourceVersionMatch=Some").await.refused(422, "Invalid", "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Unsupported value: \"Some\": supported values: \"Exact\", \"NotOlderThan\", \"\"");
}

async fn bad_version(s: Sandbox) {
    let part = "invalid resource version: resourceVersion: Invalid value: \"abc\": ";
    s.get("configmaps?resourceVersion=abc").await.refused_about(400, "BadRequest", part);
}

async fn get_not_older_than(s: Sandbox) {
    let version = s.post("configmaps", config_map("a")).await.is(201).version();
    s.get(&format!("configmaps/a?resourceVersion={version}")).await.is(200).has(json!({"data": {"a": "1"}}));
}

async fn table(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let table = s.get_as("configmaps?fieldSelector=metadata.name=a", TABLE).await.is(200);
    let table = table.has(json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "priority": 0},
            {"name": "Data", "type": "string", "priority": 0},
            {"name": "Age", "type": "string", "priority": 0},
        ],
        "rows": [{
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}},
        }],
    }));
    table.version();
    let cells = table.body()["rows"][0]["cells"].as_array().cloned().unwrap_or_default();
    assert_eq!((cells.len(), &cells[0], &cells[1]), (3, &json!("a"), &json!(1)), "{}", table.text());
    assert!(table.body()["rows"][0]["object"].get("data").is_none());
}

async fn table_custom(s: Sandbox) {
    let mut object = widget("a", json!({"labels": {"note": "hi"}, "size": 4}));
    object["metadata"]["labels"] = json!({"x": "1"});
    s.post(WIDGETS, object).await.is(201);
    s.merge(
        &format!("{WIDGETS}/a/status"),
        json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    )
    .await
    .is(200);
    let table = s.get_as(WIDGETS, TABLE).await.is(200).has(json!({
        "kind": "Table",
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "priority": 0},
            {"name": "Size", "type": "integer", "priority": 0, "description": "How big it is"},
            {"name": "Color", "type": "string", "priority": 0},
            {"name": "Ready", "type": "string", "priority": 0},
            {"name": "Note", "type": "string", "priority": 1},
            {"name": "Age", "type": "date", "priority": 0},
        ],
    }));
    let cells = table.body()["rows"][0]["cells"].as_array().cloned().unwrap_or_default();
    assert_eq!(cells[..5], [json!("a"), json!(4), json!("red"), json!("True"), json!("hi")]);
    assert!(cells[5].as_str().is_some_and(|age| age.ends_with('s')), "{}", table.text());
}

async fn table_one(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let table =
        s.get_as(&format!("{WIDGETS}/a"), TABLE).await.is(200).has(json!({"kind": "Table", "rows": [{}]}));
    assert_eq!(table.body()["rows"][0]["cells"][0], "a");
    // What is not there is null, not an empty text.
    assert_eq!(table.body()["rows"][0]["cells"][4], serde_json::Value::Null, "{}", table.text());
}

async fn table_include_object(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let whole = s.get_as(&format!("{WIDGETS}?includeObject=Object"), TABLE).await.is(200);
    whole.has(json!({"rows": [{"object": {"kind": "Widget", "spec": {"size": 1}}}]}));
    let none =
        s.get_as(&format!("{WIDGETS}?includeObject=None"), TABLE).await.is(200).has(json!({"rows": [{}]}));
    assert_eq!(none.body()["rows"][0]["object"], serde_json::Value::Null, "{}", none.text());
    let metadata = s.get_as(&format!("{WIDGETS}?includeObject=Metadata"), TABLE).await.is(200);
    metadata.has(json!({"rows": [{"object": {"kind": "PartialObjectMetadata", "spec": null}}]}));
}

async fn table_include_object_bad(s: Sandbox) {
    s.get_as("configmaps?includeObject=Some", TABLE).await.refused(400, "BadRequest", "Unable to convert to Table as requested: includeObject: Invalid value: \"Some\": must be 'Metadata', 'Object', 'None', or empty");
}

async fn table_pods(s: Sandbox) {
    allow_pods(&s).await;
    s.post("pods", pod("a")).await.is(201);
    let table = s.get_as("pods", TABLE).await.is(200);
    let columns = table.body()["columnDefinitions"].as_array().cloned().unwrap_or_default();
    let columns: Vec<_> = columns
        .iter()
        .map(|c| (c["name"].as_str().unwrap_or_default(), c["priority"].as_i64().unwrap_or_default()))
        .collect();
    let expected = [
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ];
    assert_eq!(columns, expected);
    let cells = table.body()["rows"][0]["cells"].as_array().cloned().unwrap_or_default();
    assert_eq!(cells[..4], [json!("a"), json!("0/1"), json!("Pending"), json!("0")], "{}", table.text());
    assert_eq!(
        cells[5..],
        [json!("<none>"), json!("<none>"), json!("<none>"), json!("<none>")],
        "{}",
        table.text()
    );
}

async fn partial(s: Sandbox) {
    s.post("configmaps", labelled("a", json!({"x": "1"}))).await.is(201);
    s.get_as("configmaps/a", METADATA)
        .await
        .is(200)
        .has(json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a", "labels": {"x": "1"}}}))
        .lacks("/data");
}

async fn partial_writes(s: Sandbox) {
    let partial =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}});
    let json = With::content("application/json").accepting(METADATA);
    let merge = With::content("application/merge-patch+json").accepting(METADATA);
    for (kind, object) in [("configmaps", config_map("a")), (WIDGETS, widget("a", json!({})))] {
        let one = format!("{kind}/a");
        let made = s.ask(Method::POST, kind, object.to_string(), json.clone()).await.is(201);
        let made = made.has(partial.clone()).lacks("/data").lacks("/spec");
        let labels = json!({"metadata": {"labels": {"x": "1"}}}).to_string();
        let changed = s.ask(Method::PATCH, &one, labels, merge.clone()).await.is(200);
        let changed = changed.has(partial.clone()).lacks("/data").lacks("/spec");
        assert_ne!(made.version(), changed.version(), "{}", changed.text());
        let again = s.ask(Method::PATCH, &one, "{}".to_owned(), merge.clone()).await.is(200);
        assert_eq!(again.version(), changed.version(), "{}", again.text());
        // What went at once is a Status, which has no other form.
        let gone = s.ask(Method::DELETE, &one, String::new(), With::default().accepting(METADATA)).await;
        gone.is(200).has(json!({"kind": "Status", "status": "Success"}));
        // So is a refusal.
        s.ask(Method::PATCH, &one, "{}".to_owned(), merge.clone())
            .await
            .is(404)
            .has(json!({"kind": "Status"}));
    }
}

async fn partial_list(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let list = s.get_as(WIDGETS, METADATA_LIST).await.is(200);
    list.version();
    list.lists(&["a"])
        .has(json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}))
        .lacks("/items/0/spec");
}

async fn as_yaml(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let answer = s.get_as("configmaps/a", "application/yaml").await;
    // Nobody has to speak YAML, but nobody may send JSON under that name.
    if answer.status() == 406 {
        answer.refused_about(406, "NotAcceptable", "application/json");
        return;
    }
    let answer = answer.is(200);
    assert_eq!(answer.header("content-type"), "application/yaml");
    assert!(answer.text().contains("kind: ConfigMap\n"), "{}", answer.text());
}

async fn not_acceptable(s: Sandbox) {
    // The message tells what there is.
    s.get_as("configmaps", "text/plain").await.refused_about(406, "NotAcceptable", "application/json");
}

async fn accept_any(s: Sandbox) {
    assert_eq!(s.get_as("configmaps", "*/*").await.is(200).header("content-type"), "application/json");
    let both = "application/vnd.example.unknown, application/json";
    assert_eq!(s.get_as(WIDGETS, both).await.is(200).header("content-type"), "application/json");
}

async fn unknown_subresource(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    s.get("configmaps/a/status").await.is(404);
    s.get(&format!("{WIDGETS}/a/nothing")).await.is(404);
}

async fn secrets(s: Sandbox) {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
        "data": {"a": "b2xk", "c": "Yw=="}, "stringData": {"a": "new"},
    });
    s.post("secrets", object)
        .await
        .is(201)
        .has(json!({"data": {"a": "bmV3", "c": "Yw=="}, "type": "Opaque"}))
        .lacks("/stringData");
}
