//! Deleting: at once, or step by step when somebody has to be waited for.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};
use trainyard_objects::At as _;

use super::metadata_of;
use super::update::is_released;
use crate::clock::seconds;
use crate::error::{ApiError, Result};
use crate::kinds::{Builtin, Kind};
use crate::state::State;
use crate::store::Object;

/// What happens to the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// What a delete is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
}

/// What came of a delete.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// It is gone; this is its last form.
    Gone(Arc<Object>),
    /// It goes when everybody has let go of it.
    Going(Arc<Object>),
}

const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

impl State {
    /// Deletes an object as a request asks.
    pub(crate) fn delete(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted> {
        let live = self.find(kind, namespace, name)?;
        check(kind, &live, options)?;
        if kind.is(Builtin::Namespace) && ["default", "kube-system", "kube-public"].contains(&name) {
            return Err(ApiError::forbidden("", "namespaces", name, "this namespace may not be deleted"));
        }
        let deleted = self.remove(kind, &live, options)?;
        self.settle();
        Ok(deleted)
    }

    /// Deletes without drawing the consequences yet.
    pub(crate) fn remove(
        &mut self,
        kind: &Kind,
        live: &Arc<Object>,
        options: &DeleteOptions,
    ) -> Result<Deleted> {
        let mut value = live.value();
        let grace = grace(kind, &value, options.grace);
        let finalizers = finalizers(&value, options.propagation);
        let had = value.at("/metadata/finalizers").cloned().unwrap_or_else(|| json!([]));
        let waits = !finalizers.is_empty() || grace > 0 || kind.is(Builtin::Namespace);
        let orphans = finalizers.iter().any(|finalizer| finalizer == ORPHAN);
        let is_first = !live.facts.deleting;
        let now = self.now();
        let metadata = metadata_of(&mut value);
        if json!(finalizers) != had {
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
        let pending = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
        let sooner = pending.is_some_and(|pending| grace < pending);
        if is_first || sooner {
            let until = now + SignedDuration::from_secs(grace);
            metadata.insert("deletionTimestamp".to_owned(), seconds(until).into());
            metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
            if is_first && let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
                metadata.insert("generation".to_owned(), (generation + 1).into());
            }
        }
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        }
        if kind.is(Builtin::Namespace) {
            value["status"]["phase"] = "Terminating".into();
        }
        let gone = !waits || (!is_first && is_released(kind, &value));
        if options.dry_run {
            let object = self.pretended(value, Some(live));
            return Ok(if gone { Deleted::Gone(object) } else { Deleted::Going(object) });
        }
        if gone {
            // A client that is told of the end sees the object as it was, not as one that is being deleted.
            let last = if is_first { live.value() } else { value };
            return self.erase(kind, last).map(Deleted::Gone);
        }
        if !is_first && !sooner && json!(finalizers) == had {
            return Ok(Deleted::Going(live.clone()));
        }
        let object = self.put(kind, value)?;
        if orphans {
            return self.orphan(kind, &object);
        }
        Ok(Deleted::Going(object))
    }

    /// Deletes everything of a kind that is selected; what was there is returned.
    pub(crate) fn delete_all(
        &mut self,
        kind: &Kind,
        selected: Vec<Arc<Object>>,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Object>>> {
        let mut done = Vec::with_capacity(selected.len());
        for object in selected {
            // An earlier one may have taken it along.
            let Ok(live) = self.find(kind, &object.facts.namespace, &object.facts.name) else { continue };
            match self.delete(kind, &live.facts.namespace, &live.facts.name, options) {
                Ok(Deleted::Gone(object) | Deleted::Going(object)) => done.push(object),
                Err(error) if error.code() == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Lets the dependents of an object go, then the object as far as nothing else holds it.
    fn orphan(&mut self, kind: &Kind, object: &Arc<Object>) -> Result<Deleted> {
        for (resource, dependent) in self.store.dependents(&object.facts.uid) {
            let Some(of) = self.kinds.by_resource(&resource).cloned() else { continue };
            let mut value = dependent.value();
            disown(&mut value, &object.facts.uid);
            self.put(&of, value)?;
        }
        self.without_finalizer(kind, object, ORPHAN)
    }

    /// Removes one finalizer; the object goes with the last one.
    pub(crate) fn without_finalizer(
        &mut self,
        kind: &Kind,
        object: &Arc<Object>,
        finalizer: &str,
    ) -> Result<Deleted> {
        let mut value = object.value();
        let metadata = metadata_of(&mut value);
        if let Some(Value::Array(all)) = metadata.get_mut("finalizers") {
            all.retain(|one| one != finalizer);
            if all.is_empty() {
                metadata.remove("finalizers");
            }
        }
        if is_released(kind, &value) {
            self.erase(kind, value).map(Deleted::Gone)
        } else {
            self.put(kind, value).map(Deleted::Going)
        }
    }
}

/// Takes the references to an owner out of an object.
pub(crate) fn disown(value: &mut Value, uid: &str) {
    let metadata = metadata_of(value);
    if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
        owners.retain(|owner| owner["uid"] != uid);
        if owners.is_empty() {
            metadata.remove("ownerReferences");
        }
    }
}

fn check(kind: &Kind, live: &Object, options: &DeleteOptions) -> Result<()> {
    let name = &*live.facts.name;
    let conflict = |why: &str| ApiError::conflict(&kind.group, &kind.kind, name, why);
    if let Some(uid) = options.uid.as_deref()
        && uid != &*live.facts.uid
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            live.facts.uid
        );
        return Err(conflict(&why));
    }
    if let Some(version) = options.resource_version.as_deref()
        && version != live.revision.to_string()
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            live.revision
        );
        return Err(conflict(&why));
    }
    Ok(())
}

/// How long an object may take to go. Only pods that run somewhere have something to end in order.
fn grace(kind: &Kind, value: &Value, asked: Option<i64>) -> i64 {
    if !kind.is(Builtin::Pod) {
        return 0;
    }
    let placed = value.at("/spec/nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty());
    let over = matches!(value.at("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    if !placed || over {
        return 0;
    }
    let own = value.at("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    let deleting = value.at("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let grace = asked.or(deleting).or(own).unwrap_or(30);
    // A negative period is one second, as it is for Kubernetes.
    if grace < 0 { 1 } else { grace }
}

/// The finalizers with which an object goes.
fn finalizers(value: &Value, propagation: Option<Propagation>) -> Vec<String> {
    let mut finalizers: Vec<String> = value
        .at("/metadata/finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let Some(propagation) = propagation else { return finalizers };
    finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
        Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
    }
    finalizers
}
