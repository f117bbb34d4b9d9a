//! The narrow way to the cluster: everything that carrying out a plan can do to it.
//!
//! Tests put their own port in its place and stop after any write.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions, VersionMatch,
};
use kube::core::request::Request;
use kube::core::{ObjectList, PartialObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::Semaphore;
use trainyard_api::{TrainingJob, names};
use trainyard_plan::{Importance, NewObject, NodeState, Target, TargetKind};

use crate::saying::StatusChange;
use crate::stacks;

/// Of what was written, only the metadata is of interest: the API server need not send, nor we read, the rest.
const ONLY_METADATA: http::HeaderValue =
    http::HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// Longer than any write takes; after it, the effect is unknown and the next plan finds out.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Which job a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// What the API server answered to a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub version: u64,
    /// The same, as it must be sent back.
    pub resource_version: String,
}

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub job: JobRef,
    /// Made from what happened, so that the same occurrence has the same name.
    pub name: String,
    pub importance: Importance,
    pub reason: String,
    pub message: String,
    pub at: Timestamp,
}

/// Why the API server did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("it does not exist")]
    NotFound,
    #[error("it exists already")]
    AlreadyExists,
    #[error("it has changed in the meantime")]
    Conflict,
    #[error("{0}")]
    Quota(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    Invalid(String),
    /// A passing fault: no answer, or an answer that says "later".
    #[error("{0}")]
    Passing(String),
}

/// Everything that can be done to the cluster.
pub trait Port: Send + Sync {
    fn create(
        &self,
        job: &JobRef,
        object: &NewObject,
    ) -> impl Future<Output = Result<Written, Refusal>> + Send;
    /// Deletes this very object: the uid must match. A pod gets so many seconds to end; without a number, its own.
    fn delete(
        &self,
        job: &JobRef,
        target: &Target,
        grace: Option<u32>,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;
    /// JSON patch of one of our objects.
    fn patch(
        &self,
        job: &JobRef,
        target: &Target,
        patch: &Value,
    ) -> impl Future<Output = Result<Written, Refusal>> + Send;
    /// Merge patch of the job (its finalizers), if it still has this version.
    fn patch_job(&self, job: &JobRef, patch: &Value)
    -> impl Future<Output = Result<Written, Refusal>> + Send;
    /// Writes a status over the one before. Only the difference is sent.
    fn write_status(
        &self,
        job: &JobRef,
        change: &StatusChange<'_>,
    ) -> impl Future<Output = Result<Written, Refusal>> + Send {
        async { self.patch_status(job, &change.patch()).await }
    }
    /// Merge patch of the job's status.
    fn patch_status(
        &self,
        job: &JobRef,
        patch: &Value,
    ) -> impl Future<Output = Result<Written, Refusal>> + Send;
    fn delete_job(&self, job: &JobRef) -> impl Future<Output = Result<(), Refusal>> + Send;
    /// Makes this job's budget for evictions, or changes it if it is there. One of that name that is not this job's is left
    /// alone: `AlreadyExists`.
    fn set_budget(
        &self,
        job: &JobRef,
        budget: &PodDisruptionBudget,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;
    /// Removes the budget of that name, if it is this job's.
    fn remove_budget(&self, job: &JobRef, name: &str) -> impl Future<Output = Result<(), Refusal>> + Send;
    fn record_event(&self, event: &NewEvent) -> impl Future<Output = Result<(), Refusal>> + Send;
    /// Metadata of the job of that name, as it is now.
    fn job(&self, job: &JobRef) -> impl Future<Output = Result<ObjectMeta, Refusal>> + Send;
    /// Whether this very job is still there. Whoever may not ask takes it to be.
    fn has_job(&self, job: &JobRef) -> impl Future<Output = Result<bool, Refusal>> + Send {
        async {
            match self.job(job).await {
                Ok(metadata) => Ok(metadata.uid.as_ref() == Some(&job.uid)),
                Err(Refusal::Forbidden(_)) => Ok(true),
                Err(Refusal::NotFound) => Ok(false),
                Err(refusal) => Err(refusal),
            }
        }
    }
    /// Metadata of an object that stands in our way. With a version, as it was then or later, which costs the API server less than
    /// the newest there is.
    fn metadata(
        &self,
        job: &JobRef,
        kind: TargetKind,
        name: &str,
        at: Option<u64>,
    ) -> impl Future<Output = Result<ObjectMeta, Refusal>> + Send;
    /// Metadata of all pods beside this job, whoever made them, as they were at that version or later. None, if there are more than so
    /// many.
    fn pods_beside(
        &self,
        job: &JobRef,
        at: Option<u64>,
        most: usize,
    ) -> impl Future<Output = Result<Option<Vec<ObjectMeta>>, Refusal>> + Send;
    /// What a pod that hangs says about where, if it can be asked. Its program may end because of it.
    fn stacks(&self, job: &JobRef, pod: &Target) -> impl Future<Output = Option<String>> + Send;
    /// How a node is that does not remove its pods.
    fn node(&self, name: &str) -> impl Future<Output = Result<NodeState, Refusal>> + Send;
}

/// The port to a real API server (or to anything else that speaks its language).
pub struct KubePort {
    client: kube::Client,
    in_flight: Semaphore,
    instance: String,
    requests: crate::metrics::Requests,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: AnswerMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AnswerMetadata {
    resource_version: String,
}

impl KubePort {
    pub fn new(client: kube::Client, max_in_flight: usize, instance: &str, metrics: &crate::Metrics) -> Self {
        Self {
            client,
            in_flight: Semaphore::new(max_in_flight.max(1)),
            instance: instance.to_owned(),
            requests: metrics.requests(),
        }
    }

    async fn send(
        &self,
        verb: &'static str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<String, Refusal> {
        let request =
            request.map_err(|error| Refusal::Invalid(format!("the request cannot be built: {error}")))?;
        // The semaphore is never closed.
        let _permit = self.in_flight.acquire().await;
        let answer = tokio::time::timeout(TIMEOUT, self.client.request_text(request)).await;
        let answer = match answer {
            Err(_) => Err(Refusal::Passing(format!("no answer to {verb} within {} s", TIMEOUT.as_secs()))),
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(text)) => Ok(text),
        };
        self.requests.count(verb, answer.as_ref().err());
        answer
    }

    /// Sends a write. Its answer is no more than metadata, or a status.
    async fn send_write(
        &self,
        verb: &'static str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<String, Refusal> {
        let brief = |mut request: http::Request<Vec<u8>>| {
            request.headers_mut().insert(http::header::ACCEPT, ONLY_METADATA);
            request
        };
        self.send(verb, request.map(brief)).await
    }

    async fn write(
        &self,
        verb: &'static str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Written, Refusal> {
        let text = self.send_write(verb, request).await?;
        let answer: Answer = serde_json::from_str(&text)
            .map_err(|error| Refusal::Passing(format!("an answer that is no object: {error}")))?;
        let resource_version = answer.metadata.resource_version;
        Ok(Written { version: resource_version.parse().unwrap_or(0), resource_version })
    }
}

impl KubePort {
    /// The uid of the budget of that name, if it is this job's.
    async fn own_budget(&self, job: &JobRef, name: &str) -> Result<Option<String>, Refusal> {
        let url = PodDisruptionBudget::url_path(&(), Some(&job.namespace));
        let request = Request::new(url).get_metadata(name, &GetParams::default());
        let metadata = metadata_of(&self.send("budget", request).await?)?;
        let is_own = crate::views::controller(&metadata).as_deref() == Some(job.uid.as_str());
        Ok(metadata.uid.filter(|_| is_own))
    }
}

impl From<kube::Error> for Refusal {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else { return Refusal::Passing(error.to_string()) };
        let message = status.message.clone();
        match (status.code, status.reason.as_str()) {
            (404, _) => Refusal::NotFound,
            (409, "AlreadyExists") => Refusal::AlreadyExists,
            (409, _) => Refusal::Conflict,
            (403, _) if message.contains("exceeded quota") => Refusal::Quota(message),
            (403 | 400, _) => Refusal::Forbidden(message),
            (422, _) => Refusal::Invalid(message),
            _ => Refusal::Passing(message),
        }
    }
}

fn url(kind: TargetKind, namespace: &str) -> String {
    let namespace = Some(namespace);
    match kind {
        TargetKind::Pod => Pod::url_path(&(), namespace),
        TargetKind::Service => Service::url_path(&(), namespace),
        TargetKind::ConfigMap => ConfigMap::url_path(&(), namespace),
        TargetKind::Claim => PersistentVolumeClaim::url_path(&(), namespace),
    }
}

fn jobs(namespace: &str) -> Request {
    Request::new(TrainingJob::url_path(&(), Some(namespace)))
}

fn by_us() -> PatchParams {
    PatchParams { field_manager: Some(names::MANAGED_BY.to_owned()), ..PatchParams::default() }
}

fn post() -> PostParams {
    PostParams { field_manager: Some(names::MANAGED_BY.to_owned()), ..PostParams::default() }
}

fn only(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::background()
    }
}

/// The patch, for this very object and not for another of its name.
fn only_this(target: &Target, patch: &Value) -> Value {
    let mut steps = vec![serde_json::json!({"op": "test", "path": "/metadata/uid", "value": target.uid})];
    steps.extend(patch.as_array().into_iter().flatten().cloned());
    Value::Array(steps)
}

/// The patch type's own Rust form would parse the operations only to print them again.
fn json_patch(
    url: String,
    name: &str,
    operations: &Value,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let mut request = Request::new(url).patch(name, &by_us(), &Patch::Merge(()))?;
    let kind = http::HeaderValue::from_static("application/json-patch+json");
    request.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    *request.body_mut() = operations.to_string().into_bytes();
    Ok(request)
}

fn metadata_of(text: &str) -> Result<ObjectMeta, Refusal> {
    let object: PartialObjectMeta<Pod> = serde_json::from_str(text)
        .map_err(|error| Refusal::Passing(format!("an answer that is no object: {error}")))?;
    Ok(object.metadata)
}

fn json(object: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(object).map_err(|error| Refusal::Invalid(error.to_string()))
}

impl Port for KubePort {
    async fn stacks(&self, job: &JobRef, pod: &Target) -> Option<String> {
        stacks::ask(&self.client, &job.namespace, &pod.name).await
    }

    async fn create(&self, job: &JobRef, object: &NewObject) -> Result<Written, Refusal> {
        let body = match object {
            NewObject::Pod(pod) => json(pod),
            NewObject::Service(service) => json(service),
            NewObject::ConfigMap(map) => json(map),
            NewObject::Claim(claim) => json(claim),
        }?;
        self.write("create", Request::new(url(object.kind(), &job.namespace)).create(&post(), body)).await
    }

    async fn delete(&self, job: &JobRef, target: &Target, grace: Option<u32>) -> Result<(), Refusal> {
        let params = DeleteParams { grace_period_seconds: grace, ..only(&target.uid) };
        let request = Request::new(url(target.kind, &job.namespace)).delete(&target.name, &params);
        self.send_write("delete", request).await.map(drop)
    }

    async fn patch(&self, job: &JobRef, target: &Target, patch: &Value) -> Result<Written, Refusal> {
        let request = json_patch(url(target.kind, &job.namespace), &target.name, &only_this(target, patch));
        match self.write("patch", request).await {
            Err(Refusal::Invalid(why)) if why.contains("/metadata/uid") => Err(Refusal::Conflict),
            other => other,
        }
    }

    async fn patch_job(&self, job: &JobRef, patch: &Value) -> Result<Written, Refusal> {
        self.write("patch", jobs(&job.namespace).patch(&job.name, &by_us(), &Patch::Merge(patch))).await
    }

    async fn patch_status(&self, job: &JobRef, patch: &Value) -> Result<Written, Refusal> {
        let request =
            jobs(&job.namespace).patch_subresource("status", &job.name, &by_us(), &Patch::Merge(patch));
        self.write("patch_status", request).await
    }

    async fn delete_job(&self, job: &JobRef) -> Result<(), Refusal> {
        self.send_write("delete", jobs(&job.namespace).delete(&job.name, &only(&job.uid))).await.map(drop)
    }

    async fn set_budget(&self, job: &JobRef, budget: &PodDisruptionBudget) -> Result<(), Refusal> {
        let url = PodDisruptionBudget::url_path(&(), Some(&job.namespace));
        let name = budget.metadata.name.as_deref().unwrap_or_default();
        // Whose it is and what it says, in one request: an apply would change anybody's.
        let operations = serde_json::json!([
            {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": job.uid},
            {"op": "add", "path": "/spec", "value": budget.spec},
        ]);
        match self.send_write("budget", json_patch(url.clone(), name, &operations)).await {
            Err(Refusal::NotFound) => {
                let request = Request::new(url).create(&post(), json(budget)?);
                match self.send_write("budget", request).await {
                    Err(Refusal::AlreadyExists) => Err(Refusal::Conflict),
                    answer => answer.map(drop),
                }
            }
            Err(Refusal::Invalid(why)) => match self.own_budget(job, name).await? {
                Some(_) => Err(Refusal::Invalid(why)),
                None => Err(Refusal::AlreadyExists),
            },
            answer => answer.map(drop),
        }
    }

    async fn remove_budget(&self, job: &JobRef, name: &str) -> Result<(), Refusal> {
        let Some(uid) = self.own_budget(job, name).await? else { return Ok(()) };
        let url = PodDisruptionBudget::url_path(&(), Some(&job.namespace));
        self.send_write("budget", Request::new(url).delete(name, &only(&uid))).await.map(drop)
    }

    async fn record_event(&self, event: &NewEvent) -> Result<(), Refusal> {
        let body = json(&crate::events::to_kubernetes(event, &self.instance))?;
        let request = Request::new(Event::url_path(&(), Some(&event.job.namespace))).create(&post(), body);
        self.send_write("event", request).await.map(drop)
    }

    async fn job(&self, job: &JobRef) -> Result<ObjectMeta, Refusal> {
        let request = Request::new(TrainingJob::url_path(&(), Some(&job.namespace)))
            .get_metadata(&job.name, &GetParams::default());
        metadata_of(&self.send("get", request).await?)
    }

    async fn metadata(
        &self,
        job: &JobRef,
        kind: TargetKind,
        name: &str,
        at: Option<u64>,
    ) -> Result<ObjectMeta, Refusal> {
        let params = GetParams { resource_version: at.map(|version| version.to_string()) };
        let request = Request::new(url(kind, &job.namespace)).get_metadata(name, &params);
        metadata_of(&self.send("get", request).await?)
    }

    async fn pods_beside(
        &self,
        job: &JobRef,
        at: Option<u64>,
        most: usize,
    ) -> Result<Option<Vec<ObjectMeta>>, Refusal> {
        let mut params = ListParams::default().limit(u32::try_from(most).unwrap_or(u32::MAX));
        if let Some(version) = at {
            params = params.at(&version.to_string()).matching(VersionMatch::NotOlderThan);
        }
        let request = Request::new(url(TargetKind::Pod, &job.namespace)).list_metadata(&params);
        let text = self.send("list", request).await?;
        let list: ObjectList<PartialObjectMeta<Pod>> = serde_json::from_str(&text)
            .map_err(|error| Refusal::Passing(format!("an answer that is no list: {error}")))?;
        let is_all = list.metadata.continue_.is_none_or(|more| more.is_empty());
        Ok(is_all.then(|| list.items.into_iter().map(|pod| pod.metadata).collect()))
    }

    async fn node(&self, name: &str) -> Result<NodeState, Refusal> {
        let request = Request::new(Node::url_path(&(), None)).get(name, &GetParams::default());
        let text = match self.send("get", request).await {
            Ok(text) => text,
            Err(Refusal::NotFound) => return Ok(NodeState::Gone),
            Err(Refusal::Forbidden(_)) => return Ok(NodeState::Hidden),
            Err(refusal) => return Err(refusal),
        };
        let node: Node = serde_json::from_str(&text)
            .map_err(|error| Refusal::Passing(format!("an answer that is no node: {error}")))?;
        // A kubelet that says that it is not ready still answers; one of which nothing is known does not.
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let silent = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "Unknown");
        Ok(if silent { NodeState::Unreachable } else { NodeState::Ready })
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_an_api_server_answers_and_what_that_means() {
        let quota = "pods \"a\" is forbidden: exceeded quota: team";
        let said = |message: &str| message.to_owned();
        let table = [
            (404, "NotFound", "", Refusal::NotFound),
            (409, "AlreadyExists", "", Refusal::AlreadyExists),
            (409, "Conflict", "", Refusal::Conflict),
            // A namespace that is going, or a quota that somebody else was changing.
            (409, "", "", Refusal::Conflict),
            (403, "Forbidden", quota, Refusal::Quota(said(quota))),
            (403, "Forbidden", "may not", Refusal::Forbidden(said("may not"))),
            (400, "BadRequest", "what?", Refusal::Forbidden(said("what?"))),
            (422, "Invalid", "no", Refusal::Invalid(said("no"))),
            (401, "Unauthorized", "who?", Refusal::Passing(said("who?"))),
            (429, "TooManyRequests", "later", Refusal::Passing(said("later"))),
            (410, "Expired", "old", Refusal::Passing(said("old"))),
            (500, "InternalError", "oh", Refusal::Passing(said("oh"))),
            (503, "ServiceUnavailable", "gone", Refusal::Passing(said("gone"))),
            (504, "Timeout", "slow", Refusal::Passing(said("slow"))),
        ];
        for (code, reason, message, meant) in table {
            let answer = Status::failure(message, reason).with_code(code).boxed();
            assert_eq!(Refusal::from(kube::Error::Api(answer)), meant, "{code} {reason}");
        }
        let broken = kube::Error::LinesCodecMaxLineLengthExceeded;
        assert!(matches!(Refusal::from(broken), Refusal::Passing(_)), "no answer at all");
    }
}
