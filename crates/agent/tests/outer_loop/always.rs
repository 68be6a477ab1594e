//! What an "always" covers, and what a question shows of a call.

use std::sync::atomic::Ordering;

use belay_protocol::{Ack, Body, Inbound, Principal, PrincipalRole, ToolStatus};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Running, Setup, TestTool};

fn ring(text: &str) -> Scripted {
    Scripted::call("ring", json!({ "text": text }))
}

fn ringing() -> TestTool {
    TestTool::named("echo").called("ring").asking()
}

fn principal(id: &str, role: PrincipalRole) -> Principal {
    Principal { id: id.into(), role }
}

/// Sends a text of this principal into the conversation, and returns what is delivered there next.
async fn said(agent: &mut Running, who: &Principal, text: &str) -> String {
    agent.one.said_by(who.clone(), "group", Body::Text(text.into())).await;
    agent.one.next().await
}

/// All of them write into the same conversation.
#[tokio::test(start_paused = true)]
async fn an_always_serves_those_who_could_have_answered_the_question_and_nobody_else() {
    let user = |id: &str| principal(id, PrincipalRole::User);
    let (ann, bob, signer) = (user("ann"), user("bob"), user("webhook"));
    let (client, root) = (principal("script", PrincipalRole::Client), Principal::operator("root"));
    let mut scripts = vec![ring("first"), Scripted::text("rung")];
    scripts.extend((0..2).flat_map(|_| [ring("again"), Scripted::text("not rung")]));
    scripts.extend((0..3).flat_map(|_| [ring("again"), Scripted::text("rung")]));
    scripts.push(ring("relayed"));
    scripts.push(Scripted::text("not rung"));
    let bell = ringing();
    let rung = bell.calls.clone();
    let mut agent = Setup::new(ScriptedModel::new(scripts)).tool(bell).start().await;

    assert!(said(&mut agent, &ann, "ring").await.contains("**always** for all of ring"));
    assert!(said(&mut agent, &ann, "always").await.starts_with("Approved from now on"));
    assert_eq!(agent.one.next().await, "rung");
    for other in [&bob, &signer] {
        let question = said(&mut agent, other, "ring").await;
        assert!(question.contains("May I do this?"), "{other:?}: {question}");
        assert_eq!(said(&mut agent, other, "no").await, "Denied.");
        assert_eq!(agent.one.next().await, "not rung");
    }
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    for served in [&ann, &client, &root] {
        assert_eq!(said(&mut agent, served, "ring").await, "rung", "{served:?}");
    }
    assert_eq!(rung.load(Ordering::SeqCst), 4);

    // The author of a relayed message is unknown.
    let relayed = agent.one.inbound("group", PrincipalRole::User, Body::Text("ring".into()), None);
    let Ack::Accepted(_) = agent.one.send(Inbound { principal: ann.clone(), relayed: true, ..relayed }).await else {
        panic!("accepted")
    };
    assert_eq!(agent.one.next().await, "not rung");
    assert_eq!(rung.load(Ordering::SeqCst), 4);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_always_to_the_question_of_an_operator_does_not_serve_the_conversation() {
    let scripts = [ring("first"), Scripted::text("rung"), ring("again"), ring("again")];
    let mut agent = Setup::new(ScriptedModel::new(scripts)).tool(ringing()).start().await;
    let root = Principal::operator("root");
    said(&mut agent, &root, "ring").await;
    said(&mut agent, &root, "always").await;
    assert_eq!(agent.one.next().await, "rung");
    let client = principal("script", PrincipalRole::Client);
    assert!(said(&mut agent, &client, "ring").await.contains("May I do this?"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_shows_hidden_characters_as_escapes_and_is_not_asked_if_they_make_it_too_long() {
    let bell = ringing();
    let rung = bell.calls.clone();
    let tags = "\u{e0041}".repeat(60_000);
    let scripts = [
        ring("ok\u{202e}\u{200b}\u{e0041}"),
        Scripted::text("as you like"),
        ring(&format!("ok{tags}")),
        Scripted::text("too long"),
    ];
    let mut agent = Setup::new(ScriptedModel::new(scripts)).tool(bell).start().await;
    let question = agent.one.ask("alice", "ring").await;
    assert!(question.contains(r#"ring {"text":"ok\u{202e}\u{200b}\u{e0041}"}"#), "{question}");
    assert_eq!(agent.one.command("alice", "no").await, "Denied.");
    assert_eq!(agent.one.next().await, "as you like");
    assert_eq!(agent.one.ask("alice", "ring").await, "too long", "nobody is asked");
    let seen = agent.model.seen();
    let messages = &seen[seen.len() - 1].messages;
    let result = messages.iter().rev().find_map(|message| match &message.body {
        belay_protocol::MessageBody::Tool(result) => Some(result.clone()),
        _ => None,
    });
    let result = result.expect("a result");
    assert_eq!(result.status, ToolStatus::Denied);
    assert!(result.text.contains("too long to be shown in full"), "{}", result.text);
    assert_eq!(rung.load(Ordering::SeqCst), 0);
    agent.shut_down().await;
}
