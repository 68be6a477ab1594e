//! The spans of an ended run, by the semantic conventions of OpenTelemetry for generative AI: `invoke_agent` with the
//! children `chat` and `execute_tool`. They are made from the run's record and its stored events.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belay_protocol::{CallId, Event, EventKind, RunRecord, RunStatus, ToolStatus, UnixMillis};
use opentelemetry::trace::{
    Event as SpanEvent, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::names;
use crate::otlp::{VERSION, span_id, trace_id};

/// Longest text of an attribute, in bytes. 16 KiB: collectors refuse requests of a few MiB.
const TEXT_MAX_BYTES: usize = 16 * 1024;

/// Longest name or id that a model or a provider has chosen, in bytes.
const NAME_MAX_BYTES: usize = 128;

/// The names that all runs share.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    /// The name of the agent.
    pub(super) agent: String,
    /// The name of the provider.
    pub(super) provider: String,
    /// The configured model.
    pub(super) model: String,
}

/// The facts of an ended run.
pub(super) struct Facts<'a> {
    /// Its record.
    pub(super) record: &'a RunRecord,
    /// Its events, in order.
    pub(super) events: &'a [Event],
    /// The number of its events that were not read.
    pub(super) unread: u64,
    /// The text of its message, if content is exported. `None`: no content is exported.
    pub(super) input: Option<&'a str>,
}

/// The spans of a run, its own last.
pub(super) fn of_run(naming: &Naming, facts: &Facts<'_>) -> Vec<SpanData> {
    let mut trace = Trace::new(naming, facts);
    for event in facts.events {
        trace.add(event);
    }
    trace.end()
}

/// A subagent that has not ended.
struct Child {
    span: SpanId,
    parent: SpanId,
    began: UnixMillis,
    depth: u32,
    task: String,
}

/// A tool call that has not ended.
struct Call {
    span: SpanId,
    parent: SpanId,
    began: UnixMillis,
    name: String,
    arguments: String,
}

struct Trace<'a> {
    naming: &'a Naming,
    facts: &'a Facts<'a>,
    id: TraceId,
    root: SpanId,
    scope: InstrumentationScope,
    spans: Vec<SpanData>,
    notes: Vec<SpanEvent>,
    /// In the order of their beginnings. A subagent may give its call the id of a call that is open around it.
    calls: Vec<(CallId, Call)>,
    children: Vec<(CallId, Child)>,
    /// Answering model and requested model of each fallback.
    stand_ins: HashMap<String, String>,
    /// The model that was requested last.
    requested: Option<String>,
}

impl<'a> Trace<'a> {
    fn new(naming: &'a Naming, facts: &'a Facts<'a>) -> Self {
        let run = facts.record.run_id;
        Self {
            naming,
            facts,
            id: trace_id(run),
            root: span_id(run, 0),
            scope: InstrumentationScope::builder("belay").with_version(VERSION).build(),
            spans: Vec::with_capacity(facts.events.len() / 2 + 1),
            notes: Vec::new(),
            calls: Vec::new(),
            children: Vec::new(),
            stand_ins: HashMap::new(),
            requested: None,
        }
    }

    fn shows_content(&self) -> bool {
        self.facts.input.is_some()
    }

    fn add(&mut self, event: &Event) {
        let span = span_id(self.facts.record.run_id, event.seq.0);
        match &event.kind {
            EventKind::ModelCalled { .. } => self.model_called(span, event),
            EventKind::ToolStarted { call_id, name, arguments } => {
                let (parent, began) = (self.parent(), event.at);
                let call = Call { span, parent, began, name: name.clone(), arguments: arguments.clone() };
                self.calls.push((call_id.clone(), call));
            }
            EventKind::ToolFinished { call_id, name, status, took_ms, result } => {
                let open = self.calls.iter().rposition(|(id, call)| id == call_id && call.name == *name);
                let call = match open {
                    Some(at) => self.calls.remove(at).1,
                    None => Call {
                        span,
                        parent: self.parent(),
                        began: before(event.at, *took_ms),
                        name: name.clone(),
                        arguments: String::new(),
                    },
                };
                self.tool_ended(call_id, call, event.at, *status, result);
            }
            EventKind::SubagentStarted { call_id, task, depth } => {
                let caller = self.calls.iter().rfind(|(id, _)| id == call_id);
                let parent = caller.map_or_else(|| self.parent(), |(_, call)| call.span);
                let child = Child { span, parent, began: event.at, depth: *depth, task: task.clone() };
                self.children.push((call_id.clone(), child));
            }
            EventKind::SubagentEnded { call_id, reason, .. } => {
                if let Some(at) = self.children.iter().rposition(|(id, _)| id == call_id) {
                    let (_, child) = self.children.remove(at);
                    self.child_ended(child, event.at, Some(reason.word()));
                }
            }
            EventKind::ModelFallback { from, to, reason } => {
                self.stand_ins.insert(to.clone(), from.clone());
                self.note("belay.model_fallback", event, [("belay.reason", reason.clone())]);
            }
            EventKind::GuardrailTriggered { guardrail, .. } => {
                self.note("belay.guardrail_triggered", event, [("belay.guardrail", guardrail.clone())]);
            }
            EventKind::Compacted { source, .. } => {
                self.note("belay.compacted", event, [("belay.source", source.clone())]);
            }
            EventKind::ApprovalRequested { name, kind, .. } => {
                let facts = [(names::TOOL_NAME, short(name)), ("belay.kind", kind.clone())];
                self.note("belay.approval_requested", event, facts);
            }
            EventKind::ApprovalResolved { state, .. } => {
                self.note("belay.approval_resolved", event, [("belay.state", state.clone())]);
            }
            EventKind::RunStarted { attempt } if *attempt > 1 => {
                self.note("belay.run_resumed", event, [("belay.attempt", attempt.to_string())]);
            }
            _ => {}
        }
    }

    /// The span of the part that works now: the deepest subagent, as long as no two of them work side by side. Events do
    /// not name their subagent, so the parts of parallel ones belong to the run.
    fn parent(&self) -> SpanId {
        let children = || self.children.iter().map(|(_, child)| child);
        let depths: BTreeSet<_> = children().map(|child| child.depth).collect();
        let deepest = children().max_by_key(|child| child.depth).filter(|_| depths.len() == self.children.len());
        deepest.map_or(self.root, |child| child.span)
    }

    fn model_called(&mut self, span: SpanId, event: &Event) {
        let EventKind::ModelCalled { step, attempts, input, output, model, took_ms, error, .. } = &event.kind else {
            return;
        };
        let answered = if model.is_empty() { &self.naming.model } else { model };
        let stood_in_for = self.stand_ins.get(answered);
        let requested = short(stood_in_for.unwrap_or(answered));
        self.requested = Some(requested.clone());
        let mut facts = vec![
            KeyValue::new(names::OPERATION, "chat"),
            KeyValue::new(names::REQUEST_MODEL, requested.clone()),
            KeyValue::new("belay.step", i64::from(*step)),
            KeyValue::new("belay.requests", i64::from(*attempts)),
        ];
        // A fallback may be a model of another provider.
        if stood_in_for.is_none() {
            facts.push(KeyValue::new(names::PROVIDER, self.naming.provider.clone()));
        }
        if error.is_empty() {
            facts.push(KeyValue::new(names::RESPONSE_MODEL, short(answered)));
        }
        facts.extend(input.map(|tokens| KeyValue::new(names::INPUT_TOKENS, whole(tokens))));
        facts.extend(output.map(|tokens| KeyValue::new(names::OUTPUT_TOKENS, whole(tokens))));
        // A call that a stop has cut is no fault.
        let failed = !error.is_empty() && error != "stopped";
        if !error.is_empty() {
            facts.push(KeyValue::new(names::ERROR, error.clone()));
        }
        let status = if failed { Status::error(error.clone()) } else { Status::Unset };
        let times = (before(event.at, *took_ms), event.at);
        self.push(span, self.parent(), SpanKind::Client, format!("chat {requested}"), times, facts, status);
    }

    fn tool_ended(&mut self, id: &CallId, call: Call, at: UnixMillis, status: ToolStatus, result: &str) {
        let Call { span, parent, began, name, arguments } = call;
        let name = short(&name);
        let mut facts = vec![
            KeyValue::new(names::OPERATION, "execute_tool"),
            KeyValue::new(names::TOOL_NAME, name.clone()),
            KeyValue::new(names::TOOL_CALL, short(&id.to_string())),
            KeyValue::new(names::TOOL_TYPE, "function"),
            KeyValue::new("belay.tool.status", status.word()),
        ];
        if self.shows_content() {
            facts.push(KeyValue::new(names::TOOL_ARGUMENTS, cut(&arguments)));
            facts.push(KeyValue::new(names::TOOL_RESULT, cut(result)));
        }
        let failed = !matches!(status, ToolStatus::Success | ToolStatus::Denied | ToolStatus::Cancelled);
        if status != ToolStatus::Success {
            facts.push(KeyValue::new(names::ERROR, status.word()));
        }
        let outcome = if failed { Status::error(status.word()) } else { Status::Unset };
        self.push(span, parent, SpanKind::Internal, format!("execute_tool {name}"), (began, at), facts, outcome);
    }

    fn child_ended(&mut self, child: Child, at: UnixMillis, reason: Option<&'static str>) {
        let mut facts = vec![
            KeyValue::new(names::OPERATION, "invoke_agent"),
            KeyValue::new(names::AGENT, "subagent"),
            KeyValue::new("belay.depth", i64::from(child.depth)),
        ];
        facts.extend(reason.map(|reason| KeyValue::new("belay.run.reason", reason)));
        if self.shows_content() {
            facts.push(KeyValue::new(names::INPUT, message("user", &child.task)));
        }
        let times = (child.began, at);
        let name = "invoke_agent subagent".to_owned();
        self.push(child.span, child.parent, SpanKind::Internal, name, times, facts, Status::Unset);
    }

    /// Ends what a stop or a crash has left open, and adds the span of the run.
    fn end(mut self) -> Vec<SpanData> {
        let record = self.facts.record;
        let ended = record.ended_at.unwrap_or(record.accepted_at);
        for (id, call) in std::mem::take(&mut self.calls) {
            self.tool_ended(&id, call, ended, ToolStatus::OutcomeUnknown, "");
        }
        for (_, child) in std::mem::take(&mut self.children) {
            self.child_ended(child, ended, None);
        }
        let reason = record.reason.map_or("", |reason| reason.word());
        let mut facts = vec![
            KeyValue::new(names::OPERATION, "invoke_agent"),
            KeyValue::new(names::PROVIDER, self.naming.provider.clone()),
            KeyValue::new(names::AGENT, self.naming.agent.clone()),
            KeyValue::new(names::REQUEST_MODEL, self.requested.take().unwrap_or_else(|| short(&self.naming.model))),
            KeyValue::new(names::CONVERSATION, record.session.to_string()),
            KeyValue::new(names::INPUT_TOKENS, whole(record.usage.input)),
            KeyValue::new(names::OUTPUT_TOKENS, whole(record.usage.output)),
            KeyValue::new("belay.run.id", record.run_id.to_string()),
            KeyValue::new("belay.run.status", record.status.word()),
            KeyValue::new("belay.run.reason", reason),
            KeyValue::new("belay.run.attempt", i64::from(record.attempt)),
            KeyValue::new("belay.run.cost_usd", record.cost_micro_usd as f64 / 1e6),
        ];
        if let Some(started) = record.started_at {
            let waited_ms = started.0.saturating_sub(record.accepted_at.0).max(0);
            facts.push(KeyValue::new("belay.run.queue_wait_seconds", waited_ms as f64 / 1000.0));
        }
        if self.facts.unread > 0 {
            facts.push(KeyValue::new("belay.run.events_left_out", whole(self.facts.unread)));
        }
        if let Some(input) = self.facts.input {
            facts.push(KeyValue::new(names::INPUT, message("user", input)));
            facts.push(KeyValue::new(names::OUTPUT, message("assistant", record.reply.as_deref().unwrap_or_default())));
        }
        let failed = record.status == RunStatus::Failed;
        if failed {
            facts.push(KeyValue::new(names::ERROR, reason));
        }
        let status = if failed { Status::error(reason) } else { Status::Unset };
        let times = (record.accepted_at, ended);
        let name = format!("invoke_agent {}", self.naming.agent);
        self.push(self.root, SpanId::INVALID, SpanKind::Internal, name, times, facts, status);
        if let Some(root) = self.spans.last_mut() {
            root.events.events = self.notes;
        }
        self.spans
    }

    fn note<const N: usize>(&mut self, name: &'static str, event: &Event, facts: [(&'static str, String); N]) {
        let facts = facts.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
        self.notes.push(SpanEvent::new(name, time(event.at), facts, 0));
    }

    #[allow(clippy::too_many_arguments)] // the parts of a span
    fn push(
        &mut self,
        span: SpanId,
        parent: SpanId,
        kind: SpanKind,
        name: String,
        (began, ended): (UnixMillis, UnixMillis),
        attributes: Vec<KeyValue>,
        status: Status,
    ) {
        let (start_time, end_time) = (time(began), time(ended).max(time(began)));
        self.spans.push(SpanData {
            span_context: SpanContext::new(self.id, span, TraceFlags::SAMPLED, false, TraceState::default()),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: kind,
            name: name.into(),
            start_time,
            end_time,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        });
    }
}

/// A message in the form of the conventions.
fn message(role: &str, text: &str) -> String {
    serde_json::json!([{ "role": role, "parts": [{ "type": "text", "content": cut(text) }] }]).to_string()
}

/// The beginning of a text, at most [`TEXT_MAX_BYTES`].
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_MAX_BYTES)].to_owned()
}

/// The beginning of a name, at most [`NAME_MAX_BYTES`].
fn short(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_MAX_BYTES)].to_owned()
}

fn time(at: UnixMillis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or(0))
}

fn before(at: UnixMillis, ms: u64) -> UnixMillis {
    UnixMillis(at.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)))
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
