//! Which objects a request is about.

use serde_json::Value;
use trainyard_objects::{FieldSelector, LabelSelector};

use crate::error::{ApiError, Result};
use crate::kinds::{Builtin, Kind, Version, events};
use crate::store::Object;

/// Label selector, field selector and namespace together.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
    /// Fields are named as in `events.k8s.io`.
    new_events: bool,
}

impl Selection {
    pub(crate) fn parse(
        kind: &Kind,
        version: &Version,
        namespace: &str,
        labels: &str,
        fields: &str,
    ) -> Result<Self> {
        let labels =
            LabelSelector::parse(labels).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let fields =
            FieldSelector::parse(fields).map_err(|error| ApiError::bad_request(error.to_string()))?;
        for path in fields.paths() {
            let known = path == "metadata.name"
                || (path == "metadata.namespace" && kind.namespaced)
                || version.selectable.iter().any(|one| one == path);
            if !known {
                return Err(ApiError::bad_request(
                    if version.selectable.is_empty() && kind.builtin().is_some() {
                        format!(
                            "\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                        )
                    } else {
                        format!("field label not supported: {path}")
                    },
                ));
            }
        }
        Ok(Self { namespace: namespace.to_owned(), labels, fields, new_events: kind.is(Builtin::NewEvent) })
    }

    /// The one object of this name.
    pub(crate) fn with_name(mut self, name: &str) -> Self {
        let escaped = name.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        if let Ok(fields) = FieldSelector::parse(&format!("metadata.name={escaped}")) {
            self.fields = fields;
        }
        self
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    /// Whether it selects everything in its namespace.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        let facts = &object.facts;
        if !self.namespace.is_empty() && *facts.namespace != self.namespace {
            return false;
        }
        if !self.labels.is_empty() && !self.labels.matches(facts.labels.as_ref()) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        // The few fields that are asked for all the time are known; the rest is looked up.
        let value = std::cell::OnceCell::new();
        self.fields.matches(|path| match path {
            "metadata.name" => Some(facts.name.to_string()),
            "metadata.namespace" => Some(facts.namespace.to_string()),
            "spec.nodeName" => facts.node.as_deref().map(str::to_owned),
            "status.phase" => facts.phase.as_deref().map(str::to_owned),
            other => {
                let path = if self.new_events { events::stored_path(other) } else { other.to_owned() };
                field(value.get_or_init(|| object.value()), &path)
            }
        })
    }
}

fn field(value: &Value, path: &str) -> Option<String> {
    let found = path.split('.').try_fold(value, |value, key| value.get(key))?;
    Some(match found {
        Value::String(text) => text.clone(),
        // An event's source is selected by its component.
        Value::Object(fields) => fields.get("component")?.as_str()?.to_owned(),
        other => other.to_string(),
    })
}
