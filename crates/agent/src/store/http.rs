//! Requests to buckets, by the HTTP client and the TLS that the rest of the binary uses.
//!
//! object_store brings reqwest for this. That would be a second HTTP client, HTTP/2, and a second provider of
//! cryptography, for the same few requests.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::CONTENT_LENGTH;
use hyper::http::uri::Scheme;
use hyper::{Method, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector as TcpConnector};
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};

use super::foreign::Foreign;

const CONNECT: Duration = Duration::from_secs(10);

/// Without a single byte in this time, the other side is gone.
const SILENCE: Duration = Duration::from_secs(30);

/// What is said instead of asking somebody over TLS whom nobody vouches for.
pub(super) const NO_AUTHORITIES: &str = "no certificates of authorities";

#[derive(Debug)]
pub(super) struct Connector(pub(super) Foreign);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = match HttpsConnectorBuilder::new().with_native_roots() {
            Ok(tls) => {
                let connector = tls.https_or_http().enable_http1().build();
                Connection::Any(client(TimeoutConnector::new(connector)))
            }
            // An image may do without certificates, and a server of the cluster's own without TLS.
            Err(_) => Connection::Plain(client(TimeoutConnector::new(TcpConnector::new()))),
        };
        Ok(HttpClient::new(Service { client, foreign: self.0.clone() }))
    }
}

type Asking<C> = Client<TimeoutConnector<C>, HttpRequestBody>;

fn client<C>(mut connector: TimeoutConnector<C>) -> Asking<C>
where
    TimeoutConnector<C>: Connect + Clone,
{
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_read_timeout(Some(SILENCE));
    connector.set_write_timeout(Some(SILENCE));
    Client::builder(TokioExecutor::new()).build(connector)
}

/// Whom we can ask.
#[derive(Debug)]
enum Connection {
    Any(Asking<HttpsConnector<TcpConnector>>),
    /// Nobody over TLS.
    Plain(Asking<TcpConnector>),
}

impl Connection {
    async fn request(&self, request: HttpRequest) -> Result<Response<Incoming>, HttpError> {
        let response = match self {
            Self::Any(client) => client.request(request).await,
            Self::Plain(_) if request.uri().scheme() == Some(&Scheme::HTTPS) => {
                let error = std::io::Error::new(std::io::ErrorKind::NotFound, NO_AUTHORITIES);
                return Err(HttpError::new(HttpErrorKind::Unknown, error));
            }
            Self::Plain(client) => client.request(request).await,
        };
        response.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { kind_of(&error) };
            HttpError::new(kind, error)
        })
    }
}

#[derive(Debug)]
struct Service {
    client: Connection,
    foreign: Foreign,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_listing = is_listing(&request);
        let response = self.client.request(request).await?;
        let (mut head, body) = response.into_parts();
        let body = HttpResponseBody::new(body.map_err(|error| HttpError::new(kind_of(&error), error)));
        if !is_listing || !head.status.is_success() {
            return Ok(HttpResponse::from_parts(head, body));
        }
        // A listing is a thousand names at most, and read as a whole anyway.
        let listing = body.bytes().await?;
        head.headers.remove(CONTENT_LENGTH);
        let body = match std::str::from_utf8(&listing) {
            Ok(text) => self.foreign.taken_out(text).into(),
            Err(_) => listing.into(),
        };
        Ok(HttpResponse::from_parts(head, body))
    }
}

fn is_listing(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::GET && query.split('&').any(|word| word == "list-type=2")
}

/// Whether a request may be repeated depends on where it broke.
fn kind_of(error: &(dyn Error + 'static)) -> HttpErrorKind {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            if error.is_closed() || error.is_incomplete_message() || error.is_body_write_aborted() {
                return HttpErrorKind::Request;
            }
            if error.is_timeout() {
                return HttpErrorKind::Timeout;
            }
        }
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return match error.kind() {
                std::io::ErrorKind::TimedOut => HttpErrorKind::Timeout,
                _ => HttpErrorKind::Interrupted,
            };
        }
        cause = error.source();
    }
    HttpErrorKind::Unknown
}
