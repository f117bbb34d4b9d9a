//! Logs for the tests: something is said, and what can be read of it.

use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use trainyard_apiserver::LogOptions;

use super::record::{format_lines, stamp};
use super::{Log, LogLimits, read};

pub(super) fn written(
    limits: LogLimits,
    lines: impl IntoIterator<Item = String>,
) -> (tempfile::TempDir, Arc<Log>) {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::new(directory.path().join("0.log"), limits);
    for (second, line) in lines.into_iter().enumerate() {
        let at = Timestamp::from_second(1_000 + i64::try_from(second).unwrap()).unwrap();
        let mut text = Vec::new();
        format_lines(line.as_bytes(), true, &stamp(at), "stdout", &mut text);
        log.append(&text);
    }
    (directory, log)
}

pub(super) async fn text(log: &Arc<Log>, options: LogOptions) -> String {
    let now = Timestamp::from_second(1_010).unwrap();
    let pieces: Vec<_> = read(log.clone(), options, now).map(Result::unwrap).collect().await;
    String::from_utf8(pieces.concat()).unwrap()
}

pub(super) fn say(log: &Log, text: &str) {
    let mut records = Vec::new();
    format_lines(text.as_bytes(), true, &stamp(Timestamp::now()), "stdout", &mut records);
    log.append(&records);
}
