//! A watch that is read one event at a time.

use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use crate::compare::difference;
use crate::target::{Asked, LIMIT, shortened};

/// An open watch.
pub struct Watch {
    asked: Asked,
    chunks: futures::stream::BoxStream<'static, Result<Vec<u8>, String>>,
    buffer: Vec<u8>,
    seen: Vec<String>,
}

/// One event of a watch, with what a failure shows.
#[derive(Debug)]
pub struct Event {
    story: String,
    /// ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
    pub kind: String,
    /// The object, or the `Status` of an ERROR.
    pub object: Value,
}

impl Watch {
    pub(crate) fn new(asked: Asked, response: http::Response<Body>) -> Self {
        let frames = response.into_body().into_data_stream();
        let chunks =
            frames.map(|chunk| chunk.map(|bytes| bytes.to_vec()).map_err(|error| error.to_string())).boxed();
        Self { asked, chunks, buffer: Vec::new(), seen: Vec::new() }
    }

    /// The next event; it must come.
    pub async fn next(&mut self) -> Event {
        match self.line().await {
            Some(line) => self.event(&line),
            None => panic!("{}\nexpected: another event\nactual:   the watch ended", self.story()),
        }
    }

    /// The next event, which must be of this kind and about the object of this name.
    pub async fn expect(&mut self, kind: &str, name: &str) -> Event {
        let event = self.next().await;
        let right = event.kind == kind && event.object["metadata"]["name"] == name;
        assert!(right, "{}\nexpected: {kind} {name}", event.story);
        event
    }

    /// The next event must be a bookmark.
    pub async fn bookmark(&mut self) -> Event {
        let event = self.next().await;
        assert!(event.kind == "BOOKMARK", "{}\nexpected: BOOKMARK", event.story);
        event
    }

    /// The watch ends without another event.
    pub async fn ends(&mut self) {
        if let Some(line) = self.line().await {
            let event = self.event(&line);
            panic!("{}\nexpected: the end of the watch", event.story);
        }
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                if text.is_empty() {
                    continue;
                }
                return Some(text);
            }
            match tokio::time::timeout(LIMIT, self.chunks.next()).await {
                Ok(Some(Ok(chunk))) => self.buffer.extend(chunk),
                Ok(Some(Err(error))) => panic!("{}\nthe watch broke off: {error}", self.story()),
                Ok(None) if self.buffer.is_empty() => return None,
                // An answer that is one event only may lack the last end of line.
                Ok(None) => self.buffer.push(b'\n'),
                Err(late) => panic!(
                    "{}\nexpected: another event, or the end\nactual:   nothing for {LIMIT:?} ({late})",
                    self.story()
                ),
            }
        }
    }

    fn event(&mut self, line: &str) -> Event {
        self.seen.push(shortened(line, 1500));
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{}\nnot JSON: {error}", self.story()));
        let kind = value["type"].as_str().unwrap_or_default().to_owned();
        Event { story: self.story(), kind, object: value["object"].clone() }
    }

    fn story(&self) -> String {
        format!("{}\nevents:   {}", self.asked, self.seen.join("\n          "))
    }
}

impl Event {
    /// The object contains this; see [`Answer::has`](crate::Answer::has).
    #[track_caller]
    pub fn has(self, expected: Value) -> Self {
        if let Some(difference) = difference(&expected, &self.object, "") {
            panic!("{}\nexpected: {expected}\n          at {difference}", self.story);
        }
        self
    }

    /// The resourceVersion of the object.
    #[track_caller]
    pub fn version(&self) -> String {
        match self.object["metadata"]["resourceVersion"].as_str() {
            Some(version) if !version.is_empty() => version.to_owned(),
            _ => panic!("{}\nexpected: a resourceVersion", self.story),
        }
    }
}
