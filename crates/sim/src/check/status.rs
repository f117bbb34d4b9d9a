//! What a status says is so.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{
    Attempt, Cause, CheckpointStatus, FailureAction, Phase, RestartPolicy, RestartScope, RoleSuccess,
    Severity, State, SuccessPolicy, TrainingJob, TrainingJobStatus, condition, names, validate,
};
use trainyard_operator::Watched;
use trainyard_plan::{Settings, UNREADABLE, World as Roles};

use super::fact::Fact;
use super::{Checker, Verdict, demand, open_attempt};
use crate::mishap::Mishap;
use crate::server::{Actor, Server};

/// The same failure so many times is final.
pub(super) const SAME_FAILURES: usize = 3;

/// Ends of containers are told in whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

impl Checker {
    /// An operator wrote a status.
    pub(super) fn said(
        &mut self,
        server: &Server,
        by: Actor,
        before: &TrainingJob,
        after: &TrainingJob,
    ) -> Verdict {
        let now = server.now;
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
        let reason = why_failed(new);
        if let Some(state) = new.state.filter(|_| new.is_terminal() && !is_mendable(new)) {
            self.ended.insert(uid.clone(), (state, new.completion_time.clone()));
        }
        self.counted(by, &uid, after, old, new, reason)?;
        self.caused(by, after, old, new)?;
        self.gives_up(after, old, new)?;
        if new.state == Some(State::Failed) && old.state != Some(State::Failed) {
            self.gave_up(server, by, after, new, reason)?;
            match reason {
                "BackoffLimitExceeded" if after.spec.backoff_limit() > 0 => {
                    self.mishaps.insert(Mishap::LimitUsedUp);
                }
                "SameFailure" => {
                    self.mishaps.insert(Mishap::SameFailure);
                }
                _ => {}
            }
        }
        let runs = |status: &TrainingJobStatus| {
            let since = open_attempt(status).filter(|attempt| attempt.running_time.is_some());
            (status.state == Some(State::Running), since.map(|attempt| attempt.number))
        };
        if runs(new) != runs(old) && runs(new) != (false, None) {
            self.runs(&uid, after, new)?;
        }
        self.workers(&uid, new)?;
        if new.state == Some(State::Completed) && old.state != Some(State::Completed) {
            self.succeeded(&uid, after, new)?;
        }
        self.coherent(&uid, after, old, new)?;
        self.timed(now, by, after, old, new)?;
        self.waits(now, by, after, old, new)?;
        self.resumed(&uid, after, old, new)?;
        if let Some(process) = by.process() {
            self.goes_on_from_newest(process, &uid, after, old, new)?;
        }
        self.is_to_tell(by, after, old, new);
        self.stalled(now, by, after, old, new)
    }

    /// Whoever gives up has the reason that is told.
    fn gave_up(
        &self,
        server: &Server,
        by: Actor,
        job: &TrainingJob,
        status: &TrainingJobStatus,
        reason: &str,
    ) -> Verdict {
        let spec = &job.spec;
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let walls = self.walls(by, name, server.now);
        let since = |time: Option<&Time>, limit: Option<i64>| {
            let passed = |(_, wall): (_, Timestamp)| Some(wall.duration_since(time?.0).as_secs() >= limit?);
            time.is_some() && limit.is_some() && walls.is_none_or(|walls| passed(walls) == Some(true))
        };
        let last = status.attempts.last();
        let own =
            |attempt: &&Attempt| attempt.cause.is_some_and(|cause| cause.counts() || cause == Cause::Stalled);
        // The pod that is named as the root; without one, any. Who is replaced alone has had several.
        let root = last.and_then(|last| last.pod_name.as_ref());
        let mut roots = self
            .of(uid, last.map(|last| last.number))
            .filter(|pod| root.is_none_or(|root| *root == pod.name));
        // Whatever does not count ends no job, however few restarts are left.
        let rules = spec.failure_rules();
        let counts = match last.and_then(|last| last.cause) {
            Some(cause) if cause.counts() => {
                let is_spared = |pod: &Fact| {
                    let action = pod.action(rules);
                    matches!(action, Some(FailureAction::RestartWithoutCounting | FailureAction::Ignore))
                };
                roots.clone().any(|pod| pod.failed() && !is_spared(pod))
            }
            Some(Cause::Disruption) => last.is_some_and(|last| self.weight(by, uid, job, last).1 > 0),
            _ => false,
        };
        let holds = match reason {
            "InvalidSpec" => is_invalid(job),
            UNREADABLE => server.unreadable.contains(uid),
            // How often it may be restarted is checked where that is counted.
            "BackoffLimitExceeded" => counts,
            "RestartPolicyNever" => counts && spec.restart_policy() == RestartPolicy::Never,
            "PermanentExitCode" => {
                let is_permanent = |pod: &Fact| pod.exit_code.is_some_and(|code| (1..128).contains(&code));
                counts && spec.restart_policy() == RestartPolicy::ExitCode && roots.any(is_permanent)
            }
            "FailurePolicy" => roots.any(|pod| pod.action(spec.failure_rules()) == Some(FailureAction::Fail)),
            "SameFailure" => {
                let row = status.attempts.iter().rev().take_while(|attempt| attempt.reached.is_none());
                let row = row.take_while(|attempt| Some(&attempt.inputs) == last.map(|last| &last.inputs));
                let row = row.filter(own).take(SAME_FAILURES).map(|attempt| {
                    (
                        attempt.cause,
                        attempt.error.as_ref().filter(|_| attempt.cause == Some(Cause::Application)),
                    )
                });
                let row: Vec<_> = row.collect();
                // An exit code alone does not tell whether it is the same.
                let is_told =
                    row.iter().all(|(cause, error)| *cause != Some(Cause::Application) || error.is_some());
                is_told && row.len() == SAME_FAILURES && row.windows(2).all(|pair| pair[0] == pair[1])
            }
            "DeadlineExceeded" => since(status.active_since.as_ref(), spec.active_deadline_seconds),
            "StartupTimeout" => last.is_some_and(|last| {
                let limit = spec.startup_timeout_seconds;
                let began = last.created_time.as_ref().or(last.start_time.as_ref());
                if last.running_time.is_none() {
                    // By a clock that was set back, its pods were there before it began.
                    since(began, limit) || (self.clock_set > 0 && since(last.start_time.as_ref(), limit))
                } else {
                    // Who takes the place of another has to start up, too.
                    let sight = self.sight(by, name);
                    let is_up = |pod: &Fact| {
                        let is_seen = |event| sight.is_none_or(|sight| sight.has(Watched::Pods, event));
                        pod.ran && pod.seen_as.is_none_or(is_seen)
                    };
                    let mut pods = self.of(uid, Some(last.number));
                    spec.restart_scope() == RestartScope::Worker && pods.any(|pod| !is_up(pod))
                }
            }),
            _ => false,
        };
        demand!(holds, "given up because of {reason}, which is not so");
        Ok(())
    }

    /// Completed means that those have succeeded whom the job's policy names. A failure that a rule ignores counts as done.
    fn succeeded(&self, uid: &str, job: &TrainingJob, status: &TrainingJobStatus) -> Verdict {
        let attempt = status.attempts.last();
        let rules = job.spec.failure_rules();
        let holds = self.has_succeeded(uid, job, attempt, &Fact::succeeded, &|pod| pod.is_ignored(rules));
        let number = attempt.map(|attempt| attempt.number);
        demand!(holds, "completed, although in attempt {number:?} not everybody has succeeded who had to");
        Ok(())
    }

    /// Whether those have succeeded whom the job's policy names, as far as `won` says so; or all are done, for whom either does.
    pub(super) fn has_succeeded(
        &self,
        uid: &str,
        job: &TrainingJob,
        attempt: Option<&Attempt>,
        won: &dyn Fn(&Fact) -> bool,
        ignored: &dyn Fn(&Fact) -> bool,
    ) -> bool {
        let number = attempt.map(|attempt| attempt.number);
        let world = Roles::of(job);
        let has_won = |name: &str| self.of(uid, number).any(|pod| pod.name == name && won(pod));
        let done =
            |name: &str| has_won(name) || self.of(uid, number).any(|pod| pod.name == name && ignored(pod));
        let all_done = |kind: RoleSuccess| {
            let mut wanted = world.members().filter(|member| member.role.success == kind).peekable();
            wanted.peek().is_some() && wanted.all(|one| done(&one.pod_name(world.job)))
        };
        // Who is asked for only now was no part of a world that was done before.
        let shape = attempt.and_then(|attempt| attempt.world.as_deref()).unwrap_or_default();
        let has_grown =
            attempt.is_some_and(|attempt| attempt.created_time.is_some()) && shape != world.shape();
        if has_grown && all_of_shape(world.job, shape, &has_won) {
            return true;
        }
        if world.has_decider() {
            return all_done(RoleSuccess::Decides);
        }
        let is_enough = match job.spec.success_policy() {
            SuccessPolicy::AllWorkers => false,
            SuccessPolicy::Leader => has_won(&world.leader()),
            SuccessPolicy::AnyWorker => {
                let mut workers = world.members().filter(|member| member.role.is_workers());
                workers.any(|member| has_won(&member.pod_name(world.job)))
            }
        };
        is_enough || all_done(RoleSuccess::Required)
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
            let before = new.attempts.iter().filter(|before| before.number < attempt.number);
            let before = before.filter_map(|before| step(before.reached.as_deref()));
            let before = if from.is_some() { step(from) } else { before.max() };
            demand!(
                reached.is_none() || step(reached) > before,
                "attempt {} is said to have got to {reached:?}, and step {before:?} had been saved before",
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

    /// Whoever begins an attempt has heard what the one before saved last, in the time that it had to go as well, and goes on from that.
    fn goes_on_from_newest(
        &self,
        process: usize,
        uid: &str,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Verdict {
        let known = old.attempts.last().map(|known| known.number);
        let begun = open_attempt(new).filter(|begun| Some(begun.number) > known);
        let Some(begun) = begun.filter(|_| job.spec.resumes()) else { return Ok(()) };
        // Its pods were there first: nothing had been saved when they were made, or somebody took the status away since.
        if self.of(uid, Some(begun.number)).next().is_some() {
            return Ok(());
        }
        let heard = self.heard.get(&(process, uid.to_owned())).copied();
        let from = begun.resumed_from.as_ref().and_then(|from| from.step);
        demand!(
            from >= heard,
            "attempt {} goes on from step {from:?}, and {heard:?} was saved",
            begun.number
        );
        Ok(())
    }

    /// Only who was silent for so long as the job allows has stalled, whatever the clock was set to meanwhile.
    fn stalled(
        &self,
        now: Timestamp,
        by: Actor,
        job: &TrainingJob,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
    ) -> Verdict {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let name = job.metadata.name.as_deref().unwrap_or_default();
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
        let sight = self.sight(by, name);
        let is_seen = |event| sight.is_some_and(|sight| sight.has(Watched::Pods, event));
        let leaders = self.of(uid, Some(last.number)).filter(|pod| pod.name == leader);
        let done = leaders.filter(|pod| pod.seen_as.is_some_and(is_seen)).find_map(|pod| pod.done);
        let is_due = |(done, (began, now)): (Timestamp, (Timestamp, Timestamp))| {
            done > began || now.duration_since(done) >= limit - SECOND
        };
        demand!(
            done.zip(self.walls(by, name, now)).is_none_or(is_due),
            "attempt {} is said to have stalled at {now}, and its leader was done at {done:?}",
            last.number
        );
        // One that never spoke is compared with those before it that did.
        let began = last.running_time.as_ref().filter(|_| self.clock_set == 0).map(|began| began.0);
        let knows = old.attempts.iter().any(|attempt| attempt.seconds.first_step.is_some());
        demand!(
            spoke.is_some()
                || (knows && began.is_none_or(|began| now.duration_since(began) >= limit - SECOND)),
            "attempt {} is said to have stalled at {now}, never spoke, and ran since {began:?}",
            last.number
        );
        // What lands late was decided earlier.
        let is_late = matches!(by, Actor::Late(_));
        demand!(
            is_late || spoke.is_none_or(|spoke| now.duration_since(*spoke) >= limit),
            "attempt {} is said to have stalled at {now}, and told of progress at {spoke:?}",
            last.number
        );
        Ok(())
    }

    /// What is said of a worker has happened to one of its pods in this attempt.
    fn workers(&self, uid: &str, status: &TrainingJobStatus) -> Verdict {
        let number = status.attempts.last().map(|attempt| attempt.number);
        for worker in &status.worker_statuses {
            let mut pods = self.of(uid, number).filter(|pod| pod.name == worker.pod_name);
            let is_so = match worker.phase {
                Phase::Succeeded => pods.any(Fact::succeeded),
                // Who was told to go has not done all that it had to, even if it ends with 0.
                Phase::Failed => pods.any(|pod| pod.failed() || pod.is_taken()),
                Phase::Running => pods.any(|pod| pod.ran),
                Phase::Pending => true,
            };
            demand!(is_so, "{} is said to be {:?} in attempt {number:?}", worker.pod_name, worker.phase);
        }
        Ok(())
    }

    /// Running means that every pod of the attempt ran, or is done.
    fn runs(&self, uid: &str, job: &TrainingJob, status: &TrainingJobStatus) -> Verdict {
        let number = open_attempt(status).map(|attempt| attempt.number);
        demand!(number.is_some(), "running without an attempt");
        let roles = Roles::of(job);
        for member in roles.members().filter(|member| member.role.is_required()) {
            let name = member.pod_name(roles.job);
            let is_ignored = |pod: &Fact| pod.is_ignored(job.spec.failure_rules());
            let ran = |pod: &Fact| pod.ran || pod.succeeded() || is_ignored(pod);
            let ran = self.of(uid, number).any(|pod| pod.name == name && ran(pod));
            demand!(ran, "running, although {name} of attempt {number:?} never ran");
        }
        Ok(())
    }
}

/// Why a job has failed, in a word.
fn why_failed(status: &TrainingJobStatus) -> &str {
    let failed = status.condition(condition::FAILED).filter(|failed| failed.status == "True");
    failed.map(|failed| failed.reason.as_str()).unwrap_or_default()
}

/// It has failed, and goes on when somebody mends its spec, or can read it.
pub(crate) fn is_mendable(status: &TrainingJobStatus) -> bool {
    matches!(why_failed(status), "InvalidSpec" | UNREADABLE)
}

/// Nobody could run this.
pub(super) fn is_invalid(job: &TrainingJob) -> bool {
    let problems = validate(job, &Settings::default().gpu_resource);
    problems.iter().any(|problem| problem.severity == Severity::Error)
}

/// Whether all pods of a world of this shape are so.
fn all_of_shape(job: &str, shape: &str, is_so: &dyn Fn(&str) -> bool) -> bool {
    let roles = shape.split(',').filter_map(|part| part.split_once('='));
    let mut roles = roles.map(|(role, replicas)| (role, replicas.parse::<u32>().unwrap_or(0))).peekable();
    roles.peek().is_some()
        && roles.all(|(role, replicas)| (0..replicas).all(|index| is_so(&names::pod(job, role, index))))
}
