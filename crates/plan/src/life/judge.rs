//! What the pods of the current attempt say about it.

use std::collections::BTreeMap;

use trainyard_api::{Attempt, Cause, Phase, RoleSuccess, TrainingJobStatus};

use crate::snapshot::{Exit, PodPhase, PodView};
use crate::text;
use crate::world::{Member, World};

/// The pods of the current attempt, by name.
pub(super) type Gang<'a> = BTreeMap<&'a str, &'a PodView>;

/// How the attempt stands.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict<'a> {
    /// Nothing to decide: it goes on.
    GoesOn,
    Succeeded,
    /// It must end before its time.
    Ends {
        cause: Cause,
        pod: Option<&'a PodView>,
        message: String,
    },
}

/// Judges an attempt. Success comes first: what happens to a job that is done does not matter any more.
pub(super) fn judge<'a>(
    world: &World<'_>,
    gang: &Gang<'a>,
    vanished: &[&str],
    attempt: Option<&Attempt>,
    status: &TrainingJobStatus,
    inputs: &str,
) -> Verdict<'a> {
    if has_succeeded(world, gang, status, attempt) {
        return Verdict::Succeeded;
    }
    // A worker whose peer is taken away fails, too, and often is seen first: what took the peer is the cause.
    if let Some(verdict) =
        lost(world, gang, attempt, status).or_else(|| gone_early(world, gang, vanished, attempt))
    {
        return verdict;
    }
    if let Some(pod) = disrupted(gang).or_else(|| first_failure(world, gang)) {
        return failure(world, pod);
    }
    changed(world, gang, inputs)
}

fn has_succeeded(
    world: &World<'_>,
    gang: &Gang<'_>,
    status: &TrainingJobStatus,
    attempt: Option<&Attempt>,
) -> bool {
    let wanted = if world.has_decider() { RoleSuccess::Decides } else { RoleSuccess::Required };
    let mut deciding = world.members().filter(|member| member.role.success == wanted).peekable();
    deciding.peek().is_some()
        && deciding.all(|member| member_succeeded(world, &member, gang, status, attempt))
}

/// A pod that succeeded may be gone (somebody cleaned up): the status remembers.
fn member_succeeded(
    world: &World<'_>,
    member: &Member<'_, '_>,
    gang: &Gang<'_>,
    status: &TrainingJobStatus,
    attempt: Option<&Attempt>,
) -> bool {
    let name = member.pod_name(world.job);
    match gang.get(name.as_str()) {
        Some(pod) => pod.phase == PodPhase::Succeeded,
        None => {
            attempt.is_some_and(|attempt| attempt.is_open() && attempt.created_time.is_some())
                && status
                    .worker_statuses
                    .iter()
                    .any(|worker| worker.pod_name == name && worker.phase == Phase::Succeeded)
        }
    }
}

/// A pod that was deleted is stopped by a signal and then fails, too: that is not the program's doing.
fn has_failed(pod: &PodView) -> bool {
    pod.phase == PodPhase::Failed && !pod.deleting
}

/// A pod that the cluster takes away, once that has made any pod fail.
fn disrupted<'a>(gang: &Gang<'a>) -> Option<&'a PodView> {
    let mut pods = gang.values().copied();
    let disrupted = |pod: &PodView| pod.disruption.is_some() && pod.phase != PodPhase::Succeeded;
    gang.values().any(|pod| has_failed(pod)).then(|| pods.find(|pod| disrupted(pod))).flatten()
}

/// The pod that failed first; of several at the same moment, the one of the lowest rank.
fn first_failure<'a>(world: &World<'_>, gang: &Gang<'a>) -> Option<&'a PodView> {
    let when = |pod: &PodView| {
        let at = pod.exit.as_ref().and_then(|exit| exit.at).map(jiff::Timestamp::as_second);
        (at.is_none(), at)
    };
    // Members first, in the order of their ranks; the first of equals is taken.
    let members = world.members().filter_map(|member| gang.get(member.pod_name(world.job).as_str()).copied());
    members.chain(gang.values().copied()).filter(|pod| has_failed(pod)).min_by_key(|pod| when(pod))
}

fn failure<'a>(world: &World<'_>, pod: &'a PodView) -> Verdict<'a> {
    let title = title(world, &pod.name);
    let place = pod.node.as_ref().map(|node| format!(" on node {node}")).unwrap_or_default();
    if let Some(why) = &pod.disruption {
        let message = format!("{title} was disrupted{place}: {}", why.trim_end_matches('.'));
        return Verdict::Ends { cause: Cause::Disruption, pod: Some(pod), message };
    }
    let (cause, how) = match &pod.exit {
        Some(exit) if exit.reason.as_deref() == Some("OOMKilled") => (
            Cause::OutOfMemory,
            "used more memory than its limit (OOMKilled): raise resources.limits.memory or use a smaller batch".to_owned(),
        ),
        Some(exit) => (Cause::Application, how_it_ended(exit)),
        None => (Cause::Application, "the pod failed without an exit code".to_owned()),
    };
    Verdict::Ends { cause, pod: Some(pod), message: format!("{title} failed{place}: {how}") }
}

/// The exit code, and what the runtime or the program itself left as its last words.
fn how_it_ended(exit: &Exit) -> String {
    let code = text::exit_code(exit.code);
    let words =
        exit.message.as_deref().and_then(|message| message.lines().find(|line| !line.trim().is_empty()));
    match words {
        Some(words) => format!("{code}: {}", text::shortened(words.trim(), 200)),
        None => code,
    }
}

/// A pod that is gone, or going, although nobody here asked for it.
fn lost<'a>(
    world: &World<'_>,
    gang: &Gang<'a>,
    attempt: Option<&Attempt>,
    status: &TrainingJobStatus,
) -> Option<Verdict<'a>> {
    // Until all pods have been seen once, a missing one has not been created yet.
    attempt.filter(|attempt| attempt.is_open() && attempt.created_time.is_some())?;
    let same_shape = made_for_this_shape(world, gang);
    world.members().find_map(|member| {
        let name = member.pod_name(world.job);
        let pod = gang.get(name.as_str()).copied();
        let gone = match pod {
            Some(pod) => pod.deleting && pod.phase != PodPhase::Succeeded,
            // Of a world of another shape this member was never a part.
            None => same_shape && !member_succeeded(world, &member, gang, status, attempt),
        };
        gone.then(|| {
            let why = pod
                .and_then(|pod| pod.disruption.clone())
                .unwrap_or_else(|| "its pod was deleted".to_owned());
            let message = format!("{} was lost: {why}", member.title());
            Verdict::Ends { cause: Cause::Disruption, pod, message }
        })
    })
}

/// A pod that was seen and is gone before all pods of its attempt had been seen. A new one beside the others would join
/// a world that has begun without it.
fn gone_early<'a>(
    world: &World<'_>,
    gang: &Gang<'a>,
    vanished: &[&str],
    attempt: Option<&Attempt>,
) -> Option<Verdict<'a>> {
    if attempt.is_some_and(|attempt| attempt.created_time.is_some()) {
        return None;
    }
    let mut members = world.members();
    let member = members.find(|member| {
        let name = member.pod_name(world.job);
        !gang.is_empty() && !gang.contains_key(name.as_str()) && vanished.contains(&name.as_str())
    })?;
    let message = format!("{} was lost: its pod was deleted", member.title());
    Some(Verdict::Ends { cause: Cause::Disruption, pod: None, message })
}

/// An empty gang of a started attempt has lost everybody; otherwise the pods say what world they are of.
fn made_for_this_shape(world: &World<'_>, gang: &Gang<'_>) -> bool {
    let shape = world.shape();
    gang.values().all(|pod| pod.shape.as_deref() == Some(shape.as_str()))
}

fn changed<'a>(world: &World<'_>, gang: &Gang<'a>, inputs: &str) -> Verdict<'a> {
    let shape = world.shape();
    if gang.values().any(|pod| pod.inputs.as_deref() != Some(inputs)) {
        return Verdict::Ends {
            cause: Cause::Update,
            pod: None,
            message: "the spec changed: the pods are replaced by ones made from the new spec".to_owned(),
        };
    }
    let before = gang.values().find(|pod| pod.shape.as_deref() != Some(shape.as_str()));
    match before {
        None => Verdict::GoesOn,
        Some(pod) => Verdict::Ends {
            cause: Cause::Rescale,
            pod: None,
            message: format!(
                "rescaled from {} to {shape}",
                pod.shape.as_deref().unwrap_or("an unknown number")
            ),
        },
    }
}

fn title(world: &World<'_>, pod: &str) -> String {
    world
        .members()
        .find(|member| member.pod_name(world.job) == pod)
        .map_or_else(|| format!("Pod {pod}"), |member| member.title())
}
