//! Several clients at once: who wins, and what a watcher makes of it.

use std::collections::BTreeMap;

use futures::future::join_all;
use serde_json::{Value, json};

use super::cases;
use crate::answer::Answer;
use crate::fixtures::{WIDGETS, config_map, widget, with};
use crate::sandbox::Sandbox;

const CLIENTS: usize = 8;

cases! { "concurrent":
    "of many creates of one name, one wins" => creates,
    "of many PUTs of one version, one wins" => puts,
    "patches of different fields all win" => patches,
    "patches with one resourceVersion: one wins" => patches_with_version,
    "many creates with generateName make as many objects" => generated,
    "list and watch lead to the same state as the last list" => list_and_watch,
    "several watchers see the same events in the same order" => same_order,
    "resourceVersions of events rise" => versions_rise,
    "a version is either before or after a write, never half of it" => whole_writes,
}

/// How many answers had which code.
fn codes(answers: &[Answer]) -> BTreeMap<u16, usize> {
    let mut codes = BTreeMap::new();
    for answer in answers {
        *codes.entry(answer.status()).or_default() += 1;
    }
    codes
}

async fn creates(s: Sandbox) {
    let answers = join_all((0..CLIENTS).map(|_| s.post("configmaps", config_map("a")))).await;
    assert_eq!(codes(&answers), [(201, 1), (409, CLIENTS - 1)].into());
}

async fn puts(s: Sandbox) {
    let made = s.post("configmaps", config_map("a")).await.is(201);
    let put = |number: usize| {
        s.put("configmaps/a", with(made.body().clone(), "/data/a", json!(format!("n{number}"))))
    };
    let answers = join_all((0..CLIENTS).map(put)).await;
    assert_eq!(codes(&answers), [(200, 1), (409, CLIENTS - 1)].into());
    let winner = answers.iter().find(|answer| answer.status() == 200).expect("a winner");
    assert_eq!(s.get("configmaps/a").await.is(200).body(), winner.body());
}

async fn patches(s: Sandbox) {
    s.post("configmaps", config_map("a")).await.is(201);
    let patches: Vec<Value> =
        (0..CLIENTS).map(|number| json!({"data": {format!("k{number}"): "x"}})).collect();
    let answers = join_all(patches.into_iter().map(|patch| s.merge("configmaps/a", patch))).await;
    assert_eq!(codes(&answers), [(200, CLIENTS)].into());
    let read = s.get("configmaps/a").await.is(200);
    assert_eq!(
        read.body()["data"].as_object().map(serde_json::Map::len),
        Some(CLIENTS + 1),
        "{}",
        read.text()
    );
}

async fn patches_with_version(s: Sandbox) {
    let version = s.post(WIDGETS, widget("a", json!({}))).await.is(201).version();
    let path = format!("{WIDGETS}/a");
    let change = |number: usize| {
        s.merge(
            &path,
            json!({"metadata": {"resourceVersion": version}, "spec": {"labels": {"n": format!("{number}")}}}),
        )
    };
    let answers = join_all((0..CLIENTS).map(change)).await;
    assert_eq!(codes(&answers), [(200, 1), (409, CLIENTS - 1)].into());
}

async fn generated(s: Sandbox) {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "x-"}});
    let answers = join_all((0..CLIENTS).map(|_| s.post("secrets", object.clone()))).await;
    assert_eq!(codes(&answers), [(201, CLIENTS)].into());
    let list = s.get("secrets").await.is(200);
    assert_eq!(list.names().len(), CLIENTS, "{}", list.text());
}

/// Eight clients create, change and delete widgets of their own, in a different order each.
async fn commotion(s: &Sandbox) {
    let client = |number: usize| {
        let s = s.clone();
        async move {
            for round in 0..6 {
                let name = format!("w-{number}-{round}");
                s.post(WIDGETS, widget(&name, json!({}))).await.is(201);
                let path = format!("{WIDGETS}/{name}");
                s.merge(&path, json!({"spec": {"size": 1 + (number + round) % 9}})).await.is(200);
                if (number + round).is_multiple_of(3) {
                    s.delete(&path).await.is(200);
                }
                if (number + round) % 3 == 1 {
                    s.merge(&format!("{path}/status"), json!({"status": {"phase": "Done"}})).await.is(200);
                }
            }
        }
    };
    join_all((0..CLIENTS).map(client)).await;
}

async fn list_and_watch(s: Sandbox) {
    s.post(WIDGETS, widget("before", json!({}))).await.is(201);
    let list = s.get(WIDGETS).await.is(200);
    let mut state: BTreeMap<String, Value> = BTreeMap::new();
    for item in list.body()["items"].as_array().cloned().unwrap_or_default() {
        state.insert(item["metadata"]["name"].to_string(), item);
    }
    let mut watch = s.watch(&format!("{WIDGETS}?resourceVersion={}", list.version())).await;
    commotion(&s).await;
    s.post(WIDGETS, widget("last", json!({}))).await.is(201);
    loop {
        let event = watch.next().await;
        let name = event.object["metadata"]["name"].to_string();
        let done = event.object["metadata"]["name"] == "last";
        let known = state.remove(&name).is_some();
        match event.kind.as_str() {
            "ADDED" => assert!(!known, "{name} was there already"),
            "MODIFIED" | "DELETED" => assert!(known, "{name} was not there"),
            other => panic!("{other}: {event:?}"),
        }
        if event.kind != "DELETED" {
            state.insert(name, event.object);
        }
        if done {
            break;
        }
    }
    let items = s.get(WIDGETS).await.is(200).body()["items"].as_array().cloned().unwrap_or_default();
    let expected: BTreeMap<String, Value> =
        items.into_iter().map(|item| (item["metadata"]["name"].to_string(), item)).collect();
    assert_eq!(state, expected);
}

/// What a watcher sees until the object `last` comes.
async fn story(s: &Sandbox, version: &str) -> Vec<(String, String, String)> {
    let mut watch = s.watch(&format!("{WIDGETS}?resourceVersion={version}")).await;
    let mut story = Vec::new();
    loop {
        let event = watch.next().await;
        let name = event.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let last = name == "last";
        story.push((event.kind.clone(), name, event.version()));
        if last {
            return story;
        }
    }
}

async fn same_order(s: Sandbox) {
    let version = s.get(WIDGETS).await.is(200).version();
    let work = async {
        commotion(&s).await;
        s.post(WIDGETS, widget("last", json!({}))).await.is(201);
    };
    let (one, two, ()) = futures::join!(story(&s, &version), story(&s, &version), work);
    assert_eq!(one, two);
    // And whoever comes late is told the same.
    assert_eq!(story(&s, &version).await, one);
}

async fn versions_rise(s: Sandbox) {
    let version = s.get(WIDGETS).await.is(200).version();
    commotion(&s).await;
    s.post(WIDGETS, widget("last", json!({}))).await.is(201);
    let versions: Vec<u64> =
        story(&s, &version).await.iter().map(|(_, _, version)| version.parse().expect("a number")).collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
}

async fn whole_writes(s: Sandbox) {
    s.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"x": "0", "y": "0"}})).await.is(201);
    let write = async {
        for number in 1..40 {
            let number = number.to_string();
            s.merge("configmaps/a", json!({"data": {"x": number, "y": number}})).await.is(200);
        }
    };
    let read = async {
        for _ in 0..40 {
            let answer = s.get("configmaps/a").await.is(200);
            assert_eq!(answer.body()["data"]["x"], answer.body()["data"]["y"], "{}", answer.text());
        }
    };
    futures::join!(write, read);
}
