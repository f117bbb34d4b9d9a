//! What the pods of the current attempt say about it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{Attempt, Cause, FailureAction, RestartScope, RoleSuccess, SuccessPolicy, WorkerStatus};

use super::{policy, report};
use crate::draft::{Draft, later};
use crate::settings::Settings;
use crate::snapshot::{Exit, NodeNotice, PodPhase, PodView, Snapshot};
use crate::text;
use crate::words::{self, Words};
use crate::world::{self, Member, Rank, World};

/// The pods of the current attempt, by name.
pub(super) type Gang<'a> = BTreeMap<&'a str, &'a PodView>;

/// How the attempt stands.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict<'a> {
    /// Nothing to decide: it goes on.
    GoesOn,
    /// Something has failed; what it was will be known by then.
    Wait(Timestamp),
    Succeeded,
    /// It must end before its time.
    Ends(Ending<'a>),
}

/// Why an attempt ends before its time.
#[derive(Debug, PartialEq)]
pub(super) struct Ending<'a> {
    pub(super) cause: Cause,
    pub(super) pod: Option<&'a PodView>,
    pub(super) message: String,
    /// What the program left as its last words.
    pub(super) words: Words,
    /// All that is known is that this pod lost a peer: who failed first, nobody says.
    pub(super) rootless: bool,
    /// What the job's own rules say about it.
    pub(super) action: Option<FailureAction>,
    /// Something is gone that the others cannot do without: they have nothing left to save.
    pub(super) broken: bool,
    /// The leader had not started, because the storage cannot be read.
    pub(super) awaits_storage: bool,
}

impl<'a> Ending<'a> {
    pub(super) fn new(cause: Cause, pod: Option<&'a PodView>, message: String) -> Self {
        Self {
            cause,
            pod,
            message,
            words: Words::default(),
            rootless: false,
            action: None,
            broken: false,
            awaits_storage: false,
        }
    }
}

/// What is judged.
pub(super) struct Case<'c, 'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) settings: &'c Settings,
    pub(super) now: Timestamp,
    pub(super) world: &'c World<'c>,
    pub(super) gang: &'c Gang<'a>,
    pub(super) attempt: Option<&'c Attempt>,
    pub(super) workers: &'c [WorkerStatus],
    pub(super) inputs: &'c str,
}

impl<'c, 'a: 'c> Case<'c, 'a> {
    pub(super) fn of(
        draft: &Draft<'a>,
        world: &'c World<'c>,
        gang: &'c Gang<'a>,
        attempt: Option<&'c Attempt>,
        workers: &'c [WorkerStatus],
        inputs: &'c str,
    ) -> Self {
        let Draft { snapshot, settings, now, .. } = *draft;
        Self { snapshot, settings, now, world, gang, attempt, workers, inputs }
    }
}

impl<'a> Case<'_, 'a> {
    /// Judges an attempt. Success comes first: what happens to a job that is done does not matter any more.
    pub(super) fn judge(&self) -> Verdict<'a> {
        if self.has_succeeded() {
            return Verdict::Succeeded;
        }
        if self.snapshot.job.spec.restart_scope() == RestartScope::Worker && self.is_created() {
            // Whoever fails is replaced alone (see `single`), once all have been there: before that, others may wait for it.
            if self.has_uncounted() {
                return Verdict::GoesOn;
            }
            return self.halted().map_or_else(|| self.changed(), Verdict::Ends);
        }
        // A worker whose peer is taken away fails, too, and often is seen first: what took the peer is the cause.
        if let Some(ending) = self.lost().or_else(|| self.gone_early()) {
            return Verdict::Ends(ending);
        }
        if let Some(pod) = self.disrupted() {
            return Verdict::Ends(self.failure(pod));
        }
        match self.root() {
            Root::None => {
                let ending = self.halted().or_else(|| self.noticed());
                ending.map_or_else(|| self.changed(), Verdict::Ends)
            }
            Root::Unclear(until) => Verdict::Wait(until),
            Root::Pod(pod) => Verdict::Ends(self.failure(pod)),
        }
    }

    /// Whether somebody has failed whose failure is not written down yet. That comes first: when the attempt ends, its pods go.
    pub(super) fn has_uncounted(&self) -> bool {
        self.world.members().any(|member| {
            let pod = self.pod(&member).filter(|pod| has_failed(pod) && !self.member_succeeded(&member));
            pod.is_some() && !self.is_recorded(&member, pod)
        })
    }

    /// Whether this loss has been written down. A pod that is gone was written down if its worker has not run since.
    pub(super) fn is_recorded(&self, member: &Member<'_, '_>, pod: Option<&PodView>) -> bool {
        let name = member.pod_name(self.world.job);
        let worker = self.workers.iter().find(|worker| worker.pod_name == name);
        worker.is_some_and(|worker| match pod {
            Some(pod) => worker.failed_uid.as_ref() == Some(&pod.uid),
            None => worker.failed_uid.is_some(),
        })
    }

    fn pod(&self, member: &Member<'_, '_>) -> Option<&'a PodView> {
        self.gang.get(member.pod_name(self.world.job).as_str()).copied()
    }

    fn has_succeeded(&self) -> bool {
        // What was not copied is lost with the pod: a job without its result is not done.
        if is_copying(self.snapshot, self.world, self.gang) {
            return false;
        }
        let mut members = self.world.members();
        // Whose failure is ignored is done, but no success: one that the policy asks for must be a real one. When nobody is left who
        // could bring it, all are done.
        let won = |member: &Member<'_, '_>| self.member_succeeded(member) && !self.member_was_ignored(member);
        let is_enough = match self.snapshot.job.spec.success_policy() {
            _ if self.world.has_decider() => false,
            SuccessPolicy::AllWorkers => false,
            SuccessPolicy::Leader => members.any(|member| member.rank == Some(Rank(0)) && won(&member)),
            SuccessPolicy::AnyWorker => members.any(|member| member.role.is_workers() && won(&member)),
        };
        if is_enough {
            return true;
        }
        let members = self.world.members();
        let wanted = if self.world.has_decider() { RoleSuccess::Decides } else { RoleSuccess::Required };
        let mut deciding = members.filter(|member| member.role.success == wanted).peekable();
        let all = deciding.peek().is_some() && deciding.all(|member| self.member_succeeded(&member));
        all || self.was_done_before_it_grew()
    }

    /// All pods of a world of another size have succeeded: who is asked for only now was never a part of it.
    fn was_done_before_it_grew(&self) -> bool {
        let Some(attempt) = self.attempt.filter(|_| self.is_created() && !self.made_for_this_shape()) else {
            return false;
        };
        let shape = attempt.world.as_deref().unwrap_or_default();
        let mut pods = world::pods_of_shape(self.world.job, shape).peekable();
        let has_succeeded =
            |name: String| self.gang.get(name.as_str()).is_some_and(|pod| pod.phase == PodPhase::Succeeded);
        pods.peek().is_some() && pods.all(has_succeeded)
    }

    /// A pod that succeeded, or whose failure is ignored, may be gone (somebody cleaned up): the status remembers.
    pub(super) fn member_succeeded(&self, member: &Member<'_, '_>) -> bool {
        match self.pod(member) {
            Some(pod) => pod.phase == PodPhase::Succeeded || self.member_was_ignored(member),
            None => self.remembered(member).is_some(),
        }
    }

    /// It failed, and a rule says that this does not matter.
    fn member_was_ignored(&self, member: &Member<'_, '_>) -> bool {
        let known = self.remembered(member).is_some_and(|worker| worker.ignored);
        match self.pod(member) {
            Some(pod) => self.is_ignored(pod) || (known && pod.phase == PodPhase::Failed),
            None => known,
        }
    }

    /// What the status says of a worker of this attempt that is done.
    fn remembered(&self, member: &Member<'_, '_>) -> Option<&WorkerStatus> {
        report::remembered(self.workers, &member.pod_name(self.world.job)).filter(|_| self.is_created())
    }

    /// All pods of the attempt have been seen once.
    fn is_created(&self) -> bool {
        self.attempt.is_some_and(|attempt| attempt.is_open() && attempt.created_time.is_some())
    }

    /// A failure that the job's rules say to ignore.
    pub(super) fn is_ignored(&self, pod: &PodView) -> bool {
        has_failed(pod) && self.action(pod, &self.words(pod)) == Some(FailureAction::Ignore)
    }

    fn words(&self, pod: &PodView) -> Words {
        self.snapshot.tail(pod).map(words::read).unwrap_or_default()
    }

    /// What the job's own rules say about a pod that failed.
    fn action(&self, pod: &PodView, words: &Words) -> Option<FailureAction> {
        let rules = self.snapshot.job.spec.failure_rules();
        policy::action(rules, pod, words, self.snapshot.tail(pod), self.is_victim(words))
    }

    /// All that it says is that it lost a peer: its exit code says nothing about what failed.
    fn is_victim(&self, words: &Words) -> bool {
        words.blames_a_peer && self.has_peers()
    }

    /// A pod that the cluster takes away, once that has made any pod fail.
    fn disrupted(&self) -> Option<&'a PodView> {
        let mut pods = self.gang.values().copied();
        let disrupted = |pod: &PodView| {
            pod.disruption.is_some() && pod.phase != PodPhase::Succeeded && !self.is_ignored(pod)
        };
        let failed = |pod: &&PodView| has_failed(pod) && !self.is_ignored(pod);
        self.gang.values().any(failed).then(|| pods.find(|pod| disrupted(pod))).flatten()
    }

    /// The pod that failed first; of several at the same moment, the one of the lowest rank. Who only complains that a peer
    /// is gone comes after everybody else, and as long as it is alone, the peer is waited for.
    fn root(&self) -> Root<'a> {
        let members = self.world.members().filter_map(|member| self.pod(&member));
        let mut failed: Vec<&'a PodView> = Vec::new();
        for pod in members.chain(self.gang.values().copied()) {
            if has_failed(pod) && !self.is_ignored(pod) && !failed.iter().any(|other| other.uid == pod.uid) {
                failed.push(pod);
            }
        }
        let some_were_read = failed.iter().any(|pod| self.snapshot.tail(pod).is_some());
        let when = |pod: &PodView| {
            let at = pod.exit.as_ref().and_then(|exit| exit.at).map(Timestamp::as_second);
            // Of many, not all are read: whoever was not is no likelier to be the one than those who blame a peer.
            let unread = some_were_read && self.snapshot.tail(pod).is_none();
            (unread || self.words(pod).blames_a_peer, at.is_none(), at)
        };
        // Members first, in the order of their ranks; the first of equals is taken.
        let Some(root) = failed.iter().copied().min_by_key(|pod| when(pod)) else { return Root::None };
        let awaited = self.root_is_awaited(failed).filter(|_| self.words(root).blames_a_peer);
        awaited.map_or(Root::Pod(root), Root::Unclear)
    }

    /// Who only complains of a lost peer waits so long for that one to be seen, as long as it may be among those that run.
    pub(super) fn root_is_awaited(&self, failed: impl IntoIterator<Item = &'a PodView>) -> Option<Timestamp> {
        let first = failed.into_iter().filter_map(|pod| pod.exit.as_ref()?.at).min()?;
        let until = later(first, self.settings.root_patience);
        // A node whose clock is ahead tells nothing about how long was waited.
        let is_early = first <= self.now && self.now < until;
        (is_early && self.gang.values().any(|pod| !pod.is_finished())).then_some(until)
    }

    pub(super) fn failure(&self, pod: &'a PodView) -> Ending<'a> {
        let title = self.title(&pod.name);
        let place = pod.node.as_ref().map(|node| format!(" on node {node}")).unwrap_or_default();
        let words = self.words(pod);
        let action = self.action(pod, &words);
        let (cause, message) = if let Some(why) = &pod.disruption {
            let message = format!("{title} was disrupted{place}: {}", why.message.trim_end_matches('.'));
            (Cause::Disruption, message)
        } else {
            let (cause, how) = match &pod.exit {
                Some(exit) if exit.reason.as_deref() == Some("OOMKilled") => (
                    Cause::OutOfMemory,
                    "used more memory than its limit (OOMKilled): raise resources.limits.memory or use a smaller \
                     batch"
                        .to_owned(),
                ),
                Some(exit) => (Cause::Application, how_it_ended(exit, &words, self.has_peers())),
                None => (Cause::Application, "the pod failed without an exit code".to_owned()),
            };
            (cause, format!("{title} failed{place}: {how}"))
        };
        if let Some(problem) = self.storage_awaited().filter(|_| pod.disruption.is_none()) {
            // It waited for a leader that could not start: neither the program nor the node is to blame, and a rule that
            // would count it means another failure.
            let message = format!("{message}; the leading worker is held back: {problem}");
            let action = action.filter(|action| *action != FailureAction::Restart);
            let ending = Ending::new(Cause::Disruption, None, message);
            return Ending { words, action, broken: true, awaits_storage: true, ..ending };
        }
        let rootless = cause == Cause::Application && self.is_victim(&words);
        Ending { words, rootless, action, broken: true, ..Ending::new(cause, Some(pod), message) }
    }

    /// Who is alone has lost something else than a peer: a database, for example.
    fn has_peers(&self) -> bool {
        // A job that was made smaller just now still has the others.
        self.gang.len() > 1 || self.world.members().nth(1).is_some()
    }

    /// A pod that is gone, or going, although nobody here asked for it.
    fn lost(&self) -> Option<Ending<'a>> {
        // Until all pods have been seen once, a missing one has not been created yet.
        if !self.is_created() {
            return None;
        }
        let same_shape = self.made_for_this_shape();
        self.world.members().find_map(|member| {
            let pod = self.pod(&member);
            let gone = match pod {
                Some(pod) => pod.deleting && !self.member_succeeded(&member),
                // Of a world of another shape this member was never a part.
                None => same_shape && !self.member_succeeded(&member),
            };
            gone.then(|| self.taken(&member, pod))
        })
    }

    /// A pod that was taken away.
    pub(super) fn taken(&self, member: &Member<'_, '_>, pod: Option<&'a PodView>) -> Ending<'a> {
        let why = pod.and_then(|pod| pod.disruption.as_deref());
        let why = why.map_or("its pod was deleted", |why| why.message.as_str());
        let message = format!("{} was lost: {why}", member.title());
        // As long as it runs, it can save its work, and the others with it.
        let broken = pod.is_none_or(|pod| pod.is_finished() || self.snapshot.is_on_dead_node(pod));
        let action = pod.and_then(|pod| self.action(pod, &Words::default()));
        Ending { action, broken, ..Ending::new(Cause::Disruption, pod, message) }
    }

    /// A pod that was seen and is gone before all pods of its attempt had been seen. A new one beside the others would join
    /// a world that has begun without it.
    fn gone_early(&self) -> Option<Ending<'a>> {
        let number = self.attempt.map(|attempt| attempt.number);
        if self.attempt.is_some_and(|attempt| attempt.created_time.is_some()) || self.gang.is_empty() {
            return None;
        }
        let mut members = self.world.members();
        let member = members.find(|member| {
            let name = member.pod_name(self.world.job);
            let vanished = self.snapshot.vanished.iter();
            let mut vanished = vanished.filter(|pod| pod.attempt.is_some() && pod.attempt == number);
            !self.gang.contains_key(name.as_str()) && vanished.any(|pod| pod.name == name)
        })?;
        let message = format!("{} was lost: its pod was deleted", member.title());
        Some(Ending { broken: true, ..Ending::new(Cause::Disruption, None, message) })
    }

    /// Nobody failed, and still it does not go on like this.
    fn halted(&self) -> Option<Ending<'a>> {
        self.stalled().or_else(|| self.misled())
    }

    /// Somebody is on a node that is about to be taken away. As long as that is there, all can save their work.
    fn noticed(&self) -> Option<Ending<'a>> {
        self.world.members().find_map(|member| self.leaves(&member, self.pod(&member)?))
    }

    pub(super) fn leaves(&self, member: &Member<'_, '_>, pod: &'a PodView) -> Option<Ending<'a>> {
        let NodeNotice { node, why } = self.snapshot.leaves(pod)?;
        let message =
            format!("{} has to leave node {node}, which is about to be taken away ({why})", member.title());
        Some(Ending::new(Cause::Disruption, Some(pod), message))
    }

    /// No news of progress for too long. A program that never told any is left alone.
    fn stalled(&self) -> Option<Ending<'a>> {
        let limit = self.snapshot.job.spec.stall_timeout_seconds?;
        let due = self.stall_due()?;
        let message = match self.pod_of_leader().filter(|leader| leader.phase == PodPhase::Succeeded) {
            Some(leader) => format!(
                "{} is done, and others still run {limit} s later (stallTimeoutSeconds)",
                self.title(&leader.name)
            ),
            None if self.last_heard().is_none() => format!(
                "no progress was seen for {limit} s longer than earlier attempts took to their first step (stallTimeoutSeconds)"
            ),
            None => format!("no progress was seen for {limit} s (stallTimeoutSeconds)"),
        };
        (due <= self.now).then(|| Ending { broken: true, ..Ending::new(Cause::Stalled, None, message) })
    }

    /// When the attempt has stalled if nothing is heard of it.
    pub(super) fn stall_due(&self) -> Option<Timestamp> {
        let limit = self.snapshot.job.spec.stall_timeout_seconds?;
        let attempt = self.attempt.filter(|attempt| attempt.is_open())?;
        let running = attempt.running_time.as_ref()?.0;
        let limit = SignedDuration::from_secs(limit);
        // Who is not there has nothing to tell.
        let pod = self.pod_of_leader().filter(|pod| pod.has_started())?;
        if pod.phase == PodPhase::Succeeded {
            return self.straggling_since(pod).map(|since| later(since, limit));
        }
        // Who is not listened to is not silent, and what was heard of another pod says nothing about this one.
        let listening = self.snapshot.listening.as_ref().filter(|listening| listening.pod == pod.uid)?;
        let due = match self.last_heard() {
            Some(last) => later(last, limit),
            // Until all run, nobody can take a step.
            None => later(later(listening.began.max(running), self.longest_to_first_step(attempt)?), limit),
        };
        let was_broken = listening.began < listening.since;
        Some(if was_broken { due.max(later(listening.since, CATCHING_UP)) } else { due })
    }

    fn last_heard(&self) -> Option<Timestamp> {
        self.snapshot.progress.as_ref()?.updated
    }

    /// How long attempts took until they told of progress. As long as none has, nobody knows that this program tells of any.
    fn longest_to_first_step(&self, attempt: &Attempt) -> Option<SignedDuration> {
        let attempts = self.snapshot.job.status.iter().flat_map(|status| &status.attempts);
        // This one, too, if it was heard of by the operator before this one.
        let known = attempts.filter(|other| other.number <= attempt.number);
        known.filter_map(|other| other.seconds.first_step).max().map(SignedDuration::from_secs)
    }

    /// The leader is done and says nothing any more: since then, those that run beside it should end, too. Roles without a
    /// rank may have work of their own, and a copy to the bucket takes its time.
    fn straggling_since(&self, leader: &PodView) -> Option<Timestamp> {
        let runs = |pod: &PodView| pod.phase == PodPhase::Running;
        let mut ranked = self.world.members().filter(|member| member.rank.is_some());
        let waits = ranked.any(|member| self.pod(&member).is_some_and(runs));
        if !waits || is_copying(self.snapshot, self.world, self.gang) {
            return None;
        }
        let last = self.last_heard()?;
        // An end in the future: somebody has set the clock back since.
        let ended = leader.exit.as_ref().and_then(|exit| exit.at).filter(|at| *at <= self.now);
        Some(ended.map_or(last, |ended| ended.max(last)))
    }

    fn pod_of_leader(&self) -> Option<&'a PodView> {
        self.gang.get(self.world.leader().as_str()).copied()
    }

    /// What the leader waits for that its agent holds back, because the storage cannot be read.
    fn storage_awaited(&self) -> Option<&'a str> {
        let agent = self.snapshot.agent.as_ref().filter(|agent| agent.report.unread)?;
        let mut pods = self.gang.values();
        let is_held = pods.any(|pod| pod.uid == agent.pod && pod.phase == PodPhase::Pending);
        agent.report.problem.as_deref().filter(|_| is_held)
    }

    /// The storage has another checkpoint than the program was told to go on from: its agent does not let it start.
    fn misled(&self) -> Option<Ending<'a>> {
        let agent =
            self.snapshot.agent.as_ref().filter(|agent| self.gang.values().any(|pod| pod.uid == agent.pod));
        let report = agent.map(|agent| &agent.report).filter(|report| report.resume_differs)?;
        let attempt = self.attempt.filter(|attempt| attempt.is_open())?;
        if attempt.resumed_from.as_deref() == report.checkpoint.as_ref() {
            return None;
        }
        let message = match &report.checkpoint {
            Some(checkpoint) => format!("checkpoint {} was found in the storage", checkpoint.path),
            None => "the checkpoint that it should have gone on from is not in the storage".to_owned(),
        };
        Some(Ending { broken: true, ..Ending::new(Cause::Resume, None, message) })
    }

    /// An empty gang of a started attempt has lost everybody; otherwise the pods say what world they are of.
    pub(super) fn made_for_this_shape(&self) -> bool {
        let shape = self.world.shape();
        self.gang.values().all(|pod| pod.shape.as_deref() == Some(shape.as_str()))
    }

    fn changed(&self) -> Verdict<'a> {
        let shape = self.world.shape();
        if self.gang.values().any(|pod| pod.inputs.as_deref() != Some(self.inputs)) {
            let message = "the spec changed: the pods are replaced by ones made from the new spec".to_owned();
            return Verdict::Ends(Ending::new(Cause::Update, None, message));
        }
        let before = self.gang.values().find(|pod| pod.shape.as_deref() != Some(shape.as_str()));
        before.map_or(Verdict::GoesOn, |pod| {
            let before = pod.shape.as_deref().unwrap_or("an unknown number");
            Verdict::Ends(Ending::new(Cause::Rescale, None, format!("rescaled from {before} to {shape}")))
        })
    }

    fn title(&self, pod: &str) -> String {
        let mut members = self.world.members();
        let member = members.find(|member| member.pod_name(self.world.job) == pod);
        member.map_or_else(|| format!("Pod {pod}"), |member| member.title())
    }
}

/// So long a log that is listened to again takes to tell what was said meanwhile.
const CATCHING_UP: SignedDuration = SignedDuration::from_secs(10);

/// The leading worker is done, and its last checkpoint is on its way to the bucket.
pub(super) fn is_copying(snapshot: &Snapshot, world: &World<'_>, gang: &Gang<'_>) -> bool {
    let leader = gang.get(world.leader().as_str());
    snapshot.job.spec.checkpoint_bucket().is_some()
        && leader.is_some_and(|pod| pod.lingers.is_some() && pod.phase == PodPhase::Succeeded)
}

/// Who failed first.
enum Root<'a> {
    None,
    /// Not known yet, but then.
    Unclear(Timestamp),
    Pod(&'a PodView),
}

/// A pod that was deleted is stopped by a signal and then fails, too: that is not the program's doing.
pub(super) fn has_failed(pod: &PodView) -> bool {
    pod.phase == PodPhase::Failed && !pod.deleting
}

/// The exit code, and what the runtime or the program itself left as its last words.
fn how_it_ended(exit: &Exit, words: &Words, has_peers: bool) -> String {
    if let Some(reason) = exit.reason.as_deref().filter(|_| exit.of_pod) {
        let message = exit.message.as_deref().unwrap_or_default().trim().trim_end_matches('.');
        return format!("{reason}: {}", text::shortened(message, 200));
    }
    let code = text::exit_code(words.code(exit.code));
    let code = exit.init.as_ref().map_or(code.clone(), |init| format!("init container {init}: {code}"));
    let runtime =
        exit.message.as_deref().and_then(|message| message.lines().find(|line| !line.trim().is_empty()));
    match words.error.as_deref().or(runtime) {
        Some(complaint) if words.blames_a_peer && has_peers => {
            let complaint = text::shortened(complaint.trim(), 200);
            let what = if words.is_of_collective { "a peer" } else { "a connection" };
            format!("{code}: it lost {what} ({complaint}), and no worker says why")
        }
        Some(words) => format!("{code}: {}", text::shortened(words.trim(), 200)),
        None => match &words.last {
            // Whoever is killed does not get to say why.
            Some(last) if exit.code < 128 => {
                format!("{code}; it said last: {}", text::shortened(last, 200))
            }
            _ => code,
        },
    }
}
