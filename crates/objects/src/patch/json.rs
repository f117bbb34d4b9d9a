//! JSON patch (RFC 6902), with the habits of the API server's own implementation.
//!
//! Not the json-patch crate: the server counts negative indices from the end, takes a missing `value` as null, sets a missing field with `replace`,
//! lets `test` compare a missing field with null, and its messages are part of what clients see.

use serde_json::Value;

use super::PatchError;

/// More operations than the API server takes in one patch.
const MOST_OPERATIONS: usize = 10_000;

/// Applies the operations in order to a copy of `target`; all or none.
pub fn json(target: &Value, operations: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = operations else {
        let found = match operations {
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            Value::Null | Value::Array(_) => "null",
        };
        return Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
        )));
    };
    if operations.len() > MOST_OPERATIONS {
        return Err(PatchError::Unapplicable(format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut document = target.clone();
    for operation in operations {
        apply(&mut document, operation).map_err(PatchError::Unapplicable)?;
    }
    Ok(document)
}

fn apply(document: &mut Value, operation: &Value) -> Result<(), String> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let kind = text("op").unwrap_or("unknown");
    let path = |document: &Value| match text("path") {
        Some(path) => Path::find(document, path),
        None => Err(None),
    };
    let missing = |problem: Option<String>, place: &str, path: &str| match problem {
        Some(problem) => problem,
        None => format!("{kind} operation does not apply: {place}: {path}: missing value"),
    };
    let given_path = text("path").unwrap_or_default();
    let given_from = text("from").unwrap_or_default();
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    if text("path").is_none() {
        return Err(format!("{kind} operation failed to decode path: missing value"));
    }
    match kind {
        "add" => {
            let place = format!("doc is missing path: \"{given_path}\"");
            let at = path(document)
                .map_err(|p| p.unwrap_or(format!("add operation does not apply: {place}: missing value")))?;
            at.add(document, value())
                .map_err(|error| format!("error in add for path: '{given_path}': {error}"))
        }
        "remove" => {
            let place = format!("doc is missing path: \"{given_path}\"");
            let at = path(document).map_err(|p| {
                p.unwrap_or(format!("remove operation does not apply: {place}: missing value"))
            })?;
            at.remove(document)
                .map(drop)
                .map_err(|error| format!("error in remove for path: '{given_path}': {error}"))
        }
        "replace" => {
            if given_path.is_empty() {
                *document = value();
                return Ok(());
            }
            let at = path(document).map_err(|p| missing(p, "doc is missing path", given_path))?;
            at.replace(document, value()).ok_or_else(|| missing(None, "doc is missing key", given_path))
        }
        "move" => {
            let from = Path::find(document, given_from)
                .map_err(|p| missing(p, "doc is missing from path", given_from))?;
            let moved = from
                .remove(document)
                .map_err(|error| format!("error in move for path: '{}': {error}", from.last))?;
            let at = path(document).map_err(|p| missing(p, "doc is missing destination path", given_path))?;
            at.add(document, moved)
                .map_err(|error| format!("error in move for path: '{given_path}': {error}"))
        }
        "copy" => {
            let from = Path::find(document, given_from)
                .map_err(|p| missing(p, "doc is missing from path", given_from))?;
            let copied = match from.get_mut(document).map(|found| found.clone()) {
                Some(found) => found,
                None if from.parent(document).is_some_and(Value::is_object) => Value::Null,
                None => {
                    return Err(format!(
                        "error in copy for from: '{given_from}': Unable to access invalid index: {}: invalid index \
                         referenced",
                        from.last
                    ));
                }
            };
            let at = path(document).map_err(|p| missing(p, "doc is missing destination path", given_path))?;
            at.add(document, copied).map_err(|error| format!("error while adding value during copy: {error}"))
        }
        "test" => {
            let expected = value();
            let found = if given_path.is_empty() {
                Some(&*document)
            } else {
                let at = path(document).map_err(|p| missing(p, "is missing path", given_path))?;
                at.get_mut(document).map(|found| &*found)
            };
            if found.unwrap_or(&Value::Null) == &expected {
                Ok(())
            } else {
                Err(format!("testing value {given_path} failed: test failed"))
            }
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

/// A place in a document: a parent that exists and the last step, which need not.
struct Path {
    parents: Vec<String>,
    last: String,
}

impl Path {
    /// `Err(None)` if the parent does not exist.
    fn find(document: &Value, pointer: &str) -> Result<Self, Option<String>> {
        let mut steps: Vec<String> =
            pointer.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        // A pointer starts with a slash; what stands before it is ignored, as the server does.
        steps.remove(0);
        let last = steps.pop().ok_or(None)?;
        let path = Self { parents: steps, last };
        match path.parent(document) {
            Some(Value::Object(_) | Value::Array(_)) => Ok(path),
            _ => Err(None),
        }
    }

    fn parent<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        self.parents.iter().try_fold(document, |value, step| match value {
            Value::Object(fields) => fields.get(step),
            Value::Array(items) => items.get(index(step, items.len())?),
            _ => None,
        })
    }

    fn parent_mut<'a>(&self, document: &'a mut Value) -> Option<&'a mut Value> {
        self.parents.iter().try_fold(document, |value, step| match value {
            Value::Object(fields) => fields.get_mut(step),
            Value::Array(items) => {
                let index = index(step, items.len())?;
                items.get_mut(index)
            }
            _ => None,
        })
    }

    fn get_mut<'a>(&self, document: &'a mut Value) -> Option<&'a mut Value> {
        match self.parent_mut(document)? {
            Value::Object(fields) => fields.get_mut(&self.last),
            Value::Array(items) => {
                let index = index(&self.last, items.len())?;
                items.get_mut(index)
            }
            _ => None,
        }
    }

    /// Sets a field, even one that is not there, as the server's own implementation does; or an item that is.
    fn replace(&self, document: &mut Value, value: Value) -> Option<()> {
        match self.parent_mut(document)? {
            Value::Object(fields) => {
                fields.insert(self.last.clone(), value);
            }
            Value::Array(items) => {
                let index = index(&self.last, items.len())?;
                items[index] = value;
            }
            _ => return None,
        }
        Some(())
    }

    fn add(&self, document: &mut Value, value: Value) -> Result<(), String> {
        match self.parent_mut(document) {
            Some(Value::Object(fields)) => {
                fields.insert(self.last.clone(), value);
                Ok(())
            }
            Some(Value::Array(items)) if self.last == "-" => {
                items.push(value);
                Ok(())
            }
            Some(Value::Array(items)) => {
                // Inserting may also happen just behind the end.
                let at = index(&self.last, items.len() + 1).ok_or_else(|| self.bad_index())?;
                items.insert(at, value);
                Ok(())
            }
            _ => Err("missing value".to_owned()),
        }
    }

    fn remove(&self, document: &mut Value) -> Result<Value, String> {
        match self.parent_mut(document) {
            Some(Value::Object(fields)) => fields
                .remove(&self.last)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {}: missing value", self.last)),
            Some(Value::Array(items)) => {
                let at = index(&self.last, items.len()).ok_or_else(|| self.bad_index())?;
                Ok(items.remove(at))
            }
            _ => Err("missing value".to_owned()),
        }
    }

    fn bad_index(&self) -> String {
        if self.last.parse::<i64>().is_ok() {
            format!("Unable to access invalid index: {}: invalid index referenced", self.last)
        } else {
            let last = &self.last;
            format!(
                "value was not a proper array index: '{last}': strconv.Atoi: parsing \"{last}\": invalid syntax"
            )
        }
    }
}

fn index(step: &str, length: usize) -> Option<usize> {
    let number: i64 = step.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if number < 0 { number + length } else { number };
    usize::try_from(index).ok().filter(|_| index < length)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations() {
        let table = [
            (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
            (
                json!({"a": [1, 2]}),
                json!([{"op": "add", "path": "/a/1", "value": 9}]),
                json!({"a": [1, 9, 2]}),
            ),
            (
                json!({"a": [1, 2]}),
                json!([{"op": "add", "path": "/a/-", "value": 9}]),
                json!({"a": [1, 2, 9]}),
            ),
            (
                json!({"a": [1, 2]}),
                json!([{"op": "add", "path": "/a/2", "value": 9}]),
                json!({"a": [1, 2, 9]}),
            ),
            (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1]})),
            (json!({"a": {"b/c~": 1}}), json!([{"op": "remove", "path": "/a/b~1c~0"}]), json!({"a": {}})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": 2}]), json!({"a": 2})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/a"}]), json!({"a": null})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
            (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), json!({"b": 1})),
            (json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"a": 1, "b": 1})),
            (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1}]), json!({"a": 1})),
            (json!({"a": 1}), json!([{"op": "test", "path": "/b", "value": null}]), json!({"a": 1})),
        ];
        for (target, patch, expected) in table {
            assert_eq!(json(&target, &patch), Ok(expected), "{patch}");
        }
    }

    #[test]
    fn what_cannot_be_applied_is_told() {
        let target = json!({"a": 1, "list": [1]});
        let table = [
            (json!([{"op": "test", "path": "/a", "value": 2}]), "testing value /a failed: test failed"),
            (
                json!([{"op": "remove", "path": "/x"}]),
                "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
            ),
            (
                json!([{"op": "replace", "path": "/list/9", "value": 1}]),
                "replace operation does not apply: doc is missing key: /list/9: missing value",
            ),
            (
                json!([{"op": "replace", "path": "/x/y", "value": 1}]),
                "replace operation does not apply: doc is missing path: /x/y: missing value",
            ),
            (
                json!([{"op": "add", "path": "/x/y", "value": 1}]),
                "add operation does not apply: doc is missing path: \"/x/y\": missing value",
            ),
            (
                json!([{"op": "add", "path": "/list/5", "value": 1}]),
                "error in add for path: '/list/5': Unable to access invalid index: 5: invalid index referenced",
            ),
            (json!([{"op": "bake", "path": "/a"}]), "Unexpected kind: bake"),
        ];
        for (patch, expected) in table {
            assert_eq!(json(&target, &patch), Err(PatchError::Unapplicable(expected.to_owned())), "{patch}");
        }
        assert!(matches!(json(&target, &json!({})), Err(PatchError::Malformed(_))));
    }
}
