//! Reads spans of OpenTelemetry with the GenAI attributes.
//!
//! Source: OpenTelemetry, semantic conventions for generative AI: spans of model calls with `gen_ai.input.messages` and
//! `gen_ai.output.messages` (from version 1.37 on, as JSON text or as structured values), spans `execute_tool` with
//! `gen_ai.tool.call.arguments` and `gen_ai.tool.call.result`, spans `invoke_agent`; before, events
//! `gen_ai.user.message`, `gen_ai.assistant.message`, `gen_ai.tool.message` and `gen_ai.choice`. OpenLLMetry has
//! `gen_ai.prompt.0.role` and so on. A file holds OTLP JSON (`resourceSpans`, one document or one a line, as the file
//! exporter writes it), or spans as the console exporters of the SDKs print them.
//!
//! Exporters write a span when it ends, so spans are kept until the file has ended, and then taken in the order of their
//! beginnings.

mod messages;
mod replay;
mod span;

use serde_json::Value;

use super::Reads;
use super::content::{field, list};
use super::tape::Tape;
use span::{Event, Span};

/// Whether a value is an export, or a span.
pub(super) fn is_typical(value: &Value) -> bool {
    exports(value).next().is_some() || Span::of(value).is_some()
}

/// The lists of an export, in both spellings of its keys.
fn exports(value: &Value) -> impl Iterator<Item = &Value> {
    ["resourceSpans", "resource_spans", "resourceLogs", "resource_logs"].iter().flat_map(|key| list(value, key))
}

/// Reads exports.
#[derive(Default)]
pub(super) struct Otel {
    spans: Vec<Span>,
    /// Events that were exported as logs, with the trace and the id of their span.
    logs: Vec<(String, String, Event)>,
}

impl Otel {
    fn scope(&mut self, scope: &Value, tape: &mut Tape) {
        for span in list(scope, "spans") {
            self.span(span, tape);
        }
        for log in ["logRecords", "log_records"].iter().flat_map(|key| list(scope, key)) {
            match Event::of(log) {
                Some(event) => self.logs.push((span::id(log, "trace"), span::id(log, "span"), event)),
                None => tape.skip("log without gen_ai"),
            }
        }
    }

    fn span(&mut self, span: &Value, tape: &mut Tape) {
        match Span::of(span) {
            Some(span) => self.spans.push(span),
            None => tape.skip("span without an id"),
        }
    }
}

impl Reads for Otel {
    fn record(&mut self, record: &Value, tape: &mut Tape) {
        match record {
            Value::Array(records) => records.iter().for_each(|record| self.record(record, tape)),
            _ if exports(record).next().is_some() => {
                for resource in exports(record) {
                    let keys = ["scopeSpans", "scope_spans", "scopeLogs", "scope_logs", "instrumentationLibrarySpans"];
                    keys.iter().flat_map(|key| list(resource, key)).for_each(|scope| self.scope(scope, tape));
                }
            }
            _ if !list(record, "spans").is_empty() => self.scope(record, tape),
            _ if record.is_object() => self.span(record, tape),
            _ => tape.skip(field(record, "type")),
        }
    }

    fn end(&mut self, tape: &mut Tape) {
        replay::replay(std::mem::take(&mut self.spans), std::mem::take(&mut self.logs), tape);
    }
}
