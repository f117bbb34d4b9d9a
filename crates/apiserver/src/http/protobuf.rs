//! The few protobuf bodies that kubectl sends whatever one says. Everything else is refused: send JSON.

use serde_json::{Map, Value, json};

/// What every such body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// One field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in their order. `None` when it cannot be read.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (value, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Field::Bytes(value)
            }
            _ => return None,
        };
        all.push((tag >> 3, field));
    }
    Some(all)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The object in the envelope (`runtime.Unknown`).
fn unwrapped(body: &[u8]) -> Option<&[u8]> {
    fields(body.strip_prefix(MAGIC)?)?.into_iter().find_map(|field| match field {
        (2, Field::Bytes(raw)) => Some(raw),
        _ => None,
    })
}

fn message<'a>(fields: &[(u64, Field<'a>)], number: u64) -> Option<&'a [u8]> {
    fields.iter().find_map(|(found, field)| match field {
        Field::Bytes(bytes) if *found == number => Some(*bytes),
        _ => None,
    })
}

fn texts(bytes: &[u8], names: &[(u64, &str)]) -> Option<Map<String, Value>> {
    let mut out = Map::new();
    for (number, field) in fields(bytes)? {
        if let Field::Bytes(text) = field
            && let Some((_, name)) = names.iter().find(|(known, _)| *known == number)
            && let Ok(text) = std::str::from_utf8(text)
        {
            out.insert((*name).to_owned(), text.into());
        }
    }
    Some(out)
}

/// The spec of a `SelfSubjectAccessReview`.
pub(super) fn access_review(body: &[u8]) -> Option<Value> {
    let review = fields(unwrapped(body)?)?;
    let spec = fields(message(&review, 2)?)?;
    let mut out = Map::new();
    if let Some(resource) = message(&spec, 1) {
        let names = [
            (1, "namespace"),
            (2, "verb"),
            (3, "group"),
            (4, "version"),
            (5, "resource"),
            (6, "subresource"),
            (7, "name"),
        ];
        out.insert("resourceAttributes".to_owned(), texts(resource, &names)?.into());
    }
    if let Some(other) = message(&spec, 2) {
        out.insert("nonResourceAttributes".to_owned(), texts(other, &[(1, "path"), (2, "verb")])?.into());
    }
    Some(Value::Object(out))
}

/// `DeleteOptions`, as JSON would say them.
pub(super) fn delete_options(body: &[u8]) -> Option<Value> {
    let mut out = json!({});
    for (number, field) in fields(unwrapped(body)?)? {
        match (number, field) {
            (1, Field::Number(grace)) => out["gracePeriodSeconds"] = grace.cast_signed().into(),
            (2, Field::Bytes(preconditions)) => {
                out["preconditions"] = texts(preconditions, &[(1, "uid"), (2, "resourceVersion")])?.into();
            }
            (3, Field::Number(orphan)) => out["orphanDependents"] = (orphan != 0).into(),
            (4, Field::Bytes(policy)) => {
                out["propagationPolicy"] = std::str::from_utf8(policy).ok()?.into();
            }
            (5, Field::Bytes(dry)) => out["dryRun"] = json!([std::str::from_utf8(dry).ok()?]),
            // Anything newer might change what is asked: better to refuse than to guess.
            _ => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(body.len()).unwrap()];
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn a_review_is_read_and_rubbish_is_not() {
        let attributes = [field(1, b"default"), field(2, b"get"), field(5, b"pods")].concat();
        let spec = field(1, &attributes);
        let object = field(2, &spec);
        let body = [MAGIC.to_vec(), field(1, b""), field(2, &object)].concat();
        assert_eq!(
            access_review(&body),
            Some(json!({"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}))
        );
        assert_eq!(access_review(b"k8s\0\xff"), None);
        assert_eq!(access_review(b"{}"), None);
    }
}
