//! What pods can do besides being objects: logs, exec, binding, eviction.

use std::sync::Arc;

use http::{Method, Response};
use serde_json::{Value, json};

use super::{Incoming, decode, success};
use crate::body::Body;
use crate::clock::seconds;
use crate::error::{ApiError, Result};
use crate::exec;
use crate::kubelet::{ExecOptions, Kubelet, KubeletError, LogOptions, PodId};
use crate::rules::budgets;
use crate::shared::Shared;
use crate::store::{Object, key};
use crate::write::{DeleteOptions, Propagation};

pub(super) async fn answer(
    shared: &Arc<Shared>,
    namespace: &str,
    name: &str,
    subresource: &str,
    incoming: Incoming,
) -> Result<Response<Body>> {
    let refused = |what: &str| Err(ApiError::not_here(501, "NotImplemented", what));
    match subresource {
        "log" if incoming.method == Method::GET => {
            let pod = find(shared, namespace, name)?;
            logs(shared, &pod, &incoming).await
        }
        "exec" if matches!(incoming.method, Method::GET | Method::POST) => {
            let pod = find(shared, namespace, name)?;
            start_exec(shared, &pod, incoming).await
        }
        "binding" if incoming.method == Method::POST => bind(shared, namespace, name, &incoming),
        "eviction" if incoming.method == Method::POST => evict(shared, namespace, name, &incoming),
        "portforward" => refused(
            "port-forward is not supported: pods run on this machine, connect to their ports directly",
        ),
        "attach" => refused("attach is not supported: use kubectl logs -f and kubectl exec"),
        "proxy" => refused("proxying to pods is not supported: connect to their ports directly"),
        "ephemeralcontainers" => refused("ephemeral containers are not supported: use kubectl exec"),
        "resize" => refused("changing the resources of a running pod is not supported"),
        "log" | "exec" | "binding" | "eviction" => Err(ApiError::method_not_allowed()),
        _ => Err(ApiError::no_such_path()),
    }
}

fn find(shared: &Shared, namespace: &str, name: &str) -> Result<Arc<Object>> {
    shared
        .lock()
        .store
        .get("pods", &key(namespace, name))
        .cloned()
        .ok_or_else(|| ApiError::not_found("", "pods", name))
}

fn id(pod: &Object) -> PodId {
    PodId {
        namespace: pod.facts.namespace.to_string(),
        name: pod.facts.name.to_string(),
        uid: pod.facts.uid.to_string(),
    }
}

/// The container that is meant: the only one, or the one that is named.
fn container(pod: &Object, asked: &str) -> Result<String> {
    let value = pod.value();
    let names: Vec<&str> = ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .flat_map(|key| value["spec"][*key].as_array().into_iter().flatten())
        .filter_map(|container| container["name"].as_str())
        .collect();
    let name = &pod.facts.name;
    if !asked.is_empty() {
        if names.contains(&asked) {
            return Ok(asked.to_owned());
        }
        return Err(ApiError::bad_request(format!("container {asked} is not valid for pod {name}")));
    }
    let main = value["spec"]["containers"].as_array().map_or(0, Vec::len);
    match (names.as_slice(), main) {
        ([only], _) => Ok((*only).to_owned()),
        _ => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            names.join(" ")
        ))),
    }
}

fn kubelet(shared: &Shared) -> Result<Arc<dyn Kubelet>> {
    shared.kubelet().ok_or_else(|| {
        ApiError::new(
            503,
            "ServiceUnavailable",
            "no node is attached to this control plane, so nothing runs here",
        )
    })
}

fn told(error: KubeletError) -> ApiError {
    match error {
        KubeletError::NotFound(message) => ApiError::new(404, "NotFound", message),
        KubeletError::BadRequest(message) => ApiError::bad_request(message),
        KubeletError::Internal(message) => ApiError::internal(message),
    }
}

async fn logs(shared: &Arc<Shared>, pod: &Object, incoming: &Incoming) -> Result<Response<Body>> {
    let query = &incoming.query;
    let container = container(pod, query.text("container"))?;
    let invalid = |why: String| {
        ApiError::new(422, "Invalid", format!("PodLogOptions \"{}\" is invalid: {why}", pod.facts.name))
    };
    // Read as signed numbers, so that a negative one is told as what it is.
    let positive = |name: &str, least: i64| -> Result<Option<u64>> {
        match query.number::<i64>(name)? {
            None => Ok(None),
            Some(number) if number >= least => Ok(u64::try_from(number).ok()),
            Some(number) => {
                let word =
                    if least == 0 { "must be greater than or equal to 0" } else { "must be greater than 0" };
                Err(invalid(format!("{name}: Invalid value: {number}: {word}")))
            }
        }
    };
    let since_time = match query.text("sinceTime") {
        "" => None,
        text => Some(
            text.parse().map_err(|_| ApiError::bad_request(format!("sinceTime \"{text}\" is no time")))?,
        ),
    };
    let options = LogOptions {
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        tail_lines: positive("tailLines", 0)?,
        since_seconds: positive("sinceSeconds", 1)?,
        since_time,
        timestamps: query.flag("timestamps"),
        limit_bytes: positive("limitBytes", 1)?,
    };
    if options.since_seconds.is_some() && options.since_time.is_some() {
        return Err(invalid("at most one of `sinceTime` or `sinceSeconds` may be specified".to_owned()));
    }
    let mut response = super::typed(200, "text/plain", "");
    // A pod without a node has said nothing yet.
    if pod.facts.node.is_some() {
        let stream = kubelet(shared)?.logs(&id(pod), &container, options).await.map_err(told)?;
        *response.body_mut() = Body::stream(stream);
    }
    Ok(response)
}

async fn start_exec(shared: &Arc<Shared>, pod: &Object, incoming: Incoming) -> Result<Response<Body>> {
    let query = &incoming.query;
    let container = container(pod, query.text("container"))?;
    let options = ExecOptions {
        command: query.all("command").map(str::to_owned).collect(),
        stdin: query.flag("stdin"),
        stdout: query.flag("stdout"),
        stderr: query.flag("stderr"),
        tty: query.flag("tty"),
    };
    if pod.facts.node.is_none() {
        return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", pod.facts.name)));
    }
    if options.command.is_empty() {
        return Err(ApiError::bad_request("you must specify at least one command for the container"));
    }
    if !(options.stdin || options.stdout || options.stderr) {
        return Err(ApiError::bad_request("you must specify at least one of stdin, stdout, stderr"));
    }
    let Some(upgrade) = incoming.upgrade else {
        return Err(ApiError::bad_request("Upgrade request required"));
    };
    let protocol = exec::protocol(&upgrade)?;
    let session = kubelet(shared)?.exec(&id(pod), &container, options).await.map_err(told)?;
    Ok(exec::serve(upgrade, protocol, session))
}

fn bind(shared: &Arc<Shared>, namespace: &str, name: &str, incoming: &Incoming) -> Result<Response<Body>> {
    let binding = decode::object(incoming, "Binding")?;
    let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
    if node.is_empty() {
        return Err(ApiError::new(
            422,
            "Invalid",
            format!("Binding \"{name}\" is invalid: target.name: Required value"),
        ));
    }
    if let Some(kind) = binding["target"]["kind"].as_str()
        && !kind.is_empty()
        && kind != "Node"
    {
        let why =
            format!("target.kind: Unsupported value: \"{kind}\": supported values: \"Node\", \"<empty>\"");
        return Err(ApiError::new(422, "Invalid", format!("Binding \"{name}\" is invalid: {why}")));
    }
    let uid = binding["metadata"]["uid"].as_str().map(str::to_owned);
    shared.change(|state| {
        let kind = state.kinds.find("", "pods").cloned().ok_or_else(ApiError::no_such_path)?;
        let live = state.find(&kind, namespace, name)?;
        let conflict = |why: &str| Err(ApiError::conflict("", "pods/binding", name, why));
        if uid.is_some_and(|uid| *uid != *live.facts.uid) {
            return conflict("the UID in the binding is that of another pod");
        }
        if live.facts.deleting {
            return conflict(&format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        if let Some(node) = live.facts.node.as_deref().filter(|node| !node.is_empty()) {
            return conflict(&format!("pod {name} is already assigned to node \"{node}\""));
        }
        let mut value = live.value();
        value["spec"]["nodeName"] = node.as_str().into();
        let mut conditions = value["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": seconds(state.now()),
        }));
        value["status"]["conditions"] = conditions.into();
        state.put(&kind, value)?;
        state.settle();
        Ok(())
    })?;
    Ok(super::json(
        201,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    ))
}

fn evict(shared: &Arc<Shared>, namespace: &str, name: &str, incoming: &Incoming) -> Result<Response<Body>> {
    let eviction = decode::object(incoming, "Eviction")?;
    let given = &eviction["deleteOptions"];
    let options = DeleteOptions {
        grace: given["gracePeriodSeconds"].as_i64(),
        propagation: Some(Propagation::Background),
        uid: given["preconditions"]["uid"].as_str().map(str::to_owned),
        resource_version: given["preconditions"]["resourceVersion"].as_str().map(str::to_owned),
        dry_run: given["dryRun"].as_array().is_some_and(|all| !all.is_empty())
            || incoming.query.get("dryRun").is_some_and(|dry| !dry.is_empty()),
    };
    shared.change(|state| {
        let kind = state.kinds.find("", "pods").cloned().ok_or_else(ApiError::no_such_path)?;
        if let Some(pod) = state.store.get("pods", &key(namespace, name)) {
            let budgets = state.store.list("poddisruptionbudgets.policy", namespace);
            let pods = state.store.list("pods", namespace);
            budgets::allows(&pod.value(), budgets.map(|one| one.value()), pods.map(|one| one.value()))?;
        }
        state.delete(&kind, namespace, name, &options)
    })?;
    let mut status = success(Value::Null);
    if let Some(fields) = status.as_object_mut() {
        fields.remove("details");
        fields.insert("code".to_owned(), 201.into());
    }
    Ok(super::json(201, &status))
}
