//! Refusals, as `metav1.Status` with the API server's codes, reasons and words.

use serde_json::{Map, Value, json};
use trainyard_objects::FieldError;

/// A refusal. Boxed, because answers are usually none.
#[derive(Clone, Debug)]
pub(crate) struct ApiError(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    code: u16,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    continue_token: Option<String>,
}

pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

/// What a refusal is about: `pods`, or `trainingjobs.ml.example.com`.
pub(crate) fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

impl ApiError {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            continue_token: None,
        }))
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = &mut self.0.details;
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        self
    }

    pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", qualified(group, plural)))
            .about(group, plural, name)
    }

    /// A path that leads nowhere.
    pub(crate) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn already_exists(group: &str, plural: &str, name: &str, deleting: bool) -> Self {
        let still = if deleting { "object is being deleted: " } else { "" };
        let message = format!("{still}{} \"{name}\" already exists", qualified(group, plural));
        Self::new(409, "AlreadyExists", message).about(group, plural, name)
    }

    pub(crate) fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, plural));
        Self::new(409, "Conflict", message).about(group, plural, name)
    }

    pub(crate) fn modified(group: &str, plural: &str, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, plural, name, why)
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message =
            format!("{qualified} \"{name}\" is invalid: {}", trainyard_objects::error::joined(errors));
        let causes: Vec<Value> = errors
            .iter()
            .map(
                |error| json!({"reason": error.reason.cause(), "message": error.body(), "field": error.path}),
            )
            .collect();
        let mut error = Self::new(422, "Invalid", message).about(group, kind, name);
        error.0.details.insert("causes".to_owned(), causes.into());
        error
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", qualified(group, plural));
        Self::new(403, "Forbidden", message).about(group, plural, name)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        let mut error = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        error.0.details.insert("causes".to_owned(), json!([{"message": message.to_string()}]));
        error
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// What this control plane does not have, in words.
    pub(crate) fn not_here(code: u16, reason: &'static str, what: &str) -> Self {
        Self::new(
            code,
            reason,
            format!(
                "{what}: this is Trainyard's embedded control plane, which has pods, services, config maps, secrets, \
                 claims, nodes, events, leases, quotas, budgets, custom resources and what they need (kubectl api-resources \
                 lists them); for the rest, use a cluster"
            ),
        )
    }

    pub(crate) fn with_causes(mut self, causes: Vec<Value>) -> Self {
        self.0.details.insert("causes".to_owned(), causes.into());
        self
    }

    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.0.continue_token = Some(token);
        self
    }

    pub(crate) fn code(&self) -> u16 {
        self.0.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// The refusal as a `Status` object.
    pub(crate) fn status(&self) -> Value {
        let Parts { code, reason, message, details, continue_token } = &*self.0;
        let mut metadata = Map::new();
        if let Some(token) = continue_token {
            metadata.insert("continue".to_owned(), token.as_str().into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        });
        if !details.is_empty() {
            status["details"] = Value::Object(details.clone());
        }
        status
    }
}
