//! The same random requests to two servers, whose answers must be the same.
//!
//! Cases say what is known to matter; this looks for what nobody thought of. What the servers choose
//! freely (uids, resourceVersions, times) is replaced by the order of its first appearance, so that
//! "unchanged" and "changed" still compare. A difference is shown with the requests that led to it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::Method;
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::fixtures::{WIDGETS, config_map, widget};
use crate::sandbox::{Sandbox, With};
use crate::target::Target;

/// Installs the custom resources of the suite on a server.
pub async fn prepare(target: &Target) {
    crate::fixtures::install(target).await;
}

/// Sends `steps` random requests, the same for the same seed, to both servers. Returns the first
/// difference, in words.
pub async fn difference(oracle: &Target, other: &Target, seed: u64, steps: usize) -> Option<String> {
    let namespace = format!("random-{seed}");
    let mut oracle = Side::new(Sandbox::create(oracle, &namespace).await);
    let mut other = Side::new(Sandbox::create(other, &namespace).await);
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut story = String::new();
    for number in 1..=steps {
        let step = Step::any(&mut random);
        let _ = writeln!(story, "{number:3} {} {} {}", step.method, step.path, step.body);
        let expected = oracle.take(&step).await;
        let actual = other.take(&step).await;
        if expected != actual && !both_refuse(&expected, &actual) {
            let places = places(&expected, &actual, "");
            return Some(format!(
                "seed {seed}, step {number}\n{story}differs at {places}\nexpected: {expected}\nactual:   {actual}\n"
            ));
        }
    }
    None
}

/// One server, with what it has told so far.
struct Side {
    sandbox: Sandbox,
    /// The resourceVersions of an object, by path, in the order of their appearance.
    versions: BTreeMap<String, Vec<String>>,
    /// What stands for the server's own values.
    names: BTreeMap<String, String>,
}

/// A request in which `@new` and `@old` stand for resourceVersions of the object.
struct Step {
    method: Method,
    path: String,
    content_type: &'static str,
    body: Value,
}

impl Side {
    fn new(sandbox: Sandbox) -> Self {
        Self { sandbox, versions: BTreeMap::new(), names: BTreeMap::new() }
    }

    async fn take(&mut self, step: &Step) -> Value {
        let object = object_path(&step.path);
        let seen = self.versions.get(&object).cloned().unwrap_or_default();
        let newest = seen.last().cloned().unwrap_or_else(|| "1".into());
        let oldest = seen.first().cloned().unwrap_or_else(|| "1".into());
        let text = if step.body.is_null() { String::new() } else { step.body.to_string() };
        let text = text.replace("@new", &newest).replace("@old", &oldest);
        let with = With::content(step.content_type);
        let answer = self.sandbox.ask(step.method.clone(), &step.path, text, with).await;
        if let Some(version) = answer.body().pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            let seen = self.versions.entry(object).or_default();
            if answer.body().get("items").is_none() && seen.last().is_none_or(|last| last != version) {
                seen.push(version.to_owned());
            }
        }
        self.described(&answer)
    }

    /// The answer without what a server chooses freely.
    fn described(&mut self, answer: &Answer) -> Value {
        let mut body = answer.body().clone();
        if body["items"].is_array() {
            // The version of a list counts the writes of everybody, and so does its continue token.
            body["metadata"] = json!({"remainingItemCount": body["metadata"]["remainingItemCount"]});
        }
        let metadata = &mut body["metadata"];
        if metadata["deletionTimestamp"].is_string() && metadata["finalizers"].is_null() {
            // The last words of an object that is gone now; nobody can use their version.
            metadata["resourceVersion"] = Value::Null;
        }
        self.neutralize(&mut body);
        if body["kind"] == "Status" {
            body = Self::described_status(&body);
        }
        // A refusal needs no warnings.
        let mut warnings = if answer.status() < 300 { answer.warnings() } else { Vec::new() };
        warnings.sort();
        json!({"code": answer.status(), "body": body, "warnings": warnings})
    }

    fn described_status(status: &Value) -> Value {
        let message = status["message"].as_str().unwrap_or_default();
        // A JSON patch that fails: a server may say more about it.
        if message == "the server rejected our request due to an error in our request" {
            return json!({"kind": "Status", "reason": status["reason"], "message": message});
        }
        let mut causes: Vec<String> = Vec::new();
        for cause in status["details"]["causes"].as_array().cloned().unwrap_or_default() {
            let field = cause["field"].as_str().unwrap_or_default();
            // The cause of a patch that cannot be decoded shows the whole object.
            let text = if field == "patch" { "" } else { cause["message"].as_str().unwrap_or_default() };
            // Remarks of the scale subresource and about rules that were not evaluated are no causes.
            if field != "<nil>" && !field.starts_with(".spec") && !field.starts_with(".status")
                || cause["reason"] == "FieldManagerConflict"
            {
                // A status is validated alone, so that paths in its messages begin inside it.
                causes.push(format!("{} {field} {}", cause["reason"], shown(text).replace("status.", "")));
            }
        }
        causes.sort();
        causes.dedup();
        // The order of several causes in a message is that of a hash map.
        let message = if causes.is_empty() { without_versions(&shown(message)) } else { String::new() };
        json!({"kind": "Status", "reason": status["reason"], "message": message, "causes": causes})
    }

    fn neutralize(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    match key.as_str() {
                        "uid" | "resourceVersion" if value.is_string() => {
                            let number = self.names.len();
                            let known = self
                                .names
                                .entry(value.to_string())
                                .or_insert_with(|| format!("{key}-{number}"));
                            *value = known.clone().into();
                        }
                        "creationTimestamp" | "deletionTimestamp" | "time" if value.is_string() => {
                            *value = "T".into();
                        }
                        "managedFields" => sort_managers(value),
                        _ => {}
                    }
                    self.neutralize(value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.neutralize(item)),
            _ => {}
        }
    }
}

/// Whether an apply failed on both sides for a reason that a kube-apiserver blames on itself: it answers
/// 500 to an applied object that does not fit the schema, where 400 and 422 are as good.
fn both_refuse(expected: &Value, actual: &Value) -> bool {
    let message = expected["body"]["message"].as_str().unwrap_or_default();
    message.starts_with("failed to create typed patch object")
        && actual["code"].as_u64().is_some_and(|code| code >= 400)
}

/// Messages without what only names parts of a Go program.
fn shown(message: &str) -> String {
    for start in ["json: cannot unmarshal", "patch: Invalid value: "] {
        if let Some(at) = message.find(start) {
            return message[..at].to_owned();
        }
    }
    message.to_owned()
}

/// Messages without resourceVersions, which stand in brackets.
fn without_versions(message: &str) -> String {
    let version = |part: &str| part.bytes().take_while(u8::is_ascii_digit).count();
    let mut parts = message.split('(');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = version(part);
        text.push('(');
        text.push_str(if digits > 0 && part[digits..].starts_with(')') { &part[digits..] } else { part });
    }
    text
}

fn sort_managers(value: &mut Value) {
    if let Some(entries) = value.as_array_mut() {
        // Not every entry of a subresource has a time.
        for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        entries.sort_by_key(|entry| {
            format!("{} {} {}", entry["manager"], entry["operation"], entry["subresource"])
        });
    }
}

/// The object that a path is about, without subresource and query.
fn object_path(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    path.trim_end_matches("/status").trim_end_matches("/scale").to_owned()
}

/// Where two answers differ.
fn places(expected: &Value, actual: &Value, path: &str) -> String {
    match (expected, actual) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
            let found: Vec<String> = keys
                .into_iter()
                .filter(|key| left.get(*key) != right.get(*key))
                .map(|key| {
                    let none = Value::Null;
                    places(
                        left.get(key).unwrap_or(&none),
                        right.get(key).unwrap_or(&none),
                        &format!("{path}.{key}"),
                    )
                })
                .collect();
            found.join("; ")
        }
        _ => format!("{path}: {expected} / {actual}"),
    }
}

/// A small generator of numbers, so that a seed tells the whole run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap_or_default()
    }

    fn one_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl Step {
    fn new(method: Method, path: String, content_type: &'static str, body: Value) -> Self {
        Self { method, path, content_type, body }
    }

    fn any(random: &mut Random) -> Self {
        if random.one_in(12) {
            let collection = random.pick(&["configmaps", WIDGETS, "conformance.example.com/v1beta1/widgets"]);
            let query =
                random.pick(&["x", "!x", "x=1", "x!=1", "x in (1,2),y", "y notin (1)", "x=1,", "x in 1"]);
            let field = random.pick(&[
                "",
                "&fieldSelector=metadata.name!=a,metadata.name!=kube-root-ca.crt",
                "&limit=1",
            ]);
            // Not the config map that a controller puts into every namespace.
            let others = if collection == "configmaps" && !field.contains("root") {
                "&fieldSelector=metadata.name!=kube-root-ca.crt"
            } else {
                ""
            };
            let path = format!("{collection}?labelSelector={query}{field}{others}");
            return Self::new(Method::GET, path, "application/json", Value::Null);
        }
        let name = random.pick(&["a", "b"]);
        if random.one_in(3) { Self::on_config_map(random, name) } else { Self::on_widget(random, name) }
    }

    fn on_config_map(random: &mut Random, name: &str) -> Self {
        let path = format!("configmaps/{name}");
        let mut object = config_map(name);
        object["data"] = texts(random, &["a", "b", "c"]);
        metadata(random, &mut object);
        match random.below(9) {
            0 => Self::new(Method::POST, format!("configmaps{}", query(random)), "application/json", object),
            1 => {
                version(random, &mut object);
                Self::new(Method::PUT, path, "application/json", object)
            }
            2 => {
                let content = random.pick(&[MERGE, "application/strategic-merge-patch+json"]);
                let mut changes = json!({"data": nullable_texts(random, &["a", "b", "c"])});
                metadata(random, &mut changes);
                version(random, &mut changes);
                Self::new(Method::PATCH, path, content, changes)
            }
            3 => Self::new(
                Method::PATCH,
                path,
                "application/json-patch+json",
                operations(
                    random,
                    &[
                        "/data/a",
                        "/data/b",
                        "/data",
                        "/metadata/labels/x",
                        "/metadata/labels",
                        "/metadata/finalizers",
                        "/metadata/annotations",
                    ],
                ),
            ),
            4..=6 => Self::new(Method::PATCH, format!("{path}{}", manager(random)), APPLY, object),
            7 => delete(random, path),
            _ => Self::new(Method::GET, path, "application/json", Value::Null),
        }
    }

    fn on_widget(random: &mut Random, name: &str) -> Self {
        let path = format!("{WIDGETS}/{name}");
        let mut object = widget(name, json!({}));
        object["spec"] = spec(random, false);
        metadata(random, &mut object);
        if random.one_in(4) {
            object["status"] = status(random);
        }
        match random.below(14) {
            0 | 1 => {
                Self::new(Method::POST, format!("{WIDGETS}{}", query(random)), "application/json", object)
            }
            2 | 3 => {
                version(random, &mut object);
                Self::new(Method::PUT, path, "application/json", object)
            }
            4 | 5 => {
                let mut changes = json!({"spec": spec(random, true)});
                metadata(random, &mut changes);
                version(random, &mut changes);
                Self::new(Method::PATCH, format!("{path}{}", query(random)), MERGE, changes)
            }
            6 => Self::new(
                Method::PATCH,
                path,
                "application/json-patch+json",
                operations(
                    random,
                    &[
                        "/spec/size",
                        "/spec/tags",
                        "/spec/tags/0",
                        "/spec/tags/-",
                        "/spec/parts/0",
                        "/spec/parts",
                        "/spec/labels/x",
                        "/spec/nested",
                        "/spec/nested/level",
                        "/spec/free",
                        "/spec",
                        "/metadata/labels",
                    ],
                ),
            ),
            7..=10 => {
                // Unknown fields and nulls have cases of their own.
                if let Some(spec) = object["spec"].as_object_mut() {
                    spec.retain(|key, value| key != "unknown" && !value.is_null());
                }
                Self::new(Method::PATCH, format!("{path}{}", manager(random)), APPLY, object)
            }
            11 => {
                let mut object = json!({"apiVersion": "conformance.example.com/v1", "kind": "Widget", "metadata": {"name": name}});
                object["status"] = status(random);
                match random.below(3) {
                    0 => Self::new(Method::PATCH, format!("{path}/status{}", manager(random)), APPLY, object),
                    1 => Self::new(
                        Method::PATCH,
                        format!("{path}/status"),
                        MERGE,
                        json!({"status": object["status"], "spec": {"size": 3}}),
                    ),
                    _ => {
                        object["metadata"]["resourceVersion"] = random.pick(&["@new", "@new", "@old"]).into();
                        Self::new(Method::PUT, format!("{path}/status"), "application/json", object)
                    }
                }
            }
            12 => {
                let replicas = random.pick(&[json!(2), json!(4), json!(0), json!(11)]);
                Self::new(
                    Method::PATCH,
                    format!("{path}/scale"),
                    MERGE,
                    json!({"spec": {"replicas": replicas}}),
                )
            }
            _ => match random.below(3) {
                0 => delete(random, path),
                1 => Self::new(Method::GET, path, "application/json", Value::Null),
                _ => Self::new(Method::GET, format!("{path}/scale"), "application/json", Value::Null),
            },
        }
    }
}

fn texts(random: &mut Random, keys: &[&str]) -> Value {
    let mut map = Map::new();
    for key in keys {
        if random.one_in(2) {
            map.insert((*key).to_owned(), random.pick(&["1", "2", ""]).into());
        }
    }
    Value::Object(map)
}

fn nullable_texts(random: &mut Random, keys: &[&str]) -> Value {
    let mut map = texts(random, keys);
    for key in keys {
        if random.one_in(4) {
            map[*key] = Value::Null;
        }
    }
    map
}

fn metadata(random: &mut Random, object: &mut Value) {
    if random.one_in(3) {
        object["metadata"]["labels"] = texts(random, &["x", "y"]);
    }
    if random.one_in(6) {
        object["metadata"]["annotations"] = texts(random, &["x", "y"]);
    }
    if random.one_in(20) {
        object["metadata"]["labels"] = json!({"not ok": "1"});
    }
    if random.one_in(12) {
        object["metadata"]["finalizers"] = random.pick(&[
            json!([]),
            json!(["example.com/one"]),
            json!(["example.com/one", "example.com/two"]),
        ]);
    }
}

fn version(random: &mut Random, object: &mut Value) {
    match random.below(6) {
        0 => object["metadata"]["resourceVersion"] = "@old".into(),
        1..=3 => object["metadata"]["resourceVersion"] = "@new".into(),
        _ => {}
    }
}

fn query(random: &mut Random) -> &'static str {
    random.pick(&[
        "",
        "",
        "",
        "?fieldValidation=Strict",
        "?dryRun=All",
        "?fieldManager=hand",
        "?fieldManager=hand&fieldValidation=Ignore",
    ])
}

fn manager(random: &mut Random) -> &'static str {
    random.pick(&[
        "?fieldManager=one",
        "?fieldManager=one&force=true",
        "?fieldManager=two",
        "?fieldManager=two&force=true",
        "?fieldManager=three&force=true",
        "?fieldManager=one&dryRun=All&force=true",
    ])
}

fn delete(random: &mut Random, path: String) -> Step {
    let body = match random.below(4) {
        0 => {
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": "@old"}})
        }
        1 => json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}),
        _ => Value::Null,
    };
    Step::new(Method::DELETE, path, "application/json", body)
}

fn operations(random: &mut Random, paths: &[&str]) -> Value {
    let count = 1 + random.below(3);
    let any = |random: &mut Random| {
        let value = random.pick(&[
            json!("1"),
            json!(2),
            json!({"x": "1"}),
            json!([]),
            json!({"name": "p"}),
            Value::Null,
        ]);
        let path = random.pick(paths);
        match random.below(4) {
            0 => json!({"op": "add", "path": path, "value": value}),
            1 => json!({"op": "replace", "path": path, "value": value}),
            2 => json!({"op": "remove", "path": path}),
            _ => json!({"op": "test", "path": path, "value": value}),
        }
    };
    Value::Array((0..count).map(|_| any(random)).collect())
}

fn status(random: &mut Random) -> Value {
    let mut status = json!({"phase": random.pick(&["One", "Two"])});
    if random.one_in(2) {
        status["replicas"] = random.pick(&[json!(1), json!(2), json!(-1)]);
    }
    if random.one_in(2) {
        let kinds = random.pick(&[vec!["A"], vec!["B"], vec!["A", "B"], vec!["A", "A"]]);
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        status["conditions"] = kinds.into_iter().map(condition).collect();
    }
    status
}

/// A spec of which most are valid. Where a kube-apiserver contradicts itself there is nothing to compare:
/// an applied `{}` over a field whose content is given up becomes a null that it then refuses.
fn spec(random: &mut Random, patch: bool) -> Value {
    let mut spec = Map::new();
    if !patch || random.one_in(2) {
        let size = random.pick(&[
            json!(1),
            json!(1),
            json!(5),
            json!(5),
            json!(5),
            json!(10),
            json!(0),
            json!("big"),
        ]);
        spec.insert("size".into(), size);
    }
    let choices: [(&str, &[&str]); 13] = [
        ("color", &["\"red\"", "\"blue\"", "\"blue\"", "\"pink\"", "null"]),
        ("code", &["\"abc\"", "\"xyz\"", "\"toolong\"", "\"A\""]),
        (
            "tags",
            &["[\"a\"]", "[\"a\",\"b\"]", "[\"b\",\"c\"]", "[]", "[\"a\",\"a\"]", "[\"forbidden\"]", "null"],
        ),
        (
            "parts",
            &[
                "[{\"name\":\"p\"}]",
                "[{\"name\":\"p\",\"count\":1},{\"name\":\"q\"}]",
                "[{\"name\":\"q\",\"note\":\"n\"}]",
                "[{\"name\":\"r\",\"count\":2},{\"name\":\"p\",\"count\":2}]",
                "[]",
                "[{\"count\":1}]",
            ],
        ),
        ("atoms", &["[{\"name\":\"x\"}]", "[{\"name\":\"y\",\"value\":\"1\"}]", "[]"]),
        ("labels", &["{\"x\":\"1\"}", "{\"y\":\"2\"}", "{\"x\":\"2\",\"y\":\"2\"}", "{\"x\":1}"]),
        ("atomicMap", &["{\"x\":\"1\"}", "{\"y\":\"2\"}"]),
        ("nested", &["{\"level\":1}", "{\"level\":3,\"deep\":{\"on\":false}}", "{\"deep\":{}}", "null"]),
        ("free", &["{\"a\":{\"b\":1}}", "{\"a\":{\"c\":[1,2]}}", "{\"d\":null}"]),
        ("maybe", &["null", "\"x\""]),
        ("window", &["{\"low\":\"1\",\"high\":\"2\"}", "{\"low\":\"3\",\"high\":\"2\"}", "{\"low\":\"1\"}"]),
        ("fixed", &["\"x\"", "\"x\"", "\"x\"", "\"y\""]),
        ("unknown", &["1"]),
    ];
    for (key, values) in choices {
        if random.one_in(5) {
            spec.insert(
                key.to_owned(),
                serde_json::from_str(random.pick(values)).expect("the table is JSON"),
            );
        }
    }
    Value::Object(spec)
}
