//! The scenarios of the library: how they end, and some of the places where they are disturbed. `cargo xtask test` disturbs them at all.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use trainyard_sim::scenario::{Disturbance, Scenario, compare, disturbances, end_of, library, replay, tell};
use trainyard_sim::{Count, Delivery, Make, World};

/// Every so many disturbances are tried here. Not a divisor of anything: so it is another fault at every place.
const STRIDE: usize = 29;

#[test]
fn undisturbed_scenarios_end_as_they_say() {
    for scenario in library() {
        let world = tell(&scenario, Disturbance::None, Make::default(), false);
        assert_eq!(world.state("bert"), scenario.end, "{}", scenario.name);
        assert!(world.calls() > 4, "{}", scenario.name);
        assert_eq!(world.exists("bert"), scenario.end.is_some(), "{}", scenario.name);
    }
}

/// What an undisturbed scenario does: a bug that is in every telling of it, disturbed or not, shows here and nowhere else.
fn summary(scenario: &Scenario, world: &World) -> String {
    let end = end_of(world);
    let mut summary = String::new();
    let status = end.status.unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    writeln!(summary, "{}: {}", scenario.name, text(&status["state"])).unwrap();
    writeln!(summary, "  {} calls, {} statuses written", world.calls(), world.status_writes()).unwrap();
    if !status.is_null() {
        writeln!(summary, "  restarts: {}; {}", status["restarts"], text(&status["message"])).unwrap();
    }
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let [kind, is, why] = ["type", "status", "reason"].map(|part| text(&condition[part]));
        writeln!(summary, "  {kind}: {is}, {why}").unwrap();
    }
    for ((kind, name), Count { creates, deletes, .. }) in end.tally {
        let [to_create, to_delete] = end.asks.get(&(kind, name.clone())).copied().unwrap_or_default();
        let asked = (creates, deletes) != (to_create, to_delete) && kind != "budget";
        let asked =
            if asked { format!(", asked for {to_create} and {to_delete} times") } else { String::new() };
        writeln!(summary, "  {kind} {name}: made {creates}, removed {deletes}{asked}").unwrap();
    }
    for (kind, name, _) in end.objects {
        writeln!(summary, "  left: {kind} {name}").unwrap();
    }
    for event in world.recorded() {
        writeln!(summary, "  {event}").unwrap();
    }
    summary
}

#[test]
fn undisturbed_scenarios_do_what_they_did() {
    let told = library()
        .into_iter()
        .map(|scenario| summary(&scenario, &tell(&scenario, Disturbance::None, Make::default(), false)));
    insta::assert_snapshot!(told.collect::<String>());
}

/// So many disturbances of each sort are tried for each scenario.
const SAMPLE: usize = 4;

/// The sort of a disturbance, if it could be one that changes nothing.
fn sort(disturbance: Disturbance) -> Option<&'static str> {
    Some(match disturbance {
        Disturbance::CrashAfter(_) => "crash after",
        Disturbance::Restart(_) => "restart",
        Disturbance::Absent(_) => "absent",
        Disturbance::Watch(Delivery::Lost(_)) => "lost",
        Disturbance::Watch(Delivery::Twice(_)) => "twice",
        Disturbance::Watch(Delivery::Late { kind: None, .. }) => "all late",
        Disturbance::Watch(Delivery::Late { .. }) => "one late",
        Disturbance::Watch(Delivery::Across { kind: None, .. }) => "all across",
        Disturbance::Watch(Delivery::Across { .. }) => "one across",
        Disturbance::Watch(Delivery::Slow { .. }) => "slow",
        _ => return None,
    })
}

/// The lines of a story but for those that only tell of the disturbance.
fn story(world: &World) -> Vec<&String> {
    let tells = |line: &&String| {
        ["are late", "is lost", "goes back", " dies", " starts"].iter().any(|words| line.ends_with(words))
    };
    world.trace().iter().filter(|line| !tells(line)).collect()
}

/// A disturbance that changes nothing tests nothing.
#[test]
fn most_disturbances_change_what_is_told() {
    for scenario in library() {
        let calm = tell(&scenario, Disturbance::None, Make::default(), true);
        let mut sorts: BTreeMap<&str, Vec<Disturbance>> = BTreeMap::new();
        for disturbance in disturbances(&calm) {
            if let Some(sort) = sort(disturbance) {
                sorts.entry(sort).or_default().push(disturbance);
            }
        }
        for (sort, all) in sorts {
            let some = all.iter().step_by(all.len().div_ceil(SAMPLE));
            let told = some.map(|disturbance| tell(&scenario, *disturbance, Make::default(), true));
            let changed: Vec<bool> = told.map(|world| story(&world) != story(&calm)).collect();
            let share = changed.iter().filter(|changed| **changed).count();
            assert!(2 * share > changed.len(), "{}, {sort}: {share} of {}", scenario.name, changed.len());
        }
    }
}

#[test]
fn disturbed_scenarios_come_to_the_same_end() {
    for scenario in library() {
        let calm = tell(&scenario, Disturbance::None, Make::default(), false);
        for (number, disturbance) in disturbances(&calm).into_iter().enumerate().step_by(STRIDE) {
            let compared = compare(&scenario, &calm, disturbance, Make::default());
            assert_eq!(compared, Ok(()), "{disturbance:?}: {}", replay(scenario.name, number));
        }
    }
}
