//! What must be true after every single step, whatever happens.
//!
//! The checker keeps its own record of what really happened to every pod, and compares what operators do and say with it.

mod cause;
mod claim;
mod coherent;
mod count;
mod fact;
mod grace;
mod made;
mod nudge;
mod ought;
mod rest;
mod sight;
mod status;
mod tale;
mod time;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{AgentReport, Attempt, State, TrainingJob, TrainingJobSpec, TrainingJobStatus, names};
use trainyard_operator::{JobKey, Watched};
use trainyard_plan::TargetKind;
pub(crate) use words::told;

use self::claim::Owing;
use self::fact::Fact;
pub(crate) use self::sight::Sight;
use self::sight::Writer;
pub(crate) use self::status::is_mendable;
use self::tale::Tale;
use crate::mishap::Mishap;
use crate::server::{Actor, Change, Child, Server};

/// How often an object of this name was made and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub creates: usize,
    pub deletes: usize,
    /// So many of those that were made landed late.
    pub late: usize,
}

/// What budgets are called in a tally.
pub(crate) const BUDGET: &str = "budget";

/// Creates and deletes by operators, by kind and name.
pub type Tally = BTreeMap<(&'static str, String), Count>;

#[derive(Default)]
pub(crate) struct Checker {
    pods: BTreeMap<String, Fact>,
    /// A watch has lost an event. Who has not made a pod itself, and is never told of it, takes it for gone.
    pub(crate) misled: bool,
    /// Who wrote the status of each job last, by the job's uid.
    writers: BTreeMap<String, Writer>,
    /// At which version each job was made, by uid.
    born: BTreeMap<String, u64>,
    /// What each process acts from, by job.
    sights: Vec<(usize, JobKey, Sight)>,
    /// What lands now was sent at this version.
    pub(crate) sent: Option<u64>,
    /// The answer to what happens now is lost.
    pub(crate) unanswered: bool,
    /// How often somebody has set the clock of the operators' machine.
    pub(crate) clock_set: usize,
    pub(crate) tally: Tally,
    /// What went wrong, and what it came to.
    pub(crate) mishaps: BTreeSet<Mishap>,
    /// What each job's status had come to, by uid, for those that have ended.
    ended: BTreeMap<String, (State, Option<Time>)>,
    /// When the program of a pod last told of progress.
    pub(crate) said: BTreeMap<String, Timestamp>,
    /// The checkpoints that agents told of, by job.
    reported: BTreeMap<String, BTreeSet<String>>,
    /// The step of the checkpoint that each process has heard of last, by process and job.
    pub(crate) heard: BTreeMap<(usize, String), i64>,
    /// Pods whose failure was written down, for jobs whose workers are restarted one by one.
    accounted: BTreeSet<String>,
    /// Jobs of which the user changed something that pods are made of.
    edited: BTreeSet<String>,
    /// The last attempt of a job that ended because of that, and for which generation.
    updated: BTreeMap<String, (i32, Option<i64>)>,
    /// How far the programs of each job have said that they are, by the job's uid.
    epochs: BTreeMap<String, i64>,
    /// At which version each job was marked for deletion, and those that ever had our finalizer.
    leaving: BTreeMap<String, u64>,
    finalized: BTreeSet<String>,
    /// The last job that went of each name that owes its claim, by the claim's name.
    owing: BTreeMap<String, Owing>,
    /// Jobs whose status somebody took away.
    robbed: BTreeSet<String>,
    /// Pods whose agent holds them, because they were told to go on from something else than what is there.
    held: BTreeSet<String>,
    /// What people are still to be told of.
    untold: Vec<Tale>,
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
    pub(crate) fn forget_status(&mut self, uid: &str) {
        self.ended.remove(uid);
        self.robbed.insert(uid.to_owned());
        let Self { accounted, pods, .. } = self;
        accounted.retain(|pod| pods.get(pod).is_none_or(|fact| fact.job != uid));
    }

    /// A node will be taken away.
    pub(crate) fn announce(&mut self, node: &str) {
        self.pods.values_mut().for_each(|fact| fact.notice(node));
    }

    /// An agent said something about the checkpoints of a job.
    pub(crate) fn hear(&mut self, job: &str, pod: &str, report: &AgentReport) {
        if report.resume_differs {
            self.held.insert(pod.to_owned());
        }
        let known = self.reported.entry(job.to_owned()).or_default();
        known.extend(report.checkpoint.iter().map(|checkpoint| checkpoint.path.clone()));
    }

    /// The leading program of a job said that it has come to this epoch.
    #[expect(clippy::cast_possible_truncation, reason = "a small number")]
    pub(crate) fn hear_epoch(&mut self, job: String, epoch: f64) {
        let furthest = self.epochs.entry(job).or_default();
        *furthest = (*furthest).max(epoch as i64);
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
                    count.late += usize::from(child.is_late());
                    return self.created(server, by, *kind, child);
                }
            }
            Change::Changed(kind, name) => {
                let Some(child) = server.all(*kind).get(name) else { return Ok(()) };
                let grace = self.pods.get(&child.uid).and_then(|fact| fact.grace);
                self.observe(server, *kind, child);
                if by_operator {
                    demand!(child.ours, "{} {name} is not ours and was changed", kind.as_str());
                    self.nudged(server, by, child)?;
                    return self.hastened(server, by, child, grace);
                }
            }
            Change::Marked(kind, name) => {
                let Some(child) = server.all(*kind).get(name) else { return Ok(()) };
                if by_operator {
                    self.count(*kind, name).deletes += 1;
                    self.deleted(server, by, *kind, child)?;
                    return self.has_its_time(server, by, child);
                }
            }
            Change::Removed(kind, child) => {
                if let Some(fact) = self.pods.get_mut(&child.uid).filter(|_| *kind == TargetKind::Pod) {
                    fact.gone = true;
                }
                if by_operator {
                    self.count(*kind, child.name()).deletes += 1;
                    // One that was going already (its node is dead) is only let go.
                    if child.is_deleting() && child.ours {
                        return self.forced(server, by, child);
                    }
                    return self.deleted(server, by, *kind, child);
                }
            }
            Change::Job(before, after) => {
                if by_operator {
                    demand!(
                        others(before).eq(others(after)),
                        "the finalizers of others were {:?}, and now they are {:?}",
                        before.metadata.finalizers,
                        after.metadata.finalizers
                    );
                }
                let is_marked = |job: &TrainingJob| job.metadata.deletion_timestamp.is_some();
                if !is_marked(before) && is_marked(after) {
                    self.leaving.insert(after.metadata.uid.clone().unwrap_or_default(), server.version());
                    return if by_operator { self.expired(server, by, after) } else { Ok(()) };
                }
                if after.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == names::FINALIZER) {
                    self.finalized.insert(after.metadata.uid.clone().unwrap_or_default());
                }
                if by_operator && before.status != after.status {
                    let event = server.journal(Watched::Jobs).len().saturating_sub(1);
                    let process = by.process().filter(|_| !self.unanswered);
                    let writer = Writer { process, version: server.version(), event };
                    self.writers.insert(after.metadata.uid.clone().unwrap_or_default(), writer);
                    return self.said(server, by, before, after);
                }
                if by == Actor::User && before.spec != after.spec {
                    self.edited(before, after);
                }
            }
            Change::BudgetMade(name) => {
                let count = self.tally.entry((BUDGET, name.clone())).or_default();
                count.creates += 1;
                count.late += usize::from(matches!(by, Actor::Late(_)));
            }
            Change::BudgetGone(name) => {
                self.tally.entry((BUDGET, name.clone())).or_default().deletes += 1;
            }
            Change::JobGone(job) => {
                if by_operator && job.metadata.deletion_timestamp.is_none() {
                    self.expired(server, by, job)?;
                }
                if by_operator {
                    self.leaves_nobody(server, by, job)?;
                }
                return self.gone(server, job);
            }
            Change::Astray(what) => return Err(format!("a write for another job: {what}")),
            Change::JobCreated(name) => {
                let uid = server.job(name).and_then(|job| job.metadata.uid.clone());
                self.born.insert(uid.unwrap_or_default(), server.version());
            }
            Change::Recorded(event) => self.is_told(by, event),
        }
        Ok(())
    }

    /// A user changed a spec.
    fn edited(&mut self, before: &TrainingJob, after: &TrainingJob) {
        // The rest takes effect at once, or is a matter of how many pods there are.
        let but_numbers = TrainingJobSpec {
            num_workers: after.spec.num_workers,
            suspend: after.spec.suspend,
            backoff_limit: after.spec.backoff_limit,
            stall_timeout_seconds: after.spec.stall_timeout_seconds,
            ..before.spec.clone()
        };
        if but_numbers != after.spec {
            self.edited.insert(after.metadata.uid.clone().unwrap_or_default());
        }
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
            told: child.annotation(names::ANNOUNCED_ANNOTATION).unwrap_or_default().to_owned(),
            inputs: child.annotation(names::INPUTS_ANNOTATION).unwrap_or_default().to_owned(),
            shape: child.annotation(names::SHAPE_ANNOTATION).unwrap_or_default().to_owned(),
            ..Fact::default()
        });
        if let Some(node) = child.node().filter(|_| fact.node.is_none()) {
            fact.node = Some(node.to_owned());
            if server.announced.contains(node) {
                fact.notice(node);
            }
            fact.bound = (child.phase() == "Pending").then_some(server.now);
        }
        fact.ran |= child.phase() == "Running";
        if child.phase() == "Succeeded" && !child.is_deleting() {
            fact.done.get_or_insert(server.now);
        }
        let ended = &child.value["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
        fact.exit_code = fact.exit_code.or(ended.as_i64().and_then(|code| i32::try_from(code).ok()));
        fact.going |= child.is_deleting();
        fact.grace = child.value.metadata().deletion_grace_period_seconds;
        fact.seen_as = child.is_selected().then_some(child.told);
        let status = &child.value["status"];
        let reason = &status["containerStatuses"][0]["state"]["terminated"]["reason"];
        fact.reason = reason.as_str().map(str::to_owned);
        let disruption = &status["conditions"][0];
        if disruption["type"] == "DisruptionTarget" {
            let words = [&disruption["reason"], &status["reason"]];
            fact.disruption = words.into_iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
        } else if let Some(own) = status["reason"].as_str() {
            // It went past a limit of its own.
            fact.reason = Some(own.to_owned());
        }
        if let Some(words) = server.logs.get(&child.uid).filter(|_| fact.words.is_empty()) {
            fact.words.clone_from(words);
        }
    }

    /// An operator removed something.
    fn deleted(&self, server: &Server, by: Actor, kind: TargetKind, child: &Child) -> Verdict {
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
                self.is_not_kept(by, job, child)?;
                demand!(
                    is_going || running.is_none() || self.may_not_know(by, job),
                    "pod {name} was deleted although the status says that its attempt goes on"
                );
            }
            TargetKind::Claim => {
                // What lands late may have been asked for by an earlier job of this name.
                let born = job.metadata.uid.as_ref().and_then(|uid| self.born.get(uid));
                let is_of_before = self.sent.zip(born).is_some_and(|(sent, born)| sent < *born);
                demand!(
                    is_of_before || (is_going && job.spec.delete_checkpoints_with_job()),
                    "claim {name} was deleted although nobody asked for that"
                );
                self.leaves_nobody(server, by, job)?;
            }
            TargetKind::Service | TargetKind::ConfigMap => {
                return Err(format!("{} {name} was deleted", kind.as_str()));
            }
        }
        Ok(())
    }

    fn of<'a>(&'a self, job: &'a str, attempt: Option<i32>) -> impl Iterator<Item = &'a Fact> + Clone {
        self.pods.values().filter(move |pod| pod.job == job && pod.attempt == attempt)
    }
}

/// The finalizers that are not ours.
fn others(job: &TrainingJob) -> impl Iterator<Item = &String> {
    job.metadata.finalizers.iter().flatten().filter(|name| *name != names::FINALIZER)
}

fn open_attempt(status: &TrainingJobStatus) -> Option<&Attempt> {
    status.attempts.last().filter(|attempt| attempt.is_open())
}

/// It has ended, and this status did not say so yet.
fn has_ended_since(old: &TrainingJobStatus, attempt: &Attempt) -> bool {
    let known = old.attempts.iter().find(|known| known.number == attempt.number);
    !attempt.is_open() && known.is_none_or(Attempt::is_open)
}
