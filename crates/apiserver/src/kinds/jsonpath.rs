//! The JSON paths of printer columns: fields, indexes, wildcards and filters by equality.

use serde_json::Value;

/// A path that can be followed in any object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    /// `[?(@.type=="Ready")]`: elements whose field (by a path) has this value.
    Where(Vec<String>, bool, String),
}

impl JsonPath {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`. `None` when it cannot be understood.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = field_end(after);
                let name = &after[..end];
                if name.is_empty() && !after.starts_with('[') {
                    return None;
                }
                match name {
                    "" => {}
                    "*" => steps.push(Step::Every),
                    name => steps.push(Step::Field(name.replace('\\', ""))),
                }
                rest = &after[end..];
            } else if let Some(after) = rest.strip_prefix('[') {
                let end = closing(after)?;
                steps.push(bracket(&after[..end])?);
                rest = &after[end + 1..];
            } else {
                return None;
            }
        }
        Some(Self(steps))
    }

    /// Everything in an object that the path leads to.
    pub(crate) fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![object];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.from(value)).collect();
        }
        found
    }
}

/// Where a field's name ends: at a dot or bracket that is not escaped.
fn field_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '.' | '[' => return at,
            _ => {}
        }
    }
    text.len()
}

/// Where a bracket closes, outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, ']') => return Some(at),
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    let unquoted = |text: &str| {
        let text = text.trim();
        let inner = text.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"'])?;
        Some(inner.to_owned())
    };
    if text == "*" {
        return Some(Step::Every);
    }
    if let Some(field) = unquoted(text) {
        return Some(Step::Field(field));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        let (path, equal, value) = match (filter.split_once("=="), filter.split_once("!=")) {
            (Some((path, value)), _) => (path, true, value),
            (None, Some((path, value))) => (path, false, value),
            (None, None) => return None,
        };
        let path = path.trim().strip_prefix("@.")?.split('.').map(str::to_owned).collect();
        return Some(Step::Where(path, equal, unquoted(value).unwrap_or_else(|| value.trim().to_owned())));
    }
    text.parse().ok().map(Step::Index)
}

impl Step {
    fn from<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let Some(items) = value.as_array() else { return Vec::new() };
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at = if *index < 0 { length + index } else { *index };
                usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
            }
            Self::Every => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Self::Where(path, equal, wanted) => value
                .as_array()
                .into_iter()
                .flatten()
                .filter(|item| {
                    let found = path.iter().try_fold(*item, |value, name| value.get(name));
                    let same = found.is_some_and(|found| match found {
                        Value::String(text) => text == wanted,
                        Value::Bool(flag) => wanted.parse() == Ok(*flag),
                        Value::Number(number) => wanted.parse().ok() == number.as_f64(),
                        _ => false,
                    });
                    same == *equal
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_of_columns_are_followed() {
        let object = json!({"metadata": {"annotations": {"a.b/c": "x"}}, "status": {"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}], "list": [1, 2, 3]}});
        let found = |path: &str| {
            let path = JsonPath::parse(path).unwrap();
            path.find(&object).into_iter().cloned().collect::<Vec<_>>()
        };
        assert_eq!(found(".status.conditions[?(@.type==\"Ready\")].status"), [json!("True")]);
        assert_eq!(found(".status.conditions[?(@.type!='Ready')].status"), [json!("False")]);
        assert_eq!(found(".status.list[1]"), [json!(2)]);
        assert_eq!(found(".status.list[-1]"), [json!(3)]);
        assert_eq!(found(".status.list[*]").len(), 3);
        assert_eq!(found(".metadata.annotations['a.b/c']"), [json!("x")]);
        assert_eq!(found(".metadata.annotations.a\\.b/c"), [json!("x")]);
        assert_eq!(JsonPath::parse("status"), None);
    }
}
