//! What happens to a job that runs, and what fields decide about.

use std::time::Duration;

use trainyard_sim::World;

use super::NAME;

/// Something happens. It is looked at right after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) name: &'static str,
    pub(super) happen: fn(&mut World),
}

const LEADER: &str = "bert-workers-0";
const OTHER: &str = "bert-workers-1";
const EVALUATOR: &str = "bert-eval-0";

fn pass(world: &mut World, seconds: u64) {
    world.pass(Duration::from_secs(seconds));
}

/// The pods that were told to go do, and what waits for a moment gets it. None of the new ones runs.
fn go_on(world: &mut World, seconds: u64) {
    world.settle();
    world.release();
    pass(world, seconds);
}

pub(super) const FAILS: Event = Event {
    name: "a worker fails",
    happen: |world| {
        world.fail_saying(OTHER, 1, "RuntimeError: uncorrectable ECC error");
        world.settle();
    },
};

pub(super) const OUT_OF_MEMORY: Event = Event {
    name: "a worker uses too much memory",
    happen: |world| {
        world.out_of_memory(OTHER);
        world.settle();
    },
};

pub(super) const EVICTED: Event = Event {
    name: "a worker is evicted",
    happen: |world| {
        world.evict(OTHER);
        world.settle();
    },
};

pub(super) const COMES_BACK: Event = Event {
    name: "a checkpoint is saved, and the pods of the next attempt are made",
    happen: |world| {
        world.save(NAME);
        // For this, no node is avoided.
        world.out_of_memory(OTHER);
        go_on(world, 15);
    },
};

pub(super) const DOES_NOT_COME_BACK: Event = Event {
    name: "the pods of the next attempt do not run",
    happen: |world| {
        world.out_of_memory(OTHER);
        go_on(world, 90);
    },
};

pub(super) const FALLS_SILENT: Event = Event {
    name: "the program tells of progress, and then nothing",
    happen: |world| {
        world.progress(NAME);
        pass(world, 100);
    },
};

pub(super) const GROWS_OLD: Event = Event {
    name: "much time passes",
    happen: |world| {
        pass(world, 300);
        go_on(world, 1);
    },
};

pub(super) const ONE_SUCCEEDS: Event = Event {
    name: "a worker succeeds",
    happen: |world| {
        world.succeed(OTHER);
        go_on(world, 10);
    },
};

pub(super) const LEADER_SUCCEEDS: Event = Event {
    name: "the leading worker succeeds",
    happen: |world| {
        world.succeed(LEADER);
        go_on(world, 10);
    },
};

pub(super) const EVALUATOR_SUCCEEDS: Event = Event {
    name: "the evaluator succeeds",
    happen: |world| {
        world.succeed(EVALUATOR);
        go_on(world, 10);
    },
};

pub(super) const WORKERS_SUCCEED: Event = Event {
    name: "the workers succeed",
    happen: |world| {
        world.succeed(LEADER);
        world.succeed(OTHER);
        go_on(world, 10);
    },
};

pub(super) const SUCCEEDS: Event = Event {
    name: "all succeed",
    happen: |world| {
        world.succeed_all();
        go_on(world, 10);
    },
};

pub(super) const IS_DELETED: Event = Event {
    name: "the job is deleted",
    happen: |world| {
        world.delete_job(NAME);
        go_on(world, 10);
    },
};
