//! The one thread that starts processes.
//!
//! The shim asks the kernel to be killed when its parent dies, and for the kernel the parent is a thread. A worker
//! thread of an async runtime may end while the process lives on, so this thread, which never ends, is the parent.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc;

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct Request {
    command: Command,
    runtime: Handle,
    answer: oneshot::Sender<io::Result<Child>>,
}

static SPAWNER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();

/// Starts a process. The child belongs to the runtime that this is called from.
pub(crate) async fn spawn(command: Command) -> io::Result<Child> {
    let (answer, answered) = oneshot::channel();
    let request = Request { command, runtime: Handle::current(), answer };
    SPAWNER
        .get_or_init(start)
        .send(request)
        .map_err(|_| io::Error::other("the thread that starts processes could not be started"))?;
    answered.await.map_err(|_| io::Error::other("the thread that starts processes is gone"))?
}

fn start() -> mpsc::Sender<Request> {
    let (sender, requests) = mpsc::channel::<Request>();
    let thread = std::thread::Builder::new().name("spawner".to_owned()).stack_size(256 * 1024);
    let started = thread.spawn(move || {
        for Request { mut command, runtime, answer } in requests {
            let _context = runtime.enter();
            // Nobody waits any more: the child is dropped, and with it the socket that keeps it alive.
            let _ = answer.send(command.spawn());
        }
    });
    if let Err(error) = started {
        tracing::error!("no thread to start processes from: {error}");
    }
    sender
}
