//! What one part of a status says, no other part denies, and neither do the facts.

use trainyard_api::{Cause, Phase, State, TrainingJob, TrainingJobStatus, WorkerCounts, condition};
use trainyard_plan::{UNREADABLE, World as Roles};

use super::{Checker, Verdict, demand, open_attempt};

impl Checker {
    /// The status agrees with itself, with the job that it is of, and with how far its programs say that they are.
    pub(super) fn coherent(
        &self,
        uid: &str,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Verdict {
        agrees(new)?;
        conditions(new)?;
        if is_unreadable(new) || new.observed_generation == old.observed_generation {
            // Who cannot read the job says little about it.
            demand!(
                new.observed_generation <= job.metadata.generation,
                "generation {:?} was observed, and it is {:?}",
                new.observed_generation,
                job.metadata.generation
            );
        } else {
            // Only the newest version can be written to.
            demand!(
                new.observed_generation == job.metadata.generation,
                "generation {:?} was observed, and it is {:?}",
                new.observed_generation,
                job.metadata.generation
            );
        }
        self.progressed(uid, new)?;
        if new.is_terminal() || new.workers.is_none() {
            return Ok(());
        }
        let world = Roles::of(job);
        let is_ranked = |name: &str| world.roles.iter().any(|role| role.name == name && role.is_ranked());
        let mut counts = WorkerCounts::default();
        for worker in new.worker_statuses.iter().filter(|worker| is_ranked(&worker.role)) {
            counts.desired += 1;
            *match worker.phase {
                Phase::Pending => &mut counts.pending,
                Phase::Running => &mut counts.active,
                Phase::Succeeded => &mut counts.succeeded,
                Phase::Failed => &mut counts.failed,
            } += 1;
        }
        demand!(
            new.workers == Some(counts),
            "the workers are {counts:?}, and they are counted as {:?}",
            new.workers
        );
        let made = new.attempts.last().map(|attempt| attempt.number);
        let made = self.of(uid, made).filter(|pod| pod.name.contains("-workers-")).count();
        let replicas = usize::try_from(new.replicas.unwrap_or_default()).unwrap_or(usize::MAX);
        demand!(
            replicas <= made || new.replicas == old.replicas,
            "there are said to be {replicas} workers, and {made} were ever made"
        );
        Ok(())
    }

    /// No program is further than it said, and only one that is done has done it all.
    fn progressed(&self, uid: &str, status: &TrainingJobStatus) -> Verdict {
        let furthest = self.epochs.get(uid).copied().unwrap_or_default();
        let epoch = status.current_epoch.unwrap_or_default();
        demand!(epoch <= furthest, "epoch {epoch} is told, and no program has come further than {furthest}");
        let Some(progress) = &status.progress else { return Ok(()) };
        // There are a hundred epochs.
        let percent = progress.trim_end_matches('%').parse::<i64>().unwrap_or(i64::MAX);
        let is_done = status.state == Some(State::Completed) && percent == 100;
        demand!(
            is_done || percent <= furthest.min(99),
            "{progress} is told in {:?}, and no program has come further than epoch {furthest}",
            status.state
        );
        Ok(())
    }
}

fn holds(status: &TrainingJobStatus, kind: &str) -> bool {
    status.condition(kind).is_some_and(|condition| condition.status == "True")
}

fn is_unreadable(status: &TrainingJobStatus) -> bool {
    let failed = status.condition(condition::FAILED);
    failed.is_some_and(|failed| failed.status == "True" && failed.reason == UNREADABLE)
}

/// Which conditions may hold in which state.
fn conditions(status: &TrainingJobStatus) -> Verdict {
    let Some(state) = status.state else { return Ok(()) };
    // What has stalled has stalled until it runs again.
    let since = status.attempts.iter().rev().take_while(|attempt| attempt.cause != Some(Cause::Stalled));
    let has_run = since.clone().any(|attempt| attempt.running_time.is_some());
    let has_stalled = since.count() < status.attempts.len() && !has_run;
    let goes_on = matches!(state, State::Running | State::Restarting | State::Initializing | State::Pending);
    let table = [
        (condition::RUNNING, state == State::Running),
        (condition::COMPLETED, state == State::Completed),
        (condition::FAILED, state == State::Failed),
        (condition::SUSPENDED, state == State::Suspended),
        (condition::RESTARTING, goes_on),
        (condition::STALLED, has_stalled && state != State::Completed),
    ];
    for (kind, may_hold) in table {
        demand!(may_hold || !holds(status, kind), "condition {kind} holds in state {state:?}");
    }
    demand!(
        state != State::Restarting || holds(status, condition::RESTARTING),
        "it is being restarted, and the condition does not say so"
    );
    Ok(())
}

/// What one part of a status says, no other part denies.
fn agrees(status: &TrainingJobStatus) -> Verdict {
    let terminal = status.is_terminal();
    // A job that cannot be read has not ended: it goes on when somebody can.
    let failed = status.condition(condition::FAILED);
    let is_unreadable = failed.is_some_and(|failed| failed.status == "True" && failed.reason == UNREADABLE);
    demand!(
        status.completion_time.is_some() == (terminal && !is_unreadable),
        "it ended at {:?} as {:?}",
        status.completion_time,
        status.state
    );
    demand!(!terminal || status.backoff_until.is_none(), "it has ended and waits for a restart");
    if let Some(workers) = status.workers.filter(|_| !terminal) {
        let sum = workers.active + workers.succeeded + workers.failed + workers.pending;
        demand!(sum == workers.desired, "not all workers are accounted for: {workers:?}");
    }
    let open = open_attempt(status);
    match status.state {
        Some(State::Running) => {
            let runs = open.is_some_and(|attempt| attempt.running_time.is_some());
            let says = status.condition(condition::RUNNING).is_some_and(|running| running.status == "True");
            demand!(runs && says, "running, but not since when");
        }
        Some(State::Initializing) => demand!(open.is_some(), "it is being started without an attempt"),
        Some(State::Suspended | State::Completed | State::Failed) => {
            demand!(open.is_none(), "{:?} with an attempt that goes on", status.state);
        }
        _ => {}
    }
    for (state, kind) in [
        (State::Completed, condition::COMPLETED),
        (State::Failed, condition::FAILED),
        (State::Suspended, condition::SUSPENDED),
    ] {
        let holds = status.condition(kind).is_some_and(|condition| condition.status == "True");
        demand!(holds == (status.state == Some(state)), "condition {kind} in state {:?}", status.state);
    }
    Ok(())
}
