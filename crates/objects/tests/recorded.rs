//! What a real API server answered (Kubernetes 1.36, see `recorded/README.md`), replayed.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trainyard_objects::{Schema, error};

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
                differences.push(format!("{}\n  accepted, theirs: {refused}", case["spec"]))
            }
            (None, Err(ours)) => {
                differences.push(format!("{}\n  ours: {}, theirs: accepted", case["spec"], shown(&ours)))
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
