//! Rules of the house that hold for every plan, whatever the story.

use std::collections::BTreeSet;

use trainyard_api::{State, names};
use trainyard_plan::{NewObject, Plan, PodPhase, Snapshot, StatusWrite, Step, Target, TargetKind, World};

/// Whether a job may go from one state to another (none: it has no status yet).
pub(crate) fn is_allowed(from: Option<State>, to: State) -> bool {
    use State::{Completed, Failed, Initializing, Pending, Restarting, Running, Suspended};
    let next: &[State] = match from {
        None => &[Pending, Suspended, Failed],
        // Whoever looks away for a moment may find that all pods run already, or have ended.
        Some(Pending) => &[Initializing, Running, Restarting, Suspended, Completed, Failed],
        // Back to Pending when a quota has no room for the whole gang.
        Some(Initializing) => &[Pending, Running, Restarting, Suspended, Completed, Failed],
        Some(Running) => &[Restarting, Suspended, Completed, Failed],
        Some(Restarting) => &[Initializing, Running, Suspended, Completed, Failed],
        Some(Suspended) => &[Pending, Failed],
        Some(Completed) => &[],
        // Only from InvalidSpec; the cluster checks that.
        Some(Failed) => &[Pending, Suspended],
    };
    from == Some(to) || next.contains(&to)
}

/// Panics when a plan breaks a rule that no situation excuses.
/// With `orderly`, the status that the plan is made from is one that Trainyard wrote.
pub(crate) fn check(snapshot: &Snapshot, plan: &Plan, now: jiff::Timestamp, orderly: bool) {
    if let Some(wake_at) = plan.wake_at {
        assert!(wake_at > now, "wakes at {wake_at}, which is not after {now}: a busy loop");
    }
    assert!(plan.stages.iter().all(|stage| !stage.is_empty()), "an empty stage: {:?}", plan.stages);
    let mut created = BTreeSet::new();
    let mut deleted = BTreeSet::new();
    let world = World::of(&snapshot.job);
    let members: BTreeSet<String> = world.members().map(|member| member.pod_name(world.job)).collect();
    for step in plan.steps() {
        match step {
            Step::Create(object) => {
                let name = object.name().to_owned();
                let expected = match object {
                    NewObject::Pod(_) => members.contains(&name),
                    NewObject::Service(_) => name == names::service(world.job),
                    NewObject::ConfigMap(_) => name == names::config_map(world.job),
                    NewObject::Claim(_) => name == names::claim(world.job),
                };
                assert!(expected, "creates something that is no part of the job: {name}");
                let known = match object {
                    NewObject::Pod(_) => snapshot.pods.iter().any(|pod| pod.name == name),
                    NewObject::Service(_) => snapshot.services.iter().any(|view| view.name == name),
                    NewObject::ConfigMap(_) => snapshot.config_maps.iter().any(|view| view.name == name),
                    NewObject::Claim(_) => snapshot.claims.iter().any(|view| view.name == name),
                };
                assert!(!known, "creates {name}, which exists already");
                assert!(created.insert((object.kind(), name.clone())), "creates {name} twice");
            }
            Step::Delete { target, grace } => {
                let ours = match target.kind {
                    // A pod that is on its way out is only ever hastened, and only on a dead node.
                    TargetKind::Pod => snapshot.own_pods().any(|pod| {
                        let stays = !pod.deleting || (grace.is_some() && snapshot.is_on_dead_node(pod));
                        pod.name == target.name && pod.uid == target.uid && stays
                    }),
                    TargetKind::Claim => {
                        target.name == names::claim(snapshot.name())
                            && snapshot
                                .claims
                                .iter()
                                .any(|claim| claim.name == target.name && claim.uid == target.uid)
                            && snapshot.job.metadata.deletion_timestamp.is_some()
                            && snapshot.job.spec.delete_checkpoints_with_job()
                    }
                    TargetKind::Service | TargetKind::ConfigMap => false,
                };
                assert!(ours, "deletes what is not ours to delete: {target:?}");
                assert!(deleted.insert((target.kind, target.name.clone())), "deletes {} twice", target.name);
            }
            Step::Restore(restore) => {
                let views = match restore.target.kind {
                    TargetKind::Service => &snapshot.services,
                    TargetKind::ConfigMap => &snapshot.config_maps,
                    kind => panic!("restores a {}", kind.as_str()),
                };
                let ours = views.iter().any(|view| {
                    view.name == restore.target.name
                        && view.uid == restore.target.uid
                        && view.owner.as_deref() == Some(snapshot.uid())
                });
                assert!(ours, "changes what is not ours: {:?}", restore.target);
            }
            Step::Nudge(nudge) => {
                assert!(is_late(snapshot, &nudge.target), "nudges a pod that is not: {:?}", nudge.target);
            }
            Step::Budget(budget) => {
                assert_eq!(budget.metadata.name.as_deref(), Some(world.job), "another job's budget");
                let known = snapshot.job.status.as_ref().and_then(|status| status.disruption_budget.as_ref());
                assert!(known.is_some(), "a budget is made that nobody would know to remove");
                assert_ne!(plan.write, StatusWrite::BeforeSteps, "says what a budget allows before it does");
            }
            Step::RemoveClaim(name) => {
                assert!(snapshot.job.spec.delete_checkpoints_with_job(), "nobody asked for that");
                assert_eq!(*name, names::claim(world.job), "another job's claim");
            }
            Step::RemoveBudget(name) => {
                assert_eq!(name, world.job, "another job's budget");
                assert_ne!(plan.write, StatusWrite::BeforeSteps, "says that a budget is gone before it is");
            }
            Step::AddFinalizer | Step::RemoveFinalizer | Step::DeleteJob => {}
        }
    }
    for (kind, name) in &created {
        assert!(!deleted.contains(&(*kind, name.clone())), "creates and deletes {name} in one plan");
    }
    if orderly {
        check_durable(snapshot, plan);
    }
    let status = &plan.status;
    if plan.write == StatusWrite::Not || !orderly {
        return;
    }
    assert_eq!(status.phase, status.state.map(State::phase), "phase and state disagree");
    assert!(status.attempts.len() <= 10, "more than ten attempts are kept");
    let closed = status.attempts.iter().rev().skip(1).all(|attempt| !attempt.is_open());
    assert!(closed, "only the newest attempt may be open: {:?}", status.attempts);
    let kinds: BTreeSet<&str> = status.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(kinds.len(), status.conditions.len(), "a condition twice");
}

/// Decisions are durable before their effects: pods of an attempt that runs go only after the status says that it ended.
fn check_durable(snapshot: &Snapshot, plan: &Plan) {
    let status = snapshot.job.status.as_ref();
    let running = status
        .and_then(|status| status.attempts.last())
        .filter(|attempt| attempt.is_open() && attempt.created_time.is_some());
    let Some(running) = running.filter(|_| snapshot.job.metadata.deletion_timestamp.is_none()) else {
        return;
    };
    let of_it =
        |name: &str| snapshot.own_pods().any(|pod| pod.name == name && pod.attempt == Some(running.number));
    for step in plan.steps() {
        // Who is replaced alone has its own record, and a pod that is going is none of the attempt's any more.
        let recorded = |uid: &String| {
            let known = status.iter().flat_map(|status| &status.worker_statuses);
            let decided =
                plan.status.worker_statuses.iter().filter(|_| plan.write == StatusWrite::BeforeSteps);
            let mut workers = known.chain(decided);
            workers.any(|worker| worker.failed_uid.as_ref() == Some(uid))
        };
        if let Step::Delete { target, grace } = step
            && of_it(&target.name)
            && !recorded(&target.uid)
            && *grace != Some(0)
        {
            assert_eq!(
                plan.write,
                StatusWrite::BeforeSteps,
                "deletes {} before that is written",
                target.name
            );
            let ended = plan.status.attempts.iter().find(|attempt| attempt.number == running.number);
            assert!(
                ended.is_some_and(|attempt| !attempt.is_open()),
                "deletes {} of a running attempt",
                target.name
            );
        }
    }
}

/// A pod of which its node has made nothing, and which is not on its way out.
fn is_late(snapshot: &Snapshot, target: &Target) -> bool {
    snapshot.own_pods().any(|pod| {
        let is_meant = (&pod.name, &pod.uid) == (&target.name, &target.uid);
        is_meant && pod.phase == PodPhase::Pending && pod.untouched_since.is_some() && !pod.deleting
    })
}
