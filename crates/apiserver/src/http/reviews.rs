//! Questions about the caller. There is one user here, and that one may do everything.

use http::{Method, Response};
use serde_json::{Value, json};

use super::query::Place;
use super::{Incoming, decode};
use crate::body::Body;
use crate::error::{ApiError, Result};

/// Who everybody is.
const USER: &str = "trainyard-admin";

/// Answers a review; `None` when the request is about something else.
pub(super) fn answer(place: &Place, incoming: &Incoming) -> Result<Option<Response<Body>>> {
    if place.version != "v1" {
        return Ok(None);
    }
    let review = match (place.group.as_str(), place.plural.as_str()) {
        ("authorization.k8s.io", "selfsubjectaccessreviews") => access,
        ("authorization.k8s.io", "selfsubjectrulesreviews") => rules,
        ("authentication.k8s.io", "selfsubjectreviews") => identity,
        _ => return Ok(None),
    };
    if incoming.method != Method::POST || place.name.is_some() {
        return Err(ApiError::method_not_allowed());
    }
    incoming.accept.json()?;
    Ok(Some(super::json(201, &review(incoming)?)))
}

fn access(incoming: &Incoming) -> Result<Value> {
    let spec = decode::object(incoming, "SelfSubjectAccessReview")?["spec"].clone();
    if spec.get("resourceAttributes").is_none() && spec.get("nonResourceAttributes").is_none() {
        return Err(ApiError::new(
            422,
            "Invalid",
            ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
    Ok(json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {"creationTimestamp": null},
        "spec": spec,
        "status": {"allowed": true, "reason": "Trainyard's embedded control plane has one user, who may do everything"},
    }))
}

fn rules(incoming: &Incoming) -> Result<Value> {
    let namespace = decode::object(incoming, "SelfSubjectRulesReview")?["spec"]["namespace"].clone();
    Ok(json!({
        "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {"creationTimestamp": null},
        "spec": {"namespace": namespace},
        "status": {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        },
    }))
}

fn identity(incoming: &Incoming) -> Result<Value> {
    decode::object(incoming, "SelfSubjectReview")?;
    Ok(json!({
        "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {"creationTimestamp": null},
        "status": {"userInfo": {"username": USER, "groups": ["system:masters", "system:authenticated"]}},
    }))
}
