//! What a server answered, and the questions that cases ask about it.
//!
//! Every check panics with the request, what was expected and what came.

use http::HeaderMap;
use serde_json::Value;

use crate::compare::difference;
use crate::target::{Asked, shortened};

/// One answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    asked: Asked,
    status: u16,
    headers: HeaderMap,
    text: String,
    body: Value,
}

#[expect(clippy::return_self_not_must_use, reason = "checks are chained, and the last one is a statement")]
impl Answer {
    pub(crate) fn new(asked: Asked, status: u16, headers: HeaderMap, text: String) -> Self {
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Self { asked, status, headers, text, body }
    }

    /// The code, for cases with more than one good answer.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The body, or null when it is not JSON.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// The body as it came.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A header's value, or nothing.
    pub fn header(&self, name: &str) -> String {
        self.headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .unwrap_or_default()
    }

    /// The texts of the `Warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        let texts = self.headers.get_all(http::header::WARNING).iter();
        texts.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    /// A string or number at a JSON pointer, as text; empty if there is nothing.
    pub fn at(&self, pointer: &str) -> String {
        match self.body.pointer(pointer) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    /// The object's resourceVersion.
    #[track_caller]
    pub fn version(&self) -> String {
        self.present("/metadata/resourceVersion")
    }

    /// The object's uid.
    #[track_caller]
    pub fn uid(&self) -> String {
        self.present("/metadata/uid")
    }

    /// The object's name.
    #[track_caller]
    pub fn name(&self) -> String {
        self.present("/metadata/name")
    }

    /// What is at a JSON pointer, which must not be empty.
    #[track_caller]
    pub fn present(&self, pointer: &str) -> String {
        let found = self.at(pointer);
        if found.is_empty() {
            self.fail(&format!("something at {pointer}"));
        }
        found
    }

    /// The names of a list's items, in order.
    pub fn names(&self) -> Vec<String> {
        let items = self.body["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The entries of managedFields as "manager operation subresource", sorted.
    pub fn managers(&self) -> Vec<String> {
        let entries = self.body["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let name = |entry: &Value| {
            let parts = ["manager", "operation", "subresource"]
                .map(|key| entry[key].as_str().unwrap_or_default().to_owned());
            parts.join(" ").trim_end().to_owned()
        };
        let mut managers: Vec<_> = entries.iter().map(name).collect();
        managers.sort();
        managers
    }

    /// The fields that a manager owns by an operation, as `fieldsV1`.
    pub fn fields_of(&self, manager: &str, operation: &str) -> Value {
        let entries = self.body["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let found =
            entries.iter().find(|entry| entry["manager"] == manager && entry["operation"] == operation);
        found.map(|entry| entry["fieldsV1"].clone()).unwrap_or_default()
    }

    /// The answer has this code.
    #[track_caller]
    pub fn is(self, code: u16) -> Self {
        if self.status != code {
            self.fail(&format!("code {code}"));
        }
        self
    }

    /// The body contains this: every field given here is there with the same value. Lists must
    /// have the same length; their elements are compared in the same way. Null means absent.
    #[track_caller]
    pub fn has(self, expected: Value) -> Self {
        if let Some(difference) = difference(&expected, &self.body, "") {
            self.fail(&format!("{expected}\n          at {difference}"));
        }
        self
    }

    /// There is nothing at this JSON pointer.
    #[track_caller]
    pub fn lacks(self, pointer: &str) -> Self {
        if self.body.pointer(pointer).is_some() {
            self.fail(&format!("nothing at {pointer}"));
        }
        self
    }

    /// The list has exactly these items, in this order.
    #[track_caller]
    pub fn lists(self, names: &[&str]) -> Self {
        if self.names() != names {
            self.fail(&format!("the items {names:?}"));
        }
        self
    }

    /// The request was refused with a `Status` of this code, reason and message.
    #[track_caller]
    pub fn refused(self, code: u16, reason: &str, message: &str) -> Self {
        self.is_status(code, reason);
        if self.at("/message") != message {
            self.fail(&format!("the message {message:?}"));
        }
        self
    }

    /// Like [`refused`](Self::refused), for messages of which only a part is documented or stable.
    #[track_caller]
    pub fn refused_about(self, code: u16, reason: &str, part: &str) -> Self {
        self.is_status(code, reason);
        if !self.at("/message").contains(part) {
            self.fail(&format!("a message with {part:?}"));
        }
        self
    }

    /// The refusal has these causes (reason, field, message), in any order.
    #[track_caller]
    pub fn causes(self, expected: &[(&str, &str, &str)]) -> Self {
        let causes = self.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        let mut found: Vec<_> =
            causes.iter().map(|c| (text(c, "reason"), text(c, "field"), text(c, "message"))).collect();
        let mut wanted: Vec<_> = expected
            .iter()
            .map(|(reason, field, message)| {
                ((*reason).to_owned(), (*field).to_owned(), (*message).to_owned())
            })
            .collect();
        found.sort();
        wanted.sort();
        if found != wanted {
            self.fail(&format!("the causes {wanted:#?}"));
        }
        self
    }

    /// The refusal has causes with these reasons and fields, and maybe more.
    #[track_caller]
    pub fn blames(self, expected: &[(&str, &str)]) -> Self {
        let causes = self.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        for (reason, field) in expected {
            if !causes.iter().any(|cause| cause["reason"] == *reason && cause["field"] == *field) {
                self.fail(&format!("a cause {reason} at {field}"));
            }
        }
        self
    }

    #[track_caller]
    fn is_status(&self, code: u16, reason: &str) {
        let expected =
            serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
        if self.status != code
            || self.at("/reason") != reason
            || difference(&expected, &self.body, "").is_some()
        {
            self.fail(&format!("a Status with code {code} and reason {reason:?}"));
        }
    }

    /// Ends the case: this answer is not what was expected.
    #[track_caller]
    pub fn fail(&self, expected: &str) -> ! {
        panic!(
            "{}\nexpected: {expected}\nactual:   {} {}",
            self.asked,
            self.status,
            shortened(&self.text, 6000)
        );
    }
}
