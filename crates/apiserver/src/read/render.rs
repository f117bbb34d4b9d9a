//! How objects are shown: as they are, only their metadata, or as rows of a table.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::{Builtin, Kind, Source, Version, columns};
use crate::store::Object;
use crate::write::from_stored;

/// The form that a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// Rows, with this much of the object in each.
    Table(Included),
}

/// What a row of a table carries of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Included {
    Nothing,
    Metadata,
    Object,
}

/// The place of a kind's version from which objects are shown.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) version: &'a Version,
    pub(crate) form: Form,
    pub(crate) now: Timestamp,
}

impl View<'_> {
    /// One object, alone.
    pub(crate) fn object(&self, object: &Object) -> Bytes {
        match self.form {
            Form::Whole if self.version.storage && !self.kind.is(Builtin::NewEvent) => object.json.clone(),
            Form::Whole => {
                let mut out = Vec::with_capacity(object.json.len() + 32);
                self.whole(object, &mut out);
                out.into()
            }
            Form::Metadata => {
                let mut out = Vec::with_capacity(1024);
                only_metadata(object, &mut out);
                out.into()
            }
            Form::Table(_) => {
                let metadata = json!({"resourceVersion": object.revision.to_string()});
                let rows = vec![self.row(&object.value())];
                self.table(&metadata, rows, true).to_string().into()
            }
        }
    }

    /// A list; its metadata is given.
    pub(crate) fn list(&self, metadata: &Value, objects: &[std::sync::Arc<Object>]) -> Bytes {
        let (kind, api_version) = match self.form {
            Form::Whole => (self.kind.list_kind.as_str(), self.version.api_version.as_str()),
            Form::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
            Form::Table(_) => {
                let rows = objects.iter().map(|object| self.row(&object.value())).collect();
                return self.table(metadata, rows, true).to_string().into();
            }
        };
        let size: usize = objects.iter().map(|object| object.json.len() + 1).sum();
        let mut out = Vec::with_capacity(size + 256);
        out.extend_from_slice(
            format!(
                "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
            )
            .as_bytes(),
        );
        for (index, object) in objects.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match self.form {
                // Items of built-in kinds say by their list what they are.
                Form::Whole if self.kind.source != Source::Custom && !self.kind.is(Builtin::NewEvent) => {
                    out.push(b'{');
                    out.extend_from_slice(object.tail().get(1..).unwrap_or(b"}"));
                }
                Form::Whole => self.whole(object, &mut out),
                _ => only_metadata(object, &mut out),
            }
        }
        out.extend_from_slice(b"]}");
        out.into()
    }

    /// One event of a watch, as a line. `first` says that nothing was sent before.
    pub(crate) fn event(&self, kind: &str, object: &Object, first: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        match self.form {
            Form::Whole => self.whole(object, out),
            Form::Metadata => only_metadata(object, out),
            Form::Table(_) => {
                let metadata = json!({"resourceVersion": object.revision.to_string()});
                let table = self.table(&metadata, vec![self.row(&object.value())], first);
                out.extend_from_slice(table.to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"}\n");
    }

    /// Tells a watcher how far it is.
    pub(crate) fn bookmark(&self, revision: u64, initial_end: bool, out: &mut Vec<u8>) {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.form {
            Form::Whole => {
                json!({"kind": self.kind.kind, "apiVersion": self.version.api_version, "metadata": metadata})
            }
            Form::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Form::Table(_) => {
                let inner = json!({"kind": self.kind.kind, "apiVersion": self.version.api_version, "metadata": metadata});
                let list = json!({"resourceVersion": revision.to_string()});
                self.table(&list, vec![json!({"cells": [], "object": inner})], false)
            }
        };
        out.extend_from_slice(json!({"type": "BOOKMARK", "object": object}).to_string().as_bytes());
        out.push(b'\n');
    }

    fn whole(&self, object: &Object, out: &mut Vec<u8>) {
        if self.kind.is(Builtin::NewEvent) {
            let mut value = object.value();
            from_stored(self.kind, self.version, &mut value);
            out.extend_from_slice(value.to_string().as_bytes());
        } else if self.version.storage {
            out.extend_from_slice(&object.json);
        } else {
            let head =
                format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\"", self.version.api_version, self.kind.kind);
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(object.tail());
        }
    }

    fn table(&self, metadata: &Value, rows: Vec<Value>, definitions: bool) -> Value {
        let columns: Value = if definitions {
            let mut all = Vec::new();
            // Events put the time first; their name is one of the columns that -o wide shows.
            if !self.names_itself() {
                all.push(columns::name_column());
            }
            all.extend(self.version.columns.iter().map(columns::Column::definition));
            all.into()
        } else {
            Value::Null
        };
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": columns, "rows": rows,
        })
    }

    fn names_itself(&self) -> bool {
        matches!(self.kind.builtin(), Some(Builtin::Event | Builtin::NewEvent))
    }

    fn row(&self, object: &Value) -> Value {
        let mut cells = Vec::new();
        if !self.names_itself() {
            cells.push(object["metadata"]["name"].clone());
        }
        cells.extend(columns::cells(&self.version.columns, object, self.now));
        let mut row = json!({"cells": cells});
        match self.form {
            Form::Table(Included::Object) => {
                let mut object = object.clone();
                from_stored(self.kind, self.version, &mut object);
                row["object"] = object;
            }
            Form::Table(Included::Nothing) => {}
            _ => row["object"] = partial(object),
        }
        row
    }
}

/// The same as [`partial`], without reading the rest of the object.
fn only_metadata(object: &Object, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
    out.extend_from_slice(object.metadata().as_bytes());
    out.push(b'}');
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
