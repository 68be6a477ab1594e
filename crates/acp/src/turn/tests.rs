#![allow(clippy::unwrap_used)]

use super::*;

fn event(stream: &str, data: Json, cursor: Option<u64>) -> Json {
    match cursor {
        Some(cursor) => json!({ "runId": "r", "stream": stream, "data": data, "cursor": cursor }),
        None => json!({ "runId": "r", "stream": stream, "data": data }),
    }
}

/// The steps in short: updates as JSON.
fn told(turn: &mut Turn, stream: &str, data: Json, cursor: Option<u64>) -> Vec<Json> {
    let short = |step: Step| match step {
        Step::Update(update) => serde_json::to_value(update).unwrap(),
        Step::Ask(question) => json!({ "ask": question }),
        Step::Answered(question) => json!({ "answered": question }),
        Step::Ended(reason) => json!({ "end": reason }),
        Step::Joined => json!("joined"),
    };
    turn.event(&event(stream, data, cursor)).into_iter().map(short).collect()
}

fn chunk(kind: &str, text: &str) -> Json {
    json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } })
}

#[test]
fn a_text_is_told_once_over_two_connections_and_another_text_begins_a_paragraph() {
    let mut turn = Turn::new(0);
    for (stream, data, cursor, expected) in [
        ("lifecycle", json!({"phase": "start"}), Some(1), vec![]),
        ("reasoning", json!({"text": "hm", "step": 1}), None, vec![chunk("agent_thought_chunk", "hm")]),
        ("assistant", json!({"text": "I look", "step": 1}), None, vec![chunk("agent_message_chunk", "I look")]),
        ("assistant", json!({"text": "I look.", "step": 1}), None, vec![chunk("agent_message_chunk", ".")]),
        ("lifecycle", json!({"phase": "start"}), Some(1), vec![]),
        ("assistant", json!({"text": "I look.", "step": 1, "replace": true}), None, vec![]),
        ("assistant", json!({"text": "Fo", "step": 2}), None, vec![chunk("agent_message_chunk", "\n\nFo")]),
        ("assistant", json!({"text": "Found.", "final": true}), None, vec![chunk("agent_message_chunk", "und.")]),
        ("lifecycle", json!({"phase": "end", "stopReason": "final_text"}), Some(2), vec![json!({"end": "end_turn"})]),
    ] {
        assert_eq!(told(&mut turn, stream, data.clone(), cursor), expected, "{stream} {data}");
    }
    assert_eq!(turn.place.cursor(), Some(2));
}

#[test]
fn an_answer_that_was_told_with_more_space_around_it_is_not_told_again() {
    let mut turn = Turn::new(0);
    for (data, expected) in [
        (json!({"text": "\n\nFound.\n", "step": 1}), vec![chunk("agent_message_chunk", "\n\nFound.\n")]),
        (json!({"text": "Found.", "final": true}), vec![]),
        (json!({"text": "\n\nFound.\n", "step": 1}), vec![]),
        (json!({"text": "Found.", "final": true}), vec![]),
    ] {
        assert_eq!(told(&mut turn, "assistant", data.clone(), None), expected, "{data}");
    }
}

#[test]
fn a_title_hides_nothing() {
    let mut turn = Turn::new(0);
    let asked = json!({"phase": "requested", "approvalId": "q", "toolCallId": "c", "name": "run_command", "summary": "ls\n\u{202e}"});
    assert_eq!(text(&told(&mut turn, "approval", asked, Some(1))[0], "/title"), r"run_command ls\n\u{202e}");
}

#[test]
fn a_call_is_told_from_its_question_to_its_result() {
    let mut turn = Turn::new(0);
    let asked =
        json!({"phase": "requested", "approvalId": "q", "toolCallId": "c", "name": "run_command", "summary": "ls"});
    assert_eq!(
        told(&mut turn, "approval", asked, Some(1)),
        [
            json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "run_command ls", "kind": "execute"}),
            json!({"ask": "q"})
        ]
    );
    let resolved = json!({"phase": "resolved", "approvalId": "q", "decision": "approved"});
    assert_eq!(told(&mut turn, "approval", resolved, Some(2)), [json!({"answered": "q"})]);
    let start = json!({"phase": "start", "toolCallId": "c", "name": "run_command", "arguments": "argv: ls"});
    assert_eq!(
        told(&mut turn, "tool", start, Some(3)),
        [json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress"})]
    );
    let result = |status: &str, is_error: bool| {
        json!({"phase": "result", "toolCallId": "c", "name": "run_command", "isError": is_error, "status": status,
               "tookMs": 5, "result": "a.rs"})
    };
    for (status, is_error, expected) in [("success", false, "completed"), ("denied", true, "failed")] {
        let mut turn = Turn::new(0);
        turn.calls.insert("c".into());
        assert_eq!(
            told(&mut turn, "tool", result(status, is_error), Some(4)),
            [json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": expected,
                    "content": [{"type": "content", "content": {"type": "text", "text": "a.rs"}}],
                    "rawOutput": {"status": status, "tookMs": 5}})]
        );
    }
}

#[test]
fn a_call_without_a_question_begins_with_its_arguments() {
    let start = json!({"phase": "start", "toolCallId": "c", "name": "read_file", "arguments": "path: a.rs"});
    assert_eq!(
        told(&mut Turn::new(0), "tool", start, Some(1)),
        [json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "read_file path: a.rs", "kind": "read",
                "status": "in_progress", "rawInput": "path: a.rs"})]
    );
}

#[test]
fn an_end_without_a_word_of_the_protocol_is_said() {
    let end = |reason: &str| json!({"phase": "error", "stopReason": reason, "error": "No answer."});
    for (reason, expected) in [
        ("tool_loop", "end_turn"),
        ("max_iterations", "max_turn_requests"),
        ("user_stop", "cancelled"),
        ("new", "end_turn"),
    ] {
        let said = told(&mut Turn::new(0), "lifecycle", end(reason), Some(1));
        assert_eq!(said, [chunk("agent_message_chunk", "No answer."), json!({"end": expected})], "{reason}");
    }
    assert_eq!(
        told(&mut Turn::new(0), "lifecycle", json!({"phase": "end", "stopReason": "joined"}), Some(1)),
        ["joined"]
    );
}

#[test]
fn tokens_are_told_where_the_context_of_the_model_is_known() {
    let step = json!({"phase": "step", "step": 1, "usage": {"input": 800, "output": 60}});
    assert_eq!(
        told(&mut Turn::new(32_768), "lifecycle", step.clone(), Some(1)),
        [json!({"sessionUpdate": "usage_update", "used": 860, "size": 32768})]
    );
    assert_eq!(told(&mut Turn::new(0), "lifecycle", step, Some(1)), Vec::<Json>::new());
    let reset = json!({"asked": 9, "newest": 3});
    let mut turn = Turn::new(0);
    assert_eq!((turn.event(&reset), turn.place.cursor()), (vec![], Some(3)));
}

#[test]
fn a_call_without_a_result_has_failed_when_the_run_has_ended() {
    let mut turn = Turn::new(0);
    for id in ["a", "b"] {
        turn.event(&event("tool", json!({"phase": "start", "toolCallId": id, "name": "clock"}), None));
    }
    turn.event(&event("tool", json!({"phase": "result", "toolCallId": "a", "name": "clock"}), None));
    let asked = json!({"phase": "requested", "toolCallId": "c", "name": "run_command", "approvalId": "q"});
    turn.event(&event("approval", asked, None));
    let left: Vec<_> = turn.left_over().into_iter().map(|update| serde_json::to_value(update).unwrap()).collect();
    let failed = |id: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "failed"});
    assert_eq!(left, [failed("b"), failed("c")]);
    assert!(turn.left_over().is_empty());
}
