//! Changes in words, for the trace.

use trainyard_api::Cause;

use crate::server::Change;

/// A change in words, for the trace.
pub(crate) fn told(change: &Change) -> String {
    match change {
        Change::Created(kind, name) => format!("{} {name} created", kind.as_str()),
        Change::Marked(kind, name) => format!("{} {name} is going", kind.as_str()),
        Change::Removed(kind, child) => format!("{} {} ({}) is gone", kind.as_str(), child.name(), child.uid),
        Change::Changed(kind, name) => format!("{} {name} changed", kind.as_str()),
        Change::BudgetMade(name) => format!("budget {name} created"),
        Change::BudgetGone(name) => format!("budget {name} is gone"),
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
        Change::Astray(what) => what.clone(),
        Change::Recorded(event) => format!("event {}: {}", event.reason, event.message),
    }
}
