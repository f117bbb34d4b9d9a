//! YAML files with positions: every value knows the line it came from.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use serde_json::{Map, Number, Value};
use trainyard_api::problem::Segment;
use trainyard_api::schema::nearest;
use trainyard_api::{FieldPath, Problem, names};

use crate::mistakes;

/// One document of a file.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) value: Value,
    /// Line on which it starts.
    pub(crate) line: usize,
    lines: Lines,
}

type Lines = BTreeMap<Vec<Segment>, usize>;

/// More than this is no manifest; the API server takes objects of up to 1.5 MB.
const SIZE_MAX: usize = 8 << 20;

/// Why a file is no YAML.
pub(crate) struct SyntaxError {
    line: usize,
    column: usize,
    pub(crate) message: String,
    /// The lines to look at, and what to do.
    explained: String,
}

impl SyntaxError {
    pub(crate) fn told(&self, file: &str) -> String {
        format!("{file}:{}:{}: {}{}", self.line, self.column, self.message, self.explained)
    }
}

/// The text of a file, or of standard input for `-`, and what to call it.
pub(crate) fn text_of(file: &Path) -> anyhow::Result<(String, String)> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("reading standard input")?;
        return Ok(("<stdin>".to_owned(), text));
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    Ok((file.display().to_string(), text))
}

/// Reads all documents of a file.
pub(crate) fn documents(text: &str) -> Result<Vec<Document>, SyntaxError> {
    if text.len() > SIZE_MAX {
        let message = format!("{} MB are too much for a manifest", text.len() >> 20);
        return Err(SyntaxError { line: 1, column: 1, message, explained: String::new() });
    }
    let nodes = MarkedYaml::load_from_str(text).map_err(|error| SyntaxError {
        line: error.marker().line(),
        column: error.marker().col() + 1,
        message: if error.info().contains("duplicate") {
            format!("a field is given twice: {}", error.info())
        } else {
            format!("this is not YAML: {}", error.info())
        },
        explained: mistakes::explained(text, error.marker().line(), error.marker().col() + 1),
    })?;
    let mut documents = Vec::new();
    for node in &nodes {
        let mut lines = Lines::new();
        let value = convert(node, &mut Vec::new(), &mut lines)?;
        if !value.is_null() {
            unpack(Document { value, line: node.span.start.line(), lines }, &mut documents);
        }
    }
    Ok(documents)
}

/// A `List` stands for its items.
fn unpack(document: Document, documents: &mut Vec<Document>) {
    let is_list =
        document.value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    let items = document.value.get("items").and_then(Value::as_array).filter(|_| is_list);
    let Some(items) = items else { return documents.push(document) };
    for (index, item) in items.iter().enumerate() {
        let prefix = [Segment::Key("items".to_owned()), Segment::Index(index)];
        let within = document.lines.iter().filter(|(path, _)| path.starts_with(&prefix));
        let lines: Lines = within.map(|(path, line)| (path[prefix.len()..].to_vec(), *line)).collect();
        let line = lines.get(&[][..]).copied().unwrap_or(document.line);
        unpack(Document { value: item.clone(), line, lines }, documents);
    }
}

impl Document {
    pub(crate) fn kind(&self) -> (String, String) {
        let field = |name: &str| self.value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        (field("apiVersion"), field("kind"))
    }

    /// Whether this is meant to be a TrainingJob, of whatever version.
    pub(crate) fn is_job(&self) -> bool {
        let (version, kind) = self.kind();
        kind == names::KIND && version.starts_with(names::GROUP)
    }

    /// What keeps this from being the TrainingJob that it looks like.
    pub(crate) fn nearly_a_job(&self) -> Option<Problem> {
        let (version, kind) = self.kind();
        let served = format!("{}/{}", names::GROUP, names::STORAGE_VERSION);
        // Others have resources of that name, and of similar ones, too.
        let meant = version.is_empty()
            || version.starts_with(names::GROUP)
            || nearest(&version, [served.as_str()].into_iter()).is_some();
        if kind == names::KIND {
            let message = format!("{version:?} is not known; did you mean {served}?");
            return meant.then(|| Problem::error(FieldPath::of(&["apiVersion"]), message));
        }
        nearest(&kind, [names::KIND].into_iter()).filter(|_| meant).map(|near| {
            Problem::error(FieldPath::of(&["kind"]), format!("{kind} is not known; did you mean {near}?"))
        })
    }

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

fn convert(node: &MarkedYaml<'_>, path: &mut Vec<Segment>, lines: &mut Lines) -> Result<Value, SyntaxError> {
    lines.entry(path.clone()).or_insert(node.span.start.line());
    let error = |message: &str| SyntaxError {
        line: node.span.start.line(),
        column: node.span.start.col() + 1,
        message: message.to_owned(),
        explained: String::new(),
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
            let mut merged = Vec::new();
            for (key, value) in fields {
                if matches!(&key.data, YamlData::Value(Scalar::String(name)) if name == "<<") {
                    merged.push(value);
                    continue;
                }
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
            for source in merged {
                merge_in(convert(source, path, lines)?, &mut object).map_err(error)?;
            }
            Value::Object(object)
        }
        YamlData::Tagged(_, inner) => convert(inner, path, lines)?,
        YamlData::Alias(_) => return Err(error("aliases that refer forward are not understood")),
        YamlData::BadValue | YamlData::Representation(..) => return Err(error("this value cannot be read")),
    })
}

/// A merge key (`<<: *defaults`): what the mapping says itself wins, and earlier sources win over later ones.
fn merge_in(source: Value, object: &mut Map<String, Value>) -> Result<(), &'static str> {
    match source {
        Value::Object(fields) => {
            for (name, value) in fields {
                object.entry(name).or_insert(value);
            }
            Ok(())
        }
        Value::Array(sources) => sources.into_iter().try_for_each(|source| merge_in(source, object)),
        _ => Err("<< takes a mapping, or a list of mappings"),
    }
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

    #[test]
    fn lists_are_unpacked_and_merge_keys_followed() {
        let text = "base: &base\n  cpu: 1\n  memory: 2Gi\nlimits:\n  <<: *base\n  cpu: 4\n";
        let read = documents(text).unwrap_or_else(|error| panic!("{}", error.message));
        assert_eq!(read[0].value["limits"], serde_json::json!({"cpu": 4, "memory": "2Gi"}));
        let text = "kind: List\nitems:\n- kind: A\n- kind: B\n  spec:\n    x: 1\n";
        let read = documents(text).unwrap_or_else(|error| panic!("{}", error.message));
        assert_eq!(read.iter().map(|document| &document.value["kind"]).collect::<Vec<_>>(), ["A", "B"]);
        assert_eq!((read[1].line, read[1].line_of(&FieldPath::of(&["spec", "x"]))), (4, 6));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (text, message) in [
            ("a: 1\na: 2\n", "a field is given twice"),
            ("a: [1\n", "this is not YAML"),
            ("a:\n  <<: 3\n", "<< takes a mapping"),
        ] {
            let error = documents(text).err().map(|error| error.message).unwrap_or_default();
            assert!(error.contains(message), "{text}: {error}");
        }
        assert!(documents(&"# a\n".repeat(3 << 20)).is_err());
    }
}
