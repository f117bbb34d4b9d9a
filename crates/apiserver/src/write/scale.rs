//! The `scale` subresource of custom kinds: a view of two numbers, and a way to change one of them.

use serde_json::{Map, Value, json};
use trainyard_objects::{At as _, FieldError, patch};

use super::{Options, Part, Patch, Undecodable, from_stored, json_type};
use crate::error::{ApiError, Result};
use crate::kinds::{Kind, Scale, Version};
use crate::state::State;
use crate::store::Object;

impl State {
    /// The `Scale` of an object.
    pub(crate) fn scale(&self, kind: &Kind, scale: &Scale, namespace: &str, name: &str) -> Result<Value> {
        let object = self.find(kind, namespace, name)?;
        view(scale, &object)
    }

    /// Replaces the number of replicas.
    pub(crate) fn update_scale(
        &mut self,
        kind: &Kind,
        version: &Version,
        scale: &Scale,
        (namespace, name): (&str, &str),
        body: &Value,
        options: &Options,
    ) -> Result<Value> {
        let live = self.find(kind, namespace, name)?;
        if body.text_at("/kind") != "Scale" || body.text_at("/apiVersion") != "autoscaling/v1" {
            return Err(ApiError::bad_request(format!(
                "wrong object passed to Scale update: {} {} instead of autoscaling/v1 Scale",
                body.text_at("/apiVersion"),
                body.text_at("/kind")
            )));
        }
        let replicas = match body.at("/spec/replicas") {
            None | Some(Value::Null) => 0,
            Some(number) => {
                number.as_i64().filter(|number| i32::try_from(*number).is_ok()).ok_or_else(|| {
                    Undecodable(format!(
                    "json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
                    json_type(number)
                ))
                .of_patch(body)
                })?
            }
        };
        let mut new = live.value();
        from_stored(kind, version, &mut new);
        set(&mut new, &scale.spec_replicas, replicas.into());
        // The object's own version and uid, unless the caller insists on others.
        for key in ["resourceVersion", "uid"] {
            let wanted = body.text_at(&format!("/metadata/{key}"));
            if !wanted.is_empty() {
                set(&mut new, &["metadata".to_owned(), key.to_owned()], wanted.into());
            }
        }
        let written = self.replace(kind, version, &live, Part::Scale, new, options, None)?;
        view(scale, &written.object)
    }

    /// Patches the `Scale` of an object.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own, and there is one caller")]
    pub(crate) fn patch_scale(
        &mut self,
        kind: &Kind,
        version: &Version,
        scale: &Scale,
        place: (&str, &str),
        how: Patch,
        change: &Value,
        options: &Options,
    ) -> Result<Value> {
        // What has no number yet can be given one.
        let live = self.find(kind, place.0, place.1)?;
        let mut current = shown(scale, &live, 0);
        // A patch that names no version means whichever there is.
        if let Some(metadata) = current.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        let new = match how {
            Patch::Json => {
                patch::json(&current, change).map_err(|error| ApiError::bad_request(error.to_string()))?
            }
            Patch::Merge | Patch::Strategic => {
                let mut new = current;
                patch::merge(&mut new, change);
                new
            }
            Patch::Apply => {
                return Err(ApiError::unsupported(
                    "server-side apply of the scale subresource is not supported here: use a merge patch",
                ));
            }
        };
        self.update_scale(kind, version, scale, place, &new, options)
    }
}

/// A number of replicas that cannot be.
pub(super) fn negative(version: &Version, value: &Value) -> Option<FieldError> {
    let path = &version.scale.as_ref()?.spec_replicas;
    let number = at(value, path)?.as_i64().filter(|number| *number < 0)?;
    Some(FieldError::invalid(format!(".{}", path.join(".")), number, "should be a non-negative integer"))
}

fn view(scale: &Scale, object: &Object) -> Result<Value> {
    let value = object.value();
    let number = |path: &[String]| at(&value, path).and_then(Value::as_i64);
    let Some(replicas) = number(&scale.spec_replicas) else {
        let path = format!(".{}", scale.spec_replicas.join("."));
        return Err(ApiError::internal(format!("the spec replicas field \"{path}\" does not exist")));
    };
    Ok(shown(scale, object, replicas))
}

fn shown(scale: &Scale, object: &Object, otherwise: i64) -> Value {
    let value = object.value();
    let number = |path: &[String]| at(&value, path).and_then(Value::as_i64);
    let replicas = number(&scale.spec_replicas).unwrap_or(otherwise);
    let mut metadata = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(found) = value["metadata"].get(key) {
            metadata.insert(key.to_owned(), found.clone());
        }
    }
    let mut status = json!({"replicas": number(&scale.status_replicas).unwrap_or(0)});
    if let Some(selector) = scale.selector.as_ref().and_then(|path| at(&value, path)).and_then(Value::as_str)
    {
        status["selector"] = selector.into();
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": replicas}, "status": status,
    })
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

fn set(value: &mut Value, path: &[String], new: Value) {
    let mut place = value;
    for key in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[key.as_str()];
    }
    *place = new;
}
