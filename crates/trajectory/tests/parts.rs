//! Sessions with parts that a reader does not know, that other programs spell in another way, or that end in a compaction:
//! what is read, what is counted, and that the verdict is the one that the run has earned.

use belay_agent_loop::policies::StopRules;
use belay_trajectory::import::{Format, Imported, import};
use belay_trajectory::{Judge, TrajectoryEvent, Verdict};
use serde_json::{Value, json};

fn imported(text: &str) -> Imported {
    import(text.as_bytes(), None).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn verdict(events: &[TrajectoryEvent]) -> Verdict {
    let mut judge = Judge::new(StopRules::progress());
    events.iter().for_each(|event| drop(judge.observe(event)));
    judge.verdict()
}

fn lines(values: impl IntoIterator<Item = Value>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join("\n")
}

/// Twelve steps between a request and nothing.
fn steps(request: Value, step: impl Fn(usize) -> Vec<Value>) -> Vec<Value> {
    std::iter::once(request).chain((0..12).flat_map(step)).collect()
}

fn span(begin: usize, output: &Value) -> Value {
    let attributes = json!({"gen_ai.operation.name": "chat", "gen_ai.output.messages": json!([output]).to_string()});
    json!({"name": "chat m", "context": {"trace_id": "0x1", "span_id": format!("a{begin}")},
        "start_time": format!("{begin:04}"), "attributes": attributes})
}

#[test]
fn an_unknown_part_is_counted_and_its_step_is_no_empty_reply() {
    let new = || json!({"type": "brand_new_part", "of": {"x": 1}});
    let user = json!({"role": "user", "content": "go"});
    let answer = |content: Value| json!({"role": "assistant", "content": content});
    let record = |payload: Value| json!({"type": "response_item", "payload": payload});
    let claude = |n: usize, message: Value| {
        let (uuid, id) = (format!("u{n}"), format!("m{n}"));
        let message = json!({"id": id, "role": message["role"], "content": message["content"]});
        json!({"type": message["role"], "uuid": uuid, "sessionId": "s", "message": message})
    };
    let item = json!({"type": "message", "role": "assistant", "content": [new()]});
    let goose = json!({"conversation": steps(user.clone(), |n| vec![
        json!({"role": "assistant", "id": n.to_string(), "content": [new()]})
    ])});
    let rows: Vec<(Format, &str, String)> = vec![
        (Format::Openai, "brand_new_part", json!(steps(user.clone(), |_| vec![answer(json!([new()]))])).to_string()),
        (
            Format::Anthropic,
            "brand_new_part",
            json!(steps(user.clone(), |_| vec![answer(json!([{"type": "thinking", "thinking": "so"}, new()]))]))
                .to_string(),
        ),
        (
            Format::ClaudeCode,
            "brand_new_part",
            lines(steps(claude(99, user.clone()), |n| vec![claude(n, answer(json!([new()])))])),
        ),
        (
            Format::Codex,
            "brand_new_part",
            lines(steps(record(json!({"type": "message", "role": "user", "content": "go"})), |n| {
                let call = json!({"type": "function_call", "call_id": n.to_string(), "name": "f", "arguments": "{}"});
                let done = json!({"type": "function_call_output", "call_id": n.to_string(), "output": n.to_string()});
                if n == 0 { vec![record(call), record(done)] } else { vec![record(item.clone())] }
            })),
        ),
        (Format::Responses, "brand_new_part", json!([{"type": "reasoning", "summary": []}, item, item]).to_string()),
        (
            Format::Gemini,
            "brandNewPart",
            json!({"contents": steps(json!({"role": "user", "parts": [{"text": "go"}]}), |_| vec![
                json!({"role": "model", "parts": [{"brandNewPart": {"x": 1}}]}),
                json!({"role": "function", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}),
            ])})
            .to_string(),
        ),
        (Format::Goose, "brand_new_part", goose.to_string()),
        (
            Format::Otel,
            "brand_new_part",
            lines((0..12).map(|n| span(n, &json!({"role": "assistant", "parts": [new()]})))),
        ),
        (
            Format::Otel,
            "answer without its content",
            lines((0..12).map(|n| span(n, &json!({"role": "assistant", "finish_reason": "tool_call"})))),
        ),
        (
            Format::SweAgent,
            "brand_new_part",
            json!({"history": steps(user.clone(), |_| vec![answer(json!([new()]))])}).to_string(),
        ),
        (
            Format::MiniSweAgent,
            "brand_new_part",
            json!({"trajectory_format": "mini-swe-agent-1", "messages": steps(user.clone(), |_| vec![answer(json!([new()]))])})
                .to_string(),
        ),
    ];
    for (format, kind, text) in rows {
        let seen = imported(&text);
        let counted = seen.found.skipped.iter().find(|(known, _)| known == kind).map_or(0, |(_, count)| *count);
        assert_eq!(seen.format, format, "{text}");
        assert!(counted >= 2, "{format:?}: {:?}", seen.found.skipped);
        let events = &seen.trajectories[0];
        assert!(!events.contains(&TrajectoryEvent::Assistant(String::new())), "{format:?}: {events:?}");
        assert_eq!(verdict(events).rule, None, "{format:?}");
    }
}

#[test]
fn a_reply_that_is_empty_is_one_as_before() {
    for content in [json!(null), json!(""), json!([]), json!([{"type": "text", "text": ""}])] {
        let user = json!({"role": "user", "content": "go"});
        let text = json!(steps(user, |_| vec![json!({"role": "assistant", "content": content})])).to_string();
        assert_eq!(verdict(&imported(&text).trajectories[0]).rule.as_deref(), Some("empty_replies"), "{content}");
    }
}

#[test]
fn calls_and_results_are_read_in_the_spelling_of_other_programs() {
    let message = |role: &str, content: Value| json!({"role": role, "content": content});
    let result = |text: &str| json!([{"type": "text", "text": text}]);
    let of_role = |role: &str| json!({"role": role, "toolCallId": "1", "toolName": "ls", "content": result("no such directory"), "isError": true});
    let args = json!({"path": "a"});
    let rows = [
        // pi
        vec![
            message("assistant", json!([{"type": "toolCall", "id": "1", "name": "ls", "arguments": args}])),
            of_role("toolResult"),
        ],
        vec![
            message(
                "assistant",
                json!([{"type": "thinking", "thinking": ""}, {"type": "toolCall", "id": "1", "name": "ls", "arguments": args}]),
            ),
            of_role("toolResult"),
        ],
        // Vercel AI SDK
        vec![
            message("assistant", json!([{"type": "tool-call", "toolCallId": "1", "toolName": "ls", "input": args}])),
            message(
                "tool",
                json!([{"type": "tool-result", "toolCallId": "1", "toolName": "ls", "isError": true, "output": {"type": "text", "value": "no such directory"}}]),
            ),
        ],
        // Bedrock
        vec![
            message("assistant", json!([{"toolUse": {"toolUseId": "1", "name": "ls", "input": args}}])),
            message(
                "user",
                json!([{"toolResult": {"toolUseId": "1", "status": "error", "content": [{"text": "no such directory"}]}}]),
            ),
        ],
        vec![
            message(
                "assistant",
                json!([{"type": "function_call", "call_id": "1", "name": "ls", "arguments": args.to_string()}]),
            ),
            message(
                "user",
                json!([{"type": "function_call_output", "call_id": "1", "is_error": true, "output": "no such directory"}]),
            ),
        ],
        vec![
            message("assistant", json!([{"type": "tool_use", "id": "1", "name": "ls", "input": args}])),
            message(
                "user",
                json!([{"type": "tool_result", "tool_use_id": "1", "is_error": true, "content": result("no such directory")}]),
            ),
        ],
    ];
    let expected = [
        r#"{"turn":true}"#,
        r#"{"tool":{"name":"ls","args":{"path":"a"}}}"#,
        r#"{"tool_result":{"name":"ls","ok":false,"text":"no such directory"}}"#,
    ];
    for row in rows {
        let once = imported(&json!(row).to_string());
        let read: Vec<_> = once.trajectories[0].iter().map(TrajectoryEvent::to_line).collect();
        assert_eq!((read, &once.found.skipped), (expected.map(str::to_owned).to_vec(), &Vec::new()), "{row:?}");
        let often = steps(message("user", json!("go")), |_| row.clone());
        let wrapped = lines(often.iter().map(|message| json!({"type": "message", "message": message})));
        for text in [json!(often).to_string(), wrapped] {
            let rule = verdict(&imported(&text).trajectories[0]).rule;
            assert!(rule.is_some_and(|rule| rule != "empty_replies"), "{text}");
        }
    }
}

#[test]
fn a_result_keeps_the_parts_that_have_no_text() {
    let hit = |title: &str| json!({"type": "web_search_result", "title": title});
    let result = |hits: Value| {
        json!([
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "search", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": hits}]},
        ])
    };
    for hits in [json!([hit("a")]), json!([{"type": "text", "text": "found"}, hit("a")])] {
        let line = imported(&result(hits).to_string()).trajectories[0][2].to_line();
        assert!(line.contains("web_search_result"), "{line}");
    }
}
