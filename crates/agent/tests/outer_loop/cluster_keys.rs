//! Idempotency keys of commands over two nodes: one key has one effect, also if a node dies in between.

use std::sync::Arc;
use std::time::Duration;

use belay_agent::AgentParts;
use belay_protocol::store::{Claimed, KeyClaim};
use belay_protocol::{Ack, BootId, ClusterStore, CommandReply, DispatcherStore, IdempotencyKey, Refusal, RunStatus};
use belay_store::SqlStore;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::Scripted;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Node, accepted, command, say};
use crate::compaction::{account, long};
use crate::support::{Talker, TestTool, ports, saw};

const BEFORE: &str = "This was delivered before and has been carried out.";
const REFUSED_BEFORE: &str = "This was delivered before and was refused; send it with a new key to try again.";

async fn keyed(to: &Talker, text: &str, key: &str) -> CommandReply {
    match say(to, text, Some(key)).await {
        Ack::Command(reply) => reply,
        other => panic!("{text:?} was not answered as a command: {other:?}"),
    }
}

fn is_unknown(ack: &Ack) -> bool {
    matches!(ack, Ack::Refused(Refusal::Decided(detail)) if detail.starts_with("Outcome unknown"))
}

async fn end(nodes: impl IntoIterator<Item = Node>) {
    for node in nodes {
        node.agent.shut_down().await;
    }
}

/// A change of a node's parts, so that its dispatcher and its lanes use this store.
fn over(store: &Faulty<SqlStore>) -> impl FnOnce(&mut AgentParts) + use<> {
    let own = ports(Arc::new(store.clone()));
    move |parts| {
        parts.store.dispatcher = own.dispatcher;
        parts.store.lanes = own.lanes;
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_that_comes_again_at_another_node_is_not_carried_out_again() {
    let cluster = Cluster::new();
    let a = cluster.node("a", ["one", "two", "three"].map(Scripted::text)).await;
    let b = cluster.node("b", [Scripted::text("four")]).await;
    for text in ["first", "second", "third"] {
        let run = accepted(&a.agent.one, text).await.run_id;
        cluster.run(run, RunStatus::Completed).await;
    }
    let at_once = ["/status", "/ping", "/stop", "/freeze"];
    let in_background = ["/memory", "/tools", "/forget 7"];
    let of_the_lane = ["/undo", "/think high", "/redo"];
    let texts = at_once.into_iter().chain(in_background).chain(of_the_lane);
    for text in texts.clone() {
        let first = keyed(&a.agent.one, text, text).await;
        assert!(first.reply != BEFORE && first.reply != REFUSED_BEFORE, "{text}: {first:?}");
        let again = keyed(&b.agent.one, text, text).await;
        assert!(again.reply == BEFORE || again.reply == REFUSED_BEFORE, "{text}: {again:?}");
        command(&a.agent.one, "/thaw", None).await;
    }
    assert_eq!(keyed(&a.agent.one, "/undo", "of its own").await.reply, "The last turn was undone. /redo restores it.");
    assert_eq!(keyed(&b.agent.one, "/undo", "of its own").await.reply, BEFORE);
    // Another request under a used key has no effect at any node.
    for key in texts {
        for text in ["/version", "/new", "/jobs", "/approve", "please", "yes"] {
            let ack = say(&b.agent.one, text, Some(key)).await;
            assert!(matches!(ack, Ack::Refused(Refusal::ConflictWithCommand)), "{text} under {key}: {ack:?}");
        }
    }
    assert_eq!(cluster.runs().await, 3);
    let run = accepted(&b.agent.one, "and now").await.run_id;
    cluster.run(run, RunStatus::Completed).await;
    assert_eq!(saw(&b.agent.model, 1), ["first", "one", "second", "two", "and now"], "one turn was undone");
    // A node that starts now knows the keys too.
    let c = cluster.node("c", []).await;
    for text in ["/status", "/memory", "/undo"] {
        assert_eq!(keyed(&c.agent.one, text, text).await.reply, BEFORE, "{text}");
    }
    end([a, b, c]).await;
}

#[tokio::test(start_paused = true)]
async fn a_command_under_the_key_of_a_message_of_another_node_is_refused() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::text("one")]).await;
    let b = cluster.node("b", []).await;
    let Ack::Accepted(message) = say(&a.agent.one, "first", Some("k")).await else { panic!("a message") };
    cluster.run(message.run_id, RunStatus::Completed).await;
    for text in ["/status", "/undo", "/memory", "/stop", "/approve"] {
        match say(&b.agent.one, text, Some("k")).await {
            Ack::Refused(Refusal::Conflict { run_id }) => assert_eq!(run_id, message.run_id, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    end([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_command_is_unknown_if_its_node_died_after_the_effect() {
    let cluster = Cluster::new();
    let store = Faulty::new(cluster.store.clone());
    let a = cluster.node_with("a", ["one", "two"].map(Scripted::text), over(&store)).await;
    let b = cluster.node("b", [Scripted::text("three")]).await;
    for text in ["first", "second"] {
        let run = accepted(&a.agent.one, text).await.run_id;
        cluster.run(run, RunStatus::Completed).await;
    }
    store.plan().nth_of(StoreOp::EditThread, 1, Fault::DieAfter);
    let one = a.agent.one.writer();
    let undo = tokio::spawn(async move { say(&one, "/undo", Some("k")).await });
    tokio::time::timeout(Duration::from_secs(300), store.plan().died()).await.expect("it dies at the edit");
    undo.abort();
    a.agent.crash().await;
    // It may live still, as far as the other node knows.
    let busy = say(&b.agent.one, "/undo", Some("k")).await;
    assert!(matches!(busy, Ack::Refused(Refusal::Busy { .. })), "{busy:?}");
    cluster.store.release(a.boot).await.expect("ended");
    for _ in 1..=2 {
        let ack = say(&b.agent.one, "/undo", Some("k")).await;
        assert!(is_unknown(&ack), "{ack:?}");
    }
    let other = say(&b.agent.one, "/redo", Some("k")).await;
    assert!(matches!(other, Ack::Refused(Refusal::ConflictWithCommand)), "{other:?}");
    let run = accepted(&b.agent.one, "third").await.run_id;
    cluster.run(run, RunStatus::Completed).await;
    assert_eq!(saw(&b.agent.model, 1), ["first", "one", "third"], "one turn was undone");
    end([b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_may_be_repeated_is_carried_out_after_its_node_died() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [1, 2, 3].map(|n| Scripted::text(format!("answer {n}")))).await;
    for n in 1..=3 {
        let run = accepted(&a.agent.one, &long(&format!("question {n}"))).await.run_id;
        cluster.run(run, RunStatus::Completed).await;
    }
    a.agent.model.push(Scripted::hang());
    let one = a.agent.one.writer();
    let compact = tokio::spawn(async move { say(&one, "/compact", Some("k")).await });
    a.agent.asked(4).await;
    compact.abort();
    a.agent.crash().await;
    cluster.store.release(a.boot).await.expect("ended");
    let b = cluster.node("b", []).await;
    b.agent.model.push(Scripted::text(account("question 1 and question 2")));
    let first = keyed(&b.agent.one, "/compact", "k").await;
    assert!(!first.refused && first.reply.starts_with("Replaced"), "{first:?}");
    assert_eq!(keyed(&b.agent.one, "/compact", "k").await.reply, BEFORE);
    end([b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_was_not_carried_out_may_come_again_at_another_node() {
    let cluster = Cluster::new();
    let store = Faulty::new(cluster.store.clone());
    let a = cluster.node_with("a", [], over(&store)).await;
    let b = cluster.node("b", []).await;
    store.plan().nth_of(StoreOp::EditThread, 1, Fault::Fail);
    let first = keyed(&a.agent.one, "/new", "k").await;
    assert!(first.refused && first.reply.contains("could not be stored"), "{first:?}");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(keyed(&b.agent.one, "/new", "k").await.reply, "Started a new conversation.");
    assert_eq!(keyed(&a.agent.one, "/new", "k").await.reply, BEFORE);
    end([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_no_store_and_messages_behind_a_command_keep_their_order() {
    let cluster = Cluster::new();
    let store = Faulty::new(cluster.store.clone());
    let a = cluster.node_with("a", [Scripted::hang(), Scripted::text("two")], over(&store)).await;
    let first = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    store.plan().every(StoreOp::ClaimKey, Fault::Stall);
    let began = Instant::now();
    let (stop, second) = tokio::join!(keyed(&a.agent.one, "/stop", "k"), async {
        sleep(Duration::from_millis(1)).await;
        accepted(&a.agent.one, "second").await.run_id
    });
    assert_eq!(stop.reply, "Interrupted.", "the message behind it is not cleared");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    cluster.run(first, RunStatus::Stopped).await;
    assert_eq!(cluster.reply(second).await, "two");
    // A status waits for its claim, and a stop does not wait for the status.
    a.agent.model.push(Scripted::hang());
    let third = accepted(&a.agent.one, "third").await.run_id;
    a.agent.asked(3).await;
    let (one, other) = (a.agent.one.writer(), a.agent.one.writer());
    let status = tokio::spawn(async move { say(&one, "/status", Some("s")).await });
    sleep(Duration::from_millis(1)).await;
    let behind = tokio::spawn(async move { accepted(&other, "fourth").await.run_id });
    assert_eq!(keyed(&a.agent.one, "/stop", "l").await.reply, "Interrupted.");
    cluster.run(third, RunStatus::Stopped).await;
    sleep(Duration::from_secs(5)).await;
    assert!(!status.is_finished() && !behind.is_finished());
    store.plan().clear();
    store.plan().release();
    a.agent.model.push(Scripted::text("four"));
    assert!(matches!(status.await.expect("no panic"), Ack::Command(_)));
    assert_eq!(cluster.reply(behind.await.expect("no panic")).await, "four");
    end([a]).await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_comes_again_at_another_node_is_no_message() {
    let mut cluster = Cluster::new();
    cluster.tool = Some(Arc::new(TestTool::named("echo").called("login").secret("password").writing()));
    let a = cluster.node("a", [Scripted::call("login", serde_json::json!({})), Scripted::text("done")]).await;
    let b = cluster.node("b", []).await;
    let asked = accepted(&a.agent.one, "log in").await.run_id;
    cluster.run(asked, RunStatus::Paused).await;
    keyed(&a.agent.one, "hunter2", "k").await;
    assert_eq!(cluster.reply(asked).await, "done");
    let again = keyed(&b.agent.one, "hunter2", "k").await;
    assert_eq!((again.reply.as_str(), again.command.as_str()), (BEFORE, "/secret"));
    assert_eq!((cluster.runs().await, b.agent.model.seen().len()), (1, 0));
    end([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_command_of_a_living_node_is_awaited_and_its_answer_is_the_stored_one() {
    let cluster = Cluster::new();
    let a = BootId::new();
    cluster.store.put_node(a, "a", 60_000).await.expect("registered");
    let b = cluster.node("b", []).await;
    let key = IdempotencyKey { channel: "one".into(), account: "alice".into(), message_id: "k".into() };
    // The digest does not matter for a secret.
    let claim =
        KeyClaim { key: key.clone(), digest: None, owner: a, from: None, again_since: None, at: Default::default() };
    assert_eq!(cluster.store.claim_key(claim).await.expect("stored"), Claimed::Now);
    let one = b.agent.one.writer();
    let again = tokio::spawn(async move { say(&one, "/memory", Some("k")).await });
    sleep(Duration::from_secs(1)).await;
    assert!(!again.is_finished(), "the other node carries it out");
    let acted_on = belay_protocol::ActedOn { key, digest: None, refused: true };
    cluster.store.note_acted_on(&acted_on, Default::default()).await.expect("stored");
    match again.await.expect("no panic") {
        Ack::Command(reply) => assert_eq!((reply.reply.as_str(), reply.refused), (REFUSED_BEFORE, true)),
        other => panic!("{other:?}"),
    }
    end([b]).await;
}
