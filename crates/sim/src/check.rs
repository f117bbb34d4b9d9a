//! What must be true after every single step, whatever happens.
//!
//! The checker keeps its own record of what really happened to every pod, and compares what operators do and say with it.

use std::collections::BTreeMap;

use trainyard_api::{Attempt, Cause, State, TrainingJob, TrainingJobStatus, condition};
use trainyard_plan::{TargetKind, World as Roles};

use crate::server::{Actor, Change, Child, Server};

/// What really happened to a pod.
#[derive(Clone, Debug, Default)]
struct Fact {
    job: String,
    name: String,
    attempt: Option<i32>,
    ran: bool,
    succeeded: bool,
    exit_code: Option<i32>,
}

/// How often an object of this name was made and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub creates: usize,
    pub deletes: usize,
}

/// Creates and deletes by operators, by kind and name.
pub type Tally = BTreeMap<(&'static str, String), Count>;

#[derive(Default)]
pub(crate) struct Checker {
    pods: BTreeMap<String, Fact>,
    /// More than one operator was at work at the same time: a write of the one that should be gone may come late.
    pub(crate) rivals: bool,
    pub(crate) tally: Tally,
    /// What each job's status had come to, by uid, for those that have ended.
    ended: BTreeMap<String, State>,
}

type Verdict = Result<(), String>;

macro_rules! demand {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}

impl Checker {
    /// Somebody took the status of a job away: what it said is not known any more.
    pub(crate) fn forget_status(&mut self, _name: &str) {
        self.ended.clear();
    }

    pub(crate) fn note(&mut self, server: &Server, by: Actor, change: &Change) -> Verdict {
        let by_operator = matches!(by, Actor::Operator(_));
        match change {
            Change::Created(kind, name) => {
                let Some(child) = server.all(*kind).get(name) else { return Ok(()) };
                self.observe(*kind, child);
                if by_operator {
                    self.count(*kind, name).creates += 1;
                    return self.created(server, *kind, child);
                }
            }
            Change::Changed(kind, name) => {
                let Some(child) = server.all(*kind).get(name) else { return Ok(()) };
                self.observe(*kind, child);
                if by_operator {
                    demand!(child.made.is_some(), "{} {name} is not ours and was changed", kind.as_str());
                }
            }
            Change::Marked(kind, name) => {
                let Some(child) = server.all(*kind).get(name) else { return Ok(()) };
                if by_operator {
                    self.count(*kind, name).deletes += 1;
                    return self.deleted(server, *kind, child);
                }
            }
            Change::Removed(kind, child) => {
                if by_operator {
                    self.count(*kind, child.name()).deletes += 1;
                    // One that was going already (its node is dead) is only let go.
                    if child.is_deleting() && child.made.is_some() {
                        return Ok(());
                    }
                    return self.deleted(server, *kind, child);
                }
            }
            Change::Job(before, after) => {
                if by_operator && before.status != after.status {
                    return self.said(before, after);
                }
            }
            Change::JobCreated(_) | Change::JobGone(_) | Change::Recorded(_) => {}
        }
        Ok(())
    }

    fn count(&mut self, kind: TargetKind, name: &str) -> &mut Count {
        self.tally.entry((kind.as_str(), name.to_owned())).or_default()
    }

    /// Keeps the record of a pod.
    fn observe(&mut self, kind: TargetKind, child: &Child) {
        if kind != TargetKind::Pod {
            return;
        }
        let fact = self.pods.entry(child.uid.clone()).or_insert_with(|| Fact {
            job: child.controller().unwrap_or_default().to_owned(),
            name: child.name().to_owned(),
            attempt: child.attempt(),
            ..Fact::default()
        });
        fact.ran |= child.phase() == "Running";
        fact.succeeded |= child.phase() == "Succeeded";
        let ended = &child.value["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
        fact.exit_code = fact.exit_code.or(ended.as_i64().and_then(|code| i32::try_from(code).ok()));
    }

    /// An operator made something.
    fn created(&self, server: &Server, kind: TargetKind, child: &Child) -> Verdict {
        if kind != TargetKind::Pod || self.rivals {
            return Ok(());
        }
        // Never a pod of an older attempt beside one of a newer.
        let attempt = child.attempt();
        let gang = server.pods().filter(|pod| pod.made.is_some() && pod.controller() == child.controller());
        for pod in gang {
            demand!(
                pod.attempt() == attempt,
                "{} of attempt {attempt:?} beside {} of attempt {:?}",
                child.name(),
                pod.name(),
                pod.attempt()
            );
        }
        Ok(())
    }

    /// An operator removed something.
    fn deleted(&self, server: &Server, kind: TargetKind, child: &Child) -> Verdict {
        let name = child.name();
        demand!(child.made.is_some(), "{} {name} is not ours and was deleted", kind.as_str());
        let job = server.jobs().find(|job| match kind {
            TargetKind::Claim => job.metadata.name.as_deref() == child.label(trainyard_api::names::JOB_LABEL),
            _ => job.metadata.uid.as_deref() == child.controller(),
        });
        let Some(job) = job else { return Ok(()) };
        let is_going = job.metadata.deletion_timestamp.is_some();
        match kind {
            TargetKind::Pod => {
                // Decisions are durable before their effects.
                let open = job.status.as_ref().and_then(|status| open_attempt(status));
                let running = open.filter(|attempt| {
                    attempt.created_time.is_some() && Some(attempt.number) == child.attempt()
                });
                demand!(
                    is_going || running.is_none() || self.rivals,
                    "pod {name} was deleted although the status says that its attempt goes on"
                );
            }
            TargetKind::Claim => {
                demand!(
                    is_going && job.spec.delete_checkpoints_with_job(),
                    "claim {name} was deleted although nobody asked for that"
                );
            }
            TargetKind::Service | TargetKind::ConfigMap => {
                return Err(format!("{} {name} was deleted", kind.as_str()));
            }
        }
        Ok(())
    }

    /// An operator wrote a status.
    fn said(&mut self, before: &TrainingJob, after: &TrainingJob) -> Verdict {
        let nothing = TrainingJobStatus::default();
        let uid = after.metadata.uid.clone().unwrap_or_default();
        let old = before.status.as_ref().unwrap_or(&nothing);
        let new = after.status.as_ref().unwrap_or(&nothing);
        demand!(new.state.is_some(), "a status without a state");
        demand!(
            new.phase == new.state.map(State::phase),
            "state {:?} and phase {:?} disagree",
            new.state,
            new.phase
        );
        // Terminal states are final, unless the spec was at fault and is mended.
        if let Some(end) = self.ended.get(&uid) {
            demand!(new.state == Some(*end), "{end:?} was final, and now it is {:?}", new.state);
        }
        let failed = new.condition(condition::FAILED).filter(|failed| failed.status == "True");
        let reason = failed.map(|failed| failed.reason.as_str()).unwrap_or_default();
        if let Some(state) =
            new.state.filter(|_| new.is_terminal() && reason != "InvalidSpec" && reason != "Unreadable")
        {
            self.ended.insert(uid.clone(), state);
        }
        self.counted(&uid, after, old, new, reason)?;
        if new.state == Some(State::Running) && old.state != Some(State::Running) {
            self.runs(&uid, after, new)?;
        }
        if new.state == Some(State::Completed) && old.state != Some(State::Completed) {
            let number = new.attempts.last().map(|attempt| attempt.number);
            let succeeded = self.of(&uid, number).any(|pod| pod.succeeded);
            demand!(succeeded, "completed, although no pod of attempt {number:?} has succeeded");
        }
        Ok(())
    }

    fn of<'a>(&'a self, job: &'a str, attempt: Option<i32>) -> impl Iterator<Item = &'a Fact> {
        self.pods.values().filter(move |pod| pod.job == job && pod.attempt == attempt)
    }

    /// A failure is counted once, the limit is kept, and what is said of the failure is what happened.
    fn counted(
        &self,
        uid: &str,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
        reason: &str,
    ) -> Verdict {
        let numbers: Vec<i32> = new.attempts.iter().map(|attempt| attempt.number).collect();
        demand!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "attempts out of order: {numbers:?}");
        for attempt in &new.attempts {
            let known = old.attempts.iter().find(|known| known.number == attempt.number);
            let was_closed = known.is_some_and(|known| !known.is_open());
            demand!(
                !was_closed || known.is_some_and(|known| known.cause == attempt.cause && !attempt.is_open()),
                "attempt {} had ended with {:?}; now it is {:?}",
                attempt.number,
                known.and_then(|known| known.cause),
                attempt.cause
            );
        }
        let closed = |attempt: &&Attempt| {
            let known = old.attempts.iter().find(|known| known.number == attempt.number);
            !attempt.is_open() && known.is_none_or(Attempt::is_open)
        };
        let newly: Vec<&Attempt> = new.attempts.iter().filter(closed).collect();
        let failures: Vec<&&Attempt> =
            newly.iter().filter(|attempt| attempt.cause.is_some_and(Cause::counts)).collect();
        for attempt in &failures {
            let name = attempt.pod_name.as_deref().unwrap_or_default();
            let mut pods = self.of(uid, Some(attempt.number)).filter(|pod| pod.name == name);
            demand!(
                pods.any(|pod| pod.exit_code.is_some_and(|code| code != 0)),
                "attempt {} is said to have failed in {name}, which did not fail",
                attempt.number
            );
        }
        let counted = |status: &TrainingJobStatus| status.restarts.unwrap_or_default().application;
        let limit = job.spec.backoff_limit();
        let is_final = new.state == Some(State::Failed);
        let more = counted(new) - counted(old);
        let expected = if is_final { 0 } else { i32::try_from(failures.len()).unwrap_or(i32::MAX) };
        demand!(more == expected, "{} attempts failed, {more} were counted", failures.len());
        demand!(more == 0 || counted(new) <= limit, "{} restarts counted, {limit} allowed", counted(new));
        let newly_failed = is_final && old.state != Some(State::Failed);
        demand!(
            !newly_failed || reason != "BackoffLimitExceeded" || counted(new) >= limit,
            "given up after {} restarts, {limit} are allowed",
            counted(new)
        );
        Ok(())
    }

    /// Running means that every pod of the attempt ran.
    fn runs(&self, uid: &str, job: &TrainingJob, status: &TrainingJobStatus) -> Verdict {
        let number = open_attempt(status).map(|attempt| attempt.number);
        demand!(number.is_some(), "running without an attempt");
        let roles = Roles::of(job);
        for member in roles.members().filter(|member| member.role.is_required()) {
            let name = member.pod_name(roles.job);
            let ran = self.of(uid, number).any(|pod| pod.name == name && (pod.ran || pod.succeeded));
            demand!(ran, "running, although {name} of attempt {number:?} never ran");
        }
        Ok(())
    }
}

fn open_attempt(status: &TrainingJobStatus) -> Option<&Attempt> {
    status.attempts.last().filter(|attempt| attempt.is_open())
}

/// A change in words, for the trace.
pub(crate) fn told(change: &Change) -> String {
    match change {
        Change::Created(kind, name) => format!("{} {name} created", kind.as_str()),
        Change::Marked(kind, name) => format!("{} {name} is going", kind.as_str()),
        Change::Removed(kind, child) => format!("{} {} ({}) is gone", kind.as_str(), child.name(), child.uid),
        Change::Changed(kind, name) => format!("{} {name} changed", kind.as_str()),
        Change::JobCreated(name) => format!("job {name} created"),
        Change::Job(before, after) => {
            let status = after.status.as_ref();
            let attempts = status.map(|status| {
                let shown = status.attempts.iter().map(|attempt| {
                    let end = attempt.cause.map_or("open", Cause::as_str);
                    format!("{}:{end}", attempt.number)
                });
                shown.collect::<Vec<_>>().join(" ")
            });
            format!(
                "job {} {:?} -> {:?} generation {} attempts [{}] version {}: {}",
                after.metadata.name.as_deref().unwrap_or_default(),
                before.status.as_ref().and_then(|status| status.state),
                status.and_then(|status| status.state),
                after.metadata.generation.unwrap_or_default(),
                attempts.unwrap_or_default(),
                after.metadata.resource_version.as_deref().unwrap_or_default(),
                status.and_then(|status| status.message.as_deref()).unwrap_or_default(),
            )
        }
        Change::JobGone(job) => {
            format!("job {} is gone", job.metadata.name.as_deref().unwrap_or_default())
        }
        Change::Recorded(event) => format!("event {}: {}", event.reason, event.message),
    }
}
