//! Requests about resources: which verb, on which kind, and its options.

use std::sync::Arc;

use http::{Method, Response};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::{Place, Query};
use super::{Incoming, decode, pods, refusal, reviews, success, typed, with_warnings};
use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::kinds::{Builtin, Kind, Source, Version};
use crate::read::list::ListOptions;
use crate::read::render::{Form, View};
use crate::read::select::Selection;
use crate::read::watch::{self, WatchOptions};
use crate::shared::Shared;
use crate::state::State;
use crate::store::Object;
use crate::write::{
    DeleteOptions, Deleted, NewObject, Options, Part, Patch, Propagation, Validation, Written,
};

/// A request about one kind in one version.
struct Request<'a> {
    shared: &'a Arc<Shared>,
    kind: Arc<Kind>,
    version: &'a str,
    namespace: String,
    incoming: Incoming,
}

pub(super) async fn answer(
    shared: &Arc<Shared>,
    place: &Place,
    incoming: Incoming,
) -> Result<Response<Body>> {
    if let Some(review) = reviews::answer(place, &incoming)? {
        return Ok(review);
    }
    let kind = find(&shared.lock(), place)?;
    let namespace = place.namespace.clone().unwrap_or_default();
    if !kind.namespaced && !namespace.is_empty() {
        return Err(ApiError::no_such_path());
    }
    // Lists go over all namespaces; a single object has one.
    if kind.namespaced && namespace.is_empty() && (place.name.is_some() || incoming.method == Method::POST) {
        return Err(if place.name.is_some() {
            ApiError::no_such_path()
        } else {
            ApiError::method_not_allowed()
        });
    }
    let request = Request { shared, kind, version: &place.version, namespace, incoming };
    let warning = request.version()?.warning.clone();
    let name = place.name.as_deref();
    let response = match (name, place.subresource.as_deref()) {
        (None, _) => request.collection(),
        (Some(name), None) => request.object(name),
        (Some(name), Some(subresource)) => request.subresource(name, subresource).await,
    };
    Ok(with_warnings(response.unwrap_or_else(|error| refusal(&error)), &warning))
}

fn find(state: &State, place: &Place) -> Result<Arc<Kind>> {
    let kind = state.kinds.find(&place.group, &place.plural);
    if let Some(kind) = kind.filter(|kind| kind.version(&place.version).is_some()) {
        return Ok(kind.clone());
    }
    let what = crate::error::qualified(&place.group, &place.plural);
    Err(ApiError::not_here(
        404,
        "NotFound",
        &format!(
            "the server could not find the requested resource: there are no {what} in version {} here",
            place.version
        ),
    ))
}

impl Request<'_> {
    fn version(&self) -> Result<&Version> {
        self.kind.version(self.version).ok_or_else(ApiError::no_such_path)
    }

    fn view(&self, form: Form, now: Timestamp) -> Result<View<'_>> {
        Ok(View { kind: &self.kind, version: self.version()?, form, now })
    }

    fn form(&self) -> Result<Form> {
        self.incoming.accept.form(self.incoming.query.text("includeObject"))
    }

    /// The answer that shows one object.
    fn show(&self, code: u16, object: &Object) -> Result<Response<Body>> {
        let form = self.form()?;
        let now = self.shared.lock().now();
        Ok(typed(code, "application/json", self.view(form, now)?.object(object)))
    }

    fn written(&self, written: Result<Written>) -> Result<Response<Body>> {
        let written = written?;
        let code = if written.created { 201 } else { 200 };
        Ok(with_warnings(self.show(code, &written.object)?, &written.warnings))
    }

    fn selection(&self) -> Result<Selection> {
        let query = &self.incoming.query;
        Selection::parse(
            &self.kind,
            self.version()?,
            &self.namespace,
            query.text("labelSelector"),
            query.text("fieldSelector"),
        )
    }

    fn collection(&self) -> Result<Response<Body>> {
        match self.incoming.method {
            Method::GET if self.incoming.query.flag("watch") => self.watch(self.selection()?),
            Method::GET | Method::HEAD => self.list(),
            Method::POST => {
                let mut options = options(&self.incoming, "CreateOptions")?;
                self.form()?;
                let body = decode::tracked(&self.incoming, &self.kind.kind, &mut options.duplicates)?;
                let version = self.version()?;
                let body = NewObject::read(&self.kind, version, &self.namespace, body, &options)?;
                // Others can use the state while the object is checked.
                let (draft, now) =
                    self.shared.change(|state| Ok((state.draft(&self.kind, version, body)?, state.now())))?;
                let draft = draft.check(&self.kind, version, &options, None, now)?;
                self.written(self.shared.change(|state| state.store_new(&self.kind, draft, &options)))
            }
            Method::DELETE => self.delete_all(),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn list(&self) -> Result<Response<Body>> {
        let query = &self.incoming.query;
        let options = ListOptions {
            limit: query.number::<usize>("limit")?.unwrap_or(0),
            continue_token: query.text("continue").to_owned(),
            resource_version: query.text("resourceVersion").to_owned(),
            version_match: query.text("resourceVersionMatch").to_owned(),
            send_initial: query.flag("sendInitialEvents"),
        };
        let (selection, form) = (self.selection()?, self.form()?);
        let state = self.shared.lock();
        let page = state.list(&self.kind, &selection, &options)?;
        let now = state.now();
        drop(state);
        Ok(typed(200, "application/json", self.view(form, now)?.list(&page.metadata, &page.objects)))
    }

    fn watch(&self, selection: Selection) -> Result<Response<Body>> {
        let query = &self.incoming.query;
        let options = WatchOptions {
            resource_version: query.text("resourceVersion").to_owned(),
            version_match: query.text("resourceVersionMatch").to_owned(),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial: query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
            timeout: query.number("timeoutSeconds")?,
        };
        let stream = watch::start(self.shared, &self.kind, self.version, self.form()?, selection, &options)?;
        let mut response = typed(200, "application/json", "");
        *response.body_mut() = Body::stream(stream);
        Ok(response)
    }

    fn delete_all(&self) -> Result<Response<Body>> {
        let (selection, options) = (self.selection()?, delete_options(&self.incoming)?);
        let form = self.form()?;
        let (objects, revision, now) = self.shared.change(|state| {
            let page = state.list(&self.kind, &selection, &ListOptions::default())?;
            let done = state.delete_all(&self.kind, page.objects, &options)?;
            Ok((done, state.store.revision(), state.now()))
        })?;
        let metadata = json!({"resourceVersion": revision.to_string()});
        Ok(typed(200, "application/json", self.view(form, now)?.list(&metadata, &objects)))
    }

    fn object(&self, name: &str) -> Result<Response<Body>> {
        match self.incoming.method {
            Method::GET if self.incoming.query.flag("watch") => self.watch(self.selection()?.with_name(name)),
            Method::GET | Method::HEAD => {
                let object = self.shared.lock().find(&self.kind, &self.namespace, name)?;
                self.show(200, &object)
            }
            Method::PUT => self.update(name, Part::Main),
            Method::PATCH => self.patch(name, Part::Main),
            Method::DELETE => self.delete(name),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn update(&self, name: &str, part: Part) -> Result<Response<Body>> {
        let mut options = options(&self.incoming, "UpdateOptions")?;
        self.form()?;
        let body = decode::tracked(&self.incoming, &self.kind.kind, &mut options.duplicates)?;
        let version = self.version()?;
        let place = (self.namespace.as_str(), name);
        self.written(
            self.shared.change(|state| state.update(&self.kind, version, place, part, body, &options)),
        )
    }

    fn patch(&self, name: &str, part: Part) -> Result<Response<Body>> {
        let (how, change) = decode::patch(&self.incoming, &self.kind)?;
        let options = patch_options(&self.incoming, how)?;
        self.form()?;
        let version = self.version()?;
        let place = (self.namespace.as_str(), name);
        self.written(
            self.shared.change(|state| state.patch(&self.kind, version, place, part, how, &change, &options)),
        )
    }

    fn delete(&self, name: &str) -> Result<Response<Body>> {
        let options = delete_options(&self.incoming)?;
        let deleted =
            self.shared.change(|state| state.delete(&self.kind, &self.namespace, name, &options))?;
        match deleted {
            Deleted::Going(object) => self.show(200, &object),
            Deleted::Gone(object) if shows_deleted(&self.kind) => self.show(200, &object),
            Deleted::Gone(object) => {
                let mut details = json!({"name": name, "kind": self.kind.plural, "uid": object.facts.uid});
                if !self.kind.group.is_empty() {
                    details["group"] = self.kind.group.as_str().into();
                }
                Ok(super::json(200, &success(details)))
            }
        }
    }

    async fn subresource(self, name: &str, subresource: &str) -> Result<Response<Body>> {
        let method = self.incoming.method.clone();
        let version = self.version()?;
        match subresource {
            "status" if version.has_status => match method {
                Method::GET => self.object(name),
                Method::PUT => self.update(name, Part::Status),
                Method::PATCH => self.patch(name, Part::Status),
                _ => Err(ApiError::method_not_allowed()),
            },
            "scale" if version.scale.is_some() => self.scale(name),
            "finalize" if self.kind.is(Builtin::Namespace) && method == Method::PUT => {
                self.update(name, Part::Finalize)
            }
            _ if self.kind.is(Builtin::Pod) => {
                let Request { shared, namespace, incoming, .. } = self;
                pods::answer(shared, &namespace, name, subresource, incoming).await
            }
            "proxy" => Err(ApiError::not_here(501, "NotImplemented", "proxying is not supported")),
            "token" if self.kind.is(Builtin::ServiceAccount) => {
                Err(ApiError::not_here(501, "NotImplemented", "service account tokens are not supported"))
            }
            _ => Err(ApiError::no_such_path()),
        }
    }

    fn scale(&self, name: &str) -> Result<Response<Body>> {
        let version = self.version()?;
        let Some(scale) = &version.scale else { return Err(ApiError::no_such_path()) };
        let place = (self.namespace.as_str(), name);
        self.incoming.accept.json()?;
        let shown = match self.incoming.method {
            Method::GET => self.shared.lock().scale(&self.kind, scale, place.0, place.1),
            Method::PUT => {
                let options = options(&self.incoming, "UpdateOptions")?;
                let body = decode::object(&self.incoming, "Scale")?;
                self.shared
                    .change(|state| state.update_scale(&self.kind, version, scale, place, &body, &options))
            }
            Method::PATCH => {
                let (how, change) = decode::patch(&self.incoming, &self.kind)?;
                let options = patch_options(&self.incoming, how)?;
                self.shared.change(|state| {
                    state.patch_scale(&self.kind, version, scale, place, how, &change, &options)
                })
            }
            _ => Err(ApiError::method_not_allowed()),
        }?;
        Ok(super::json(200, &shown))
    }
}

/// Kinds whose deletion is answered with the object instead of a `Status`.
fn shows_deleted(kind: &Kind) -> bool {
    match kind.source {
        Source::Custom => false,
        Source::Builtin(builtin) => matches!(
            builtin,
            Builtin::Pod
                | Builtin::Service
                | Builtin::ServiceAccount
                | Builtin::Claim
                | Builtin::Volume
                | Builtin::Quota
        ),
    }
}

fn unsupported(kind: &str, field: &str, value: &str, supported: &str) -> ApiError {
    let why = format!("{field}: Unsupported value: {value}: supported values: {supported}");
    ApiError::new(422, "Invalid", format!("{kind}.meta.k8s.io \"\" is invalid: {why}"))
}

fn dry_run(kind: &str, query: &Query) -> Result<bool> {
    let mut dry = false;
    for value in query.all("dryRun").filter(|value| !value.is_empty()) {
        if value != "All" {
            return Err(unsupported(kind, "dryRun", &format!("[\"{value}\"]"), "\"All\""));
        }
        dry = true;
    }
    Ok(dry)
}

fn options(incoming: &Incoming, kind: &str) -> Result<Options> {
    let query = &incoming.query;
    let validation = match query.text("fieldValidation") {
        "" | "Warn" => Validation::Warn,
        "Ignore" => Validation::Ignore,
        "Strict" => Validation::Strict,
        other => {
            let other = format!("\"{other}\"");
            return Err(unsupported(
                kind,
                "fieldValidation",
                &other,
                "\"\", \"Ignore\", \"Strict\", \"Warn\"",
            ));
        }
    };
    let given = query.text("fieldManager");
    if given.len() > 128 {
        let why = "fieldManager: Too long: may not be more than 128 bytes";
        return Err(ApiError::new(422, "Invalid", format!("{kind}.meta.k8s.io \"\" is invalid: {why}")));
    }
    if let Some((at, letter)) = given.char_indices().find(|(_, letter)| letter.is_control()) {
        let number = u32::from(letter);
        let why = format!(
            "fieldManager: Invalid value: \"{}\": invalid character U+{number:04X} (at position {at})",
            given.replace(letter, &format!("\\x{number:02x}"))
        );
        return Err(ApiError::new(422, "Invalid", format!("{kind}.meta.k8s.io \"\" is invalid: {why}")));
    }
    let manager = match given {
        "" => {
            let agent = incoming.user_agent.split('/').next().unwrap_or_default();
            if agent.is_empty() { "unknown" } else { agent }
        }
        given => given,
    };
    let manager = manager.chars().take(128).collect();
    Ok(Options {
        dry_run: dry_run(kind, query)?,
        manager,
        validation,
        force: query.flag("force"),
        duplicates: Vec::new(),
    })
}

fn patch_options(incoming: &Incoming, how: Patch) -> Result<Options> {
    let options = options(incoming, "PatchOptions")?;
    let invalid = |why: &str| {
        Err(ApiError::new(422, "Invalid", format!("PatchOptions.meta.k8s.io \"\" is invalid: {why}")))
    };
    if how == Patch::Apply && incoming.query.text("fieldManager").is_empty() {
        return invalid("fieldManager: Required value: is required for apply patch");
    }
    if how != Patch::Apply && incoming.query.get("force").is_some() {
        return invalid("force: Forbidden: may not be specified for non-apply patch");
    }
    Ok(options)
}

/// Options of a delete: in the body, or in the query.
fn delete_options(incoming: &Incoming) -> Result<DeleteOptions> {
    let query = &incoming.query;
    let mut options = DeleteOptions {
        grace: query.number("gracePeriodSeconds")?,
        propagation: match query.get("propagationPolicy") {
            Some(text) if !text.is_empty() => Some(propagation(text)?),
            _ if query.get("orphanDependents").is_some() => Some(if query.flag("orphanDependents") {
                Propagation::Orphan
            } else {
                Propagation::Background
            }),
            _ => None,
        },
        dry_run: dry_run("DeleteOptions", query)?,
        ..DeleteOptions::default()
    };
    if incoming.body.is_empty() {
        return Ok(options);
    }
    let body = decode::object(incoming, "DeleteOptions")?;
    if let Some(kind) = body.get("kind").and_then(Value::as_str)
        && kind != "DeleteOptions"
    {
        return Err(ApiError::bad_request(format!(
            "decoded object cannot be converted to DeleteOptions: it is a {kind}"
        )));
    }
    if let Some(grace) = body.get("gracePeriodSeconds").and_then(Value::as_i64) {
        options.grace = Some(grace);
    }
    if let Some(text) = body.get("propagationPolicy").and_then(Value::as_str) {
        if body.get("orphanDependents").is_some_and(Value::is_boolean) {
            let why = format!(
                "propagationPolicy: Invalid value: \"{text}\": orphanDependents and deletionPropagation cannot be both set"
            );
            return Err(ApiError::new(
                422,
                "Invalid",
                format!("DeleteOptions.meta.k8s.io \"\" is invalid: {why}"),
            ));
        }
        options.propagation = Some(propagation(text)?);
    } else if let Some(orphan) = body.get("orphanDependents").and_then(Value::as_bool) {
        options.propagation = Some(if orphan { Propagation::Orphan } else { Propagation::Background });
    }
    for value in body.get("dryRun").and_then(Value::as_array).into_iter().flatten() {
        match value.as_str() {
            Some("All") => options.dry_run = true,
            _ => return Err(unsupported("DeleteOptions", "dryRun", &format!("[{value}]"), "\"All\"")),
        }
    }
    let precondition = |key: &str| body["preconditions"].get(key).and_then(Value::as_str).map(str::to_owned);
    options.uid = precondition("uid");
    options.resource_version = precondition("resourceVersion");
    Ok(options)
}

fn propagation(text: &str) -> Result<Propagation> {
    match text {
        "Background" => Ok(Propagation::Background),
        "Foreground" => Ok(Propagation::Foreground),
        "Orphan" => Ok(Propagation::Orphan),
        other => Err(unsupported(
            "DeleteOptions",
            "propagationPolicy",
            &format!("\"{other}\""),
            "\"Foreground\", \"Background\", \"Orphan\", \"nil\"",
        )),
    }
}
