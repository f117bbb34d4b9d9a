//! YAML files with positions: every value knows the line it came from.

use std::collections::BTreeMap;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use serde_json::{Map, Number, Value};
use trainyard_api::FieldPath;
use trainyard_api::problem::Segment;

/// One document of a file.
pub(crate) struct Document {
    pub(crate) value: Value,
    /// Line on which it starts.
    pub(crate) line: usize,
    lines: BTreeMap<Vec<Segment>, usize>,
}

/// Why a file is no YAML.
pub(crate) struct SyntaxError {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) message: String,
}

/// Reads all documents of a file.
pub(crate) fn documents(text: &str) -> Result<Vec<Document>, SyntaxError> {
    let nodes = MarkedYaml::load_from_str(text).map_err(|error| SyntaxError {
        line: error.marker().line(),
        column: error.marker().col() + 1,
        message: error.info().to_owned(),
    })?;
    let mut documents = Vec::new();
    for node in &nodes {
        let mut lines = BTreeMap::new();
        let value = convert(node, &mut Vec::new(), &mut lines)?;
        if !value.is_null() {
            documents.push(Document { value, line: node.span.start.line(), lines });
        }
    }
    Ok(documents)
}

impl Document {
    /// The line of a field; of a missing one, the line of what should contain it.
    pub(crate) fn line_of(&self, path: &FieldPath) -> usize {
        let mut segments = path.segments();
        loop {
            if let Some(line) = self.lines.get(segments) {
                return *line;
            }
            match segments.split_last() {
                Some((_, parent)) => segments = parent,
                None => return self.line,
            }
        }
    }
}

fn convert(
    node: &MarkedYaml<'_>,
    path: &mut Vec<Segment>,
    lines: &mut BTreeMap<Vec<Segment>, usize>,
) -> Result<Value, SyntaxError> {
    lines.entry(path.clone()).or_insert(node.span.start.line());
    let error = |message: &str| SyntaxError {
        line: node.span.start.line(),
        column: node.span.start.col() + 1,
        message: message.to_owned(),
    };
    Ok(match &node.data {
        YamlData::Value(scalar) => self::scalar(scalar),
        YamlData::Sequence(items) => {
            let mut values = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                path.push(Segment::Index(index));
                values.push(convert(item, path, lines)?);
                path.pop();
            }
            Value::Array(values)
        }
        YamlData::Mapping(fields) => {
            let mut object = Map::new();
            for (key, value) in fields {
                let name = match &key.data {
                    YamlData::Value(Scalar::String(name)) => name.to_string(),
                    YamlData::Value(other) => plain(&self::scalar(other)),
                    _ => return Err(error("a key must be a single word")),
                };
                path.push(Segment::Key(name.clone()));
                // The key's line, not that of a block below it.
                lines.insert(path.clone(), key.span.start.line());
                object.insert(name, convert(value, path, lines)?);
                path.pop();
            }
            Value::Object(object)
        }
        YamlData::Tagged(_, inner) => convert(inner, path, lines)?,
        YamlData::Alias(_) => return Err(error("aliases that refer forward are not understood")),
        YamlData::BadValue | YamlData::Representation(..) => return Err(error("this value cannot be read")),
    })
}

fn scalar(scalar: &Scalar<'_>) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Boolean(value) => Value::Bool(*value),
        Scalar::Integer(value) => Value::Number((*value).into()),
        Scalar::FloatingPoint(value) => {
            Number::from_f64(value.into_inner()).map_or(Value::Null, Value::Number)
        }
        Scalar::String(text) => Value::String(text.to_string()),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_know_their_lines() {
        let text = "a: 1\n---\nspec:\n  roles:\n  - name: x\n    replicas: 2\n";
        let documents = documents(text).unwrap_or_else(|error| panic!("{}", error.message));
        assert_eq!(documents.len(), 2);
        let spec = FieldPath::of(&["spec"]);
        assert_eq!(documents[1].line_of(&spec), 3);
        assert_eq!(documents[1].line_of(&spec.key("roles").index(0).key("replicas")), 6);
        assert_eq!(documents[1].line_of(&spec.key("image")), 3, "a missing field is at its parent");
    }
}
