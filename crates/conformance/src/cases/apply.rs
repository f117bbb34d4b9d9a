//! Server-side apply: who owns which field, and what follows from it.

use serde_json::{Value, json};

use super::cases;
use crate::fixtures::{JOBS, WIDGETS, allow_pods, config_map, pod, training_job, widget};
use crate::sandbox::Sandbox;

cases! { "apply":
    "an apply creates what is not there" => creates,
    "an apply needs a field manager" => needs_manager,
    "an apply of the same changes nothing" => no_change,
    "an apply adds fields and keeps those of others" => adds,
    "a field that is no longer applied is removed" => removes,
    "a field that is no longer applied but has another owner stays" => gives_up,
    "a field of another manager is a Conflict" => conflict,
    "a conflict with an Update names the manager and its version" => conflict_with_update,
    "several conflicts are told together" => conflicts,
    "force takes the field over" => force,
    "the same value is shared, not a Conflict" => shared,
    "a shared field stays when one owner gives it up" => shared_given_up,
    "a forced-out manager that applies again is a Conflict" => lost_field,
    "list-maps are merged by key" => list_map,
    "an element of a list-map goes when its only owner gives it up" => list_map_removed,
    "sets are merged" => set,
    "atomic lists have one owner" => atomic_list,
    "atomic maps have one owner" => atomic_map,
    "schemaless fields are owned as they come" => preserved,
    "containers of pods are merged by name" => containers,
    "managedFields list what was applied" => managed_fields,
    "an Update takes ownership of what it changes" => update_takes_over,
    "Apply and Update of one manager are separate" => apply_and_update,
    "the status is applied through its subresource" => status,
    "the status in an apply to the object is ignored" => status_ignored,
    "an apply through status ignores the spec" => status_ignores_spec,
    "managedFields in the body are refused" => managed_fields_in_body,
    "managedFields can be reset" => managed_fields_reset,
    "the name must be that of the path" => other_name,
    "kind and apiVersion are required" => no_kind,
    "an invalid object is refused" => invalid,
    "a duplicate key in a list-map is refused" => duplicates,
    "an unknown field is refused when strict" => strict,
    "an unknown field is refused even when it is not strict" => unknown_field,
    "a value of the wrong type is refused" => wrong_type,
    "an element of a list-map without its key is refused" => missing_key,
    "an empty map is owned as such, and an empty set is not" => empty_map,
    "empty labels are owned as such, and an empty list of finalizers is not" => empty_metadata,
    "a null where null is not allowed is refused" => null_refused,
    "a null over a value of another manager keeps the value" => null_over_value,
    "an object that nobody manages is not tracked before the first apply" => untracked,
    "a duplicate key in the status is refused, although the status is ignored" => status_duplicates,
    "an old resourceVersion is a Conflict" => old_version,
    "a resourceVersion does not keep an apply from creating" => version_of_missing,
    "dry run changes nothing" => dry_run,
    "YAML is taken" => yaml,
    "a TrainingJob can be applied by two managers" => training_jobs,
    "labels and annotations are owned one by one" => labels,
    "defaults are not owned by the applier" => defaults,
    "a null in an apply is an owned null or nothing, never an error" => nulls,
    "apply of the scale subresource tracks the field of the spec" => scale,
}

fn applied(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

async fn creates(s: Sandbox) {
    let made = s
        .apply("configmaps/a", "me", applied("a", json!({"a": "1"})))
        .await
        .is(201)
        .has(json!({"data": {"a": "1"}}));
    made.uid();
    assert_eq!(made.managers(), ["me Apply"]);
    assert_eq!(s.get("configmaps/a").await.is(200).body(), made.body());
    s.apply(&format!("{WIDGETS}/a"), "me", widget("a", json!({})))
        .await
        .is(201)
        .has(json!({"spec": {"color": "red"}, "metadata": {"generation": 1}}));
}

async fn needs_manager(s: Sandbox) {
    let object = applied("a", json!({})).to_string();
    s.patch("configmaps/a", "application/apply-patch+yaml", &object).await.refused(
        422,
        "Invalid",
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
    );
}

async fn no_change(s: Sandbox) {
    let made = s.apply("configmaps/a", "me", applied("a", json!({"a": "1"}))).await.is(201);
    let again = s.apply("configmaps/a", "me", applied("a", json!({"a": "1"}))).await.is(200);
    assert_eq!(again.body(), made.body());
    let path = format!("{WIDGETS}/a");
    let object = widget("a", json!({"parts": [{"name": "x", "count": 1}], "tags": ["t"]}));
    let made = s.apply(&path, "me", object.clone()).await.is(201);
    let again = s.apply(&path, "me", object).await.is(200);
    assert_eq!(again.body(), made.body());
}

async fn adds(s: Sandbox) {
    s.apply("configmaps/a", "one", applied("a", json!({"a": "1"}))).await.is(201);
    let both = s
        .apply("configmaps/a", "two", applied("a", json!({"b": "2"})))
        .await
        .is(200)
        .has(json!({"data": {"a": "1", "b": "2"}}));
    assert_eq!(both.managers(), ["one Apply", "two Apply"]);
}

async fn removes(s: Sandbox) {
    s.apply("configmaps/a", "me", applied("a", json!({"a": "1", "b": "2"}))).await.is(201);
    let less = s.apply("configmaps/a", "me", applied("a", json!({"b": "2"}))).await.is(200);
    assert_eq!(less.body()["data"], json!({"b": "2"}));
    let none = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    s.apply("configmaps/a", "me", none).await.is(200).lacks("/data");
}

async fn gives_up(s: Sandbox) {
    s.post("configmaps?fieldManager=maker", config_map("a")).await.is(201);
    s.apply("configmaps/a", "me", applied("a", json!({"a": "1", "b": "2"}))).await.is(200);
    let less = s.apply("configmaps/a", "me", applied("a", json!({"b": "2"}))).await.is(200);
    assert_eq!(less.body()["data"], json!({"a": "1", "b": "2"}));
}

async fn conflict(s: Sandbox) {
    s.apply("configmaps/a", "one", applied("a", json!({"a": "1"}))).await.is(201);
    s.apply("configmaps/a", "two", applied("a", json!({"a": "2"})))
        .await
        .refused(409, "Conflict", "Apply failed with 1 conflict: conflict with \"one\": .data.a")
        .causes(&[("FieldManagerConflict", ".data.a", "conflict with \"one\"")]);
    s.get("configmaps/a").await.is(200).has(json!({"data": {"a": "1"}}));
}

async fn conflict_with_update(s: Sandbox) {
    s.post("configmaps?fieldManager=maker", config_map("a")).await.is(201);
    let answer = s.apply("configmaps/a", "me", applied("a", json!({"a": "2"}))).await.refused_about(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"maker\" using v1",
    );
    assert!(answer.at("/message").ends_with(": .data.a"), "{}", answer.text());
}

async fn conflicts(s: Sandbox) {
    s.apply("configmaps/a", "one", applied("a", json!({"a": "1", "b": "1"}))).await.is(201);
    s.apply("configmaps/a", "three", applied("a", json!({"c": "1"}))).await.is(200);
    s.apply("configmaps/a", "two", applied("a", json!({"a": "2", "b": "2", "c": "2"})))
        .await
        .refused(409, "Conflict", "Apply failed with 3 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b\nconflicts with \"three\":\n- .data.c")
        .causes(&[
            ("FieldManagerConflict", ".data.a", "conflict with \"one\""),
            ("FieldManagerConflict", ".data.b", "conflict with \"one\""),
            ("FieldManagerConflict", ".data.c", "conflict with \"three\""),
        ]);
}

async fn force(s: Sandbox) {
    s.apply("configmaps/a", "one", applied("a", json!({"a": "1", "b": "1"}))).await.is(201);
    let taken = s.apply("configmaps/a?force=true", "two", applied("a", json!({"a": "2"}))).await.is(200);
    let taken = taken.has(json!({"data": {"a": "2", "b": "1"}}));
    assert_eq!(taken.fields_of("one", "Apply"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(taken.fields_of("two", "Apply"), json!({"f:data": {"f:a": {}}}));
}

async fn shared(s: Sandbox) {
    s.apply("configmaps/a", "one", applied("a", json!({"a": "1"}))).await.is(201);
    let both = s.apply("configmaps/a", "two", applied("a", json!({"a": "1"}))).await.is(200);
    assert_eq!(both.fields_of("one", "Apply"), json!({"f:data": {"f:a": {}}}));
    assert_eq!(both.fields_of("two", "Apply"), json!({"f:data": {"f:a": {}}}));
    // And now neither may change it alone.
    s.apply("configmaps/a", "one", applied("a", json!({"a": "2"}))).await.refused_about(
        409,
        "Conflict",
        "conflict with \"two\"",
    );
}

async fn shared_given_up(s: Sandbox) {
    s.apply("configmaps/a", "one", applied("a", json!({"a": "1", "b": "1"}))).await.is(201);
    s.apply("configmaps/a", "two", applied("a", json!({"a": "1"}))).await.is(200);
    let left = s.apply("configmaps/a", "one", applied("a", json!({"b": "1"}))).await.is(200);
    assert_eq!(left.body()["data"], json!({"a": "1", "b": "1"}));
    assert_eq!(left.fields_of("one", "Apply"), json!({"f:data": {"f:b": {}}}));
}

async fn lost_field(s: Sandbox) {
    s.apply("configmaps/a", "one", applied("a", json!({"a": "1"}))).await.is(201);
    s.apply("configmaps/a?force=true", "two", applied("a", json!({"a": "2"}))).await.is(200);
    s.apply("configmaps/a", "one", applied("a", json!({"a": "1"}))).await.refused_about(
        409,
        "Conflict",
        "conflict with \"two\"",
    );
    // Without the field there is nothing to fight about, and it stays.
    s.apply("configmaps/a", "one", applied("a", json!({}))).await.is(200).has(json!({"data": {"a": "2"}}));
}

async fn list_map(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    s.apply(&path, "one", widget("a", json!({"parts": [{"name": "x", "count": 1}, {"name": "y"}]})))
        .await
        .is(201);
    let mut second = widget("a", json!({"parts": [{"name": "y", "note": "hi"}, {"name": "z"}]}));
    second["spec"].as_object_mut().expect("a spec").remove("size");
    let both = s.apply(&path, "two", second).await.is(200);
    let mut parts = both.body()["spec"]["parts"].as_array().cloned().unwrap_or_default();
    parts.sort_by_key(|part| part["name"].to_string());
    assert_eq!(
        parts,
        [json!({"name": "x", "count": 1}), json!({"name": "y", "note": "hi"}), json!({"name": "z"})]
    );
    assert_eq!(
        both.fields_of("two", "Apply"),
        json!({"f:spec": {"f:parts": {
            "k:{\"name\":\"y\"}": {".": {}, "f:name": {}, "f:note": {}},
            "k:{\"name\":\"z\"}": {".": {}, "f:name": {}},
        }}})
    );
}

async fn list_map_removed(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    s.apply(&path, "one", widget("a", json!({"parts": [{"name": "x"}, {"name": "y"}, {"name": "z"}]})))
        .await
        .is(201);
    s.merge(&path, json!({"spec": {"parts": [{"name": "x"}, {"name": "y", "note": "mine"}, {"name": "z"}]}}))
        .await
        .is(200);
    let left = s.apply(&path, "one", widget("a", json!({"parts": [{"name": "z"}]}))).await.is(200);
    let names: Vec<_> = left.body()["spec"]["parts"]
        .as_array()
        .cloned()
        .unwrap_or_default()
        .iter()
        .map(|p| p["name"].clone())
        .collect();
    // Of y another manager owns a field, but nobody owns the element any more.
    assert!(names.contains(&json!("z")) && !names.contains(&json!("x")), "{}", left.text());
}

async fn set(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    s.apply(&path, "one", widget("a", json!({"tags": ["a", "b"]}))).await.is(201);
    let both = s.apply(&path, "two", widget("a", json!({"tags": ["b", "c"]}))).await.is(200);
    let mut tags = both.body()["spec"]["tags"].as_array().cloned().unwrap_or_default();
    tags.sort_by_key(ToString::to_string);
    assert_eq!(tags, ["a", "b", "c"]);
    assert_eq!(both.fields_of("two", "Apply")["f:spec"]["f:tags"], json!({"v:\"b\"": {}, "v:\"c\"": {}}));
    let left = s.apply(&path, "one", widget("a", json!({"tags": []}))).await.is(200);
    let mut tags = left.body()["spec"]["tags"].as_array().cloned().unwrap_or_default();
    tags.sort_by_key(ToString::to_string);
    assert_eq!(tags, ["b", "c"]);
}

async fn atomic_list(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    let made = s.apply(&path, "one", widget("a", json!({"atoms": [{"name": "x"}]}))).await.is(201);
    assert_eq!(made.fields_of("one", "Apply")["f:spec"]["f:atoms"], json!({}));
    s.apply(&path, "two", widget("a", json!({"atoms": [{"name": "y"}]})))
        .await
        .refused_about(409, "Conflict", "conflict")
        .causes(&[("FieldManagerConflict", ".spec.atoms", "conflict with \"one\"")]);
    let taken = s
        .apply(&format!("{path}?force=true"), "two", widget("a", json!({"atoms": [{"name": "y"}]})))
        .await
        .is(200);
    assert_eq!(taken.body()["spec"]["atoms"], json!([{"name": "y"}]));
}

async fn atomic_map(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    s.apply(&path, "one", widget("a", json!({"atomicMap": {"x": "1"}, "labels": {"x": "1"}}))).await.is(201);
    s.apply(&path, "two", widget("a", json!({"atomicMap": {"y": "1"}, "labels": {"y": "1"}})))
        .await
        .refused_about(409, "Conflict", "conflict")
        .causes(&[("FieldManagerConflict", ".spec.atomicMap", "conflict with \"one\"")]);
}

async fn preserved(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    let made = s
        .apply(&path, "one", widget("a", json!({"free": {"list": [{"x": 1}], "map": {"y": 1}}})))
        .await
        .is(201);
    assert_eq!(
        made.fields_of("one", "Apply")["f:spec"]["f:free"],
        json!({"f:list": {}, "f:map": {".": {}, "f:y": {}}})
    );
    let both = s.apply(&path, "two", widget("a", json!({"free": {"map": {"z": 2}}}))).await.is(200);
    assert_eq!(both.body()["spec"]["free"], json!({"list": [{"x": 1}], "map": {"y": 1, "z": 2}}));
}

async fn containers(s: Sandbox) {
    allow_pods(&s).await;
    let made = s.apply("pods/a", "one", pod("a")).await.is(201);
    assert_eq!(
        made.fields_of("one", "Apply"),
        json!({"f:spec": {"f:schedulerName": {}, "f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:image": {}}}}})
    );
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "other:1"}]}});
    s.apply("pods/a", "two", other.clone())
        .await
        .refused_about(409, "Conflict", ".spec.containers[name=\"main\"].image")
        .causes(&[(
            "FieldManagerConflict",
            ".spec.containers[name=\"main\"].image",
            "conflict with \"one\"",
        )]);
    s.apply("pods/a?force=true", "two", other)
        .await
        .is(200)
        .has(json!({"spec": {"containers": [{"image": "other:1"}]}}));
}

async fn managed_fields(s: Sandbox) {
    let mut object = widget("a", json!({"size": 2, "nested": {"level": 1}}));
    object["metadata"]["labels"] = json!({"x": "1"});
    let made = s.apply(&format!("{WIDGETS}/a"), "me", object).await.is(201);
    let entry = &made.body()["metadata"]["managedFields"][0];
    assert_eq!(entry["apiVersion"], "conformance.example.com/v1", "{entry}");
    assert_eq!(entry["fieldsType"], "FieldsV1", "{entry}");
    assert!(entry["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{entry}");
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:size": {}, "f:nested": {"f:level": {}}}})
    );
}

async fn update_takes_over(s: Sandbox) {
    s.apply("configmaps/a", "one", applied("a", json!({"a": "1", "b": "1"}))).await.is(201);
    let changed = s.merge("configmaps/a?fieldManager=editor", json!({"data": {"a": "2"}})).await.is(200);
    assert_eq!(changed.fields_of("one", "Apply"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(changed.fields_of("editor", "Update"), json!({"f:data": {"f:a": {}}}));
    s.apply("configmaps/a", "one", applied("a", json!({"a": "1", "b": "1"}))).await.refused_about(
        409,
        "Conflict",
        "conflict with \"editor\" using v1",
    );
}

async fn apply_and_update(s: Sandbox) {
    s.post("configmaps?fieldManager=me", config_map("a")).await.is(201);
    let answer = s.apply("configmaps/a", "me", applied("a", json!({"a": "1", "b": "2"}))).await.is(200);
    assert_eq!(answer.managers(), ["me Apply", "me Update"]);
    // One's own Update of another value is still another manager's.
    s.apply("configmaps/a", "me", applied("a", json!({"a": "3"}))).await.refused_about(
        409,
        "Conflict",
        "conflict with \"me\" using v1",
    );
}

async fn status(s: Sandbox) {
    let path = format!("{WIDGETS}/a/status");
    s.post(&format!("{WIDGETS}?fieldManager=maker"), widget("a", json!({}))).await.is(201);
    let object = |conditions: Value| json!({"apiVersion": "conformance.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "status": {"conditions": conditions}});
    let one = s.apply(&path, "one", object(json!([{"type": "A", "status": "True"}]))).await.is(200);
    assert_eq!(one.managers(), ["maker Update", "one Apply status"]);
    let two = s.apply(&path, "two", object(json!([{"type": "B", "status": "False"}]))).await.is(200);
    assert_eq!(
        two.body()["status"]["conditions"],
        json!([{"type": "A", "status": "True"}, {"type": "B", "status": "False"}])
    );
    let left =
        s.apply(&path, "one", object(json!([]))).await.is(200).has(json!({"metadata": {"generation": 1}}));
    assert_eq!(left.body()["status"]["conditions"], json!([{"type": "B", "status": "False"}]));
}

async fn status_ignored(s: Sandbox) {
    let mut object = widget("a", json!({}));
    object["status"] = json!({"phase": "Done"});
    let made = s.apply(&format!("{WIDGETS}/a"), "me", object).await.is(201).lacks("/status");
    assert_eq!(made.fields_of("me", "Apply"), json!({"f:spec": {"f:size": {}}}));
}

async fn status_ignores_spec(s: Sandbox) {
    s.post(&format!("{WIDGETS}?fieldManager=maker"), widget("a", json!({}))).await.is(201);
    let mut object = widget("a", json!({"size": 5}));
    object["status"] = json!({"phase": "Done"});
    let answer = s.apply(&format!("{WIDGETS}/a/status?force=true"), "me", object).await.is(200);
    let answer = answer.has(json!({"spec": {"size": 1}, "status": {"phase": "Done"}}));
    assert_eq!(answer.fields_of("me", "Apply"), json!({"f:status": {"f:phase": {}}}));
}

async fn managed_fields_in_body(s: Sandbox) {
    let mut object = applied("a", json!({"a": "1"}));
    object["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]);
    s.apply("configmaps/a", "me", object).await.refused(
        400,
        "BadRequest",
        "metadata.managedFields must be nil",
    );
}

async fn managed_fields_reset(s: Sandbox) {
    s.apply("configmaps/a", "me", applied("a", json!({"a": "1"}))).await.is(201);
    let reset = s.merge("configmaps/a", json!({"metadata": {"managedFields": [{}]}})).await.is(200);
    assert_eq!(reset.managers(), [""; 0], "{}", reset.text());
    // What was there before is nobody's in particular now.
    s.apply("configmaps/a", "other", applied("a", json!({"a": "2"}))).await.refused_about(
        409,
        "Conflict",
        "before-first-apply",
    );
}

async fn other_name(s: Sandbox) {
    s.apply("configmaps/a", "me", applied("b", json!({}))).await.refused(
        400,
        "BadRequest",
        "the name of the object (b) does not match the name on the URL (a)",
    );
}

async fn no_kind(s: Sandbox) {
    s.apply("configmaps/a", "me", json!({"metadata": {"name": "a"}})).await.refused_about(
        400,
        "BadRequest",
        "",
    );
}

async fn invalid(s: Sandbox) {
    s.apply(&format!("{WIDGETS}/a"), "me", widget("a", json!({"size": 11}))).await.refused(
        422,
        "Invalid",
        "Widget.conformance.example.com \"a\" is invalid: spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
    );
    s.get(&format!("{WIDGETS}/a")).await.is(404);
}

async fn duplicates(s: Sandbox) {
    let object = widget("a", json!({"parts": [{"name": "x"}, {"name": "x"}]}));
    let answer = s.apply(&format!("{WIDGETS}/a"), "me", object).await;
    assert!([400, 422, 500].contains(&answer.status()), "{} {}", answer.status(), answer.text());
}

async fn strict(s: Sandbox) {
    let object = widget("a", json!({"shape": "round"}));
    let answer = s.apply(&format!("{WIDGETS}/a?fieldValidation=Strict"), "me", object).await;
    assert!([400, 422, 500].contains(&answer.status()), "{} {}", answer.status(), answer.text());
    assert!(answer.at("/message").contains("shape"), "{}", answer.text());
    s.get(&format!("{WIDGETS}/a")).await.is(404);
}

async fn old_version(s: Sandbox) {
    let made = s.apply("configmaps/a", "me", applied("a", json!({"a": "1"}))).await.is(201);
    s.apply("configmaps/a", "me", applied("a", json!({"a": "2"}))).await.is(200);
    let mut object = applied("a", json!({"a": "3"}));
    object["metadata"]["resourceVersion"] = made.version().into();
    s.apply("configmaps/a", "me", object).await.refused_about(
        409,
        "Conflict",
        "the object has been modified",
    );
}

async fn version_of_missing(s: Sandbox) {
    let mut object = applied("a", json!({"a": "3"}));
    object["metadata"]["resourceVersion"] = "1".into();
    assert_ne!(s.apply("configmaps/a", "me", object).await.is(201).version(), "1");
}

async fn dry_run(s: Sandbox) {
    s.apply("configmaps/a?dryRun=All", "me", applied("a", json!({"a": "1"}))).await.is(201);
    s.get("configmaps/a").await.is(404);
    let made = s.apply("configmaps/a", "me", applied("a", json!({"a": "1"}))).await.is(201);
    s.apply("configmaps/a?dryRun=All", "me", applied("a", json!({"a": "2"})))
        .await
        .is(200)
        .has(json!({"data": {"a": "2"}}));
    assert_eq!(s.get("configmaps/a").await.is(200).body(), made.body());
}

async fn yaml(s: Sandbox) {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: \"y\"\n";
    s.patch("configmaps/a?fieldManager=me", "application/apply-patch+yaml", text)
        .await
        .is(201)
        .has(json!({"data": {"x": "y"}}));
}

async fn training_jobs(s: Sandbox) {
    let path = format!("{JOBS}/a");
    s.apply(&path, "user", training_job("a")).await.is(201);
    let more = json!({
        "apiVersion": "ml.example.com/v1", "kind": "TrainingJob", "metadata": {"name": "a"},
        "spec": {"numWorkers": 4},
    });
    s.apply(&path, "scaler", more.clone())
        .await
        .refused_about(409, "Conflict", "conflict with \"user\"")
        .causes(&[("FieldManagerConflict", ".spec.numWorkers", "conflict with \"user\"")]);
    s.apply(&format!("{path}?force=true"), "scaler", more)
        .await
        .is(200)
        .has(json!({"spec": {"numWorkers": 4}, "metadata": {"generation": 2}}));
    let mut without = training_job("a");
    without["spec"].as_object_mut().expect("a spec").remove("numWorkers");
    s.apply(&path, "user", without)
        .await
        .is(200)
        .has(json!({"spec": {"numWorkers": 4, "image": "example.com/train:1"}}));
}

async fn labels(s: Sandbox) {
    let mut one = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    one["metadata"]["labels"] = json!({"x": "1"});
    one["metadata"]["annotations"] = json!({"x": "1"});
    let mut two = one.clone();
    two["metadata"]["labels"] = json!({"y": "1"});
    two["metadata"]["annotations"] = json!({"x": "2"});
    s.apply("configmaps/a", "one", one).await.is(201);
    s.apply("configmaps/a", "two", two.clone()).await.refused_about(409, "Conflict", "").causes(&[(
        "FieldManagerConflict",
        ".metadata.annotations.x",
        "conflict with \"one\"",
    )]);
    two["metadata"]["annotations"] = json!({});
    s.apply("configmaps/a", "two", two)
        .await
        .is(200)
        .has(json!({"metadata": {"labels": {"x": "1", "y": "1"}, "annotations": {"x": "1"}}}));
}

async fn defaults(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    let made =
        s.apply(&path, "one", widget("a", json!({}))).await.is(201).has(json!({"spec": {"color": "red"}}));
    assert_eq!(made.fields_of("one", "Apply"), json!({"f:spec": {"f:size": {}}}));
    s.apply(&path, "two", widget("a", json!({"color": "blue"})))
        .await
        .is(200)
        .has(json!({"spec": {"color": "blue"}}));
}

async fn nulls(s: Sandbox) {
    let answer = s
        .apply(&format!("{WIDGETS}/a"), "me", widget("a", json!({"maybe": null, "color": null})))
        .await
        .is(201);
    answer.has(json!({"spec": {"size": 1}}));
}

async fn scale(s: Sandbox) {
    s.apply(&format!("{WIDGETS}/a"), "one", widget("a", json!({"size": 2}))).await.is(201);
    s.merge(&format!("{WIDGETS}/a/scale?fieldManager=scaler"), json!({"spec": {"replicas": 3}}))
        .await
        .is(200);
    let read = s.get(&format!("{WIDGETS}/a")).await.is(200);
    assert_eq!(read.managers(), ["scaler Update scale"], "{}", read.text());
    s.apply(&format!("{WIDGETS}/a"), "one", widget("a", json!({"size": 2})))
        .await
        .refused_about(409, "Conflict", "conflict with \"scaler\"")
        .causes(&[(
            "FieldManagerConflict",
            ".spec.size",
            "conflict with \"scaler\" with subresource \"scale\" using conformance.example.com/v1",
        )]);
}

async fn unknown_field(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    let answer = s.apply(&path, "me", widget("a", json!({"shape": "round"}))).await;
    // A kube-apiserver takes the blame (500), although the request is bad.
    assert!([400, 422, 500].contains(&answer.status()), "{} {}", answer.status(), answer.text());
    assert!(answer.at("/message").contains(".spec.shape: field not declared in schema"), "{}", answer.text());
    s.get(&path).await.is(404);
}

async fn wrong_type(s: Sandbox) {
    let answer = s.apply(&format!("{WIDGETS}/a"), "me", widget("a", json!({"size": "big"}))).await;
    assert!([400, 422, 500].contains(&answer.status()), "{} {}", answer.status(), answer.text());
    assert!(answer.at("/message").contains("spec.size"), "{}", answer.text());
}

async fn missing_key(s: Sandbox) {
    let answer = s.apply(&format!("{WIDGETS}/a"), "me", widget("a", json!({"parts": [{"count": 1}]}))).await;
    assert!([400, 422, 500].contains(&answer.status()), "{} {}", answer.status(), answer.text());
    assert!(
        answer.at("/message").contains(
            ".spec.parts: element 0: associative list with keys has an element that omits all key fields"
        ),
        "{}",
        answer.text()
    );
}

async fn empty_map(s: Sandbox) {
    let made = s.apply("configmaps/a", "me", applied("a", json!({}))).await.is(201).lacks("/data");
    assert_eq!(made.fields_of("me", "Apply"), json!({"f:data": {}}));
    let made =
        s.apply(&format!("{WIDGETS}/a"), "me", widget("a", json!({"labels": {}, "tags": []}))).await.is(201);
    assert_eq!(made.fields_of("me", "Apply"), json!({"f:spec": {"f:size": {}, "f:labels": {}}}));
}

async fn empty_metadata(s: Sandbox) {
    let mut object = applied("a", json!({"a": "1"}));
    object["metadata"]["labels"] = json!({});
    object["metadata"]["finalizers"] = json!([]);
    let made = s.apply("configmaps/a", "me", object).await.is(201).lacks("/metadata/labels");
    assert_eq!(made.fields_of("me", "Apply"), json!({"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {}}}));
}

async fn null_refused(s: Sandbox) {
    s.apply(&format!("{WIDGETS}/a"), "me", widget("a", json!({"tags": null})))
        .await
        .refused_about(
            422,
            "Invalid",
            "spec.tags: Invalid value: \"null\": spec.tags in body must be of type array: \"null\"",
        )
        .blames(&[("FieldValueTypeInvalid", "spec.tags")]);
}

async fn status_duplicates(s: Sandbox) {
    let mut object = widget("a", json!({}));
    object["status"] =
        json!({"conditions": [{"type": "A", "status": "True"}, {"type": "A", "status": "True"}]});
    let answer = s.apply(&format!("{WIDGETS}/a"), "me", object).await;
    assert!([400, 422, 500].contains(&answer.status()), "{} {}", answer.status(), answer.text());
    assert!(
        answer.at("/message").contains(".status.conditions: duplicate entries for key [type=\"A\"]"),
        "{}",
        answer.text()
    );
}

async fn null_over_value(s: Sandbox) {
    s.post(&format!("{WIDGETS}?fieldManager=hand"), widget("a", json!({"tags": ["x"]}))).await.is(201);
    let path = format!("{WIDGETS}/a?force=true");
    let applied = s.apply(&path, "me", widget("a", json!({"tags": null}))).await.is(200);
    assert_eq!(applied.body()["spec"]["tags"], json!(["x"]), "{}", applied.text());
}

async fn untracked(s: Sandbox) {
    let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    s.post("configmaps", empty).await.is(201).lacks("/metadata/managedFields");
    s.merge("configmaps/a", json!({"data": {"a": "1"}})).await.is(200).lacks("/metadata/managedFields");
    let applied = s.apply("configmaps/a", "me", applied("a", json!({"b": "2"}))).await.is(200);
    assert_eq!(applied.managers(), ["before-first-apply Update", "me Apply"]);
    assert_eq!(applied.fields_of("before-first-apply", "Update"), json!({"f:data": {".": {}, "f:a": {}}}));
}
