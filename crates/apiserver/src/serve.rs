//! The server on a socket: TLS, a bearer token, and the kubeconfig that fits.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tower::Service as _;

use crate::body::Body;
use crate::error::ApiError;
use crate::rules::base64;
use crate::{ApiServer, Service};

/// Why certificates cannot be made or used.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("the certificate cannot be read: {0}")]
    Read(#[from] rustls::pki_types::pem::Error),
    #[error("the certificate cannot be used: {0}")]
    Use(#[from] rustls::Error),
}

/// A certificate authority of our own, and the server's certificate that it signed: all as PEM, to be kept.
#[derive(Clone, Debug)]
pub struct Tls {
    /// What clients trust.
    pub authority: String,
    pub certificate: String,
    pub key: String,
}

impl Tls {
    /// Makes an authority and a certificate for `localhost`, the loopback addresses and the names that are given.
    pub fn generate(names: &[String]) -> Result<Self, TlsError> {
        let mut params = CertificateParams::new([])?;
        params.distinguished_name.push(DnType::CommonName, "trainyard");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let authority = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);

        let mut all: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        all.extend(
            names.iter().filter(|name| !["localhost", "127.0.0.1", "::1"].contains(&name.as_str())).cloned(),
        );
        let mut params = CertificateParams::new(all)?;
        params.distinguished_name.push(DnType::CommonName, "trainyard-apiserver");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Self { authority, certificate, key: key.serialize_pem() })
    }

    fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let chain =
            CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// The kubeconfig (as JSON, which is YAML) with which clients find the server.
pub fn kubeconfig(server: &str, tls: Option<&Tls>, token: Option<&str>, namespace: &str) -> String {
    let mut cluster = json!({"server": server});
    if let Some(tls) = tls {
        cluster["certificate-authority-data"] = base64(tls.authority.as_bytes()).into();
    }
    let user = token.map_or_else(|| json!({}), |token| json!({"token": token}));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "trainyard", "cluster": cluster}],
        "users": [{"name": "trainyard", "user": user}],
        "contexts": [{"name": "trainyard", "context": {
            "cluster": "trainyard", "user": "trainyard", "namespace": namespace,
        }}],
        "current-context": "trainyard",
    });
    format!("{config:#}\n")
}

impl ApiServer {
    /// Serves connections until `shutdown` is done; then closes them, watches and all.
    ///
    /// With a token (see [`crate::Builder::token`]), every request must carry it, except for those that ask how the
    /// server is.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: Option<Tls>,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let acceptor = tls.map(|tls| tls.acceptor()).transpose().map_err(io::Error::other)?;
        let mut shutdown = pin!(shutdown);
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, acceptor.clone(), self.service()));
                }
                Err(error) => {
                    // Too many open files, or a client that went at once: neither is the end.
                    tracing::warn!("a connection could not be accepted: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        }
        connections.abort_all();
        while connections.join_next().await.is_some() {}
        Ok(())
    }
}

async fn connection(stream: TcpStream, acceptor: Option<TlsAcceptor>, service: Service) {
    let _ = stream.set_nodelay(true);
    match acceptor {
        None => speak(stream, service).await,
        Some(acceptor) => match acceptor.accept(stream).await {
            Ok(stream) => speak(stream, service).await,
            Err(error) => tracing::debug!("a TLS handshake failed: {error}"),
        },
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: Service) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let mut service = service.clone();
        async move {
            match admit(&service, &request) {
                Ok(()) => service.call(request).await,
                Err(error) => Ok::<Response<Body>, Infallible>(crate::http::refusal(&error)),
            }
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!("a connection ended: {error}");
    }
}

/// Whether a request from outside may pass.
fn admit(service: &Service, request: &Request<Incoming>) -> Result<(), ApiError> {
    let Some(token) = &service.0.token else { return Ok(()) };
    if matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz" | "/version") {
        return Ok(());
    }
    let header = request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if same(given.as_bytes(), token.as_bytes()) {
        Ok(())
    } else {
        Err(ApiError::new(401, "Unauthorized", "Unauthorized"))
    }
}

/// Compares without telling by the time it takes how much was right.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}
