//! Trouble with the store, with redeliveries, and with what an ended run leaves behind.

use std::collections::BTreeSet;
use std::time::Duration;

use belay_protocol::inbound::{HistoryLine, HistoryRole};
use belay_protocol::{
    Ack, ApprovalId, DeliverError, DispatcherStore, EventKind, EventLog, EventQuery, Refusal, RunId, RunStatus,
    StopReason,
};
use belay_store::SqlStore;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::log_lines::LogLines;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, TestTool, end_of, faulty, rest_of, saw};

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_stored_is_refused_and_the_next_one_works() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::text("hi")]));
    let mut agent = setup.start().await;
    store.plan().nth_of(StoreOp::Accept, 1, Fault::Fail);
    let Ack::Refused(refusal) = agent.one.keyed("alice", "hello", "k").await else { panic!() };
    assert!(matches!(refusal, Refusal::Store(_)), "{refusal:?}");
    let Ack::Accepted(again) = agent.one.keyed("alice", "hello", "k").await else { panic!() };
    assert!(!again.duplicate, "nothing had been accepted");
    assert_eq!(agent.one.next().await, "hi");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_cannot_be_stored_is_tried_again_before_anybody_is_told() {
    for fault in [Fault::Fail, Fault::LoseAnswer] {
        let (setup, store) = faulty(ScriptedModel::new([Scripted::text("hi")]));
        let mut agent = setup.start().await;
        store.plan().nth_of(StoreOp::FinishRuns, 1, fault);
        let record = end_of(agent.one.accepted("alice", "hello").await).await;
        assert_eq!(record.status, RunStatus::Completed);
        assert_eq!(agent.one.next().await, "hi");
        agent.shut_down().await;
        let history = setup.store.sessions.history(&"alice".into(), 0, 10).await.expect("readable");
        assert_eq!(history.len(), 2, "nothing twice: {history:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_cannot_be_opened_at_the_start_is_tried_until_it_can() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::hang()]));
    let agent = setup.start().await;
    agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    agent.crash().await;
    store.plan().nth_of(StoreOp::OpenLane, 1, Fault::Fail);
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("at last")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "at last");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_cannot_be_marked_does_not_silence_its_conversation() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::text("one"), Scripted::text("two")]));
    let mut agent = setup.start().await;
    store.plan().nth_of(StoreOp::Mark, 2, Fault::Fail); // the first is "sending", the second "sent"
    assert_eq!(agent.one.ask("alice", "1").await, "one");
    assert_eq!(agent.one.ask("alice", "2").await, "two");
    store.plan().nth_of(StoreOp::Due, 1, Fault::Fail);
    agent.model.push(Scripted::text("three"));
    assert_eq!(agent.one.ask("alice", "3").await, "three");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_is_answered_although_the_store_is_in_trouble() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::hang()]));
    let mut agent = setup.start().await;
    let run = agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    store.plan().nth_of(StoreOp::Enqueue, 1, Fault::Fail);
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    assert_eq!(end_of(run).await.status, RunStatus::Stopped);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_redelivered_command_is_acted_on_once() {
    let setup = Setup::new(ScriptedModel::new([]).then_forever(Scripted::text("ok")));
    let mut agent = setup.start().await;
    for n in 1..=3 {
        agent.one.ask("alice", &format!("question {n}")).await;
    }
    for _ in 0..5 {
        let Ack::Command(_) = agent.one.keyed("alice", "/undo", "update 7").await else { panic!() };
    }
    assert!(agent.one.next().await.contains("was undone"));
    agent.one.ask("alice", "and now").await;
    assert_eq!(saw(&agent.model, 4), ["question 1", "ok", "question 2", "ok", "and now"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn answers_to_commands_keep_the_order_of_their_conversation() {
    let setup = Setup::new(ScriptedModel::new([]));
    let mut agent = setup.start().await;
    for command in ["/ping", "/version", "/ping", "/model", "/ping"] {
        agent.one.text("alice", command).await;
    }
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(agent.one.next().await);
    }
    assert_eq!(seen[..3], ["pong", "Belay test", "pong"]);
    assert_eq!(seen[4], "pong");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_given_up_in_the_middle_of_a_tool_leaves_a_conversation_that_can_go_on() {
    let model = || ScriptedModel::new([Scripted::call("wait", json!({}))]);
    let setup = Setup::new(model()).tool(TestTool::named("wait").writing());
    let agent = setup.start().await;
    agent.one.accepted("alice", "poison").await;
    agent.asked(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.crash().await;
    for _ in 0..4 {
        let next = setup.next_boot(ScriptedModel::new([Scripted::hang()]));
        let agent = next.start().await;
        agent.asked(1).await;
        agent.crash().await;
    }
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("here we are")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, StopReason::RestartLimit.user_line());
    // The scripted model refuses a conversation with an open call.
    assert_eq!(agent.one.ask("alice", "are you there").await, "here we are");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_keeps_the_history_it_brought_over_a_restart() {
    let mut setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    setup.config.max_concurrent_turns = 1;
    let agent = setup.start().await;
    agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    let line = |role, text: &str| HistoryLine { role, text: text.into() };
    let history = vec![
        line(HistoryRole::System, "Be kind."),
        line(HistoryRole::User, "earlier"),
        line(HistoryRole::Assistant, "indeed"),
    ];
    let Ack::Accepted(_) = agent.two.with_history("bob", "and now", history).await else { panic!() };
    agent.crash().await;
    let next = setup.next_boot(ScriptedModel::new([]).then_forever(Scripted::text("ok")));
    let mut agent = next.start().await;
    agent.two.next().await;
    let asked: Vec<_> = (1..=2).map(|n| saw(&agent.model, n)).collect();
    assert!(asked.contains(&["Be kind.", "earlier", "indeed", "and now"].map(str::to_owned).to_vec()), "{asked:#?}");
    // The same instructions again are not said twice, in whatever state the conversation is.
    let again = vec![line(HistoryRole::System, "Be kind.")];
    let Ack::Accepted(_) = agent.two.with_history("bob", "more", again).await else { panic!() };
    agent.two.next().await;
    let last = agent.model.seen().len();
    let kind = saw(&agent.model, last).iter().filter(|text| *text == "Be kind.").count();
    assert_eq!(kind, 1);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_said_because_of_a_limit_is_a_failure_and_a_cut_answer_says_so() {
    let model = ScriptedModel::new([Scripted::text("").truncated(), Scripted::text("half").truncated()]);
    let setup = Setup::new(model);
    let mut agent = setup.start().await;
    let nothing = end_of(agent.one.accepted("alice", "1").await).await;
    assert_eq!((nothing.status, nothing.reason), (RunStatus::Failed, Some(StopReason::LengthLimit)));
    assert_eq!(agent.one.next().await, StopReason::LengthLimit.user_line());
    let half = end_of(agent.one.accepted("alice", "2").await).await;
    assert_eq!((half.status, half.evidence.get("cut_off")), (RunStatus::Completed, Some(&json!("length_limit"))));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_writing_tool_that_took_too_long_has_an_unknown_outcome() {
    let model = ScriptedModel::new([Scripted::call("deaf", json!({})), Scripted::text("I do not know")]);
    let setup = Setup::new(model).tool(TestTool::named("deaf").writing());
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "go").await, "I do not know");
    let seen = saw(&agent.model, 2);
    assert!(seen[2].contains("no result after 30 s") && seen[2].contains("unknown"), "{seen:#?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn while_it_drains_messages_are_refused_and_control_works() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    let mut agent = setup.start().await;
    agent.one.keep_open();
    let run = agent.one.accepted("alice", "hello").await;
    agent.asked(1).await;
    agent.stop.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let Ack::Refused(refusal) = agent.one.text("alice", "more").await else { panic!() };
    assert_eq!(refusal, Refusal::ShuttingDown);
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    assert_eq!(end_of(run).await.reason, Some(StopReason::UserStop), "stopped by hand, not by the end of the grace");
    agent.task.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_a_model_that_is_away_and_not_one_that_refuses_a_request() {
    use belay_protocol::ModelErrorKind::{BadRequest, ContextTooLong, Network};
    for (kind, shown) in [(Network, Some("network")), (ContextTooLong, None), (BadRequest, None)] {
        let setup = Setup::new(ScriptedModel::new([Scripted::error(kind), Scripted::text("back")]));
        let mut agent = setup.start().await;
        agent.one.ask("alice", "hello").await;
        let trouble = || async {
            let Ack::Status(status) = agent.two.control(belay_protocol::Control::Status).await else { panic!() };
            status.model_trouble.map(|trouble| trouble.kind)
        };
        assert_eq!(trouble().await.as_deref(), shown);
        assert_eq!(agent.one.ask("alice", "again").await, "back");
        let Ack::Status(status) = agent.two.control(belay_protocol::Control::Status).await else { panic!() };
        assert_eq!(status.model_trouble, None, "it answers again");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_acted_on_before_a_restart_is_not_acted_on_again() {
    let call = || Scripted::call("mark", json!({}));
    let tool = || TestTool::named("echo").called("mark").asking();
    let setup = Setup::new(ScriptedModel::new([Scripted::text("ok"), call(), Scripted::text("marked")])).tool(tool());
    let mut agent = setup.start().await;
    agent.one.ask("alice", "question").await;
    let mut asking = agent.one.accepted("alice", "mark it").await;
    rest_of(&mut asking).await;
    let Ack::Command(_) = agent.one.keyed("alice", "yes", "update 1").await else { panic!("an answer") };
    end_of(asking).await;
    let Ack::Command(_) = agent.one.keyed("alice", "/undo", "update 2").await else { panic!("a command") };
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([call(), Scripted::text("not marked")]));
    let agent = next.start().await;
    let mut asking = agent.one.accepted("alice", "mark it again").await;
    rest_of(&mut asking).await;
    for (text, key) in [("yes", "update 1"), ("/undo", "update 2")] {
        let Ack::Command(reply) = agent.one.keyed("alice", text, key).await else { panic!("{text}") };
        assert_eq!(reply.reply, "This was delivered before and has been carried out.", "{text}");
    }
    let Ack::Command(_) = agent.one.text("alice", "no").await else { panic!("an answer") };
    assert_eq!(end_of(asking).await.reply.as_deref(), Some("not marked"), "the late yes was for another question");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_could_not_be_stored_may_be_given_again() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::call("mark", json!({})), Scripted::text("marked")]));
    let setup = setup.tool(TestTool::named("echo").called("mark").asking());
    let agent = setup.start().await;
    let mut asking = agent.one.accepted("alice", "mark it").await;
    rest_of(&mut asking).await;
    store.plan().nth_of(StoreOp::Decide, 1, Fault::Fail);
    let Ack::Refused(refusal) = agent.one.keyed("alice", "yes", "update 1").await else { panic!("it was not stored") };
    assert!(matches!(refusal, Refusal::Store(_)), "{refusal:?}");
    let Ack::Command(reply) = agent.one.keyed("alice", "yes", "update 1").await else { panic!("an answer") };
    assert_eq!(reply.reply, "Approved.");
    assert_eq!(end_of(asking).await.reply.as_deref(), Some("marked"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_lane_did_not_open_may_be_given_again() {
    let (setup, store) = faulty(ScriptedModel::new([]));
    let agent = setup.start().await;
    store.plan().nth_of(StoreOp::OpenLane, 1, Fault::Fail);
    let Ack::Refused(refusal) = agent.one.keyed("alice", "/new", "update 1").await else { panic!("no lane") };
    assert!(matches!(refusal, Refusal::Store(_)), "{refusal:?}");
    assert_eq!(store.inner().acted_on().await.expect("read"), [], "nothing was done");
    for reply in ["Started a new conversation.", "This was delivered before and has been carried out."] {
        let Ack::Command(said) = agent.one.keyed("alice", "/new", "update 1").await else { panic!("a command") };
        assert_eq!(said.reply, reply);
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_question_that_could_not_be_looked_up_may_be_given_again() {
    let (setup, store) = faulty(ScriptedModel::new([]));
    let agent = setup.start().await;
    let text = format!("/approve {}", ApprovalId::new());
    store.plan().nth_of(StoreOp::ApprovalRequest, 1, Fault::Fail);
    for is_stored in [false, true] {
        let Ack::Refused(refusal) = agent.one.keyed("alice", &text, "update 1").await else { panic!("unknown") };
        assert_eq!(matches!(refusal, Refusal::Unknown(_)), is_stored, "{refusal:?}");
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_stopped_while_its_question_is_stored_keeps_its_facts() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::call("mark", json!({}))]));
    let agent = setup.tool(TestTool::named("echo").called("mark").asking()).start().await;
    store.plan().every(StoreOp::PauseRun, Fault::Fail);
    let asking = agent.one.accepted("alice", "mark it").await;
    let run = asking.run_id;
    tokio::time::sleep(Duration::from_secs(2)).await;
    agent.one.text("alice", "/stop").await;
    assert_eq!(end_of(asking).await.status, RunStatus::Stopped);
    assert_eq!(facts_of(&store, run).await, (true, false));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn facts_that_could_not_be_stored_go_with_the_end_and_a_call_that_did_not_begin_is_none() {
    let (setup, store) = faulty(ScriptedModel::new([Scripted::call("echo", json!({}))]));
    let agent = setup.start().await;
    store.plan().every(StoreOp::Checkpoint, Fault::Fail);
    let run = agent.one.accepted("alice", "go").await;
    let id = run.run_id;
    agent.asked(1).await;
    agent.one.text("alice", "/stop").await;
    end_of(run).await;
    assert_eq!(facts_of(&store, id).await, (true, false));
    agent.shut_down().await;
}

/// Whether the log has a model call of a run, and the beginning of a tool call.
async fn facts_of(store: &Faulty<SqlStore>, run: RunId) -> (bool, bool) {
    let query = EventQuery { run: Some(run), ..EventQuery::default() };
    let events = store.inner().read(query).await.expect("read");
    let has = |is: fn(&EventKind) -> bool| events.iter().any(|event| is(&event.kind));
    (
        has(|fact| matches!(fact, EventKind::ModelCalled { .. })),
        has(|fact| matches!(fact, EventKind::ToolStarted { .. })),
    )
}

#[tokio::test(start_paused = true)]
async fn the_platforms_words_about_a_failed_delivery_are_a_detail_that_collectors_do_not_get() {
    const WORDS: &str = "550 not accepted: my flight is at nine";
    let (lines, _guard) = LogLines::collect();
    let setup = Setup::new(ScriptedModel::new([Scripted::text("hi")]));
    let mut agent = setup.start().await;
    agent.one.probe.fail_next(vec![DeliverError::Retry { after: None, detail: WORDS.into(), pieces_sent: 0 }]);
    end_of(agent.one.accepted("alice", "hello").await).await;
    // The clock of dates does not move by itself in a test: move it past the delay.
    tokio::time::sleep(Duration::from_millis(10)).await;
    setup.clock.forward(Duration::from_secs(20));
    assert_eq!(agent.one.next().await, "hi");
    assert_eq!(lines.fields_with(WORDS), BTreeSet::from(["detail"]));
    agent.shut_down().await;
}
