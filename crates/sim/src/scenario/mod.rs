//! A library of known stories, each of which can be disturbed at every place. However it is disturbed, it comes to the same end, and
//! objects are made and removed as often as without the disturbance.

mod allowance;
mod compare;
mod library;
mod stops;

use std::time::Duration;

pub use compare::{End, compare, end_of, events_of};
pub use library::{library, spec};
use trainyard_api::{State, TrainingJobSpec};
use trainyard_operator::Watched;

use crate::history::REPLAY;
use crate::port::Fate;
use crate::server::Asks;
use crate::world::{Delivered, Delivery, Make, World};

/// The job of every scenario.
pub const NAME: &str = "bert";

/// How long the world is left alone after everything that happens, twice: enough for whoever tries again after a fault, and less than
/// any backoff.
const REST: Duration = Duration::from_millis(2200);

/// A cache that is late for so long is late for the same acts of a scenario as one that is not.
const PATIENCE: Duration = Duration::from_secs(3);

/// Longer than an operator waits for the echo of its own writes.
const TOO_LONG: Duration = Duration::from_secs(45);

/// So often, and for so long each time, a story is given time to come to its end: longer than the longest backoff in one.
const ROUNDS: usize = 8;
const MOMENTS: Duration = Duration::from_secs(20);

/// How long after an act the events come that waited for it.
const MOMENT: Duration = Duration::from_secs(1);

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
    /// A pod is forced to go.
    pub forced: bool,
    /// A job is changed in the moment in which something happens to its pods: who is told of only one of them cannot decide as if it
    /// knew both.
    pub together: bool,
}

/// One with checkpoints, in which nothing is refused or forced.
fn scenario(name: &'static str, acts: Vec<Act>, end: Option<State>) -> Scenario {
    Scenario { name, spec: library::kept, acts, end, refused: false, forced: false, together: false }
}

/// What goes wrong in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    None,
    /// The operator dies after so many calls, and another takes its place.
    Crash(usize),
    /// It dies as soon as the call of this number has been answered, whether or not it asks for anything else.
    CrashAfter(usize),
    /// The operator dies when all is quiet, before the act of this number, and another takes its place before, or only after that act.
    Restart(usize),
    Absent(usize),
    /// As `Crash`, and of calls that wait for an answer, the newest is served first.
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

/// A command that tells this scenario with the disturbance of this number.
pub fn replay(name: &str, number: usize) -> String {
    format!("{REPLAY} --scenario '{name}' {number}")
}

/// Tells a scenario, disturbed so.
pub fn tell(scenario: &Scenario, disturbance: Disturbance, make: Make, traced: bool) -> World {
    tell_in(World::new(make, traced), scenario, disturbance)
}

/// Tells an undisturbed scenario, with a log of everything that was done to the API server.
pub fn tell_logged(scenario: &Scenario) -> World {
    let world = World::new(Make::default(), false);
    world.server().log = Some(Vec::new());
    tell_in(world, scenario, Disturbance::None)
}

fn tell_in(mut world: World, scenario: &Scenario, disturbance: Disturbance) -> World {
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
    if let Disturbance::CrashAfter(call) = disturbance {
        world.dies_after = Some(call);
    }
    world.server().reads_old = matches!(disturbance, Disturbance::OldReads(_));
    world.server().asks = Some(Asks::new());
    world.submit(NAME, (scenario.spec)());
    rest(&mut world, |_| {}, disturbance, &mut crashed);
    for (number, act) in scenario.acts.iter().enumerate() {
        restart(&mut world, disturbance, number, *act);
        rest(&mut world, *act, disturbance, &mut crashed);
    }
    restart(&mut world, disturbance, scenario.acts.len(), |_| {});
    rest(&mut world, |_| {}, disturbance, &mut crashed);
    if let Disturbance::Watch(Delivery::Slow { time, .. }) = disturbance {
        world.pass(time);
        if time > PATIENCE {
            finish(&mut world, scenario);
        }
    }

    // Details may lag behind by a few seconds.
    world.pass(Duration::from_secs(10));
    world.collect();
    world.pass(Duration::from_secs(10));
    world.expect_quiet();
    world
}

/// What happens goes by the clock, and does not wait for a cache that is late: the last of it may have found nobody to happen to. So the
/// cluster goes on with it, until the story has come to its end.
fn finish(world: &mut World, scenario: &Scenario) {
    let end = scenario.end;
    for _ in 0..ROUNDS {
        if world.state(NAME) == end {
            return;
        }
        if end.is_some() && !world.exists(NAME) {
            // As long as the job before was there, it was refused.
            world.submit(NAME, (scenario.spec)());
        }
        world.release();
        world.settle();
        world.run_all();
        world.settle();
        if end != Some(State::Running) {
            world.succeed_all();
        }
        world.pass(MOMENTS);
    }
}

/// An act, before which, or during which, the operator may be replaced.
fn restart(world: &mut World, disturbance: Disturbance, number: usize, act: Act) {
    match disturbance {
        Disturbance::Restart(at) if at == number => {
            world.replace_operator(0);
            world.settle();
            act(world);
        }
        Disturbance::Absent(at) if at == number => {
            world.kill_operator(0);
            act(world);
            world.start_operator();
        }
        _ => act(world),
    }
}

/// What follows from an act, and as long as it wanted to wait. The same time passes whatever goes wrong.
fn rest(world: &mut World, act: Act, disturbance: Disturbance, crashed: &mut bool) {
    let mut time = std::mem::take(&mut world.patience) + REST;
    if world.happens(MOMENT) {
        // The cluster goes on with what it could not do as long as the operator did not know.
        world.pass(MOMENT);
        act(world);
        world.patience = Duration::ZERO;
        time -= MOMENT;
    }
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
            world.start_rival();
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
        all.push(Disturbance::CrashAfter(call + 1));
        all.push(Disturbance::CrashBackwards(call));
        all.push(Disturbance::OldReads(call));
        all.extend([0, 1, 2, 4, NEVER].map(|steps| Disturbance::CrashLate(call, steps)));
        all.extend(Fate::FAULTS.map(|fate| Disturbance::Call(call + 1, fate)));
        all.extend([1, 2, 4].map(|steps| Disturbance::Late(call + 1, steps)));
        all.extend([1, 3, 8].map(|length| Disturbance::Rival(call, call + length)));
    }
    // The last of them is no act: everything has happened.
    for act in 0..calm.scene() - 1 {
        all.extend([Disturbance::Restart(act), Disturbance::Absent(act)]);
    }
    for (before, event) in calm.deliveries().iter().enumerate() {
        let (from, kind) = (before + 1, event.kind);
        all.push(Disturbance::Watch(Delivery::Lost(from)));
        all.push(Disturbance::Watch(Delivery::Twice(from)));
        for kind in [None, Some(kind)] {
            // Every depth that there is from here until all is quiet, when everything comes. What comes between two looks makes no
            // difference to either.
            let mut seen = event.looks;
            let is_later =
                |later: &&Delivered| later.scene == event.scene && kind.is_none_or(|kind| kind == later.kind);
            for (depth, later) in (1..).zip(calm.deliveries()[from..].iter().filter(is_later)) {
                if std::mem::replace(&mut seen, later.looks) != later.looks {
                    all.push(Disturbance::Watch(Delivery::Late { from, depth, kind }));
                }
            }
            all.push(Disturbance::Watch(Delivery::Late { from, depth: NEVER, kind }));
            all.push(Disturbance::Watch(Delivery::Across { from, kind }));
        }
        for time in [PATIENCE, TOO_LONG] {
            // All, or one of the two that decide.
            let deciding = Some(kind).filter(|kind| matches!(kind, Watched::Jobs | Watched::Pods));
            for kind in [None].into_iter().chain(deciding.map(Some)) {
                all.push(Disturbance::Watch(Delivery::Slow { from, time, kind }));
            }
        }
    }
    all
}
