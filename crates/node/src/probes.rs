//! Startup, liveness and readiness probes: exec, tcpSocket and httpGet.
//!
//! Each probe is a task that tells the pod's task when its verdict changes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::exec;
use crate::rewrite::Rewrites;
use crate::shared::Door;

/// What a probe found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Result {
    Started,
    Ready(bool),
    /// It must be ended (and started again, if its pod says so).
    Unhealthy {
        message: String,
    },
}

/// Where a container can be asked.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) address: String,
    /// What was replaced in what the container was told: ports, and without namespaces paths.
    pub(crate) rewrites: Rewrites,
    pub(crate) shim: Vec<String>,
    pub(crate) door: Arc<Door>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Startup,
    Liveness,
    Readiness,
}

/// Starts the probes of a container.
pub(crate) fn start(
    container: &Container,
    place: &Place,
    tell: impl Fn(Result) -> bool + Send + Sync + 'static,
) -> Vec<JoinHandle<()>> {
    let startup = container.startup_probe.clone();
    let others = [(Kind::Liveness, &container.liveness_probe), (Kind::Readiness, &container.readiness_probe)];
    let others: Vec<(Kind, Probe)> =
        others.into_iter().filter_map(|(kind, probe)| Some((kind, probe.clone()?))).collect();
    if startup.is_none() && others.is_empty() {
        return Vec::new();
    }
    let (container, place) = (container.clone(), place.clone());
    vec![tokio::spawn(async move {
        if let Some(startup) = startup
            && !watch(Kind::Startup, &startup, &container, &place, &tell).await
        {
            return;
        }
        let probes = others.iter().map(|(kind, probe)| watch(*kind, probe, &container, &place, &tell));
        futures::future::join_all(probes).await;
    })]
}

/// Asks again and again. Ends when a startup probe has succeeded (true), or a container must be ended (false).
async fn watch(
    kind: Kind,
    probe: &Probe,
    container: &Container,
    place: &Place,
    tell: &(impl Fn(Result) -> bool + Send + Sync),
) -> bool {
    let seconds = |value: Option<i32>, default: u64| {
        Duration::from_secs(
            value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default),
        )
    };
    let count = |value: Option<i32>, default: u32| {
        value.and_then(|value| u32::try_from(value).ok()).unwrap_or(default)
    };
    let (period, patience) = (seconds(probe.period_seconds, 10), seconds(probe.timeout_seconds, 1));
    let (enough_failures, enough_successes) =
        (count(probe.failure_threshold, 3).max(1), count(probe.success_threshold, 1).max(1));
    tokio::time::sleep(Duration::from_secs(u64::from(count(probe.initial_delay_seconds, 0)))).await;
    let (mut failures, mut successes) = (0, 0);
    let mut ready = false;
    if kind == Kind::Startup {
        hasten(probe, container, place, period).await;
    }
    loop {
        let answer = tokio::time::timeout(patience, ask(probe, container, place)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", patience.as_secs())));
        match answer {
            Ok(()) => {
                (failures, successes) = (0, successes + 1);
                if kind == Kind::Startup && successes >= enough_successes {
                    return tell(Result::Started);
                }
                if kind == Kind::Readiness && !ready && successes >= enough_successes {
                    ready = true;
                    if !tell(Result::Ready(true)) {
                        return false;
                    }
                }
            }
            Err(why) => {
                (failures, successes) = (failures + 1, 0);
                if failures < enough_failures {
                } else if kind == Kind::Readiness {
                    if ready && !tell(Result::Ready(false)) {
                        return false;
                    }
                    ready = false;
                } else {
                    let name = if kind == Kind::Startup { "Startup" } else { "Liveness" };
                    tell(Result::Unhealthy { message: format!("{name} probe failed: {why}") });
                    return false;
                }
            }
        }
        tokio::time::sleep(period).await;
    }
}

/// What has only just been started is asked more often than its probe says: on one machine, most things start within a moment. Until the
/// first period is over, no answer counts as a failure.
async fn hasten(probe: &Probe, container: &Container, place: &Place, period: Duration) {
    let mut pause = Duration::from_millis(25);
    let mut waited = Duration::ZERO;
    while waited + pause < period {
        if ask(probe, container, place).await.is_ok() {
            return;
        }
        tokio::time::sleep(pause).await;
        waited += pause;
        pause *= 2;
    }
}

async fn ask(probe: &Probe, container: &Container, place: &Place) -> std::result::Result<(), String> {
    if let Some(action) = &probe.exec {
        let words = place.rewrites.words(action.command.as_deref().unwrap_or_default());
        return exec::succeeds(&place.shim, &place.door, &words).await;
    }
    if let Some(action) = &probe.tcp_socket {
        let host = action.host.as_deref().filter(|host| !host.is_empty());
        return connect(host, &action.port, container, place).await.map(drop);
    }
    if let Some(action) = &probe.http_get {
        if action.scheme.as_deref() == Some("HTTPS") {
            return Err("HTTPS probes are not supported on this machine".to_owned());
        }
        let host = action.host.as_deref().filter(|host| !host.is_empty());
        let mut stream = connect(host, &action.port, container, place).await?;
        let path = action.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
        let mut request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: kube-probe/trainyard\r\nConnection: close\r\n",
            place.address
        );
        for header in action.http_headers.iter().flatten() {
            let _ = write!(request, "{}: {}\r\n", header.name, header.value);
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut head = [0; 64];
        let mut length = 0;
        while length < 13 {
            let read = stream.read(&mut head[length..]).await.map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("the connection was closed without an answer".to_owned());
            }
            length += read;
        }
        let text = String::from_utf8_lossy(&head[..length]).into_owned();
        let code: u16 = text.split_ascii_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        return if (200..400).contains(&code) {
            Ok(())
        } else {
            Err(format!("HTTP probe failed with statuscode: {code}"))
        };
    }
    Err("this kind of probe is not supported on this machine".to_owned())
}

/// Programs listen on all addresses, or on the pod's own, or on localhost only; in a pod of its own all of these would do.
async fn connect(
    host: Option<&str>,
    port: &IntOrString,
    container: &Container,
    place: &Place,
) -> std::result::Result<TcpStream, String> {
    let number = match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_ref() == Some(name))
            .and_then(|port| u16::try_from(port.container_port).ok()),
    };
    let number = number.ok_or_else(|| format!("there is no port {port:?}"))?;
    let number = place.rewrites.ports.get(&number).copied().unwrap_or(number);
    let hosts = host.map_or_else(|| vec![place.address.as_str(), "127.0.0.1"], |host| vec![host]);
    let mut why = String::new();
    for host in hosts {
        match TcpStream::connect((host, number)).await {
            Ok(stream) => return Ok(stream),
            Err(error) => why = format!("dial tcp {host}:{number}: {error}"),
        }
    }
    Err(why)
}
