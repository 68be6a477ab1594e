//! A store that does not answer for a while: a run waits for it, and does each thing once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::{
    Ack, Control, EventQuery, FreezeRequest, FreezeScope, Price, QueueMode, RunFilter, RunId, RunOptions, RunRecord,
    RunStatus, StopReason,
};
use belay_store::SqlStore;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::compaction::{account, long};
use crate::support::{Running, Setup, TestTool, end_of, faulty, rest_of};

/// How many requests fail in an outage of the table.
const FAILURES: u64 = 4;

/// Fails the requests of this kind from the `nth` one on, the first one in this way. An answer that is lost before others
/// fail is the worst case: the run has to find out later that the write was done.
fn outage(store: &Faulty<SqlStore>, op: StoreOp, nth: u64, first: Fault) {
    store.plan().nth_of(op, nth, first);
    (1..FAILURES).for_each(|more| store.plan().nth_of(op, nth + more, Fault::Fail));
}

/// A priced model, so that a call reserves money.
fn priced(script: impl IntoIterator<Item = Scripted>) -> ScriptedModel {
    let price = Price { input: 1_000_000, cached_input: None, output: 1_000_000 };
    ScriptedModel::new(script).with_info(|info| info.price = Some(price))
}

/// The kinds of a run's events, and the texts of its messages.
async fn story(store: &Faulty<SqlStore>, run: RunId) -> (Vec<String>, Vec<String>) {
    use belay_protocol::{EventLog, RunReader};
    let query = EventQuery { run: Some(run), ..EventQuery::default() };
    let events = store.inner().read(query).await.expect("readable");
    let kind = |kind| serde_json::to_value(kind).expect("plain data")["type"].as_str().expect("a word").to_owned();
    let messages = store.inner().run_messages(run).await.expect("readable");
    let events = events.iter().map(|event| kind(&event.kind)).collect();
    (events, messages.iter().map(|message| message.text().to_owned()).collect())
}

/// A run that reads, asks, writes and answers, with an outage. Returns its story.
async fn worked(fault: Option<(StoreOp, u64, Fault)>) -> (Vec<String>, Vec<String>) {
    let what = format!("{fault:?}");
    let script = [Scripted::call("look", json!({})), Scripted::call("mark", json!({})), Scripted::text("done")];
    let (setup, store) = faulty(priced(script));
    let (look, mark) = (TestTool::named("echo").called("look"), TestTool::named("echo").called("mark").asking());
    let calls = [look.calls.clone(), mark.calls.clone()];
    let mut agent = setup.tool(look).tool(mark).start().await;
    if let Some((op, nth, fault)) = fault {
        outage(&store, op, nth, fault);
    }
    let mut accepted = agent.one.accepted("alice", "go").await;
    let run = accepted.run_id;
    rest_of(&mut accepted).await;
    assert!(agent.one.next().await.contains("mark"), "{what}");
    assert_eq!(agent.one.command("alice", "yes").await, "Approved.", "{what}");
    let record = end_of(accepted).await;
    assert_eq!((record.status, record.reply.as_deref()), (RunStatus::Completed, Some("done")), "{what}: {record:?}");
    assert_eq!(calls.map(|calls| calls.load(Ordering::SeqCst)), [1, 1], "{what}");
    assert_eq!(agent.one.next().await, "done", "{what}");
    let (mut one, _) = agent.shut_down().await;
    assert!(one.delivered.try_recv().is_err(), "{what}");
    story(&store, run).await
}

#[tokio::test(start_paused = true)]
async fn each_write_of_a_run_is_repeated_until_the_store_has_it_and_done_once() {
    let usual = worked(None).await;
    let committed = [Fault::Fail, Fault::LoseAnswer];
    for (op, times, faults) in [
        (StoreOp::Reserve, 3, &committed[..]),
        // The intent and the result of a call that reads, then those of one that writes.
        (StoreOp::Checkpoint, 4, &committed[..]),
        (StoreOp::Granted, 1, &committed[..1]),
        (StoreOp::PauseRun, 1, &committed[..]),
        // Relaxed: if it fails, it was not done.
        (StoreOp::StartRun, 1, &committed[..1]),
        (StoreOp::FinishRuns, 1, &committed[..]),
    ] {
        for (nth, fault) in (1..=times).flat_map(|nth| faults.iter().map(move |fault| (nth, *fault))) {
            assert_eq!(worked(Some((op, nth, fault))).await, usual, "{op:?} {nth} {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_begin_a_turn_together_do_so_once() {
    let mut usual = None;
    for fault in [None, Some(Fault::Fail), Some(Fault::LoseAnswer)] {
        let busy = Scripted::text("done").after(Duration::from_secs(5));
        let (mut setup, store) = faulty(ScriptedModel::new([busy, Scripted::text("both")]));
        setup.queue.mode = Some(QueueMode::Collect);
        let mut agent = setup.start().await;
        agent.one.accepted("alice", "A").await;
        agent.asked(1).await;
        if let Some(fault) = fault {
            outage(&store, StoreOp::StartTogether, 1, fault);
        }
        let (b, c) = (agent.one.accepted("alice", "B").await, agent.one.accepted("alice", "C").await);
        let run = b.run_id;
        assert_eq!([agent.one.next().await, agent.one.next().await], ["done", "both"], "{fault:?}");
        assert_eq!(end_of(b).await.reason, Some(StopReason::FinalText), "{fault:?}");
        assert_eq!(end_of(c).await.reason, Some(StopReason::Joined), "{fault:?}");
        agent.shut_down().await;
        let story = story(&store, run).await;
        assert_eq!(story, *usual.get_or_insert_with(|| story.clone()), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_joins_a_run_during_an_outage_is_read_once() {
    for fault in [Fault::Fail, Fault::LoseAnswer] {
        let script = [Scripted::call("slow", json!({})), Scripted::text("both")];
        let (setup, store) = faulty(ScriptedModel::new(script));
        let mut agent = setup.tool(TestTool::named("slow")).start().await;
        let first = agent.one.accepted("alice", "first").await;
        agent.asked(1).await;
        sleep(Duration::from_millis(500)).await;
        let second = agent.one.accepted("alice", "second").await;
        outage(&store, StoreOp::Checkpoint, 2, fault); // the first one has the result of the tool
        let run = first.run_id;
        assert_eq!(end_of(first).await.reason, Some(StopReason::FinalText), "{fault:?}");
        assert_eq!(end_of(second).await.reason, Some(StopReason::Joined), "{fault:?}");
        assert_eq!(agent.one.next().await, "both");
        agent.shut_down().await;
        assert_eq!(story(&store, run).await.1, ["first", "", "slowly", "second", "both"], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_compaction_is_stored_once() {
    for fault in [Fault::Fail, Fault::LoseAnswer] {
        let (setup, store) = faulty(ScriptedModel::new([]).with_info(|info| info.context_tokens = 2_800));
        let mut agent = setup.start().await;
        crate::compaction::three_turns(&mut agent).await;
        outage(&store, StoreOp::Compact, 1, fault);
        agent.model.push(Scripted::text(account("four questions")));
        agent.model.push(Scripted::text("answer 4"));
        let record = end_of(agent.one.accepted("alice", &long("question 4")).await).await;
        assert_eq!((record.status, record.reply.as_deref()), (RunStatus::Completed, Some("answer 4")), "{fault:?}");
        let (kinds, _) = story(&store, record.run_id).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "compacted").count(), 1, "{fault:?}: {kinds:?}");
        agent.shut_down().await;
    }
}

/// A moment at which a run that waits since 0 s repeats its write 4.3 s later.
const LONG: Duration = Duration::from_secs(62);
/// Time in which a run has its end after the wait has ended and the store has returned. Less than those 4.3 s.
const SOON: Duration = Duration::from_secs(2);

/// A run that waits for a store that does not take the intent of its call.
async fn waiting(options: RunOptions) -> (Setup, Faulty<SqlStore>, Running, belay_protocol::Accepted) {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::call("mark", json!({}))]));
    let setup = setup.tool(TestTool::named("echo").called("mark").writing());
    let agent = setup.start().await;
    store.plan().every(StoreOp::Checkpoint, Fault::Fail);
    let Ack::Accepted(accepted) = agent.one.text_with("alice", "go", options).await else { panic!("not accepted") };
    agent.asked(1).await;
    (setup, store, agent, accepted)
}

/// Whether the log of a run has the beginning of a call.
async fn began(store: &Faulty<SqlStore>, record: &RunRecord) -> bool {
    story(store, record.run_id).await.0.contains(&"tool_started".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_wait_at_once_and_no_call_has_begun() {
    let (_setup, store, mut agent, accepted) = waiting(RunOptions::default()).await;
    sleep(LONG).await;
    let stopped = Instant::now();
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted. Still ending: recording its end.");
    store.plan().clear();
    let record = end_of(accepted).await;
    assert_eq!((record.status, record.reason), (RunStatus::Stopped, Some(StopReason::UserStop)));
    assert!(stopped.elapsed() < SOON, "{:?}", stopped.elapsed());
    assert!(!began(&store, &record).await);
    agent.shut_down().await;
}

/// The intent of the call, then its result, is committed, and the answer is lost. The run is stopped before the store
/// answers again.
#[tokio::test(start_paused = true)]
async fn what_a_lost_answer_has_stored_is_not_stored_again_by_the_end_of_a_stopped_run() {
    let mut usual = None;
    for (nth, calls) in [(1, 0), (2, 1)] {
        for fault in [Fault::Fail, Fault::LoseAnswer] {
            let (setup, store) = faulty(ScriptedModel::new([Scripted::call("mark", json!({}))]));
            let mark = TestTool::named("echo").called("mark").writing();
            let marked = mark.calls.clone();
            let mut agent = setup.tool(mark).start().await;
            store.plan().nth_of(StoreOp::Checkpoint, nth, fault);
            (1..10).for_each(|more| store.plan().nth_of(StoreOp::Checkpoint, nth + more, Fault::Fail));
            let accepted = agent.one.accepted("alice", "go").await;
            agent.asked(1).await;
            sleep(Duration::from_secs(3)).await;
            assert!(agent.one.command("alice", "/stop").await.starts_with("Interrupted."), "{nth} {fault:?}");
            let record = end_of(accepted).await;
            assert_eq!(record.status, RunStatus::Stopped, "{nth} {fault:?}");
            assert_eq!(marked.load(Ordering::SeqCst), calls, "{nth} {fault:?}");
            agent.shut_down().await;
            let (events, messages) = story(&store, record.run_id).await;
            let count = |kind: &str| events.iter().filter(|event| *event == kind).count();
            assert_eq!((count("model_called"), count("tool_finished")), (1, calls), "{nth} {fault:?}: {events:?}");
            assert!(count("tool_started") <= 1, "{nth} {fault:?}: {events:?}");
            assert_eq!(messages.len(), 3, "{nth} {fault:?}: {messages:?}");
            if nth == 2 {
                let told = (events, messages);
                assert_eq!(told, *usual.get_or_insert_with(|| told.clone()), "{fault:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_freeze_ends_the_wait_at_once() {
    let (_setup, store, agent, accepted) = waiting(RunOptions::default()).await;
    sleep(LONG).await;
    let frozen = Instant::now();
    let freeze = FreezeRequest::Freeze { scope: FreezeScope::All, detail: None };
    let Ack::Freezes(_) = agent.one.control(Control::Freeze(freeze)).await else { panic!("not frozen") };
    store.plan().clear();
    assert_eq!(end_of(accepted).await.status, RunStatus::Stopped);
    assert!(frozen.elapsed() < SOON, "{:?}", frozen.elapsed());
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_the_run_ends_the_wait() {
    let options = RunOptions { timeout_ms: Some(60_000), ..RunOptions::default() };
    let (_setup, store, agent, accepted) = waiting(options).await;
    sleep(LONG).await;
    store.plan().clear();
    let record = end_of(accepted).await;
    assert_eq!((record.status, &record.evidence["cause"]), (RunStatus::Failed, &json!("store")));
    assert!(!began(&store, &record).await);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_wait_at_once_and_the_next_start_continues_the_run() {
    let (setup, store, agent, accepted) = waiting(RunOptions::default()).await;
    sleep(Duration::from_secs(60)).await;
    let draining = Instant::now();
    let (mut one, _) = agent.shut_down().await;
    assert!(draining.elapsed() < Duration::from_secs(1), "{:?}", draining.elapsed());
    assert!(one.delivered.try_recv().is_err(), "nobody is told that it failed");
    store.plan().clear();
    let next = setup.next_boot(ScriptedModel::new([Scripted::call("mark", json!({})), Scripted::text("marked")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "marked");
    let record = setup.store.runs.run(accepted.run_id).await.expect("readable").expect("known");
    assert_eq!((record.status, record.attempt), (RunStatus::Completed, 2));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_whose_beginning_waits_is_held_by_a_freeze_and_left_by_a_shutdown() {
    let (mut setup, store) = faulty(ScriptedModel::new([Scripted::text("one").after(Duration::from_secs(5))]));
    setup.config.max_concurrent_turns = 1;
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "first").await;
    agent.asked(1).await;
    store.plan().every(StoreOp::StartRun, Fault::Fail);
    let second = agent.one.accepted("alice", "second").await.run_id;
    assert_eq!(agent.one.next().await, "one");
    sleep(Duration::from_secs(60)).await;
    let freeze = FreezeRequest::Freeze { scope: FreezeScope::All, detail: None };
    let Ack::Freezes(_) = agent.one.control(Control::Freeze(freeze)).await else { panic!("not frozen") };
    store.plan().clear();
    sleep(Duration::from_secs(60)).await;
    let open = setup.store.runs.runs(RunFilter { limit: 10, ..RunFilter::default() }).await.expect("readable");
    let status = open.iter().find(|run| run.run_id == second).map(|run| run.status);
    assert_eq!(status, Some(RunStatus::Queued), "it did not begin while it is frozen");
    let thaw = Control::Freeze(FreezeRequest::Thaw(FreezeScope::All));
    store.plan().every(StoreOp::StartRun, Fault::Fail);
    let Ack::Freezes(_) = agent.one.control(thaw).await else { panic!("not thawed") };
    sleep(Duration::from_secs(60)).await;
    let draining = Instant::now();
    agent.shut_down().await;
    assert!(draining.elapsed() < Duration::from_secs(1), "{:?}", draining.elapsed());
    store.plan().clear();
    let mut agent = setup.next_boot(ScriptedModel::new([Scripted::text("two")])).start().await;
    assert_eq!(agent.one.next().await, "two");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn work_that_runs_when_the_store_goes_away_ends_after_its_return() {
    let store = Arc::new(Faulty::new(Arc::new(SqlStore::in_memory().expect("a store in memory opens"))));
    let script = [Scripted::call("slow", json!({})), Scripted::text("done").after(Duration::from_secs(5))];
    let mut setup = Setup::new(priced(script)).tool(TestTool::named("slow").writing());
    setup.store = crate::support::ports(store.clone());
    let mut agent = setup.start().await;
    let accepted = agent.one.accepted("alice", "go").await;
    agent.asked(1).await;
    sleep(Duration::from_millis(500)).await;
    store.plan().all(Fault::Fail);
    let Ack::Refused(_) = agent.two.text("bob", "hello").await else { panic!("accepted without a store") };
    sleep(Duration::from_secs(120)).await;
    store.plan().clear();
    agent.asked(2).await;
    store.plan().all(Fault::Fail);
    sleep(Duration::from_secs(120)).await;
    store.plan().clear();
    let record = end_of(accepted).await;
    assert_eq!((record.status, record.reply.as_deref()), (RunStatus::Completed, Some("done")), "{record:?}");
    assert_eq!(agent.one.next().await, "done");
    agent.shut_down().await;
    assert_eq!(story(&store, record.run_id).await.1, ["go", "", "slowly", "done"]);
}
