//! A job that may not parse. One object that this version cannot read must not stop the others, and what little can be
//! read of it decides what is said about it.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use trainyard_api::TrainingJob;

/// A job as the watch delivers it.
#[derive(Clone, Debug)]
pub(crate) enum Guarded {
    Read(Arc<TrainingJob>),
    Unreadable(Box<Unreadable>),
}

/// What can be said of a job that does not parse.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unreadable {
    pub(crate) metadata: ObjectMeta,
    /// `spec.managedBy`, if it is text.
    pub(crate) managed_by: Option<String>,
    /// Some operator has begun with it.
    pub(crate) has_state: bool,
    pub(crate) error: String,
}

impl<'de> Deserialize<'de> for Guarded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match TrainingJob::deserialize(&value) {
            Ok(job) => Ok(Self::Read(Arc::new(job))),
            Err(error) => {
                let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
                let metadata = value.get("metadata").map(ObjectMeta::deserialize);
                Ok(Self::Unreadable(Box::new(Unreadable {
                    metadata: metadata.and_then(Result::ok).unwrap_or_default(),
                    managed_by: text("/spec/managedBy"),
                    has_state: text("/status/state").is_some(),
                    error: error.to_string(),
                })))
            }
        }
    }
}

impl Resource for Guarded {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        TrainingJob::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        TrainingJob::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        TrainingJob::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        TrainingJob::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Read(job) => &job.metadata,
            Self::Unreadable(job) => &job.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Read(job) => &mut Arc::make_mut(job).metadata,
            Self::Unreadable(job) => &mut job.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_read_is_kept_apart() {
        let job = json!({
            "metadata": {"name": "bert", "uid": "u"},
            "spec": {"framework": "abacus", "managedBy": "other/controller"},
            "status": {"state": "Running"},
        });
        let Ok(Guarded::Unreadable(job)) = serde_json::from_value(job) else { panic!("it was read") };
        assert_eq!(job.metadata.name.as_deref(), Some("bert"));
        assert_eq!((job.managed_by.as_deref(), job.has_state), (Some("other/controller"), true));
        assert!(job.error.contains("abacus"), "{}", job.error);
        let good = json!({"metadata": {"name": "bert"}, "spec": {"image": "a"}});
        assert!(matches!(serde_json::from_value(good), Ok(Guarded::Read(_))));
    }
}
