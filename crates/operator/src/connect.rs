//! The client that the operator writes with.
//!
//! kube's own, but for two things: it leaves Nagle's algorithm on, so that the second small packet of a request can wait up to
//! 40 ms for the acknowledgement of the first, and a restart is three requests in a row; and it does not ask whether the other side is
//! still there, so that a log on a connection that died without a word would be listened to for ever.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use tower::{BoxError, ServiceBuilder};

/// After so long without a word, the other side is asked whether it is there, so often, and then given up.
const STILL_THERE: Duration = Duration::from_secs(30);
const ASKED_EVERY: Duration = Duration::from_secs(10);
const ASKED_TIMES: u32 = 3;

/// A client for this configuration.
pub fn connect(config: kube::Config) -> Result<kube::Client, kube::Error> {
    if config.proxy_url.is_some() {
        // kube knows the kinds of proxies; what they do with small packets is theirs.
        return kube::Client::try_from(config);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(STILL_THERE));
    tcp.set_keepalive_interval(Some(ASKED_EVERY));
    tcp.set_keepalive_retries(Some(ASKED_TIMES));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(kube::Client::new(service, config.default_namespace))
}
