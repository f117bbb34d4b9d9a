//! Admission that concerns the namespace of a new object.

use serde_json::{Value, json};
use trainyard_objects::At as _;

use crate::error::{ApiError, Result};
use crate::kinds::Kind;
use crate::state::State;

impl State {
    /// A new object's namespace must exist and stay.
    pub(super) fn admit_namespace(&self, kind: &Kind, value: &Value) -> Result<()> {
        if !kind.namespaced {
            return Ok(());
        }
        let namespace = value.text_at("/metadata/namespace");
        let Some(found) = self.store.get("namespaces", namespace) else {
            return Err(ApiError::not_found("", "namespaces", namespace));
        };
        if found.facts.deleting {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let cause = json!({
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            });
            let name = value.text_at("/metadata/name");
            return Err(ApiError::forbidden(&kind.group, &kind.plural, name, &why).with_causes(vec![cause]));
        }
        Ok(())
    }
}
