//! Sessions that shorten their context, and sessions of which a person has taken back a part.

use belay_agent_loop::policies::StopRules;
use belay_trajectory::import::{Format, import};
use belay_trajectory::{Judge, Reader, TrajectoryEvent};
use serde_json::{Value, json};

fn read(values: &[Value]) -> (Format, Vec<TrajectoryEvent>) {
    let text = values.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let mut seen = import(text.as_bytes(), None).unwrap_or_else(|error| panic!("{text}: {error}"));
    (seen.format, seen.trajectories.swap_remove(0))
}

fn is_struck(events: &[TrajectoryEvent]) -> bool {
    let mut judge = Judge::new(StopRules::progress());
    events.iter().filter_map(|event| judge.observe(event)).count() > 0
}

fn count(events: &[TrajectoryEvent], of: fn(&TrajectoryEvent) -> bool) -> usize {
    events.iter().filter(|event| of(event)).count()
}

fn is_compaction(event: &TrajectoryEvent) -> bool {
    matches!(event, TrajectoryEvent::Compacted { .. })
}

/// Files that are read in each of the rounds.
const FILES: usize = 18;
const ROUNDS: usize = 3;

/// The content of a file that is read again and again.
fn content(file: usize) -> String {
    (0..9).map(|line| format!("// part {file}: line {line} says something of its own\n")).collect()
}

/// A record of Claude Code. The parent of the first one is missing.
fn claude(n: usize, parent: Option<usize>, message: &Value) -> Value {
    json!({"type": message["role"], "uuid": format!("u{n}"), "parentUuid": parent.map(|parent| format!("u{parent}")),
        "sessionId": "s", "isSidechain": false, "message": message})
}

/// A session of Claude Code that reads all files, then has these records, and so on.
fn claude_session(between: &[Value]) -> Vec<Value> {
    let mut records = vec![claude(0, None, &json!({"role": "user", "content": "explain the parser"}))];
    for round in 0..ROUNDS {
        for file in 0..FILES {
            let at = 1 + 2 * (round * FILES + file);
            let (id, path) = (format!("t{at}"), format!("src/part{file}.rs"));
            let call = json!({"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": path}});
            let result = json!({"type": "tool_result", "tool_use_id": id, "content": content(file)});
            let answer = json!({"role": "assistant", "id": format!("m{at}"), "content": [call]});
            records.push(claude(at, Some(at - 1), &answer));
            records.push(claude(at + 1, Some(at), &json!({"role": "user", "content": [result]})));
        }
        let named = |mut record: Value| {
            record["uuid"] = json!(format!("{}{round}", record["uuid"].as_str().unwrap_or_default()));
            record
        };
        records.extend(between.iter().cloned().map(named));
    }
    records
}

#[test]
fn what_is_read_anew_behind_a_compaction_is_no_loop_in_claude_code() {
    let boundary = json!({"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": null, "sessionId": "s",
        "content": "Conversation compacted", "compactMetadata": {"trigger": "auto", "preTokens": 155_000}});
    let summary = json!({"type": "user", "uuid": "s", "sessionId": "s", "isCompactSummary": true,
        "message": {"role": "user", "content": "This session is being continued from a previous conversation."}});
    let printed = json!({"type": "system", "subtype": "compact_boundary", "session_id": "s", "uuid": "c",
        "compact_metadata": {"trigger": "auto", "pre_tokens": 155_000, "post_tokens": 9_000}});
    let (format, events) = read(&claude_session(&[]));
    assert_eq!((format, is_struck(&events)), (Format::ClaudeCode, true));
    for (between, line) in [
        (vec![boundary.clone(), summary.clone()], r#"{"other":"compacted","compacted":{"before":155000,"after":0}}"#),
        (vec![summary], r#"{"other":"compacted","compacted":{"before":0,"after":0}}"#),
        (vec![printed], r#"{"other":"compacted","compacted":{"before":155000,"after":9000}}"#),
    ] {
        let (_, events) = read(&claude_session(&between));
        assert_eq!((count(&events, is_compaction), is_struck(&events)), (ROUNDS, false), "{between:?}");
        assert!(events.iter().any(|event| event.to_line() == line), "{between:?}");
        // The recording says the same.
        let written: String = events.iter().map(|event| event.to_line() + "\n").collect();
        let again: Vec<_> = Reader::new(written.as_bytes()).map(|event| event.expect("it is read")).collect();
        assert_eq!(again, events);
    }
}

#[test]
fn what_is_read_anew_behind_a_compaction_is_no_loop_in_codex() {
    let item = |payload: Value| json!({"type": "response_item", "payload": payload});
    let session = |between: &[Value]| {
        let mut records = vec![item(json!({"type": "message", "role": "user", "content": "explain the parser"}))];
        for at in 0..ROUNDS * FILES {
            let (file, id) = (at % FILES, at.to_string());
            let args = json!({"cmd": format!("cat src/part{file}.rs")}).to_string();
            records
                .push(item(json!({"type": "function_call", "call_id": id, "name": "exec_command", "arguments": args})));
            records.push(item(json!({"type": "function_call_output", "call_id": id, "output": content(file)})));
            records.extend(between.iter().filter(|_| file + 1 == FILES).cloned());
        }
        records
    };
    let compacted = json!({"type": "compacted", "payload": {"message": "what was done", "replacement_history": []}});
    let (format, events) = read(&session(&[]));
    assert_eq!((format, is_struck(&events)), (Format::Codex, true));
    for between in
        [vec![compacted.clone()], vec![item(json!({"type": "compaction", "encrypted_content": "x"})), compacted]]
    {
        let (_, events) = read(&session(&between));
        assert_eq!((count(&events, is_compaction), is_struck(&events)), (ROUNDS, false), "{between:?}");
    }
}

#[test]
fn other_formats_tell_a_compaction_too() {
    let opencode = json!({"info": {"role": "user", "sessionID": "s"}, "parts": [{"type": "compaction", "auto": true}]});
    let goose = json!({"role": "assistant", "content": [{"type": "conversationCompacted", "msg": "shorter"}]});
    let anthropic = json!({"role": "assistant", "content": [{"type": "compaction", "content": "what was done"}, {"type": "text", "text": "on"}]});
    let first = json!({"role": "user", "content": [{"type": "text", "text": "go"}]});
    let items =
        json!([{"type": "compaction", "id": "c", "encrypted_content": "x"}, {"type": "reasoning", "summary": []}]);
    let goose = json!({"conversation": [first.clone(), goose]});
    for record in [opencode, goose, json!([first, anthropic]), items] {
        let (format, events) = read(std::slice::from_ref(&record));
        assert_eq!(count(&events, is_compaction), 1, "{format:?}: {events:?}");
    }
}

#[test]
fn a_message_that_a_person_writes_anew_begins_a_request() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let call = |n: usize| json!({"role": "assistant", "id": format!("m{n}"), "content": [{"type": "tool_use", "id": format!("t{n}"), "name": "ls", "input": {}}]});
    let result = |n: usize| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": format!("t{n}"), "content": "a"}]});
    let is_reset = |event: &TrajectoryEvent| *event == TrajectoryEvent::Reset;
    let begun = [claude(0, None, &user("go")), claude(1, Some(0), &call(1)), claude(2, Some(1), &result(1))];
    let meta = json!({"type": "user", "uuid": "u3", "parentUuid": "u0", "sessionId": "s", "isMeta": true, "message": user("a note")});
    // Parallel calls of one answer, of which each result has its call for a parent; then a message within the request.
    let mut beside = call(2);
    beside["id"] = json!("m1");
    let parallel = [
        claude(0, None, &user("go")),
        claude(1, Some(0), &call(1)),
        claude(2, Some(1), &beside),
        claude(3, Some(1), &result(1)),
        claude(4, Some(2), &result(2)),
        claude(5, Some(3), &user("and b")),
    ];
    assert_eq!(count(&read(&parallel).1, is_reset), 1);
    for (rest, resets) in [
        (vec![claude(3, Some(2), &user("stop"))], 1),
        (vec![claude(3, Some(0), &user("do b instead"))], 2),
        (
            vec![
                claude(3, Some(0), &user("do b instead")),
                claude(4, Some(3), &call(2)),
                claude(5, Some(4), &user("stop")),
            ],
            2,
        ),
        (vec![meta, claude(4, Some(3), &user("do b instead"))], 2),
    ] {
        let (_, events) = read(&[&begun[..], &rest].concat());
        assert_eq!(count(&events, is_reset), resets, "{rest:?}");
    }
    let head = json!({"sessionId": "s", "projectHash": "p"});
    let gemini = |id: &str, kind: &str| json!({"id": id, "type": kind, "content": "x", "toolCalls": [{"id": id, "name": "ls", "args": {}, "status": "success"}]});
    let asked = [gemini("a", "user"), gemini("b", "gemini")];
    let item = |payload: Value| json!({"type": "response_item", "payload": payload});
    let codex = [
        item(json!({"type": "message", "role": "user", "content": "go"})),
        item(json!({"type": "function_call", "call_id": "1", "name": "ls", "arguments": "{}"})),
    ];
    let back = json!({"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}});
    for (session, resets) in [
        ([&[head.clone()][..], &asked, &[gemini("c", "user")]].concat(), 1),
        ([&[head][..], &asked, &[json!({"$rewindTo": "a"}), gemini("c", "user")]].concat(), 2),
        ([&codex[..], &codex[..1]].concat(), 1),
        ([&codex[..], &[back], &codex[..1]].concat(), 2),
    ] {
        assert_eq!(count(&read(&session).1, is_reset), resets, "{session:?}");
    }
}
