//! How a scenario ends, and whether that is as it should.

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_api::State;
use trainyard_plan::TargetKind;

use super::allowance::{Sameness, asked, tallied};
use super::{Disturbance, NAME, NEVER, Scenario, tell};
use crate::check::Tally;
use crate::server::{Asks, Child};
use crate::world::{Make, World};

/// What is left in the end.
#[derive(Debug, PartialEq)]
pub struct End {
    pub status: Option<Value>,
    /// Kind, name, and what was asked for, of every object.
    pub objects: Vec<(&'static str, String, Value)>,
    pub tally: Tally,
    /// How often it was asked for each, answered or not.
    pub asks: Asks,
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
            let mut seen = child.value.to_json();
            let metadata = &mut seen["metadata"];
            metadata["resourceVersion"] = Value::Null;
            metadata["uid"] = Value::Null;
            without_times(&mut seen);
            (kind.as_str(), child.name().to_owned(), seen)
        })
        // Nobody watches budgets: one that lands late stays until the next change, or until its job goes.
        .chain(
            server
                .budgets()
                .iter()
                .filter(|(name, _)| !server.is_late_budget(name))
                .map(|(name, budget)| ("budget", name.clone(), json!(budget.spec))),
        )
        .collect();
    End { status, objects, tally: world.tally(), asks: server.asks.clone().unwrap_or_default() }
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

/// Tells a scenario disturbed so, and compares its end with the undisturbed one's. Gives the difference in words.
pub fn compare(
    scenario: &Scenario,
    calm: &World,
    disturbance: Disturbance,
    make: Make,
) -> Result<(), String> {
    let told = catch_unwind(|| tell(scenario, disturbance, make, false));
    let world = told.map_err(|panic| match panic.downcast_ref::<String>() {
        Some(why) => why.clone(),
        None => "a panic".to_owned(),
    })?;
    // Who is refused, of several, depends on the order.
    let backwards = matches!(disturbance, Disturbance::CrashBackwards(_))
        .then(|| tell(scenario, Disturbance::CrashBackwards(NEVER), make, false));
    let calm = backwards.as_ref().unwrap_or(calm);
    let (mut end, mut expected) = (end_of(&world), end_of(calm));
    forget_stacks(&mut end);
    forget_stacks(&mut expected);
    // A claim outlives its job, so one that lands late does not follow a job that is gone. Its name is known: the next job takes it.
    let is_late = |name: &str| world.server().all(TargetKind::Claim).get(name).is_some_and(Child::is_late);
    if expected.status.is_none() {
        let known: BTreeSet<&String> = expected.objects.iter().map(|(_, name, _)| name).collect();
        end.objects.retain(|(kind, name, _)| {
            *kind != TargetKind::Claim.as_str() || known.contains(name) || !is_late(name)
        });
    }
    let allowance = disturbance.allowance(scenario, world.missed_end());
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
        Sameness::Late => return late(scenario, &end, &expected),
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
    asked(&end.asks, &expected.asks, &allowance)?;
    // The event of a write may be lost with the operator; none is made up.
    let (heard, all) = (events_of(&world), events_of(calm));
    if allowance.rounds == 0 && !heard.is_subset(&all) {
        return Err(format!("events that nobody else heard of: {:?}", heard.difference(&all)));
    }
    Ok(())
}

/// It ends as it should; nothing is counted that did not happen. What goes wrong may have found nobody to happen to, and a deadline does not
/// wait for anybody.
fn late(scenario: &Scenario, end: &End, expected: &End) -> Result<(), String> {
    let (is, should) = (state(end), state(expected));
    let got_away = scenario.end == Some(State::Failed) && is == Some(json!(State::Completed));
    let spec = (scenario.spec)();
    let is_overdue = spec.active_deadline_seconds.is_some() && is == Some(json!(State::Failed));
    if is != should && !got_away && !is_overdue && !scenario.together {
        return Err(format!("it ends as {is:?}, and not {should:?}"));
    }
    let counted = |end: &End| failures(end).and_then(|(_, counted)| counted.as_i64()).unwrap_or_default();
    if should.is_some() && counted(end) > counted(expected) {
        return Err(format!("{} failures were counted, and not {}", counted(end), counted(expected)));
    }
    Ok(())
}

/// Where a program hung is asked once: without an answer, or if whoever heard it dies, nobody knows.
fn forget_stacks(end: &mut End) {
    let attempts = end.status.as_mut().and_then(|status| status["attempts"].as_array_mut());
    for attempt in attempts.into_iter().flatten().filter(|attempt| attempt["cause"] == "Stalled") {
        attempt["error"] = Value::Null;
    }
}

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
