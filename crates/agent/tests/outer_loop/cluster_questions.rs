//! A plain yes or no to a question of background work, at a node that did not ask it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use belay_automation::RoutinesConfig;
use belay_protocol::{
    Ack, ApprovalFilter, ApprovalRequest, ApprovalState, ApprovalStore, Body, Control, Outbound, PrincipalRole, RunId,
    RunStatus,
};
use belay_testkit::scripted_model::Scripted;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Node, accepted};
use crate::support::{PATIENCE, TestTool};

/// Twice the time after which a lane looks at its question. An expiry is later.
const TWO_LOOKS: std::time::Duration = std::time::Duration::from_secs(120);

fn ring(text: &str) -> Scripted {
    Scripted::call("ring", json!({ "text": text }))
}

fn bell() -> Arc<TestTool> {
    Arc::new(TestTool::named("echo").called("ring").asking())
}

fn cluster(bell: &Arc<TestTool>) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.tool = Some(bell.clone());
    cluster
}

/// Sends what Alice types at this node. Its answer goes to her conversation.
async fn types(at: &Node, text: &str) -> Ack {
    at.agent.one.send(at.agent.one.inbound("alice", PrincipalRole::Operator, Body::Text(text.into()), None)).await
}

/// The run of a message.
async fn asks(at: &Node, text: &str) -> RunId {
    match types(at, text).await {
        Ack::Accepted(accepted) => accepted.run_id,
        other => panic!("{text:?} was not accepted: {other:?}"),
    }
}

async fn answered(at: &Node, text: &str) -> String {
    match types(at, text).await {
        Ack::Command(reply) => reply.reply,
        other => panic!("{text:?} was not answered as a command: {other:?}"),
    }
}

/// The next message to Alice, whichever node sends it.
async fn next(a: &mut Node, b: &mut Node) -> Outbound {
    let message = async {
        tokio::select! {
            message = a.agent.one.delivered.recv() => message,
            message = b.agent.one.delivered.recv() => message,
        }
    };
    tokio::time::timeout(PATIENCE, message).await.expect("a delivery").expect("the agents deliver")
}

/// The questions that wait, once there are so many.
async fn waiting(cluster: &Cluster, count: usize) -> Vec<ApprovalRequest> {
    let until = Instant::now() + PATIENCE;
    loop {
        let filter = ApprovalFilter { waiting: true, ..ApprovalFilter::default() };
        let waiting = cluster.store.approvals(filter).await.expect("readable");
        if waiting.len() == count {
            return waiting;
        }
        assert!(Instant::now() < until, "{waiting:?}");
        sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_to_a_subagent_of_another_node_counts() {
    for (word, said, calls) in [("yes", "Approved.", 1), ("no", "Denied.", 0), ("/approve", "Approved.", 1)] {
        let bell = bell();
        let cluster = cluster(&bell);
        let spawn = Scripted::call("spawn_subagent", json!({ "task": "ring the bell" }));
        let script = [spawn, ring("noon"), Scripted::text("over"), Scripted::text("done")];
        let mut a = cluster.node("a", script).await;
        let mut b = cluster.node("b", []).await;
        let asking = asks(&a, "go").await;
        waiting(&cluster, 1).await;
        assert!(next(&mut a, &mut b).await.text.starts_with("A subagent asks:"));
        assert_eq!(answered(&b, word).await, said, "{word}");
        assert_eq!(cluster.reply(asking).await, "done", "{word}");
        assert_eq!((bell.calls.load(Ordering::SeqCst), cluster.runs().await), (calls, 1), "{word}");
        a.agent.shut_down().await;
        b.agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_form_promises_only_what_its_node_knows() {
    for (elsewhere, said) in [(true, "if its call can go on"), (false, "Answered. The server gets these values.")] {
        let cluster = cluster(&Arc::new(TestTool::named("form").of_server("files")));
        let a = cluster.node("a", [Scripted::call("form", json!({})), Scripted::text("done")]).await;
        let b = cluster.node("b", []).await;
        let asking = asks(&a, "go").await;
        let approval = waiting(&cluster, 1).await.remove(0).id;
        let values = json!({ "size": "m" }).as_object().cloned().expect("an object");
        let at = if elsewhere { &b } else { &a };
        let Ack::Command(reply) = at.agent.one.control(Control::FillIn { approval, values }).await else {
            panic!("it waits")
        };
        assert!(reply.reply.contains(said), "{reply:?}");
        assert_eq!(cluster.reply(asking).await, "done");
        a.agent.shut_down().await;
        b.agent.shut_down().await;
    }
}

/// As from a node that was stopped, woke up, and stored an answer before it noticed that its lanes have other owners.
#[tokio::test(start_paused = true)]
async fn an_answer_that_the_lane_was_not_told_of_counts_at_its_next_look() {
    for (state, calls) in [(ApprovalState::Approved, 1), (ApprovalState::Denied, 0)] {
        let bell = bell();
        let cluster = cluster(&bell);
        let a = cluster.node("a", [ring("noon"), Scripted::text("done")]).await;
        let asking = asks(&a, "go").await;
        let question = waiting(&cluster, 1).await.remove(0);
        cluster.store.decide(question.id, state, None, "tester", question.asked_at).await.expect("stored");
        let until = Instant::now() + TWO_LOOKS;
        assert_eq!(cluster.reply(asking).await, "done", "{state:?}");
        assert!(Instant::now() < until, "{state:?}: only its expiry has ended the wait");
        assert_eq!(bell.calls.load(Ordering::SeqCst), calls, "{state:?}");
        a.agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_to_a_routine_of_another_node_counts() {
    for (word, said, calls) in [("yes", "Approved.", 1), ("no", "Denied.", 0), ("/deny", "Denied.", 0)] {
        let bell = bell();
        let cluster = cluster(&bell);
        let mut a = cluster
            .node_with("a", [ring("noon"), Scripted::text("looked")], |parts| {
                parts.routines = RoutinesConfig::default();
            })
            .await;
        let mut b = cluster.node("b", []).await;
        let create = "/routine create --yes --allow \"echo: text=x\" watch @yearly | look";
        answered(&a, create).await;
        next(&mut a, &mut b).await;
        answered(&a, "/routine fire watch").await;
        next(&mut a, &mut b).await;
        waiting(&cluster, 1).await;
        assert!(next(&mut a, &mut b).await.text.starts_with("Routine “watch” asks:"));
        assert_eq!(answered(&b, word).await, said, "{word}");
        assert_eq!(next(&mut a, &mut b).await.text, said);
        assert_eq!(next(&mut a, &mut b).await.text, "Routine watch: looked", "{word}");
        assert_eq!(bell.calls.load(Ordering::SeqCst), calls, "{word}");
        a.agent.shut_down().await;
        b.agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_behind_another_message_or_to_two_questions_is_a_message() {
    let bell = bell();
    let cluster = cluster(&bell);
    let two = Scripted::calls([1, 2].map(|n| ("spawn_subagent", json!({ "task": format!("ring {n}") }))));
    let texts = ["over", "over", "done", "yes what?", "yes what?"].map(Scripted::text);
    let script = [two, ring("one"), ring("two")].into_iter().chain(texts);
    let mut a = cluster.node("a", script).await;
    let mut b = cluster.node("b", []).await;
    let asking = asks(&a, "go").await;
    let asked = waiting(&cluster, 2).await;
    for _ in 1..=2 {
        assert!(next(&mut a, &mut b).await.question.is_some());
    }
    asks(&b, "yes").await;
    assert!(next(&mut a, &mut b).await.text.starts_with("Several questions wait for an answer."));
    assert!(answered(&b, "/approve").await.starts_with("More than one question waits here"));
    next(&mut a, &mut b).await;
    assert!(waiting(&cluster, 2).await.iter().all(|asked| asked.state == ApprovalState::Waiting));
    // One is answered by its id. The other one is not the newest message any more.
    assert_eq!(answered(&b, &format!("/deny {}", asked[0].id)).await, "Denied.");
    next(&mut a, &mut b).await;
    waiting(&cluster, 1).await;
    asks(&b, "yes").await;
    let told = next(&mut a, &mut b).await.text;
    assert!(told.contains("Your message did not answer it"), "{told}");
    assert_eq!(bell.calls.load(Ordering::SeqCst), 0);
    assert_eq!(answered(&b, "/approve").await, "Approved.");
    cluster.run(asking, RunStatus::Completed).await;
    assert_eq!(bell.calls.load(Ordering::SeqCst), 1);
    a.agent.crash().await;
    b.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_yes_without_a_question_is_a_message_at_any_node() {
    let bell = bell();
    let cluster = cluster(&bell);
    let a = cluster.node("a", [Scripted::text("yes what?")]).await;
    let b = cluster.node("b", [Scripted::text("no what?")]).await;
    for (node, word, reply) in [(&a, "yes", "yes what?"), (&b, "no", "no what?")] {
        let run = accepted(&node.agent.one, word).await.run_id;
        assert_eq!(cluster.reply(run).await, reply);
    }
    a.agent.shut_down().await;
    b.agent.shut_down().await;
}
