//! Watches: where they start, what they tell, and how they end.

use serde_json::json;

use super::cases;
use crate::HISTORY;
use crate::fixtures::{WIDGETS, allow_pods, config_map, install_definition, labelled, pod, widget};
use crate::sandbox::Sandbox;

cases! { "watch":
    "from a version, everything after it comes in order" => from_version,
    "from a version in the past, history is told first" => from_past,
    "from nothing, what exists comes first as ADDED" => from_nothing,
    "from 0, what exists comes first as ADDED" => from_zero,
    "an object of an event has its kind and its new resourceVersion" => whole_objects,
    "DELETED has the last state and the version of the deletion" => deleted,
    "with a label selector, only what matches is told" => label_selector,
    "an object that stops matching is DELETED, and ADDED when it matches again" => leaves_and_returns,
    "with a field selector, a name is watched alone" => one_name,
    "with a field selector on the phase of pods" => pod_phase,
    "all namespaces can be watched together" => all_namespaces,
    "only one's own namespace is told" => own_namespace,
    "timeoutSeconds ends the watch" => timeout,
    "sendInitialEvents ends the initial ones with an annotated bookmark" => initial_events,
    "sendInitialEvents=false starts without a list" => no_initial_events,
    "sendInitialEvents without resourceVersionMatch is refused" => initial_events_need_match,
    "sendInitialEvents without a watch is refused" => initial_events_need_watch,
    "a version that is too old is Expired" => too_old,
    "a version that is not a number is refused" => bad_version,
    "a status update is MODIFIED" => status_update,
    "a write that changes nothing is not told" => no_event,
    "a finalizer makes deletion MODIFIED first" => finalizer,
    "events as Tables, with the columns in the first" => tables,
    "events with metadata only" => metadata_only,
    "a watch of what does not exist is 404" => unknown_resource,
    "a watch of both versions of a custom resource speaks its own" => versions,
    "a watch with a limit is a watch" => with_limit,
    "many events in a row all come" => many,
}

async fn from_version(s: Sandbox) {
    let version = s.get(WIDGETS).await.is(200).version();
    let mut watch = s.watch(&format!("{WIDGETS}?resourceVersion={version}")).await;
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.merge(&format!("{WIDGETS}/a"), json!({"spec": {"size": 2}})).await.is(200);
    s.delete(&format!("{WIDGETS}/a")).await.is(200);
    watch.expect("ADDED", "a").await.has(json!({"spec": {"size": 1}}));
    watch.expect("MODIFIED", "a").await.has(json!({"spec": {"size": 2}}));
    watch.expect("DELETED", "a").await.has(json!({"spec": {"size": 2}}));
}

async fn from_past(s: Sandbox) {
    let version = s.get(WIDGETS).await.is(200).version();
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let middle = s.merge(&format!("{WIDGETS}/a"), json!({"spec": {"size": 2}})).await.is(200).version();
    s.delete(&format!("{WIDGETS}/a")).await.is(200);
    let mut watch = s.watch(&format!("{WIDGETS}?resourceVersion={version}")).await;
    watch.expect("ADDED", "a").await;
    watch.expect("MODIFIED", "a").await;
    watch.expect("DELETED", "a").await;
    let mut watch = s.watch(&format!("{WIDGETS}?resourceVersion={middle}")).await;
    watch.expect("DELETED", "a").await;
}

async fn from_nothing(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.post(WIDGETS, widget("b", json!({}))).await.is(201);
    let mut watch = s.watch(WIDGETS).await;
    let mut names: Vec<String> = Vec::new();
    for _ in 0..2 {
        let event = watch.next().await;
        assert_eq!(event.kind, "ADDED");
        names.push(event.object["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    }
    names.sort();
    assert_eq!(names, ["a", "b"]);
    s.post(WIDGETS, widget("c", json!({}))).await.is(201);
    watch.expect("ADDED", "c").await;
}

async fn from_zero(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut watch = s.watch(&format!("{WIDGETS}?resourceVersion=0")).await;
    watch.expect("ADDED", "a").await;
    s.delete(&format!("{WIDGETS}/a")).await.is(200);
    watch.expect("DELETED", "a").await;
}

async fn whole_objects(s: Sandbox) {
    let mut watch = s.watch("configmaps?fieldSelector=metadata.name=a").await;
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let event = watch.expect("ADDED", "a").await;
    assert_eq!(&event.object, made.body());
}

async fn deleted(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let mut watch = s
        .watch(&format!("configmaps?fieldSelector=metadata.name=a&resourceVersion={}", made.version()))
        .await;
    s.delete("configmaps/a").await.is(200);
    let event =
        watch.expect("DELETED", "a").await.has(json!({"data": {"a": "1"}, "metadata": {"uid": made.uid()}}));
    assert_ne!(event.version(), made.version());
    // That version is one to go on from.
    let mut next = s
        .watch(&format!("configmaps?resourceVersion={}&fieldSelector=metadata.name=b", event.version()))
        .await;
    s.post("configmaps", config_map("b")).await.is(201);
    next.expect("ADDED", "b").await;
}

async fn label_selector(s: Sandbox) {
    let version = s.get("configmaps").await.is(200).version();
    let mut watch = s.watch(&format!("configmaps?labelSelector=x=1&resourceVersion={version}")).await;
    s.post("configmaps", labelled("no", json!({"x": "2"}))).await.is(201);
    s.post("configmaps", labelled("yes", json!({"x": "1"}))).await.is(201);
    s.delete("configmaps/no").await.is(200);
    s.delete("configmaps/yes").await.is(200);
    watch.expect("ADDED", "yes").await;
    watch.expect("DELETED", "yes").await;
}

async fn leaves_and_returns(s: Sandbox) {
    let made = s.post("configmaps", labelled("a", json!({"x": "1"}))).await.is(201);
    let mut watch =
        s.watch(&format!("configmaps?labelSelector=x=1&resourceVersion={}", made.version())).await;
    let left = s.merge("configmaps/a", json!({"metadata": {"labels": {"x": "2"}}})).await.is(200);
    s.merge("configmaps/a", json!({"data": {"a": "unseen"}})).await.is(200);
    s.merge("configmaps/a", json!({"metadata": {"labels": {"x": "1"}}})).await.is(200);
    s.merge("configmaps/a", json!({"data": {"a": "seen"}})).await.is(200);
    // The object as it last matched, at the version that made it leave.
    let event = watch.expect("DELETED", "a").await.has(json!({"metadata": {"labels": {"x": "1"}}}));
    assert_eq!(event.version(), left.version());
    watch.expect("ADDED", "a").await.has(json!({"data": {"a": "unseen"}}));
    watch.expect("MODIFIED", "a").await.has(json!({"data": {"a": "seen"}}));
}

async fn one_name(s: Sandbox) {
    let mut watch = s.watch("configmaps?fieldSelector=metadata.name=b").await;
    for name in ["a", "b", "c"] {
        s.post("configmaps", config_map(name)).await.is(201);
        s.delete(&format!("configmaps/{name}")).await.is(200);
    }
    watch.expect("ADDED", "b").await;
    watch.expect("DELETED", "b").await;
}

async fn pod_phase(s: Sandbox) {
    allow_pods(&s).await;
    let mut watch = s.watch("pods?fieldSelector=status.phase=Running").await;
    s.post("pods", pod("a")).await.is(201);
    s.merge("pods/a/status", json!({"status": {"phase": "Running"}})).await.is(200);
    s.merge("pods/a/status", json!({"status": {"phase": "Succeeded"}})).await.is(200);
    watch.expect("ADDED", "a").await;
    watch.expect("DELETED", "a").await;
}

async fn all_namespaces(s: Sandbox) {
    let other = s.other("-other").await;
    let mut watch = s.watch(&format!("/api/v1/configmaps?labelSelector=case={}", s.namespace)).await;
    let label = json!({"case": s.namespace});
    s.post("configmaps", labelled("here", label.clone())).await.is(201);
    other.post("configmaps", labelled("there", label)).await.is(201);
    watch.expect("ADDED", "here").await;
    watch.expect("ADDED", "there").await;
}

async fn own_namespace(s: Sandbox) {
    let other = s.other("-other").await;
    let mut watch = s.watch(WIDGETS).await;
    other.post(WIDGETS, widget("there", json!({}))).await.is(201);
    s.post(WIDGETS, widget("here", json!({}))).await.is(201);
    watch.expect("ADDED", "here").await;
}

async fn timeout(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut watch = s.watch(&format!("{WIDGETS}?timeoutSeconds=1")).await;
    watch.expect("ADDED", "a").await;
    watch.ends().await;
}

async fn initial_events(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = s.watch(&format!("{WIDGETS}?{query}")).await;
    watch.expect("ADDED", "a").await;
    let bookmark = watch.bookmark().await.has(json!({
        "kind": "Widget", "apiVersion": "conformance.example.com/v1",
        "metadata": {"annotations": {"k8s.io/initial-events-end": "true"}},
    }));
    let version = bookmark.version();
    s.post(WIDGETS, widget("b", json!({}))).await.is(201);
    watch.expect("ADDED", "b").await;
    let mut again = s.watch(&format!("{WIDGETS}?resourceVersion={version}")).await;
    again.expect("ADDED", "b").await;
    // The same on a built-in kind, from version 0, in which there is nothing of this name.
    let mut watch = s.watch(&format!("secrets?resourceVersion=0&{query}")).await;
    watch
        .bookmark()
        .await
        .has(json!({"kind": "Secret", "metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}}));
}

async fn no_initial_events(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut watch =
        s.watch(&format!("{WIDGETS}?sendInitialEvents=false&resourceVersionMatch=NotOlderThan")).await;
    s.post(WIDGETS, widget("b", json!({}))).await.is(201);
    watch.expect("ADDED", "b").await;
}

async fn refusal(s: &Sandbox, path: &str) -> crate::answer::Answer {
    match s.try_watch(path).await {
        Err(answer) => answer,
        Ok(mut watch) => {
            let event = watch.next().await;
            panic!("{path}: expected a refusal, got a watch and {event:?}")
        }
    }
}

async fn initial_events_need_match(s: Sandbox) {
    refusal(&s, &format!("{WIDGETS}?sendInitialEvents=true&allowWatchBookmarks=true"))
        .await
        .refused(422, "Invalid", "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
}

async fn initial_events_need_watch(s: Sandbox) {
    s.get("configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        .await
        .refused(422, "Invalid", "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]");
}

async fn too_old(s: Sandbox) {
    // A kind of its own, which is younger than version 1, with more changes than the embedded server
    // is told to remember in this suite.
    let group = format!("{}.example.com", s.namespace);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    install_definition(&s, definition).await;
    let path = format!("{group}/v1/things");
    let thing = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "a"}});
    s.post(&path, thing).await.is(201);
    for number in 0..HISTORY {
        s.merge(&format!("{path}/a"), json!({"metadata": {"labels": {"n": number.to_string()}}}))
            .await
            .is(200);
    }
    let answer = match s.try_watch(&format!("{path}?resourceVersion=1")).await {
        Err(answer) => answer.body().clone(),
        Ok(mut watch) => {
            let event = watch.next().await;
            assert_eq!(event.kind, "ERROR", "{event:?}");
            event.object
        }
    };
    assert_eq!(answer["kind"], "Status", "{answer}");
    assert_eq!(answer["code"], 410, "{answer}");
    assert_eq!(answer["reason"], "Expired", "{answer}");
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("too old resource version: 1 ("), "{answer}");
}

async fn bad_version(s: Sandbox) {
    let answer = refusal(&s, &format!("{WIDGETS}?resourceVersion=abc")).await;
    // A kube-apiserver takes the blame (500), although the request is bad.
    assert!([400, 500].contains(&answer.status()), "{}", answer.text());
    assert!(answer.at("/message").contains("resourceVersion: Invalid value: \"abc\""), "{}", answer.text());
}

async fn status_update(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut watch = s.watch(&format!("{WIDGETS}?resourceVersion={}", made.version())).await;
    let told = s.merge(&format!("{WIDGETS}/a/status"), json!({"status": {"phase": "Done"}})).await.is(200);
    let event = watch.expect("MODIFIED", "a").await;
    assert_eq!(&event.object, told.body());
}

async fn no_event(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut watch = s.watch(&format!("{WIDGETS}?resourceVersion={}", made.version())).await;
    s.put(&format!("{WIDGETS}/a"), made.body().clone()).await.is(200);
    s.merge(&format!("{WIDGETS}/a?dryRun=All"), json!({"spec": {"size": 3}})).await.is(200);
    s.merge(&format!("{WIDGETS}/a"), json!({"spec": {"size": 2}})).await.is(200);
    watch.expect("MODIFIED", "a").await.has(json!({"spec": {"size": 2}}));
}

async fn finalizer(s: Sandbox) {
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let made = s.post("configmaps", object).await.is(201);
    let mut watch = s
        .watch(&format!("configmaps?fieldSelector=metadata.name=a&resourceVersion={}", made.version()))
        .await;
    s.delete("configmaps/a").await.is(200);
    s.merge("configmaps/a", json!({"metadata": {"finalizers": null}})).await.is(200);
    let event = watch.expect("MODIFIED", "a").await;
    assert!(event.object["metadata"]["deletionTimestamp"].is_string(), "{event:?}");
    watch.expect("DELETED", "a").await;
}

async fn tables(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut watch =
        match s.watch_as(WIDGETS, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").await {
            Ok(watch) => watch,
            Err(answer) => answer.fail("a watch"),
        };
    let first = watch.next().await;
    assert_eq!(first.kind, "ADDED");
    let first = first.has(json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": [{"object": {"metadata": {"name": "a"}}}]}));
    assert_eq!(first.object["columnDefinitions"][1]["name"], "Size", "{first:?}");
    assert_eq!(first.object["rows"][0]["cells"][1], 1, "{first:?}");
    s.delete(&format!("{WIDGETS}/a")).await.is(200);
    let second = watch.next().await;
    assert_eq!(second.kind, "DELETED");
    assert!(second.object["columnDefinitions"].as_array().is_none_or(Vec::is_empty), "{second:?}");
    assert_eq!(second.object["rows"][0]["cells"][0], "a", "{second:?}");
}

async fn metadata_only(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let mut watch = match s.watch_as("configmaps?fieldSelector=metadata.name=a", accept).await {
        Ok(watch) => watch,
        Err(answer) => answer.fail("a watch"),
    };
    let event = watch.expect("ADDED", "a").await;
    event.has(json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "data": null}));
}

async fn unknown_resource(s: Sandbox) {
    let answer = refusal(&s, "gizmos").await;
    assert_eq!(answer.status(), 404, "{}", answer.text());
}

async fn versions(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let mut watch = s.watch("conformance.example.com/v1beta1/widgets").await;
    watch
        .expect("ADDED", "a")
        .await
        .has(json!({"apiVersion": "conformance.example.com/v1beta1", "kind": "Widget"}));
    let mut watch = s.watch(WIDGETS).await;
    watch
        .expect("ADDED", "a")
        .await
        .has(json!({"apiVersion": "conformance.example.com/v1", "kind": "Widget"}));
}

async fn with_limit(s: Sandbox) {
    let version = s.get(WIDGETS).await.is(200).version();
    let mut watch = s.watch(&format!("{WIDGETS}?limit=1&resourceVersion={version}")).await;
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.post(WIDGETS, widget("b", json!({}))).await.is(201);
    watch.expect("ADDED", "a").await;
    watch.expect("ADDED", "b").await;
}

async fn many(s: Sandbox) {
    let version = s.get("secrets").await.is(200).version();
    let mut watch = s.watch(&format!("secrets?resourceVersion={version}")).await;
    let mut last = String::new();
    for number in 0..200 {
        let object =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s-{number}")}});
        last = s.post("secrets", object).await.is(201).version();
    }
    let mut seen = String::new();
    for number in 0..200 {
        seen = watch.expect("ADDED", &format!("s-{number}")).await.version();
    }
    assert_eq!(seen, last);
}
