//! Calls that ask a person to fill in a form of their MCP server, and wait in their place.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Ack, ApprovalState, BootId, Control, LaneClaim, RunStatus, SessionLifetime, StopTarget, UnixMillis,
};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::log_lines::LogLines;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::{Value, json};
use tracing::Level;

use crate::in_place::{pass, requests, states};
use crate::support::{Setup, TestTool, end_of, faulty, saw};

fn setup() -> Setup {
    let script = [Scripted::call("form", json!({})), Scripted::text("done")];
    Setup::new(ScriptedModel::new(script)).tool(TestTool::named("form").of_server("files"))
}

#[tokio::test(start_paused = true)]
async fn a_person_fills_in_a_form_and_the_model_reads_only_what_the_server_says() {
    for (answer, reply, state, result) in [
        ("m", "Answered. The server gets these values.", ApprovalState::Used, r#"Given({"size": String("m")})"#),
        (
            "size: Small",
            "Answered. The server gets these values.",
            ApprovalState::Used,
            r#"Given({"size": String("s")})"#,
        ),
        ("no", "Denied.", ApprovalState::Denied, "Declined"),
    ] {
        let setup = setup();
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "go").await;
        let question = agent.one.next().await;
        for part in ["The MCP server files asks:", "How big?", "**size**", "one of s", "Your next message is taken as"]
        {
            assert!(question.contains(part), "{part}: {question}");
        }
        let Ack::Refused(refused) = agent.one.text("alice", "size: xl").await else { panic!("no such size") };
        assert!(refused.to_string().contains("it must be one of s, m"), "{refused}");
        agent.one.next().await;
        let Ack::Refused(refused) = agent.one.text("alice", "/always").await else { panic!("it is not offered") };
        assert!(refused.to_string().contains("no \"always\""), "{refused}");
        agent.one.next().await;
        let run = setup.store.runs.run(accepted.run_id).await.expect("readable").expect("known");
        assert_eq!(run.status, RunStatus::Running, "it waits in its place");
        assert_eq!(agent.one.command("alice", answer).await, reply);
        assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
        assert_eq!(states(&setup).await, [state]);
        assert_eq!(saw(&agent.model, 2).pop().as_deref(), Some(result));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_fills_in_a_form_and_silence_is_told_to_the_server() {
    for silent in [false, true] {
        let setup = setup();
        let mut agent = setup.start().await;
        let accepted = agent.one.accepted("alice", "go").await;
        agent.one.next().await;
        let asked = requests(&setup).await.pop().expect("a request");
        let expected = if silent {
            pass(&setup, Duration::from_secs(1900)).await;
            "Expired"
        } else {
            let values = |size: Value| json!({ "size": size }).as_object().cloned().expect("an object");
            let fill_in = |size| Control::FillIn { approval: asked.id, values: values(size) };
            assert!(matches!(agent.one.control(fill_in(json!(7))).await, Ack::Refused(_)));
            assert!(matches!(agent.one.control(fill_in(json!("s"))).await, Ack::Command(_)));
            r#"Given({"size": String("s")})"#
        };
        assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
        assert_eq!(saw(&agent.model, 2).pop().as_deref(), Some(expected));
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_withdraws_a_form() {
    let setup = setup();
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    agent.one.control(Control::Stop(StopTarget::Run(accepted.run_id))).await;
    assert_eq!(end_of(accepted).await.status, RunStatus::Stopped);
    assert_eq!(states(&setup).await, [ApprovalState::Withdrawn]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_text_that_could_fill_in_two_forms_is_refused_and_both_are_named() {
    let two = Scripted::calls([1, 2].map(|n| ("spawn_subagent", json!({ "task": format!("part {n}") }))));
    let forms = [1, 2].map(|_| Scripted::call("form", json!({})));
    let texts = ["over", "over", "done"].map(Scripted::text);
    let model = ScriptedModel::new([two].into_iter().chain(forms).chain(texts));
    let setup = Setup::new(model).tool(TestTool::named("form").of_server("files"));
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    agent.one.next().await;
    let asked = requests(&setup).await;
    assert_eq!(asked.len(), 2);
    let Ack::Command(said) = agent.one.text("alice", "size: m").await else { panic!("no run begins") };
    assert!(said.refused && said.reply.starts_with("Several forms of MCP servers wait"), "{said:?}");
    assert_eq!(agent.one.next().await, said.reply);
    for request in &asked {
        let id = request.id;
        for how in [format!("`belay approvals approve {id} --set FIELD=VALUE`"), format!("/deny {id}")] {
            assert!(said.reply.contains(&how), "{how}: {said:?}");
        }
    }
    for request in &asked {
        assert_eq!(agent.one.command("alice", &format!("/deny {}", request.id)).await, "Denied.");
    }
    assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
    agent.shut_down().await;
}

fn two_calls() -> Setup {
    let two = Scripted::calls([1, 2].map(|n| ("form", json!({ "text": format!("part {n}") }))));
    let model = ScriptedModel::new([two, Scripted::text("done")]);
    Setup::new(model).tool(TestTool::named("form").of_server("files"))
}

#[tokio::test(start_paused = true)]
async fn forms_of_parallel_calls_are_asked_one_after_the_other_and_each_call_gets_its_answer() {
    let setup = two_calls();
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    for (n, size) in [(1, "m"), (2, "s")] {
        let question = agent.one.next().await;
        assert!(question.contains("The MCP server files asks:"), "{question}");
        let asked = requests(&setup).await;
        assert_eq!((asked.len(), asked[n - 1].state), (n, ApprovalState::Waiting));
        assert_eq!(agent.one.command("alice", size).await, "Answered. The server gets these values.");
    }
    assert_eq!(end_of(accepted).await.status, RunStatus::Completed);
    let asked = requests(&setup).await;
    assert_eq!(asked.len(), 2);
    assert_ne!(asked[0].call_id, asked[1].call_id);
    let bound = |asked: &belay_protocol::ApprovalRequest| (asked.tool.clone(), asked.bound.clone(), asked.state);
    let server = vec![("mcp server".to_owned(), "files".to_owned())];
    assert_eq!(bound(&asked[0]), ("form".to_owned(), server, ApprovalState::Used));
    assert_eq!(bound(&asked[1]), bound(&asked[0]));
    let given = |size: &str| format!(r#"Given({{"size": String("{size}")}})"#);
    let seen = saw(&agent.model, 2);
    assert_eq!(seen[seen.len() - 2..], [given("m"), given("s")]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_call_that_asks_and_the_one_that_waits_to_ask() {
    let setup = two_calls();
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.one.next().await;
    agent.one.control(Control::Stop(StopTarget::Run(accepted.run_id))).await;
    assert_eq!(end_of(accepted).await.status, RunStatus::Stopped);
    assert_eq!(states(&setup).await, [ApprovalState::Withdrawn]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_form_that_comes_after_its_lane_has_moved_is_no_error_in_the_log() {
    const LINE: &str = "a form could not be stored";
    let (lines, _guard) = LogLines::collect();
    let (mut setup, store) = faulty(ScriptedModel::new([Scripted::call("form", json!({}))]));
    setup.tools.push(Arc::new(TestTool::named("form").of_server("files")));
    store.plan().nth_of(StoreOp::AskInPlace, 1, Fault::Stall);
    let agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.asked(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // of paused time: the form is on its way to the store
    let other = LaneClaim::free(BootId::new());
    setup
        .store
        .lanes
        .open_lane(&"alice".into(), SessionLifetime::Lasting, other, UnixMillis(1))
        .await
        .expect("it opens");
    store.plan().release();
    for _ in 0..1000 {
        if lines.level_of(LINE).is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(lines.level_of(LINE), Some(Level::INFO));
    agent.shut_down().await;
    // A daemon without a cluster has no other owner of its lanes.
    let own = ["the lane belongs to another owner and is let go"];
    let trouble: Vec<_> =
        lines.at_least(Level::WARN).into_iter().filter(|line| !own.contains(&line.as_str())).collect();
    assert!(trouble.is_empty(), "{trouble:?}");
}
