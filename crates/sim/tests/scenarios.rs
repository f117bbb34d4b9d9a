//! The scenarios of the library: how they end, and some of the places where they are disturbed. `cargo xtask test` disturbs them at all.

use trainyard_sim::Make;
use trainyard_sim::scenario::{Disturbance, compare, disturbances, library, tell};

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

#[test]
fn disturbed_scenarios_come_to_the_same_end() {
    for scenario in library() {
        let calm = tell(&scenario, Disturbance::None, Make::default(), false);
        for (number, disturbance) in disturbances(&calm).into_iter().enumerate().step_by(STRIDE) {
            let compared = compare(&scenario, &calm, disturbance, Make::default());
            assert_eq!(compared, Ok(()), "{}, number {number}: {disturbance:?}", scenario.name);
        }
    }
}
