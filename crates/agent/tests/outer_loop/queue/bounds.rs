//! How much may wait: for each sender and overall, counted until it has ended, also after a restart.

use std::time::Duration;

use belay_protocol::{Ack, DeclaredOutput, Refusal, RunOptions};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, TestTool, end_of, rest_of};

/// What became of a message, in a word.
fn word(ack: &Ack) -> &'static str {
    match ack {
        Ack::Accepted(accepted) if accepted.duplicate => "again",
        Ack::Accepted(_) => "accepted",
        Ack::Refused(Refusal::Busy { retry_after, .. }) if *retry_after > Duration::ZERO => "busy",
        Ack::Refused(Refusal::Overloaded { retry_after, .. }) if *retry_after > Duration::ZERO => "overloaded",
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_sender_has_so_many_messages_open_in_all_sessions_together_and_others_have_their_own() {
    let mut setup = Setup::new(ScriptedModel::new([Scripted::hang(), Scripted::hang(), Scripted::hang()]));
    setup.queue.max_messages_per_sender = 2;
    let mut agent = setup.start().await;
    for (session, key, expected) in [
        ("s1", "k1", "accepted"),
        ("s2", "k2", "accepted"),
        ("s3", "k3", "busy"),
        ("s2", "k4", "busy"),
        ("s1", "k1", "again"), // a duplicate is never told that there is no room
        ("s3", "k3", "busy"),
    ] {
        assert_eq!(word(&agent.one.keyed(session, "hello", key).await), expected, "{session} {key}");
    }
    assert_eq!(word(&agent.one.text_of("bob", "s4", "hello").await), "accepted", "another has room of their own");
    assert!(agent.one.delivered.is_empty(), "the channel offers it again; the person is not told");
    // Commands always work, and what has ended makes room.
    assert_eq!(agent.one.command("s1", "/ping").await, "pong");
    assert_eq!(agent.one.command("s1", "/stop").await, "Interrupted.");
    agent.model.push(Scripted::text("there is room"));
    assert_eq!(word(&agent.one.keyed("s3", "hello", "k3").await), "accepted");
    assert_eq!(agent.one.next().await, "there is room");
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn bytes_are_bounded_for_each_sender_and_for_all_together() {
    let mut setup = Setup::new(ScriptedModel::new((0..4).map(|_| Scripted::hang())));
    (setup.queue.max_bytes_per_sender, setup.queue.max_bytes) = (Some(1_000), 1_500);
    let agent = setup.start().await;
    let text = "x".repeat(600);
    for (who, expected) in
        [("ann", "accepted"), ("ann", "busy"), ("bob", "accepted"), ("eve", "overloaded"), ("bob", "busy")]
    {
        assert_eq!(word(&agent.one.text_of(who, &format!("of {who}"), &text).await), expected, "{who}");
    }
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_counts_what_the_store_has() {
    let bounded = |mut setup: Setup| {
        (setup.queue.max_messages_per_sender, setup.config.max_concurrent_turns) = (3, 1);
        setup
    };
    let setup = bounded(Setup::new(ScriptedModel::new([Scripted::hang()])));
    let agent = setup.start().await;
    for session in ["s1", "s2", "s3"] {
        assert_eq!(word(&agent.one.text(session, "hello").await), "accepted");
    }
    assert_eq!(word(&agent.one.text("s4", "hello").await), "busy");
    agent.crash().await;

    let answers = (0..4).map(|_| Scripted::text("hi").after(Duration::from_secs(10)));
    let next = bounded(setup.next_boot(ScriptedModel::new(answers)));
    let mut agent = next.start().await;
    assert_eq!(word(&agent.one.text("s4", "hello").await), "busy");
    assert_eq!(agent.one.next().await, "hi");
    let Ack::Accepted(accepted) = agent.one.text("s4", "hello").await else { panic!("one has ended") };
    assert_eq!(end_of(accepted).await.reply.as_deref(), Some("hi"));
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn runs_that_wait_for_an_approval_are_no_waiting_messages_of_their_sender_also_after_a_restart() {
    let ring = || Scripted::call("ring", json!({"text": "noon"}));
    let bounded = |model| {
        let mut setup = Setup::new(model).tool(TestTool::named("echo").called("ring").asking());
        setup.queue.max_messages_per_sender = 2;
        setup
    };
    let mut setup = bounded(ScriptedModel::new([ring(), ring(), ring()]));
    let mut agent = setup.start().await;
    for session in ["s1", "s2", "s3"] {
        let mut accepted = agent.one.accepted(session, "ring").await;
        rest_of(&mut accepted).await;
    }
    for boot in 1..=2 {
        agent.model.push(Scripted::hang());
        agent.model.push(Scripted::hang());
        let fresh = [format!("a of boot {boot}"), format!("b of boot {boot}")];
        let mut open = Vec::new();
        for session in &fresh {
            open.push(agent.one.accepted(session, "hello").await);
        }
        assert_eq!(word(&agent.one.text("one more", "hello").await), "busy", "boot {boot}");
        for session in &fresh {
            agent.one.text(session, "/stop").await;
        }
        for accepted in open {
            end_of(accepted).await;
        }
        if boot == 1 {
            agent.crash().await;
            let next = bounded(ScriptedModel::new([]));
            setup = crate::support::Setup { store: setup.store.clone(), clock: setup.clock.clone(), ..next };
            agent = setup.start().await;
        }
    }
    // Resumed, it is a message that waits again.
    agent.model.push(Scripted::hang());
    agent.model.push(Scripted::hang());
    for session in ["s1", "s2"] {
        let Ack::Command(_) = agent.one.text(session, "yes").await else { panic!("an answer") };
    }
    agent.asked(4).await;
    assert_eq!(word(&agent.one.text("one more", "hello").await), "busy");
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn declared_outputs_and_options_count_among_the_bytes_and_messages_of_all_are_bounded() {
    let mut setup = Setup::new(ScriptedModel::new((0..4).map(|_| Scripted::hang())));
    setup.queue.max_bytes_per_sender = Some(1_000);
    let agent = setup.start().await;
    let long = "x".repeat(900);
    let options = RunOptions { extra_prompt: Some(long.clone()), ..RunOptions::default() };
    let output: DeclaredOutput =
        serde_json::from_value(json!({"name": "answer", "schema": {"type": "string"}, "description": long}))
            .expect("one");
    assert_eq!(word(&agent.one.with_options("s1", "hello", options.clone()).await), "accepted");
    assert_eq!(word(&agent.one.text("s2", &"y".repeat(100)).await), "busy", "the options take up room");
    assert_eq!(word(&agent.one.with_options("s2", "hello", options).await), "busy");
    assert_eq!(word(&agent.one.with_outputs("s2", "hello", vec![output]).await), "busy");
    agent.crash().await;

    let mut setup = Setup::new(ScriptedModel::new((0..4).map(|_| Scripted::hang())));
    setup.queue.max_messages = 2;
    let agent = setup.start().await;
    for (who, expected) in [("ann", "accepted"), ("bob", "accepted"), ("eve", "overloaded")] {
        assert_eq!(word(&agent.one.text_of(who, &format!("of {who}"), "hello").await), expected, "{who}");
    }
    agent.crash().await;
}
