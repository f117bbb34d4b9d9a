//! What must be true after every single step, whatever happens.
//!
//! The checker keeps its own record of what really happened to every pod, and compares what operators do and say with it.

mod count;
mod fact;
mod status;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{AgentReport, Attempt, State, TrainingJob, TrainingJobStatus, names};
use trainyard_plan::TargetKind;
pub(crate) use words::told;

use self::fact::Fact;
use crate::server::{Actor, Change, Child, Server};

/// How often an object of this name was made and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub creates: usize,
    pub deletes: usize,
    /// So many of those that were made landed late.
    pub late: usize,
}

/// Creates and deletes by operators, by kind and name.
pub type Tally = BTreeMap<(&'static str, String), Count>;

#[derive(Default)]
pub(crate) struct Checker {
    pods: BTreeMap<String, Fact>,
    /// More than one operator was at work at the same time: a write of the one that should be gone may come late.
    pub(crate) rivals: bool,
    /// Somebody has set the clock of the operators' machine.
    pub(crate) clock_set: bool,
    pub(crate) tally: Tally,
    /// What each job's status had come to, by uid, for those that have ended.
    ended: BTreeMap<String, (State, Option<Time>)>,
    /// When the program of a pod last told of progress.
    pub(crate) said: BTreeMap<String, Timestamp>,
    /// The checkpoints that agents told of, by job.
    reported: BTreeMap<String, BTreeSet<String>>,
    /// Pods whose failure was written down, for jobs whose workers are restarted one by one.
    accounted: BTreeSet<String>,
}

type Verdict = Result<(), String>;

macro_rules! demand {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}
use demand;

impl Checker {
    /// Somebody took the status of a job away: what it said is not known any more.
    pub(crate) fn forget_status(&mut self, _name: &str) {
        self.ended.clear();
        self.accounted.clear();
    }

    /// An agent said something about the checkpoints of a job.
    pub(crate) fn hear(&mut self, job: &str, report: &AgentReport) {
        let known = self.reported.entry(job.to_owned()).or_default();
        known.extend(report.checkpoint.iter().map(|checkpoint| checkpoint.path.clone()));
    }

    pub(crate) fn note(&mut self, server: &Server, by: Actor, change: &Change) -> Verdict {
        let by_operator = by.is_operator();
        match change {
            Change::Created(kind, name) => {
                let Some(child) = server.all(*kind).get(name) else { return Ok(()) };
                self.observe(server, *kind, child);
                if by_operator {
                    let count = self.count(*kind, name);
                    count.creates += 1;
                    count.late += usize::from(child.late);
                    return self.created(server, *kind, child);
                }
            }
            Change::Changed(kind, name) => {
                let Some(child) = server.all(*kind).get(name) else { return Ok(()) };
                self.observe(server, *kind, child);
                if by_operator {
                    demand!(child.ours, "{} {name} is not ours and was changed", kind.as_str());
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
                if let Some(fact) = self.pods.get_mut(&child.uid).filter(|_| *kind == TargetKind::Pod) {
                    fact.going = true;
                }
                if by_operator {
                    self.count(*kind, child.name()).deletes += 1;
                    // One that was going already (its node is dead) is only let go.
                    if child.is_deleting() && child.ours {
                        return Ok(());
                    }
                    return self.deleted(server, *kind, child);
                }
            }
            Change::Job(before, after) => {
                if by_operator && before.status != after.status {
                    return self.said(server.now, before, after);
                }
            }
            Change::JobGone(job) => return Self::gone(server, job),
            Change::Astray(what) => return Err(format!("a write for another job: {what}")),
            Change::JobCreated(_) | Change::Recorded(_) => {}
        }
        Ok(())
    }

    /// A job is gone for good. What was to go with it, and has no owner that it would follow, is gone, too.
    fn gone(server: &Server, job: &TrainingJob) -> Verdict {
        let claim = names::claim(job.metadata.name.as_deref().unwrap_or_default());
        let left = server.all(TargetKind::Claim).get(&claim);
        let is_left = left.is_some_and(|claim| claim.ours && !claim.is_deleting());
        let had_finalizer = job.status.as_ref().is_some_and(|status| !status.attempts.is_empty());
        // Of a job that cannot be read, nobody knows whether its claim was to go.
        let is_read = job.metadata.uid.as_ref().is_none_or(|uid| !server.unreadable.contains(uid));
        demand!(
            !is_left || !job.spec.delete_checkpoints_with_job() || !had_finalizer || !is_read,
            "the job is gone, and its claim {claim} is not"
        );
        Ok(())
    }

    fn count(&mut self, kind: TargetKind, name: &str) -> &mut Count {
        self.tally.entry((kind.as_str(), name.to_owned())).or_default()
    }

    /// Keeps the record of a pod.
    fn observe(&mut self, server: &Server, kind: TargetKind, child: &Child) {
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
        if fact.succeeded {
            fact.done.get_or_insert(server.now);
        }
        let ended = &child.value["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
        fact.exit_code = fact.exit_code.or(ended.as_i64().and_then(|code| i32::try_from(code).ok()));
        fact.going |= child.is_deleting();
        let status = &child.value["status"];
        let reason = &status["containerStatuses"][0]["state"]["terminated"]["reason"];
        fact.reason = reason.as_str().map(str::to_owned);
        let disruption = &status["conditions"][0];
        if disruption["type"] == "DisruptionTarget" {
            fact.disruption = disruption["reason"].as_str().map(str::to_owned);
        }
        if let Some(words) = server.logs.get(&child.uid).filter(|_| fact.words.is_empty()) {
            fact.words.clone_from(words);
        }
    }

    /// An operator made something.
    fn created(&self, server: &Server, kind: TargetKind, child: &Child) -> Verdict {
        if kind != TargetKind::Pod || self.rivals {
            return Ok(());
        }
        // Never a pod of an older attempt beside one of a newer.
        let attempt = child.attempt();
        let gang = server.pods().filter(|pod| pod.ours && pod.controller() == child.controller());
        // What landed late came when its operator was dead or had been told that it did not come: nobody can keep it from being beside
        // others for a moment. It is not to stay (see `strays`).
        for pod in gang.filter(|pod| !pod.late && !child.late) {
            demand!(
                pod.attempt() == attempt,
                "{} of attempt {attempt:?} beside {} of attempt {:?}",
                child.name(),
                pod.name(),
                pod.attempt()
            );
            demand!(
                pod.uid == child.uid || child.rank.is_none() || pod.rank != child.rank,
                "{} and {} both have rank {:?}",
                child.name(),
                pod.name(),
                child.rank
            );
        }
        // What a pod is told to go on from stands in the status before, so that all ranks of an attempt go on from the same.
        let job = server.jobs().find(|job| job.metadata.uid.as_deref() == child.controller());
        let status = job.and_then(|job| job.status.as_ref());
        let is_over = child.controller().is_some_and(|job| self.ended.contains_key(job));
        demand!(!is_over || child.late, "{} was made for a job that has ended", child.name());
        let until = status.and_then(|status| status.backoff_until.as_ref());
        demand!(
            self.clock_set || child.late || until.is_none_or(|until| until.0 <= server.now),
            "{} was made before its time, which is {until:?}",
            child.name()
        );
        let attempts = status.map(|status| status.attempts.as_slice()).unwrap_or_default();
        let written = attempts.iter().find(|known| Some(known.number) == attempt);
        let resumed = written.and_then(|known| known.resumed_from.as_ref()).map(|from| &from.path);
        // Somebody may have taken the status away until then.
        demand!(
            child.resume.as_ref() == resumed || (child.late && written.is_none()),
            "{} goes on from {:?}, and its attempt from {resumed:?}",
            child.name(),
            child.resume
        );
        Ok(())
    }

    /// A pod that landed late, and is not of the attempt that goes on, does not stay: it is told to go as soon as it is seen. Those of a
    /// job that has ended are for its policy to say.
    pub(crate) fn strays(server: &Server) -> Verdict {
        for pod in server.pods().filter(|pod| pod.late && !pod.is_deleting()) {
            let job = server.jobs().find(|job| job.metadata.uid.as_deref() == pod.controller());
            let Some(status) = job.and_then(|job| job.status.as_ref()) else { continue };
            let open = open_attempt(status).map(|attempt| attempt.number);
            demand!(
                open == pod.attempt() || status.is_terminal(),
                "{} of attempt {:?} landed late and stays, in {:?} with attempt {open:?}",
                pod.name(),
                pod.attempt(),
                status.state
            );
        }
        Ok(())
    }

    /// An operator removed something.
    fn deleted(&self, server: &Server, kind: TargetKind, child: &Child) -> Verdict {
        let name = child.name();
        demand!(child.ours, "{} {name} is not ours and was deleted", kind.as_str());
        let job = server.jobs().find(|job| match kind {
            TargetKind::Claim => job.metadata.name.as_deref() == child.label(names::JOB_LABEL),
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
                // Whoever is replaced alone has been written down alone.
                let workers = job.status.iter().flat_map(|status| &status.worker_statuses);
                let is_recorded =
                    workers.filter_map(|worker| worker.failed_uid.as_ref()).any(|uid| *uid == child.uid);
                let running = running.filter(|_| !is_recorded);
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

    fn of<'a>(&'a self, job: &'a str, attempt: Option<i32>) -> impl Iterator<Item = &'a Fact> {
        self.pods.values().filter(move |pod| pod.job == job && pod.attempt == attempt)
    }
}

fn open_attempt(status: &TrainingJobStatus) -> Option<&Attempt> {
    status.attempts.last().filter(|attempt| attempt.is_open())
}
