//! What follows from a change: owned objects go with their owners, namespaces empty themselves, definitions take their
//! objects along, quotas count.
//!
//! In a cluster, controllers do this after a while. Here it is done before the request is answered, so that the order
//! of events is always the same; nothing may depend on it being that soon.

use std::sync::Arc;

use serde_json::{Value, json};
use trainyard_objects::At as _;

use crate::clock::seconds;
use crate::error::Result;
use crate::kinds::{Builtin, Kind};
use crate::state::{Note, State};
use crate::store::{Object, Owner, key};
use crate::write::{DeleteOptions, Propagation, disown};

const FOREGROUND: &str = "foregroundDeletion";
/// Holds a definition while objects of its kind exist.
pub(crate) const DEFINITION_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

impl State {
    /// Draws all consequences of what was changed.
    pub(crate) fn settle(&mut self) {
        while let Some(note) = self.notes.pop_front() {
            let drawn = match note {
                Note::Changed { resource, key } => self.after_change(&resource, &key),
                Note::Gone { resource, namespace, uid, owners } => {
                    self.after_end(&resource, &namespace, &uid, &owners)
                }
            };
            if let Err(error) = drawn {
                // The disk is full, most likely. What was not drawn now is drawn at the next change of the same object.
                tracing::error!("a consequence could not be stored: {}", error.message());
            }
        }
    }

    fn after_change(&mut self, resource: &Arc<str>, key: &str) -> Result<()> {
        let Some(object) = self.store.get(resource, key).cloned() else { return Ok(()) };
        let Some(kind) = self.kinds.by_resource(resource).cloned() else { return Ok(()) };
        if object.facts.deleting {
            if kind.is(Builtin::Namespace) {
                return self.empty_namespace(&kind, &object);
            }
            if kind.is(Builtin::Definition) {
                return self.empty_definition(&kind, &object);
            }
            if has_finalizer(&object, FOREGROUND) {
                return self.delete_dependents_of(&kind, &object);
            }
        } else if !object.facts.owners.is_empty() {
            self.judge(&kind, &object)?;
        }
        self.count_quotas(resource, &object.facts.namespace)?;
        if kind.is(Builtin::Namespace) {
            self.furnish(&object.facts.name)?;
        }
        Ok(())
    }

    fn after_end(&mut self, resource: &Arc<str>, namespace: &str, uid: &str, owners: &[Owner]) -> Result<()> {
        for (of, dependent) in self.store.dependents(uid) {
            if let Some(kind) = self.kinds.by_resource(&of).cloned() {
                self.judge(&kind, &dependent)?;
            }
        }
        for owner in owners {
            if let Found::Here(kind, object) = self.owner(namespace, owner)
                && object.facts.deleting
                && has_finalizer(&object, FOREGROUND)
            {
                self.delete_dependents_of(&kind, &object)?;
            }
        }
        if !namespace.is_empty()
            && let Some(home) = self.store.get("namespaces", namespace).cloned()
            && home.facts.deleting
            && let Some(kind) = self.kinds.find("", "namespaces").cloned()
        {
            self.empty_namespace(&kind, &home)?;
        }
        if let Some(definition) =
            self.store.get("customresourcedefinitions.apiextensions.k8s.io", resource).cloned()
            && definition.facts.deleting
            && let Some(kind) = self.kinds.find("apiextensions.k8s.io", "customresourcedefinitions").cloned()
        {
            self.empty_definition(&kind, &definition)?;
        }
        self.count_quotas(resource, namespace)
    }

    /// Deletes an object whose owners are all gone; takes out references to those that are.
    fn judge(&mut self, kind: &Kind, object: &Arc<Object>) -> Result<()> {
        // It may have gone or changed since it was looked up.
        let facts = &object.facts;
        let Some(object) = self.store.get(&kind.resource, &key(&facts.namespace, &facts.name)).cloned()
        else {
            return Ok(());
        };
        let facts = &object.facts;
        let (mut absent, mut present) = (Vec::new(), 0);
        for owner in &facts.owners {
            match self.owner(&facts.namespace, owner) {
                Found::Absent => absent.push(owner.uid.clone()),
                Found::Here(..) | Found::Unknowable => present += 1,
            }
        }
        if absent.is_empty() || facts.deleting {
            return Ok(());
        }
        if present == 0 {
            let propagation = if has_finalizer(&object, FOREGROUND) {
                Some(Propagation::Foreground)
            } else if has_finalizer(&object, "orphan") {
                Some(Propagation::Orphan)
            } else {
                Some(Propagation::Background)
            };
            self.remove(kind, &object, &DeleteOptions { propagation, ..DeleteOptions::default() })?;
        } else {
            let mut value = object.value();
            for uid in absent {
                disown(&mut value, &uid);
            }
            self.put(kind, value)?;
        }
        Ok(())
    }

    /// The owner that a reference means.
    fn owner(&self, namespace: &str, owner: &Owner) -> Found {
        let Some(kind) = self.kinds.by_kind(owner.group(), &owner.kind) else { return Found::Unknowable };
        let namespace = if kind.namespaced { namespace } else { "" };
        if kind.namespaced && namespace.is_empty() {
            // An object without a namespace cannot be owned by one that has it; real clusters leave it alone.
            return Found::Unknowable;
        }
        match self.store.get(&kind.resource, &key(namespace, &owner.name)) {
            Some(found) if found.facts.uid == owner.uid => Found::Here(kind.clone(), found.clone()),
            _ => Found::Absent,
        }
    }

    /// Foreground deletion: first the dependents, then (when none of them blocks any more) the owner.
    fn delete_dependents_of(&mut self, kind: &Kind, owner: &Arc<Object>) -> Result<()> {
        let uid = owner.facts.uid.clone();
        for (resource, dependent) in self.store.dependents(&uid) {
            if dependent.facts.deleting {
                continue;
            }
            let Some(of) = self.kinds.by_resource(&resource).cloned() else { continue };
            // An object with another owner that stays is only disowned when this one is gone.
            let kept = dependent.facts.owners.iter().any(|other| {
                other.uid != uid
                    && match self.owner(&dependent.facts.namespace, other) {
                        Found::Here(_, other) => !other.facts.deleting,
                        Found::Unknowable => true,
                        Found::Absent => false,
                    }
            });
            if !kept {
                let further = !self.store.dependents(&dependent.facts.uid).is_empty();
                let propagation =
                    Some(if further { Propagation::Foreground } else { Propagation::Background });
                self.remove(&of, &dependent, &DeleteOptions { propagation, ..DeleteOptions::default() })?;
            }
        }
        let blocked = self.store.dependents(&uid).iter().any(|(_, dependent)| {
            dependent.facts.owners.iter().any(|owner| owner.uid == uid && owner.blocks)
        });
        let place = key(&owner.facts.namespace, &owner.facts.name);
        if !blocked && let Some(owner) = self.store.get(&kind.resource, &place).cloned() {
            self.without_finalizer(kind, &owner, FOREGROUND)?;
        }
        Ok(())
    }

    /// Deletes what is in a namespace, then the namespace.
    fn empty_namespace(&mut self, kind: &Kind, namespace: &Arc<Object>) -> Result<()> {
        let name = namespace.facts.name.clone();
        let mut left = Vec::new();
        for resource in self.store.resources() {
            let Some(of) = self.kinds.by_resource(&resource).cloned() else { continue };
            if !of.namespaced {
                continue;
            }
            let inside: Vec<Arc<Object>> = self.store.list(&resource, &name).cloned().collect();
            for object in inside {
                if !object.facts.deleting {
                    let propagation = Some(Propagation::Background);
                    self.remove(&of, &object, &DeleteOptions { propagation, ..DeleteOptions::default() })?;
                }
            }
            let remaining = self.store.list(&resource, &name).count();
            if remaining > 0 {
                left.push(format!("{resource} has {remaining} resource instances"));
            }
        }
        let Some(namespace) = self.store.get("namespaces", &name).cloned() else { return Ok(()) };
        let mut value = namespace.value();
        if left.is_empty() {
            if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("finalizers");
            }
            if namespace.facts.finalizers {
                if value != namespace.value() {
                    self.put(kind, value)?;
                }
                return Ok(());
            }
            self.erase(kind, value)?;
            return Ok(());
        }
        let message = format!("Some resources are remaining: {}", left.join(", "));
        let condition = json!([{
            "type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain",
            "message": message, "lastTransitionTime": seconds(self.now()),
        }]);
        if value.at("/status/conditions/0/message") != Some(&Value::String(message)) {
            value["status"]["conditions"] = condition;
            self.store.put(&kind.resource, value).map_err(crate::error::ApiError::internal)?;
            self.touched.insert(kind.resource.clone());
        }
        Ok(())
    }

    /// Deletes the objects of a definition's kind, then the definition.
    fn empty_definition(&mut self, kind: &Kind, definition: &Arc<Object>) -> Result<()> {
        let resource: Arc<str> = definition.facts.name.as_ref().into();
        if let Some(of) = self.kinds.by_resource(&resource).cloned() {
            let all: Vec<Arc<Object>> = self.store.list(&resource, "").cloned().collect();
            for object in all {
                if !object.facts.deleting {
                    self.remove(&of, &object, &DeleteOptions::default())?;
                }
            }
        }
        if self.store.count(&resource) == 0
            && let Some(definition) = self.store.get(&kind.resource, &resource).cloned()
            && has_finalizer(&definition, DEFINITION_FINALIZER)
        {
            self.without_finalizer(kind, &definition, DEFINITION_FINALIZER)?;
        }
        Ok(())
    }

    /// Every namespace has a default service account.
    fn furnish(&mut self, namespace: &str) -> Result<()> {
        if self.store.get("serviceaccounts", &key(namespace, "default")).is_some() {
            return Ok(());
        }
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        self.make("", "ServiceAccount", namespace, account)
    }
}

/// What became of an owner.
enum Found {
    Here(Arc<Kind>, Arc<Object>),
    Absent,
    /// Its kind is not one of ours: nobody can tell.
    Unknowable,
}

fn has_finalizer(object: &Object, finalizer: &str) -> bool {
    object.facts.finalizers
        && object
            .value()
            .at("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().any(|one| one == finalizer))
}
