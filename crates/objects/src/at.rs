//! Looking at a place in an object.

use serde_json::Value;

/// A place in a value by its path. Unlike a JSON pointer, the path has no escapes, so looking costs no memory; names that
/// may hold a slash are asked for with `get`.
pub trait At {
    /// The value at a path such as `/metadata/name` or `/status/conditions/0`.
    fn at(&self, path: &str) -> Option<&Value>;

    /// The text there, or none.
    fn text_at(&self, path: &str) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }
}

impl At for Value {
    fn at(&self, path: &str) -> Option<&Value> {
        let mut value = self;
        for step in path.strip_prefix('/')?.split('/') {
            value = match value {
                Self::Object(fields) => fields.get(step)?,
                Self::Array(items) => items.get(step.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_place_is_found_by_its_path() {
        let object = json!({"a": {"b": [{"c": "x"}]}, "n": 1});
        assert_eq!(object.text_at("/a/b/0/c"), "x");
        assert_eq!(object.at("/n"), Some(&json!(1)));
        for nothing in ["", "a", "/a/x", "/a/b/1", "/a/b/x", "/n/x", "/"] {
            assert_eq!(object.at(nothing), None, "{nothing}");
        }
        assert_eq!(object.text_at("/n"), "");
    }
}
