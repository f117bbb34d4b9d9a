//! The protobuf bodies that kubectl sends whatever one says: `create namespace`, `auth can-i`, `drain` and the like.
//!
//! Only the messages in the tables below are read. A field that is not in them makes the body unreadable, because
//! leaving it out would be doing something else than was asked.

use serde_json::{Map, Value};

use crate::rules::base64;

/// What every such body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// How a field is read.
enum Kind {
    Text,
    Texts,
    Number,
    Flag,
    TextMap,
    BytesMap,
    AmountMap,
    Message(Table),
    Messages(Table),
    IntOrString,
    /// Only the server decides about it.
    Ignored,
}

use Kind::{
    AmountMap, BytesMap, Flag, Ignored, IntOrString, Message, Messages, Number, Text, TextMap, Texts,
};

/// Field number, name, how it is read.
type Table = &'static [(u64, &'static str, Kind)];

const OWNER: Table = &[
    (1, "kind", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "controller", Flag),
    (7, "blockOwnerDeletion", Flag),
];
const METADATA: Table = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (4, "selfLink", Ignored),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Ignored),
    (8, "creationTimestamp", Ignored),
    (9, "deletionTimestamp", Ignored),
    (10, "deletionGracePeriodSeconds", Ignored),
    (11, "labels", TextMap),
    (12, "annotations", TextMap),
    (13, "ownerReferences", Messages(OWNER)),
    (14, "finalizers", Texts),
    (17, "managedFields", Ignored),
];
const NAMESPACE: Table = &[
    (1, "metadata", Message(METADATA)),
    (2, "spec", Message(&[(1, "finalizers", Texts)])),
    (3, "status", Ignored),
];
const CONFIG_MAP: Table = &[
    (1, "metadata", Message(METADATA)),
    (2, "data", TextMap),
    (3, "binaryData", BytesMap),
    (4, "immutable", Flag),
];
const SECRET: Table = &[
    (1, "metadata", Message(METADATA)),
    (2, "data", BytesMap),
    (3, "type", Text),
    (4, "stringData", TextMap),
    (5, "immutable", Flag),
];
const REFERENCE: Table = &[
    (1, "kind", Text),
    (2, "namespace", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "resourceVersion", Text),
    (7, "fieldPath", Text),
];
const ACCOUNT: Table = &[
    (1, "metadata", Message(METADATA)),
    (2, "secrets", Messages(REFERENCE)),
    (3, "imagePullSecrets", Messages(&[(1, "name", Text)])),
    (4, "automountServiceAccountToken", Flag),
];
const QUOTA: Table = &[
    (1, "metadata", Message(METADATA)),
    (2, "spec", Message(&[(1, "hard", AmountMap), (2, "scopes", Texts)])),
    (3, "status", Ignored),
];
const PORT: Table = &[
    (1, "name", Text),
    (2, "protocol", Text),
    (3, "port", Number),
    (4, "targetPort", IntOrString),
    (5, "nodePort", Number),
    (6, "appProtocol", Text),
];
const SERVICE: Table = &[
    (1, "metadata", Message(METADATA)),
    (
        2,
        "spec",
        Message(&[
            (1, "ports", Messages(PORT)),
            (2, "selector", TextMap),
            (3, "clusterIP", Text),
            (4, "type", Text),
            (5, "externalIPs", Texts),
            (7, "sessionAffinity", Text),
            (8, "loadBalancerIP", Text),
            (9, "loadBalancerSourceRanges", Texts),
            (10, "externalName", Text),
            (11, "externalTrafficPolicy", Text),
            (12, "healthCheckNodePort", Number),
            (13, "publishNotReadyAddresses", Flag),
            (17, "ipFamilyPolicy", Text),
            (18, "clusterIPs", Texts),
            (19, "ipFamilies", Texts),
            (22, "internalTrafficPolicy", Text),
        ]),
    ),
    (3, "status", Ignored),
];
const PRIORITY_CLASS: Table = &[
    (1, "metadata", Message(METADATA)),
    (2, "value", Number),
    (3, "globalDefault", Flag),
    (4, "description", Text),
    (5, "preemptionPolicy", Text),
];
const DELETE_OPTIONS: Table = &[
    (1, "gracePeriodSeconds", Number),
    (2, "preconditions", Message(&[(1, "uid", Text), (2, "resourceVersion", Text)])),
    (3, "orphanDependents", Flag),
    (4, "propagationPolicy", Text),
    (5, "dryRun", Texts),
];
const EVICTION: Table = &[(1, "metadata", Message(METADATA)), (2, "deleteOptions", Message(DELETE_OPTIONS))];
const ACCESS_REVIEW: Table = &[
    (1, "metadata", Ignored),
    (
        2,
        "spec",
        Message(&[
            (
                1,
                "resourceAttributes",
                Message(&[
                    (1, "namespace", Text),
                    (2, "verb", Text),
                    (3, "group", Text),
                    (4, "version", Text),
                    (5, "resource", Text),
                    (6, "subresource", Text),
                    (7, "name", Text),
                ]),
            ),
            (2, "nonResourceAttributes", Message(&[(1, "path", Text), (2, "verb", Text)])),
        ]),
    ),
    (3, "status", Ignored),
];
const RULES_REVIEW: Table =
    &[(1, "metadata", Ignored), (2, "spec", Message(&[(1, "namespace", Text)])), (3, "status", Ignored)];
const EMPTY_REVIEW: Table = &[(1, "metadata", Ignored), (2, "status", Ignored)];

/// By `apiVersion` and `kind`.
const KINDS: &[(&str, &str, Table)] = &[
    ("v1", "Namespace", NAMESPACE),
    ("v1", "ConfigMap", CONFIG_MAP),
    ("v1", "Secret", SECRET),
    ("v1", "ServiceAccount", ACCOUNT),
    ("v1", "ResourceQuota", QUOTA),
    ("v1", "Service", SERVICE),
    ("scheduling.k8s.io/v1", "PriorityClass", PRIORITY_CLASS),
    ("policy/v1", "Eviction", EVICTION),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview", ACCESS_REVIEW),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview", RULES_REVIEW),
    ("authentication.k8s.io/v1", "SelfSubjectReview", EMPTY_REVIEW),
];

/// One field of a message, as it is on the wire.
#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The object of a body as JSON would have it; `None` when it is not one of those that are known here.
pub(super) fn object(body: &[u8]) -> Option<Value> {
    let envelope = fields(body.strip_prefix(MAGIC)?)?;
    let part = |number: u64| {
        envelope.iter().find_map(|(found, field)| match field {
            Field::Bytes(bytes) if *found == number => Some(*bytes),
            _ => None,
        })
    };
    let meta = read(part(1)?, &[(1, "apiVersion", Text), (2, "kind", Text)])?;
    let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = text("kind");
    // Delete options come under the name of any group.
    let table = if kind == "DeleteOptions" {
        DELETE_OPTIONS
    } else {
        KINDS.iter().find(|(version, name, _)| *version == text("apiVersion") && *name == kind)?.2
    };
    let mut object = read(part(2).unwrap_or_default(), table)?;
    object.extend(meta);
    Some(Value::Object(object))
}

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

/// Reads a message. Go writes empty fields too: they are the same as none.
fn read(bytes: &[u8], table: Table) -> Option<Map<String, Value>> {
    let mut out = Map::new();
    for (number, field) in fields(bytes)? {
        let (_, name, kind) = table.iter().find(|(known, _, _)| *known == number)?;
        let name = (*name).to_owned();
        match (kind, field) {
            (Ignored, _) => {}
            (Text, Field::Bytes(bytes)) => {
                let text = std::str::from_utf8(bytes).ok()?;
                if !text.is_empty() {
                    out.insert(name, text.into());
                }
            }
            (Texts, Field::Bytes(bytes)) => push(&mut out, name, std::str::from_utf8(bytes).ok()?.into()),
            (Number, Field::Number(number)) => {
                // A grace period of zero is an order.
                if number != 0 || name == "gracePeriodSeconds" {
                    out.insert(name, number.cast_signed().into());
                }
            }
            (Flag, Field::Number(flag)) => {
                out.insert(name, (flag != 0).into());
            }
            (TextMap | BytesMap | AmountMap, Field::Bytes(bytes)) => {
                let (key, value) = entry(kind, bytes)?;
                let map = out.entry(name).or_insert_with(|| Value::Object(Map::new()));
                map[key.as_str()] = value;
            }
            (Message(table), Field::Bytes(bytes)) => {
                out.insert(name, read(bytes, table)?.into());
            }
            (Messages(table), Field::Bytes(bytes)) => push(&mut out, name, read(bytes, table)?.into()),
            (IntOrString, Field::Bytes(bytes)) => {
                let parts = read(bytes, &[(1, "type", Number), (2, "int", Number), (3, "text", Text)])?;
                let value = match parts.get("text") {
                    Some(text) if parts.get("type").is_some() => text.clone(),
                    _ => parts.get("int").cloned().unwrap_or_else(|| 0.into()),
                };
                out.insert(name, value);
            }
            _ => return None,
        }
    }
    Some(out)
}

fn push(out: &mut Map<String, Value>, name: String, value: Value) {
    if let Value::Array(all) = out.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
        all.push(value);
    }
}

/// An entry of a map: key in field 1, value in field 2.
fn entry(kind: &Kind, bytes: &[u8]) -> Option<(String, Value)> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    for (number, field) in fields(bytes)? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => key = bytes,
            (2, Field::Bytes(bytes)) => value = bytes,
            _ => return None,
        }
    }
    let value = match kind {
        BytesMap => base64(value).into(),
        AmountMap => {
            read(value, &[(1, "amount", Text)])?.get("amount").cloned().unwrap_or_else(|| "0".into())
        }
        _ => std::str::from_utf8(value).ok()?.into(),
    };
    Some((std::str::from_utf8(key).ok()?.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(number: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(body.len()).unwrap()];
        out.extend_from_slice(body);
        out
    }

    fn body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, object)].concat()
    }

    #[test]
    fn what_kubectl_sends_is_read_and_rubbish_is_not() {
        let attributes = [field(1, b"default"), field(2, b"get"), field(5, b"pods")].concat();
        let review = field(2, &field(1, &attributes));
        assert_eq!(
            object(&body("authorization.k8s.io/v1", "SelfSubjectAccessReview", &review)),
            Some(json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}},
            }))
        );
        let secret = [
            field(1, &[field(1, b"s"), field(2, b"")].concat()),
            field(2, &[field(1, b"key"), field(2, b"hello")].concat()),
        ]
        .concat();
        assert_eq!(
            object(&body("v1", "Secret", &secret)),
            Some(
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"key": "aGVsbG8="}})
            )
        );
        assert_eq!(object(b"k8s\0\xff"), None);
        assert_eq!(object(b"{}"), None);
        assert_eq!(object(&body("v1", "Pod", &secret)), None, "a kind that is not in the tables");
        assert_eq!(object(&body("v1", "Secret", &field(9, b"x"))), None, "a field that is not in the tables");
    }
}
