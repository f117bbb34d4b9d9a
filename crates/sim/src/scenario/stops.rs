//! Stories about ends: of jobs that fail for good, are stopped in the moment in which something else happens to them, or leave pods behind.

use std::time::Duration;

use serde_json::json;
use trainyard_api::{CleanPodPolicy, RestartPolicy, State, TrainingJobSpec};
use trainyard_plan::TargetKind;

use super::library::{in_its_place, kept, one_by_one, spec};
use super::{Act, NAME, Scenario, scenario};
use crate::world::World;

const WORKER: &str = "bert-workers-1";

fn suspend(world: &mut World) {
    world.edit(NAME, |spec| spec.suspend = Some(true));
}

fn afresh() -> TrainingJobSpec {
    let checkpoint = json!({"directory": "/checkpoints", "resume": "Never"});
    TrainingJobSpec { checkpoint: serde_json::from_value(checkpoint).ok(), ..spec() }
}

fn cleaned(policy: CleanPodPolicy) -> TrainingJobSpec {
    TrainingJobSpec { clean_pod_policy: Some(policy), backoff_limit: Some(0), ..spec() }
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn stops() -> Vec<Scenario> {
    let run: Act = World::run_all;
    let succeed: Act = World::succeed_all;
    let fail: Act = |world| world.fail_pod(WORKER, 1);
    let crash: Act = |world| world.fail_saying(WORKER, 1, "RuntimeError: CUDA error");
    let wait: Act = |world| world.patience = Duration::from_mins(1);
    let gone: Act = |world| {
        world.release();
    };
    let resume: Act = |world| world.edit(NAME, |spec| spec.suspend = Some(false));
    let delete: Act = |world| world.delete_job(NAME);
    vec![
        scenario(
            "the same failure three times",
            vec![run, crash, gone, wait, run, crash, gone, wait, run, crash, gone],
            Some(State::Failed),
        ),
        Scenario {
            spec: || TrainingJobSpec { restart_policy: Some(RestartPolicy::Never), ..kept() },
            ..scenario("never restarted", vec![run, fail, gone], Some(State::Failed))
        },
        Scenario {
            spec: || TrainingJobSpec { restart_policy: Some(RestartPolicy::ExitCode), ..kept() },
            ..scenario(
                "killed, and then an exit code of its own",
                vec![run, |world| world.fail_pod(WORKER, 137), gone, wait, run, fail, gone],
                Some(State::Failed),
            )
        },
        Scenario {
            spec: afresh,
            ..scenario(
                "every attempt starts afresh",
                // The second time, it saves the same once more.
                vec![
                    run,
                    |world| world.save(NAME),
                    fail,
                    gone,
                    wait,
                    run,
                    |world| world.save(NAME),
                    fail,
                    gone,
                    wait,
                    run,
                    succeed,
                ],
                Some(State::Completed),
            )
        },
        Scenario {
            spec: one_by_one,
            ..scenario(
                "one by one, one fails twice",
                vec![run, fail, gone, wait, run, fail, gone, wait, run, succeed],
                Some(State::Completed),
            )
        },
        Scenario {
            spec: one_by_one,
            ..scenario(
                "one by one, one is drained and fails",
                vec![
                    run,
                    |world| {
                        world.evict(WORKER);
                        world.fail_pod(WORKER, 1);
                    },
                    gone,
                    run,
                    succeed,
                ],
                Some(State::Completed),
            )
        },
        scenario(
            "drained, and the program fails",
            vec![run, |world| world.evict(WORKER), |world| world.fail_pod(WORKER, 1), gone, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "drained, and the program ends well",
            vec![run, |world| world.evict(WORKER), |world| world.succeed(WORKER), gone, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "evicted by its kubelet",
            vec![run, |world| world.evict_by_kubelet(WORKER, 1), gone, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "its own disk is full",
            vec![run, |world| world.fill_its_disk(WORKER), gone, wait, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "a dead node that nobody may look at",
            vec![
                run,
                |world| {
                    world.hide_nodes(true);
                    world.lose_node(WORKER);
                },
                wait,
                |world| {
                    world.hide_nodes(false);
                    world.heal_nodes();
                    world.release();
                },
                wait,
                run,
                succeed,
            ],
            Some(State::Completed),
        ),
        Scenario {
            spec: || TrainingJobSpec { active_deadline_seconds: Some(100), ..kept() },
            ..scenario(
                "suspended for longer than the deadline",
                vec![run, suspend, gone, wait, wait, resume, run, wait, succeed],
                Some(State::Completed),
            )
        },
        Scenario {
            together: true,
            ..scenario(
                "done when it is suspended",
                vec![
                    run,
                    |world| {
                        world.succeed_all();
                        suspend(world);
                    },
                    gone,
                ],
                Some(State::Completed),
            )
        },
        Scenario {
            together: true,
            ..scenario(
                "failed when it is suspended",
                vec![
                    run,
                    |world| {
                        world.fail_pod(WORKER, 1);
                        suspend(world);
                    },
                    gone,
                    wait,
                    resume,
                    run,
                    succeed,
                ],
                Some(State::Completed),
            )
        },
        Scenario {
            spec: || TrainingJobSpec { backoff_limit: Some(0), ..kept() },
            together: true,
            ..scenario(
                "failed for good when it is suspended",
                vec![
                    run,
                    |world| {
                        world.fail_pod(WORKER, 1);
                        suspend(world);
                    },
                    gone,
                ],
                Some(State::Failed),
            )
        },
        Scenario {
            spec: || cleaned(CleanPodPolicy::None),
            ..scenario("pods stay", vec![run, fail, gone, wait], Some(State::Failed))
        },
        Scenario {
            spec: || cleaned(CleanPodPolicy::All),
            ..scenario("no pod stays", vec![run, fail, gone, wait], Some(State::Failed))
        },
        Scenario {
            refused: true,
            ..scenario(
                "delete while a quota holds it",
                vec![
                    |world| {
                        world.set_quota(Some(1));
                        world.edit(NAME, |spec| spec.num_workers = Some(3));
                    },
                    gone,
                    wait,
                    delete,
                    gone,
                ],
                None,
            )
        },
        Scenario {
            refused: true,
            ..scenario(
                "delete while a stranger has the name of a pod",
                vec![|world| in_its_place(world, TargetKind::Pod, WORKER), wait, delete, gone],
                None,
            )
        },
    ]
}
