//! Metrics: counters of what happened, and gauges that are read from the cache when somebody asks, so that the series of a
//! job disappear with it.

use std::fmt;
use std::sync::{Arc, Weak};

use jiff::SignedDuration;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use trainyard_api::{Cause, State, TrainingJobStatus, condition};

use crate::cache::{Job, JobKey};
use crate::driver::Shared;
use crate::port::Refusal;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Namespace {
    namespace: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    namespace: String,
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CauseLabels {
    namespace: String,
    cause: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    namespace: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DecisionLabels {
    decision: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ErrorLabels {
    namespace: String,
    error_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// Training takes minutes to weeks.
const DURATION_BUCKETS: [f64; 14] = [
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    1800.0,
    3600.0,
    7200.0,
    14_400.0,
    43_200.0,
    86_400.0,
    172_800.0,
    604_800.0,
    1_209_600.0,
];
const RECONCILE_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];
const REACTION_BUCKETS: [f64; 10] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];
const RECOVERY_BUCKETS: [f64; 10] = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All counters and histograms.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<std::sync::Mutex<Registry>>,
    created: Family<Namespace, Counter>,
    completed: Family<Namespace, Counter>,
    failed: Family<Reason, Counter>,
    deleted: Family<Namespace, Counter>,
    restarts: Family<CauseLabels, Counter>,
    durations: Histograms<ResultLabels>,
    recovery: Histograms<Namespace>,
    reconcile: Histograms<Namespace>,
    reaction: Histograms<DecisionLabels>,
    errors: Family<ErrorLabels, Counter>,
    lecture_created: Counter,
    lecture_durations: Histogram,
    requests: Family<RequestLabels, Counter>,
    watch_restarts: Family<KindLabels, Counter>,
}

/// Counts requests to the API server.
#[derive(Clone)]
pub(crate) struct Requests(Family<RequestLabels, Counter>);

impl Requests {
    pub(crate) fn count(&self, verb: &'static str, refusal: Option<&Refusal>) {
        let result = match refusal {
            None => "ok",
            Some(Refusal::NotFound) => "not_found",
            Some(Refusal::AlreadyExists) => "already_exists",
            Some(Refusal::Conflict) => "conflict",
            Some(Refusal::Quota(_)) => "quota",
            Some(Refusal::Forbidden(_)) => "forbidden",
            Some(Refusal::Invalid(_)) => "invalid",
            Some(Refusal::Passing(_)) => "error",
        };
        self.0.get_or_create(&RequestLabels { verb, result }).inc();
    }
}

impl Metrics {
    /// Counters exist, at zero, for `namespace` (the operator's own) before anything has happened.
    pub fn new(namespace: &str) -> Self {
        let durations = || Histogram::new(DURATION_BUCKETS);
        let reconcile = || Histogram::new(RECONCILE_BUCKETS);
        let recovery = || Histogram::new(RECOVERY_BUCKETS);
        let reaction = || Histogram::new(REACTION_BUCKETS);
        let metrics = Self {
            registry: Arc::default(),
            created: Family::default(),
            completed: Family::default(),
            failed: Family::default(),
            deleted: Family::default(),
            restarts: Family::default(),
            durations: Family::new_with_constructor(durations),
            recovery: Family::new_with_constructor(recovery),
            reconcile: Family::new_with_constructor(reconcile),
            reaction: Family::new_with_constructor(reaction),
            errors: Family::default(),
            lecture_created: Counter::default(),
            lecture_durations: Histogram::new(DURATION_BUCKETS),
            requests: Family::default(),
            watch_restarts: Family::default(),
        };
        metrics.register();
        let label = Namespace { namespace: namespace.to_owned() };
        for counter in [&metrics.created, &metrics.completed, &metrics.deleted] {
            counter.get_or_create(&label).inc_by(0);
        }
        let namespace = namespace.to_owned();
        metrics
            .failed
            .get_or_create(&Reason { namespace: namespace.clone(), reason: "none".to_owned() })
            .inc_by(0);
        metrics
            .errors
            .get_or_create(&ErrorLabels { namespace: namespace.clone(), error_type: "none" })
            .inc_by(0);
        metrics.restarts.get_or_create(&CauseLabels { namespace, cause: "Application" }).inc_by(0);
        metrics
    }

    fn register(&self) {
        let mut registry = self.lock();
        let registry = &mut *registry;
        registry.register("trainingjob_created", "Training jobs accepted", self.created.clone());
        registry.register("trainingjob_completed", "Training jobs that completed", self.completed.clone());
        registry.register("trainingjob_failed", "Training jobs that failed, by reason", self.failed.clone());
        registry.register("trainingjob_deleted", "Training jobs that are gone", self.deleted.clone());
        registry.register("trainingjob_restarts", "Restarts of workers, by cause", self.restarts.clone());
        registry.register(
            "trainingjob_duration_seconds",
            "Time from start to end of training jobs",
            self.durations.clone(),
        );
        registry.register(
            "trainingjob_recovery_seconds",
            "Time from the decision about a failure until all workers run again",
            self.recovery.clone(),
        );
        registry.register(
            "trainingjob_operator_reconcile_duration_seconds",
            "Time of one look at a job, from snapshot to the last write",
            self.reconcile.clone(),
        );
        registry.register(
            "trainingjob_operator_reaction_seconds",
            "Time from news about a job until it is clear what to do about it: to end the attempt, or something else",
            self.reaction.clone(),
        );
        registry.register("trainingjob_operator_errors", "What went wrong, by type", self.errors.clone());
        let starts: Counter = Counter::default();
        starts.inc();
        registry.register("trainingjob_operator_starts", "Starts of the operator", starts);
        registry.register(
            "trainingjob_operator_api_requests",
            "Writes to the API server",
            self.requests.clone(),
        );
        registry.register(
            "trainingjob_operator_watch_restarts",
            "Watches that broke",
            self.watch_restarts.clone(),
        );
        registry.register(
            "training_jobs_created",
            "Training jobs accepted, all namespaces",
            self.lecture_created.clone(),
        );
        registry.register(
            "training_job_duration_seconds",
            "Time from start to end of training jobs, all namespaces",
            self.lecture_durations.clone(),
        );
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn requests(&self) -> Requests {
        Requests(self.requests.clone())
    }

    /// Adds the gauges that are read from the cache.
    pub(crate) fn observe(&self, shared: &Arc<Shared>) {
        self.lock().register_collector(Box::new(Gauges(Arc::downgrade(shared))));
    }

    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.lock())?;
        Ok(text)
    }

    pub(crate) fn watch_failed(&self, kind: &'static str) {
        self.watch_restarts.get_or_create(&KindLabels { kind }).inc();
    }

    pub(crate) fn job_created(&self, key: &JobKey) {
        self.created.get_or_create(&namespace(key)).inc();
        self.lecture_created.inc();
    }

    pub(crate) fn job_deleted(&self, key: &JobKey) {
        self.deleted.get_or_create(&namespace(key)).inc();
    }

    pub(crate) fn error(&self, key: &JobKey, error_type: &'static str) {
        self.errors.get_or_create(&ErrorLabels { namespace: key.namespace.to_string(), error_type }).inc();
    }

    pub(crate) fn reconciled(&self, key: &JobKey, seconds: f64) {
        self.reconcile.get_or_create(&namespace(key)).observe(seconds);
    }

    pub(crate) fn reacted(&self, seconds: f64, ends_attempt: bool) {
        let decision = if ends_attempt { "end of attempt" } else { "other" };
        self.reaction.get_or_create(&DecisionLabels { decision }).observe(seconds);
    }

    /// Counts what a status that was just written says for the first time.
    pub(crate) fn status_written(&self, key: &JobKey, before: &TrainingJobStatus, after: &TrainingJobStatus) {
        let (old, new) = (before.restarts.unwrap_or_default(), after.restarts.unwrap_or_default());
        let causes = [
            ("Application", old.application, new.application),
            ("Disruption", old.disruption, new.disruption),
            ("Stalled", old.stall, new.stall),
            ("Rescale", old.rescale, new.rescale),
            ("Update", old.update, new.update),
        ];
        for (cause, old, new) in causes {
            let more = u64::try_from(new.saturating_sub(old)).unwrap_or(0);
            if more > 0 {
                let labels = CauseLabels { namespace: key.namespace.to_string(), cause };
                self.restarts.get_or_create(&labels).inc_by(more);
            }
        }
        if let Some(took) = recovery(before, after) {
            self.recovery.get_or_create(&namespace(key)).observe(took.as_secs_f64());
        }
        if before.state == after.state {
            return;
        }
        let result = match after.state {
            Some(State::Completed) => {
                self.completed.get_or_create(&namespace(key)).inc();
                "Completed"
            }
            Some(State::Failed) => {
                let reason = after.condition(condition::FAILED).map_or("", |failed| failed.reason.as_str());
                let labels = Reason { namespace: key.namespace.to_string(), reason: reason.to_owned() };
                self.failed.get_or_create(&labels).inc();
                "Failed"
            }
            _ => return,
        };
        if let (Some(start), Some(end)) = (&after.start_time, &after.completion_time) {
            let seconds = end.0.duration_since(start.0).as_secs_f64();
            self.durations
                .get_or_create(&ResultLabels { namespace: key.namespace.to_string(), result })
                .observe(seconds);
            self.lecture_durations.observe(seconds);
        }
    }
}

/// How long it took from the decision about a failure until all ran again, if that is what this status says for the first time. The
/// condition knows it also for an operator that was started in between. A change that a user asked for is no failure.
fn recovery(before: &TrainingJobStatus, after: &TrainingJobStatus) -> Option<SignedDuration> {
    let restarting = before.condition(condition::RESTARTING).filter(|it| it.status == "True")?;
    let cause = if restarting.reason == Cause::Resume.as_str() {
        // It was started once more before anything had begun: what it recovers from came before that.
        let ended = after.attempts.iter().rev().filter_map(|attempt| attempt.cause);
        ended.map(Cause::as_str).find(|cause| *cause != restarting.reason)?
    } else {
        restarting.reason.as_str()
    };
    Cause::FAILURES.iter().find(|failure| failure.as_str() == cause)?;
    let is_over = after.condition(condition::RESTARTING).filter(|it| it.status == "False")?;
    let took = is_over.last_transition_time.0.duration_since(restarting.last_transition_time.0);
    (after.state == Some(State::Running)).then(|| took.max(SignedDuration::ZERO))
}

fn namespace(key: &JobKey) -> Namespace {
    Namespace { namespace: key.namespace.to_string() }
}

/// Gauges of every job in the cache.
struct Gauges(Weak<Shared>);

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gauges")
    }
}

/// What is known of a job that has a gauge.
struct Reading {
    key: JobKey,
    state: Option<State>,
    gpus: i64,
    allocated: i64,
    active: i64,
    percent: Option<f64>,
    epoch: Option<f64>,
    loss: Option<f64>,
    accuracy: Option<f64>,
    checkpoint_age: Option<f64>,
}

type Value = fn(&Reading) -> i64;
/// What only some jobs tell.
type Told = fn(&Reading) -> Option<f64>;

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(shared) = self.0.upgrade() else { return Ok(()) };
        let readings = readings(&shared);
        let depth = i64::try_from(shared.queue.depth()).unwrap_or(i64::MAX);
        let metric = encoder.encode_descriptor(
            "trainingjob_operator_queue_depth",
            "Jobs that wait to be looked at",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(depth).encode(metric)?;

        let mut states = encoder.encode_descriptor(
            "trainingjob_state",
            "1 for the state a job is in",
            None,
            MetricType::Gauge,
        )?;
        for reading in &readings {
            let Some(state) = reading.state else { continue };
            let labels = [
                ("namespace", &*reading.key.namespace),
                ("name", &*reading.key.name),
                ("state", state.as_str()),
            ];
            ConstGauge::new(1i64).encode(states.encode_family(&labels)?)?;
        }
        let gauges: [(&str, &str, Value); 3] = [
            ("trainingjob_allocated_gpus", "GPUs that the job's pods hold", |reading| reading.gpus),
            ("trainingjob_allocated_workers", "Workers that the job asks for", |reading| reading.allocated),
            ("trainingjob_active_workers", "Workers that run", |reading| reading.active),
        ];
        for (name, help, value) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for reading in &readings {
                let labels = [("namespace", &*reading.key.namespace), ("trainingjob", &*reading.key.name)];
                ConstGauge::new(value(reading)).encode(family.encode_family(&labels)?)?;
            }
        }
        let told: [(&str, &str, Told); 5] = [
            ("trainingjob_progress_percent", "How much of the training is done", |reading| reading.percent),
            ("trainingjob_current_epoch", "The epoch that is being trained", |reading| reading.epoch),
            ("trainingjob_loss", "The loss that the program reported last", |reading| reading.loss),
            ("trainingjob_accuracy", "The accuracy that the program reported last", |reading| {
                reading.accuracy
            }),
            (
                "trainingjob_checkpoint_age_seconds",
                "How old the newest complete checkpoint of an unfinished job is",
                |reading| reading.checkpoint_age,
            ),
        ];
        for (name, help, value) in told {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (reading, value) in readings.iter().filter_map(|reading| Some((reading, value(reading)?))) {
                let labels = [("namespace", &*reading.key.namespace), ("trainingjob", &*reading.key.name)];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn readings(shared: &Shared) -> Vec<Reading> {
    shared.with_cache(|cache| {
        let mut readings: Vec<Reading> = cache
            .jobs
            .keys()
            .filter_map(|key| match cache.job(key)? {
                Job::Read(job) => {
                    let status = job.status.as_ref();
                    let workers = status.and_then(|status| status.workers).unwrap_or_default();
                    let metric = |name: &str| status.and_then(|status| status.metrics.get(name).copied());
                    let resources = status.and_then(|status| status.resources).unwrap_or_default();
                    Some(Reading {
                        key: key.clone(),
                        state: status.and_then(|status| status.state),
                        gpus: resources.allocated_gpus.into(),
                        allocated: workers.desired.into(),
                        active: workers.active.into(),
                        percent: status
                            .and_then(|status| status.progress.as_ref()?.strip_suffix('%')?.parse().ok()),
                        #[expect(clippy::cast_precision_loss, reason = "a number of epochs")]
                        epoch: status.and_then(|status| status.current_epoch).map(|epoch| epoch as f64),
                        loss: metric("loss"),
                        accuracy: metric("accuracy"),
                        checkpoint_age: status
                            .filter(|status| !status.is_terminal())
                            .and_then(|status| status.checkpoint.as_ref()?.time.as_ref())
                            .map(|time| jiff::Timestamp::now().duration_since(time.0).as_secs_f64().max(0.0)),
                    })
                }
                Job::Unreadable { .. } => None,
            })
            .collect();
        readings.sort_by(|left, right| left.key.cmp(&right.key));
        readings
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A status that says this about restarting, since so many seconds after ten o'clock.
    fn status(state: &str, restarting: &str, reason: &str, seconds: u8) -> TrainingJobStatus {
        serde_json::from_value(json!({
            "state": state,
            "conditions": [{"type": "Restarting", "status": restarting, "reason": reason, "message": "",
                "lastTransitionTime": format!("2026-11-16T10:00:{seconds:02}Z")}],
        }))
        .expect("a status")
    }

    fn ended(mut status: TrainingJobStatus, causes: &[Cause]) -> TrainingJobStatus {
        for (number, cause) in (1..).zip(causes) {
            let attempt = json!({"number": number, "cause": cause, "endTime": "2026-11-16T10:00:00Z"});
            status.attempts.push(serde_json::from_value(attempt).expect("an attempt"));
        }
        status
    }

    #[test]
    fn a_recovery_takes_from_the_failure_until_all_run_again() {
        let took = |before, after| recovery(&before, &after).map(|took| took.as_secs());
        let running = || status("Running", "False", "Restarted", 17);
        for failure in ["Application", "OutOfMemory", "Disruption", "Stalled"] {
            // Whether all are replaced, or one while the others go on.
            for state in ["Initializing", "Running"] {
                assert_eq!(took(status(state, "True", failure, 5), running()), Some(12), "{failure}");
            }
        }
        for wish in ["Rescale", "Update"] {
            assert_eq!(took(status("Initializing", "True", wish, 5), running()), None, "{wish}");
        }
        let again = || status("Initializing", "True", "Resume", 5);
        let after = |cause| ended(running(), &[cause, Cause::Resume, Cause::Resume]);
        assert_eq!(took(again(), after(Cause::Application)), Some(12), "it found a newer checkpoint");
        assert_eq!(took(again(), after(Cause::Rescale)), None);
        let failed = || status("Restarting", "True", "Application", 5);
        assert_eq!(took(failed(), status("Initializing", "True", "Application", 5)), None, "not yet");
        assert_eq!(took(failed(), status("Suspended", "False", "SuspendedByUser", 17)), None);
        assert_eq!(took(running(), running()), None, "that was told");
    }
}
