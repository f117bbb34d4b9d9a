//! An operator that dies after each of its writes, every time: the next one goes on, and the end is the same. (One that dies once, at
//! any place and with anything else that may go wrong, is told by the simulator.)
//!
//! The cluster itself watches that no two pods of one name and no pods of two attempts ever exist side by side, and
//! that no status is written that does not differ.

mod support;

use support::{Cluster, Happening, Job, job, role};
use trainyard_api::{Role, RoleOrder, State, TrainingJobStatus};
use trainyard_plan::PodView;

/// A story: a job, and what happens to it. Between two happenings everything comes to rest.
struct Story {
    name: &'static str,
    job: fn() -> Job,
    happenings: Vec<Happening>,
    end: Option<State>,
}

fn stories() -> Vec<Story> {
    let run: Happening = Cluster::run_all;
    let succeed: Happening = Cluster::succeed_all;
    let fail: Happening = |cluster| cluster.fail("workers-1", 1);
    let wait: Happening = |cluster| cluster.pass(60);
    let gone: Happening = Cluster::release;
    let story =
        |name, happenings, end| Story { name, job: || job("bert").workers(3).checkpoints(), happenings, end };
    vec![
        story("complete", vec![run, succeed], Some(State::Completed)),
        story("fail, restart, complete", vec![run, fail, wait, run, succeed], Some(State::Completed)),
        Story {
            job: || job("bert").workers(2).backoff_limit(1),
            ..story("fail until the limit", vec![run, fail, wait, run, fail, wait], Some(State::Failed))
        },
        story("scale", vec![run, |c| c.scale(4), run, |c| c.scale(1), run, succeed], Some(State::Completed)),
        story(
            "change the image",
            vec![run, |c| c.edit(|spec| spec.image = Some("my/trainer:2".into())), run],
            Some(State::Running),
        ),
        story(
            "suspend and resume",
            vec![run, Cluster::suspend, wait, Cluster::resume, run, succeed],
            Some(State::Completed),
        ),
        story(
            "suspend in the backoff",
            vec![run, fail, Cluster::suspend, wait, Cluster::resume, run],
            Some(State::Running),
        ),
        story(
            "a pod is deleted",
            vec![run, |c| c.delete_pod("workers-0"), run, succeed],
            Some(State::Completed),
        ),
        story("delete", vec![run, Cluster::delete_job], None),
        story("delete at once", vec![Cluster::delete_job], None),
        Story {
            job: || {
                job("bert").workers(2).with(|spec| {
                    spec.ttl_seconds_after_finished = Some(30);
                    spec.checkpoint =
                        serde_json::from_value(serde_json::json!({"deleteOnCompletion": true})).ok();
                })
            },
            ..story("complete and be forgotten", vec![run, succeed, wait], None)
        },
        story(
            "slow deaths",
            vec![Cluster::pods_linger, run, fail, wait, gone, run, |c| c.scale(2), gone, run, succeed],
            Some(State::Completed),
        ),
        Story {
            job: || {
                job("bert")
                    .workers(2)
                    .role(Role { order: Some(RoleOrder::BeforeWorkers), ..role("store", 1) })
                    .role(Role { order: Some(RoleOrder::AfterWorkers), ..role("eval", 1) })
            },
            ..story(
                "roles in order",
                vec![run, run, run, fail, wait, run, run, run, succeed],
                Some(State::Completed),
            )
        },
        story(
            "invalid for a while",
            vec![
                run,
                |c| c.edit(|spec| spec.command = Some(Vec::new())),
                |c| c.edit(|spec| spec.command = None),
                run,
            ],
            Some(State::Running),
        ),
        Story {
            job: || job("bert").workers(2).with(|spec| spec.active_deadline_seconds = Some(50)),
            ..story("past the deadline", vec![run, fail, wait], Some(State::Failed))
        },
    ]
}

/// What is left in the end.
#[derive(Debug, PartialEq)]
struct End {
    status: Option<TrainingJobStatus>,
    pods: Vec<PodView>,
    services: Vec<String>,
    config_maps: Vec<String>,
    claims: Vec<String>,
}

fn end_of(cluster: &Cluster) -> End {
    let anonymous = |pod: &PodView| PodView { uid: String::new(), ..pod.clone() };
    let mut status = cluster.exists().then(|| cluster.status().clone());
    if let Some(status) = &mut status {
        // A map by type: the order in which they came to be says nothing.
        status.conditions.sort_by(|left, right| left.type_.cmp(&right.type_));
    }
    End {
        status,
        pods: cluster.pods().iter().map(|pod| anonymous(cluster.pod(pod))).collect(),
        services: cluster.services().keys().cloned().collect(),
        config_maps: cluster.config_maps().keys().cloned().collect(),
        claims: cluster.claims().keys().cloned().collect(),
    }
}

/// Tells a story. `rest` brings everything to rest.
fn tell(story: &Story, rest: impl Fn(&mut Cluster)) -> Cluster {
    let mut cluster = (story.job)().submitted();
    rest(&mut cluster);
    for happening in &story.happenings {
        happening(&mut cluster);
        rest(&mut cluster);
    }
    // Details may lag behind by a few seconds.
    cluster.pass(10);
    rest(&mut cluster);
    cluster
}

#[test]
fn an_operator_that_dies_after_each_of_its_writes_still_gets_there() {
    for story in stories() {
        let calm = tell(&story, Cluster::settle);
        assert_eq!(calm.exists().then(|| calm.state()), story.end, "{}", story.name);
        let rest = |cluster: &mut Cluster| {
            for _ in 0..200 {
                cluster.crash_after(1);
                if cluster.try_settle().is_ok() {
                    return cluster.operator_restarts();
                }
                cluster.operator_restarts();
            }
            panic!("{}: no end", story.name);
        };
        let crashed = tell(&story, rest);
        assert_eq!(end_of(&crashed), end_of(&calm), "{}", story.name);
    }
}
