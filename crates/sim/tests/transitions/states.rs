//! Changes of a job that does not run: it waits after a failure, is suspended, waits for room, or is being started.

use serde_json::Value;
use trainyard_api::{Restarts, State};
use trainyard_sim::World;

use super::fields::{Cost, changes};
use super::{
    NAME, assert_same, bill, edit, left, left_but_spec, live, settle, spec, spent, submitted,
    without_older_claims, without_pods,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Backoff,
    Suspended,
    /// There is no room for its pods.
    Pending,
    Initializing,
}

const STARTS: [(Start, State); 4] = [
    (Start::Backoff, State::Restarting),
    (Start::Suspended, State::Suspended),
    (Start::Pending, State::Pending),
    (Start::Initializing, State::Initializing),
];

impl Start {
    fn of(self, value: &Value) -> World {
        let mut world = match self {
            Start::Backoff | Start::Suspended => live(value),
            Start::Pending | Start::Initializing => submitted(value),
        };
        match self {
            Start::Backoff => world.fail_pod("bert-workers-1", 1),
            Start::Suspended => world.edit(NAME, |spec| spec.suspend = Some(true)),
            Start::Pending => world.set_quota(Some(0)),
            Start::Initializing => {}
        }
        stand(&mut world);
        world
    }

    /// The spec, as it is in this state.
    fn edit(self, world: &mut World, value: &Value) {
        edit(world, value);
        if self == Start::Suspended {
            world.edit(NAME, |spec| spec.suspend = Some(true));
        }
    }

    /// It goes on to where it runs.
    fn go_on(self, world: &mut World, value: &Value) {
        match self {
            Start::Pending => world.set_quota(None),
            Start::Suspended => world.edit(NAME, |old| *old = spec(value)),
            Start::Backoff | Start::Initializing => {}
        }
        settle(world);
        settle(world);
    }
}

/// This, and a change of this kind of pods that are there.
fn once_more((attempts, before): (i32, Restarts), cost: Cost) -> (i32, Restarts) {
    let (_, Restarts { rescale, update, total, .. }) = bill(cost, 1);
    (attempts + 1, Restarts { rescale, update, total: before.total + total, ..before })
}

/// Everything comes to rest, and no time passes.
fn stand(world: &mut World) {
    for _ in 0..4 {
        world.settle();
        world.release();
    }
    world.settle();
}

#[test]
fn who_does_not_run_is_left_as_before() {
    for (start, state) in STARTS {
        for change in changes() {
            if start == Start::Suspended && change.cost == Cost::Suspension {
                continue;
            }
            let what = format!("{start:?}, {}", change.what());
            let (here, there) = change.specs();
            let (mut stays, mut returns) = (start.of(&here), start.of(&here));
            assert_eq!(stays.state(NAME), Some(state), "{what}");
            // Whoever changes what the pods are made of ends the wait after a failure.
            let hurries = start == Start::Backoff && matches!(change.cost, Cost::Rescale | Cost::Update);
            start.edit(&mut returns, &there);
            stand(&mut returns);
            let meanwhile = match change.cost {
                Cost::Suspension => State::Suspended,
                _ if hurries => State::Initializing,
                _ => state,
            };
            assert_eq!(returns.state(NAME), Some(meanwhile), "{what}");
            start.edit(&mut returns, &here);
            stand(&mut returns);
            // Who is suspended does not wait any more when it goes on, and who was made anew says so until it runs.
            let is_as_before = match start {
                Start::Backoff | Start::Initializing => change.cost == Cost::Nothing,
                Start::Suspended | Start::Pending => true,
            };
            if is_as_before {
                assert_same(&left(&returns), &left(&stays), &what);
            }
            for world in [&mut stays, &mut returns] {
                start.go_on(world, &here);
                assert_eq!(world.state(NAME), Some(State::Running), "{what}");
            }
            assert_same(&left(&returns), &left(&stays), &format!("{what}, later"));
            // Only who has pods already is made anew.
            let costs = match start {
                Start::Initializing => bill(change.cost, 2),
                _ if hurries => once_more(spent(&stays), change.cost),
                _ => spent(&stays),
            };
            assert_eq!(spent(&returns), costs, "what {what} costs");
            returns.expect_quiet();
        }
    }
}

/// What was changed while it did not run holds when it does.
#[test]
fn who_does_not_run_goes_on_with_what_holds_then() {
    for (start, _) in STARTS {
        for change in changes().into_iter().filter(|change| change.cost != Cost::Suspension) {
            let what = format!("{start:?}, {}", change.what());
            let (here, there) = change.specs();
            let mut world = start.of(&here);
            start.edit(&mut world, &there);
            stand(&mut world);
            start.go_on(&mut world, &there);
            let alone = left_but_spec(&live(&there));
            let now = without_older_claims(left_but_spec(&world), &alone);
            // Pods that are there are let be.
            let is_let_be = start == Start::Initializing && change.cost == Cost::Nothing;
            let [now, alone] = [now, alone].map(|left| if is_let_be { without_pods(left) } else { left });
            assert_same(&now, &alone, &what);
            world.expect_quiet();
        }
    }
}
