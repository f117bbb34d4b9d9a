//! `pods/exec` over a WebSocket: the streams of a command as numbered channels (`v5.channel.k8s.io` and `v4`).

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};

use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::http::Upgrade;
use crate::kubelet::{ExecExit, ExecSession};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Since v5: the channel that the next byte names is at its end.
const CLOSE: u8 = 255;

/// Chooses how to speak.
pub(crate) fn protocol(upgrade: &Upgrade) -> Result<&'static str> {
    if !upgrade.to.eq_ignore_ascii_case("websocket") {
        return Err(ApiError::not_here(
            501,
            "NotImplemented",
            "exec over SPDY is not supported: use a client that speaks WebSocket, such as kubectl 1.31 or newer",
        ));
    }
    ["v5.channel.k8s.io", "v4.channel.k8s.io"]
        .into_iter()
        .find(|known| upgrade.protocols.iter().any(|asked| asked == known))
        .ok_or_else(|| {
            ApiError::bad_request(
                "unable to upgrade: the subprotocol must be v5.channel.k8s.io or v4.channel.k8s.io",
            )
        })
}

/// Answers the handshake and carries the session once the connection is ours.
pub(crate) fn serve(upgrade: Upgrade, protocol: &'static str, session: ExecSession) -> Response<Body> {
    let mut response = Response::new(Body::whole(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert("sec-websocket-protocol", HeaderValue::from_static(protocol));
    if let Ok(key) = HeaderValue::from_str(&derive_accept_key(upgrade.key.as_bytes())) {
        headers.insert("sec-websocket-accept", key);
    }
    tokio::spawn(async move {
        match upgrade.on.await {
            Ok(connection) => {
                let socket =
                    WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, None).await;
                carry(socket, session).await;
            }
            Err(error) => tracing::debug!("an exec connection was lost before it began: {error}"),
        }
    });
    response
}

async fn carry<S>(socket: WebSocketStream<S>, session: ExecSession)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let ExecSession { mut stdin, stdout, stderr, resize, exit } = session;
    let (mut to_client, mut from_client) = socket.split();
    let (pieces, mut outgoing) = mpsc::channel::<Vec<u8>>(16);
    let mut readers = tokio::task::JoinSet::new();
    for (channel, stream) in [(STDOUT, stdout), (STDERR, stderr)] {
        let Some(mut stream) = stream else { continue };
        let pieces = pieces.clone();
        readers.spawn(async move {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                let mut piece = Vec::with_capacity(count + 1);
                piece.push(channel);
                piece.extend_from_slice(&buffer[..count]);
                if pieces.send(piece).await.is_err() {
                    return;
                }
            }
        });
    }
    drop(pieces);
    let input = async {
        while let Some(Ok(message)) = from_client.next().await {
            let data = match message {
                Message::Binary(data) => data,
                Message::Text(text) => Bytes::from(text),
                Message::Close(_) => return,
                _ => continue,
            };
            match data.split_first() {
                Some((&STDIN, rest)) => {
                    if let Some(pipe) = &mut stdin
                        && pipe.write_all(rest).await.is_err()
                    {
                        stdin = None;
                    } else if let Some(pipe) = &mut stdin {
                        let _ = pipe.flush().await;
                    }
                }
                Some((&RESIZE, rest)) => {
                    if let (Some(resize), Ok(size)) = (&resize, serde_json::from_slice::<Value>(rest)) {
                        let number =
                            |key: &str| size[key].as_u64().and_then(|number| u16::try_from(number).ok());
                        if let (Some(width), Some(height)) = (number("Width"), number("Height")) {
                            resize(width, height);
                        }
                    }
                }
                Some((&CLOSE, [STDIN])) => {
                    if let Some(mut pipe) = stdin.take() {
                        let _ = pipe.shutdown().await;
                    }
                }
                _ => {}
            }
        }
    };
    let output = async {
        while let Some(piece) = outgoing.recv().await {
            if to_client.send(Message::Binary(piece.into())).await.is_err() {
                return;
            }
        }
        // All output is sent; how it ended is the last word.
        let mut last = vec![ERROR];
        last.extend_from_slice(status(&exit.await).to_string().as_bytes());
        let _ = to_client.send(Message::Binary(last.into())).await;
        let farewell = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let _ = to_client.send(Message::Close(Some(farewell))).await;
    };
    tokio::pin!(output);
    tokio::select! {
        () = &mut output => {}
        // A client that goes ends the command: the session is dropped with us.
        () = input => {}
    }
}

fn status(exit: &ExecExit) -> Value {
    match exit {
        ExecExit::Code(0) => json!({"metadata": {}, "status": "Success"}),
        ExecExit::Code(code) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: command terminated with exit code {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        ExecExit::Error(message) => json!({
            "metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500,
        }),
    }
}
