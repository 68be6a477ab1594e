//! Messages that wait as mail for the owner of their lane, while that owner does not notice them: their order, their runs,
//! and their stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::{
    Accepted, Ack, Control, EventKind, EventLog, EventQuery, Refusal, RunId, RunReader, RunRecord, RunStatus, Seq,
    StopReason, StopReport, StopTarget,
};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::Scripted;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Node, accepted, command, say, slow};
use crate::support::{PATIENCE, TestTool, saw};

/// A node that works on a message and does not notice mail, and another node.
async fn blind_owner(cluster: &Cluster, after: &[&str]) -> (Node, Node, RunId) {
    let replies = std::iter::once(slow("one")).chain(after.iter().map(|text| Scripted::text(*text)));
    let a = cluster.node("a", replies).await;
    let b = cluster.node("b", []).await;
    let first = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    a.blind.store(true, Ordering::Relaxed);
    (a, b, first)
}

async fn record(cluster: &Cluster, run: RunId) -> RunRecord {
    cluster.store.run(run).await.expect("readable").expect("a run that was promised exists")
}

async fn replies<const N: usize>(cluster: &Cluster, runs: [RunId; N]) -> Vec<String> {
    let mut replies = Vec::new();
    for run in runs {
        replies.push(cluster.reply(run).await);
    }
    replies
}

async fn kinds(cluster: &Cluster, run: RunId) -> Vec<EventKind> {
    let query = EventQuery { after: Seq(0), run: Some(run), session: None, limit: 100 };
    cluster.store.read(query).await.expect("readable").into_iter().map(|event| event.kind).collect()
}

async fn shut_down(nodes: [Node; 2]) {
    for node in nodes {
        node.agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_as_mail_is_a_queued_run_and_comes_before_a_later_direct_message() {
    let cluster = Cluster::new();
    let (a, b, first) = blind_owner(&cluster, &["two", "three"]).await;
    let Accepted { run_id: second, session, accepted_at, .. } = accepted(&b.agent.one, "second").await;
    let waiting = record(&cluster, second).await;
    let expected = (RunStatus::Queued, &session, accepted_at, None, None);
    let RunRecord { status, started_at, ended_at, .. } = waiting;
    assert_eq!((status, &waiting.session, waiting.accepted_at, started_at, ended_at), expected);
    let third = accepted(&a.agent.one, "third").await.run_id;
    assert_eq!(replies(&cluster, [first, second, third]).await, ["one", "two", "three"]);
    assert_eq!(saw(&a.agent.model, 3), ["first", "one", "second", "two", "third"]);
    assert_eq!((cluster.runs().await, cluster.open_mail(a.boot).await), (3, 0));
    shut_down([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_is_refused_while_an_earlier_one_cannot_be_accepted() {
    let cluster = Cluster::new();
    let (a, b, first) = blind_owner(&cluster, &["two", "three"]).await;
    let second = accepted(&b.agent.one, "second").await.run_id;
    // The direct message is sent behind the mail, and the acceptance of the mail fails.
    a.store.plan().nth_of(StoreOp::Accept, 2, Fault::Fail);
    let refused = say(&a.agent.one, "third", None).await;
    assert!(matches!(&refused, Ack::Refused(Refusal::Busy { what, .. }) if what.contains("earlier")), "{refused:?}");
    assert_eq!(record(&cluster, second).await.status, RunStatus::Queued);
    let third = accepted(&a.agent.one, "third").await.run_id;
    assert_eq!(replies(&cluster, [first, second, third]).await, ["one", "two", "three"]);
    assert_eq!(saw(&a.agent.model, 3), ["first", "one", "second", "two", "third"]);
    assert_eq!((cluster.runs().await, cluster.open_mail(a.boot).await), (3, 0));
    shut_down([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn mail_keeps_its_order_if_its_first_message_was_refused_by_the_store() {
    let cluster = Cluster::new();
    let (a, b, first) = blind_owner(&cluster, &["two", "three"]).await;
    let second = accepted(&b.agent.one, "second").await.run_id;
    let third = accepted(&b.agent.one, "third").await.run_id;
    a.store.plan().nth_of(StoreOp::Accept, 1, Fault::Fail);
    a.blind.store(false, Ordering::Relaxed);
    assert_eq!(replies(&cluster, [first, second, third]).await, ["one", "two", "three"]);
    assert_eq!(saw(&a.agent.model, 3), ["first", "one", "second", "two", "third"]);
    assert_eq!((cluster.runs().await, cluster.open_mail(a.boot).await), (3, 0));
    shut_down([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_is_not_refused_after_its_sender_has_acknowledged_it() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [slow("one"), Scripted::text("two")]).await;
    let b = cluster.node("b", []).await;
    let first = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    // The database goes away before the acceptance, and comes back after the sender has given up waiting for an answer.
    a.store.plan().nth_of(StoreOp::Accept, 1, Fault::Fail);
    a.late.store(true, Ordering::Relaxed);
    let second = accepted(&b.agent.one, "second").await.run_id;
    assert_eq!(replies(&cluster, [first, second]).await, ["one", "two"]);
    assert_eq!((cluster.runs().await, cluster.open_mail(a.boot).await), (2, 0));
    shut_down([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_is_not_acknowledged_while_the_store_cannot_record_it() {
    for key in [Some("k"), None] {
        let cluster = Cluster::new();
        let (a, b, first) = blind_owner(&cluster, &["two"]).await;
        b.mute.store(true, Ordering::Relaxed);
        let refused = say(&b.agent.one, "second", key).await;
        // With a key it is sent again, and without one it must not be.
        let expected = match &refused {
            Ack::Refused(Refusal::Store(what)) => key.is_some() && what.contains("same key"),
            Ack::Refused(Refusal::Decided(_)) => key.is_none(),
            _ => false,
        };
        assert!(expected, "{key:?}: {refused:?}");
        b.mute.store(false, Ordering::Relaxed);
        a.blind.store(false, Ordering::Relaxed);
        if key.is_some() {
            let Ack::Accepted(second) = say(&b.agent.one, "second", key).await else { panic!("not accepted") };
            assert_eq!(replies(&cluster, [first, second.run_id]).await, ["one", "two"]);
        }
        let until = Instant::now() + PATIENCE;
        while (cluster.runs().await, cluster.open_mail(a.boot).await) != (2, 0) {
            assert!(Instant::now() < until, "{key:?}: it is done once");
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(cluster.reply(first).await, "one");
        shut_down([a, b]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_direct_command_comes_after_a_message_that_waits_as_mail() {
    let cluster = Cluster::new();
    let (a, b, first) = blind_owner(&cluster, &["two"]).await;
    let second = accepted(&b.agent.one, "second").await.run_id;
    assert_eq!(cluster.runs().await, 1);
    let said = command(&a.agent.one, "/loops off", None).await;
    assert!(said.contains("off in this conversation"), "{said}");
    assert_eq!(cluster.runs().await, 2, "the lane has accepted the message before");
    assert_eq!(replies(&cluster, [first, second]).await, ["one", "two"]);
    shut_down([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_message_that_waits_as_mail() {
    for (by, at_owner) in [("run", false), ("session", false), ("all", false), ("run", true), ("session", true)] {
        let cluster = Cluster::new();
        let (a, b, first) = blind_owner(&cluster, &["three"]).await;
        let second = accepted(&b.agent.one, "second").await;
        let target = match by {
            "run" => StopTarget::Run(second.run_id),
            "session" => StopTarget::Session(second.session.clone()),
            _ => StopTarget::All,
        };
        let node = if at_owner { &a } else { &b };
        let Ack::Stopped(report) = node.agent.one.control(Control::Stop(target)).await else {
            panic!("{by}: not a report")
        };
        let StopReport { stopped, pending_nodes, .. } = report;
        assert!(stopped.contains(&second.run_id) && pending_nodes.is_empty(), "{by}: {stopped:?} {pending_nodes:?}");
        assert_eq!(stopped.contains(&first), by != "run", "{by}: {stopped:?}");
        let record = record(&cluster, second.run_id).await;
        assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::UserStop)), "{by}");
        assert!(record.ended_at.is_some());
        let kinds = kinds(&cluster, second.run_id).await;
        assert!(matches!(&kinds[..], [EventKind::RunAccepted, EventKind::RunEnded { .. }]), "{by}: {kinds:?}");

        a.blind.store(false, Ordering::Relaxed);
        let third = accepted(&a.agent.one, "third").await.run_id;
        cluster.run(third, RunStatus::Completed).await;
        assert!(!saw(&a.agent.model, 2).contains(&"second".to_owned()), "{by}: it was not begun");
        assert_eq!(cluster.runs().await, 2, "{by}");
        shut_down([a, b]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_meets_the_acceptance_ends_the_message() {
    let cluster = Cluster::new();
    let (a, b, first) = blind_owner(&cluster, &["three"]).await;
    let second = accepted(&b.agent.one, "second").await.run_id;
    a.store.plan().nth_of(StoreOp::Accept, 1, Fault::Stall);
    a.blind.store(false, Ordering::Relaxed);
    // Its lane has it now, and its mail is open still.
    let until = Instant::now() + PATIENCE;
    while matches!(a.agent.one.control(Control::Watch(second)).await, Ack::Watch(None)) {
        assert!(Instant::now() < until, "the owner does not notice it");
        sleep(Duration::from_millis(50)).await;
    }
    let Ack::Stopped(report) = b.agent.one.control(Control::Stop(StopTarget::Run(second))).await else {
        panic!("not a report")
    };
    assert_eq!(report.stopped, [second]);
    a.store.plan().release();
    let third = accepted(&a.agent.one, "third").await.run_id;
    assert_eq!(replies(&cluster, [first, third]).await, ["one", "three"]);
    assert_eq!(record(&cluster, second).await.status, RunStatus::Stopped);
    assert_eq!(cluster.runs().await, 2);
    shut_down([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_promised_message_that_is_not_accepted_has_an_end() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [slow("one")]).await;
    let b = cluster.node("b", []).await;
    let Ack::Accepted(first) = say(&a.agent.one, "first", Some("k")).await else { panic!("not accepted") };
    a.agent.asked(1).await;
    a.blind.store(true, Ordering::Relaxed);
    let mut promised = Vec::new();
    for text in ["first", "another text"] {
        let Ack::Accepted(accepted) = say(&b.agent.one, text, Some("k")).await else { panic!("{text}: not accepted") };
        assert_eq!(record(&cluster, accepted.run_id).await.status, RunStatus::Queued, "{text}");
        promised.push(accepted.run_id);
    }
    a.blind.store(false, Ordering::Relaxed);
    let again = cluster.run(promised[0], RunStatus::Completed).await;
    assert_eq!(again.reason, Some(StopReason::Joined));
    assert_eq!(again.evidence["run"], first.run_id.to_string());
    let conflict = cluster.run(promised[1], RunStatus::Failed).await;
    assert_eq!(conflict.reason, Some(StopReason::Internal));
    assert!(conflict.evidence["refusal"].as_str().is_some_and(|what| !what.is_empty()), "{conflict:?}");
    let kinds = kinds(&cluster, promised[1]).await;
    assert!(matches!(&kinds[..], [EventKind::RunAccepted, EventKind::RunEnded { .. }]), "{kinds:?}");
    assert_eq!(cluster.reply(first.run_id).await, "one");
    assert_eq!(cluster.runs().await, 1);
    shut_down([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_waits_as_mail_is_an_answer_once_a_later_message_comes() {
    let mut cluster = Cluster::new();
    cluster.tool = Some(Arc::new(TestTool::named("echo").called("ring").asking()));
    let ring = Scripted::call("ring", json!({ "text": "noon" }));
    let a = cluster.node("a", [ring, Scripted::text("done"), Scripted::text("hello")]).await;
    let b = cluster.node("b", []).await;
    let asked = accepted(&a.agent.one, "ring the bell").await.run_id;
    cluster.run(asked, RunStatus::Paused).await;
    a.blind.store(true, Ordering::Relaxed);
    let later = async {
        while cluster.open_mail(a.boot).await == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        accepted(&a.agent.one, "hi").await.run_id
    };
    let (yes, message) = tokio::join!(say(&b.agent.one, "yes", None), later);
    assert_eq!(replies(&cluster, [asked, message]).await, ["done", "hello"]);
    assert!(matches!(yes, Ack::Command(_)), "{yes:?}");
    assert_eq!((cluster.runs().await, cluster.open_mail(a.boot).await), (2, 0));
    shut_down([a, b]).await;
}
