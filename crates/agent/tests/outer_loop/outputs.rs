//! Messages that ask for declared outputs instead of a text.

use std::time::Duration;

use belay_protocol::{
    Accepted, Ack, Arguments, DeclaredOutput, FinishReason, ModelErrorKind, ModelReply, Refusal, RunStatus, StopReason,
    TextFormat, ToolCall,
};
use belay_testkit::assert_golden;
use belay_testkit::golden::render;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Running, Setup, TestTool, end_of, saw};

fn outputs(declared: &[&str]) -> Vec<DeclaredOutput> {
    declared.iter().map(|text| DeclaredOutput::parse(text).expect("an output")).collect()
}

async fn ask(agent: &Running, declared: &[&str]) -> Accepted {
    match agent.one.with_outputs("alice", "look at the boat", outputs(declared)).await {
        Ack::Accepted(accepted) => accepted,
        other => panic!("not accepted: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_the_object_of_the_outputs_in_the_order_of_their_declaration() {
    let model = ScriptedModel::new([
        Scripted::call("echo", json!({"text": "red, 7 m"})),
        Scripted::text("It is red."),
        Scripted::calls([
            ("emit_value", json!({"name": "length", "value": 7})),
            ("emit_value", json!({"name": "colour", "value": "red"})),
        ]),
        Scripted::text("You are welcome."),
    ]);
    let setup = Setup::new(model);
    let mut agent = setup.start().await;
    let record = end_of(ask(&agent, &["length:number=in metres", "colour:string"]).await).await;
    assert_eq!((record.status, record.reason), (RunStatus::Completed, Some(StopReason::Goal)));
    assert_eq!(record.reply.as_deref(), Some(r#"{"length":7,"colour":"red"}"#));
    assert_eq!(record.evidence["outputs"], json!(["length", "colour"]));
    assert_eq!(agent.one.next().await, r#"{"length":7,"colour":"red"}"#);
    let seen = agent.model.seen();
    assert_golden!("outputs", render(&seen, &seen[2].messages, "goal"));
    // The next message is an ordinary one, and sees the answer.
    assert_eq!(agent.one.ask("alice", "thanks").await, "You are welcome.");
    let texts = saw(&agent.model, 4);
    assert_eq!(texts[texts.len() - 2..], [r#"{"length":7,"colour":"red"}"#, "thanks"]);
    assert!(!agent.model.seen()[3].tools.as_ref().expect("tools").contains(&"emit_value".to_owned()));
    agent.shut_down().await;
}

const POINT: &str = r#"p:{"type":"object","properties":{"x":{"type":"integer"},"name":{"type":"string"},"arguments":{}},"required":["x"],"additionalProperties":false}"#;

#[tokio::test(start_paused = true)]
async fn a_text_that_is_valid_by_the_schema_is_the_answer_before_any_reminder() {
    for (declared, text, reply) in [
        (vec!["n:integer"], "391", r#"{"n":391}"#),
        (vec!["n:integer"], " {\"n\": 391}\n", r#"{"n":391}"#),
        (vec![POINT], r#"{"x":1}"#, r#"{"p":{"x":1}}"#),
        (vec![POINT], r#"{"p":{"x":1}}"#, r#"{"p":{"x":1}}"#),
        (vec![POINT], "```json\n{\"x\":1}\n```", r#"{"p":{"x":1}}"#),
        (vec![POINT], "```\n{\n  \"x\": 1\n}\n```\n", r#"{"p":{"x":1}}"#),
        (vec![POINT], "~~~json\n{\"x\":1}\n~~~", r#"{"p":{"x":1}}"#),
        (vec![POINT], "```json {\"x\":1}```", r#"{"p":{"x":1}}"#),
        // A nudge about calls and announcements does not come first.
        (
            vec![POINT],
            r#"{"x":1,"name":"Let me search for that."}"#,
            r#"{"p":{"x":1,"name":"Let me search for that."}}"#,
        ),
        (vec![POINT], r#"{"x":1,"name":"echo","arguments":{}}"#, r#"{"p":{"x":1,"name":"echo","arguments":{}}}"#),
        (vec!["o:object"], r#"{"any":"thing"}"#, r#"{"o":{"any":"thing"}}"#),
        (vec!["l:string[]"], r#"["a","b"]"#, r#"{"l":["a","b"]}"#),
        (vec!["a:integer", "b:string"], r#"{"b":"x","a":1}"#, r#"{"a":1,"b":"x"}"#),
        (vec!["a:integer", "b:string"], "```json\n{\"outputs\":{\"b\":\"x\",\"a\":1}}\n```", r#"{"a":1,"b":"x"}"#),
    ] {
        let setup = Setup::new(ScriptedModel::new([Scripted::text(text)]));
        let mut agent = setup.start().await;
        let record = end_of(ask(&agent, &declared).await).await;
        let expected = (RunStatus::Completed, Some(StopReason::Goal), Some(reply));
        assert_eq!((record.status, record.reason, record.reply.as_deref()), expected, "{text}: {record:?}");
        assert_eq!(agent.one.next().await, reply, "{text}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_written_as_text_is_no_answer_unless_the_form_asks_for_its_fields() {
    let reply = r#"{"o":{"any":"thing"}}"#;
    let named = r#"o:{"type":"object","properties":{"name":{"type":"string"}}}"#;
    for (declared, left) in [
        ("o:object", r#"{"name":"echo","arguments":{"text":"hm"}}"#),
        ("o:object", r#" {"tool": "echo", "args": {"text": "hm"}} "#),
        ("o:object", r#"{"type":"function","function":{"name":"echo","arguments":"{}"}}"#),
        ("o:object", r#"{"name":"complete_task","arguments":{"o":{"any":"other"}}}"#),
        (r#"o:{}"#, r#"[{"name":"echo","parameters":{}}]"#),
        ("o:object", "```json\n{\"name\":\"echo\",\"arguments\":{\"text\":\"hm\"}}\n```"),
        ("o:object", "~~~\n[{\"name\":\"echo\",\"arguments\":{}}]\n~~~\n"),
        (named, r#"{"name":"echo","arguments":{"text":"hm"}}"#), // it asks for a name, not for arguments
    ] {
        let call = Scripted::call("echo", json!({"text": "hm"}));
        let script = [Scripted::text(left), call, Scripted::text(r#"{"any":"thing"}"#)];
        let setup = Setup::new(ScriptedModel::new(script));
        let agent = setup.start().await;
        let record = end_of(ask(&agent, &[declared]).await).await;
        assert_eq!((record.reason, record.reply.as_deref()), (Some(StopReason::Goal), Some(reply)), "{left}");
        assert_eq!(agent.model.left(), 0, "{left}");
        agent.shut_down().await;
    }
    let typed = r#"l:{"type":"array","items":{"properties":{"name":{},"arguments":{}}}}"#;
    for (declared, text) in [
        (typed, r#"[{"name":"echo","arguments":{}}]"#),
        ("o:object", r#"{"name":"Ada","arguments":{}}"#), // no tool has this name
        ("o:object", r#"{"name":"echo","price":3}"#),
    ] {
        let setup = Setup::new(ScriptedModel::new([Scripted::text(text)]));
        let agent = setup.start().await;
        let record = end_of(ask(&agent, &[declared]).await).await;
        let answer = format!("{{\"{}\":{text}}}", &declared[..1]);
        assert_eq!((record.reason, record.reply.clone()), (Some(StopReason::Goal), Some(answer)), "{text}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_form_of_the_answer_is_a_part_of_each_request_of_such_a_run_and_of_no_other() {
    let point = outputs(&[POINT]).remove(0).schema;
    let both = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"], "additionalProperties": false});
    let number = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    for (declared, text, name, schema) in [
        (vec![POINT], r#"{"x":1}"#, "p", point),
        (vec!["n:integer"], "7", "outputs", number),
        (vec!["a:integer", "b:string"], r#"{"a":1,"b":"x"}"#, "outputs", both),
    ] {
        let script = [Scripted::call("echo", json!({"text": "hm"})), Scripted::text(text), Scripted::text("bye")];
        let setup = Setup::new(ScriptedModel::new(script));
        let mut agent = setup.start().await;
        end_of(ask(&agent, &declared).await).await;
        agent.one.next().await;
        assert_eq!(agent.one.ask("alice", "thanks").await, "bye");
        let form = TextFormat { name: name.into(), schema };
        let seen: Vec<_> = agent.model.seen().into_iter().map(|request| request.format).collect();
        assert_eq!(seen, [Some(form.clone()), Some(form), None]);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_text_completes_what_the_tools_have_submitted() {
    let emit = Scripted::call("emit_value", json!({"name": "a", "value": 1}));
    let setup = Setup::new(ScriptedModel::new([emit, Scripted::text(r#"{"b":"x"}"#)]));
    let agent = setup.start().await;
    let record = end_of(ask(&agent, &["a:integer", "b:string"]).await).await;
    assert_eq!(record.reply.as_deref(), Some(r#"{"a":1,"b":"x"}"#), "{record:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn texts_that_are_not_the_answer_are_reminded_and_the_end_has_the_last_one() {
    let texts = [
        r#"{"x":"one"}"#,
        "Here is the plan: ```json\n{\"y\":1}\n``` Done.",
        r#"{"x":1,"more":2}"#,
        r#"The best that I have: {"x": about 1}"#,
    ];
    let setup = Setup::new(ScriptedModel::new(texts.map(Scripted::text)));
    let agent = setup.start().await;
    let record = end_of(ask(&agent, &[POINT]).await).await;
    assert_eq!((record.status, record.reason), (RunStatus::Failed, Some(StopReason::MissingOutputs)), "{record:?}");
    assert_eq!(record.evidence["text"], json!(texts[3]));
    assert_eq!(agent.model.left(), 0);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_text_may_have_words_around_the_answer() {
    let last = "Here it is:\n```json\n{\"x\":1}\n```\nDo you need more?";
    let script = ["x", last, last].map(Scripted::text);
    let setup = Setup::new(ScriptedModel::new(script));
    let agent = setup.start().await;
    let record = end_of(ask(&agent, &[POINT]).await).await;
    assert_eq!(record.reply.as_deref(), Some(r#"{"p":{"x":1}}"#), "{record:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn outputs_are_taken_in_each_shape_that_models_send() {
    let raw = |name: &str, arguments: &str| {
        let call = ToolCall { id: "c".into(), name: name.into(), arguments: Arguments::parse(arguments) };
        Scripted::reply(ModelReply { tool_calls: vec![call], finish: FinishReason::ToolCalls, ..ModelReply::default() })
    };
    for tool in ["emit_value", "complete_task"] {
        for arguments in [
            r#"{"a":1,"b":{"c":2}}"#,
            r#"{"outputs":{"a":1,"b":{"c":2}}}"#,
            r#"{"outputs":[{"name":"a","value":1},{"name":"b","value":{"c":2}}]}"#,
            r#"{"outputs":"{\"a\":1,\"b\":{\"c\":2}}"}"#,
            r#"{"values":{"a":1,"b":{"c":2}}}"#,
            r#"[{"name":"a","value":1},{"name":"b","value":{"c":2}}]"#,
            r#"[{"a":1},{"b":{"c":2}}]"#,
            r#""{\"a\":1,\"b\":{\"c\":2}}""#,
            r#""[{\"name\":\"a\",\"value\":1},{\"name\":\"b\",\"value\":{\"c\":2}}]""#,
            r#"{"a":1,"b":"{\"c\":2}"}"#,
        ] {
            let setup = Setup::new(ScriptedModel::new([raw(tool, arguments)]));
            let agent = setup.start().await;
            let record = end_of(ask(&agent, &["a:integer", "b:object"]).await).await;
            assert_eq!(record.reply.as_deref(), Some(r#"{"a":1,"b":{"c":2}}"#), "{tool} {arguments}: {record:?}");
            agent.shut_down().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn missing_outputs_end_it_after_two_reminders_and_a_last_chance() {
    for (last, reason) in [
        (Scripted::text("no"), StopReason::MissingOutputs),
        (Scripted::call("emit_value", json!({"name": "a", "value": true})), StopReason::MissingOutputs),
        (Scripted::call("complete_task", json!({"a": true, "b": 1})), StopReason::Goal),
    ] {
        let setup = Setup::new(ScriptedModel::new(["x", "y", "z"].map(Scripted::text).into_iter().chain([last])));
        let mut agent = setup.start().await;
        let record = end_of(ask(&agent, &["a:boolean", "b:integer"]).await).await;
        assert_eq!(record.reason, Some(reason), "{record:?}");
        let said = agent.one.next().await;
        if reason == StopReason::Goal {
            assert_eq!(
                (said.as_str(), &record.evidence["interrupted"]),
                (r#"{"a":true,"b":1}"#, &json!("missing_outputs"))
            );
        } else {
            assert_eq!((record.status, said.as_str()), (RunStatus::Failed, StopReason::MissingOutputs.user_line()));
            assert_eq!(record.evidence["nudges"], 2);
            assert!(record.evidence["missing"].as_array().is_some_and(|missing| missing.contains(&json!("b"))));
        }
        assert_eq!(agent.model.left(), 0);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_steps_leaves_the_tools_and_then_one_last_chance() {
    for (last, reason) in [
        (Scripted::call("complete_task", json!({"a": 1})), StopReason::Goal),
        (Scripted::text("so close"), StopReason::MaxIterations),
    ] {
        let echo = |n: u32| Scripted::call("echo", json!({ "text": n.to_string() }));
        let mut setup = Setup::new(ScriptedModel::new([echo(1), echo(2), echo(3), last]));
        setup.config.max_tool_iterations = 3;
        let agent = setup.start().await;
        let record = end_of(ask(&agent, &["a:integer"]).await).await;
        assert_eq!(record.reason, Some(reason), "{record:?}");
        let seen = agent.model.seen();
        assert!(seen[2].tools.as_ref().expect("tools to the end").contains(&"echo".to_owned()));
        assert_eq!(seen[3].tools.as_deref().expect("tools"), ["complete_task", "emit_value"]);
        assert!(saw(&agent.model, 3).iter().any(|text| text.contains("close to the limit")), "a notice came before");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_brake_that_takes_the_tools_leaves_the_last_chance() {
    let fail = || Scripted::call("fail", json!({}));
    let script = [
        fail(),
        fail(),
        fail(),
        fail(),
        Scripted::text("I give up."),
        Scripted::call("complete_task", json!({"a": 0})),
    ];
    let setup = Setup::new(ScriptedModel::new(script));
    let agent = setup.start().await;
    let record = end_of(ask(&agent, &["a:integer"]).await).await;
    assert_eq!((record.reason, record.reply.as_deref()), (Some(StopReason::Goal), Some(r#"{"a":0}"#)));
    let seen = agent.model.seen();
    assert!(seen[4].tools.is_none() && seen[5].tools.is_some(), "the closing turn has its tools all the same");
    assert!(
        !saw(&agent.model, 6).iter().any(|text| text.starts_with("Still missing")),
        "nobody is asked for the impossible"
    );
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_and_what_was_emitted_outlast_a_crash() {
    // Before anything was stored but the message, and after one output is there.
    let crashes = [
        vec![Scripted::hang()],
        vec![Scripted::call("emit_value", json!({"name": "a", "value": 1})), Scripted::hang()],
    ];
    for (script, then) in crashes.into_iter().zip([
        vec![("emit_value", json!({"name": "a", "value": 1})), ("emit_value", json!({"name": "b", "value": 2}))],
        vec![("emit_value", json!({"name": "b", "value": 2}))],
    ]) {
        let calls = script.len();
        let setup = Setup::new(ScriptedModel::new(script));
        let agent = setup.start().await;
        let run = ask(&agent, &["a:integer", "b:integer"]).await.run_id;
        let waiting = ask(&agent, &["c:string"]).await.run_id; // it has not even begun
        agent.asked(calls).await;
        agent.crash().await;

        let done = Scripted::call("complete_task", json!({"c": "too"}));
        let next = setup.next_boot(ScriptedModel::new([Scripted::calls(then), done]));
        let mut agent = next.start().await;
        assert_eq!(agent.one.next().await, r#"{"a":1,"b":2}"#);
        assert_eq!(agent.one.next().await, r#"{"c":"too"}"#);
        for run in [run, waiting] {
            let record = setup.store.runs.run(run).await.expect("readable").expect("known");
            assert_eq!(record.reason, Some(StopReason::Goal));
        }
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_last_output_and_the_end_needs_no_model_call() {
    // The batch hands over everything, and its tool waits: the crash comes before the batch has its results.
    let batch = [("complete_task", json!({"a": 1})), ("wait", json!({}))];
    let setup = Setup::new(ScriptedModel::new([Scripted::calls(batch)])).tool(TestTool::named("wait"));
    let agent = setup.start().await;
    ask(&agent, &["a:integer"]).await;
    agent.asked(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.crash().await;
    let next = setup.next_boot(ScriptedModel::new([]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, r#"{"a":1}"#, "the calls are run again, since they may be");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_and_a_stop_are_told_as_such() {
    let setup = Setup::new(ScriptedModel::new([Scripted::error(ModelErrorKind::Auth), Scripted::hang()]));
    let mut agent = setup.start().await;
    let failed = end_of(ask(&agent, &["a:integer"]).await).await;
    assert_eq!((failed.reason, agent.model.seen().len()), (Some(StopReason::ProviderAuth), 1));
    agent.one.next().await;
    let accepted = ask(&agent, &["a:integer"]).await;
    agent.asked(2).await;
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    assert_eq!(end_of(accepted).await.reason, Some(StopReason::UserStop));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_declaration_that_cannot_be_used_is_refused_with_every_problem() {
    let setup = Setup::new(ScriptedModel::new([]));
    let agent = setup.start().await;
    let bad = vec![
        DeclaredOutput { name: "a b".into(), schema: json!({}), description: None },
        DeclaredOutput { name: "b".into(), schema: json!({"type": "strin"}), description: None },
    ];
    match agent.one.with_outputs("alice", "go", bad).await {
        Ack::Refused(Refusal::Invalid(text)) => {
            assert!(
                text.starts_with("outputs: \"a b\" is no name") && text.contains("b: this is not a usable"),
                "{text}"
            );
        }
        other => panic!("it was taken: {other:?}"),
    }
    match agent.one.with_outputs("alice", "/plan build a boat", outputs(&["a:integer"])).await {
        Ack::Refused(Refusal::Invalid(text)) => assert!(text.contains("without /plan"), "{text}"),
        other => panic!("it was taken: {other:?}"),
    }
    agent.shut_down().await;
}
