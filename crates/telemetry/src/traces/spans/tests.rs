#![allow(clippy::unwrap_used)]

use belay_protocol::{RunId, RunUsage, Seq, SessionKey, StopReason, Termination};
use opentelemetry::Value;
use serde_json::Map;

use super::*;

fn naming() -> Naming {
    Naming { agent: "belay".into(), provider: "openai".into(), model: "large".into() }
}

fn record(status: RunStatus, reason: StopReason) -> RunRecord {
    RunRecord {
        run_id: RunId::new(),
        session: SessionKey::from("alice"),
        status,
        reason: Some(reason),
        evidence: Map::new(),
        reply: Some("the answer".into()),
        usage: RunUsage { input: 30, output: 7, model_calls: 2, tool_calls: 1, estimated_calls: 0 },
        cost_micro_usd: 1_500_000,
        attempt: 1,
        accepted_at: UnixMillis(1_000),
        started_at: Some(UnixMillis(1_250)),
        ended_at: Some(UnixMillis(9_000)),
        waiting_for: None,
        files: Vec::new(),
    }
}

fn events(run: &RunRecord, kinds: Vec<(i64, EventKind)>) -> Vec<Event> {
    let event = |(at, (ms, kind)): (usize, (i64, EventKind))| Event {
        seq: Seq(at as u64 + 1),
        at: UnixMillis(ms),
        session: Some(run.session.clone()),
        run_id: Some(run.run_id),
        kind,
    };
    kinds.into_iter().enumerate().map(event).collect()
}

fn called(step: u32, model: &str, took_ms: u64, error: &str) -> EventKind {
    let (model, error, purpose) = (model.to_owned(), error.to_owned(), String::new());
    EventKind::ModelCalled { step, attempts: 1, input: Some(10), output: Some(3), model, took_ms, error, purpose }
}

fn tool(id: &str, name: &str) -> EventKind {
    EventKind::ToolStarted { call_id: CallId::from(id), name: name.into(), arguments: "path: secret.txt".into() }
}

fn tool_done(id: &str, name: &str, status: ToolStatus) -> EventKind {
    EventKind::ToolFinished { call_id: CallId::from(id), name: name.into(), status, took_ms: 5, result: "words".into() }
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap_or_else(|| panic!("no span {name} in {spans:#?}"));
    assert!(found.next().is_none(), "two spans {name}");
    span
}

fn fact<'a>(span: &'a SpanData, key: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|fact| fact.key.as_str() == key).map(|fact| &fact.value)
}

fn of(record: &RunRecord, kinds: Vec<(i64, EventKind)>, input: Option<&str>) -> Vec<SpanData> {
    let events = events(record, kinds);
    of_run(&naming(), &Facts { record, events: &events, unread: 0, input })
}

#[test]
fn a_run_has_a_span_for_itself_each_model_call_and_each_tool_call() {
    let record = record(RunStatus::Completed, StopReason::FinalText);
    let kinds = || {
        vec![
            (2_000, called(1, "large", 700, "")),
            (2_100, tool("c1", "read_file")),
            (2_400, tool_done("c1", "read_file", ToolStatus::Success)),
            (9_000, called(2, "small", 100, "")),
        ]
    };
    let spans = of(&record, kinds(), None);
    assert_eq!(spans.len(), 4);
    let root = named(&spans, "invoke_agent belay");
    assert_eq!(root.span_context.trace_id(), TraceId::from_bytes(record.run_id.as_uuid().into_bytes()));
    assert_eq!((root.parent_span_id, root.span_kind.clone()), (SpanId::INVALID, SpanKind::Internal));
    assert_eq!((root.start_time, root.end_time), (time(UnixMillis(1_000)), time(UnixMillis(9_000))));
    assert_eq!(fact(root, "gen_ai.usage.input_tokens"), Some(&Value::I64(30)));
    assert_eq!(fact(root, "belay.run.cost_usd"), Some(&Value::F64(1.5)));
    assert_eq!(fact(root, "belay.run.queue_wait_seconds"), Some(&Value::F64(0.25)));
    assert_eq!(fact(root, "gen_ai.conversation.id"), Some(&"alice".into()));

    let chat = named(&spans, "chat large");
    assert_eq!((chat.parent_span_id, chat.span_kind.clone()), (root.span_context.span_id(), SpanKind::Client));
    assert_eq!((chat.start_time, chat.end_time), (time(UnixMillis(1_300)), time(UnixMillis(2_000))));
    assert_eq!(fact(chat, "gen_ai.usage.output_tokens"), Some(&Value::I64(3)));
    assert_eq!(fact(chat, "gen_ai.response.model"), Some(&"large".into()));
    named(&spans, "chat small");
    let call = named(&spans, "execute_tool read_file");
    assert_eq!((call.start_time, call.end_time), (time(UnixMillis(2_100)), time(UnixMillis(2_400))));
    assert_eq!(fact(call, "gen_ai.tool.call.id"), Some(&"c1".into()));

    let again = of(&record, kinds(), None);
    let ids = |spans: &[SpanData]| spans.iter().map(|span| span.span_context.span_id()).collect::<Vec<_>>();
    assert_eq!(ids(&spans), ids(&again), "a repeated export has the same ids");
    assert_eq!(std::collections::HashSet::<_>::from_iter(ids(&spans)).len(), 4);
}

#[test]
fn content_is_in_the_spans_on_request_alone() {
    let record = record(RunStatus::Completed, StopReason::FinalText);
    let kinds = || vec![(2, tool("c1", "read_file")), (3, tool_done("c1", "read_file", ToolStatus::Success))];
    let words = |spans: &[SpanData]| format!("{spans:?}");
    let silent = words(&of(&record, kinds(), None));
    let open = words(&of(&record, kinds(), Some("the question")));
    for content in ["the question", "the answer", "secret.txt", "words"] {
        assert!(!silent.contains(content), "{content}");
        assert!(open.contains(content), "{content} is not in {open}");
    }
    let long = "é".repeat(TEXT_MAX_BYTES);
    assert_eq!(cut(&long).len(), TEXT_MAX_BYTES);
}

#[test]
fn failures_are_errors_and_stops_are_not() {
    let failed = record(RunStatus::Failed, StopReason::ProviderAuth);
    let spans = of(&failed, vec![(2_000, called(1, "large", 9_000, "auth"))], None);
    assert_eq!(named(&spans, "chat large").status, Status::error("auth"));
    assert_eq!(fact(named(&spans, "chat large"), "error.type"), Some(&"auth".into()));
    assert_eq!(fact(named(&spans, "chat large"), "gen_ai.response.model"), None);
    assert_eq!(named(&spans, "invoke_agent belay").status, Status::error(StopReason::ProviderAuth.word()));

    let stopped = record(RunStatus::Stopped, StopReason::UserStop);
    let spans = of(&stopped, vec![(2_000, called(1, "large", 0, "stopped")), (2_000, tool("c1", "sleep"))], None);
    assert_eq!(named(&spans, "chat large").status, Status::Unset);
    assert_eq!(named(&spans, "invoke_agent belay").status, Status::Unset);
    let open = named(&spans, "execute_tool sleep");
    assert_eq!((open.end_time, open.status.clone()), (time(UnixMillis(9_000)), Status::error("outcome_unknown")));
}

#[test]
fn a_fallback_is_named_and_its_provider_is_left_open() {
    let record = record(RunStatus::Completed, StopReason::FinalText);
    let fallback = EventKind::ModelFallback { from: "large".into(), to: "other".into(), reason: "overloaded".into() };
    let spans = of(&record, vec![(1, fallback), (2, called(1, "other", 1, ""))], None);
    let chat = named(&spans, "chat large");
    assert_eq!(fact(chat, "gen_ai.response.model"), Some(&"other".into()));
    assert_eq!(fact(chat, "gen_ai.provider.name"), None);
    let notes = &named(&spans, "invoke_agent belay").events;
    assert_eq!(notes.iter().map(|note| note.name.as_ref()).collect::<Vec<_>>(), ["belay.model_fallback"]);
}

#[test]
fn the_parts_of_a_subagent_are_under_it_unless_two_work_side_by_side() {
    let record = record(RunStatus::Completed, StopReason::FinalText);
    let start = |id: &str| EventKind::SubagentStarted { call_id: CallId::from(id), task: "find it".into(), depth: 1 };
    let end = |id: &str| EventKind::SubagentEnded {
        call_id: CallId::from(id),
        termination: Termination::Goal,
        reason: StopReason::FinalText,
        turns: 1,
    };
    let alone = vec![
        (1, tool("c1", "spawn")),
        (2, start("c1")),
        (3, called(1, "small", 1, "")),
        (4, tool("c1", "read_file")), // the same id as that of the call around it
        (5, tool_done("c1", "read_file", ToolStatus::Success)),
        (6, end("c1")),
        (7, tool_done("c1", "spawn", ToolStatus::Success)),
    ];
    let spans = of(&record, alone, None);
    assert_eq!(spans.len(), 5);
    let (child, spawn) = (named(&spans, "invoke_agent subagent"), named(&spans, "execute_tool spawn"));
    assert_eq!(child.parent_span_id, spawn.span_context.span_id());
    assert_eq!((spawn.start_time, spawn.end_time), (time(UnixMillis(1)), time(UnixMillis(7))));
    for part in ["chat small", "execute_tool read_file"] {
        assert_eq!(named(&spans, part).parent_span_id, child.span_context.span_id(), "{part}");
    }

    let both = vec![(1, start("c1")), (1, start("c2")), (3, called(1, "small", 1, "")), (4, end("c1")), (5, end("c2"))];
    let spans = of(&record, both, None);
    let root = named(&spans, "invoke_agent belay").span_context.span_id();
    assert_eq!(named(&spans, "chat small").parent_span_id, root);
    assert_eq!(spans.len(), 4);
}

#[test]
fn names_that_a_model_has_chosen_are_cut() {
    let run = record(RunStatus::Completed, StopReason::FinalText);
    let long = "é".repeat(NAME_MAX_BYTES);
    let kinds = vec![
        (2_000, called(1, &long, 10, "")),
        (2_000, tool(&long, &long)),
        (2_000, tool_done(&long, &long, ToolStatus::Success)),
    ];
    let events = events(&run, kinds);
    let spans = of_run(&naming(), &Facts { record: &run, events: &events, unread: 0, input: None });
    assert_eq!(spans.len(), 3);
    for span in &spans {
        assert!(span.name.len() <= NAME_MAX_BYTES + "execute_tool ".len(), "{}", span.name);
        for fact in &span.attributes {
            assert!(fact.value.as_str().len() <= NAME_MAX_BYTES, "{fact:?}");
        }
    }
}
