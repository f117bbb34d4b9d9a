//! What is stored of an object. Its metadata is typed and shared with whatever tells of it; the rest is JSON, and small.

use std::ops::Index;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Error, Value};

/// Metadata, and of the rest what is read back by somebody. Can be indexed as the JSON that it stands for.
#[derive(Clone, Debug)]
pub struct Body {
    metadata: Arc<ObjectMeta>,
    rest: Arc<Value>,
    /// The metadata as JSON, if somebody has asked for it.
    written: OnceLock<Value>,
}

impl Body {
    /// `rest` is an object without metadata.
    pub(super) fn new(metadata: ObjectMeta, rest: Value) -> Self {
        Self { metadata: Arc::new(metadata), rest: Arc::new(rest), written: OnceLock::new() }
    }

    pub fn from_json(mut whole: Value) -> Result<Self, Error> {
        let metadata = whole.as_object_mut().and_then(|fields| fields.remove("metadata"));
        Ok(Self::new(metadata.map(serde_json::from_value).transpose()?.unwrap_or_default(), whole))
    }

    pub fn to_json(&self) -> Value {
        let mut whole = (*self.rest).clone();
        whole["metadata"] = self["metadata"].clone();
        whole
    }

    pub fn metadata(&self) -> &Arc<ObjectMeta> {
        &self.metadata
    }

    pub(super) fn metadata_mut(&mut self) -> &mut ObjectMeta {
        self.written = OnceLock::new();
        Arc::make_mut(&mut self.metadata)
    }

    /// Everything but the metadata.
    pub fn rest(&self) -> &Value {
        &self.rest
    }

    pub fn rest_mut(&mut self) -> &mut Value {
        Arc::make_mut(&mut self.rest)
    }

    /// Another status, and a node, if it has none yet.
    pub(crate) fn set_status(&mut self, node: impl FnOnce() -> String, status: Value) {
        let mut spec = self.rest["spec"].clone();
        if spec.get("nodeName").is_none() {
            spec["nodeName"] = node().into();
        }
        let fields = [("spec".to_owned(), spec), ("status".to_owned(), status)];
        self.rest = Arc::new(Value::Object(fields.into_iter().collect()));
    }

    /// Nothing but the metadata can differ.
    pub(super) fn has_rest_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rest, &other.rest)
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        (Arc::ptr_eq(&self.metadata, &other.metadata) || self.metadata == other.metadata)
            && (self.has_rest_of(other) || self.rest == other.rest)
    }
}

impl Index<&str> for Body {
    type Output = Value;

    fn index(&self, field: &str) -> &Value {
        if field == "metadata" {
            return self.written.get_or_init(|| serde_json::to_value(&*self.metadata).unwrap_or_default());
        }
        &self.rest[field]
    }
}
