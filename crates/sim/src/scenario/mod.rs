//! A library of known stories, each of which can be disturbed at every place. However it is disturbed, it comes to the same end, and
//! objects are made and removed as often as without the disturbance.

mod allowance;
mod compare;
mod library;

use std::time::Duration;

pub use compare::{End, compare, end_of, events_of};
pub use library::{library, spec};
use trainyard_api::{State, TrainingJobSpec};
use trainyard_operator::Watched;

use crate::port::Fate;
use crate::server::Asks;
use crate::world::{Delivery, Make, World};

/// The job of every scenario.
pub const NAME: &str = "bert";

/// How long the world is left alone after everything that happens, twice: enough for whoever tries again after a fault, and less than
/// any backoff.
const REST: Duration = Duration::from_millis(2200);

/// A cache that is late for so long is late for the same acts of a scenario as one that is not.
const PATIENCE: Duration = Duration::from_secs(3);

/// Longer than an operator waits for the echo of its own writes.
const TOO_LONG: Duration = Duration::from_secs(45);

/// A call that is never made.
const NEVER: usize = usize::MAX / 2;

/// What happens.
pub type Act = fn(&mut World);

pub struct Scenario {
    pub name: &'static str,
    pub spec: fn() -> TrainingJobSpec,
    pub acts: Vec<Act>,
    /// The state in the end; none if the job is gone.
    pub end: Option<State>,
    /// What was refused is forgotten in a crash, so a new operator asks again sooner: half a gang more may be made.
    pub refused: bool,
}

/// What goes wrong in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    None,
    /// The operator dies after so many calls, and another takes its place.
    Crash(usize),
    /// The same, and of calls that wait for an answer, the newest is served first.
    CrashBackwards(usize),
    /// The operator dies after so many calls. What it has asked for by then is done, but only when its successor has made so many calls.
    CrashLate(usize, usize),
    /// The call of this number fares so.
    Call(usize, Fate),
    /// The call of this number is answered with a time-out, and done when so many more calls have been made.
    Late(usize, usize),
    /// The operator dies after so many calls, and who asks for a version or a newer one is told of the oldest that will do.
    OldReads(usize),
    Watch(Delivery),
    /// A second operator works beside the first, from one call to another.
    Rival(usize, usize),
}

/// Tells a scenario, disturbed so.
pub fn tell(scenario: &Scenario, disturbance: Disturbance, make: Make, traced: bool) -> World {
    let mut world = World::new(make, traced);
    let mut crashed = false;
    world.late_after = match disturbance {
        Disturbance::CrashLate(_, steps) | Disturbance::Late(_, steps) => Some(steps),
        _ => None,
    };
    world.crashes_late = matches!(disturbance, Disturbance::CrashLate(..));
    world.backwards = matches!(disturbance, Disturbance::CrashBackwards(_));
    if let Disturbance::Watch(delivery) = disturbance {
        world.set_delivery(delivery);
    }
    world.server().reads_old = matches!(disturbance, Disturbance::OldReads(_));
    world.server().asks = Some(Asks::new());
    world.submit(NAME, (scenario.spec)());
    rest(&mut world, disturbance, &mut crashed);
    for act in &scenario.acts {
        act(&mut world);
        rest(&mut world, disturbance, &mut crashed);
    }
    if let Disturbance::Watch(Delivery::Slow { time, .. }) = disturbance {
        world.pass(time);
    }

    // Details may lag behind by a few seconds.
    world.pass(Duration::from_secs(10));
    world.collect();
    world.pass(Duration::from_secs(10));
    world.expect_quiet();
    world
}

/// What follows from an act, and as long as it wanted to wait. The same time passes whatever goes wrong.
fn rest(world: &mut World, disturbance: Disturbance, crashed: &mut bool) {
    let time = std::mem::take(&mut world.patience) + REST;
    if let Disturbance::Rival(from, until) = disturbance {
        return beside(world, from, until, time);
    }
    let mut fate = |call| match disturbance {
        Disturbance::Crash(after)
        | Disturbance::CrashBackwards(after)
        | Disturbance::CrashLate(after, _)
        | Disturbance::OldReads(after)
            if call == after + 1 && !*crashed =>
        {
            *crashed = true;
            None
        }
        Disturbance::Call(at, fate) if call == at => Some(fate),
        Disturbance::Late(at, _) if call == at => Some(Fate::LandsLate),
        _ => Some(Fate::Served),
    };
    world.pass_with(time, &mut fate);
    if matches!(disturbance, Disturbance::Watch(Delivery::Lost(_))) {
        world.resync();
    }
    world.pass_with(REST, &mut fate);
}

/// Two operators for a while; then the older one dies.
fn beside(world: &mut World, from: usize, until: usize, time: Duration) {
    let end = world.instant() + time;
    if world.calls() <= from && world.operators.len() == 1 {
        world.pass_until(time, &mut |call| call > from);
        if world.calls() >= from {
            world.check.rivals = true;
            world.start_operator();
        }
    }
    if world.operators.len() > 1 {
        world.pass_until(end.duration_since(world.instant()), &mut |call| call > until);
        world.kill_operator(0);
    }
    world.pass(end.duration_since(world.instant()) + REST);
}

/// Everything that can be done to a scenario that was told so: every place, every fault.
pub fn disturbances(calm: &World) -> Vec<Disturbance> {
    let mut all = Vec::new();
    for call in 0..calm.calls() {
        all.push(Disturbance::Crash(call));
        all.push(Disturbance::CrashBackwards(call));
        all.push(Disturbance::OldReads(call));
        all.extend([0, 1, 2, 4, NEVER].map(|steps| Disturbance::CrashLate(call, steps)));
        all.extend(Fate::FAULTS.map(|fate| Disturbance::Call(call + 1, fate)));
        all.extend([1, 2, 4].map(|steps| Disturbance::Late(call + 1, steps)));
        all.extend([1, 3, 8].map(|length| Disturbance::Rival(call, call + length)));
    }
    for from in 1..=calm.delivered() {
        all.push(Disturbance::Watch(Delivery::Lost(from)));
        all.push(Disturbance::Watch(Delivery::Twice(from)));
        for depth in [1, 2, 3, 4, 5, 8, usize::MAX / 2] {
            for kind in [None].into_iter().chain(Watched::ALL.map(Some)) {
                all.push(Disturbance::Watch(Delivery::Late { from, depth, kind }));
            }
        }
        for time in [PATIENCE, TOO_LONG] {
            for kind in [None, Some(Watched::Jobs), Some(Watched::Pods)] {
                all.push(Disturbance::Watch(Delivery::Slow { from, time, kind }));
            }
        }
    }
    all
}
