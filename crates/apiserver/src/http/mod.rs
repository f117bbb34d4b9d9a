//! HTTP in front of the state: what a request asks for, and what it is answered.

mod accept;
mod decode;
mod pods;
mod protobuf;
pub(crate) mod query;
mod resources;
mod reviews;
mod service;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WARNING};
use http::{Method, Response};
use serde_json::{Value, json};

use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::shared::Shared;
use crate::{discovery, openapi};
use accept::Accept;
use query::{Query, Route};

pub use service::Service;

/// A request whose body has been read.
pub(crate) struct Incoming {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) accept: Accept,
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    pub(crate) body: Bytes,
    /// The connection, for those who want to speak something else on it.
    pub(crate) upgrade: Option<Upgrade>,
}

/// What a client wants to change a connection into.
pub(crate) struct Upgrade {
    pub(crate) on: hyper::upgrade::OnUpgrade,
    pub(crate) to: String,
    pub(crate) key: String,
    pub(crate) protocols: Vec<String>,
}

/// Answers a request.
pub(crate) async fn answer(shared: Arc<Shared>, incoming: Incoming) -> Response<Body> {
    let result = match Route::parse(&incoming.path) {
        Route::Resource(place) => resources::answer(&shared, &place, incoming).await,
        route => plain(&shared, route, &incoming),
    };
    result.unwrap_or_else(|error| refusal(&error))
}

fn plain(shared: &Arc<Shared>, route: Route, incoming: &Incoming) -> Result<Response<Body>> {
    if incoming.method != Method::GET && incoming.method != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    match route {
        Route::Health => Ok(text("ok")),
        Route::Version => Ok(json(200, &discovery::version())),
        Route::Core | Route::Groups => {
            let core = matches!(route, Route::Core);
            let state = shared.lock();
            if let Some(version) = incoming.accept.aggregated() {
                let list = discovery::aggregated(&state.kinds, core, version);
                return Ok(typed(200, accept::aggregated_type(version), list.to_string()));
            }
            Ok(json(200, &if core { discovery::core() } else { discovery::groups(&state.kinds) }))
        }
        Route::Group(group) => discovery::group(&shared.lock().kinds, &group)
            .map(|found| json(200, &found))
            .ok_or_else(|| nowhere(&group)),
        Route::Resources(group, version) => discovery::resources(&shared.lock().kinds, &group, &version)
            .map(|found| json(200, &found))
            .ok_or_else(|| nowhere(&group)),
        Route::OldOpenApi => {
            let (content_type, document) = openapi::old(incoming.accept.names(openapi::OLD_ASKED));
            Ok(typed(200, content_type, document))
        }
        Route::OpenApi(None) => {
            incoming.accept.json()?;
            Ok(json(200, &openapi::index(shared)))
        }
        Route::OpenApi(Some(path)) => {
            incoming.accept.json()?;
            let found = openapi::document(shared, &path).ok_or_else(ApiError::no_such_path)?;
            Ok(typed(200, "application/json", found))
        }
        Route::Nowhere | Route::Resource(_) => Err(ApiError::no_such_path()),
    }
}

/// A group that is not here. Those that people look for are refused in words.
fn nowhere(group: &str) -> ApiError {
    ApiError::not_here(
        404,
        "NotFound",
        &format!("the server could not find the requested resource: there is no API group \"{group}\" here"),
    )
}

pub(crate) fn refusal(error: &ApiError) -> Response<Body> {
    json(error.code(), &error.status())
}

pub(crate) fn json(code: u16, value: &Value) -> Response<Body> {
    typed(code, "application/json", value.to_string())
}

fn text(text: &'static str) -> Response<Body> {
    typed(200, "text/plain; charset=utf-8", text)
}

fn typed(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::whole(body.into()));
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Adds what should be said beside the answer.
fn with_warnings<'a>(
    mut response: Response<Body>,
    warnings: impl IntoIterator<Item = &'a String>,
) -> Response<Body> {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

/// A `Status` that says that something was done.
fn success(details: Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
