use belay_protocol::{Arguments, CallId, Event, EventKind, Message, Seq, ToolCall, ToolResult, ToolStatus, UnixMillis};
use serde_json::json;

use super::*;

fn lines(events: &[TrajectoryEvent]) -> Vec<String> {
    events.iter().map(TrajectoryEvent::to_line).collect()
}

/// The imported format and the lines of the first recording.
fn imported(text: &str) -> (Format, Vec<String>) {
    let imported = import(text.as_bytes(), None).unwrap_or_else(|error| panic!("{text}: {error}"));
    (imported.format, lines(&imported.trajectories[0]))
}

const SEARCHED: [&str; 8] = [
    r#"{"reset":true}"#,
    r#"{"user":"find it"}"#,
    r#"{"turn":true}"#,
    r#"{"other":"where is it"}"#,
    r#"{"assistant":"I look."}"#,
    r#"{"tool":{"name":"grep","args":{"pattern":"x"}}}"#,
    r#"{"tool_result":{"name":"grep","ok":false,"text":"Error: no such directory"}}"#,
    r#"{"turn":true}"#,
];

fn openai() -> Vec<Value> {
    vec![
        json!({"role": "system", "content": "be brief"}),
        json!({"role": "user", "content": [{"type": "text", "text": "find it"}]}),
        json!({"role": "assistant", "reasoning_content": "where is it", "content": "I look.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{\"pattern\": \"x\"}"}}]}),
        json!({"role": "tool", "tool_call_id": "c1", "content": "Error: no such directory"}),
        json!({"role": "assistant", "content": "It is not there."}),
        json!({"role": "user", "content": "thanks"}),
    ]
}

#[test]
fn messages_of_openai_are_read_in_all_their_wrappings() {
    let messages = openai();
    let by_line: Vec<_> = messages.iter().map(Value::to_string).collect();
    let expected =
        [&SEARCHED[..], &[r#"{"assistant":"It is not there."}"#, r#"{"reset":true}"#, r#"{"user":"thanks"}"#]].concat();
    for text in [
        json!(messages).to_string(),
        json!({"model": "m", "messages": messages}).to_string(),
        format!("{:#}", json!({ "messages": messages })),
        by_line.join("\n"),
        by_line.join("\r\n\r\n") + "\n",
        json!([messages]).to_string(),
    ] {
        assert_eq!(
            imported(&text),
            (Format::Openai, expected.iter().map(|line| (*line).to_owned()).collect()),
            "{text}"
        );
    }
    let two = format!("{}\n{}\n", json!({ "messages": messages }), json!({ "messages": messages[..2] }));
    assert_eq!(import(two.as_bytes(), None).unwrap().trajectories.iter().map(Vec::len).collect::<Vec<_>>(), [11, 2]);
}

#[test]
fn the_older_function_calls_are_read_too() {
    let text = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{broken"}},
        {"role": "function", "name": "f", "content": "12 passed"},
        {"role": "assistant", "content": null, "usage": {"prompt_tokens": 5, "completion_tokens": 0}},
    ]);
    let (format, lines) = imported(&text.to_string());
    let expected = [
        r#"{"turn":true}"#,
        r#"{"tool":{"name":"f","args":"{broken"}}"#,
        r#"{"tool_result":{"name":"f","ok":true,"text":"12 passed"}}"#,
        r#"{"turn":true}"#,
        r#"{"usage":{"input":5,"output":0}}"#,
        r#"{"assistant":""}"#,
    ];
    assert_eq!((format, &lines[2..]), (Format::Openai, &expected.map(str::to_owned)[..]));
}

fn anthropic() -> Vec<Value> {
    vec![
        json!({"role": "user", "content": "find it"}),
        json!({"role": "assistant", "id": "m1", "content": [
            {"type": "thinking", "thinking": "where is it", "signature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "grep", "input": {"pattern": "x"}}]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": [{"type": "text", "text": "Error: no such directory"}]}]}),
        json!({"role": "assistant", "id": "m2", "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 3},
            "content": [{"type": "text", "text": "It is not there."}]}),
        json!({"role": "user", "content": [{"type": "text", "text": "thanks"}]}),
    ]
}

#[test]
fn messages_of_anthropic_are_read_and_logs_of_sessions_that_wrap_them() {
    let messages = anthropic();
    let tail = [
        r#"{"usage":{"input":7,"output":3}}"#,
        r#"{"assistant":"It is not there."}"#,
        r#"{"reset":true}"#,
        r#"{"user":"thanks"}"#,
    ];
    let expected: Vec<_> = [&SEARCHED[..], &tail].concat().iter().map(|line| (*line).to_owned()).collect();
    let wrapped = |message: &Value| json!({"type": message["role"], "message": message}).to_string();
    let log: Vec<_> = std::iter::once(json!({"type": "summary", "summary": "a search"}).to_string())
        .chain(messages.iter().map(wrapped))
        .collect();
    for text in [json!(messages).to_string(), json!({"messages": messages}).to_string(), log.join("\n")] {
        assert_eq!(imported(&text), (Format::Anthropic, expected.clone()), "{text}");
    }
    // The blocks of one answer on separate lines.
    let mut apart = messages.clone();
    let blocks = apart[1]["content"].as_array().unwrap().clone();
    apart.splice(1..2, blocks.iter().map(|block| json!({"role": "assistant", "id": "m1", "content": [block]})));
    assert_eq!(imported(&json!(apart).to_string()), (Format::Anthropic, expected));
}

#[test]
fn trajectories_of_swe_agent_are_read_by_their_steps_or_their_history() {
    let steps = json!({
        "environment": "x",
        "history": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "a demonstration", "is_demo": true},
            {"role": "user", "content": "find it"},
            {"role": "assistant", "content": "I look.\n```\ngrep x\n```", "thought": "I look.", "action": "grep x\n"},
            {"role": "user", "content": "Error: no such directory"},
            {"role": "assistant", "content": "It is not there."}
        ],
        "trajectory": [
            {"action": "grep x\n", "observation": "Error: no such directory", "thought": "I look.", "response": "…"},
            {"action": "", "observation": "", "thought": "", "response": "It is not there."}
        ]
    });
    let mut history = steps.clone();
    history.as_object_mut().unwrap().remove("trajectory");
    let expected = [
        r#"{"reset":true}"#,
        r#"{"user":"find it"}"#,
        r#"{"turn":true}"#,
        r#"{"assistant":"I look."}"#,
        r#"{"tool":{"name":"grep","args":{"command":"grep x"}}}"#,
        r#"{"tool_result":{"name":"grep","ok":false,"text":"Error: no such directory"}}"#,
        r#"{"turn":true}"#,
        r#"{"assistant":"It is not there."}"#,
    ];
    for file in [steps, history] {
        assert_eq!(imported(&file.to_string()), (Format::SweAgent, expected.map(str::to_owned).to_vec()), "{file}");
    }
}

/// A `.traj.json` file of mini-swe-agent with these messages.
fn mini_swe_agent(format: &str, messages: &[Value]) -> String {
    let info = json!({"exit_status": "Submitted", "submission": "", "model_stats": {"api_calls": 2}});
    json!({"info": info, "messages": messages, "trajectory_format": format}).to_string()
}

#[test]
fn trajectories_of_mini_swe_agent_are_read_in_each_version() {
    let system = json!({"role": "system", "content": "be brief"});
    let task = json!({"role": "user", "content": "find it"});
    let failed = "<returncode>2</returncode>\n<output>\nno such directory\n</output>";
    let done = "<returncode>0</returncode>\n<output>\n</output>";
    let said = |fence: &str, command: &str| json!({"role": "assistant", "content": format!("THOUGHT: I look.\n\n```{fence}\n{command}\n```")});
    let user = |content: &str| json!({"role": "user", "content": content});
    let v1 = |fence: &str| {
        vec![system.clone(), task.clone(), said(fence, "grep x src"), user(failed), said(fence, "ls"), user(done)]
    };
    let with = |mut message: Value, extra: Value| {
        message["extra"] = extra;
        message
    };
    let acting = |id: &str, command: &str| {
        let call = json!({"id": id, "type": "function", "function": {"name": "bash", "arguments": json!({"command": command}).to_string()}});
        let message = json!({"role": "assistant", "content": "THOUGHT: I look.", "tool_calls": [call]});
        with(message, json!({"actions": [{"command": command, "tool_call_id": id}]}))
    };
    let observed = |id: &str, content: &str, code: i64| {
        with(
            json!({"role": "tool", "tool_call_id": id, "content": content}),
            json!({"returncode": code, "raw_output": ""}),
        )
    };
    let exit =
        with(json!({"role": "exit", "content": "Submitted"}), json!({"exit_status": "Submitted", "submission": ""}));
    let tool_calls = vec![
        system.clone(),
        task.clone(),
        acting("c1", "grep x src"),
        observed("c1", failed, 2),
        acting("c2", "ls"),
        observed("c2", done, 0),
        exit.clone(),
    ];
    // Version 2 can also parse the command from the text, and shows results without tags.
    let text_based = vec![
        system.clone(),
        task.clone(),
        with(said("mswea_bash_command", "grep x src"), json!({"actions": [{"command": "grep x src"}]})),
        with(user("<output>\nno such directory\n</output>"), json!({"returncode": 2})),
        with(said("mswea_bash_command", "ls"), json!({"actions": [{"command": "ls"}]})),
        with(user("<output></output>"), json!({"returncode": 0})),
        exit.clone(),
    ];
    let responding = |id: &str, command: &str| {
        let text = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "THOUGHT: I look."}]});
        let call = json!({"type": "function_call", "call_id": id, "name": "bash", "arguments": json!({"command": command}).to_string()});
        json!({"object": "response", "output": [text, call], "extra": {"actions": [{"command": command, "tool_call_id": id}]}})
    };
    let returned = |id: &str, output: &str, code: i64| json!({"type": "function_call_output", "call_id": id, "output": output, "extra": {"returncode": code}});
    let responses = vec![
        system.clone(),
        task.clone(),
        responding("c1", "grep x src"),
        returned("c1", failed, 2),
        responding("c2", "ls"),
        returned("c2", done, 0),
        exit,
    ];
    let expected = [
        r#"{"reset":true}"#,
        r#"{"user":"find it"}"#,
        r#"{"turn":true}"#,
        r#"{"assistant":"THOUGHT: I look."}"#,
        r#"{"tool":{"name":"bash","args":{"command":"grep x src"}}}"#,
        r#"{"tool_result":{"name":"bash","ok":false,"text":"no such directory\n"}}"#,
        r#"{"turn":true}"#,
        r#"{"assistant":"THOUGHT: I look."}"#,
        r#"{"tool":{"name":"bash","args":{"command":"ls"}}}"#,
        r#"{"tool_result":{"name":"bash","ok":true,"text":""}}"#,
        r#"{"other":"exit status: Submitted"}"#,
    ];
    for (format, messages) in [
        ("mini-swe-agent-1", v1("bash")),
        ("mini-swe-agent-1", v1("mswea_bash_command")),
        ("", v1("bash")), // the first files contain no format
        ("mini-swe-agent-1.1", tool_calls),
        ("mini-swe-agent-1.1", text_based),
        ("mini-swe-agent-1.1", responses),
    ] {
        let text = mini_swe_agent(format, &messages);
        assert_eq!(imported(&text), (Format::MiniSweAgent, expected.map(str::to_owned).to_vec()), "{text}");
    }
}

#[test]
fn a_reply_of_mini_swe_agent_that_runs_no_command_gets_no_result() {
    let user = |content: &str| json!({"role": "user", "content": content});
    let assistant = |content: &str| json!({"role": "assistant", "content": content, "extra": {"response": {"usage": {"prompt_tokens": 5, "completion_tokens": 3}}}});
    let block = "```bash\nls\n```";
    let not_run = json!({"role": "tool", "tool_call_id": "c2", "content": "<returncode>-1</returncode>\n<output>\n</output>",
        "extra": {"returncode": -1, "exception_info": "action was not executed"}});
    let two = json!({"role": "assistant", "content": null, "extra": {"actions": [{"command": "ls", "tool_call_id": "c1"}, {"command": "cat a", "tool_call_id": "c2"}]}});
    let messages = [
        user("go"),
        assistant(&format!("{block}\n{block}")),
        user("Provide exactly one action."),
        assistant(&format!("I look.\n{block}")),
        user("The last command <command>ls</command> timed out and has been killed."),
        two,
        not_run,
        json!({"role": "tool", "tool_call_id": "c1", "content": "<returncode>0</returncode>\n<warning>\nToo long.\n</warning><output_head>\na\n</output_head>", "extra": {"returncode": 0}}),
        json!({"role": "user", "content": "Interrupted by the user", "extra": {"interrupt_type": "UserInterruption"}}),
        user(""),
    ];
    let expected = [
        "{\"assistant\":\"```bash\\nls\\n```\\n```bash\\nls\\n```\"}",
        r#"{"user":"Provide exactly one action."}"#,
        r#"{"turn":true}"#,
        r#"{"usage":{"input":5,"output":3}}"#,
        r#"{"assistant":"I look."}"#,
        r#"{"tool":{"name":"bash","args":{"command":"ls"}}}"#,
        r#"{"tool_result":{"name":"bash","ok":false,"text":"The last command <command>ls</command> timed out and has been killed."}}"#,
        r#"{"turn":true}"#,
        r#"{"tool":{"name":"bash","args":{"command":"ls"}}}"#,
        r#"{"tool":{"name":"bash","args":{"command":"cat a"}}}"#,
        r#"{"tool_result":{"name":"bash","ok":true,"text":"<warning>\nToo long.\n</warning><output_head>\na\n</output_head>"}}"#,
        r#"{"tool_result":{"name":"bash","ok":false,"text":"","outcome":"not_executed"}}"#,
        r#"{"user":"Interrupted by the user"}"#,
        r#"{"other":"exit status: Submitted"}"#,
    ];
    let (_, lines) = imported(&mini_swe_agent("mini-swe-agent-1.1", &messages));
    assert_eq!(lines[4..], expected.map(str::to_owned));
    let odd = import(mini_swe_agent("mini-swe-agent-1.1", &[user("go"), json!({"role": "wizard"})]).as_bytes(), None);
    assert!(odd.unwrap_err().to_string().starts_with("message 1: there is no role `wizard`"));
}

#[test]
fn results_of_tau_bench_are_one_recording_each() {
    let second = json!({"role": "tool", "id": "c1", "content": "gone", "error": true});
    let called = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "name": "f", "arguments": {"a": 1}, "requestor": "assistant"}]});
    for file in [
        json!([{"task_id": 0, "reward": 0.0, "traj": openai()}, {"task_id": 1, "reward": 1.0, "traj": [called, second]}]),
        json!({"info": {}, "simulations": [{"messages": openai()}, {"messages": [called, second]}]}),
    ] {
        let imported = import(file.to_string().as_bytes(), None).unwrap();
        assert_eq!((imported.format, imported.trajectories.len()), (Format::TauBench, 2));
        assert_eq!(lines(&imported.trajectories[0])[..8], SEARCHED.map(str::to_owned));
        let expected = [
            r#"{"turn":true}"#,
            r#"{"tool":{"name":"f","args":{"a":1}}}"#,
            r#"{"tool_result":{"name":"f","ok":false,"text":"gone"}}"#,
        ];
        assert_eq!(lines(&imported.trajectories[1]), expected);
    }
}

#[test]
fn what_cannot_be_imported_says_where_and_what_was_expected() {
    for (text, format, expected) in [
        ("", None, "no known form"),
        ("{\"messages\": [\n  oops", None, "line 2, column 3: not JSON: expected value"),
        ("nonsense\nand more\n", None, "line 1, column 2: not JSON"),
        ("{\"messages\":[{\"role\":\"user\"", None, "line 1, column 27: not JSON: EOF"),
        ("7", None, "no known form: expected a list of messages"),
        ("{\"rows\":[]}", None, "no known form"),
        ("{\"turn\":true}\n{\"turn\":true}\n", None, "no known form"),
        ("[]", None, "no known form"),
        (
            "[{\"role\":\"user\",\"content\":\"x\"}]",
            Some(Format::SweAgent),
            "this is not swe-agent: expected an object with `trajectory`",
        ),
        ("[{\"role\":\"wizard\",\"content\":\"x\"}]", None, "message 0: there is no role `wizard`"),
        (
            "[{\"traj\":[{\"role\":\"sorcerer\"}]},{\"traj\":[{\"role\":\"wizard\"}]}]",
            None,
            "message 0: there is no role `sorcerer`",
        ),
    ] {
        let error = import(text.as_bytes(), format).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn what_is_broken_in_the_middle_costs_that_part_and_is_counted() {
    for (text, count, skipped) in [
        (
            "{\"role\":\"user\",\"content\":\"x\"}\nnonsense\n{\"role\":\"assistant\",\"content\":\"y\"}\n{\"role\":\"us",
            4,
            vec![("broken line", 2)],
        ),
        ("nonsense\n{\"role\":\"user\",\"content\":\"x\"}\n", 2, vec![("broken line", 1)]),
        (
            "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"wizard\"},7]",
            2,
            vec![("record without a type", 1), ("there is no role `wizard`; there are system, user, assistant", 1)],
        ),
        (
            "[{\"role\":\"user\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\"},{\"id\":\"2\",\"function\":{\"name\":\"f\"}}]}]",
            4,
            vec![("a call has no `name`", 1)],
        ),
        (
            "[{\"role\":\"user\"},{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":7}]",
            4,
            vec![("`tool_calls` must be a list", 1)],
        ),
    ] {
        let imported = import(text.as_bytes(), None).unwrap_or_else(|error| panic!("{text}: {error}"));
        let seen: Vec<_> = imported.found.skipped.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
        assert_eq!((imported.trajectories[0].len(), seen), (count, skipped), "{text}");
    }
}

#[test]
fn a_form_can_be_forced_where_both_would_do() {
    let plain = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]).to_string();
    for format in [Format::Openai, Format::Anthropic] {
        let imported = import(plain.as_bytes(), Some(format)).unwrap();
        assert_eq!(imported.format, format);
        assert_eq!(lines(&imported.trajectories[0])[2..], [r#"{"turn":true}"#, r#"{"assistant":"hello"}"#]);
    }
    assert_eq!(
        Format::ALL.iter().map(|it| Format::from_word(it.word())).collect::<Vec<_>>(),
        Format::ALL.iter().copied().map(Some).collect::<Vec<_>>()
    );
}

#[test]
fn runs_of_our_own_keep_what_is_known_of_each_call() {
    let call =
        |id: &str, name: &str| ToolCall { id: id.into(), name: name.into(), arguments: Arguments::parse("{\"a\":1}") };
    let result = |id: &str, name: &str, status, text: &str| {
        Message::tool(ToolResult { call_id: id.into(), name: name.into(), status, text: text.into() })
    };
    let messages = [
        Message::system("be brief"),
        Message::user("go"),
        Message::assistant("I will look.").for_run(),
        Message::user("then do").for_run(),
        Message::assistant_calls("", vec![call("1", "f"), call("2", "rm")]),
        result("2", "rm", ToolStatus::Denied, "no"),
        result("1", "f", ToolStatus::Error, "invalid arguments: a"),
        Message::system("a notice").for_run(),
        Message::assistant("done"),
    ];
    let expected = [
        r#"{"reset":true}"#,
        r#"{"user":"go"}"#,
        r#"{"turn":true}"#,
        r#"{"assistant":"I will look."}"#,
        r#"{"user":"then do"}"#,
        r#"{"turn":true}"#,
        r#"{"tool":{"name":"f","args":{"a":1}}}"#,
        r#"{"tool":{"name":"rm","args":{"a":1}}}"#,
        r#"{"tool_result":{"name":"rm","ok":false,"text":"no","outcome":"denied"}}"#,
        r#"{"tool_result":{"name":"f","ok":false,"text":"invalid arguments: a"}}"#,
        r#"{"other":"a notice"}"#,
        r#"{"turn":true}"#,
        r#"{"assistant":"done"}"#,
    ];
    assert_eq!(lines(&from_messages(&messages, &[])), expected);
}

#[test]
fn a_compaction_of_our_own_run_stands_before_the_model_call_that_follows_it() {
    let call = |id: CallId| ToolCall { id, name: "f".into(), arguments: Arguments::parse("{}") };
    let result = |call_id: CallId| {
        Message::tool(ToolResult { call_id, name: "f".into(), status: ToolStatus::Success, text: "a".into() })
    };
    let [first, second, third]: [CallId; 3] = ["1".into(), "2".into(), "3".into()];
    let messages = [
        Message::user("go"),
        Message::assistant_calls("", vec![call(first.clone()), call(second.clone())]),
        result(first.clone()),
        result(second.clone()),
        Message::assistant_calls("", vec![call(third.clone())]),
        result(third),
        Message::assistant("done"),
    ];
    let fact = |kind| Event { seq: Seq(1), at: UnixMillis(0), session: None, run_id: None, kind };
    let finished = |call_id: &CallId| {
        let (name, result) = ("f".to_owned(), String::new());
        fact(EventKind::ToolFinished {
            call_id: call_id.clone(),
            name,
            status: ToolStatus::Success,
            took_ms: 1,
            result,
        })
    };
    let compacted = |before, after| {
        fact(EventKind::Compacted { messages: 3, before, after, source: "model".into(), will_retry: false })
    };
    // The second call has ended before the first one.
    let facts = [compacted(9, 3), finished(&second), finished(&first), compacted(900, 100)];
    let shortened: Vec<_> = lines(&from_messages(&messages, &facts))
        .into_iter()
        .filter(|line| line.contains("compacted") || line.contains("turn") || line.contains("tool_result"))
        .collect();
    let expected = [
        r#"{"other":"compacted","compacted":{"before":9,"after":3}}"#,
        r#"{"turn":true}"#,
        r#"{"tool_result":{"name":"f","ok":true,"text":"a"}}"#,
        r#"{"tool_result":{"name":"f","ok":true,"text":"a"}}"#,
        r#"{"other":"compacted","compacted":{"before":900,"after":100}}"#,
        r#"{"turn":true}"#,
        r#"{"tool_result":{"name":"f","ok":true,"text":"a"}}"#,
        r#"{"turn":true}"#,
    ];
    assert_eq!(shortened, expected);
}

#[test]
fn runs_beyond_the_most_are_skipped_and_counted() {
    const MOST: usize = 10_000;
    let conversation = |_: usize| json!({"messages": [{"role": "user", "content": "go"}]});
    let subagent = |at: usize| {
        let message = json!({"role": "user", "content": "go"});
        json!({"type": "user", "sessionId": "s", "uuid": at.to_string(), "agentId": at.to_string(), "message": message})
    };
    let session = |at: usize| {
        let parts = [json!({"type": "text", "text": "go"}), json!({"type": "text", "text": "on"})];
        json!({"info": {"role": "user", "sessionID": at.to_string()}, "parts": parts})
    };
    let span = |at: usize| {
        let attributes = json!([{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}]);
        json!({"traceId": at.to_string(), "spanId": at.to_string(), "name": "chat", "attributes": attributes})
    };
    let spans = |count: usize| {
        let spans: Vec<_> = (0..count).map(span).collect();
        json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string()
    };
    let lines = |one: &dyn Fn(usize) -> Value, count: usize| {
        (0..count).map(|at| one(at).to_string()).collect::<Vec<_>>().join("\n")
    };
    for (format, text) in [
        (Format::Openai, lines(&conversation, MOST + 3)),
        (Format::Openai, json!((0..MOST + 3).map(conversation).collect::<Vec<_>>()).to_string()),
        (Format::ClaudeCode, lines(&subagent, MOST + 3)),
        (Format::Opencode, lines(&session, MOST + 3)),
        (Format::Otel, spans(MOST + 3)),
    ] {
        let read = import(text.as_bytes(), None).unwrap();
        assert_eq!((read.format, read.trajectories.len(), read.found.runs.len()), (format, MOST, MOST));
        assert_eq!(read.found.skipped, [("more than 10000 runs".to_owned(), 3)], "{format:?}");
        assert!(read.trajectories.iter().all(|run| !run.is_empty()), "{format:?}");
    }
    let most = import(lines(&subagent, MOST).as_bytes(), None).unwrap();
    assert_eq!((most.trajectories.len(), most.found.skipped), (MOST, Vec::new()));
}
