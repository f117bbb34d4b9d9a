//! The test program: every case is a test, all on one server.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::sync::OnceCell;

use crate::fixtures;
use crate::sandbox::Sandbox;
use crate::target::Target;

thread_local! {
    /// What the case on this thread panicked with: the report shows it instead of the usual message.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the cases that the command line names, as `cargo test` would. The server is started by the
/// first of them; `start` is not called if no case is to run.
pub fn run<F>(start: impl Fn() -> F + Send + Sync + 'static, wanted: bool) -> !
where
    F: Future<Output = Target> + Send,
{
    let arguments = Arguments::from_args();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => panic!("no runtime: {error}"),
    };
    std::panic::set_hook(Box::new(|info| PANIC.set(Some(info.to_string()))));
    let start = Arc::new(start);
    // A server that did not start, or refuses the fixtures, is told once for every case.
    let target: Arc<OnceCell<Result<Target, String>>> = Arc::default();
    let number = Arc::new(AtomicUsize::new(0));
    let mut trials = Vec::new();
    for case in crate::cases::all() {
        let (runtime, start, target, number) =
            (runtime.clone(), start.clone(), target.clone(), number.clone());
        let trial = Trial::test(format!("{}: {}", case.area, case.name), move || {
            let namespace =
                format!("c{}-{}", number.fetch_add(1, Ordering::Relaxed), case.area.replace(' ', "-"));
            let body = async {
                let prepared = target.get_or_init(|| prepare(start.as_ref())).await;
                let target = prepared
                    .as_ref()
                    .unwrap_or_else(|error| panic!("the server could not be prepared: {error}"));
                let sandbox = Sandbox::create(target, &namespace).await;
                (case.run)(sandbox).await;
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(body)));
            outcome.map_err(|_| {
                let text = PANIC.take().unwrap_or_else(|| "panicked on another thread".into());
                Failed::from(text)
            })
        });
        trials.push(trial.with_ignored_flag(!wanted));
    }
    libtest_mimic::run(&arguments, trials).exit()
}

async fn prepare<F: Future<Output = Target>>(start: &(impl Fn() -> F + ?Sized)) -> Result<Target, String> {
    let work = async {
        let target = start().await;
        fixtures::install(&target).await;
        target
    };
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_| PANIC.take().unwrap_or_default())
}
