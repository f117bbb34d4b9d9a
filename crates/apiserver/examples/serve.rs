//! Serves an empty control plane on a free port of this machine, to be tried with kubectl.
//!
//! `cargo run -p trainyard-apiserver --example serve -- DIR` writes DIR/kubeconfig and prints its path; with a second
//! argument, the state is kept in DIR/state. Pods are not run: their logs and commands are made up.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use trainyard_apiserver::{
    ApiServer, ExecExit, ExecOptions, ExecSession, Kubelet, KubeletError, LogOptions, LogStream, PodId, Tls,
    kubeconfig,
};

/// A node that runs nothing.
struct Pretender;

impl Kubelet for Pretender {
    fn logs(
        &self,
        pod: &PodId,
        container: &str,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<LogStream, KubeletError>> {
        let lines = options.tail_lines.unwrap_or(3);
        let text = format!("{}/{container} says hello\n", pod.name);
        let lines = (0..lines).map(move |number| Ok(format!("{number} {text}").into()));
        async move { Ok(stream::iter(lines.collect::<Vec<_>>()).boxed()) }.boxed()
    }

    fn exec(
        &self,
        _: &PodId,
        _: &str,
        options: ExecOptions,
    ) -> BoxFuture<'static, Result<ExecSession, KubeletError>> {
        use tokio::io::{AsyncWriteExt as _, duplex};
        async move {
            let (stdin, mut from_client) = duplex(1024);
            let (mut to_client, stdout) = duplex(1024);
            let code = if options.command.first().is_some_and(|program| program == "false") { 3 } else { 0 };
            let wants_input = options.stdin;
            // Says what it was asked to run, then gives back whatever is typed.
            tokio::spawn(async move {
                let line = options.command.join(" ") + "\n";
                let _ = to_client.write_all(line.as_bytes()).await;
                if wants_input {
                    let _ = tokio::io::copy(&mut from_client, &mut to_client).await;
                }
            });
            Ok(ExecSession {
                stdin: wants_input.then(|| Box::new(stdin) as _),
                stdout: Some(Box::new(stdout)),
                stderr: None,
                resize: None,
                exit: async move { ExecExit::Code(code) }.boxed(),
            })
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let mut builder = ApiServer::builder().token("example");
    if arguments.next().is_some() {
        builder = builder.state_dir(&dir.join("state"));
    }
    let server = builder.build()?;
    server.set_kubelet(Arc::new(Pretender));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let tls = Tls::generate(&[])?;
    let url = format!("https://{}", listener.local_addr()?);
    let path = dir.join("kubeconfig");
    std::fs::write(&path, kubeconfig(&url, Some(&tls), Some("example"), "default"))?;
    writeln!(std::io::stdout(), "{}", path.display())?;
    let stopped = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    server.serve(listener, Some(tls), stopped).await?;
    Ok(())
}
