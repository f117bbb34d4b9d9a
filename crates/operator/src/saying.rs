//! A new status, and what is sent of it: the difference to the one before.

use serde_json::{Map, Value, json};
use trainyard_api::TrainingJobStatus;

/// A status as it was and as it is to be.
pub struct StatusChange<'a> {
    /// The version of the job that `before` is of.
    pub version: &'a str,
    pub before: Option<&'a TrainingJobStatus>,
    pub after: &'a TrainingJobStatus,
}

impl<'a> StatusChange<'a> {
    pub(crate) fn new(
        version: &'a str,
        before: Option<&'a TrainingJobStatus>,
        after: &'a TrainingJobStatus,
    ) -> Self {
        Self { version, before, after }
    }

    /// The merge patch that makes the one of the other, for exactly that version.
    pub fn patch(&self) -> Value {
        let nothing = TrainingJobStatus::default();
        let old = self.before.unwrap_or(&nothing);
        let (mut before, mut after) = (TrainingJobStatus::default(), TrainingJobStatus::default());
        // Most of a status stays as it is, and comparing is much cheaper than writing JSON.
        macro_rules! take_what_differs {
            ($($field:ident),* $(,)?) => {
                // Without `..`: a field that is forgotten here would never be written.
                let TrainingJobStatus { $($field),* } = self.after;
                $(if old.$field != *$field {
                    before.$field.clone_from(&old.$field);
                    after.$field.clone_from($field);
                })*
            };
        }
        take_what_differs!(
            state,
            phase,
            message,
            observed_generation,
            effective,
            start_time,
            active_since,
            completion_time,
            duration,
            progress,
            current_epoch,
            estimated_completion,
            metrics,
            total_epochs,
            workers,
            replicas,
            selector,
            worker_statuses,
            resources,
            checkpoint,
            restarts,
            avoided_nodes,
            disruption_budget,
            backoff_until,
            attempts,
            conditions,
        );
        let json = |status: &TrainingJobStatus| serde_json::to_value(status).unwrap_or_default();
        json!({
            "metadata": {"resourceVersion": self.version},
            "status": difference(&json(&before), &json(&after)),
        })
    }
}

/// The merge patch (RFC 7396) that turns one object into another.
fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in after {
        match before.get(name) {
            Some(same) if same == value => {}
            Some(old) if old.is_object() && value.is_object() => {
                patch.insert(name.clone(), difference(old, value));
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_only_what_changed() {
        let before =
            json!({"state": "Pending", "gone": 1, "workers": {"active": 0, "desired": 2}, "list": [1]});
        let after = json!({"state": "Running", "workers": {"active": 2, "desired": 2}, "list": [1]});
        assert_eq!(
            difference(&before, &after),
            json!({"state": "Running", "gone": null, "workers": {"active": 2}})
        );
    }
}
