//! Our own format, for any program: one JSON object on a line.
//!
//! `{"epoch": 3, "epochs": 10, "step": 1200, "steps": 4000, "loss": 0.23, "accuracy": 0.91}`
//!
//! `epoch`, `epochs`, `step` and `steps` say how far the training is; every other number is a metric. A line counts
//! when it has an epoch or a step: programs print other JSON, too. A loss that is no number any more (Python prints `NaN`, others
//! `null`) takes the old one away, and the epoch still counts.

use serde_json::{Map, Value};

use crate::Reading;

/// A line has at most this many metrics; a status is no database.
const METRICS_MAX: usize = 32;
/// Names of metrics are short.
const NAME_MAX: usize = 63;

pub(super) fn read(line: &str) -> Option<Reading> {
    let line = line.trim();
    if !(line.starts_with('{') && line.ends_with('}')) {
        return None;
    }
    let fields: Map<String, Value> =
        serde_json::from_str(line).or_else(|_| serde_json::from_str(&with_nulls(line))).ok()?;
    let number = |name: &str| fields.get(name).and_then(Value::as_f64).filter(|number| number.is_finite());
    let reading = Reading {
        epoch: number("epoch"),
        epochs: number("epochs"),
        step: number("step"),
        steps: number("steps"),
        metrics: fields
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "epoch" | "epochs" | "step" | "steps"))
            .filter(|(name, _)| (1..=NAME_MAX).contains(&name.len()))
            .filter_map(|(name, value)| Some((name.clone(), metric(value)?)))
            .take(METRICS_MAX)
            .collect(),
    };
    (reading.epoch.is_some() || reading.step.is_some()).then_some(reading)
}

fn metric(value: &Value) -> Option<f64> {
    if value.is_null() { Some(f64::NAN) } else { value.as_f64() }
}

/// The line with null in the place of what is no JSON, but printed by Python for numbers that are none.
fn with_nulls(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    let (mut quoted, mut escaped) = (false, false);
    while let Some(next) = rest.chars().next() {
        let no_number = ["NaN", "Infinity", "-Infinity"].into_iter().find(|it| rest.starts_with(it));
        if let Some(no_number) = no_number.filter(|_| !quoted) {
            text.push_str("null");
            rest = &rest[no_number.len()..];
            continue;
        }
        quoted ^= next == '"' && !escaped;
        escaped = next == '\\' && !escaped;
        text.push(next);
        rest = &rest[next.len_utf8()..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_line() {
        let line = r#"{"epoch": 3, "epochs": 10, "step": 1200, "loss": 0.23, "accuracy": 0.91, "host": "a"}"#;
        let reading = read(line).unwrap_or_default();
        assert_eq!((reading.epoch, reading.epochs), (Some(3.0), Some(10.0)));
        assert_eq!((reading.step, reading.steps), (Some(1200.0), None));
        assert_eq!(reading.metrics, [("accuracy".into(), 0.91), ("loss".into(), 0.23)].into());
    }

    #[test]
    fn a_loss_that_is_no_number_does_not_hide_the_epoch() {
        for loss in ["NaN", "Infinity", "-Infinity", "null"] {
            let line = format!(r#"{{"epoch": 1, "epochs": 4, "note": "\"NaN", "loss": {loss}, "lr": 0.1}}"#);
            let reading = read(&line).unwrap_or_default();
            assert_eq!((reading.epoch, reading.epochs), (Some(1.0), Some(4.0)), "{line}");
            assert!(reading.metrics["loss"].is_nan() && reading.metrics["lr"] > 0.0, "{line}");
        }
    }

    #[test]
    fn other_lines_say_nothing() {
        for line in [
            "",
            "epoch 3",
            "{}",
            r#"{"level": "info", "loss": 0.3}"#,
            r#"{"epoch": "three"}"#,
            r#"[{"epoch": 3}]"#,
            r#"{"epoch": 3"#,
            r#"{"epoch": null}"#,
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
