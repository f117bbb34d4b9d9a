//! Events: what `kubectl describe` shows at the bottom.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use trainyard_api::{hash, names};
use trainyard_plan::{Importance, Notice};

use crate::port::{JobRef, NewEvent};

/// The API server refuses longer messages.
const MESSAGE_MAX: usize = 1024;

/// The event for a notice. Its name is made from what happened, so that one occurrence cannot be recorded twice.
pub(crate) fn of_notice(job: &JobRef, notice: &Notice, at: jiff::Timestamp) -> NewEvent {
    let occurrence = hash::of_parts(&[&job.uid, notice.reason, &notice.occurrence]);
    NewEvent {
        job: job.clone(),
        name: format!("{}.{}", job.name, hash::hex(occurrence)),
        importance: notice.importance,
        reason: notice.reason.to_owned(),
        message: shortened(&notice.message),
        at,
    }
}

fn shortened(message: &str) -> String {
    if message.len() <= MESSAGE_MAX {
        return message.to_owned();
    }
    let mut end = MESSAGE_MAX - 3;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &message[..end])
}

pub(crate) fn to_kubernetes(event: &NewEvent, instance: &str) -> Event {
    let time = Some(Time(event.at));
    Event {
        metadata: ObjectMeta {
            name: Some(event.name.clone()),
            namespace: Some(event.job.namespace.clone()),
            ..Default::default()
        },
        involved_object: ObjectReference {
            api_version: Some(names::API_VERSION.to_owned()),
            kind: Some(names::KIND.to_owned()),
            name: Some(event.job.name.clone()),
            namespace: Some(event.job.namespace.clone()),
            uid: Some(event.job.uid.clone()),
            ..Default::default()
        },
        type_: Some(
            match event.importance {
                Importance::Normal => "Normal",
                Importance::Warning => "Warning",
            }
            .to_owned(),
        ),
        reason: Some(event.reason.clone()),
        message: Some(event.message.clone()),
        count: Some(1),
        first_timestamp: time.clone(),
        last_timestamp: time,
        source: Some(EventSource { component: Some(names::MANAGED_BY.to_owned()), host: None }),
        reporting_component: Some(names::CONTROLLER_NAME.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_occurrence_has_one_name_and_long_messages_fit() {
        let job = JobRef { namespace: "ml".into(), name: "bert".into(), uid: "u".into() };
        let notice = |occurrence: &str, message: &str| Notice {
            importance: Importance::Normal,
            reason: "WorkersCreated",
            message: message.to_owned(),
            occurrence: occurrence.to_owned(),
        };
        let at = jiff::Timestamp::UNIX_EPOCH;
        let first = of_notice(&job, &notice("1", "Created 4 worker pods"), at);
        assert_eq!(first.name, of_notice(&job, &notice("1", "in other words"), at).name);
        assert_ne!(first.name, of_notice(&job, &notice("2", "Created 4 worker pods"), at).name);
        assert!(of_notice(&job, &notice("1", &"é".repeat(900)), at).message.len() <= MESSAGE_MAX);
    }
}
