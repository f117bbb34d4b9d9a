//! OpenAPI v3: the schemas that `kubectl explain` reads, and the options that `kubectl apply` looks for.
//!
//! Made when somebody asks, and kept until the kinds change.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::discovery;
use crate::kinds::{Kind, Source, Version};
use crate::shared::Shared;

/// `/openapi/v3`: where the documents are.
pub(crate) fn index(shared: &Shared) -> Value {
    let state = shared.lock();
    let edition = state.kinds.edition;
    let paths: Map<String, Value> = discovery::paths(&state.kinds)
        .into_iter()
        .map(|(path, _, _)| {
            let mut hasher = DefaultHasher::new();
            (edition, &path).hash(&mut hasher);
            let url = format!("/openapi/v3/{path}?hash={:016X}", hasher.finish());
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// The form in which `kubectl` asks for version 2, and what it is called in the answer: `@` has no place in a media type.
pub(crate) const OLD_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const OLD_BINARY: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v2`: a document that knows no kind. Clients look here for kinds that version 3 does not tell of, and go on to say that
/// there is no such kind; an error instead would be taken for a server that is out of order.
pub(crate) fn old(binary: bool) -> (&'static str, Vec<u8>) {
    let (title, version) = ("Trainyard: schemas are in /openapi/v3", env!("CARGO_PKG_VERSION"));
    if !binary {
        let document = json!({"swagger": "2.0", "info": {"title": title, "version": version}, "paths": {}});
        return ("application/json", document.to_string().into_bytes());
    }
    // Fields 1 (swagger), 2 (info: 1 title, 2 version) and 8 (paths), all of them shorter than 128 bytes.
    let field = |number: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).unwrap_or_default();
        [&[number << 3 | 2, length], &bytes[..usize::from(length)]].concat()
    };
    let info = [field(1, title.as_bytes()), field(2, version.as_bytes())].concat();
    (OLD_BINARY, [field(1, b"2.0"), field(2, &info), field(8, b"")].concat())
}

/// The document of one group and version.
pub(crate) fn document(shared: &Shared, path: &str) -> Option<Bytes> {
    let (kinds, edition) = {
        let state = shared.lock();
        let (_, group, version) =
            discovery::paths(&state.kinds).into_iter().find(|(known, _, _)| known == path)?;
        let kinds: Vec<(Arc<Kind>, String)> = state
            .kinds
            .all()
            .filter(|kind| kind.group == group && kind.version(&version).is_some())
            .map(|kind| (kind.clone(), version.clone()))
            .collect();
        (kinds, state.kinds.edition)
    };
    {
        let mut kept = shared.documents.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.0 != edition {
            *kept = (edition, std::collections::HashMap::default());
        }
        if let Some(found) = kept.1.get(path) {
            return Some(found.clone());
        }
    }
    let document = Bytes::from(make(&kinds).to_string());
    let mut kept = shared.documents.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.0 == edition {
        kept.1.insert(path.to_owned(), document.clone());
    }
    Some(document)
}

fn make(kinds: &[(Arc<Kind>, String)]) -> Value {
    let (mut schemas, mut paths) = (Map::new(), Map::new());
    for (kind, version) in kinds {
        let Some(version) = kind.version(version) else { continue };
        let name = describe(kind, version, &mut schemas);
        schemas.insert(format!("{name}List"), list(kind, version, &name));
        add_paths(kind, version, &name, &mut paths);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Trainyard", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// Adds the schema of a kind and all that it refers to; returns its name.
fn describe(kind: &Kind, version: &Version, schemas: &mut Map<String, Value>) -> String {
    let gvk = json!([{"group": kind.group, "version": version.name, "kind": kind.kind}]);
    match kind.source {
        Source::Builtin(builtin) => {
            let (root, definitions) = crate::kinds::builtin::definitions(builtin);
            schemas.extend(definitions);
            let path = root["$ref"].as_str().unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            if let Some(schema) = schemas.get_mut(&name) {
                schema["x-kubernetes-group-version-kind"] = gvk;
            }
            name
        }
        Source::Custom => {
            let reversed: Vec<&str> = kind.group.split('.').rev().collect();
            let name = format!("{}.{}.{}", reversed.join("."), version.name, kind.kind);
            let mut schema = version.checks.source();
            let common = [
                (
                    "apiVersion",
                    "APIVersion defines the versioned schema of this representation of an object.",
                ),
                ("kind", "Kind is a string value representing the REST resource this object represents."),
            ];
            for (field, description) in common {
                schema["properties"][field] = json!({"type": "string", "description": description});
            }
            let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
            schema["properties"]["metadata"] = json!({
                "description": "Standard object's metadata.",
                "allOf": [{"$ref": format!("#/components/schemas/{meta}")}],
            });
            schema["x-kubernetes-group-version-kind"] = gvk;
            if !schemas.contains_key(meta) {
                schemas.extend(crate::kinds::definitions::metadata());
            }
            schemas.insert(name.clone(), schema);
            name
        }
    }
}

/// The schema of a list of a kind.
fn list(kind: &Kind, version: &Version, name: &str) -> Value {
    json!({
        "type": "object",
        "description": format!("{} is a list of {}", kind.list_kind, kind.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "description": "Standard list metadata."},
            "items": {"type": "array", "items": {"allOf": [{"$ref": format!("#/components/schemas/{name}")}]}},
        },
        "x-kubernetes-group-version-kind": [{"group": kind.group, "version": version.name, "kind": kind.list_kind}],
    })
}

fn add_paths(kind: &Kind, version: &Version, schema: &str, paths: &mut Map<String, Value>) {
    let root = if kind.group.is_empty() {
        format!("/api/{}", version.name)
    } else {
        format!("/apis/{}/{}", kind.group, version.name)
    };
    let gvk = json!({"group": kind.group, "version": version.name, "kind": kind.kind});
    let reference = json!({"$ref": format!("#/components/schemas/{schema}")});
    let answer =
        json!({"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}});
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let options = json!([
        parameter("dryRun"),
        parameter("fieldManager"),
        parameter("fieldValidation"),
        parameter("force")
    ]);
    let body = |types: &[&str]| {
        let content: Map<String, Value> =
            types.iter().map(|name| ((*name).to_owned(), json!({"schema": reference}))).collect();
        json!({"content": content, "required": true})
    };
    let operation = |action: &str| json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk, "responses": answer});
    let change = |action: &str, types: &[&str]| {
        let mut operation = operation(action);
        operation["parameters"] = options.clone();
        operation["requestBody"] = body(types);
        operation
    };
    // Strategic merge patches are not announced, although they are understood for built-in kinds: kubectl then takes
    // the merge keys from its own types, which are complete.
    let patches =
        ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
    let collection = json!({
        "get": operation("list"),
        "post": change("post", &["application/json"]),
        "delete": operation("deletecollection"),
    });
    let single = json!({
        "get": operation("get"),
        "put": change("put", &["application/json"]),
        "patch": change("patch", &patches),
        "delete": operation("delete"),
    });
    if kind.namespaced {
        paths.insert(format!("{root}/{}", kind.plural), json!({"get": operation("list")}));
        let home = format!("{root}/namespaces/{{namespace}}/{}", kind.plural);
        paths.insert(home.clone(), collection);
        paths.insert(format!("{home}/{{name}}"), single);
    } else {
        paths.insert(format!("{root}/{}", kind.plural), collection);
        paths.insert(format!("{root}/{}/{{name}}", kind.plural), single);
    }
}
