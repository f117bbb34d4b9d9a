//! What kinds of objects there are, built in or brought by a CustomResourceDefinition.

pub(crate) mod builtin;
pub(crate) mod columns;
pub(crate) mod custom;
pub(crate) mod definitions;
pub(crate) mod events;
pub(crate) mod jsonpath;
mod pod_columns;
pub(crate) mod quantity;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use trainyard_objects::{Schema, Shape};

pub(crate) use builtin::Builtin;
use columns::Column;

/// A kind: one table in the store, under one or more versions.
#[expect(clippy::struct_field_names, reason = "the API's own names")]
pub(crate) struct Kind {
    /// The name of its table: `pods`, `trainingjobs.ml.example.com`.
    pub(crate) resource: Arc<str>,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) versions: Vec<Version>,
    pub(crate) source: Source,
}

/// Where a kind comes from, and with it the rules that its objects obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Builtin(Builtin),
    Custom,
}

/// One version under which a kind is served.
#[expect(clippy::struct_field_names, reason = "the API's own names")]
pub(crate) struct Version {
    pub(crate) name: String,
    /// `v1`, `ml.example.com/v1`.
    pub(crate) api_version: String,
    pub(crate) served: bool,
    pub(crate) storage: bool,
    /// Said with every answer, if it is deprecated.
    pub(crate) warning: Option<String>,
    pub(crate) columns: Vec<Column>,
    pub(crate) has_status: bool,
    pub(crate) scale: Option<Scale>,
    pub(crate) selectable: Vec<String>,
    pub(crate) checks: Checks,
}

/// Where the numbers of the `scale` subresource are.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) spec_replicas: Vec<String>,
    pub(crate) status_replicas: Vec<String>,
    pub(crate) selector: Option<Vec<String>>,
}

/// The schema of a version, compiled when it is first needed.
pub(crate) struct Checks {
    source: Arc<dyn Fn() -> Value + Send + Sync>,
    compiled: OnceLock<Option<Arc<Schema>>>,
    shape: Option<OnceLock<Shape>>,
    named: (String, String),
}

impl Checks {
    /// Of a built-in kind: the schema is generated from its Rust type.
    pub(crate) fn builtin(group: &str, kind: &str, source: fn() -> Value) -> Self {
        Self {
            source: Arc::new(source),
            compiled: OnceLock::new(),
            shape: Some(OnceLock::new()),
            named: (group.to_owned(), kind.to_owned()),
        }
    }

    /// Of a custom kind: compiled already, when the definition was checked.
    pub(crate) fn custom(source: Value, schema: Arc<Schema>) -> Self {
        let compiled = OnceLock::new();
        let _ = compiled.set(Some(schema));
        Self { source: Arc::new(move || source.clone()), compiled, shape: None, named: Default::default() }
    }

    /// The schema as it is published.
    pub(crate) fn source(&self) -> Value {
        (self.source)()
    }

    pub(crate) fn schema(&self) -> Option<&Schema> {
        let compiled = self.compiled.get_or_init(|| match Schema::compile(&(self.source)()) {
            Ok(schema) => Some(Arc::new(schema)),
            Err(errors) => {
                tracing::error!(kind = self.named.1, "its own schema cannot be used: {errors:?}");
                None
            }
        });
        compiled.as_deref()
    }

    pub(crate) fn shape(&self) -> &Shape {
        static PLAIN: OnceLock<Shape> = OnceLock::new();
        if let Some(shape) = &self.shape {
            return shape.get_or_init(|| Shape::builtin(&self.named.0, &self.named.1));
        }
        self.schema().map_or_else(|| PLAIN.get_or_init(|| Shape::builtin("", "")), Schema::shape)
    }
}

impl Kind {
    pub(crate) fn storage(&self) -> &Version {
        // Every kind has a storage version; that is checked when it is made.
        self.versions.iter().find(|version| version.storage).unwrap_or(&self.versions[0])
    }

    pub(crate) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.served && version.name == name)
    }

    pub(crate) fn builtin(&self) -> Option<Builtin> {
        match self.source {
            Source::Builtin(builtin) => Some(builtin),
            Source::Custom => None,
        }
    }

    pub(crate) fn is(&self, builtin: Builtin) -> bool {
        self.source == Source::Builtin(builtin)
    }
}

/// All kinds.
#[derive(Default)]
pub(crate) struct Registry {
    /// By group and plural name.
    kinds: BTreeMap<(String, String), Arc<Kind>>,
    by_kind: BTreeMap<(String, String), Arc<Kind>>,
    /// Grows with every change, so that what was made from the kinds can be thrown away.
    pub(crate) edition: u64,
}

impl Registry {
    pub(crate) fn with_builtins() -> Self {
        let mut registry = Self::default();
        for kind in builtin::all() {
            registry.add(kind);
        }
        registry
    }

    pub(crate) fn add(&mut self, kind: Kind) {
        let kind = Arc::new(kind);
        self.edition += 1;
        self.by_kind.insert((kind.group.clone(), kind.kind.clone()), kind.clone());
        self.kinds.insert((kind.group.clone(), kind.plural.clone()), kind);
    }

    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        self.edition += 1;
        if let Some(kind) = self.kinds.remove(&(group.to_owned(), plural.to_owned())) {
            self.by_kind.remove(&(kind.group.clone(), kind.kind.clone()));
        }
    }

    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(&(group.to_owned(), plural.to_owned()))
    }

    pub(crate) fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.by_kind.get(&(group.to_owned(), kind.to_owned()))
    }

    /// The kind whose table has this name. Of the two names of events, the one that is stored.
    pub(crate) fn by_resource(&self, resource: &str) -> Option<&Arc<Kind>> {
        match resource.split_once('.') {
            Some((plural, group)) => self.find(group, plural),
            None => self.find("", resource),
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }
}
