//! Requests to buckets, by the HTTP client and the TLS that the rest of the binary uses.
//!
//! object_store brings reqwest for this. That would be a second HTTP client, HTTP/2, and a second provider of
//! cryptography, for the same few requests.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};

const CONNECT: Duration = Duration::from_secs(10);

/// Without a single byte in this time, the other side is gone.
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed =
            |source: std::io::Error| object_store::Error::Generic { store: "HTTP", source: Box::new(source) };
        let tls = HttpsConnectorBuilder::new().with_native_roots().map_err(failed)?;
        let mut connector = TimeoutConnector::new(tls.https_or_http().enable_http1().build());
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_read_timeout(Some(SILENCE));
        connector.set_write_timeout(Some(SILENCE));
        Ok(HttpClient::new(Service(Client::builder(TokioExecutor::new()).build(connector))))
    }
}

#[derive(Debug)]
struct Service(Client<TimeoutConnector<HttpsConnector<TcpConnector>>, HttpRequestBody>);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.request(request).await.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { kind_of(&error) };
            HttpError::new(kind, error)
        })?;
        let (head, body) = response.into_parts();
        let body = body.map_err(|error| HttpError::new(kind_of(&error), error));
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
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
