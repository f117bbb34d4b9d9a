//! The stories.

use std::time::Duration;

use serde_json::json;
use trainyard_api::{Role, RoleOrder, RoleSuccess, State, SuccessPolicy, TrainingJobSpec, names};
use trainyard_plan::TargetKind;

use super::stops::stops;
use super::{Act, NAME, Scenario, scenario};
use crate::world::World;

pub fn spec() -> TrainingJobSpec {
    TrainingJobSpec { image: Some("my/trainer:1".into()), num_workers: Some(2), ..TrainingJobSpec::default() }
}

pub(super) fn kept() -> TrainingJobSpec {
    TrainingJobSpec { checkpoint_dir: Some("/checkpoints".into()), ..spec() }
}

fn passing() -> TrainingJobSpec {
    TrainingJobSpec {
        ttl_seconds_after_finished: Some(30),
        checkpoint: serde_json::from_value(json!({"deleteOnCompletion": true})).ok(),
        ..spec()
    }
}

pub(super) fn one_by_one() -> TrainingJobSpec {
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

/// A server of parameters that never ends, and a chief whose success is the job's.
fn served() -> TrainingJobSpec {
    let role = |name: &str, order, success| Role {
        name: name.into(),
        replicas: Some(1),
        order: Some(order),
        success: Some(success),
        ..Role::default()
    };
    TrainingJobSpec {
        roles: Some(vec![
            role("ps", RoleOrder::BeforeWorkers, RoleSuccess::Ignored),
            role("chief", RoleOrder::WithWorkers, RoleSuccess::Decides),
        ]),
        ..kept()
    }
}

/// A server of parameters that never ends, and workers of whom one is enough.
fn any_of_them() -> TrainingJobSpec {
    let ps = Role {
        name: "ps".into(),
        replicas: Some(1),
        order: Some(RoleOrder::BeforeWorkers),
        ..Role::default()
    };
    TrainingJobSpec { roles: Some(vec![ps]), success_policy: Some(SuccessPolicy::AnyWorker), ..kept() }
}

/// Somebody deletes an object, and makes one of the same name that is not ours.
pub(super) fn in_its_place(world: &mut World, kind: TargetKind, name: &str) {
    let is_ours = world.server().all(kind).get(name).is_some_and(|child| child.ours);
    if is_ours {
        world.remove(kind, name);
    }
    world.plant(kind, name, json!({"metadata": {}, "spec": {}}));
}

/// They take it away again.
fn out_of_its_place(world: &mut World, kind: TargetKind, name: &str) {
    let is_theirs = world.server().all(kind).get(name).is_some_and(|child| !child.ours);
    if is_theirs {
        world.remove(kind, name);
    }
}

/// All scenarios.
#[expect(clippy::too_many_lines, reason = "a table")]
pub fn library() -> Vec<Scenario> {
    let run: Act = World::run_all;
    let succeed: Act = World::succeed_all;
    let fail: Act = |world| world.fail_pod("bert-workers-1", 1);
    let crash: Act = |world| world.fail_saying("bert-workers-1", 1, "RuntimeError: CUDA error");
    let wait: Act = |world| world.patience = Duration::from_mins(1);
    let gone: Act = |world| {
        world.release();
    };
    let suspend: Act = |world| world.edit(NAME, |spec| spec.suspend = Some(true));
    let resume: Act = |world| world.edit(NAME, |spec| spec.suspend = Some(false));
    let four: Act = |world| world.edit(NAME, |spec| spec.num_workers = Some(3));
    let one: Act = |world| world.edit(NAME, |spec| spec.num_workers = Some(1));
    let save: Act = |world| world.save(NAME);
    let delete: Act = |world| world.delete_job(NAME);
    // Whoever comes next is put on the same one.
    let announce: Act = |world| world.announce("bert-workers-1");
    let mut library = vec![
        scenario("create and complete", vec![run, succeed], Some(State::Completed)),
        scenario(
            "a node makes nothing of a pod",
            // Its kubelet looks again when the pod is changed.
            vec![
                |world| world.bind("bert-workers-1"),
                |world| world.run("bert-workers-0"),
                wait,
                |world| {
                    let is_nudged = {
                        let server = world.server();
                        let pod = server.all(TargetKind::Pod).get("bert-workers-1");
                        pod.is_some_and(|pod| pod.annotation(names::NUDGED_ANNOTATION).is_some())
                    };
                    if is_nudged {
                        world.run("bert-workers-1");
                    }
                },
                succeed,
            ],
            Some(State::Completed),
        ),
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
            "a node that is to go",
            vec![run, announce, gone, run, wait, succeed],
            Some(State::Completed),
        ),
        Scenario {
            spec: one_by_one,
            ..scenario(
                "a node that is to go, one by one",
                vec![run, announce, gone, run, wait, succeed],
                Some(State::Completed),
            )
        },
        scenario(
            "fail, restart, complete",
            vec![run, fail, gone, wait, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "the same failure twice",
            // A third time would be once too often.
            vec![run, crash, gone, wait, run, crash, gone, wait, run, succeed],
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
        Scenario {
            spec: || TrainingJobSpec { stall_timeout_seconds: Some(40), ..kept() },
            ..scenario(
                "silence from the start",
                // How long the first step takes is known of the attempt before.
                vec![
                    run,
                    |world| world.progress(NAME),
                    fail,
                    gone,
                    wait,
                    run,
                    wait,
                    wait,
                    gone,
                    wait,
                    run,
                    succeed,
                ],
                Some(State::Completed),
            )
        },
        scenario(
            "on from a checkpoint",
            vec![run, save, save, fail, gone, run, fail, gone, wait, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "another job had saved something",
            vec![run, save, delete, gone, |world| world.submit(NAME, kept()), run, gone, run, succeed],
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
        Scenario {
            refused: true,
            ..scenario(
                "suspended, and a stranger has the name of a pod",
                vec![
                    |world| in_its_place(world, TargetKind::Pod, "bert-workers-1"),
                    suspend,
                    wait,
                    |world| out_of_its_place(world, TargetKind::Pod, "bert-workers-1"),
                    resume,
                    wait,
                    run,
                ],
                Some(State::Running),
            )
        },
        scenario(
            "suspended, and saved in the time that is left",
            vec![run, save, suspend, save, gone, wait, resume, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "drained, and saved in the time that is left",
            vec![
                run,
                save,
                |world| world.remove(TargetKind::Pod, "bert-workers-0"),
                save,
                gone,
                run,
                succeed,
            ],
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
        Scenario {
            forced: true,
            ..scenario(
                "node loss",
                // Nobody but the operator takes a pod from a dead node.
                vec![run, |world| world.lose_node("bert-workers-1"), gone, wait, wait, run, succeed],
                Some(State::Completed),
            )
        },
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
        scenario(
            "somebody edits the config map",
            vec![
                run,
                |world| {
                    let edited = json!({"edited": "yes"});
                    world.change(TargetKind::ConfigMap, "bert-config", |map| map["data"] = edited);
                },
                wait,
            ],
            Some(State::Running),
        ),
        scenario(
            "somebody edits the service",
            vec![
                run,
                |world| {
                    let edited = json!({"app": "theirs"});
                    world.change(TargetKind::Service, "bert-workers", |service| {
                        service["spec"]["selector"] = edited;
                    });
                },
                wait,
            ],
            Some(State::Running),
        ),
        scenario(
            "out of memory",
            vec![run, |world| world.out_of_memory("bert-workers-1"), gone, wait, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "a pod takes all the time that it has",
            // Half a minute, and then its kubelet kills it.
            vec![run, fail, |world| world.patience = Duration::from_secs(29), gone, wait, run, succeed],
            Some(State::Completed),
        ),
        scenario(
            "a pod takes its time while suspended",
            vec![run, suspend, |world| world.patience = Duration::from_secs(29), resume, wait, gone, run],
            Some(State::Running),
        ),
        Scenario {
            forced: true,
            ..scenario(
                "a node is removed",
                vec![run, |world| world.remove_node("bert-workers-1"), gone, wait, wait, run, succeed],
                Some(State::Completed),
            )
        },
        Scenario {
            spec: served,
            ..scenario(
                "a chief decides",
                vec![
                    run,
                    run,
                    |world| world.fail_pod("bert-ps-0", 1),
                    gone,
                    wait,
                    run,
                    run,
                    |world| world.succeed("bert-chief-0"),
                    gone,
                ],
                Some(State::Completed),
            )
        },
        Scenario {
            spec: any_of_them,
            ..scenario(
                "one worker is enough",
                vec![run, run, |world| world.succeed("bert-workers-1"), gone],
                Some(State::Completed),
            )
        },
        Scenario {
            spec: || TrainingJobSpec { backoff_limit: Some(0), ..kept() },
            ..scenario("delete when it has failed", vec![run, fail, gone, delete, gone], None)
        },
        scenario(
            "delete while it waits for room",
            vec![|world| world.cannot_be_placed("bert-workers-1"), wait, delete, gone],
            None,
        ),
        Scenario {
            forced: true,
            ..scenario(
                "delete with a pod on a dead node",
                vec![run, |world| world.lose_node("bert-workers-1"), delete, gone, wait, wait, gone],
                None,
            )
        },
        scenario("delete at once", vec![delete], None),
        scenario("delete while it runs", vec![run, delete, gone], None),
        scenario("delete in the backoff", vec![run, fail, gone, delete, gone], None),
        scenario("delete while its pods are going", vec![run, fail, delete, gone], None),
        scenario(
            "delete while invalid",
            vec![run, |world| world.edit(NAME, |spec| spec.command = Some(Vec::new())), delete, gone],
            None,
        ),
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
                    |world| in_its_place(world, TargetKind::Pod, "bert-workers-1"),
                    wait,
                    |world| out_of_its_place(world, TargetKind::Pod, "bert-workers-1"),
                    wait,
                    run,
                ],
                Some(State::Running),
            )
        },
        Scenario {
            refused: true,
            ..scenario(
                "name conflict of a service",
                vec![
                    run,
                    |world| in_its_place(world, TargetKind::Service, "bert-workers"),
                    wait,
                    |world| out_of_its_place(world, TargetKind::Service, "bert-workers"),
                    wait,
                ],
                Some(State::Running),
            )
        },
        Scenario {
            refused: true,
            ..scenario(
                "name conflict of a config map",
                vec![
                    run,
                    |world| in_its_place(world, TargetKind::ConfigMap, "bert-config"),
                    wait,
                    |world| out_of_its_place(world, TargetKind::ConfigMap, "bert-config"),
                    wait,
                ],
                Some(State::Running),
            )
        },
        Scenario {
            refused: true,
            ..scenario(
                "name conflict of a claim",
                vec![
                    |world| in_its_place(world, TargetKind::Claim, "bert-checkpoints"),
                    wait,
                    |world| out_of_its_place(world, TargetKind::Claim, "bert-checkpoints"),
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
    ];
    library.extend(stops());
    library
}
