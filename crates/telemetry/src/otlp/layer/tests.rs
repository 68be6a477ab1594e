#![allow(clippy::unwrap_used)]

use tracing::{debug, error, event, info, info_span, trace};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// The records of these lines.
fn records(content: bool, lines: impl FnOnce()) -> (Vec<SdkLogRecord>, u64) {
    let (layer, mut queue) = LogLayer::new(content);
    tracing::subscriber::with_default(Registry::default().with(layer), lines);
    let mut records = Vec::new();
    while let Ok(record) = queue.records.try_recv() {
        records.push(record);
    }
    (records, queue.dropped.load(Ordering::Relaxed))
}

fn body(record: &SdkLogRecord) -> String {
    match record.body() {
        Some(AnyValue::String(text)) => text.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_line_has_its_fields_and_those_of_the_spans_around_it() {
    let run = RunId::new();
    let (records, _) = records(false, || {
        let turn = info_span!("turn", run = %run, session = "alice", step = tracing::field::Empty);
        turn.record("step", 4);
        let _turn = turn.enter();
        let _tool = info_span!("tool", session = "inner").entered();
        error!(target: "test", cost = 1.5, ok = true, calls = 7_u64, most = u64::MAX, "it {}", "failed");
    });
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(body(record), "it failed");
    assert_eq!((record.severity_number(), record.severity_text()), (Some(Severity::Error), Some("ERROR")));
    assert_eq!(record.target().unwrap(), "test");
    let attributes: Vec<_> = record.attributes_iter().cloned().collect();
    let expected: Vec<(Key, AnyValue)> = vec![
        ("cost".into(), 1.5.into()),
        ("ok".into(), true.into()),
        ("calls".into(), 7.into()),
        ("most".into(), u64::MAX.to_string().into()),
        ("session".into(), "inner".into()),
        ("run".into(), run.to_string().into()),
        ("step".into(), 4.into()),
    ];
    assert_eq!(attributes, expected);
    let context = record.trace_context().unwrap();
    assert_eq!((context.trace_id, context.span_id), (trace_id(run), span_id(run, 0)));
}

#[test]
fn a_line_that_names_a_run_belongs_to_its_trace() {
    let (inner, outer) = (RunId::new(), RunId::new());
    let (records, _) = records(false, || {
        info!(target: "test", run = %inner, "named");
        info!(target: "test", run = "?", "no run");
        let _turn = info_span!("turn", run = %outer).entered();
        info!(target: "test", run = %inner, "named inside another");
    });
    let traces: Vec<_> = records.iter().map(|record| record.trace_context().map(|context| context.trace_id)).collect();
    assert_eq!(traces, [Some(trace_id(inner)), None, Some(trace_id(inner))]);
}

#[test]
fn lines_that_may_contain_messages_are_left_out_unless_content_is_exported() {
    for (content, expected) in [(false, vec!["debug"]), (true, vec!["trace", "debug"])] {
        let (records, _) = records(content, || {
            trace!(target: "test", "trace");
            debug!(target: "test", "debug");
        });
        assert_eq!(records.iter().map(body).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn lines_of_the_exporters_and_of_their_client_are_left_out() {
    let (records, _) = records(true, || {
        error!(target: "belay_telemetry::otlp::delivery", "own");
        error!(target: "belay_telemetry::traces", "own");
        error!(target: "hyper::proto", "client");
        event!(target: "log", Level::ERROR, log.target = "rustls::conn", "client, by the facade");
        event!(target: "log", Level::ERROR, log.target = "else", log.line = 4, "by the facade");
        error!(target: "hyperactive", "another");
    });
    assert_eq!(records.iter().map(body).collect::<Vec<_>>(), ["by the facade", "another"]);
    assert_eq!(records[0].target().unwrap(), "else");
    assert_eq!(records[0].attributes_iter().count(), 0);
}

#[test]
fn a_full_queue_drops_lines_and_counts_them_and_a_long_text_is_cut() {
    let (records, dropped) = records(false, || {
        info!(target: "test", text = "é".repeat(VALUE_MAX_BYTES), "first");
        for _ in 0..QUEUE_CAPACITY + 4 {
            info!(target: "test", "next");
        }
    });
    assert_eq!((records.len(), dropped), (QUEUE_CAPACITY, 5));
    let (_, text) = records[0].attributes_iter().next().unwrap();
    assert_eq!(text, &AnyValue::from("é".repeat(VALUE_MAX_BYTES / 2)));
}

#[test]
fn texts_of_providers_and_mcp_servers_are_left_out_unless_content_is_exported() {
    for (content, expected) in [(false, vec!["kind"]), (true, vec!["analysis", "detail", "kind", "said", "trouble"])] {
        let (records, _) = records(content, || {
            let words = "invalid prompt: \"my flight is at nine\"";
            event!(target: "belay_models::fallback", Level::WARN, kind = "bad_request", detail = %words, analysis = words, said = words, trouble = %words, "failed");
        });
        let mut keys: Vec<_> = records[0].attributes_iter().map(|(key, _)| key.as_str().to_owned()).collect();
        keys.sort();
        assert_eq!(keys, expected);
    }
}
