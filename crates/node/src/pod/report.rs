//! What a pod's task writes to the API: the binding, the status when it has changed, and the object's end.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Api, Resource};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::Instant;

use super::{RETRY, Task};
use crate::machine::HOST_ADDRESS;
use crate::notices::Voice;
use crate::status::{Known, status};

/// The last report is tried this often; a node that stops cannot wait for ever.
const LAST_TRIES: u32 = 5;

enum Written {
    Yes,
    /// There is no such pod any more.
    Gone,
    Failed,
}

impl Task {
    fn api(&self) -> Api<Pod> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        Api::namespaced(self.shared.client.clone(), namespace)
    }

    fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// Binds the pod to this node. False if that is not possible any more.
    pub(super) async fn bind(&mut self) -> bool {
        let node = &self.shared.config.name;
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": self.name(), "namespace": self.pod.metadata.namespace, "uid": self.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let mut delay = Duration::from_millis(100);
        loop {
            let parameters = PostParams::default();
            let bound: kube::Result<serde_json::Value> =
                self.api().create_subresource("binding", self.name(), &parameters, &binding).await;
            match bound {
                Ok(_) => {
                    let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
                    let message = format!("Successfully assigned {namespace}/{} to {node}", self.name());
                    self.shared.notices.normal(&self.pod, Voice::Scheduler, "Scheduled", message);
                    return true;
                }
                // Another scheduler may have been faster, and may have chosen this node, too.
                Err(kube::Error::Api(error)) if error.code == 409 => return self.is_bound_here().await,
                Err(kube::Error::Api(error)) if (400..500).contains(&error.code) && error.code != 429 => {
                    // 404: it was deleted meanwhile.
                    if error.code != 404 {
                        tracing::warn!(pod = self.name(), "was not bound: {}", error.message);
                    }
                    return false;
                }
                Err(error) => {
                    tracing::warn!(pod = self.name(), "binding failed, trying again: {error}");
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(RETRY);
                }
            }
        }
    }

    async fn is_bound_here(&mut self) -> bool {
        let Ok(Some(pod)) = self.api().get_opt(self.name()).await else { return false };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        node == Some(&self.shared.config.name) && pod.metadata.uid.as_deref() == Some(&self.uid)
    }

    fn current(&self) -> PodStatus {
        let known = Known {
            pod: &self.pod,
            stories: &self.stories,
            address: &self.assignment.address,
            host_address: HOST_ADDRESS,
            started: self.began,
            verdict: self.verdict.as_ref(),
            deleting: self.stopping.is_some_and(|stopping| stopping.remove),
        };
        let mut wanted = status(&known, Timestamp::now());
        // Conditions are a map: their order means nothing, and must not look like a change.
        if let Some(conditions) = &mut wanted.conditions {
            conditions.sort_by(|left, right| left.type_.cmp(&right.type_));
        }
        // What we wrote last is newer than what the watch has shown us.
        if let Some(reported) = &self.reported {
            for condition in wanted.conditions.iter_mut().flatten() {
                let old = reported.conditions.iter().flatten().find(|old| old.type_ == condition.type_);
                if let Some(old) = old.filter(|old| old.status == condition.status) {
                    condition.last_transition_time.clone_from(&old.last_transition_time);
                }
            }
        }
        wanted
    }

    /// Writes the status if it differs from what was written last.
    pub(super) async fn report(&mut self) {
        let status = self.current();
        if self.reported.as_ref() == Some(&status) {
            return;
        }
        match self.write(&status).await {
            Written::Yes => self.reported = Some(status),
            Written::Gone => self.stop(Duration::ZERO, false, true),
            Written::Failed => {
                let again = Instant::now() + Duration::from_secs(1);
                self.report_again = Some(again);
            }
        }
    }

    /// The last status, which nobody would write later.
    pub(super) async fn report_until_written(&mut self) {
        let mut delay = Duration::from_millis(100);
        for _ in 0..LAST_TRIES {
            let status = self.current();
            if self.reported.as_ref() == Some(&status) {
                return;
            }
            match self.write(&status).await {
                Written::Yes => self.reported = Some(status),
                Written::Gone => return,
                Written::Failed => tokio::time::sleep(delay).await,
            }
            delay *= 2;
        }
    }

    async fn write(&self, status: &PodStatus) -> Written {
        let patch = json!({"metadata": {"uid": self.uid}, "status": status});
        let namespace = self.pod.metadata.namespace.as_deref();
        let request = Request::new(Pod::url_path(&(), namespace)).patch_subresource(
            "status",
            self.name(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        );
        let written = match request {
            // The answer is the whole pod, which the watch brings anyway: it is not built a second time.
            Ok(request) => self.shared.client.request::<IgnoredAny>(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        match written {
            Ok(_) => Written::Yes,
            Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => Written::Gone,
            Err(error) => {
                tracing::warn!(pod = self.name(), "its status was not written, trying again: {error}");
                Written::Failed
            }
        }
    }

    /// Removes the object. False if it could not be.
    pub(super) async fn remove_object(&self) -> bool {
        remove_object(&self.shared.client, &self.pod).await
    }
}

/// Removes the object of a pod that has ended and is on its way out.
pub(crate) async fn remove_object(client: &kube::Client, pod: &Pod) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    };
    let mut delay = Duration::from_millis(100);
    for _ in 0..LAST_TRIES {
        match api.delete(name, &parameters).await {
            Ok(_) => return true,
            Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => return true,
            Err(error) => {
                tracing::warn!(pod = name, "was not removed, trying again: {error}");
                tokio::time::sleep(delay).await;
                delay *= 2;
            }
        }
    }
    false
}
