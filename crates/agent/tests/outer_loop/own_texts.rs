//! Every text for people passes the hooks at `message_sending`: questions, answers to commands, Belay's own lines.

use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::{
    Ack, BoundHook, Control, DeliverError, HookAnswer, HookEvent, HookFailure, HookPoint, ModelErrorKind, RunStatus,
    StopReason, StopTarget,
};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::Instant;

use crate::hooks::{Book, change, refuse, spy};
use crate::support::{Running, Setup, TestTool, end_of, saw};

/// A hook that puts the kind of each text before it.
fn kinds() -> (Vec<BoundHook>, Book) {
    spy(&[HookPoint::MessageSending], |event| {
        let (kind, text) = (event.data["kind"].as_str()?, event.data["text"].as_str()?);
        change(json!({"text": format!("[{kind}] {text}")}))
    })
}

fn setup(script: Vec<Scripted>, hooks: Vec<BoundHook>) -> Setup {
    let bell = TestTool::named("echo").called("ring").asking();
    Setup { hooks, ..Setup::new(ScriptedModel::new(script)) }.tool(bell)
}

fn ring() -> Scripted {
    Scripted::call("ring", json!({"text": "noon"}))
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_text_passes_once_and_is_sent_as_the_hook_says() {
    let (hooks, book) = kinds();
    let script =
        vec![Scripted::text("hello"), Scripted::error(ModelErrorKind::BadRequest), ring(), Scripted::text("rung")];
    let mut agent = setup(script, hooks).start().await;
    assert_eq!(agent.one.ask("alice", "hi").await, "[reply] hello");
    let line = agent.one.ask("alice", "and now?").await;
    assert!(line.starts_with("[notice] ") && line.contains(StopReason::BadRequest.user_line()), "{line}");
    agent.one.text("alice", "/loops off").await;
    assert!(agent.one.next().await.starts_with("[command] Loop detection is off"));
    let question = agent.one.ask("alice", "ring the bell").await;
    assert!(
        question.starts_with("[question] May I do this? **ring**") && question.contains("Answer **yes**"),
        "{question}"
    );
    agent.one.accepted("alice", "and this?").await;
    assert!(agent.one.next().await.starts_with("[notice] Your message is queued"));
    agent.one.text("alice", "/stop").await;
    let told = agent.one.next().await;
    assert!(told.starts_with("[command] "), "{told}");
    let told = book.told(HookPoint::MessageSending);
    let kinds: Vec<&str> = told.iter().filter_map(|data| data["kind"].as_str()).collect();
    assert_eq!(kinds, ["reply", "notice", "command", "question", "notice", "command"], "each once");
    assert!(told.iter().all(|data| data["channel"] == "one"), "{told:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_program_reads_the_answer_to_its_command_as_the_hook_says() {
    let (hooks, book) = kinds();
    let agent = setup(Vec::new(), hooks).start().await;
    let Ack::Command(reply) = agent.one.silently("s", "/loops off").await else { panic!("a command") };
    assert!(reply.reply.starts_with("[command] Loop detection is off"), "{}", reply.reply);
    assert_eq!(book.counts()["message_sending"], 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_text_is_replaced_and_the_command_was_carried_out() {
    let (hooks, _) = spy(&[HookPoint::MessageSending], |_| refuse("it is night"));
    let mut agent = setup(Vec::new(), hooks).start().await;
    agent.one.text("alice", "/loops off").await;
    assert_eq!(agent.one.next().await, "This message was withheld: refused by the hook spy: it is night");
    let Ack::Command(reply) = agent.one.silently("s", "/loops off").await else { panic!("a command") };
    assert_eq!(reply.reply, "This message was withheld: refused by the hook spy: it is night");
    assert!(!reply.refused);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_delivery_sends_the_same_text_without_the_hook() {
    let (hooks, book) = kinds();
    let setup = setup(Vec::new(), hooks);
    let mut agent = setup.start().await;
    let retry = DeliverError::Retry { after: None, detail: "later".into(), pieces_sent: 0 };
    agent.one.probe.fail_next(vec![retry.clone(), retry]);
    agent.one.text("alice", "/loops off").await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        setup.clock.forward(Duration::from_secs(10));
    }
    assert!(agent.one.next().await.starts_with("[command] Loop"));
    assert_eq!(book.counts()["message_sending"], 1);
    agent.shut_down().await;
}

/// A question after a hook has seen it.
type Form = fn(&str) -> String;

fn forms() -> Vec<(&'static str, Form)> {
    vec![("removed", |_: &str| "Please say yes.".to_owned()), ("changed", |text: &str| text.replace("noon", "never"))]
}

#[tokio::test(start_paused = true)]
async fn a_hook_can_add_to_a_question_and_hide_nothing_of_it() {
    for (name, form) in forms() {
        let (hooks, _) = spy(&[HookPoint::MessageSending], move |event: &HookEvent| {
            let text = event.data["text"].as_str()?;
            if event.data["kind"] == "question" {
                change(json!({"text": form(text)}))
            } else {
                Some(HookAnswer::Continue)
            }
        });
        let setup = setup(vec![ring(), Scripted::text("rung")], hooks);
        let mut agent = setup.start().await;
        let question = agent.one.ask("alice", "ring the bell").await;
        assert!(question.contains("noon") && question.contains("Why I ask"), "{name}: {question}");
        agent.one.text("alice", "yes").await;
        assert_eq!(agent.one.next().await, "Approved.");
        assert_eq!(agent.one.next().await, "rung");
        agent.shut_down().await;
    }
}

/// The added texts are stored with the question.
#[tokio::test(start_paused = true)]
async fn what_a_hook_has_added_to_a_question_survives_a_restart() {
    let (hooks, _) = spy(&[HookPoint::MessageSending], |event: &HookEvent| {
        let text = event.data["text"].as_str()?;
        if event.data["kind"] == "question" {
            change(json!({"text": format!("Ask your manager.\n\n{text}\n\nRule 7.")}))
        } else {
            Some(HookAnswer::Continue)
        }
    });
    let setup = setup(vec![ring()], hooks);
    let mut agent = setup.start().await;
    let question = agent.one.ask("alice", "ring the bell").await;
    assert!(
        question.starts_with("Ask your manager.\n\nMay I do this?") && question.contains("\n\nRule 7.\n\n"),
        "{question}"
    );
    agent.crash().await;
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("rung")]));
    let mut agent = next.start().await;
    let waiting = setup.store.approvals.approvals(Default::default()).await.expect("readable");
    let added = waiting[0].added.as_deref().expect("stored");
    assert_eq!((added.before.as_str(), added.after.as_str()), ("Ask your manager.\n\n", "\n\nRule 7."));
    agent.one.text("alice", "yes").await;
    assert_eq!(agent.one.next().await, "Approved.");
    assert_eq!(agent.one.next().await, "rung");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_question_is_a_no_that_the_model_reads_at_once() {
    let (hooks, _) = spy(&[HookPoint::MessageSending], |event: &HookEvent| {
        if event.data["kind"] == "question" { refuse("not on a Sunday") } else { Some(HookAnswer::Continue) }
    });
    let bell = TestTool::named("echo").called("bell").asking();
    let rung = bell.calls.clone();
    let script = vec![Scripted::call("bell", json!({"text": "noon"})), Scripted::text("I may not")];
    let setup = setup(script, hooks).tool(bell);
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "ring the bell").await, "I may not");
    let result = saw(&agent.model, 2).pop().expect("a result");
    assert!(
        result.contains(
            "denied: bell needs a person's approval, and the question was refused by the hook spy: not on a Sunday"
        ),
        "{result}"
    );
    assert_eq!(rung.load(Ordering::SeqCst), 0);
    assert_eq!(setup.store.approvals.approvals(Default::default()).await.expect("readable"), []);
    agent.shut_down().await;
}

/// The answer to a stop waits for a silent hook for two seconds, and the stop itself for none.
#[tokio::test(start_paused = true)]
async fn the_answer_to_a_stop_does_not_wait_behind_a_silent_hook() {
    for (on_failure, expected) in [
        (HookFailure::Open, "Interrupted."),
        (HookFailure::Closed, "This message was withheld: refused by the hook spy: "),
    ] {
        let (mut hooks, _) = spy(&[HookPoint::MessageSending], |_| None);
        hooks.iter_mut().for_each(|hook| hook.on_failure = on_failure);
        let mut agent = setup(vec![Scripted::hang()], hooks).start().await;
        let accepted = agent.one.accepted("alice", "work").await;
        agent.asked(1).await;
        let begun = Instant::now();
        agent.one.text("alice", "/stop").await;
        assert_eq!(end_of(accepted).await.status, RunStatus::Stopped);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        let told = agent.one.next().await;
        assert!(told.starts_with(expected), "{told}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        agent.shut_down().await;
    }
}

/// A stop ends a run whose question a hook is still checking.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_hook_of_a_question() {
    let (hooks, book) = spy(&[HookPoint::MessageSending], |_| None);
    let agent: Running = setup(vec![ring()], hooks).start().await;
    let accepted = agent.one.unanswered("alice", "ring the bell").await;
    while book.told(HookPoint::MessageSending).is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    agent.one.control(Control::Stop(StopTarget::All)).await;
    assert_eq!(end_of(accepted).await.status, RunStatus::Stopped);
    agent.shut_down().await;
}
