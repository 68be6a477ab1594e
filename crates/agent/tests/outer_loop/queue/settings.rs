//! What a conversation asks of all its runs: by commands, at once, and kept.

use std::time::Duration;

use belay_protocol::{Ack, BootId, LaneClaim, QueueMode, Refusal, SessionLifetime, Thinking, UnixMillis};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};

use crate::support::{Setup, saw};

#[tokio::test(start_paused = true)]
async fn a_mode_that_is_chosen_holds_at_once_and_over_a_restart_until_it_is_taken_back() {
    let busy = Scripted::text("done").after(Duration::from_secs(5));
    let setup = Setup::new(ScriptedModel::new([busy]));
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "A").await;
    agent.asked(1).await;
    assert_eq!(
        agent.one.command("alice", "/queue").await,
        "Queue: steer (debounce 500 ms, cap 20, drop summarize). Nothing waits."
    );
    let chosen = "Queue: collect (debounce 2000 ms, cap 25, drop old). ";
    assert_eq!(
        agent.one.command("alice", "/queue collect debounce:2s cap:25 drop:old").await,
        format!("{chosen}Nothing waits.")
    );
    agent.one.accepted("alice", "B").await;
    assert_eq!(agent.one.command("alice", "/queue").await, format!("{chosen}1 message is queued."));
    assert!(agent.one.command("alice", "/queue loudly").await.starts_with("/queue steer|followup"));
    agent.crash().await;

    let next = setup.next_boot(ScriptedModel::new([Scripted::hang()]));
    let mut agent = next.start().await;
    assert_eq!(agent.one.command("alice", "/queue").await, format!("{chosen}1 message is queued."));
    assert_eq!(
        agent.one.command("alice", "/queue default").await,
        "Reset. Queue: steer (debounce 500 ms, cap 20, drop summarize). 1 message is queued."
    );
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn thinking_and_the_like_are_shown_set_and_asked_of_the_model() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("hello")]));
    let mut agent = setup.start().await;
    for (command, answer) in [
        ("/think", "Thinking: default."),
        ("/think high", "Thinking: high."),
        ("/verbose on", "Verbose: on."),
        ("/verbose default", "Reset. Verbose: default."),
        ("/reasoning stream", "Reasoning: stream."),
        ("/model", "Model: scripted by scripted."),
        ("/model scripted", "Model: scripted by scripted."),
    ] {
        assert_eq!(agent.one.command("alice", command).await, answer, "{command}");
    }
    for (command, refused) in
        [("/model larger", true), ("/think hard", true), ("/nosuch", true), ("/think low", false), ("/ping", false)]
    {
        let was_refused = match agent.one.text("alice", command).await {
            Ack::Command(reply) => reply.refused,
            Ack::Refused(Refusal::Invalid(_)) => true,
            other => panic!("{command}: {other:?}"),
        };
        assert_eq!(was_refused, refused, "{command}");
        agent.one.next().await;
    }
    assert_eq!(agent.one.command("alice", "/think high").await, "Thinking: high.");
    agent.one.ask("alice", "hi").await;
    assert_eq!(agent.model.seen()[0].model.as_deref(), Some("scripted"));
    let session = "alice".into();
    let opened =
        setup.store.lanes.open_lane(&session, SessionLifetime::Lasting, LaneClaim::free(BootId::new()), UnixMillis(1));
    assert_eq!(opened.await.expect("open").opened().expect("free").options.thinking, Some(Thinking::High));
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_has_its_mode_and_the_message_the_last_word() {
    let busy = || Scripted::text("done").after(Duration::from_secs(5));
    let mut setup = Setup::new(ScriptedModel::new([busy(), Scripted::text("both"), Scripted::text("alone")]));
    setup.queue.by_channel.insert("one".into(), QueueMode::Collect);
    let mut agent = setup.start().await;
    agent.one.accepted("alice", "A").await;
    agent.asked(1).await;
    agent.one.accepted("alice", "B").await;
    agent.one.accepted("alice", "C").await;
    agent.one.in_mode("alice", QueueMode::Followup, "D").await;
    for answer in ["done", "both", "alone"] {
        assert_eq!(agent.one.next().await, answer);
    }
    assert!(saw(&agent.model, 2)[2].ends_with("1. B\n2. C"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn commands_about_a_conversation_wait_for_nothing() {
    let setup = Setup::new(ScriptedModel::new([Scripted::hang()]));
    let agent = setup.start().await;
    agent.one.accepted("alice", "A").await;
    agent.asked(1).await;
    let Ack::Command(reply) = agent.one.text("alice", "/think low").await else { panic!("a command") };
    assert_eq!(reply.reply, "Thinking: low.");
    agent.crash().await;
}
