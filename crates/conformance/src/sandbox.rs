//! One case's place on the server: a namespace of its own, and short ways to ask.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::target::{Asked, LIMIT, Target};
use crate::watch::Watch;

/// A namespace of its own on a [`Target`].
///
/// Paths are given in short: `configmaps/a` and `ml.example.com/v1/trainingjobs/a/status` are in
/// the namespace of the sandbox, and what starts with `/` is a path as it is. A query may follow,
/// and need not be escaped.
#[derive(Clone)]
pub struct Sandbox {
    target: Target,
    /// The namespace.
    pub namespace: String,
}

/// What else a request says.
#[derive(Clone, Debug, Default)]
pub struct With {
    accept: Option<&'static str>,
    content_type: Option<&'static str>,
}

impl With {
    /// A body of this type.
    pub fn content(content_type: &'static str) -> Self {
        Self { content_type: Some(content_type), ..Self::default() }
    }

    /// An answer of this type.
    pub fn accepting(self, accept: &'static str) -> Self {
        Self { accept: Some(accept), ..self }
    }
}

impl Sandbox {
    /// Makes the namespace.
    pub async fn create(target: &Target, namespace: &str) -> Self {
        let sandbox = Self { target: target.clone(), namespace: namespace.to_owned() };
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        sandbox.post("/api/v1/namespaces", object).await.is(201);
        sandbox
    }

    /// A second namespace, named after this one.
    pub async fn other(&self, suffix: &str) -> Self {
        Self::create(&self.target, &format!("{}{suffix}", self.namespace)).await
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, String::new(), With::default()).await
    }

    /// GET with an Accept header.
    pub async fn get_as(&self, path: &str, accept: &'static str) -> Answer {
        self.ask(Method::GET, path, String::new(), With::default().accepting(accept)).await
    }

    /// POST of JSON.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.post_text(path, "application/json", &body.to_string()).await
    }

    /// POST of anything.
    pub async fn post_text(&self, path: &str, content_type: &'static str, body: &str) -> Answer {
        let with = With::content(content_type);
        self.ask(Method::POST, path, body.to_owned(), with).await
    }

    /// PUT of JSON.
    pub async fn put(&self, path: &str, body: Value) -> Answer {
        let with = With::content("application/json");
        self.ask(Method::PUT, path, body.to_string(), with).await
    }

    /// PATCH with a merge patch.
    pub async fn merge(&self, path: &str, changes: Value) -> Answer {
        self.patch(path, "application/merge-patch+json", &changes.to_string()).await
    }

    /// PATCH with a strategic merge patch.
    pub async fn strategic(&self, path: &str, changes: Value) -> Answer {
        self.patch(path, "application/strategic-merge-patch+json", &changes.to_string()).await
    }

    /// PATCH with a JSON patch.
    pub async fn json_patch(&self, path: &str, operations: Value) -> Answer {
        self.patch(path, "application/json-patch+json", &operations.to_string()).await
    }

    /// Server-side apply by a field manager; more of the query may follow the path's `?`.
    pub async fn apply(&self, path: &str, manager: &str, object: Value) -> Answer {
        let joint = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{joint}fieldManager={manager}");
        self.patch(&path, "application/apply-patch+yaml", &object.to_string()).await
    }

    /// PATCH with any content type.
    pub async fn patch(&self, path: &str, content_type: &'static str, body: &str) -> Answer {
        let with = With::content(content_type);
        self.ask(Method::PATCH, path, body.to_owned(), with).await
    }

    /// DELETE without a body.
    pub async fn delete(&self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, String::new(), With::default()).await
    }

    /// DELETE with options in the body.
    pub async fn delete_with(&self, path: &str, mut options: Value) -> Answer {
        options["apiVersion"] = "v1".into();
        options["kind"] = "DeleteOptions".into();
        let with = With::content("application/json");
        self.ask(Method::DELETE, path, options.to_string(), with).await
    }

    /// Opens a watch, which must be accepted. The path is that of the collection, with its query.
    pub async fn watch(&self, path: &str) -> Watch {
        match self.try_watch(path).await {
            Ok(watch) => watch,
            Err(answer) => answer.fail("a watch"),
        }
    }

    /// Opens a watch, or gets a refusal.
    pub async fn try_watch(&self, path: &str) -> Result<Watch, Answer> {
        self.watch_as(path, "application/json").await
    }

    /// Opens a watch with an Accept header.
    pub async fn watch_as(&self, path: &str, accept: &'static str) -> Result<Watch, Answer> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let with = With { accept: Some(accept), ..With::default() };
        let asked = self.asked(Method::GET, &format!("{path}{joint}watch=true"), String::new(), with);
        self.target.watch(asked).await
    }

    /// Asks again and again until the answer is as wanted: for what controllers do in their own time.
    pub async fn until(&self, path: &str, what: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let start = std::time::Instant::now();
        loop {
            let answer = self.get(path).await;
            if wanted(&answer) {
                return answer;
            }
            if start.elapsed() > LIMIT {
                answer.fail(what);
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Posts again and again until that is not too much any more: for what waits until a controller has had its say.
    pub async fn post_until_allowed(&self, path: &str, body: Value) -> Answer {
        let start = std::time::Instant::now();
        loop {
            let answer = self.post(path, body.clone()).await;
            if answer.status() != 429 || start.elapsed() > LIMIT {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Waits until there is nothing at the path.
    pub async fn until_gone(&self, path: &str) {
        self.until(path, "nothing there any more", |answer| answer.status() == 404).await;
    }

    /// Any request.
    pub async fn ask(&self, method: Method, path: &str, body: String, with: With) -> Answer {
        let asked = self.asked(method, path, body, with);
        self.target.ask(asked).await
    }

    fn asked(&self, method: Method, path: &str, body: String, with: With) -> Asked {
        let mut headers = HeaderMap::new();
        let accept = with.accept.unwrap_or("application/json");
        headers.insert(http::header::ACCEPT, HeaderValue::from_static(accept));
        if let Some(content_type) = with.content_type {
            headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        headers.insert(http::header::USER_AGENT, HeaderValue::from_static("conformance/1"));
        Asked { method, path: self.path(path), headers, body }
    }

    /// The whole path of a short one.
    pub fn path(&self, short: &str) -> String {
        let (path, query) = short.split_once('?').unwrap_or((short, ""));
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            let mut parts = path.splitn(3, '/');
            let first = parts.next().unwrap_or_default();
            if first.contains('.') || ["apps", "batch", "policy"].contains(&first) {
                let version = parts.next().unwrap_or_default();
                let rest = parts.next().unwrap_or_default();
                format!("/apis/{first}/{version}/namespaces/{}/{rest}", self.namespace)
            } else {
                format!("/api/v1/namespaces/{}/{path}", self.namespace)
            }
        };
        if query.is_empty() { path } else { format!("{path}?{}", escaped(query)) }
    }
}

/// A query in which only what a URI cannot hold is escaped, so that cases read well.
fn escaped(query: &str) -> String {
    let mut escaped = String::with_capacity(query.len());
    for byte in query.bytes() {
        if byte.is_ascii_alphanumeric() || b"=&,()!%.-_~:/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}
