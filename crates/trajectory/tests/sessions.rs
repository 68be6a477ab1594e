//! Sessions that real programs wrote, and lists in other formats: what is read, what is skipped, and that no input is too
//! bad.

use std::fmt::Write as _;
use std::io::{BufReader, Read};
use std::path::Path;

use belay_trajectory::TrajectoryEvent;
use belay_trajectory::import::{Format, Imported, import, read};
use serde_json::{Value, json};

fn session(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions").join(name))
        .expect("the session is there")
}

fn imported(bytes: &[u8]) -> Imported {
    import(bytes, None).unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(bytes)))
}

/// A run in short: `turn`, `call NAME`, `ok NAME`, `failed NAME`, `user`, `text`, `thought`, `tokens`.
fn shape(events: &[TrajectoryEvent]) -> String {
    let word = |event: &TrajectoryEvent| match event {
        TrajectoryEvent::Tool { name, .. } => format!("call {name}"),
        TrajectoryEvent::ToolResult { name, outcome, .. } if outcome.is_failure() => format!("failed {name}"),
        TrajectoryEvent::ToolResult { name, .. } => format!("ok {name}"),
        TrajectoryEvent::Assistant(_) => "text".into(),
        TrajectoryEvent::Other(_) => "thought".into(),
        TrajectoryEvent::Usage { .. } => "tokens".into(),
        TrajectoryEvent::User(_) => "user".into(),
        TrajectoryEvent::Turn => "turn".into(),
        TrajectoryEvent::Reset => "reset".into(),
        other => other.to_line(),
    };
    events.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn results(events: &[TrajectoryEvent]) -> Vec<&str> {
    let text = |event: &'_ TrajectoryEvent| matches!(event, TrajectoryEvent::ToolResult { .. });
    let found = events.iter().filter(|event| text(event));
    found.map(|event| if let TrajectoryEvent::ToolResult { text, .. } = event { text.as_str() } else { "" }).collect()
}

#[test]
fn sessions_of_terminal_agents_are_read() {
    let claude = "reset, user, turn, tokens, thought, text, call Bash, call Read, ok Read, ok Bash, turn, tokens, call Bash, \
                  failed Bash, turn, tokens, call Agent, ok Agent, turn, tokens, text";
    let subagent = "reset, user, turn, tokens, thought, call Bash, ok Bash, turn, tokens, text";
    let codex = "thought, reset, user, turn, thought, text, call exec_command, call exec_command, tokens, ok exec_command, \
                 ok exec_command, turn, thought, call exec_command, tokens, failed exec_command, turn, thought, call \
                 exec_command, tokens, ok exec_command, turn, thought, call no_such_tool, tokens, failed no_such_tool, turn, \
                 thought, text, tokens";
    let gemini = "thought, reset, user, turn, tokens, thought, text, call list_directory, call read_file, ok list_directory, \
                  ok read_file, turn, tokens, call run_shell_command, failed run_shell_command, turn, tokens, call read_file, \
                  failed read_file, turn, tokens, text";
    let opencode = "reset, user, turn, text, call bash, call read, ok bash, ok read, tokens, turn, call bash, failed bash, \
                    tokens, turn, call read, failed read, tokens, turn, text, tokens";
    for (name, format, shape_of, read) in [
        (
            "claude-code-2.1.197.jsonl",
            Format::ClaudeCode,
            claude,
            "read 17 records (claude-code), skipped 5: 2 attachment, 2 queue-operation, 1 last-prompt",
        ),
        (
            "claude-code-2.1.197-subagent.jsonl",
            Format::ClaudeCode,
            subagent,
            "read 6 records (claude-code), skipped 1: 1 attachment",
        ),
        (
            "codex-0.171.0.jsonl",
            Format::Codex,
            codex,
            "read 48 records (codex), skipped 24: 12 event_msg item_completed, 5 event_msg token_count, 1 developer message, \
             1 event_msg task_complete, 1 event_msg task_started, 1 event_msg thread_settings_applied, 1 session_meta, \
             1 turn_context, 1 world_state",
        ),
        (
            "gemini-cli-0.61.0.jsonl",
            Format::Gemini,
            gemini.trim_start_matches("thought, "),
            "read 21 records (gemini), skipped 13: 9 $set, 3 message written again, 1 session head",
        ),
        ("opencode-1.18.33.json", Format::Opencode, opencode, "read 1 record (opencode), skipped 1: 1 patch"),
    ] {
        let seen = imported(&session(name));
        assert_eq!((seen.format, seen.trajectories.len()), (format, 1), "{name}");
        assert_eq!(shape(&seen.trajectories[0]), shape_of, "{name}");
        assert_eq!(seen.found.summary(), read, "{name}");
        // Forced, it is read in the same way; a line that is cut off costs that line.
        let bytes = session(name);
        assert_eq!(
            import(bytes.as_slice(), Some(format)).expect("the format is right").trajectories,
            seen.trajectories
        );
        if name.ends_with(".jsonl") {
            let broken =
                [&b"{\"cut\":\n"[..], &bytes, b"\x00\xff{\n{\"type\":\"from-the-future\",\"x\":1}\n{\"type\":"]
                    .concat();
            let again = imported(&broken);
            assert_eq!((again.format, again.trajectories), (format, seen.trajectories), "{name}");
            let of = |kind: &str| again.found.skipped.iter().find(|(known, _)| known == kind).map(|(_, count)| *count);
            assert_eq!((of("broken line"), again.found.records), (Some(3), seen.found.records + 4), "{name}");
        }
    }
}

#[test]
fn what_differs_in_each_call_is_no_part_of_a_result() {
    let seen = imported(&session("codex-0.171.0.jsonl"));
    assert_eq!(results(&seen.trajectories[0])[2], "cat: missing.txt: No such file or directory\n");
    let seen = imported(&session("gemini-cli-0.61.0.jsonl"));
    assert!(results(&seen.trajectories[0]).iter().all(|text| !text.contains("PGID")));
    for (written, ok, text) in [
        ("{\"output\":\"no\\n\",\"metadata\":{\"exit_code\":2,\"duration_seconds\":0.1}}", false, "no\n"),
        ("Exit code: 0\nWall time: 1 seconds\nOutput:\nError: in the log", true, "Error: in the log"),
        ("Exit code: 1\nand no head", false, "Exit code: 1\nand no head"),
        ("plain", true, "plain"),
    ] {
        let call = json!({"type": "local_shell_call", "call_id": "1", "action": {"type": "exec", "command": ["ls"]}});
        let output = json!({"type": "local_shell_call_output", "call_id": "1", "output": written});
        let lines = [call, output].map(|payload| json!({"type": "response_item", "payload": payload}).to_string());
        let seen = imported(lines.join("\n").as_bytes());
        let word = if ok { "ok" } else { "failed" };
        assert_eq!(shape(&seen.trajectories[0]), format!("turn, call local_shell, {word} local_shell"), "{written}");
        assert_eq!(results(&seen.trajectories[0]), [text]);
    }
}

#[test]
fn records_of_subagents_are_runs_of_their_own() {
    let record = |uuid: &str, parent: Option<&str>, side: bool, message: Value| {
        json!({"type": message["role"], "uuid": uuid, "parentUuid": parent, "isSidechain": side, "sessionId": "s", "message": message}).to_string()
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    let said = |text: &str| json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
    let lines = [
        record("1", None, false, user("go")),
        record("a", None, true, user("look")),
        record("b", None, true, user("count")),
        record("2", Some("1"), false, said("done")),
        record("a2", Some("a"), true, said("seen")),
        record("b2", Some("b"), true, said("three")),
        record("b2", Some("b"), true, said("three")),
    ];
    let seen = imported(lines.join("\n").as_bytes());
    assert_eq!(seen.found.runs, ["", "subagent a", "subagent b"]);
    assert!(seen.trajectories.iter().all(|run| shape(run) == "reset, user, turn, text"), "{seen:?}");
    assert_eq!(seen.found.skipped, [("repeated record".to_owned(), 1)]);
}

#[test]
fn a_person_who_goes_back_to_the_first_message_begins_a_new_request() {
    let record = |uuid: &str, parent: Value, message: Value| {
        json!({"type": message["role"], "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message})
            .to_string()
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    let calls = json!({"role": "assistant", "id": "m1", "content": [
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]});
    let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a"}]});
    let lines = |second: String| {
        [
            record("1", Value::Null, user("go")),
            record("2", json!("1"), calls.clone()),
            record("3", json!("2"), result.clone()),
            second,
        ]
        .join("\n")
    };
    let back = imported(lines(record("4", Value::Null, user("go elsewhere"))).as_bytes());
    assert_eq!(shape(&back.trajectories[0]), "reset, user, turn, call Bash, ok Bash, reset, user");
    // Words behind the result belong to the request.
    let on = imported(lines(record("4", json!("3"), user("and there"))).as_bytes());
    assert_eq!(shape(&on.trajectories[0]), "reset, user, turn, call Bash, ok Bash, user");
}

#[test]
fn results_are_matched_by_the_id_of_their_call_in_any_order() {
    let call = |id: &str, n: u64| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": json!({"n": n}).to_string()});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": format!("of {id}")});
    let items = json!([
        call("a", 1),
        call("b", 2),
        call("c", 3),
        output("c"),
        output("a"),
        output("b"),
        call("d", 4),
        call("e", 5),
        output("e")
    ]);
    let seen = imported(items.to_string().as_bytes());
    assert_eq!(seen.format, Format::Responses);
    assert_eq!(results(&seen.trajectories[0]), ["of a", "of b", "of c", "", "of e"]); // the call d has no result
    let shaped = "turn, call f, call f, call f, ok f, ok f, ok f, turn, call f, call f, ok f, ok f";
    assert_eq!(shape(&seen.trajectories[0]).replace("failed f", "ok f"), shaped);
}

#[test]
fn lists_of_other_formats_are_read() {
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let anthropic = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "shot", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [picture]}]},
    ]);
    let responses = json!({"input": "look", "output": [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "found"}]},
    ]});
    let goose = json!({"id": "s", "working_dir": "/home/dev", "conversation": [
        {"role": "user", "created": 1, "content": [{"type": "text", "text": "look"}]},
        {"role": "assistant", "created": 2, "content": [{"type": "toolRequest", "id": "1",
            "toolCall": {"status": "success", "value": {"name": "developer__shell", "arguments": {"command": "ls"}}}}]},
        {"role": "user", "created": 3, "content": [{"type": "toolResponse", "id": "1",
            "toolResult": {"status": "error", "error": "no shell"}}]},
    ]});
    let contents = json!([
        {"role": "user", "parts": [{"text": "look"}]},
        {"role": "model", "parts": [{"text": "so", "thought": true}, {"functionCall": {"name": "ls", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"output": "a"}}}]},
    ]);
    let events = [
        json!({"type": "step_start", "sessionID": "s", "part": {"type": "step-start"}}),
        json!({"type": "tool_use", "sessionID": "s", "part": {"type": "tool", "tool": "bash", "callID": "1",
            "state": {"status": "completed", "input": {"command": "ls"}, "output": "a", "metadata": {"exit": 0}}}}),
    ];
    let events = events.map(|event| event.to_string()).join("\n");
    for (text, format, shape_of) in [
        (anthropic.to_string(), Format::Anthropic, "reset, user, turn, call shot, ok shot"),
        (responses.to_string(), Format::Responses, "reset, user, turn, call web_search, ok web_search, text"),
        (goose.to_string(), Format::Goose, "reset, user, turn, call developer__shell, failed developer__shell"),
        (contents.to_string(), Format::Gemini, "reset, user, turn, thought, call ls, ok ls"),
        (json!({"history": contents}).to_string(), Format::Gemini, "reset, user, turn, thought, call ls, ok ls"),
        (events, Format::Opencode, "turn, call bash, ok bash"),
    ] {
        let seen = imported(text.as_bytes());
        assert_eq!((seen.format, shape(&seen.trajectories[0]).as_str()), (format, shape_of), "{text}");
    }
    let seen = imported(anthropic.to_string().as_bytes());
    let named = results(&seen.trajectories[0])[0].to_owned();
    assert!(named.starts_with("[image image/png "), "{named}");
    let other = imported(anthropic.to_string().replace("AAAA", "BBBB").as_bytes());
    assert_ne!(results(&other.trajectories[0])[0], named, "different pictures are different results");
}

fn span(id: &str, parent: &str, begin: u64, attributes: Value) -> Value {
    let value = |value: &Value| match value {
        Value::String(text) => json!({"stringValue": text}),
        number => json!({"intValue": number.to_string()}),
    };
    let attributes: Vec<Value> = attributes
        .as_object()
        .expect("an object")
        .iter()
        .map(|(key, of)| json!({"key": key, "value": value(of)}))
        .collect();
    json!({"traceId": "t1", "spanId": id, "parentSpanId": parent, "name": "x", "startTimeUnixNano": begin.to_string(), "attributes": attributes})
}

#[test]
fn spans_of_opentelemetry_are_read_in_their_order() {
    let text = |role: &str, text: &str| json!({"role": role, "parts": [{"type": "text", "content": text}]});
    let call = |id: &str| json!({"role": "assistant", "parts": [{"type": "tool_call", "id": id, "name": "ls", "arguments": {"id": id}}]});
    let response =
        |id: &str| json!({"role": "tool", "parts": [{"type": "tool_call_response", "id": id, "response": "a.txt"}]});
    let chat = |id: &str, begin: u64, input: Value, output: Value| {
        span(
            id,
            "agent",
            begin,
            json!({"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 2,
            "gen_ai.input.messages": input.to_string(), "gen_ai.output.messages": output.to_string()}),
        )
    };
    let tool = |id: &str, begin: u64| {
        span(
            id,
            "agent",
            begin,
            json!({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ls", "gen_ai.tool.call.id": "2",
            "gen_ai.tool.call.arguments": "{}", "gen_ai.tool.call.result": "a.txt", "error.type": "timeout"}),
        )
    };
    let agent = |id: &str, parent: &str, begin: u64| {
        span(id, parent, begin, json!({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "main"}))
    };
    let (asked, first, second) = (text("user", "look"), call("1"), call("2"));
    let spans = [
        tool("s4", 30), // it ends, and is written, before the model call that asks for the next
        chat("s2", 10, json!([asked]), json!([first])),
        chat("s3", 20, json!([asked, first, response("1")]), json!([second])),
        chat("s5", 40, json!([asked, first, response("1"), second, response("2")]), json!([text("assistant", "done")])),
        span(
            "sub",
            "inner",
            35,
            json!({"gen_ai.operation.name": "chat", "gen_ai.output.messages": json!([text("assistant", "of the inner agent")]).to_string()}),
        ),
        agent("inner", "agent", 34),
        agent("agent", "", 5),
    ];
    let document = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]});
    let expected = "reset, user, turn, tokens, call ls, ok ls, turn, tokens, call ls, failed ls, turn, tokens, text";
    let by_line =
        spans.iter().map(|span| json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).to_string() + "\n");
    for text in [document.to_string(), format!("{document:#}"), by_line.collect::<String>()] {
        let seen = imported(text.as_bytes());
        assert_eq!((seen.format, seen.trajectories.len()), (Format::Otel, 2), "{text}");
        let main = seen.found.runs.iter().position(String::is_empty).expect("the run has no name");
        assert_eq!(shape(&seen.trajectories[main]), expected);
        assert_eq!(shape(&seen.trajectories[1 - main]), "turn, text");
        assert_eq!(seen.found.runs[1 - main], "agent main");
        assert_eq!(seen.found.skipped, [("span invoke_agent".to_owned(), 2)]);
    }
}

#[test]
fn older_spans_have_their_messages_in_events_or_in_numbered_attributes() {
    let event = |name: &str, attributes: Value| json!({"name": name, "attributes": attributes});
    let calls = json!([{"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]);
    let span = |id: &str, begin: &str, attributes: Value, events: Value| json!({"name": "chat m", "context": {"trace_id": "0x01", "span_id": id}, "parent_id": null, "start_time": begin, "attributes": attributes, "events": events});
    let console = [
        span(
            "0xa",
            "2026-11-29T07:00:00Z",
            json!({"gen_ai.operation.name": "chat"}),
            json!([
                event("gen_ai.user.message", json!({"content": "look"})),
                event("gen_ai.choice", json!({"index": 0, "message": json!({"tool_calls": calls}).to_string()})),
            ]),
        ),
        span(
            "0xb",
            "2026-11-29T07:00:01Z",
            json!({"gen_ai.operation.name": "chat"}),
            json!([
                event("gen_ai.user.message", json!({"content": "look"})),
                event("gen_ai.assistant.message", json!({"tool_calls": calls.to_string()})),
                event("gen_ai.tool.message", json!({"content": "a.txt", "id": "1"})),
                event("gen_ai.choice", json!({"index": 0, "message": {"content": "done"}})),
            ]),
        ),
    ];
    let numbered = [
        span(
            "0xa",
            "1",
            json!({"gen_ai.request.model": "m", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "look",
            "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.tool_calls.0.id": "1",
            "gen_ai.completion.0.tool_calls.0.name": "ls", "gen_ai.completion.0.tool_calls.0.arguments": "{}"}),
            json!([]),
        ),
        span(
            "0xb",
            "2",
            json!({"gen_ai.request.model": "m", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "look",
            "gen_ai.prompt.1.role": "assistant", "gen_ai.prompt.1.tool_calls.0.name": "ls",
            "gen_ai.prompt.2.role": "tool", "gen_ai.prompt.2.content": "a.txt", "gen_ai.prompt.2.tool_call_id": "1",
            "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "done"}),
            json!([]),
        ),
    ];
    for spans in [console, numbered] {
        let text = spans.iter().fold(String::new(), |mut text, span| {
            let _ = writeln!(text, "{span:#}"); // into a string
            text
        });
        let seen = imported(text.as_bytes());
        assert_eq!(
            (seen.format, shape(&seen.trajectories[0]).as_str()),
            (Format::Otel, "reset, user, turn, call ls, ok ls, turn, text"),
            "{text}"
        );
    }
}

#[test]
fn bad_input_is_a_clear_error_or_a_counted_skip() {
    let deep = "[".repeat(100_000);
    let wrong = "{\"type\":\"assistant\",\"sessionId\":\"s\",\"message\":7}";
    let rows: [(&[u8], &str); 10] = [
        (b"", "no known form"),
        (b"\n\n \n", "no known form"),
        (b"\x00\x00\x00", "line 1, column 1: not JSON"),
        (b"\xff\xfe{\x00}\x00", "line 1, column 1: not JSON"),
        (b"PK\x03\x04 an archive", "line 1, column 1: not JSON"),
        (b"{\"messages\":[{\"role\":\"user\",\"content\":\"x", "line 1, column 4"),
        (deep.as_bytes(), "line 1, column 128: not JSON: recursion limit exceeded"),
        (b"{\"resourceSpans\":[{\"scopeSpans\":7}]}", "no known form"),
        (b"[[[]]]", "no known form"),
        (b"null", "no known form"),
    ];
    for (bytes, expected) in rows {
        let error = import(bytes, None).expect_err("an error").to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let seen = imported(format!("{wrong}\n{wrong}\n").as_bytes());
    assert_eq!((seen.trajectories, seen.found.skipped), (vec![vec![]], vec![("assistant".to_owned(), 2)]));
}

/// Every value of a document, replaced by values of other types: none of it may end the program.
#[test]
fn values_of_wrong_types_never_panic() {
    let mut count = 0;
    let names =
        ["claude-code-2.1.197.jsonl", "codex-0.171.0.jsonl", "gemini-cli-0.61.0.jsonl", "opencode-1.18.33.json"];
    for (name, wrong) in names.iter().flat_map(|name| {
        [json!(null), json!(-1.5e300), json!([[]]), json!({"type": "text"})].map(|wrong| (name, wrong))
    }) {
        let text = String::from_utf8(session(name)).expect("UTF-8");
        let documents: Vec<Value> =
            serde_json::Deserializer::from_str(&text).into_iter().map(|value| value.expect("JSON")).collect();
        for depth in 1..7 {
            let spoilt: Vec<String> =
                documents.iter().map(|value| spoil(value, depth, &wrong, &mut 0).to_string()).collect();
            let _ = import(spoilt.join("\n").as_bytes(), None); // either result is fine
            for format in Format::ALL {
                let _ = import(spoilt.join("\n").as_bytes(), Some(*format));
                count += 1;
            }
        }
    }
    assert!(count > 500, "{count}");
}

/// The value with every third member at this depth replaced.
fn spoil(value: &Value, depth: usize, wrong: &Value, count: &mut usize) -> Value {
    if depth == 0 {
        *count += 1;
        return if count.is_multiple_of(3) { wrong.clone() } else { value.clone() };
    }
    match value {
        Value::Array(items) => items.iter().map(|item| spoil(item, depth - 1, wrong, count)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| (key.clone(), spoil(member, depth - 1, wrong, count)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// A session of many records that is never in memory, with one line that is too long.
struct Endless {
    line: Vec<u8>,
    at: usize,
    left: usize,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let count = (self.line.len() - self.at).min(buffer.len());
        buffer[..count].copy_from_slice(&self.line[self.at..self.at + count]);
        self.at += count;
        if self.at == self.line.len() {
            (self.at, self.left) = (0, self.left - 1);
        }
        Ok(count)
    }
}

#[test]
fn a_long_session_is_read_line_by_line() {
    let line = json!({"type": "response_item", "payload": {"type": "message", "role": "user", "content": "again"}})
        .to_string()
        + "\n";
    let huge =
        format!("{{\"type\":\"response_item\",\"payload\":{{\"text\":\"{}\"}}}}\n", "x".repeat(17 * 1024 * 1024));
    let many = || Endless { line: line.clone().into_bytes(), at: 0, left: 100_000 };
    let source = BufReader::new(many().chain(std::io::Cursor::new(huge)).chain(many()));
    let mut events = 0;
    let found = read(source, None, &mut |_, _| events += 1).expect("it is read");
    assert_eq!((found.records, events), (200_001, 200_001));
    assert_eq!(found.skipped, [("line longer than 16 MiB".to_owned(), 1)]);
}
