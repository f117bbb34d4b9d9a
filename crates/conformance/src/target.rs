//! The server that is asked: nothing but HTTP requests and answers.

use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;

use crate::answer::Answer;
use crate::watch::Watch;

/// Longer than any answer takes: reaching it is a failure, not a delay.
pub(crate) const LIMIT: std::time::Duration = std::time::Duration::from_mins(1);

/// One API server, however it is reached.
#[derive(Clone)]
pub struct Target {
    client: kube::Client,
}

/// A request in words, which a failure shows.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Target {
    /// A server behind a client, of which only the transport is used.
    pub fn new(client: kube::Client) -> Self {
        Self { client }
    }

    /// Sends the request and reads the whole answer.
    pub(crate) async fn ask(&self, asked: Asked) -> Answer {
        let response = self.send(&asked).await;
        let (parts, body) = response.into_parts();
        let bytes = match tokio::time::timeout(LIMIT, body.collect()).await {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) => panic!("{asked}\nthe answer broke off: {error}"),
            Err(late) => panic!("{asked}\nthe answer did not end: {late}"),
        };
        Answer::new(asked, parts.status.as_u16(), parts.headers, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Opens a watch. A refusal is an answer, too.
    pub(crate) async fn watch(&self, asked: Asked) -> Result<Watch, Answer> {
        let response = self.send(&asked).await;
        if response.status().is_success() {
            return Ok(Watch::new(asked, response));
        }
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Err(Answer::new(asked, parts.status.as_u16(), parts.headers, text))
    }

    async fn send(&self, asked: &Asked) -> http::Response<Body> {
        let mut request = Request::builder()
            .method(asked.method.clone())
            .uri(&asked.path)
            .body(Body::from(asked.body.clone().into_bytes()))
            .unwrap_or_else(|error| panic!("{asked}\nis not a request: {error}"));
        request.headers_mut().extend(asked.headers.clone());
        match tokio::time::timeout(LIMIT, self.client.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => panic!("{asked}\ngot no answer: {error}"),
            Err(late) => panic!("{asked}\ngot no answer in {LIMIT:?}: {late}"),
        }
    }
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "request:  {} {}", self.method, self.path)?;
        for (name, value) in &self.headers {
            write!(f, "\n          {name}: {}", String::from_utf8_lossy(value.as_bytes()))?;
        }
        if !self.body.is_empty() {
            write!(f, "\n          {}", shortened(&self.body, 2000))?;
        }
        Ok(())
    }
}

/// The beginning of a text, for people.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} … ({} bytes)", &text[..end], text.len()),
    }
}
