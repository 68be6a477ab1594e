//! Hooks on every path: each point is reached once for what it is about, and what hooks say is what happens.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Ack, BoundHook, Hook, HookAnswer, HookEvent, HookFailure, HookPoint, MessageBody, NOT_SHOWN, Refusal, RunStatus,
    StopReason, ToolStatus,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{Running, Setup, TestTool, by_rule, end_of, rest_of, saw};

/// What hooks were told, in order.
#[derive(Clone, Default)]
pub(crate) struct Book(Arc<Mutex<Vec<Value>>>);

impl Book {
    pub(crate) fn told(&self, point: HookPoint) -> Vec<Value> {
        let told = self.0.lock().expect("no panic while it is held");
        told.iter().filter(|event| event["hook"] == point.word()).map(|event| event["data"].clone()).collect()
    }

    /// How often each point was reached.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for event in &*self.0.lock().expect("no panic while it is held") {
            *counts.entry(event["hook"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        counts
    }
}

type Act = Arc<dyn Fn(&HookEvent) -> Option<HookAnswer> + Send + Sync>;

/// Writes down what it is told, and answers as the test says; `None`: never.
struct Spy {
    book: Book,
    act: Act,
}

#[async_trait]
impl Hook for Spy {
    fn name(&self) -> &str {
        "spy"
    }

    async fn call(&self, event: &HookEvent) -> Result<HookAnswer, String> {
        let told = serde_json::to_value(event).expect("an event is JSON");
        self.book.0.lock().expect("no panic while it is held").push(told);
        match (self.act)(event) {
            Some(answer) => Ok(answer),
            None => std::future::pending().await,
        }
    }
}

/// A hook at each of these points.
pub(crate) fn spy(
    points: &[HookPoint],
    act: impl Fn(&HookEvent) -> Option<HookAnswer> + Send + Sync + 'static,
) -> (Vec<BoundHook>, Book) {
    let book = Book::default();
    let hook: Arc<dyn Hook> = Arc::new(Spy { book: book.clone(), act: Arc::new(act) });
    let bound = |point: &HookPoint| BoundHook {
        point: *point,
        priority: 0,
        timeout: point.default_timeout(),
        on_failure: point.default_failure(),
        tools: Vec::new(),
        hook: hook.clone(),
    };
    (points.iter().map(bound).collect(), book)
}

pub(crate) fn change(fields: Value) -> Option<HookAnswer> {
    match fields {
        Value::Object(fields) => Some(HookAnswer::Change(fields)),
        other => panic!("{other} is no object"),
    }
}

pub(crate) fn refuse(why: &str) -> Option<HookAnswer> {
    Some(HookAnswer::Refuse(why.into()))
}

fn echo(text: &str) -> Scripted {
    Scripted::call("echo", json!({ "text": text }))
}

fn ringing() -> TestTool {
    TestTool::named("echo").called("ring").asking()
}

/// One thing that somebody does.
enum Do {
    /// Sends a text and takes the next delivery.
    Say(&'static str),
    /// Sends a text with a key, and takes the next delivery.
    Keyed(&'static str),
    /// Sends it once more; nothing is delivered.
    Again(&'static str),
    /// Sends a text whose answer nobody is sent, and waits for the end of its run.
    Read(&'static str),
    /// Sends a text, and waits until the model has been asked so often.
    Begin(&'static str, usize),
    /// A command, or the answer to a question.
    Command(&'static str),
    /// Takes a delivery.
    Take,
    /// The daemon crashes, and the next start has this model.
    Crash(Vec<Scripted>),
}

async fn act(setup: &mut Setup, mut agent: Running, what: Do) -> Running {
    match what {
        Do::Say(text) => {
            agent.one.ask("alice", text).await;
        }
        Do::Keyed(text) => {
            assert!(matches!(agent.one.keyed("alice", text, "k").await, Ack::Accepted(_)));
            agent.one.next().await;
        }
        Do::Again(text) => match agent.one.keyed("alice", text, "k").await {
            Ack::Accepted(accepted) => assert!(accepted.duplicate),
            other => panic!("a second delivery joins the first: {other:?}"),
        },
        Do::Read(text) => {
            let accepted = agent.one.unanswered("alice", text).await;
            end_of(accepted).await;
        }
        Do::Begin(text, times) => {
            agent.one.accepted("alice", text).await;
            agent.asked(times).await;
        }
        Do::Command(text) => {
            agent.one.command("alice", text).await;
        }
        Do::Take => {
            agent.one.next().await;
        }
        Do::Crash(script) => {
            agent.crash().await;
            *setup = setup.next_boot(ScriptedModel::new(script));
            return setup.start().await;
        }
    }
    agent
}

/// `a*2` is twice; without a number it is once.
fn counted(line: &str) -> BTreeMap<String, usize> {
    let count = |word: &str| match word.split_once('*') {
        Some((word, times)) => (word.to_owned(), times.parse().expect("a number")),
        None => (word.to_owned(), 1),
    };
    line.split_whitespace().map(count).collect()
}

#[tokio::test(start_paused = true)]
async fn each_point_is_reached_once_on_each_path() {
    let text = |text: &str| Scripted::text(text);
    let plan = || Scripted::call("planning", json!({"command": "create", "title": "w", "steps": ["look"]}));
    let daemon = "gateway_start gateway_stop";
    let run = "message_received agent:bootstrap before_agent_start message_sending agent_end";
    let call = "before_tool_call after_tool_call tool_result_persist";
    for (path, script, does, expected) in [
        ("nothing happens", vec![], vec![], String::new()),
        ("a text", vec![text("hi")], vec![Do::Say("hello")], format!("{run} session_start message_sent")),
        (
            "a call",
            vec![echo("a"), text("hi")],
            vec![Do::Say("hello")],
            format!("{run} {call} session_start message_sent"),
        ),
        (
            "two messages of one session",
            vec![text("hi"), text("fine")],
            vec![Do::Say("hello"), Do::Say("how are you")],
            "message_received*2 agent:bootstrap*2 before_agent_start*2 message_sending*2 agent_end*2 message_sent*2 \
             session_start"
                .into(),
        ),
        (
            "a second delivery",
            vec![text("hi")],
            vec![Do::Keyed("hello"), Do::Again("hello")],
            format!("{run} session_start message_sent"),
        ),
        ("an answer that is read", vec![echo("a"), text("hi")], vec![Do::Read("hello")], format!("{run} {call} session_start")),
        (
            "an approved call", // the question, the answer to the yes, and the reply are sent
            vec![Scripted::call("ring", json!({"text": "a"})), text("done")],
            vec![Do::Say("ring"), Do::Command("yes"), Do::Take],
            format!("{run} {call} session_start message_sent*3 message_sending*3"),
        ),
        (
            "a denied call",
            vec![Scripted::call("ring", json!({"text": "a"})), text("done")],
            vec![Do::Say("ring"), Do::Command("no"), Do::Take],
            format!("{run} {call} session_start message_sent*3 message_sending*3"),
        ),
        (
            "an approved call after a restart",
            vec![Scripted::call("ring", json!({"text": "a"}))],
            vec![Do::Say("ring"), Do::Crash(vec![text("done")]), Do::Command("yes"), Do::Take],
            // A crash is no stop, and what was being told is lost with it.
            format!("{run} {call} session_start message_sent*3 message_sending*3 gateway_start*2"),
        ),
        (
            "a subagent", // the call that starts it, and its own
            vec![Scripted::call("spawn_subagent", json!({"task": "look"})), echo("a"), text("seen"), text("done")],
            vec![Do::Say("go")],
            format!(
                "{run} before_tool_call*2 after_tool_call*2 tool_result_persist*2 session_start message_sent"
            ),
        ),
        (
            "a plan", // the call that makes it, and that of its step
            vec![plan(), echo("a"), text("The task is complete."), text("All done.")],
            vec![Do::Say("/plan tidy up")],
            format!(
                "{run} before_tool_call*2 after_tool_call*2 tool_result_persist*2 session_start message_sent"
            ),
        ),
        (
            "a stop",
            vec![Scripted::hang()],
            vec![Do::Begin("hello", 1), Do::Command("/stop")],
            "message_received agent:bootstrap before_agent_start agent_end session_start command command:stop message_sending \
             message_sent"
                .into(),
        ),
        (
            "a new conversation",
            vec![text("hi"), text("hi again")],
            vec![Do::Say("hello"), Do::Command("/new"), Do::Say("hello"), Do::Command("/help")],
            "message_received*2 agent:bootstrap*2 before_agent_start*2 message_sending*4 agent_end*2 message_sent*4 \
             session_start*2 session_end command*2 command:new"
                .into(),
        ),
        (
            "a reset, and another of what is empty already",
            vec![text("hi")],
            vec![Do::Say("hello"), Do::Command("/reset"), Do::Command("/reset")],
            format!("{run} session_start session_end command*2 command:reset*2 message_sent*3 message_sending*3"),
        ),
        (
            "a crash in the middle of a run",
            vec![echo("a"), Scripted::hang()],
            vec![Do::Begin("hello", 2), Do::Crash(vec![text("hi")]), Do::Take],
            format!("{run} {call} session_start message_sent gateway_start*2"),
        ),
        (
            "a shortened conversation",
            vec![text(&"x".repeat(400)), text(&"y".repeat(400)), text("z")],
            vec![Do::Say("1"), Do::Say("2"), Do::Say("3"), Do::Command("/compact")],
            "message_received*3 agent:bootstrap*3 before_agent_start*3 message_sending*4 agent_end*3 message_sent*4 \
             session_start command before_compaction after_compaction"
                .into(),
        ),
    ] {
        let mut setup = Setup::new(by_rule(ScriptedModel::new(script))).tool(ringing());
        let (hooks, book) = spy(HookPoint::ALL, |_| Some(HookAnswer::Continue));
        setup.hooks = hooks;
        let mut agent = setup.start().await;
        for what in does {
            agent = act(&mut setup, agent, what).await;
            // Whoever looks on is told beside everything else; a crash comes after that.
            sleep(Duration::from_secs(1)).await;
        }
        agent.shut_down().await;
        let mut expected = counted(&expected);
        for (point, times) in counted(daemon) {
            expected.entry(point).or_insert(times);
        }
        assert_eq!(book.counts(), expected, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_message_is_what_the_model_reads_and_what_was_sent_tells_duplicates() {
    let mut setup = Setup::new(ScriptedModel::new([Scripted::text("hi")]));
    (setup.hooks, _) = spy(&[HookPoint::MessageReceived], |event| {
        let text = event.data["text"].as_str().unwrap_or_default();
        change(json!({ "text": text.replace("1234", "****") }))
    });
    let mut agent = setup.start().await;
    let Ack::Accepted(accepted) = agent.one.keyed("alice", "my pin is 1234", "k").await else { panic!("accepted") };
    assert_eq!(agent.one.next().await, "hi");
    assert_eq!(saw(&agent.model, 1), ["my pin is ****"]);
    for (text, duplicate) in [("my pin is 1234", true), ("my pin is ****", false), ("another", false)] {
        match agent.one.keyed("alice", text, "k").await {
            Ack::Accepted(again) => assert_eq!((again.run_id, again.duplicate), (accepted.run_id, duplicate), "{text}"),
            Ack::Refused(Refusal::Conflict { run_id }) => {
                assert_eq!((run_id, duplicate), (accepted.run_id, false), "{text}")
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_message_is_answered_with_the_refusal_and_is_not_accepted() {
    let mut setup = Setup::new(ScriptedModel::new([Scripted::text("hi")]));
    let (hooks, book) = spy(HookPoint::ALL, |event| {
        let refused = event.hook == "message_received" && event.data["text"] == "bad";
        if refused { refuse("not today") } else { Some(HookAnswer::Continue) }
    });
    setup.hooks = hooks;
    let mut agent = setup.start().await;
    let Ack::Refused(Refusal::Forbidden(why)) = agent.one.text("alice", "bad").await else { panic!("refused") };
    assert_eq!(why, "Refused by the hook spy: not today");
    assert_eq!(agent.one.next().await, why);
    assert_eq!(agent.one.ask("alice", "good").await, "hi");
    assert_eq!(saw(&agent.model, 1), ["good"]);
    agent.shut_down().await;
    assert_eq!(book.told(HookPoint::AgentEnd).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_looks_at_a_message_for_long_holds_up_neither_a_stop_nor_the_drain() {
    let mut setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    (setup.hooks, _) = spy(&[HookPoint::MessageReceived], |event| {
        if event.data["text"] == "slow" { None } else { Some(HookAnswer::Continue) }
    });
    setup.hooks[0].timeout = Duration::from_secs(600);
    let agent = setup.start().await;
    let running = agent.one.accepted("alice", "work").await;
    agent.asked(1).await;
    let (answer, stopped) = tokio::join!(agent.one.text("alice", "slow"), async {
        sleep(Duration::from_secs(1)).await;
        let stopped =
            agent.two.control(belay_protocol::Control::Stop(belay_protocol::StopTarget::Run(running.run_id))).await;
        let end = end_of(running).await;
        agent.stop.cancel();
        (stopped, end)
    });
    let (stopped, end) = stopped;
    assert!(matches!(stopped, Ack::Stopped(report) if report.still_running.is_empty()));
    assert_eq!(end.status, RunStatus::Stopped);
    assert!(matches!(answer, Ack::Refused(Refusal::ShuttingDown)), "{answer:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn hooks_say_once_who_the_model_is_and_it_holds_over_a_question_and_a_restart() {
    let setup = Setup::new(ScriptedModel::new([Scripted::call("ring", json!({"text": "a"}))]));
    let mut setup = setup.tool(ringing());
    let points = [HookPoint::Bootstrap, HookPoint::BeforeAgentStart];
    let (hooks, book) = spy(&points, |event| {
        let prompt = event.data["prompt"].as_str().unwrap_or_default();
        match event.hook {
            "agent:bootstrap" => change(json!({ "prompt": format!("{prompt} You are a pirate.") })),
            _ => change(json!({ "prompt": format!("{prompt} Say arr.") })),
        }
    });
    setup.hooks = hooks;
    let mut agent = setup.start().await;
    agent.one.ask("alice", "ring").await;
    let first = agent.model.seen()[0].prompt.clone();
    assert!(first.starts_with("You are Belay") && first.contains("You are a pirate. Say arr.\n\nCall tools instead"));
    assert_eq!(book.told(HookPoint::BeforeAgentStart)[0]["message"], "ring");
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("done"), Scripted::text("hi")]));
    let mut agent = next.start().await;
    agent.one.command("alice", "yes").await;
    assert_eq!(agent.one.next().await, "done");
    assert_eq!(agent.model.seen()[0].prompt, first);
    assert_eq!(book.told(HookPoint::Bootstrap).len(), 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_run_ends_before_the_model_is_asked_and_says_why() {
    let mut setup = Setup::new(ScriptedModel::new([]));
    (setup.hooks, _) = spy(&[HookPoint::BeforeAgentStart], |_| refuse("the office is closed"));
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "hello").await;
    let line = StopReason::HookRefused.user_line();
    assert_eq!(agent.one.next().await, format!("the office is closed\n\n{line}"));
    let end = end_of(accepted).await;
    assert_eq!((end.status, end.reason), (RunStatus::Failed, Some(StopReason::HookRefused)));
    assert_eq!((end.evidence["hook"].as_str(), end.usage.model_calls), (Some("spy"), 0));
    agent.shut_down().await;
}

/// The results that the model was shown in its request number `n`, from 1.
fn results(agent: &Running, n: usize) -> Vec<(ToolStatus, String)> {
    let result = |body: &MessageBody| match body {
        MessageBody::Tool(result) => Some((result.status, result.text.clone())),
        _ => None,
    };
    agent.model.seen()[n - 1].messages.iter().filter_map(|message| result(&message.body)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_changed_call_is_the_one_that_is_asked_about_made_and_remembered() {
    let model = ScriptedModel::new([Scripted::call("ring", json!({"text": "loud"})), Scripted::text("done")]);
    let mut setup = Setup::new(model).tool(ringing());
    (setup.hooks, _) = spy(&[HookPoint::BeforeToolCall], |event| {
        assert_eq!(event.data["arguments"], json!({"text": "loud"}), "it is asked about once");
        change(json!({"arguments": {"text": "softly"}}))
    });
    let mut agent = setup.start().await;
    let mut accepted = agent.one.accepted("alice", "ring").await;
    assert!(agent.one.next().await.contains("softly"));
    rest_of(&mut accepted).await;
    agent.one.command("alice", "yes").await;
    assert_eq!(agent.one.next().await, "done");
    assert_eq!(results(&agent, 2), [(ToolStatus::Success, "softly".to_owned())]);
    let seen = agent.model.seen();
    let call = seen[1].messages.iter().flat_map(|message| message.tool_calls()).next().expect("the call");
    assert_eq!(call.arguments.canonical(), r#"{"text":"softly"}"#);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_changed_behind_a_question_is_made_as_it_was_approved_also_after_a_restart() {
    let calls =
        [("ring", json!({"text": "first"})), ("ring", json!({"text": "loud"})), ("ring", json!({"text": "loud"}))];
    let mut setup = Setup::new(ScriptedModel::new([Scripted::calls(calls)])).tool(ringing());
    (setup.hooks, _) = spy(&[HookPoint::BeforeToolCall], |event| match event.data["arguments"]["text"].as_str() {
        Some("loud") => change(json!({"arguments": {"text": "softly"}})),
        _ => Some(HookAnswer::Continue),
    });
    let mut agent = setup.start().await;
    let mut accepted = agent.one.accepted("alice", "ring").await;
    let said = agent.one.next().await;
    assert!(said.contains("first"), "{said}");
    rest_of(&mut accepted).await;
    agent.one.command("alice", "yes").await;
    // The message with both calls is stored by now, with what the model had said.
    assert!(agent.one.next().await.contains("softly"));
    for _ in 0..2 {
        agent.crash().await;
        setup = setup.next_boot(ScriptedModel::new([Scripted::text("done")]));
        agent = setup.start().await;
        agent.one.command("alice", "yes").await;
        // First the question about the third call, which hooks change as well, then the end.
        let said = agent.one.next().await;
        assert!(said.contains("softly") || said == "done", "{said}");
    }
    let expected = ["first", "softly", "softly"].map(|text| (ToolStatus::Success, text.to_owned()));
    assert_eq!(results(&agent, 1), expected);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_hooks_make_of_a_call_is_checked_like_what_the_model_says() {
    let script = || [echo("a"), Scripted::text("done")];
    let cases: [(Option<HookAnswer>, ToolStatus, &str); 4] = [
        (refuse("quiet hours"), ToolStatus::Denied, "denied: refused by the hook spy: quiet hours"),
        (change(json!({"arguments": {"text": 7}})), ToolStatus::Error, "the arguments do not fit"),
        (change(json!({"arguments": "b"})), ToolStatus::Success, "a"),
        (None, ToolStatus::Denied, "denied: refused by the hook spy: it failed, and nothing may go past it"),
    ];
    for (answer, status, text) in cases {
        let mut setup = Setup::new(ScriptedModel::new(script()));
        (setup.hooks, _) = spy(&[HookPoint::BeforeToolCall], move |_| answer.clone());
        let mut agent = setup.start().await;
        assert_eq!(agent.one.ask("alice", "go").await, "done", "the run goes on");
        let results = results(&agent, 2);
        assert_eq!(results[0].0, status, "{results:?}");
        if status != ToolStatus::Error {
            assert!(results[0].1.starts_with(text), "{results:?}");
        }
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_sensitive_argument_is_shown_to_no_hook_and_is_there_for_the_tool() {
    let tool = TestTool::named("echo").called("unlock").sensitive("text");
    let model = ScriptedModel::new([Scripted::call("unlock", json!({"text": "s3cret"})), Scripted::text("done")]);
    let mut setup = Setup::new(model).tool(tool);
    let (hooks, book) = spy(&[HookPoint::BeforeToolCall, HookPoint::AfterToolCall], |event| {
        change(json!({ "arguments": event.data["arguments"] }))
    });
    setup.hooks = hooks;
    let mut agent = setup.start().await;
    agent.one.ask("alice", "go").await;
    assert_eq!(results(&agent, 2), [(ToolStatus::Success, "s3cret".to_owned())]);
    agent.shut_down().await;
    for point in [HookPoint::BeforeToolCall, HookPoint::AfterToolCall] {
        assert_eq!(book.told(point)[0]["arguments"], json!({ "text": NOT_SHOWN }), "{point:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_result_is_all_that_the_conversation_has() {
    let mut setup = Setup::new(ScriptedModel::new([echo("key: abc"), Scripted::text("done")]));
    (setup.hooks, _) = spy(&[HookPoint::ToolResultPersist], |event| {
        let text = event.data["text"].as_str().unwrap_or_default();
        change(json!({ "text": text.replace("abc", "[redacted]") }))
    });
    let mut agent = setup.start().await;
    agent.one.ask("alice", "go").await;
    assert_eq!(results(&agent, 2), [(ToolStatus::Success, "key: [redacted]".to_owned())]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn everybody_reads_the_reply_that_hooks_agreed_to() {
    let withheld = "This answer was withheld: refused by the hook spy: it says too much";
    let cases: [(Option<HookAnswer>, &str); 3] = [
        (change(json!({"text": "hello there"})), "hello there"),
        (refuse("it says too much"), withheld),
        (Some(HookAnswer::Continue), "hello"),
    ];
    for (answer, expected) in cases {
        let mut setup = Setup::new(ScriptedModel::new([Scripted::text("hello"), Scripted::text("fine")]));
        let answered = Mutex::new(Some(answer));
        (setup.hooks, _) = spy(&[HookPoint::MessageSending], move |_| {
            let first = answered.lock().expect("no panic while it is held").take();
            first.unwrap_or(Some(HookAnswer::Continue))
        });
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "hi").await;
        assert_eq!(agent.one.next().await, expected);
        let end = end_of(accepted).await;
        assert_eq!(end.reply.as_deref(), Some(expected));
        assert_eq!(end.evidence.get("withheld_by").is_some(), expected == withheld);
        agent.one.ask("alice", "and you").await;
        assert_eq!(saw(&agent.model, 2), ["hi", expected, "and you"]);
        let history = setup.store.sessions.history(&"alice".into(), 0, 10).await.expect("readable");
        assert_eq!(history[1].text, expected);
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_stopped_run_had_said_stays_out_where_a_hook_would_have_looked_at_it() {
    let hanging = Scripted::hang().after_pieces(["Once upon ", "a time"]);
    let mut setup = Setup::new(ScriptedModel::new([hanging, Scripted::text("fine")]));
    (setup.hooks, _) = spy(&[HookPoint::MessageSending], |_| Some(HookAnswer::Continue));
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.asked(1).await;
    sleep(Duration::from_secs(1)).await;
    agent.one.command("alice", "/stop").await;
    end_of(accepted).await;
    assert_eq!(agent.one.ask("alice", "and you").await, "fine");
    assert_eq!(saw(&agent.model, 2), ["go", "and you"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_no_hook() {
    for point in [
        HookPoint::BeforeAgentStart,
        HookPoint::BeforeToolCall,
        HookPoint::ToolResultPersist,
        HookPoint::MessageSending,
    ] {
        let mut setup = Setup::new(ScriptedModel::new([echo("a"), Scripted::text("done")]));
        let (hooks, book) = spy(&[point], |_| None);
        setup.hooks = hooks;
        setup.hooks[0].timeout = Duration::from_secs(600);
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "go").await;
        while book.told(point).is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        let begun = tokio::time::Instant::now();
        agent.one.text("alice", "/stop").await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{point:?}");
        assert_eq!(agent.one.next().await, "Interrupted.", "{point:?}");
        let end = end_of(accepted).await;
        assert_eq!(end.reason, Some(StopReason::UserStop), "{point:?}");
        assert_eq!(end.reply.as_deref(), Some("Interrupted."), "{point:?}: nothing that a hook has not seen");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_that_crash_or_hang_hurt_nobody() {
    for act in [|_: &HookEvent| -> Option<HookAnswer> { panic!("this hook panics on purpose") }, |_: &HookEvent| None] {
        let tool = TestTool::named("echo");
        let calls = tool.calls.clone();
        let mut setup =
            Setup::new(ScriptedModel::new([Scripted::call("ring", json!({"text": "a"})), Scripted::text("done")]));
        setup.tools.push(Arc::new(tool.called("ring")));
        (setup.hooks, _) = spy(HookPoint::ALL, act);
        setup.hooks.iter_mut().for_each(|hook| hook.on_failure = HookFailure::Open);
        let mut agent = setup.start().await;
        assert_eq!(agent.one.ask("alice", "go").await, "done");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        agent.shut_down().await;
    }
}
