//! Every scenario of the library, disturbed at every single place.

use std::collections::BTreeSet;

use trainyard_operator::Watched;
use trainyard_sim::scenario::{Disturbance, Scenario, end_of, events_of, library, tell};
use trainyard_sim::{Delivery, Fate, Make, World};

fn calm(scenario: &Scenario) -> World {
    tell(scenario, Disturbance::None, Make::default(), false)
}

/// Tells the scenario with this disturbance and compares its end with that of the undisturbed one.
fn compare(scenario: &Scenario, calm: &World, disturbance: Disturbance) {
    let told = std::panic::catch_unwind(|| tell(scenario, disturbance, Make::default(), false));
    let Ok(world) = told else {
        tell(scenario, disturbance, Make::default(), true);
        unreachable!("{}, {disturbance:?}: it broke a rule, and then did not", scenario.name);
    };
    let (mut end, mut expected) = (end_of(&world), end_of(calm));
    if scenario.refused || matches!(disturbance, Disturbance::Rival(..)) {
        end.tally.clear();
        expected.tally.clear();
    }
    if end != expected {
        let world = tell(scenario, disturbance, Make::default(), true);
        for line in world.trace() {
            eprintln!("{line}");
        }
        assert_eq!(end, expected, "{}, {disturbance:?}", scenario.name);
    }
    // The event of a write may be lost with the operator; none is made up.
    let (heard, all) = (events_of(&world), events_of(calm));
    let is_calm = !scenario.refused && !matches!(disturbance, Disturbance::Rival(..));
    let made_up: BTreeSet<_> = heard.difference(&all).collect();
    assert!(!is_calm || made_up.is_empty(), "{}, {disturbance:?}: {made_up:?}", scenario.name);
}

#[test]
fn undisturbed_scenarios_end_as_they_say() {
    for scenario in library() {
        let world = calm(&scenario);
        assert_eq!(world.state("bert"), scenario.end, "{}", scenario.name);
        assert!(world.calls() > 4, "{}", scenario.name);
        assert_eq!(world.exists("bert"), scenario.end.is_some(), "{}", scenario.name);
    }
}

#[test]
fn an_operator_that_dies_after_any_write_changes_nothing() {
    for scenario in library() {
        let calm = calm(&scenario);
        for call in 0..calm.calls() {
            compare(&scenario, &calm, Disturbance::Crash(call));
        }
    }
}

#[test]
fn a_write_that_fails_is_made_up_for() {
    for scenario in library() {
        let calm = calm(&scenario);
        for call in 1..=calm.calls() {
            for fate in Fate::FAULTS {
                compare(&scenario, &calm, Disturbance::Call(call, fate));
            }
        }
    }
}

#[test]
fn an_event_that_is_lost_or_comes_twice_changes_nothing() {
    for scenario in library() {
        let calm = calm(&scenario);
        for event in 1..=calm.delivered() {
            compare(&scenario, &calm, Disturbance::Watch(Delivery::Lost(event)));
            compare(&scenario, &calm, Disturbance::Watch(Delivery::Twice(event)));
        }
    }
}

#[test]
fn a_stale_cache_of_any_depth_changes_nothing() {
    for scenario in library() {
        let calm = calm(&scenario);
        for from in 1..=calm.delivered() {
            for depth in [1, 2, 3, 5, 100] {
                for kind in [None, Some(Watched::Jobs), Some(Watched::Pods)] {
                    let late = Delivery::Late { from, depth, kind };
                    compare(&scenario, &calm, Disturbance::Watch(late));
                }
            }
        }
    }
}

#[test]
fn two_operators_for_a_while_come_to_the_same_end() {
    for scenario in library() {
        let calm = calm(&scenario);
        for from in 0..calm.calls() {
            for length in [1, 3, 8] {
                compare(&scenario, &calm, Disturbance::Rival(from, from + length));
            }
        }
    }
}
