//! Whether an answer contains what is expected.

use serde_json::Value;

/// The first place where `actual` does not contain `expected`. Null in `expected` means absent (or null).
pub(crate) fn difference(expected: &Value, actual: &Value, path: &str) -> Option<String> {
    match (expected, actual) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(key, value)| {
            difference(value, found.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"))
        }),
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => wanted
            .iter()
            .zip(found)
            .enumerate()
            .find_map(|(index, (wanted, found))| difference(wanted, found, &format!("{path}[{index}]"))),
        // 1 and 1.0 are one number to Kubernetes.
        (Value::Number(wanted), Value::Number(found)) if wanted.as_f64() == found.as_f64() => None,
        (wanted, found) if wanted == found => None,
        (wanted, found) => Some(format!("{path}: expected {wanted}, found {found}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_mentioned_does_not_matter() {
        assert_eq!(difference(&json!({"a": {"b": 1}}), &json!({"a": {"b": 1.0, "c": 2}}), ""), None);
    }

    #[test]
    fn null_means_absent() {
        assert_eq!(difference(&json!({"a": null}), &json!({}), ""), None);
        assert_eq!(
            difference(&json!({"a": null}), &json!({"a": 0}), ""),
            Some(".a: expected null, found 0".into())
        );
    }

    #[test]
    fn lists_have_the_same_length() {
        assert!(difference(&json!([1]), &json!([1, 2]), "").is_some());
        assert_eq!(
            difference(&json!([{}, {"a": 1}]), &json!([{"x": 1}, {"a": 2}]), ""),
            Some("[1].a: expected 1, found 2".into())
        );
    }
}
