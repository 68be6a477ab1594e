//! Tests scripts as tables, and the player with paused time.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Arguments, Attachment, AttachmentContent, DeltaSink, FinishReason, Heard, Message, ModelErrorKind, ModelProvider,
    ModelReply, ModelRequest, NoSink, Prompt, Provenance, Retry, ToolCall, ToolResult, ToolSet, ToolStatus, Usage,
};
use tokio::time::Instant;

use super::outputs::Offered;
use super::plan::{Ending, Script, Segment, plan};
use super::{LABEL, Rehearsal};

/// A conversation that already contains the label, followed by these messages.
fn after_greeting(rest: Vec<Message>) -> Vec<Arc<Message>> {
    let start = [Message::user("hello"), Message::assistant("(greeting)")];
    start.into_iter().chain(rest).map(Arc::new).collect()
}

fn user(text: &str) -> Message {
    Message::user(text)
}

fn notice(text: &str) -> Message {
    Message::user(text).for_run()
}

fn step_notice() -> Message {
    system("You are close to the limit of steps for this request. Answer the user now.")
}

fn system(text: &str) -> Message {
    Message::system(text).for_run()
}

/// A batch of calls with the result of each.
fn batch(results: &[(&str, ToolStatus, &str)]) -> Vec<Message> {
    let id = |at: usize| format!("c{at}").into();
    let calls = results.iter().enumerate().map(|(at, (name, ..))| ToolCall {
        id: id(at),
        name: (*name).to_owned(),
        arguments: Arguments::parse("{}"),
    });
    let mut messages = vec![Message::assistant_calls("", calls.collect())];
    messages.extend(results.iter().enumerate().map(|(at, (name, status, text))| {
        Message::tool(ToolResult {
            call_id: id(at),
            name: (*name).to_owned(),
            status: *status,
            text: (*text).to_owned(),
        })
    }));
    messages
}

fn failing(times: usize) -> Vec<Message> {
    std::iter::repeat_with(|| batch(&[("read_file", ToolStatus::Error, "no such file")]))
        .take(times)
        .flatten()
        .collect()
}

fn joined(parts: Vec<Vec<Message>>) -> Vec<Message> {
    parts.into_iter().flatten().collect()
}

/// A script in readable form. Runs of equal pieces are counted.
fn render(script: &Script) -> String {
    let mut said = String::new();
    let (mut waits, mut waited) = (0, Duration::ZERO);
    for segment in &script.segments {
        match segment {
            Segment::Say(text) => said.push_str(text),
            Segment::Wait(time) => (waits, waited) = (waits + 1, waited + *time),
        }
    }
    let call = |call: &ToolCall| format!("call {} {}", call.name, call.arguments.canonical());
    let mut lines = Vec::new();
    if waits > 0 {
        lines.push(format!("wait {waits} times, {waited:?}"));
    }
    if !said.is_empty() {
        lines.push(said);
    }
    match &script.ending {
        Ending::Stop => {}
        Ending::Calls(calls) => lines.extend(calls.iter().map(call)),
        Ending::Cut(calls) => lines.extend(calls.iter().map(|c| format!("cut {}", call(c)))),
        Ending::Fail(kind) => lines.push(format!("fail {kind:?}")),
    }
    lines.join("\n")
}

fn check(rest: Vec<Message>, tools: bool, expected: &str) {
    let messages = after_greeting(rest);
    assert_eq!(render(&plan(&messages, tools)), expected, "{:?}, tools {tools}", messages[2].text());
}

#[test]
fn files_are_named_and_the_newest_notice_is_reported() {
    let content = AttachmentContent::Named { detail: "archives are not unpacked".into() };
    let (name, media_type) = ("a.zip".to_owned(), "application/zip".to_owned());
    let digest = "0".repeat(64).parse().unwrap();
    let file = Attachment { name, media_type, bytes: 1, digest, content };
    let provenance = Provenance { attachments: vec![file], ..Provenance::default() };
    let sent = |text: &str| Message::sent(text, Some(Arc::new(provenance.clone())));
    let named = "I am a rehearsal and see nothing, but a model would get this with your message:\n\
                 - a.zip: archives are not unpacked";
    check(vec![sent("look at this")], true, named);
    check(vec![sent("calculate 1+1")], true, r#"call calculate {"expression":"1+1"}"#);

    check(vec![user("what did it find?")], true, "No background work has reported in this conversation.");
    let reports = ["old", "new"].map(|text| Message::notice(&format!("A job has ended.\n{text}")));
    let asked = reports.into_iter().chain([user("what did it find?")]).collect();
    check(asked, true, "It reported:\nnew");
}

#[test]
fn a_request_is_called_and_then_answered_from_its_result() {
    use ToolStatus::{Cancelled, Denied, Error, NotExecuted, OutcomeUnknown, Success};
    for (text, call, result, answer) in [
        ("calculate 17*23", r#"call calculate {"expression":"17*23"}"#, ("calculate", Success, "391"), "17*23 = 391"),
        ("what is 1/3?", r#"call calculate {"expression":"1/3"}"#, ("calculate", Success, "≈ 0.33"), "1/3 ≈ 0.33"),
        ("calculate x", r#"call calculate {"expression":"x"}"#, ("calculate", Error, "no x"), "calculate failed: no x"),
        ("what time is it", "call clock {}", ("clock", Success, "12:00 UTC"), "It is 12:00 UTC."),
        (
            "read a.txt",
            r#"call read_file {"path":"a.txt"}"#,
            ("read_file", Success, "[a.txt: …]\nhi"),
            "[a.txt: …]\nhi",
        ),
        ("read a.txt", r#"call read_file {"path":"a.txt"}"#, ("read_file", Denied, "no"), "read_file was denied: no"),
        (
            r#"call run_command {"argv":["ls"]}"#,
            r#"call run_command {"argv":["ls"]}"#,
            ("run_command", Success, "a.txt"),
            "a.txt",
        ),
        (
            r#"call run_command {"argv":["rm"]}"#,
            r#"call run_command {"argv":["rm"]}"#,
            ("run_command", Denied, "the person said no"),
            "run_command was denied: the person said no",
        ),
        ("ls", r#"call list_files {"path":"."}"#, ("list_files", Cancelled, "stop"), "list_files was cancelled: stop"),
        ("recall x", r#"call recall {"query":"x"}"#, ("recall", NotExecuted, "end"), "recall was not run: end"),
        (
            "remember a: b",
            r#"call remember {"key":"a","text":"b"}"#,
            ("remember", OutcomeUnknown, "?"),
            "Nobody knows whether remember did its work: ?",
        ),
    ] {
        check(vec![user(text)], true, call);
        check(joined(vec![vec![user(text)], batch(&[result])]), true, answer);
        check(joined(vec![vec![user(text)], batch(&[result])]), false, answer);
    }
}

#[test]
fn several_requests_make_one_batch_and_one_answer() {
    let text = "calculate 2+2 and read a.txt\nnice weather";
    check(vec![user(text)], true, "call calculate {\"expression\":\"2+2\"}\ncall read_file {\"path\":\"a.txt\"}");
    let results = [("calculate", ToolStatus::Success, "4"), ("read_file", ToolStatus::Error, "no such file")];
    check(
        joined(vec![vec![user(text)], batch(&results)]),
        true,
        "2+2 = 4\nread_file failed: no such file\nYou also said: \"nice weather\"",
    );
}

#[test]
fn without_tools_a_request_is_answered_in_words() {
    check(vec![user("what time is it")], false, "No tools are offered in this request, so clock was not called.");
}

#[test]
fn everything_else_is_echoed_honestly() {
    check(
        vec![user("I love the sea")],
        true,
        "I am a rehearsal, not a model, and know only plain requests; \"help\" lists them. You said: \"I love the sea\"",
    );
    let long = render(&plan(&after_greeting(vec![user(&"é".repeat(10_000))]), true));
    assert!(long.chars().count() < 700 && long.ends_with("…\""), "{long}");
    let help = render(&plan(&after_greeting(vec![user("help")]), true));
    assert!(help.contains("calculate 17*23") && help.contains("rehearse loop"), "{help}");
}

#[test]
fn what_was_said_before_is_remembered() {
    check(vec![user("what did I say before?")], true, "Before this you said: \"hello\"");
    check(
        vec![user("I love the sea"), Message::assistant("…"), notice("a nudge"), user("What did I say?")],
        true,
        "Before this you said, oldest first:\n- \"hello\"\n- \"I love the sea\"",
    );
    let first = [Arc::new(user("what did I say before?"))];
    assert_eq!(render(&plan(&first, true)), format!("{LABEL}\nYou have said nothing before in this conversation."));
}

#[test]
fn the_first_answer_of_a_conversation_is_labelled_and_no_later_one() {
    let first = |rest: Vec<Message>, tools| {
        let messages: Vec<_> = rest.into_iter().map(Arc::new).collect();
        render(&plan(&messages, tools))
    };
    let asked = || user("calculate 17*23");
    assert_eq!(first(vec![asked()], true), r#"call calculate {"expression":"17*23"}"#);
    let results = batch(&[("calculate", ToolStatus::Success, "391")]);
    assert_eq!(first(joined(vec![vec![asked()], results]), true), format!("{LABEL}\n17*23 = 391"));
    assert_eq!(first(vec![user("rehearse intent")], true), format!("{LABEL}\nLet me search for that."));
    assert!(first(vec![user("rehearse chant")], true).contains(LABEL));
    assert_eq!(first(vec![user("rehearse silent")], true), "NO_REPLY");
    assert_eq!(first(vec![user("rehearse empty")], true), "");
    assert!(first(vec![], true).starts_with(&format!("{LABEL}\nI am a rehearsal")));
    assert!(!render(&plan(&after_greeting(vec![user("hi")]), true)).contains(LABEL));
}

#[test]
fn a_loop_repeats_one_failing_call_until_no_tools_are_offered() {
    let asked = || vec![user("Rehearse loop")];
    let call = r#"call read_file {"path":"rehearsal/no-such-file.txt"}"#;
    check(asked(), true, call);
    check(joined(vec![asked(), failing(30)]), true, call);
    let warned = vec![notice("w"), notice("w"), notice("w")];
    check(
        joined(vec![asked(), failing(4), warned]),
        false,
        "Rehearsal of a loop: I made the same failing call 4 times. The duplicate-call guardrail acted: 3 notices came, and \
         then the request offered no tools.",
    );
    check(
        joined(vec![asked(), failing(1), vec![step_notice()]]),
        false,
        "Rehearsal of a loop: I made the same failing call 1 time. The step limit acted: a notice announced it, and \
         then the request offered no tools.",
    );
    check(
        asked(),
        false,
        "Rehearsal of a loop: I made the same failing call 0 times. The request offers no tools, and nothing in the \
         conversation says why.",
    );
}

#[test]
fn an_intent_is_announced_until_it_is_nudged_through() {
    let nudged = |n: usize| {
        let nudges = (0..n).flat_map(|_| [Message::assistant("Let me search for that.").for_run(), notice("nudge")]);
        joined(vec![vec![user("rehearse intent")], nudges.collect()])
    };
    check(nudged(0), true, "Let me search for that.");
    check(nudged(1), true, "Let me search for that.");
    check(
        nudged(2),
        true,
        "Let me search for that.\n\nRehearsal of the tool-intent guardrail: I announced a tool 3 times and called none. The \
         loop nudged me 2 times and now lets this text through.",
    );
    check(
        nudged(1),
        false,
        "Rehearsal of the tool-intent guardrail: no tools are offered here, so there is nothing to announce.",
    );
}

#[test]
fn cut_calls_come_again_until_no_tools_are_offered() {
    let asked = || vec![user("rehearse truncation")];
    let script = plan(&after_greeting(asked()), true);
    let Ending::Cut(calls) = &script.ending else { panic!("{script:?}") };
    assert!(matches!(&calls[..], [ToolCall { arguments: Arguments::Malformed(_), .. }]), "{calls:?}");
    let noticed = (0..3).flat_map(|_| [Message::assistant("This call is going to be long."), notice("cut")]).collect();
    check(
        joined(vec![asked(), noticed]),
        false,
        "Rehearsal of truncation: my calls were cut off by the length limit each time, and none of them ran. The \
         truncation guardrail acted: 3 notices came, and then the request offered no tools.",
    );
}

#[test]
fn failures_differ_at_each_step_and_end_after_ten() {
    let asked = || vec![user("rehearse failures")];
    check(asked(), true, r#"call read_file {"path":"rehearsal/missing-1.txt"}"#);
    check(joined(vec![asked(), failing(9)]), true, r#"call read_file {"path":"rehearsal/missing-10.txt"}"#);
    check(
        joined(vec![asked(), failing(10)]),
        true,
        "Rehearsal of failures: 10 different calls failed. I gave up by myself.",
    );
    check(
        joined(vec![asked(), failing(9), vec![step_notice()]]),
        false,
        "Rehearsal of failures: 9 different calls failed. The step limit acted: a notice announced it, and then the \
         request offered no tools.",
    );
}

#[test]
fn what_took_the_tools_away_is_only_said_when_it_was_seen() {
    let closing = || system("This run ends now (consecutive errors). This is your last message.");
    let told = |notices: Vec<Message>| {
        let messages = after_greeting(joined(vec![vec![user("rehearse failures")], failing(5), notices]));
        let said = render(&plan(&messages, false));
        said.strip_prefix("Rehearsal of failures: 5 different calls failed. ").map(str::to_owned).unwrap()
    };
    let errors = || system("Five calls failed. Try another way.");
    let ended = "A rule or a limit acted. I was told: \"This run ends now (consecutive errors).\"";
    for (notices, expected) in [
        (vec![], "The request offers no tools, and nothing in the conversation says why."),
        (
            vec![Message::system("a summary of what was said")],
            "The request offers no tools, and nothing in the conversation says why.",
        ),
        (vec![errors()], "The request offers no tools. The last that I was told is: \"Five calls failed.\""),
        (vec![errors(), closing()], ended),
        (vec![step_notice(), closing()], ended),
        (vec![notice("w"), closing()], ended),
        (
            vec![errors(), step_notice()],
            "The step limit acted: a notice announced it, and then the request offered no tools.",
        ),
        (
            vec![errors(), notice("w")],
            "The error guardrail acted: 1 notice came, and then the request offered no tools.",
        ),
    ] {
        assert_eq!(told(notices), expected);
    }
}

#[test]
fn a_storm_is_twenty_calls_in_one_batch() {
    let script = plan(&after_greeting(vec![user("rehearse storm")]), true);
    let Ending::Calls(calls) = &script.ending else { panic!("{script:?}") };
    let mut ids: Vec<_> = calls.iter().map(|call| call.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((calls.len(), ids.len()), (20, 20));
    let results = [("calculate", ToolStatus::Success, "1"), ("calculate", ToolStatus::Error, "no")];
    check(
        joined(vec![vec![user("rehearse storm")], batch(&results)]),
        true,
        "Rehearsal of a storm: 2 calls in one batch, 1 succeeded. Their results in order: 1",
    );
    check(
        vec![user("rehearse storm")],
        false,
        "Rehearsal of a storm: no tools are offered here, so nothing was called.",
    );
}

#[test]
fn the_other_misbehaviours_are_as_asked() {
    let rehearse = |what: &str| render(&plan(&after_greeting(vec![user(&format!("rehearse {what}"))]), true));
    assert_eq!(rehearse("empty"), "");
    assert_eq!(rehearse("silent"), "NO_REPLY");
    assert_eq!(rehearse("unknown tool"), r#"call teleport {"to":"the moon"}"#);
    for (kind, expected) in [
        ("auth", "fail Auth"),
        ("rate", "fail RateLimited { retry_after: Some(1s) }"),
        ("overloaded", "fail Overloaded { retry_after: None }"),
        ("network", "fail Network"),
        ("context", "fail ContextTooLong"),
        ("bad", "fail BadRequest"),
    ] {
        assert_eq!(rehearse(&format!("error {kind}")), expected);
    }
    assert!(rehearse("chant").starts_with("wait 200 times, 2s\nThe rope holds"));
    assert!(rehearse("stall").starts_with("wait 120 times, 30s\n1 2 3 "));
    assert!(rehearse("stall 5").starts_with("wait 20 times, 5s\n"));
    assert!(rehearse("stall silent").starts_with("wait 1 times, 30s\n"));
    assert!(rehearse("Stall SILENT 7").starts_with("wait 1 times, 7s\n"));
    assert!(rehearse("stall 99999999").starts_with("wait 14400 times, 3600s\n"));
    for unknown in ["dance", "stall -1", "stall long", "error", "error odd", "long", "loop twice"] {
        assert!(rehearse(unknown).starts_with("There is no such rehearsal."), "{unknown}");
    }
    check(
        joined(vec![vec![user("rehearse unknown tool")], batch(&[("teleport", ToolStatus::Error, "no such tool")])]),
        true,
        "Rehearsal of an unknown tool: I called teleport, which does not exist, and was told: \"no such tool\"",
    );
}

#[test]
fn a_long_answer_has_exactly_as_many_characters_as_asked() {
    for characters in [0, 1, 5, 200, 4096, 20_000] {
        let text = render(&plan(&after_greeting(vec![user(&format!("rehearse long {characters}"))]), true));
        assert_eq!(text.chars().count(), characters);
        assert_eq!(text.matches("```").count() % 2, 0, "code blocks are closed");
    }
}

#[test]
fn without_tools_nothing_is_ever_called_and_the_same_request_gets_the_same_plan() {
    let acts = ["loop", "chant", "intent", "truncation", "failures", "stall", "storm", "unknown tool", "long 50", "x"];
    for text in acts.iter().map(|act| format!("rehearse {act}")).chain(["ls".into(), "hello".into(), "".into()]) {
        for rest in [vec![], failing(1), failing(12), vec![notice("w")], vec![step_notice()]] {
            let messages = after_greeting(joined(vec![vec![user(&text)], rest]));
            let script = plan(&messages, false);
            assert_eq!(script.ending, Ending::Stop, "{text}");
            assert!(!render(&script).is_empty(), "{text}");
            assert_eq!(script, plan(&messages, false));
            assert_eq!(plan(&messages, true), plan(&messages, true));
        }
    }
}

#[derive(Default)]
struct Listener(Vec<String>);

impl DeltaSink for Listener {
    fn text(&mut self, piece: &str) -> Heard {
        self.0.push(piece.to_owned());
        Heard::Somebody
    }
    fn reasoning(&mut self, _piece: &str) -> Heard {
        Heard::Nobody
    }
}

async fn ask(
    text: &str,
    tools: Option<&ToolSet>,
    sink: &mut dyn DeltaSink,
) -> Result<ModelReply, belay_protocol::ModelError> {
    let prompt = Prompt::new("You are Belay.");
    let messages = after_greeting(vec![user(text)]);
    let request = ModelRequest {
        prompt: &prompt,
        tools,
        messages: &messages,
        model: None,
        thinking: None,
        sampling: None,
        format: None,
        calls: None,
        send_pictures: true,
        later_system: true,
        max_tokens: 4096,
        max_attempts: 3,
    };
    Rehearsal::new().call(request, sink).await
}

#[tokio::test]
async fn a_reply_is_streamed_word_by_word_and_counted() {
    let mut heard = Listener::default();
    let reply = ask("what did I say?", None, &mut heard).await.unwrap();
    assert_eq!(
        reply,
        ModelReply {
            text: "Before this you said: \"hello\"".to_owned(),
            tool_calls: Vec::new(),
            finish: FinishReason::Stop,
            usage: Some(Usage { input: 3 + 5 + 6 + 7, cached_input: 0, output: 11 }),
            attempts: 1,
            abandoned: 0,
            ..ModelReply::default()
        }
    );
    assert_eq!(heard.0, ["Before ", "this ", "you ", "said: ", "\"hello\""]);
}

#[tokio::test]
async fn calls_and_cuts_end_with_their_own_finish_reason() {
    let tools = ToolSet::default();
    let reply = ask("calculate 1+1", Some(&tools), &mut NoSink).await.unwrap();
    assert_eq!((reply.finish, reply.tool_calls.len()), (FinishReason::ToolCalls, 1));
    let reply = ask("rehearse truncation", Some(&tools), &mut NoSink).await.unwrap();
    assert_eq!((reply.finish, reply.tool_calls.len()), (FinishReason::Length, 1));
}

#[tokio::test]
async fn an_error_is_typed_and_says_whether_to_retry() {
    for (kind, retry) in [
        ("auth", Retry::No),
        ("rate", Retry::After(Duration::from_secs(1))),
        ("overloaded", Retry::Now),
        ("network", Retry::Now),
        ("context", Retry::No),
        ("bad", Retry::No),
    ] {
        let error = ask(&format!("rehearse error {kind}"), None, &mut NoSink).await.unwrap_err();
        assert_eq!(error.retry(), retry, "{kind}");
        assert!(error.abandoned == 0 && !error.heard && error.attempts == 1);
    }
    assert_eq!(ask("rehearse error auth", None, &mut NoSink).await.unwrap_err().kind, ModelErrorKind::Auth);
}

#[tokio::test(start_paused = true)]
async fn a_stall_takes_its_time_and_can_be_dropped_at_any_moment() {
    let start = Instant::now();
    let mut heard = Listener::default();
    ask("rehearse stall 5", None, &mut heard).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    assert_eq!(heard.0[..2], ["1 ", "2 "]);

    let mut heard = Listener::default();
    let cut = tokio::time::timeout(Duration::from_secs(29), ask("rehearse stall silent", None, &mut heard)).await;
    assert!(cut.is_err() && heard.0.is_empty());

    let mut heard = Listener::default();
    let cut = tokio::time::timeout(Duration::from_millis(1100), ask("rehearse stall", None, &mut heard)).await;
    assert!(cut.is_err());
    assert_eq!(heard.0, ["1 ", "2 ", "3 ", "4 ", "5 "]);
}

#[test]
fn it_never_passes_for_a_model() {
    let info = Rehearsal::new().info().clone();
    assert!(info.rehearsal && info.price.is_none());
    assert_eq!((info.provider.as_str(), info.model.as_str()), ("rehearsal", "rehearsal-1"));
    assert_eq!(info.context_tokens, 32_768);
}

/// The tools of a run with declared outputs, or of a subagent.
fn completing(properties: serde_json::Value) -> Offered {
    let schema = serde_json::json!({ "type": "object", "properties": properties });
    Offered { tools: true, subagents: true, completion: Some(schema) }
}

#[test]
fn where_outputs_are_declared_the_answer_is_handed_over_by_type() {
    let offered = || completing(serde_json::json!({ "n": { "type": "integer" }, "words": { "type": "string" } }));
    let asked = || vec![user("calculate 17*23")];
    let called = joined(vec![asked(), batch(&[("calculate", ToolStatus::Success, "391")])]);
    let complete = r#"call complete_task {"n":391,"words":"17*23 = 391"}"#;
    for (messages, expected) in [
        (asked(), r#"call calculate {"expression":"17*23"}"#),
        (called, complete),
        (
            vec![user("rehearse miss-output")],
            "Rehearsal of missing outputs: this is a text, and it hands over nothing.",
        ),
        (vec![user("rehearse empty")], ""),
        (vec![user("rehearse intent")], "Let me search for that."),
    ] {
        assert_eq!(render(&plan(&after_greeting(messages), offered())), expected);
    }
    // The label is for people and is not part of the submitted values.
    let first: Vec<_> = [user("the sea")].into_iter().map(Arc::new).collect();
    let script = render(&plan(&first, completing(serde_json::json!({ "result": { "type": "string" } }))));
    assert!(script.starts_with(r#"call complete_task {"result":"I am a rehearsal"#), "{script}");
}

#[test]
fn a_subagent_is_given_what_follows_and_its_result_is_told() {
    let offered = || Offered { tools: true, subagents: true, completion: None };
    for (text, task) in [
        ("rehearse subagent", "calculate 17*23"),
        ("Rehearse subagent read a.txt", "read a.txt"),
        ("rehearse subagent repeat {n} {calls}.", "repeat {n} {calls}."),
    ] {
        let expected = format!(r#"call spawn_subagent {{"outputs":{{"answer":"string"}},"task":"{task}"}}"#);
        assert_eq!(render(&plan(&after_greeting(vec![user(text)]), offered())), expected);
        check(vec![user(text)], true, "Rehearsal of a subagent: none can be started here (agent.subagents).");
        let back = joined(vec![vec![user(text)], batch(&[("spawn_subagent", ToolStatus::Success, "{}\nfine")])]);
        let expected = "Rehearsal of a subagent. What came back:\n{}\nfine";
        assert_eq!(render(&plan(&after_greeting(back), offered())), expected);
    }
    check(
        vec![user("rehearse miss-output")],
        true,
        "Rehearsal of missing outputs: none are declared here, so none are missing.",
    );
}
