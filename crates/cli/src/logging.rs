//! Logs: text for people at a terminal, one JSON object per line for everything else.

use std::fmt;
use std::io::IsTerminal;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Text at a terminal, JSON otherwise.
    Auto,
    Text,
    Json,
}

/// Sends logs to standard error.
pub(crate) fn start(format: Format, filter: &str) -> anyhow::Result<()> {
    // kube's watcher prints every broken stream; ours says it once, in words.
    let quiet = if filter.contains('=') { filter.to_owned() } else { format!("{filter},kube_runtime=off") };
    let filter = EnvFilter::try_new(quiet).map_err(|error| {
        anyhow::anyhow!("--log-level {filter}: {error} (try error, warn, info, debug or trace)")
    })?;
    let terminal = std::io::stderr().is_terminal();
    // A terminal that has gone away takes no lines, and complaining about that there would end this process.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    if format == Format::Json || (format == Format::Auto && !terminal) {
        builder.event_format(JsonLines).init();
    } else {
        builder.with_ansi(terminal).with_target(false).init();
    }
    Ok(())
}

/// `{"timestamp":…,"level":…,"logger":…,"message":…}` and the fields of the event beside them.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let mut line = Map::new();
        line.insert("timestamp".into(), tracing_timestamp().into());
        line.insert("level".into(), metadata.level().as_str().into());
        line.insert("logger".into(), metadata.target().into());
        line.insert("message".into(), fields.message.into());
        line.extend(fields.others);
        writeln!(writer, "{}", Value::Object(line))
    }
}

fn tracing_timestamp() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        } else {
            self.others.insert(field.name().to_owned(), value);
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}
