//! What a real API server answered (Kubernetes 1.36, see `recorded/README.md`), replayed.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trainyard_objects::{Manager, PatchError, Schema, Shape, apply, error, patch, track};

fn recorded(text: &str) -> (Schema, Vec<Value>) {
    let recorded: Value = serde_json::from_str(text).unwrap();
    let schema =
        Schema::compile(&recorded["schema"]).unwrap_or_else(|errors| panic!("{}", error::joined(&errors)));
    (schema, recorded["cases"].as_array().unwrap().clone())
}

fn thing(spec: &Value) -> Value {
    json!({"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec})
}

/// As a request is handled: pruned, defaulted, validated.
fn admitted(schema: &Schema, spec: &Value, old: Option<&Value>) -> Result<Value, BTreeSet<String>> {
    let mut object = thing(spec);
    schema.prune(&mut object);
    schema.default(&mut object);
    let errors = schema.validate(&object, old);
    if errors.is_empty() { Ok(object) } else { Err(errors.iter().map(ToString::to_string).collect()) }
}

fn replay(schema: &Schema, cases: &[Value], stored: impl Fn(&Value) -> Value) -> Vec<String> {
    let mut differences = Vec::new();
    for case in cases {
        let old = case.get("old").map(&stored);
        let ours = admitted(schema, &case["spec"], old.as_ref());
        let shown = |ours: &BTreeSet<String>| ours.iter().cloned().collect::<Vec<_>>().join(", ");
        match (case.get("refused").and_then(Value::as_str), ours) {
            (Some(refused), Err(ours)) => {
                // The server walks maps in no order, so the order of its complaints means nothing.
                let many =
                    refused.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(refused);
                let mut rest = many.to_owned();
                for complaint in &ours {
                    match rest.find(complaint.as_str()) {
                        Some(at) => rest.replace_range(at..at + complaint.len(), ""),
                        None => differences
                            .push(format!("{}\n  ours:   {complaint}\n  theirs: {refused}", case["spec"])),
                    }
                }
                if !rest.trim_matches([',', ' ']).is_empty() {
                    differences.push(format!(
                        "{}\n  ours: {}\n  missing: {rest}",
                        case["spec"],
                        shown(&ours)
                    ));
                }
            }
            (None, Ok(object)) => {
                if let Some(accepted) = case.get("accepted")
                    && object["spec"] != *accepted
                {
                    differences.push(format!(
                        "{}\n  ours:   {}\n  theirs: {accepted}",
                        case["spec"], object["spec"]
                    ));
                }
            }
            (Some(refused), Ok(_)) => {
                differences.push(format!("{}\n  accepted, theirs: {refused}", case["spec"]));
            }
            (None, Err(ours)) => {
                differences.push(format!("{}\n  ours: {}, theirs: accepted", case["spec"], shown(&ours)));
            }
        }
    }
    differences
}

#[test]
fn objects_are_accepted_and_refused_as_recorded() {
    let (schema, cases) = recorded(include_str!("recorded/validation.json"));
    assert!(cases.len() > 100);
    let stored = |old: &Value| admitted(&schema, old, None).unwrap();
    let differences = replay(&schema, &cases, stored);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn what_was_wrong_before_is_let_through_as_recorded() {
    let (schema, cases) = recorded(include_str!("recorded/ratcheting.json"));
    let differences = replay(&schema, &cases, thing);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn schemas_are_refused_as_recorded() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("recorded/definitions.json")).unwrap();
    let mut differences = Vec::new();
    for case in &cases {
        let mut theirs: Vec<(&str, &str)> = case["refused"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cause| (cause["path"].as_str().unwrap(), cause["message"].as_str().unwrap()))
            .collect();
        let errors = Schema::compile(&case["schema"]).err().unwrap_or_default();
        let mut ours: Vec<(&str, String)> =
            errors.iter().map(|error| (error.path.as_str(), error.body())).collect();
        theirs.sort_unstable();
        ours.sort_unstable();
        // What follows in our compilers' own words is not compared.
        let same = ours.len() == theirs.len()
            && ours.iter().zip(&theirs).all(|(ours, theirs)| {
                // JSON from Go has the fields of a struct in its order.
                let words = |text: &str| text.split_once("}: ").map_or(text, |(_, rest)| rest).to_owned();
                ours.0 == theirs.0 && words(&ours.1).starts_with(&words(theirs.1))
            });
        if !same {
            differences.push(format!("{}\n  ours:   {ours:?}\n  theirs: {theirs:?}", case["schema"]));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn patches_are_applied_and_refused_as_recorded() {
    let recorded: Value = serde_json::from_str(include_str!("recorded/patches.json")).unwrap();
    let deployments = Shape::builtin("apps", "Deployment");
    let mut differences = Vec::new();
    for case in recorded["cases"].as_array().unwrap() {
        let target = &recorded[case["kind"].as_str().unwrap()];
        let (result, same): (_, fn(&Value, &Value) -> bool) = match case["how"].as_str().unwrap() {
            "json" => (patch::json(target, &case["patch"]), |ours, theirs| {
                let text = |value: &Value| if value.is_null() { json!("") } else { value.clone() };
                let data =
                    ours["data"].as_object().unwrap().iter().map(|(key, value)| (key.clone(), text(value)));
                Value::Object(data.collect()) == theirs["data"]
                    && ours["metadata"]["finalizers"] == theirs["finalizers"]
            }),
            _ => (patch::strategic(target, &case["patch"], &deployments), |ours, theirs| {
                same_but_defaults(&ours["spec"]["template"]["spec"], theirs)
            }),
        };
        let fits = match (&result, case.get("result")) {
            (Ok(ours), Some(theirs)) => same(ours, theirs),
            (Err(ours), None) => {
                // Some mistakes of clients the real server takes for its own.
                let codes: &[u64] = match ours {
                    PatchError::Malformed(_) => &[400, 500],
                    PatchError::Unapplicable(_) => &[422],
                };
                codes.contains(&case["code"].as_u64().unwrap())
                    && case.get("refused").is_none_or(|theirs| *theirs == ours.to_string())
            }
            _ => false,
        };
        if !fits {
            differences.push(format!("{}\n  ours: {result:?}\n  theirs: {case}", case["patch"]));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// Equality but for the defaults that the server adds to what is new.
fn same_but_defaults(ours: &Value, theirs: &Value) -> bool {
    const DEFAULTS: [&str; 6] = [
        "imagePullPolicy",
        "resources",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "protocol",
        "type",
    ];
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            // The server's own types leave out lists that are empty.
            let left_out = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
            let said = |(name, ours): (&String, &Value)| match theirs.get(name) {
                Some(theirs) => same_but_defaults(ours, theirs),
                None => left_out(ours),
            };
            ours.iter().all(said)
                && theirs.keys().all(|name| ours.contains_key(name) || DEFAULTS.contains(&name.as_str()))
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| same_but_defaults(ours, theirs))
        }
        _ => ours == theirs,
    }
}

/// The lives of some objects: what was sent and what came of it, with `managedFields` to the letter.
#[test]
fn fields_are_owned_and_merged_as_recorded() {
    let recorded: Value = serde_json::from_str(include_str!("recorded/ownership.json")).unwrap();
    let things = Schema::compile(&recorded["schema"]).unwrap();
    let mut differences = Vec::new();
    for life in recorded["lives"].as_array().unwrap() {
        let (group, kind) = (life["group"].as_str().unwrap(), life["kind"].as_str().unwrap());
        let shape = if kind == "Thing" { things.shape().clone() } else { Shape::builtin(group, kind) };
        let mut live: Option<Value> = None;
        for (number, step) in life["steps"].as_array().unwrap().iter().enumerate() {
            let at = format!("{kind}, step {number} ({} by {})", step["op"], step["manager"]);
            let (ours, theirs) = if let Some(theirs) = step.get("result") {
                let ours = replayed(step, live.as_ref(), theirs, &shape, kind, &things);
                live = Some(theirs.clone());
                (ours.to_string(), theirs.to_string())
            } else {
                let theirs = step["refused"].as_str().unwrap();
                let manager = manager(step, "2020-01-01T00:00:00Z", &step["body"]);
                let ours = apply(live.as_ref(), &step["body"], &manager, step["force"] == true, &shape);
                (ours.map_or_else(|error| error.to_string(), |object| object.to_string()), theirs.to_owned())
            };
            if ours != theirs {
                differences.push(format!("{at}\n  ours:   {ours}\n  theirs: {theirs}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

fn manager<'a>(step: &'a Value, time: &'a str, object: &'a Value) -> Manager<'a> {
    Manager {
        name: step["manager"].as_str().unwrap(),
        api_version: object["apiVersion"].as_str().unwrap(),
        subresource: step["subresource"].as_str().unwrap_or_default(),
        time,
    }
}

fn replayed(
    step: &Value,
    live: Option<&Value>,
    theirs: &Value,
    shape: &Shape,
    kind: &str,
    things: &Schema,
) -> Value {
    // The time at which the request came is that of its entry, if it left one.
    let operation = if step["op"] == "apply" { "Apply" } else { "Update" };
    let time = theirs["metadata"]["managedFields"].as_array().into_iter().flatten().find(|entry| {
        entry["manager"] == step["manager"]
            && entry["operation"] == operation
            && entry.get("subresource") == step.get("subresource")
    });
    let time = time.and_then(|entry| entry["time"].as_str()).unwrap_or("2050-01-01T00:00:00Z");
    let manager = manager(step, time, theirs);
    if operation == "Apply" {
        let mut ours = apply(live, &step["body"], &manager, step["force"] == true, shape).unwrap();
        if kind == "Thing" {
            things.default(&mut ours);
        } else {
            // Built-in kinds have defaults of their own: only the ownership is compared.
            let owned = ours["metadata"]["managedFields"].take();
            ours = theirs.clone();
            ours["metadata"]["managedFields"] = owned;
        }
        return ours;
    }
    // What was stored, with the ownership that the request brought.
    let mut new = theirs.clone();
    let brought = match step.get("sent") {
        Some(sent) => Some(sent),
        None => live.and_then(|live| live["metadata"].get("managedFields")),
    };
    match brought {
        Some(brought) => new["metadata"]["managedFields"] = brought.clone(),
        None => drop(new["metadata"].as_object_mut().unwrap().remove("managedFields")),
    }
    track(live, &mut new, &manager, shape);
    new
}
