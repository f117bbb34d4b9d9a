//! Fields that decide about what may happen: it does happen, here, there, and back again.

use serde_json::{Value, json};

use super::events::Event;
use super::fields::{Change, changes};
use super::{NAME, assert_same, edit, left, left_but_spec, live, objects, settle, spent};

/// What came of an event, wherever the job was by then.
fn effect(world: &mut trainyard_sim::World, event: Event) -> Value {
    let (attempts, restarts) = spent(world);
    (event.happen)(world);
    let (attempts_after, after) = spent(world);
    let more = [
        attempts_after - attempts,
        after.application - restarts.application,
        after.disruption - restarts.disruption,
        after.stall - restarts.stall,
        after.rescale - restarts.rescale,
        after.update - restarts.update,
    ];
    let status = world.status(NAME).unwrap_or_default();
    let last = status.attempts.last();
    json!({
        "more": more,
        "state": status.state,
        "open": last.is_some_and(trainyard_api::Attempt::is_open),
        "cause": last.and_then(|last| last.cause),
        "objects": objects(world),
    })
}

fn decided() -> impl Iterator<Item = (Change, Event)> {
    changes().into_iter().filter_map(|change| {
        let event = change.event?;
        Some((change, event))
    })
}

/// In both directions.
fn both(change: &Change) -> [(String, Value, Value); 2] {
    let (with, without) = (change.what(), format!("without {}", change.what()));
    let (here, there) = change.specs();
    [(with, here.clone(), there.clone()), (without, there, here)]
}

#[test]
fn whatever_does_not_show_decides_about_something() {
    for change in changes() {
        assert!(change.shows || change.event.is_some(), "{} means nothing", change.what());
    }
}

/// The other value decides when it holds, as if it had from the beginning; when it is gone, it decides nothing any more.
#[test]
fn what_is_decided_is_decided_by_what_holds() {
    for (change, event) in decided() {
        for (what, here, there) in both(&change) {
            let what = format!("{what}; {}", event.name);
            let (mut stays, mut goes, mut alone) = (live(&here), live(&here), live(&there));
            edit(&mut goes, &there);
            settle(&mut goes);
            let mut returns = live(&here);
            edit(&mut returns, &there);
            settle(&mut returns);
            edit(&mut returns, &here);
            settle(&mut returns);
            for world in [&mut stays, &mut goes, &mut alone, &mut returns] {
                (event.happen)(world);
            }
            assert_ne!(left_but_spec(&goes), left_but_spec(&stays), "{what}: it makes no difference");
            for (is, should, how) in [(goes, alone, "from the beginning"), (returns, stays, "back again")] {
                let what = format!("{what}: {how}");
                assert_same(&left(&is), &left(&should), &what);
                assert_eq!(spent(&is), spent(&should), "{what}");
            }
        }
    }
}

/// What has been decided stays, and the next time the old value decides again.
#[test]
fn what_comes_next_is_decided_as_before() {
    let mut next_times = 0;
    for (change, event) in decided() {
        for (what, here, there) in both(&change) {
            let what = format!("{what}; {}, twice", event.name);
            let before = effect(&mut live(&here), event);
            let mut world = live(&here);
            edit(&mut world, &there);
            settle(&mut world);
            (event.happen)(&mut world);
            let was_over = world.is_over(NAME);
            // Who is still being started would have to be ready at once.
            settle(&mut world);
            let (state, costs) = (world.state(NAME), spent(&world));
            edit(&mut world, &here);
            settle(&mut world);
            if was_over {
                // What is over stays so, however the spec is changed back; only its time may be over, too.
                if world.exists(NAME) {
                    assert_eq!((world.state(NAME), spent(&world)), (state, costs), "{what}: it is over");
                }
                continue;
            }
            next_times += 1;
            assert_same(&effect(&mut world, event), &before, &what);
        }
    }
    assert!(next_times > 20, "only {next_times} lived on");
}
