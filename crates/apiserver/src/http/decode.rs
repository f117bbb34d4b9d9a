//! Bodies: JSON, YAML or (a few) protobuf, by what the client says it sends.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::Incoming;
use crate::error::{ApiError, Result};
use crate::kinds::{Kind, Source};
use crate::write::Patch;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const UNKNOWN: &str = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";

/// The body as an object of some kind.
pub(super) fn object(incoming: &Incoming, kind: &str) -> Result<Value> {
    tracked(incoming, kind, &mut Vec::new())
}

/// The body as an object; the paths of fields that it has more than once go to `duplicates`.
pub(super) fn tracked(incoming: &Incoming, kind: &str, duplicates: &mut Vec<String>) -> Result<Value> {
    let unrecognized = |why: String| {
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why}"))
    };
    let value = match incoming.content_type.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" | "*/*" => json(&incoming.body, duplicates)
            .map_err(|error| unrecognized(format!("couldn't get version/kind; json parse error: {error}")))?,
        PROTOBUF => super::protobuf::object(&incoming.body).ok_or_else(|| {
            ApiError::unsupported(
                "this protobuf body cannot be read here - accepted media types include: application/json, application/yaml",
            )
        })?,
        "application/yaml" | "application/x-yaml" | "text/yaml" => yaml(&incoming.body)?,
        _ => return Err(ApiError::unsupported(UNKNOWN)),
    };
    if value.is_object() {
        return Ok(value);
    }
    Err(unrecognized(
        "couldn't get version/kind; json parse error: json: cannot unmarshal it into an object".to_owned(),
    ))
}

/// The body as a patch, and of which kind.
pub(super) fn patch(incoming: &Incoming, kind: &Kind) -> Result<(Patch, Value)> {
    let media = incoming.content_type.split(';').next().unwrap_or_default().trim();
    let how = Patch::from_content_type(media)
        .filter(|how| *how != Patch::Strategic || kind.source != Source::Custom)
        .ok_or_else(|| {
            let strategic = match kind.source {
                Source::Custom => "",
                Source::Builtin(_) => "application/strategic-merge-patch+json, ",
            };
            ApiError::unsupported(format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, {strategic}application/apply-patch+yaml"
            ))
        })?;
    let value = match how {
        Patch::Apply => match serde_json::from_slice(&incoming.body) {
            Ok(value) => value,
            Err(_) => yaml(&incoming.body)?,
        },
        _ => serde_json::from_slice(&incoming.body)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?,
    };
    Ok((how, value))
}

fn yaml(bytes: &[u8]) -> Result<Value> {
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::bad_request("the body is not UTF-8"))?;
    serde_saphyr::from_str(text)
        .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))
}

fn json(bytes: &[u8], duplicates: &mut Vec<String>) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: &mut String::new(), duplicates }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads a value and notes the fields that come twice; the last one counts, as it does for Go.
struct Node<'a> {
    path: &'a mut String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        let length = self.path.len();
        loop {
            let _ = write!(self.path, "[{}]", all.len());
            let item = items.next_element_seed(Node { path: self.path, duplicates: self.duplicates })?;
            self.path.truncate(length);
            match item {
                Some(item) => all.push(item),
                None => return Ok(Value::Array(all)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        let length = self.path.len();
        while let Some(key) = entries.next_key::<String>()? {
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&key);
            let value = entries.next_value_seed(Node { path: self.path, duplicates: self.duplicates })?;
            if all.insert(key, value).is_some() && !self.duplicates.contains(self.path) {
                self.duplicates.push(self.path.clone());
            }
            self.path.truncate(length);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_come_twice_are_noted_and_the_last_one_counts() {
        let mut duplicates = Vec::new();
        let value =
            json(br#"{"a":[{"b":1,"b":2}],"c":{"d":1},"c":{"e":-1.5,"f":null}}"#, &mut duplicates).unwrap();
        assert_eq!(value, serde_json::json!({"a": [{"b": 2}], "c": {"e": -1.5, "f": null}}));
        assert_eq!(duplicates, ["a[0].b", "c"]);
        assert!(json(b"{} x", &mut duplicates).is_err());
    }
}
