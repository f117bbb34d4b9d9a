//! The form of a log: one record for each line, or piece of a long line, with its moment and its stream.
//!
//! `2026-01-02T03:04:05.000000006Z stdout F text`, as the container runtimes write it; `P` where the line goes on.
//! Text in memory only: files belong to the other parts.

use std::path::Path;

use jiff::Timestamp;

/// Longer lines are kept in pieces.
pub(super) const LINE_MAX: usize = 16 * 1024;
/// `2026-01-02T03:04:05.000000006Z`
pub(super) const STAMP: usize = 30;
/// Where a record says whether the line ends with it.
pub(super) const TAG: usize = STAMP + 8;

/// Fixed width, so that stamps can be compared as text.
pub(super) fn stamp(at: Timestamp) -> String {
    format!("{at:.9}")
}

/// Puts the whole lines of `input` into `output`, and says how much of the input that was.
pub(super) fn format_lines(
    input: &[u8],
    at_end: bool,
    stamp: &str,
    stream: &str,
    output: &mut Vec<u8>,
) -> usize {
    let mut taken = 0;
    let mut line = |tag: u8, text: &[u8]| {
        output.extend_from_slice(stamp.as_bytes());
        output.push(b' ');
        output.extend_from_slice(stream.as_bytes());
        output.extend_from_slice(&[b' ', tag, b' ']);
        output.extend_from_slice(text);
        output.push(b'\n');
    };
    loop {
        let rest = &input[taken..];
        let end = rest.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
        match end {
            Some(end) => {
                line(b'F', &rest[..end]);
                taken += end + 1;
            }
            None if rest.len() >= LINE_MAX => {
                line(b'P', &rest[..LINE_MAX]);
                taken += LINE_MAX;
            }
            None => {
                if at_end && !rest.is_empty() {
                    line(b'P', rest);
                    taken += rest.len();
                }
                return taken;
            }
        }
    }
}

/// How much of these records the program said.
pub(super) fn output_bytes(records: &[u8]) -> u64 {
    let records = records.split(|byte| *byte == b'\n').filter(|record| record.len() >= TAG + 2);
    records.map(|record| (record.len() - TAG - 2) as u64 + u64::from(record[TAG] == b'F')).sum()
}

/// What stands in a log, or in what is read of it, where something is missing.
pub(super) fn note(lost: u64, path: &Path, why: &str) -> String {
    format!(
        "{} stderr F [trainyard: {lost} bytes of output were lost here: {}: {why}]\n",
        stamp(Timestamp::now()),
        path.display(),
    )
}

/// Where the last lines begin in records that are in memory, and how many of those wanted there are.
pub(super) fn last_records(records: &[u8], lines: u64) -> (usize, u64) {
    let mut begin = records.len();
    let mut found = 0;
    let mut end = records.len();
    while end > 0 && found <= lines {
        let at = records[..end - 1].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
        if records.get(at + TAG) == Some(&b'F') || end == records.len() {
            found += 1;
        }
        if found <= lines {
            begin = at;
        }
        end = at;
    }
    (begin, found.min(lines))
}

#[cfg(test)]
mod tests {
    use trainyard_apiserver::LogOptions;

    use super::super::LogLimits;
    use super::super::told::{text, written};
    use super::*;

    #[tokio::test]
    async fn long_lines_and_a_last_line_without_an_end_come_back_as_they_were() {
        let endless = "x".repeat(LINE_MAX * 2 + 5);
        let (_directory, log) = written(LogLimits::default(), [format!("a\n{endless}\n"), "end".to_owned()]);
        assert_eq!(text(&log, LogOptions::default()).await, format!("a\n{endless}\nend"));
        let options = LogOptions { tail_lines: Some(2), ..LogOptions::default() };
        assert_eq!(text(&log, options).await, format!("{endless}\nend"));
    }
}
