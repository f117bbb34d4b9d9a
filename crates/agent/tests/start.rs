//! What the start of a program with a bucket depends on, when its directory cannot be listed.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support {
    pub(crate) mod files;
    pub(crate) mod odd;
    pub(crate) mod world;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::odd::Odd;
use support::world::{World, at, options, told};
use trainyard_agent::store::{Directory, StoreError};
use trainyard_agent::{Agent, Options, Resume, Start};

/// An agent whose directory cannot be listed so many times.
fn agent(world: &World, times: usize, options: Options) -> Agent {
    let left = Arc::new(AtomicUsize::new(times));
    let mut store = Odd::over(Directory::new(world.pod("pod").to_str().unwrap()));
    store.unlisted = Box::new(move || {
        let is_bad =
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        is_bad.then(|| StoreError::Other { place: "/checkpoints".to_owned(), reason: "stale".to_owned() })
    });
    Agent::new(Box::new(store), options).with_copy_in(&world.place, world.server.variables("secret"), true)
}

#[test]
fn a_bad_moment_of_the_directory_passes() {
    let world = World::new().with_saved(&["step-5.pt"]);
    let mut agent = agent(&world, 2, told("step-5.pt"));
    assert_eq!((agent.begin(at(0)).problem, agent.start()), (None, Start::Ready));
    assert!(world.has("pod", "step-5.pt"));
}

#[test]
fn a_bad_hour_of_the_directory_is_no_fresh_start_if_the_bucket_has_something() {
    let world = World::new().with_saved(&["step-5.pt"]);
    let mut held = agent(&world, 100, told("step-5.pt"));
    let problem = held.begin(at(0)).problem.unwrap();
    assert_eq!(held.start(), Start::Held);
    assert!(problem.contains("the program is not started") && problem.contains("stale"), "{problem}");
    // It passes.
    let mut held = agent(&world, 3, told("step-5.pt"));
    held.begin(at(0));
    held.look(at(10));
    assert!(held.start() == Start::Ready && world.has("pod", "step-5.pt"));
}

#[test]
fn a_bad_hour_of_the_directory_stops_nobody_who_has_nothing_to_lose() {
    let world = World::new();
    let mut free = agent(&world, 100, options());
    assert!(free.begin(at(0)).problem.unwrap().contains("stale"));
    assert_eq!(free.start(), Start::Ready);
    let world = world.with_saved(&["step-5.pt"]);
    let mut free = agent(&world, 100, Options { resume: Resume::Never, ..options() });
    free.begin(at(0));
    assert_eq!(free.start(), Start::Ready);
}
