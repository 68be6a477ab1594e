//! Calls that a client carries out, with trouble in the store.

use std::sync::Arc;

use belay_protocol::{
    Ack, ApprovalKind, CallChoice, ClientAnswer, ClientNote, ClientResult, ClientTool, ClientTools, Control, HookPoint,
    RunOptions, RunStatus,
};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::hooks::{change, refuse, spy};
use crate::support::{Setup, end_of, faulty, rest_of, saw};

fn weather() -> Arc<ClientTools> {
    let parameters = json!({"type": "object"}).into();
    let tool = ClientTool { name: "weather".into(), description: String::new(), parameters, strict: false };
    Arc::new(ClientTools { tools: vec![tool], choice: CallChoice::Auto, one_at_a_time: false })
}

#[tokio::test(start_paused = true)]
async fn results_whose_commit_has_lost_its_answer_resume_the_run() {
    for unread in [false, true] {
        let script = [Scripted::call("weather", json!({})), Scripted::text("done")];
        let (setup, store) = faulty(ScriptedModel::new(script));
        let agent = setup.start().await;
        let tools = weather();
        let options = RunOptions { client_tools: Some(tools.clone()), ..RunOptions::default() };
        let mut accepted = agent.one.asking("alice", "hi", options).await;
        let waits = rest_of(&mut accepted).await.waiting_for.clone().expect("waits");
        let ApprovalKind::ClientCalls { calls, .. } = &waits.kind else { panic!("{waits:?}") };
        let result = ClientResult::of(calls[0].id.clone(), "rain");
        store.plan().nth_of(StoreOp::AnswerClientCalls, 1, Fault::LoseAnswer);
        if unread {
            (1..5).for_each(|nth| store.plan().nth_of(StoreOp::ApprovalRequest, nth, Fault::Fail));
        }
        let answer = Box::new(ClientAnswer { results: vec![result], tools: Some(tools), note: None });
        let ack = agent.one.control(Control::ClientResults { request: waits.approval, answer }).await;
        assert_eq!(matches!(ack, Ack::Refused(_)), unread, "{ack:?}");
        setup.clock.set(waits.expires_at.0);
        let end = end_of(accepted).await;
        assert_eq!((end.status, end.reply.as_deref()), (RunStatus::Completed, Some("done")), "{unread}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_for_incoming_messages_see_what_the_user_writes_behind_results() {
    for (said, expected) in [
        ("in Oslo", Some("in Oslo, please")),
        ("my card is 4111", None), // refused
    ] {
        let (hooks, book) = spy(&[HookPoint::MessageReceived], |event| match event.data["text"].as_str()? {
            "hi" => change(json!({"text": "hi"})),
            text if text.contains("card") => refuse("no cards"),
            text => change(json!({"text": format!("{text}, please")})),
        });
        let script = [Scripted::call("weather", json!({})), Scripted::text("done")];
        let setup = Setup { hooks, ..Setup::new(ScriptedModel::new(script)) };
        let agent = setup.start().await;
        let options = RunOptions { client_tools: Some(weather()), ..RunOptions::default() };
        let mut accepted = agent.one.asking("alice", "hi", options).await;
        let waits = rest_of(&mut accepted).await.waiting_for.clone().expect("waits");
        let ApprovalKind::ClientCalls { calls, .. } = &waits.kind else { panic!("{waits:?}") };
        let result = ClientResult { said: said.into(), ..ClientResult::of(calls[0].id.clone(), "rain") };
        let note = json!({"metadata": {"part": "2"}}).as_object().cloned();
        let answer = Box::new(ClientAnswer { results: vec![result], tools: Some(weather()), note: note.clone() });
        agent.one.control(Control::ClientResults { request: waits.approval, answer }).await;
        let end = end_of(accepted).await;
        assert_eq!((end.status, end.reply.as_deref()), (RunStatus::Completed, Some("done")));
        let expected_notes = [ClientNote { after: Some(waits.approval), fields: note.expect("an object") }];
        assert_eq!(setup.store.runs.client_notes(end.run_id).await.expect("readable"), expected_notes);
        let told = book.told(HookPoint::MessageReceived);
        assert_eq!((told.len(), &told[1]["text"], &told[1]["channel"]), (2, &json!(said), &json!("one")), "{told:?}");
        let seen = saw(&agent.model, 2);
        match expected {
            Some(text) => assert_eq!(seen.last().map(String::as_str), Some(text)),
            None => {
                let last = seen.last().expect("a message");
                assert!(last.contains("was not delivered: refused by the hook spy: no cards"), "{last}");
                assert!(!seen.iter().any(|text| text.contains("4111")), "{seen:?}");
            }
        }
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_note_that_a_client_repeats_with_each_round_of_results_is_kept_once() {
    let call = || Scripted::call("weather", json!({}));
    let setup = Setup::new(ScriptedModel::new([call(), call(), call(), Scripted::text("done")]));
    let agent = setup.start().await;
    let note = |part: &str| json!({"metadata": {"part": part}}).as_object().cloned().expect("an object");
    let notes = vec![ClientNote { after: None, fields: note("1") }];
    let options = RunOptions { client_tools: Some(weather()), notes: notes.clone(), ..RunOptions::default() };
    let mut accepted = agent.one.asking("alice", "hi", options).await;
    let mut expected = notes;
    for (fields, is_new) in [(note("1"), false), (note("2"), true), (note("2"), false)] {
        let waits = rest_of(&mut accepted).await.waiting_for.clone().expect("waits");
        let ApprovalKind::ClientCalls { calls, .. } = &waits.kind else { panic!("{waits:?}") };
        let result = ClientResult::of(calls[0].id.clone(), "rain");
        if is_new {
            expected.push(ClientNote { after: Some(waits.approval), fields: fields.clone() });
        }
        let answer = Box::new(ClientAnswer { results: vec![result], tools: Some(weather()), note: Some(fields) });
        agent.one.control(Control::ClientResults { request: waits.approval, answer }).await;
    }
    let end = end_of(accepted).await;
    assert_eq!(setup.store.runs.client_notes(end.run_id).await.expect("readable"), expected);
    agent.shut_down().await;
}
