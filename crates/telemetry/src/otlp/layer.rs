//! The layer that turns log lines into records for the collector.
//!
//! It sees the lines that the log on stderr shows: the filter stands before both. It leaves out the lines of the
//! exporters and of the HTTP client, because an export would cause further ones.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use belay_protocol::RunId;
use metrics::counter;
use opentelemetry::logs::{AnyValue, LogRecord, Logger, LoggerProvider, Severity};
use opentelemetry::trace::TraceFlags;
use opentelemetry::{InstrumentationScope, Key};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord, SdkLogger, SdkLoggerProvider};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::{span_id, trace_id};

/// The fields with texts of providers, of platforms (homeservers, mail servers, adapters), of the model, of programs or of
/// MCP servers.
const TEXTS: [&str; 6] = ["analysis", "detail", "faults", "said", "stderr", "trouble"];

/// Log lines that were not sent to the collector.
pub(super) const DROPPED: &str = "belay_otlp_dropped_log_lines_total";
/// Records that wait for the exporter; a line that finds it full is dropped and counted. 2,048: about 1 MB.
const QUEUE_CAPACITY: usize = 2048;
/// Longest text of a record's body or attribute, in bytes. It bounds the memory of the queue.
const VALUE_MAX_BYTES: usize = 4096;
/// Targets whose lines are not exported: the exporters, and the libraries of the HTTP client below them.
const LEFT_OUT: [&str; 9] = [
    "belay_telemetry::otlp",
    "belay_telemetry::traces",
    "h2",
    "hyper",
    "hyper_util",
    "opentelemetry",
    "reqwest",
    "rustls",
    "tower",
];

/// Passes log lines to the exporter.
pub struct LogLayer {
    logger: SdkLogger,
    /// Whether lines of level TRACE, which may contain texts of messages, are exported.
    content: bool,
}

/// The records that wait for the exporter.
pub struct LogQueue {
    pub(super) records: Receiver<SdkLogRecord>,
    pub(super) dropped: Arc<AtomicU64>,
}

/// The layer and its queue. `content`: whether lines of level TRACE are exported; `None`: the collector gets no log lines,
/// and there is neither.
pub fn log_layer(content: Option<bool>) -> (Option<LogLayer>, Option<LogQueue>) {
    content.map(LogLayer::new).unzip()
}

impl LogLayer {
    /// A layer, and the queue that it fills. `content`: whether lines of level TRACE are exported.
    pub(crate) fn new(content: bool) -> (Self, LogQueue) {
        let (sender, records) = channel(QUEUE_CAPACITY);
        let dropped = Arc::new(AtomicU64::new(0));
        let queue = Queue { sender, dropped: dropped.clone() };
        let provider = SdkLoggerProvider::builder().with_log_processor(queue).build();
        (Self { logger: provider.logger("belay"), content }, LogQueue { records, dropped })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut line = Line::default();
        attributes.record(&mut line);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(line);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(line) = span.extensions_mut().get_mut::<Line>() {
            values.record(line);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let level = *event.metadata().level();
        if level == Level::TRACE && !self.content {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let target = line.target.take().unwrap_or_else(|| event.metadata().target().to_owned());
        if is_left_out(&target) {
            return;
        }
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(around) = span.extensions().get::<Line>() {
                line.add(around);
            }
        }
        if !self.content {
            line.drop_texts();
        }
        let mut record = self.logger.create_log_record();
        record.set_timestamp(SystemTime::now());
        record.set_target(target);
        let (severity, text) = severity(level);
        record.set_severity_number(severity);
        record.set_severity_text(text);
        if let Some(message) = line.message {
            record.set_body(message.into());
        }
        if let Some(run) = line.run {
            record.set_trace_context(trace_id(run), span_id(run, 0), Some(TraceFlags::SAMPLED));
        }
        record.add_attributes(line.fields);
        self.logger.emit(record);
    }
}

fn is_left_out(target: &str) -> bool {
    LEFT_OUT
        .iter()
        .any(|left_out| target.strip_prefix(left_out).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
}

fn severity(level: Level) -> (Severity, &'static str) {
    match level {
        Level::ERROR => (Severity::Error, "ERROR"),
        Level::WARN => (Severity::Warn, "WARN"),
        Level::INFO => (Severity::Info, "INFO"),
        Level::DEBUG => (Severity::Debug, "DEBUG"),
        Level::TRACE => (Severity::Trace, "TRACE"),
    }
}

/// The fields of an event or a span.
#[derive(Default)]
struct Line {
    message: Option<String>,
    /// The target of a line that a library has written with the `log` facade.
    target: Option<String>,
    run: Option<RunId>,
    fields: Vec<(Key, AnyValue)>,
}

impl Line {
    /// Removes the fields that may repeat a message: providers quote the request in their errors.
    fn drop_texts(&mut self) {
        self.fields.retain(|(key, _)| !TEXTS.contains(&key.as_str()));
    }

    /// Adds the fields of a span around the line. Those of the line, and of spans further inside, have precedence.
    fn add(&mut self, around: &Self) {
        self.run = self.run.or(around.run);
        for (key, value) in &around.fields {
            if !self.fields.iter().any(|(own, _)| own == key) {
                self.fields.push((key.clone(), value.clone()));
            }
        }
    }

    fn text(&mut self, field: &Field, text: &str) {
        let cut = &text[..text.floor_char_boundary(VALUE_MAX_BYTES)];
        match field.name() {
            "message" => self.message = Some(cut.to_owned()),
            "log.target" => self.target = Some(cut.to_owned()),
            name if name.starts_with("log.") => {}
            name => {
                if name == "run" {
                    self.run = cut.parse().ok();
                }
                self.value(field, cut.to_owned());
            }
        }
    }

    fn value(&mut self, field: &Field, value: impl Into<AnyValue>) {
        if !field.name().starts_with("log.") {
            self.fields.push((Key::from_static_str(field.name()), value.into()));
        }
    }
}

impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.value(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.value(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.value(field, value),
            Err(_) => self.value(field, value.to_string()),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.value(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, &format!("{value:?}"));
    }
}

/// Puts records into the queue.
#[derive(Debug)]
struct Queue {
    sender: Sender<SdkLogRecord>,
    dropped: Arc<AtomicU64>,
}

impl LogProcessor for Queue {
    fn emit(&self, record: &mut SdkLogRecord, _: &InstrumentationScope) {
        // Closed: the exporter has ended, shortly before the daemon.
        if let Err(TrySendError::Full(_)) = self.sender.try_send(record.clone()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            counter!(DROPPED).increment(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
