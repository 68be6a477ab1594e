//! Stops, freezes, people and tools of two nodes: an operator asks one of them, and the other one has the run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use belay_agent::Pairing;
use belay_protocol::{
    Ack, Body, ChannelPeople, ClusterStore, Control, Freeze, FreezeRequest, FreezeScope, OrderId, OrderStore,
    PairedPerson, PeopleRequest, PeopleStore, PrincipalRole, Refusal, RunStatus, StopReason, StopReport, StopTarget,
    Stranger, UnixMillis,
};
use belay_testkit::scripted_model::Scripted;
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::{Cluster, Node, accepted, command, say};
use crate::support::{PATIENCE, TestClock, TestTool};

async fn stop(at: &Node, target: StopTarget) -> StopReport {
    stop_as(at, target, None).await
}

/// `order`: the stop may be repeated.
async fn stop_as(at: &Node, target: StopTarget, order: Option<OrderId>) -> StopReport {
    let (stop, key) = (Body::Control(Control::Stop(target)), order.map(|order| order.to_string()));
    let inbound = at.agent.one.inbound("control", PrincipalRole::Operator, stop, key.as_deref());
    match at.agent.one.send(inbound).await {
        Ack::Stopped(report) => report,
        other => panic!("not a report: {other:?}"),
    }
}

async fn freeze(at: &Node, request: FreezeRequest) -> Vec<Freeze> {
    match at.agent.one.control(Control::Freeze(request)).await {
        Ack::Freezes(in_force) => in_force,
        other => panic!("not an answer about freezes: {other:?}"),
    }
}

async fn end(nodes: impl IntoIterator<Item = Node>) {
    for node in nodes {
        node.agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_at_one_node_ends_the_run_of_another_and_reports_it() {
    for by in ["run", "session", "all"] {
        let cluster = Cluster::new();
        let a = cluster.node("a", [Scripted::hang()]).await;
        let b = cluster.node("b", []).await;
        let run = accepted(&a.agent.one, "first").await.run_id;
        a.agent.asked(1).await;
        let session = cluster.run(run, RunStatus::Running).await.session;
        let report = match by {
            "run" => stop(&b, StopTarget::Run(run)).await,
            "session" => stop(&b, StopTarget::Session(session)).await,
            _ => stop(&b, StopTarget::All).await,
        };
        assert_eq!(report, StopReport { stopped: vec![run], ..StopReport::default() }, "{by}");
        assert_eq!(cluster.run(run, RunStatus::Stopped).await.reason, Some(StopReason::UserStop), "{by}");
        // It has ended, so that nobody needs to be asked.
        let newest = cluster.store.newest_order().await.expect("readable");
        assert_eq!(stop(&b, StopTarget::Run(run)).await, StopReport::default());
        assert_eq!(cluster.store.newest_order().await.expect("readable"), newest, "{by}");
        end([a, b]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_is_repeated_until_the_end_is_one_order_and_reports_the_end() {
    for by in ["run", "session", "all"] {
        let cluster = Cluster::new();
        let a = cluster.node("a", [Scripted::hang()]).await;
        let b = cluster.node("b", []).await;
        let run = accepted(&a.agent.one, "first").await.run_id;
        a.agent.asked(1).await;
        let session = cluster.run(run, RunStatus::Running).await.session;
        cluster.end_slowly(Duration::from_secs(4));
        let target = match by {
            "run" => StopTarget::Run(run),
            "session" => StopTarget::Session(session),
            _ => StopTarget::All,
        };
        let order = OrderId::new();
        let (begun, mut times) = (Instant::now(), 0);
        let report = loop {
            times += 1;
            let report = stop_as(&b, target.clone(), Some(order)).await;
            if report.still_running.is_empty() {
                break report;
            }
            assert!(begun.elapsed() < PATIENCE, "{by}: {report:?}");
        };
        assert!(begun.elapsed() >= Duration::from_secs(3) && times < 10, "{by}: {times} in {:?}", begun.elapsed());
        assert_eq!(report, StopReport { stopped: vec![run], ..StopReport::default() }, "{by}");
        let orders = cluster.store.orders_after(0, 10).await.expect("readable");
        assert_eq!(orders.iter().map(|(_, order)| order.id).collect::<Vec<_>>(), [order], "{by}");
        // A new stop is a new order, and stops what came after the first one.
        cluster.end_slowly(Duration::ZERO);
        a.agent.model.push(Scripted::hang());
        let second = accepted(&a.agent.one, "second").await.run_id;
        a.agent.asked(2).await;
        assert_eq!(stop_as(&b, StopTarget::All, Some(OrderId::new())).await.stopped, [second], "{by}");
        end([a, b]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_is_repeated_leaves_the_messages_that_came_after_it() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::hang(), Scripted::hang()]).await;
    let first = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    let session = cluster.run(first, RunStatus::Running).await.session;
    cluster.end_slowly(Duration::from_secs(4));
    let (target, order) = (StopTarget::Session(session), OrderId::new());
    let report = stop_as(&a, target.clone(), Some(order)).await;
    assert_eq!(report.still_running.len(), 1, "{report:?}");
    let second = accepted(&a.agent.one, "second").await.run_id;
    while !stop_as(&a, target.clone(), Some(order)).await.still_running.is_empty() {}
    a.agent.asked(2).await;
    assert_eq!(stop_as(&a, target.clone(), Some(order)).await.stopped, [], "the new message is not meant");
    cluster.end_slowly(Duration::ZERO);
    assert_eq!(cluster.run(second, RunStatus::Running).await.reason, None);
    assert_eq!(stop_as(&a, target, Some(OrderId::new())).await.stopped, [second], "another stop means it");
    end([a]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_command_at_one_node_ends_the_turn_and_the_queue_of_another() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::hang(), Scripted::hang()]).await;
    let b = cluster.node("b", []).await;
    let first = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    let second = accepted(&a.agent.one, "second").await.run_id;
    let third = accepted(&a.agent.one, "third").await.run_id;
    assert_eq!(command(&b.agent.one, "/interrupt", None).await, "Interrupted.");
    cluster.run(first, RunStatus::Stopped).await;
    a.agent.asked(2).await;
    assert_eq!(command(&b.agent.one, "/stop", None).await, "Interrupted; cleared 1 waiting message.");
    for run in [second, third] {
        assert_eq!(cluster.run(run, RunStatus::Stopped).await.reason, Some(StopReason::UserStop));
    }
    assert_eq!(command(&b.agent.one, "/stop", None).await, "Nothing is running.");
    end([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_a_run_of_this_node_writes_no_order() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::hang()]).await;
    let run = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    assert_eq!(command(&a.agent.one, "/stop", None).await, "Interrupted.");
    cluster.run(run, RunStatus::Stopped).await;
    assert_eq!(cluster.store.newest_order().await.expect("readable"), 0);
    end([a]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_a_dead_node_has_missed_is_named_and_ends_its_run_when_that_is_taken_over() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::hang()]).await;
    let b = cluster.node("b", [Scripted::text("later")]).await;
    let run = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    a.agent.crash().await;
    let report = stop(&b, StopTarget::Run(run)).await;
    assert_eq!(report, StopReport { pending_nodes: vec!["a".to_owned()], ..StopReport::default() });
    let said = command(&b.agent.one, "/stop", None).await;
    assert_eq!(said, "Nothing is running. No answer yet from a.");
    cluster.store.release(a.boot).await.expect("ended");
    assert_eq!(cluster.run(run, RunStatus::Stopped).await.reason, Some(StopReason::UserStop));
    assert_eq!(b.agent.model.seen().len(), 0, "it has taken no step");
    let later = accepted(&b.agent.one, "second").await.run_id;
    assert_eq!(cluster.reply(later).await, "later", "an order stops nothing that comes later");
    end([b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_at_one_node_stops_the_runs_of_another_until_the_thaw() {
    let cluster = Cluster::new();
    let a = cluster.node("a", [Scripted::hang(), Scripted::text("two")]).await;
    let b = cluster.node("b", []).await;
    let first = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    let in_force = freeze(&b, FreezeRequest::Freeze { scope: FreezeScope::All, detail: None }).await;
    let receipt = in_force[0].receipt.as_ref().expect("a receipt");
    assert_eq!((&*receipt.stopped, receipt.outside.len()), (&[first][..], 0), "{receipt:?}");
    assert!(receipt.trees_empty_ms.is_some(), "{receipt:?}");
    assert_eq!(cluster.run(first, RunStatus::Stopped).await.reason, Some(StopReason::OperatorStop));
    let second = accepted(&a.agent.one, "second").await.run_id;
    tokio::time::sleep(PATIENCE / 2).await;
    assert_eq!(a.agent.model.seen().len(), 1, "nothing begins");
    assert_eq!(freeze(&a, FreezeRequest::List).await.len(), 1);
    freeze(&b, FreezeRequest::Thaw(FreezeScope::All)).await;
    assert_eq!(cluster.reply(second).await, "two");
    assert_eq!(freeze(&a, FreezeRequest::List).await, []);
    end([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_freeze_at_one_node_ends_the_processes_of_a_run_that_waits_for_a_person_at_another() {
    let mut cluster = Cluster::new();
    cluster.tool = Some(Arc::new(TestTool::named("echo").called("ring").asking()));
    let a = cluster.node("a", [Scripted::call("ring", json!({ "text": "noon" }))]).await;
    let b = cluster.node("b", []).await;
    let run = accepted(&a.agent.one, "ring the bell").await.run_id;
    cluster.run(run, RunStatus::Paused).await;
    freeze(&b, FreezeRequest::Freeze { scope: FreezeScope::All, detail: None }).await;
    assert!(cluster.has_ended_background(run));
    cluster.run(run, RunStatus::Paused).await;
    end([a, b]).await;
}

/// The people of a channel, as a channel would check them.
#[derive(Default)]
struct People(Mutex<Vec<String>>);

impl ChannelPeople for People {
    fn replace_paired(&self, paired: &[PairedPerson]) {
        *self.0.lock().expect("a lock") = paired.iter().map(|paired| paired.person.id.clone()).collect();
    }

    fn listed(&self) -> Vec<(String, PrincipalRole)> {
        Vec::new()
    }

    fn greeting(&self) -> Option<String> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_who_is_removed_at_one_node_loses_the_run_at_another() {
    let cluster = Cluster::new();
    let people = Arc::new(People::default());
    let pairing = async |people: Arc<People>| {
        let clock = Arc::new(TestClock::new());
        let channels = vec![("one".into(), people as Arc<dyn ChannelPeople>)];
        Arc::new(Pairing::load(cluster.store.clone(), clock, channels).await.expect("readable"))
    };
    let (of_a, of_b) = (pairing(people.clone()).await, pairing(Arc::default()).await);
    let a = cluster.node_with("a", [Scripted::hang()], |parts| parts.pairing = Some(of_a)).await;
    let b = cluster.node_with("b", [], |parts| parts.pairing = Some(of_b)).await;
    // The sender of the messages of this test.
    let id = a.agent.one.inbound("alice", PrincipalRole::User, belay_protocol::Body::Text("x".into()), None);
    let id = id.principal.id.to_string();
    let person =
        Stranger { channel: "one".into(), id: id.clone(), name: "Eve".to_owned(), conversation: "eve".to_owned() };
    let (admitted_by, admitted_through, admitted_at) = ("op".to_owned(), "one".into(), UnixMillis(1));
    let paired = PairedPerson { person, admitted_by, admitted_through, admitted_at };
    cluster.store.admit_person(paired).await.expect("admitted");
    let until = async |expected: &[String]| {
        let seen = async {
            while *people.0.lock().unwrap() != *expected {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("the other node reads it");
    };
    until(std::slice::from_ref(&id)).await;
    let run = accepted(&a.agent.one, "first").await.run_id;
    a.agent.asked(1).await;
    // This node has read the admission too.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let removed = b.agent.one.control(Control::People(PeopleRequest::Remove { channel: "one".into(), id })).await;
    assert!(matches!(removed, Ack::People(_)), "{removed:?}");
    assert_eq!(cluster.run(run, RunStatus::Stopped).await.reason, Some(StopReason::OperatorStop));
    until(&[]).await;
    end([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_disabled_at_one_node_is_refused_at_another() {
    let mut cluster = Cluster::new();
    cluster.tool = Some(Arc::new(TestTool::named("echo").called("ring")));
    let a = cluster.node("a", [Scripted::call("ring", json!({ "text": "noon" })), Scripted::text("done")]).await;
    let b = cluster.node("b", []).await;
    let said = command(&b.agent.one, "/tools disable ring a test", None).await;
    assert!(said.contains("ring"), "{said}");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let shown = command(&a.agent.one, "/tools", None).await;
    assert!(shown.contains("ring") && shown.contains("disabled"), "{shown}");
    end([a, b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_of_one_node_is_decided_by_its_id_at_another() {
    let mut cluster = Cluster::new();
    cluster.tool = Some(Arc::new(TestTool::named("echo").called("ring").asking()));
    let a = cluster.node("a", [Scripted::call("ring", json!({ "text": "noon" })), Scripted::text("done")]).await;
    let b = cluster.node("b", []).await;
    let run = accepted(&a.agent.one, "ring the bell").await.run_id;
    cluster.run(run, RunStatus::Paused).await;
    let filter = belay_protocol::ApprovalFilter { waiting: true, ..Default::default() };
    let asked = belay_protocol::ApprovalStore::approvals(&*cluster.store, filter).await.expect("readable");
    let decided = Control::Decide { approval: asked[0].id, decision: belay_protocol::Decision::Approve };
    let decided = b.agent.one.control(decided).await;
    assert!(matches!(&decided, Ack::Command(said) if said.reply == "Approved."), "{decided:?}");
    assert_eq!(cluster.reply(run).await, "done");
    let late = say(&b.agent.one, &format!("/deny {}", asked[0].id), None).await;
    assert!(matches!(&late, Ack::Refused(Refusal::Decided(_))), "{late:?}");
    end([a, b]).await;
}
