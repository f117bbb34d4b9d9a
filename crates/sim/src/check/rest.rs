//! What a status says when everything is at rest is what is there, and nothing is owed any more.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use trainyard_api::{
    Phase, RestartScope, State, TrainingJob, TrainingJobStatus, WorkerStatus, condition, names,
};
use trainyard_plan::World as Roles;

use super::{Checker, Verdict, demand, is_mendable, open_attempt};
use crate::server::{Child, Server};

impl Checker {
    /// Everybody knows everything, and has told it.
    pub(crate) fn tells_what_is(&self, server: &Server) -> Verdict {
        for job in server.jobs() {
            let uid = job.metadata.uid.as_deref().unwrap_or_default();
            let Some(status) = &job.status else { continue };
            if job.metadata.deletion_timestamp.is_some() || server.unreadable.contains(uid) {
                continue;
            }
            demand!(
                status.observed_generation == job.metadata.generation,
                "generation {:?} is told, and it is {:?}",
                status.observed_generation,
                job.metadata.generation
            );
            self.is_guarded(server, job, status)?;
            let Some(open) = open_attempt(status) else { continue };
            let pods = || {
                let is_of = |pod: &&Child| pod.ours && pod.controller() == Some(uid) && pod.is_selected();
                server.pods().filter(is_of).filter(|pod| pod.attempt() == Some(open.number))
            };
            let world = Roles::of(job);
            let named = |worker: &WorkerStatus| {
                let is_it = |pod: &&Child| pod.name() == worker.pod_name && !pod.is_deleting();
                pods().find(is_it)
            };
            for worker in &status.worker_statuses {
                let Some(pod) = named(worker) else { continue };
                demand!(
                    pod.phase() == phase(worker.phase),
                    "{} is told as {:?}, and it is {}",
                    pod.name(),
                    worker.phase,
                    pod.phase()
                );
            }
            let is_worker = |pod: &&Child| {
                let mut members = world.members().filter(|member| member.role.is_workers());
                members.any(|member| member.pod_name(world.job) == pod.name())
            };
            let replicas = i32::try_from(pods().filter(is_worker).count()).ok();
            demand!(
                status.replicas == replicas,
                "{:?} replicas are told, and {replicas:?} are there",
                status.replicas
            );
            let image = job.spec.image.as_deref();
            for pod in pods().filter(|pod| !pod.is_deleting() && !is_refused(status)) {
                demand!(
                    !is_worker(&pod) || pod.image.as_deref() == image,
                    "{} has image {:?}, and the job wants {image:?}",
                    pod.name(),
                    pod.image
                );
                let shape = pod.annotation(names::SHAPE_ANNOTATION);
                demand!(
                    shape == Some(world.shape().as_str()),
                    "{} is of a world of {shape:?}, and the job wants {}",
                    pod.name(),
                    world.shape()
                );
            }
            let leads = |pod: &&Child| pod.name() == world.leader() && !pod.is_deleting();
            let Some(leader) = pods().find(leads).filter(|pod| pod.phase() == "Running") else { continue };
            if let Some(said) = server.said.get(&leader.uid).filter(|_| job.spec.reads_logs()) {
                #[expect(clippy::cast_possible_truncation, reason = "a small number")]
                let epoch = said.epoch.map(|epoch| epoch as i64);
                demand!(
                    status.current_epoch == epoch,
                    "epoch {:?} is told, and it is {epoch:?}",
                    status.current_epoch
                );
            }
            if let Some(report) = server.reports.get(&leader.uid).filter(|_| job.spec.checkpoints_on()) {
                demand!(
                    status.checkpoint == report.checkpoint,
                    "checkpoint {:?} is told, and it is {:?}",
                    status.checkpoint,
                    report.checkpoint
                );
            }
        }
        Ok(())
    }

    /// Pods that are replaced alone may be evicted one by one, for as long as there are any. Nothing else is held back.
    fn is_guarded(&self, server: &Server, job: &TrainingJob, status: &TrainingJobStatus) -> Verdict {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let name = names::budget(job.metadata.name.as_deref().unwrap_or_default());
        // Nobody watches budgets: what lands late is not noticed.
        let budget = server.budgets().get(&name);
        if server.is_late_budget(&name) {
            return Ok(());
        }
        let is_ours = budget.is_some_and(|budget| budget.metadata.owner_references.is_some());
        let runs = open_attempt(status).is_some_and(|open| open.created_time.is_some());
        // How many stay while a checkpoint is being written is another question.
        if job.spec.holds_evictions() {
            return Ok(());
        }
        let is_alone = job.spec.restart_scope() == RestartScope::Worker && status.worker_statuses.len() > 1;
        if !is_alone || status.is_terminal() || status.state == Some(State::Suspended) {
            // Who takes the status away takes away that there is one.
            demand!(!is_ours || self.robbed.contains(uid), "budget {name} is there in {:?}", status.state);
            return Ok(());
        }
        if !runs || is_refused(status) || (budget.is_some() && !is_ours) {
            return Ok(());
        }
        let rules = job.spec.failure_rules();
        let number = status.attempts.last().map(|last| last.number);
        let is_left = |worker: &&WorkerStatus| {
            let mut pods = self.of(uid, number).filter(|pod| pod.name == worker.pod_name);
            !pods.any(|pod| pod.succeeded() || pod.is_ignored(rules))
        };
        let left = i32::try_from(status.worker_statuses.iter().filter(is_left).count()).unwrap_or(i32::MAX);
        let wanted = IntOrString::Int((left - 1).max(0));
        let kept = budget.and_then(|budget| budget.spec.as_ref()?.min_available.clone());
        demand!(kept == Some(wanted), "{left} pods are left, and budget {name} keeps {kept:?} of them");
        Ok(())
    }

    /// All the time has passed that anybody waits for: no deadline is left that has not been kept.
    pub(crate) fn owes_nothing(server: &Server) -> Verdict {
        for job in server.jobs() {
            let uid = job.metadata.uid.as_deref().unwrap_or_default();
            let Some(status) = &job.status else { continue };
            if job.metadata.deletion_timestamp.is_some() || server.unreadable.contains(uid) {
                continue;
            }
            let name = job.metadata.name.as_deref().unwrap_or_default();
            let spec = &job.spec;
            if status.is_terminal() && !is_mendable(status) {
                let ttl = spec.ttl_seconds_after_finished.filter(|ttl| *ttl >= 0);
                demand!(ttl.is_none(), "job {name} ended long ago, and is to go {ttl:?} s later");
            }
            if status.is_terminal() || status.state == Some(State::Suspended) {
                continue;
            }
            let deadline = spec.active_deadline_seconds.filter(|_| status.active_since.is_some());
            demand!(deadline.is_none(), "job {name} goes on, and its deadline of {deadline:?} s is over");
            // Who waits for room has no pods.
            let is_limited = spec.startup_timeout_seconds.is_some();
            let Some(open) = open_attempt(status).filter(|_| is_limited) else {
                continue;
            };
            let is_starting = |pod: &Child| {
                let is_of = pod.controller() == Some(uid) && pod.attempt() == Some(open.number);
                is_of && pod.is_selected() && !pod.is_deleting() && pod.phase() == "Pending"
            };
            let alone = spec.restart_scope() == RestartScope::Worker;
            demand!(
                (open.running_time.is_some() && !alone) || !server.pods().any(is_starting),
                "job {name} is being started for longer than its startupTimeoutSeconds"
            );
        }
        Ok(())
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}

/// The cluster refuses something of what this job needs.
fn is_refused(status: &TrainingJobStatus) -> bool {
    status.condition(condition::RESOURCES_CREATED).is_some_and(|created| created.status == "False")
}
