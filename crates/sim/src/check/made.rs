//! What operators make, and what may be there when everything is at rest.
//!
//! Two operators at once (a lease that was lost) do not see at once what the other one does. Between the moment at which one looks and the
//! moment at which its write lands, the other may have written: nothing but names and versions keeps them apart then. So what one of
//! them makes may be of an attempt that the other has just ended. That is allowed for a moment, of exactly those pods; it is not allowed
//! beside one's own pods, against what one has written oneself, or within one attempt; and when there is rest, it has been put right.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{CleanPodPolicy, RoleOrder, TrainingJob, TrainingJobStatus, names};
use trainyard_operator::Watched;
use trainyard_plan::{TargetKind, World};

use super::{Checker, Verdict, demand, is_mendable, open_attempt};
use crate::server::{Actor, Child, Server};

/// Nobody waits for longer than six minutes, and a tenth: whoever would has had its clock set back, and goes on.
pub(super) const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(397);

/// So long the pods of a job that is being deleted are waited for.
const DELETION_PATIENCE: SignedDuration = SignedDuration::from_mins(5);

impl Checker {
    /// Whether this operator may not have known, when it decided, what the status of this job says by now: it was written since, or by
    /// another one, and no watch had told.
    pub(super) fn may_not_know(&self, by: Actor, job: &TrainingJob) -> bool {
        let Some(writer) = job.metadata.uid.as_ref().and_then(|uid| self.writers.get(uid)) else {
            return false;
        };
        match by {
            Actor::Late(process) => {
                writer.process != Some(process) || self.sent.is_some_and(|sent| sent < writer.version)
            }
            _ if writer.process == by.process() => false,
            _ => {
                let name = job.metadata.name.as_deref().unwrap_or_default();
                !self.sight(by, name).is_some_and(|sight| sight.has(Watched::Jobs, writer.event))
            }
        }
    }

    /// Whether this operator may not have known, when it decided, that this pod is there: another one made it, or it landed when
    /// nobody waited for it any more, and no watch had told.
    fn may_not_see(&self, by: Actor, job: &str, pod: &Child) -> bool {
        let is_own = !pod.is_late() && pod.maker.process() == by.process();
        !is_own && !self.sight(by, job).is_some_and(|sight| sight.has(Watched::Pods, pod.first_told))
    }

    /// An operator made something.
    pub(super) fn created(&self, server: &Server, by: Actor, kind: TargetKind, child: &Child) -> Verdict {
        if kind != TargetKind::Pod {
            return Ok(());
        }
        // Never a pod of an older attempt beside one of a newer.
        let attempt = child.attempt();
        let gang = server.pods().filter(|pod| pod.ours && pod.controller() == child.controller());
        let job = server.jobs().find(|job| job.metadata.uid.as_deref() == child.controller());
        let name = job.and_then(|job| job.metadata.name.as_deref()).unwrap_or_default();
        // What lands late comes when its operator is dead or has been told that it did not come: nobody can keep it from being beside
        // others for a moment. It is not to stay (see `at_rest`), and nobody who has seen it makes others beside it.
        for pod in gang.filter(|_| !child.is_late()) {
            let is_unseen = self.may_not_see(by, name, pod);
            if is_unseen && pod.is_late() {
                continue;
            }
            demand!(
                pod.attempt() == attempt || is_unseen,
                "{} of attempt {attempt:?} beside {} of attempt {:?}",
                child.name(),
                pod.name(),
                pod.attempt()
            );
            demand!(
                pod.uid == child.uid
                    || child.rank.is_none()
                    || pod.rank != child.rank
                    || pod.attempt() != attempt,
                "{} and {} both have rank {:?}",
                child.name(),
                pod.name(),
                child.rank
            );
        }
        let status = job.and_then(|job| job.status.as_ref());
        let attempts = status.map(|status| status.attempts.as_slice()).unwrap_or_default();
        // Who goes on where the last attempt ended has read how it ended.
        let goes_on = attempts.last().is_some_and(|last| !last.is_open() && Some(last.number) < attempt);
        let unaware = child.is_late() || job.is_none_or(|job| self.may_not_know(by, job));
        let is_over = child.controller().is_some_and(|job| self.ended.contains_key(job));
        demand!(!is_over || (unaware && !goes_on), "{} was made for a job that has ended", child.name());
        let until = status.and_then(|status| status.backoff_until.as_ref());
        let is_time = |(until, (began, now)): (&Time, (Timestamp, Timestamp))| {
            until.0 <= now || (self.clock_set > 0 && until.0 > began + LONGEST_WAIT)
        };
        // Its first pod came when it was time, by a clock that was set back since; with the attempt itself, the time is forgotten.
        let has_begun = self.clock_set > 0
            && attempts.iter().all(|known| Some(known.number) != attempt)
            && server.pods().any(|pod| {
                pod.uid != child.uid && pod.controller() == child.controller() && pod.attempt() == attempt
            });
        demand!(
            has_begun
                || (unaware && !goes_on)
                || until.zip(self.walls(by, name, server.now)).is_none_or(is_time),
            "{} was made before its time, which is {until:?}",
            child.name()
        );
        if let Some(job) = job.filter(|_| !unaware) {
            self.made_of_another_spec(job, child)?;
            self.is_its_turn(job, child)?;
            let avoided = status.map(|status| status.avoided_nodes.as_slice()).unwrap_or_default();
            let next = avoided.iter().find(|node| !child.avoids.contains(node));
            demand!(next.is_none(), "{} may come to node {next:?}, which is avoided", child.name());
        }
        // What a pod is told to go on from stands in the status before, so that all ranks of an attempt go on from the same.
        let written = attempts.iter().find(|known| Some(known.number) == attempt);
        let resumed = written.and_then(|known| known.resumed_from.as_ref()).map(|from| &from.path);
        // Somebody may have taken the status away until then.
        demand!(
            child.resume.as_ref() == resumed || (child.is_late() && written.is_none()),
            "{} goes on from {:?}, and its attempt from {resumed:?}",
            child.name(),
            child.resume
        );
        Ok(())
    }

    /// Who waits for others to have started is made after that.
    fn is_its_turn(&self, job: &TrainingJob, child: &Child) -> Verdict {
        if job.spec.roles().is_empty() {
            return Ok(());
        }
        let world = World::of(job);
        let attempts = job.status.iter().flat_map(|status| &status.attempts);
        let mut attempts = attempts.filter(|attempt| Some(attempt.number) == child.attempt());
        // Who takes the place of another has not to wait again. Of a world that has another size by now, nobody knows.
        let is_alone = attempts.any(|attempt| attempt.created_time.is_some());
        if is_alone || child.annotation(names::SHAPE_ANNOTATION) != Some(world.shape().as_str()) {
            return Ok(());
        }
        let turn = |order: RoleOrder| match order {
            RoleOrder::BeforeWorkers => 0,
            RoleOrder::WithWorkers => 1,
            RoleOrder::AfterWorkers => 2,
        };
        let mut members = world.members();
        let Some(own) = members.find(|member| member.pod_name(world.job) == child.name()) else {
            return Ok(());
        };
        let rules = job.spec.failure_rules();
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        for before in world.members().filter(|other| turn(other.role.order) < turn(own.role.order)) {
            let name = before.pod_name(world.job);
            let mut pods = self.of(uid, child.attempt()).filter(|pod| pod.name == name);
            demand!(
                pods.any(|pod| pod.ran || pod.succeeded() || pod.is_ignored(rules)),
                "{} was made, and {name} had not started",
                child.name()
            );
        }
        Ok(())
    }

    /// A job that is being deleted is let go, or its claim removed.
    pub(super) fn leaves_nobody(&self, server: &Server, by: Actor, job: &TrainingJob) -> Verdict {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        // Who cannot read a job lets it go.
        let is_read = !server.unreadable.contains(job.metadata.uid.as_deref().unwrap_or_default());
        let since = job.metadata.deletion_timestamp.as_ref().filter(|_| is_read);
        let Some(since) = since else { return Ok(()) };
        let is_patient = |(_, now): (Timestamp, Timestamp)| now < since.0 + DELETION_PATIENCE;
        let Some(sight) =
            self.sight(by, name).filter(|_| self.walls(by, name, server.now).is_some_and(is_patient))
        else {
            return Ok(());
        };
        let mut left = server.pods().filter(|pod| {
            let is_of = pod.ours && pod.controller() == job.metadata.uid.as_deref();
            is_of && pod.is_selected() && sight.has(Watched::Pods, pod.first_told)
        });
        let left = left.next().map(Child::name);
        demand!(left.is_none(), "job {name} is let go, and {left:?} is still there");
        Ok(())
    }

    /// A pod of a job that has ended was removed: its policy does not keep it.
    pub(super) fn is_not_kept(&self, by: Actor, job: &TrainingJob, pod: &Child) -> Verdict {
        // One that goes on when its spec is mended removes what is left.
        let is_over = |status: &TrainingJobStatus| status.is_terminal() && !is_mendable(status);
        let has_ended = job.status.as_ref().is_some_and(is_over);
        let is_going = job.metadata.deletion_timestamp.is_some();
        if !has_ended || is_going || matches!(by, Actor::Late(_)) {
            return Ok(());
        }
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let knows = |event| self.sight(by, name).is_some_and(|sight| sight.has(Watched::Pods, event));
        let is_kept = match job.spec.clean_pod_policy() {
            CleanPodPolicy::None => true,
            // One that had not ended when it was looked at may have by now.
            CleanPodPolicy::Running => {
                pod.has_ended() && self.pods.get(&pod.uid).is_some_and(|fact| fact.seen_as.is_some_and(knows))
            }
            CleanPodPolicy::All => false,
        };
        demand!(
            !is_kept || self.may_not_know(by, job),
            "pod {} was removed, and cleanPodPolicy is {:?}",
            pod.name(),
            job.spec.clean_pod_policy()
        );
        Ok(())
    }

    /// When everything is at rest, all pods that stay are of the attempt that goes on; of a job that has ended, those that its policy keeps
    /// (and those that nobody sees, because somebody took their label: they go with the job).
    pub(crate) fn at_rest(server: &Server) -> Verdict {
        for pod in server.pods().filter(|pod| pod.ours && !pod.is_deleting()) {
            let job = server.jobs().find(|job| job.metadata.uid.as_deref() == pod.controller());
            let Some(job) = job else { continue };
            let Some(status) = &job.status else { continue };
            let open = open_attempt(status).map(|attempt| attempt.number);
            demand!(
                open == pod.attempt() || (status.is_terminal() && (is_kept(job, pod) || !pod.is_selected())),
                "{} of attempt {:?} stays, in {:?} with attempt {open:?}",
                pod.name(),
                pod.attempt(),
                status.state
            );
        }
        Ok(())
    }
}

/// Whether the policy of a job that has ended keeps this pod.
fn is_kept(job: &TrainingJob, pod: &Child) -> bool {
    match job.spec.clean_pod_policy() {
        CleanPodPolicy::None => true,
        CleanPodPolicy::Running => pod.has_ended(),
        CleanPodPolicy::All => false,
    }
}
