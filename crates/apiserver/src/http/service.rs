//! The server as a tower service, for any body: in process, or behind a connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HeaderName, UPGRADE, USER_AGENT};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tower::Service as _;

use super::accept::Accept;
use super::query::Query;
use super::{Incoming, Upgrade, answer, refusal};
use crate::body::Body;
use crate::error::ApiError;
use crate::shared::Shared;

/// The largest body that is taken, as in Kubernetes.
const LARGEST_BODY: usize = 3 << 20;

/// Room in the pipe between a client in this process and its connection.
const PIPE: usize = 64 << 10;

/// The API server as a [`tower::Service`]. Cheap to clone; all clones are one server.
#[derive(Clone)]
pub struct Service(pub(crate) Arc<Shared>);

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = self.0.clone();
        if wants_upgrade(&request) && request.extensions().get::<OnUpgrade>().is_none() {
            return Box::pin(async move {
                Ok(connected(Self(shared), request).await.unwrap_or_else(|error| {
                    refusal(&ApiError::bad_request(format!("the connection broke: {error}")))
                }))
            });
        }
        Box::pin(async move {
            Ok(match read(request).await {
                Ok(incoming) => answer(shared, incoming).await,
                Err(error) => refusal(&error),
            })
        })
    }
}

fn wants_upgrade<B>(request: &Request<B>) -> bool {
    header(request.headers(), &CONNECTION).to_ascii_lowercase().contains("upgrade")
}

/// Carries a request that wants a connection of its own over one, although its client is in this very process and has none.
async fn connected<B>(service: Service, request: Request<B>) -> Result<Response<Body>, hyper::Error>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (near, far) = tokio::io::duplex(PIPE);
    let server = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(far), service_fn(move |request| service.clone().call(request)))
        .with_upgrades();
    tokio::spawn(server);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near)).await?;
    tokio::spawn(connection.with_upgrades());
    let mut response = sender.send_request(request).await?;
    let upgraded = hyper::upgrade::on(&mut response);
    let (mut parts, body) = response.into_parts();
    parts.extensions.insert(upgraded);
    let body = if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        Bytes::new()
    } else {
        body.collect().await?.to_bytes()
    };
    Ok(Response::from_parts(parts, Body::whole(body)))
}

async fn read<B>(mut request: Request<B>) -> Result<Incoming, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let upgrade = upgrade(&mut request);
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            ApiError::new(
                413,
                "RequestEntityTooLarge",
                format!("Request entity too large: limit is {LARGEST_BODY}"),
            )
        } else {
            ApiError::bad_request(format!("the body could not be read: {error}"))
        }
    })?;
    Ok(Incoming {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        accept: Accept::parse(header(&parts.headers, &ACCEPT)),
        content_type: header(&parts.headers, &CONTENT_TYPE).to_owned(),
        user_agent: header(&parts.headers, &USER_AGENT).to_owned(),
        body: body.to_bytes(),
        upgrade,
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn upgrade<B>(request: &mut Request<B>) -> Option<Upgrade> {
    if !wants_upgrade(request) {
        return None;
    }
    let headers = request.headers();
    let to = header(headers, &UPGRADE).to_owned();
    let key = header(headers, &HeaderName::from_static("sec-websocket-key")).to_owned();
    let protocols = headers
        .get_all("sec-websocket-protocol")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|protocol| protocol.trim().to_owned())
        .collect();
    Some(Upgrade { on: hyper::upgrade::on(request), to, key, protocols })
}
