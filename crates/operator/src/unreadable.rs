//! A job that cannot even be read: its owner is told, and the others go on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;
use trainyard_api::{State, condition, names};
use trainyard_plan::{Importance, Notice, UNREADABLE};

use crate::cache::JobKey;
use crate::events;
use crate::guard::Unreadable;
use crate::look::{Eyes, Found, Look, UNREADABLE_AGAIN};
use crate::moment::Moment;
use crate::port::{JobRef, Port};

impl<P: Port, C: Fn() -> Moment> Eyes<'_, P, C> {
    /// Tells once per generation. A job that another version of the operator has begun with keeps its state: it may be in the
    /// middle of its training.
    pub(crate) async fn report_unreadable(&self, key: &JobKey, reference: &JobRef, job: &Unreadable) -> Look {
        let mut look = Look { found: Found::SomethingToDo, ..Look::default() };
        let generation = job.metadata.generation.unwrap_or_default();
        if self.core().remember(key).unreadable_reported == Some(generation) {
            return look;
        }
        let now = (self.clock)();
        let message = format!("this version of the operator cannot read the job: {}", job.error);
        tracing::warn!(namespace = %key.namespace, trainingjob = %key.name, "{message}");
        self.metrics.error(key, "unreadable");
        let version = job.metadata.resource_version.as_deref().unwrap_or_default();
        let mut patch = json!({"metadata": {"resourceVersion": version}, "status": {"message": message}});
        if !job.has_state {
            let failed = Condition {
                type_: condition::FAILED.to_owned(),
                status: "True".to_owned(),
                reason: UNREADABLE.to_owned(),
                message: message.clone(),
                last_transition_time: Time(now.wall),
                observed_generation: Some(generation),
            };
            patch["status"]["state"] = json!(State::Failed);
            patch["status"]["phase"] = json!(State::Failed.phase());
            patch["status"]["observedGeneration"] = json!(generation);
            patch["status"]["conditions"] = json!([failed]);
        }
        match self.port.patch_status(reference, &patch).await {
            Ok(_) => {
                if let Some(memory) = self.core().memory(key) {
                    memory.unreadable_reported = Some(generation);
                }
                let notice = Notice {
                    importance: Importance::Warning,
                    reason: "InvalidSpec",
                    message,
                    occurrence: generation.to_string(),
                };
                look.events = vec![events::of_notice(reference, &notice, now.wall)];
            }
            Err(refusal) => {
                tracing::warn!(namespace = %key.namespace, trainingjob = %key.name, "its status was not written: {refusal}");
                look.wake((self.clock)().instant + UNREADABLE_AGAIN);
            }
        }
        look
    }

    /// One that is being deleted. What it made goes through owner references; nothing else can be known about it. Only this very
    /// version of it: however late the write comes, the next job of that name keeps its finalizers.
    pub(crate) async fn let_go(&self, key: &JobKey, reference: &JobRef, job: &Unreadable) -> Look {
        let mut look = Look { found: Found::SomethingToDo, ..Look::default() };
        let others = job.metadata.finalizers.iter().flatten().filter(|name| *name != names::FINALIZER);
        let others: Vec<&String> = others.collect();
        let version = job.metadata.resource_version.as_deref().unwrap_or_default();
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": others}});
        if let Err(refusal) = self.port.patch_job(reference, &patch).await {
            tracing::warn!(namespace = %key.namespace, trainingjob = %key.name, "its finalizer stays: {refusal}");
            look.wake((self.clock)().instant + UNREADABLE_AGAIN);
        }
        look
    }
}
