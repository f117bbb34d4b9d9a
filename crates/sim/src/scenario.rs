//! A library of known stories, each of which can be disturbed at every place. However it is disturbed, it comes to the same end, and
//! objects are made and removed as often as without the disturbance.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_api::{Role, RoleOrder, State, SuccessPolicy, TrainingJobSpec, names};
use trainyard_operator::Watched;
use trainyard_plan::TargetKind;

use crate::check::{Count, Tally};
use crate::port::Fate;
use crate::world::{Delivery, Make, World};

/// The job of every scenario.
pub const NAME: &str = "bert";

/// How long the world is left alone after everything that happens, twice: enough for whoever tries again after a fault, and less than
/// any backoff.
const REST: Duration = Duration::from_millis(2200);

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
    /// The call of this number fares so.
    Call(usize, Fate),
    Watch(Delivery),
    /// A second operator works beside the first, from one call to another.
    Rival(usize, usize),
}

pub fn spec() -> TrainingJobSpec {
    TrainingJobSpec { image: Some("my/trainer:1".into()), num_workers: Some(2), ..TrainingJobSpec::default() }
}

fn kept() -> TrainingJobSpec {
    TrainingJobSpec { checkpoint_dir: Some("/checkpoints".into()), ..spec() }
}

fn passing() -> TrainingJobSpec {
    TrainingJobSpec {
        ttl_seconds_after_finished: Some(30),
        checkpoint: serde_json::from_value(json!({"deleteOnCompletion": true})).ok(),
        ..spec()
    }
}

fn one_by_one() -> TrainingJobSpec {
    let policy = json!({"restartScope": "Worker"});
    TrainingJobSpec { failure_policy: serde_json::from_value(policy).ok(), ..kept() }
}

/// Whoever fails with 3 is ignored, with 4 the job fails, with 5 it is restarted for nothing.
fn ruled() -> TrainingJobSpec {
    let policy = json!({"rules": [
        {"exitCodes": [3], "action": "Ignore"},
        {"exitCodes": [4], "action": "Fail"},
        {"logPattern": "ECC", "action": "RestartWithoutCounting"},
    ]});
    TrainingJobSpec { failure_policy: serde_json::from_value(policy).ok(), backoff_limit: Some(0), ..kept() }
}

fn roles() -> TrainingJobSpec {
    let role = |name: &str, order| Role {
        name: name.into(),
        replicas: Some(1),
        order: Some(order),
        ..Role::default()
    };
    TrainingJobSpec {
        roles: Some(vec![role("store", RoleOrder::BeforeWorkers), role("eval", RoleOrder::AfterWorkers)]),
        ..spec()
    }
}

/// All scenarios.
#[expect(clippy::too_many_lines, reason = "a table")]
pub fn library() -> Vec<Scenario> {
    let run: Act = World::run_all;
    let succeed: Act = World::succeed_all;
    let fail: Act = |world| world.fail_pod("bert-workers-1", 1);
    let wait: Act = |world| world.patience = Duration::from_mins(1);
    let gone: Act = |world| {
        world.release();
    };
    let suspend: Act = |world| world.edit(NAME, |spec| spec.suspend = Some(true));
    let resume: Act = |world| world.edit(NAME, |spec| spec.suspend = Some(false));
    let four: Act = |world| world.edit(NAME, |spec| spec.num_workers = Some(3));
    let one: Act = |world| world.edit(NAME, |spec| spec.num_workers = Some(1));
    let delete: Act = |world| world.delete_job(NAME);
    let scenario = |name, acts, end| Scenario { name, spec: kept, acts, end, refused: false };
    vec![
        scenario("create and complete", vec![run, succeed], Some(State::Completed)),
        Scenario {
            spec: one_by_one,
            ..scenario(
                "one by one, with a budget",
                vec![run, suspend, gone, wait, resume, run],
                Some(State::Running),
            )
        },
        Scenario {
            spec: one_by_one,
            ..scenario("a budget goes in the end", vec![run, succeed], Some(State::Completed))
        },
        scenario(
            "fail, restart, complete",
            vec![run, fail, gone, wait, run, succeed],
            Some(State::Completed),
        ),
        Scenario {
            spec: || TrainingJobSpec { backoff_limit: Some(1), ..spec() },
            ..scenario(
                "backoff exhausted",
                vec![run, fail, gone, wait, run, fail, gone, wait],
                Some(State::Failed),
            )
        },
        scenario(
            "scale up and down",
            vec![run, four, gone, run, one, gone, run, succeed],
            Some(State::Completed),
        ),
        Scenario {
            spec: one_by_one,
            ..scenario(
                "one by one, one fails",
                vec![run, fail, gone, wait, run, succeed],
                Some(State::Completed),
            )
        },
        Scenario {
            spec: ruled,
            ..scenario(
                "rules about failures",
                vec![
                    run,
                    |world| world.fail_saying("bert-workers-1", 1, "uncorrectable ECC error"),
                    gone,
                    wait,
                    run,
                    |world| world.fail_pod("bert-workers-1", 3),
                    |world| world.succeed("bert-workers-0"),
                ],
                Some(State::Completed),
            )
        },
        Scenario {
            spec: ruled,
            ..scenario(
                "a rule says that it is over",
                vec![run, |world| world.fail_pod("bert-workers-1", 4), gone],
                Some(State::Failed),
            )
        },
        Scenario {
            spec: || TrainingJobSpec { success_policy: Some(SuccessPolicy::Leader), ..kept() },
            ..scenario(
                "the leader decides",
                vec![run, |world| world.succeed("bert-workers-0"), gone],
                Some(State::Completed),
            )
        },
        Scenario {
            spec: || TrainingJobSpec { stall_timeout_seconds: Some(40), ..kept() },
            ..scenario(
                "silence",
                // An operator that has only just started has heard nothing for no longer than that.
                vec![run, |world| world.progress(NAME), wait, wait, gone, wait, run, succeed],
                Some(State::Completed),
            )
        },
        scenario(
            "on from a checkpoint",
            vec![
                run,
                |world| world.save(NAME),
                |world| world.save(NAME),
                fail,
                gone,
                run,
                fail,
                gone,
                wait,
                run,
                succeed,
            ],
            Some(State::Completed),
        ),
        scenario(
            "another job had saved something",
            vec![
                run,
                |world| world.save(NAME),
                delete,
                gone,
                |world| world.submit(NAME, kept()),
                run,
                gone,
                run,
                succeed,
            ],
            Some(State::Completed),
        ),
        scenario(
            "another image",
            vec![run, |world| world.edit(NAME, |spec| spec.image = Some("my/trainer:2".into())), gone, run],
            Some(State::Running),
        ),
        scenario(
            "suspend and resume",
            vec![run, suspend, gone, wait, resume, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "suspend in the backoff",
            vec![run, fail, gone, suspend, wait, resume, run],
            Some(State::Running),
        ),
        scenario(
            "disruption",
            vec![run, |world| world.evict("bert-workers-0"), gone, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "node loss",
            // Nobody but the operator takes a pod from a dead node.
            vec![run, |world| world.lose_node("bert-workers-1"), gone, wait, wait, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "a pod is deleted",
            vec![run, |world| world.remove(TargetKind::Pod, "bert-workers-0"), gone, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "a pod loses its label",
            vec![
                run,
                |world| {
                    world.change(TargetKind::Pod, "bert-workers-0", |pod| {
                        pod["metadata"]["labels"][names::MANAGED_BY_LABEL] = "nobody".into();
                    });
                },
                wait,
                succeed,
            ],
            Some(State::Completed),
        ),
        scenario("delete at once", vec![delete], None),
        scenario("delete while it runs", vec![run, delete, gone], None),
        scenario("delete in the backoff", vec![run, fail, gone, delete, gone], None),
        scenario("delete while suspended", vec![run, suspend, gone, delete], None),
        scenario("delete when it is done", vec![run, succeed, delete], None),
        Scenario { spec: passing, ..scenario("complete and be forgotten", vec![run, succeed, wait], None) },
        Scenario {
            spec: || TrainingJobSpec { active_deadline_seconds: Some(50), ..spec() },
            ..scenario("past the deadline", vec![run, fail, gone, wait, gone], Some(State::Failed))
        },
        Scenario {
            spec: || TrainingJobSpec { startup_timeout_seconds: Some(50), ..spec() },
            ..scenario(
                "never starts",
                vec![|world| world.cannot_be_placed("bert-workers-1"), wait, gone],
                Some(State::Failed),
            )
        },
        Scenario {
            spec: roles,
            ..scenario(
                "roles in order",
                vec![run, run, run, fail, gone, wait, run, run, run, succeed],
                Some(State::Completed),
            )
        },
        scenario(
            "invalid for a while",
            vec![
                run,
                |world| world.edit(NAME, |spec| spec.command = Some(Vec::new())),
                gone,
                |world| world.edit(NAME, |spec| spec.command = None),
                run,
            ],
            Some(State::Running),
        ),
        Scenario {
            refused: true,
            ..scenario(
                "name conflict",
                vec![
                    |world| {
                        world.plant(TargetKind::Pod, "bert-workers-1", json!({"metadata": {}}));
                        world.edit(NAME, |spec| spec.image = Some("my/trainer:2".into()));
                    },
                    wait,
                    |world| world.remove(TargetKind::Pod, "bert-workers-1"),
                    wait,
                    run,
                ],
                Some(State::Running),
            )
        },
        Scenario {
            refused: true,
            ..scenario(
                "a quota for a while",
                vec![
                    |world| {
                        world.set_quota(Some(1));
                        world.edit(NAME, |spec| spec.num_workers = Some(3));
                    },
                    gone,
                    wait,
                    |world| world.set_quota(None),
                    wait,
                    run,
                ],
                Some(State::Running),
            )
        },
    ]
}

/// Tells a scenario, disturbed so.
pub fn tell(scenario: &Scenario, disturbance: Disturbance, make: Make, traced: bool) -> World {
    let mut world = World::new(make, traced);
    let mut crashed = false;
    world.backwards = matches!(disturbance, Disturbance::CrashBackwards(_));
    if let Disturbance::Watch(delivery) = disturbance {
        world.set_delivery(delivery);
    }
    world.submit(NAME, (scenario.spec)());
    rest(&mut world, disturbance, &mut crashed);
    for act in &scenario.acts {
        act(&mut world);
        rest(&mut world, disturbance, &mut crashed);
    }
    // Details may lag behind by a few seconds.
    world.pass(Duration::from_secs(10));
    world.collect();
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
        Disturbance::Crash(after) | Disturbance::CrashBackwards(after) if call == after + 1 && !*crashed => {
            *crashed = true;
            None
        }
        Disturbance::Call(at, fate) if call == at => Some(fate),
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

/// What is left in the end.
#[derive(Debug, PartialEq)]
pub struct End {
    pub status: Option<Value>,
    /// Kind, name, and what was asked for, of every object.
    pub objects: Vec<(&'static str, String, Value)>,
    pub tally: Tally,
}

/// What is left in the end, without times and identities.
pub fn end_of(world: &World) -> End {
    let server = world.server();
    let status = server.job(NAME).and_then(|job| job.status.as_ref()).map(|status| {
        let mut value = serde_json::to_value(status).unwrap_or_default();
        if let Some(conditions) = value["conditions"].as_array_mut() {
            // A map by type: the order in which they came to be says nothing.
            conditions.sort_by_key(|condition| condition["type"].to_string());
        }
        without_times(&mut value);
        value
    });
    let objects = server
        .children()
        .map(|(kind, child)| {
            let mut seen = child.value.clone();
            let metadata = &mut seen["metadata"];
            metadata["resourceVersion"] = Value::Null;
            metadata["uid"] = Value::Null;
            without_times(&mut seen);
            (kind.as_str(), child.name().to_owned(), seen)
        })
        .chain(server.budgets().iter().map(|(name, budget)| ("budget", name.clone(), json!(budget.spec))))
        .collect();
    End { status, objects, tally: world.tally() }
}

fn without_times(value: &mut Value) {
    match value {
        Value::String(text) if text.parse::<Timestamp>().is_ok() => "(time)".clone_into(text),
        Value::String(text) => {
            // Messages may tell a moment, too.
            let words =
                text.split(' ').map(|word| if word.parse::<Timestamp>().is_ok() { "(time)" } else { word });
            *text = words.collect::<Vec<_>>().join(" ");
        }
        Value::Array(all) => all.iter_mut().for_each(without_times),
        Value::Object(fields) => {
            // How long something took depends on when it was noticed.
            for name in ["duration", "seconds", "failedUid"] {
                fields.remove(name);
            }
            fields.values_mut().for_each(without_times);
        }
        _ => {}
    }
}

/// Names of the events that were recorded.
pub fn events_of(world: &World) -> BTreeSet<String> {
    world.server().events().clone()
}

/// Everything that can be done to a scenario that was told so: every place, every fault.
pub fn disturbances(calm: &World) -> Vec<Disturbance> {
    let mut all = Vec::new();
    for call in 0..calm.calls() {
        all.push(Disturbance::Crash(call));
        all.push(Disturbance::CrashBackwards(call));
        all.extend(Fate::FAULTS.map(|fate| Disturbance::Call(call + 1, fate)));
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
    }
    all
}

/// Tells a scenario disturbed so, and compares its end with the undisturbed one's. Gives the difference in words.
pub fn compare(scenario: &Scenario, calm: &World, disturbance: Disturbance) -> Result<(), String> {
    let told = catch_unwind(|| tell(scenario, disturbance, Make::default(), false));
    let world = told.map_err(|panic| match panic.downcast_ref::<String>() {
        Some(why) => why.clone(),
        None => "a panic".to_owned(),
    })?;
    // Who is refused, of several, depends on the order.
    let backwards = matches!(disturbance, Disturbance::CrashBackwards(_))
        .then(|| tell(scenario, Disturbance::CrashBackwards(NEVER), Make::default(), false));
    let calm = backwards.as_ref().unwrap_or(calm);
    let (end, expected) = (end_of(&world), end_of(calm));
    let allowance = disturbance.allowance(scenario);
    let more = disruptions(&end) - disruptions(&expected);
    let sameness = if more > 0 && more <= allowance.disruptions {
        allowance.status.max(Sameness::Failures)
    } else {
        allowance.status
    };
    match sameness {
        Sameness::All => {
            if end.status != expected.status {
                return Err(format!("the status is {:#?}\ninstead of {:#?}", end.status, expected.status));
            }
            if end.objects != expected.objects {
                return Err(format!("there is {:#?}\ninstead of {:#?}", end.objects, expected.objects));
            }
        }
        Sameness::Decisions => same("it ends as", decisions(&end), decisions(&expected))?,
        Sameness::Failures => same("it ends as", failures(&end), failures(&expected))?,
        Sameness::State => same("it ends as", state(&end), state(&expected))?,
    }
    // Nothing is there that would not be there without. What was not seen to have ended may be gone, as if it still ran.
    let names = |end: &End| -> BTreeSet<(&'static str, String)> {
        end.objects.iter().map(|(kind, name, _)| (*kind, name.clone())).collect()
    };
    let (is, should) = (names(&end), names(&expected));
    if !is.is_subset(&should) || (allowance.status < Sameness::Decisions && is != should) {
        return Err(format!("there is {is:?}, and not {should:?}"));
    }
    tallied(&end.tally, &expected.tally, &allowance)?;
    // The event of a write may be lost with the operator; none is made up.
    let (heard, all) = (events_of(&world), events_of(calm));
    if allowance.rounds == 0 && !heard.is_subset(&all) {
        return Err(format!("events that nobody else heard of: {:?}", heard.difference(&all)));
    }
    Ok(())
}

/// A call that is never made.
const NEVER: usize = usize::MAX - 1;

/// How much of the end must be as without the disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sameness {
    /// Every word of the status, and every object.
    All,
    /// The state, and what was counted.
    Decisions,
    /// The state, and the failures that were counted.
    Failures,
    State,
}

/// What a disturbance may change, and why.
struct Allowance {
    status: Sameness,
    /// So many more times every object may be made, and so many more times removed.
    rounds: usize,
    /// So many times less: whoever is refused asks again and again, and a fault takes the place of one of these tries.
    fewer: usize,
    /// So many more restarts there may be that do not count.
    disruptions: i64,
}

impl Disturbance {
    fn allowance(self, scenario: &Scenario) -> Allowance {
        use Sameness::{All, Decisions, State};
        let (status, rounds) = match self {
            // What was refused is remembered by the operator alone: another one, or one that is told late of the change that brought
            // the refusal, asks once more, and takes back what it made of the gang until it was refused.
            // It begins anew with the shortest wait between two tries, too.
            Disturbance::Rival(..) if scenario.refused => (State, 2 * TRIES_ANEW),
            Disturbance::Watch(Delivery::Lost(_)) if scenario.refused => (Decisions, TRIES_ANEW),
            _ if scenario.refused => (All, TRIES_ANEW),
            // Each makes what the other one removes, for as long as both are there. The pod that one has just made for the next
            // attempt may look to the other like one that is left over.
            Disturbance::Rival(..) => (All, ROUNDS_OF_RIVALS),
            // What nobody saw cannot be told, and a deadline may pass meanwhile. A pod whose fate was not seen is made once more.
            Disturbance::Watch(Delivery::Lost(_)) => (Decisions, 1),
            // Everything else forces nothing: a crash, a call that fails or whose answer is lost, events late or twice.
            Disturbance::None
            | Disturbance::Crash(_)
            | Disturbance::CrashBackwards(_)
            | Disturbance::Call(..)
            | Disturbance::Watch(_) => (All, 0),
        };
        Allowance {
            status,
            rounds,
            fewer: match self {
                _ if !scenario.refused => 0,
                // As long as it waits for what never comes, it does not try at all.
                Disturbance::Watch(Delivery::Lost(_)) => TRIES_ANEW,
                _ => 1,
            },
            disruptions: i64::from(matches!(self, Disturbance::Rival(..))),
        }
    }
}

/// At once, and after 2 s, 4 s and 8 s, instead of the longest wait of 15 s.
const TRIES_ANEW: usize = 4;

/// Two operators are side by side for at most eight calls.
const ROUNDS_OF_RIVALS: usize = 2;

fn decisions(end: &End) -> Option<(Value, Value)> {
    end.status.as_ref().map(|status| (status["state"].clone(), status["restarts"].clone()))
}

fn failures(end: &End) -> Option<(Value, Value)> {
    end.status.as_ref().map(|status| (status["state"].clone(), status["restarts"]["application"].clone()))
}

fn disruptions(end: &End) -> i64 {
    end.status.as_ref().and_then(|status| status["restarts"]["disruption"].as_i64()).unwrap_or_default()
}

fn state(end: &End) -> Option<Value> {
    end.status.as_ref().map(|status| status["state"].clone())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, should: T) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what} {is:?}, and not {should:?}")) }
}

/// Every object was made and removed as often as it should, within what is allowed.
fn tallied(is: &Tally, should: &Tally, allowance: &Allowance) -> Result<(), String> {
    let nothing = Count::default();
    for object in is.keys().chain(should.keys()) {
        let (is, should) = (is.get(object).unwrap_or(&nothing), should.get(object).unwrap_or(&nothing));
        let within = |is: usize, should: usize| {
            (should.saturating_sub(allowance.fewer)..=should + allowance.rounds).contains(&is)
        };
        if !within(is.creates, should.creates) || !within(is.deletes, should.deletes) {
            return Err(format!(
                "{object:?}: {is:?}, and it should be {should:?}, at most {} times more and {} less",
                allowance.rounds, allowance.fewer
            ));
        }
    }
    Ok(())
}
