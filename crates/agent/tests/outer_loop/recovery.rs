//! What a crash leaves, and what the next boot makes of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::{DeliverError, Freeze, FreezeId, FreezeScope, RunStatus, StopReason, UnixMillis};
use belay_run::AgentConfig;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, TestTool, end_of, saw};

#[tokio::test(start_paused = true)]
async fn a_crash_during_a_model_call_is_answered_once_by_the_next_boot_in_the_same_conversation() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("hi"), Scripted::hang()]));
    let mut agent = setup.start().await;
    agent.one.ask("alice", "hello").await;
    let run = agent.one.accepted("alice", "how are you").await.run_id;
    agent.one.accepted("alice", "and you").await;
    agent.asked(2).await;
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("fine"), Scripted::text("me too")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "fine");
    assert_eq!(agent.one.next().await, "me too");
    assert_eq!(saw(&agent.model, 1), ["hello", "hi", "how are you"]);
    let record = setup.store.runs.run(run).await.expect("readable").expect("known");
    assert_eq!((record.status, record.attempt, record.reply.as_deref()), (RunStatus::Completed, 2, Some("fine")));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_a_freeze_was_to_stop_before_a_crash_ends_at_the_next_boot_and_messages_wait_for_the_thaw() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "hello").await.run_id;
    let waiting = agent.one.accepted("alice", "and you").await.run_id;
    agent.asked(1).await;
    agent.crash().await;
    let freeze = Freeze {
        id: FreezeId::new(),
        scope: FreezeScope::All,
        detail: None,
        actor: "op".to_owned(),
        source: "http".into(),
        at: UnixMillis(1),
        receipt: None,
        thawed_at: None,
    };
    setup.store.freezes.put_freeze(freeze.clone()).await.expect("stored");

    let mut agent = setup.next_boot(ScriptedModel::new([])).start().await;
    assert_eq!(agent.one.next().await, "Stopped by the operator.");
    let record = setup.store.runs.run(run).await.expect("readable").expect("known");
    assert_eq!(record.reason, Some(StopReason::OperatorStop));
    assert_eq!(record.evidence.get("freeze"), Some(&json!(freeze.id.to_string())));
    let record = setup.store.runs.run(waiting).await.expect("readable").expect("known");
    assert!(!record.status.is_end() && record.status != RunStatus::Running, "{record:?}");
    agent.shut_down().await;
}

/// More than a start resumes at the same time.
const INTERRUPTED: usize = 150;

#[tokio::test(start_paused = true)]
async fn a_start_does_not_wait_for_interrupted_runs_and_resumes_all_of_them() {
    let hanging = || ScriptedModel::new((0..INTERRUPTED).map(|_| Scripted::hang()).collect::<Vec<_>>());
    let setup = Setup::new(hanging());
    let setup = Setup { config: AgentConfig { max_concurrent_turns: 1000, ..setup.config.clone() }, ..setup };
    let agent = setup.start().await;
    let mut runs = Vec::new();
    for person in 0..INTERRUPTED {
        runs.push(agent.one.unanswered(&format!("person-{person}"), "hello").await.run_id);
    }
    agent.asked(INTERRUPTED).await;
    agent.crash().await;

    let next = setup.next_boot(hanging());
    let mut agent = next.start().await;
    assert_eq!(agent.model.seen().len(), 0, "the start does not wait for them");
    // The last conversation is not resumed yet: its run can be stopped all the same.
    let last = format!("person-{}", INTERRUPTED - 1);
    let stopped = agent.one.command(&last, "/stop").await;
    assert_eq!(stopped, "Cleared 1 waiting message.");
    agent.asked(INTERRUPTED - 1).await;
    for (person, run) in runs.into_iter().enumerate() {
        let record = setup.store.runs.run(run).await.expect("readable").expect("known");
        let expected = if person == INTERRUPTED - 1 { RunStatus::Stopped } else { RunStatus::Running };
        assert_eq!(record.status, expected, "{person}");
    }
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_conversation_that_is_not_resumed_yet_follows_its_interrupted_run() {
    let hanging = (0..INTERRUPTED).map(|_| Scripted::hang()).collect::<Vec<_>>();
    let setup = Setup::new(ScriptedModel::new(hanging));
    let setup = Setup { config: AgentConfig { max_concurrent_turns: 1000, ..setup.config.clone() }, ..setup };
    let agent = setup.start().await;
    for person in 0..INTERRUPTED {
        agent.one.unanswered(&format!("person-{person}"), "hello").await;
    }
    agent.asked(INTERRUPTED).await;
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new((0..=INTERRUPTED).map(|_| Scripted::text("hi")).collect::<Vec<_>>()));
    let agent = next.start().await;
    let last = format!("person-{}", INTERRUPTED - 1);
    let record = end_of(agent.one.accepted(&last, "and you?").await).await;
    assert_eq!(record.status, RunStatus::Completed);
    let history = setup.store.sessions.history(&last.as_str().into(), 0, 10).await.expect("readable");
    let said: Vec<_> = history.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(said, ["hello", "hi", "and you?", "hi"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn finished_steps_are_kept_over_a_crash_and_their_tools_not_run_again() {
    let tool = TestTool::named("wait").writing();
    let calls = tool.calls.clone();
    let model =
        ScriptedModel::new([Scripted::call("echo", json!({"text": "kept"})), Scripted::call("wait", json!({}))]);
    let setup = Setup::new(model).tool(tool);
    let agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.asked(2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("I do not know whether it happened")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "I do not know whether it happened");
    let seen = saw(&agent.model, 1);
    assert_eq!(seen[2], "kept");
    assert!(seen[4].starts_with("outcome unknown"), "{seen:#?}");
    assert_eq!(calls.load(Ordering::SeqCst), 1, "what may have had its effect is not done twice");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_reading_tool_that_a_crash_interrupted_is_simply_run_again() {
    let tool = TestTool::named("wait");
    let calls = tool.calls.clone();
    let setup = Setup::new(ScriptedModel::new([Scripted::call("wait", json!({}))])).tool(tool);
    let agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.asked(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::text("waited twice")]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "waited twice");
    assert_eq!((saw(&agent.model, 1)[2].as_str(), calls.load(Ordering::SeqCst)), ("waited", 2));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn counters_go_on_after_a_crash_and_a_run_that_crashes_the_daemon_is_given_up() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    let agent = setup.start().await;
    let run = agent.one.accepted("alice", "poison").await.run_id;
    agent.asked(1).await;
    agent.crash().await;
    for _ in 0..4 {
        let next = setup.next_boot(ScriptedModel::new([Scripted::hang()]));
        let agent = next.start().await;
        agent.asked(1).await;
        agent.crash().await;
    }
    let next = setup.next_boot(ScriptedModel::new([]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, StopReason::RestartLimit.user_line());
    let record = setup.store.runs.run(run).await.expect("readable").expect("known");
    assert_eq!((record.status, record.attempt), (RunStatus::Failed, 5));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_tried_again_by_the_platforms_rules_and_keeps_its_place() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("first"), Scripted::text("second")]));
    let mut agent = setup.start().await;
    let retry = |after| DeliverError::Retry { after, detail: "429".into(), pieces_sent: 0 };
    agent.one.probe.fail_next(vec![retry(Some(Duration::from_secs(7))), retry(None)]);
    end_of(agent.one.accepted("alice", "1").await).await;
    end_of(agent.one.accepted("alice", "2").await).await;
    // The clock of dates does not move by itself in a test: move it past both delays.
    for seconds in [8, 20] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        setup.clock.set(1_795_000_000_000 + seconds * 1000);
        tokio::time::sleep(Duration::from_secs(120)).await;
    }
    assert_eq!(agent.one.next().await, "first");
    assert_eq!(agent.one.next().await, "second");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_committed_before_a_crash_is_delivered_by_the_next_boot() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("committed")]));
    let agent = setup.start().await;
    let endless = (0..100).map(|_| DeliverError::Retry { after: None, detail: "down".into(), pieces_sent: 0 });
    agent.one.probe.fail_next(endless.collect());
    end_of(agent.one.accepted("alice", "hello").await).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    agent.crash().await;
    setup.clock.set(1_795_000_000_000 + 3_600_000);
    let next = setup.next_boot(ScriptedModel::new([]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "committed");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_boot_on_the_store_takes_the_lane_and_the_first_lets_go() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    let first = setup.start().await;
    let run = first.one.accepted("alice", "hello").await.run_id;
    first.asked(1).await;
    let next = setup.next_boot(ScriptedModel::new([Scripted::text("from the second")]));
    let second = next.start().await;
    // Both deliver from one outbox, so the reply itself may come out on either side: the record says who answered.
    loop {
        let record = setup.store.runs.run(run).await.expect("readable").expect("known");
        if record.status == RunStatus::Completed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The first one's run ends without writing anything over it.
    let _ = first.one.text("alice", "/stop").await;
    let history = setup.store.sessions.history(&"alice".into(), 0, 10).await.expect("readable");
    let texts: Vec<_> = history.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["hello", "from the second"]);
    second.shut_down().await;
    first.crash().await;
}
