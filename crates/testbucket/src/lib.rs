//! A real S3 server, on loopback unless a test says otherwise, which checks signatures, and which can be told to fail: always, in the
//! middle of an upload, or for single objects. It can speak Google's dialect instead ([`Vendor::Google`]).

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

pub mod google;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;

/// What becomes of the parts of uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    Served,
    /// The connection breaks.
    Dropped,
    /// No answer comes, and the test is told.
    Held,
}

/// Whose storage it is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Amazon,
    Google,
}

#[derive(Debug)]
pub struct Server {
    pub endpoint: String,
    vendor: Vendor,
    parts: Arc<Mutex<Parts>>,
    /// No request is answered with anything but 503.
    is_down: Arc<AtomicBool>,
    /// Every request waits until this is over.
    is_slow: Arc<AtomicBool>,
    /// The end of the names that are answered with 403.
    refused: Refused,
    /// The name of an object that every listing has.
    listed: Arc<Mutex<Option<String>>>,
    held: Receiver<()>,
}

impl Server {
    /// Serves directories below `root` as buckets of S3.
    pub fn start(root: &Path) -> Self {
        Self::of(Vendor::Amazon, root)
    }

    /// The same at another address of this machine, such as that by which the pods of a test's own cluster reach it.
    pub fn start_at(address: Ipv4Addr, root: &Path) -> Self {
        Self::new(Vendor::Amazon, address, root)
    }

    /// Serves directories below `root` as buckets.
    pub fn of(vendor: Vendor, root: &Path) -> Self {
        Self::new(vendor, Ipv4Addr::LOCALHOST, root)
    }

    fn new(vendor: Vendor, address: Ipv4Addr, root: &Path) -> Self {
        let storage = s3s_fs::FileSystem::new(root).unwrap();
        let mut builder = S3ServiceBuilder::new(storage);
        if vendor == Vendor::Amazon {
            builder.set_auth(SimpleAuth::from_single("key", "secret"));
        }
        let service = builder.build();
        let listener = std::net::TcpListener::bind((address, 0)).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let parts = Arc::new(Mutex::new(Parts::Served));
        let is_down = Arc::new(AtomicBool::new(false));
        let (tell, held) = channel();
        let refused = Arc::new(Mutex::new(None));
        let is_slow = Arc::new(AtomicBool::new(false));
        let listed = Arc::new(Mutex::new(None));
        let shared = Orders {
            parts: parts.clone(),
            is_down: is_down.clone(),
            is_slow: is_slow.clone(),
            refused: refused.clone(),
            listed: listed.clone(),
        };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(listener, (vendor, service), shared, tell));
        });
        Self { endpoint, vendor, parts, is_down, is_slow, refused, listed, held }
    }

    pub fn parts_are(&self, parts: Parts) {
        *self.parts.lock().unwrap() = parts;
    }

    /// Whether every request fails, as it does when such a service has a bad hour.
    pub fn is_down(&self, down: bool) {
        self.is_down.store(down, Ordering::SeqCst);
    }

    /// Whether no request is answered for now. The test is told of each.
    pub fn is_slow(&self, slow: bool) {
        self.is_slow.store(slow, Ordering::SeqCst);
    }

    /// Whether the objects whose names end like this are out of reach, as a policy of the bucket may have it.
    pub fn refuses(&self, end: Option<&str>) {
        *self.refused.lock().unwrap() = end.map(|end| (end.to_owned(), Effect::None));
    }

    /// The same for writes that are done all the same: only whoever asked for them does not hear of it.
    pub fn hides(&self, end: Option<&str>) {
        *self.refused.lock().unwrap() = end.map(|end| (end.to_owned(), Effect::OfWrites));
    }

    /// Has every listing name this, too: a name that no file can have.
    pub fn lists(&self, name: &str) {
        *self.listed.lock().unwrap() = Some(name.to_owned());
    }

    pub fn wait_until_held(&self) {
        self.held.recv().unwrap();
    }

    /// The environment of a pod with these credentials.
    pub fn variables(&self, secret: &str) -> Vec<(String, String)> {
        let all: &[(&str, &str)] = match self.vendor {
            Vendor::Amazon => &[
                ("AWS_ACCESS_KEY_ID", "key"),
                ("AWS_SECRET_ACCESS_KEY", secret),
                ("AWS_REGION", "us-east-1"),
                ("AWS_ENDPOINT_URL", &self.endpoint),
            ],
            Vendor::Google => &[("GOOGLE_BEARER_TOKEN", secret), ("GOOGLE_BASE_URL", &self.endpoint)],
        };
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }
}

/// What the server has been told.
#[derive(Clone)]
struct Orders {
    parts: Arc<Mutex<Parts>>,
    is_down: Arc<AtomicBool>,
    is_slow: Arc<AtomicBool>,
    refused: Refused,
    listed: Arc<Mutex<Option<String>>>,
}

/// How the names end of objects that are refused, and whether anything happens to them all the same.
type Refused = Arc<Mutex<Option<(String, Effect)>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    OfWrites,
}

async fn serve(
    listener: std::net::TcpListener,
    (vendor, service): (Vendor, s3s::service::S3Service),
    orders: Orders,
    tell: Sender<()>,
) {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (service, orders, tell) = (service.clone(), orders.clone(), tell.clone());
        let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
            let (service, tell, is_slow) = (service.clone(), tell.clone(), orders.is_slow.clone());
            let is_second_part = request.uri().query().is_some_and(|query| query.contains("partNumber=2"));
            let fate = if is_second_part { *orders.parts.lock().unwrap() } else { Parts::Served };
            let is_down = orders.is_down.load(Ordering::SeqCst);
            let refused = orders.refused.lock().unwrap().clone();
            let refused =
                refused.filter(|(end, _)| request.uri().path().ends_with(end)).map(|(_, effect)| effect);
            let is_hidden = refused == Some(Effect::OfWrites) && request.method() == hyper::Method::PUT;
            let is_listing = request.uri().query().is_some_and(|query| query.contains("list-type=2"));
            let listed = orders.listed.lock().unwrap().clone().filter(|_| is_listing);
            let google = if vendor == Vendor::Google { google::translate(&mut request) } else { None };
            async move {
                if is_slow.load(Ordering::SeqCst) {
                    tell.send(()).unwrap();
                }
                while is_slow.load(Ordering::SeqCst) {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
                if refused == Some(Effect::None) {
                    return Ok(answered(hyper::StatusCode::FORBIDDEN, ""));
                }
                if is_down {
                    return Ok(answered(hyper::StatusCode::SERVICE_UNAVAILABLE, ""));
                }
                if let Some(answer) = google {
                    return Ok(answer);
                }
                match fate {
                    Parts::Served => {
                        let answer =
                            Service::call(&service, request).await.map_err(|error| format!("{error:?}"))?;
                        match listed {
                            _ if is_hidden => Ok(answered(hyper::StatusCode::FORBIDDEN, "")),
                            Some(name) => Ok(with_listed(answer, &name).await),
                            None => Ok(answer),
                        }
                    }
                    Parts::Dropped => Err("dropped on purpose".to_owned()),
                    Parts::Held => {
                        tell.send(()).unwrap();
                        std::future::pending().await
                    }
                }
            }
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), answer),
        );
    }
}

fn answered(status: hyper::StatusCode, body: &str) -> hyper::Response<s3s::Body> {
    let mut answer = hyper::Response::new(s3s::Body::from(body.to_owned()));
    *answer.status_mut() = status;
    answer
}

/// A listing with one more object.
async fn with_listed(answer: hyper::Response<s3s::Body>, name: &str) -> hyper::Response<s3s::Body> {
    let (head, mut body) = answer.into_parts();
    let content = body.store_all_limited(1 << 20).await.unwrap();
    let object = format!(
        "<Contents><Key>{name}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
    );
    let end = "</ListBucketResult>";
    let listing = String::from_utf8_lossy(&content).replace(end, &format!("{object}{end}"));
    let mut answer = answered(head.status, &listing);
    answer.headers_mut().extend(head.headers.into_iter().filter_map(|(name, value)| {
        name.filter(|name| *name != hyper::header::CONTENT_LENGTH).map(|name| (name, value))
    }));
    answer
}
