//! The drain of a node of a cluster: another node continues its turns. The node that drains keeps its row among the nodes, so
//! that its lanes are free only if it has released them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::{BootId, ClusterStore, MessageBody, RunReader, RunStatus, StopReason};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::Scripted;
use serde_json::json;

use crate::cluster::{Cluster, accepted, command};
use crate::support::{TestTool, end_of, saw};

#[tokio::test(start_paused = true)]
async fn a_turn_that_outlives_the_grace_continues_at_another_node_and_is_answered_once() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::hang()]).await;
    let mut b = cluster.node("b", [Scripted::text("one"), Scripted::text("two")]).await;
    let first = a.agent.one.accepted("alice", "first").await;
    a.agent.asked(1).await;
    let second = a.agent.one.accepted("alice", "second").await;
    let model = a.agent.model.clone();
    let (one, _two) = a.agent.shut_down().await;
    assert_eq!((model.dropped_count(), b.agent.one.next().await), (1, "one".to_owned()));
    assert_eq!(b.agent.one.next().await, "two");
    assert!(one.hang_up().try_recv().is_err(), "the node that drained has said nothing");
    for (run, reply, attempt) in [(first.run_id, "one", 2), (second.run_id, "two", 1)] {
        let record = cluster.run(run, RunStatus::Completed).await;
        assert_eq!((record.reply.as_deref(), record.attempt), (Some(reply), attempt));
    }
    assert_eq!(saw(&b.agent.model, 2), ["first", "one", "second"]);
    b.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_drain_cuts_off_is_not_made_again_at_the_other_node() {
    for tool in [TestTool::named("deaf").writing(), TestTool::named("wait")] {
        let mut cluster = Cluster::new();
        let (tool, name) = (Arc::new(tool.called("work")), "work");
        cluster.tool = Some(tool.clone());
        let a = cluster.node("a", [Scripted::call(name, json!({}))]).await;
        let b = cluster.node("b", [Scripted::text("seen")]).await;
        let run = accepted(&a.agent.one, "do it").await.run_id;
        while tool.calls.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        a.agent.shut_down().await;
        assert_eq!(cluster.reply(run).await, "seen");
        assert_eq!(tool.calls.load(Ordering::SeqCst), 1);
        let seen = b.agent.model.seen();
        let results: Vec<_> =
            seen[0].messages.iter().filter(|message| matches!(message.body, MessageBody::Tool(_))).collect();
        assert_eq!(results.len(), 1, "the model reads what became of the call: {seen:?}");
        b.agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_is_answered_at_another_node_while_its_own_still_ends() {
    let mut cluster = Cluster::new();
    let tool = Arc::new(TestTool::named("echo").called("ring").asking());
    cluster.tool = Some(tool.clone());
    let a = cluster.node("a", [Scripted::call("ring", json!({ "text": "noon" }))]).await;
    let b = cluster.node("b", [Scripted::text("done")]).await;
    let run = accepted(&a.agent.one, "ring the bell").await.run_id;
    cluster.run(run, RunStatus::Paused).await;
    a.agent.shut_down().await;
    assert_eq!(command(&b.agent.one, "yes", None).await, "Approved.");
    assert_eq!((cluster.reply(run).await.as_str(), tool.calls.load(Ordering::SeqCst)), ("done", 1));
    b.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn without_another_node_the_turn_is_recorded_as_shut_down() {
    for other in ["none", "drains", "has ended"] {
        let cluster = Cluster::new();
        let a = cluster.node("a", [Scripted::hang()]).await;
        let boot = BootId::new();
        if other != "none" {
            cluster.store.put_node(boot, "b", 60_000).await.expect("registered");
        }
        match other {
            "drains" => cluster.store.begin_drain(boot).await.expect("written"),
            "has ended" => cluster.store.release(boot).await.expect("written"),
            _ => {}
        }
        let run = a.agent.one.accepted("alice", "first").await;
        a.agent.asked(1).await;
        let (mut one, _two) = a.agent.shut_down().await;
        assert_eq!(end_of(run).await.reason, Some(StopReason::Shutdown), "{other}");
        assert_eq!(one.next().await, StopReason::Shutdown.user_line(), "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_with_the_end_of_the_grace_is_the_end_of_the_run() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::text("in time").after(Duration::from_secs(9))]).await;
    let b = cluster.node("b", []).await;
    let run = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    a.agent.shut_down().await;
    let record = cluster.store.run(run).await.expect("readable").expect("known");
    assert_eq!((record.status, record.reply.as_deref()), (RunStatus::Completed, Some("in time")));
    assert_eq!(b.agent.model.seen().len(), 0);
    b.agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_last_step_cannot_be_stored_continues_from_the_step_before() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::hang()]).await;
    let b = cluster.node("b", [Scripted::text("one")]).await;
    let run = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    a.store.plan().every(StoreOp::Checkpoint, Fault::Fail);
    a.agent.shut_down().await;
    assert_eq!(cluster.reply(run).await, "one");
    b.agent.shut_down().await;
}
