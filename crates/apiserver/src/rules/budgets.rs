//! Budgets for evictions. Nobody keeps their status up to date here: what a budget allows is found out when somebody is to be evicted.

use serde_json::{Value, json};
use trainyard_objects::{At as _, FieldError, LabelSelector};

use crate::error::ApiError;

/// The status of a budget that no controller has looked at.
pub(super) fn unknown() -> Value {
    json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
}

pub(super) fn validate(value: &Value) -> Vec<FieldError> {
    let spec = &value["spec"];
    let mut errors = Vec::new();
    if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", spec.clone(), detail));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        let why = match spec.get(key) {
            Some(Value::String(text)) => wrong_percent(text),
            Some(number) if number.as_i64().is_some_and(|number| number < 0) => {
                Some("must be greater than or equal to 0")
            }
            _ => None,
        };
        errors.extend(why.map(|why| FieldError::invalid(format!("spec.{key}"), spec[key].clone(), why)));
    }
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    if let Some(policy) = spec.get("unhealthyPodEvictionPolicy").and_then(Value::as_str)
        && !policies.contains(&policy)
    {
        errors.push(FieldError::not_supported("spec.unhealthyPodEvictionPolicy", policy, &policies));
    }
    errors
}

fn wrong_percent(text: &str) -> Option<&'static str> {
    let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty());
    let Some(digits) = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) else {
        return Some(
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used \
             for validation is '[0-9]+%')",
        );
    };
    digits.parse::<u32>().map_or(true, |percent| percent > 100).then_some("must not be greater than 100%")
}

/// Whether a pod may be evicted, as far as budgets have a say in it. `pods` are all of its namespace.
pub(crate) fn allows(
    pod: &Value,
    budgets: impl Iterator<Item = Value>,
    pods: impl Iterator<Item = Value>,
) -> Result<(), ApiError> {
    // Who has ended, has not begun or goes already is not missed.
    let is_running = |pod: &Value| {
        pod.text_at("/status/phase") == "Running" && pod.at("/metadata/deletionTimestamp").is_none()
    };
    if !is_running(pod) {
        return Ok(());
    }
    let mut ours = budgets.filter(|budget| selects(budget, pod));
    let Some(budget) = ours.next() else { return Ok(()) };
    if ours.next().is_some() {
        let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(ApiError::new(500, "InternalError", message));
    }
    let is_ready = |pod: &Value| {
        let conditions = pod.at("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let guarded: Vec<Value> = pods.filter(|pod| selects(&budget, pod)).collect();
    let healthy = i64::try_from(guarded.iter().filter(|pod| is_running(pod) && is_ready(pod)).count());
    let healthy = healthy.unwrap_or(i64::MAX);
    let expected = i64::try_from(guarded.len()).unwrap_or(i64::MAX);
    let needed = match (budget.at("/spec/minAvailable"), budget.at("/spec/maxUnavailable")) {
        (Some(least), _) => amount(least, expected),
        (None, Some(most)) => (expected - amount(most, expected)).max(0),
        (None, None) => 0,
    };
    let always = budget.text_at("/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow";
    let may_go = if is_ready(pod) { healthy > needed } else { always || healthy >= needed };
    if may_go {
        return Ok(());
    }
    let name = budget.text_at("/metadata/name");
    let cause =
        format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently");
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Err(ApiError::new(429, "TooManyRequests", message)
        .with_causes(vec![json!({"reason": "DisruptionBudget", "message": cause})]))
}

/// A number, or a part of all, rounded up.
fn amount(given: &Value, all: i64) -> i64 {
    let percent =
        given.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok());
    percent.map_or_else(|| given.as_i64().unwrap_or(0), |percent| (percent * all + 99) / 100)
}

fn selects(budget: &Value, pod: &Value) -> bool {
    let Some(selector) = budget.at("/spec/selector") else { return false };
    let labels = pod.at("/metadata/labels").and_then(Value::as_object);
    LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches(labels))
}
