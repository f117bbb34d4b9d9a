//! Custom resources: defaults, pruning, validation, versions.

use serde_json::{Value, json};

use super::cases;
use crate::fixtures::{JOBS, OLD_JOBS, WIDGETS, training_job, widget, with};
use crate::sandbox::Sandbox;

cases! { "custom":
    "an object of one version is read in the other" => read_in_other_version,
    "an object is updated through the other version" => update_in_other_version,
    "defaults are set" => defaults,
    "defaults inside an object that is not there are not set" => no_nested_defaults,
    "a null becomes the default where null is not allowed" => null_default,
    "a null is kept where it is allowed" => nullable,
    "unknown fields are pruned" => pruned,
    "unknown fields are kept where the schema says so" => preserved,
    "known fields below preserved ones are still typed" => partly_preserved,
    "unknown metadata is pruned" => metadata_pruned,
    "embedded resources need a kind" => embedded,
    "wrong types are told" => wrong_types,
    "bounds of numbers" => number_bounds,
    "lengths and patterns of texts" => text_bounds,
    "lengths of lists and maps" => list_bounds,
    "required fields" => required,
    "enums" => enums,
    "formats" => formats,
    "an integer is not a fraction" => fractions,
    "int-or-string takes both, and nothing else" => int_or_string,
    "sets have no duplicates" => set_duplicates,
    "list-maps have no duplicates" => map_duplicates,
    "oneOf" => one_of,
    "rules of the schema" => rules,
    "rules with a message, a reason and a field of their own" => rule_messages,
    "transition rules see the old object" => transition_rules,
    "transition rules do not run on create" => transition_on_create,
    "rules run on patch and on apply" => rules_on_patch,
    "all problems are told at once" => all_problems,
    "a spec that is missing is told" => missing_spec,
    "the rules of a TrainingJob" => job_rules,
    "an immutable field of a TrainingJob" => job_immutable,
}

async fn read_in_other_version(s: Sandbox) {
    let made = s.post(JOBS, training_job("a")).await.is(201);
    let other = s
        .get(&format!("{OLD_JOBS}/a"))
        .await
        .is(200)
        .has(json!({"apiVersion": "ml.example.com/v1alpha1", "spec": {"numWorkers": 2}}));
    assert_eq!((other.uid(), other.version()), (made.uid(), made.version()));
    s.get(OLD_JOBS)
        .await
        .is(200)
        .lists(&["a"])
        .has(json!({"items": [{"apiVersion": "ml.example.com/v1alpha1"}]}));
}

async fn update_in_other_version(s: Sandbox) {
    let mut job = training_job("a");
    job["apiVersion"] = "ml.example.com/v1alpha1".into();
    let made = s.post(OLD_JOBS, job).await.is(201).has(json!({"apiVersion": "ml.example.com/v1alpha1"}));
    let mut object = with(made.body().clone(), "/spec/numWorkers", json!(3));
    object["apiVersion"] = "ml.example.com/v1".into();
    // The body must be of the version of the path.
    s.put(&format!("{OLD_JOBS}/a"), object.clone()).await.refused_about(400, "BadRequest", "");
    s.put(&format!("{JOBS}/a"), object)
        .await
        .is(200)
        .has(json!({"apiVersion": "ml.example.com/v1", "metadata": {"generation": 2}}));
}

async fn defaults(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({"nested": {}}))).await.is(201);
    assert_eq!(
        made.body()["spec"],
        json!({"size": 1, "color": "red", "nested": {"level": 3, "deep": {"on": true}}})
    );
    // On update as well.
    let put =
        s.put(&format!("{WIDGETS}/a"), with(made.body().clone(), "/spec", json!({"size": 2}))).await.is(200);
    assert_eq!(put.body()["spec"], json!({"size": 2, "color": "red"}));
}

async fn no_nested_defaults(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    assert_eq!(made.body()["spec"], json!({"size": 1, "color": "red"}));
}

async fn null_default(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({"color": null, "code": null}))).await.is(201);
    assert_eq!(made.body()["spec"], json!({"size": 1, "color": "red"}));
}

async fn nullable(s: Sandbox) {
    let made = s.post(WIDGETS, widget("a", json!({"maybe": null}))).await.is(201);
    assert_eq!(made.body()["spec"], json!({"size": 1, "color": "red", "maybe": null}));
}

async fn pruned(s: Sandbox) {
    let mut object = widget(
        "a",
        json!({"shape": "round", "nested": {"unknown": 1}, "parts": [{"name": "x", "unknown": 1}]}),
    );
    object["more"] = json!({"x": 1});
    let made = s.post(WIDGETS, object).await.is(201).lacks("/more");
    assert_eq!(made.body()["spec"]["parts"], json!([{"name": "x"}]));
    made.lacks("/spec/shape").lacks("/spec/nested/unknown");
}

async fn preserved(s: Sandbox) {
    let free = json!({"a": {"b": [1, "x", null, {"c": true}]}, "d": 1.5});
    let made = s.post(WIDGETS, widget("a", json!({"free": free}))).await.is(201);
    assert_eq!(made.body()["spec"]["free"], free);
}

async fn partly_preserved(s: Sandbox) {
    let partly = json!({"anything": {"x": 1}, "strict": {"known": "yes", "unknown": "no"}});
    let made = s.post(WIDGETS, widget("a", json!({"partly": partly}))).await.is(201);
    assert_eq!(made.body()["spec"]["partly"], json!({"anything": {"x": 1}, "strict": {"known": "yes"}}));
    s.post(WIDGETS, widget("b", json!({"partly": {"strict": {"known": 1}}}))).await.refused_about(
        422,
        "Invalid",
        "spec.partly.strict.known: Invalid value: \"integer\": spec.partly.strict.known in body must be of type string: \"integer\"",
    );
}

async fn metadata_pruned(s: Sandbox) {
    let mut object = widget("a", json!({}));
    object["metadata"]["unknown"] = "x".into();
    s.post(WIDGETS, object).await.is(201).lacks("/metadata/unknown");
}

async fn embedded(s: Sandbox) {
    let template = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "unknown": 1}, "spec": {"anything": 1}});
    let made = s.post(WIDGETS, widget("a", json!({"template": template}))).await.is(201);
    made.has(
        json!({"spec": {"template": {"metadata": {"name": "p", "unknown": null}, "spec": {"anything": 1}}}}),
    );
    s.post(WIDGETS, widget("b", json!({"template": {"metadata": {}}})))
        .await
        .refused_about(422, "Invalid", "spec.template.apiVersion: Required value")
        .blames(&[
            ("FieldValueRequired", "spec.template.apiVersion"),
            ("FieldValueRequired", "spec.template.kind"),
        ]);
}

/// A widget that is refused for one field, in the server's words.
async fn refused_for(s: &Sandbox, more: Value, causes: &[(&str, &str, &str)]) {
    let answer = s.post(WIDGETS, widget("a", more)).await.refused_about(
        422,
        "Invalid",
        "Widget.conformance.example.com \"a\" is invalid: ",
    );
    let found = answer.body()["details"]["causes"].as_array().cloned().unwrap_or_default();
    for (reason, field, message) in causes {
        if !found.contains(&json!({"reason": reason, "field": field, "message": message})) {
            answer.fail(&format!("the cause {reason} {field} {message:?}"));
        }
    }
    // Beside these, only remarks: that rules were not evaluated, and what the scale subresource makes of it.
    let others: Vec<_> = found
        .iter()
        .filter(|cause| !causes.iter().any(|(_, field, _)| cause["field"] == *field))
        .filter(|cause| {
            cause["field"] != "<nil>" && !cause["field"].as_str().unwrap_or_default().starts_with('.')
        })
        .collect();
    assert!(others.is_empty(), "more causes than expected: {others:?}");
}

async fn wrong_types(s: Sandbox) {
    refused_for(
        &s,
        json!({"size": "big"}),
        &[(
            "FieldValueTypeInvalid",
            "spec.size",
            "Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        )],
    )
    .await;
    refused_for(
        &s,
        json!({"enabled": "yes"}),
        &[(
            "FieldValueTypeInvalid",
            "spec.enabled",
            "Invalid value: \"string\": spec.enabled in body must be of type boolean: \"string\"",
        )],
    )
    .await;
    refused_for(
        &s,
        json!({"tags": "x"}),
        &[(
            "FieldValueTypeInvalid",
            "spec.tags",
            "Invalid value: \"string\": spec.tags in body must be of type array: \"string\"",
        )],
    )
    .await;
    refused_for(
        &s,
        json!({"nested": []}),
        &[(
            "FieldValueTypeInvalid",
            "spec.nested",
            "Invalid value: \"array\": spec.nested in body must be of type object: \"array\"",
        )],
    )
    .await;
    refused_for(
        &s,
        json!({"labels": {"x": 1}}),
        &[(
            "FieldValueTypeInvalid",
            "spec.labels.x",
            "Invalid value: \"integer\": spec.labels.x in body must be of type string: \"integer\"",
        )],
    )
    .await;
    refused_for(
        &s,
        json!({"parts": [{"name": "x", "count": true}]}),
        &[(
            "FieldValueTypeInvalid",
            "spec.parts[0].count",
            "Invalid value: \"boolean\": spec.parts[0].count in body must be of type integer: \"boolean\"",
        )],
    )
    .await;
}

async fn number_bounds(s: Sandbox) {
    let size = |message| [("FieldValueInvalid", "spec.size", message)];
    let ratio = |message| [("FieldValueInvalid", "spec.ratio", message)];
    refused_for(
        &s,
        json!({"size": 0}),
        &size("Invalid value: 0: spec.size in body should be greater than or equal to 1"),
    )
    .await;
    refused_for(
        &s,
        json!({"size": 11}),
        &size("Invalid value: 11: spec.size in body should be less than or equal to 10"),
    )
    .await;
    refused_for(
        &s,
        json!({"ratio": 0}),
        &ratio("Invalid value: 0: spec.ratio in body should be greater than 0"),
    )
    .await;
    refused_for(
        &s,
        json!({"ratio": 0.75}),
        &ratio("Invalid value: 0.75: spec.ratio in body should be a multiple of 0.5"),
    )
    .await;
    s.post(WIDGETS, widget("a", json!({"ratio": 1.5, "size": 10}))).await.is(201);
}

async fn text_bounds(s: Sandbox) {
    let code = |reason, message| [(reason, "spec.code", message)];
    let short = "Invalid value: \"a\": spec.code in body should be at least 2 chars long";
    refused_for(&s, json!({"code": "a"}), &code("FieldValueInvalid", short)).await;
    refused_for(
        &s,
        json!({"code": "abcdef"}),
        &code("FieldValueTooLong", "Too long: may not be more than 5 bytes"),
    )
    .await;
    let pattern = "Invalid value: \"ABC\": spec.code in body should match '^[a-z]+$'";
    refused_for(&s, json!({"code": "ABC"}), &code("FieldValueInvalid", pattern)).await;
}

async fn list_bounds(s: Sandbox) {
    let tags = [("FieldValueTooMany", "spec.tags", "Too many: 6: must have at most 5 items")];
    refused_for(&s, json!({"tags": ["a", "b", "c", "d", "e", "f"]}), &tags).await;
    let labels = [("FieldValueTooMany", "spec.labels", "Too many: 4: must have at most 3 items")];
    refused_for(&s, json!({"labels": {"a": "", "b": "", "c": "", "d": ""}}), &labels).await;
}

async fn required(s: Sandbox) {
    refused_for(
        &s,
        json!({"window": {"low": "1"}}),
        &[("FieldValueRequired", "spec.window.high", "Required value")],
    )
    .await;
    refused_for(
        &s,
        json!({"parts": [{"count": 1}]}),
        &[("FieldValueRequired", "spec.parts[0].name", "Required value")],
    )
    .await;
}

async fn enums(s: Sandbox) {
    refused_for(
        &s,
        json!({"color": "pink"}),
        &[(
            "FieldValueNotSupported",
            "spec.color",
            "Unsupported value: \"pink\": supported values: \"red\", \"green\", \"blue\"",
        )],
    )
    .await;
}

async fn formats(s: Sandbox) {
    let until = "Invalid value: \"tomorrow\": spec.until in body must be of type date-time: \"tomorrow\"";
    refused_for(&s, json!({"until": "tomorrow"}), &[("FieldValueTypeInvalid", "spec.until", until)]).await;
    s.post(WIDGETS, widget("a", json!({"until": "2030-01-01T00:00:00Z"}))).await.is(201);
}

async fn fractions(s: Sandbox) {
    let count = "Invalid value: \"number\": spec.parts[0].count in body must be of type integer: \"number\"";
    let parts = json!({"parts": [{"name": "x", "count": 1.5}]});
    refused_for(&s, parts, &[("FieldValueTypeInvalid", "spec.parts[0].count", count)]).await;
    let half = s.post(WIDGETS, widget("a", json!({"size": 1.5}))).await;
    half.refused_about(422, "Invalid", "spec.size").blames(&[("FieldValueTypeInvalid", "spec.size")]);
    let text = r#"{"apiVersion":"conformance.example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1,"nested":{"level":2.0}}}"#;
    s.post_text(WIDGETS, "application/json", text)
        .await
        .is(201)
        .has(json!({"spec": {"nested": {"level": 2}}}));
}

async fn int_or_string(s: Sandbox) {
    s.post(WIDGETS, widget("x", json!({"port": 80}))).await.is(201).has(json!({"spec": {"port": 80}}));
    s.post(WIDGETS, widget("y", json!({"port": "http"})))
        .await
        .is(201)
        .has(json!({"spec": {"port": "http"}}));
    s.post(WIDGETS, widget("a", json!({"port": true})))
        .await
        .refused_about(422, "Invalid", "spec.port")
        .blames(&[("FieldValueTypeInvalid", "spec.port")]);
}

async fn set_duplicates(s: Sandbox) {
    refused_for(
        &s,
        json!({"tags": ["a", "b", "a"]}),
        &[("FieldValueDuplicate", "spec.tags[2]", "Duplicate value: \"a\"")],
    )
    .await;
}

async fn map_duplicates(s: Sandbox) {
    refused_for(
        &s,
        json!({"parts": [{"name": "x"}, {"name": "x", "count": 1}]}),
        &[("FieldValueDuplicate", "spec.parts[1]", "Duplicate value: {\"name\":\"x\"}")],
    )
    .await;
}

async fn one_of(s: Sandbox) {
    s.post(WIDGETS, widget("x", json!({"choice": {"left": "1"}}))).await.is(201);
    s.post(WIDGETS, widget("a", json!({"choice": {"left": "1", "right": "1"}}))).await.refused_about(
        422,
        "Invalid",
        "\"spec.choice\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
    );
    s.post(WIDGETS, widget("a", json!({"choice": {}}))).await.refused_about(
        422,
        "Invalid",
        "\"spec.choice\" must validate one and only one schema (oneOf)",
    );
}

async fn rules(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({"tags": ["forbidden"]}))).await.refused(422, "Invalid", "Widget.conformance.example.com \"a\" is invalid: spec: Invalid value: the tag 'forbidden' is not allowed");
}

async fn rule_messages(s: Sandbox) {
    refused_for(
        &s,
        json!({"window": {"low": "2", "high": "1"}}),
        &[("FieldValueForbidden", "spec.window.low", "Forbidden: low 2 is above high 1")],
    )
    .await;
    s.post(WIDGETS, widget("a", json!({"window": {"low": "1", "high": "2"}}))).await.is(201);
}

async fn transition_rules(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    s.post(WIDGETS, widget("a", json!({"fixed": "x"}))).await.is(201);
    s.merge(&path, json!({"spec": {"fixed": "y"}})).await.refused(422, "Invalid", "Widget.conformance.example.com \"a\" is invalid: spec.fixed: Invalid value: \"y\": fixed cannot be changed");
    s.merge(&path, json!({"spec": {"fixed": null}})).await.refused_about(
        422,
        "Invalid",
        "fixed cannot be removed",
    );
    s.merge(&path, json!({"spec": {"size": 3}})).await.is(200);
}

async fn transition_on_create(s: Sandbox) {
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    s.merge(&format!("{WIDGETS}/a"), json!({"spec": {"fixed": "first"}})).await.is(200);
}

async fn rules_on_patch(s: Sandbox) {
    let path = format!("{WIDGETS}/a");
    s.post(WIDGETS, widget("a", json!({}))).await.is(201);
    let tags = json!([{"op": "add", "path": "/spec/tags", "value": ["forbidden"]}]);
    s.json_patch(&path, tags).await.refused_about(422, "Invalid", "the tag 'forbidden' is not allowed");
    s.apply(&path, "me", widget("a", json!({"tags": ["forbidden"]}))).await.refused_about(
        422,
        "Invalid",
        "the tag 'forbidden' is not allowed",
    );
}

async fn all_problems(s: Sandbox) {
    let more = json!({"size": 0, "color": "pink", "enabled": 1});
    let answer = s.post(WIDGETS, widget("a", more)).await.is(422).blames(&[
        ("FieldValueInvalid", "spec.size"),
        ("FieldValueNotSupported", "spec.color"),
        ("FieldValueTypeInvalid", "spec.enabled"),
    ]);
    assert!(
        answer.at("/message").starts_with("Widget.conformance.example.com \"a\" is invalid: ["),
        "{}",
        answer.text()
    );
    // Two rules that are broken are told together, too.
    let both = json!({"tags": ["forbidden"], "window": {"low": "2", "high": "1"}});
    s.post(WIDGETS, widget("a", both)).await.is(422).causes(&[
        ("FieldValueForbidden", "spec.window.low", "Forbidden: low 2 is above high 1"),
        ("FieldValueInvalid", "spec", "Invalid value: the tag 'forbidden' is not allowed"),
    ]);
}

async fn missing_spec(s: Sandbox) {
    let object =
        json!({"apiVersion": "conformance.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
    s.post(WIDGETS, object)
        .await
        .refused_about(422, "Invalid", "spec: Required value")
        .blames(&[("FieldValueRequired", "spec")]);
}

async fn job_rules(s: Sandbox) {
    let job = with(training_job("a"), "/spec", json!({"numWorkers": 2}));
    s.post(JOBS, job).await.refused_about(422, "Invalid", "give image, or both model and dataset");
    let mut job = training_job("a");
    job["spec"]["workers"] = 2.into();
    s.post(JOBS, job).await.is(422);
    let job = training_job(&"x".repeat(51));
    s.post(JOBS, job).await.refused_about(422, "Invalid", "metadata.name must be at most 50 characters");
}

async fn job_immutable(s: Sandbox) {
    let mut job = training_job("a");
    job["spec"]["framework"] = "pytorch".into();
    s.post(JOBS, job).await.is(201);
    s.merge(&format!("{JOBS}/a"), json!({"spec": {"framework": "custom"}}))
        .await
        .refused_about(422, "Invalid", "TrainingJob.ml.example.com \"a\" is invalid: spec.framework: Invalid value: framework is immutable (it is pytorch)")
        .blames(&[("FieldValueInvalid", "spec.framework")]);
}
