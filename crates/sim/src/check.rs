//! What must be true after every single step, whatever happens.
//!
//! The checker keeps its own record of what really happened to every pod, and compares what operators do and say with it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{
    AgentReport, Attempt, Cause, CheckpointStatus, FailureAction, FailureRule, RestartPolicy, RestartScope,
    RoleSuccess, State, SuccessPolicy, TrainingJob, TrainingJobStatus, condition, names,
};
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
    /// When it was seen to have succeeded.
    done: Option<Timestamp>,
    exit_code: Option<i32>,
    /// The kubelet's word for how it ended.
    reason: Option<String>,
    /// Why the cluster took it, if it did.
    disruption: Option<String>,
    /// It was told to go, or is gone.
    going: bool,
    /// The end of its log.
    words: String,
}

impl Fact {
    fn failed(&self) -> bool {
        self.exit_code.is_some_and(|code| code != 0)
    }

    fn is_ignored(&self, rules: &[FailureRule]) -> bool {
        self.failed() && self.action(rules) == Some(FailureAction::Ignore)
    }

    /// What the job's own rules say about this failure.
    fn action(&self, rules: &[FailureRule]) -> Option<FailureAction> {
        let is_reason = |wanted: &String| {
            self.reason.as_ref() == Some(wanted)
                || self.disruption.as_ref().is_some_and(|why| why.starts_with(wanted.as_str()))
        };
        let matches = |rule: &&FailureRule| {
            let code = |codes: &Vec<i32>| self.exit_code.is_some_and(|code| codes.contains(&code));
            rule.exit_codes.as_ref().is_none_or(code)
                && rule.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(is_reason))
                && rule.log_pattern.as_ref().is_none_or(|pattern| self.words.contains(pattern.as_str()))
        };
        rules.iter().find(matches).map(|rule| rule.action)
    }
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

/// The same failure so many times is final.
const SAME_FAILURES: usize = 3;

/// So many attempts are remembered.
const ATTEMPTS_KEPT: usize = 10;

/// Ends of containers are told in whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

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
        self.accounted.clear();
    }

    /// An agent said something about the checkpoints of a job.
    pub(crate) fn hear(&mut self, job: &str, report: &AgentReport) {
        let known = self.reported.entry(job.to_owned()).or_default();
        known.extend(report.checkpoint.iter().map(|checkpoint| checkpoint.path.clone()));
    }

    pub(crate) fn note(&mut self, server: &Server, by: Actor, change: &Change) -> Verdict {
        let by_operator = matches!(by, Actor::Operator(_));
        match change {
            Change::Created(kind, name) => {
                let Some(child) = server.all(*kind).get(name) else { return Ok(()) };
                self.observe(server, *kind, child);
                if by_operator {
                    self.count(*kind, name).creates += 1;
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
        demand!(
            !is_left || !job.spec.delete_checkpoints_with_job() || !had_finalizer,
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
        for pod in gang {
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
        demand!(!is_over, "{} was made for a job that has ended", child.name());
        let until = status.and_then(|status| status.backoff_until.as_ref());
        demand!(
            self.clock_set || until.is_none_or(|until| until.0 <= server.now),
            "{} was made before its time, which is {until:?}",
            child.name()
        );
        let attempts = status.map(|status| status.attempts.as_slice()).unwrap_or_default();
        let written = attempts.iter().find(|known| Some(known.number) == attempt);
        let resumed = written.and_then(|known| known.resumed_from.as_ref()).map(|from| &from.path);
        demand!(
            child.resume.as_ref() == resumed,
            "{} goes on from {:?}, and its attempt from {resumed:?}",
            child.name(),
            child.resume
        );
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

    /// An operator wrote a status.
    fn said(&mut self, now: Timestamp, before: &TrainingJob, after: &TrainingJob) -> Verdict {
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
            let is = (new.state, &new.completion_time);
            demand!(is == (Some(end.0), &end.1), "{end:?} was final, and now it is {is:?}");
        }
        let failed = new.condition(condition::FAILED).filter(|failed| failed.status == "True");
        let reason = failed.map(|failed| failed.reason.as_str()).unwrap_or_default();
        if let Some(state) =
            new.state.filter(|_| new.is_terminal() && reason != "InvalidSpec" && reason != "Unreadable")
        {
            self.ended.insert(uid.clone(), (state, new.completion_time.clone()));
        }
        self.counted(&uid, after, old, new, reason)?;
        if new.state == Some(State::Failed) && old.state != Some(State::Failed) {
            self.gave_up(now, &uid, after, new, reason)?;
        }
        if new.state == Some(State::Running) && old.state != Some(State::Running) {
            self.runs(&uid, after, new)?;
        }
        if new.state == Some(State::Completed) && old.state != Some(State::Completed) {
            self.succeeded(&uid, after, new)?;
        }
        coherent(new)?;
        if !self.rivals {
            self.resumed(&uid, after, old, new)?;
        }
        self.stalled(now, &uid, after, old, new)
    }

    /// Whoever gives up has the reason that is told.
    fn gave_up(
        &self,
        now: Timestamp,
        uid: &str,
        job: &TrainingJob,
        status: &TrainingJobStatus,
        reason: &str,
    ) -> Verdict {
        let spec = &job.spec;
        let since = |time: Option<&Time>, limit: Option<i64>| {
            let passed = time.zip(limit).map(|(time, limit)| now.duration_since(time.0).as_secs() >= limit);
            passed.is_some_and(|passed| passed || self.clock_set)
        };
        let last = status.attempts.last();
        let own =
            |attempt: &&Attempt| attempt.cause.is_some_and(|cause| cause.counts() || cause == Cause::Stalled);
        let holds = match reason {
            "InvalidSpec" | "Unreadable" | "BackoffLimitExceeded" => true,
            "RestartPolicyNever" => spec.restart_policy() == RestartPolicy::Never,
            "PermanentExitCode" => spec.restart_policy() == RestartPolicy::ExitCode,
            "FailurePolicy" => {
                let mut pods = self.of(uid, last.map(|last| last.number));
                pods.any(|pod| pod.action(spec.failure_rules()) == Some(FailureAction::Fail))
            }
            "SameFailure" => status.attempts.iter().filter(own).count() >= SAME_FAILURES,
            "DeadlineExceeded" => since(status.active_since.as_ref(), spec.active_deadline_seconds),
            "StartupTimeout" => {
                since(last.and_then(|last| last.start_time.as_ref()), spec.startup_timeout_seconds)
            }
            _ => false,
        };
        demand!(holds, "given up because of {reason}, which is not so");
        Ok(())
    }

    /// Completed means that those have succeeded whom the job's policy names. A failure that a rule ignores counts as done.
    fn succeeded(&self, uid: &str, job: &TrainingJob, status: &TrainingJobStatus) -> Verdict {
        let number = status.attempts.last().map(|attempt| attempt.number);
        let world = Roles::of(job);
        let rules = job.spec.failure_rules();
        let ignored = |pod: &Fact| pod.is_ignored(rules);
        let won = |name: &str| self.of(uid, number).any(|pod| pod.name == name && pod.succeeded);
        let done = |name: &str| won(name) || self.of(uid, number).any(|pod| pod.name == name && ignored(pod));
        let all_done = || {
            let mut required = world.members().filter(|member| member.role.success == RoleSuccess::Required);
            required.all(|one| done(&one.pod_name(world.job)))
        };
        let members = world.members();
        let holds = match job.spec.success_policy() {
            _ if world.has_decider() => members
                .filter(|member| member.role.success == RoleSuccess::Decides)
                .all(|one| done(&one.pod_name(world.job))),
            SuccessPolicy::AllWorkers => all_done(),
            SuccessPolicy::Leader => won(&world.leader()) || all_done(),
            SuccessPolicy::AnyWorker => {
                let mut workers = members.filter(|member| member.role.is_workers());
                workers.any(|member| won(&member.pod_name(world.job))) || all_done()
            }
        };
        demand!(holds, "completed, although in attempt {number:?} not everybody has succeeded who had to");
        Ok(())
    }

    /// A job goes on from the newest checkpoint that it was told of, and never from one that nobody told of. A failure after a new
    /// checkpoint is followed at once; one without makes the next attempt wait.
    fn resumed(
        &self,
        uid: &str,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Verdict {
        let nothing = BTreeSet::new();
        let reported = self.reported.get(uid).unwrap_or(&nothing);
        let step = |checkpoint: Option<&CheckpointStatus>| checkpoint.and_then(|checkpoint| checkpoint.step);
        if let Some(checkpoint) = &new.checkpoint {
            demand!(reported.contains(&checkpoint.path), "nobody told of checkpoint {}", checkpoint.path);
        }
        let resumes = job.spec.resumes();
        demand!(
            !resumes || step(new.checkpoint.as_ref()) >= step(old.checkpoint.as_ref()),
            "the newest checkpoint was {:?}, and now it is {:?}",
            old.checkpoint,
            new.checkpoint
        );
        for attempt in &new.attempts {
            let known = old.attempts.iter().find(|known| known.number == attempt.number);
            let from = attempt.resumed_from.as_deref();
            if known.is_none() && new.attempts.last() == Some(attempt) && attempt.is_open() {
                let path = from.map(|from| &from.path);
                demand!(
                    path.is_none_or(|path| reported.contains(path)),
                    "goes on from {path:?}, of which nobody told"
                );
                demand!(resumes || path.is_none(), "goes on from {path:?}, although it is to start afresh");
                demand!(
                    !resumes || step(from) >= step(old.checkpoint.as_ref()),
                    "goes on from {path:?}, although there is {:?}",
                    old.checkpoint
                );
            }
            if attempt.is_open() || known.is_some_and(|known| !known.is_open()) {
                continue;
            }
            let reached = attempt.reached.as_deref();
            demand!(
                reached.is_none_or(|reached| reported.contains(&reached.path) && Some(reached) != from),
                "attempt {} is said to have got to {reached:?} from {from:?}",
                attempt.number
            );
            let waits = new.backoff_until.is_some();
            let failed = attempt.cause.is_some_and(Cause::counts) && new.state == Some(State::Restarting);
            demand!(
                !failed || waits == reached.is_none(),
                "attempt {} got to {reached:?} and failed; the next one waits: {waits}",
                attempt.number
            );
        }
        Ok(())
    }

    /// Only who was silent for so long as the job allows has stalled, whatever the clock was set to meanwhile.
    fn stalled(
        &self,
        now: Timestamp,
        uid: &str,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Verdict {
        let Some(last) = new.attempts.last().filter(|last| last.cause == Some(Cause::Stalled)) else {
            return Ok(());
        };
        let is_news =
            old.attempts.last().is_some_and(|before| before.number == last.number && before.is_open());
        if !is_news {
            return Ok(());
        }
        let leader = Roles::of(job).leader();
        let of_leader = |(_, pod): &(&String, &Fact)| {
            pod.job == uid && pod.attempt == Some(last.number) && pod.name == leader
        };
        let spoke = self.pods.iter().filter(of_leader).filter_map(|(pod, _)| self.said.get(pod)).max();
        let limit = SignedDuration::from_secs(job.spec.stall_timeout_seconds.unwrap_or(i64::MAX));
        // A leader that is done is silent: the others have as long from its end on. That end is told by another machine's clock.
        let mut leaders = self.of(uid, Some(last.number)).filter(|pod| pod.name == leader);
        let done = leaders.find_map(|pod| pod.done).filter(|_| !self.clock_set);
        demand!(
            done.is_none_or(|done| now.duration_since(done) >= limit - SECOND),
            "attempt {} is said to have stalled at {now}, and its leader was done at {done:?}",
            last.number
        );
        demand!(
            spoke.is_some_and(|spoke| now.duration_since(*spoke) >= limit),
            "attempt {} is said to have stalled at {now}, and told of progress at {spoke:?}",
            last.number
        );
        Ok(())
    }

    fn of<'a>(&'a self, job: &'a str, attempt: Option<i32>) -> impl Iterator<Item = &'a Fact> {
        self.pods.values().filter(move |pod| pod.job == job && pod.attempt == attempt)
    }

    /// A failure is counted once, the limit is kept, and what is said of the failure is what happened.
    fn counted(
        &mut self,
        uid: &str,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
        reason: &str,
    ) -> Verdict {
        let numbers: Vec<i32> = new.attempts.iter().map(|attempt| attempt.number).collect();
        demand!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "attempts out of order: {numbers:?}");
        let oldest = numbers.first().copied().unwrap_or(i32::MAX);
        let lost = old.attempts.iter().find(|known| !numbers.contains(&known.number));
        demand!(
            lost.is_none_or(|lost| numbers.len() >= ATTEMPTS_KEPT && lost.number < oldest),
            "attempt {:?} is forgotten: {numbers:?}",
            lost.map(|lost| lost.number)
        );
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
        for attempt in newly.iter().filter(|attempt| attempt.cause == Some(Cause::Disruption)) {
            let taken = self.of(uid, Some(attempt.number)).any(|pod| pod.disruption.is_some() || pod.going);
            demand!(taken || self.rivals, "attempt {} was disrupted, and nobody was taken", attempt.number);
        }
        let counted = |status: &TrainingJobStatus| status.restarts.unwrap_or_default().application;
        let limit = job.spec.backoff_limit();
        let is_final = new.state == Some(State::Failed);
        let more = counted(new) - counted(old);
        let mut expected = (0, 0);
        let alone = self.written_down(uid, job, old, new)?;
        let gangs = newly.iter().map(|attempt| self.weight(uid, job, attempt));
        for (least, most) in alone.into_iter().chain(gangs).filter(|_| !is_final) {
            expected = (expected.0 + least, expected.1 + most);
        }
        demand!(
            (expected.0..=expected.1).contains(&more),
            "{} attempts failed, {more} were counted, and it should be {} to {}",
            failures.len(),
            expected.0,
            expected.1
        );
        demand!(more == 0 || counted(new) <= limit, "{} restarts counted, {limit} allowed", counted(new));
        let newly_failed = is_final && old.state != Some(State::Failed);
        demand!(
            !newly_failed || reason != "BackoffLimitExceeded" || counted(new) >= limit,
            "given up after {} restarts, {limit} are allowed",
            counted(new)
        );
        Ok(())
    }

    /// How often the failure of a pod counts: its rule says so, or that it failed by itself does. What the cluster took may have
    /// failed, too, before or after the operator looked: then both answers are right, if there is a rule about it.
    fn worth(job: &TrainingJob, pod: Option<&Fact>) -> (i32, i32) {
        let rules = job.spec.failure_rules();
        let by_itself = pod.filter(|pod| pod.failed() && pod.disruption.is_none() && !pod.going);
        let Some(pod) = by_itself else {
            return (0, i32::from(!rules.is_empty() || pod.is_some_and(Fact::failed)));
        };
        match pod.action(rules) {
            Some(FailureAction::RestartWithoutCounting | FailureAction::Ignore) => (0, 0),
            Some(FailureAction::Restart | FailureAction::Fail) | None => (1, 1),
        }
    }

    /// The same for an attempt that has ended.
    fn weight(&self, uid: &str, job: &TrainingJob, attempt: &Attempt) -> (i32, i32) {
        let name = attempt.pod_name.as_deref().unwrap_or_default();
        let pod =
            self.of(uid, Some(attempt.number)).filter(|pod| pod.name == name).max_by_key(|pod| pod.failed());
        match attempt.cause {
            Some(cause) if cause.counts() => match pod.and_then(|pod| pod.action(job.spec.failure_rules())) {
                Some(FailureAction::RestartWithoutCounting | FailureAction::Ignore) => (0, 0),
                Some(FailureAction::Restart | FailureAction::Fail) | None => (1, 1),
            },
            Some(Cause::Disruption) => (0, i32::from(!job.spec.failure_rules().is_empty())),
            _ => (0, 0),
        }
    }

    /// Workers that are restarted alone: each pod that failed is written down once.
    fn written_down(
        &mut self,
        uid: &str,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Result<Vec<(i32, i32)>, String> {
        let mut worth = Vec::new();
        for worker in &new.worker_statuses {
            let before = old.worker_statuses.iter().find(|before| before.pod_name == worker.pod_name);
            let Some(pod) = &worker.failed_uid else { continue };
            if before.is_some_and(|before| before.failed_uid.as_ref() == Some(pod)) {
                continue;
            }
            demand!(job.spec.restart_scope() == RestartScope::Worker, "{pod} is counted alone");
            let fact = self.pods.get(pod).filter(|fact| fact.job == uid);
            demand!(fact.is_some() || pod == "gone", "the failure of {pod} is counted, which never was");
            worth.push(Self::worth(job, fact));
            let is_first = pod == "gone" || self.accounted.insert(pod.clone());
            demand!(is_first || self.rivals, "the failure of {pod} is counted twice");
        }
        Ok(worth)
    }

    /// Running means that every pod of the attempt ran, or is done.
    fn runs(&self, uid: &str, job: &TrainingJob, status: &TrainingJobStatus) -> Verdict {
        let number = open_attempt(status).map(|attempt| attempt.number);
        demand!(number.is_some(), "running without an attempt");
        let roles = Roles::of(job);
        for member in roles.members().filter(|member| member.role.is_required()) {
            let name = member.pod_name(roles.job);
            let is_ignored = |pod: &Fact| pod.is_ignored(job.spec.failure_rules());
            let ran = |pod: &Fact| pod.ran || pod.succeeded || is_ignored(pod);
            let ran = self.of(uid, number).any(|pod| pod.name == name && ran(pod));
            demand!(ran, "running, although {name} of attempt {number:?} never ran");
        }
        Ok(())
    }
}

/// What one part of a status says, no other part denies.
fn coherent(status: &TrainingJobStatus) -> Verdict {
    let terminal = status.is_terminal();
    demand!(
        status.completion_time.is_some() == terminal,
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
